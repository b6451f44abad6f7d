# SPDX-License-Identifier: Apache-2.0
"""Sequences, elements and rows picked: by a path, a mask, by position, from the front or the back, by one index per level. What
picks takes rows and their LoD and gives the picked rows and theirs, without the table of torch's functions: methods of LoDTensor
and `x.seq` wrap them."""

import itertools
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from torch import Tensor

from .. import ops
from ..dynamo import compiling, failing, holds, rows_between, whole_number
from ..errors import LoDIndexError, LoDTypeError, LoDValueError, boundary, shown
from ..structure.devices import upload
from ..structure.joined import stacked
from ..structure.lod import LoD
from ..structure.partition import Runs, uploaded_map, uploaded_runs
from ..structure.validate import as_int, filler, host_integers, is_int, sums, with_data, with_memory
from .positions import integers, owners
from .provenance import lod_of, plain

_FAR = 2**62
#: Rows and their LoD, None where no level is left.
Picked = tuple[Tensor, LoD | None]


def down_to(lod: LoD, k: int) -> LoD:
    """Levels 0 to k: the structure of tensors with an entry for each element of level k."""
    return lod if k + 1 == len(lod.levels) else lod.outer_at(k + 1)  # type: ignore[return-value]


def taken(rows: Tensor, lod: LoD, source: Runs | Tensor, apart: bool = False) -> tuple[Tensor, LoD]:
    """The rows that `source` names, as runs or by index, which are those of `lod`. apart: an index names none twice."""
    if isinstance(source, Runs):
        starts, offsets = source if rows.is_cpu else uploaded_runs(source, rows, lod.rows)
        return ops.gather_runs(rows, starts, offsets, lod.rows), lod
    return ops.gather_rows(rows, uploaded_map(source, rows.device, rows.shape[0], apart)), lod


def sequences(rows: Tensor, lod: LoD, k: int, index: Tensor, all_of_it: bool = False) -> tuple[Tensor, LoD]:
    """The sequences of level k at `index`, a host tensor; those of level 0, or as many within each of the level above.
    `all_of_it`: every one once."""
    inner, runs = lod.take(k, index, all_of_it)
    return taken(rows, lod.under(inner) if all_of_it else inner, runs)


def inside(lod: LoD, k: int, j: int) -> tuple[LoD, int, int]:
    """Sequence j of level k: a LoD of the levels below, and the first and last row."""
    return lod.cut(k + 1, *map(whole_number, lod.levels[k][j : j + 2]))


def each_sequence(rows: Tensor, lod: LoD, k: int) -> Iterator[Picked]:
    """The inside of the sequences of a level one by one."""
    ends = lod.row_offsets_at(k).tolist()
    for j, (begin, end) in enumerate(itertools.pairwise(ends)):
        yield rows_between(rows, begin, end), None if k + 1 == lod.depth else inside(lod, k, j)[0]


def elements(rows: Tensor, lod: LoD, k: int, index: Tensor, offsets: Tensor, apart: bool = False) -> tuple[Tensor, LoD]:
    """The elements of level k at `index`, a host tensor, in sequences with the offsets `offsets`. apart: no element is named
    twice."""
    if k + 1 == len(lod.levels):
        cut = LoD.checked("offsets", [*lod.levels[:k], offsets], lod.level_names)
        return taken(rows, cut.counting(*[m[upload(index, m.device)] for m in lod.counted]), index, apart)
    inner, runs = lod.take(k + 1, index)
    return taken(rows, lod.under(inner, offsets), runs)


# -- by a mask


def filtered(rows: Tensor, lod: LoD, mask, k: int) -> tuple[Tensor, LoD]:
    keep = _of_elements(mask, lod, k)
    kept_before = sums(keep.to(torch.int64))
    return elements(rows, lod, k, keep.nonzero().flatten(), kept_before[lod.levels[k]], apart=True)


def _of_elements(mask, lod: LoD, k: int) -> Tensor:
    """A mask of the elements of level k, in host memory."""
    if isinstance(mask, np.ndarray) or (isinstance(mask, (list, tuple)) and all(type(m) is bool for m in mask)):
        mask = torch.as_tensor(mask, dtype=None if len(mask) else torch.bool, device="cpu")
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
        got = mask.dtype if isinstance(mask, Tensor) else type(mask).__name__
        raise LoDTypeError(f"expected mask as a bool tensor, got {got}")
    count, outer = lod.elements_at(k), down_to(lod, k)
    if (own := lod_of(mask)) is not None and own.differs(outer):
        raise LoDValueError(
            f"expected mask with the levels of x down to level {k}, got LoDs that differ: {outer.difference(own)}"
        )
    if mask.dim() != 1 or not holds(mask.shape[0] == count):
        others = [j for j in range(len(lod.levels)) if mask.shape == (lod.elements_at(j),)]
        hint = f"; it has one for each of level {others[0]}" if others else ""
        if mask.shape == (lod.num_sequences(0),):
            hint = "; whole sequences are taken with x.seq[mask]"
        raise LoDValueError(
            f"expected mask with an entry for each of the {count} elements of level {k}, got {tuple(mask.shape)}{hint}"
        )
    with_data("mask", mask)
    with_memory(mask)
    return plain(mask).cpu()


# -- by position


def part(rows: Tensor, lod: LoD, count: int, level: int | str, last: bool) -> tuple[Tensor, LoD]:
    """The first or the last `count` elements of every sequence of a level, all of a shorter one."""
    count, k = as_int(count), lod.level(level)
    if type(count) is not int or not 0 <= count < 2**63:
        said = f"expected k in [0, 2**63), got {shown(count)}"
        if type(count) is int and count < 0:
            said += f"; without rows at the other end: x.seq[{':, ' * (k + 1)}{f'{-count}:' if last else f':{count}'}]"
        raise LoDValueError(said)
    inner, runs = lod.part(k, count, last)
    return taken(rows, lod.under(inner), runs)


def nth(rows: Tensor, lod: LoD, i: int, level: int | str, padding_value: float) -> Picked:
    """Element i of every sequence of a level, instead of that level."""
    i = as_int(i)
    if type(i) is not int:
        raise LoDTypeError(f"expected i as an int, got {type(i).__name__}")
    if not -_FAR <= i < _FAR:
        raise LoDValueError(f"expected i within 62 bits, got {i}")
    filler("padding_value", padding_value, rows.dtype)
    k = lod.level(level)
    position, exists = _position(lod.levels[k], i)
    return _one_of_each(rows, lod, k, torch.where(exists, position, -1), padding_value)


def _position(offsets: Tensor, i: int) -> tuple[Tensor, Tensor]:
    """Element i of every sequence, and whether it has one."""
    position = (offsets[:-1] if i >= 0 else offsets[1:]) + i
    return position, (position >= offsets[:-1]) & (position < offsets[1:])


def _one_of_each(rows: Tensor, lod: LoD, k: int, position: Tensor, padding_value: float = 0.0) -> Picked:
    """For every sequence of level k the element at an index of that level, or where it is -1 a row of padding_value, an
    empty sub-sequence."""
    if k + 1 == len(lod.levels):
        row, outer = uploaded_map(position, rows.device, rows.shape[0], apart=True), lod.outer_at(k)
        if outer is not None and lod.counted:
            outer = outer.counting(*[ops.gather_rows(mask, row) for mask in lod.counted])
        return ops.gather_rows(rows, row, padding_value), outer
    inner = lod.levels[k + 1]
    starts = torch.where(position < 0, 0, inner[position])
    below, runs = lod.runs(k + 1, starts, torch.where(position < 0, 0, inner[position + 1] - starts))
    names = lod.level_names and (*lod.level_names[:k], *lod.level_names[k + 1 :])
    whole = LoD.checked("offsets", [*lod.levels[:k], *below.levels], names, below.rows)
    return taken(rows, whole.counting(*below.counted), runs)


# -- by one index per level


def _lists(key: tuple) -> list[int]:
    """Where lists and masks are in a key."""
    return [p for p, entry in enumerate(key) if not is_int(entry) and not isinstance(entry, slice)]


def by_levels(rows: Tensor, lod: LoD, key: tuple) -> Picked:
    """By ints, and then by slices, lists, masks and ints: each picks elements of the level of the one before."""
    if len(others := _lists(key)) > 1:
        raise LoDIndexError(
            f"expected at most 1 list or mask among the indices, got {len(others)}: write x.seq[...] of each, one after "
            "the other"
        )
    ints = next((p for p, entry in enumerate(key) if not is_int(entry)), len(key))
    if ints >= lod.depth:
        return _of_rows(indexed(rows, lod, key[:-1])[0], key[-1], len(key) - 1), None
    left: LoD | None
    rows, left = indexed(rows, lod, key[: ints + 1])
    level = 0
    for p in range(ints + 1, len(key)):
        entry = key[p]
        assert left is not None  # there are no more indices than levels and rows
        if is_int(entry):
            rows, left = _each(rows, left, entry, level, key[:p])
            continue
        rows, left = (
            _cut(rows, left, entry, level) if isinstance(entry, slice) else _by_list(rows, left, entry, level, p)
        )
        level += 1
    return rows, left


def _of_rows(rows: Tensor, entry, p: int) -> Tensor:
    """The rows of one sequence by the index after it."""
    n = len(rows)
    if is_int(entry):
        if not (holds(-n <= entry) and holds(entry < n)):
            raise LoDIndexError(f"expected path[{p}] in [{-n}, {n - 1}], got {entry}")
        return rows[entry]
    if isinstance(entry, slice):
        start, count, step = _range(entry, torch.tensor([n], device="cpu"))
        a, m = whole_number(start[0]), whole_number(count[0])
        return rows[a : a + m] if step == 1 else rows[torch.arange(m, device=rows.device) * step + a]
    return _by_list(rows, LoD.from_lengths([[n]]), entry, 0, p)[0]


def _each(rows: Tensor, lod: LoD, i: int, level: int, before: tuple) -> Picked:
    """Element i of every sequence of a level, which all have one."""
    offsets = lod.levels[level]
    position, exists = _position(offsets, max(-_FAR, min(i, _FAR)))
    for j in failing(~exists, "seq: expected an index within every sequence"):
        names, count = lod.level_names, int(offsets[j + 1] - offsets[j])
        level_name = repr(names[level]) if names and names[level] else level
        whole = all(entry == slice(None) for entry in before if isinstance(entry, slice) or is_int(entry))
        where = "x" if whole and not _lists(before) else f"x.seq[{', '.join(map(_written, before))}]"
        raise LoDIndexError(
            f"expected index {i} within every sequence of level {level_name} of {where}, got sequence {j} of {count} elements; "
            f"{where}.nth({i}, level={level_name}) has padding there"
        )
    return _one_of_each(rows, lod, level, position)


def _written(entry) -> str:
    if isinstance(entry, slice):
        ends = [entry.start, entry.stop] + ([entry.step] if entry.step is not None else [])
        return ":".join("" if end is None else str(end) for end in ends)
    return str(entry) if is_int(entry) else "..."


def _range(cut: slice, n: Tensor) -> tuple[Tensor, Tensor, int]:
    """Where a slice begins in sequences of n elements, how many elements it has there, and its step."""
    start, stop, step = (as_int(end) for end in (cut.start, cut.stop, cut.step))
    for end in (start, stop, step):
        if end is not None and not is_int(end):
            raise LoDTypeError(f"expected a slice of ints, got {shown(end)}")
    if step == 0:
        raise LoDValueError("expected a slice with a step, got 0")
    step = 1 if step is None else max(-_FAR, min(step, _FAR))
    low, high = (torch.zeros_like(n), n) if step > 0 else (torch.full_like(n, -1), n - 1)

    def end_at(end, otherwise: Tensor) -> Tensor:
        if end is None:
            return otherwise
        end = max(-_FAR, min(end, _FAR))
        return torch.minimum(torch.maximum(n + end if end < 0 else torch.full_like(n, end), low), high)

    first, behind = end_at(start, low if step > 0 else high), end_at(stop, high if step > 0 else low)
    room = (behind - first if step > 0 else first - behind).clamp(min=0)
    return torch.where(room > 0, first, 0), (room + (abs(step) - 1)) // abs(step), step


def _cut(rows: Tensor, lod: LoD, cut: slice, level: int) -> tuple[Tensor, LoD]:
    offsets = lod.levels[level]
    start, count, step = _range(cut, offsets.diff())
    if step == 1:
        inner, runs = lod.runs(level, start, count, within=True)
        return taken(rows, lod.under(inner), runs)
    new_offsets = sums(count)
    index = ops.run_map(offsets[:-1] + start, new_offsets, whole_number(new_offsets[-1]), step)
    return elements(rows, lod, level, index, new_offsets)


def _by_list(rows: Tensor, lod: LoD, entry, level: int, p: int) -> tuple[Tensor, LoD]:
    """Elements by a mask of all of the level, or by positions within every sequence."""
    truths = isinstance(entry, (list, tuple)) and len(entry) > 0 and all(type(e) is bool for e in entry)
    if truths or (isinstance(entry, (Tensor, np.ndarray)) and entry.dtype in (torch.bool, np.bool_)):
        return filtered(rows, lod, entry, level)
    if lod_of(entry) is not None:
        raise LoDTypeError(f"expected index {p} as positions for every sequence, got a LoDTensor of {entry.dtype}")
    index = host_integers(f"index {p}", entry)
    offsets = lod.levels[level]
    n, position = offsets.diff()[:, None], index[None]
    for j in failing(((position < -n) | (position >= n)).any(1), "seq: expected positions within every sequence"):
        raise LoDIndexError(
            f"expected index {p} within every sequence of level {level}, got sequence {j} of {int(n[j])} elements and "
            f"{shown(index.tolist())}"
        )
    position = torch.where(position < 0, position + n, position) + offsets[:-1, None]
    new_offsets = torch.arange(offsets.shape[0], device="cpu") * index.shape[0]
    return elements(rows, lod, level, position.flatten(), new_offsets)


# -- parts of sequences


def spans(rows: Tensor, lod: LoD, start: Any, end: Any, k: int) -> tuple[Tensor, LoD]:
    """The elements of level k from `start` to `end`, those of every row of start as a sequence: `LoDTensor.spans`."""
    for what, bound in (("start", start), ("end", end)):
        if (own_lod := lod_of(bound)) is None or own_lod.depth <= k or bound.dim() != 1:
            raise LoDTypeError(
                f"expected {what} as a LoDTensor of shape (spans,), of {k + 1} or more levels, got {_form(bound)}; for one "
                "part of every sequence tl.sequence_slice"
            )
        with_data(what, bound)
    starts, ends = (integers(what, bound, rows.device).cpu() for what, bound in (("start", start), ("end", end)))
    own = start._provenance.lod.agreed(end._provenance.lod)
    owner, offsets = owners("start", lod, k, start, None), lod.levels[k]
    begin, room = offsets[:-1][owner], offsets.diff()[owner]
    wrong = (starts < 0) | (starts > ends) | (ends > room)
    for i in failing(wrong, "spans: expected start and end within the sequences"):
        of = f" of level {k}, counting sequences of level {k + 1} and not rows" if k + 1 < lod.depth else ""
        raise LoDValueError(
            f"expected 0 <= start <= end <= {int(room[i])} in sequence {int(owner[i])}{of}, got {int(starts[i])} and "
            f"{int(ends[i])} at row {i}"
        )
    inner, runs = lod.runs(k, begin + starts, ends - starts)
    if inner.level_names:  # the name of level k is that of the sequences which the spans are in
        inner = inner.with_level_names([None, *inner.level_names[1:]])
    return taken(rows, stacked(own, inner), runs)


def _form(value) -> str:
    if (lod := lod_of(value)) is not None:
        return f"one of shape {tuple(value.shape)} and {lod.depth} levels"
    return shown(value)


# -- x.seq


T = TypeVar("T")  # the class of x


class SequenceIndex(Generic[T]):
    """`x.seq`."""

    def __init__(self, x: Any, wrap: Callable[..., Any]):
        self._x, self._wrap = x, wrap

    def __len__(self) -> int:
        return self._x.num_sequences()

    def __repr__(self) -> str:
        n, depth = len(self), self._x.lod.depth
        deeper = "" if depth == 1 else f", x.seq[{', '.join('ijklmn'[:depth])}] one of the innermost level"
        return f"x.seq of {n} sequence{'s' * (n != 1)}: x.seq[i] is one{deeper}"

    def __iter__(self) -> Iterator[T]:
        return self._x.sequences()

    @boundary("seq")
    def __setitem__(self, key: Any, value: Any) -> None:
        i, behind = (key, key + 1) if is_int(key) else ("i", "i + 1")
        rest = f", x.seq[{behind}:]" if i != -1 else ""
        raise LoDTypeError(
            f"expected x.seq to be read, got an assignment: x.seq[{i}].copy_(t) writes as many rows, since it is a view; of "
            f"another length, tl.cat([x.seq[:{i}], tl.batch([t]){rest}]); row by row, torch.where(mask, t, x)"
        )

    @boundary("seq")
    def __delitem__(self, key: Any) -> None:
        raise LoDTypeError("expected x.seq to be read, got a deletion: x.seq[mask] is a batch without sequences")

    @boundary("seq", dispatch=False)
    def __getitem__(self, key: Any) -> T:
        x = self._x
        key = tuple(map(as_int, key)) if isinstance(key, tuple) else (as_int(key),)
        return self._wrap(*indexed(x.values() if compiling() else x, x._provenance.lod, key))


def indexed(rows: Tensor, lod: LoD, key: tuple) -> Picked:
    """`x.seq[key]`."""
    if not 0 < len(key) <= lod.depth + 1:
        raise LoDIndexError(f"expected 1 to {lod.depth + 1} indices, one per level and one of rows, got {shown(key)}")
    steps = list(key[:-1]) + ([key[-1]] if is_int(key[-1]) else [])
    if len(key) > lod.depth or not all(map(is_int, steps)):
        return by_levels(rows, lod, key)
    begin, end = 0, lod.num_sequences()
    if steps:
        k, j = lod.locate(tuple(steps))
        begin, end = whole_number(lod.levels[k][j]), whole_number(lod.levels[k][j + 1])
        if len(steps) == len(key):
            if k + 1 == lod.depth:
                return rows_between(rows, begin, end), None
            inner, first, last = inside(lod, k, j)
            return rows_between(rows, first, last), inner
    k = len(steps)
    if isinstance(key[-1], slice):
        picked = range(begin, end)[key[-1]]
        if picked.step == 1:
            inner, first, last = lod.cut(k, picked.start, max(picked.start, picked.stop))
            return rows_between(rows, first, last), inner
        index = torch.arange(len(picked), device="cpu") * picked.step + picked.start
    else:
        index = _positions(key[-1], end - begin)
        index = index + begin if steps else index
    return sequences(rows, lod, k, index)


def _positions(key, n: int) -> Tensor:
    """Indices in [0, n) from a list or tensor of ints or bools."""
    if isinstance(key, (list, tuple)) and key and all(isinstance(entry, bool) for entry in key):
        key = torch.tensor(key, device="cpu")
    if isinstance(key, Tensor) and key.dtype == torch.bool:
        if key.shape != (n,):
            raise LoDIndexError(f"expected a mask of shape ({n},), got {tuple(key.shape)}")
        with_data("mask", key)
        with_memory(key)
        return plain(key).cpu().nonzero().flatten()
    index = host_integers("index", key)
    if not compiling() and index.numel():
        lowest, highest = map(int, torch.aminmax(index))
        if -n <= lowest and highest < n:
            return index if lowest >= 0 else index % n
    for i in failing((index < -n) | (index >= n), f"seq: expected an index in [{-n}, {n - 1}]"):
        raise LoDIndexError(f"expected an index in [{-n}, {n - 1}], got {int(index[i])} at position {i}")
    return index % n if n else index
