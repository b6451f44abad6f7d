# SPDX-License-Identifier: Apache-2.0
"""Shape "attention", sequence by sequence: at most the scores of one sequence are stored."""

import itertools
import math

import torch
from torch import Tensor

from . import check
from .compositions import vjp, wide
from .library import composition

_FARTHEST = 2**40


def check_attention(op, inputs, left, right, dropout, softcap, sink, distance_bias, key_ends) -> None:
    query, key, value, query_offsets, key_offsets, bias, slopes, seed = inputs
    _check_rows(op, query, key, value, query_offsets, key_offsets)
    _check_scores(op, query, bias, slopes, softcap, sink, distance_bias)
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
    if key_ends is not None:
        _check_key_ends(op, query, query_offsets, key_ends)


def _check_rows(op, query, key, value, query_offsets, key_offsets) -> None:
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


def _check_scores(op, query, bias, slopes, softcap, sink, distance_bias) -> None:
    heads = query.shape[1]
    if bias is not None:
        check.kind(op, "bias", bias, query.dtype, query.device)
        if bias.dim() != 2 or bias.shape[1] not in (1, heads):
            raise ValueError(f"{op}: expected bias of shape [pairs, 1] or [pairs, {heads}], got {list(bias.shape)}")
    if slopes is not None:
        check.kind(op, "slopes", slopes, _summed_in(query), query.device)
        if slopes.shape != (heads,):
            raise ValueError(f"{op}: expected slopes of shape [{heads}], got {list(slopes.shape)}")
    if softcap is not None and not 0 < softcap < math.inf:
        raise ValueError(f"{op}: expected softcap above 0 and finite, got {softcap:g}")
    if sink is not None:
        check.kind(op, "sink", sink, _summed_in(query), query.device)
        if sink.shape != (heads,):
            raise ValueError(f"{op}: expected sink of shape [{heads}], got {list(sink.shape)}")
    if distance_bias is not None:
        check.kind(op, "distance_bias", distance_bias, _summed_in(query), query.device)
        if distance_bias.dim() != 2 or distance_bias.shape[0] != heads or distance_bias.shape[1] % 2 == 0:
            raise ValueError(
                f"{op}: expected distance_bias of shape [{heads}, 2 * distance + 1], got {list(distance_bias.shape)}"
            )


def _check_key_ends(op, query, query_offsets, key_ends) -> None:
    check.kind(op, "key_ends", key_ends, torch.int64, query.device)
    if key_ends.shape != query.shape[:1]:
        raise ValueError(f"{op}: expected key_ends of shape [{query.shape[0]}], got {list(key_ends.shape)}")
    if not (check.readable(query_offsets) and check.readable(key_ends)):
        return
    for a, b in itertools.pairwise(query_offsets.tolist()):
        fall = (key_ends[a:b].diff() < 0).nonzero().flatten().tolist()
        if fall:
            at = a + fall[0] + 1
            raise ValueError(
                f"{op}: expected key_ends that do not decrease within a sequence, got {int(key_ends[at])} after "
                f"{int(key_ends[at - 1])} at index {at}"
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


def _attended(
    query, key, value, bias, slopes, sink, distances, seed, scale, left, right, dropout, softcap, ends, first
):
    """`distances`: the table of distance_bias; `ends`: key_ends of these queries; `first`: the row of the first query."""
    (m, heads, width), n = query.shape, key.shape[0]
    query, key, value = query.contiguous(), key.contiguous(), value.contiguous()  # products round by their strides
    keys = torch.arange(n, device=query.device)
    ahead = keys - torch.arange(n - m, n, device=query.device)[:, None]
    k, v = (wide(t).repeat_interleave(heads // key.shape[1], 1) for t in (key, value))
    x = (1 / math.sqrt(width) if scale is None else scale) * torch.einsum("ihd,jhd->hij", wide(query), k)
    if softcap is not None:
        x = softcap * torch.tanh(x / softcap)
    if bias is not None:
        x = x + wide(bias).view(m, n, bias.shape[1]).permute(2, 0, 1)
    if slopes is not None:
        x = x - slopes[:, None, None] * ahead.abs().to(x.dtype)
    if distances is not None:
        most = distances.shape[1] // 2
        x = x + distances[:, ahead.clamp(-most, most) + most]
    seen = x != -math.inf
    if left >= 0:
        seen = seen & (ahead >= -left)
    if right >= 0:
        seen = seen & (ahead <= right)
    if ends is not None:
        seen = seen & (keys < ends[:, None])
    sunk = (x.new_full((heads,), -math.inf) if sink is None else sink)[:, None].expand(heads, m)
    top = torch.cat([sunk.detach()[:, :, None], x.detach().where(seen, -math.inf)], 2).amax(2)
    top = torch.where(top == -math.inf, 0, top)
    p = torch.where(seen, x - top[:, :, None], -math.inf).exp()
    total = p.sum(2) if sink is None else p.sum(2) + (sunk - top).exp()
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


def _each(query, key, value, query_offsets, key_offsets, bias, slopes, seed, *options):
    """`_attend` of every sequence."""
    *options, softcap, sink, distances, ends = options
    for rows, columns, pairs in _sequences(query_offsets, key_offsets):
        scores = None if bias is None else bias[pairs], slopes, sink, distances
        seen = None if ends is None else ends[rows]
        yield _attend(query[rows], key[columns], value[columns], *scores, seed, *options, softcap, seen, rows.start)


def _weights(
    query, key, value, query_offsets, key_offsets, bias, slopes, seed, scale, left, right, dropout, *more
) -> Tensor:
    inputs = query, key, value, query_offsets, key_offsets, bias, slopes, seed
    check_attention("attention", inputs, left, right, dropout, *more)
    options = scale, left, right, dropout, *more
    each = [weights.permute(1, 2, 0).flatten(0, 1) for _, _, weights in _each(*inputs, *options)]
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
    softcap=None,
    sink=None,
    distance_bias=None,
    key_ends=None,
):
    inputs = query, key, value, query_offsets, key_offsets, bias, slopes, seed
    more = softcap, sink, distance_bias, key_ends
    check_attention("attention", inputs, left, right, dropout, *more)
    parts = [(out, sums) for out, sums, _ in _each(*inputs, scale, left, right, dropout, *more)]
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
    *inputs, scale, left, right, dropout, softcap, sink, distance_bias, key_ends = inputs_and_more[:-3]
    output, logsumexp, biases = inputs_and_more[-3:]
    op, (query, key, value, query_offsets, key_offsets, bias, slopes, seed) = "attention_backward", inputs
    check_attention(op, inputs, left, right, dropout, softcap, sink, distance_bias, key_ends)
    wanted = *query.shape[:2], value.shape[2]
    saved = (("grad", grad, query.dtype, wanted), ("output", output, query.dtype, wanted))
    for name, t, dtype, shape in (*saved, ("logsumexp", logsumexp, _summed_in(query), wanted[:2])):
        check.kind(op, name, t, dtype, query.device)
        if t.shape != shape:
            raise ValueError(f"{op}: expected {name} of shape {list(shape)}, got {list(t.shape)}")
    given = query, key, value, bias, slopes, sink, distance_bias
    empty = [query.new_empty(0), *(query.new_empty(0, dtype=logsumexp.dtype) for _ in range(3))]
    found = [t.new_zeros(t.shape) for t in given[:3]]
    found += [e if t is None or not biases else t.new_zeros(t.shape) for t, e in zip(given[3:], empty)]
    for rows, columns, pairs in _sequences(query_offsets, key_offsets):
        parts = rows, columns, columns, pairs, *[slice(None)] * 3
        one = [None if t is None else t[part] for t, part in zip(given, parts)]
        ends = None if key_ends is None else key_ends[rows]

        def forward(*leaves, rows=rows, ends=ends):
            return _attend(*leaves, seed, scale, left, right, dropout, softcap, ends, rows.start)[:1]

        for total, part, d in zip(found, parts, vjp(forward, one, [grad[rows].contiguous()])):
            if d is not None and len(total):
                total[part] += d
    return tuple(found)
