# SPDX-License-Identifier: Apache-2.0
"""Operators that repeat or move the elements of a level: whole sub-sequences, with all that is inside them."""

import torch
from torch import Tensor

from .. import ops
from ..errors import LoDTypeError, LoDValueError, public
from ..inputs import sums
from ..lod import LoD
from ..lod_tensor import LoDTensor
from ._common import level_of

__all__ = ["sequence_expand", "sequence_expand_as", "sequence_reverse"]


@public
def sequence_reverse(x: LoDTensor, level: int | str = -1) -> LoDTensor:
    """Every sequence of a level with its elements in reverse order; at an outer level whole sub-sequences change places
    and stay as they are inside.

    Equivalent to (one level):
        torch.cat([rows.flip(0) for rows in x.sequences()])

    Returns:
        (rows, *element). The LoD of x, but for the lengths of sub-sequences, which move with them.

    Source: Paddle Fluid's sequence_reverse, of one level.
    """
    k = level_of("sequence_reverse", x, level)
    lod = x._lod
    offsets = lod._offsets[k]
    turned = ops.run_map(offsets[1:] - 1, offsets, int(offsets[-1]), -1)
    if k + 1 == lod.depth:
        return x.with_values(ops.gather_rows(x.values(), turned.to(x.device, non_blocking=True)))
    inner, rows = lod._take("sequence_reverse", k + 1, turned)
    full = LoD._of("sequence_reverse", "offsets", [*lod._offsets[: k + 1], *inner._offsets], lod.level_names)
    return x._gather(rows, full)


@public
def sequence_expand(x: Tensor, y: LoDTensor | LoD, ref_level: int | str = -1) -> Tensor:
    """Element i of x as often as sequence i of y is long.

    Args:
        x: a plain tensor, whose rows are repeated, or a LoDTensor, whose outermost sequences are repeated whole. As many as
            y has sequences at `ref_level`; ValueError otherwise.
        y: whose lengths count: in elements of the next level.
        ref_level: the level of y.

    Returns:
        plain for a plain x; for a LoDTensor with the lengths of x repeated. The gradient sums over the repetitions.

    Equivalent to (x plain):
        torch.repeat_interleave(x, y.lengths(ref_level), 0)

    Source: Paddle Fluid's sequence_expand, with x of at most one level.
    """
    call = "sequence_expand"
    lod = _structure(call, y)
    lengths = lod.lengths(lod.level(ref_level, call))
    count = x.num_sequences() if isinstance(x, LoDTensor) else _rows_of(call, x)
    if count != lengths.numel():
        raise LoDValueError(
            f"{call}: expected x with the {lengths.numel()} sequences of y at level {ref_level!r}, got {count}"
        )
    offsets = sums(lengths)
    turn = ops.run_map(torch.arange(count, device="cpu"), offsets, int(offsets[-1]), 0)
    if not isinstance(x, LoDTensor):
        return ops.segment_broadcast(x, offsets.to(x.device, non_blocking=True), int(offsets[-1]))
    inner, rows = x._lod._take(call, 0, turn)
    return x._gather(rows, inner)


@public
def sequence_expand_as(x: Tensor, y: LoDTensor | LoD) -> LoDTensor:
    """Lays the rows of x over the rows of y: x's rows are y's sequences at the level where x's structure ends.

    With y of lengths [[3, 1, 2], [3, 2, 4, 1, 2, 3]], 3 plain rows (a row per article) and 6 rows of lengths [[3, 1, 2]]
    (a row per sentence) both become 15 rows.

    Args:
        x: a plain tensor with a row per outermost sequence of y, or a LoDTensor whose levels are the outer ones of y.
        y: the structure to take on.

    Returns:
        (rows of y, *element of x) with the LoD of y. The gradient sums over the rows.

    Raises:
        ValueError: where the outer levels of y are not those of x.

    Source: Paddle Fluid's sequence_expand_as, with x of no level.
    """
    call = "sequence_expand_as"
    lod = _structure(call, y)
    own = x._lod if isinstance(x, LoDTensor) else None
    k = own.depth if own is not None else 0
    if k >= lod.depth:
        raise LoDValueError(f"{call}: expected x with fewer levels than the {lod.depth} of y, got {k}")
    outer = lod.outer(k)
    if own is not None and outer is not None and own != outer:
        raise LoDValueError(
            f"{call}: expected the outer levels of y to be those of x, got LoDs that differ: {own.difference(outer)}"
        )
    rows = _rows_of(call, x)
    if rows != lod.num_sequences(k):
        raise LoDValueError(
            f"{call}: expected x with a row for each of the {lod.num_sequences(k)} sequences of y, got {rows}"
        )
    values = x.values() if isinstance(x, LoDTensor) else x
    return LoDTensor(ops.segment_broadcast(values, lod._row_offsets(k, x.device), lod.rows), lod)


def _structure(call: str, y) -> LoD:
    if isinstance(y, LoD):
        return y
    if not isinstance(y, LoDTensor):
        raise LoDTypeError(f"{call}: expected y as a LoDTensor or LoD, got {type(y).__name__}")
    return y._lod


def _rows_of(call: str, x) -> int:
    if not isinstance(x, Tensor) or x.dim() == 0:
        raise LoDTypeError(
            f"{call}: expected x as a tensor with rows, got {type(x).__name__ if not isinstance(x, Tensor) else 'a scalar'}"
        )
    return x.shape[0]
