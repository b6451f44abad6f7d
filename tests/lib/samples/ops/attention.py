# SPDX-License-Identifier: Apache-2.0
"""Samples of attention and its backward for the table of operators."""

import functools
import itertools
import math

import torch
from reference import ops as reference

from samples.words import CARRIED, CUT, OFFSETS, OpInfo, Sample, bad_offsets, values

#: Keys beside the queries of OFFSETS: as many sequences.
KEYS = {
    "typical": [0, 3, 3, 5],
    "empty segment": [0, 1, 4, 5],
    "empty ends": [0, 2, 5, 5],
    "all empty": [0, 3, 4],
    "no segments": [0],
    "one row": [0, 4],
}
#: (heads, key heads, width, value width), heads of the bias (0: none), slopes, scale, left, right, dropout; softcap, sinks,
#: the furthest distance of a table (-1: none), ends
FORMS = (
    ((2, 2, 3, 3), 0, False, None, -1, -1, 0.0),
    ((4, 2, 3, 2), 4, False, 0.5, -1, 0, 0.0),
    ((2, 1, 1, 5), 1, True, None, 1, 1, 0.4),
    ((1, 1, 4, 1), 0, True, None, 0, -1, 1.0),
    ((3, 3, 2, 2), 1, False, -2.0, 2, 0, 0.0),
    ((2, 2, 3, 2), 0, False, 3.0, -1, -1, 0.0, 1.5, False, -1, False),
    ((2, 1, 3, 2), 0, False, None, -1, 0, 0.0, None, True, -1, False),
    ((2, 2, 2, 3), 0, False, None, -1, -1, 0.0, None, False, 1, False),
    ((2, 2, 3, 3), 0, False, None, -1, -1, 0.0, None, False, -1, True),
    ((4, 2, 2, 3), 1, True, 2.0, 2, -1, 0.3, 0.8, True, 2, True),
)
#: Longer than the tiles of the kernels, in every direction; (270 queries of 140 keys, ...).
LONG = ([270, 1, 0, 40], [140, 3, 2, 150])
LONG_FORMS = (
    ((2, 1, 20, 35), 0, True, None, -1, 0, 0.0),
    ((2, 2, 70, 9), 1, False, None, 40, 3, 0.1),
    ((2, 2, 16, 64), 2, True, None, -1, -1, 0.0),
    ((4, 2, 20, 9), 1, False, 1.0, 60, -1, 0.1, 2.0, True, 130, True),
)


def arguments(dtype, device, query_offsets, key_offsets, form):
    (heads, key_heads, width, value_width), bias_heads, slopes, scale, left, right, dropout, *more = form
    softcap, sink, furthest, ends = more or (None, False, -1, False)
    rows, keys = query_offsets[-1], key_offsets[-1]
    pairs = sum(
        (b - a) * (d - c) for (a, b), (c, d) in zip(itertools.pairwise(query_offsets), itertools.pairwise(key_offsets))
    )
    summed_in = torch.float64 if dtype == torch.float64 else torch.float32
    return (
        values(rows, (heads, width), dtype, device, 1),
        values(keys, (key_heads, width), dtype, device, 2),
        values(keys, (key_heads, value_width), dtype, device, 3),
        torch.tensor(query_offsets, device=device),
        torch.tensor(key_offsets, device=device),
        values(pairs, (bias_heads,), dtype, device, 4) if bias_heads else None,
        values(heads, (), summed_in, device, 5).abs() / 8 if slopes else None,
        torch.tensor(2**40 + 7, device=device) if dropout else None,
        scale,
        left,
        right,
        dropout,
        softcap,
        values(heads, (), summed_in, device, 8) if sink else None,
        values(heads, (2 * furthest + 1,), summed_in, device, 9) if furthest >= 0 else None,
        torch.tensor(ends_of(query_offsets, key_offsets), dtype=torch.int64, device=device) if ends else None,
    )


def ends_of(query_offsets, key_offsets):
    """They rise from no key to one more than there are."""
    cuts = zip(itertools.pairwise(query_offsets), itertools.pairwise(key_offsets))
    return [i * (d - c + 2) // (b - a) for (a, b), (c, d) in cuts for i in range(b - a)]


def samples(dtype, device):
    for label, offsets in OFFSETS.items():
        for form in FORMS:
            for keys in (offsets, KEYS[label]):
                yield Sample(f"{label} {keys} {form}", arguments(dtype, device, offsets, keys, form))
    for form in LONG_FORMS:
        cuts = [[0, *itertools.accumulate(lengths)] for lengths in LONG]
        yield Sample(f"long {form}", arguments(dtype, device, *cuts, form), large=True)


def backward_samples(dtype, device):
    return _backward_samples(dtype, str(device))


@functools.cache  # what the forward gives takes long by loops
def _backward_samples(dtype, device):
    return list(_made_backward_samples(dtype, device))


def _made_backward_samples(dtype, device):
    for sample in samples(dtype, device):
        out, total = reference.attention(*(a.double() if _floating(a) else a for a in sample.args))
        given = *sample.args, out.to(dtype), total.to(torch.float64 if dtype == torch.float64 else torch.float32)
        grad = values(out.shape[0], out.shape[1:], dtype, device, 6)
        for biases in (True,) if sample.large else (True, False):
            yield Sample(f"{sample.label} {biases}", (grad, *given, biases), large=sample.large)


def _floating(a):
    return isinstance(a, torch.Tensor) and a.is_floating_point()


Q, K, V = torch.zeros(6, 4, 3), torch.zeros(6, 2, 3), torch.zeros(6, 2, 5)
GOOD = (Q, K, V, CUT, CUT, torch.zeros(20, 4), torch.zeros(4), torch.tensor(1), None, -1, -1, 0.5)
GOOD += 2.0, torch.zeros(4), torch.zeros(4, 3), torch.arange(6)


def errors(name="attention"):
    before, after = (), ()
    if name == "attention_backward":
        before, after = (torch.zeros(6, 4, 5),), (torch.zeros(6, 4, 5), torch.zeros(6, 4), True)
    names = "query key value query_offsets key_offsets bias slopes seed scale left right dropout".split()
    names += "softcap sink distance_bias key_ends".split()

    def put(**changed):
        return *before, *(changed.get(n, given) for n, given in zip(names, GOOD)), *after

    def refuse():
        for at, cut in ((3, "query"), (4, "key")):
            yield from bad_offsets(put(), at + len(before), 6, f"{cut}_offsets", cut)
        yield "2-d", put(query=Q[0]), ValueError, "query of shape (rows, heads, width), got 2 dimensions"
        yield "whole", put(query=Q.long()), TypeError, "query of dtype float16, bfloat16, float32 or float64, got Long"
        yield "key dtype", put(key=K.double()), TypeError, "key of dtype Float on"
        yield "value dtype", put(value=V.half()), TypeError, "value of dtype Float on"
        yield "no heads", put(query=Q[:, :0]), ValueError, "query with at least one head of at least one number"
        yield "no width", put(query=Q[..., :0]), ValueError, "at least one number, got [6, 4, 0]"
        yield "key width", put(key=K[..., :2]), ValueError, "key of shape [rows, heads, 3]"
        yield "key heads", put(key=Q[:, :3]), ValueError, "its heads a divisor of the query's 4, got [6, 3, 3]"
        yield "value rows", put(value=V[:5]), ValueError, "value of shape [6, 2, width], as key, got [5, 2, 5]"
        yield "value heads", put(value=V[:, :1]), ValueError, "as key, got [6, 1, 5]"
        yield "sequences", put(key_offsets=torch.tensor([0, 6])), ValueError, "of keys as of queries, 2, got 1"
        yield "bias heads", put(bias=torch.zeros(20, 2)), ValueError, "[pairs, 1] or [pairs, 4], got [20, 2]"
        yield "flat bias", put(bias=torch.zeros(20)), ValueError, "[pairs, 1] or [pairs, 4], got [20]"
        yield "bias dtype", put(bias=torch.zeros(20, 4).double()), TypeError, "bias of dtype Float"
        yield "rows", put(bias=torch.zeros(36, 4)), ValueError, "of a sequence, 20, got 36"
        yield "slopes", put(slopes=torch.zeros(2)), ValueError, "slopes of shape [4], got [2]"
        yield "slopes dtype", put(slopes=torch.zeros(4).double()), TypeError, "slopes of dtype Float"
        yield "left", put(left=-2), ValueError, "left in [-1, 2**40], got -2"
        yield "right", put(right=2**50), ValueError, f"right in [-1, 2**40], got {2**50}"
        yield "dropout", put(dropout=1.5), ValueError, "dropout in [0, 1], got 1.5"
        yield "no seed", put(seed=None), ValueError, "a seed with dropout 0.5, got none"
        yield "seed dtype", put(seed=torch.tensor(1.0)), TypeError, "seed of dtype Long"
        yield "seeds", put(seed=torch.tensor([1])), ValueError, "seed as a scalar, got 1 dimensions"
        for cap in (0.0, -1.0, math.inf, math.nan):
            yield f"softcap {cap}", put(softcap=cap), ValueError, "softcap above 0 and finite, got"
        yield "sink", put(sink=torch.zeros(2)), ValueError, "sink of shape [4], got [2]"
        yield "sink dtype", put(sink=torch.zeros(4).double()), TypeError, "sink of dtype Float"
        for table in (torch.zeros(4, 2), torch.zeros(2, 3), torch.zeros(12)):
            said = f"distance_bias of shape [4, 2 * distance + 1], got {list(table.shape)}"
            yield f"table {tuple(table.shape)}", put(distance_bias=table), ValueError, said
        yield "table dtype", put(distance_bias=torch.zeros(4, 3).double()), TypeError, "distance_bias of dtype Float"
        yield "ends", put(key_ends=torch.arange(5)), ValueError, "key_ends of shape [6], got [5]"
        yield "ends dtype", put(key_ends=torch.arange(6.0)), TypeError, "key_ends of dtype Long"
        falling = torch.tensor([0, 3, 2, 1, 1, 1])
        yield (
            "fall",
            put(key_ends=falling),
            ValueError,
            "do not decrease within a sequence, got 1 after 2 at index 3",
        )
        if before:
            yield "grad", (Q, *put()[1:]), ValueError, "grad of shape [6, 4, 5], got [6, 4, 3]"
            yield "output", (*put()[:-3], Q, *after[1:]), ValueError, "output of shape [6, 4, 5], got [6, 4, 3]"
            yield "sums", (*put()[:-2], Q, True), ValueError, "logsumexp of shape [6, 4], got [6, 4, 3]"

    return refuse


ENTRIES = [
    OpInfo("attention", samples, errors(), tolerance=CARRIED),
    OpInfo(
        "attention_backward",
        backward_samples,
        errors("attention_backward"),
        (torch.float64, torch.float32),
        outputs=7,
        differentiable=False,
        tolerance=CARRIED,
    ),
]
