# SPDX-License-Identifier: Apache-2.0
"""Shape "attention", sequence by sequence: here the scores of one are laid out."""

import itertools
import math

import torch
from torch import Tensor

from .. import check
from .table import composition, wide

_FARTHEST = 2**40


def _kind(op: str, name: str, t: Tensor, dtype: torch.dtype, query: Tensor) -> None:
    if t.dtype != dtype or t.device != query.device:
        wanted = check.dtype_name(query.new_empty(0, dtype=dtype))
        raise TypeError(
            f"{op}: expected {name} of dtype {wanted} on {query.device}, got {check.dtype_name(t)} on {t.device}"
        )


def check_attention(
    op, query, key, value, query_offsets, key_offsets, bias, slopes, seed, left, right, dropout
) -> None:
    if query.dim() != 3:
        raise ValueError(f"{op}: expected query of shape (rows, heads, width), got {query.dim()} dimensions")
    check.is_floating(op, "query", query)
    _kind(op, "key", key, query.dtype, query)
    _kind(op, "value", value, query.dtype, query)
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
        _kind(op, "bias", bias, query.dtype, query)
        if bias.dim() != 2 or bias.shape[1] not in (1, heads):
            raise ValueError(f"{op}: expected bias of shape [pairs, 1] or [pairs, {heads}], got {list(bias.shape)}")
    if slopes is not None:
        _kind(op, "slopes", slopes, _summed_in(query), query)
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
        _kind(op, "seed", seed, torch.int64, query)
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
    """32 bits in int64, as csrc/attention.h mixes them."""
    x = ((x ^ (x >> 16)) * 0x85EBCA6B) & 0xFFFFFFFF
    x = ((x ^ (x >> 13)) * 0xC2B2AE35) & 0xFFFFFFFF
    return x ^ (x >> 16)


class _Sequence:
    """The queries and keys of a sequence, in what is summed in, every head of the queries with its keys."""

    def __init__(self, query, key, value, bias, slopes, seed, scale, left, right, dropout, rows, columns, first):
        self.rows, self.columns, self.pairs = slice(*rows), slice(*columns), slice(first, first)
        heads = query.shape[1]
        group = heads // key.shape[1]
        self.q = wide(query[self.rows])
        self.k, self.v = (wide(t[self.columns]).repeat_interleave(group, 1) for t in (key, value))
        m, n = rows[1] - rows[0], columns[1] - columns[0]
        keys = torch.arange(n, device=query.device)
        ahead = keys - torch.arange(n - m, n, device=query.device)[:, None]
        self.distance = ahead.abs().to(self.q.dtype)
        self.scale = 1 / math.sqrt(query.shape[2]) if scale is None else scale
        self.x = self.scale * torch.einsum("ihd,jhd->hij", self.q, self.k)
        if bias is not None:
            self.pairs = slice(first, first + m * n)
            self.x = self.x + wide(bias[self.pairs]).view(m, n, bias.shape[1]).permute(2, 0, 1)
        if slopes is not None:
            self.x = self.x - slopes[:, None, None] * self.distance
        self.seen = torch.ones_like(self.x, dtype=torch.bool)
        if left >= 0:
            self.seen = self.seen & (ahead >= -left)
        if right >= 0:
            self.seen = self.seen & (ahead <= right)
        self.seen = self.seen & (self.x != -math.inf)
        self.mask = 1
        if dropout:
            row = torch.arange(*rows, device=query.device) * heads
            head = torch.arange(heads, device=query.device)[:, None]
            start = _mixed((seed & 0xFFFFFFFF) ^ _mixed((row + head) & 0xFFFFFFFF))
            kept = _mixed((start[..., None] + keys * 0x9E3779B9) & 0xFFFFFFFF) >= int(dropout * 4294967295.0)
            self.mask = kept.to(self.x.dtype) * (1 / (1 - dropout) if dropout < 1 else 0)


def _sequences(query, key, value, query_offsets, key_offsets, *options):
    cuts = (itertools.pairwise(t.tolist()) for t in (query_offsets, key_offsets))
    first = 0
    for rows, columns in zip(*cuts, strict=True):
        yield _Sequence(query, key, value, *options, rows, columns, first)
        first += (rows[1] - rows[0]) * (columns[1] - columns[0])


def _weights(s: _Sequence) -> tuple[Tensor, Tensor, Tensor]:
    """Of every head, query and key: e^(x - top), and for every query its sum, and top."""
    none = s.x.new_full((*s.x.shape[:2], 1), -math.inf)
    top = torch.cat([none, s.x.detach().where(s.seen, -math.inf)], 2).amax(2)
    top = torch.where(top == -math.inf, 0, top)
    p = torch.where(s.seen, s.x - top[:, :, None], -math.inf).exp()
    return p, p.sum(2), top


def _attend(op, query, key, value, query_offsets, key_offsets, bias, slopes, seed, scale, left, right, dropout):
    check_attention(op, query, key, value, query_offsets, key_offsets, bias, slopes, seed, left, right, dropout)
    outs, sums = [value.new_zeros(0, query.shape[1], value.shape[2])], [wide(query).new_zeros(0, query.shape[1])]
    options = bias, slopes, seed, scale, left, right, dropout
    for s in _sequences(query, key, value, query_offsets, key_offsets, *options):
        p, total, top = _weights(s)
        empty = total == 0
        safe = torch.where(empty, 1, total)
        outs.append((torch.einsum("hij,jhd->ihd", p * s.mask, s.v) / safe.t()[:, :, None]).to(query.dtype))
        sums.append(torch.where(empty, -math.inf, top + safe.log()).t())
    return torch.cat(outs), torch.cat(sums)


def attention_weights(
    query, key, value, query_offsets, key_offsets, bias, slopes, seed, scale, left, right, dropout
) -> Tensor:
    """(pairs, heads): what every query gives every key of its sequence, after dropout; laid out as a bias is."""
    check_attention(
        "attention", query, key, value, query_offsets, key_offsets, bias, slopes, seed, left, right, dropout
    )
    parts = [wide(query).new_zeros(0, query.shape[1])]
    options = bias, slopes, seed, scale, left, right, dropout
    for s in _sequences(query, key, value, query_offsets, key_offsets, *options):
        p, total, _ = _weights(s)
        weights = p * s.mask / torch.where(total == 0, 1, total)[:, :, None]
        parts.append(weights.permute(1, 2, 0).flatten(0, 1))
    return torch.cat(parts).to(query.dtype)


_ATTENTION = (
    "(Tensor query, Tensor key, Tensor value, Tensor query_offsets, Tensor key_offsets, Tensor? bias=None, "
    "Tensor? slopes=None, Tensor? seed=None, float? scale=None, int left=-1, int right=-1, float dropout=0.0)"
)


@composition(f"attention{_ATTENTION} -> (Tensor, Tensor)")
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
    options = bias, slopes, seed, scale, left, right, dropout
    return _attend("attention", query, key, value, query_offsets, key_offsets, *options)


@composition(f"attention_composed{_ATTENTION} -> Tensor")
def attention_composed(
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
    options = bias, slopes, seed, scale, left, right, dropout
    return _attend("attention", query, key, value, query_offsets, key_offsets, *options)[0]


def check_backward(op, grad, inputs, left, right, dropout, output, sums):
    query, _, value, *_ = inputs
    check_attention(op, *inputs, left, right, dropout)
    rows, wanted = (*query.shape[:2], value.shape[2]), _summed_in(query)
    for name, t, dtype, shape in (
        ("grad", grad, query.dtype, rows),
        ("output", output, query.dtype, rows),
        ("logsumexp", sums, wanted, rows[:2]),
    ):
        _kind(op, name, t, dtype, query)
        if t.shape != shape:
            raise ValueError(f"{op}: expected {name} of shape {list(shape)}, got {list(t.shape)}")


@composition(
    "attention_backward(Tensor grad, Tensor query, Tensor key, Tensor value, Tensor query_offsets, Tensor key_offsets, "
    "Tensor? bias, Tensor? slopes, Tensor? seed, float? scale, int left, int right, float dropout, Tensor output, "
    "Tensor logsumexp, bool biases) -> (Tensor, Tensor, Tensor, Tensor, Tensor)"
)
def attention_backward(grad, *inputs_and_more):
    *inputs, scale, left, right, dropout, output, logsumexp, biases = inputs_and_more
    check_backward("attention_backward", grad, inputs, left, right, dropout, output, logsumexp)
    query, key, value, query_offsets, key_offsets, bias, slopes, seed = inputs
    group = query.shape[1] // key.shape[1]
    d_query, d_key, d_value, *rest = empty_gradients(query, key, value, bias, slopes, biases)
    d_bias, d_slopes = (t.zero_() for t in rest)
    options = bias, slopes, seed, scale, left, right, dropout
    for s in _sequences(query, key, value, query_offsets, key_offsets, *options):
        g = wide(grad[s.rows])
        total = logsumexp[s.rows].t()[:, :, None]
        p = torch.where(s.seen, s.x - torch.where(total == -math.inf, math.inf, total), -math.inf).exp()
        delta = (g * wide(output[s.rows])).sum(2).t()[:, :, None]
        dx = p * (torch.einsum("ihd,jhd->hij", g, s.v) * s.mask - delta)
        d_query[s.rows] = (s.scale * torch.einsum("hij,jhd->ihd", dx, s.k)).to(query.dtype)
        for to, by, rows in ((d_key, s.scale * dx, s.q), (d_value, p * s.mask, g)):
            each = torch.einsum("hij,ihd->jhd", by, rows)
            to[s.columns] = each.unflatten(1, (-1, group)).sum(2).to(query.dtype)
        if bias is not None and biases:
            each = dx.permute(1, 2, 0).flatten(0, 1)
            d_bias[s.pairs] = (each if bias.shape[1] > 1 else each.sum(1, keepdim=True)).to(query.dtype)
        if slopes is not None and biases:
            d_slopes -= (dx * s.distance).sum((1, 2))
    return d_query, d_key, d_value, d_bias, d_slopes


def empty_gradients(query, key, value, bias, slopes, biases):
    rest = (
        query.new_empty(0) if bias is None or not biases else bias.new_empty(bias.shape),
        query.new_empty(0 if slopes is None or not biases else query.shape[1], dtype=_summed_in(query)),
    )
    return *(t.new_empty(t.shape) for t in (query, key, value)), *rest


def empty_results(query, key, value, query_offsets, key_offsets, *options):
    """The fake of attention: options left out are those at the end."""
    given = dict(zip(_OPTIONS, options))
    bias, slopes, seed, _, left, right, dropout = (given.get(name, usual) for name, usual in _OPTIONS.items())
    check_attention(
        "attention", query, key, value, query_offsets, key_offsets, bias, slopes, seed, left, right, dropout
    )
    out = query.new_empty(*query.shape[:2], value.shape[2])
    return out, query.new_empty(query.shape[:2], dtype=_summed_in(query))


_OPTIONS = {"bias": None, "slopes": None, "seed": None, "scale": None, "left": -1, "right": -1, "dropout": 0.0}
