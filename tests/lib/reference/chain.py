# SPDX-License-Identifier: Apache-2.0
"""What the operators of conditional random fields mean: all paths, one by one."""

import torch

from reference.ops import rows_of
from reference.paths import paths
from reference.sequence import Nest, above, under


def linear_chain_crf(emission, label, transition, level=-1):
    level %= emission.depth
    labels = (label.values if isinstance(label, Nest) else label).flatten().tolist()
    losses = []
    for numbers in under(emission, level):
        scores = dict(paths(emission.values[numbers] if numbers else emission.values[:0], transition))
        every = torch.stack(list(scores.values())).logsumexp(0)
        losses.append((every - scores[tuple(labels[i] for i in numbers)])[None])
    return above(emission, level, rows_of(losses, emission.values.new_zeros(0, 1)))


def crf_decoding(emission, transition, label=None, level=-1):
    level %= emission.depth
    tags = torch.zeros(len(emission.values), 1, dtype=torch.int64, device=emission.values.device)
    for numbers in under(emission, level):
        every = paths(emission.values[numbers] if numbers else emission.values[:0], transition)
        possible = [(y, score) for y, score in every if score > float("-inf")]  # neither forbidden nor NaN
        best = max(possible, key=lambda one: float(one[1]))[0] if possible else [-1] * len(numbers)
        for i, tag in zip(numbers, best):
            tags[i] = tag
    if label is not None:
        tags = (tags == (label.values if isinstance(label, Nest) else label).view(-1, 1)).long()
    return emission.with_rows(tags)
