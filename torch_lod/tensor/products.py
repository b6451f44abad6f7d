# SPDX-License-Identifier: Apache-2.0
"""A product of the rows of every sequence with the matrix of that sequence, without a copy of the matrix for every row."""

import math

import torch
from torch import Tensor

from .. import ops
from ..dynamo import compiling, whole_number
from ..ops.steps import of_similar_lengths, padded_map
from ..structure.devices import upload
from ..structure.lod import LoD

#: Rows of a sequence, on average, from which a product of torch's for each takes longer than calling it.
_LONG = 16


def each_by_its_matrix(rows: Tensor, matrices: Tensor, lod: LoD, k: int) -> Tensor:
    """(rows, ..., D) times (sequences of level k, D, E), the matrix of the sequence that a row is in: (rows, ..., E)."""
    offsets, shape = lod.row_offsets_at(k), rows.shape[:-1]
    if rows.dim() == 2:
        return _by_matrices(rows, matrices, offsets)
    wide = math.prod(rows.shape[1:-1])
    flat = rows.reshape(rows.shape[0] * wide, rows.shape[-1])
    return _by_matrices(flat, matrices, offsets * wide).view(*shape, matrices.shape[2])


def _by_matrices(rows: Tensor, matrices: Tensor, offsets: Tensor) -> Tensor:
    """As `each_by_its_matrix`, of (rows, D). One product for each sequence if there are few or long ones; otherwise one for
    sequences of similar lengths, padded to less than twice their lengths, in a graph one of all of them."""
    lengths, count = offsets.diff(), matrices.shape[0]
    if compiling():
        return _padded(rows, matrices, offsets, [torch.arange(count, device="cpu")])
    if count <= 16 or rows.shape[0] >= _LONG * count:
        each = zip(rows.split(lengths.tolist()), matrices.unbind(), strict=True)
        products = [part @ matrix for part, matrix in each]
        return torch.cat(products) if products else rows @ matrices.sum(0)
    some = lengths.nonzero().flatten()
    if not len(some):
        return rows @ matrices.sum(0)
    here = lengths[some]
    return _padded(rows, matrices, offsets, [some[group] for group in of_similar_lengths(here, here)])


def _padded(rows: Tensor, matrices: Tensor, offsets: Tensor, groups: list[Tensor]) -> Tensor:
    lengths, device = offsets.diff(), rows.device
    starts, made_so_far, products = torch.zeros_like(lengths), 0, []
    for group in groups:
        n, longest = group.shape[0], lengths[group]
        high = whole_number(torch.cat([longest, longest.new_zeros(1)]).max())
        left = ops.gather_rows(rows, upload(padded_map(offsets, group, high), device)).view(n, high, rows.shape[1])
        right = matrices.index_select(0, upload(group, device))
        products.append(torch.bmm(left, right).flatten(0, 1))
        starts = starts.index_copy(0, group, made_so_far + torch.arange(n, device="cpu") * high)
        made_so_far = made_so_far + n * high
    return ops.gather_runs(torch.cat(products), upload(starts, device), upload(offsets, device), rows.shape[0])
