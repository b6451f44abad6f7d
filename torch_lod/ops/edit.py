# SPDX-License-Identifier: Apache-2.0
"""Shape "chain", over two sequences: how far they are apart, and what of one became what of the other."""

import itertools
from collections.abc import Iterator

import torch
from torch import Tensor

from . import check
from .library import operator
from .steps import of_similar_lengths

__all__ = [
    "edit_alignment",
    "edit_distance",
]


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


@operator
def edit_distance(values: Tensor, row_offsets: Tensor, others: Tensor, other_offsets: Tensor) -> Tensor:
    """How many numbers must be inserted, deleted or substituted to make segment s of `others` of segment s of `values`.

    Args:
        values, others: int64, (rows,) and (other rows,).
        row_offsets, other_offsets: int64, (segments + 1,).

    Returns:
        int64 (segments,). No gradient. 64 cells of the matrix are one step. Memory is a bit for every
        symbol that the shorter segment of a pair has and every number in it, per thread.

    Source: Levenshtein, 1966; Myers, "A fast bit-vector algorithm for approximate string matching based on dynamic
    programming", JACM 46(3), 1999, with the blocks of Hyyro, 2003.
    """
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


@operator
def edit_alignment(
    values: Tensor, row_offsets: Tensor, others: Tensor, other_offsets: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The edit distance, and which number of one segment stands beside which of the other, in fewest edits.

    Args:
        as for `edit_distance`.

    Returns:
        int64 (segments,), the distances; (rows,) and (other rows,): the position in the other segment, -1 where a number
        was deleted or inserted. From the ends, numbers stand beside one another where they can, then those of values are
        deleted. No gradient. Memory is the product of the lengths of one pair per thread, in bytes.

    Source: Wagner and Fischer, "The string-to-string correction problem", JACM 21(1), 1974.
    """
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
