# SPDX-License-Identifier: Apache-2.0
"""Shape "segment": a segment of rows becomes one row."""

from torch import Tensor

from .library import operator

__all__ = [
    "segment_broadcast",
    "segment_extreme",
    "segment_pick",
    "segment_place",
    "segment_reduce",
]


@operator
def segment_reduce(values: Tensor, row_offsets: Tensor, reduce: str, pad_value: float = 0.0) -> Tensor:
    """One row per segment; `pad_value`, with no gradient, for empty segments.

    `reduce` is 'sum', 'mean', 'sqrt' (sum / sqrt(length)), 'prod', 'max', 'min', 'first' or 'last'. The gradient of a maximum
    goes to the first row that attains it; NaN beats every number. A segment's result does not depend on the other segments.

    Equivalent to:
        torch.stack([rows.sum(0) for rows in values.split(row_offsets.diff().tolist())])

    Args:
        values: (rows, *element); half types are summed in float32. Integers keep their dtype, in which a sum or product may wrap, and
            cannot be divided ('mean', 'sqrt': TypeError).
        row_offsets: int64, (segments + 1,), on the device of values; ValueError if it does not divide the rows into
            segments.

    Returns:
        (segments, *element), of the dtype of values.
    """


@operator
def segment_extreme(values: Tensor, row_offsets: Tensor, reduce: str, pad_value: float = 0.0) -> tuple[Tensor, Tensor]:
    """`segment_reduce` with 'max' or 'min', and the row (int64, absolute, -1 for empty segments) of every result."""


@operator
def segment_broadcast(values: Tensor, row_offsets: Tensor, rows: int, reduce: str = "sum") -> Tensor:
    """Row s of values on the rows of segment s; the gradient of `segment_reduce` with the same `reduce`.

    Args:
        values: (segments, *element).
        row_offsets: int64, (segments + 1,), from 0 to `rows`.
        reduce: 'sum' copies, 'mean' divides by the segment's length, 'sqrt' by its root; 'first' and 'last' copy to that
            row alone, and the others are zero.

    Returns:
        (rows, *element).
    """


@operator
def segment_pick(values: Tensor, index: Tensor, row_offsets: Tensor) -> Tensor:
    """Element (s, c) of the result is `values[index[s, c], c]`, 0 where the index is no row of segment s.

    Args:
        values: (rows, *element).
        index: int64, (segments, *element), as `segment_extreme` returns it.

    Returns:
        (segments, *element). The gradient is `segment_place(grad, index, row_offsets, rows)`.
    """


@operator
def segment_place(values: Tensor, index: Tensor, row_offsets: Tensor, rows: int) -> Tensor:
    """The adjoint of `segment_pick`: (rows, *element), zero except for `values[s, c]` at `[index[s, c], c]`."""
