# SPDX-License-Identifier: Apache-2.0
"""Linear recurrences."""

import torch

import torch_lod as tl
from samples.words import CARRIED, M, SequenceInfo, V, X, over, values


def scans(x, k):
    element = x.shape[1:]
    vector = values(1, element, x.dtype, x.device, seed=1)[0] / 2
    each = x.with_values(values(len(x), element, x.dtype, x.device, seed=2) / 2)
    column = x.with_values(values(len(x), (), x.dtype, x.device, seed=3) / 2)
    for reverse in (False, True):
        said, options = " reverse" * reverse, {"reverse": reverse}
        yield f" number{said}", (x, -0.5), options
        yield f" features{said}", (x, vector), options
        yield f" rows{said}", (x, each), options
        yield f" a number a row{said}", (x, column), options
        if len(element) == 2:
            yield f" last dim{said}", (x, vector[0]), options
            yield f" last dim of rows{said}", (x, each[:, :1]), options
    yield " sum", (x, 1), {}
    yield " scalar", (x, torch.tensor(0.25, dtype=x.dtype, device=x.device)), {}


def scan_errors():
    op = tl.sequence_scan
    for wrong in (None, "a", [0.5], True):
        yield f"a {wrong}", lambda a=wrong: op(X, a), TypeError, f"expected a as a number, got {wrong!r}"
    for shape in ((2,), (6, 3), (1, 3), (3, 1)):
        yield (
            f"a of {shape}",
            lambda s=shape: op(X, torch.ones(s)),
            ValueError,
            f"broadcasts to (3,), an element of x, or as a LoDTensor with the LoD of x, got {shape}",
        )
    yield "plain rows", lambda: op(X[:, 0], V[:, 0]), ValueError, "a value for each row, pass x.with_values(a)"
    yield "wide rows", lambda: op(X[:, 0], X), ValueError, "broadcasts to (), an element of x"
    yield (
        "narrow rows",
        lambda: op(X, X[:, :2]),
        ValueError,
        "an element of x, or as a LoDTensor with the LoD of x, got (6, 2)",
    )
    yield "outer", lambda: op(X, tl.sequence_pool(X, "sum")), ValueError, "2 and 1 levels; lay the rows of the one with"
    other = tl.from_lengths(V, [[2, 1], [2, 1, 3]])
    yield "lod", lambda: op(X, other), ValueError, "LoDs that differ: at level 1, sequence 0: lengths 1 and 2"
    yield "dtype", lambda: op(X, X.double()), TypeError, "a of torch.float32 on cpu, as x, got torch.float64 on cpu"
    yield "device", lambda: op(X, M[0]), TypeError, "a of torch.float32 on cpu, as x, got torch.float32 on meta"
    yield "whole", lambda: op(X.long(), 1), TypeError, "x of a floating dtype, got torch.int64"
    yield "reverse", lambda: op(X, 1, reverse=1), TypeError, "reverse as a bool, got 1"


ENTRIES = [SequenceInfo("sequence_scan", over(scans), scan_errors, keeps=True, tolerance=CARRIED)]
