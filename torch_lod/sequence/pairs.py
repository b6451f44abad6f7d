# SPDX-License-Identifier: Apache-2.0
"""Pairs: every row of a sequence with every row of its partner, the sequence with the same number in another batch.

The pairs are rows with one more level: the levels of x, then a sequence for every row of x, whose elements are the rows of
its partner. The weights of attention and its bias have this order as well.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from .. import ops
from ..dynamo import compiling, holds, whole_number
from ..errors import LoDTypeError, LoDValueError, shown
from ..lod import LoD
from ..sequence_operator import Along, along, as_autocast, in_autocast, integer, sequence_operator
from ..tensor import LoDTensor, made
from ..validate import with_memory
from .pool import sequence_topk
from .windows import with_features

__all__ = ["sequence_knn", "sequence_pairs", "sequence_pairwise"]

METRICS = ("dot", "euclidean", "sqeuclidean")


def partners(x: LoDTensor, y: LoDTensor, level: int | str) -> tuple[Along, Along]:
    """Both along the level, where they have equally many sequences."""
    a, b = along(x, level), along(y, level, "y")
    counts = [s.lod.levels[s.k].shape[0] - 1 for s in (a, b)]
    if not holds(counts[0] == counts[1]):
        raise LoDValueError(f"expected y with as many sequences at the level as x, {counts[0]}, got {counts[1]}")
    if b.rows.device != a.rows.device:
        raise LoDTypeError(f"expected y on {a.rows.device}, as x, got one on {b.rows.device}")
    return a, b


def pair_lod(a: Along, b: Along) -> LoD:
    """The levels of a, and one more: for every row the rows of its partner in b."""
    return a.lod.append(b.lod.row_lengths_at(b.k)[a.lod.segment_ids_at(a.k)])


@sequence_operator
def sequence_pairs(x: LoDTensor, y: LoDTensor, *, level: int | str = -1) -> tuple[LoDTensor, LoDTensor]:
    """Every row of a sequence of x with every row of the sequence of y that has the same number, as indices.

        x  a b | c      y  d e f | g h      i  a a a, b b b | c c      j  d e f, d e f | g h

    `x.values()[i.values()] - y.values()[j.values()]` has the differences of all pairs; `sequence_pairwise` has products and
    distances without a copy of the rows for every pair.

    Args:
        x, y: (rows, *element), of any dtype, with equally many sequences at the level (ValueError). A pair is of all rows
            under a sequence, also where they have more levels.

    Returns:
        i and j, int64, (pairs,), the rows of x and of y as indices into all rows. Their LoD has one level more than that
        of x: a sequence for every row of x, whose elements are the rows of its partner.

    Source: torch.cartesian_prod, sequence by sequence; numpy.meshgrid with indexing "ij".
    """
    a, b = partners(x, y, level)
    lod = pair_lod(a, b)
    offsets, rows = lod.levels[-1], a.lod.rows
    starts = b.lod.row_offsets_at(b.k)[:-1][a.lod.segment_ids_at(a.k)]
    first = ops.run_map(torch.arange(rows, device="cpu"), offsets, lod.rows, 0)
    second = ops.run_map(starts, offsets, lod.rows, 1)
    device = a.rows.device
    return made(first.to(device, non_blocking=True), lod), made(second.to(device, non_blocking=True), lod)


@sequence_operator
def sequence_pairwise(x: LoDTensor, y: LoDTensor, metric: str = "dot", *, level: int | str = -1) -> LoDTensor:
    """A product or a distance for every row of a sequence of x with every row of its partner in y.

    Equivalent to (metric "dot"):
        torch.cat([(a @ b.t()).flatten() for a, b in zip(x.sequences(level), y.sequences(level))])

    Args:
        x, y: (rows, features), of one floating dtype, with equally many sequences at the level. For cosines normalise the
            rows first: `torch.nn.functional.normalize(x, dim=1)`.
        metric: "dot", "euclidean" or "sqeuclidean". Distances are differences of products in float64, relative to the mean
            of the sequence of y. What is below 3e-8 of the distance from that mean cannot be told from rounding, and is 0.

    Returns:
        (pairs,) in the order of `sequence_pairs`, with its LoD, one level more than that of x; the dtype of x. Memory is linear
        in rows and pairs: sequences of similar lengths are multiplied together, padded to less than twice their lengths.
        Gradients reach x and y; where the distance is 0, that of "euclidean" is 0.

    Raises:
        ValueError, TypeError: where the numbers of sequences or features, dtypes or devices differ.

    Source: scipy.spatial.distance.cdist and torch.cdist, sequence by sequence.
    """
    if not isinstance(metric, str) or metric not in METRICS:
        raise LoDValueError(f"expected metric in {list(METRICS)}, got {shown(metric)}")
    a, b = partners(x, y, level)
    rows, others = with_features(a.rows), b.rows
    rows = in_autocast(rows) if metric == "dot" else rows  # as torch.cdist, which autocast leaves alone
    if others.dim() != 2 or others.shape[1] != rows.shape[1]:
        raise LoDValueError(f"expected y of shape (rows, {rows.shape[1]}), got {tuple(others.shape)}")
    others = as_autocast(others, rows)
    if others.dtype != rows.dtype:
        raise LoDTypeError(f"expected y of {rows.dtype}, as x, got {others.dtype}")
    with_memory(rows, others)
    lod, dtype = pair_lod(a, b), rows.dtype
    cuts = a.lod.row_offsets_at(a.k), b.lod.row_offsets_at(b.k), lod.levels[-1], lod.rows
    if metric == "dot":
        return made(dots(rows, others, *cuts), lod)
    wide_rows, wide_others = rows.to(torch.float64), others.to(torch.float64)
    centre = ops.segment_reduce(wide_others.detach(), b.offsets, "mean")
    p, q = wide_rows - a.spread(centre), wide_others - b.spread(centre)
    # |p|^2 - 2 p.q + |q|^2 as one product, with the squares as features of their own
    squares, ones = p.square().sum(1, keepdim=True), p.new_ones(p.shape[0], 1)
    other_squares, other_ones = q.square().sum(1, keepdim=True), q.new_ones(q.shape[0], 1)
    right = torch.cat([other_ones, other_squares], 1)
    sizes = products(torch.cat([squares, ones], 1), right, *cuts)
    apart = sizes - 2 * products(p, q, *cuts)
    told = apart > 1e-15 * sizes.detach()
    if metric == "euclidean":
        root = torch.where(told, apart, 1).sqrt()
        return made(torch.where(told, root, torch.where(apart.isnan(), apart, 0)).to(dtype), lod)
    return made(torch.where(told | apart.isnan(), apart, apart * 0).to(dtype), lod)


@sequence_operator
def sequence_knn(x: LoDTensor, y: LoDTensor, k: int, *, level: int | str = -1) -> tuple[LoDTensor, LoDTensor]:
    """For every row of x the k nearest rows of its partner in y, nearest first.

    Within one cloud, `sequence_knn(x, x, k + 1)`: every row is the nearest to itself, unless another is equal to it.

    Args:
        x, y: (rows, features), of one floating dtype, with equally many sequences at the level.
        k: at least 1 (ValueError).

    Returns:
        (rows, k): the distances, infinite where the partner has fewer rows; and the rows of y, int64, as indices into all
        rows, -1 where it has fewer. Both with the LoD of x. Rows at equal distances stay in order. The gradient of the
        distances goes to the rows found.

    Source: sklearn.neighbors.NearestNeighbors.kneighbors, cloud by cloud. The search holds the distances of
    all pairs.
    """
    integer("k", k)
    with torch.no_grad():
        distances = sequence_pairwise(x, y, "euclidean", level=level)
    column = distances.with_values(distances.values()[:, None])
    at = sequence_topk(column, k, 0, largest=False)[1].values()
    a, b = along(x, level), along(y, level, "y")
    shift = (
        b.lod.row_offsets_at(b.k)[a.lod.segment_ids_at(a.k)] - distances.lod.levels[-1][:-1]
    )  # from pairs to rows of y
    found = torch.where(at < 0, -1, at + shift[:, None].to(at.device)).flatten()
    others, half = as_autocast(b.rows, x), a.rows.dtype in (torch.float16, torch.bfloat16)
    rows, others = (t.to(torch.float32) if half else t for t in (a.rows, others))
    apart = (rows[:, None] - ops.gather_rows(others, found).view(*at.shape, rows.shape[1])).square().sum(2)
    near = torch.where(apart == 0, 0, torch.where(apart == 0, 1, apart).sqrt())
    return a.keep(torch.where(at < 0, math.inf, near).to(x.dtype)), a.keep(found.view(at.shape))


class Block(NamedTuple):
    """Sequences of similar lengths: their numbers, and the lengths that both sides are padded to."""

    sequences: Tensor
    high: int
    broad: int


def blocks(n: Tensor, m: Tensor) -> list[Block]:
    """All sequences with pairs, in blocks in which no length is more than twice another; a graph has one block, as it
    cannot choose by the lengths."""
    if compiling():
        high, broad = (whole_number(torch.cat([t, t.new_zeros(1)]).max()) for t in (n, m))
        return [Block(torch.arange(n.shape[0], device="cpu"), high, broad)]
    size = torch.stack([n, m], 1).clamp(min=1).double().log2().ceil().long()
    key = torch.where((n > 0) & (m > 0), size[:, 0] * 64 + size[:, 1], -1)
    order = key.argsort(stable=True)
    keys, counts = key[order].unique_consecutive(return_counts=True)
    parts = [part for k, part in zip(keys.tolist(), order.split(counts.tolist())) if k >= 0]
    full = [Block(part, int(n[part].max()), int(m[part].max())) for part in parts]
    return full or [Block(order[:0], 0, 0)]  # a product of nothing, for its place in the graph


def padded_map(offsets: Tensor, index: Tensor, length: int) -> Tensor:
    """The rows of the sequences at `index`, each padded to `length` with -1."""
    row = offsets[index][:, None] + torch.arange(length, device="cpu")
    return torch.where(row < offsets[index + 1][:, None], row, -1).flatten()


def dots(rows: Tensor, others: Tensor, first: Tensor, second: Tensor, offsets: Tensor, pairs: int) -> Tensor:
    """`products` in the dtype of the rows; half types are summed in float32."""
    half = rows.dtype in (torch.float16, torch.bfloat16)
    wide = torch.float32 if half and not torch.is_autocast_enabled(rows.device.type) else rows.dtype
    return products(rows.to(wide), others.to(wide), first, second, offsets, pairs).to(rows.dtype)


def products(rows: Tensor, others: Tensor, first: Tensor, second: Tensor, offsets: Tensor, pairs: int) -> Tensor:
    """(pairs,), the product of every row with every row of its partner: a padded batch per block, and of all of them
    the runs that are pairs.

    Args:
        first, second: row offsets of both, in host memory.
        offsets: those of the pairs of every row, in host memory.
    """
    device = rows.device
    n, m = first.diff(), second.diff()
    start, step = torch.zeros_like(n), torch.zeros_like(n)
    made_so_far, scores = 0, []
    for index, high, broad in blocks(n, m):
        count = index.shape[0]
        left = ops.gather_rows(rows, padded_map(first, index, high).to(device)).view(count, high, rows.shape[1])
        right = ops.gather_rows(others, padded_map(second, index, broad).to(device)).view(count, broad, rows.shape[1])
        scores.append(torch.bmm(left, right.transpose(1, 2)).flatten())
        here = made_so_far + torch.arange(count, device="cpu") * (high * broad)
        start, step = start.index_copy(0, index, here), step.index_copy(0, index, torch.full_like(index, broad))
        made_so_far = made_so_far + count * high * broad
    segment = ops.run_map(torch.arange(n.shape[0], device="cpu"), first, rows.shape[0], 0)
    position = torch.arange(rows.shape[0], device="cpu") - first[segment]
    starts = start[segment] + position * step[segment]
    return ops.gather_runs(torch.cat(scores), starts.to(device), offsets.to(device), pairs)
