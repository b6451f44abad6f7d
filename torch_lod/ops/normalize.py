# SPDX-License-Identifier: Apache-2.0
"""Shape "segment", normalised: softmax and its logarithm, the logarithm of its sum, mean and variance.

Half types are worked out in float32 and rounded once; mean and variance always in float64.
"""

from torch import Tensor

from .library import operator

__all__ = [
    "segment_log_softmax",
    "segment_logsumexp",
    "segment_normalize",
    "segment_softmax",
    "segment_var",
]


@operator
def segment_softmax(values: Tensor, row_offsets: Tensor) -> Tensor:
    """exp(x - max x) / sum exp(x - max x) over the rows of every segment, separately for each element of a row.

    Args:
        values: (rows, *element), a floating dtype.
        row_offsets: int64, (segments + 1,).

    Returns:
        the shape and dtype of values.
    """


@operator
def segment_log_softmax(values: Tensor, row_offsets: Tensor) -> Tensor:
    """x - max x - log sum exp(x - max x) over the rows of every segment, separately for each element of a row.

    Args:
        values: (rows, *element), a floating dtype.
        row_offsets: int64, (segments + 1,).

    Returns:
        the shape and dtype of values.
    """


@operator
def segment_logsumexp(values: Tensor, row_offsets: Tensor, pad_value: float = 0.0) -> Tensor:
    """log sum exp(x) over the rows of every segment, without overflow; `pad_value`, with no gradient, for empty segments.

    Args:
        values: (rows, *element), a floating dtype.
        row_offsets: int64, (segments + 1,).

    Returns:
        (segments, *element), of the dtype of values.
    """


@operator
def segment_var(
    values: Tensor, row_offsets: Tensor, correction: float = 1.0, root: bool = False, pad_value: float = 0.0
) -> Tensor:
    """The variance of the rows of every segment: the sum of squared distances from the mean, divided by
    max(0, length - correction); `pad_value`, with no gradient, for empty segments.

    Args:
        values: (rows, *element), a floating dtype.
        row_offsets: int64, (segments + 1,).
        root: the root of the variance, the standard deviation; its gradient is 0 where it is 0.

    Returns:
        (segments, *element), of the dtype of values.
    """


@operator
def segment_normalize(values: Tensor, row_offsets: Tensor, eps: float = 1e-5) -> Tensor:
    """(x - mean) / sqrt(variance + eps) over the rows of every segment, where the variance divides by the length.

    Args:
        values: (rows, *element), a floating dtype.
        row_offsets: int64, (segments + 1,).

    Returns:
        the shape and dtype of values.
    """
