# SPDX-License-Identifier: Apache-2.0
"""Order statistics."""

import torch

import torch_lod as tl
from samples.words import ROUNDED, M, SequenceInfo, X, over


def quantiles(x, k):
    yield "", (x, 0.3), {}
    yield " ends", (x, 1), {"padding_value": 2.0}
    # between rows for sequences of up to eight: on a row the quantile has a kink in q
    some = torch.tensor([0.47, 0.13, 0.47], dtype=x.dtype, device=x.device)
    for interpolation in ("linear", "lower", "higher", "nearest", "midpoint"):
        yield f" {interpolation}", (x, 0.6 if k else 0.25), {"interpolation": interpolation}
        yield f" {interpolation} of three", (x, some), {"interpolation": interpolation, "padding_value": -1.0}
    yield " of none", (x, some[:0]), {}
    yield " of a scalar", (x, some[0]), {}


def quantile_errors():
    op = tl.sequence_quantile
    for wrong in (-0.1, 1.5, float("nan"), 2):
        yield f"q {wrong}", lambda q=wrong: op(X, q), ValueError, f"expected q in [0, 1], got {wrong}"
        several = torch.tensor([0.5, wrong])
        yield f"qs {wrong}", lambda q=several: op(X, q), ValueError, f"q in [0, 1], got {wrong} at index 1"
    for wrong in ([0.5], "a", None, True):
        yield f"q {wrong}", lambda q=wrong: op(X, q), TypeError, f"expected q as a number or a tensor, got {wrong!r}"
    yield "2-d q", lambda: op(X, torch.zeros(1, 2)), ValueError, "q as a number or of shape (quantiles,), got (1, 2)"
    yield "whole q", lambda: op(X, torch.tensor([0, 1])), TypeError, "q of a floating dtype, got torch.int64"
    yield "q of rows", lambda: op(X, X[:, 0]), TypeError, "q as a number or a plain tensor, got a LoDTensor"
    yield "q on meta", lambda: op(X, M[:1, 0]), TypeError, "expected q on cpu, as x, got one on meta"
    for wrong in ("cubic", None, 1):
        yield (
            f"interpolation {wrong}",
            lambda i=wrong: op(X, 0.5, interpolation=i),
            ValueError,
            f"'nearest', 'midpoint'], got {wrong!r}",
        )
    yield "whole", lambda: op(X.long(), 0.5), TypeError, "x of a floating dtype, got torch.int64"
    yield "pad", lambda: op(X, 0.5, padding_value="a"), TypeError, "padding_value as a number, got 'a'"


ENTRIES = [SequenceInfo("sequence_quantile", over(quantiles), quantile_errors, tolerance=ROUNDED)]
