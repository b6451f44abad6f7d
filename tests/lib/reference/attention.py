# SPDX-License-Identifier: Apache-2.0
"""What attention means, query by query; differentiable through autograd."""

import torch

from reference.rows import rows_of, segments


def mixed(x):
    """The finalizer of MurmurHash3, on Python's integers."""
    x = ((x ^ (x >> 16)) * 0x85EBCA6B) % 2**32
    x = ((x ^ (x >> 13)) * 0xC2B2AE35) % 2**32
    return x ^ (x >> 16)


def attention(
    query,
    key,
    value,
    query_offsets,
    key_offsets,
    bias,
    slopes,
    seed,
    scale,
    left,
    right,
    dropout,
    softcap=None,
    sink=None,
    distance_bias=None,
    key_ends=None,
):
    """Query by query, head by head: the softmax over the keys that it sees."""
    out, sums, first, group = [], [], 0, query.shape[1] // key.shape[1]
    scale = query.shape[2] ** -0.5 if scale is None else scale
    for q, k, v in zip(
        segments(query, query_offsets), segments(key, key_offsets), segments(value, key_offsets), strict=True
    ):
        for i in range(len(q)):
            position = i + len(k) - len(q)
            seen = [
                j for j in range(len(k)) if (left < 0 or j >= position - left) and (right < 0 or j <= position + right)
            ]
            if key_ends is not None:
                seen = [j for j in seen if j < int(key_ends[len(out)])]
            heads = []
            for h in range(query.shape[1]):
                x = scale * (k[seen, h // group] * q[i, h]).sum(1)
                if softcap is not None:
                    x = softcap * (x / softcap).tanh()
                if bias is not None:
                    x = x + bias[[first + i * len(k) + j for j in seen], h % bias.shape[1]]
                if slopes is not None:
                    x = x - slopes[h] * slopes.new_tensor([abs(position - j) for j in seen])
                if distance_bias is not None:
                    most = distance_bias.shape[1] // 2
                    x = x + distance_bias[h, [most + max(-most, min(most, j - position)) for j in seen]]
                if sink is not None:
                    x = torch.cat([x, sink[h : h + 1]])
                p = x.softmax(0)[: len(seen)]
                if dropout:
                    start = mixed(int(seed) % 2**32 ^ mixed((len(out) * query.shape[1] + h) % 2**32))
                    drawn = [mixed((start + j * 0x9E3779B9) % 2**32) for j in seen]
                    p = (
                        p
                        * p.new_tensor([d >= int(dropout * (2**32 - 1)) for d in drawn])
                        * (1 / (1 - dropout) if dropout < 1 else 0)
                    )
                heads.append(((p[:, None] * v[seen, h // group]).sum(0), x.logsumexp(0)))
            out.append(torch.stack([o for o, _ in heads]))
            sums.append(torch.stack([total for _, total in heads]))
        first += len(q) * len(k)
    return (
        rows_of(out, value.new_zeros(0, query.shape[1], value.shape[2])),
        rows_of(sums, query.new_zeros(0, query.shape[1])),
    )


def attention_backward(grad, query, key, value, *rest):
    """By autograd, through the loops above."""
    (query_offsets, key_offsets, bias, slopes), options, (_, _, biases) = rest[:4], rest[4:9], rest[-3:]
    softcap, sink, distance_bias, key_ends = rest[9:-3]
    given = query, key, value, bias, slopes, sink, distance_bias
    leaves = [t if t is None else t.detach().clone().requires_grad_() for t in given]
    more = softcap, *leaves[5:], key_ends
    out, _ = attention(*leaves[:3], query_offsets, key_offsets, *leaves[3:5], *options, *more)
    asked = [t for t in leaves if t is not None]
    found = iter(torch.autograd.grad(out, asked, grad, allow_unused=True) if out.requires_grad else [None] * len(asked))
    grads = []
    for t, wanted in zip(leaves, (True, True, True, *[biases] * 4)):
        g = None if t is None else next(found)
        empty = query.new_zeros(0) if t is None or not wanted else torch.zeros_like(t)
        grads.append(empty if g is None or not wanted else g)
    return tuple(grads)
