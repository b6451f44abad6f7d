# SPDX-License-Identifier: Apache-2.0
"""Points of a cloud: those that lie far from one another, and those that lie near."""

import torch

from .. import ops
from ..errors import LoDValueError, shown
from ..structure.validate import integer, number, with_memory
from ..tensor.lod_tensor import LoDTensor, MaybeLoD, made
from .operator import along, sequence_operator
from .pairs import partner_rows, sequence_pairwise
from .windows import with_features

__all__ = ["sequence_farthest", "sequence_radius"]


@sequence_operator
def sequence_farthest(x: LoDTensor, k: int, *, level: int | str = -1) -> MaybeLoD:
    """`k` rows of every sequence that lie far from one another: the first row, then again and again the row whose nearest
    among those taken is farthest away.

        >>> import torch, torch_lod as tl
        >>> x = tl.from_lengths(torch.tensor([[0.0], [1.0], [9.0], [5.0], [2.0]]), [[4, 1]])
        >>> tl.sequence_farthest(x, 3)
        tensor([[ 0,  2,  3],
                [ 4, -1, -1]])

    Args:
        x: (rows, features), a floating dtype. A row with a NaN or an infinity is infinitely far from the others.
        k: at least 1. Each costs a pass over all rows.

    Returns:
        int64, (sequences, k), with the levels above: indices into all rows, -1 where a sequence has fewer rows than k. No row
        is taken twice; of equally far ones the first is. `tl.sequence_gather(x, rows, absolute=True)` has the rows
        themselves. No gradient.

    Source: farthest point sampling of PointNet++; torch_cluster.fps with random_start=False.
    """
    s = along(x, level)
    rows = with_features(s.rows).detach()
    k = integer("k", k)
    with_memory(rows)
    rows, offsets = rows.to(torch.float64), s.offsets
    apart = rows.new_full(rows.shape[:1], torch.inf)
    place = torch.arange(rows.shape[0], device=rows.device)
    taken = []
    for _ in range(k):
        far, farthest = ops.segment_extreme(apart, offsets, "max", -1)
        farthest = torch.where(far < 0, -1, farthest)  # all of them are taken
        taken.append(farthest)
        at = s.spread(farthest)
        squares = (rows - ops.gather_rows(rows, at)).square().sum(1)
        apart = torch.where(at == place, -1, torch.fmin(apart, squares))
    return s.pool(torch.stack(taken, 1))


@sequence_operator
def sequence_radius(x: LoDTensor, r: float, *, level: int | str = -1) -> LoDTensor:
    """For every row the rows of its sequence that are at most `r` away, itself among them.

        >>> import torch, torch_lod as tl
        >>> x = tl.from_lengths(torch.tensor([[0.0], [1.0], [9.0], [5.0], [2.0]]), [[3, 2]])
        >>> tl.sequence_radius(x, 1.0).to_list()
        [[[0, 1], [0, 1], [2]], [[3], [4]]]

    Args:
        x: (rows, features), a floating dtype.
        r: a number, at least 0. Distances are those of `sequence_pairwise`, in float64.

    Returns:
        int64, (neighbours,), indices into all rows, with one more level than x: a sequence for every row, in the order of the
        rows. `tl.sequence_gather(x, near, absolute=True)` has the rows. Memory is linear in the pairs of rows of a
        sequence. No gradient.

    Source: torch_cluster.radius_graph with loop=True; scipy.spatial.KDTree.query_ball_point.
    """
    number("r", r)
    if not r >= 0:
        raise LoDValueError(f"expected r >= 0, got {shown(r)}")
    s = along(x, level)
    with_features(s.rows)
    with_memory(s.rows)
    x = s.keep(s.rows.detach().to(torch.float64))
    apart = sequence_pairwise(x, x, "euclidean", level=s.k)
    return made(partner_rows(s, s, apart.lod), apart.lod).filter_rows(apart.values() <= r)
