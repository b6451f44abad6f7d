# SPDX-License-Identifier: Apache-2.0
"""The table: one entry per operator. Every law of test_all_ops.py reads it; a new operator adds one entry."""

import op_info_attention as attention
import op_info_moves as moves
import reference
import torch
from op_words import ANY, CUT, FLOATS, WHOLE, WIDE, WIDTHS, OpInfo, Sample, X, bad_offsets, cuts, over_segments, values

# -- rows


def run_map_samples(dtype, device):
    for label, offsets, large in cuts(device):
        for step in (-1, 0, 1, 3):
            starts = torch.arange(len(offsets) - 1, device=device) * 7
            yield Sample(f"{label} step {step}", (starts, offsets, int(offsets[-1]), step), large)


def run_map_errors():
    yield from bad_offsets((torch.arange(2), CUT, 6), 1)
    yield "starts", (torch.arange(3), CUT, 6), ValueError, "one of starts per segment, 2, got 3"
    yield "floating starts", (torch.zeros(2), CUT, 6), TypeError, "starts of dtype int64"


MAPS = {"mixed": [2, 0, -1, 1, 2, 2], "runs": [1, 2, 3, 0, 1], "none": [-1, -1], "empty": [], "one": [3]}


def gather_samples(dtype, device):
    for label, entries in MAPS.items():
        for width in WIDTHS + WIDE:
            row_map = torch.tensor(entries, dtype=torch.int64, device=device)
            for fill in (0, 1):
                yield Sample(
                    f"{label} {width} fill {fill}", (values(4, width, dtype, device), row_map, fill), width in WIDE
                )
    none = torch.tensor([-1, -1], device=device)
    yield Sample("of no rows", (values(0, (3,), dtype, device), none, 0))
    yield Sample("long", (values(3000, (5,), dtype, device), torch.arange(2999, -1, -1, device=device), 0), True)


def map_errors(name):
    extra = {"gather_rows": (), "scatter_rows": (4,)}[name]
    rows = {"gather_rows": 6, "scatter_rows": 4}[name]

    def errors():
        good = torch.tensor([0, 1, 2, -1, 3, 3])
        for wrong in (rows, -2, 2**62, -(2**63)):
            bad = good.clone()
            bad[4] = wrong
            yield f"entry {wrong}", (X, bad, *extra), IndexError, f"map in [-1, {rows - 1}], got {wrong} at index 4"
        yield "floating", (X, good.double(), *extra), TypeError, "map of dtype int64"
        yield "2-d", (X, good[None], *extra), ValueError, "1-D map, got 2 dimensions"
        yield "scalar", (X[0, 0], good, *extra), ValueError, "values with at least 1 dimension, got a scalar"
        if extra:
            yield "length", (X, good[:5], 4), ValueError, "a map entry per row of values, 6, got 5"
            yield "rows", (X, good, -1), ValueError, "rows >= 0, got -1"
            yield "bool", (X.bool(), good, 4), TypeError, "floating or integer dtype, got Bool"

    return errors


def scatter_samples(dtype, device):
    for label, entries in MAPS.items():
        for width in WIDTHS + WIDE:
            row_map = torch.tensor(entries, dtype=torch.int64, device=device)
            yield Sample(f"{label} {width}", (values(len(entries), width, dtype, device), row_map, 5), width in WIDE)
    nowhere = torch.tensor([-1, -1], device=device)
    yield Sample("into no rows", (values(2, (3,), dtype, device), nowhere, 0))
    many = torch.arange(3000, device=device) % 7
    yield Sample("long", (values(3000, (5,), dtype, device), many, 7), True)


# -- segment


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
        yield from bad_offsets((X, CUT, kind, 0.0), 1)
        yield "reduce", (X, CUT, "median", 0.0), ValueError, "'first' or 'last', got 'median'"
        yield "scalar", (X[0, 0], CUT, kind, 0.0), ValueError, "values with at least 1 dimension"
        yield "bool", (X.bool(), CUT, kind, 0.0), TypeError, "floating or integer dtype, got Bool"
        yield "complex", (X.cfloat(), CUT, kind, 0.0), TypeError, "floating or integer dtype"
        yield "pad", (X.long(), CUT, kind, 0.5), ValueError, "whole pad_value for values of dtype Long, got 0.5"
        if name == "segment_extreme":
            yield "kind", (X, CUT, "sum", 0.0), ValueError, "'max' or 'min', got 'sum'"
        else:
            yield "whole mean", (X.long(), CUT, "mean", 0.0), TypeError, "floating dtype for 'mean', got Long"

    return errors


def broadcast_samples(dtype, device):
    def make(offsets, width):
        for reduce in ("sum", "mean", "sqrt") if dtype.is_floating_point else ("sum",):
            x = values(len(offsets) - 1, width, dtype, device)
            yield f" {reduce}", (x, offsets, int(offsets[-1]), reduce)

    yield from over_segments(dtype, device, make)


def broadcast_errors():
    yield "end", (X[:2], torch.tensor([0, 2, 5]), 6, "sum"), ValueError, "equal the 6 rows of values, got 5"
    yield "fall", (X[:2], torch.tensor([0, 7, 6]), 6, "sum"), ValueError, "got 7 then 6 at index 2"
    yield "rows", (X[:3], CUT, 6, "sum"), ValueError, "a row of values per segment, 2, got 3"
    yield "kind", (X[:2], CUT, 6, "max"), ValueError, "'sum', 'mean' or 'sqrt', got 'max'"


def index_for(offsets, width, device):
    """A row of its own segment for every element, some -1, some of another segment."""
    g = torch.Generator().manual_seed(len(offsets))
    out = []
    for a, b in zip(offsets.tolist(), offsets.tolist()[1:]):
        out.append(torch.randint(a - 1, b + 1, width, generator=g).clamp(min=-1))
    return reference.rows_of(out, torch.zeros(0, *width, dtype=torch.int64)).to(device)


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
        x = X if name == "segment_pick" else X[:2]
        tail = () if name == "segment_pick" else (6,)
        yield from bad_offsets((x, index, CUT, *tail), 2) if name == "segment_pick" else ()
        yield "index dtype", (x, index.int(), CUT, *tail), TypeError, "int64 index"
        yield "index shape", (x, index[:, :2], CUT, *tail), ValueError, "index with a row per segment, 2"
        yield "index rows", (x, index[:1], CUT, *tail), ValueError, "index with a row per segment, 2"
        if tail:
            yield "rows", (X[:3], index, CUT, 6), ValueError, "a row of values per segment, 2, got 3"

    return errors


def softmax_samples(dtype, device):
    def make(offsets, width):
        yield "", (values(int(offsets[-1]), width, dtype, device), offsets)

    yield from over_segments(dtype, device, make)


def softmax_backward_samples(dtype, device):
    def make(offsets, width):
        n = int(offsets[-1])
        yield "", (values(n, width, dtype, device), values(n, width, dtype, device, 1).abs(), offsets)

    yield from over_segments(dtype, device, make)


def softmax_errors():
    yield from bad_offsets((X, CUT), 1)
    yield "whole", (X.long(), CUT), TypeError, "values of dtype float16, bfloat16, float32 or float64, got Long"


def softmax_backward_errors():
    yield from bad_offsets((X, X, CUT), 2)
    yield "shape", (X[:, :2], X, CUT), ValueError, "grad of shape [6, 3], got [6, 2]"
    yield "dtype", (X.double(), X, CUT), TypeError, "grad of dtype Float"


# -- recurrence


def layer(dtype, device, gates, features, hidden, n, bias, state, projected=0):
    scale = 0.5 if gates > 1 else 0.2  # without gates, larger weights multiply rounding errors from step to step

    def t(*shape, seed):
        return values(shape[0], shape[1:], dtype, device, seed) * scale

    width = projected or hidden
    weights = [t(gates * hidden, features, seed=1), t(gates * hidden, width, seed=2)]
    biases = [t(gates * hidden, seed=3), t(gates * hidden, seed=4)] if bias else [None, None]
    states = [t(n, width, seed=5), t(n, hidden, seed=6)] if state else [None, None]
    return weights, biases, states[: 2 if gates == 4 else 1]


def recurrent_samples(gates):
    """For every cut and option; RNN's reversed runs are with relu, and LSTM's last ones with a projection."""

    def options(reverse):
        return (reverse, reverse) if gates == 1 else (reverse,)

    def samples(dtype, device):
        for label, offsets, _ in cuts(device, large=False):
            n, x = len(offsets) - 1, values(int(offsets[-1]), (2,), dtype, device)
            for bias, state, reverse in ((True, False, False), (True, True, True), (False, True, False)):
                weights, biases, states = layer(dtype, device, gates, 2, 3, n, bias, state)
                said = f"{label}{' bias' * bias}{' state' * state}{' reverse' * reverse}"
                yield Sample(said, (x, *weights, *biases, *states, offsets.cpu(), *options(reverse)))
            for state in (False, True) if gates == 4 else ():
                weights, biases, states = layer(dtype, device, gates, 2, 3, n, True, state, projected=2)
                weight_hr = values(2, (3,), dtype, device, 7)
                said = f"{label} projected{' state reverse' * state}"
                yield Sample(said, (x, *weights, *biases, *states, offsets.cpu(), state, weight_hr))
        offsets = torch.tensor([0, 9, 9, 11, 40])
        weights, biases, states = layer(dtype, device, gates, 7, 21, 4, True, True)
        args = (values(40, (7,), dtype, device), *weights, *biases, *states, offsets, *options(False))
        yield Sample("large", args, True)

    return samples


def backward_samples(gates):
    forward = {4: reference.lstm, 3: reference.gru, 1: reference.rnn}[gates]
    states = 2 if gates == 4 else 1

    def samples(dtype, device):
        for sample in recurrent_samples(gates)(dtype, device):
            x, w_ih, w_hh, *_ = sample.args
            rest = sample.args[5:]  # states, offsets and options
            saved = forward(x, w_ih, w_hh, None, None, *rest)
            saved = [t.to(dtype) for t in (saved if isinstance(saved, tuple) else (saved,))]
            grads = [values(len(x), saved[i].shape[1:], dtype, device, 8 + i) for i in range(states)]
            if gates == 4 and " bias" in sample.label:
                grads[1] = None
            projection = rest[states + 2 :] if gates == 4 else ()
            rest = rest[: states + 2] if gates == 4 else rest
            yield Sample(sample.label, (*grads, x, w_ih, w_hh, *rest, *saved, *projection), sample.large)

    return samples


def recurrent_errors(name, gates):
    def errors():
        (w_ih, w_hh), (b_ih, b_hh), states = layer(torch.float32, "cpu", gates, 3, 3, 2, True, True)
        good = (X, w_ih, w_hh, b_ih, b_hh, *states, CUT, False)
        offsets_at = 5 + len(states)

        def put(**changed):
            places = {"values": 0, "weight_ih": 1, "weight_hh": 2, "bias_ih": 3, "bias_hh": 4, "h_0": 5}
            places |= {"c_0": 6} if gates == 4 else {}
            out = list(good)
            for key, value in changed.items():
                out[places[key]] = value
            return tuple(out)

        yield from bad_offsets(good, offsets_at)
        yield "values", put(values=X[0]), ValueError, f"{name}: expected values of shape (rows, features)"
        yield "dtype", put(values=X.long()), TypeError, "expected values of dtype float16"
        yield "features", put(values=X[:, :2]), ValueError, "weight_ih of shape"
        yield "weight", put(weight_hh=w_hh[:-1]), ValueError, "weight_hh of shape"
        yield "weight dtype", put(weight_hh=w_hh.double()), TypeError, "weight_hh of dtype Float"
        yield "bias", put(bias_hh=b_hh[1:]), ValueError, "bias_hh of shape"
        yield "state", put(h_0=states[0][:1]), ValueError, "h_0 of shape [2, 3], got [1, 3]"
        if gates == 4:
            yield "one state", put(c_0=None), ValueError, "h_0 and c_0 together"
            projected = ((X, w_ih, w_hh[:, :2], b_ih, b_hh, *states, CUT, False, w_hh[:2]), ValueError)
            yield "projected state", *projected, "h_0 of shape [2, 2], got [2, 3]"
            yield "projection", (*good, X[0]), ValueError, "weight_hr with 2 dimensions, got 1"
            yield "projection shape", (*good, w_hh[:2]), ValueError, "weight_hr of shape [3, 3], got [2, 3]"

    return errors


def backward_errors(name, gates):
    def errors():
        sample = next(s for s in backward_samples(gates)(torch.float32, "cpu") if "typical" in s.label)
        at = {4: 7, 3: 5, 1: 5}[gates]
        yield from bad_offsets(sample.args, at)

    return errors


#: The backward of a half type starts from results that were rounded to it.
COARSE = {torch.float32: (1e-4, 1e-5), torch.bfloat16: (6e-2, 6e-2), torch.float16: (1e-2, 1e-2)}

OPS = [
    OpInfo("run_map", reference.run_map, run_map_samples, run_map_errors, (torch.int64,), differentiable=False),
    OpInfo("gather_rows", reference.gather_rows, gather_samples, map_errors("gather_rows"), FLOATS + WHOLE + ANY),
    OpInfo("scatter_rows", reference.scatter_rows, scatter_samples, map_errors("scatter_rows"), FLOATS + WHOLE),
    OpInfo(
        "gather_runs",
        reference.gather_runs,
        moves.run_samples("gather_runs"),
        moves.run_errors("gather_runs"),
        FLOATS + WHOLE + ANY,
    ),
    OpInfo(
        "scatter_runs",
        reference.scatter_runs,
        moves.run_samples("scatter_runs"),
        moves.run_errors("scatter_runs"),
        FLOATS + WHOLE,
    ),
    OpInfo("segment_unfold", reference.segment_unfold, moves.unfold_samples, moves.unfold_errors, FLOATS + WHOLE + ANY),
    OpInfo("segment_fold", reference.segment_fold, moves.fold_samples, moves.fold_errors, FLOATS + WHOLE),
    OpInfo("segment_conv", reference.segment_conv, moves.conv_samples, moves.conv_errors, tolerance=moves.CARRIED),
    OpInfo(
        "segment_conv_weight",
        reference.segment_conv_weight,
        moves.conv_weight_samples,
        moves.conv_weight_errors,
        tolerance=moves.CARRIED,
    ),
    OpInfo(
        "segment_scan",
        reference.segment_scan,
        moves.scan_samples,
        moves.scan_errors,
        FLOATS + WHOLE,
        shape="segment",
        tolerance=moves.CARRIED,
    ),
    OpInfo(
        "segment_cumulative",
        reference.segment_cumulative,
        moves.cumulative_samples,
        moves.cumulative_errors,
        FLOATS + WHOLE,
        outputs=2,
        shape="segment",
    ),
    OpInfo(
        "segment_reduce",
        reference.segment_reduce,
        reduce_samples(("sum", "mean", "sqrt", "max", "min", "first", "last")),
        reduce_errors("segment_reduce"),
        FLOATS + WHOLE,
        shape="segment",
    ),
    OpInfo(
        "segment_extreme",
        reference.segment_extreme,
        reduce_samples(("max", "min")),
        reduce_errors("segment_extreme"),
        FLOATS + WHOLE,
        outputs=2,
        shape="segment",
    ),
    OpInfo(
        "segment_broadcast",
        reference.segment_broadcast,
        broadcast_samples,
        broadcast_errors,
        FLOATS + WHOLE,
        shape="segment",
    ),
    OpInfo("segment_pick", reference.segment_pick, pick_samples, pick_errors("segment_pick"), FLOATS, shape="segment"),
    OpInfo(
        "segment_place", reference.segment_place, place_samples, pick_errors("segment_place"), FLOATS, shape="segment"
    ),
    OpInfo(
        "segment_softmax",
        reference.segment_softmax,
        softmax_samples,
        softmax_errors,
        tolerance={dtype: COARSE[dtype] for dtype in (torch.bfloat16, torch.float16)},
        shape="segment",
    ),
    OpInfo(
        "segment_softmax_backward",
        reference.segment_softmax_backward,
        softmax_backward_samples,
        softmax_backward_errors,
        tolerance=COARSE,
        shape="segment",
    ),
    OpInfo(
        "lstm",
        reference.lstm,
        recurrent_samples(4),
        recurrent_errors("lstm", 4),
        outputs=2,
        tolerance=COARSE,
        shape="recurrence",
    ),
    OpInfo(
        "gru",
        reference.gru,
        recurrent_samples(3),
        recurrent_errors("gru", 3),
        tolerance=COARSE,
        shape="recurrence",
    ),
    OpInfo(
        "rnn", reference.rnn, recurrent_samples(1), recurrent_errors("rnn", 1), tolerance=COARSE, shape="recurrence"
    ),
    OpInfo(
        "lstm_backward",
        reference.lstm_backward,
        backward_samples(4),
        backward_errors("lstm_backward", 4),
        (torch.float64, torch.float32),
        outputs=7,
        differentiable=False,
        tolerance=COARSE,
        shape="recurrence",
    ),
    OpInfo(
        "gru_backward",
        reference.gru_backward,
        backward_samples(3),
        backward_errors("gru_backward", 3),
        (torch.float64, torch.float32),
        outputs=6,
        differentiable=False,
        tolerance=COARSE,
        shape="recurrence",
    ),
    OpInfo(
        "rnn_backward",
        reference.rnn_backward,
        backward_samples(1),
        backward_errors("rnn_backward", 1),
        (torch.float64, torch.float32),
        outputs=5,
        differentiable=False,
        tolerance=COARSE,
        shape="recurrence",
    ),
    OpInfo(
        "attention",
        reference.attention,
        attention.samples,
        attention.errors(),
        tolerance=COARSE,
        shape="segment",
    ),
    OpInfo(
        "attention_backward",
        reference.attention_backward,
        attention.backward_samples,
        attention.errors("attention_backward"),
        (torch.float64, torch.float32),
        outputs=5,
        differentiable=False,
        tolerance=COARSE,
        shape="segment",
    ),
]
#: Operators without an entry, and why.
WITHOUT = {
    "attention_composed": "the reference of gradients of gradients: gradgradcheck of attention runs it",
    "check_lod": "returns no tensor; tests/test_lod.py",
    "rank_by_length": "a question about structure; tests/test_plan.py",
    "lstm_composed": "the reference of gradients of gradients: gradgradcheck of lstm runs it",
    "gru_composed": "the reference of gradients of gradients: gradgradcheck of gru runs it",
    "rnn_composed": "the reference of gradients of gradients: gradgradcheck of rnn runs it",
}
