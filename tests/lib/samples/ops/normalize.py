# SPDX-License-Identifier: Apache-2.0
"""What normalises a segment: softmax and its logarithm, the logarithm of its sum, mean and variance."""

import torch

from samples.words import CARRIED, CUT, OpInfo, V, bad_offsets, over_segments, values


def of_rows(*options):
    """Samples with each of the options."""

    def samples(dtype, device):
        def make(offsets, width):
            for option in options or ((),):
                yield f" {option}" if option else "", (values(int(offsets[-1]), width, dtype, device), offsets, *option)

        yield from over_segments(dtype, device, make)

    return samples


def of_gradients(second, *options):
    """Samples with a gradient, and beside it what `second` makes of values."""

    def samples(dtype, device):
        def make(offsets, width):
            n = int(offsets[-1])
            other = second(values(n, width, torch.float64, device, 1)).to(dtype)
            yield "", (values(n, width, dtype, device), other, offsets, *options)

        yield from over_segments(dtype, device, make)

    return samples


def errors(*options):
    def of_values():
        yield from bad_offsets((V, CUT, *options), 1)
        whole = "values of dtype float16, bfloat16, float32 or float64, got Long"
        yield "whole", (V.long(), CUT, *options), TypeError, whole
        yield "scalar", (V[0, 0], CUT, *options), ValueError, "values with at least 1 dimension"

    return of_values


def backward_errors(*options):
    def of_gradient():
        yield from bad_offsets((V, V, CUT, *options), 2)
        yield "shape", (V[:, :2], V, CUT, *options), ValueError, "grad of shape [6, 3], got [6, 2]"
        yield "dtype", (V.double(), V, CUT, *options), TypeError, "grad of dtype Float"
        yield "whole", (V.long(), V.long(), CUT, *options), TypeError, "float32 or float64, got Long"

    return of_gradient


VARIANCES = ((0.5, False, 2.0), (0.0, True), (-1.0, True, -1.0))  # of a single row as well
HALVES = {dtype: CARRIED[dtype] for dtype in (torch.bfloat16, torch.float16)}
ENTRIES = [
    OpInfo("segment_softmax", of_rows(), errors(), tolerance=HALVES),
    OpInfo("segment_softmax_backward", of_gradients(torch.abs), backward_errors(), tolerance=CARRIED),
    OpInfo("segment_log_softmax", of_rows(), errors(), tolerance=HALVES),
    OpInfo("segment_log_softmax_backward", of_gradients(lambda t: -t.abs()), backward_errors(), tolerance=CARRIED),
    OpInfo("segment_logsumexp", of_rows((), (2.0,)), errors(), tolerance=HALVES),
    OpInfo("segment_var", of_rows(*VARIANCES), errors(), tolerance=CARRIED),
    OpInfo("segment_normalize", of_rows((), (0.5,)), errors(), tolerance=CARRIED),
    OpInfo("segment_normalize_backward", of_gradients(lambda t: t, 0.1), backward_errors(0.1), tolerance=CARRIED),
]
