# SPDX-License-Identifier: Apache-2.0
"""Matching matrices and trees: score matrices of two sequences, convolutions over them, and convolutions over trees, in Fluid's layouts.

A sequence of scores holds its matrices one after another: channels, then rows, then columns.
"""

import torch
from torch import Tensor

from .. import ops
from ..dynamo import compiling, failing, holds, whole_number
from ..errors import LoDIndexError, LoDTypeError, LoDValueError
from ..sequence.operator import Along, along, in_autocast, sequence_operator
from ..sequence.pairs import dots, partners
from ..sequence.windows import a_weight, of_shape, with_features
from ..structure.devices import upload
from ..structure.lod import LoD
from ..structure.validate import a_float, integer, sums, whole_dtype, with_data, with_memory
from ..tensor.lod_tensor import LoDTensor, made
from .forms import _pair

__all__ = ["match_matrix_tensor", "tree_conv", "var_conv_2d"]


def _parts(offsets: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The part that each of `count` entries is in, and its position there; in host memory."""
    part = ops.run_map(torch.arange(offsets.shape[0] - 1, device="cpu"), offsets, count, 0)
    return part, torch.arange(count, device="cpu") - offsets[part]


def _instead(s: Along, lengths: Tensor, rows: int = -1) -> LoD:
    """The levels above that of s, and sequences of other lengths, of so many rows in all; -1: not known."""
    names = s.lod.level_names
    return LoD.checked("offsets", [*s.lod.levels[: s.k], sums(lengths)], names and names[: s.k + 1], rows)


@sequence_operator
def match_matrix_tensor(x: LoDTensor, y: LoDTensor, weight: Tensor, *, level: int | str = -1) -> LoDTensor:
    """For every sequence of x and its partner in y a matrix of scores per channel, x[i] weight[:, c] y[j].

    Equivalent to:
        torch.cat([torch.einsum("id,dce,je->cij", a, weight, b).flatten() for a, b in zip(x.seq, y.seq)])

    Args:
        x, y: (rows, features), of one floating dtype, with equally many sequences at the level. Their features may
            differ.
        weight: (features of x, channels, features of y).

    Returns:
        (scores,), with the levels of x above the level, and a level of channels * rows of x * rows of y; what
        `sequence_topk_avg_pooling` and `var_conv_2d` take. Gradients reach x, y and weight.

    Raises:
        ValueError, TypeError: where the numbers of sequences, shapes, dtypes or devices do not fit.

    Source: Paddle Fluid's match_matrix_tensor, of one level; the scores of `sequence_pairwise`.
    """
    s, other = partners(x, y, level)
    rows = in_autocast(with_features(s.rows))
    a_weight(weight, f"({rows.shape[1]}, channels, features of y)", lambda w: w.dim() == 3)
    weight = of_shape("weight", weight, (rows.shape[1], *weight.shape[1:]), rows)
    _, channels, width = weight.shape
    others = of_shape("y", other.rows, (other.rows.shape[0], width), rows)
    with_memory(rows, others, weight)
    projected = (rows @ weight.reshape(rows.shape[1], channels * width)).view(rows.shape[0] * channels, width)
    # from (sequence, row, channel) to (sequence, channel, row): there a row of a matrix is a row of a longer sequence
    first, second = s.lod.row_offsets_at(s.k), other.lod.row_offsets_at(other.k)
    n, m = first.diff(), second.diff()
    part, at = _parts(channels * first, channels * rows.shape[0])
    source = (first[part] + at % n[part]) * channels + torch.div(at, n[part], rounding_mode="floor")
    left = ops.gather_rows(projected, upload(source, projected.device))
    lod = _instead(s, channels * n * m)
    return made(dots(left, others, channels * first, second, sums(m[part]), lod.rows), lod)


@sequence_operator
def var_conv_2d(
    x: LoDTensor, row: LoDTensor, col: LoDTensor, weight: Tensor, stride=1, *, level: int | str = -1
) -> LoDTensor:
    """A convolution of images of different sizes, zeros around each.

    Equivalent to (odd height and width of weight, no image empty):
        torch.cat(
            [
                F.conv2d(p.view(-1, len(r), len(c)), weight, None, stride, [n // 2 for n in weight.shape[2:]]).flatten()
                for p, r, c in zip(x.seq, row.seq, col.seq)
            ]
        )

    Args:
        x: (scores,) or (scores, 1), a floating dtype: every sequence of the level is an image of channels * height *
            width.
        row, col: as many sequences at the level; the numbers of their rows are the heights and the widths of the
            images.
        weight: (out channels, channels, height, width), as conv2d's. Its middle, height // 2 and width // 2, is aligned
            with every stride-th pixel.
        stride: a number or (height, width).

    Returns:
        (scores,), with the levels of x above the level, and a level of out channels * ((height - 1) // stride + 1) *
        ((width - 1) // stride + 1); nothing for an image without height or width. Gradients reach x and weight.

    Raises:
        ValueError, TypeError: where the lengths of x are not channels * rows * columns, or shapes, dtypes or devices do
            not fit.

    Source: Paddle Fluid's var_conv_2d, of one level.
    """
    s, high, wide = (along(t, level, what) for what, t in (("x", x), ("row", row), ("col", col)))
    with_memory(x, weight)
    pixels = s.rows
    a_float(pixels)
    if pixels.dim() > 2 or (pixels.dim() == 2 and pixels.shape[1] != 1):
        raise LoDValueError(f"expected x of shape (scores,) or (scores, 1), got {tuple(x.shape)}")
    pixels = in_autocast(pixels.reshape(-1, 1))
    a_weight(weight, "(out channels, channels, height, width)", lambda w: w.dim() == 4 and min(w.shape) > 0)
    weight = of_shape("weight", weight, tuple(weight.shape), pixels)
    outs, channels, *size = weight.shape
    steps = _pair("stride", stride, 1)
    n, h, w = (t.lod.row_lengths_at(t.k) for t in (s, high, wide))
    if not holds(h.shape[0] == n.shape[0]) or not holds(w.shape[0] == n.shape[0]):
        counts = [t.shape[0] for t in (n, h, w)]
        raise LoDValueError(f"expected equally many sequences in x, row and col, got {counts}")
    for i in failing(n != channels * h * w, "var_conv_2d: expected x of channels x rows x columns scores"):
        raise LoDValueError(
            f"expected x of {channels} x {int(h[i])} x {int(w[i])} scores in sequence {i}, got {int(n[i])}"
        )
    there = (h > 0) & (w > 0)
    out_h, out_w = (torch.where(there, (t - 1) // by + 1, 0) for t, by in zip((h, w), steps))
    # pixels, of all channels each; what lies under the weight at every place; results, channel by channel
    area, places = sums(h * w), sums(out_h * out_w)
    image, at = _parts(area, pixels.shape[0] // channels)
    channel = torch.arange(channels, device="cpu")
    source = (s.lod.row_offsets_at(s.k)[image] + at)[:, None] + channel * (h * w)[image][:, None]
    device = pixels.device
    pixels = ops.gather_rows(pixels, upload(source.flatten(), device)).view(image.shape[0], channels)
    found = whole_number(places[-1])
    image, at = _parts(places, found)
    across = out_w[image]
    down = (torch.div(at, across, rounding_mode="floor") * steps[0])[:, None, None] - size[0] // 2
    right = (at % across * steps[1])[:, None, None] - size[1] // 2
    down, right = down + torch.arange(size[0], device="cpu")[:, None], right + torch.arange(size[1], device="cpu")
    h_at, w_at = h[image][:, None, None], w[image][:, None, None]
    inside = (down >= 0) & (down < h_at) & (right >= 0) & (right < w_at)
    under = torch.where(inside, area[image][:, None, None] + down * w_at + right, -1)
    seen = ops.gather_rows(pixels, upload(under.flatten(), device)).view(image.shape[0], size[0] * size[1] * channels)
    scores = seen @ weight.permute(2, 3, 1, 0).reshape(size[0] * size[1] * channels, outs)
    count = out_h * out_w
    lod = _instead(s, outs * count, outs * found)
    image, at = _parts(outs * places, outs * found)
    source = (places[image] + at % count[image]) * outs + torch.div(at, count[image], rounding_mode="floor")
    return made(ops.gather_rows(scores.reshape(-1, 1), upload(source, device)).squeeze(1), lod)


@sequence_operator
def tree_conv(
    nodes: LoDTensor, edges: LoDTensor, weight: Tensor, max_depth: int = 2, *, level: int | str = -1
) -> LoDTensor:
    """A convolution over trees: every node with its descendants of fewer than max_depth generations, as a weighted sum.

        out[u] = sum over v of (l W_l + r W_r + t W_t) x[v],   t = 1 - d / max_depth
        l = (1 - t) p,   r = (1 - t) (1 - l)

    where d is how many generations v is below u, and p in [0, 1] its place among its siblings, 0.5 of an only child.

    Args:
        nodes: (rows, features), a floating dtype; every sequence of the level is a tree, or several.
        edges: integers, (edges, 2), parent and child, in as many sequences at the level: numbers of nodes within their
            tree, from 1. Siblings are in the order of their edges. One sync if on a GPU.
        weight: (features, 3, out, filters): W_l, W_r and W_t.
        max_depth: at least 1, for the nodes themselves.

    Returns:
        (rows, out, filters), with the LoD of nodes. Gradients reach nodes and weight.

    Raises:
        IndexError: where an edge names no node of its tree.
        ValueError, TypeError: where a node has two parents or is its own ancestor; where shapes, dtypes or devices do
            not fit.

    Source: Paddle Fluid's tree_conv; Mou et al., "Convolutional Neural Networks over Tree Structures for Programming
    Language Processing", 2016.
    """
    s, e = along(nodes, level, "nodes"), along(edges, level, "edges")
    rows = in_autocast(s.rows)
    if rows.dim() != 2 or not rows.is_floating_point():
        raise (LoDValueError if rows.dim() != 2 else LoDTypeError)(
            f"expected nodes of shape (rows, features) and a floating dtype, got {tuple(rows.shape)} of {rows.dtype}"
        )
    a_weight(weight, f"({rows.shape[1]}, 3, out, filters)", lambda w: w.dim() == 4)
    weight = of_shape("weight", weight, (rows.shape[1], 3, *weight.shape[2:]), rows)
    max_depth = integer("max_depth", max_depth, most=2**20)
    with_memory(rows, weight)
    parent, place = _family(s, e)
    count, kind = rows.shape[0], rows.dtype
    results = weight.shape[2] * weight.shape[3]
    left, right, top = (rows @ weight.reshape(rows.shape[1], 3 * results)).view(count, 3, results).unbind(1)
    out, ancestor, itself = top, parent, torch.arange(count, device="cpu")
    p = place.to(rows.device, kind)[:, None]
    for depth in range(1, max_depth):
        if not compiling() and not bool((ancestor >= 0).any()):
            break
        for v in failing(ancestor == itself, "tree_conv: expected trees, got a node that is its own ancestor"):
            tree = int(s.lod.segment_ids_at(s.k)[v])
            number = v - int(s.lod.row_offsets_at(s.k)[tree]) + 1
            raise LoDValueError(f"expected trees, got node {number} of tree {tree} as its own ancestor")
        t = 1 - depth / max_depth
        l_share = (1 - t) * p
        share = l_share * left + (1 - t) * (1 - l_share) * right + t * top
        out = out + ops.scatter_rows(share, upload(ancestor, rows.device), count)
        ancestor = torch.where(ancestor < 0, -1, parent[ancestor.clamp(min=0)])
    return s.keep(out.view(count, *weight.shape[2:]))


def _family(s: Along, e: Along) -> tuple[Tensor, Tensor]:
    """For every node the row of its parent, -1 for none, and its place among its siblings, from 0 to 1."""
    given, trees = e.rows, s.lod.num_sequences(s.k)
    whole_dtype("edges", given)
    if given.dim() != 2 or given.shape[1] != 2:
        raise LoDValueError(f"expected edges of shape (edges, 2), got {tuple(given.shape)}")
    if not holds(e.lod.num_sequences(e.k) == trees):
        raise LoDValueError(f"expected edges with a sequence for each of {trees} trees, got {e.lod.num_sequences(e.k)}")
    with_data("edges", given)
    with_memory(given)
    ends = given.to("cpu", torch.int64)
    tree, first, size = e.lod.segment_ids_at(e.k), s.lod.row_offsets_at(s.k), s.lod.row_lengths_at(s.k)
    wrong = ((ends < 1) | (ends > size[tree][:, None])).any(1)
    for i in failing(wrong, "tree_conv: expected edges between nodes of their tree"):
        raise LoDIndexError(
            f"expected edges between nodes 1 to {int(size[tree[i]])} of tree {int(tree[i])}, got {ends[i].tolist()} at "
            f"edge {i}"
        )
    above, below = (ends - 1 + first[tree][:, None]).unbind(1)
    nodes = s.rows.shape[0]
    one = torch.ones_like(above)
    parents, children = (
        torch.zeros(nodes, dtype=torch.int64, device="cpu").scatter_add(0, t, one) for t in (below, above)
    )
    for i in failing(parents[below] > 1, "tree_conv: expected nodes with one parent"):
        twice = ends[below == below[i], 0].tolist()
        raise LoDValueError(
            f"expected nodes with one parent, got node {int(ends[i, 1])} of tree {int(tree[i])} below {twice[0]} and "
            f"{twice[1]}"
        )
    order = above.argsort(stable=True)
    ranked = above[order]
    rank = torch.arange(above.shape[0], device="cpu") - torch.searchsorted(ranked, ranked)
    siblings = children[ranked]
    place = torch.where(siblings == 1, 0.5, rank / (siblings - 1).clamp(min=1))
    no_parent = torch.full((nodes,), -1, dtype=torch.int64, device="cpu")
    middle = torch.zeros(nodes, dtype=torch.float64, device="cpu")
    return no_parent.scatter(0, below, above), middle.scatter(0, below[order], place.double())
