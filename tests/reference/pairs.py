# SPDX-License-Identifier: Apache-2.0
"""Rows with the rows of a partner, and what Paddle's matching and ranking operators mean: plain loops, as sequence.py."""

import math

import torch

from reference.ops import rows_of
from reference.sequence import nest, under


def pairs_of(x, y, level):
    """For every row of x, by its number, the numbers of the rows of its partner."""
    return {i: theirs for ours, theirs in zip(under(x, level), under(y, level), strict=True) for i in ours}


def over_pairs(x, y, level, entries):
    """The entries, one per pair, as rows with one more level."""
    partner = pairs_of(x, y, level)
    return nest([*x.lengths(), [len(partner[i]) for i in range(len(x.values))]], entries, x.names and (*x.names, None))


def sequence_pairs(x, y, level=-1):
    pairs = [(i, j) for i, numbers in sorted(pairs_of(x, y, level).items()) for j in numbers]
    columns = torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2)
    return over_pairs(x, y, level, columns[:, 0]), over_pairs(x, y, level, columns[:, 1])


def compared(a, b, metric):
    if metric == "dot":
        return (a * b).sum()
    apart = (a - b).square().sum()
    return apart if metric == "sqeuclidean" or apart == 0 else apart.sqrt()


def sequence_pairwise(x, y, metric="dot", level=-1):
    i, j = sequence_pairs(x, y, level)
    pairs = zip(i.values.tolist(), j.values.tolist())
    return over_pairs(
        x, y, level, rows_of([compared(x.values[a], y.values[b], metric) for a, b in pairs], x.values.new_zeros(0))
    )


def sequence_knn(x, y, k, level=-1):
    near, found = [], []
    for i, numbers in sorted(pairs_of(x, y, level).items()):
        distances = [compared(x.values[i], y.values[j], "euclidean") for j in numbers]
        order = sorted(range(len(numbers)), key=lambda n: float(distances[n].detach()))[:k]
        missing = k - len(order)
        near.append(torch.stack([*(distances[n] for n in order), *[x.values.new_full((), math.inf)] * missing]))
        found.append(torch.tensor([numbers[n] for n in order] + [-1] * missing))
    empty = torch.zeros(0, k, dtype=torch.int64)
    return x.with_rows(rows_of(near, x.values.new_zeros(0, k))), x.with_rows(rows_of(found, empty))
