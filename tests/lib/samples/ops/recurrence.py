# SPDX-License-Identifier: Apache-2.0
"""Recurrent layers and their backwards."""

import torch
from reference import ops as reference

from samples.words import CARRIED, CUT, OpInfo, Sample, V, bad_offsets, cuts, values


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
        yield Sample("large", args, large=True)

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
            yield Sample(sample.label, (*grads, x, w_ih, w_hh, *rest, *saved, *projection), large=sample.large)

    return samples


def recurrent_errors(name, gates):
    def errors():
        (w_ih, w_hh), (b_ih, b_hh), states = layer(torch.float32, "cpu", gates, 3, 3, 2, True, True)
        good = (V, w_ih, w_hh, b_ih, b_hh, *states, CUT, False)
        offsets_at = 5 + len(states)

        def put(**changed):
            positions = {"values": 0, "weight_ih": 1, "weight_hh": 2, "bias_ih": 3, "bias_hh": 4, "h_0": 5}
            positions |= {"c_0": 6} if gates == 4 else {}
            out = list(good)
            for key, value in changed.items():
                out[positions[key]] = value
            return tuple(out)

        yield from bad_offsets(good, offsets_at)
        yield "values", put(values=V[0]), ValueError, f"{name}: expected values of shape (rows, features)"
        yield "dtype", put(values=V.long()), TypeError, "expected values of dtype float16"
        yield "features", put(values=V[:, :2]), ValueError, "weight_ih of shape"
        yield "weight", put(weight_hh=w_hh[:-1]), ValueError, "weight_hh of shape"
        yield "weight dtype", put(weight_hh=w_hh.double()), TypeError, "weight_hh of dtype Float"
        yield "bias", put(bias_hh=b_hh[1:]), ValueError, "bias_hh of shape"
        yield "state", put(h_0=states[0][:1]), ValueError, "h_0 of shape [2, 3], got [1, 3]"
        if gates == 4:
            yield "one state", put(c_0=None), ValueError, "h_0 and c_0 together"
            projected = ((V, w_ih, w_hh[:, :2], b_ih, b_hh, *states, CUT, False, w_hh[:2]), ValueError)
            yield "projected state", *projected, "h_0 of shape [2, 2], got [2, 3]"
            yield "projection", (*good, V[0]), ValueError, "weight_hr with 2 dimensions, got 1"
            yield "projection shape", (*good, w_hh[:2]), ValueError, "weight_hr of shape [3, 3], got [2, 3]"

    return errors


def backward_errors(gates):
    def errors():
        sample = next(s for s in backward_samples(gates)(torch.float32, "cpu") if "typical" in s.label)
        at = {4: 7, 3: 5, 1: 5}[gates]
        yield from bad_offsets(sample.args, at)

    return errors


LAYER = {"tolerance": CARRIED, "products": True}
BACKWARD = {**LAYER, "dtypes": (torch.float64, torch.float32), "differentiable": False}
ENTRIES = [
    OpInfo("lstm", recurrent_samples(4), recurrent_errors("lstm", 4), outputs=2, **LAYER),
    OpInfo("gru", recurrent_samples(3), recurrent_errors("gru", 3), **LAYER),
    OpInfo("rnn", recurrent_samples(1), recurrent_errors("rnn", 1), **LAYER),
    OpInfo("lstm_backward", backward_samples(4), backward_errors(4), outputs=7, **BACKWARD),
    OpInfo("gru_backward", backward_samples(3), backward_errors(3), outputs=6, **BACKWARD),
    OpInfo("rnn_backward", backward_samples(1), backward_errors(1), outputs=5, **BACKWARD),
]
