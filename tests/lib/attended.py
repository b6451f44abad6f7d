# SPDX-License-Identifier: Apache-2.0
"""Attention by its definition, sequence by sequence, from dense scores; and the batches that it is compared on."""

import math

import torch

import torch_lod as tl

LENGTHS = [[2, 0, 3], [3, 0, 2, 7, 1]]
KEYS = [[2, 0, 3], [4, 2, 0, 5, 3]]


def batch(lengths, *width, dtype=torch.float64, seed=0):
    g = torch.Generator().manual_seed(seed)
    return tl.from_lengths(torch.randn(sum(lengths[-1]), *width, generator=g, dtype=dtype), lengths)


def visible(m, n, causal, window):
    """Which of n keys each of m queries sees, ends aligned."""
    ahead = torch.arange(n) - torch.arange(m)[:, None] - (n - m)
    before, after = (math.inf if reach < 0 else reach for reach in (window or (-1, -1)))
    return (ahead >= -before) & (ahead <= (min(after, 0) if causal else after))


def by_definition(
    q,
    k,
    v,
    level,
    causal=False,
    window=None,
    scale=None,
    alibi=None,
    softcap=None,
    sink=None,
    distance_bias=None,
    prefix=None,
    block_size=None,
    block_level=None,
):
    """Softmax of dense scores and a column for the sink, sequence by sequence."""
    out, heads = [], q.shape[1]
    extends = any(t is not None for t in (prefix, block_size, block_level))
    for s, (rows, keys, values) in enumerate(zip(*(t.sequences(level) for t in (q, k, v)))):
        blocks = keys.lod.lengths(0) if isinstance(keys, tl.LoDTensor) else None
        rows, keys, values = (t.values() if isinstance(t, tl.LoDTensor) else t for t in (rows, keys, values))
        m, n = len(rows), len(keys)
        x = torch.einsum("ihd,jhd->hij", rows, keys.repeat_interleave(heads // keys.shape[1], 1))
        x = x * (q.shape[2] ** -0.5 if scale is None else scale)
        x = x if softcap is None else softcap * torch.tanh(x / softcap)
        position, j = torch.arange(m)[:, None] + (n - m), torch.arange(n)
        if alibi is not None:
            x = x - alibi[:, None, None] * (j - position).abs()
        if distance_bias is not None:
            most = distance_bias.shape[1] // 2
            x = x + distance_bias[:, (j - position).clamp(-most, most) + most]
        seen = visible(m, n, causal or extends, window)
        within = visible(m, n, False, window)
        if prefix is not None:
            seen = seen | (within & (j < (prefix if isinstance(prefix, int) else prefix[s])))
        if block_size is not None:
            seen = seen | (within & (j // block_size <= position // block_size))
        if block_level is not None and n:
            number = torch.arange(len(blocks)).repeat_interleave(blocks)
            seen = seen | (within & (position >= 0) & (number <= number[position.clamp(min=0)]))
        column = x.new_full((heads,), -math.inf) if sink is None else sink
        x = torch.cat([x.masked_fill(~seen, -math.inf), column[:, None, None].expand(heads, m, 1)], 2)
        nothing = (x == -math.inf).all(2, keepdim=True)
        weights = x.masked_fill(nothing, 0).softmax(2).masked_fill(nothing, 0)[..., :-1]
        out.append(torch.einsum("hij,jhd->ihd", weights, values.repeat_interleave(heads // values.shape[1], 1)))
    return torch.cat(out)
