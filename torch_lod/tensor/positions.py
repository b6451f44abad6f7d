# SPDX-License-Identifier: Apache-2.0
"""Positions within sequences, held by a tensor whose rows belong to these sequences: `sequence_gather`, `LoDTensor.spans`."""

import torch
from torch import Tensor

from ..dynamo import failing, holds
from ..errors import LoDTypeError, LoDValueError, shown
from ..structure.lod import LoD
from ..structure.validate import with_data, with_memory
from .lod_tensor import LoDTensor, moved, rows_of

_SIGNED = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


def integers(what: str, index, device: torch.device) -> Tensor:
    """The rows of an index, int64; TypeError for anything but integers on the device."""
    if not isinstance(index, Tensor) or index.dim() == 0:
        got = "a tensor without rows" if isinstance(index, Tensor) else shown(index)
        raise LoDTypeError(
            f"expected {what} as a LoDTensor of integers, or a tensor of one row per sequence, got {got}"
        )
    if index.dtype not in _SIGNED:
        raise LoDTypeError(f"expected {what} of a signed integer dtype or uint8, got {index.dtype}")
    if index.device != device:
        raise LoDTypeError(f"expected {what} on {device}, as x, got one on {index.device}")
    with_memory(index)
    return rows_of(index).to(torch.int64)


def owners(what: str, lod: LoD, k: int, index: Tensor, device: torch.device | None) -> Tensor:
    """For every row of an index the sequence of level k of `lod` that it picks from; see `owned`."""
    own = owned(what, lod, k, index)
    return torch.arange(lod.num_sequences(k), device=device or "cpu") if own is None else own.segment_ids_at(k, device)


def owned(what: str, lod: LoD, k: int, index: Tensor) -> LoD | None:
    """The LoD of an index whose level k has the sequences of level k of `lod`; None where it has a row for each of them.

    The index has the levels of `lod` above k, and then a row per sequence; or more levels, of which level k has as many
    sequences as level k of `lod`.
    """
    own = index.lod if isinstance(index, LoDTensor) else None
    depth, count = 0 if own is None else own.depth, lod.num_sequences(k)
    if depth < k:
        raise LoDValueError(
            f"expected {what} with the levels of x above level {k}, got {depth} levels; for a row per sequence "
            f"tl.LoDTensor({what}, x.lod.outer({k}))"
        )
    if k:
        above, outer = lod.outer_at(k), own if depth == k else own.outer_at(k)  # type: ignore[union-attr]
        assert above is not None and outer is not None
        if above.differs(outer):
            raise LoDValueError(
                f"expected {what} with the levels of x above level {k}, got LoDs that differ: {above.difference(outer)}"
            )
    elif not holds((index.shape[0] if own is None else own.num_sequences()) == count):
        rows = index.shape[0] if own is None else own.num_sequences()
        hint = f"; several for each as a LoDTensor, tl.from_lengths({what}, [lengths])" if own is None else ""
        raise LoDValueError(
            f"expected {what} with {'a row for each of' if own is None else 'as many sequences as x,'} {count}"
            f"{' sequences' if own is None else ''}, got {rows}{hint}"
        )
    return own if depth > k else None


def spans(x: LoDTensor, start: LoDTensor, end: LoDTensor, k: int) -> LoDTensor:
    """The elements of level k from `start` to `end`, those of every row of start as a sequence: `LoDTensor.spans`."""
    for what, bound in (("start", start), ("end", end)):
        if not isinstance(bound, LoDTensor) or bound.lod_level <= k or bound.dim() != 1:
            raise LoDTypeError(
                f"expected {what} as a LoDTensor of shape (spans,), of {k + 1} or more levels, got {_form(bound)}; for one "
                "part of every sequence tl.sequence_slice"
            )
        with_data(what, bound)
    lod = x.lod
    starts, ends = (integers(what, bound, x.device).cpu() for what, bound in (("start", start), ("end", end)))
    own = start.lod.agreed(end.lod)
    owner, offsets = owners("start", lod, k, start, None), lod.levels[k]
    begin, room = offsets[:-1][owner], offsets.diff()[owner]
    wrong = (starts < 0) | (starts > ends) | (ends > room)
    for i in failing(wrong, "spans: expected start and end within the sequences"):
        of = f" of level {k}, counting sequences of level {k + 1} and not rows" if k + 1 < lod.depth else ""
        raise LoDValueError(
            f"expected 0 <= start <= end <= {int(room[i])} in sequence {int(owner[i])}{of}, got {int(starts[i])} and "
            f"{int(ends[i])} at row {i}"
        )
    inner, runs = lod.runs(k, begin + starts, ends - starts)
    if inner.level_names:  # the name of level k is that of the sequences which the spans are in
        inner = inner.with_level_names([None, *inner.level_names[1:]])
    return moved(x, stacked(own, inner), runs)


def stacked(outer: LoD | None, inner: LoD) -> LoD:
    """The levels of `outer`, whose rows are the sequences of `inner`, and those of `inner`; names occur once."""
    if outer is None:
        return inner
    names = list(outer.level_names or (None,) * outer.depth)
    names += [None if name in names else name for name in inner.level_names or (None,) * inner.depth]
    levels = [*outer.levels, *inner.levels]
    return LoD.checked("offsets", levels, names, inner.rows).counting(*inner.counted)


def _form(value) -> str:
    if isinstance(value, LoDTensor):
        return f"one of shape {tuple(value.shape)} and {value.lod_level} levels"
    return shown(value)
