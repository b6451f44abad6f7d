# SPDX-License-Identifier: Apache-2.0
"""Samples and errors of the operators that copy runs, look through windows and carry a value along."""

import itertools

import torch
from op_words import CUT, Sample, X, bad_offsets, cuts, over_segments, values


def brief(samples):
    """Of the long segment one width: the references are loops over rows."""
    return (s for s in samples if not s.label.startswith("long") or s.label.startswith("long ()"))


#: The gradient of a half type multiplies results that were rounded to it.
CARRIED = {torch.float32: (1e-4, 1e-5), torch.bfloat16: (6e-2, 6e-2), torch.float16: (1e-2, 1e-2)}


def places(lengths, kind, step):
    """(first rows, rows on the other side) of runs of these lengths."""
    low, at = [], 1
    for n in lengths:
        low.append(at)
        at += n + (1 if kind == "gaps" else 0)
    if kind == "turned":
        low, at = [], 0
        for n in lengths[::-1]:
            low.insert(0, at)
            at += n
    if kind == "meeting":
        low, at = [0] * len(lengths), max(lengths, default=0)
    first = [a if step > 0 else a + n - 1 for a, n in zip(low, lengths)]
    return [f if n else -7 for f, n in zip(first, lengths)], at + 1


RUNS = (("gaps", 1), ("turned", -1), ("meeting", 1), ("gaps", -1), ("turned", 1), ("meeting", -1), ("gaps", 1))


def run_samples(name):
    def samples(dtype, device):
        turn = itertools.cycle(RUNS)  # every structure and width meets some of them, and each of them all

        def make(offsets, width):
            lengths, rows = offsets.diff().tolist(), int(offsets[-1])
            for kind, step in (next(turn), next(turn)) if rows < 100 else (("gaps", 1), ("gaps", -1)):
                first, there = places(lengths, kind, step)
                starts = torch.tensor(first, dtype=torch.int64, device=device)
                tail = (starts, offsets)
                if name == "gather_runs":
                    yield f" {kind} {step}", (values(there, width, dtype, device), *tail, rows, step)
                else:
                    yield f" {kind} {step}", (values(rows, width, dtype, device), *tail, there, step, 1)

        for sample in over_segments(dtype, device, make):
            if not (sample.large and name == "scatter_runs" and "long" in sample.label):
                yield sample

    return samples


def run_errors(name):
    def errors():
        starts, rows = torch.tensor([0, 2]), 6
        good = (X, starts, CUT, rows)
        yield from bad_offsets(good, 2)
        for step, wrong in ((1, 3), (1, -1), (1, 2**63 - 1), (-1, 2), (-1, 6), (-1, -(2**63))):
            args = (X, torch.tensor([1, wrong]), CUT, rows, step)
            way = "up" if step > 0 else "down"
            yield f"entry {wrong} {way}", args, IndexError, f"[0, 6), got 4 rows from {wrong} {way} at index 1"
        yield "starts", (X, starts[:1], CUT, rows), ValueError, "one of starts per segment, 2, got 1"
        yield "floating starts", (X, starts.double(), CUT, rows), TypeError, "starts of dtype int64"
        yield "step", (X, starts, CUT, rows, 2), ValueError, "step 1 or -1, got 2"
        yield "scalar", (X[0, 0], starts, CUT, rows), ValueError, "values with at least 1 dimension"
        yield "rows", (X, starts, CUT, -1), ValueError, "rows >= 0, got -1"
        if name == "scatter_runs":
            yield (
                "entry bool",
                (X.bool(), torch.tensor([0, 0]), CUT, rows),
                TypeError,
                "floating or integer dtype, got Bool",
            )

    return errors


WINDOWS = ((3, -1, 1), (2, 0, 2), (1, 1, 1), (3, -5, 2), (2, -1, 1))


def unfold_samples(dtype, device):
    turn = itertools.cycle(WINDOWS)

    def make(offsets, width):
        for size, start, dilation in (next(turn), next(turn)):
            x = values(int(offsets[-1]), width, dtype, device)
            yield f" {size} from {start} by {dilation}", (x, offsets, size, start, dilation, 1)

    yield from brief(over_segments(dtype, device, make))


def window_errors(name, x, *options):
    yield from bad_offsets((x, CUT, *options), 1)
    yield "dilation", (x, CUT, *options, 0), ValueError, f"{name}: expected dilation in [1, 2**40], got 0"
    far = (*options[:-1], 2**41)
    yield "start", (x, CUT, *far), ValueError, f"{name}: expected start in [-2**40, 2**40], got {2**41}"


def unfold_errors():
    yield from window_errors("segment_unfold", X, 3, -1)
    yield "size", (X, CUT, 0, 0), ValueError, "size in [1, 2**20], got 0"
    yield "scalar", (X[0, 0], CUT, 1, 0), ValueError, "values with at least 1 dimension"


def fold_samples(dtype, device):
    turn = itertools.cycle(WINDOWS)

    def make(offsets, width):
        for size, start, dilation in (next(turn), next(turn)):
            x = values(int(offsets[-1]), (size, *width), dtype, device)
            yield f" {size} from {start} by {dilation}", (x, offsets, start, dilation)

    yield from brief(over_segments(dtype, device, make))


def fold_errors():
    yield from window_errors("segment_fold", X, -1)
    yield "1-d", (X[:, 0], CUT, 0), ValueError, "values of shape (rows, size, ...), got 1 dimensions"
    yield "bool", (X.bool(), CUT, 0), TypeError, "floating or integer dtype, got Bool"


def conv_samples(dtype, device):
    for label, offsets, large in cuts(device, large=False):
        rows = int(offsets[-1])
        for (size, start, dilation), (width, out) in zip(WINDOWS, ((3, 2), (2, 35), (1, 1), (17, 3), (2, 2))):
            x, w = values(rows, (width,), dtype, device), values(size, (width, out), dtype, device, 1) * 0.5
            bias = values(out, (), dtype, device, 2) if size > 1 else None
            big = large or width * out > 40
            yield Sample(f"{label} {size} from {start} by {dilation}", (x, w, bias, offsets, start, dilation), big)
    offsets = torch.tensor([0, 31, 31, 40, 41], device=device)
    x, w = values(41, (5,), dtype, device), values(3, (5, 33), dtype, device, 1) * 0.5
    yield Sample("many rows", (x, w, None, offsets, -1, 2), True)
    yield Sample("no features", (x[:, :0], w[:, :0], values(33, (), dtype, device), offsets, -1, 1), True)


def conv_errors():
    w, b = torch.zeros(2, 3, 4), torch.zeros(4)
    yield from bad_offsets((X, w, b, CUT, 0), 3)
    yield "features", (X, w[:, :2], b, CUT, 0), ValueError, "weight of shape [size, 3, out], got [2, 2, 4]"
    yield "flat weight", (X, w[0], b, CUT, 0), ValueError, "weight of shape [size, 3, out]"
    yield "weight dtype", (X, w.double(), b, CUT, 0), TypeError, "weight of dtype Float"
    yield "bias", (X, w, b[:3], CUT, 0), ValueError, "bias of shape [4], got [3]"
    yield "whole", (X.long(), w.long(), None, CUT, 0), TypeError, "values of dtype float16"
    yield "1-d", (X[:, 0], w, b, CUT, 0), ValueError, "values of shape (rows, features), got 1 dimensions"
    yield "dilation", (X, w, b, CUT, 0, 0), ValueError, "dilation in [1, 2**40], got 0"
    yield "start", (X, w, b, CUT, -(2**41)), ValueError, "start in [-2**40, 2**40]"


def conv_weight_samples(dtype, device):
    for label, offsets, large in cuts(device, large=False):
        for size, start, dilation in WINDOWS:
            x, g = (values(int(offsets[-1]), (width,), dtype, device, width) for width in (3, 2))
            yield Sample(f"{label} {size} from {start} by {dilation}", (x, g, offsets, size, start, dilation), large)
    offsets = torch.tensor([0, 290, 290, 300], device=device)
    x, g = values(300, (19,), dtype, device), values(300, (35,), dtype, device, 1)
    yield Sample("many rows", (x, g, offsets, 3, -1, 1), True)


def conv_weight_errors():
    yield from bad_offsets((X, X, CUT, 3, 0), 2)
    yield "size", (X, X, CUT, 0, 0), ValueError, "size in [1, 2**20], got 0"
    yield "grad", (X, X[:5], CUT, 3, 0), ValueError, "grad of shape [6, out], got [5, 3]"
    yield "dtype", (X, X.double(), CUT, 3, 0), TypeError, "grad of dtype Float"


def scan_samples(dtype, device):
    turn = itertools.cycle(
        [(True, False), (True, True), (False, False), (True, True), (True, False), (False, True), (True, True)]
    )

    def make(offsets, width):
        rows = int(offsets[-1])
        x, f = values(rows, width, dtype, device), values(rows, width, dtype, device, 7).clamp(-1, 1)
        f[rows // 2 :: 3] = 0
        for factors, adjoint in (next(turn), next(turn)):
            yield f"{' factors' * factors}{' adjoint' * adjoint}", (x, f if factors else None, offsets, adjoint)

    yield from brief(over_segments(dtype, device, make))


def scan_errors():
    yield from bad_offsets((X, X, CUT), 2)
    yield "factors", (X, X[:5], CUT), ValueError, "factors of shape [6, 3], as values, got [5, 3]"
    yield "dtype", (X, X.double(), CUT), TypeError, "expected factors of dtype Float on"
    yield "bool", (X.bool(), None, CUT), TypeError, "floating or integer dtype, got Bool"


def cumulative_samples(dtype, device):
    def make(offsets, width):
        for reduce in ("max", "min"):
            yield f" {reduce}", (values(int(offsets[-1]), width, dtype, device), offsets, reduce)

    for sample in over_segments(dtype, device, make):
        if "long" not in sample.label:  # the reference looks back over everything at every row
            yield sample


def cumulative_errors():
    yield from bad_offsets((X, CUT, "max"), 1)
    yield "reduce", (X, CUT, "sum"), ValueError, "reduce 'max' or 'min', got 'sum'"
    yield "bool", (X.bool(), CUT, "max"), TypeError, "floating or integer dtype, got Bool"
