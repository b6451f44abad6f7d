# SPDX-License-Identifier: Apache-2.0
"""Pooling: all rows of a sequence become one row."""

from typing import Literal, overload

import torch
from torch import Tensor

from .. import ops
from ..errors import LoDTypeError, LoDValueError, shown
from ..sequence_operator import a_float, along, integer, number, on_rows, sequence_operator
from ..tensor import LoDTensor, MaybeLoD
from ..validate import filler, with_memory

__all__ = [
    "sequence_argmax",
    "sequence_loss",
    "sequence_pool",
    "sequence_topk",
]

#: Every accepted name of a reduction, and its name in the operators.
_NAMES = {name: name for name in "sum mean sqrt max min first last prod logsumexp var std any all".split()}
_NAMES["average"] = "mean"


def reduction(what: str, given) -> str:
    name = _NAMES.get(given.lower()) if isinstance(given, str) else None
    if name is None:
        raise LoDValueError(f"expected {what} in {sorted(_NAMES)}, got {shown(given)}")
    return name


@overload
def sequence_pool(
    x: LoDTensor,
    pool_type: str,
    *,
    padding_value: float = ...,
    level: int | str = ...,
    return_index: Literal[False] = ...,
    correction: int = ...,
) -> MaybeLoD: ...
@overload
def sequence_pool(
    x: LoDTensor, pool_type: str, *, padding_value: float = ..., level: int | str = ..., return_index: Literal[True]
) -> tuple[MaybeLoD, MaybeLoD]: ...


@sequence_operator
def sequence_pool(
    x: LoDTensor,
    pool_type: str,
    *,
    padding_value: float = 0.0,
    level: int | str = -1,
    return_index: bool = False,
    correction: int = 1,
) -> Tensor | tuple[Tensor, Tensor]:
    """One row per sequence of a level, from all rows under it.

    Equivalent to:
        torch.stack([rows.sum(0) for rows in x.sequences(level)])

    LoD, with x of lengths [[3, 1, 2], [3, 2, 4, 1, 2, 3]] (15 rows):
        level -1:  6 rows, [[3, 1, 2]]        level 0:  3 rows, plain, from 9, 1 and 5 rows

    Args:
        x: (rows, *element), floating or integer. Half types are summed in float32; "var" and "std" are computed in float64.
        pool_type: "sum", "average" (or "mean"), "sqrt" (sum / sqrt(length)), "max", "min", "first", "last", "prod",
            "logsumexp", "var", "std", "any" or "all" (bool: whether any or every element is nonzero); in upper or lower
            case. The gradient of a maximum goes to the first row that attains it; NaN beats every number.
        padding_value: the result for empty sequences; it has no gradient.
        level: the level whose sequences are pooled.
        return_index: for "max" and "min": also return the row that every result comes from, int64, as an index into all
            rows of x; -1 for empty sequences.
        correction: for "var" and "std", as torch.var's: the sum of squares is divided by length - correction.

    Returns:
        (sequences, *element) with the levels above `level`; a plain tensor if there are none. Of the dtype of x, but bool
        for "any" and "all", and int64 for the "sum" or "prod" of integers and bool, as torch has it. Differentiable, except
        for "any" and "all".

    Raises:
        ValueError: for another pool_type.
        TypeError: for an integer x if the result is no integer; for a bool or complex x, unless the pool_type is
            "first", "last", "any" or "all", or of bool "sum" or "prod".

    Source: Paddle Fluid's sequence_pool, which has the first seven pool_types and the innermost level.
    """
    s = along(x, level)
    reduce, rows = reduction("pool_type", pool_type), s.rows
    adds, asks = reduce in ("sum", "prod"), reduce in ("any", "all")
    if rows.is_complex() or (rows.dtype == torch.bool and not adds):
        if not asks and reduce not in ("first", "last"):
            raise LoDTypeError(f"expected x of a floating or integer dtype for {shown(reduce)}, got {rows.dtype}")
    rows = summable(rows) if adds else rows
    filler("padding_value", padding_value, torch.bool if asks else rows.dtype)
    if return_index:
        if reduce not in ("max", "min"):
            raise LoDTypeError(f"expected pool_type 'max' or 'min' with return_index, got {shown(reduce)}")
        out, index = ops.segment_extreme(rows, s.offsets, reduce, padding_value)
        return s.pool(out), s.pool(index)
    if reduce in ("logsumexp", "var", "std"):
        a_float(rows)
        number("correction", correction)
        if reduce == "logsumexp":
            return s.pool(ops.segment_logsumexp(rows, s.offsets, padding_value))
        return s.pool(ops.segment_var(rows, s.offsets, correction, reduce == "std", padding_value))
    if reduce not in _COMPOSED:
        return s.pool(ops.segment_reduce(rows, s.offsets, reduce, padding_value))
    pooled = _COMPOSED[reduce](rows, s.offsets)
    if s.lod.any_empty_at(s.k):
        empty = on_rows(s.offsets.diff() == 0, pooled)
        pooled = torch.where(empty, torch.full_like(pooled, padding_value), pooled)
    return s.pool(pooled)


def summable(values: Tensor) -> Tensor:
    """What sums and products are taken of: integers and bool in int64, as torch has it."""
    return values if values.is_floating_point() or values.is_complex() else values.to(torch.int64)


def _prod(rows: Tensor, offsets: Tensor) -> Tensor:
    return ops.segment_reduce(cumulative_product(rows, offsets), offsets, "last")


def cumulative_product(values: Tensor, offsets: Tensor) -> Tensor:
    """y[r] = x[r] y[r - 1]; at the first row of a segment y[r] = x[r]."""
    ends = torch.zeros(values.shape[0] + 1, dtype=torch.bool, device=values.device).index_fill(0, offsets, True)
    nothing = -0.0 if values.is_floating_point() else 0  # added to a product, it keeps the sign of a zero
    out = ops.segment_scan(torch.where(on_rows(ends[:-1], values), values, nothing), values, offsets)
    if not values.is_floating_point():
        return out
    # a scan drops what is before a factor of 0, but NaN or infinity times 0 is NaN
    unending, _ = ops.segment_cumulative((~values.detach().isfinite()).to(torch.uint8), offsets, "max")
    return torch.where((unending > 0) & out.detach().isfinite(), torch.nan, out)


def _any(rows: Tensor, offsets: Tensor) -> Tensor:
    return ops.segment_reduce((rows != 0).to(torch.uint8), offsets, "max") > 0


def _all(rows: Tensor, offsets: Tensor) -> Tensor:
    return ops.segment_reduce((rows != 0).to(torch.uint8), offsets, "min") > 0


#: Reductions that the compiled operators do not have.
_COMPOSED = {"prod": _prod, "any": _any, "all": _all}


@sequence_operator
def sequence_argmax(x: LoDTensor, *, level: int | str = -1) -> MaybeLoD:
    """The row of the maximum of every sequence of a level, separately for each element of a row; -1 for empty
    sequences.

    The result is an index into all rows of x: subtract `x.row_offsets(level)[:-1]` for the position in the sequence. Of
    equal values the first counts; NaN beats every number.

    Equivalent to (rows of one number, no sequence empty):
        torch.stack([rows.argmax() for rows in x.sequences(level)]) + x.row_offsets(level)[:-1]

    Args:
        x: (rows, *element), floating or integer; TypeError for bool.

    Returns:
        int64, (sequences, *element), with the levels above.

    Source: torch.argmax, sequence by sequence; the index that Paddle Fluid's sequence_pool keeps for its gradient.
    """
    s = along(x, level)
    return s.pool(ops.segment_extreme(s.rows.detach(), s.offsets, "max")[1])


@sequence_operator
def sequence_topk(
    x: LoDTensor,
    k: int,
    channel: int | None = None,
    *,
    largest: bool = True,
    padding_value: float = 0.0,
    level: int | str = -1,
) -> tuple[MaybeLoD, MaybeLoD]:
    """The `k` largest rows of every sequence of a level, in order.

    Equivalent to, where every sequence has k rows:
        torch.stack([rows.topk(k, 0).values for rows in x.sequences(level)])

    Args:
        x: (rows, *element), floating, integer or bool.
        k: at least 1 (ValueError). A sequence of fewer rows is padded with `padding_value`, which has no gradient.
        channel: the column of x, (rows, channels), by which whole rows are ranked. None: each element separately.
        largest: False takes the smallest.

    Returns:
        (sequences, k, *element), and the rows that the values came from, int64, as indices into all rows, -1 for
        padding: of the same shape, or (sequences, k) with a channel. Both with the levels above. The gradient goes to
        the rows taken.

    Source: torch.topk, sequence by sequence; equal rows stay in order.
    """
    s = along(x, level)
    values = s.rows
    if values.is_complex():
        raise LoDTypeError(f"expected x of a dtype that has an order, got {values.dtype}")
    integer("k", k)
    filler("padding_value", padding_value, values.dtype)
    with_memory(values)
    key = values
    if channel is not None:
        if values.dim() != 2 or type(channel) is not int or not -values.shape[1] <= channel < values.shape[1]:
            raise LoDValueError(
                f"expected channel as a column of x of shape (rows, channels), got {shown(channel)} for {tuple(x.shape)}"
            )
        key = values[:, channel]
    order = order_within(key.detach(), s.lod.segment_ids_at(s.k, values.device), largest)
    row = s.offsets[:-1, None] + torch.arange(k, device=values.device)
    row = torch.where(row < s.offsets[1:, None], row, -1)
    index = ops.gather_rows(order, row.flatten(), -1).view(*row.shape, *order.shape[1:])
    if channel is not None:
        taken = ops.gather_rows(values, index.flatten(), padding_value).view(*index.shape, *values.shape[1:])
        return s.pool(taken), s.pool(index)
    flat = index.flatten(0, 1)
    if values.shape[0]:
        taken = values.gather(0, flat.clamp(min=0))
    else:
        taken = ops.gather_rows(values, flat.new_full(flat.shape[:1], -1))
    taken = torch.where(flat < 0, torch.full_like(taken, padding_value), taken).view(index.shape)
    return s.pool(taken), s.pool(index)


def order_within(key: Tensor, segment: Tensor, descending: bool) -> Tensor:
    """The rows of every segment in the order of their keys, separately for each element; equal keys stay in order."""
    first = key.sort(dim=0, descending=descending, stable=True).indices
    second = segment[first].sort(dim=0, stable=True).indices
    return first.gather(0, second)


@sequence_operator
def sequence_loss(loss_rows: LoDTensor, reduce: str | int = "token") -> Tensor:
    """The mean of a loss that has a value for every row: over all rows, over sequences, or per sequence of a level.

    The mean over sequences leaves out empty ones. An empty sequence's own mean is 0; so is the loss of no rows.

    Equivalent to ("token"; a LoDTensor that is not empty):
        loss_rows.values().mean()

    Args:
        loss_rows: (rows,), a floating dtype, as a loss of torch's gives it with reduction="none".
        reduce: "token", every row weighs the same; "sequence", every innermost sequence weighs the same, and its rows within
            it; or a level by its number or name: the mean of all rows under each of its sequences. A level named
            "token" or "sequence" must be given by its number.

    Returns:
        a plain number (a tensor without dims) for "token" and "sequence"; for a level (sequences,), with the levels above.
        Differentiable.

    Raises:
        ValueError: for rows of more than one number.

    Source: the means of torch.nn's losses, over rows that are not padded.
    """
    s = along(loss_rows, -1 if reduce in ("token", "sequence") else reduce, "loss_rows")
    if s.rows.dim() != 1:
        raise LoDValueError(
            f"expected loss_rows of one number per row, (rows,), got {tuple(s.rows.shape)}; see loss_rows.mean(1)"
        )
    a_float(s.rows)
    if reduce == "token":
        return ops.segment_reduce(s.rows, _ends(s.rows), "mean")[0]
    means = ops.segment_reduce(s.rows, s.offsets, "mean")
    if reduce != "sequence":
        return s.pool(means)
    full = (s.offsets.diff() > 0).sum().clamp(min=1)
    return ops.segment_reduce(means / full, _ends(means), "sum")[0]


def _ends(values: Tensor) -> Tensor:
    """The offsets that make one segment of all rows."""
    return torch.arange(2, device=values.device) * values.shape[0]
