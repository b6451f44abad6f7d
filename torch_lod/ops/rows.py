# SPDX-License-Identifier: Apache-2.0
"""Shape "rows": a map says, for every output row, which input row it copies (-1: none)."""

from torch import Tensor

from .library import operator

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


@operator
def segment_fold(values: Tensor, row_offsets: Tensor, start: int, dilation: int = 1) -> Tensor:
    """The adjoint of `segment_unfold`: (rows, size, *element) to (rows, *element). Every row is the sum
    of its entries in all windows."""


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


@operator
def rank_by_length(offsets: Tensor) -> Tensor:
    """The sequences (int64) from longest to shortest, those of equal length in their own order. Offsets in
    host memory."""
