# SPDX-License-Identifier: Apache-2.0
"""Losses of whole sequences."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from .. import ops
from ..dynamo import compiling, failing, known
from ..errors import LoDTypeError, LoDValueError, shown
from ..ops import check
from ..sequence_operator import Along, along
from ..structure.validate import sums, with_memory
from ..tensor.lod_tensor import LoDTensor
from .routes import route, structured

#: The logarithm of the sum of a row of log-probabilities, as log_softmax rounds it, is smaller than this many roundings.
_ROUNDED = 16


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
            raise LoDTypeError(f"expected {name} as plain lengths, got {shown(lengths)}; see x.lod.lengths()")
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
    rows = log_probs.values()
    packed = _packed(s, rows, targets, target_lengths, blank, reduction, zero_infinity)
    losses = None if packed is None else _of_rows(s, rows, *packed, blank, zero_infinity)
    if packed is not None and losses is not None:
        if reduction == "none":
            return s.pool(losses)
        return losses.sum() if reduction == "sum" else (losses / packed[1].diff().clamp(min=1)).mean()
    dense, _ = log_probs.to_padded(max_length=max(s.lod.longest_at(s.k), 1))  # torch refuses sizes of 0
    if known(dense.shape[0] == 0):
        losses = dense.sum((1, 2))
        return s.pool(losses) if reduction == "none" else losses.mean() if reduction == "mean" else losses.sum()
    dense = dense.transpose(0, 1)
    losses = F.ctc_loss(dense, targets, input_lengths, target_lengths, blank, reduction, zero_infinity)
    return s.pool(losses) if reduction == "none" else losses


def _packed(s: Along, rows, targets, lengths, blank, reduction, zero_infinity) -> tuple[Tensor, Tensor, Tensor] | None:
    """The labels, their offsets, and of every row the logarithm of its sum, where `ops.ctc_loss` does what torch's does.
    None where torch is to answer or to raise: traced and on a GPU, for what it refuses, for labels that are the blank, and
    for rows that are no log-probabilities of anything."""
    if compiling() or not all(t.is_cpu and check.readable(t) for t in (rows, targets, lengths)):
        return None
    classes, whole = rows.shape[1], (torch.int64, torch.int32)
    options = type(blank) is int and 0 <= blank < classes and type(zero_infinity) is bool
    if not options or reduction not in ("none", "mean", "sum") or rows.dtype not in (torch.float32, torch.float64):
        return None
    if targets.dtype not in whole or lengths.dtype not in whole or lengths.shape != (s.lod.num_sequences(s.k),):
        return None
    counts = lengths.tolist()
    if targets.dim() == 1:
        fits = min(counts, default=0) >= 0 and sum(counts) == len(targets)
    else:
        fits = targets.dim() == 2 and len(targets) == len(counts)
        fits = fits and all(0 <= n <= targets.shape[1] for n in counts)
    if not fits:
        return None
    if targets.dim() == 2:
        targets = targets[torch.arange(targets.shape[1]) < lengths[:, None]]
    labels = targets.long()
    logsums = rows.detach().logsumexp(1)
    if not counts or bool((labels == blank).any()) or not bool(logsums.isfinite().all()):
        return None
    return labels, sums(lengths.long()), logsums


def _of_rows(s: Along, rows, labels, cuts, logsums, blank, zero_infinity) -> Tensor | None:
    """The losses of rows that torch takes for log-probabilities as they are. Its gradient is exp(rows) less the posterior
    whatever they sum to; the kernel has a softmax in place of exp(rows). None where torch has NaN for a gradient."""
    losses = ops.ctc_loss(rows, s.offsets, labels, cuts, blank)
    none = losses.detach() == math.inf
    if not zero_infinity and bool(none.any()):
        return None
    if not bool((logsums.abs() < _ROUNDED * torch.finfo(rows.dtype).eps).all()):
        excess = rows.exp().sum(1) - rows.logsumexp(1)
        more = ops.segment_reduce(excess - excess.detach() - logsums, s.offsets, "sum")
        losses = losses + torch.where(none, 0, more)
    return torch.where(none, 0, losses) if zero_infinity else losses


def _lengths(what: str, given, lod):
    """The lengths of the innermost sequences; those that are given must be the same."""
    own = lod.row_lengths_at(lod.depth - 1).clone()
    if given is None:
        return own
    with_memory(given)
    given = torch.as_tensor(given)
    if given.dim() != 1 or not known(given.shape[0] == own.shape[0]):
        raise LoDValueError(
            f"expected {what} of the {own.shape[0]} innermost sequences, got {shown(given)}; pass .lod.lengths() of the "
            "LoDTensor, or None"
        )
    said = f"expected {what} as the LoD has them, pass .lod.lengths() of the LoDTensor, or None"
    for i in failing(given != own.to(given.device), f"ctc_loss: {said}"):
        raise LoDValueError(f"{said}, got {int(given[i])} for sequence {i} of {int(own[i])} rows")
    return own


def _same_number(lod, labels) -> None:
    counts = lod.num_sequences(-1), labels.num_sequences(-1)
    if not known(counts[0] == counts[1]):
        raise LoDValueError(f"expected labels for {counts[0]} innermost sequences, got {counts[1]}")
    if lod.depth > 1 and labels.depth > 1:
        lod.outer(-1).agreed(labels.outer(-1))
