# SPDX-License-Identifier: Apache-2.0
"""Connectionist temporal classification by its definition: every string of classes that a sequence can emit is looked at."""

import functools
import itertools
import math

import torch


@functools.cache
def strings(rows, classes, labels, blank):
    """The strings of classes that collapse to the labels, once runs are merged and blanks left out."""

    def emitted(string):
        return tuple(c for c, _ in itertools.groupby(string) if c != blank)

    found = [s for s in itertools.product(range(classes), repeat=rows) if emitted(s) == labels]
    return torch.tensor(found, dtype=torch.int64).view(len(found), rows)


def sequences(values, row_offsets, labels, label_offsets, blank):
    """(log-probabilities of the strings, the strings, the labels) of every sequence; NaN where a softmax is none."""
    cuts = zip(itertools.pairwise(row_offsets.tolist()), itertools.pairwise(label_offsets.tolist()))
    for (a, b), (c, d) in cuts:
        own = tuple(labels[c:d].tolist())
        found = strings(b - a, values.shape[1], own, blank)
        rows = values[a:b].log_softmax(1)
        scores = rows[torch.arange(b - a), found].sum(1) if len(found) else values.new_zeros(0)
        yield rows.sum().view(1) if rows.isnan().any() else scores, found, own


def ctc_loss(values, row_offsets, labels, label_offsets, blank=0, zero_infinity=False):
    none = values.new_tensor(0.0 if zero_infinity else math.inf)
    of = (scores for scores, *_ in sequences(values, row_offsets, labels, label_offsets, blank))
    losses = [-scores.logsumexp(0) if len(scores) else none for scores in of]
    return torch.stack(losses) if losses else values.sum(1)[:0]


def ctc_loss_backward(grad, values, row_offsets, labels, label_offsets, blank):
    leaf = values.detach().requires_grad_()
    with torch.enable_grad():
        losses = ctc_loss(leaf, row_offsets, labels, label_offsets, blank)
        if not losses.requires_grad:
            return torch.zeros_like(values)
        return torch.autograd.grad(losses, leaf, grad, allow_unused=True, materialize_grads=True)[0]


def states(string, blank):
    """Of every class of a string twice the number of labels so far, less one on a label."""
    found, count, before = [], 0, blank
    for c in string:
        count += c not in (blank, before)
        found.append(2 * count - (c != blank))
        before = c
    return found


def ctc_best_path(values, row_offsets, labels, label_offsets, blank=0):
    path, best = [], []
    for scores, found, _ in sequences(values, row_offsets, labels, label_offsets, blank):
        if scores.isnan().any() or not len(found):
            path += [-1] * found.shape[1]
            best.append(values.new_tensor(math.nan if scores.isnan().any() else -math.inf))
            continue
        equals = [states(found[i].tolist(), blank) for i in (scores == scores.amax()).nonzero().flatten()]
        # of equally probable ones that whose labels come first, looked at from its end
        path += [-1 if s % 2 == 0 else s // 2 for s in max(equals, key=lambda s: s[::-1])]
        best.append(scores.amax())
    return torch.tensor(path, dtype=torch.int64), torch.stack(best) if best else values.sum(1)[:0]


def add(a, b):
    return max(a, b) + math.log1p(math.exp(min(a, b) - max(a, b))) if max(a, b) > -math.inf else -math.inf


def beam_of(rows, blank, beam, least):
    """The prefixes of the beam after the last row, best first, with the logarithms of their probabilities."""
    prefixes = {(): (0.0, -math.inf)}  # of the alignments that end in a blank, and in the last label
    for row in rows:
        p = row.log_softmax(0).tolist()
        if any(map(math.isnan, p)):
            return {(): math.nan}
        extends = [c for c in range(len(p)) if c != blank and (p[c] >= least or p[c] == max(p))]
        after = {  # in the order in which equally probable ones are taken
            **{
                own: [add(*both) + p[blank], both[1] + p[own[-1]] if own else -math.inf]
                for own, both in prefixes.items()
            }
        }
        for own, (of_blank, of_label) in prefixes.items():
            for c in extends:
                found = after.setdefault((*own, c), [-math.inf, -math.inf])
                found[1] = add(found[1], p[c] + (of_blank if own[-1:] == (c,) else add(of_blank, of_label)))
        ranked = sorted(after.items(), key=lambda item: -add(*item[1]))
        prefixes = {own: tuple(both) for own, both in ranked[:beam] if add(*both) > -math.inf}
    return {own: add(*both) for own, both in prefixes.items()}


def ctc_beam(values, row_offsets, blank=0, beam=10, n=1, threshold=0.0):
    rows, count = len(values), len(row_offsets) - 1
    labels, lengths = torch.full((rows, n), -1), torch.full((count, n), -1)
    scores = torch.full((count, n), -math.inf, dtype=torch.float64)
    for s, (a, b) in enumerate(itertools.pairwise(row_offsets.tolist())):
        found = beam_of(values[a:b], blank, beam, math.log(threshold) if threshold else -math.inf)
        for j, (own, score) in enumerate(itertools.islice(found.items(), n)):
            labels[a : a + len(own), j] = torch.tensor(own, dtype=torch.int64)
            lengths[s, j], scores[s, j] = len(own), score
    return labels, lengths, scores
