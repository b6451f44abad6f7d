# SPDX-License-Identifier: Apache-2.0
"""Shape "attention", sequence by sequence: at most the scores of one sequence are stored."""

import itertools
import math

import torch
from torch import Tensor

from .. import check
from .table import composition, vjp, wide

_FARTHEST = 2**40


def check_attention(
    op, query, key, value, query_offsets, key_offsets, bias, slopes, seed, left, right, dropout
) -> None:
    if query.dim() != 3:
        raise ValueError(f"{op}: expected query of shape (rows, heads, width), got {query.dim()} dimensions")
    check.is_floating(op, "query", query)
    check.kind(op, "key", key, query.dtype, query.device)
    check.kind(op, "value", value, query.dtype, query.device)
    heads, width = query.shape[1:]
    if heads < 1 or width < 1:
        raise ValueError(f"{op}: expected query with at least one head of at least one number, got {list(query.shape)}")
    if key.dim() != 3 or key.shape[2] != width or key.shape[1] < 1 or heads % key.shape[1]:
        raise ValueError(
            f"{op}: expected key of shape [rows, heads, {width}], its heads a divisor of the query's {heads}, got "
            f"{list(key.shape)}"
        )
    if value.dim() != 3 or value.shape[:2] != key.shape[:2] or value.shape[2] < 1:
        raise ValueError(
            f"{op}: expected value of shape [{key.shape[0]}, {key.shape[1]}, width], as key, got {list(value.shape)}"
        )
    check.offsets_kind(op, query_offsets, query.device, "query_offsets")
    check.offsets_kind(op, key_offsets, query.device, "key_offsets")
    if query_offsets.shape != key_offsets.shape:
        raise ValueError(
            f"{op}: expected as many sequences of keys as of queries, {query_offsets.shape[0] - 1}, got "
            f"{key_offsets.shape[0] - 1}"
        )
    if bias is not None:
        check.kind(op, "bias", bias, query.dtype, query.device)
        if bias.dim() != 2 or bias.shape[1] not in (1, heads):
            raise ValueError(f"{op}: expected bias of shape [pairs, 1] or [pairs, {heads}], got {list(bias.shape)}")
    if slopes is not None:
        check.kind(op, "slopes", slopes, _summed_in(query), query.device)
        if slopes.shape != (heads,):
            raise ValueError(f"{op}: expected slopes of shape [{heads}], got {list(slopes.shape)}")
    for name, reach in (("left", left), ("right", right)):
        if not -1 <= reach <= _FARTHEST:
            raise ValueError(f"{op}: expected {name} in [-1, 2**40], got {reach}")
    if not 0 <= dropout <= 1:
        raise ValueError(f"{op}: expected dropout in [0, 1], got {dropout:g}")
    if dropout and seed is None:
        raise ValueError(f"{op}: expected a seed with dropout {dropout:g}, got none")
    if seed is not None:
        check.kind(op, "seed", seed, torch.int64, query.device)
        if seed.dim():
            raise ValueError(f"{op}: expected seed as a scalar, got {seed.dim()} dimensions")
    check.offsets(op, query_offsets, query.shape[0], "query_offsets", "query")
    check.offsets(op, key_offsets, key.shape[0], "key_offsets", "key")
    if bias is not None and check.readable(query_offsets) and check.readable(key_offsets):
        pairs = sum(m * n for m, n in zip(query_offsets.diff().tolist(), key_offsets.diff().tolist(), strict=True))
        if pairs != bias.shape[0]:
            raise ValueError(
                f"{op}: expected bias with a row per pair of query and key of a sequence, {pairs}, got {bias.shape[0]}"
            )


def _summed_in(t: Tensor) -> torch.dtype:
    return torch.float64 if t.dtype == torch.float64 else torch.float32


def _mixed(x: Tensor) -> Tensor:
    """32 bits in int64, as csrc/kernels/attention.h mixes them."""
    x = ((x ^ (x >> 16)) * 0x85EBCA6B) & 0xFFFFFFFF
    x = ((x ^ (x >> 13)) * 0xC2B2AE35) & 0xFFFFFFFF
    return x ^ (x >> 16)


def _kept(seed: Tensor, dropout: float, heads: int, queries: Tensor, keys: Tensor) -> Tensor:
    """Of every head, query and key: whether dropout keeps the weight."""
    head = torch.arange(heads, device=keys.device)[:, None]
    start = _mixed((seed & 0xFFFFFFFF) ^ _mixed((queries * heads + head) & 0xFFFFFFFF))
    return _mixed((start[..., None] + keys * 0x9E3779B9) & 0xFFFFFFFF) >= int(dropout * 4294967295.0)


def _attend(query, *rest):
    """One sequence: what its queries get, the logsumexp of their scores, and the weights (heads, queries, keys) after
    dropout. Autocast has no say in it, as in the kernels: half types are summed in float32."""
    with torch.autocast(query.device.type, enabled=False):
        return _attended(query, *rest)


def _attended(query, key, value, bias, slopes, seed, scale, left, right, dropout, first):
    """`first`: the row of the first query."""
    (m, heads, width), n = query.shape, key.shape[0]
    query, key, value = query.contiguous(), key.contiguous(), value.contiguous()  # products round by their strides
    keys = torch.arange(n, device=query.device)
    ahead = keys - torch.arange(n - m, n, device=query.device)[:, None]
    k, v = (wide(t).repeat_interleave(heads // key.shape[1], 1) for t in (key, value))
    x = (1 / math.sqrt(width) if scale is None else scale) * torch.einsum("ihd,jhd->hij", wide(query), k)
    if bias is not None:
        x = x + wide(bias).view(m, n, bias.shape[1]).permute(2, 0, 1)
    if slopes is not None:
        x = x - slopes[:, None, None] * ahead.abs().to(x.dtype)
    seen = x != -math.inf
    if left >= 0:
        seen = seen & (ahead >= -left)
    if right >= 0:
        seen = seen & (ahead <= right)
    none = x.new_full((heads, m, 1), -math.inf)
    top = torch.cat([none, x.detach().where(seen, -math.inf)], 2).amax(2)
    top = torch.where(top == -math.inf, 0, top)
    p = torch.where(seen, x - top[:, :, None], -math.inf).exp()
    total = p.sum(2)
    empty = total == 0
    total = torch.where(empty, 1, total)
    weights = p / total[:, :, None]
    if dropout:
        queries = torch.arange(first, first + m, device=query.device)
        weights = weights * _kept(seed, dropout, heads, queries, keys) * (1 / (1 - dropout) if dropout < 1 else 0)
    out = torch.einsum("hij,jhd->ihd", weights, v).to(query.dtype)
    return out, torch.where(empty, -math.inf, top + total.log()).t(), weights


def _sequences(query_offsets, key_offsets):
    """The rows of the queries, of the keys and of the pairs of every sequence; none where a tracer holds the offsets."""
    if check.has_no_data(query_offsets):
        return
    first = 0
    cuts = (itertools.pairwise(t.tolist()) for t in (query_offsets, key_offsets))
    for (a, b), (c, d) in zip(*cuts, strict=True):
        yield slice(a, b), slice(c, d), slice(first, first + (b - a) * (d - c))
        first += (b - a) * (d - c)


def _each(query, key, value, query_offsets, key_offsets, bias, slopes, *options):
    """`_attend` of every sequence."""
    for rows, columns, pairs in _sequences(query_offsets, key_offsets):
        scores = None if bias is None else bias[pairs], slopes
        yield _attend(query[rows], key[columns], value[columns], *scores, *options, rows.start)


def _weights(query, key, value, query_offsets, key_offsets, bias, slopes, seed, scale, left, right, dropout) -> Tensor:
    inputs = query, key, value, query_offsets, key_offsets, bias, slopes, seed
    check_attention("attention", *inputs, left, right, dropout)
    each = [weights.permute(1, 2, 0).flatten(0, 1) for _, _, weights in _each(*inputs, scale, left, right, dropout)]
    return torch.cat([wide(query).new_zeros(0, query.shape[1]), *each]).to(query.dtype)


#: Of the arguments of attention (pairs, heads): what every query gives every key of its sequence, after dropout; in the
#: order of a bias.
attention_weights = check.gated(_weights, "attention")


@composition
def attention(
    query,
    key,
    value,
    query_offsets,
    key_offsets,
    bias=None,
    slopes=None,
    seed=None,
    scale=None,
    left=-1,
    right=-1,
    dropout=0.0,
):
    inputs = query, key, value, query_offsets, key_offsets, bias, slopes, seed
    check_attention("attention", *inputs, left, right, dropout)
    parts = [(out, sums) for out, sums, _ in _each(*inputs, scale, left, right, dropout)]
    if parts:
        outs, sums = zip(*parts)
        return torch.cat(outs), torch.cat(sums)
    shape = query.shape[:2]
    return query.new_zeros(*shape, value.shape[2]), query.new_zeros(shape, dtype=_summed_in(query))


@composition
def attention_composed(*inputs):
    return attention(*inputs)[0]


@composition
def attention_backward(grad, *inputs_and_more):
    *inputs, scale, left, right, dropout, output, logsumexp, biases = inputs_and_more
    options = scale, left, right, dropout
    op, (query, key, value, query_offsets, key_offsets, bias, slopes, seed) = "attention_backward", inputs
    check_attention(op, *inputs, left, right, dropout)
    wanted = *query.shape[:2], value.shape[2]
    saved = (("grad", grad, query.dtype, wanted), ("output", output, query.dtype, wanted))
    for name, t, dtype, shape in (*saved, ("logsumexp", logsumexp, _summed_in(query), wanted[:2])):
        check.kind(op, name, t, dtype, query.device)
        if t.shape != shape:
            raise ValueError(f"{op}: expected {name} of shape {list(shape)}, got {list(t.shape)}")
    found = [query, key, value, bias if biases else None, slopes if biases else None]
    empty = query.new_empty(0), query.new_empty(0, dtype=logsumexp.dtype)
    found = [e if t is None else t.new_zeros(t.shape) for t, e in zip(found, (*[query] * 3, *empty))]
    for rows, columns, pairs in _sequences(query_offsets, key_offsets):
        parts = rows, columns, columns, pairs, slice(None)
        one = [None if t is None else t[part] for t, part in zip((query, key, value, bias, slopes), parts)]

        def forward(*leaves, rows=rows):
            return _attend(*leaves, seed, *options, rows.start)[:1]

        for total, part, d in zip(found, parts, vjp(forward, one, [grad[rows].contiguous()])):
            if d is not None and len(total):
                total[part] += d
    return tuple(found)
