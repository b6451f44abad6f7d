# SPDX-License-Identifier: Apache-2.0
"""Shape "recurrence": step t of all sequences together, on rows that are not moved."""

import torch
from torch import Tensor
from torch.nn.functional import linear

from . import check
from .compositions import composed, vjp
from .library import composition, operator
from .steps import by_steps

__all__ = [
    "gru",
    "lstm",
    "rnn",
]


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


def _check_lstm(op, *layer, **others) -> None:
    check.layer(op, 4, *layer, **others)
    if (others["h_0"] is None) != (others["c_0"] is None):
        raise ValueError(f"{op}: expected h_0 and c_0 together, got one of them")


def _lstm(values, weight_ih, weight_hh, bias_ih, bias_hh, h_0, c_0, row_offsets, reverse, weight_hr, known=None):
    """`known`: the gates that the forward found."""
    steps, width, state = Steps(row_offsets, reverse, values.device), weight_hh.shape[0] // 4, weight_hh.shape[1]
    x = linear(values, weight_ih, bias_ih)
    h, c = steps.packed(h_0, x, state), steps.packed(c_0, x, width)
    out, cells, gates = [], [], []
    for z, found in zip(steps.split(x), steps.split(known)):
        n = z.shape[0]
        blocks = (z + linear(h[:n], weight_hh, bias_hh)).chunk(4, 1)
        activations = torch.sigmoid, torch.sigmoid, torch.tanh, torch.sigmoid
        i, f, g, o = (_at(*each) for each in zip(activations, blocks, _chunks(found, 4)))
        c = f * c[:n] + i * g
        h = o * c.tanh()
        h = h if weight_hr is None else h @ weight_hr.t()
        out.append(h), cells.append(c), gates.append(torch.cat([i, f, g, o], 1))
    return steps.joined(out, x, state), steps.joined(cells, x, width), steps.joined(gates, x, 4 * width)


@operator
def lstm(
    values: Tensor,
    weight_ih: Tensor,
    weight_hh: Tensor,
    bias_ih: Tensor | None,
    bias_hh: Tensor | None,
    h_0: Tensor | None,
    c_0: Tensor | None,
    row_offsets: Tensor,
    reverse: bool = False,
    weight_hr: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """One direction of one layer of torch.nn.LSTM, every segment a sequence of its own.

        i, f, o = sigmoid(...), g = tanh(...); c = f c' + i g; h = o tanh(c), or W_hr (o tanh(c)) with a projection

    Args:
        values: (rows, features), a floating dtype.
        weight_ih, weight_hh, bias_ih, bias_hh: (4 hidden, features), (4 hidden, hidden), (4 hidden,), (4 hidden,), in the
            order and layout of torch.nn.LSTM.
        h_0, c_0: (segments, hidden), both or neither; with a projection h_0 is (segments, projected).
        row_offsets: int64, (segments + 1,), in host memory: the host plans the steps.
        reverse: run every sequence from its last row to its first.
        weight_hr: (projected, hidden); weight_hh is then (4 hidden, projected) and h (rows, projected).

    Returns:
        h and c after every row, (rows, hidden) each, in the order of the rows, and the gates i, f, g, o (rows, 4 hidden),
        which have no gradient. Double backward goes through a slower composition.
    """
    others = {"bias_ih": bias_ih, "bias_hh": bias_hh, "h_0": h_0, "c_0": c_0, "weight_hr": weight_hr}
    _check_lstm("lstm", values, weight_ih, weight_hh, row_offsets, **others)
    return _lstm(values, weight_ih, weight_hh, bias_ih, bias_hh, h_0, c_0, row_offsets, reverse, weight_hr)


def _gru(values, weight_ih, weight_hh, bias_ih, bias_hh, h_0, row_offsets, reverse, known=None):
    """`known`: what the forward found."""
    steps, width = Steps(row_offsets, reverse, values.device), weight_hh.shape[1]
    x = linear(values, weight_ih, bias_ih)
    h, out, saved = steps.packed(h_0, x, width), [], []
    for z, found in zip(steps.split(x), steps.split(known)):
        x_r, x_z, x_n = z.chunk(3, 1)
        h = h[: z.shape[0]]
        h_r, h_z, h_n = linear(h, weight_hh, bias_hh).chunk(3, 1)
        known_r, known_z, known_new, known_h = _chunks(found, 4)
        r, z = _at(torch.sigmoid, x_r + h_r, known_r), _at(torch.sigmoid, x_z + h_z, known_z)
        h_n = _at(torch.positive, h_n, known_h)
        new = _at(torch.tanh, x_n + r * h_n, known_new)
        h = (1 - z) * new + z * h
        out.append(h), saved.append(torch.cat([r, z, new, h_n], 1))
    return steps.joined(out, x, width), steps.joined(saved, x, 4 * width)


@operator
def gru(
    values: Tensor,
    weight_ih: Tensor,
    weight_hh: Tensor,
    bias_ih: Tensor | None,
    bias_hh: Tensor | None,
    h_0: Tensor | None,
    row_offsets: Tensor,
    reverse: bool = False,
) -> tuple[Tensor, Tensor]:
    """One direction of one layer of torch.nn.GRU, every segment a sequence of its own.

        r, z = sigmoid(...), n = tanh(x_n + r (W h' + b_n)); h = (1 - z) n + z h'

    Args and errors as `lstm`, with 3 blocks of hidden units in place of 4.

    Returns:
        h after every row, (rows, hidden), and what the backward keeps (rows, 4 hidden), which has no gradient.
    """
    others = {"bias_ih": bias_ih, "bias_hh": bias_hh, "h_0": h_0}
    check.layer("gru", 3, values, weight_ih, weight_hh, row_offsets, **others)
    return _gru(values, weight_ih, weight_hh, bias_ih, bias_hh, h_0, row_offsets, reverse)


def _rnn(values, weight_ih, weight_hh, bias_ih, bias_hh, h_0, row_offsets, reverse, relu, known=None):
    """`known`: what the forward found."""
    steps, width = Steps(row_offsets, reverse, values.device), weight_hh.shape[1]
    x = linear(values, weight_ih, bias_ih)
    h, out = steps.packed(h_0, x, width), []
    for z, found in zip(steps.split(x), steps.split(known)):
        h = _at(torch.relu if relu else torch.tanh, z + linear(h[: z.shape[0]], weight_hh, bias_hh), found)
        out.append(h)
    return steps.joined(out, x, width)


@operator
def rnn(
    values: Tensor,
    weight_ih: Tensor,
    weight_hh: Tensor,
    bias_ih: Tensor | None,
    bias_hh: Tensor | None,
    h_0: Tensor | None,
    row_offsets: Tensor,
    reverse: bool = False,
    relu: bool = False,
) -> Tensor:
    """One direction of one layer of torch.nn.RNN, every segment a sequence of its own.

        h = tanh(x + W h'), or max(0, x + W h') with `relu`

    Args and errors as `lstm`, with 1 block of hidden units in place of 4.

    Returns:
        h after every row, (rows, hidden).
    """
    others = {"bias_ih": bias_ih, "bias_hh": bias_hh, "h_0": h_0}
    check.layer("rnn", 1, values, weight_ih, weight_hh, row_offsets, **others)
    return _rnn(values, weight_ih, weight_hh, bias_ih, bias_hh, h_0, row_offsets, reverse, relu)


@composition
def lstm_composed(*inputs):
    return composed.lstm(*inputs)[:2]


@composition
def gru_composed(*inputs):
    return composed.gru(*inputs)[0]


@composition
def rnn_composed(*inputs):
    return composed.rnn(*inputs)


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
    _check_lstm(
        "lstm_backward", values, weight_ih, weight_hh, row_offsets, h_0=h_0, c_0=c_0, weight_hr=weight_hr, **given
    )

    def forward(values, weight_ih, weight_hh, bias, h, c, weight_hr):
        return _lstm(values, weight_ih, weight_hh, bias, None, h, c, row_offsets, reverse, weight_hr, gates)[:2]

    inputs = values, weight_ih, weight_hh, weight_hh.new_zeros(weight_hh.shape[:1]), h_0, c_0, weight_hr
    found = vjp(forward, inputs, [grad_output, grad_cells])
    width = weight_hh.shape[0] // 4
    return _without_state(found, values, weight_hh.shape[1], width, width)


@composition
def gru_backward(grad_output, values, weight_ih, weight_hh, h_0, row_offsets, reverse, output, saved):
    given = {"h_0": h_0, "grad_output": grad_output, "output": output, "saved": saved}
    check.layer("gru_backward", 3, values, weight_ih, weight_hh, row_offsets, **given)

    def forward(values, weight_ih, weight_hh, bias_ih, bias_hh, h):
        return _gru(values, weight_ih, weight_hh, bias_ih, bias_hh, h, row_offsets, reverse, saved)[:1]

    biases = (weight_hh.new_zeros(weight_hh.shape[:1]) for _ in range(2))
    found = vjp(forward, (values, weight_ih, weight_hh, *biases, h_0), [grad_output])
    return _without_state(found, values, weight_hh.shape[1])


@composition
def rnn_backward(grad_output, values, weight_ih, weight_hh, h_0, row_offsets, reverse, relu, output):
    given = {"h_0": h_0, "grad_output": grad_output, "output": output}
    check.layer("rnn_backward", 1, values, weight_ih, weight_hh, row_offsets, **given)

    def forward(values, weight_ih, weight_hh, bias, h):
        return [_rnn(values, weight_ih, weight_hh, bias, None, h, row_offsets, reverse, relu, output)]

    bias = weight_hh.new_zeros(weight_hh.shape[:1])
    found = vjp(forward, (values, weight_ih, weight_hh, bias, h_0), [grad_output])
    return _without_state(found, values, weight_hh.shape[1])
