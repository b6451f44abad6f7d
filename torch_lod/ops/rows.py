# SPDX-License-Identifier: Apache-2.0
"""Shape "rows": a map says, for every output row, which input row it copies (-1: none)."""

from torch import Tensor

from .library import operator

_run_map, _gather_rows, _scatter_rows = operator("run_map"), operator("gather_rows"), operator("scatter_rows")


def run_map(starts: Tensor, row_offsets: Tensor, rows: int, step: int = 1) -> Tensor:
    """The map whose segment s counts up from `starts[s]` in steps of `step`.

    Step 0 repeats (segment ids, expansion), 1 copies runs of rows, -1 reverses them.

    Equivalent to:
        torch.cat([starts[s] + step * torch.arange(length) for s, length in enumerate(row_offsets.diff())])

    Args:
        starts: int64, (segments,).
        row_offsets: int64, (segments + 1,), from 0 to `rows`.
        rows: rows of the map; ValueError where `row_offsets` does not cut them into segments.

    Returns:
        int64, (rows,).
    """
    return _run_map(starts, row_offsets, rows, step)


def gather_rows(values: Tensor, map: Tensor, fill: float = 0) -> Tensor:
    """Row i of the result is `values[map[i]]`, or `fill` where `map[i]` is -1. Any dtype.

    Args:
        values: (rows, *element).
        map: int64, (rows_out,), entries from -1 to rows - 1; IndexError otherwise.
        fill: the value of rows without a source; it has no gradient.

    Returns:
        (rows_out, *element). The gradient is `scatter_rows(grad, map, rows)`.
    """
    return _gather_rows(values, map, fill)


def scatter_rows(values: Tensor, map: Tensor, rows: int) -> Tensor:
    """Row r of the result is the sum of the rows i of values with `map[i] == r`, in that order; -1 goes nowhere.

    Deterministic on every device. Half types are summed in float32.

    Args:
        values: (rows_in, *element), a floating or integer dtype.
        map: int64, (rows_in,), entries from -1 to `rows` - 1; IndexError otherwise.

    Returns:
        (rows, *element). The gradient is `gather_rows(grad, map)`.
    """
    return _scatter_rows(values, map, rows)
