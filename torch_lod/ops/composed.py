# SPDX-License-Identifier: Apache-2.0
"""Every operator as a composition of torch operators: simple rather than fast.

They stand in when the compiled operators are missing and on devices without kernels, carry torch.func transforms and
gradients of gradients of the recurrences, and are a second opinion in the tests.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from . import check


class Composition(NamedTuple):
    schema: str
    function: Callable


COMPOSITIONS: dict[str, Composition] = {}
#: Their steps are planned by the host, so tracers must see one operator and never look inside.
OPAQUE = ("lstm", "lstm_backward", "gru", "gru_backward")


def composition(schema: str):
    def register_one(function):
        COMPOSITIONS[schema.split("(")[0]] = Composition(schema, function)
        return function

    return register_one


@composition("check_lod(Tensor[] offsets, int rows) -> int[]")
def check_lod(offsets, rows):
    report = [0]
    for level, t in enumerate(offsets):
        if t.layout != torch.strided or t.device.type != "cpu" or t.dtype != torch.int64 or t.dim() != 1:
            raise TypeError("check_lod: expected contiguous 1-D int64 offsets in host memory")
        if t.numel() == 0:
            return [1, level, 0, 1, 0]
    for level, t in enumerate(offsets):
        end = offsets[level + 1].numel() - 1 if level + 1 < len(offsets) else rows
        rule, *where = check.find_fault(t, end)
        if rule:
            return [1 + rule, level, *where]
        report.append(int(t.diff().max()) if t.numel() > 1 else 0)
    return report


# -- rows


def _segment_of_rows(row_offsets: Tensor, rows) -> Tensor:
    return torch.repeat_interleave(row_offsets.diff(), output_size=rows)


def _like_rows(t: Tensor, like: Tensor) -> Tensor:
    """A vector over rows, shaped to be combined with `like`."""
    return t.view(-1, *[1] * (like.dim() - 1))


@composition("run_map(Tensor starts, Tensor row_offsets, SymInt rows, int step=1) -> Tensor")
def run_map(starts, row_offsets, rows, step=1):
    check.index("run_map", "starts", starts, getattr(starts, "device", None))
    check.offsets_kind("run_map", row_offsets, starts.device)
    if starts.shape[0] != row_offsets.shape[0] - 1:
        count = row_offsets.shape[0] - 1
        raise ValueError(f"run_map: expected one of starts per segment, {count}, got {starts.shape[0]}")
    check.row_count("run_map", rows)
    check.offsets("run_map", row_offsets, rows)
    segment = _segment_of_rows(row_offsets, rows)
    return starts[segment] + step * (torch.arange(rows, device=starts.device) - row_offsets[segment])


@composition("gather_rows(Tensor values, Tensor map, Scalar fill=0) -> Tensor")
def gather_rows(values, map, fill=0):
    check.has_rows("gather_rows", "values", values)
    check.index("gather_rows", "map", map, values.device)
    check.row_map("gather_rows", "map", map, values.shape[0])
    rows = values.shape[0]
    x = _wide(values)
    filled = torch.cat([x, x.new_full((1, *values.shape[1:]), fill)])
    return filled.index_select(0, torch.where(map < 0, rows, map)).to(values.dtype)


@composition("scatter_rows(Tensor values, Tensor map, SymInt rows) -> Tensor")
def scatter_rows(values, map, rows):
    check.has_rows("scatter_rows", "values", values)
    check.is_number("scatter_rows", values)
    check.index("scatter_rows", "map", map, values.device)
    if map.shape[0] != values.shape[0]:
        raise ValueError(f"scatter_rows: expected a map entry per row of values, {values.shape[0]}, got {map.shape[0]}")
    check.row_count("scatter_rows", rows)
    check.row_map("scatter_rows", "map", map, rows)
    return _sum_by(torch.where(map < 0, rows, map), values, rows + 1)[:rows]


def _wide(t: Tensor) -> Tensor:
    """What half types are summed in, forwards and backwards."""
    return t.float() if t.dtype in (torch.float16, torch.bfloat16) else t


def _sum_by(ids: Tensor, values: Tensor, count) -> Tensor:
    """Row i of the result: the sum of the rows of values whose id is i."""
    x = _wide(values)
    return x.new_zeros(count, *values.shape[1:]).index_add(0, ids, x).to(values.dtype)


# -- segment


def _holds(dtype: torch.dtype, number: float) -> bool:
    """Whether a whole dtype holds a number."""
    if number != number or number % 1:
        return False
    most = {torch.uint8: 255, torch.int8: 127, torch.int16: 32767, torch.int32: 2147483647}.get(dtype, 9e15)
    return (0 if dtype == torch.uint8 else -most) <= number <= most


def _check_reduce(op, values, row_offsets, reduce, pad_value=0.0) -> None:
    check.segments(op, values, row_offsets)
    if reduce not in ("sum", "mean", "sqrt", "max", "min", "first", "last"):
        raise ValueError(
            f"{op}: expected reduce 'sum', 'mean', 'sqrt', 'max', 'min', 'first' or 'last', got '{reduce}'"
        )
    if reduce not in ("first", "last"):
        check.is_number(op, values)
    whole = not values.dtype.is_floating_point and not values.dtype.is_complex and values.dtype != torch.bool
    if whole and reduce in ("mean", "sqrt"):
        raise TypeError(f"{op}: expected values of a floating dtype for '{reduce}', got {check.dtype_name(values)}")
    if whole and not _holds(values.dtype, pad_value):
        raise ValueError(
            f"{op}: expected a whole pad_value for values of dtype {check.dtype_name(values)}, got {pad_value:g}"
        )


@composition("segment_reduce(Tensor values, Tensor row_offsets, str reduce, float pad_value=0.0) -> Tensor")
def segment_reduce(values, row_offsets, reduce, pad_value=0.0):
    _check_reduce("segment_reduce", values, row_offsets, reduce, pad_value)
    check.offsets("segment_reduce", row_offsets, values.shape[0])
    whole = not values.dtype.is_floating_point and not values.dtype.is_complex
    pad = (pad_value != 0) if values.dtype == torch.bool else int(pad_value) if whole else pad_value
    if reduce in ("first", "last"):
        begin, end = row_offsets[:-1], row_offsets[1:]
        row = torch.where(end > begin, begin if reduce == "first" else end - 1, -1)
        return gather_rows(values, row, pad)
    empty = _like_rows(row_offsets.diff() == 0, values)
    if reduce in ("max", "min"):
        _, index = segment_extreme(values.detach(), row_offsets, reduce)
        return torch.where(empty, pad, segment_pick(values, index, row_offsets))
    total = _sum_by(_segment_of_rows(row_offsets, values.shape[0]), values, row_offsets.shape[0] - 1)
    return torch.where(empty, pad, _divided(total, row_offsets, reduce))


def _divided(values: Tensor, row_offsets: Tensor, reduce: str) -> Tensor:
    """Rows of segments divided as the reduction divides."""
    if reduce == "sum":
        return values
    length = row_offsets.diff().clamp(min=1).to(torch.float64 if values.dtype == torch.float64 else torch.float32)
    return (values / _like_rows(length if reduce == "mean" else length.sqrt(), values)).to(values.dtype)


@composition("segment_extreme(Tensor values, Tensor row_offsets, str reduce, float pad_value=0.0) -> (Tensor, Tensor)")
def segment_extreme(values, row_offsets, reduce, pad_value=0.0):
    _check_reduce("segment_extreme", values, row_offsets, reduce, pad_value)
    if reduce not in ("max", "min"):
        raise ValueError(f"segment_extreme: expected reduce 'max' or 'min', got '{reduce}'")
    check.offsets("segment_extreme", row_offsets, values.shape[0])
    rows, x = values.shape[0], values.detach()
    segment = _segment_of_rows(row_offsets, rows)
    where = _like_rows(segment, x).expand_as(x)
    shape = (row_offsets.shape[0] - 1, *values.shape[1:])
    best = x.new_zeros(shape).scatter_reduce(0, where, x, "amax" if reduce == "max" else "amin", include_self=False)
    here = (x == best.index_select(0, segment)) | (x != x)
    candidates = torch.where(here, _like_rows(torch.arange(rows, device=x.device), x), rows)
    index = row_offsets.new_full(shape, rows).scatter_reduce(0, where, candidates, "amin")
    index = torch.where(index == rows, -1, index)
    pad = pad_value if values.dtype.is_floating_point else int(pad_value)
    empty = _like_rows(row_offsets.diff() == 0, values)
    return torch.where(empty, pad, segment_pick(values, index, row_offsets)), index


@composition("segment_broadcast(Tensor values, Tensor row_offsets, SymInt rows, str reduce='sum') -> Tensor")
def segment_broadcast(values, row_offsets, rows, reduce="sum"):
    _check_reduce("segment_broadcast", values, row_offsets, reduce)
    if reduce not in ("sum", "mean", "sqrt"):
        raise ValueError(f"segment_broadcast: expected reduce 'sum', 'mean' or 'sqrt', got '{reduce}'")
    check.row_per_segment("segment_broadcast", values, row_offsets)
    check.row_count("segment_broadcast", rows)
    check.offsets("segment_broadcast", row_offsets, rows)
    divided = _divided(_wide(values), row_offsets, reduce)
    return divided.index_select(0, _segment_of_rows(row_offsets, rows)).to(values.dtype)


def _check_pick(op, values, index, row_offsets) -> None:
    check.segments(op, values, row_offsets)
    check.is_number(op, values)
    if index.dtype != torch.int64 or index.device != values.device:
        raise TypeError(
            f"{op}: expected an int64 index on {values.device}, got {check.dtype_name(index)} on {index.device}"
        )
    segments = row_offsets.shape[0] - 1
    if index.dim() != values.dim() or index.shape[0] != segments or index.shape[1:] != values.shape[1:]:
        raise ValueError(
            f"{op}: expected an index with a row per segment, {segments}, of the shape of a row of values, "
            f"{list(values.shape)}, got {list(index.shape)}"
        )


def _known(index: Tensor, row_offsets: Tensor, otherwise) -> Tensor:
    """`index` where it is a row of its own segment."""
    begin, end = _like_rows(row_offsets[:-1], index), _like_rows(row_offsets[1:], index)
    return torch.where((index >= begin) & (index < end), index, otherwise)


@composition("segment_pick(Tensor values, Tensor index, Tensor row_offsets) -> Tensor")
def segment_pick(values, index, row_offsets):
    _check_pick("segment_pick", values, index, row_offsets)
    check.offsets("segment_pick", row_offsets, values.shape[0])
    filled = torch.cat([values, values.new_zeros(1, *values.shape[1:])])
    return filled.gather(0, _known(index, row_offsets, values.shape[0]))


@composition("segment_place(Tensor values, Tensor index, Tensor row_offsets, SymInt rows) -> Tensor")
def segment_place(values, index, row_offsets, rows):
    _check_pick("segment_place", values, index, row_offsets)
    check.row_per_segment("segment_place", values, row_offsets)
    check.row_count("segment_place", rows)
    check.offsets("segment_place", row_offsets, rows)
    out = values.new_zeros(rows + 1, *values.shape[1:])
    return out.scatter(0, _known(index, row_offsets, rows), values)[:rows]


@composition("segment_softmax(Tensor values, Tensor row_offsets) -> Tensor")
def segment_softmax(values, row_offsets):
    check.segments("segment_softmax", values, row_offsets)
    check.is_floating("segment_softmax", "values", values)
    check.offsets("segment_softmax", row_offsets, values.shape[0])
    x = _wide(values)
    segment, count = _segment_of_rows(row_offsets, x.shape[0]), row_offsets.shape[0] - 1
    top, _ = segment_extreme(x.detach(), row_offsets, "max")
    e = (x - top.index_select(0, segment)).exp()
    return (e / _sum_by(segment, e, count).index_select(0, segment)).to(values.dtype)


@composition("segment_softmax_backward(Tensor grad, Tensor output, Tensor row_offsets) -> Tensor")
def segment_softmax_backward(grad, output, row_offsets):
    op = "segment_softmax_backward"
    check.segments(op, output, row_offsets)
    check.is_floating(op, "output", output)
    if grad.dtype != output.dtype or grad.device != output.device:
        raise TypeError(
            f"{op}: expected grad of dtype {check.dtype_name(output)} on {output.device}, got "
            f"{check.dtype_name(grad)} on {grad.device}"
        )
    if grad.shape != output.shape:
        raise ValueError(f"{op}: expected grad of shape {list(output.shape)}, got {list(grad.shape)}")
    check.offsets(op, row_offsets, output.shape[0])
    segment, count = _segment_of_rows(row_offsets, output.shape[0]), row_offsets.shape[0] - 1
    g, y = _wide(grad), _wide(output)
    return (y * (g - _sum_by(segment, g * y, count).index_select(0, segment))).to(output.dtype)


# -- recurrence


class _Steps:
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

    def to_sequences(self, state: Tensor) -> Tensor:
        return state.index_select(0, self.order.argsort())

    def before(self, output: Tensor, initial: Tensor, t: int) -> Tensor:
        """The states that enter step t."""
        if t == 0:
            return initial[: len(self.at[0])]
        return output.index_select(0, self.at[t] - self.step)


def _check_lstm(op, values, weight_ih, weight_hh, bias_ih, bias_hh, h_0, c_0, row_offsets):
    check.layer(op, 4, values, weight_ih, weight_hh, row_offsets, bias_ih=bias_ih, bias_hh=bias_hh, h_0=h_0, c_0=c_0)
    if (h_0 is None) != (c_0 is None):
        raise ValueError(f"{op}: expected h_0 and c_0 together, got one of them")


def _lstm(values, weight_ih, weight_hh, bias_ih, bias_hh, h_0, c_0, row_offsets, reverse):
    _check_lstm("lstm", values, weight_ih, weight_hh, bias_ih, bias_hh, h_0, c_0, row_offsets)
    steps, width = _Steps(row_offsets, reverse, values.device), weight_hh.shape[1]
    x = torch.nn.functional.linear(values, weight_ih, bias_ih)
    h, c = steps.packed(h_0, x, width), steps.packed(c_0, x, width)
    out, cells, gates = [], [], []
    for rows in steps.at:
        n = rows.shape[0]
        z = x.index_select(0, rows) + torch.nn.functional.linear(h[:n], weight_hh, bias_hh)
        i, f, g, o = z.chunk(4, 1)
        i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
        c = f * c[:n] + i * g
        h = o * c.tanh()
        out.append(h), cells.append(c), gates.append(torch.cat([i, f, g, o], 1))
    return steps.to_rows(out, x, width), steps.to_rows(cells, x, width), steps.to_rows(gates, x, 4 * width)


_LSTM = (
    "(Tensor values, Tensor weight_ih, Tensor weight_hh, Tensor? bias_ih, Tensor? bias_hh, Tensor? h_0, Tensor? c_0, "
    "Tensor row_offsets, bool reverse=False)"
)
_GRU = (
    "(Tensor values, Tensor weight_ih, Tensor weight_hh, Tensor? bias_ih, Tensor? bias_hh, Tensor? h_0, "
    "Tensor row_offsets, bool reverse=False)"
)


@composition(f"lstm{_LSTM} -> (Tensor, Tensor, Tensor)")
def lstm(values, weight_ih, weight_hh, bias_ih, bias_hh, h_0, c_0, row_offsets, reverse=False):
    return _lstm(values, weight_ih, weight_hh, bias_ih, bias_hh, h_0, c_0, row_offsets, reverse)


@composition(f"lstm_composed{_LSTM} -> (Tensor, Tensor)")
def lstm_composed(values, weight_ih, weight_hh, bias_ih, bias_hh, h_0, c_0, row_offsets, reverse=False):
    return _lstm(values, weight_ih, weight_hh, bias_ih, bias_hh, h_0, c_0, row_offsets, reverse)[:2]


@composition(
    "lstm_backward(Tensor? grad_output, Tensor? grad_cells, Tensor values, Tensor weight_ih, Tensor weight_hh, "
    "Tensor? h_0, Tensor? c_0, Tensor row_offsets, bool reverse, Tensor output, Tensor cells, Tensor gates) "
    "-> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)"
)
def lstm_backward(
    grad_output, grad_cells, values, weight_ih, weight_hh, h_0, c_0, row_offsets, reverse, output, cells, gates
):
    _check_lstm_backward(
        grad_output, grad_cells, values, weight_ih, weight_hh, h_0, c_0, row_offsets, output, cells, gates
    )
    steps, width = _Steps(row_offsets, reverse, values.device), weight_hh.shape[1]
    grad_output = torch.zeros_like(output) if grad_output is None else grad_output
    grad_cells = torch.zeros_like(cells) if grad_cells is None else grad_cells
    h_first, c_first = steps.packed(h_0, values, width), steps.packed(c_0, values, width)
    dh, dc = torch.zeros_like(h_first), torch.zeros_like(c_first)
    grad = values.new_zeros(values.shape[0], 4 * width)
    d_weight = torch.zeros_like(weight_hh)
    for t in reversed(range(len(steps.at))):
        rows = steps.at[t]
        n = rows.shape[0]
        i, f, g, o = gates.index_select(0, rows).chunk(4, 1)
        squashed = cells.index_select(0, rows).tanh()
        d_state = dh[:n] + grad_output.index_select(0, rows)
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
    states = [
        values.new_empty(0, width) if first is None else steps.to_sequences(d) for first, d in ((h_0, dh), (c_0, dc))
    ]
    return grad @ weight_ih, grad.t() @ values, d_weight, grad.sum(0), *states


def _check_lstm_backward(
    grad_output, grad_cells, values, weight_ih, weight_hh, h_0, c_0, row_offsets, output, cells, gates
):
    rows = {"grad_output": grad_output, "grad_cells": grad_cells, "output": output, "cells": cells, "gates": gates}
    check.layer("lstm_backward", 4, values, weight_ih, weight_hh, row_offsets, h_0=h_0, c_0=c_0, **rows)


def _check_gru_backward(grad_output, values, weight_ih, weight_hh, h_0, row_offsets, output, saved):
    rows = {"grad_output": grad_output, "output": output, "saved": saved}
    check.layer("gru_backward", 3, values, weight_ih, weight_hh, row_offsets, h_0=h_0, **rows)


def _gru(values, weight_ih, weight_hh, bias_ih, bias_hh, h_0, row_offsets, reverse):
    check.layer("gru", 3, values, weight_ih, weight_hh, row_offsets, bias_ih=bias_ih, bias_hh=bias_hh, h_0=h_0)
    steps, width = _Steps(row_offsets, reverse, values.device), weight_hh.shape[1]
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
    _check_gru_backward(grad_output, values, weight_ih, weight_hh, h_0, row_offsets, output, saved)
    steps, width = _Steps(row_offsets, reverse, values.device), weight_hh.shape[1]
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
    state = values.new_empty(0, width) if h_0 is None else steps.to_sequences(dh)
    return d_values @ weight_ih, d_values.t() @ values, d_weight, d_values.sum(0), d_hidden.sum(0), state


# -- registration


def register(library: torch.library.Library, compiled: bool) -> torch.library.Library:
    """Gives every schema its composition: beside the compiled kernels for devices that have none, or in their place."""
    tags = (torch.Tag.pt2_compliant_tag,)
    for name, (schema, function) in COMPOSITIONS.items():
        if not compiled:
            library.define(schema, tags=tags)
        if name.endswith("_composed") or (not compiled and name not in OPAQUE and name != "check_lod"):
            library.impl(name, function, "CompositeImplicitAutograd")
        elif name != "check_lod" or not compiled:
            library.impl(name, function, "CompositeExplicitAutograd")
    if not compiled:
        _register_opaque(library)
    return library


def _register_opaque(library: torch.library.Library) -> None:
    ops = torch.ops.torch_lod

    def rows_by(values, width):
        return values.new_empty(values.shape[0], width)

    def fake_lstm(values, weight_ih, weight_hh, bias_ih, bias_hh, h_0, c_0, row_offsets, reverse=False):
        _check_lstm("lstm", values, weight_ih, weight_hh, bias_ih, bias_hh, h_0, c_0, row_offsets)
        width = weight_hh.shape[1]
        return rows_by(values, width), rows_by(values, width), rows_by(values, 4 * width)

    def fake_gru(values, weight_ih, weight_hh, bias_ih, bias_hh, h_0, row_offsets, reverse=False):
        check.layer("gru", 3, values, weight_ih, weight_hh, row_offsets, bias_ih=bias_ih, bias_hh=bias_hh, h_0=h_0)
        return rows_by(values, weight_hh.shape[1]), rows_by(values, 4 * weight_hh.shape[1])

    def fake_state(state, values, width):
        return values.new_empty(0, width) if state is None else torch.empty_like(state)

    def fake_lstm_backward(
        grad_output, grad_cells, values, weight_ih, weight_hh, h_0, c_0, row_offsets, reverse, *saved
    ):
        _check_lstm_backward(grad_output, grad_cells, values, weight_ih, weight_hh, h_0, c_0, row_offsets, *saved)
        bias = values.new_empty(weight_hh.shape[0])
        states = [fake_state(s, values, weight_hh.shape[1]) for s in (h_0, c_0)]
        return torch.empty_like(values), torch.empty_like(weight_ih), torch.empty_like(weight_hh), bias, *states

    def fake_gru_backward(grad_output, values, weight_ih, weight_hh, h_0, row_offsets, reverse, *saved):
        _check_gru_backward(grad_output, values, weight_ih, weight_hh, h_0, row_offsets, *saved)
        biases = [values.new_empty(weight_hh.shape[0]) for _ in range(2)]
        state = fake_state(h_0, values, weight_hh.shape[1])
        return torch.empty_like(values), torch.empty_like(weight_ih), torch.empty_like(weight_hh), *biases, state

    for name, fake in (
        ("lstm", fake_lstm),
        ("gru", fake_gru),
        ("lstm_backward", fake_lstm_backward),
        ("gru_backward", fake_gru_backward),
    ):
        torch.library.register_fake(f"torch_lod::{name}", fake, lib=library)

    def save(ctx, inputs, output):
        *tensors, ctx.reverse = inputs
        ctx.save_for_backward(*tensors, *output)
        ctx.mark_non_differentiable(output[-1])
        ctx.set_materialize_grads(False)

    def differentiable(ctx, tensors, compose, grads):
        """Gradients that can be differentiated: autograd's own, through the composition run on aliases of the inputs."""
        aliases = [t if t is None else t.view_as(t) for t in tensors]
        outputs = compose(*aliases, ctx.reverse)
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        wanted = [a for a, t in zip(aliases, tensors) if t is not None and t.requires_grad]
        pairs = [(o, g) for o, g in zip(outputs, grads) if g is not None and o.requires_grad]
        if not pairs:  # no rows: nothing depends on anything
            return [None] * len(tensors)
        outs, given = zip(*pairs)
        found = iter(torch.autograd.grad(outs, wanted, given, create_graph=True, allow_unused=True))
        return [next(found) if t is not None and t.requires_grad else None for t in tensors]

    def lstm_grad(ctx, grad_output, grad_cells, _):
        *tensors, output, cells, gates = ctx.saved_tensors
        values, weight_ih, weight_hh, bias_ih, bias_hh, h_0, c_0, row_offsets = tensors
        if torch.is_grad_enabled():
            return *differentiable(ctx, tensors, ops.lstm_composed.default, (grad_output, grad_cells)), None
        x, w_ih, w_hh, bias, h, c = ops.lstm_backward.default(
            grad_output,
            grad_cells,
            values,
            weight_ih,
            weight_hh,
            h_0,
            c_0,
            row_offsets,
            ctx.reverse,
            output,
            cells,
            gates,
        )
        biases = [None if b is None else bias for b in (bias_ih, bias_hh)]
        return x, w_ih, w_hh, *biases, None if h_0 is None else h, None if c_0 is None else c, None, None

    def gru_grad(ctx, grad_output, _):
        if grad_output is None:
            return (None,) * 8
        *tensors, output, saved = ctx.saved_tensors
        values, weight_ih, weight_hh, bias_ih, bias_hh, h_0, row_offsets = tensors
        if torch.is_grad_enabled():
            return *differentiable(ctx, tensors, ops.gru_composed.default, (grad_output,)), None
        x, w_ih, w_hh, b_ih, b_hh, h = ops.gru_backward.default(
            grad_output, values, weight_ih, weight_hh, h_0, row_offsets, ctx.reverse, output, saved
        )
        return (
            x,
            w_ih,
            w_hh,
            None if bias_ih is None else b_ih,
            None if bias_hh is None else b_hh,
            (None if h_0 is None else h),
            None,
            None,
        )

    torch.library.register_autograd("torch_lod::lstm", lstm_grad, setup_context=save, lib=library)
    torch.library.register_autograd("torch_lod::gru", gru_grad, setup_context=save, lib=library)
