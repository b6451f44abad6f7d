# SPDX-License-Identifier: Apache-2.0
"""What attention of nested sequences means, query by query and key by key."""

import itertools
import math

import torch

from reference.ops import rows_of
from reference.sequence import parts, under


def sequence_attention(
    q,
    k,
    v,
    level=-1,
    causal=False,
    window=None,
    bias=None,
    scale=None,
    enable_gqa=False,
    alibi=None,
    softcap=None,
    sink=None,
    distance_bias=None,
    prefix=None,
    block_size=None,
    block_level=None,
):
    before, after = (-1, -1) if window is None else (window, window) if isinstance(window, int) else window
    extends = any(t is not None for t in (prefix, block_size, block_level))
    block = {} if block_level is None else {row: b for b, rows in enumerate(under(k, block_level)) for row in rows}

    def sees(position, j, s):
        if (before >= 0 and j < position - before) or (0 <= after < j - position):
            return False
        if j <= position or not (causal or extends):
            return True
        if prefix is not None and j < int(prefix if isinstance(prefix, int) else prefix[s]):
            return True
        if block_size is not None and j // block_size <= position // block_size:
            return True
        numbers = under(k, level)[s]
        return block_level is not None and position >= 0 and block[numbers[j]] <= block[numbers[position]]

    out, pairs = [], itertools.count()
    for s, (rows, keys, inner) in enumerate(zip(parts(q, level), parts(k, level), parts(v, level), strict=True)):
        for i, row in enumerate(rows):
            position = i + len(keys) - len(rows)
            heads = []
            row = row if row.dim() == 2 else row[None]
            first = [next(pairs) for _ in keys]
            for h, one in enumerate(row):
                shared = keys if keys.dim() == 3 else keys[:, None]
                values_ = inner if inner.dim() == 3 else inner[:, None]
                g = h // (len(row) // shared.shape[1])
                result = values_.new_zeros(values_.shape[2]) + 0 * (one.sum() + shared.sum() + values_.sum())
                seen, scores = [], []
                for j in range(len(keys)):
                    if not sees(position, j, s):
                        continue
                    x = (one * shared[j, g]).sum() * (len(one) ** -0.5 if scale is None else scale)
                    if softcap is not None:
                        x = softcap * (x / softcap).tanh()
                    if bias is not None:
                        added = bias[first[j]] if bias.dim() == 1 else bias[first[j], h]
                        x = x + (torch.where(added, 0.0, -math.inf) if bias.dtype == torch.bool else added)
                    if alibi is not None:
                        slope = 2.0 ** (-8 * (h + 1) / len(row)) if alibi is True else alibi[h]
                        x = x - slope * abs(position - j)
                    if distance_bias is not None:
                        most = distance_bias.shape[1] // 2
                        x = x + distance_bias[h, most + max(-most, min(most, j - position))]
                    if x != -math.inf:
                        seen.append(values_[j, g])
                        scores.append(x)
                if seen:
                    weights = torch.stack(scores if sink is None else [*scores, sink[h]]).softmax(0)
                    result = (weights[: len(seen), None] * torch.stack(seen)).sum(0)
                heads.append(result)
            out.append(torch.stack(heads) if rows.dim() == 3 else heads[0])
    return q.with_rows(rows_of(out, v.values.new_zeros(0, *q.values.shape[1:-1], v.values.shape[-1])))
