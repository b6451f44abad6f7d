# SPDX-License-Identifier: Apache-2.0
"""The BlockMask of FlexAttention for the sequences of two LoDs: what every query sees is a range of keys."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..errors import LoDTypeError, LoDValueError, public, shown
from .partition import Partition
from .validate import a_bool, as_int

if TYPE_CHECKING:  # torch_lod imports neither FlexAttention nor a compiler
    from torch.nn.attention.flex_attention import BlockMask
else:
    BlockMask = Any


def window_pair(window) -> tuple[int, int]:
    """How many keys before and after its own position a query sees; -1: all."""
    pair = (-1, -1) if window is None else (window, window) if type(window) is int else window
    fits = isinstance(pair, (tuple, list)) and len(pair) == 2
    if not fits or any(type(n) is not int or not -1 <= n <= 2**40 for n in pair):
        raise LoDValueError(f"expected window as a number of keys, a pair of them or None, got {shown(window)}")
    return pair[0], pair[1]


def _ranges(
    lods: tuple[Partition, Partition], levels: Sequence[int], left: int, right: int, device
) -> tuple[Tensor, Tensor]:
    """Of every query the first row that it sees of all keys, and the row after the last; equal where it sees none."""
    (queries, keys), (own, other) = lods, levels
    segment = queries.segment_ids_at(own, device)
    ends, cuts = queries.row_offsets_at(own, device)[1:], keys.row_offsets_at(other, device)
    begin, end = cuts[:-1][segment], cuts[1:][segment]
    position = torch.arange(queries.rows, device=device) + (end - ends[segment])  # of the key with the query's position
    first = begin if left < 0 else torch.maximum(begin, position - left)
    after = end if right < 0 else torch.minimum(end, position + right + 1)
    return first, torch.maximum(first, after)


def _blocks(first: Tensor, after: Tensor, keys: int, size: int) -> tuple[Tensor, Tensor]:
    """bool, (blocks of queries, blocks of keys): where some query sees a key but not every one all, and where all do."""
    row, columns = torch.arange(first.shape[0], device=first.device) // size, -(-keys // size)
    shape = -(-first.shape[0] // size), columns + 1

    def count(begin: Tensor, end: Tensor) -> Tensor:
        """The queries of a block of which blocks begin to end are counted: steps up and down, then their sums."""
        steps, at = torch.zeros(shape[0] * shape[1], dtype=torch.int32, device=first.device), row * shape[1]
        one = (begin < end).to(torch.int32)
        steps.index_add_(0, at + begin, one).index_add_(0, at + torch.maximum(begin, end), -one)
        return steps.view(shape).cumsum(1, dtype=torch.int32)[:, :columns]

    begin = first // size
    some = count(begin, torch.where(after > first, -(-after // size), begin)) > 0
    full = count(-(-first // size), after // size) == size
    return some & ~full, full


def _ordered(blocks: Tensor) -> tuple[Tensor, Tensor]:
    """Per row how many blocks there are, and their columns first: as BlockMask has them, for one batch and one head."""
    order = blocks.to(torch.int32).argsort(dim=1, descending=True, stable=True)
    return blocks.sum(1, dtype=torch.int32)[None, None], order.to(torch.int32)[None, None]


@public
def block_mask(
    self,
    keys=None,
    *,
    level: int | str = -1,
    causal: bool = False,
    window: int | tuple[int, int] | None = None,
    block_size: int = 128,
    device=None,
) -> BlockMask:
    """A BlockMask for torch's FlexAttention: a row sees the rows of its own sequence in `keys`, a LoD with as many
    sequences at the level, or this LoD itself.

    It equals that of create_block_mask, (1, 1, blocks of queries, blocks of keys), and is made from the offsets,
    without asking about every pair of rows; its memory, as that of FlexAttention's format, grows with the square of the number of
    blocks: 200,000 rows in blocks of 128 are 1,563 x 1,563. causal, window: as in tl.sequence_attention, queries and keys aligned at
    their ends. block_size: rows of a block, BLOCK_SIZE of create_block_mask. device: of the tensors in the mask.
    ValueError where the numbers of sequences differ. docs/attention_options.md shows a call."""
    from torch.nn.attention import flex_attention

    keys = self if keys is None else keys
    if not isinstance(keys, type(self)):
        way_out = "; pass its .lod" if isinstance(keys, Tensor) else ""
        raise LoDTypeError(f"expected keys as a LoD or None, got {shown(keys)}{way_out}")
    lods = self, keys
    levels = [lod.level(level) for lod in lods]
    counts = [lod.levels[k].shape[0] - 1 for lod, k in zip(lods, levels)]
    if counts[0] != counts[1]:
        raise LoDValueError(
            f"expected as many sequences of keys as of queries at the level, {counts[0]}, got {counts[1]}"
        )
    rows, key_rows = self.rows, keys.rows
    if max(rows, key_rows) >= 2**31:
        raise LoDValueError(f"expected fewer than 2**31 rows for int32 blocks, got {max(rows, key_rows)}")
    size, device = as_int(block_size), torch.device("cpu" if device is None else device)
    if type(size) is not int or not 1 <= size < 2**31:
        raise LoDValueError(f"expected block_size in [1, 2**31), got {shown(block_size)}")
    a_bool("causal", causal)
    before, ahead = window_pair(window)
    first, after = _ranges(lods, levels, before, 0 if causal else ahead, device)
    partial, full = (_ordered(blocks) for blocks in _blocks(first, after, key_rows, size))
    first, after = first.to(torch.int32), after.to(torch.int32)

    def mask_mod(b, h, q_idx, kv_idx):
        return (kv_idx >= first[q_idx]) & (kv_idx < after[q_idx])

    return flex_attention.BlockMask.from_kv_blocks(
        *partial, *full, BLOCK_SIZE=(size, size), mask_mod=mask_mod, seq_lengths=(rows, key_rows)
    )
