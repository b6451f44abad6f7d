# SPDX-License-Identifier: Apache-2.0
"""Rows computed from the rows of their sequence, and sorting."""

import torch

import torch_lod as tl
from samples.words import NUMBERS, REAL, ROUNDED, M, SequenceInfo, V, X, alone, dtype_errors, over


def either_way(option):
    def make(x, k):
        yield "", (x,), {}
        yield f" {option}", (x,), {option: True}

    return make


def with_eps(x, k):
    yield "", (x,), {}
    yield " eps", (x,), {"eps": 0.5}


def eps_errors():
    yield "eps", lambda: tl.sequence_normalize(X, eps=None), TypeError, "eps as a number, got None"
    yield "eps as a level", lambda: tl.sequence_normalize(X, eps="a"), TypeError, "eps as a number, got 'a'"
    yield "dtype", lambda: tl.sequence_normalize(X.long()), TypeError, "x of a floating dtype, got torch.int64"


def with_zeros(x, k):
    """Products whose gradients go through one zero, and two."""
    yield "", (x,), {}
    if len(x):
        rows = x.values().clone()
        rows[:: 3 if len(x) > 4 else 2] = 0
        yield " zeros", (x.with_values(rows),), {}


def sorts(x, k):
    inner = k + 1 == x.lod_level
    yield "", (x,), {}
    yield " descending", (x,), {"descending": True}
    count = len(x) if inner else x.num_sequences(k + 1)
    whole = torch.arange(count).mul(7).remainder(3)
    yield " by key", (x, whole), {}
    yield " ranks", (x,), {"return_rank": True}
    yield " ranks by key", (x, whole), {"return_rank": True, "descending": True}
    yield " by a LoDTensor", (x, tl.LoDTensor(whole, x.lod if inner else x.lod.outer(k + 1))), {}
    yield " by floating key fixed", (x, torch.linspace(1, -1, count)), {"descending": True}


def sort_errors():
    sort = tl.sequence_sort
    yield "key", lambda: sort(X, torch.zeros(5)), ValueError, "one number for each of 6 elements, got (5,)"
    yield "outer key", lambda: sort(X, torch.zeros(6), level=0), ValueError, "each of 3 elements, got (6,)"
    yield "2-d key", lambda: sort(X, V), ValueError, "each of 6 elements, got (6, 3)"
    yield (
        "complex key",
        lambda: sort(X, torch.zeros(6, dtype=torch.cfloat)),
        TypeError,
        "key as a tensor of numbers, got torch.complex64",
    )
    yield "LoD of key", lambda: sort(X, X[:, 0], level=0), ValueError, "one number for each of 3 elements, got (6,)"
    other = tl.from_lengths(torch.zeros(3), [[1, 2]])
    yield "lengths of key", lambda: sort(X, other, level=0), ValueError, "level 0, sequence 0: lengths 2 and 1"
    yield "list key", lambda: sort(X, [1, 2]), TypeError, "key as a tensor of numbers, got list"
    yield "meta key", lambda: sort(X, M[:, 0]), TypeError, "key as a tensor of numbers, got torch.float32 on meta"
    yield "rank", lambda: sort(X, return_rank=1), TypeError, "return_rank as a bool, got 1"
    yield "complex", lambda: sort(X.to(torch.cfloat)), TypeError, "x of a dtype that has an order, got torch.complex64"


SOFTMAXES = ("sequence_softmax", "sequence_log_softmax", "sequence_logcumsumexp")
KEEPS = {"keeps": True, "tolerance": ROUNDED}
ENTRIES = [
    *(SequenceInfo(name, over(alone), dtype_errors(name, torch.int64), **KEEPS) for name in SOFTMAXES),
    SequenceInfo("sequence_normalize", over(with_eps), eps_errors, **KEEPS),
    SequenceInfo(
        "sequence_cumsum", over(either_way("reverse")), dtype_errors("sequence_cumsum", torch.cfloat), REAL, **KEEPS
    ),
    SequenceInfo("sequence_cumprod", over(with_zeros), dtype_errors("sequence_cumprod", torch.cfloat), REAL, **KEEPS),
    SequenceInfo("sequence_cummax", over(alone), dtype_errors("sequence_cummax"), NUMBERS, keeps=True),
    SequenceInfo("sequence_cummin", over(alone), dtype_errors("sequence_cummin"), NUMBERS, keeps=True),
    SequenceInfo("sequence_sort", over(sorts), sort_errors, REAL),
]
