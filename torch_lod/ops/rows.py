# SPDX-License-Identifier: Apache-2.0
"""Shape "rows": a map says, for every output row, which input row it copies (-1: none)."""

import torch
from torch import Tensor

from . import check
from .compositions import composed, like_rows, segment_of_rows, sum_by, wide
from .library import composition, operator

__all__ = [
    "gather_rows",
    "gather_runs",
    "rank_by_length",
    "run_map",
    "scatter_rows",
    "scatter_runs",
    "segment_concat",
    "segment_conv",
    "segment_fold",
    "segment_unfold",
]


@operator
def run_map(starts: Tensor, row_offsets: Tensor, rows: int, step: int = 1) -> Tensor:
    """The map whose segment s counts up from `starts[s]` in steps of `step`.

    Step 0 repeats (segment ids, expansion), 1 copies runs of rows, -1 reverses them.

    Equivalent to:
        torch.cat([starts[s] + step * torch.arange(length) for s, length in enumerate(row_offsets.diff())])

    Args:
        starts: int64, (segments,).
        row_offsets: int64, (segments + 1,), from 0 to `rows`.
        rows: the number of rows of the map; ValueError if `row_offsets` does not divide them into segments.

    Returns:
        int64, (rows,).
    """
    check.start_per_segment("run_map", starts, row_offsets, getattr(starts, "device", None))
    check.row_count("run_map", rows)
    check.offsets("run_map", row_offsets, rows)
    segment = segment_of_rows(row_offsets, rows)
    return starts[segment] + step * (torch.arange(rows, device=starts.device) - row_offsets[segment])


@operator
def gather_rows(values: Tensor, map: Tensor, fill: float = 0) -> Tensor:
    """Row i of the result is `values[map[i]]`, or `fill` where `map[i]` is -1. Any dtype.

    Args:
        values: (rows, *element).
        map: int64, (rows_out,), entries from -1 to rows - 1; IndexError otherwise.
        fill: the value of rows without a source; it has no gradient.

    Returns:
        (rows_out, *element). The gradient is `scatter_rows(grad, map, rows)`.
    """
    check.has_rows("gather_rows", "values", values)
    check.index("gather_rows", "map", map, values.device)
    check.row_map("gather_rows", "map", map, values.shape[0])
    rows = values.shape[0]
    x = wide(values)
    filled = torch.cat([x, x.new_full((1, *values.shape[1:]), fill)])
    return filled.index_select(0, torch.where(map < 0, rows, map)).to(values.dtype)


@operator
def scatter_rows(values: Tensor, map: Tensor, rows: int) -> Tensor:
    """Row r of the result is the sum of the rows i of values with `map[i] == r`, summed in that order; -1: to no row.

    Deterministic on every device. Half types are summed in float32.

    Args:
        values: (rows_in, *element), a floating or integer dtype.
        map: int64, (rows_in,), entries from -1 to `rows` - 1; IndexError otherwise.

    Returns:
        (rows, *element). The gradient is `gather_rows(grad, map)`.
    """
    check.has_rows("scatter_rows", "values", values)
    check.is_number("scatter_rows", values)
    check.index("scatter_rows", "map", map, values.device)
    if map.shape[0] != values.shape[0]:
        raise ValueError(f"scatter_rows: expected a map entry per row of values, {values.shape[0]}, got {map.shape[0]}")
    check.row_count("scatter_rows", rows)
    check.row_map("scatter_rows", "map", map, rows)
    return sum_by(torch.where(map < 0, rows, map), values, rows + 1)[:rows]


@operator
def rank_by_length(offsets: Tensor) -> Tensor:
    """The sequences (int64) from longest to shortest, those of equal length in their own order. Offsets in
    host memory."""
    check.offsets_kind("rank_by_length", offsets, torch.device("cpu"), "offsets")
    check.offsets("rank_by_length", offsets, -1, "offsets")
    return offsets.diff().sort(descending=True, stable=True).indices


def _runs(op, values, starts, row_offsets, rows, step) -> torch.Tensor:
    """The row on the other side of every row of the segments."""
    check.has_rows(op, "values", values)
    check.row_count(op, rows)
    check.start_per_segment(op, starts, row_offsets, values.device)
    if step not in (1, -1):
        raise ValueError(f"{op}: expected step 1 or -1, got {step}")
    covered, other_rows = (values.shape[0], rows) if op == "scatter_runs" else (rows, values.shape[0])
    check.offsets(op, row_offsets, covered)
    check.runs(op, starts, row_offsets, step, other_rows)
    return composed.run_map(starts, row_offsets, covered, step)


@operator
def gather_runs(values: Tensor, starts: Tensor, row_offsets: Tensor, rows: int, step: int = 1) -> Tensor:
    """Segment s of the result is a run of rows of values: from `starts[s]` up (step 1) or down (step -1). Any dtype.

    Equivalent to:
        gather_rows(values, run_map(starts, row_offsets, rows, step))

    Args:
        values: (rows_in, *element).
        starts: int64, (segments,). IndexError where a run leaves the rows of values; ignored for empty segments.
        row_offsets: int64, (segments + 1,), from 0 to `rows`: the segments of the result.

    Returns:
        (rows, *element). The gradient is `scatter_runs(grad, starts, row_offsets, rows_in, step)`.
    """
    return composed.gather_rows(values, _runs("gather_runs", values, starts, row_offsets, rows, step))


@operator
def scatter_runs(
    values: Tensor, starts: Tensor, row_offsets: Tensor, rows: int, step: int = 1, fill: float = 0
) -> Tensor:
    """Writes segment s of values to the rows from `starts[s]` up (step 1) or down (step -1). Values that go to the same
    row are added; rows that get no value are `fill`. This is padding, and the gradient of `gather_runs`.

    Args:
        values: (rows_in, *element). If runs overlap or are out of order, of a floating or integer dtype.
        starts: int64, (segments,). IndexError where a run leaves the `rows` of the result.
        row_offsets: int64, (segments + 1,), from 0 to rows_in: the segments of values.
        fill: has no gradient.

    Returns:
        (rows, *element). The gradient is `gather_runs(grad, starts, row_offsets, rows_in, step)`.
    """
    target = _runs("scatter_runs", values, starts, row_offsets, rows, step)
    if check.readable(target):
        if target.unique().numel() == target.numel():
            return values.new_full((rows, *values.shape[1:]), fill).index_copy(0, target, values)
        check.is_number("scatter_runs", values)  # rows that meet are added up
    untaken = torch.ones(rows, dtype=torch.bool, device=values.device).index_fill(0, target, False)
    whole = sum_by(target, values.byte(), rows) > 0 if values.dtype == torch.bool else sum_by(target, values, rows)
    return torch.where(like_rows(untaken, values), whole.new_full((), fill), whole)


@operator
def segment_concat(values: Tensor, row_offsets: Tensor, others: Tensor, other_offsets: Tensor) -> Tensor:
    """The rows of every segment, and behind them those of the same segment of others. Any dtype.

    Equivalent to:
        torch.cat([t for pair in zip(values.split(lengths), others.split(other_lengths)) for t in pair])

    Args:
        values: (rows, *element).
        row_offsets: int64, (segments + 1,), from 0 to rows.
        others: (other_rows, *element), of the dtype of values (TypeError).
        other_offsets: int64, (segments + 1,), from 0 to other_rows; ValueError if there are not equally many segments.

    Returns:
        (rows + other_rows, *element). The gradients are the runs of rows that came from either side.
    """
    check.segments("segment_concat", values, row_offsets)
    check.has_rows("segment_concat", "others", others)
    check.kind("segment_concat", "others", others, values.dtype, values.device)
    if others.shape[1:] != values.shape[1:]:
        shape = [others.shape[0], *values.shape[1:]]
        raise ValueError(f"segment_concat: expected others of shape {shape}, got {list(others.shape)}")
    check.offsets_kind("segment_concat", other_offsets, values.device, "other_offsets")
    check.as_many_sequences("segment_concat", "others", other_offsets, row_offsets)
    check.offsets("segment_concat", row_offsets, values.shape[0])
    check.offsets("segment_concat", other_offsets, others.shape[0], "other_offsets", "others")
    rows, other_rows = values.shape[0], others.shape[0]
    here = composed.run_map(row_offsets[:-1] + other_offsets[:-1], row_offsets, rows)
    there = composed.run_map(row_offsets[1:] + other_offsets[:-1], other_offsets, other_rows)
    return torch.cat([values, others]).index_select(0, torch.cat([here, there]).argsort())


def check_windows(op, values, row_offsets, start, dilation) -> None:
    check.has_rows(op, "values", values)
    check.offsets_kind(op, row_offsets, values.device)
    if not 1 <= dilation <= 2**40:
        raise ValueError(f"{op}: expected dilation in [1, 2**40], got {dilation}")
    if not -(2**40) <= start <= 2**40:
        raise ValueError(f"{op}: expected start in [-2**40, 2**40], got {start}")


def _window_rows(row_offsets, rows, size, start, dilation):
    """The row at every position of every window (rows, size), and whether it is of the same segment."""
    device = row_offsets.device
    row = torch.arange(rows, device=device)[:, None] + start + torch.arange(size, device=device) * dilation
    segment = segment_of_rows(row_offsets, rows)
    return row, (row >= row_offsets[segment][:, None]) & (row < row_offsets[segment + 1][:, None])


@operator
def segment_unfold(
    values: Tensor, row_offsets: Tensor, size: int, start: int, dilation: int = 1, fill: float = 0
) -> Tensor:
    """Every row with its neighbours: entry j of window r is row r + start + j * dilation, `fill` outside r's segment.

    Args:
        values: (rows, *element), any dtype.
        row_offsets: int64, (segments + 1,).
        size: the number of rows of a window.

    Returns:
        (rows, size, *element). The gradient is `segment_fold(grad, row_offsets, start, dilation)`.
    """
    check_windows("segment_unfold", values, row_offsets, start, dilation)
    check.window_size("segment_unfold", size)
    check.offsets("segment_unfold", row_offsets, values.shape[0])
    row, inside = _window_rows(row_offsets, values.shape[0], size, start, dilation)
    taken = composed.gather_rows(values, torch.where(inside, row, -1).flatten(), fill)
    return taken.view(values.shape[0], size, *values.shape[1:])


@operator
def segment_fold(values: Tensor, row_offsets: Tensor, start: int, dilation: int = 1) -> Tensor:
    """The adjoint of `segment_unfold`: (rows, size, *element) to (rows, *element). Every row is the sum
    of its entries in all windows."""
    check_windows("segment_fold", values, row_offsets, start, dilation)
    check.is_number("segment_fold", values)
    if values.dim() < 2:
        raise ValueError(f"segment_fold: expected values of shape (rows, size, ...), got {values.dim()} dimensions")
    check.window_size("segment_fold", values.shape[1])
    check.offsets("segment_fold", row_offsets, values.shape[0])
    row, inside = _window_rows(row_offsets, values.shape[0], values.shape[1], start, dilation)
    return composed.scatter_rows(values.flatten(0, 1), torch.where(inside, row, -1).flatten(), values.shape[0])


def _check_conv(op, values, row_offsets, start, dilation, **others) -> None:
    if values.dim() != 2:
        raise ValueError(f"{op}: expected values of shape (rows, features), got {values.dim()} dimensions")
    check.is_floating(op, "values", values)
    check_windows(op, values, row_offsets, start, dilation)
    for name, t in others.items():
        if t is not None:
            check.kind(op, name, t, values.dtype, values.device, ", as values")


@operator
def segment_conv(
    values: Tensor, weight: Tensor, bias: Tensor | None, row_offsets: Tensor, start: int, dilation: int = 1
) -> Tensor:
    """The windows of `segment_unfold` times a weight: out[r] = sum over j of values[r + start + j * dilation] weight[j] + bias,
    over the rows of r's segment.

    The compiled operators multiply the windows without storing them (float32 on a CPU with AVX2).

    Args:
        values: (rows, features), a floating dtype.
        weight: (size, features, out), or (size * features, out) where there are features.
        bias: None or (out,).
        row_offsets: int64, (segments + 1,).

    Returns:
        (rows, out).
    """
    op = "segment_conv"
    _check_conv(op, values, row_offsets, start, dilation, weight=weight, bias=bias)
    width = values.shape[1]
    flat = weight.dim() == 2 and width and weight.shape[0] % width == 0
    fits = flat or (weight.dim() == 3 and weight.shape[1] == width)
    if not fits or weight.shape[0] < 1:
        shapes = f"[size, {width}, out] or [size * {width}, out]"
        raise ValueError(f"{op}: expected weight of shape {shapes}, got {list(weight.shape)}")
    size, out = weight.shape[0] if weight.dim() == 3 else weight.shape[0] // width, weight.shape[-1]
    if size > 2**20:
        raise ValueError(f"{op}: expected a size of at most 2**20, got {size}")
    check.far_end(op, start, size, dilation)
    if bias is not None and bias.shape != (out,):
        raise ValueError(f"{op}: expected bias of shape [{out}], got {list(bias.shape)}")
    check.offsets(op, row_offsets, values.shape[0])
    out = composed.segment_unfold(values, row_offsets, size, start, dilation).flatten(1) @ weight.reshape(
        size * width, out
    )
    return out if bias is None else out + bias


@composition
def segment_conv_weight(values, grad, row_offsets, size, start, dilation=1):
    op = "segment_conv_weight"
    _check_conv(op, values, row_offsets, start, dilation, grad=grad)
    check.window_size(op, size)
    check.far_end(op, start, size, dilation)
    if grad.dim() != 2 or grad.shape[0] != values.shape[0]:
        raise ValueError(f"{op}: expected grad of shape [{values.shape[0]}, out], got {list(grad.shape)}")
    check.offsets(op, row_offsets, values.shape[0])
    seen = composed.segment_unfold(values, row_offsets, size, start, dilation)
    return (seen.flatten(1).t() @ grad).view(size, values.shape[1], grad.shape[1])
