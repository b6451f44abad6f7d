# SPDX-License-Identifier: Apache-2.0
"""Shape "recurrence"."""

import torch
from torch import Tensor

from .. import check
from .table import composition


class Steps:
    """Step t of every sequence at once, longest sequences first: `at[t]` are the rows visited at step t."""

    def __init__(self, row_offsets: Tensor, reverse: bool, device):
        lengths, self.order = row_offsets.diff().sort(descending=True, stable=True)
        start = (row_offsets[1:] - 1 if reverse else row_offsets[:-1])[self.order]
        longest = int(lengths[0]) if len(lengths) else 0
        alive = [int((lengths > t).sum()) for t in range(longest)]
        self.step = -1 if reverse else 1
        self.at = [(start[:n] + t * self.step).to(device) for t, n in enumerate(alive)]
        self.order = self.order.to(device)

    def packed(self, state: Tensor | None, like: Tensor, width) -> Tensor:
        count = self.order.shape[0]
        return like.new_zeros(count, width) if state is None else state.index_select(0, self.order)

    def to_rows(self, per_step: list[Tensor], like: Tensor, width) -> Tensor:
        if not per_step:
            return like.new_zeros(like.shape[0], width)
        return torch.cat(per_step).index_select(0, torch.cat(self.at).argsort())

    def gradient(self, given: Tensor | None, packed: Tensor) -> Tensor:
        """Of an initial state, in the order of the sequences; empty where none was given."""
        return packed.new_empty(0, packed.shape[1]) if given is None else packed.index_select(0, self.order.argsort())

    def before(self, output: Tensor, initial: Tensor, t: int) -> Tensor:
        """The states that enter step t."""
        if t == 0:
            return initial[: len(self.at[0])]
        return output.index_select(0, self.at[t] - self.step)


def check_lstm(op, values, weight_ih, weight_hh, bias_ih, bias_hh, h_0, c_0, row_offsets, weight_hr, **saved):
    others = {"bias_ih": bias_ih, "bias_hh": bias_hh, "h_0": h_0, "c_0": c_0, "weight_hr": weight_hr, **saved}
    check.layer(op, 4, values, weight_ih, weight_hh, row_offsets, **others)
    if (h_0 is None) != (c_0 is None):
        raise ValueError(f"{op}: expected h_0 and c_0 together, got one of them")


def _lstm(values, weight_ih, weight_hh, bias_ih, bias_hh, h_0, c_0, row_offsets, reverse, weight_hr):
    check_lstm("lstm", values, weight_ih, weight_hh, bias_ih, bias_hh, h_0, c_0, row_offsets, weight_hr)
    steps, width, state = Steps(row_offsets, reverse, values.device), weight_hh.shape[0] // 4, weight_hh.shape[1]
    x = torch.nn.functional.linear(values, weight_ih, bias_ih)
    h, c = steps.packed(h_0, x, state), steps.packed(c_0, x, width)
    out, cells, gates = [], [], []
    for rows in steps.at:
        n = rows.shape[0]
        z = x.index_select(0, rows) + torch.nn.functional.linear(h[:n], weight_hh, bias_hh)
        i, f, g, o = z.chunk(4, 1)
        i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
        c = f * c[:n] + i * g
        h = o * c.tanh()
        h = h if weight_hr is None else h @ weight_hr.t()
        out.append(h), cells.append(c), gates.append(torch.cat([i, f, g, o], 1))
    return steps.to_rows(out, x, state), steps.to_rows(cells, x, width), steps.to_rows(gates, x, 4 * width)


_LSTM = (
    "(Tensor values, Tensor weight_ih, Tensor weight_hh, Tensor? bias_ih, Tensor? bias_hh, Tensor? h_0, Tensor? c_0, "
    "Tensor row_offsets, bool reverse=False, Tensor? weight_hr=None)"
)
_GRU = (
    "(Tensor values, Tensor weight_ih, Tensor weight_hh, Tensor? bias_ih, Tensor? bias_hh, Tensor? h_0, "
    "Tensor row_offsets, bool reverse=False)"
)


@composition(f"lstm{_LSTM} -> (Tensor, Tensor, Tensor)")
def lstm(values, weight_ih, weight_hh, bias_ih, bias_hh, h_0, c_0, row_offsets, reverse=False, weight_hr=None):
    return _lstm(values, weight_ih, weight_hh, bias_ih, bias_hh, h_0, c_0, row_offsets, reverse, weight_hr)


@composition(f"lstm_composed{_LSTM} -> (Tensor, Tensor)")
def lstm_composed(values, weight_ih, weight_hh, bias_ih, bias_hh, h_0, c_0, row_offsets, reverse=False, weight_hr=None):
    return _lstm(values, weight_ih, weight_hh, bias_ih, bias_hh, h_0, c_0, row_offsets, reverse, weight_hr)[:2]


@composition(
    "lstm_backward(Tensor? grad_output, Tensor? grad_cells, Tensor values, Tensor weight_ih, Tensor weight_hh, "
    "Tensor? h_0, Tensor? c_0, Tensor row_offsets, bool reverse, Tensor output, Tensor cells, Tensor gates, "
    "Tensor? weight_hr=None) -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)"
)
def lstm_backward(
    grad_output,
    grad_cells,
    values,
    weight_ih,
    weight_hh,
    h_0,
    c_0,
    row_offsets,
    reverse,
    output,
    cells,
    gates,
    weight_hr=None,
):
    rows = {"grad_output": grad_output, "grad_cells": grad_cells, "output": output, "cells": cells, "gates": gates}
    layer = (values, weight_ih, weight_hh, None, None, h_0, c_0, row_offsets, weight_hr)
    check_lstm("lstm_backward", *layer, **rows)
    steps, width, state = Steps(row_offsets, reverse, values.device), weight_hh.shape[0] // 4, weight_hh.shape[1]
    grad_output = torch.zeros_like(output) if grad_output is None else grad_output
    grad_cells = torch.zeros_like(cells) if grad_cells is None else grad_cells
    h_first, c_first = steps.packed(h_0, values, state), steps.packed(c_0, values, width)
    dh, dc = torch.zeros_like(h_first), torch.zeros_like(c_first)
    grad = values.new_zeros(values.shape[0], 4 * width)
    d_weight = torch.zeros_like(weight_hh)
    d_projection = values.new_empty(0, width) if weight_hr is None else torch.zeros_like(weight_hr)
    for t in reversed(range(len(steps.at))):
        rows = steps.at[t]
        n = rows.shape[0]
        i, f, g, o = gates.index_select(0, rows).chunk(4, 1)
        squashed = cells.index_select(0, rows).tanh()
        d_state = dh[:n] + grad_output.index_select(0, rows)
        if weight_hr is not None:
            d_projection += d_state.t() @ (o * squashed)
            d_state = d_state @ weight_hr
        d_cell = dc[:n] + grad_cells.index_select(0, rows) + d_state * o * (1 - squashed**2)
        d_z = [
            d_cell * g * i * (1 - i),
            d_cell * steps.before(cells, c_first, t) * f * (1 - f),
            d_cell * i * (1 - g**2),
            d_state * squashed * o * (1 - o),
        ]
        d_z = torch.cat(d_z, 1)
        grad[rows] = d_z
        d_weight += d_z.t() @ steps.before(output, h_first, t)
        dh[:n], dc[:n] = d_z @ weight_hh, d_cell * f
    states = [steps.gradient(given, d) for given, d in ((h_0, dh), (c_0, dc))]
    return grad @ weight_ih, grad.t() @ values, d_weight, grad.sum(0), *states, d_projection


def check_gru_backward(grad_output, values, weight_ih, weight_hh, h_0, row_offsets, output, saved):
    rows = {"grad_output": grad_output, "output": output, "saved": saved}
    check.layer("gru_backward", 3, values, weight_ih, weight_hh, row_offsets, h_0=h_0, **rows)


def _gru(values, weight_ih, weight_hh, bias_ih, bias_hh, h_0, row_offsets, reverse):
    check.layer("gru", 3, values, weight_ih, weight_hh, row_offsets, bias_ih=bias_ih, bias_hh=bias_hh, h_0=h_0)
    steps, width = Steps(row_offsets, reverse, values.device), weight_hh.shape[1]
    x = torch.nn.functional.linear(values, weight_ih, bias_ih)
    h, out, saved = steps.packed(h_0, x, width), [], []
    for rows in steps.at:
        n = rows.shape[0]
        x_r, x_z, x_n = x.index_select(0, rows).chunk(3, 1)
        h_r, h_z, h_n = torch.nn.functional.linear(h[:n], weight_hh, bias_hh).chunk(3, 1)
        r, z = (x_r + h_r).sigmoid(), (x_z + h_z).sigmoid()
        new = (x_n + r * h_n).tanh()
        h = (1 - z) * new + z * h[:n]
        out.append(h), saved.append(torch.cat([r, z, new, h_n], 1))
    return steps.to_rows(out, x, width), steps.to_rows(saved, x, 4 * width)


@composition(f"gru{_GRU} -> (Tensor, Tensor)")
def gru(values, weight_ih, weight_hh, bias_ih, bias_hh, h_0, row_offsets, reverse=False):
    return _gru(values, weight_ih, weight_hh, bias_ih, bias_hh, h_0, row_offsets, reverse)


@composition(f"gru_composed{_GRU} -> Tensor")
def gru_composed(values, weight_ih, weight_hh, bias_ih, bias_hh, h_0, row_offsets, reverse=False):
    return _gru(values, weight_ih, weight_hh, bias_ih, bias_hh, h_0, row_offsets, reverse)[0]


@composition(
    "gru_backward(Tensor grad_output, Tensor values, Tensor weight_ih, Tensor weight_hh, Tensor? h_0, "
    "Tensor row_offsets, bool reverse, Tensor output, Tensor saved) "
    "-> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)"
)
def gru_backward(grad_output, values, weight_ih, weight_hh, h_0, row_offsets, reverse, output, saved):
    check_gru_backward(grad_output, values, weight_ih, weight_hh, h_0, row_offsets, output, saved)
    steps, width = Steps(row_offsets, reverse, values.device), weight_hh.shape[1]
    first = steps.packed(h_0, values, width)
    dh, d_weight = torch.zeros_like(first), torch.zeros_like(weight_hh)
    d_values, d_hidden = (values.new_zeros(values.shape[0], 3 * width) for _ in range(2))
    for t in reversed(range(len(steps.at))):
        rows = steps.at[t]
        n = rows.shape[0]
        r, z, new, h_n = saved.index_select(0, rows).chunk(4, 1)
        before = steps.before(output, first, t)
        d_state = dh[:n] + grad_output.index_select(0, rows)
        d_n = d_state * (1 - z) * (1 - new**2)
        d_r, d_z = d_n * h_n * r * (1 - r), d_state * (before - new) * z * (1 - z)
        d_values[rows], d_step = torch.cat([d_r, d_z, d_n], 1), torch.cat([d_r, d_z, d_n * r], 1)
        d_hidden[rows] = d_step
        d_weight += d_step.t() @ before
        dh[:n] = d_state * z + d_step @ weight_hh
    state = steps.gradient(h_0, dh)
    return d_values @ weight_ih, d_values.t() @ values, d_weight, d_values.sum(0), d_hidden.sum(0), state


_RNN = (
    "(Tensor values, Tensor weight_ih, Tensor weight_hh, Tensor? bias_ih, Tensor? bias_hh, Tensor? h_0, "
    "Tensor row_offsets, bool reverse=False, bool relu=False) -> Tensor"
)


def check_rnn_backward(grad_output, values, weight_ih, weight_hh, h_0, row_offsets, output):
    rows = {"grad_output": grad_output, "output": output}
    check.layer("rnn_backward", 1, values, weight_ih, weight_hh, row_offsets, h_0=h_0, **rows)


def _rnn(values, weight_ih, weight_hh, bias_ih, bias_hh, h_0, row_offsets, reverse, relu):
    check.layer("rnn", 1, values, weight_ih, weight_hh, row_offsets, bias_ih=bias_ih, bias_hh=bias_hh, h_0=h_0)
    steps, width = Steps(row_offsets, reverse, values.device), weight_hh.shape[1]
    x = torch.nn.functional.linear(values, weight_ih, bias_ih)
    h, out = steps.packed(h_0, x, width), []
    for rows in steps.at:
        z = x.index_select(0, rows) + torch.nn.functional.linear(h[: rows.shape[0]], weight_hh, bias_hh)
        h = z.relu() if relu else z.tanh()
        out.append(h)
    return steps.to_rows(out, x, width)


@composition(f"rnn{_RNN}")
def rnn(values, weight_ih, weight_hh, bias_ih, bias_hh, h_0, row_offsets, reverse=False, relu=False):
    return _rnn(values, weight_ih, weight_hh, bias_ih, bias_hh, h_0, row_offsets, reverse, relu)


@composition(f"rnn_composed{_RNN}")
def rnn_composed(values, weight_ih, weight_hh, bias_ih, bias_hh, h_0, row_offsets, reverse=False, relu=False):
    return _rnn(values, weight_ih, weight_hh, bias_ih, bias_hh, h_0, row_offsets, reverse, relu)


@composition(
    "rnn_backward(Tensor grad_output, Tensor values, Tensor weight_ih, Tensor weight_hh, Tensor? h_0, "
    "Tensor row_offsets, bool reverse, bool relu, Tensor output) -> (Tensor, Tensor, Tensor, Tensor, Tensor)"
)
def rnn_backward(grad_output, values, weight_ih, weight_hh, h_0, row_offsets, reverse, relu, output):
    check_rnn_backward(grad_output, values, weight_ih, weight_hh, h_0, row_offsets, output)
    steps, width = Steps(row_offsets, reverse, values.device), weight_hh.shape[1]
    first = steps.packed(h_0, values, width)
    dh, d_weight = torch.zeros_like(first), torch.zeros_like(weight_hh)
    grad = values.new_zeros(values.shape[0], width)
    for t in reversed(range(len(steps.at))):
        rows = steps.at[t]
        h = output.index_select(0, rows)
        d_z = (dh[: rows.shape[0]] + grad_output.index_select(0, rows)) * ((h > 0) if relu else 1 - h**2)
        grad[rows] = d_z
        d_weight += d_z.t() @ steps.before(output, first, t)
        dh[: rows.shape[0]] = d_z @ weight_hh
    return grad @ weight_ih, grad.t() @ values, d_weight, grad.sum(0), steps.gradient(h_0, dh)
