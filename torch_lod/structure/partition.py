# SPDX-License-Identifier: Apache-2.0
"""The internal interface of LoD: its offsets, and what is computed from them, cached.

Operators use a LoD through it. Its methods end in `_at` and take the number of a level, from 0 (`LoD.level` finds it);
LoD's public methods take a number from either end or a name. The tensors that they return are shared and must not be
written to; the public methods return copies. `levels` are the offsets, relative to the next level, in host memory.

Derived tensors are computed once in host memory, uploaded once per device and kept on the LoD. Compiled code computes
them in the graph, from the offsets that are inputs of the graph: there the content of a cache would be a guard, and
filling the cache a side effect.

The compiled operators copy structure that they are given and check the copy. Offsets and maps of a LoD carry a mark
instead, which says what is known of them.
"""

import contextlib
import math
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack
from torch.utils._python_dispatch import _disable_current_modes

from .. import ops
from ..dynamo import compiling, symbols, whole_number, worded
from ..errors import LoDTypeError
from ..ops.steps import by_steps
from .devices import PINNED, capturing, kept, upload, upload_all, usable
from .validate import level_names_of, sums, with_memory

_HOST = torch.device("cpu")
_OPS = torch.ops.torch_lod
_keep_structure = _OPS.keep_structure.default
_join_lods, take_runs = _OPS.join_lods.default._op, _OPS.take_runs.default._op  # what a call of the overload calls
_cut_lod = _OPS.cut_lod.default._op
_transforms = torch._C._functorch.peek_interpreter_stack


def traced() -> bool:
    """Whether a dispatch mode or a torch.func transform sees the calls: tensors made now may be its own, and end with it."""
    return torch._C._len_torch_dispatch_stack() > 0 or _transforms() is not None


def _in_passing() -> bool:
    """Whether what is made now is of no use later: inference tensors cannot be saved for backward."""
    return torch.is_inference_mode_enabled() or traced()


@contextlib.contextmanager
def _lasting():
    """A context outside of all of these."""
    with torch.inference_mode(False), _disable_current_modes(), temporarily_clear_interpreter_stack():
        yield


def _kept(t: Tensor, rows: int, cuts: bool, apart: bool = False, longest: int = -1, host: Tensor | None = None) -> None:
    """Marks offsets that cut `rows` rows, or a map to `rows` rows, which are never written to. Tracers would record it.
    longest: of the segments that offsets cut; or of runs that do not meet, if each is in its own of cells of as many rows;
    0 where they are single rows, of which a map names none twice. host: the offsets in host memory that t is a copy of."""
    if ops.COMPILED and type(t) is Tensor and not t.is_meta and not traced():
        _keep_structure(t, rows, cuts, apart, longest, host)


def uploaded_map(map: Tensor, device, rows: int, apart: bool = False) -> Tensor:
    """A map to `rows` rows, in host memory and valid, on a device; apart: it names no row twice."""
    there = upload(map, device)
    if there is not map:
        _kept(there, rows, False, apart, 0 if apart else -1)
    return there


def computed_there(offsets: Tensor, rows: int) -> Tensor:
    """Offsets that a GPU made of those of LoDs, and that cut `rows` rows."""
    if not (compiling() or offsets.is_cpu):
        _kept(offsets, rows, True)
    return offsets


def _longest(lengths: Tensor) -> int:
    return int(lengths.max()) if len(lengths) else 0


class Runs(NamedTuple):
    """Rows copied in runs: rows offsets[s] to offsets[s + 1] of the result are the source's rows from starts[s] on."""

    starts: Tensor
    offsets: Tensor


def uploaded_runs(runs: Runs, rows: Tensor, taken: int, cell: int = -1) -> Runs:
    """Runs of `rows` that are `taken` rows, in host memory and valid, on the device of the rows: one copy. `cell`: run s is
    among the rows from s * cell to (s + 1) * cell."""
    starts, offsets, device = *runs, rows.device
    if starts.device == offsets.device == device:
        return runs
    if compiling() or device.type not in PINNED or not starts.is_cpu or not offsets.is_cpu:
        return Runs(upload(starts, device), upload(offsets, device))
    lengths = offsets.diff()
    apart = cell >= 0
    if not apart:
        begin, order = starts[lengths > 0].sort()
        apart = bool((begin[1:] >= (begin + lengths[lengths > 0][order])[:-1]).all())
    first, cuts = upload_all([starts, offsets], device)
    _kept(first, rows.shape[0], False, apart, cell)
    _kept(cuts, taken, True, longest=_longest(lengths))
    return Runs(first, cuts)


_constants: dict[tuple, Tensor] = {}


def constant_on(key: tuple, device: torch.device, make) -> Tensor:
    """What make() gives in host memory, a small tensor that depends on nothing but its key, uploaded once per device."""
    found = None if compiling() else _constants.get((*key, device))
    if found is not None and usable(found):
        return found
    fresh = upload(make(), device)
    if device.type in PINNED and not (compiling() or _in_passing() or capturing(device)):
        _constants[(*key, device)] = kept(fresh)
    return fresh


class Together:
    """Collects what `together` uploads: methods of a LoD take it in place of a device."""

    def __init__(self, device: torch.device):
        self.device = device
        self.parts: list[tuple] = []  # of each the LoD, its key, the tensor in host memory, and what is known of it

    def add(self, *part) -> Tensor:
        self.parts.append(part)
        return part[2]

    def uploaded(self) -> list[Tensor]:
        found = [lod._cache.get((*key, self.device)) for lod, key, *_ in self.parts]
        found = [t if t is not None and usable(t) else None for t in found]
        missing = [i for i, t in enumerate(found) if t is None]
        if missing:
            with torch.inference_mode(False):
                fresh = upload_all([self.parts[i][2] for i in missing], self.device)
            for i, t in zip(missing, fresh, strict=True):
                lod, key, *known = self.parts[i]
                found[i] = lod._keep_copy(key, self.device, t, *known)
        return found  # type: ignore[return-value]


def together(device: torch.device, *parts) -> list[Tensor]:
    """Of each (method of a LoD, *arguments) what the method gives on the device, vectors of int64: one copy for all that
    are not there."""
    if device == _HOST:
        return [method(*arguments) for method, *arguments in parts]
    if compiling() or device.type not in PINNED or traced():
        return [method(*arguments, device) for method, *arguments in parts]
    them = Together(device)
    for method, *arguments in parts:
        method(*arguments, them)
    return them.uploaded()


class Partition:
    """The part of `LoD` that operators use."""

    __slots__ = (
        "__weakref__",
        "_cache",
        "_lengthened",
        "_longest",
        "_rows",
        "_symbols",
        "counted",
        "level_names",
        "levels",
    )
    levels: tuple[Tensor, ...]
    _rows: int
    #: Per level the longest length; None if a graph made the LoD and it has not been asked for.
    _longest: tuple[int, ...] | None
    #: The number of rows and the longest length of every level, as dynamic integers of torch.compile.
    _symbols: tuple[int, ...] | None
    _cache: dict
    #: Bool masks (rows, ...): the rows that count in a mean. None but in the LoD of losses.
    counted: tuple[Tensor, ...]
    #: The LoD of which every innermost sequence that is not empty was made longer at its end, and by how many rows; or ().
    _lengthened: tuple[Any, int] | tuple[()]
    #: A name per level, None for a level without one; None where no level has one.
    level_names: tuple[str | None, ...] | None

    def _put(self, levels, longest, rows: int, names) -> Any:
        """Sets everything, of an object that has nothing yet."""
        put, levels = object.__setattr__, tuple(levels)
        put(self, "level_names", names)
        put(self, "counted", ())
        put(self, "_lengthened", ())
        put(self, "levels", levels)
        put(self, "_rows", rows)
        put(self, "_longest", None if longest is None else tuple(longest))
        put(self, "_symbols", None if compiling() or longest is None else symbols((rows, *longest), levels))
        put(self, "_cache", {})
        return self

    @property
    def rows(self) -> int:
        """Rows that the innermost level covers."""
        if compiling() and self._symbols is not None:
            return worded(self._symbols[0])
        return self._rows

    def _cached(
        self, key: tuple, device, make, rows: int | None = None, cuts: bool = False, apart: bool = False, cell: int = -1
    ) -> Tensor:
        """The tensor for a key on a device: made once in host memory, uploaded once per device. With `rows` it is a map
        to as many rows, or offsets that cut them, or the first rows of runs that do not meet, each in its own `cell` (`_kept`)."""
        if compiling():
            return make() if device is None else make().to(device, non_blocking=True)
        found = self._cache.get((*key, device or _HOST))
        # the copy on a GPU is returned itself: a caller's write to it changes its version
        if found is not None and (found.is_cpu or usable(found)):
            return found
        if type(device) is Together:
            host = self._cached(key, None, make, rows, cuts, apart, cell)
            return device.add(self, key, host, rows, cuts, apart, cell)
        device = _HOST if device is None else torch.device(device)
        if _in_passing() and self._lasts():
            with _lasting():
                return self._cached(key, device, make, rows, cuts, apart, cell)
        if device != _HOST:
            host = self._cached(key, None, make, rows, cuts, apart, cell)
            return self._keep_copy(key, device, upload(host, device), host, rows, cuts, apart, cell)
        fresh = make()
        if rows is not None and not (cuts and fresh is self.levels[key[1]]):  # those are marked when they are checked
            _kept(fresh, rows, cuts, apart, cell)
        self._cache[(*key, _HOST)] = fresh
        return fresh

    def _keep_copy(self, key: tuple, device, fresh: Tensor, host: Tensor, rows, cuts, apart, cell: int) -> Tensor:
        """The copy on a device of what `_cached` made in host memory."""
        if rows is not None:
            copies = cuts and device.type in PINNED and not compiling()
            _kept(fresh, rows, cuts, apart, _longest(host.diff()) if copies else cell, host if copies else None)
        if not capturing(device):
            self._cache[(*key, device)] = kept(fresh)
        return fresh

    def together_at(self, key: tuple, device: torch.device, parts) -> list[Tensor]:
        """`together` of parts(), which in host memory are found by one key."""

        def make():
            return together(device, *parts())

        return self.remember(key, make) if device == _HOST else make()

    def remember(self, key: tuple, make):
        """Any object for a key, in host memory: made once."""
        if compiling():
            return make()
        if key not in self._cache:
            if _in_passing() and self._lasts():
                with _lasting():
                    self._cache[key] = make()
            else:
                self._cache[key] = make()
        return self._cache[key]

    def moves(self, key: tuple, make, rows: Tensor) -> tuple[Any, Runs]:
        """make() for a key, a LoD and the runs that it is made of: made once, and uploaded once per device of `rows`."""
        lod, runs = self.remember(key, make)
        if rows.is_cpu or compiling() or rows.device.type not in PINNED or traced():
            return lod, uploaded_runs(runs, rows, lod.rows)
        key = (*key, rows.device)
        there = self._cache.get(key)
        if there is None or not all(map(usable, there)):
            with torch.inference_mode(False):
                there = Runs(*map(kept, uploaded_runs(runs, rows, int(runs.offsets[-1]))))
            if not capturing(rows.device):
                self._cache[key] = there
        return lod, there

    def _lasts(self) -> bool:
        """Whether the offsets themselves are of no mode and no transform."""
        return all(type(t) is Tensor and not torch._C._functorch.is_functorch_wrapped_tensor(t) for t in self.levels)

    @staticmethod
    def handed_out(t: Tensor) -> Tensor:
        return t.clone() if t.device == _HOST else t

    def row_offsets_at(self, k: int, device=None) -> Tensor:
        if not compiling():
            found = self._cache.get(("rows", k, device or _HOST))  # on every call's path
            if found is not None and (device is None or usable(found)):
                return found

        def make():
            offsets = self.levels[k]
            for inner in self.levels[k + 1 :]:
                offsets = inner[offsets]
            return offsets

        return self._cached(("rows", k), device, make, self.rows, cuts=True)

    def segment_ids_at(self, k: int, device=None) -> Tensor:
        def make():
            offsets = self.row_offsets_at(k)
            return ops.run_map(torch.arange(offsets.numel() - 1, device=_HOST), offsets, self.rows, 0)

        return self._cached(("segment", k), device, make, self.levels[k].shape[0] - 1)

    def elements_at(self, k: int) -> int:
        """The sum of the lengths of level k."""
        return self.levels[k + 1].shape[0] - 1 if k + 1 < len(self.levels) else self.rows

    def parents_at(self, k: int) -> Tensor:
        """The sequence of level k that every element of that level belongs to; in host memory."""

        def make():
            offsets = self.levels[k]
            return ops.run_map(torch.arange(offsets.numel() - 1, device=_HOST), offsets, self.elements_at(k), 0)

        return self._cached(("parents", k), None, make)

    def end_rows_at(self, k: int, last: bool, device=None) -> Tensor:
        """The first row of every sequence, or the last row if `last`; -1 for empty ones."""

        def make():
            offsets = self.row_offsets_at(k)
            begin, end = offsets[:-1], offsets[1:]
            return torch.where(end > begin, end - 1 if last else begin, -1)

        return self._cached(("end", k, last), device, make, self.rows, apart=True, cell=0)

    def offsets_at(self, k: int, device=None) -> Tensor:
        """The offsets of level k in elements of that level."""
        return self._cached(("own", k), device, lambda: self.levels[k], self.elements_at(k), cuts=True)

    def row_lengths_at(self, k: int, device=None) -> Tensor:
        return self._cached(("row_lengths", k), device, lambda: self.row_offsets_at(k).diff())

    def lengths_at(self, k: int, device=None) -> Tensor:
        """The lengths of level k in elements of that level."""
        if k + 1 == len(self.levels):
            return self.row_lengths_at(k, device)
        return self._cached(("lengths", k), device, lambda: self.levels[k].diff())

    def longest_at(self, k: int) -> int:
        """The longest sequence of level k, in elements of that level."""
        known = self._symbols[1:] if compiling() and self._symbols is not None else self._longest
        return worded(known[k]) if known is not None else self._most(("elements", k), self.levels[k].diff())

    def longest_rows_at(self, k: int) -> int:
        """The longest sequence of level k, in rows."""
        return self.longest_at(k) if k + 1 == len(self.levels) else self._most(("rows", k), self.row_lengths_at(k))

    def _most(self, key: tuple, lengths: Tensor) -> int:
        return self.remember(("most", *key), lambda: whole_number(torch.cat([lengths, lengths.new_zeros(1)]).max()))

    def last_rows_at(self, k: int, device=None) -> Tensor:
        """The last row of every sequence; for an empty one the row before it."""
        return self._cached(("last", k), device, lambda: self.row_offsets_at(k)[1:] - 1, self.rows, apart=True)

    def padded_starts_at(self, k: int, length: int, right: bool, device=None) -> Tensor:
        """The index of every sequence's first row in a padded layout of sequences * length rows."""

        def make():
            offsets = self.row_offsets_at(k)
            starts = torch.arange(offsets.numel() - 1, device=_HOST) * length
            return starts if right else starts + length - offsets.diff()

        rows = (self.levels[k].shape[0] - 1) * length + 1  # an empty sequence may begin behind the last row
        return self._cached(("padded", k, length, right), device, make, rows, apart=True, cell=length)

    def spread_at(self, right: bool) -> tuple[Any, list[Tensor]]:
        """The innermost sequences where every level is padded, with empty ones in the padding; and the lengths of every
        level, in the shape of the dims before its own. In host memory."""

        def make():
            lengths: list[Tensor] = []
            checked = type(self).checked  # type: ignore[attr-defined]  # of LoD
            for k in reversed(range(self.depth)):
                one, longest = checked("offsets", [self.levels[k]]), self.longest_at(k)
                n = one.num_sequences()
                runs = one.padded_starts_at(0, longest, right), one.row_offsets_at(0)
                lengths = [ops.scatter_runs(t, *runs, n * longest).view(n, longest, *t.shape[1:]) for t in lengths]
                lengths.insert(0, self.levels[k].diff())
            return checked("lengths", [sums(lengths[-1].flatten())], rows=self.rows), lengths

        return self.remember(("spread", right), make)

    def dense_lengths_at(self, k: int, right: bool, device=None) -> Tensor:
        """The lengths of level k where every level is padded, as one vector."""
        return self._cached(("dense lengths", k, right), device, lambda: self.spread_at(right)[1][k].flatten())

    def any_empty_at(self, k: int) -> bool:
        """Whether any sequence has no rows. Compiled code cannot know it, and assumes yes."""
        return compiling() or self.remember(("any_empty", k), lambda: bool((self.row_lengths_at(k) == 0).any()))

    def rank_at(self, k: int, device=None) -> Tensor:
        """The sequences of level k from longest to shortest: the plan of a recurrence."""

        def make():
            if compiling():  # the operator has no fake implementation: nothing else needs one
                return self.levels[k].diff().argsort(descending=True, stable=True)
            return ops.rank_by_length(self.levels[k])

        return self._cached(("rank", k), device, make, self.levels[k].shape[0] - 1, apart=True, cell=0)

    def place_at(self, k: int, device=None) -> Tensor:
        """The place of every sequence of level k in the order of `rank_at`."""
        n = self.levels[k].shape[0] - 1
        return self._cached(("place", k), device, lambda: self.rank_at(k).argsort(), n, apart=True, cell=0)

    def steps_at(self, k: int, device=None) -> Tensor:
        """The elements of step 0, 1, ... of all sequences of level k in the order of `rank_at`, step after step."""
        n = self.elements_at(k)
        return self._cached(("steps", k), device, lambda: self._steps(k)[0], n, apart=True, cell=0)

    def from_steps_at(self, k: int, device=None) -> Tensor:
        """The place of every element of level k in `steps_at`."""
        n = self.elements_at(k)
        return self._cached(("from steps", k), device, lambda: self.steps_at(k).argsort(), n, apart=True, cell=0)

    def step_sizes_at(self, k: int) -> Tensor:
        """The number of elements of every step; in host memory."""
        return self._steps(k)[1]

    def _steps(self, k: int) -> tuple[Tensor, Tensor]:
        def make():
            order = self.rank_at(k)
            rank, step, sizes = by_steps(self.levels[k].diff()[order], self.longest_at(k))
            return self.levels[k][order[rank]] + step, sizes

        return self.remember(("step sizes", k), make)

    def _cut_at(self, k: int, begin: int, end: int) -> tuple[Any, int, int]:
        """`LoD.cut`, not in a graph."""
        levels, (first, rows, *longest) = _cut_lod(self.levels[k:], begin, end, True)
        names = None if self.level_names is None else level_names_of(self.level_names[k:], len(levels))
        end, lod = first + rows, object.__new__(type(self))._put(levels, longest, rows, names)
        return lod.counting(*[mask[first:end] for mask in self.counted]), first, end

    @staticmethod
    def joined(lods: list, within: int | None = None) -> Any:
        """The sequences of LoDs of one depth one after another or, with a level `within`, sequence i of that level of every LoD
        in sequence i, under the levels above of the first, whose names it has: not in a graph."""
        first, k = lods[0], within or 0
        levels, report = _join_lods(
            [level for lod in lods for level in lod.levels[k:]], len(first.levels) - k, True, within is not None
        )
        longest = [*map(first.longest_at, range(k)), *report[1:]]
        return object.__new__(type(first))._put([*first.levels[:k], *levels], longest, report[0], first.level_names)

    @classmethod
    def of_padded(cls, n: int, length: int, starts, lengths: Tensor, names) -> tuple[Any, Runs]:
        """n sequences of `lengths` rows, and where these are in padded ones of `length` rows: from `starts` on in each, or
        from its beginning if they are None. Not in a graph."""
        if 0 < n * length < 2**62:
            begin = torch.arange(0, n * length + 1, length, device=_HOST)
        else:
            begin = torch.arange(n + 1, device=_HOST).mul_(length)
        levels, begin, report = take_runs([], starts, lengths, n * length, True, begin)
        lod: Any = object.__new__(cls)
        return lod._put(levels, report[1:], report[0], level_names_of(names, 1)), Runs(begin, levels[0])

    # -- rows that a loss ignored

    def counting(self, *counted: Tensor) -> Any:
        """The same structure, whose rows count where the masks, (rows, ...), are true; without masks all of them."""
        if not counted and not self.counted:
            return self
        longest = self._symbols[1:] if compiling() and self._symbols else self._longest
        lod: Any = object.__new__(type(self))
        lod._put(self.levels, longest, self.rows, self.level_names)
        object.__setattr__(lod, "counted", counted)
        if not compiling():  # what is derived from the offsets holds here as well; LoDs in the cache count other rows
            lod._cache.update({key: t for key, t in self._cache.items() if isinstance(t, Tensor)})
        return lod

    def _counting_loaded(self, *masks) -> Any:
        """`counting`, of what a file has."""
        with_memory(*masks)
        for mask in masks:
            if type(mask) is not Tensor or mask.dtype != torch.bool or mask.shape[:1] != (self.rows,):
                got = f"{mask.dtype} of shape {tuple(mask.shape)}" if isinstance(mask, Tensor) else type(mask).__name__
                raise LoDTypeError(f"expected bool masks of {self.rows} rows, got {got}")
        return self.counting(*masks)

    def mingled(self) -> Any:
        """For operators that may move rows and keep the LoD: that rows were ignored stays known, but not which."""
        every, _ = self.counted_rows()
        return self.counting(torch.stack([every.all().expand(every.shape), torch.ones_like(every)], 1))

    def counted_with(self, other: "Partition") -> list[Tensor]:
        """The masks of both, each once."""
        return [*self.counted, *[m for m in other.counted if not any(m is own for own in self.counted)]]

    def counted_rows(self) -> tuple[Tensor, Tensor]:
        """Two masks, (rows,): the rows in which every mask is true everywhere, and those in which any is anywhere."""
        flat = [mask.reshape(mask.shape[0], math.prod(mask.shape[1:])) for mask in self.counted]
        every, some = flat[0].all(1), flat[0].any(1)
        for mask in flat[1:]:
            every, some = every & mask.all(1), some | mask.any(1)
        return every, some


#: How the name of the level begins of rows that were declared to be one for each sequence of a level of other LoDs.
DECLARED = "per_sequence(level="


def way_out(a: Partition, b: Partition) -> str:
    """What combines the rows of two LoDs that differ."""
    if (DECLARED in str(a.level_names)) != (DECLARED in str(b.level_names)):
        return "tl.sequence_expand_as(c, x) lays a row for each sequence over the rows of x"
    if len(a.levels) != len(b.levels):
        return "lay the rows of the one with fewer levels over the other with tl.sequence_expand_as"
    return "to combine their rows all the same, pass .values() of one"
