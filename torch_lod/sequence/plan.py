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
from ..errors import LoDIndexError, LoDTypeError, LoDValueError, shown
from ..structure.devices import upload
from ..structure.lod import LoD
from ..structure.partition import uploaded_map
from ..structure.validate import sums, with_memory
from ..tensor.lod_tensor import LoDTensor, made, moved, rows_of, sequences_at, unmoved
from .operator import along, level_of, sequence_operator

__all__ = [
    "RankTable",
    "array_to_lod_tensor",
    "lod_rank_table",
    "lod_tensor_to_array",
    "max_sequence_len",
    "merge_lod_tensor",
    "reorder_lod_tensor_by_rank",
    "shrink_memory",
    "split_lod_tensor",
]


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


@sequence_operator
def lod_rank_table(x: LoDTensor, *, level: int | str = 0) -> RankTable:
    """The sequences of a level sorted by length, longest first; empty ones are last.

    Args:
        x: of any dtype; only its LoD counts.
        level: the level whose sequences are sorted; its elements are the steps. The outermost if not given.

    Source: Paddle Fluid's lod_rank_table.
    """
    s = along(x, level)
    return RankTable(s.lod, s.k)


@sequence_operator
def max_sequence_len(table: RankTable) -> int:
    """The number of steps: the length of the longest sequence, 0 without sequences.

    Source: Paddle Fluid's max_sequence_len.
    """
    return _a_table(table).lod.longest_at(table.level)


def _a_table(table) -> RankTable:
    if not isinstance(table, RankTable):
        raise LoDTypeError(f"expected table as a RankTable, got {type(table).__name__}; see tl.lod_rank_table")
    return table


@sequence_operator
def lod_tensor_to_array(x: LoDTensor, table: RankTable) -> list[Tensor]:
    """Element t of every sequence that has one, for every t: the inputs of the steps of a recurrence.

    Args:
        x: with the table's LoD.
        table: of any level.

    Returns:
        per step a plain tensor, or a LoDTensor if x has levels below the table's; longest sequence first. The steps are
        parts of one tensor; the gradient goes back to the rows. Empty sequences are in no step.

    Raises:
        ValueError: where the LoD of x is not the table's.

    Source: Paddle Fluid's lod_tensor_to_array; SegmentInputs of the variable-length RNN design.
    """
    s = along(x, _a_table(table).level)
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
def array_to_lod_tensor(array: list[Tensor], table: RankTable) -> LoDTensor:
    """The steps of a recurrence back in the order and structure of the table: the inverse of `lod_tensor_to_array`.

    Args:
        array: per step a tensor with a row for each sequence that has it, or a LoDTensor with a sequence for each.

    Returns:
        (rows, *element), with the table's levels, then those of the steps; empty sequences are restored. The gradient
        is split into that of the steps.

    Raises:
        ValueError: where the number of steps, or the size of one, is not the table's; if there is no step.

    Source: Paddle Fluid's array_to_lod_tensor; ConcatOutputs of the variable-length RNN design.
    """
    sizes = _a_table(table).steps()[1]
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


def _sequences_of(x, what: str = "x") -> int:
    if not isinstance(x, Tensor) or x.dim() == 0:
        got = "a scalar" if isinstance(x, Tensor) else type(x).__name__
        raise LoDTypeError(f"expected {what} as a tensor with rows, got {got}")
    unmoved(what, x)
    return x.num_sequences() if isinstance(x, LoDTensor) else x.shape[0]


@sequence_operator
def reorder_lod_tensor_by_rank(x: Tensor, table: RankTable) -> Tensor:
    """The rows of a plain x, or the outermost sequences of a LoDTensor, in the order of the table.

    Equivalent to (x plain):
        x[table.index]

    Returns:
        the shape of x; for a LoDTensor its levels, whose lengths move with the sequences. The gradient moves back.

    Raises:
        ValueError: if x has another number of sequences than the table.

    Source: Paddle Fluid's reorder_lod_tensor_by_rank; InitMemories of the variable-length RNN design.
    """
    order, count = _a_table(table).order, _sequences_of(x)
    if count != order.numel():
        raise LoDValueError(f"expected x with the {order.numel()} sequences of the table, got {count}")
    if isinstance(x, LoDTensor):
        return sequences_at(x, 0, order)
    return ops.gather_rows(x, table.lod.rank_at(table.level, x.device))


@sequence_operator
def shrink_memory(x: Tensor, i: int, table: RankTable) -> Tensor:
    """The first rows (or sequences) of x: those of the sequences that have a step i. A view with gradient.

    Equivalent to (x plain):
        x[: table.active(i)]

    Raises:
        IndexError: for i < 0.
        ValueError: if x has fewer rows (or sequences).

    Source: Paddle Fluid's shrink_memory.
    """
    _a_table(table)
    if type(i) is not int or not 0 <= i < 2**63:
        raise LoDIndexError(f"expected i in [0, 2**63), got {shown(i)}")
    alive, count = table.active(i), _sequences_of(x)
    if not holds(count >= alive):
        raise LoDValueError(f"expected x with at least the {alive} sequences that have a step {i}, got {count}")
    return x.slice(0, 0, alive) if isinstance(x, LoDTensor) else x[:alive]


def _mask(mask, count: int) -> Tensor:
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
        raise LoDTypeError(f"expected mask as a bool tensor, got {getattr(mask, 'dtype', type(mask).__name__)}")
    if mask.is_meta:
        raise LoDTypeError(f"expected mask as a bool tensor with data, got one on {mask.device}")
    if not (mask.dim() == 1 or (mask.dim() == 2 and mask.shape[1] == 1)) or not holds(mask.shape[0] == count):
        raise LoDValueError(f"expected mask of shape ({count},) or ({count}, 1), got {tuple(mask.shape)}")
    with_memory(mask)
    return rows_of(mask).reshape(-1).cpu()


@sequence_operator
def split_lod_tensor(x: Tensor, mask: Tensor, *, level: int | str = 0) -> tuple[Tensor, Tensor]:
    """The sequences of a level where the mask is true, and the others. One sync if the mask is on a GPU.

    Args:
        x: a LoDTensor, or a plain tensor, whose rows are split.
        mask: bool, (sequences,) or (sequences, 1).

    Returns:
        two batches, with the levels from `level` down; one of them may have no sequences. The gradient goes back to the
        rows.

    Raises:
        ValueError, TypeError: if mask does not hold one bool for every sequence.

    Source: Paddle Fluid's split_lod_tensor.
    """
    if not isinstance(x, LoDTensor):
        host = _mask(mask, _sequences_of(x))
        yes, no = (
            ops.gather_rows(x, uploaded_map(m.nonzero().flatten(), x.device, x.shape[0], apart=True))
            for m in (host, ~host)
        )
        return yes, no
    k = level_of(x, level)
    host = _mask(mask, x.num_sequences(k))
    yes, no = (sequences_at(x, k, m.nonzero().flatten()) for m in (host, ~host))
    return yes, no


@sequence_operator
def merge_lod_tensor(in_true: Tensor, in_false: Tensor, x: Tensor, mask: Tensor, *, level: int | str = 0) -> Tensor:
    """The inverse of `split_lod_tensor`: sequence i from `in_true` where the mask is true, from `in_false` otherwise.

    Args:
        x: what was split; its levels above `level` are restored.

    Returns:
        a LoDTensor; plain if the parts are plain. Gradients reach both parts; empty sequences are restored.

    Raises:
        ValueError: if a part has another number of sequences than the mask says.

    Source: Paddle Fluid's merge_lod_tensor.
    """
    k = level_of(x, level) if isinstance(x, LoDTensor) else 0
    host = _mask(mask, x.num_sequences(k) if isinstance(x, LoDTensor) else _sequences_of(x))
    wanted = {"in_true": whole_number(host.sum()), "in_false": whole_number((~host).sum())}
    for (what, count), part in zip(wanted.items(), (in_true, in_false), strict=True):
        if not holds(_sequences_of(part, what) == count):
            raise LoDValueError(f"expected {what} with {count} sequences, got {_sequences_of(part, what)}")
    index = torch.where(host, host.cumsum(0) - 1, wanted["in_true"] + (~host).cumsum(0) - 1)
    if isinstance(in_true, LoDTensor) != isinstance(in_false, LoDTensor):
        kinds = f"{type(in_true).__name__} and {type(in_false).__name__}"
        raise LoDTypeError(f"expected in_true and in_false of one kind, got {kinds}")
    if not isinstance(in_true, LoDTensor):
        if in_true.shape[1:] != in_false.shape[1:]:
            shapes = f"{tuple(in_true.shape[1:])} and {tuple(in_false.shape[1:])}"
            raise LoDValueError(f"expected in_true and in_false of rows of one shape, got {shapes}")
        with_memory(in_true, in_false)
        return ops.gather_rows(torch.cat([in_true, in_false]), upload(index, in_true.device))
    whole = joined(all_lod([in_true, in_false]))
    inner, runs = whole.lod.take(0, index)
    if not isinstance(x, LoDTensor):
        return moved(whole, inner, runs)
    names = x.level_names if k + inner.depth == x.lod_level else inner.level_names if k == 0 else None
    return moved(
        whole, LoD.checked("offsets", [*x.lod.levels[:k], *inner.levels], names).counting(*inner.counted), runs
    )
