# SPDX-License-Identifier: Apache-2.0
"""The plan of a recurrence: sequences sorted by length. Step t runs for all sequences longer than t together.

With x of lengths [[2, 3, 1]] and rows a0 a1 | b0 b1 b2 | c0 the table says b a c, and the array holds
    step 0: b0 a0 c0        step 1: b1 a1        step 2: b2
"""

import torch
from torch import Tensor

from .. import ops
from ..construct.joined import all_lod, joined
from ..dynamo import holds, whole_number
from ..errors import LoDIndexError, LoDTypeError, LoDValueError
from ..sequence.operator import along, level_of, sequence_operator
from ..sequence.plan import RankTable, a_table, from_steps, to_steps
from ..structure.devices import upload
from ..structure.lod import LoD
from ..structure.partition import uploaded_map
from ..structure.validate import an_int, with_memory
from ..tensor.lod_tensor import LoDTensor, moved, rows_of, sequences_at, unmoved

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
    return a_table(table).lod.longest_at(table.level)


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
    return to_steps(x, table)


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
    return from_steps(array, table)


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
    order, count = a_table(table).order, _sequences_of(x)
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
    a_table(table)
    an_int("i in [0, 2**63)", i, 0, 2**63 - 1, error=LoDIndexError)
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
