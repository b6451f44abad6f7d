# SPDX-License-Identifier: Apache-2.0
"""Losses of whole sequences."""

import torch
import torch.nn.functional as F

from ..dynamo import failing, known
from ..errors import LoDTypeError, LoDValueError, shown
from ..sequence_operator import along
from ..tensor import LoDTensor
from ..validate import with_memory
from .routes import route, structured


@route(F.ctc_loss)
def ctc_loss(
    log_probs,
    targets,
    input_lengths=None,
    target_lengths=None,
    blank=0,
    reduction="mean",
    zero_infinity=False,
):
    """Log-probabilities (rows, classes), of which every innermost sequence is one input, beside labels: a LoDTensor
    (labels,) with as many innermost sequences, or plain in torch's two forms. The lengths are those of the LoDTensors, or
    None. With reduction="none" the losses have the levels above."""
    for name, lengths in (("input_lengths", input_lengths), ("target_lengths", target_lengths)):
        if structured(lengths):
            raise LoDTypeError(f"expected {name} as plain lengths, got {shown(lengths)}; see x.lengths()")
    s = along(log_probs, -1, "log_probs") if structured(log_probs) else None
    if s is not None:
        if s.rows.dim() != 2:
            raise LoDValueError(
                f"expected log_probs of shape (rows, classes), since the sequences are the batch, got {tuple(s.rows.shape)}; "
                "every row a batch of its own is x.values()"
            )
        input_lengths = _lengths("input_lengths", input_lengths, s.lod)
    if structured(targets):
        if not isinstance(targets, LoDTensor) or targets.dim() != 1:
            raise LoDTypeError(f"expected targets as a LoDTensor of shape (labels,), got {shown(targets)}")
        target_lengths = _lengths("target_lengths", target_lengths, targets.lod)
        if s is not None:
            _same_number(s.lod, targets.lod)
        targets = targets.values()
    if s is None:
        input_lengths = torch.as_tensor(input_lengths)
        return F.ctc_loss(log_probs, targets, input_lengths, target_lengths, blank, reduction, zero_infinity)
    if target_lengths is None:
        raise LoDTypeError("expected target_lengths for plain targets, got None; a LoDTensor of labels has its own")
    with_memory(targets, target_lengths)
    target_lengths = torch.as_tensor(target_lengths)
    dense, _ = log_probs.to_padded(max_length=max(s.lod.longest_at(s.k), 1))  # torch refuses sizes of 0
    if known(dense.shape[0] == 0):
        losses = dense.sum((1, 2))
        return s.pool(losses) if reduction == "none" else losses.mean() if reduction == "mean" else losses.sum()
    dense = dense.transpose(0, 1)
    losses = F.ctc_loss(dense, targets, input_lengths, target_lengths, blank, reduction, zero_infinity)
    return s.pool(losses) if reduction == "none" else losses


def _lengths(what: str, given, lod):
    """The lengths of the innermost sequences; those that are given must be the same."""
    own = lod.row_lengths_at(lod.depth - 1).clone()
    if given is None:
        return own
    with_memory(given)
    given = torch.as_tensor(given)
    if given.dim() != 1 or not known(given.shape[0] == own.shape[0]):
        raise LoDValueError(
            f"expected {what} of the {own.shape[0]} innermost sequences, got {shown(given)}; pass .lengths() of the "
            "LoDTensor, or None"
        )
    said = f"expected {what} as the LoD has them, pass .lengths() of the LoDTensor, or None"
    for i in failing(given != own.to(given.device), f"ctc_loss: {said}"):
        raise LoDValueError(f"{said}, got {int(given[i])} for sequence {i} of {int(own[i])} rows")
    return own


def _same_number(lod, labels) -> None:
    counts = lod.num_sequences(-1), labels.num_sequences(-1)
    if not known(counts[0] == counts[1]):
        raise LoDValueError(f"expected labels for {counts[0]} innermost sequences, got {counts[1]}")
    if lod.depth > 1 and labels.depth > 1:
        lod.outer(-1).agreed(labels.outer(-1))
