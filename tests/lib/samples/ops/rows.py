# SPDX-License-Identifier: Apache-2.0
"""Rows by maps and by runs, and windows of rows."""

import itertools

import torch

from samples.words import (
    ALL,
    CUT,
    NUMBERS,
    WIDE,
    WIDTHS,
    WINDOWS,
    OpInfo,
    Sample,
    V,
    bad_offsets,
    brief,
    cuts,
    over_segments,
    values,
    window_errors,
)


def run_map_samples(dtype, device):
    for label, offsets, large in cuts(device):
        for step in (-1, 0, 1, 3):
            starts = torch.arange(len(offsets) - 1, device=device) * 7
            yield Sample(f"{label} step {step}", (starts, offsets, int(offsets[-1]), step), large=large)


def run_map_errors():
    yield from bad_offsets((torch.arange(2), CUT, 6), 1)
    yield "starts", (torch.arange(3), CUT, 6), ValueError, "one of starts per segment, 2, got 3"
    yield "floating starts", (torch.zeros(2), CUT, 6), TypeError, "starts of dtype int64"


MAPS = {
    "mixed": [2, 0, -1, 1, 2, 2],
    "runs": [1, 2, 3, 0, 1],
    "none": [-1, -1],
    "empty": [],
    "one": [3],
    "rising": [-1, 0, 2, -1, 3],
}


def gather_samples(dtype, device):
    for label, entries in MAPS.items():
        for width in WIDTHS + WIDE:
            row_map = torch.tensor(entries, dtype=torch.int64, device=device)
            for fill in (0, 1):
                yield Sample(
                    f"{label} {width} fill {fill}",
                    (values(4, width, dtype, device), row_map, fill),
                    large=width in WIDE,
                )
    none = torch.tensor([-1, -1], device=device)
    yield Sample("of no rows", (values(0, (3,), dtype, device), none, 0))
    yield Sample("long", (values(3000, (5,), dtype, device), torch.arange(2999, -1, -1, device=device), 0), large=True)


def map_errors(name):
    extra = {"gather_rows": (), "scatter_rows": (4,)}[name]
    rows = {"gather_rows": 6, "scatter_rows": 4}[name]

    def errors():
        good = torch.tensor([0, 1, 2, -1, 3, 3])
        for wrong in (rows, -2, 2**62, -(2**63)):
            bad = good.clone()
            bad[4] = wrong
            yield f"entry {wrong}", (V, bad, *extra), IndexError, f"map in [-1, {rows - 1}], got {wrong} at index 4"
        yield "floating", (V, good.double(), *extra), TypeError, "map of dtype int64"
        yield "2-d", (V, good[None], *extra), ValueError, "1-D map, got 2 dimensions"
        yield "scalar", (V[0, 0], good, *extra), ValueError, "values with at least 1 dimension, got a scalar"
        if extra:
            yield "length", (V, good[:5], 4), ValueError, "a map entry per row of values, 6, got 5"
            yield "rows", (V, good, -1), ValueError, "rows >= 0, got -1"
            yield "bool", (V.bool(), good, 4), TypeError, "floating or integer dtype, got Bool"

    return errors


def scatter_samples(dtype, device):
    for label, entries in MAPS.items():
        for width in WIDTHS + WIDE:
            row_map = torch.tensor(entries, dtype=torch.int64, device=device)
            yield Sample(
                f"{label} {width}", (values(len(entries), width, dtype, device), row_map, 5), large=width in WIDE
            )
    nowhere = torch.tensor([-1, -1], device=device)
    yield Sample("into no rows", (values(2, (3,), dtype, device), nowhere, 0))
    many = torch.arange(3000, device=device) % 7
    yield Sample("long", (values(3000, (5,), dtype, device), many, 7), large=True)


def positions(lengths, kind, step):
    """(first rows, rows on the other side) of runs of these lengths."""
    low, at = [], 1
    for n in lengths:
        low.append(at)
        at += n + (1 if kind == "gaps" else 0)
    if kind == "flipped":
        low, at = [], 0
        for n in lengths[::-1]:
            low.insert(0, at)
            at += n
    if kind == "meeting":
        low, at = [0] * len(lengths), max(lengths, default=0)
    first = [a if step > 0 else a + n - 1 for a, n in zip(low, lengths)]
    return [f if n else -7 for f, n in zip(first, lengths)], at + 1


RUNS = (("gaps", 1), ("flipped", -1), ("meeting", 1), ("gaps", -1), ("flipped", 1), ("meeting", -1), ("gaps", 1))


def run_samples(name):
    def samples(dtype, device):
        turn = itertools.cycle(RUNS)  # every structure and width meets some of them, and each of them all

        def make(offsets, width):
            lengths, rows = offsets.diff().tolist(), int(offsets[-1])
            for kind, step in (next(turn), next(turn)) if rows < 100 else (("gaps", 1), ("gaps", -1)):
                first, there = positions(lengths, kind, step)
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
        good = (V, starts, CUT, rows)
        yield from bad_offsets(good, 2)
        for step, wrong in ((1, 3), (1, -1), (1, 2**63 - 1), (-1, 2), (-1, 6), (-1, -(2**63))):
            args = (V, torch.tensor([1, wrong]), CUT, rows, step)
            way = "up" if step > 0 else "down"
            yield f"entry {wrong} {way}", args, IndexError, f"[0, 6), got 4 rows from {wrong} {way} at index 1"
        yield "starts", (V, starts[:1], CUT, rows), ValueError, "one of starts per segment, 2, got 1"
        yield "floating starts", (V, starts.double(), CUT, rows), TypeError, "starts of dtype int64"
        yield "step", (V, starts, CUT, rows, 2), ValueError, "step 1 or -1, got 2"
        yield "scalar", (V[0, 0], starts, CUT, rows), ValueError, "values with at least 1 dimension"
        yield "rows", (V, starts, CUT, -1), ValueError, "rows >= 0, got -1"
        if name == "scatter_runs":
            yield (
                "entry bool",
                (V.bool(), torch.tensor([0, 0]), CUT, rows),
                TypeError,
                "floating or integer dtype, got Bool",
            )

    return errors


def concat_samples(dtype, device):
    turn = itertools.cycle([lambda n: n.flip(0), lambda n: n * 0, lambda n: n, lambda n: n.roll(1)])

    def make(offsets, width):
        for _ in range(2):
            lengths = next(turn)(offsets.diff())
            other_offsets = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])
            x, y = (values(int(o[-1]), width, dtype, device) for o in (offsets, other_offsets))
            yield "", (x, offsets, y, other_offsets)

    yield from over_segments(dtype, device, make)


def concat_errors():
    yield from bad_offsets((V, CUT, V, CUT), 1)
    yield (
        "segments",
        (V, CUT, V, torch.tensor([0, 6])),
        ValueError,
        "as many sequences of others as of values, 2, got 1",
    )
    yield "dtype", (V, CUT, V.double(), CUT), TypeError, "others of dtype"
    yield "shape", (V, CUT, V[:, :1], CUT), ValueError, "others of shape"
    yield "entry in others", (V, CUT, V[:5], CUT), ValueError, "other_offsets"
    yield "scalar", (V[0, 0], CUT, V, CUT), ValueError, "values with at least 1 dimension"


def unfold_samples(dtype, device):
    turn = itertools.cycle(WINDOWS)

    def make(offsets, width):
        for size, start, dilation in (next(turn), next(turn)):
            x = values(int(offsets[-1]), width, dtype, device)
            yield f" {size} from {start} by {dilation}", (x, offsets, size, start, dilation, 1)

    yield from brief(over_segments(dtype, device, make))


def unfold_errors():
    yield from window_errors("segment_unfold", V, 3, -1)
    yield "size", (V, CUT, 0, 0), ValueError, "size in [1, 2**20], got 0"
    yield "scalar", (V[0, 0], CUT, 1, 0), ValueError, "values with at least 1 dimension"


def fold_samples(dtype, device):
    turn = itertools.cycle(WINDOWS)

    def make(offsets, width):
        for size, start, dilation in (next(turn), next(turn)):
            x = values(int(offsets[-1]), (size, *width), dtype, device)
            yield f" {size} from {start} by {dilation}", (x, offsets, start, dilation)

    yield from brief(over_segments(dtype, device, make))


def fold_errors():
    yield from window_errors("segment_fold", V, -1)
    yield "1-d", (V[:, 0], CUT, 0), ValueError, "values of shape (rows, size, ...), got 1 dimensions"
    yield "bool", (V.bool(), CUT, 0), TypeError, "floating or integer dtype, got Bool"


ENTRIES = [
    OpInfo("run_map", run_map_samples, run_map_errors, (torch.int64,), differentiable=False),
    OpInfo("gather_rows", gather_samples, map_errors("gather_rows"), ALL),
    OpInfo("scatter_rows", scatter_samples, map_errors("scatter_rows"), NUMBERS),
    OpInfo("gather_runs", run_samples("gather_runs"), run_errors("gather_runs"), ALL),
    OpInfo("scatter_runs", run_samples("scatter_runs"), run_errors("scatter_runs"), NUMBERS),
    OpInfo("segment_concat", concat_samples, concat_errors, ALL),
    OpInfo("segment_unfold", unfold_samples, unfold_errors, ALL),
    OpInfo("segment_fold", fold_samples, fold_errors, NUMBERS),
]
