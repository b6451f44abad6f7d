# SPDX-License-Identifier: Apache-2.0
"""Scans along segments."""

import itertools

import torch

from samples.words import CARRIED, CUT, NUMBERS, OpInfo, V, bad_offsets, brief, over_segments, values
from torch_lod import ops


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
    yield from bad_offsets((V, V, CUT), 2)
    yield "factors", (V, V[:5], CUT), ValueError, "factors of shape [6, 3], as values, got [5, 3]"
    yield "dtype", (V, V.double(), CUT), TypeError, "expected factors of dtype Float on"
    yield "bool", (V.bool(), None, CUT), TypeError, "floating or integer dtype, got Bool"


def cumulative_samples(dtype, device):
    def make(offsets, width):
        for reduce in ("max", "min"):
            yield f" {reduce}", (values(int(offsets[-1]), width, dtype, device), offsets, reduce)

    for sample in over_segments(dtype, device, make):
        if "long" not in sample.label:  # the reference looks back over everything at every row
            yield sample


def cumulative_errors():
    yield from bad_offsets((V, CUT, "max"), 1)
    yield "reduce", (V, CUT, "sum"), ValueError, "reduce 'max' or 'min', got 'sum'"
    yield "bool", (V.bool(), CUT, "max"), TypeError, "floating or integer dtype, got Bool"


def cumulative_backward_samples(dtype, device):
    def make(offsets, width):
        rows = int(offsets[-1])
        x, dy = values(rows, width, dtype, device), values(rows + 1, width, dtype, device)[1:]
        yield "", (dy, ops.segment_cumulative(x, offsets, "max")[1], offsets)
        falling = torch.arange(rows, device=device).flip(0).view(-1, *[1] * (dy.dim() - 1))
        yield " any index", (dy, falling.expand(dy.shape), offsets)

    for sample in over_segments(dtype, device, make):
        if "long" not in sample.label:
            yield sample


def cumulative_backward_errors():
    index = torch.zeros(V.shape, dtype=torch.int64)
    yield from bad_offsets((V, index, CUT), 2)
    yield "shape", (V, index[:, :2], CUT), ValueError, r"index of shape [6, 3], as grad, got [6, 2]"
    yield "dtype", (V, V, CUT), TypeError, "expected index of dtype Long on"
    yield "bool", (V.bool(), index, CUT), TypeError, "floating or integer dtype, got Bool"


def cumprod_samples(dtype, device):
    turn = itertools.cycle([(False, False), (True, False), (False, True), (True, True)])

    def make(offsets, width):
        limit = 1.25 if dtype.is_floating_point else 1
        x = values(int(offsets[-1]), width, dtype, device).clamp(-limit, limit)
        x[3::5] = 0
        reverse, exclusive = next(turn)
        yield f"{' reverse' * reverse}{' exclusive' * exclusive}", (x, offsets, reverse, exclusive)

    yield from brief(over_segments(dtype, device, make))


def cumprod_errors():
    yield from bad_offsets((V, CUT), 1)
    yield "bool", (V.bool(), CUT), TypeError, "floating or integer dtype, got Bool"


def logcumsumexp_samples(dtype, device):
    def make(offsets, width):
        yield "", (values(int(offsets[-1]), width, dtype, device), offsets)

    yield from brief(over_segments(dtype, device, make))


def logcumsumexp_errors():
    yield from bad_offsets((V, CUT), 1)
    yield "whole", (V.long(), CUT), TypeError, "float32 or float64, got Long"


ENTRIES = [
    OpInfo("segment_scan", scan_samples, scan_errors, NUMBERS, tolerance=CARRIED),
    OpInfo("segment_cumulative", cumulative_samples, cumulative_errors, NUMBERS, outputs=2),
    OpInfo(
        "segment_cumulative_backward",
        cumulative_backward_samples,
        cumulative_backward_errors,
        NUMBERS,
        tolerance=CARRIED,
    ),
    OpInfo("segment_cumprod", cumprod_samples, cumprod_errors, NUMBERS, tolerance=CARRIED),
    OpInfo("segment_logcumsumexp", logcumsumexp_samples, logcumsumexp_errors, tolerance=CARRIED),
]
