# SPDX-License-Identifier: Apache-2.0
"""Pooling: the rows under every sequence of a level become one row."""

from typing import Literal, overload

import torch
from torch import Tensor

from .. import ops
from ..errors import LoDTypeError, LoDValueError, public
from ..sequence_operator import a_float, level_of, number, on_rows
from ..tensor import LoDTensor, MaybeLoD, made, maybe_lod, rows_of, without_policy
from ..validate import filler

__all__ = [
    "sequence_argmax",
    "sequence_loss",
    "sequence_pool",
    "sequence_topk",
]

_REDUCE = {name: name for name in ("sum", "mean", "sqrt", "max", "min", "first", "last")} | {"average": "mean"}


@overload
def sequence_pool(
    x: LoDTensor,
    pool_type: str,
    pad_value: float = 0.0,
    level: int | str = -1,
    *,
    return_index: Literal[False] = False,
    correction: int = 1,
) -> MaybeLoD: ...
@overload
def sequence_pool(
    x: LoDTensor,
    pool_type: str,
    pad_value: float = 0.0,
    level: int | str = -1,
    *,
    return_index: Literal[True],
    correction: int = 1,
) -> tuple[MaybeLoD, MaybeLoD]: ...
@public
def sequence_pool(
    x: LoDTensor,
    pool_type: str,
    pad_value: float = 0.0,
    level: int | str = -1,
    *,
    return_index: bool = False,
    correction: int = 1,
) -> Tensor | tuple[Tensor, Tensor]:
    """One row per sequence of a level, from all rows under it.

    Equivalent to:
        torch.stack([rows.sum(0) for rows in x.sequences(level)])

    LoD, with x of lengths [[3, 1, 2], [3, 2, 4, 1, 2, 3]] (15 rows):
        level -1:  6 rows, [[3, 1, 2]]        level 0:  3 rows, plain, from 9, 1 and 5 rows

    Args:
        x: (rows, *element), floating or integer. Half types are summed in float32.
        pool_type: in any case, "sum", "average" (or "mean"), "sqrt" (sum / sqrt(length)), "max", "min", "first", "last",
            "prod", "logsumexp", "var", "std", "any" or "all" (bool: whether an element is, or all are, other than 0).
            The gradient of a maximum goes to the first row that attains it; NaN beats every number.
        pad_value: the result for empty sequences; it has no gradient.
        level: whose sequences.
        return_index: for "max" and "min", also the row of every result: int64, counting all rows, -1 for empty sequences.
        correction: for "var" and "std", as torch.var's: the sum of squares is divided by length - correction.

    Returns:
        (sequences, *element) with the levels above; a plain tensor above the outermost. Differentiable, but for "any" and
        "all".

    Raises:
        ValueError: for another pool_type.
        TypeError: for an integer x where the result is not whole, for bool but with "first", "last", "any" and "all".

    Source: Paddle Fluid's sequence_pool, of the innermost level and the first seven.
    """
    return _pool(x, pool_type, pad_value, level, return_index, correction)


def _pool(x, pool_type, pad_value, level, return_index: bool = False, correction: int = 1):
    k = level_of(x, level)
    kind = _kind("pool_type", pool_type)
    reduce = _REDUCE.get(kind)
    if isinstance(pad_value, (bool, str)):
        raise LoDTypeError(
            f"expected pad_value as a number, got {pad_value!r}; a level is given as level={pad_value!r}"
        )
    with without_policy():
        return _pooled(rows_of(x), x._lod, k, kind, reduce, pad_value, return_index, correction)


def _pooled(values: Tensor, lod, k: int, kind: str, reduce: str | None, pad_value, return_index, correction):
    if (values.dtype == torch.bool or values.is_complex()) and kind not in ("any", "all", "first", "last"):
        raise LoDTypeError(f"expected x of a floating or integer dtype for {kind!r}, got {values.dtype}")
    filler("pad_value", pad_value, torch.bool if kind in ("any", "all") else values.dtype)
    offsets = lod.row_offsets_at(k, values.device)
    if return_index:
        if reduce not in ("max", "min"):
            raise LoDTypeError(f"expected pool_type 'max' or 'min' with return_index, got {kind!r}")
        out, index = ops.segment_extreme(values, offsets, reduce, pad_value)
        return made(out, lod.outer(k)), made(index, lod.outer(k))
    if reduce is not None:
        return made(ops.segment_reduce(values, offsets, reduce, pad_value), lod.outer(k))
    if kind in ("logsumexp", "var", "std"):
        a_float(values)
    if kind in ("var", "std"):
        number("correction", correction)
    pooled = _COMPOSED[kind](values, offsets, correction)
    if lod.any_empty_at(k):
        empty = on_rows(offsets.diff() == 0, pooled)
        pooled = torch.where(empty, torch.full_like(pooled, pad_value), pooled)
    return made(pooled, lod.outer(k))


def _kind(what: str, given) -> str:
    kind = given.lower() if isinstance(given, str) else ""
    if kind not in _REDUCE and kind not in _COMPOSED:
        raise LoDValueError(f"expected {what} in {sorted([*_REDUCE, *_COMPOSED])}, got {given!r}")
    return kind


def _prod(values: Tensor, offsets: Tensor, _) -> Tensor:
    return ops.segment_reduce(cumulative_product(values, offsets), offsets, "last")


def cumulative_product(values: Tensor, offsets: Tensor) -> Tensor:
    """y[r] = x[r] y[r - 1], from the first row's own value."""
    ends = torch.zeros(values.shape[0] + 1, dtype=torch.bool, device=values.device).index_fill(0, offsets, True)
    out = ops.segment_scan(torch.where(on_rows(ends[:-1], values), values, 0), values, offsets)
    if not values.is_floating_point():
        return out
    # a scan forgets what was before a factor of 0; a product with NaN or an infinity does not become 0
    unending, _ = ops.segment_cumulative((~values.detach().isfinite()).to(torch.uint8), offsets, "max")
    return torch.where((unending > 0) & out.detach().isfinite(), torch.nan, out)


def _logsumexp(values: Tensor, offsets: Tensor, _) -> Tensor:
    top = ops.segment_reduce(values.detach(), offsets, "max").nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)
    e = (values - ops.segment_broadcast(top, offsets, values.shape[0])).exp()
    return ops.segment_reduce(e, offsets, "sum").log() + top


def _var(values: Tensor, offsets: Tensor, correction: int) -> Tensor:
    mean = ops.segment_reduce(values, offsets, "mean")
    squares = (values - ops.segment_broadcast(mean, offsets, values.shape[0])).square()
    length = on_rows((offsets.diff() - correction).clamp(min=0), values).to(values.dtype)
    return ops.segment_reduce(squares, offsets, "sum") / length


def _std(values: Tensor, offsets: Tensor, correction: int) -> Tensor:
    variance = _var(values, offsets, correction)
    some = variance != 0  # the root has no slope at 0; torch.std's gradient is 0 there
    return torch.where(some, torch.where(some, variance, 1).sqrt(), 0)


def _any(values: Tensor, offsets: Tensor, _) -> Tensor:
    return ops.segment_reduce((values != 0).to(torch.uint8), offsets, "max") > 0


def _all(values: Tensor, offsets: Tensor, _) -> Tensor:
    return ops.segment_reduce((values != 0).to(torch.uint8), offsets, "min") > 0


_COMPOSED = {"prod": _prod, "logsumexp": _logsumexp, "var": _var, "std": _std, "any": _any, "all": _all}


@public
def sequence_argmax(x: LoDTensor, level: int | str = -1) -> MaybeLoD:
    """The row of the maximum of every sequence of a level, each element of a row for itself; -1 for empty sequences.

    Rows are counted over all of x; less `x.row_offsets(level)[:-1]` they count from the sequence's own start. The first of
    equals; NaN beats every number.

    Equivalent to (rows of one number, no sequence empty):
        torch.stack([rows.argmax() for rows in x.sequences(level)]) + x.row_offsets(level)[:-1]

    Args:
        x: (rows, *element), floating or integer; TypeError for bool.

    Returns:
        int64, (sequences, *element), with the levels above.

    Source: torch.argmax, sequence by sequence; the index that Paddle Fluid's sequence_pool keeps for its gradient.
    """
    k = level_of(x, level)
    values = x.values()
    _, index = ops.segment_extreme(values.detach(), x._lod.row_offsets_at(k, values.device), "max")
    return maybe_lod(index, x._lod.outer(k))


@public
def sequence_topk(
    x: LoDTensor,
    k: int,
    channel: int | None = None,
    *,
    largest: bool = True,
    pad_value: float = 0.0,
    level: int | str = -1,
) -> tuple[MaybeLoD, MaybeLoD]:
    """The `k` largest rows of every sequence of a level, in order.

    Equivalent to, where every sequence has k rows:
        torch.stack([rows.topk(k, 0).values for rows in x.sequences(level)])

    Args:
        x: (rows, *element), floating, integer or bool.
        k: at least 1 (ValueError); places beyond the end of a shorter sequence are `pad_value`, without gradient.
        channel: None, each element of a row for itself; or the column of a (rows, channels) x that whole rows are ranked by.
        largest: False takes the smallest.

    Returns:
        (sequences, k, *element) and the rows that they came from, int64, counting all rows, -1 for padding: of the same
        shape, or (sequences, k) with a channel. With the levels above. The gradient goes to the rows taken.

    Source: torch.topk, sequence by sequence; equal rows stay in order.
    """
    at = level_of(x, level)
    if x.is_complex():
        raise LoDTypeError(f"expected x of a dtype that has an order, got {x.dtype}")
    if type(k) is not int or not 1 <= k <= 2**31:
        raise LoDValueError(f"expected k in [1, 2**31], got {k!r}")
    filler("pad_value", pad_value, x.dtype)
    lod, values = x._lod, x.values()
    key = values
    if channel is not None:
        if values.dim() != 2 or type(channel) is not int or not -values.shape[1] <= channel < values.shape[1]:
            raise LoDValueError(
                f"expected channel as a column of x of shape (rows, channels), got {channel!r} for {tuple(x.shape)}"
            )
        key = values[:, channel]
    order = order_within(key.detach(), lod.segment_ids_at(at, x.device), largest)
    offsets = lod.row_offsets_at(at, x.device)
    place = offsets[:-1, None] + torch.arange(k, device=x.device)
    place = torch.where(place < offsets[1:, None], place, -1)
    index = ops.gather_rows(order, place.flatten(), -1).view(*place.shape, *order.shape[1:])
    if channel is None:
        flat = index.flatten(0, 1)
        taken = (
            values.gather(0, flat.clamp(min=0))
            if values.shape[0]
            else ops.gather_rows(values, flat.new_full(flat.shape[:1], -1))
        )
        taken = torch.where(flat < 0, torch.full_like(taken, pad_value), taken).view(index.shape)
    else:
        taken = ops.gather_rows(values, index.flatten(), pad_value).view(*index.shape, *values.shape[1:])
    return maybe_lod(taken, lod.outer(at)), maybe_lod(index, lod.outer(at))


def order_within(key: Tensor, segment: Tensor, descending: bool) -> Tensor:
    """The rows of every segment in the order of their keys, each element for itself; equal keys stay in order."""
    first = key.sort(dim=0, descending=descending, stable=True).indices
    second = segment[first].sort(dim=0, stable=True).indices
    return first.gather(0, second)


@public
def sequence_loss(loss_rows: LoDTensor, reduce: str | int = "token") -> Tensor:
    """The mean of a loss that is given for every row: over all rows, over sequences, or for every sequence of a level.

    What has no rows counts for nothing: an empty sequence is left out of the mean over sequences; alone, its mean is 0, and so
    is the loss of a batch without rows.

    Equivalent to ("token"; a LoDTensor that is not empty):
        loss_rows.values().mean()

    Args:
        loss_rows: (rows,), a floating dtype, as a loss of torch's gives it with reduction="none".
        reduce: "token", every row weighs the same; "sequence", every innermost sequence weighs the same, and its rows within
            it; or a level by its number or name: the mean of all rows under each of its sequences. A level that is called
            "token" or "sequence" goes by its number.

    Returns:
        a plain number (a tensor without dims) for "token" and "sequence"; for a level (sequences,), with the levels above.
        Differentiable.

    Raises:
        ValueError: for rows of more than one number.

    Source: the means of torch.nn's losses, over rows that are not padded.
    """
    over = -1 if reduce in ("token", "sequence") else reduce
    k = level_of(loss_rows, over, "loss_rows")
    if loss_rows.dim() != 1:
        raise LoDValueError(
            f"expected loss_rows of one number per row, (rows,), got {tuple(loss_rows.shape)}; see loss_rows.mean(1)"
        )
    a_float(loss_rows)
    with without_policy():
        values, lod = rows_of(loss_rows), loss_rows._lod
        if reduce == "token":
            return ops.segment_reduce(values, _ends(values), "mean")[0]
        offsets = lod.row_offsets_at(k, values.device)
        means = ops.segment_reduce(values, offsets, "mean")
        if reduce != "sequence":
            return made(means, lod.outer(k))
        full = (offsets.diff() > 0).sum().clamp(min=1)
        return ops.segment_reduce(means / full, _ends(means), "sum")[0]


def _ends(values: Tensor) -> Tensor:
    """The offsets that make one segment of all rows."""
    return torch.arange(2, device=values.device) * values.shape[0]
