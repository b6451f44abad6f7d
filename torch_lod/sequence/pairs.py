# SPDX-License-Identifier: Apache-2.0
"""Pairs: every row of a sequence with every row of its partner, the sequence with the same number in another batch.

The pairs are rows with one more level: the levels of x, then a sequence for every row of x, whose elements are the rows
of its partner. The weights of attention and its bias have this order as well.
"""

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from .. import ops
from ..dynamo import compiling, holds, whole_number
from ..errors import LoDTypeError, LoDValueError, shown
from ..ops.steps import of_similar_lengths, padded_map
from ..structure.devices import upload
from ..structure.lod import LoD
from ..structure.validate import integer, with_memory
from ..tensor.lod_tensor import LoDTensor, made
from .operator import Along, along, as_autocast, autocast_dtype, in_autocast, sequence_operator
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


def partner_rows(a: Along, b: Along, lod: LoD) -> Tensor:
    """The row of b of every pair, counted over all rows, in the order of `pair_lod`."""
    starts = b.lod.row_offsets_at(b.k)[:-1][a.lod.segment_ids_at(a.k)]
    return upload(ops.run_map(starts, lod.levels[-1], lod.rows, 1), a.rows.device)


@sequence_operator
def sequence_pairs(x: LoDTensor, y: LoDTensor, *, level: int | str = -1) -> tuple[LoDTensor, LoDTensor]:
    """Every row of a sequence of x with every row of the sequence of y that has the same number, as indices.

        x  a b | c      y  d e f | g h      i  a a a, b b b | c c      j  d e f, d e f | g h

    `x.values()[i.values()] - y.values()[j.values()]` has the differences of all pairs; `sequence_pairwise` has products
    and distances without a copy of the rows for every pair.

    Args:
        x, y: (rows, *element), of any dtype, with equally many sequences at the level (ValueError). A pair is of all
            rows under a sequence, also where they have more levels.

    Returns:
        i and j, int64, (pairs,), the rows of x and of y as indices into all rows. Their LoD has one level more than
        that of x: a sequence for every row of x, whose elements are the rows of its partner.

    Source: torch.cartesian_prod, sequence by sequence; numpy.meshgrid with indexing "ij".
    """
    a, b = partners(x, y, level)
    lod = pair_lod(a, b)
    first = ops.run_map(torch.arange(a.lod.rows, device="cpu"), lod.levels[-1], lod.rows, 0)
    return made(upload(first, a.rows.device), lod), made(partner_rows(a, b, lod), lod)


@sequence_operator
def sequence_pairwise(x: LoDTensor, y: LoDTensor, metric: str = "dot", *, level: int | str = -1) -> LoDTensor:
    """A product or a distance for every row of a sequence of x with every row of its partner in y.

    Equivalent to (metric "dot"):
        torch.cat([torch.einsum("id,jd->ij", a, b).flatten() for a, b in zip(x.sequences(level), y.sequences(level))])

    Args:
        x, y: (rows, features), of one floating dtype, with equally many sequences at the level. For cosines
            normalise the rows first: `torch.nn.functional.normalize(x, dim=1)`.
        metric: "dot", "euclidean" or "sqeuclidean". Distances are differences of products in float64, relative to the
            row of the sequence of y that is nearest to its mean. What is below 3e-8 of the distance from that row
            cannot be told from rounding, and is 0. A row with an infinity is infinitely far from all others.

    Returns:
        (pairs,) in the order of `sequence_pairs`, with its LoD, one level more than that of x; the dtype of x. Memory
        is linear in rows and pairs: sequences of similar lengths are multiplied together, padded to less than twice
        their lengths; in compiled code all of them, padded to the longest. Gradients reach x and y; where the distance
        is 0, that of "euclidean" is 0.

    Raises:
        ValueError, TypeError: where the numbers of sequences or features, dtypes or devices differ.

    Source: scipy.spatial.distance.cdist and torch.cdist, sequence by sequence.
    """
    if not isinstance(metric, str) or metric not in METRICS:
        raise LoDValueError(f"expected metric in {list(METRICS)}, got {shown(metric)}")
    a, b = as_rows(x, y, level)
    rows = in_autocast(a.rows) if metric == "dot" else a.rows  # as torch.cdist, which autocast leaves alone
    others = as_autocast(b.rows, rows)
    lod = pair_lod(a, b)
    cuts = a.lod.row_offsets_at(a.k), b.lod.row_offsets_at(b.k), lod.levels[-1], lod.rows
    if metric == "dot":
        return made(dots(rows, others, *cuts), lod)
    p, q = centred(rows, others, a, b)
    root = metric == "euclidean"
    return made(over_blocks(p, q, *cuts, lambda left, right: apart(left, right, root).to(rows.dtype)), lod)


@sequence_operator
def sequence_knn(x: LoDTensor, y: LoDTensor, k: int, *, level: int | str = -1) -> tuple[LoDTensor, LoDTensor]:
    """For every row of x the k nearest rows of its partner in y, nearest first.

    Within one cloud, `sequence_knn(x, x, k + 1)`: every row is the nearest to itself, unless another is equal to it.

    Args:
        x, y: (rows, features), of one floating dtype, with equally many sequences at the level.
        k: at least 1 (ValueError).

    Returns:
        (rows, k): the distances, infinite where the partner has fewer rows; and the rows of y, int64, as indices into
        all rows, -1 where it has fewer. Both with the LoD of x. Rows at equal distances are in order, and any of them
        may be found where not all are; NaN is greater than every number. The gradient of the distances goes to the rows
        found. Pairs are searched some rows at a time, so that memory is linear in rows times k times features; in compiled
        code the search holds a number per pair.

    Raises:
        ValueError, TypeError: where the numbers of sequences or features, dtypes or devices differ.

    Source: sklearn.neighbors.NearestNeighbors.kneighbors, cloud by cloud.
    """
    k = integer("k", k)
    a, b = as_rows(x, y, level)
    found = nearest(a, b, k)
    rows, others = a.rows.to(torch.float64), as_autocast(b.rows, x).to(torch.float64)
    if compiling():
        near, found = in_order(rows, others, found)
    else:
        some = max(1, PAIRS // (k * max(1, rows.shape[1])))
        parts = [in_order(r, others, f) for r, f in zip(rows.split(some), found.split(some))]
        near, found = (torch.cat(part) for part in zip(*parts))
    return a.keep(near.to(x.dtype)), a.keep(found)


def in_order(rows: Tensor, others: Tensor, found: Tensor) -> tuple[Tensor, Tensor]:
    """The distances of the rows found, which the search has rounded, and these rows, the nearest first; both (rows, k)."""
    beside = ops.gather_rows(others, found.flatten()).view(*found.shape, rows.shape[1])
    infinite = (rows.detach().square().sum(1, keepdim=True) + beside.detach().square().sum(2)).isinf()
    apart_by = torch.where(infinite[:, :, None], 0, rows[:, None] - beside)
    squares = torch.where(infinite, math.inf, apart_by.square().sum(2))
    near = torch.where(squares == 0, 0, torch.where(squares == 0, 1, squares).sqrt())
    order = torch.where(found < 0, math.inf, last(near.detach())).argsort(dim=1, stable=True)
    near = torch.where(found < 0, math.inf, near)
    return near.gather(1, order), found.gather(1, order)


def as_rows(x: LoDTensor, y: LoDTensor, level: int | str) -> tuple[Along, Along]:
    """Partners whose rows can be compared."""
    a, b = partners(x, y, level)
    rows, others = with_features(a.rows), b.rows
    if others.dim() != 2 or others.shape[1] != rows.shape[1]:
        raise LoDValueError(f"expected y of shape (rows, {rows.shape[1]}), got {tuple(others.shape)}")
    others = as_autocast(others, rows)
    if others.dtype != rows.dtype:
        raise LoDTypeError(f"expected y of {rows.dtype}, as x, got {others.dtype}")
    with_memory(rows, others)
    return a, b


def centred(rows: Tensor, others: Tensor, a: Along, b: Along) -> tuple[Tensor, Tensor]:
    """Both in float64, relative to the row of the sequence of b that is nearest to its mean: products round what is
    common to all. A few rows far from all others move the mean away from them, but not that row."""
    rows, others = rows.to(torch.float64), others.to(torch.float64)
    known = finite(others.detach())
    mean = ops.segment_reduce(known, b.offsets, "mean")
    central = ops.segment_extreme((known - b.spread(mean)).square().sum(1), b.offsets, "min")[1]
    centre = ops.gather_rows(known, central)
    return rows - a.spread(centre), others - b.spread(centre)


def finite(t: Tensor) -> Tensor:
    """The same with 0 for what is no number or has no finite square, which would spoil products with other rows."""
    return torch.where(t.abs() < 1e150, t, 0)


def apart(left: Tensor, right: Tensor, root: bool) -> Tensor:
    """(sequences, high, broad): the squares of distances, or the distances, from (sequences, high, features) and
    (sequences, broad, features)."""
    sizes = left.square().sum(2, keepdim=True) + right.square().sum(2)[:, None]
    squares = torch.baddbmm(sizes, finite(left), finite(right).transpose(1, 2), alpha=-2)
    nothing = torch.sub(squares.detach(), sizes.detach(), alpha=1e-15) <= 0  # not where both are infinite
    return torch.where(nothing, 0, torch.where(nothing, 1, squares).sqrt() if root else squares)


def last(distances: Tensor) -> Tensor:
    """The same, where what is no number comes behind the others and before what is infinite."""
    most = torch.finfo(distances.dtype).max
    return distances.nan_to_num(nan=most, posinf=most)


def nearest(a: Along, b: Along, k: int) -> Tensor:
    """(rows of a, k), the nearest rows of b, -1 where there are fewer, in the order of the rows."""
    first, second, device = a.lod.row_offsets_at(a.k), b.lod.row_offsets_at(b.k), a.rows.device
    with torch.no_grad():
        p, q = centred(a.rows, b.rows, a, b)
        places, each = [], []
        for block in parts(first.diff(), second.diff(), max(k, b.rows.shape[1])):
            broad = block.broad + k if compiling() else max(block.broad, k)
            rows = upload(padded_map(first, block.sequences, block.high, block.begin), device)
            others = upload(padded_map(second, block.sequences, broad), device)
            left, right = paired(p, q, rows, others, block._replace(broad=broad))
            sizes = right.square().sum(2)[:, None]
            scores = torch.baddbmm(sizes, finite(left), finite(right).transpose(1, 2), alpha=-2)
            there = others.view(-1, 1, broad)
            at = torch.where(there < 0, math.inf, last(scores)).topk(k, 2, largest=False).indices.sort(2).values
            best = there.expand(scores.shape).gather(2, at)
            places.append(torch.where(rows < 0, p.shape[0], rows))  # those of the padding go behind the last one
            each.append(best.view(-1, k))
        found = torch.full((p.shape[0] + 1, k), -1, dtype=torch.int64, device=device)
        return found.index_copy(0, torch.cat(places), torch.cat(each))[: p.shape[0]]


class Block(NamedTuple):
    """Sequences of similar lengths: their numbers, the lengths that both sides are padded to, and the position in its
    sequence of the first row of the left side."""

    sequences: Tensor
    high: int
    broad: int
    begin: int = 0


#: Pairs that are worked on in one call of torch, about a tenth of a second: signals, such as Ctrl-C, are heard in between.
PAIRS = 2**23


def parts(n: Tensor, m: Tensor, width: int = 0) -> Iterator[Block]:
    """The blocks, in the same order, of at most PAIRS pairs: some of their sequences, or some rows of one of them."""
    for block in blocks(n, m):
        broad = max(block.broad, width)
        if compiling() or block.sequences.shape[0] * block.high * broad <= PAIRS:
            yield block
        elif block.high * broad <= PAIRS:
            yield from (block._replace(sequences=s) for s in block.sequences.split(PAIRS // (block.high * broad)))
        else:
            rows = max(1, PAIRS // broad)
            for sequence in block.sequences.split(1):
                for begin in range(0, block.high, rows):
                    yield Block(sequence, min(rows, block.high - begin), block.broad, begin)


def blocks(n: Tensor, m: Tensor) -> list[Block]:
    """All sequences with pairs, in blocks in which no length is more than twice another; a graph has one block, as it
    cannot choose by the lengths."""
    if compiling():
        high, broad = (whole_number(torch.cat([t, t.new_zeros(1)]).max()) for t in (n, m))
        return [Block(torch.arange(n.shape[0], device="cpu"), high, broad)]
    some = ((n > 0) & (m > 0)).nonzero().flatten()
    groups = [some[group] for group in of_similar_lengths(n[some], m[some])] if len(some) else []
    full = [Block(group, int(n[group].max()), int(m[group].max())) for group in groups]
    return full or [Block(some, 0, 0)]  # a product of nothing, for its place in the graph


def paired(rows: Tensor, others: Tensor, first: Tensor, second: Tensor, block: Block) -> tuple[Tensor, Tensor]:
    """The rows of both sides of a block: (sequences, high, features) and (sequences, broad, features)."""
    count, width = block.sequences.shape[0], rows.shape[1]
    left = ops.gather_rows(rows, first).view(count, block.high, width)
    return left, ops.gather_rows(others, second).view(count, block.broad, width)


def dots(rows: Tensor, others: Tensor, first: Tensor, second: Tensor, offsets: Tensor, pairs: int) -> Tensor:
    """The products of all pairs; half types are summed in float32."""
    half = rows.dtype in (torch.float16, torch.bfloat16)
    wide = torch.float32 if half and autocast_dtype(rows.device) is None else rows.dtype
    given = rows.to(wide), others.to(wide), first, second, offsets, pairs
    return over_blocks(*given, lambda left, right: torch.bmm(left, right.transpose(1, 2))).to(rows.dtype)


def over_blocks(
    rows: Tensor,
    others: Tensor,
    first: Tensor,
    second: Tensor,
    offsets: Tensor,
    pairs: int,
    function: Callable[[Tensor, Tensor], Tensor],
) -> Tensor:
    """(pairs,), what `function` makes of every row and every row of its partner: of a padded batch per block, and of
    all of them the runs that are pairs.

    Args:
        first, second: row offsets of both, in host memory.
        offsets: those of the pairs of every row, in host memory.
        function: of (sequences, high, features) and (sequences, broad, features).
    """
    device = rows.device
    n, m = first.diff(), second.diff()
    start, step = torch.zeros_like(n), torch.zeros_like(n)
    made_so_far, scores = 0, []
    for block in parts(n, m):
        index, high, broad, begin = block
        left, right = padded_map(first, index, high, begin), padded_map(second, index, broad)
        both = paired(rows, others, upload(left, device), upload(right, device), block)
        scores.append(function(*both).flatten())
        count = index.shape[0]
        if begin:  # behind the rows of the same sequence
            made_so_far += high * broad
            continue
        here = made_so_far + torch.arange(count, device="cpu") * (high * broad)
        start, step = start.index_copy(0, index, here), step.index_copy(0, index, torch.full_like(index, broad))
        made_so_far = made_so_far + count * high * broad
    segment = ops.run_map(torch.arange(n.shape[0], device="cpu"), first, rows.shape[0], 0)
    position = torch.arange(rows.shape[0], device="cpu") - first[segment]
    starts = start[segment] + position * step[segment]
    return ops.gather_runs(torch.cat(scores), upload(starts, device), upload(offsets, device), pairs)
