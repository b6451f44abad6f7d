# SPDX-License-Identifier: Apache-2.0
"""Shape "segment", by order: which rows of a segment come first, separately for each element."""

import torch
from torch import Tensor

from . import check
from .compositions import composed, segment_of_rows
from .library import operator

__all__ = [
    "segment_order",
    "segment_topk",
]


def _check(op, values, row_offsets) -> None:
    check.segments(op, values, row_offsets)
    check.is_number(op, values)
    check.offsets(op, row_offsets, values.shape[0])


def _order(values, row_offsets, descending):
    values = values.detach()
    if values.is_floating_point() and values.device.type != "cpu":  # where a NaN with a sign is sorted as the lowest
        values = values.masked_fill(values.isnan(), torch.nan)
    first = values.sort(dim=0, descending=descending, stable=True).indices
    segment = segment_of_rows(row_offsets, values.shape[0])
    return first.gather(0, segment[first].sort(dim=0, stable=True).indices)


@operator
def segment_order(values: Tensor, row_offsets: Tensor, descending: bool = False) -> Tensor:
    """The rows of every segment in the order of their numbers, separately for each element; equal ones stay in order.

    NaN is larger than every number. `values.gather(0, segment_order(values, row_offsets))` sorts.

    Equivalent to:
        torch.cat(
            [rows.argsort(dim=0, stable=True) + start for rows, start in zip(values.split(lengths), row_offsets.tolist())]
        )

    Args:
        values: (rows, *element), a floating or integer dtype.
        row_offsets: int64, (segments + 1,).
        descending: the largest first.

    Returns:
        int64, of the shape of values, as indices into all rows; it has no gradient.

    Source: on the CPU the places of up to 32 rows are counted, and more are sorted byte by byte (radix sort, from the lowest
    byte); on a GPU torch.sort, by number and then by segment.
    """
    _check("segment_order", values, row_offsets)
    return _order(values, row_offsets, descending)


@operator
def segment_topk(values: Tensor, row_offsets: Tensor, k: int, largest: bool = True) -> Tensor:
    """The first `k` rows of every segment in descending order, separately for each element; equal ones stay in order.

    Args:
        values: (rows, *element), a floating or integer dtype.
        row_offsets: int64, (segments + 1,).
        k: at least 1 (ValueError).
        largest: False gives the smallest, in ascending order.

    Returns:
        int64, (segments, k, *element), as indices into all rows, -1 where a segment has fewer; it has no gradient.
    """
    _check("segment_topk", values, row_offsets)
    if k < 1:
        raise ValueError(f"segment_topk: expected k >= 1, got {k}")
    row = row_offsets[:-1, None] + torch.arange(k, device=values.device)
    row = torch.where(row < row_offsets[1:, None], row, -1)
    order = _order(values, row_offsets, largest)
    return composed.gather_rows(order, row.flatten(), -1).view(*row.shape, *values.shape[1:])
