# SPDX-License-Identifier: Apache-2.0
"""From tensors that hold sequences in torch's own forms: padded, packed, nested."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from .. import ops
from ..dynamo import before_the_first, compiling, failing, holds, whole_number
from ..errors import LoDTypeError, LoDValueError, constructor, shown
from ..ops.steps import exceeding
from ..structure.lod import LoD
from ..structure.partition import Runs, uploaded_map, uploaded_runs
from ..structure.validate import host_integers, integers_to_copy, level_names_of, one_of, sums, with_data, with_memory
from ..tensor.lod_tensor import LoDTensor, made
from .offsets import from_offsets
from .rows import tensor_of

__all__ = ["from_nested", "from_packed_sequence", "from_padded"]


@constructor
def from_padded(
    dense: Tensor | np.ndarray,
    lengths=None,
    mask: Tensor | np.ndarray | None = None,
    *,
    side: str = "right",
    level_names=None,
) -> LoDTensor:
    """One level from a padded tensor (sequences, length, *element), or several from one with a dim per level; the inverse of
    `to_padded`, with gradient.

    Args:
        lengths: integers, (sequences,): the rows of every sequence. For several levels a list of them, outermost first: of
            a level, packed (a length per sequence) or in the shape of the dims before its own, as `to_padded(level="all")`
            gives them.
        side: where the padding is, "right" or "left", as for `to_padded`; a mask says it by itself.
        mask: bool, or integers 0 and 1, (sequences, length): True where there is a row, anywhere. That is the opposite of
            torch's `key_padding_mask`: pass `mask=~key_padding_mask`.

    Raises:
        ValueError: for a length beyond the padded one; for a mask with numbers other than 0 and 1; unless exactly one
            of lengths and mask is given.
    """
    if not isinstance(dense, (Tensor, np.ndarray)) or dense.ndim < 2:
        raise LoDValueError(f"expected dense of shape (sequences, length, ...), got {_shape(dense)}")
    if (lengths is None) == (mask is None):
        raise LoDValueError(f"expected either lengths or mask, got {'both' if mask is not None else 'neither'}")
    one_of("side", side, "right", "left")
    n, longest, dense = dense.shape[0], dense.shape[1], tensor_of("dense", dense)
    if mask is not None:
        if side != "right":
            raise LoDValueError(f"expected no side with a mask, which says where the rows are, got {shown(side)}")
        if not isinstance(mask, (Tensor, np.ndarray)):
            raise LoDValueError(f"expected a bool mask of shape ({n}, {longest}), got {type(mask).__name__}")
        return where_true(dense, tensor_of("mask", mask), level_names)
    if per_level(lengths):
        return from_dims(dense, lengths, side, level_names)
    lengths = (integers_to_copy if side == "right" else host_integers)("lengths", lengths)
    if lengths.numel() != n:
        raise LoDValueError(f"expected {n} lengths, one per sequence, got {lengths.numel()}")
    if not compiling():
        starts = None if side == "right" else longest - lengths
        try:
            names = level_names_of(level_names, 1)
            before_the_first()
            lod, runs = LoD.of_padded(n, longest, starts, lengths, names)
            rows = dense.flatten(0, 1)
            return made(ops.gather_runs(rows, *uploaded_runs(runs, rows, lod.rows, longest), lod.rows), lod)
        except (IndexError, TypeError, ValueError):
            lengths = host_integers("lengths", lengths)  # below, the error says what is wrong
    lod = LoD.checked("lengths", [sums(lengths)], level_names, by_length=True)
    for i in failing(lengths > longest, "from_padded: expected lengths within the padded length"):
        raise LoDValueError(f"expected lengths in [0, {longest}], got {int(lengths[i])} at index {i}")
    starts = lod.padded_starts_at(0, longest, side == "right", dense.device)
    offsets = lod.row_offsets_at(0, dense.device)
    return made(ops.gather_runs(dense.flatten(0, 1), starts, offsets, lod.rows), lod)


def _shape(given) -> str:
    array = isinstance(given, (Tensor, np.ndarray))
    return f"{given.dtype} {tuple(given.shape)}" if array else type(given).__name__


@constructor
def from_packed_sequence(packed: torch.nn.utils.rnn.PackedSequence, *, level_names=None) -> LoDTensor:
    """One level from torch's PackedSequence, sequences in their original order. Keeps the gradient."""
    if not isinstance(packed, torch.nn.utils.rnn.PackedSequence):
        raise LoDTypeError(f"expected packed as a PackedSequence, got {type(packed).__name__}")
    data, sizes = packed.data, host_integers("batch_sizes", packed.batch_sizes)
    if sizes.numel() == 0 or bool((sizes.diff() > 0).any()) or int(sizes[-1]) < 1 or int(sizes.sum()) != data.shape[0]:
        raise LoDValueError(
            f"expected batch_sizes that do not increase and add up to the {data.shape[0]} rows, got {sizes.tolist()[:12]}"
        )
    n = int(sizes[0])
    order = (
        torch.arange(n, device="cpu")
        if packed.sorted_indices is None
        else host_integers("sorted_indices", packed.sorted_indices)
    )
    if not torch.equal(order.sort().values, torch.arange(n, device="cpu")):
        raise LoDValueError(f"expected sorted_indices to be a permutation of {n} sequences, got {order.tolist()[:12]}")
    rank = order.argsort()
    offsets = sums(exceeding(sizes, n)[rank])
    sequence = torch.arange(n, device="cpu").repeat_interleave(offsets.diff())
    step = torch.arange(data.shape[0], device="cpu") - offsets[sequence]
    rows = sums(sizes)[step] + rank[sequence]
    lod = LoD.checked("lengths", [offsets], level_names)
    return LoDTensor(ops.gather_rows(data, uploaded_map(rows, data.device, data.shape[0])), lod)


@constructor
def from_nested(nested: Tensor, *, level_names=None) -> LoDTensor:
    """One level from torch.nested's jagged tensor (ragged dim 1, no holes). Shares the rows. One sync on a GPU."""
    if not (isinstance(nested, Tensor) and nested.is_nested and nested.layout == torch.jagged):
        got = f"a tensor of layout {nested.layout}" if isinstance(nested, Tensor) else type(nested).__name__
        raise LoDTypeError(f"expected a nested tensor of layout torch.jagged, got {got}")
    jagged: Any = nested  # type checkers do not know the attributes of a nested tensor
    if jagged.lengths() is not None or jagged._ragged_idx != 1:
        raise LoDValueError("expected ragged dim 1 without holes; call .contiguous() or transpose first")
    return from_offsets(jagged.values(), [jagged.offsets()], level_names=level_names)


# -- a dim per level, or a mask


def from_dims(dense: Tensor, lengths, side: str, level_names) -> LoDTensor:
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
    return made(ops.gather_runs(rows, *uploaded_runs(Runs(starts, offsets), rows, lod.rows), lod.rows), lod)


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


def where_true(dense: Tensor, mask: Tensor, level_names) -> LoDTensor:
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
    return made(
        ops.gather_rows(rows, uploaded_map(host.nonzero().flatten(), rows.device, rows.shape[0], apart=True)), lod
    )
