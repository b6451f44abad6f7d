# SPDX-License-Identifier: Apache-2.0
"""Shape "segment", normalised: softmax and its logarithm, the logarithm of its sum, mean and variance.

Half types are worked out in float32 and rounded once; mean and variance always in float64.
"""

import torch
from torch import Tensor

from . import check
from .compositions import composed, like_rows, segment_of_rows, sum_by, wide
from .library import composition, operator

__all__ = [
    "segment_log_softmax",
    "segment_logsumexp",
    "segment_normalize",
    "segment_softmax",
    "segment_var",
]


def _check(op, values, row_offsets, name="values") -> None:
    check.segments(op, values, row_offsets)
    check.is_floating(op, name, values)
    check.offsets(op, row_offsets, values.shape[0])


def _check_backward(op, grad, like, row_offsets, name) -> None:
    check.has_rows(op, name, like)
    check.segments(op, like, row_offsets)
    check.is_floating(op, name, like)
    check.kind(op, "grad", grad, like.dtype, like.device)
    if grad.shape != like.shape:
        raise ValueError(f"{op}: expected grad of shape {list(like.shape)}, got {list(grad.shape)}")
    check.offsets(op, row_offsets, like.shape[0])


@operator
def segment_softmax(values: Tensor, row_offsets: Tensor) -> Tensor:
    """exp(x - max x) / sum exp(x - max x) over the rows of every segment, separately for each element of a row.

    Args:
        values: (rows, *element), a floating dtype.
        row_offsets: int64, (segments + 1,).

    Returns:
        the shape and dtype of values.
    """
    _check("segment_softmax", values, row_offsets)
    x = wide(values)
    segment, count = segment_of_rows(row_offsets, x.shape[0]), row_offsets.shape[0] - 1
    top, _ = composed.segment_extreme(x.detach(), row_offsets, "max")
    e = (x - top.index_select(0, segment)).exp()
    return (e / sum_by(segment, e, count).index_select(0, segment)).to(values.dtype)


@composition
def segment_softmax_backward(grad, output, row_offsets):
    _check_backward("segment_softmax_backward", grad, output, row_offsets, "output")
    segment, count = segment_of_rows(row_offsets, output.shape[0]), row_offsets.shape[0] - 1
    g, y = wide(grad), wide(output)
    return (y * (g - sum_by(segment, g * y, count).index_select(0, segment))).to(output.dtype)


def _full(total: Tensor, row_offsets: Tensor) -> Tensor:
    """Sums of segments, but 1 for empty ones: what is done to that reaches no row, and anomaly mode must find no NaN."""
    return torch.where(like_rows(row_offsets.diff() == 0, total), 1, total)


@operator
def segment_log_softmax(values: Tensor, row_offsets: Tensor) -> Tensor:
    """x - max x - log sum exp(x - max x) over the rows of every segment, separately for each element of a row.

    Args:
        values: (rows, *element), a floating dtype.
        row_offsets: int64, (segments + 1,).

    Returns:
        the shape and dtype of values.
    """
    _check("segment_log_softmax", values, row_offsets)
    x = wide(values)
    segment, count = segment_of_rows(row_offsets, x.shape[0]), row_offsets.shape[0] - 1
    top, _ = composed.segment_extreme(x.detach(), row_offsets, "max")
    below = x - top.index_select(0, segment)
    total = _full(sum_by(segment, below.exp(), count), row_offsets)
    return (below - total.log().index_select(0, segment)).to(values.dtype)


@composition
def segment_log_softmax_backward(grad, output, row_offsets):
    _check_backward("segment_log_softmax_backward", grad, output, row_offsets, "output")
    segment, count = segment_of_rows(row_offsets, output.shape[0]), row_offsets.shape[0] - 1
    g, y = wide(grad), wide(output)
    return (g - y.exp() * sum_by(segment, g, count).index_select(0, segment)).to(output.dtype)


@operator
def segment_logsumexp(values: Tensor, row_offsets: Tensor, pad_value: float = 0.0) -> Tensor:
    """log sum exp(x) over the rows of every segment, without overflow; `pad_value`, with no gradient, for empty segments.

    Args:
        values: (rows, *element), a floating dtype.
        row_offsets: int64, (segments + 1,).

    Returns:
        (segments, *element), of the dtype of values.
    """
    _check("segment_logsumexp", values, row_offsets)
    x = wide(values)
    segment, count = segment_of_rows(row_offsets, x.shape[0]), row_offsets.shape[0] - 1
    top, _ = composed.segment_extreme(x.detach(), row_offsets, "max")
    top = top.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)
    total = sum_by(segment, (x - top.index_select(0, segment)).exp(), count)
    out = _full(total, row_offsets).log() + top
    return torch.where(like_rows(row_offsets.diff() == 0, out), pad_value, out).to(values.dtype)


def _moments(values: Tensor, row_offsets: Tensor):
    """Rows in float64 less the mean of their segment; the squares' sums, and the lengths, of segments that are empty 1."""
    x, length = values.double(), like_rows(row_offsets.diff().clamp(min=1), values).double()
    segment, count = segment_of_rows(row_offsets, x.shape[0]), row_offsets.shape[0] - 1
    centred = x - (sum_by(segment, x, count) / length).index_select(0, segment)
    return centred, _full(sum_by(segment, centred.square(), count), row_offsets), length, segment


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
    _check("segment_var", values, row_offsets)
    _, squares, length, _ = _moments(values, row_offsets)
    empty = like_rows(row_offsets.diff() == 0, values)
    variance = squares / torch.where(empty, 1, (length - correction).clamp(min=0))
    if root:  # it has no derivative at 0; torch.std's gradient is 0 there
        some = variance != 0
        variance = torch.where(some, torch.where(some, variance, 1).sqrt(), 0)
    return torch.where(empty, pad_value, variance).to(values.dtype)


@operator
def segment_normalize(values: Tensor, row_offsets: Tensor, eps: float = 1e-5) -> Tensor:
    """(x - mean) / sqrt(variance + eps) over the rows of every segment, where the variance divides by the length.

    Args:
        values: (rows, *element), a floating dtype.
        row_offsets: int64, (segments + 1,).

    Returns:
        the shape and dtype of values.
    """
    _check("segment_normalize", values, row_offsets)
    centred, squares, length, segment = _moments(values, row_offsets)
    return (centred * (squares / length + eps).rsqrt().index_select(0, segment)).to(values.dtype)


@composition
def segment_normalize_backward(grad, values, row_offsets, eps):
    _check_backward("segment_normalize_backward", grad, values, row_offsets, "values")
    centred, squares, length, segment = _moments(values, row_offsets)
    scale = (squares / length + eps).rsqrt().index_select(0, segment)
    g, y = grad.double(), centred * scale

    def mean(t):
        return (sum_by(segment, t, length.shape[0]) / length).index_select(0, segment)

    return (scale * (g - mean(g) - y * mean(g * y))).to(values.dtype)
