# SPDX-License-Identifier: Apache-2.0
"""Pairs of segments: equal, empty, longer than a block of bits, of few symbols and of many."""

import torch

from samples.words import OFFSETS, OpInfo, Sample, bad_offsets

#: Beside OFFSETS: as many segments.
OTHERS = {
    "typical": [0, 3, 3, 9],
    "empty segment": [0, 1, 4, 5],
    "empty ends": [0, 2, 5, 5],
    "all empty": [0, 3, 3],
    "no segments": [0],
    "one row": [0, 1],
}


def samples(dtype, device):
    long = [0, 64, 65, 200, 329], [0, 66, 66, 264, 329]
    for label, cuts in {**{k: (OFFSETS[k], OTHERS[k]) for k in OFFSETS}, "blocks": long}.items():
        for most in (2, 5, 2**62):
            g = torch.Generator().manual_seed(most % 97)
            drawn = [torch.randint(-most, most, (c[-1],), generator=g) for c in cuts]
            if label == "blocks":
                drawn[1][200:] = drawn[0][200:].clone()[: len(drawn[1][200:])].roll(3)
            given = [t.to(device) for pair in zip(drawn, map(torch.tensor, cuts)) for t in pair]
            yield Sample(f"{label} {most}", tuple(given), large=label == "blocks")


X, Y, CUT, CUTS = torch.arange(6), torch.arange(3), torch.tensor([0, 2, 6]), torch.tensor([0, 1, 3])


def errors():
    yield from bad_offsets((X, CUT, Y, CUTS), 1)
    yield from bad_offsets((X, CUT, Y, CUTS), 3, 3, "other_offsets", "others")
    yield "floating", (X.float(), CUT, Y, CUTS), TypeError, "values of dtype int64, got Float"
    yield "others dtype", (X, CUT, Y.int(), CUTS), TypeError, "others of dtype int64, got Int"
    yield "2-d values", (X[:, None], CUT, Y, CUTS), ValueError, "1-D values, got 2 dimensions"
    yield "2-d others", (X, CUT, Y[:, None], CUTS), ValueError, "1-D others, got 2 dimensions"
    yield "sequences", (X, CUT, Y, torch.tensor([0, 3])), ValueError, "of others as of values, 2, got 1"


ENTRIES = [
    OpInfo("edit_distance", samples, errors, (torch.int64,), differentiable=False),
    OpInfo("edit_alignment", samples, errors, (torch.int64,), differentiable=False, outputs=3),
]
