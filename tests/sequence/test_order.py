# SPDX-License-Identifier: Apache-2.0
"""Orders within short segments, whose columns are ordered together with those of others: as torch's stable sort."""

import math

import pytest
import torch

from torch_lod import ops

DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int8)
#: Columns of several segments together, as many as go side by side, and more.
WIDTHS = (1, 2, 7, 15, 16, 17, 40)


def numbers(rows: int, width: int, dtype, seed: int) -> torch.Tensor:
    """Few different ones, so that many are equal, and the ends of the dtype."""
    g = torch.Generator().manual_seed(seed)
    x = torch.randint(-3, 4, (rows, width), generator=g).to(dtype)
    if dtype.is_floating_point:
        ends = [math.inf, -math.inf, math.nan, -math.nan, -0.0]
    else:
        ends = [torch.iinfo(dtype).max, torch.iinfo(dtype).min]
    for i, end in enumerate(ends):
        x.view(-1)[i :: 7 + i] = end
    return x


def order_of(part: torch.Tensor, descending: bool) -> torch.Tensor:
    return part.argsort(dim=0, stable=True, descending=descending)


@pytest.mark.parametrize("most", [1, 4, 8, 9, 33])
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_short_segments(dtype, width, most):
    g = torch.Generator().manual_seed(most)
    lengths = torch.randint(0, most + 1, (41,), generator=g).tolist()
    offsets = torch.tensor([0, *lengths]).cumsum(0)
    x = numbers(sum(lengths), width, dtype, most)
    for descending in (False, True):
        want = [order_of(part, descending) for part in x.split(lengths)]
        index = ops.segment_order(x, offsets, descending)
        assert torch.equal(index, torch.cat([o + a for o, a in zip(want, offsets.tolist())]))
        for k in (1, 3, 8, 40):
            rows = torch.full((len(lengths), k, width), -1)
            for row, order, begin in zip(rows, want, offsets.tolist()):
                row[: len(order)] = order[:k] + begin
            assert torch.equal(ops.segment_topk(x, offsets, k, descending), rows)
