# SPDX-License-Identifier: Apache-2.0
"""Shape "recurrence"."""

import torch
from torch import Tensor
from torch.nn.functional import linear

from .. import check
from ..steps import by_steps
from .table import composition, vjp


class Steps:
    """Step t of every sequence together, longest sequences first. Offsets that a tracer holds have no steps: then the results
    have the right shapes, and zeros in them."""

    def __init__(self, row_offsets: Tensor, reverse: bool, device):
        lengths, order = row_offsets.diff().sort(descending=True, stable=True)
        start = (row_offsets[1:] - 1 if reverse else row_offsets[:-1])[order]
        rank, step, sizes = by_steps(
            lengths[:0] if check.has_no_data(lengths) else lengths
        )  # a tracer's size is a symbol
        self.alive = sizes.tolist()
        rows = start[rank] + (-step if reverse else step)
        self.order, self.rows = order.to(device), rows.to(device)

    def packed(self, state: Tensor | None, like: Tensor, width) -> Tensor:
        """An initial state in the order of the steps."""
        return like.new_zeros(self.order.shape[0], width) if state is None else state.index_select(0, self.order)

    def split(self, t: Tensor | None):
        """Rows step by step: one gather for all steps, whose gradient is linear in the rows as well."""
        return [None] * len(self.alive) if t is None else t.index_select(0, self.rows).split(self.alive)

    def joined(self, per_step, like: Tensor, width) -> Tensor:
        """The inverse of `split`."""
        if not per_step:
            return like.new_zeros(like.shape[0], width)
        return torch.cat(per_step).index_select(0, self.rows.argsort())


_SLOPES = {
    torch.sigmoid: lambda y: y * (1 - y),
    torch.tanh: lambda y: 1 - y * y,
    torch.relu: lambda y: (y > 0).to(y.dtype),
    torch.positive: torch.ones_like,
}


def _at(activation, z: Tensor, known: Tensor | None) -> Tensor:
    """activation(z). A backward knows the result from the forward but not the biases in z: it takes the known result, with
    the derivative there."""
    return activation(z) if known is None else known + _SLOPES[activation](known) * (z - z.detach())


def _chunks(known: Tensor | None, count: int):
    return [None] * count if known is None else known.chunk(count, 1)


@composition
def lstm(
    values,
    weight_ih,
    weight_hh,
    bias_ih,
    bias_hh,
    h_0,
    c_0,
    row_offsets,
    reverse=False,
    weight_hr=None,
    *,
    op="lstm",
    **given,
):
    """`given`: what a backward has beside the inputs, `op`: its name."""
    others = {"bias_ih": bias_ih, "bias_hh": bias_hh, "h_0": h_0, "c_0": c_0, "weight_hr": weight_hr}
    check.layer(op, 4, values, weight_ih, weight_hh, row_offsets, **others, **given)
    if (h_0 is None) != (c_0 is None):
        raise ValueError(f"{op}: expected h_0 and c_0 together, got one of them")
    steps, width, state = Steps(row_offsets, reverse, values.device), weight_hh.shape[0] // 4, weight_hh.shape[1]
    x = linear(values, weight_ih, bias_ih)
    h, c = steps.packed(h_0, x, state), steps.packed(c_0, x, width)
    out, cells, gates = [], [], []
    for z, known in zip(steps.split(x), steps.split(given.get("gates"))):
        n = z.shape[0]
        blocks = (z + linear(h[:n], weight_hh, bias_hh)).chunk(4, 1)
        activations = torch.sigmoid, torch.sigmoid, torch.tanh, torch.sigmoid
        i, f, g, o = (_at(*each) for each in zip(activations, blocks, _chunks(known, 4)))
        c = f * c[:n] + i * g
        h = o * c.tanh()
        h = h if weight_hr is None else h @ weight_hr.t()
        out.append(h), cells.append(c), gates.append(torch.cat([i, f, g, o], 1))
    return steps.joined(out, x, state), steps.joined(cells, x, width), steps.joined(gates, x, 4 * width)


@composition
def gru(values, weight_ih, weight_hh, bias_ih, bias_hh, h_0, row_offsets, reverse=False, *, op="gru", **given):
    others = {"bias_ih": bias_ih, "bias_hh": bias_hh, "h_0": h_0}
    check.layer(op, 3, values, weight_ih, weight_hh, row_offsets, **others, **given)
    steps, width = Steps(row_offsets, reverse, values.device), weight_hh.shape[1]
    x = linear(values, weight_ih, bias_ih)
    h, out, saved = steps.packed(h_0, x, width), [], []
    for z, known in zip(steps.split(x), steps.split(given.get("saved"))):
        x_r, x_z, x_n = z.chunk(3, 1)
        h = h[: z.shape[0]]
        h_r, h_z, h_n = linear(h, weight_hh, bias_hh).chunk(3, 1)
        known_r, known_z, known_new, known_h = _chunks(known, 4)
        r, z = _at(torch.sigmoid, x_r + h_r, known_r), _at(torch.sigmoid, x_z + h_z, known_z)
        h_n = _at(torch.positive, h_n, known_h)
        new = _at(torch.tanh, x_n + r * h_n, known_new)
        h = (1 - z) * new + z * h
        out.append(h), saved.append(torch.cat([r, z, new, h_n], 1))
    return steps.joined(out, x, width), steps.joined(saved, x, 4 * width)


@composition
def rnn(
    values, weight_ih, weight_hh, bias_ih, bias_hh, h_0, row_offsets, reverse=False, relu=False, *, op="rnn", **given
):
    others = {"bias_ih": bias_ih, "bias_hh": bias_hh, "h_0": h_0}
    check.layer(op, 1, values, weight_ih, weight_hh, row_offsets, **others, **given)
    steps, width = Steps(row_offsets, reverse, values.device), weight_hh.shape[1]
    x = linear(values, weight_ih, bias_ih)
    h, out = steps.packed(h_0, x, width), []
    for z, known in zip(steps.split(x), steps.split(given.get("output"))):
        h = _at(torch.relu if relu else torch.tanh, z + linear(h[: z.shape[0]], weight_hh, bias_hh), known)
        out.append(h)
    return steps.joined(out, x, width)


@composition
def lstm_composed(*inputs):
    return lstm(*inputs)[:2]


@composition
def gru_composed(*inputs):
    return gru(*inputs)[0]


@composition
def rnn_composed(*inputs):
    return rnn(*inputs)


def _without_state(found, values, *widths):
    """Gradients, empty for the last of them, states and a projection, where none was given."""
    empty = [values.new_empty(0, width) for width in widths]
    return *found[: -len(widths)], *(e if d is None else d for d, e in zip(found[-len(widths) :], empty))


@composition
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
    given = {"grad_output": grad_output, "grad_cells": grad_cells, "output": output, "cells": cells, "gates": gates}

    def forward(values, weight_ih, weight_hh, bias, h, c, weight_hr):
        layer = values, weight_ih, weight_hh, bias, None, h, c, row_offsets, reverse, weight_hr
        return lstm(*layer, op="lstm_backward", **given)[:2]

    inputs = values, weight_ih, weight_hh, weight_hh.new_zeros(weight_hh.shape[:1]), h_0, c_0, weight_hr
    found = vjp(forward, inputs, [grad_output, grad_cells])
    width = weight_hh.shape[0] // 4
    return _without_state(found, values, weight_hh.shape[1], width, width)


@composition
def gru_backward(grad_output, values, weight_ih, weight_hh, h_0, row_offsets, reverse, output, saved):
    def forward(values, weight_ih, weight_hh, bias_ih, bias_hh, h):
        layer = values, weight_ih, weight_hh, bias_ih, bias_hh, h, row_offsets, reverse
        return gru(*layer, op="gru_backward", grad_output=grad_output, output=output, saved=saved)[:1]

    biases = (weight_hh.new_zeros(weight_hh.shape[:1]) for _ in range(2))
    found = vjp(forward, (values, weight_ih, weight_hh, *biases, h_0), [grad_output])
    return _without_state(found, values, weight_hh.shape[1])


@composition
def rnn_backward(grad_output, values, weight_ih, weight_hh, h_0, row_offsets, reverse, relu, output):
    def forward(values, weight_ih, weight_hh, bias, h):
        layer = values, weight_ih, weight_hh, bias, None, h, row_offsets, reverse, relu
        return [rnn(*layer, op="rnn_backward", grad_output=grad_output, output=output)]

    bias = weight_hh.new_zeros(weight_hh.shape[:1])
    found = vjp(forward, (values, weight_ih, weight_hh, bias, h_0), [grad_output])
    return _without_state(found, values, weight_hh.shape[1])
