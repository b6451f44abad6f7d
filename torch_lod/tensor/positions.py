# SPDX-License-Identifier: Apache-2.0
"""Positions within sequences, held by a tensor whose rows belong to these sequences: `sequence_gather`, `LoDTensor.spans`."""

import torch
from torch import Tensor

from ..dynamo import holds
from ..errors import LoDTypeError, LoDValueError, shown
from ..structure.lod import LoD
from ..structure.validate import with_memory
from .provenance import lod_of, plain

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
    return plain(index).to(torch.int64)


def owners(what: str, lod: LoD, k: int, index: Tensor, device: torch.device | None) -> Tensor:
    """For every row of an index the sequence of level k of `lod` that it picks from; see `owned`."""
    own = owned(what, lod, k, index)
    return torch.arange(lod.num_sequences(k), device=device or "cpu") if own is None else own.segment_ids_at(k, device)


def owned(what: str, lod: LoD, k: int, index: Tensor) -> LoD | None:
    """The LoD of an index whose level k has the sequences of level k of `lod`; None where it has a row for each of them.

    The index has the levels of `lod` above k, and then a row per sequence; or more levels, of which level k has as many
    sequences as level k of `lod`.
    """
    own = lod_of(index)
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
