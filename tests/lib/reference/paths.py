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
