# SPDX-License-Identifier: Apache-2.0
"""Edit distances, a row of the matrices of all pairs at a time."""

import itertools
from collections.abc import Iterator

import torch
from torch import Tensor

from .. import check
from ..steps import of_similar_lengths
from .table import composition


def _check(op, values, row_offsets, others, other_offsets) -> None:
    check.index(op, "values", values, values.device)
    check.offsets_kind(op, row_offsets, values.device)
    check.index(op, "others", others, values.device)
    check.offsets_kind(op, other_offsets, values.device, "other_offsets")
    check.as_many_sequences(op, "others", other_offsets, row_offsets)
    check.offsets(op, row_offsets, values.shape[0])
    check.offsets(op, other_offsets, others.shape[0], "other_offsets", "others")


def _matrices(values, row_offsets, others, other_offsets) -> Iterator[tuple[Tensor, Tensor]]:
    """The numbers of pairs of similar lengths, and their matrices, (rows, pairs, columns)."""
    m, n = row_offsets.diff(), other_offsets.diff()
    for i in of_similar_lengths(m, n):
        yield i, torch.stack(_rows(values, row_offsets[i], m[i], others, other_offsets[i], n[i]))


def _rows(values, starts, m, others, other_starts, n) -> list[Tensor]:
    """Row i of the matrix of every pair, (pairs, longest of others + 1), for i from 0."""
    longest = int(n.max())
    at = torch.arange(longest + 1, device=values.device)
    there = others[(other_starts[:, None] + at[:-1]).clamp(max=max(len(others) - 1, 0))] if len(others) else None
    rows = [at.expand(len(m), -1)]
    for i in range(int(m.max())):
        row = rows[-1] + 1
        if there is not None and longest:
            own = values[(starts + i).clamp(max=len(values) - 1)]
            both = rows[-1][:, :-1] + (there != own[:, None])
            row = torch.cat([row[:, :1], torch.minimum(row[:, 1:], both)], 1)
        rows.append((row - at).cummin(1)[0] + at)  # the best number of insertions before a cell
    return rows


@composition
def edit_distance(values, row_offsets, others, other_offsets):
    _check("edit_distance", values, row_offsets, others, other_offsets)
    count = row_offsets.shape[0] - 1
    if check.has_no_data(row_offsets) or count == 0:
        return values.new_zeros(count)
    m, n = row_offsets.diff(), other_offsets.diff()
    index, found = [], []
    for i, cells in _matrices(values, row_offsets, others, other_offsets):
        index.append(i)
        found.append(cells[m[i], torch.arange(len(i), device=values.device), n[i]])
    return torch.cat(found).index_select(0, torch.cat(index).argsort())


@composition
def edit_alignment(values, row_offsets, others, other_offsets):
    _check("edit_alignment", values, row_offsets, others, other_offsets)
    count, of_values, of_others = row_offsets.shape[0] - 1, torch.full_like(values, -1), torch.full_like(others, -1)
    if check.has_no_data(row_offsets) or count == 0:
        return values.new_zeros(count), of_values, of_others
    ends, other_ends, distances = row_offsets.tolist(), other_offsets.tolist(), [0] * count
    matrices = (
        zip(index.tolist(), part.unbind(1)) for index, part in _matrices(values, row_offsets, others, other_offsets)
    )
    for s, matrix in itertools.chain.from_iterable(matrices):
        a, b = ends[s], other_ends[s]
        i, j = ends[s + 1] - a, other_ends[s + 1] - b
        cells = matrix.tolist()
        distances[s] = cells[i][j]
        while i > 0 and j > 0:
            both = cells[i - 1][j - 1] + int(values[a + i - 1] != others[b + j - 1])
            if both == cells[i][j]:
                i, j = i - 1, j - 1
                of_values[a + i], of_others[b + j] = j, i
            elif cells[i - 1][j] <= cells[i][j - 1]:
                i -= 1
            else:
                j -= 1
    return values.new_tensor(distances), of_values, of_others
