# SPDX-License-Identifier: Apache-2.0
"""Order statistics: plain loops, as sequence.py."""

import torch

from reference.ops import rows_of
from reference.sequence import above, parts


def sequence_quantile(x, q, interpolation="linear", padding_value=0.0, level=-1):
    """torch.quantile of every sequence, with the quantiles behind the sequences."""
    many = isinstance(q, torch.Tensor) and q.dim() == 1
    empty = torch.full((*(q.shape if many else ()), *x.values.shape[1:]), padding_value, dtype=x.values.dtype)
    made = [r.quantile(q, 0, interpolation=interpolation) if r.numel() else empty for r in parts(x, level)]
    return above(x, level, rows_of(made, empty[None]))
