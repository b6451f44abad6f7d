# SPDX-License-Identifier: Apache-2.0
"""Pooling: all rows of a sequence become one row."""

from typing import Literal, overload

import torch
from torch import Tensor

from .. import ops
from ..dynamo import failing, known
from ..errors import LoDTypeError, LoDValueError, shown
from ..structure.lod import LoD
from ..structure.partition import computed_there
from ..structure.validate import a_float, filler, integer, number, with_memory
from ..tensor.derived import DerivedTensor
from ..tensor.lod_tensor import LoDTensor, MaybeLoD, a_lod_tensor, made, values_of
from ..tensor.provenance import Provenance
from .operator import Along, along, on_rows, sequence_operator

__all__ = [
    "sequence_argmax",
    "sequence_loss",
    "sequence_pool",
    "sequence_topk",
]

#: Every accepted name of a reduction, and its name in the operators.
_NAMES = {name: name for name in "sum mean sqrt max min first last prod logsumexp var std median any all".split()}
_NAMES["average"] = "mean"
#: Those that the operator of reductions has, by the same names.
_PLAIN = frozenset("sum mean sqrt max min first last prod".split())


def reduction(what: str, given) -> str:
    name = (_NAMES.get(given) or _NAMES.get(given.lower())) if isinstance(given, str) else None
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
            Rows of losses that `F.cross_entropy` or `F.nll_loss` ignored are left out, as in `sequence_loss`.
        pool_type: "sum", "average" (or "mean"), "sqrt" (sum / sqrt(length)), "max", "min", "first", "last", "prod",
            "logsumexp", "var", "std", "median" (of an even number of rows the smaller of the two in the middle, as
            torch.median has it), "any" or "all" (bool: whether any or every element is nonzero); in upper or lower case.
            The gradient of a maximum goes to the first row that attains it, that of a median to its row; NaN beats every
            number, and a sequence with a NaN has the median NaN.
        padding_value: the result for empty sequences; it has no gradient.
        level: the level whose sequences are pooled.
        return_index: for "max", "min" and "median": also return the row that every result comes from, int64, as an index into all
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
    if s.lod.counted:
        return _pool_counted(x, pool_type, padding_value, level, return_index, correction)
    rows = s.rows
    if type(correction) is not int or correction != 1:
        _check_correction(pool_type, correction)
    if type(pool_type) is str and pool_type in _PLAIN and type(padding_value) is float:  # of most calls
        if not return_index and rows.dtype.is_floating_point:
            return s.pool(ops.segment_reduce(rows, s.offsets, pool_type, padding_value))
    reduce = reduction("pool_type", pool_type)
    asks, floating = reduce in ("any", "all"), rows.is_floating_point()
    rows = rows if floating else _whole_for(reduce, rows)
    filler("padding_value", padding_value, torch.bool if asks else rows.dtype)
    # the operators take it as a float64
    exact = floating or -_EXACT <= padding_value <= _EXACT
    if return_index or reduce == "median":
        out, index = _with_index(s, rows, reduce, padding_value, exact)
        return (s.pool(out), s.pool(index)) if return_index else s.pool(out)
    if reduce in ("logsumexp", "var", "std"):
        return s.pool(_of_floats(rows, s.offsets, reduce, padding_value, correction))
    if exact and reduce not in _COMPOSED:
        return s.pool(ops.segment_reduce(rows, s.offsets, reduce, padding_value))
    pooled = _COMPOSED[reduce](rows, s.offsets) if reduce in _COMPOSED else ops.segment_reduce(rows, s.offsets, reduce)
    return s.pool(_filled(s, pooled, padding_value))


def _with_index(s, rows: Tensor, reduce: str, padding_value: float, exact: bool) -> tuple[Tensor, Tensor]:
    if reduce not in ("max", "min", "median"):
        raise LoDTypeError(f"expected pool_type 'max', 'min' or 'median' with return_index, got {shown(reduce)}")
    if reduce == "median":
        index = _median(rows, s.offsets)
        return taken(rows, index, padding_value), index
    out, index = ops.segment_extreme(rows, s.offsets, reduce, padding_value if exact else 0)
    return out if exact else _filled(s, out, padding_value), index


def _of_floats(rows: Tensor, offsets: Tensor, reduce: str, padding_value: float, correction) -> Tensor:
    a_float(rows)
    if reduce == "logsumexp":
        return ops.segment_logsumexp(rows, offsets, padding_value)
    return ops.segment_var(rows, offsets, correction, reduce == "std", padding_value)


def _whole_for(reduce: str, rows: Tensor) -> Tensor:
    """Rows that are not floating, as the reduction takes them."""
    adds = reduce in ("sum", "prod")
    if rows.is_complex() or (rows.dtype == torch.bool and not adds):
        if reduce not in ("any", "all", "first", "last"):
            raise LoDTypeError(f"expected x of a floating or integer dtype for {shown(reduce)}, got {rows.dtype}")
    a_float_for(reduce, rows)
    return summable(rows) if adds else rows


def _check_correction(pool_type, correction) -> None:
    number("correction", correction)
    if reduction("pool_type", pool_type) not in ("var", "std"):
        raise LoDTypeError(f"expected pool_type 'var' or 'std' with correction, got {shown(pool_type)}")


def a_float_for(reduce: str, rows: Tensor, what: str = "x") -> None:
    """Integers have sums, and no means."""
    if reduce in ("mean", "sqrt") and not rows.is_floating_point():
        raise LoDTypeError(
            f"expected {what} of a floating dtype for {shown(reduce)}, got {rows.dtype}; see {what}.float()"
        )


#: Up to here the operators hold a whole padding value exactly.
_EXACT = 9 * 10**15


def _filled(s: Along, pooled: Tensor, padding_value) -> Tensor:
    """With another row for empty sequences."""
    if not s.lod.any_empty_at(s.k):
        return pooled
    empty = on_rows(s.offsets.diff() == 0, pooled)
    return torch.where(empty, torch.full_like(pooled, padding_value), pooled)


def _pool_counted(x: LoDTensor, pool_type, padding_value, level, return_index: bool, correction):
    """`sequence_pool` of the losses that count."""
    rest, kept = rows_left(x, "sequence_pool")
    options: dict = {"padding_value": padding_value, "level": level, "correction": correction}
    if not return_index:
        return sequence_pool(rest, pool_type, **options)
    out, index = sequence_pool(rest, pool_type, return_index=True, **options)
    return out, _among_all(index, kept)


def _among_all(index: MaybeLoD, kept: Tensor) -> MaybeLoD:
    """Indices of the rows that count, as indices of all rows; -1 stays."""
    positions, rows = kept.nonzero().flatten(), values_of(index)
    among = torch.where(rows < 0, rows, positions[rows.clamp(min=0)] if positions.numel() else rows)
    return index.with_values(among) if isinstance(index, LoDTensor) else among


def rows_left(x: LoDTensor, call: str) -> tuple[LoDTensor, Tensor]:
    """The rows of losses that count, as losses of which all count; and the mask of them."""
    kept = rows_that_count(x._lod, call)
    assert kept is not None
    rest = x.filter_rows(kept)
    rest._provenance = Provenance(LoD.checked("offsets", rest._lod.levels, rest._lod.level_names), 0)
    return rest, kept


def _median(rows: Tensor, offsets: Tensor) -> Tensor:
    """The row of the median of every segment, the last NaN where there is one; -1 where it is empty."""
    with_memory(rows)
    order, lengths = ops.segment_order(sortable(rows), offsets), offsets.diff()

    def at(place: Tensor) -> Tensor:
        return ops.gather_rows(order, torch.where(lengths > 0, offsets[:-1] + place, -1), -1.0)

    middle = at((lengths - 1) // 2)
    if not rows.is_floating_point():
        return middle
    last = at(lengths - 1)
    return torch.where(taken(rows.detach(), last, 0.0).isnan(), last, middle)


def summable(values: Tensor) -> Tensor:
    """What sums and products are taken of: integers and bool in int64, as torch has it."""
    return values if values.is_floating_point() or values.is_complex() else values.to(torch.int64)


def _any(rows: Tensor, offsets: Tensor) -> Tensor:
    return ops.segment_reduce((rows != 0).to(torch.uint8), offsets, "max") > 0


def _all(rows: Tensor, offsets: Tensor) -> Tensor:
    return ops.segment_reduce((rows != 0).to(torch.uint8), offsets, "min") > 0


#: Reductions that the compiled operators do not have.
_COMPOSED = {"any": _any, "all": _all}


@sequence_operator
def sequence_argmax(x: LoDTensor, *, level: int | str = -1) -> MaybeLoD:
    """The row of the maximum of every sequence of a level, separately for each element of a row; -1 for empty
    sequences.

    The result is an index into all rows of x: subtract `x.row_offsets(level)[:-1]` for the position in the sequence. Of
    equal values the first counts; NaN beats every number.

    Equivalent to (rows of width 1, no sequence empty):
        torch.stack([rows.argmax() for rows in x.sequences(level)]) + x.row_offsets(level)[:-1]

    Args:
        x: (rows, *element), floating or integer; TypeError for bool.

    Returns:
        int64, (sequences, *element), with the levels above.

    Source: torch.argmax, sequence by sequence; the index that Paddle Fluid's sequence_pool keeps for its gradient.
    """
    s = along(x, level)
    if s.lod.counted:
        return sequence_pool(x, "max", level=level, return_index=True)[1]
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
        the rows taken. `rows >= 0` is the mask of what is there: with padding_value=0 the mean of the k best is
        `values.sum(1) / (rows >= 0).sum(1)`, also of a sequence with fewer.

    Source: torch.topk, sequence by sequence; equal rows stay in order.
    """
    if isinstance(x, LoDTensor) and x._lod.counted:
        rest, kept = rows_left(x, "sequence_topk")
        options: dict = {"largest": largest, "padding_value": padding_value, "level": level}
        largest_rows, places = sequence_topk(rest, k, channel, **options)
        return largest_rows, _among_all(places, kept)
    s = along(x, level)
    values = s.rows
    if values.is_complex():
        raise LoDTypeError(f"expected x of a dtype that has an order, got {values.dtype}")
    k = integer("k", k)
    filler("padding_value", padding_value, values.dtype)
    with_memory(values)
    key = values
    if channel is not None:
        if values.dim() != 2 or type(channel) is not int or not -values.shape[1] <= channel < values.shape[1]:
            raise LoDValueError(
                f"expected channel as a column of x of shape (rows, channels), got {shown(channel)} for {tuple(x.shape)}"
            )
        key = values[:, channel]
    index = ops.segment_topk(sortable(key), s.offsets, k, bool(largest))
    if channel is not None:
        whole = ops.gather_rows(values, index.flatten(), padding_value).view(*index.shape, *values.shape[1:])
        return s.pool(whole), s.pool(index)
    return s.pool(taken(values, index, padding_value)), s.pool(index)


def taken(values: Tensor, index: Tensor, padding_value: float) -> Tensor:
    """values[index[..., c], c] for every element c of a row, (..., *element); padding where the index is -1."""
    flat = index.flatten(0, index.dim() - values.dim())
    if values.shape[0]:
        out = gathered(values, flat.clamp(min=0))
    else:
        out = ops.gather_rows(values, flat.new_full(flat.shape[:1], -1))
    padding = torch.full((), padding_value, dtype=out.dtype, device=out.device)
    return torch.where(flat < 0, padding, out).view(index.shape)  # masked_fill has no unsigned dtypes


def sortable(key: Tensor) -> Tensor:
    """Numbers of the order of `key`, of a dtype that the operators take."""
    if key.dtype in (torch.uint16, torch.uint32):
        return key.to(torch.int64)
    if key.dtype == torch.uint64:
        return key.view(torch.int64) ^ torch.iinfo(torch.int64).min
    return key.detach().to(torch.uint8) if key.dtype == torch.bool else key.detach()


_SIGNED = {torch.uint16: torch.int16, torch.uint32: torch.int32, torch.uint64: torch.int64}


def gathered(values: Tensor, index: Tensor) -> Tensor:
    """values.gather(0, index), also for the unsigned dtypes that torch's gather lacks."""
    signed = _SIGNED.get(values.dtype)
    return values.gather(0, index) if signed is None else values.view(signed).gather(0, index).view(values.dtype)


@sequence_operator
def sequence_loss(
    loss_rows: LoDTensor, reduce: str | int = "token", *, mask: Tensor | None = None, weight: Tensor | None = None
) -> Tensor:
    """The mean of a loss that has a value for every row: over all rows, over sequences, or per sequence of a level.

    With w the weights of the rows, 1 without `weight`, every mean of rows is sum(w * loss) / sum(w). The mean over
    sequences is sum(v * mean) / sum(v), with v the weights of the sequences, 1 unless `weight` is given per sequence.
    Rows where the mask is False are in none of these sums, also where their loss is NaN; their gradient is 0, which times the
    derivative of what made the NaN is NaN again: fill masked targets and inputs with numbers before
    ([how](../drop_in.md#rows-that-are-missing)). The mean over sequences leaves out sequences that are empty, of which no row
    counts, or whose weights add up to 0. Such a sequence has no mean of its own: it is NaN, without gradient, as torch's mean of
    no rows, so that `sequence_loss(loss_rows, level).nanmean()` is the mean over the sequences of the level. The loss of no rows is
    0.

    Rows that `F.cross_entropy` or `F.nll_loss` ignored do not count, with `ignore_index` or its default -100: the LoD
    of losses with reduction="none" knows them (`lod.counted`), also after torch's functions row by row and what selects,
    joins or regroups sequences or rows. Other sequence operators may move rows: of their results it raises if any row was
    ignored. Plain tensors (`.values()`, `.sequences()`, padded) and files of tl.data do not know it: then pass
    mask=target != ignore_index.

    Equivalent to ("token"; a LoDTensor that is not empty):
        loss_rows.values().mean()

    Args:
        loss_rows: (rows,), a floating dtype, as a loss of torch's gives it with reduction="none".
        reduce: "token", every row weighs the same; "sequence", every innermost sequence weighs the same, and its rows within
            it; or a level by its number or name: the mean of all rows under each of its sequences. A level named
            "token" or "sequence" must be given by its number.
        mask: bool, True where a row counts: one for each row, (rows,), or for each sequence of a level, and then for all
            rows under it. A LoDTensor with the LoD of loss_rows or with its outer levels; or plain, where its size
            is that of the rows or of one level only.
        weight: a floating dtype, of the same forms; it may need a gradient. Given per sequence, it weighs the
            sequences for "sequence" and all rows under them for "token". Of losses that have torch's class weights in
            them the mean is divided by the number of rows; torch's own divides by the weights, which is
            F.cross_entropy without weight here and weight=x.with_values(class_weights[target.values()]).

    Returns:
        a plain number (a tensor without dims) for "token" and "sequence"; for a level (sequences,), with the levels above.
        The dtype of loss_rows. Differentiable; the gradient of a row that does not count is 0.

    Raises:
        ValueError: for rows of more than one number; for a mask or weight of another size, or of a size that is that of
            several levels; for a weight of the sequences whose means are asked for, where it would change nothing; for
            losses that cross_entropy ignored in part.
        TypeError: for another dtype.

    Source: torch.nn.CrossEntropyLoss's weighted mean, over rows that are not padded.
    """
    s = along(loss_rows, -1 if reduce in ("token", "sequence") else reduce, "loss_rows")
    if s.rows.dim() != 1:
        raise LoDValueError(
            f"expected loss_rows with one element per row, (rows,), got {tuple(s.rows.shape)}; see loss_rows.mean(1)"
        )
    a_float(s.rows)
    kept = rows_that_count(loss_rows._lod)
    if mask is not None:
        given, k = mask_or_weight("mask", mask, s.lod, reduce)
        given = given if k == s.lod.depth else given[s.lod.segment_ids_at(k, given.device)]
        kept = given if kept is None else kept & given
    if kept is None and weight is None:
        return _plain_loss(s, reduce)
    with_memory(s.rows)
    rows = s.rows if kept is None else torch.where(kept, s.rows, 0)
    weights, of_sequences = (None, None) if weight is None else _weights(s, weight, reduce)
    exact = torch.promote_types(rows.dtype, torch.float32)  # half types are summed in float32
    exact = exact if weight is None else torch.promote_types(exact, weight.dtype)
    rows = rows.to(exact)
    weights = rows.new_ones(rows.shape) if weights is None else weights.to(exact)
    weights = weights if kept is None else torch.where(kept, weights, 0)
    offsets = _ends(rows) if reduce == "token" else s.offsets
    means, full = _ratio(rows * weights, weights, offsets)
    if reduce == "token":
        return means[0].to(s.rows.dtype)
    if reduce != "sequence":
        return _own_means(s, torch.where(full, means, torch.nan).to(s.rows.dtype), full)
    one = means.new_ones(means.shape) if of_sequences is None else of_sequences.to(exact)
    one = torch.where(full, one, 0)
    return _ratio(means * one, one, _ends(means))[0][0].to(s.rows.dtype)


def _weights(s, weight: Tensor, reduce) -> tuple[Tensor | None, Tensor | None]:
    """The weights of the rows, or of the sequences whose means are averaged."""
    weights, k = mask_or_weight("weight", weight, s.lod, reduce)
    if reduce not in ("token", "sequence") and k <= s.k:
        raise LoDValueError(
            f"expected a weight per row, or per sequence of a level inside level {s.k}, got one per sequence of level "
            f"{k}, which changes none of the means of level {s.k}; multiply them by it"
        )
    if k == s.lod.depth:
        return weights, None
    if reduce == "sequence":
        return None, weights if k == s.k else weights[_outer_of(s, k, weights.device)]
    return ops.segment_broadcast(weights, s.lod.row_offsets_at(k, weights.device), s.rows.shape[0]), None


def _plain_loss(s, reduce) -> Tensor:
    if reduce == "token":
        return ops.segment_reduce(s.rows, _ends(s.rows), "mean")[0]
    full = s.offsets.diff() > 0
    if reduce != "sequence":
        means = ops.segment_reduce(s.rows, s.offsets, "mean", torch.nan)
        return _own_means(s, means, full) if s.lod.any_empty_at(s.k) else s.pool(means)
    means = ops.segment_reduce(s.rows, s.offsets, "mean")
    return ops.segment_reduce(means / full.sum().clamp(min=1), _ends(means), "sum")[0]


def _own_means(s, means: Tensor, full: Tensor) -> Tensor:
    """The means of sequences, some of which have none: their LoD tells which."""
    return made(means, s.lod.outer_at(s.k).counting(full)) if s.k else means


def _ratio(above: Tensor, below: Tensor, offsets: Tensor) -> tuple[Tensor, Tensor]:
    """The sums of every segment, divided; where the lower one is 0 the result is 0. And where it is not."""
    above, below = (ops.segment_reduce(t, offsets, "sum") for t in (above, below))
    full = below != 0
    return torch.where(full, above / torch.where(full, below, 1), 0), full


def rows_that_count(lod, call: str = "sequence_loss") -> Tensor | None:
    """The rows that a loss of classes did not ignore; None where the LoD is not that of such losses."""
    if not lod.counted:
        return None
    every, some = lod.counted_rows()
    for i in failing(every != some, f"{call}: expected losses that are ignored as a whole or not at all"):
        raise LoDValueError(
            f"expected losses that are ignored as a whole or not at all, got one that was made of ignored and of other "
            f"targets, or moved by an operator, at row {i}; reduce every loss by itself, before operators of torch_lod, or "
            "pass loss_rows.values() as a new LoDTensor with mask="
        )
    return every


def _is_one_dim(what: str, given) -> None:
    if not isinstance(given, Tensor) or not (
        given.dtype == torch.bool if what == "mask" else given.is_floating_point()
    ):
        kind = "a bool tensor" if what == "mask" else "a tensor of a floating dtype"
        raise LoDTypeError(f"expected {what} as {kind}, got {shown(given)}")
    with_memory(given)
    if given.dim() != 1:
        raise LoDValueError(f"expected {what} of one dim, a number per row or per sequence, got {tuple(given.shape)}")
    if isinstance(given, DerivedTensor):
        a_lod_tensor(what, given)


def mask_or_weight(what: str, given, lod, reduce) -> tuple[Tensor, int]:
    """A mask or weight, plain, and the level whose sequences it is given for: the depth of the LoD for rows."""
    _is_one_dim(what, given)
    if isinstance(given, LoDTensor):
        own = given.lod
        if own.depth > lod.depth:
            raise LoDValueError(f"expected {what} with at most {lod.depth} levels, got {own.depth}")
        (lod if own.depth == lod.depth else lod.outer_at(own.depth)).agreed(own)
        return values_of(given), own.depth
    counts = [*[lod.num_sequences(k) for k in range(lod.depth)], lod.rows]
    found = [k for k, count in enumerate(counts) if known(given.shape[0] == count)]
    if not found:
        raise LoDValueError(
            f"expected {what} for {counts[-1]} rows or, per level, {counts[:-1]} sequences, got {given.shape[0]}"
        )
    weighs = what == "weight" and reduce == "sequence" and found[-1] == lod.depth
    same = not weighs and all(known(lod.longest_at(k) <= 1) for k in range(found[0], found[-1]))
    if len(found) > 1 and not same:
        names = ["the rows" if k == lod.depth else f"the sequences of level {k}" for k in found]
        raise LoDValueError(
            f"expected {what} of a size that tells what it is for, got {given.shape[0]}, as many as {' and '.join(names)}; "
            f"make it a LoDTensor: loss_rows.with_values({what}) for rows, tl.LoDTensor({what}, loss_rows.lod.outer(k)) for "
            f"sequences of an inner level k, tl.sequence_expand_as({what}, loss_rows) to lay one of level 0 over the rows"
        )
    return given, found[-1]


def _outer_of(s, k: int, device) -> Tensor:
    """For every innermost sequence the sequence of level k that it is in."""
    return s.lod.outer_at(s.k).segment_ids_at(k, device)


def _ends(values: Tensor) -> Tensor:
    """The offsets that make one segment of all rows."""
    return computed_there(torch.arange(2, device=values.device) * values.shape[0], values.shape[0])
