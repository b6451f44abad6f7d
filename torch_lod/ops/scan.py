# SPDX-License-Identifier: Apache-2.0
"""Shape "segment", row by row: a scan along every segment."""

import torch
from torch import Tensor

from . import check
from .compositions import composed, like_rows, segment_of_rows, wide
from .library import composition, operator

__all__ = [
    "segment_cumprod",
    "segment_cumulative",
    "segment_logcumsumexp",
    "segment_scan",
]


def _check(op, values, row_offsets) -> None:
    check.segments(op, values, row_offsets)
    check.is_number(op, values)


def _positions(row_offsets, rows):
    """The position of every row within its segment."""
    return torch.arange(rows, device=row_offsets.device) - row_offsets[segment_of_rows(row_offsets, rows)]


def _back(t, n):
    """Row r of the result is row r - n."""
    return torch.cat([t[:1].expand(n, *t.shape[1:]), t])[: t.shape[0]]


def _scan(y, f, position):
    """y[r] + f[r] y[r - 1] + f[r] f[r - 1] y[r - 2] ..., where a factor of 0 cuts whatever comes before."""
    n = 1
    f = torch.where(like_rows(position > 0, y), f, 0)
    while n < y.shape[0]:
        reach = like_rows(position >= n, y)
        f = torch.where(reach, f, 0)
        # what is out of reach is left out before it is multiplied: gradients of products meet their factors
        y = y + f * _counting(reach, f, _back(y, n))
        f = f * _counting(reach, f, _back(f, n))
        n *= 2
    return y


def _counting(reach, f, older):
    return torch.where(reach & ((f != 0) | older.isfinite()), older, 0)


def _accumulated(t):
    return t.double() if t.dtype == torch.float32 else wide(t)


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
    _check("segment_scan", values, row_offsets)
    if factors is not None:
        check.kind("segment_scan", "factors", factors, values.dtype, values.device, ", as values")
        if factors.shape != values.shape:
            wanted = f"factors of shape {list(values.shape)}, as values"
            raise ValueError(f"segment_scan: expected {wanted}, got {list(factors.shape)}")
    check.offsets("segment_scan", row_offsets, values.shape[0])
    position = _positions(row_offsets, values.shape[0])
    x = _accumulated(values)
    f = torch.ones_like(x) if factors is None else _accumulated(factors)
    if not adjoint:
        return _scan(x, f, position).to(values.dtype)
    ends = row_offsets[-1:] - row_offsets.flip(0)
    # flipped, the factor of a row is that of the row after it
    f = torch.cat([f[1:], f[:1]]).flip(0)
    return _scan(x.flip(0), f, _positions(ends, values.shape[0])).flip(0).to(values.dtype)


def cumprod(values, row_offsets, reverse=False, exclusive=False):
    if reverse:
        ends = row_offsets[-1:] - row_offsets.flip(0)
        return cumprod(values.flip(0), ends, False, exclusive).flip(0)
    position = _positions(row_offsets, values.shape[0])
    y, n = _accumulated(values), 1
    if exclusive and len(y):
        y = torch.where(like_rows(position > 0, y), _back(y, 1), 1)
    while n < y.shape[0]:
        y = y * torch.where(like_rows(position >= n, y), _back(y, n), 1)
        n *= 2
    return y.to(values.dtype)


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
    _check("segment_cumprod", values, row_offsets)
    check.offsets("segment_cumprod", row_offsets, values.shape[0])
    return cumprod(values, row_offsets, reverse, exclusive)


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
    _check("segment_cumulative", values, row_offsets)
    if reduce not in ("max", "min"):
        raise ValueError(f"segment_cumulative: expected reduce 'max' or 'min', got '{reduce}'")
    check.offsets("segment_cumulative", row_offsets, values.shape[0])
    rows, position = values.shape[0], _positions(row_offsets, values.shape[0])
    best = values.detach()
    index = like_rows(torch.arange(rows, device=values.device), best).expand(best.shape)
    n = 1
    while n < rows:
        older, oldest = _back(best, n), _back(index, n)
        worse = (best > older) if reduce == "max" else (best < older)
        keep = like_rows(position >= n, best) & ~(worse | ((best != best) & (older == older)))
        best, index = torch.where(keep, older, best), torch.where(keep, oldest, index)
        n *= 2
    return values.gather(0, index), index


@composition
def segment_cumulative_backward(grad, index, row_offsets):
    op = "segment_cumulative_backward"
    check.has_rows(op, "grad", grad)
    check.is_number(op, grad)
    check.offsets_kind(op, row_offsets, grad.device)
    check.kind(op, "index", index, torch.int64, grad.device)
    if index.shape != grad.shape:
        raise ValueError(f"{op}: expected index of shape {list(grad.shape)}, as grad, got {list(index.shape)}")
    check.offsets(op, row_offsets, grad.shape[0])
    older = index != like_rows(torch.arange(grad.shape[0], device=grad.device), grad)
    return composed.segment_scan(grad, older.to(grad.dtype), row_offsets, True).masked_fill(older, 0)


@operator
def segment_logcumsumexp(values: Tensor, row_offsets: Tensor) -> Tensor:
    """The logarithm of the sum of the exponentials of all rows so far, without overflow, along every segment.

    Args:
        values: (rows, *element), a floating dtype; half types are worked out in float32.
        row_offsets: int64, (segments + 1,).

    Returns:
        the shape and dtype of values.
    """
    op = "segment_logcumsumexp"
    check.segments(op, values, row_offsets)
    check.is_floating(op, "values", values)
    check.offsets(op, row_offsets, values.shape[0])
    x, position = wide(values), _positions(row_offsets, values.shape[0])
    top, _ = composed.segment_cumulative(x.detach(), row_offsets, "max")
    top = top.nan_to_num(nan=0.0, posinf=0.0, neginf=torch.finfo(top.dtype).min)
    # sums relative to the maximum so far: where the maximum rises, the sum before is scaled down
    factors = (top.roll(1, 0) - top).clamp(max=0).exp()  # the first row of a segment takes none
    return (_scan((x - top).exp(), factors, position).log() + top).to(values.dtype)
