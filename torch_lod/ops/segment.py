# SPDX-License-Identifier: Apache-2.0
"""Shape "segment": a segment of rows becomes one row."""

import torch
from torch import Tensor

from . import check
from .compositions import composed, like_rows, segment_of_rows, sum_by, wide
from .library import operator
from .scan import cumprod

__all__ = [
    "segment_broadcast",
    "segment_extreme",
    "segment_pick",
    "segment_place",
    "segment_reduce",
]


def _holds(dtype: torch.dtype, number: float) -> bool:
    """Whether a whole dtype holds a number."""
    if number != number or number % 1:
        return False
    most = {torch.uint8: 255, torch.int8: 127, torch.int16: 32767, torch.int32: 2147483647}.get(dtype, 9e15)
    return (0 if dtype == torch.uint8 else -most) <= number <= most


def _check_reduce(op, values, row_offsets, reduce, pad_value=0.0) -> None:
    check.segments(op, values, row_offsets)
    if reduce not in ("sum", "mean", "sqrt", "prod", "max", "min", "first", "last"):
        raise ValueError(
            f"{op}: expected reduce 'sum', 'mean', 'sqrt', 'prod', 'max', 'min', 'first' or 'last', got '{reduce}'"
        )
    if reduce not in ("first", "last"):
        check.is_number(op, values)
    whole = not values.dtype.is_floating_point and not values.dtype.is_complex and values.dtype != torch.bool
    if whole and reduce in ("mean", "sqrt"):
        raise TypeError(
            f"{op}: expected values of a floating dtype for '{reduce}', got {check.dtype_name(values.dtype)}"
        )
    if whole and not _holds(values.dtype, pad_value):
        raise ValueError(
            f"{op}: expected a whole pad_value for values of dtype {check.dtype_name(values.dtype)}, got {pad_value:g}"
        )


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
    _check_reduce("segment_reduce", values, row_offsets, reduce, pad_value)
    check.offsets("segment_reduce", row_offsets, values.shape[0])
    whole = not values.dtype.is_floating_point and not values.dtype.is_complex
    pad = (pad_value != 0) if values.dtype == torch.bool else int(pad_value) if whole else pad_value
    if reduce in ("first", "last"):
        begin, end = row_offsets[:-1], row_offsets[1:]
        row = torch.where(end > begin, begin if reduce == "first" else end - 1, -1)
        return composed.gather_rows(values, row, pad)
    empty = like_rows(row_offsets.diff() == 0, values)
    if reduce in ("max", "min"):
        _, index = composed.segment_extreme(values.detach(), row_offsets, reduce)
        return torch.where(empty, pad, composed.segment_pick(values, index, row_offsets))
    if reduce == "prod":
        last = composed.gather_rows(
            cumprod(values, row_offsets), torch.where(row_offsets.diff() > 0, row_offsets[1:] - 1, -1)
        )
        return torch.where(empty, pad, last)
    total = sum_by(segment_of_rows(row_offsets, values.shape[0]), wide(values), row_offsets.shape[0] - 1)
    return torch.where(empty, pad, _divided(total, row_offsets, reduce)).to(values.dtype)


def _divided(values: Tensor, row_offsets: Tensor, reduce: str) -> Tensor:
    """Rows of segments divided as the reduction divides."""
    if reduce == "sum":
        return values
    length = row_offsets.diff().clamp(min=1).to(torch.float64 if values.dtype == torch.float64 else torch.float32)
    return (values / like_rows(length if reduce == "mean" else length.sqrt(), values)).to(values.dtype)


@operator
def segment_extreme(values: Tensor, row_offsets: Tensor, reduce: str, pad_value: float = 0.0) -> tuple[Tensor, Tensor]:
    """`segment_reduce` with 'max' or 'min', and the row (int64, absolute, -1 for empty segments) of every result."""
    _check_reduce("segment_extreme", values, row_offsets, reduce, pad_value)
    if reduce not in ("max", "min"):
        raise ValueError(f"segment_extreme: expected reduce 'max' or 'min', got '{reduce}'")
    check.offsets("segment_extreme", row_offsets, values.shape[0])
    rows, x = values.shape[0], values.detach()
    segment = segment_of_rows(row_offsets, rows)
    where = like_rows(segment, x).expand_as(x)
    shape = (row_offsets.shape[0] - 1, *values.shape[1:])
    best = x.new_zeros(shape).scatter_reduce(0, where, x, "amax" if reduce == "max" else "amin", include_self=False)
    here = (x == best.index_select(0, segment)) | (x != x)
    candidates = torch.where(here, like_rows(torch.arange(rows, device=x.device), x), rows)
    index = row_offsets.new_full(shape, rows).scatter_reduce(0, where, candidates, "amin")
    index = torch.where(index == rows, -1, index)
    pad = pad_value if values.dtype.is_floating_point else int(pad_value)
    empty = like_rows(row_offsets.diff() == 0, values)
    return torch.where(empty, pad, composed.segment_pick(values, index, row_offsets)), index


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
    _check_reduce("segment_broadcast", values, row_offsets, reduce)
    if reduce not in ("sum", "mean", "sqrt", "first", "last"):
        raise ValueError(f"segment_broadcast: expected reduce 'sum', 'mean', 'sqrt', 'first' or 'last', got '{reduce}'")
    check.is_number("segment_broadcast", values)
    check.row_per_segment("segment_broadcast", values, row_offsets)
    check.row_count("segment_broadcast", rows)
    check.offsets("segment_broadcast", row_offsets, rows)
    if reduce in ("first", "last"):
        segment = segment_of_rows(row_offsets, rows)
        end = row_offsets[:-1] if reduce == "first" else row_offsets[1:] - 1
        is_end = end.index_select(0, segment) == torch.arange(rows, device=values.device)
        return composed.gather_rows(values, torch.where(is_end, segment, -1), 0)
    divided = _divided(wide(values), row_offsets, reduce)
    return divided.index_select(0, segment_of_rows(row_offsets, rows)).to(values.dtype)


def _check_pick(op, values, index, row_offsets) -> None:
    check.segments(op, values, row_offsets)
    check.is_number(op, values)
    if index.dtype != torch.int64 or index.device != values.device:
        raise TypeError(
            f"{op}: expected an int64 index on {values.device}, got {check.dtype_name(index.dtype)} on {index.device}"
        )
    segments = row_offsets.shape[0] - 1
    if index.dim() != values.dim() or index.shape[0] != segments or index.shape[1:] != values.shape[1:]:
        raise ValueError(
            f"{op}: expected an index with a row per segment, {segments}, of the shape of a row of values, "
            f"{list(values.shape)}, got {list(index.shape)}"
        )


def _known(index: Tensor, row_offsets: Tensor, otherwise) -> Tensor:
    """`index` where it is a row of its own segment."""
    begin, end = like_rows(row_offsets[:-1], index), like_rows(row_offsets[1:], index)
    return torch.where((index >= begin) & (index < end), index, otherwise)


@operator
def segment_pick(values: Tensor, index: Tensor, row_offsets: Tensor) -> Tensor:
    """Element (s, c) of the result is `values[index[s, c], c]`, 0 where the index is no row of segment s.

    Args:
        values: (rows, *element).
        index: int64, (segments, *element), as `segment_extreme` returns it.

    Returns:
        (segments, *element). The gradient is `segment_place(grad, index, row_offsets, rows)`.
    """
    _check_pick("segment_pick", values, index, row_offsets)
    check.offsets("segment_pick", row_offsets, values.shape[0])
    filled = torch.cat([values, values.new_zeros(1, *values.shape[1:])])
    return filled.gather(0, _known(index, row_offsets, values.shape[0]))


@operator
def segment_place(values: Tensor, index: Tensor, row_offsets: Tensor, rows: int) -> Tensor:
    """The adjoint of `segment_pick`: (rows, *element), zero except for `values[s, c]` at `[index[s, c], c]`."""
    _check_pick("segment_place", values, index, row_offsets)
    check.row_per_segment("segment_place", values, row_offsets)
    check.row_count("segment_place", rows)
    check.offsets("segment_place", row_offsets, rows)
    out = values.new_zeros(rows + 1, *values.shape[1:])
    return out.scatter(0, _known(index, row_offsets, rows), values)[:rows]
