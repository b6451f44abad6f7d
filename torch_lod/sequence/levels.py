# SPDX-License-Identifier: Apache-2.0
"""Chunk, roll, thin out, interleave: operators on the elements of a level, rows or whole sub-sequences with their content."""

import torch
from torch import Tensor

from .. import ops
from ..construct.joined import all_lod, joined_within
from ..dynamo import whole_number
from ..ops.alike import alike_segments
from ..structure.lod import LoD
from ..structure.validate import a_bool, integer, sums, with_data, with_memory
from ..tensor.lod_tensor import LoDTensor, made, moved, rows_of
from ..tensor.picking import down_to, elements
from .operator import along, sequence_operator
from .pool import sortable
from .rearrange import per_sequence

__all__ = ["sequence_chunk", "sequence_interleave", "sequence_roll", "sequence_unique"]


#: The bits of infinity in float64: those of NaN are beyond.
_INFINITY = 0x7FF0000000000000


@sequence_operator
def sequence_chunk(
    x: LoDTensor, size: int, stride: int | None = None, *, name: str | None = None, level: int | str = -1
) -> LoDTensor:
    """Every sequence of a level in chunks of `size` elements, the last one shorter: one more level, below this one.

    `drop_level` of the new level undoes it; `flatten_levels(level, level + 1)` gives a batch of chunks instead.

        >>> import torch, torch_lod as tl
        >>> tl.sequence_chunk(tl.from_lengths(torch.arange(5), [[3, 2]]), 2).to_list()
        [[[0, 1], [2]], [[3, 4]]]

    Equivalent to (one level):
        torch.cat([torch.cat(rows.split(size)) for rows in x.sequences()])

    Args:
        x: (rows, *element), of any dtype.
        size: at least 1 (ValueError).
        stride: from the beginning of a chunk to that of the next, at least 1. Below `size` chunks overlap, and the first
            that reaches the end of the sequence is the last; above it, elements between chunks are left out.
        name: of the new level.

    Returns:
        the elements, with the levels of x and one more. An empty sequence has no chunks. Chunks that tile the sequence,
        without `stride`, share the rows of x. The gradient sums over the chunks that hold an element.

    Source: torch.split, sequence by sequence; with `stride` torch.Tensor.unfold, which leaves out what fills no window.
    """
    s = along(x, level)
    size = integer("size", size, most=2**40)
    stride = size if stride is None else integer("stride", stride, most=2**40)
    lod, k = x.lod, s.k  # not s.lod: rows that a loss ignored stay known
    offsets = lod.levels[k]
    length = offsets.diff()
    reached = (length - size).clamp(min=0) + (stride - 1)  # by the first chunk, and how many more until the end is
    chunks = sums(torch.minimum(reached // stride + 1, (length + (stride - 1)) // stride))
    count = whole_number(chunks[-1])
    begin = ops.run_map(offsets[:-1], chunks, count, stride)
    names = lod.level_names or (None,) * lod.depth
    names = (*names[: k + 1], name, *names[k + 1 :])
    if stride == size:
        levels = [*lod.levels[:k], chunks, torch.cat([begin, offsets[-1:]]), *lod.levels[k + 1 :]]
        return LoDTensor(x.values(), LoD.checked("offsets", levels, names, lod.rows).counting(*lod.counted))
    room = ops.run_map(offsets[1:], chunks, count, 0) - begin
    inner, runs = lod.runs(k, begin, room.clamp(max=size))
    levels = [*lod.levels[:k], chunks, *inner.levels]
    return moved(s.rows, LoD.checked("offsets", levels, names, inner.rows).counting(*inner.counted), runs)


@sequence_operator
def sequence_roll(x: LoDTensor, n, *, level: int | str = -1) -> LoDTensor:
    """Every element of a sequence of a level moves by n positions; what leaves at one end enters at the other.

    Equivalent to (one level):
        torch.cat([rows.roll(n, 0) for rows in x.sequences()])

    Args:
        x: (rows, *element), of any dtype.
        n: an int within 2**40, or an integer for each sequence: how many positions to the right; negative: to the left.

    Returns:
        the LoD of x, except that at an outer level the lengths of sub-sequences move with them. The gradient moves back.

    Source: torch.roll, sequence by sequence; `sequence_shift` fills instead of going round.
    """
    s = along(x, level)
    lod, k = s.lod, s.k
    length = lod.levels[k].diff()
    n = per_sequence("n", n, length.shape[0])
    front = torch.remainder(n, length.clamp(min=1))  # elements that come from behind
    begin = (
        torch.stack([torch.where(front > 0, length - front, 0), torch.zeros_like(front)], 1) + lod.levels[k][:-1, None]
    )
    runs_of = torch.stack([front, length - front], 1)
    inner, runs = lod.runs(k, begin.flatten(), runs_of.flatten(), True)
    if s.innermost:
        return moved(s.rows, lod, runs)
    levels = [*lod.levels[: k + 1], *inner.levels[1:]]
    whole = LoD.checked("offsets", levels, lod.level_names, inner.rows)
    return moved(s.rows, whole.counting(*inner.counted), runs)


@sequence_operator
def sequence_interleave(xs, *, level: int | str = -1) -> LoDTensor:
    """Sequence i of the result takes an element of sequence i of every x, round-robin, and then from those that have more.

        >>> import torch, torch_lod as tl
        >>> x, y = tl.from_lengths(torch.arange(4), [[3, 1]]), tl.from_lengths(torch.arange(10, 13), [[1, 2]])
        >>> tl.sequence_interleave([x, y]).to_list()
        [[0, 10, 1, 2], [3, 11, 12]]

    Equivalent to (one level, sequences of equal length):
        torch.cat([torch.stack(both, 1).flatten(0, 1) for both in zip(*[x.sequences() for x in xs])])

    Args:
        xs: LoDTensors with equally many sequences at the level, whose levels above are equal; ValueError otherwise.

    Returns:
        the elements of all, with the lengths of the level added up. The gradient goes back to each x.

    Source: `cat(along="within")`, in another order; itertools' recipe of round robin.
    """
    xs = all_lod(xs)
    k = xs[0].lod.level(level)
    joined = joined_within(xs, k)
    turns = []
    for j, x in enumerate(xs):
        own = x.lod.levels[k]
        position = ops.run_map(torch.zeros_like(own[1:]), own, x.lod.elements_at(k), 1)
        turns.append(made(position * len(xs) + j, down_to(x.lod, k).counting()))
    order = ops.segment_order(rows_of(joined_within(turns, k)), joined.lod.levels[k])
    return made(*elements(rows_of(joined), joined.lod, k, order, joined.lod.levels[k]))


@sequence_operator
def sequence_unique(
    x: LoDTensor, *, return_inverse: bool = False, return_counts: bool = False, level: int | str = -1
) -> LoDTensor | tuple[LoDTensor, ...]:
    """The different elements of every sequence of a level, each where it comes first. At an outer level the elements are
    whole sub-sequences: those are equal that have equal rows in equal order.

        >>> import torch, torch_lod as tl
        >>> x = tl.from_lengths(torch.tensor([5, 3, 5, 3, 3]), [[4, 1]])
        >>> tl.sequence_unique(x).to_list()
        [[5, 3], [3]]

    Equivalent to (one level, rows of one element):
        torch.cat([rows[[i for i, r in enumerate(rows.tolist()) if r not in rows[:i].tolist()]] for rows in x.sequences()])

    Args:
        x: (rows, *element), of any dtype. NaN equals nothing, not even itself.
        return_inverse: the position of every element in the result, int64, with the levels of x down to this one.
        return_counts: how often every element of the result is there, int64, with its levels down to this one.

    Returns:
        the elements, with the levels of x and the new lengths; with a flag a tuple, as torch.unique has it. The gradient
        goes to the first of equals. `sequence_sort` sorts the result. One sync if x is on a GPU.

    Source: torch.unique, sequence by sequence, in the order of pandas.unique.
    """
    s = along(x, level)
    lod, k = s.lod, s.k
    a_bool("return_inverse", return_inverse)
    a_bool("return_counts", return_counts)
    with_data("x", s.rows)
    offsets, parent = lod.levels[k], lod.parents_at(k)
    alike = _alike(lod, k, s.rows)
    order = ops.segment_order(alike, offsets)
    sorted_ = alike[order]
    new = torch.ones_like(order, dtype=torch.bool)
    new[1:] = (sorted_[1:] != sorted_[:-1]) | (parent[1:] != parent[:-1])
    first = order[new]  # stable: of equals the first; in the order of their values
    index, turn = first.sort()
    group = torch.empty_like(turn)
    group[turn] = torch.arange(turn.shape[0], device="cpu")
    of = group[new.cumsum(0) - 1]  # which element of the result, for every sorted one
    own = sums(torch.bincount(parent[index], minlength=offsets.shape[0] - 1))
    out = made(*elements(s.rows, lod, k, index, own))
    more = []
    if return_inverse:
        inverse = torch.empty_like(order)
        inverse[order] = of - own[parent]
        more.append(made(inverse.to(s.rows.device), down_to(lod, k).counting()))
    if return_counts:
        counts = torch.bincount(of, minlength=index.shape[0])
        more.append(made(counts.to(s.rows.device), down_to(out.lod, k).counting()))
    return (out, *more) if more else out


def _alike(lod: LoD, k: int, rows: Tensor) -> Tensor:
    """A number for every element of level k, in host memory: equal where elements are."""
    alike = _alike_rows(rows.detach()).cpu()
    for offsets in reversed(lod.levels[k + 1 :]):
        alike = alike_segments(alike, offsets)
    return alike


def _alike_rows(rows: Tensor) -> Tensor:
    with_memory(rows)
    flat = torch.view_as_real(rows) if rows.is_complex() else sortable(rows)
    count = rows.shape[0]
    flat = flat.reshape(count, flat.shape[1:].numel())
    if flat.is_floating_point():  # as bits: sorting by rows would lose its way at NaN
        wide = flat.double()
        nan = wide.isnan()
        own = nan.flatten().cumsum(0).view(nan.shape) + _INFINITY  # the bits of another NaN each
        flat = torch.where(nan, own, torch.where(wide == 0, 0.0, wide).view(torch.int64))
    if not count or not flat.shape[1]:
        return torch.zeros(count, dtype=torch.int64, device=rows.device)
    if flat.shape[1] == 1:
        return flat[:, 0].unique(return_inverse=True)[1]
    return flat.unique(dim=0, return_inverse=True)[1]
