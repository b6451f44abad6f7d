# SPDX-License-Identifier: Apache-2.0
"""Expand, reverse, sample, shift, slice: operators that repeat, pick or move the elements of a level, rows or whole
sub-sequences with their content."""

from typing import Any, overload

import numpy as np
import torch
from torch import Tensor

from .. import ops
from ..dynamo import compiling, failing
from ..errors import LoDTypeError, LoDValueError, shown
from ..structure.declared import refuse_other_level
from ..structure.lod import LoD
from ..structure.validate import (
    a_bool,
    a_float,
    an_int,
    as_int,
    filler,
    host_integers,
    integers_to_copy,
    probability,
    with_memory,
)
from ..tensor.lod_tensor import LoDTensor, made, moved, rows_of, sequences_at
from .operator import Along, along, as_autocast, on_rows, sequence_operator

__all__ = [
    "broadcast",
    "sequence_dropout",
    "sequence_expand",
    "sequence_expand_as",
    "sequence_reverse",
    "sequence_sample",
    "sequence_shift",
    "sequence_slice",
]


def repeat_rows(values: Tensor, offsets: Tensor, rows: int) -> Tensor:
    """Row s of values, repeated for every row of segment s; any dtype."""
    if values.dtype != torch.bool and not values.dtype.is_complex:
        return ops.segment_broadcast(values, offsets, rows)
    here = torch.arange(values.shape[0], device=values.device)
    return ops.gather_rows(values, ops.run_map(here, offsets, rows, 0))


@sequence_operator
def sequence_reverse(x: LoDTensor, *, level: int | str = -1) -> LoDTensor:
    """Every sequence of a level with its elements in reverse order. At an outer level the elements are whole sub-sequences,
    whose rows keep their order.

    Equivalent to (one level):
        torch.cat([rows.flip(0) for rows in x.sequences()])

    Args:
        x: (rows, *element), of any dtype.

    Returns:
        (rows, *element) with the LoD of x, except that the lengths of sub-sequences move with them. The gradient is
        reversed too.

    Source: Paddle Fluid's sequence_reverse, of one level.
    """
    s = along(x, level)
    lod, k = s.lod, s.k
    if s.innermost:
        last, offsets = lod.together_at(
            ("reverse rows", k), s.rows.device, lambda: ((lod.last_rows_at, k), (lod.row_offsets_at, k))
        )
        return s.keep(ops.gather_runs(s.rows, last, offsets, lod.rows, -1))

    def reversed_at():
        offsets = lod.levels[k]
        inner, runs = lod.take(k + 1, ops.run_map(offsets[1:] - 1, offsets, lod.elements_at(k), -1), True)
        return lod.under(inner, offsets), runs

    return moved(s.rows, *lod.moves(("reverse", k), reversed_at, s.rows))


@sequence_operator
def sequence_slice(x: LoDTensor, offset, length, *, level: int | str = -1, clamp: bool = False) -> LoDTensor:
    """A slice of every sequence i of a level: `length[i]` elements, the first of them at position `offset[i]`.

    Equivalent to (one level):
        torch.cat([rows[o : o + n] for rows, o, n in zip(x.sequences(), offset, length)])

    Args:
        x: (rows, *element), of any dtype.
        offset, length: integers, (sequences,) or (sequences, 1): a list, an array or a tensor; one sync if on a GPU. An
            int is the same for every sequence.
        clamp: leave out positions outside of the sequence, before its beginning or after its end, instead of raising.

    Returns:
        the elements, with the levels of x and the new lengths. The gradient is zero at the other elements.

    Raises:
        ValueError: if length < 0; and unless clamp, if offset < 0 or offset + length exceeds the length of the sequence.

    Source: Paddle Fluid's sequence_slice, of one level.
    """
    s = along(x, level)
    a_bool("clamp", clamp)
    offsets = s.lod.levels[s.k]
    count, room = offsets.numel() - 1, offsets.diff()
    begin, taken = (per_sequence(what, _flat(t), count) for what, t in (("offset", offset), ("length", length)))
    if clamp:
        return _clamped(s, begin, taken, room)

    def check():
        behind = room - begin
        wrong = (begin | taken | behind | (behind - taken)) < 0  # one pass for all four
        for i in failing(wrong, "sequence_slice: expected offset and length within the sequences"):
            raise LoDValueError(
                f"expected offset and length within sequence {i} of {int(room[i])} elements, got offset "
                f"{int(begin[i])} and length {int(taken[i])}; clamp=True leaves out what is outside"
            )

    if compiling():
        check()
    try:
        inner, runs = s.lod.runs(s.k, begin, taken, within=True)
    except (IndexError, TypeError, ValueError):
        begin, taken = host_integers("offset", begin), host_integers("length", taken)  # what is wrong with one of them
        check()
        raise
    return moved(s.rows, s.lod.under(inner), runs)


def _clamped(s: Along, begin: Tensor, taken: Tensor, room: Tensor) -> LoDTensor:
    for i in failing(taken < 0, "sequence_slice: expected length >= 0"):
        raise LoDValueError(f"expected length >= 0, got {int(taken[i])} for sequence {i}")
    # of an offset within int64 and a length within it, neither sum wraps around
    end = torch.where(begin < 0, begin + taken, torch.minimum(begin, room) + torch.minimum(taken, room))
    first = torch.minimum(begin.clamp(min=0), room)
    inner, runs = s.lod.runs(s.k, first, (torch.minimum(end, room) - first).clamp(min=0), within=True)
    return moved(s.rows, s.lod.under(inner), runs)


def _flat(given):
    """A column as one dimension."""
    return given.squeeze(1) if isinstance(given, Tensor) and given.dim() == 2 and given.shape[1] == 1 else given


def per_sequence(what: str, given, count: int) -> Tensor:
    """Integers, one for each sequence; an int is the same for all."""
    given = as_int(given)
    if type(given) is int:
        if not -(2**63) <= given < 2**63:
            raise LoDValueError(f"expected {what} within int64, got {shown(given)}")
        return torch.full((count,), given, dtype=torch.int64, device="cpu")
    if not isinstance(given, (Tensor, np.ndarray, list, tuple, range)):
        raise LoDTypeError(
            f"expected {what} as an int or a list, array or tensor of integers, got {type(given).__name__}"
        )
    numbers = integers_to_copy(what, given)
    if numbers.numel() != count:
        raise LoDValueError(f"expected {what} with one number for each of {count} sequences, got {numbers.numel()}")
    return numbers


@sequence_operator
def sequence_shift(x: LoDTensor, n: int, padding_value: float | Tensor = 0.0, *, level: int | str = -1) -> LoDTensor:
    """Every element of a sequence of a level moves by n positions; what leaves the sequence is lost.

    Equivalent to (n > 0, scalar rows):
        torch.cat([F.pad(rows, (n, 0), value=padding_value)[: len(rows)] for rows in x.sequences(level)])

    Args:
        x: (rows, *element), of any dtype.
        n: how many positions to the right; negative: to the left. `sequence_shift(x, 1)` gives every element its
            predecessor.
        padding_value: the value at positions that no element moves to; it has no gradient. Or a row for each sequence, with
            gradient, such as `tl.per_sequence(last)`, what was there before the sequence begins: a LoDTensor of it, or
            of the levels above, of the shape of the elements and the dtype of x. At an outer level such positions get
            empty sub-sequences.

    Returns:
        the LoD of x, except that at an outer level the lengths of sub-sequences move with them. The gradient moves
        back; elements that left the sequence have none.

    Source: torch.roll, sequence by sequence, but what leaves at one end does not enter at the other.
    """
    s = along(x, level)
    n = an_int("n as an int within 2**40", as_int(n), -(2**40), 2**40)
    if isinstance(padding_value, LoDTensor):
        return _shifted_in(s, n, padding_value)
    if isinstance(padding_value, Tensor) and padding_value.dim():
        raise LoDTypeError(
            "expected padding_value as a number or tl.per_sequence(rows), a row for each sequence, got "
            f"{type(padding_value).__name__}"
        )
    fill: Any = padding_value
    filler("padding_value", padding_value, s.rows.dtype)
    lod, k = s.lod, s.k
    if s.innermost:
        return s.keep(ops.segment_unfold(s.rows, s.offsets, 1, -n, 1, fill).squeeze(1))
    segment, offsets, inner = lod.parents_at(k), lod.levels[k], lod.levels[k + 1]
    source = torch.arange(segment.numel(), device="cpu") - n
    inside = (source >= offsets[segment]) & (source < offsets[segment + 1])
    source = torch.where(inside, source, 0)
    below, runs = lod.runs(k + 1, inner[source], torch.where(inside, inner.diff()[source], 0))
    return moved(s.rows, lod.under(below, offsets), runs)


def _shifted_in(s: Along, n: int, given: LoDTensor) -> LoDTensor:
    """`sequence_shift` of rows, with a row of the sequence at positions that no row moves to."""
    if not s.innermost:
        raise LoDTypeError("expected padding_value as a number at an outer level, got a row for each sequence")
    refuse_other_level("padding_value with a row", "rows", given.lod, s.lod, s.k)
    rows = as_autocast(given.values(), s.rows)
    if rows.shape[1:] != s.rows.shape[1:] or rows.dtype != s.rows.dtype or rows.device != s.rows.device:
        raise LoDTypeError(
            f"expected padding_value of elements {tuple(s.rows.shape[1:])} of {s.rows.dtype} on {s.rows.device}, as x, got "
            f"{tuple(rows.shape[1:])} of {rows.dtype} on {rows.device}"
        )
    count = s.rows.shape[0]
    here = torch.ones(count, dtype=torch.bool, device=s.rows.device)
    moved_to = on_rows(ops.segment_unfold(here, s.offsets, 1, -n).squeeze(1), s.rows)
    shifted = ops.segment_unfold(s.rows, s.offsets, 1, -n).squeeze(1)
    return s.keep(torch.where(moved_to, shifted, repeat_rows(rows, s.offsets, count)))


@sequence_operator
def sequence_sample(
    x: LoDTensor,
    k: int | None = None,
    *,
    generator: torch.Generator | None = None,
    shuffle: bool = False,
    level: int | str = -1,
) -> LoDTensor:
    """`k` random elements of every sequence of a level, without replacement, in order or shuffled; all of a shorter one.

    Args:
        x: (rows, *element), of any dtype.
        k: at least 0; all if None.
        shuffle: in random order, instead of the order that they have in x. `sequence_sample(x, shuffle=True)` only
            shuffles.
        generator: a torch.Generator in host memory (TypeError otherwise); torch's default if None.

    Returns:
        the elements drawn; the levels above do not change. The gradient goes to these elements.

    Source: torch.randperm, sequence by sequence.
    """
    s = along(x, level)
    a_bool("shuffle", shuffle)
    most = s.lod.elements_at(s.k) if k is None else as_int(k)
    if k is not None and (type(most) is not int or not 0 <= most < 2**63):
        raise LoDValueError(f"expected k in [0, 2**63), got {shown(k)}")
    if generator is not None and (not isinstance(generator, torch.Generator) or generator.device.type != "cpu"):
        got = f"one on {generator.device}" if isinstance(generator, torch.Generator) else type(generator).__name__
        raise LoDTypeError(f"expected generator as a torch.Generator in host memory, got {got}")
    offsets, segment = s.lod.levels[s.k], s.lod.parents_at(s.k)
    by: dict = {} if generator is None else {"generator": generator}  # a graph takes no generator, not even None
    order = torch.rand(segment.numel(), device="cpu", **by).argsort()
    order = order[segment[order].argsort(stable=True)]  # sorted by sequence, random within it
    position = torch.arange(segment.numel(), device="cpu") - offsets[segment]
    drawn = order[position < most]
    return s.pick(drawn if shuffle else drawn.sort().values, offsets.diff().clamp(max=most))


@sequence_operator
def sequence_dropout(x: LoDTensor, p: float = 0.5, *, level: int | str = -1, training: bool = True) -> LoDTensor:
    """Sets all rows of a sequence of a level to zero with probability p; rows of other sequences are divided by 1 - p.

    Args:
        x: (rows, *element), a floating dtype (TypeError otherwise).
        p: in [0, 1].
        training: if False, the result is x itself.

    Returns:
        the shape, dtype and LoD of x. The gradient is zeroed or divided likewise. Uses the random generator of x's
        device.

    Source: torch.nn.functional.dropout1d, of sequences instead of channels.
    """
    s = along(x, level)
    probability("p", p)
    a_float(s.rows)
    if not training or p == 0:
        return x
    keep = (torch.rand(s.lod.num_sequences(s.k), device=s.rows.device) >= p).to(torch.uint8)
    kept = on_rows(s.spread(keep), s.rows) > 0
    with_memory(s.rows)
    return s.keep(torch.where(kept, s.rows / (1 - p) if p < 1 else s.rows, 0))


@overload
def sequence_expand(x: LoDTensor, y: LoDTensor | LoD, *, ref_level: int | str = -1) -> LoDTensor: ...
@overload
def sequence_expand(x: Tensor, y: LoDTensor | LoD, *, ref_level: int | str = -1) -> Tensor: ...
@sequence_operator
def sequence_expand(x: Tensor, y: LoDTensor | LoD, *, ref_level: int | str = -1) -> Tensor:
    """Repeats element i of x as often as sequence i of y has elements.

    Args:
        x: of any dtype; a plain tensor, whose rows are repeated, or a LoDTensor, whose outermost sequences are repeated
            as a whole. Their number must be the number of sequences of y at `ref_level`; ValueError otherwise.
        y: its lengths are the numbers of repetitions, in elements of the next level.
        ref_level: the level of y.

    Returns:
        plain for a plain x; for a LoDTensor, one whose lengths are repeated too. Where a sequence of y is empty, the
        element of x is left out. The gradient sums over the repetitions.

    Equivalent to (x plain):
        torch.repeat_interleave(x, y.lengths(ref_level), 0)

    Source: Paddle Fluid's sequence_expand, with x of at most one level.
    """
    lod = _structure(y)
    k = lod.level(ref_level)
    offsets = lod.levels[k]
    count = x.num_sequences() if isinstance(x, LoDTensor) else _rows_of(x)
    if count != offsets.numel() - 1:
        raise LoDValueError(
            f"expected x with the {offsets.numel() - 1} sequences of y at level {shown(ref_level)}, got {count}"
        )
    rows = lod.elements_at(k)
    if not isinstance(x, LoDTensor):
        return repeat_rows(x, lod.offsets_at(k, x.device), rows)
    return sequences_at(x, 0, ops.run_map(torch.arange(count, device="cpu"), offsets, rows, 0))


@sequence_operator
def sequence_expand_as(x: Tensor, y: LoDTensor | LoD) -> LoDTensor:
    """Broadcasts the rows of x to the rows of y: row i goes to sequence i of y, at the first level that x lacks.

    With y of lengths [[3, 1, 2], [3, 2, 4, 1, 2, 3]], 3 plain rows (a row per article) and 6 rows of lengths [[3, 1, 2]]
    (a row per sentence) both become 15 rows.

    Args:
        x: of any dtype; a plain tensor with a row per outermost sequence of y, or a LoDTensor whose levels are the outer
            ones of y.
        y: the structure of the result.

    Returns:
        (rows of y, *element of x) with the LoD of y. Rows of x that belong to empty sequences are left out. The
        gradient sums over the rows.

    Raises:
        ValueError: if the outer levels of y differ from the levels of x.

    Source: Paddle Fluid's sequence_expand_as, with x of no level.
    """
    lod = _structure(y)
    own = x.lod if isinstance(x, LoDTensor) else None
    k = own.depth if own is not None else 0
    if k >= lod.depth:
        raise LoDValueError(f"expected x with fewer levels than the {lod.depth} of y, got {k}")
    outer = lod.outer_at(k)
    if own is not None and outer is not None and own.differs(outer):
        raise LoDValueError(
            f"expected the outer levels of y to be those of x, got LoDs that differ: {own.difference(outer)}"
        )
    rows, count = _rows_of(x), lod.levels[k].shape[0] - 1
    if rows != count:
        level = next((j for j in range(1, lod.depth) if own is None and lod.num_sequences(j) == rows), None)
        of = "y" if isinstance(y, LoD) else "y.lod"
        hint = f"; if one for each of level {level}, as tl.LoDTensor(x, {of}.outer({level}))" if level else ""
        raise LoDValueError(f"expected x with a row for each of the {count} sequences of y, got {rows}{hint}")
    values = rows_of(x)
    return made(repeat_rows(values, lod.row_offsets_at(k, values.device), lod.rows), lod)


@sequence_operator
def broadcast(*xs) -> tuple[LoDTensor, ...]:
    """Broadcasts the operands to the rows of the one with the most levels, for elementwise arithmetic between levels.

    A row of a LoDTensor with fewer levels is repeated for all rows of its sequence; so is a row of a plain tensor,
    which has a row per outermost sequence. Numbers and scalar tensors stay as they are.

        >>> import torch, torch_lod as tl
        >>> x = tl.from_lengths(torch.arange(4.0), [[1, 3]])
        >>> a, b = tl.broadcast(x, tl.sequence_pool(x, "mean"))
        >>> (a - b).values()
        tensor([ 0., -1.,  0.,  1.])

    Raises:
        ValueError: if the outer levels of the deepest operand differ from the levels of another; if no operand is a
            LoDTensor.

    Source: torch.broadcast_tensors, for ragged dimensions; `sequence_expand_as` for each, with its gradient.
    """
    lods = [x.lod for x in xs if isinstance(x, LoDTensor)]
    if not lods:
        raise LoDValueError("expected at least 1 LoDTensor, got none")
    deepest = lods[0]
    for lod in lods[1:]:
        deepest = lod if lod.depth > deepest.depth else deepest

    def over(x):
        if not isinstance(x, Tensor) or (x.dim() == 0 and not isinstance(x, LoDTensor)):
            return x
        if isinstance(x, LoDTensor) and x.lod_level == deepest.depth:
            if x.lod.differs(deepest):
                raise LoDValueError(f"expected equal LoDs, got LoDs that differ: {deepest.difference(x.lod)}")
            return x
        return sequence_expand_as(x, deepest)

    return tuple(map(over, xs))


def _structure(y) -> LoD:
    if isinstance(y, LoD):
        return y
    if not isinstance(y, LoDTensor):
        raise LoDTypeError(f"expected y as a LoDTensor or LoD, got {type(y).__name__}")
    return y.lod


def _rows_of(x) -> int:
    if not isinstance(x, Tensor) or x.dim() == 0:
        raise LoDTypeError(
            f"expected x as a tensor with rows, got {type(x).__name__ if not isinstance(x, Tensor) else 'a scalar'}"
        )
    return x.shape[0]
