# SPDX-License-Identifier: Apache-2.0
"""Reductions, broadcasting and picking, segment by segment."""

import torch
from reference.ops import rows_of

from samples.words import CUT, NUMBERS, OpInfo, V, bad_offsets, over_segments, values


def reduce_samples(reduces):
    def samples(dtype, device):
        def make(offsets, width):
            for reduce in reduces:
                if reduce in ("mean", "sqrt") and not dtype.is_floating_point:
                    continue
                x = values(int(offsets[-1]), width, dtype, device)
                for pad in (0.0,) if reduce == "sum" else (2.0,):
                    yield f" {reduce}", (x, offsets, reduce, pad)

        yield from over_segments(dtype, device, make)

    return samples


def reduce_errors(name):
    def errors():
        kind = "max" if name == "segment_extreme" else "sum"
        yield from bad_offsets((V, CUT, kind, 0.0), 1)
        yield "reduce", (V, CUT, "median", 0.0), ValueError, "'first' or 'last', got 'median'"
        yield "scalar", (V[0, 0], CUT, kind, 0.0), ValueError, "values with at least 1 dimension"
        yield "bool", (V.bool(), CUT, kind, 0.0), TypeError, "floating or integer dtype, got Bool"
        yield "complex", (V.cfloat(), CUT, kind, 0.0), TypeError, "floating or integer dtype"
        yield "pad", (V.long(), CUT, kind, 0.5), ValueError, "whole pad_value for values of dtype Long, got 0.5"
        if name == "segment_extreme":
            yield "kind", (V, CUT, "sum", 0.0), ValueError, "'max' or 'min', got 'sum'"
        else:
            yield "whole mean", (V.long(), CUT, "mean", 0.0), TypeError, "floating dtype for 'mean', got Long"

    return errors


def broadcast_samples(dtype, device):
    def make(offsets, width):
        for reduce in ("sum", "mean", "sqrt", "first", "last") if dtype.is_floating_point else ("sum", "last"):
            x = values(len(offsets) - 1, width, dtype, device)
            yield f" {reduce}", (x, offsets, int(offsets[-1]), reduce)

    yield from over_segments(dtype, device, make)


def broadcast_errors():
    yield "end", (V[:2], torch.tensor([0, 2, 5]), 6, "sum"), ValueError, "equal the 6 rows of values, got 5"
    yield "fall", (V[:2], torch.tensor([0, 7, 6]), 6, "sum"), ValueError, "got 7 then 6 at index 2"
    yield "rows", (V[:3], CUT, 6, "sum"), ValueError, "a row of values per segment, 2, got 3"
    yield "kind", (V[:2], CUT, 6, "max"), ValueError, "'sqrt', 'first' or 'last', got 'max'"
    yield "bool", (V[:2].bool(), CUT, 6, "last"), TypeError, "floating or integer dtype, got Bool"


def index_for(offsets, width, device):
    """A row of its own segment for every element, some -1, some of another segment."""
    g = torch.Generator().manual_seed(len(offsets))
    out = []
    for a, b in zip(offsets.tolist(), offsets.tolist()[1:]):
        out.append(torch.randint(a - 1, b + 1, width, generator=g).clamp(min=-1))
    return rows_of(out, torch.zeros(0, *width, dtype=torch.int64)).to(device)


def pick_samples(dtype, device):
    def make(offsets, width):
        x = values(int(offsets[-1]), width, dtype, device)
        yield "", (x, index_for(offsets, width, device), offsets)

    yield from over_segments(dtype, device, make)


def place_samples(dtype, device):
    def make(offsets, width):
        x = values(len(offsets) - 1, width, dtype, device)
        yield "", (x, index_for(offsets, width, device), offsets, int(offsets[-1]))

    for sample in over_segments(dtype, device, make):
        if not sample.large:  # the reference is a list of scalars
            yield sample


def pick_errors(name):
    def errors():
        index = torch.zeros(2, 3, dtype=torch.int64)
        x = V if name == "segment_pick" else V[:2]
        tail = () if name == "segment_pick" else (6,)
        yield from bad_offsets((x, index, CUT, *tail), 2) if name == "segment_pick" else ()
        yield "index dtype", (x, index.int(), CUT, *tail), TypeError, "int64 index"
        yield "index shape", (x, index[:, :2], CUT, *tail), ValueError, "index with a row per segment, 2"
        yield "index rows", (x, index[:1], CUT, *tail), ValueError, "index with a row per segment, 2"
        if tail:
            yield "rows", (V[:3], index, CUT, 6), ValueError, "a row of values per segment, 2, got 3"

    return errors


REDUCES = ("sum", "mean", "sqrt", "prod", "max", "min", "first", "last")
ENTRIES = [
    OpInfo("segment_reduce", reduce_samples(REDUCES), reduce_errors("segment_reduce"), NUMBERS),
    OpInfo("segment_extreme", reduce_samples(("max", "min")), reduce_errors("segment_extreme"), NUMBERS, outputs=2),
    OpInfo("segment_broadcast", broadcast_samples, broadcast_errors, NUMBERS),
    OpInfo("segment_pick", pick_samples, pick_errors("segment_pick")),
    OpInfo("segment_place", place_samples, pick_errors("segment_place")),
]
