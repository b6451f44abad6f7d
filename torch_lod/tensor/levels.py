# SPDX-License-Identifier: Apache-2.0
"""The elements of any level of a LoDTensor picked: by a mask, by position, from the front or the back, and by one index per
level. The methods of LoDTensor and `x.seq` call into here."""

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from .. import ops
from ..dynamo import failing, holds, whole_number
from ..errors import LoDIndexError, LoDTypeError, LoDValueError, shown, without_policy
from ..structure.devices import upload
from ..structure.lod import LoD
from ..structure.partition import Runs, uploaded_map, uploaded_runs
from ..structure.validate import as_int, filler, host_integers, sums, with_data, with_memory
from . import lod_tensor as home  # which imports this module: its names are there when a function is called

if TYPE_CHECKING:
    from .lod_tensor import LoDTensor, MaybeLoD

_FAR = 2**62


def down_to(lod: LoD, k: int) -> LoD:
    """Levels 0 to k: the structure of tensors with an entry for each element of level k."""
    return lod if k + 1 == len(lod.levels) else lod.outer_at(k + 1)  # type: ignore[return-value]


def picked(rows: Tensor, lod: LoD, k: int, index: Tensor, offsets: Tensor, apart: bool = False) -> "LoDTensor":
    """Rows of `lod`: the elements of level k at `index`, a host tensor, in sequences with the offsets `offsets`. apart: no
    element is named twice."""
    if k + 1 == len(lod.levels):
        cut = LoD.checked("offsets", [*lod.levels[:k], offsets], lod.level_names)
        return home.moved(rows, cut.counting(*[m[upload(index, m.device)] for m in lod.counted]), index, apart)
    inner, runs = lod.take(k + 1, index)
    return home.moved(rows, lod.under(inner, offsets), runs)


# -- by a mask


def filtered(x: "LoDTensor", mask, level: int | str) -> "LoDTensor":
    lod = x._lod
    k = lod.level(level)
    keep = _of_elements(mask, lod, k)
    kept_before = sums(keep.to(torch.int64))
    return picked(x, lod, k, keep.nonzero().flatten(), kept_before[lod.levels[k]], apart=True)


def _of_elements(mask, lod: LoD, k: int) -> Tensor:
    """A mask of the elements of level k, in host memory."""
    if isinstance(mask, np.ndarray) or (isinstance(mask, (list, tuple)) and all(type(m) is bool for m in mask)):
        mask = torch.as_tensor(mask, dtype=None if len(mask) else torch.bool, device="cpu")
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
        got = mask.dtype if isinstance(mask, Tensor) else type(mask).__name__
        raise LoDTypeError(f"expected mask as a bool tensor, got {got}")
    count, outer = lod.elements_at(k), down_to(lod, k)
    if isinstance(mask, home.LoDTensor) and mask.lod.differs(outer):
        raise LoDValueError(
            f"expected mask with the levels of x down to level {k}, got LoDs that differ: {outer.difference(mask.lod)}"
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
    with without_policy():
        return home.values_of(mask).cpu()


# -- by position


def part(x: "LoDTensor", count: int, level: int | str, last: bool) -> "LoDTensor":
    """The first or the last `count` elements of every sequence of a level, all of a shorter one."""
    count = as_int(count)
    lod = x._lod
    k = lod.level(level)
    if type(count) is not int or not 0 <= count < 2**63:
        said = f"expected k in [0, 2**63), got {shown(count)}"
        if type(count) is int and count < 0:
            said += f"; without rows at the other end: x.seq[{':, ' * (k + 1)}{f'{-count}:' if last else f':{count}'}]"
        raise LoDValueError(said)
    inner, runs = lod.part(k, count, last)
    return home.moved(x, lod.under(inner), runs)


def nth(x: "LoDTensor", i: int, level: int | str, padding_value: float) -> "MaybeLoD":
    """Element i of every sequence of a level, instead of that level."""
    i = as_int(i)
    if type(i) is not int:
        raise LoDTypeError(f"expected i as an int, got {type(i).__name__}")
    if not -_FAR <= i < _FAR:
        raise LoDValueError(f"expected i within 62 bits, got {i}")
    filler("padding_value", padding_value, x.dtype)
    k = x._lod.level(level)
    position, exists = _position(x._lod.levels[k], i)
    return _one_of_each(x, k, torch.where(exists, position, -1), padding_value)


def _position(offsets: Tensor, i: int) -> tuple[Tensor, Tensor]:
    """Element i of every sequence, and whether it has one."""
    position = (offsets[:-1] if i >= 0 else offsets[1:]) + i
    return position, (position >= offsets[:-1]) & (position < offsets[1:])


def _one_of_each(x: "LoDTensor", k: int, position: Tensor, padding_value: float = 0.0) -> "MaybeLoD":
    """For every sequence of level k the element at an index of that level, or where it is -1 a row of padding_value, an
    empty sub-sequence."""
    lod = x._lod
    if k + 1 == len(lod.levels):
        row, outer = uploaded_map(position, x.device, len(x), apart=True), lod.outer_at(k)
        if outer is not None and lod.counted:
            outer = outer.counting(*[ops.gather_rows(mask, row) for mask in lod.counted])
        return home.made(ops.gather_rows(x.values(), row, padding_value), outer)
    inner = lod.levels[k + 1]
    starts = torch.where(position < 0, 0, inner[position])
    below, runs = lod.runs(k + 1, starts, torch.where(position < 0, 0, inner[position + 1] - starts))
    names = lod.level_names and (*lod.level_names[:k], *lod.level_names[k + 1 :])
    whole = LoD.checked("offsets", [*lod.levels[:k], *below.levels], names, below.rows)
    return home.moved(x, whole.counting(*below.counted), runs)


# -- by one index per level


def is_int(value) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _lists(key: tuple) -> list[int]:
    """Where lists and masks are in a key."""
    return [p for p, entry in enumerate(key) if not is_int(entry) and not isinstance(entry, slice)]


def indexed(x: "LoDTensor", key: tuple) -> Any:
    """x.seq of ints, and then of slices, lists, masks and ints: each picks elements of the level of the one before."""
    if len(others := _lists(key)) > 1:
        raise LoDIndexError(
            f"expected at most 1 list or mask among the indices, got {len(others)}: write x.seq[...] of each, one after "
            "the other"
        )
    ints = next((p for p, entry in enumerate(key) if not is_int(entry)), len(key))
    if ints >= x._lod.depth:
        return _of_rows(x.seq[key[:-1]], key[-1], len(key) - 1)
    y: Any = x.seq[key[: ints + 1]]
    level = 0
    for p in range(ints + 1, len(key)):
        entry = key[p]
        if is_int(entry):
            y = _each(y, entry, level, key[:p])
            continue
        y = _cut(y, entry, level) if isinstance(entry, slice) else _by_list(y, entry, level, p)
        level += 1
    return y


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
    return _by_list(home.LoDTensor(rows, LoD.from_lengths([[n]])), entry, 0, p).values()


def _each(y: "LoDTensor", i: int, level: int, before: tuple) -> "MaybeLoD":
    """Element i of every sequence of a level, which all have one."""
    offsets = y._lod.levels[level]
    position, exists = _position(offsets, max(-_FAR, min(i, _FAR)))
    for j in failing(~exists, "seq: expected an index within every sequence"):
        names, count = y.level_names, int(offsets[j + 1] - offsets[j])
        level_name = repr(names[level]) if names and names[level] else level
        whole = all(entry == slice(None) for entry in before if isinstance(entry, slice) or is_int(entry))
        where = "x" if whole and not _lists(before) else f"x.seq[{', '.join(map(_written, before))}]"
        raise LoDIndexError(
            f"expected index {i} within every sequence of level {level_name} of {where}, got sequence {j} of {count} elements; "
            f"{where}.nth({i}, level={level_name}) has padding there"
        )
    return _one_of_each(y, level, position)


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


def _cut(y: "LoDTensor", cut: slice, level: int) -> "LoDTensor":
    lod = y._lod
    offsets = lod.levels[level]
    start, count, step = _range(cut, offsets.diff())
    if step == 1:
        inner, runs = lod.runs(level, start, count, within=True)
        return home.moved(y, lod.under(inner), runs)
    new_offsets = sums(count)
    index = ops.run_map(offsets[:-1] + start, new_offsets, whole_number(new_offsets[-1]), step)
    return picked(y, lod, level, index, new_offsets)


def _by_list(y: "LoDTensor", entry, level: int, p: int) -> "LoDTensor":
    """Elements by a mask of all of the level, or by positions within every sequence."""
    truths = isinstance(entry, (list, tuple)) and len(entry) > 0 and all(type(e) is bool for e in entry)
    if truths or (isinstance(entry, (Tensor, np.ndarray)) and entry.dtype in (torch.bool, np.bool_)):
        return filtered(y, entry, level)
    if isinstance(entry, home.LoDTensor):
        raise LoDTypeError(f"expected index {p} as positions for every sequence, got a LoDTensor of {entry.dtype}")
    lod, index = y._lod, host_integers(f"index {p}", entry)
    offsets = lod.levels[level]
    n, position = offsets.diff()[:, None], index[None]
    for j in failing(((position < -n) | (position >= n)).any(1), "seq: expected positions within every sequence"):
        raise LoDIndexError(
            f"expected index {p} within every sequence of level {level}, got sequence {j} of {int(n[j])} elements and "
            f"{shown(index.tolist())}"
        )
    position = torch.where(position < 0, position + n, position) + offsets[:-1, None]
    new_offsets = torch.arange(offsets.shape[0], device="cpu") * index.shape[0]
    return picked(y, lod, level, position.flatten(), new_offsets)


# -- from a dim per level


def from_dims(dense: Tensor, lengths, side: str, level_names) -> "LoDTensor":
    """The rows of a padded tensor with a dim per level; lengths per level, packed or in the shape of the first dims."""
    depth = len(lengths)
    if dense.dim() <= depth:
        raise LoDValueError(
            f"expected dense of at least {depth + 1} dims for lengths of {depth} levels, got shape {tuple(dense.shape)}"
        )
    dense_index, levels = (
        torch.arange(dense.shape[0], device="cpu"),
        [],
    )  # where the sequences of a level are among the dense ones
    for k, entry in enumerate(lengths):
        level_lengths, most = _lengths_at(k, entry, dense_index, dense), dense.shape[k + 1]
        for i in failing(
            (level_lengths < 0) | (level_lengths > most), "from_padded: expected lengths within the padded length"
        ):
            raise LoDValueError(f"expected lengths[{k}] in [0, {most}], got {int(level_lengths[i])} for sequence {i}")
        first, offsets = dense_index * most + (0 if side == "right" else most - level_lengths), sums(level_lengths)
        levels.append(offsets)
        if k + 1 < depth:
            dense_index = ops.run_map(first, offsets, whole_number(offsets[-1]), 1)
    lod, rows = LoD.checked("lengths", levels, level_names), dense.flatten(0, depth)
    starts = torch.where(level_lengths > 0, first, 0)
    return home.made(ops.gather_runs(rows, *uploaded_runs(Runs(starts, offsets), rows, lod.rows), lod.rows), lod)


def _lengths_at(k: int, entry, dense_index: Tensor, dense: Tensor) -> Tensor:
    if k and isinstance(entry, (Tensor, np.ndarray)) and entry.ndim > 1:
        if entry.ndim != k + 1 or not all(holds(n == m) for n, m in zip(entry.shape, dense.shape[: k + 1])):
            shape = tuple(dense.shape[: k + 1])
            raise LoDValueError(f"expected lengths[{k}] of shape {shape}, got {tuple(entry.shape)}")
        return host_integers(f"lengths[{k}]", entry.reshape(-1))[dense_index]
    level_lengths = host_integers(f"lengths[{k}]", entry)
    if level_lengths.shape[0] != dense_index.shape[0]:
        raise LoDValueError(
            f"expected lengths[{k}] with a length for each of the {dense_index.shape[0]} sequences, got {level_lengths.shape[0]}"
        )
    return level_lengths


def per_level(lengths) -> bool:
    """Whether lengths are those of several levels: a list of lists, arrays or tensors."""
    first = lengths[0] if isinstance(lengths, (list, tuple)) and len(lengths) else None
    return isinstance(first, (list, tuple)) or (isinstance(first, (Tensor, np.ndarray)) and first.ndim > 0)


def where_true(dense: Tensor, mask: Tensor, level_names) -> "LoDTensor":
    """One level of the rows of a padded tensor at the positions where a mask is true."""
    n, longest = dense.shape[:2]
    wanted, got = f"expected a bool mask of shape ({n}, {longest})", f"{mask.dtype} {tuple(mask.shape)}"
    if mask.dim() != 2 or not (holds(mask.shape[0] == n) and holds(mask.shape[1] == longest)):
        raise LoDValueError(f"{wanted}, got {got}")
    with_memory(mask)
    host = with_data("mask", mask).cpu().flatten()
    if host.is_floating_point() or host.is_complex():
        raise LoDValueError(f"{wanted}, got {got}; see mask.bool()")
    for i in failing((host != 0) & (host != 1), "from_padded: expected a mask of 0 and 1"):
        raise LoDValueError(f"expected a mask of 0 and 1, got {int(host[i])} at index {[i // longest, i % longest]}")
    host = host.bool()
    lod, rows = LoD.checked("lengths", [sums(host.view(n, longest).sum(1))], level_names), dense.flatten(0, 1)
    return home.made(
        ops.gather_rows(rows, uploaded_map(host.nonzero().flatten(), rows.device, rows.shape[0], apart=True)), lod
    )
