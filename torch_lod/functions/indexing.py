# SPDX-License-Identifier: Apache-2.0
"""What takes rows apart, writes them by index and puts tensors together."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from .. import ops
from ..dynamo import compiling
from ..structure.joined import chain, counted_in
from ..structure.lod import LoD
from ..structure.validate import as_int
from ..tensor.derived import DerivedTensor, rows_at
from ..tensor.provenance import EACH, At, Provenance, carries, is_whole, lod_of, placed, provenance_of, provenances_of
from ..tensor.table import name_of
from .buffers import becoming
from .placement import agree, joined, partial, place, refuse_positions
from .refusals import AT_AN_INDEX, JOIN, OUT, PADDED, POOL, TAKE, misaligned, refusal, refused, same_lod
from .row import attribute, enter
from .signature import Signature, at_other_dims, signature, touches_rows, without
from .views import ranked

_NO_LIST = (slice, int, type(None), type(Ellipsis))


def _with_ints(key):
    """The key of x[...] with ints instead of what torch takes as ints: numpy's, and plain tensors without dims, which of
    uint8 are masks."""
    if isinstance(key, tuple):
        return tuple([_with_ints(k) for k in key])
    takes = isinstance(key, np.integer) or (type(key) is Tensor and key.dtype != torch.uint8)
    return as_int(key) if takes else key


def getitem(func, args, kwargs):
    x, key = args
    p = placed(x)
    if p is None:
        return _looked_up(x, key) if provenance_of(x) is None else None
    if key is None:
        return Provenance(p.lod, p.dim + 1, p.call or name_of(func), p.part)
    key = _with_ints(key)
    if is_whole(p) and lod_of(key) is not None and key.dtype == torch.bool:
        same_lod("x[mask]", p.lod, lod_of(key))
    keys = key if isinstance(key, tuple) else (key,)
    if is_whole(p) and _takes_all_rows(x, keys):
        return p
    return _taken(x, keys, p, name_of(func))


def _takes_all_rows(x, keys: tuple) -> bool:
    """Whether an index of a LoDTensor begins with all rows, and goes on with any index of their elements."""
    first, rest = keys[0] if keys else slice(None), keys[1:]
    if any(lod_of(k) is not None for k in rest):
        return False
    lists = [i for i, k in enumerate(rest) if isinstance(k, bool) or not isinstance(k, _NO_LIST)]
    if lists and lists[-1] - lists[0] + 1 != len(lists):
        return False  # index tensors that are not adjacent move their dims to the front
    if isinstance(first, slice) and first == slice(None):
        return True
    taken = sum(k.dim() if isinstance(k, Tensor) and k.dtype == torch.bool else k is not None for k in rest)
    return first is Ellipsis and taken < x.dim()


def _looked_up(x, key):
    """The rows of a table, by ids that are rows."""
    if isinstance(key, tuple) and len(key) == 1:
        key = key[0]
    if isinstance(key, Tensor) and key.dtype not in (torch.bool, torch.uint8):
        return placed(key)
    return None


def _taken(x, key: tuple, origin: Provenance, call: str) -> Provenance | None:
    """Where the rows are in x[key] for numbers, slices, None and an ellipsis, and for lists along a single other dim."""
    if not _follows_dims(key):
        return None
    given = sum(k is not None and k is not Ellipsis for k in key)
    if Ellipsis not in [k for k in key if isinstance(k, _NO_LIST)]:
        key = (*key, Ellipsis)
    seen = at = 0  # dims of x, and of the result
    for k in key:
        if k is Ellipsis:
            skipped = x.dim() - given
            if seen <= origin.dim < seen + skipped:
                return _at(origin, at + origin.dim - seen, call)
            seen, at = seen + skipped, at + skipped
        elif k is None:
            at += 1
        elif seen == origin.dim:
            return _cut(x, k, origin, at, call)
        else:
            seen, at = seen + 1, at + (not isinstance(k, int))
    return None


def _follows_dims(key: tuple) -> bool:
    """Whether every entry of an index is for one dim: it has no mask, and at most one list, which has one dim."""
    lists = [k for k in key if not isinstance(k, _NO_LIST) or isinstance(k, bool)]
    for k in lists:
        if isinstance(k, bool) or provenance_of(k) is not None or (isinstance(k, Tensor) and k.dtype == torch.bool):
            return False
    return not lists or (
        len(lists) == 1 and not any(isinstance(k, int) for k in key) and torch.as_tensor(lists[0]).dim() == 1
    )


def _at(origin: Provenance, dim: int, call: str) -> Provenance:
    return Provenance(origin.lod, dim, origin.call if origin.dim or origin.part else call, origin.part)


def _cut(x, k, origin: Provenance, at: int, call: str) -> Provenance | None:
    """The rows that a number or a slice takes."""
    if isinstance(k, slice) and k == slice(None):
        return _at(origin, at, call)
    rows, start = x.shape[origin.dim], origin.part[0] if origin.part else 0
    if isinstance(k, slice) and k.step in (None, 1):
        begin, end = _bound(k.start, 0, rows), _bound(k.stop, rows, rows)
        return part_of(_at(origin, at, call), start + begin, start + max(begin, end))
    if type(k) is int and (origin.dim == 0 or not compiling()) and -rows <= k < rows:
        return Provenance(origin.lod, None, call, (start + k % rows, start + k % rows + 1))
    return None


def _bound(index, default, rows):
    """An end of a slice; sizes may be symbols of torch.compile, which slice.indices does not take."""
    if index is None:
        return default
    index = index if index >= 0 else index + rows
    return max(0, min(index, rows))


def part_of(origin: Provenance, begin, end) -> Provenance:
    """The rows from `begin` to `end`: all of them are no part."""
    return Provenance(
        origin.lod, origin.dim, origin.call, None if begin == 0 and end == origin.lod.rows else (begin, end)
    )


def put(func, args, kwargs):
    """x[key] = value: where the key takes all rows or is a mask of rows. Rows as value must be those that they overwrite;
    beside a mask, the value is one number or one row for all."""
    x, key, value = args
    own = placed(x)
    if own is None:
        return None
    keys = key if isinstance(key, tuple) else (key,)
    masked = _put_by_mask(func, x, own, keys, value)
    target = getitem(func, (x, key), {})
    ends = is_whole(own) and at_ends(own.lod, keys)
    if not masked and not ends and (target is None or target.dim is None or target.part != own.part):
        raise partial(func, target or own)
    _check_value(func, x, key, value, own, target, masked)
    return own


def _put_by_mask(func, x, own: Provenance, keys: tuple, value) -> bool:
    """Whether an index is a mask of rows. Raises for one of other rows, and for values that are counted over all rows."""
    single = isinstance(value, Tensor) and value.dim() > 0
    masks = [k for k in keys if provenance_of(k) is not None]
    for k in masks:
        if k.dtype != torch.bool or len(keys) > 1:
            raise refusal(func, _ROWS_AS_INDEX)
        _refuse_other_mask(func, x, own, k, single)
    if not masks and is_whole(own):
        masks = [k for k in keys[:1] if _is_mask(k) and all(isinstance(rest, _NO_LIST) for rest in keys[1:])]
    if masks and single and value.dim() > x.dim() - masks[0].ndim and value.shape[0] != 1:
        raise refusal(func, f"what is written where is counted over all rows; see torch.where; {OUT}")
    return bool(masks)


def _refuse_other_mask(func, x, own: Provenance, mask, single: bool) -> None:
    """Raises for a mask of other rows than those that are written."""
    p = provenance_of(mask)
    if is_whole(own) and is_whole(p):
        same_lod("x[mask] =", own.lod, p.lod)
    elif is_whole(own) or single or not _corresponds(own, x.dim(), p, x.dim()) or mask.dim() < own.dim + 1:
        raise refusal(func, _ROWS_AS_INDEX)


def _check_value(func, x, key, value, own: Provenance, target: Provenance | None, masked: bool) -> None:
    """Raises for rows that would be written over other rows, and for a plain tensor along rows at another dim."""
    if not isinstance(value, Tensor):
        return
    p = provenance_of(value)
    if p is not None:
        if is_whole(own) and is_whole(target) and is_whole(p) and x[key].dim() == value.dim():
            same_lod("x[...] =", target.lod, p.lod)
        elif target is None or not _corresponds(target, x[key].dim(), p, value.dim()):
            raise refusal(func, "rows of the value would be written over other rows; assign its .values()")
    elif not masked and target is not None and target.dim:
        refuse_positions(func, target, target.dim - x[key].dim(), value)


#: Why a tensor of rows is no index.
_ROWS_AS_INDEX = "its rows would say which rows are written; pass .values() of the index"


def _is_mask(key) -> bool:
    return isinstance(key, (Tensor, np.ndarray)) and key.ndim > 0 and key.dtype in (torch.bool, torch.uint8, np.bool_)


def at_ends(lod: LoD, keys) -> bool:
    """Whether the first of the keys is made of the row offsets of a level: the first row of every sequence that is not
    empty, or the last one."""
    index = keys[0] if keys else None
    if compiling() or not isinstance(index, Tensor) or provenance_of(index) is not None or index.dim() != 1:
        return False
    if (
        index.is_meta
        or index.dtype not in (torch.int64, torch.int32)
        or any(not isinstance(k, _NO_LIST) for k in keys[1:])
    ):
        return False
    for k in range(lod.depth):
        offsets = lod.row_offsets_at(k)
        full = offsets.diff() > 0
        for ends in (offsets[:-1], offsets[1:] - 1):
            if torch.equal(index.to(ends), ends[full]):
                return True
    return False


def indexed(text: str):
    """index_fill and the like: rows at the row offsets of a level are one of every sequence."""

    @signature(text)
    def rule(func, input, rank, dim, index, rows, source):
        if not touches_rows(dim, rank, rows):
            return without(dim, rank, rows) if rows else True
        lod = lod_of(input)
        return lod is not None and not carries(source) and at_ends(lod, [index])

    return rule


def _corresponds(a: Provenance | None, dims: int, b: Provenance | None, other: int) -> bool:
    """Whether two provenances, of tensors of so many dims, are of the same rows at the same dim from the right."""
    if a is None or b is None or a.part != b.part or a.lod.differs(b.lod):
        return False
    if a.dim is None or b.dim is None:
        return a.dim is b.dim and a.part is not None
    return a.dim - dims == b.dim - other


_PUT = Signature("input, indices, values")


def index_put(func, args, kwargs):
    input, indices, values = _PUT.bind(args, kwargs)
    return put(func, (input, tuple(indices), values), {})


def data(func, args, kwargs):
    x, new = args
    if not is_whole(provenance_of(x)):
        raise refused(func, provenance_of(x) or provenance_of(new))
    if provenance_of(new) is not None:
        if lod_of(new) is None:
            raise misaligned(func)
        same_lod("data", lod_of(x), lod_of(new))
    if isinstance(new, Tensor) and (new.dim() == 0 or new.shape[0] != lod_of(x).rows):
        raise refusal(func, f"its LoD covers {lod_of(x).rows} rows; use x.with_lod(...) for other rows")


def by_place(text: str, broadcast: bool = False, looks_up: bool = False):
    """Entry (i, j) of an index is for row i. A plain tensor of another number of rows would be for the first rows of the
    batch only, or a table of positions. With `broadcast`, one row is for all; with `looks_up`, rows of indices into the same
    dim of a plain tensor, a table, keep their place."""

    @signature(text)
    def rule(func, rank, dim, rows, input, index, src):
        if touches_rows(dim, rank, rows):
            return looks_up and provenance_of(input) is None and placed(index) is not None
        given = [t for t in (input, index, src) if isinstance(t, Tensor) and t.dim() == rank]
        count = next(t.shape[rows] for t in given if provenance_of(t) is not None)
        for t in given:
            size = t.shape[rows]
            if provenance_of(t) is None and size != count and not (broadcast and size == 1):
                raise refusal(
                    func,
                    f"a plain tensor of shape {tuple(t.shape)} beside {count} rows is counted over all rows of the batch; rows of a "
                    f"table by ids are table[ids], positions x.position_ids(); {OUT}",
                )
        return without(dim, rank, rows) if rows else True

    return rule


def pieces(text: str):
    """split, chunk and the like. Along the rows each result is a part of them."""

    @signature(text)
    def rule(func, input, rank, dim, rows):
        if isinstance(dim, int) and dim % rank == rows:
            origin = provenance_of(input)
            return Provenance(origin.lod, rows, name_of(func), EACH) if origin and not compiling() else False
        return True

    return rule


@signature("input, dim=0")
def unbind(func, input, rank, dim, rows):
    if dim % rank != rows:
        return _less(rows, dim % rank)
    origin = provenance_of(input)
    return Provenance(origin.lod, None, name_of(func), EACH) if origin and not compiling() else False


def _less(rows: int, dim: int):
    return At(rows - 1) if dim < rows else True


@signature("input, dim, index")
def select(func, input, rank, dim, index, rows):
    if dim % rank != rows:
        return _less(rows, dim % rank)
    index = _with_ints(index)
    return (
        _cut(input, index, provenance_of(input), 0, name_of(func)) if type(index) is int and not compiling() else False
    )


@signature("input, dim, start, length")
def narrow(func, input, rank, dim, start, length, rows):
    if dim % rank != rows:
        return True
    origin, (start, length) = provenance_of(input), _with_ints((start, length))
    if origin is None or compiling() or type(start) is not int or type(length) is not int:
        return False
    before = (origin.part[0] if origin.part else 0) + start % max(input.shape[rows], 1)
    return part_of(Provenance(origin.lod, rows, origin.call or name_of(func)), before, before + length)


def join_tensors(func, args, kwargs):
    """cat and stack: along another dim than that of the rows as operands that must correspond; along it the parts of a
    batch are the batch again, and at dim 0 the sequences of whole batches follow one another."""
    tensors, dim = joined(args, kwargs)
    if not isinstance(dim, int) or not all(isinstance(t, Tensor) for t in tensors):
        return None
    rank, stacks = max([0, *[t.dim() for t in tensors]]), func is torch.stack
    dim %= max(rank + stacks, 1)
    own = provenance_of(tensors[0]) if tensors and dim else None
    if is_whole(own) and all(lod_of(t) is own.lod and t.dim() == rank for t in tensors):  # nearly every call
        return own
    if tensors and dim == 0 and not stacks and all(is_whole(provenance_of(t)) for t in tensors):
        return _chained([lod_of(t) for t in tensors])
    if not stacks:  # torch.cat leaves out tensors of shape (0,)
        tensors = [t for t in tensors if t.dim() != 1 or provenance_of(t) is not None or t.shape[0]]
    origins = [provenance_of(t) for t in tensors]
    along = [p is not None and (p.dim is None and _is_one_row(p) if stacks else p.dim == dim) for p in origins]
    if origins and all(along):
        return _together(origins, dim)
    if any(along) and not stacks:
        return None
    at, _ = place(func, tensors, True, given=stacks)
    if at is None or any(t.dim() != rank for t in tensors):
        return None
    return at._replace(dim=at.dim + (stacks and dim <= at.dim))


def _is_one_row(p: Provenance) -> bool:
    return p.part is not None and p.part[1] - p.part[0] == 1


def _together(origins: list, dim: int) -> Provenance | None:
    """Rows one after another: whole batches, or parts that follow one another."""
    if not compiling():  # an empty part adds nothing: x[4:] of a batch of four rows
        origins = [p for p in origins if p.part is None or p.part[0] != p.part[1]] or origins[:1]
    first = origins[0]
    if all(p.part is None for p in origins):
        if dim and len(origins) > 1:
            return None  # of (1, rows, width) it may also put rows behind those of every sequence
        whole = _chained([p.lod for p in origins])
        return whole and whole._replace(dim=dim, call=first.call or "cat")
    if not _follow_one_another(origins):
        return None
    lod, end = first.lod, origins[-1].part[1]
    if any(p.lod.counted for p in origins):
        around = [(0, first.part[0]), *[p.part for p in origins], (end, lod.rows)]
        lod = lod.counting(counted_in([p.lod for p in (first, *origins, first)], around))
    return part_of(Provenance(lod, dim, first.call), first.part[0], end)


def _follow_one_another(origins: list) -> bool:
    """Whether parts of one batch begin where the one before ends."""
    end = None
    for p in origins:
        if p.part is None or end not in (None, p.part[0]) or p.lod.differs(origins[0].lod):
            return False
        end = p.part[1]
    return True


def only_whole(rule):
    """`rule` of LoDTensors; beside rows elsewhere they are lost."""

    def rule_of_whole(func, args, kwargs):
        return rule(func, args, kwargs) if all(is_whole(p) for p in provenances_of(args, kwargs)) else None

    return rule_of_whole


def stack_at(least: int, chains: bool = False):
    """hstack and similar functions join tensors of at least `least` dims along another dim than 0; with `chains`, others one
    after another."""

    def rule(func, args, kwargs):
        tensors = joined(args, kwargs)[0]
        if any(t.dim() < least for t in tensors if lod_of(t) is not None):
            return _chained([lod_of(t) for t in tensors]) if chains else None
        return agree(func, tensors)

    return only_whole(rule)


@only_whole
def vstack(func, args, kwargs):
    return _chained([lod_of(t) if t.dim() > 1 else None for t in joined(args, kwargs)[0]])


def _chained(lods) -> Provenance | None:
    apart = any(lod is None for lod in lods) or len({lod.depth for lod in lods}) > 1
    return None if apart else Provenance(chain(lods), 0)


def moves(func, args, kwargs):
    """Rows are read or written at indices: they are lost."""


# -- writing into views


@signature("input, src: rows, offset, dim1=0, dim2=1")
def diagonal_scatter(func, input, src, dim1, dim2, rows):
    return _written((dim1, dim2), input.dim(), rows, func, input, src)


@signature("input, src: rows, dim")
def select_scatter(func, rank, input, src, dim, rows):
    return _written((dim,), rank, rows, func, input, src)


@signature("input, src: rows, dim=0")
def slice_scatter(func, rank, input, src, dim, rows):
    return _written((dim,), rank, rows, func, input, src, 0)


def _written(dims, rank: int, rows: int, func, input, src, gone: int = 1) -> bool:
    """Whether src, which has not the `gone` dims of the input that it is written along, leaves every row where it is; a plain one
    has no entry for each row at another dim than 0."""
    if touches_rows(dims, rank, rows):
        return False
    before = sum(d % rank < rows for d in dims) if gone else 0
    if provenance_of(src) is not None:
        return not before  # else its rows are at an earlier dim
    origin = provenance_of(input)
    if rows and isinstance(src, Tensor) and origin is not None:
        refuse_positions(func, origin, rows - before - rank + gone, src)
    return True


# -- `conv(t)[..., :-k]`, and `conv(t)[..., :n]` with n the rows of t, which cut the k rows that the padding of a convolution added to
# the end of every sequence. That n is a size is the exception: elsewhere no size tells what rows are


def lengthened(lod: LoD, before: LoD, count: int) -> None:
    """Notes in a new LoD that the sequences of `before` became longer by as many rows."""
    if not before.counted:
        object.__setattr__(lod, "_lengthened", (before, count))


def _without_addition(x, key):
    """x[key], where the key cuts exactly the rows that were added; NotImplemented for any other index."""
    p = x._provenance if isinstance(x, DerivedTensor) else None
    if p is None or not p.lod._lengthened or not p.dim or p.part is not None or p.lod.counted:
        return NotImplemented
    before, count = p.lod._lengthened
    stop = _end_cut(key, x.dim(), p.dim)
    if stop is None or (stop != -count and stop != before.rows):
        return NotImplemented
    rows, k = x.values().movedim(p.dim, 0), p.lod.depth - 1
    starts, offsets = p.lod.row_offsets_at(k, rows.device)[:-1], before.row_offsets_at(k, rows.device)
    taken = ops.gather_runs(rows.contiguous(), starts, offsets, before.rows)
    return rows_at(taken.movedim(0, p.dim), before, p.dim, p.call)


def _end_cut(key, dims: int, rows: int) -> int | None:
    """Of an index that takes all of every dim, but for rows at the end: where it stops."""
    keys = list(key) if isinstance(key, tuple) else [key]
    if any(not isinstance(k, slice) and k is not Ellipsis for k in keys):
        return None
    skipped = [i for i, k in enumerate(keys) if k is Ellipsis]
    if len(skipped) > 1 or len(keys) - len(skipped) > dims:
        return None
    for i in skipped:
        keys[i : i + 1] = [slice(None)] * (dims - len(keys) + 1)
    if rows >= len(keys):
        return None
    cut = keys.pop(rows)
    stop = as_int(cut.stop)
    if type(stop) is not int or cut.start not in (None, 0) or cut.step not in (None, 1):
        return None
    return stop if all(k == slice(None) for k in keys) else None


# -- the rows

enter("move", select, "select", instead=TAKE, along="x.nth(i)")
enter("move", select, "select_copy")
enter("move", unbind, "unbind", instead=TAKE, along="x.unbind_sequences()")
enter("move", unbind, "unbind_copy")
enter("move", narrow, "narrow", instead=TAKE, along="tl.sequence_slice(x, offset, length)")
enter("move", narrow, "narrow_copy")
_PIECES = pieces("input, chunks, dim=0")
enter("move", _PIECES, "chunk split", instead=TAKE, along="x.unbind_sequences()")
enter(
    "move",
    _PIECES,
    "split_copy split_with_sizes split_with_sizes_copy unsafe_chunk unsafe_split unsafe_split_with_sizes",
)
enter("move", at_other_dims("input, indices, dim=0"), "tensor_split")  # its pieces may overlap
enter("move", at_other_dims("input, dim"), "slice_copy", (torch,))
enter("move", ranked(2), "hsplit dsplit")
enter("move", at_other_dims("input, dim, index"), "index_select", instead=TAKE)
enter("move", at_other_dims("input, repeats, dim"), "repeat_interleave")
_GATHERED: dict[str, Any] = {"instead": AT_AN_INDEX, "beside": True}
_SCATTER = by_place("input: broadcast, dim, index: broadcast, src: broadcast")
enter("move", _SCATTER, "scatter scatter_", beside=True)
enter("move", _SCATTER, "scatter_add", instead=POOL, beside=True)
enter("move", _SCATTER, "scatter_reduce", instead=POOL)
enter(
    "move",
    by_place("input: broadcast, dim, index: broadcast, src", looks_up=True),
    "gather",
    **_GATHERED,
    along="tl.sequence_gather(x, index)",
)
enter("move", by_place("input: broadcast, index: broadcast, dim, src", True), "take_along_dim", **_GATHERED)
_INDEX_ADD = indexed("input: broadcast, dim, index, source: broadcast")
enter("move", _INDEX_ADD, "index_add index_reduce", instead=POOL)
enter("move", _INDEX_ADD, "index_copy index_copy_ index_fill index_fill_")
for _rule, _names in ((_SCATTER, "scatter_add scatter_reduce"), (_INDEX_ADD, "index_add index_reduce")):
    for _name in _names.split():
        enter("move", _rule, f"{_name}_", (Tensor,), **becoming(_name, False))
enter("move", select_scatter, "select_scatter")
enter("move", slice_scatter, "slice_scatter")
enter("move", diagonal_scatter, "diagonal_scatter")
enter(
    "move", getitem, "__getitem__", instead=TAKE, run_at_dim=_without_addition, takes_lost=True, quick=True
)  # on every index
enter("move", put, "__setitem__", writes=True)
enter("move", index_put, "index_put_")
enter("move", moves, "masked_scatter_ put_")
enter("move", join_tensors, "cat concat concatenate", instead=JOIN, beside=True)
enter("move", join_tensors, "stack", beside=True)
enter("move", stack_at(1), "column_stack", (torch,), beside=True)
enter("move", stack_at(2), "dstack", (torch,))
enter("move", stack_at(2, chains=True), "hstack", (torch,), beside=True)
enter("move", vstack, "row_stack vstack", (torch,))
enter(
    "move",
    None,
    "argwhere as_strided_copy as_strided_scatter index index_put masked_scatter nonzero nonzero_static put slice_inverse unique "
    "unique_consecutive vsplit",
)
enter("move", None, "masked_select take", instead=TAKE)
enter("move", None, "as_strided", instead=PADDED)
attribute("refuse", data, "data", change=True)
