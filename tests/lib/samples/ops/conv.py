# SPDX-License-Identifier: Apache-2.0
"""Convolution within segments."""

import torch

from samples.words import CARRIED, CUT, WINDOWS, OpInfo, Sample, V, bad_offsets, cuts, values


def conv_samples(dtype, device):
    for label, offsets, large in cuts(device, large=False):
        rows = int(offsets[-1])
        for (size, start, dilation), (width, out) in zip(WINDOWS, ((3, 2), (2, 35), (1, 1), (17, 3), (2, 2))):
            x, w = values(rows, (width,), dtype, device), values(size, (width, out), dtype, device, 1) * 0.5
            bias = values(out, (), dtype, device, 2) if size > 1 else None
            w = w.flatten(0, 1) if size % 2 == 0 else w
            big = large or width * out > 40
            yield Sample(
                f"{label} {size} from {start} by {dilation}", (x, w, bias, offsets, start, dilation), large=big
            )
    offsets = torch.tensor([0, 31, 31, 40, 41], device=device)
    x, w = values(41, (5,), dtype, device), values(3, (5, 33), dtype, device, 1) * 0.5
    yield Sample("many rows", (x, w, None, offsets, -1, 2), large=True)
    yield Sample("no features", (x[:, :0], w[:, :0], values(33, (), dtype, device), offsets, -1, 1), large=True)


def conv_errors():
    w, b = torch.zeros(2, 3, 4), torch.zeros(4)
    yield from bad_offsets((V, w, b, CUT, 0), 3)
    yield (
        "features",
        (V, w[:, :2], b, CUT, 0),
        ValueError,
        "weight of shape [size, 3, out] or [size * 3, out], got [2, 2, 4]",
    )
    yield "flat weight", (V, torch.zeros(4, 4), b, CUT, 0), ValueError, "or [size * 3, out], got [4, 4]"
    yield "flat weight of no features", (V[:, :0], w[0, :0], b, CUT, 0), ValueError, "or [size * 0, out], got [0, 4]"
    yield "weight dtype", (V, w.double(), b, CUT, 0), TypeError, "weight of dtype Float"
    yield "bias", (V, w, b[:3], CUT, 0), ValueError, "bias of shape [4], got [3]"
    yield "whole", (V.long(), w.long(), None, CUT, 0), TypeError, "values of dtype float16"
    yield "1-d", (V[:, 0], w, b, CUT, 0), ValueError, "values of shape (rows, features), got 1 dimensions"
    yield "dilation", (V, w, b, CUT, 0, 0), ValueError, "dilation in [1, 2**40], got 0"
    yield "size", (V, torch.zeros(2**20 + 1, 3, 0), None, CUT, 0), ValueError, "a size of at most 2**20, got 1048577"
    yield "start", (V, w, b, CUT, -(2**41)), ValueError, "start in [-2**40, 2**40]"


def conv_weight_samples(dtype, device):
    for label, offsets, large in cuts(device, large=False):
        for size, start, dilation in WINDOWS:
            x, g = (values(int(offsets[-1]), (width,), dtype, device, width) for width in (3, 2))
            yield Sample(
                f"{label} {size} from {start} by {dilation}", (x, g, offsets, size, start, dilation), large=large
            )
    offsets = torch.tensor([0, 290, 290, 300], device=device)
    x, g = values(300, (19,), dtype, device), values(300, (35,), dtype, device, 1)
    yield Sample("many rows", (x, g, offsets, 3, -1, 1), large=True)


def conv_weight_errors():
    yield from bad_offsets((V, V, CUT, 3, 0), 2)
    yield "size", (V, V, CUT, 0, 0), ValueError, "size in [1, 2**20], got 0"
    yield "grad", (V, V[:5], CUT, 3, 0), ValueError, "grad of shape [6, out], got [5, 3]"
    yield "dtype", (V, V.double(), CUT, 3, 0), TypeError, "grad of dtype Float"


ENTRIES = [
    OpInfo("segment_conv", conv_samples, conv_errors, tolerance=CARRIED, products=True),
    OpInfo("segment_conv_weight", conv_weight_samples, conv_weight_errors, tolerance=CARRIED, products=True),
]
