# SPDX-License-Identifier: Apache-2.0
"""Shape "segment", by order: sorted by number and then, with equal ones in order, by segment."""

import torch

from .. import check
from .rows import gather_rows
from .table import composition, segment_of_rows


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


@composition
def segment_order(values, row_offsets, descending=False):
    _check("segment_order", values, row_offsets)
    return _order(values, row_offsets, descending)


@composition
def segment_topk(values, row_offsets, k, largest=True):
    _check("segment_topk", values, row_offsets)
    if k < 1:
        raise ValueError(f"segment_topk: expected k >= 1, got {k}")
    row = row_offsets[:-1, None] + torch.arange(k, device=values.device)
    row = torch.where(row < row_offsets[1:, None], row, -1)
    order = _order(values, row_offsets, largest)
    return gather_rows(order, row.flatten(), -1).view(*row.shape, *values.shape[1:])
