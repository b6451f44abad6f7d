# SPDX-License-Identifier: Apache-2.0
"""The plan of a recurrence: sequences sorted by length. Step t runs for all sequences longer than t together.

With x of lengths [[2, 3, 1]] and rows a0 a1 | b0 b1 b2 | c0 the table says b a c, and the array holds
    step 0: b0 a0 c0        step 1: b1 a1        step 2: b2
"""

import itertools

import torch
from torch import Tensor

from .. import ops
from ..construct.joined import all_lod, joined
from ..dynamo import holds, whole_number
from ..errors import LoDTypeError, LoDValueError
from ..structure.lod import LoD
from ..structure.validate import sums, with_memory
from ..tensor.lod_tensor import LoDTensor, made, moved
from .operator import along, sequence_operator


class RankTable:
    """The sequences of a level from longest to shortest; those of equal length in their own order.

    `table.index` (int64) are the indices of the sequences, `table.lengths` their lengths, in elements of the level;
    `items()` are pairs of both; `active(t)` is the number of sequences longer than t.
    """

    def __init__(self, lod: LoD, level: int):
        self.lod, self.level = lod, level
        self.order = lod.rank_at(level)  # shared: not to be written to

    @property
    def index(self) -> Tensor:
        return self.order.clone()

    @property
    def lengths(self) -> Tensor:
        return self.lod.levels[self.level].diff()[self.order]

    def items(self) -> list[tuple[int, int]]:
        return list(zip(self.order.tolist(), self.lengths.tolist(), strict=True))

    def active(self, t: int) -> int:
        """The number of sequences that have a step t."""
        with_memory(t)
        return whole_number((self.lengths > t).sum())

    def steps(self) -> tuple[Tensor, list[int]]:
        """The elements of step 0, 1, ... in the order of the table, one step after another, and the size of each step."""

        lod, k = self.lod, self.level
        return lod.steps_at(k), lod.remember(("list of sizes", k), lambda: lod.step_sizes_at(k).tolist())

    def __repr__(self) -> str:
        return f"RankTable({self.items()})"

    def __reduce__(self):
        return _load_rank_table, (self.lod, self.level)


def _load_rank_table(lod, level) -> RankTable:
    """Called by pickle: a file is input like any other, so the table is made again."""
    return RankTable(lod, level)


torch.serialization.add_safe_globals([_load_rank_table])  # not the class: see lod.py


def a_table(table) -> RankTable:
    if not isinstance(table, RankTable):
        raise LoDTypeError(f"expected table as a RankTable, got {type(table).__name__}; see tl.lod_rank_table")
    return table


@sequence_operator
def to_steps(x: LoDTensor, table: RankTable) -> list[Tensor]:
    """`tl.lod_tensor_to_array`: element t of every sequence that has one, for every t."""
    s = along(x, a_table(table).level)
    if s.lod.differs(table.lod):
        raise LoDValueError(f"expected x with the table's LoD, got LoDs that differ: {s.lod.difference(table.lod)}")
    index, sizes = table.steps()
    if s.innermost:
        return list(ops.gather_rows(s.rows, s.lod.steps_at(s.k, s.rows.device)).split(sizes))
    by_step = moved(x, *x.lod.take(s.k + 1, index))
    ends = sums(torch.tensor(sizes, dtype=torch.int64, device="cpu")).tolist()
    lods = [by_step.lod.cut(0, a, b)[0] for a, b in itertools.pairwise(ends)]
    parts = by_step.values().split([lod.rows for lod in lods])
    return [LoDTensor(part, lod) for part, lod in zip(parts, lods, strict=True)]


@sequence_operator
def from_steps(array: list[Tensor], table: RankTable) -> LoDTensor:
    """`tl.array_to_lod_tensor`: the steps back in the order and structure of the table."""
    sizes = a_table(table).steps()[1]
    if not isinstance(array, (list, tuple)):
        raise LoDTypeError(f"expected array as a list of tensors, got {type(array).__name__}")
    if len(array) != len(sizes):
        raise LoDValueError(f"expected {len(sizes)} steps, got {len(array)}")
    if not array:
        raise LoDValueError("expected at least 1 step, got none: the shape of a row would be unknown")
    nested = isinstance(array[0], LoDTensor)
    for t, (step, size) in enumerate(zip(array, sizes, strict=True)):
        if not isinstance(step, Tensor) or isinstance(step, LoDTensor) != nested or step.dim() == 0:
            raise LoDTypeError(f"expected steps of one kind with rows, got {type(step).__name__} at step {t}")
        if step.shape[1:] != array[0].shape[1:]:
            raise LoDValueError(
                f"expected steps of rows of one shape, got {tuple(array[0].shape[1:])} and, at step {t}, "
                f"{tuple(step.shape[1:])}"
            )
        count = step.num_sequences() if isinstance(step, LoDTensor) else step.shape[0]
        if not holds(count == size):
            raise LoDValueError(f"expected {size} {'sequences' if nested else 'rows'} at step {t}, got {count}")
    if not nested:
        with_memory(*array)
        values = torch.cat(list(array))
        lod = table.lod if table.level + 1 == table.lod.depth else table.lod.outer_at(table.level + 1)
        return made(ops.gather_rows(values, table.lod.from_steps_at(table.level, values.device)), lod)
    outer = table.lod.levels[: table.level + 1]
    whole = joined(all_lod(list(array)))
    inner, runs = whole.lod.take(0, table.lod.from_steps_at(table.level))
    names = table.lod.level_names if table.lod.depth == len(outer) + inner.depth else None
    return moved(whole, LoD.checked("offsets", [*outer, *inner.levels], names).counting(*inner.counted), runs)
