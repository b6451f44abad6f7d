# SPDX-License-Identifier: Apache-2.0
"""`conv(t)[..., :-k]`, and `conv(t)[..., :n]` with n the rows of t, which cut the k rows that the padding of a convolution added to
the end of every sequence. That n is a size is the exception: elsewhere no size tells what rows are."""

from torch import Tensor

from .. import ops
from ..structure.lod import LoD
from ..structure.validate import as_int
from ..tensor import rules
from ..tensor.derived import DerivedTensor, rows_at


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


_getitem = rules.Route(
    lambda x, key: NotImplemented, rules.RULES[Tensor.__getitem__]
)  # on every index: without a border
_getitem.elsewhere, _getitem.lost = _without_addition, True
rules.RULES[Tensor.__getitem__] = _getitem
