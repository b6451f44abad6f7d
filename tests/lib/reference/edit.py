# SPDX-License-Identifier: Apache-2.0
"""The edit distance by its recursion."""

import itertools

import torch


def aligned(a, b):
    """(distance, of every item of a the position in b or -1, the other way round)."""
    cells = [[i + j if 0 in (i, j) else 0 for j in range(len(b) + 1)] for i in range(len(a) + 1)]
    for i, j in itertools.product(range(1, len(a) + 1), range(1, len(b) + 1)):
        both = cells[i - 1][j - 1] + (a[i - 1] != b[j - 1])
        cells[i][j] = min(both, cells[i - 1][j] + 1, cells[i][j - 1] + 1)
    i, j, of_a, of_b = len(a), len(b), [-1] * len(a), [-1] * len(b)
    while i and j:
        if cells[i][j] == cells[i - 1][j - 1] + (a[i - 1] != b[j - 1]):
            i, j = i - 1, j - 1
            of_a[i], of_b[j] = j, i
        elif cells[i - 1][j] <= cells[i][j - 1]:
            i -= 1
        else:
            j -= 1
    return cells[-1][-1], of_a, of_b


def edit_alignment(values, row_offsets, others, other_offsets):
    lists = [
        [t[a:b].tolist() for a, b in itertools.pairwise(cut.tolist())]
        for t, cut in ((values, row_offsets), (others, other_offsets))
    ]
    found = [aligned(a, b) for a, b in zip(*lists, strict=True)]
    flat = [[d for d, _, _ in found], *([i for f in found for i in f[k]] for k in (1, 2))]
    return tuple(torch.tensor(t, dtype=torch.int64) for t in flat)


def edit_distance(*given):
    return edit_alignment(*given)[0]
