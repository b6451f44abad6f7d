# SPDX-License-Identifier: Apache-2.0
"""Paths of tags over the rows of a segment, and sums over them."""

import itertools

import torch


def paths(values, transition):
    """Every path of tags over the rows of a segment, and its score; one without tags where there are no rows."""
    tags, found = values.shape[1], []
    for y in itertools.product(range(tags), repeat=len(values)):
        score = values.new_zeros(())
        for t, tag in enumerate(y):
            score = score + values[t, tag] + transition[0 if t == 0 else 2 + y[t - 1], tag]
        found.append((y, score + transition[1, y[-1]] if y else score))
    return found


def forward_scores(values, transition):
    """Row by row: log of the sum over the paths that end in each tag there."""
    rows = []
    for t in range(len(values)):
        before = transition[0] if t == 0 else logsumexp(rows[-1][:, None] + transition[2:])
        rows.append(before + values[t])
    return rows


def logsumexp(x):
    """Along the first dim; without NaN in the gradient where all are -inf."""
    top = x.detach().amax(0)
    top = torch.where(top.isinf(), 0, top)
    total = (x - top).exp().sum(0)
    return torch.where(total > 0, torch.where(total > 0, total, 1).log() + top, float("-inf"))


def shares(values, transition):
    """Row by row the probability of every tag: of all paths where they are few, otherwise by scores before and after it."""
    tags = values.shape[1]
    if tags ** len(values) <= 100:
        every = paths(values, transition)
        whole = logsumexp(torch.stack([score for _, score in every]))
        whole = torch.where(whole.isinf(), 0, whole)
        through = [[[s for y, s in every if y[t] == tag] for tag in range(tags)] for t in range(len(values))]
        return [(torch.stack([logsumexp(torch.stack(some)) for some in row]) - whole).exp() for row in through]
    after = [transition[1]]
    for row in reversed(values[1:]):
        after.insert(0, torch.stack([logsumexp(transition[2 + i] + row + after[0]) for i in range(tags)]))
    return [(a + b).softmax(0) for a, b in zip(forward_scores(values, transition), after)]
