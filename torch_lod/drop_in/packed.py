# SPDX-License-Identifier: Apache-2.0
"""`pack_padded_sequence(t, lengths)` before a recurrence and `pad_packed_sequence` behind it, of rows as a batch of one: where the
lengths are those of the sequences, the packed rows are theirs, in torch's order, and padding them gives the batch back.

Packed rows lost their structure for every other function: in their order they correspond to no rows of a LoDTensor, but to plain
tensors that were packed in the same way.
"""

from types import FrameType
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.utils import rnn

from ..dynamo import compiling
from ..errors import LoDTypeError, LoDValueError, shown, without_policy
from ..structure.lod import LoD
from ..tensor.attach import become
from ..tensor.derived import rows_at
from ..tensor.lod_tensor import LoDTensor, made
from ..tensor.provenance import Provenance
from .routes import at_dim, caller, route, structured

_CODES = (rnn.pack_padded_sequence.__code__, rnn.pad_packed_sequence.__code__)
_LEAVE_OUT = (
    "nothing is padded: leave pack_padded_sequence and pad_packed_sequence out, torch.nn's recurrent modules take a LoDTensor as it "
    "is; x.to_packed_sequence() packs"
)


class Packed(NamedTuple):
    """What packed rows know, an attribute of the tensor itself, which no function passes on."""

    lod: LoD
    #: The row of the batch that each of them is.
    row: Tensor


def packed_of(value) -> Packed | None:
    return getattr(value, "_packed", None)


def _marked(rows: Tensor, packed: Packed) -> Tensor:
    """Rows that no other object holds."""
    data: Any = become(rows, Provenance(packed.lod, None, "pack_padded_sequence"))
    data._packed = packed
    return data


def _frame(code) -> FrameType | None:
    """The frame of torch's function that called."""
    frame = None if compiling() else caller()
    return frame if frame is not None and frame.f_code in code else None


def _index_select(input, dim, index):
    """Packing sorts the sequences of a padded batch, and padding turns them back: rows in a batch of one stay."""
    return NotImplemented if _frame(_CODES) is None or not structured(input) or structured(index) else input


route(Tensor.index_select, kind=None, lost=True, elsewhere=_index_select)(_index_select)


def _pack(input, lengths, batch_first):
    frame = _frame(_CODES[:1])
    if frame is None or not structured(input):
        return NotImplemented
    if structured(lengths):
        raise LoDTypeError(
            f"expected lengths as a plain tensor, got a {type(lengths).__name__}; see x.lengths(); {_LEAVE_OUT}"
        )
    rows, lod = _rows_of_one(input, batch_first)
    order = frame.f_locals.get("sorted_indices")
    given = lengths if order is None else torch.empty_like(lengths).scatter_(0, order.to(lengths.device), lengths)
    own = lod.row_lengths_at(lod.depth - 1)
    if not torch.equal(given.cpu(), own):
        raise LoDValueError(
            f"expected the lengths of the {own.numel()} sequences, {shown(own.tolist())}, got {shown(given.tolist())}; {_LEAVE_OUT}"
        )
    if own.numel() == 0 or bool((own == 0).any()):
        raise LoDValueError(f"expected sequences with rows, got an empty one; {_LEAVE_OUT}")
    if bool((lengths.diff() > 0).any()):
        raise LoDValueError(
            f"expected lengths in decreasing order, got {shown(own.tolist())}; pass enforce_sorted=False, or {_LEAVE_OUT}"
        )
    rank = torch.arange(own.numel()) if order is None else order.cpu().argsort()
    position, sequence = lod.position_ids(), lod.segment_ids()
    index = (position * own.numel() + rank[sequence]).argsort().to(rows.device)
    sizes = torch.bincount(position)
    return _marked(rows.index_select(0, index), Packed(lod, index)), sizes


def _rows_of_one(input, batch_first: bool) -> tuple[Tensor, LoD]:
    """The rows of (1, rows, ...), or of (rows, 1, ...) without batch_first."""
    if batch_first and input.dim() > 1 and input.shape[0] == 1 and at_dim(input, 1 - input.dim()):
        return input.values().squeeze(0), input.lod
    if not batch_first and isinstance(input, LoDTensor) and input.dim() > 1 and input.shape[1] == 1:
        return input.values().squeeze(1), input.lod
    layout = "x[None]" if batch_first else "x[:, None]"
    raise LoDValueError(
        f"expected a batch of one, {layout}, with batch_first={bool(batch_first)}, got shape {tuple(input.shape)}; {_LEAVE_OUT}"
    )


route(torch._pack_padded_sequence, kind=None, lost=True, elsewhere=_pack)(_pack)


def _pad(input, batch_sizes, batch_first, padding_value, total_length):
    packed = packed_of(input)
    frame = _frame(_CODES[1:])
    if packed is None or frame is None:
        return NotImplemented
    if frame.f_locals.get("total_length") is not None:
        raise LoDValueError(f"expected no total_length, since nothing is padded, got {shown(total_length)}")
    lod, order = packed.lod, frame.f_locals["sequence"].sorted_indices
    lengths = lod.row_lengths_at(lod.depth - 1)
    if input.shape[0] != lod.rows or not torch.equal(batch_sizes, torch.bincount(lod.position_ids())):
        raise LoDValueError("expected the batch sizes that pack_padded_sequence made of these rows, got others")
    rows = torch.empty_like(packed.row).scatter_(0, packed.row, torch.arange(lod.rows, device=packed.row.device))
    back = input.values().index_select(0, rows)
    lengths = lengths.clone() if order is None else lengths[order.cpu()]
    if batch_first:
        return rows_at(back.unsqueeze(0), lod, 1, "pad_packed_sequence"), lengths
    return made(back.unsqueeze(1), lod), lengths


route(torch._pad_packed_sequence, kind=None, lost=True, elsewhere=_pad)(_pad)


def run(func, data, *args):
    """A recurrence of torch along packed rows."""
    with without_policy():
        out, *finals = func(data.values(), *args)
    return (_marked(out, data._packed), *finals)
