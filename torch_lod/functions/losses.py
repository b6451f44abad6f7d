# SPDX-License-Identifier: Apache-2.0
"""Losses: of each row, and of whole sequences."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from .. import ops
from ..dynamo import compiling, failing, known
from ..errors import LoDTypeError, LoDValueError, shown
from ..ops import check
from ..sequence.operator import Along, along
from ..structure.validate import sums, with_memory
from ..tensor.lod_tensor import LoDTensor
from ..tensor.provenance import Provenance, is_whole, placed, provenance_of, provenances_of
from .layouts import structured
from .operands import all_operands, operands
from .placement import corresponding, join_batches, join_given, place
from .refusals import OUT, all_pairs, along_rows, misaligned, refusal, sequences_meet
from .row import enter
from .signature import Signature, only_at_dim_0, row_by_row, signature


@signature("anchor: broadcast, positive: broadcast, negative: broadcast, *, distance_function")
def triplet(func, distance_function):
    """The user's own distance function may do anything with the rows."""
    return distance_function is None or isinstance(distance_function, torch.nn.PairwiseDistance)


_GAUSSIAN = Signature("input, target, var")


def gaussian(func, args, kwargs):
    return join_given(func, _with_last_dim(args, kwargs), {})


def _with_last_dim(args, kwargs) -> tuple:
    """A variance for each vector of the input has no last dim: torch gives it one."""
    input, target, var = _GAUSSIAN.bind(args, kwargs)
    both = isinstance(input, Tensor) and isinstance(var, Tensor)
    if not both or var.dim() != input.dim() - 1 or var.shape != input.shape[:-1]:
        return input, target, var
    wide = var.unsqueeze(-1)
    if provenance_of(var) is not None:
        wide._provenance = provenance_of(var)  # type: ignore[attr-defined]
    return input, target, wide


def distances(rule):
    """`rule` of LoDTensors; a distance or angle is taken over the last dim, which must not be that of the rows."""

    def rule_of_distances(func, args, kwargs):
        tensors = [t for t in (*args, *kwargs.values()) if isinstance(t, Tensor)]
        for t in tensors:
            p = placed(t)
            if p is not None and p.dim and p.dim == t.dim() - 1:
                raise along_rows(func, p, "its distances would run over the rows of all sequences")
        if all(is_whole(p) for p in provenances_of(args, kwargs)):
            return rule(func, args, kwargs)
        return place(func, tensors, True)[0]

    return rule_of_distances


@signature("input: broadcast, target: broadcast, weight: broadcast")
def soft_margin(func, input, rank):
    """The mean over the classes is one over the last dim of the input: a weight of more dims moves them."""
    return rank == input.dim()


_LOSS = Signature("input, target, weight=None, size_average=None, ignore_index=-100, reduce=None, reduction='mean'")


def classes(func, args, kwargs):
    """Logits (rows, classes, ...) and class indices (rows, ...). Of rows at dim d > 1 of the logits, dim d - 1 of the
    targets."""
    input, target, weight, *_ = _LOSS.bind(args, kwargs)
    logits, given = placed(input), placed(target)
    if placed(weight) is not None and not (logits is None and given is None):
        raise all_pairs(func)
    if provenance_of(weight) is not None:
        return None
    if logits is None:  # plain, or lost, which meets the rows of the targets
        return given if is_whole(given) or provenance_of(input) is not None else None
    if logits.dim == min(1, input.dim() - 1):
        raise along_rows(func, logits, f"its classes would be the rows of all sequences; {_CLASSES}")
    ahead = logits.dim > 0
    if given is not None:
        if logits.dim - (ahead and input.dim() == target.dim() + 1) != given.dim:
            sequences_meet(func, logits.lod, given.lod)
            raise misaligned(func)
        if corresponding(func, logits, given._replace(dim=logits.dim)) is None:
            return None
    return logits._replace(dim=logits.dim - ahead)


_CLASSES = f"tl.sequence_log_softmax is that of the rows of every sequence; {OUT}"


def ignoring(rule, of: Signature = _LOSS):
    """`rule` for a loss of classes: one number per row does not tell whether it counts, so the LoD has to."""

    def counted(answer, bound):
        """The answer, whose LoD tells which rows count."""
        target, index = bound["target"], bound["ignore_index"]
        rows = target.values() if provenance_of(target) is not None else target
        counts = rows != (-100 if index is None else index)
        if is_whole(answer):
            return Provenance(answer.lod.counting(counts), 0)
        counts = counts.movedim(answer.dim, 0)
        if answer.part is not None:  # rows that are elsewhere count there
            (begin, end), count, rest = answer.part, answer.lod.rows, counts.shape[1:]
            counts = torch.cat([counts.new_ones(begin, *rest), counts, counts.new_ones(count - end, *rest)])
        return answer._replace(lod=answer.lod.counting(counts))

    def rule_ignoring(func, args, kwargs):
        answer = rule(func, args, kwargs)
        if answer is None or (kwargs.get("reduction") in ("mean", "sum") and kwargs.get("reduce") is None):
            return answer
        bound = dict(zip(of.names, of.bind(args, kwargs)))
        target, whole = bound["target"], bound["reduction"] == "none" or bound.get("reduce") is False
        return (
            counted(answer, bound)
            if whole and isinstance(target, Tensor) and not target.is_floating_point()
            else answer
        )

    return rule_ignoring


@signature("log_probs, targets")
def ctc(func):
    raise refusal(func, f"its dim 0 is the time of all sequences together; F.ctc_loss runs along every one; {OUT}")


#: The logarithm of the sum of a row of log-probabilities, as log_softmax rounds it, is smaller than this many roundings.
_ROUNDED = 16


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
    losses = _padded(s, log_probs, targets, input_lengths, target_lengths, blank, reduction, zero_infinity)
    return s.pool(losses) if reduction == "none" else losses


def _padded(s: Along, log_probs, targets, input_lengths, target_lengths, blank, reduction, zero_infinity) -> Tensor:
    """The loss by torch, of padded rows."""
    dense, _ = log_probs.to_padded(max_length=max(s.lod.longest_at(s.k), 1))  # torch refuses sizes of 0
    if known(dense.shape[0] == 0):
        losses = dense.sum((1, 2))
        return losses if reduction == "none" else losses.mean() if reduction == "mean" else losses.sum()
    dense = dense.transpose(0, 1)
    return F.ctc_loss(dense, targets, input_lengths, target_lengths, blank, reduction, zero_infinity)


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
    labels, logsums = _labels(targets, lengths), rows.detach().logsumexp(1)
    if labels is None or bool((labels == blank).any()) or not bool(logsums.isfinite().all()):
        return None
    return labels, sums(lengths.long()), logsums


def _labels(targets: Tensor, lengths: Tensor) -> Tensor | None:
    """The labels of all sequences, of torch's two forms; None where lengths do not fit them, or without sequences."""
    counts = lengths.tolist()
    if not counts or min(counts) < 0:
        return None
    if targets.dim() == 1:
        return targets.long() if sum(counts) == len(targets) else None
    if targets.dim() != 2 or len(targets) != len(counts) or max(counts) > targets.shape[1]:
        return None
    return targets[torch.arange(targets.shape[1]) < lengths[:, None]].long()


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


# -- the rows

_LOSSES = (
    "binary_cross_entropy binary_cross_entropy_with_logits hinge_embedding_loss huber_loss kl_div l1_loss margin_ranking_loss "
    "mse_loss poisson_nll_loss smooth_l1_loss soft_margin_loss"
)

enter("join", join_given, _LOSSES, broadcasts=all_operands)
enter("join", gaussian, "gaussian_nll_loss", broadcasts=all_operands)
enter("join", distances(join_batches), "pairwise_distance triplet_margin_loss", broadcasts=all_operands)
enter("join", soft_margin, "multilabel_soft_margin_loss", broadcasts=all_operands)
enter(
    "join",
    distances(triplet),
    "triplet_margin_with_distance_loss",
    broadcasts=operands("anchor, positive, negative"),
)
_COSINES = distances(row_by_row("input1, input2: rows, target: rows"))
enter("join", _COSINES, "cosine_embedding_loss", broadcasts=all_operands)
enter("join", only_at_dim_0(join_batches), "multilabel_margin_loss")
enter("join", only_at_dim_0(row_by_row("input, target: rows")), "multi_margin_loss")
enter("join", ignoring(classes), "cross_entropy nll_loss")
enter(
    "join",
    ignoring(
        row_by_row("input, weight: beside, target: rows"),
        Signature("input, linear_weight, target, *, weight, reduction='mean', ignore_index=-100"),
    ),
    "linear_cross_entropy",
)
enter("sequence-wise", only_at_dim_0(ctc), "ctc_loss", (F,), run=ctc_loss)
enter("refuse", only_at_dim_0(ctc), "ctc_loss miopen_ctc_loss", (torch,))
