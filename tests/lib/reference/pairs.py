# SPDX-License-Identifier: Apache-2.0
"""Rows with the rows of a partner, and what Paddle's matching operators mean: plain loops, as sequence.py."""

import itertools
import math

import torch

from reference.ops import rows_of
from reference.sequence import Nest, above, joined, nest, parts, under


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


def sequence_farthest(x, k, level=-1):
    level %= x.depth
    points, found = x.values.double(), []
    for numbers in under(x, level):
        taken = numbers[:1]
        while taken and len(taken) < min(k, len(numbers)):
            apart = {i: min(float(compared(points[i], points[j], "sqeuclidean")) for j in taken) for i in numbers}
            taken = [*taken, max((i for i in numbers if i not in taken), key=lambda i: apart[i])]
        found.append(torch.tensor(taken[:k] + [-1] * (k - len(taken[:k]))))
    return above(x, level, rows_of(found, torch.zeros(0, k, dtype=torch.int64)))


def sequence_radius(x, r, level=-1):
    points, near = x.values.double(), {}
    for numbers in under(x, level % x.depth):
        for i in numbers:
            near[i] = [j for j in numbers if compared(points[i], points[j], "euclidean") <= r]
    each = [near[i] for i in range(len(points))]
    entries = torch.tensor([j for found in each for j in found], dtype=torch.int64)
    return nest([*x.lengths(), [len(found) for found in each]], entries, x.names and (*x.names, None))


def sequence_matmul(x, w, level=-1):
    matrices = w.rows() if isinstance(w, Nest) else w
    rows = [part @ matrix for part, matrix in zip(parts(x, level % x.depth), matrices, strict=True)]
    return x.with_rows(joined(rows, x.values.new_zeros(*x.values.shape[:-1], matrices.shape[-1])))


# -- matrices of scores, and trees


def instead(x, level, made, like):
    """Other rows in the sequences of a level, without the levels below it."""
    lengths = [*x.lengths()[:level], [len(rows) for rows in made]]
    rows = torch.cat([torch.stack(list(rows)) for rows in made if len(rows)] or [like.new_zeros(0)])
    return nest(lengths, rows, x.names and x.names[: level + 1])


def match_matrix_tensor(x, y, weight, level=-1):
    level %= x.depth
    made = [
        [a @ weight[:, c] @ b for c in range(weight.shape[1]) for a in ours for b in theirs]
        for ours, theirs in zip(parts(x, level), parts(y, level), strict=True)
    ]
    return instead(x, level, made, x.values)


def var_conv_2d(x, row, col, weight, stride=1, level=-1):
    level %= x.depth
    outs, channels, high, wide = weight.shape
    down, right = (stride, stride) if isinstance(stride, int) else stride
    made = []
    for scores, rows, columns in zip(parts(x, level), parts(row, level), parts(col, level), strict=True):
        h, w = len(rows), len(columns)
        image = scores.reshape(channels, h, w)
        made.append([])
        for o, i, j in itertools.product(range(outs), range(0, h, down), range(0, w, right)) if h and w else ():
            total = 0 * weight.sum()
            for c, a, b in itertools.product(range(channels), range(high), range(wide)):
                ii, jj = i + a - high // 2, j + b - wide // 2
                if 0 <= ii < h and 0 <= jj < w:
                    total = total + image[c, ii, jj] * weight[o, c, a, b]
            made[-1].append(total)
    return instead(x, level, made, x.values)


def tree_conv(nodes, edges, weight, max_depth=2, level=-1):
    made = []
    for numbers, pairs in zip(under(nodes, level), parts(edges, level), strict=True):
        children = {}
        for u, v in pairs.tolist():
            children.setdefault(u, []).append(v)
        for root in range(1, len(numbers) + 1):
            total, generation = 0 * weight.sum((0, 1)), [(root, 0.5)]
            for depth in range(max_depth):
                top = 1 - depth / max_depth
                for v, place in generation:
                    left = (1 - top) * place
                    shares = torch.tensor([left, (1 - top) * (1 - left), top], dtype=weight.dtype)
                    row = nodes.values[numbers[v - 1]]
                    total = total + torch.einsum("f,k,fkon->on", row, shares, weight)
                below = [children.get(v, []) for v, _ in generation]
                generation = [
                    (v, i / (len(siblings) - 1) if len(siblings) > 1 else 0.5)
                    for siblings in below
                    for i, v in enumerate(siblings)
                ]
            made.append(total)
    return nodes.with_rows(rows_of(made, nodes.values.new_zeros(0, *weight.shape[2:])))
