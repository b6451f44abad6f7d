# SPDX-License-Identifier: Apache-2.0
"""Order statistics and linear recurrences: plain loops, as sequence.py."""

import torch

from reference.ops import rows_of
from reference.sequence import Nest, above, parts


def sequence_quantile(x, q, interpolation="linear", padding_value=0.0, level=-1):
    """torch.quantile of every sequence, with the quantiles behind the sequences."""
    many = isinstance(q, torch.Tensor) and q.dim() == 1
    empty = torch.full((*(q.shape if many else ()), *x.values.shape[1:]), padding_value, dtype=x.values.dtype)
    made = [r.quantile(q, 0, interpolation=interpolation) if r.numel() else empty for r in parts(x, level)]
    return above(x, level, rows_of(made, empty[None]))


def sequence_scan(x, a, reverse=False, level=-1):
    factors = parts(a, level) if isinstance(a, Nest) else [[a] * len(r) for r in parts(x, level)]
    made = []
    for rows, f in zip(parts(x, level), factors, strict=True):
        h, out = 0, []
        for t in reversed(range(len(rows))) if reverse else range(len(rows)):
            h = rows[t] if not out else rows[t] + f[t] * h
            out.append(h)
        made += out[::-1] if reverse else out
    return x.with_rows(rows_of(made, x.values))
