# SPDX-License-Identifier: Apache-2.0
"""Orders within segments."""

import itertools

import torch

from samples.words import CUT, NUMBERS, OpInfo, V, bad_offsets, over_segments, values


def numbers(count, width, dtype, device):
    """Some of them equal, and where there are any some NaN, infinite and zeros of both signs."""
    x = values(count, width, dtype, device)
    x[1::3] = x[:1].expand_as(x[1::3])
    if dtype.is_floating_point and count:
        flat = x.view(-1)
        for start, special in enumerate((float("nan"), float("inf"), -float("inf"), 0.0, -0.0)):
            flat[5 + start :: 23] = special
    return x


def order_samples(dtype, device):
    turn = itertools.cycle([False, True, True])

    def make(offsets, width):
        descending = next(turn)
        yield " descending" * descending, (numbers(int(offsets[-1]), width, dtype, device), offsets, descending)

    yield from over_segments(dtype, device, make)


def topk_samples(dtype, device):
    turn = itertools.cycle([(1, True), (3, False), (2, True), (40, True), (7, False), (5, True)])

    def make(offsets, width):
        for _ in range(2):
            k, largest = next(turn)
            x = numbers(int(offsets[-1]), width, dtype, device)
            yield f" {k} {'largest' if largest else 'smallest'}", (x, offsets, k, largest)

    yield from over_segments(dtype, device, make)


def order_errors():
    yield from bad_offsets((V, CUT), 1)
    yield "bool", (V.bool(), CUT), TypeError, "floating or integer dtype, got Bool"
    yield "scalar", (V[0, 0], CUT), ValueError, "values with at least 1 dimension"


def topk_errors():
    yield from bad_offsets((V, CUT, 2), 1)
    yield "none", (V, CUT, 0), ValueError, "k >= 1, got 0"
    yield "complex", (V.to(torch.complex64), CUT, 2), TypeError, "floating or integer dtype"


ENTRIES = [
    OpInfo("segment_order", order_samples, order_errors, NUMBERS, differentiable=False),
    OpInfo("segment_topk", topk_samples, topk_errors, NUMBERS, differentiable=False),
]
