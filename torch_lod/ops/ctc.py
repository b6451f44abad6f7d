# SPDX-License-Identifier: Apache-2.0
"""Shape "chain", over labels: all alignments of the labels of a segment with its rows, or the best one."""

import math

import torch
from torch import Tensor

from . import check
from .compositions import composed, vjp
from .library import composition, operator
from .steps import of_similar_lengths

__all__ = [
    "ctc_best_path",
    "ctc_loss",
]


def _check(op, values, row_offsets, labels, label_offsets, blank) -> None:
    check.segments(op, values, row_offsets)
    check.is_floating(op, "values", values)
    if values.dim() != 2:
        raise ValueError(f"{op}: expected values of shape (rows, classes), got {values.dim()} dimensions")
    check.index(op, "labels", labels, values.device)
    check.offsets_kind(op, label_offsets, values.device, "label_offsets")
    check.as_many_sequences(op, "labels", label_offsets, row_offsets)
    classes = values.shape[1]
    if not 0 <= blank < classes:
        raise ValueError(f"{op}: expected blank as one of {classes} classes, got {blank}")
    check.offsets(op, row_offsets, values.shape[0])
    check.offsets(op, label_offsets, labels.shape[0], "label_offsets", "labels")
    if not check.readable(labels):
        return
    for i in ((labels < 0) | (labels >= classes) | (labels == blank)).nonzero()[:1].flatten().tolist():
        s = int((label_offsets <= i).sum()) - 1
        raise IndexError(
            f"{op}: expected labels in [0, {classes - 1}] other than the blank {blank}, got {int(labels[i])} at position "
            f"{i - int(label_offsets[s])} of sequence {s}"
        )


def _log(t: Tensor) -> Tensor:
    """The logarithm, -inf without a gradient where t is 0."""
    return torch.where(t == 0, -math.inf, torch.where(t == 0, 1, t).log())


def _sum(*terms: Tensor) -> Tensor:
    """log(e^a + e^b + ...); the gradient of impossible terms is 0."""
    stacked = torch.stack(terms)
    top = stacked.detach().amax(0)
    top = torch.where(top == -math.inf, 0, top)
    return _log((stacked - top).exp().sum(0)) + top


def _best(*terms: Tensor) -> tuple[Tensor, Tensor]:
    """The largest, and which it is: the first of equals."""
    best, which = terms[0], torch.zeros_like(terms[0], dtype=torch.int64)
    for k, t in enumerate(terms[1:], 1):
        which = torch.where(t > best, k, which)
        best = torch.where(t > best, t, best)
    return best, which


class _Lattice:
    """States (sequences, 2 labels + 1), and the log-probability that each has in a row."""

    def __init__(self, log_probs, starts, lengths, labels, label_starts, counts, blank):
        self.log_probs, self.starts, self.lengths, self.last = log_probs, starts, lengths, 2 * counts
        self.rows, most = int(lengths.max()), int(counts.max())
        at = torch.arange(2 * most + 1, device=labels.device)
        label = (label_starts[:, None] + at // 2).clamp(max=max(len(labels) - 1, 0))
        odd = (at % 2 == 1) & (at < self.last[:, None])
        of = labels[label] if len(labels) else label
        self.classes = torch.where(odd, of, blank)
        self.real = at <= self.last[:, None]
        before = torch.cat([self.classes[:, :2], self.classes[:, :-2]], 1)[:, : 2 * most + 1]
        self.skips = odd & (at > 1) & (before != self.classes)
        # the state before the first row: it leads to the first blank and to the first label
        self.start = torch.where(at == 0, 0.0, -math.inf).double().expand(self.classes.shape)

    def emitted(self, t: int) -> Tensor:
        row = (self.starts + t).clamp(max=max(len(self.log_probs) - 1, 0))
        return torch.where(self.real, self.log_probs[row].gather(1, self.classes), -math.inf)

    def terms(self, states: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """What comes from the state itself, from the one before, and from the one before that."""
        none = states.new_full((len(states), 2), -math.inf)
        padded = torch.cat([none, states], 1)
        return states, padded[:, 1:-1], torch.where(self.skips, padded[:, :-2], -math.inf)

    def ends(self, states: Tensor) -> tuple[Tensor, Tensor]:
        last = self.last[:, None]
        label = states.gather(1, (last - 1).clamp(min=0))[:, 0]
        return states.gather(1, last)[:, 0], torch.where(self.last > 0, label, -math.inf)


def _lattices(values, row_offsets, labels, label_offsets, blank) -> list[tuple[Tensor, _Lattice]]:
    """Of sequences of similar lengths, with the numbers of these."""
    log_probs, lengths, counts = values.double().log_softmax(1), row_offsets.diff(), label_offsets.diff()
    return [
        (i, _Lattice(log_probs, row_offsets[i], lengths[i], labels, label_offsets[i], counts[i], blank))
        for i in of_similar_lengths(lengths, counts)
    ]


def _loss(values, row_offsets, labels, label_offsets, blank, zero_infinity) -> Tensor:
    if check.has_no_data(row_offsets) or row_offsets.shape[0] == 1:
        return values.new_zeros(row_offsets.shape[0] - 1)
    index, totals = [], []
    for i, g in _lattices(values, row_offsets, labels, label_offsets, blank):
        states = g.start
        for t in range(g.rows):
            states = torch.where((t < g.lengths)[:, None], _sum(*g.terms(states)) + g.emitted(t), states)
        index.append(i)
        totals.append(_sum(*g.ends(states)))
    total = torch.cat(totals).index_select(0, torch.cat(index).argsort())
    none = total == -math.inf
    return torch.where(none, 0.0 if zero_infinity else math.inf, -torch.where(none, 0, total)).to(values.dtype)


@operator
def ctc_loss(
    values: Tensor,
    row_offsets: Tensor,
    labels: Tensor,
    label_offsets: Tensor,
    blank: int = 0,
    zero_infinity: bool = False,
) -> Tensor:
    """-log p(labels | rows) of every segment by connectionist temporal classification, with the softmax inside.

    Every row emits a class or the blank; a run of the same class is one label, and blanks divide equal labels. The sum is
    over all ways in which the rows emit the labels, by the forward recursion over 2 labels + 1 states; the gradient is
    the softmax less the posterior of the classes (forward-backward). Probabilities are kept with exponents of their
    own, so that neither tens of thousands of rows nor scores of 1e4 under- or overflow.

    Args:
        values: (rows, classes), unnormalised scores of a floating dtype (log-probabilities are such scores as well); half
            types are worked out in float32.
        row_offsets: int64, (segments + 1,).
        labels: int64, (labels,), in [0, classes) and not the blank; IndexError otherwise.
        label_offsets: int64, (segments + 1,): the labels of every segment.
        blank: the class that is no label.
        zero_infinity: the loss of a segment that cannot emit its labels (too few rows for them and for the blanks between
            equal ones, or scores of -inf in their way) is 0 instead of inf.

    Returns:
        (segments,), the dtype of values. The gradient of an infinite loss is 0; a NaN or a row whose softmax is none makes
        loss and gradient of its segment NaN. A segment without rows and labels has the loss 0. The backward takes memory
        linear in the cells of the lattice of one segment per thread; double backward goes through a composition that
        stores all of them.

    Source: Graves et al., "Connectionist Temporal Classification", ICML 2006, equations 6 to 16.
    """
    _check("ctc_loss", values, row_offsets, labels, label_offsets, blank)
    return _loss(values, row_offsets, labels, label_offsets, blank, zero_infinity)


@composition
def ctc_loss_composed(*inputs):
    return composed.ctc_loss(*inputs)


@composition
def ctc_loss_backward(grad, values, row_offsets, labels, label_offsets, blank):
    op = "ctc_loss_backward"
    _check(op, values, row_offsets, labels, label_offsets, blank)
    check.kind(op, "grad", grad, values.dtype, values.device)
    if grad.shape != (row_offsets.shape[0] - 1,):
        raise ValueError(f"{op}: expected grad of shape [{row_offsets.shape[0] - 1}], got {list(grad.shape)}")
    if check.has_no_data(row_offsets):
        return torch.empty_like(values)
    structure = row_offsets, labels, label_offsets, blank
    (found,) = vjp(lambda x: [_loss(x, *structure, False)], [values.double()], [grad.double()])
    return found.to(values.dtype)


@operator
def ctc_best_path(
    values: Tensor, row_offsets: Tensor, labels: Tensor, label_offsets: Tensor, blank: int = 0
) -> tuple[Tensor, Tensor]:
    """The most probable way in which the rows of every segment emit its labels (forced alignment), and its score.

    Args:
        as for `ctc_loss`.

    Returns:
        int64 (rows,): the position of the row's label among the labels of its segment, -1 for the blank; and (segments,),
        the log-probability of the path, in the dtype of values. Neither has a gradient. A segment that cannot emit its
        labels has blanks and the score -inf, one with a NaN blanks and NaN. Of equally probable paths it is the one whose
        labels come first.

    Source: as for `ctc_loss`, with the maximum in place of the sum (Viterbi).
    """
    _check("ctc_best_path", values, row_offsets, labels, label_offsets, blank)
    rows, count = values.shape[0], row_offsets.shape[0] - 1
    if check.has_no_data(row_offsets) or count == 0 or rows == 0:
        no_path = torch.empty(rows, dtype=torch.int64, device=values.device)
        none = label_offsets.diff() > 0
        return no_path, torch.where(none, -math.inf, 0.0).to(values.dtype) if count else values.new_zeros(0)
    index, totals, places, path = [], [], [], []
    for i, g in _lattices(values.detach(), row_offsets, labels, label_offsets, blank):
        scores, kept = _best_path(g)
        of = torch.repeat_interleave(g.lengths)
        position = torch.arange(len(of), device=values.device) - (g.lengths.cumsum(0) - g.lengths)[of]
        index.append(i)
        totals.append(scores)
        places.append(g.starts[of] + position)
        path.append(kept[position, of] if kept is not None else position)
    scores = torch.cat(totals).index_select(0, torch.cat(index).argsort())
    return torch.cat(path).index_select(0, torch.cat(places).argsort()), scores.to(values.dtype)


def _best_path(g: _Lattice) -> tuple[Tensor, Tensor | None]:
    """Scores, and of every row of every sequence the position of its label, (rows, sequences), None without rows."""
    states, came = g.start, []
    for t in range(g.rows):
        best, steps = _best(*g.terms(states))
        states = torch.where((t < g.lengths)[:, None], best + g.emitted(t), states)
        came.append(steps)
    scores, on_label = _best(*g.ends(states))
    at, found, kept = g.last - on_label, scores > -math.inf, []
    for t in reversed(range(g.rows)):
        here = (t < g.lengths) & found
        kept.append(torch.where(here & (at % 2 == 1), at // 2, -1))
        at = torch.where(here, at - came[t].gather(1, at[:, None])[:, 0], at)
    return scores, torch.stack(kept[::-1]) if kept else None
