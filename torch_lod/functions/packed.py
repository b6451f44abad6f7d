# SPDX-License-Identifier: Apache-2.0
"""`pack_padded_sequence(t, lengths)` before a recurrence and `pad_packed_sequence` behind it, of rows as a batch of one: where the
lengths are those of the sequences, the packed rows are theirs, in torch's order, and padding them gives the batch back.

Packed rows lost their structure for every other function: in their order they correspond to no rows of a LoDTensor, but to plain
tensors that were packed in the same way.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.utils import rnn

from ..errors import LoDTypeError, LoDValueError, shown, without_dispatch
from ..patches import instead
from ..structure.lod import LoD
from ..tensor.attach import become
from ..tensor.derived import rows_at
from ..tensor.lod_tensor import LoDTensor, made
from ..tensor.provenance import Provenance
from .layouts import at_dim, structured
from .row import enter
from .signature import refuse

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


@instead(rnn.pack_padded_sequence, call="pack_padded_sequence", graphs=False)
def pack(input, lengths, batch_first, enforce_sorted):
    if not structured(input):
        return NotImplemented
    if structured(lengths):
        raise LoDTypeError(
            f"expected lengths as a plain tensor, got a {type(lengths).__name__}; see x.lod.lengths(); {_LEAVE_OUT}"
        )
    with without_dispatch():
        return _pack(input, torch.as_tensor(lengths, dtype=torch.int64, device="cpu"), batch_first, enforce_sorted)


def _pack(input, lengths: Tensor, batch_first: bool, enforce_sorted: bool):
    rows, lod = _rows_of_one(input, batch_first)
    own = lod.row_lengths_at(lod.depth - 1)
    if not torch.equal(lengths, own):
        raise LoDValueError(
            f"expected the lengths of the {own.numel()} sequences, {shown(own.tolist())}, got {shown(lengths.tolist())}; {_LEAVE_OUT}"
        )
    if own.numel() == 0 or bool((own == 0).any()):
        raise LoDValueError(f"expected sequences with rows, got an empty one; {_LEAVE_OUT}")
    order = None if enforce_sorted else own.sort(descending=True).indices
    if order is None and bool((own.diff() > 0).any()):
        raise LoDValueError(
            f"expected lengths in decreasing order, got {shown(own.tolist())}; pass enforce_sorted=False, or {_LEAVE_OUT}"
        )
    rank = torch.arange(own.numel()) if order is None else order.argsort()
    position, sequence = lod.position_ids(), lod.segment_ids()
    index = (position * own.numel() + rank[sequence]).argsort().to(rows.device)
    data = _marked(rows.index_select(0, index), Packed(lod, index))
    return rnn.PackedSequence(data, torch.bincount(position), None if order is None else order.to(rows.device))


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


@instead(rnn.pad_packed_sequence, call="pad_packed_sequence", graphs=False)
def pad(sequence, batch_first, padding_value, total_length):
    packed = packed_of(sequence.data) if isinstance(sequence, rnn.PackedSequence) else None
    if packed is None:
        return NotImplemented
    if total_length is not None:
        raise LoDValueError(f"expected no total_length, since nothing is padded, got {shown(total_length)}")
    with without_dispatch():
        return _pad(sequence, packed, batch_first)


def _pad(sequence: rnn.PackedSequence, packed: Packed, batch_first: bool):
    data: Any = sequence.data
    lod = packed.lod
    lengths = lod.row_lengths_at(lod.depth - 1)
    if data.shape[0] != lod.rows or not torch.equal(sequence.batch_sizes, torch.bincount(lod.position_ids())):
        raise LoDValueError("expected the batch sizes that pack_padded_sequence made of these rows, got others")
    rows = torch.empty_like(packed.row).scatter_(0, packed.row, torch.arange(lod.rows, device=packed.row.device))
    back = data.values().index_select(0, rows)
    if batch_first:
        return rows_at(back.unsqueeze(0), lod, 1, "pad_packed_sequence"), lengths.clone()
    return made(back.unsqueeze(1), lod), lengths.clone()


def run(func, data, *args):
    """A recurrence of torch along packed rows."""
    with without_dispatch():
        out, *finals = func(data.values(), *args)
    return (_marked(out, data._packed), *finals)


enter(
    "refuse",
    refuse(
        "nothing in it is padded; x.to_packed_sequence() packs it, and torch.nn's recurrent modules take it as it is"
    ),
    "_pack_padded_sequence",
    (torch,),
)
enter(
    "refuse",
    refuse(
        "every row would be a sequence; x.to_padded() pads the sequences, tl.batch makes a batch of several LoDTensors"
    ),
    "pad_sequence",
    (torch._C._nn,),
)
