# SPDX-License-Identifier: Apache-2.0
"""Edit distances, a row of the matrices of all pairs at a time."""

import torch
from torch import Tensor

from .. import check
from .table import composition


def _check(op, values, row_offsets, others, other_offsets) -> None:
    check.index(op, "values", values, values.device)
    check.offsets_kind(op, row_offsets, values.device)
    check.index(op, "others", others, values.device)
    check.offsets_kind(op, other_offsets, values.device, "other_offsets")
    check.as_many_sequences(op, "others", other_offsets, row_offsets)
    check.offsets(op, row_offsets, values.shape[0])
    check.offsets(op, other_offsets, others.shape[0], "other_offsets", "others")


def _matrices(values, row_offsets, others, other_offsets) -> list[Tensor]:
    """Row i of the matrix of every pair, (segments, longest of others + 1), for i from 0."""
    m, n = row_offsets.diff(), other_offsets.diff()
    longest = int(n.max())
    at = torch.arange(longest + 1, device=values.device)
    there = others[(other_offsets[:-1, None] + at[:-1]).clamp(max=max(len(others) - 1, 0))] if len(others) else None
    rows = [at.expand(len(m), -1)]
    for i in range(int(m.max())):
        row = rows[-1] + 1
        if there is not None and longest:
            own = values[(row_offsets[:-1] + i).clamp(max=len(values) - 1)]
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
    rows = torch.stack(_matrices(values, row_offsets, others, other_offsets))
    return rows[row_offsets.diff(), torch.arange(count, device=values.device), other_offsets.diff()]


@composition
def edit_alignment(values, row_offsets, others, other_offsets):
    _check("edit_alignment", values, row_offsets, others, other_offsets)
    count, of_values, of_others = row_offsets.shape[0] - 1, torch.full_like(values, -1), torch.full_like(others, -1)
    if check.has_no_data(row_offsets) or count == 0:
        return values.new_zeros(count), of_values, of_others
    rows = torch.stack(_matrices(values, row_offsets, others, other_offsets), 1)
    distances = []
    for s, (a, b) in enumerate(zip(row_offsets.tolist(), other_offsets.tolist())):
        if s == count:
            break
        i, j = int(row_offsets[s + 1]) - a, int(other_offsets[s + 1]) - b
        cells = rows[s].tolist()
        distances.append(cells[i][j])
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
