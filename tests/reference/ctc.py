# SPDX-License-Identifier: Apache-2.0
"""Connectionist temporal classification by its definition: every string of classes that a sequence can emit is looked at."""

import functools
import itertools
import math

import torch


@functools.cache
def strings(rows, classes, labels, blank):
    """The strings of classes that come to the labels, once runs are merged and blanks left out."""

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
