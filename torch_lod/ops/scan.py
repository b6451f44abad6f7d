# SPDX-License-Identifier: Apache-2.0
"""Shape "segment", row by row: a scan along every segment."""

from torch import Tensor

from .library import operator

__all__ = [
    "segment_cumprod",
    "segment_cumulative",
    "segment_logcumsumexp",
    "segment_scan",
]


@operator
def segment_scan(values: Tensor, factors: Tensor | None, row_offsets: Tensor, adjoint: bool = False) -> Tensor:
    """y[r] = values[r] + factors[r] y[r - 1] along every segment, from 0 before its first row.

    Without factors it is a cumulative sum. A factor of 0 starts a new sum: the value before is dropped, even if it was
    infinite or NaN. `adjoint` runs from the last row: y[r] = values[r] + factors[r + 1] y[r + 1]; each form is the
    gradient of the other.

    Args:
        values: (rows, *element), a floating or integer dtype; half types have a float32 accumulator, float32 a float64 one.
        factors: None, or of the shape and dtype of values.
        row_offsets: int64, (segments + 1,).

    Returns:
        the shape and dtype of values.
    """


@operator
def segment_cumulative(values: Tensor, row_offsets: Tensor, reduce: str) -> tuple[Tensor, Tensor]:
    """The maximum ('max') or minimum ('min') so far along every segment, and its row (int64, absolute).

    Of equal values the first counts; NaN beats every number. The gradient goes to the row that it came from.

    Args:
        values: (rows, *element), a floating or integer dtype.
        row_offsets: int64, (segments + 1,).

    Returns:
        values and rows, both of the shape of values.
    """


@operator
def segment_cumprod(values: Tensor, row_offsets: Tensor, reverse: bool = False, exclusive: bool = False) -> Tensor:
    """The product of all rows so far along every segment. The gradient is exact where rows are 0.

    Args:
        values: (rows, *element), a floating or integer dtype; half types are multiplied in float32, float32 in float64.
        row_offsets: int64, (segments + 1,).
        reverse: from the last row to the first.
        exclusive: the product of the rows before each row, 1 at the first.

    Returns:
        the shape and dtype of values.
    """


@operator
def segment_logcumsumexp(values: Tensor, row_offsets: Tensor) -> Tensor:
    """The logarithm of the sum of the exponentials of all rows so far, without overflow, along every segment.

    Args:
        values: (rows, *element), a floating dtype; half types are worked out in float32.
        row_offsets: int64, (segments + 1,).

    Returns:
        the shape and dtype of values.
    """
