# SPDX-License-Identifier: Apache-2.0
"""`LoD`: the structure of nested sequences. Offsets relative to the next level, in host memory, validated once, immutable."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from .. import ops
from ..dynamo import compiling, failing, holds, known, rows_between, whole_number
from ..errors import LoDIndexError, LoDsDiffer, LoDTypeError, LoDValueError, boundary, named, public, shown
from ..ops.lods import levels_of_runs
from .block_mask import block_mask as _block_mask
from .partition import Partition, Runs, take_runs, uploaded_runs, way_out
from .validate import a_plain_tensor, host_integers, host_levels, level_names_of, sums, whole

_check_lod, _HOST = torch.ops.torch_lod.check_lod.default._op, torch.device("cpu")  # what a call of the overload calls
_SHOWN = 12  # entries of a level, and levels, that repr prints


class LoD(Partition):
    """The structure of nested sequences: one list of offsets per level, outermost first.

    A level's offsets count sequences of the next level, the last level's count rows. Three articles of 3, 1 and 2 sentences
    of 3, 2, 4 | 1 | 2, 3 words:

        >>> import torch_lod as tl
        >>> lod = tl.LoD([[0, 3, 4, 6], [0, 3, 5, 9, 10, 12, 15]], level_names=("article", "sentence"))
        >>> lod
        LoD([[3, 1, 2], [3, 2, 4, 1, 2, 3]], level_names=('article', 'sentence'))
        >>> lod.row_offsets("article")
        tensor([ 0,  9, 10, 15])

    A level is given by its number (0 is the outermost, -1 the innermost) or its name. Tensors that its methods return
    in host memory are copies: writing to them does not change the structure. Two LoDs are equal if their offsets are
    equal; the names of their levels do not count.

    `lod.rows` is the number of rows that the innermost level covers, `lod.level_names` a tuple of names or None.
    `lod.counted` is () but for the LoD of losses with reduction="none": there bool masks (rows, ...), False where the loss
    ignored its target. Functions row by row, and those that select, join or regroup rows, pass it on; `sequence_loss` reads it.

    Args:
        offsets: per level a list, array or tensor of integers. Copied.
        level_names: a name per level.

    Raises:
        ValueError: unless every level starts at 0, never decreases, and ends at the number of sequences of the next level.
        TypeError: for anything but integers.
    """

    __slots__ = ()
    block_mask = _block_mask

    @public
    def __init__(self, offsets, *, level_names=None):
        levels = host_levels("offsets", offsets)
        self._fill("offsets", levels, level_names)

    def _fill(self, what: str, levels: list[Tensor], names, rows: int = -1, by_length: bool = False) -> None:
        if compiling():
            return self._trace(what, levels, names, rows)
        if any(type(level) is not Tensor or level.is_inference() for level in levels):
            with torch.inference_mode(False):
                levels = [a_plain_tensor(what, level).clone() for level in levels]
        report = _check_lod(levels, rows, True)
        if report[0]:
            raise LoDValueError(f"{_complaint(what, by_length, *report, depth=len(levels))}")
        self._put(levels, report[2:], report[1], level_names_of(names, len(levels)))

    def _trace(self, what: str, levels, names, rows: int) -> None:
        """For offsets made in a graph: the rules are asserted, and the longest lengths are computed only on request."""
        levels = list(levels)
        rows = whole_number(levels[-1][-1]) if known(rows < 0) else rows
        for k, level in enumerate(levels):
            end = levels[k + 1].shape[0] - 1 if k + 1 < len(levels) else rows
            ends = torch.stack([level[0] != 0, level[-1] != end])  # not as slices: their sizes would be asked for
            wrong = torch.cat([ends, level.diff() < 0])
            failing(wrong, f"LoD: expected {what} from 0, never decreasing, to the size of the next level")
        self._put(levels, None, rows, level_names_of(names, len(levels)))

    @classmethod
    def checked(cls, what: str, levels, names=None, rows: int = -1, by_length: bool = False) -> "LoD":
        self = object.__new__(cls)
        self._fill(what, list(levels), names, rows, by_length)
        return self

    @classmethod
    def parsed_offsets(cls, what: str, offsets, names) -> "LoD":
        return cls.checked(what, host_levels(what, offsets), names)

    @classmethod
    def parsed_lengths(cls, what: str, lengths, names) -> "LoD":
        return cls.checked(what, map(sums, host_levels(what, lengths)), names, by_length=True)

    @classmethod
    @boundary("LoD.from_lengths")
    def from_lengths(cls, lengths, *, level_names=None) -> "LoD":
        """From recursive sequence lengths, outermost level first.

        >>> LoD.from_lengths([[3, 1, 2], [3, 2, 4, 1, 2, 3]]).to_list()
        [[0, 3, 4, 6], [0, 3, 5, 9, 10, 12, 15]]

        Raises ValueError if a length is negative, a total exceeds int64, or the sum of a level's lengths is not the
        number of sequences of the next level.
        """
        return cls.parsed_lengths("lengths", lengths, level_names)

    @classmethod
    @boundary("LoD.from_row_offsets")
    def from_row_offsets(cls, offsets, *, level_names=None) -> "LoD":
        """From offsets that count rows at every level, `[[0, 9, 10, 15], [0, 3, 5, 9, 10, 12, 15]]`.

        Raises ValueError if the offsets do not tell which outer sequence an empty sequence belongs to.
        """
        absolute = host_levels("offsets", offsets)
        for k, level in enumerate(absolute):  # each level separately first, so that messages name the given offsets
            cls.checked(f"offsets[{k}]", [level], rows=int(absolute[-1][-1]) if absolute[-1].numel() else -1)
        levels = [absolute[-1]]
        for k in range(len(absolute) - 2, -1, -1):
            outer, inner = absolute[k], absolute[k + 1]
            left, right = torch.searchsorted(inner, outer), torch.searchsorted(inner, outer, right=True)
            left[0], left[-1] = 0, inner.numel() - 1
            right[0], right[-1] = 1, inner.numel()
            for i in (right - left != 1).nonzero().flatten()[:1].tolist():
                row = int(outer[i])
                if right[i] == left[i]:
                    raise LoDValueError(f"expected offsets[{k}] to be among offsets[{k + 1}], got {row} at index {i}")
                raise LoDValueError(
                    f"expected a unique position for offsets[{k}] at index {i}, but {int(right[i] - left[i])} of "
                    f"offsets[{k + 1}] are {row}: rows do not tell to which sequence of level {k} the empty ones "
                    "belong; use LoD(offsets) or LoD.from_lengths"
                )
            levels.insert(0, left)
        return cls.checked("offsets", levels, level_names)

    @classmethod
    @boundary("LoD.from_segment_ids")
    def from_segment_ids(cls, ids, num_sequences: int | None = None, *, level_names=None) -> "LoD":
        """One level, from the index of the sequence that every row belongs to.

        `ids` must not decrease. A sequence whose index is not among them is empty; `num_sequences` tells how many there
        are in all, so that the last ones can be empty too.
        """
        return cls.parsed_ids(ids, num_sequences, level_names)

    @classmethod
    def parsed_ids(cls, ids, num_sequences, names) -> "LoD":
        ids = host_integers("ids", ids)
        for i in failing(ids[1:] < ids[:-1], "LoD.from_segment_ids: expected sorted ids"):
            raise LoDValueError(f"expected sorted ids, got {int(ids[i])} then {int(ids[i + 1])} at index {i + 1}")
        for _ in failing(ids[:1] < 0, "LoD.from_segment_ids: expected ids >= 0"):
            raise LoDValueError(f"expected ids >= 0, got {int(ids[0])} at index 0")
        last = whole_number(ids[-1]) if ids.numel() else -1
        most = 1024 * (ids.numel() + 1024)
        if num_sequences is None:
            if not holds(last < most):
                raise LoDValueError(f"expected num_sequences for an id as large as {last}, got none")
            num_sequences = last + 1
        num_sequences = whole("num_sequences", num_sequences)
        if not holds(0 <= num_sequences) or not holds(num_sequences < 2**40):
            raise LoDValueError(f"expected num_sequences in [0, 2**40), got {num_sequences}")
        if not holds(last < num_sequences):
            raise LoDValueError(f"expected ids below num_sequences {num_sequences}, got {last} at index {len(ids) - 1}")
        ends = torch.arange(num_sequences + 1, device=_HOST)
        return cls.checked("ids", [torch.searchsorted(ids, ends)], names)

    # -- questions

    @property
    def depth(self) -> int:
        """Number of levels, as `len(lod)`. For the number of sequences see `num_sequences`."""
        return len(self.levels)

    def __len__(self) -> int:
        return len(self.levels)

    @property
    def is_trivial(self) -> bool:
        """Whether there is one level and all lengths are 1: a plain batch (of images, say), which needs no LoD."""
        return self.depth == 1 and self.longest_at(0) <= 1 and self.rows == self.num_sequences()

    def level(self, level: int | str) -> int:
        """The number, from 0, of a level given by number or name; IndexError or TypeError if there is none."""
        depth = len(self.levels)
        if type(level) is int and -depth <= level < depth:
            return level % depth
        names = self.level_names
        if isinstance(level, str) and names and level in names:
            return names.index(level)
        message = (
            f"expected level in [{-depth}, {depth - 1}]{f' or one of {names}' if names else ''}, got {shown(level)}"
        )
        if isinstance(level, (int, np.integer)) and not isinstance(level, bool) and -depth <= level < depth:
            return int(level) % depth
        if isinstance(level, (int, np.integer, str)) and not isinstance(level, bool):
            raise LoDIndexError(message)
        raise LoDTypeError(message)

    @public
    def num_sequences(self, level: int | str = 0) -> int:
        """The number of sequences of a level; at level 0 the batch size."""
        return self.levels[self.level(level)].shape[0] - 1

    @public
    def max_length(self, level: int | str = -1) -> int:
        """The longest sequence of a level, in elements of the next level."""
        return self.longest_at(self.level(level))

    @public
    def offsets(self, level: int | str = -1) -> Tensor:
        """int64, (sequences + 1,), counting elements of the next level."""
        return self.levels[self.level(level)].clone()

    @public
    def lengths(self, level: int | str = -1, device=None) -> Tensor:
        """int64, (sequences,), counting elements of the next level."""
        return self.handed_out(self.lengths_at(self.level(level), device))

    @public
    def row_offsets(self, level: int | str = -1, device=None) -> Tensor:
        """int64, (sequences + 1,), counting rows."""
        return self.handed_out(self.row_offsets_at(self.level(level), device))

    @public
    def row_lengths(self, level: int | str = -1, device=None) -> Tensor:
        """int64, (sequences,): the rows under every sequence of a level."""
        return self.handed_out(self.row_lengths_at(self.level(level), device))

    @public
    def cu_seqlens(self, level: int | str = -1, device=None) -> Tensor:
        """int32 row offsets, the form that flash attention takes. ValueError if they do not fit."""
        k = self.level(level)
        if self.rows >= 2**31:
            raise LoDValueError(f"expected fewer than 2**31 rows for int32 offsets, got {self.rows}")
        return self.handed_out(self._cached(("cu", k), device, lambda: self.row_offsets_at(k).to(torch.int32)))

    @public
    def segment_ids(self, level: int | str = -1, device=None) -> Tensor:
        """int64, (rows,): the sequence of a level that every row belongs to."""
        return self.handed_out(self.segment_ids_at(self.level(level), device))

    @public
    def position_ids(self, level: int | str = -1, device=None) -> Tensor:
        """int64, (rows,): the position of every row in its sequence of a level."""
        k = self.level(level)

        def make():
            offsets = self.row_offsets_at(k)
            return ops.run_map(torch.zeros_like(offsets[1:]), offsets, self.rows, 1)

        return self.handed_out(self._cached(("position", k), device, make))

    # -- parts and changes: every result is a new LoD

    def cut(self, k: int, begin: int, end: int) -> tuple["LoD", int, int]:
        """Sequences [begin, end) of level k with the levels below, and the rows that they cover."""
        if not compiling():
            return self._cut_at(k, begin, end)
        levels = []
        for offsets in self.levels[k:]:
            part = rows_between(offsets, begin, end + 1)
            begin, end = whole_number(part[0]), whole_number(part[-1])
            levels.append(part - begin)
        lod = LoD.checked("offsets", levels, self._names_of(range(k, self.depth)))
        return lod.counting(*[rows_between(mask, begin, end) for mask in self.counted]), begin, end

    def _bounds(self, k: int, begin, end) -> tuple[int, int]:
        n = self.levels[k].numel() - 1
        begin = whole("begin", begin)
        if end is None:
            if not (holds(-n <= begin) and holds(begin < n)):
                raise LoDIndexError(f"expected a sequence of level {k} in [{-n}, {n - 1}], got {begin}")
            begin = begin if holds(begin >= 0) else begin + n
            return begin, begin + 1
        end = whole("end", end)
        if not (holds(0 <= begin) and holds(begin <= end) and holds(end <= n)):
            raise LoDIndexError(f"expected 0 <= begin <= end <= {n} at level {k}, got {begin} and {end}")
        return begin, end

    def sliced(self, level, begin, end) -> tuple["LoD", int, int]:
        k = self.level(level)
        return self.cut(k, *self._bounds(k, begin, end))

    @public
    def slice(self, level: int | str, begin: int, end: int | None = None) -> "LoD":
        """Sequences [begin, end) of a level as a batch, with the levels below; without end only sequence `begin`."""
        return self.sliced(level, begin, end)[0]

    def locate(self, path: tuple) -> tuple[int, int]:
        """Level and index of the sequence at a path: path[0] is an index at level 0, path[1] one among its elements,
        and so on."""
        if not 1 <= len(path) <= self.depth:
            raise LoDIndexError(f"expected a path of 1 to {self.depth} numbers, got {len(path)}")
        first, count = 0, self.levels[0].numel() - 1
        for k, step in enumerate(path):
            j = whole(f"path[{k}]", step)
            if not (holds(-count <= j) and holds(j < count)):
                raise LoDIndexError(f"expected path[{k}] in [{-count}, {count - 1}], got {j}")
            at = first + (j if j >= 0 else j + count)
            if k + 1 < len(path):
                begin, end = self.levels[k][at], self.levels[k][at + 1]
                first, count = whole_number(begin), whole_number(end - begin)
        return len(path) - 1, at

    @public
    def branch(self, *path: int) -> "LoD":
        """The sequence at a path from the outermost level, as a batch of one."""
        k, j = self.locate(path)
        return self.cut(k, j, j + 1)[0]

    def part(self, k: int, most: int, last: bool) -> tuple["LoD", Runs]:
        """The first (or the last) `most` elements of every sequence of level k, with the levels below; and their rows."""
        offsets = self.levels[k]
        if compiling():
            lengths = self.row_lengths_at(k) if k + 1 == self.depth else offsets.diff()
            taken = lengths.clamp(max=most)
            return self.runs(k, lengths - taken if last else None, taken, within=True)
        elements = self.elements_at(k)
        return self._taken(k, *take_runs(self.levels[k + 1 :], None, None, elements, True, offsets, most, last))

    @public
    def runs(self, k: int, starts, lengths, all_of_it: bool = False, within: bool = False) -> tuple["LoD", Runs]:
        """New sequences of level k, runs of elements of that level, with the levels below; and the rows of these. Starts
        must be valid indices even for empty runs. `all_of_it`: every element is taken once. `within`: run s is one of
        sequence s, and starts count from its first element, where it is if they are None."""
        if not compiling():
            of = self.levels[k] if within else None
            return self._taken(k, *take_runs(self.levels[k + 1 :], starts, lengths, self.elements_at(k), True, of))
        starts = self.levels[k][:-1] + (0 if starts is None else starts) if within else starts

        def count(i: int, taken: Tensor) -> int:
            return self.elements_at(k + i) if all_of_it else whole_number(taken[-1])

        levels, begin, taken = levels_of_runs(self.levels[k + 1 :], starts, lengths, count)
        return self._taken(k, [*levels, taken][: self.depth - k + 1], begin, self.rows if all_of_it else -1)

    @public
    def take(self, k: int, index: Tensor, all_of_it: bool = False) -> tuple["LoD", Runs]:
        """The sequences of level k at `index`, with the levels below; and the rows that they consist of."""
        offsets = self.levels[k]
        if compiling():
            starts = offsets[:-1][index]
            return self.runs(k, starts, offsets[1:][index] - starts, all_of_it)
        levels, begin, report = take_runs(self.levels[k:], index, torch.ones_like(index), offsets.shape[0] - 1, True)
        return self._taken(k, levels[1:], begin, [report[0], *report[2:]])  # runs of one sequence each

    def _taken(self, k: int, levels: list[Tensor], begin: Tensor, report) -> tuple["LoD", Runs]:
        """A LoD of sequences of level k, of which take_runs gave the levels and, at the end, the offsets in rows; and its
        report or, where a graph is made, the number of rows, -1 if it is not known. Which of them is told by the report: the
        graph may have ended in between, so that asking again would give another answer."""
        runs, levels = Runs(begin, levels[-1]), levels[: len(self.levels) - k]
        names = None if self.level_names is None else level_names_of(self.level_names[k:], len(levels))
        if isinstance(report, list):
            lod = object.__new__(LoD)._put(levels, report[1:], report[0], names)
        else:
            lod = LoD.checked("offsets", levels, names, report)
        if not self.counted:
            return lod, runs
        counted = []
        for mask in self.counted:
            starts, offsets = uploaded_runs(runs, mask, lod.rows)
            counted.append(ops.gather_runs(mask, starts, offsets, lod.rows))
        return lod.counting(*counted), runs

    def under(self, inner: "LoD", *own: Tensor) -> "LoD":
        """A LoD of this one's outer levels, then the levels `own`, then those of `inner`."""
        above = len(self.levels) - len(inner.levels) - len(own)
        if not above and not own and inner.level_names == self.level_names:
            return inner
        levels = [*self.levels[:above], *own, *inner.levels]
        return LoD.checked("offsets", levels, self.level_names, inner.rows).counting(*inner.counted)

    def _names_of(self, levels) -> list[str | None] | None:
        return None if self.level_names is None else [self.level_names[k] for k in levels]

    @public
    def drop_level(self, level: int | str) -> "LoD | None":
        """The LoD without a level, whose sequences are joined into those of the level above; None if it has no other."""
        k = self.level(level)
        if self.depth == 1:
            return None
        levels = list(self.levels)
        if k > 0:
            levels[k - 1] = levels[k][levels[k - 1]]
        del levels[k]
        names = self._names_of(i for i in range(self.depth) if i != k)
        return LoD.checked("offsets", levels, names).counting(*self.counted)

    @public
    def flatten(self, first: int | str, last: int | str) -> "LoD":
        """Levels `first` to `last` as one level, whose sequences are those of level `last`."""
        a, b = self.level(first), self.level(last)
        if a > b:
            raise LoDValueError(f"expected first not to be inside last, got levels {a} and {b}")
        if a == b:
            return self
        levels = list(self.levels[:a])
        if a > 0:
            for inner in self.levels[a:b]:
                levels[-1] = inner[levels[-1]]
        names = self._names_of([*range(a), *range(b, self.depth)])
        return LoD.checked("offsets", [*levels, *self.levels[b:]], names).counting(*self.counted)

    @public
    def outer(self, level: int | str) -> "LoD | None":
        """The levels above a level, as a LoD whose rows are the sequences of that level; None for level 0."""
        return self.outer_at(self.level(level))

    def outer_at(self, k: int) -> "LoD | None":
        if k == 0:
            return None
        if not compiling() and (found := self._cache.get(("outer", k))) is not None:  # every pooling comes here
            return found

        def make():
            longest = self._symbols[1:] if compiling() and self._symbols else self._longest
            names = level_names_of(self.level_names and self.level_names[:k], k)
            longest = longest and longest[:k]
            return object.__new__(LoD)._put(self.levels[:k], longest, self.levels[k].shape[0] - 1, names)

        return self.remember(("outer", k), make)

    @public
    def group(self, lengths, name: str | None = None) -> "LoD":
        """The LoD with a new outermost level of the given lengths, which sum to the number of sequences of level 0."""
        return self._with(lengths, name, outermost=True)

    @public
    def append(self, lengths, name: str | None = None) -> "LoD":
        """The LoD with a new innermost level: every row becomes a sequence of the given length."""
        return self._with(lengths, name, outermost=False)

    def _with(self, lengths, name, outermost: bool) -> "LoD":
        new = sums(host_integers("lengths", lengths))
        if not outermost and new.numel() - 1 != self.rows:
            raise LoDValueError(f"expected {self.rows} lengths, one per row, got {new.numel() - 1}")
        old = self.level_names or (None,) * self.depth
        levels = [new, *self.levels] if outermost else [*self.levels, new]
        names = (name, *old) if outermost else (*old, name)
        return LoD.checked("lengths", levels, names, by_length=True).counting(*(self.counted if outermost else ()))

    @public
    def with_level_names(self, level_names) -> "LoD":
        """The same structure with other level names."""
        return LoD.checked("offsets", self.levels, level_names).counting(*self.counted)

    # -- values

    def to_list(self) -> list[list[int]]:
        """Offsets as lists, relative to the next level."""
        return [level.tolist() for level in self.levels]

    def to_lengths(self) -> list[list[int]]:
        """Recursive sequence lengths as lists."""
        return [level.diff().tolist() for level in self.levels]

    def difference(self, other: "LoD") -> str | None:
        """Where two LoDs first differ, in words; None where they are equal."""
        if self.depth != other.depth:
            return f"{self.depth} and {other.depth} levels"
        for k, (a, b) in enumerate(zip(self.levels, other.levels, strict=True)):
            if a.shape != b.shape:
                return f"at level {k}: {a.numel() - 1} and {b.numel() - 1} sequences"
            if not torch.equal(a, b):
                i = int((a != b).nonzero()[0]) - 1
                return f"at level {k}, sequence {i}: lengths {int(a[i + 1] - a[i])} and {int(b[i + 1] - b[i])}"
        return None

    def differs(self, other: "LoD") -> bool:
        """Whether two LoDs differ. Compiled code cannot know it: it answers no, and asserts that they are equal."""
        if self is other:
            return False
        if not compiling():
            return self != other
        if self.depth != other.depth:
            return True
        for a, b in zip(self.levels, other.levels, strict=True):
            if a is not b:
                torch._check(a.shape[0] == b.shape[0], lambda: "expected equal LoDs, got other numbers of sequences")
                failing(a != b, "expected equal LoDs, got LoDs that differ")
        torch._check(self.rows == other.rows)
        return False

    def agreed(self, other: "LoD") -> "LoD":
        """The LoD that two operands share; ValueError, with the first difference, if they differ."""
        if self.differs(other):
            raise LoDsDiffer(
                f"expected operands with equal LoDs, got LoDs that differ: {self.difference(other)}; {way_out(self, other)}"
            )
        lod = self if self.level_names or not other.level_names else other
        return lod.counting(*self.counted_with(other)) if self.counted or other.counted else lod

    def __eq__(self, other) -> bool:
        if not isinstance(other, LoD):
            return NotImplemented
        if self.levels is other.levels:
            return True
        return len(self.levels) == len(other.levels) and all(map(torch.equal, self.levels, other.levels))

    def __hash__(self) -> int:
        found = self._cache.get("hash")
        if found is None:
            found = self._cache["hash"] = hash(tuple(level.numpy().tobytes() for level in self.levels))
        return found

    def __repr__(self) -> str:
        shown, names = [_short(level) for level in self.levels[: _SHOWN - 1]], self.level_names
        if self.depth > _SHOWN:
            shown.append(f"... {self.depth - _SHOWN} more levels ...")
            names = names and (*names[: _SHOWN - 1], "...", names[-1])
        shown += [_short(level) for level in self.levels[_SHOWN - 1 :][-1:]]
        return f"LoD([{', '.join(shown)}]{f', level_names={names}' if names else ''})"

    def __setattr__(self, name, value):
        raise AttributeError(f"LoD is immutable: cannot set {shown(name)}; make another one")

    def __delattr__(self, name):
        raise AttributeError(f"LoD is immutable: cannot delete {shown(name)}")

    def __copy__(self) -> "LoD":
        return self

    def __deepcopy__(self, memo) -> "LoD":
        return self

    def __reduce__(self):
        return _load_lod, (self.to_list(), self.level_names, *self.counted)


def fitting(values: Tensor, lod: LoD) -> Tensor:
    """The values; ValueError unless the LoD covers their rows."""
    if values.dim() == 0:
        raise named(LoDValueError("expected values with rows, at least 1 dimension, got a scalar"), "LoDTensor")
    if not holds(values.shape[0] == lod.rows):
        error = LoDValueError(
            f"expected the {lod.depth}-level LoD to cover the {values.shape[0]} rows of values, got one of {lod.rows} "
            f"rows: {lod}"
        )
        raise named(error, "LoDTensor")
    return values


def _load_lod(offsets: Sequence, level_names, *counted) -> LoD:
    """Called by pickle: a file is input like any other, so it is validated."""
    return LoD(offsets, level_names=level_names)._counting_loaded(*counted)


def _short(offsets: Tensor) -> str:
    """The lengths, the first and the last of many."""
    count = offsets.numel() - 1
    if count <= _SHOWN:
        return str(offsets.diff().tolist())
    head = ", ".join(map(str, offsets[:_SHOWN].diff().tolist()))
    return f"[{head}, ... {count - _SHOWN} more ..., {int(offsets[-1] - offsets[-2])}]"


def _complaint(
    what: str, by_length: bool, rule: int, level: int, index: int, before: int, here: int, *, depth: int
) -> str:
    """The error message for a report of check_lod."""
    where = what if what.endswith("]") else f"{what}[{level}]"
    if by_length and rule == 3:
        if here - before < -(2**63):
            return f"expected {where} to add up to less than 2**63, got more at index {index - 1}"
        return f"expected {where} >= 0, got {here - before} at index {index - 1}"
    of = f"sequences of level {level + 1}" if level + 1 < depth else "rows"
    if by_length and rule == 4:
        return f"expected {where} to add up to the {before} {of}, got {here}"
    if rule == 1:
        return f"expected at least 1 offset in {where} (0, for no sequences), got none"
    if rule == 2:
        return f"expected {where} to start at 0, got {here}"
    if rule == 3:
        return f"expected {where} not to decrease, got {before} then {here} at index {index}"
    return f"expected the last of {where} to equal the {before} {of}, got {here} at index {index}"


# The class is not among them: a file that names it could make one without its check, or change one after it.
torch.serialization.add_safe_globals([_load_lod])
