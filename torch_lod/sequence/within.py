# SPDX-License-Identifier: Apache-2.0
"""Softmax, sums so far, normalising, sorting: operators within sequences. The result has the LoD of x."""

from typing import Literal, overload

import torch
from torch import Tensor

from .. import ops
from ..errors import LoDTypeError, LoDValueError
from ..structure.devices import upload
from ..structure.validate import a_bool, a_float, number, with_memory
from ..tensor.lod_tensor import LoDTensor, made, rows_of
from ..tensor.picking import down_to
from .operator import along, on_rows, sequence_operator
from .pool import gathered, sortable, summable

__all__ = [
    "sequence_cummax",
    "sequence_cummin",
    "sequence_cumprod",
    "sequence_cumsum",
    "sequence_log_softmax",
    "sequence_logcumsumexp",
    "sequence_normalize",
    "sequence_softmax",
    "sequence_sort",
]


@sequence_operator
def sequence_softmax(x: LoDTensor, *, level: int | str = -1) -> LoDTensor:
    """Softmax over all rows of every sequence of a level, separately for each element of a row.

    Equivalent to:
        torch.cat([rows.softmax(0) for rows in x.sequences(level)])

    Args:
        x: (rows, *element), a floating dtype (TypeError otherwise); half types are computed in float32.

    Returns:
        the shape, dtype and LoD of x. An empty sequence has nothing to normalise.

    Source: Paddle Fluid's sequence_softmax, which takes rows of one element and the innermost level.
    """
    s = along(x, level)
    return s.keep(ops.segment_softmax(s.rows, s.offsets))


@sequence_operator
def sequence_log_softmax(x: LoDTensor, *, level: int | str = -1) -> LoDTensor:
    """The logarithm of `sequence_softmax`, without its underflow.

    Equivalent to:
        torch.cat([rows.log_softmax(0) for rows in x.sequences(level)])

    Args:
        x: (rows, *element), a floating dtype (TypeError otherwise); half types are computed in float32.

    Returns:
        the shape, dtype and LoD of x. Differentiable; an empty sequence has nothing to normalise.

    Source: torch.log_softmax, sequence by sequence.
    """
    s = along(x, level)
    return s.keep(ops.segment_log_softmax(s.rows, s.offsets))


@sequence_operator
def sequence_normalize(x: LoDTensor, *, eps: float = 1e-5, level: int | str = -1) -> LoDTensor:
    """Normalises every sequence of a level to mean 0 and variance 1, separately for each element of a row:
    (x - mean) / sqrt(var + eps), where the variance divides by length (not length - 1).

    Equivalent to:
        torch.cat([(r - r.mean(0)) / (r.var(0, correction=0) + eps).sqrt() for r in x.sequences(level)])

    Args:
        x: (rows, *element), a floating dtype (TypeError otherwise); mean and variance are computed in float64.
        eps: added to the variance, so that a sequence of one row becomes 0.

    Returns:
        the shape, dtype and LoD of x. Differentiable; an empty sequence has nothing to normalise.

    Source: torch.nn.functional.instance_norm, sequence by sequence.
    """
    s = along(x, level)
    a_float(s.rows)
    number("eps", eps)
    return s.keep(ops.segment_normalize(s.rows, s.offsets, eps))


@sequence_operator
def sequence_cumsum(x: LoDTensor, *, level: int | str = -1, reverse: bool = False) -> LoDTensor:
    """The sum of all rows so far, within every sequence of a level.

    Equivalent to:
        torch.cat([rows.cumsum(0) for rows in x.sequences(level)])

    Args:
        x: (rows, *element); integers and bool are summed in int64, as torch.cumsum does.
        reverse: from the last row to the first.

    Returns:
        the shape and LoD of x. Differentiable; half types are summed in float32, float32 in float64.

    Source: torch.cumsum, sequence by sequence.
    """
    s = along(x, level)
    return s.keep(ops.segment_scan(summable(s.rows), None, s.offsets, bool(reverse)))


@sequence_operator
def sequence_cumprod(x: LoDTensor, *, level: int | str = -1) -> LoDTensor:
    """The product of all rows so far, within every sequence of a level; its gradient is exact where rows are 0.

    Equivalent to:
        torch.cat([rows.cumprod(0) for rows in x.sequences(level)])

    Args:
        x: (rows, *element); integers and bool are multiplied in int64, as torch.cumprod does.

    Returns:
        the shape and LoD of x. Differentiable.

    Source: torch.cumprod, sequence by sequence.
    """
    s = along(x, level)
    with_memory(s.rows)
    return s.keep(ops.segment_cumprod(summable(s.rows), s.offsets))


def _cumulative(x: LoDTensor, level, reduce: str) -> tuple[LoDTensor, LoDTensor]:
    s = along(x, level)
    out, index = ops.segment_cumulative(s.rows, s.offsets, reduce)
    return s.keep(out), s.keep(index)


@sequence_operator
def sequence_cummax(x: LoDTensor, *, level: int | str = -1) -> tuple[LoDTensor, LoDTensor]:
    """The maximum so far within every sequence of a level, and its row (int64, counting all rows; the first of equals).

    The values are equivalent to:
        torch.cat([rows.cummax(0).values for rows in x.sequences(level)])

    Args:
        x: (rows, *element), floating or integer (TypeError for bool). NaN beats every number.

    Returns:
        two LoDTensors of the shape and LoD of x. The gradient goes to the rows of the maxima.

    Source: torch.cummax, sequence by sequence; torch gives the last of equals.
    """
    return _cumulative(x, level, "max")


@sequence_operator
def sequence_cummin(x: LoDTensor, *, level: int | str = -1) -> tuple[LoDTensor, LoDTensor]:
    """The minimum so far within every sequence of a level, and its row (int64, counting all rows; the first of equals).

    The values are equivalent to:
        torch.cat([rows.cummin(0).values for rows in x.sequences(level)])

    Args:
        x: (rows, *element), floating or integer (TypeError for bool). NaN beats every number.

    Returns:
        two LoDTensors of the shape and LoD of x. The gradient goes to the rows of the minima.

    Source: torch.cummin, sequence by sequence; torch gives the last of equals.
    """
    return _cumulative(x, level, "min")


@sequence_operator
def sequence_logcumsumexp(x: LoDTensor, *, level: int | str = -1) -> LoDTensor:
    """The logarithm of the sum of the exponentials of all rows so far, without overflow, in every sequence of a level.

    Equivalent to:
        torch.cat([rows.logcumsumexp(0) for rows in x.sequences(level)])

    Args:
        x: (rows, *element), a floating dtype (TypeError otherwise); half types are computed in float32.

    Returns:
        the shape, dtype and LoD of x. Differentiable.

    Source: torch.logcumsumexp, sequence by sequence.
    """
    s = along(x, level)
    a_float(s.rows)
    return s.keep(ops.segment_logcumsumexp(s.rows, s.offsets))


@overload
def sequence_sort(
    x: LoDTensor,
    key: Tensor | None = ...,
    *,
    descending: bool = ...,
    return_rank: Literal[False] = ...,
    level: int | str = ...,
) -> LoDTensor: ...
@overload
def sequence_sort(
    x: LoDTensor,
    key: Tensor | None = ...,
    *,
    descending: bool = ...,
    return_rank: Literal[True],
    level: int | str = ...,
) -> tuple[LoDTensor, LoDTensor]: ...


@sequence_operator
def sequence_sort(
    x: LoDTensor,
    key: Tensor | None = None,
    *,
    descending: bool = False,
    return_rank: bool = False,
    level: int | str = -1,
) -> LoDTensor | tuple[LoDTensor, LoDTensor]:
    """The elements of every sequence of a level in the order of their keys; equal keys stay in their order.

    Equivalent to (innermost level, no key):
        torch.cat([rows.sort(dim=0, stable=True).values for rows in x.sequences()])

    Args:
        x: (rows, *element), any dtype that torch.sort takes.
        key: a number for each element of the level, (elements,), or a LoDTensor of them with the levels of x down to
            this one, such as `sequence_pool` gives: whole elements are moved. Without a key rows are sorted by their
            values, separately for each element of a row; at an outer level sub-sequences by their length.
        descending: the largest first. NaN counts as largest.
        return_rank: also return the rank of every element, int64: its place among those of its sequence, from 0. Without a
            key of the shape and LoD of x; else one for each element of the level, (elements,), with the levels down to it.
            Equal elements have ranks in their order; [shared ranks](../metrics.md#rank-correlation) are the mean of two.

    Returns:
        the LoD of x, except that lengths of sub-sequences move with them. The gradient moves back with the rows; key
        has none.

    Raises:
        ValueError: if key does not have one number for each element, or has other levels.

    Source: torch.sort, sequence by sequence.
    """
    s = along(x, level)
    a_bool("return_rank", return_rank)
    if key is None and s.innermost:
        if x.is_complex():
            raise LoDTypeError(f"expected x of a dtype that has an order, got {x.dtype}")
        order = ops.segment_order(sortable(s.rows), s.offsets, bool(descending))
        out = s.keep(gathered(s.rows, order))
        return (out, s.keep(_ranks(order, s.offsets))) if return_rank else out
    count = s.lod.elements_at(s.k)
    if key is None:
        key = s.lod.levels[s.k + 1].diff()
    if not isinstance(key, Tensor) or key.is_complex() or key.is_meta:
        got = f"{key.dtype} on {key.device}" if isinstance(key, Tensor) else type(key).__name__
        raise LoDTypeError(f"expected key as a tensor of numbers, got {got}")
    if key.shape != (count,):
        raise LoDValueError(f"expected key with one number for each of {count} elements, got {tuple(key.shape)}")
    if isinstance(key, LoDTensor) and key.lod.differs(own := down_to(s.lod, s.k)):
        raise LoDValueError(
            f"expected key with the levels of x down to level {s.k}, got LoDs that differ: {own.difference(key.lod)}"
        )
    with_memory(key)
    order = ops.segment_order(sortable(rows_of(key)).cpu(), s.lod.levels[s.k], bool(descending))
    out = s.pick(order, s.lod.levels[s.k].diff())
    if not return_rank:
        return out
    ranks = upload(_ranks(order, s.lod.levels[s.k]), x.device)
    return out, made(ranks, s.lod if s.innermost else s.lod.outer_at(s.k + 1))


def _ranks(order: Tensor, offsets: Tensor) -> Tensor:
    """The place of every row in the order of its segment."""
    rows = torch.arange(order.shape[0], device=order.device)
    places = rows - ops.segment_broadcast(offsets[:-1].to(order.device), offsets, order.shape[0])
    return torch.zeros_like(order).scatter(0, order, on_rows(places, order).expand(order.shape))
