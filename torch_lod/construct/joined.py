# SPDX-License-Identifier: Apache-2.0
"""LoDTensors joined: one batch after another, within sequences, along features."""

import functools

import torch
from torch import Tensor

from .. import ops
from ..dynamo import compiling, holds
from ..errors import LoDTypeError, LoDValueError, boundary, public, shown, without_dispatch
from ..structure.joined import chain, counted_each, within_in_graph
from ..structure.lod import LoD
from ..structure.partition import computed_there, together
from ..structure.validate import one_of, with_memory
from ..tensor.lod_tensor import LoDTensor, made, rows_of

__all__ = ["cat", "stack"]


def all_lod(xs) -> list[LoDTensor]:
    """LoDTensors of one depth; who gives them to a function of torch asks for their memory."""
    if not isinstance(xs, (list, tuple)):
        raise LoDTypeError(f"expected a list of LoDTensors, got {type(xs).__name__}")
    for x in xs:
        if not isinstance(x, LoDTensor):
            raise LoDTypeError(f"expected LoDTensors, got {type(x).__name__}")
    if not xs:
        raise LoDTypeError("expected LoDTensors, got none")
    if len({len(x._provenance.lod.levels) for x in xs}) > 1:
        raise LoDValueError(f"expected LoDTensors of equal depth, got depths {[x.lod_level for x in xs]}")
    return list(xs)


@boundary(dispatch=False)
def cat(xs, along: str = "sequences", dim: int = -1, *, level: int | str = -1) -> LoDTensor:
    """Joins LoDTensors.

    Args:
        along: "sequences": one batch after another. "within": sequence i of the result is sequence i of every x, one
            after another. "features": along `dim` of the rows, for equal LoDs.
        level: for "within": the level whose sequences are joined, the innermost unless another is given. The levels above
            must be equal.
    """
    with_memory(dim, level)
    one_of("along", along, "sequences", "within", "features")
    if along != "within" and level not in (0, -1):
        raise LoDValueError(f"expected level with along='within' only, got {shown(level)} with {shown(along)}")
    if along != "features" and dim != -1:
        raise LoDValueError(f"expected dim with along='features' only, got {shown(dim)} with {shown(along)}")
    xs = all_lod(xs)
    if along == "sequences":
        return joined(xs)
    if along == "within":
        return joined_within(xs, xs[0].lod.level(level))
    lod = functools.reduce(LoD.agreed, [x.lod for x in xs])
    with_memory(*xs)
    on_one_device(xs)
    if dim in (0, -xs[0].dim()):
        raise LoDValueError("expected a dim of the rows along features, got dim 0")
    return made(torch.cat([rows_of(x) for x in xs], dim), lod)


def joined(xs: list[LoDTensor]) -> LoDTensor:
    """One batch after another."""
    with without_dispatch():
        with_memory(*xs)
        parts = _alike([rows_of(x) for x in xs])
        lod = chain([x._provenance.lod for x in xs])  # before the rows: it says what is wrong with their number
        return made(torch.cat(parts), lod)


def _alike(rows: list[Tensor]) -> list[Tensor]:
    """Rows that torch.cat takes: on one device, and of one shape."""
    on_one_device(rows)
    wanted = rows[0].shape[1:]
    for i, t in enumerate(rows[1:], 1):
        if (own := t.shape[1:]) != wanted:
            raise LoDValueError(f"expected rows of one shape, got {tuple(wanted)} and, at index {i}, {tuple(own)}")
    return rows


def joined_within(xs: list[LoDTensor], k: int) -> LoDTensor:
    """Sequence i of level k of the result is sequence i of every x, one after another. Without the table of torch's functions."""
    lods = [x._provenance.lod for x in xs]
    counts = [lod.levels[k].shape[0] - 1 for lod in lods]
    if not all(holds(count == counts[0]) for count in counts[1:]):
        raise LoDValueError(f"expected equally many sequences, got {counts}")
    if k:
        functools.reduce(LoD.agreed, [lod.outer_at(k) or lod for lod in lods])
    parts = _alike([rows_of(x) for x in xs])
    if len({t.dtype for t in parts}) > 1:
        with_memory(*parts)
        dtype = functools.reduce(torch.promote_types, [t.dtype for t in parts])
        parts = [t.to(dtype) for t in parts]
    lod = within_in_graph(lods, k) if compiling() else LoD.joined(lods, k)
    if any(one.counted for one in lods):
        lod = lod.counting(_joined_by(lods, k, counted_each(lods)))
    return made(_joined_by(lods, k, parts), lod)


def _joined_by(lods: list[LoD], k: int, parts: list[Tensor]) -> Tensor:
    """A tensor for every LoD, of its rows, joined as the sequences of level k are."""
    offsets = together(parts[0].device, *[(lod.row_offsets_at, k) for lod in lods])
    return _concat(list(zip(parts, offsets, strict=True)))


def _concat(parts: list[tuple[Tensor, Tensor]]) -> Tensor:
    """The rows of segments, given with their offsets, those of all parts joined two by two."""
    half = len(parts) // 2
    return ops.segment_concat(*_as_one(parts[:half]), *_as_one(parts[half:])) if half else parts[0][0]


def _as_one(parts: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    if len(parts) == 1:
        return parts[0]
    rows, offsets = _concat(parts), functools.reduce(torch.add, [offsets for _, offsets in parts])
    return rows, computed_there(offsets, rows.shape[0])


@public
def stack(xs, dim: int = 1) -> LoDTensor:
    """Stacks the rows of LoDTensors with equal LoDs along a new dim of the rows."""
    with_memory(dim)
    xs = all_lod(xs)
    with_memory(*xs)
    on_one_device(xs)
    lod = functools.reduce(LoD.agreed, [x.lod for x in xs])
    if dim in (0, -xs[0].dim() - 1):
        raise LoDValueError("expected a dim of the rows, got dim 0; see cat(along='sequences')")
    return LoDTensor(torch.stack([x.values() for x in xs], dim), lod)


def on_one_device(tensors) -> None:
    """ValueError for tensors on different devices."""
    if compiling():
        return
    with without_dispatch():  # of LoDTensors, too, at the price of an attribute
        devices = [t.device for t in tensors]
    if len(set(devices)) > 1:
        i = next(i for i, device in enumerate(devices) if device != devices[0])
        raise LoDValueError(
            f"expected tensors on one device, got {devices[0]} at index 0 and {devices[i]} at index {i}"
        )
