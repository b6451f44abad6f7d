# SPDX-License-Identifier: Apache-2.0
"""Labels of segments, with too few rows for them, equal neighbours, none, and blanks at either end of the classes."""

import torch
from reference import ctc as reference

from samples.words import CARRIED, CUT, OFFSETS, OpInfo, Sample, bad_offsets, values

#: Of every structure the labels of its segments, beside the blank 0 of 3 classes.
LABELS = {
    "typical": ([[1], [2, 1], []], [[1, 1], [2, 2], [1]], [[2, 1], [1, 1, 1], [2]]),
    "empty segment": ([[1, 2], [], [2, 2]], [[1], [1], [1, 2, 1]]),
    "empty ends": ([[], [1, 2, 2], []], [[], [2], [2, 1]]),
    "all empty": ([[], []], [[], [1]]),
    "no segments": ([],),
    "one row": ([[2]], [[]]),
}


def arguments(dtype, device):
    for label, offsets in OFFSETS.items():
        for i, lists in enumerate(LABELS[label]):
            blank, wide = (0, i % 2) if label != "typical" else (i, 0)
            classes = 19 if wide and offsets[-1] <= 2 else 3
            # the blank takes the place of a class
            flat = [c - 1 if c <= blank else c for labels in lists for c in labels]
            cuts = torch.tensor([0, *(len(labels) for labels in lists)]).cumsum(0)
            x = values(offsets[-1], (classes,), dtype, device, i) * (3 if i else 1)
            given = x, torch.tensor(offsets), torch.tensor(flat, dtype=torch.int64), cuts
            yield f"{label} {lists}", (given[0], *(t.to(device) for t in given[1:]), blank)


def samples(dtype, device):
    for label, given in arguments(dtype, device):
        for zero_infinity in (False, True):
            infinite = not zero_infinity and bool(reference.ctc_loss(*given).isinf().any())
            yield Sample(
                f"{label} {zero_infinity}", (*given, zero_infinity), large=infinite
            )  # no number to differ from


def path_samples(dtype, device):
    for label, given in arguments(dtype, device):
        yield Sample(label, given)


def backward_samples(dtype, device):
    for label, given in arguments(dtype, device):
        yield Sample(label, (values(len(given[1]) - 1, (), dtype, device, 9), *given))


def beam_samples(dtype, device):
    for label, (x, offsets, _, _, blank) in arguments(dtype, device):
        for options in ((1,), (3, 3), (200, 40), (4, 2, 0.3)):
            yield Sample(f"{label} {options}", (x, offsets, blank, *options))


X, Y, CUTS = torch.zeros(6, 3), torch.tensor([1, 2, 2]), torch.tensor([0, 1, 3])


def errors(back=False, flag=True):
    before, options = ((torch.zeros(2),), (0,)) if back else ((), (0, False) if flag else (0,))

    def put(x=X, cut=CUT, labels=Y, cuts=CUTS, blank=0):
        return *before, x, cut, labels, cuts, blank, *options[1:]

    def refuse():
        yield from bad_offsets(put(), len(before) + 1)
        yield from bad_offsets(put(), len(before) + 3, 3, "label_offsets", "labels")
        yield "whole", put(X.long()), TypeError, "values of dtype float16, bfloat16, float32 or float64, got Long"
        yield "1-d", put(X[:, 0]), ValueError, "values of shape (rows, classes), got 1 dimensions"
        yield "labels dtype", put(labels=Y.int()), TypeError, "labels of dtype int64, got Int"
        yield "labels 2-d", put(labels=Y[:, None]), ValueError, "1-D labels, got 2 dimensions"
        yield "sequences", put(cuts=torch.tensor([0, 3])), ValueError, "of labels as of values, 2, got 1"
        yield "blank", put(blank=3), ValueError, "blank as one of 3 classes, got 3"
        yield "no blank", put(blank=-1), ValueError, "blank as one of 3 classes, got -1"
        yield "no classes", put(X[:, :0]), ValueError, "blank as one of 0 classes, got 0"
        said = "labels in [0, 2] other than the blank {}, got {} at position {} of sequence {}"
        for entry, (blank, label, at) in enumerate([(0, 3, 2), (0, 0, 0), (1, -1, 1), (2, 2, 2), (0, 2**62, 1)]):
            found = torch.tensor([0, 0, 0] if blank else [1, 1, 1])
            found[at] = label
            place = (at, 0) if at < 1 else (at - 1, 1)
            yield f"entry {entry}", put(labels=found, blank=blank), IndexError, said.format(blank, label, *place)
        if back:
            yield "grad", (torch.zeros(3), *put()[1:]), ValueError, "grad of shape [2], got [3]"
            yield "grad dtype", (torch.zeros(2).double(), *put()[1:]), TypeError, "grad of dtype Float"

    return refuse


def beam_errors():
    def put(x=X, blank=0, beam=10, n=1, threshold=0.0):
        return x, CUT, blank, beam, n, threshold

    yield from bad_offsets(put(), 1)
    yield "whole", put(X.long()), TypeError, "values of dtype float16, bfloat16, float32 or float64, got Long"
    yield "1-d", put(X[:, 0]), ValueError, "values of shape (rows, classes), got 1 dimensions"
    yield "blank", put(blank=3), ValueError, "blank as one of 3 classes, got 3"
    yield "no blank", put(blank=-1), ValueError, "blank as one of 3 classes, got -1"
    yield "no classes", put(X[:, :0]), ValueError, "blank as one of 0 classes, got 0"
    for beam in (0, -(2**62), 2**20 + 1):
        yield f"beam {beam}", put(beam=beam), ValueError, f"beam in [1, 2**20], got {beam}"
    for n in (0, 11, 2**62):
        yield f"n {n}", put(n=n), ValueError, f"n in [1, 10], as the beam, got {n}"
    for threshold in (-0.5, 1.5, float("nan")):
        yield f"threshold {threshold}", put(threshold=threshold), ValueError, f"threshold in [0, 1], got {threshold}"


ENTRIES = [
    OpInfo("ctc_loss", samples, errors(), tolerance=CARRIED),
    OpInfo("ctc_loss_backward", backward_samples, errors(back=True), differentiable=False, tolerance=CARRIED),
    OpInfo("ctc_beam", beam_samples, beam_errors, outputs=3, differentiable=False),
    OpInfo("ctc_best_path", path_samples, errors(flag=False), outputs=2, differentiable=False, tolerance=CARRIED),
]
