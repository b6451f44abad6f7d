# SPDX-License-Identifier: Apache-2.0
"""Gather by position: elements picked by their place in the sequence, neighbours, edges, arg-max and top-k, with -1 for none."""

from typing import overload

import torch
from torch import Tensor

from .. import ops
from ..dynamo import compiling, failing
from ..errors import LoDValueError
from ..structure.joined import stacked
from ..structure.partition import traced
from ..structure.validate import a_bool, filler, with_data
from ..tensor.lod_tensor import LoDTensor, MaybeLoD, made, moved
from ..tensor.positions import integers, owned, owners
from .operator import along, on_rows, sequence_operator

__all__ = ["sequence_gather"]

_locate = torch.ops.torch_lod.locate.default._op


@overload
def sequence_gather(
    x: LoDTensor, index: LoDTensor, fill: float = 0, *, absolute: bool = False, level: int | str = -1
) -> LoDTensor: ...
@overload
def sequence_gather(
    x: LoDTensor, index: Tensor, fill: float = 0, *, absolute: bool = False, level: int | str = -1
) -> MaybeLoD: ...
@sequence_operator
def sequence_gather(
    x: LoDTensor, index: Tensor, fill: float = 0, *, absolute: bool = False, level: int | str = -1
) -> MaybeLoD:
    """The elements of every sequence of a level at the positions that an index names; -1 gives `fill`.

    Equivalent to (one level, an index with as many sequences, without -1):
        torch.cat([rows[i] for rows, i in zip(x.sequences(), index.sequences())])

    Args:
        x: (rows, *element), of any dtype.
        index: integers, (n, *more). A LoDTensor with the levels of x above `level` and at `level` as many sequences as x,
            of lengths of their own; it may have levels below. Or a row per sequence: a LoDTensor of the levels above
            `level`, a plain tensor at level 0. Position 0 is the first element of the sequence. At an outer level (n,).
        fill: the elements at -1; it has no gradient. At an outer level -1 gives an empty sub-sequence.
        absolute: the index counts the elements of the whole batch, as that of `sequence_knn`, `sequence_topk`,
            `sequence_argmax` and `sequence_pool(return_index=True)`. Each must be in the sequence that it is picked for.

    Returns:
        (n, *more, *element) with the LoD of the index, plain for a plain one; at an outer level the levels of the index,
        then those of x below `level`. The gradient sums over the positions that name an element.

    Raises:
        ValueError: for a position that its sequence does not have, with the sequence; for another structure.
        TypeError: for an index that is not of integers.

    Source: torch.Tensor's indexing, x[index], sequence by sequence; TensorFlow's batch_gather of ragged tensors.
    """
    s = along(x, level)
    a_bool("absolute", absolute)
    filler("fill", fill, s.rows.dtype)
    position = integers("index", index, s.rows.device)
    lod = index.lod if isinstance(index, LoDTensor) else None
    if not s.innermost:
        return _sub_sequences(x, s.k, index, position, absolute)
    device = position.device
    source, fits, shape = position.flatten(), False, position.shape
    if position.is_cpu and not (compiling() or traced()):
        own = owned("index", s.lod, s.k, index)
        if own is not None and position.numel():
            each = source.shape[0] // shape[0]
            source, fits = _locate(source, own.row_offsets_at(s.k), s.offsets, each, absolute)
    if not fits:
        source = _elements(position, owners("index", s.lod, s.k, index, device), s.offsets, absolute).flatten()
    taken = ops.gather_rows(s.rows, source, fill).view(*shape, *s.rows.shape[1:])
    if lod is not None and x._lod.counted:
        counted = [ops.gather_rows(mask, source).view(*shape, *mask.shape[1:]) for mask in x._lod.counted]
        lod = lod.counting(*lod.counted, *counted)
    return made(taken, lod)


def _elements(position: Tensor, owner: Tensor, offsets: Tensor, absolute: bool) -> Tensor:
    """The elements of the whole batch at positions, -1 where a position is; each row of them in its own sequence."""
    begin = on_rows(offsets.index_select(0, owner), position)
    owner = on_rows(owner, position)
    end = offsets[1:][owner]
    first, last = (begin, end) if absolute else (0, end - begin)
    wrong = (position != -1) & ((position < first) | (position >= last))
    for i in failing(wrong, "sequence_gather: expected index -1 or an element of its sequence"):
        value = int(position[i][wrong[i]].flatten()[0])
        j, a, b = (int(t[i].flatten()[0]) for t in (owner, begin, end))
        bounds = f"-1 or in [{a}, {b - 1}]" if absolute else f"in [-1, {b - a - 1}]"
        hint = ""
        if not absolute and 0 <= value < int(offsets[-1]):
            hint = "; if it counts the elements of the whole batch, as that of sequence_knn, absolute=True"
        raise LoDValueError(
            f"expected index {bounds} in sequence {j} of {b - a} elements, got {value} at row {i}{hint}"
        )
    return torch.where(position < 0, -1, position if absolute else begin + position)


def _sub_sequences(x: LoDTensor, k: int, index: Tensor, position: Tensor, absolute: bool) -> LoDTensor:
    """At an outer level: elements are sequences of the next level."""
    lod = x._lod
    if index.dim() != 1:
        raise LoDValueError(f"expected index of shape (n,) at level {k} of {lod.depth}, got {tuple(index.shape)}")
    with_data("index", position)
    source = _elements(position.cpu(), owners("index", lod, k, index, None), lod.levels[k], absolute)
    offsets = lod.levels[k + 1]
    lengths = torch.cat([offsets.diff(), offsets.new_zeros(1)])  # the last one is that of -1
    inner, runs = lod.runs(k + 1, offsets[source.clamp(min=0)], lengths[source])
    return moved(x, stacked(index.lod if isinstance(index, LoDTensor) else None, inner), runs)
