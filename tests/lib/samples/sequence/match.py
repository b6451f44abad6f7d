# SPDX-License-Identifier: Apache-2.0
"""Matrices of scores, images and trees of different sizes."""

import torch

import torch_lod as tl
from samples.sequence.pairs import of_partners
from samples.words import ROUNDED, Sample, SequenceInfo, X, lod_tensor, values


def matches(x, y):
    for channels, width in ((2, y.shape[1]), (1, 2)):
        weight = values(x.shape[1], (channels, width), x.dtype, x.device, 3)
        yield f" {channels}", (x, y if width == y.shape[1] else y[:, :2].contiguous(), weight)


def match_errors():
    op, w = tl.match_matrix_tensor, torch.ones(3, 2, 3)
    one = lod_tensor([[6]], (3,), torch.float32, "cpu")
    yield "y", lambda: op(X, X.values(), w), TypeError, "y as a LoDTensor, got Tensor"
    yield "sequences", lambda: op(X, one, w), ValueError, "as many sequences at the level as x, 3, got 1"
    yield "1-d", lambda: op(X[:, 0], X, w), ValueError, "x of shape (rows, features), got (6,)"
    yield "whole", lambda: op(X.long(), X.long(), w), TypeError, "x of a floating dtype, got torch.int64"
    yield "weight", lambda: op(X, X, w[:2]), ValueError, "weight of shape (3, 2, 3), got (2, 2, 3)"
    yield "no weight", lambda: op(X, X, None), TypeError, "weight as a tensor, got NoneType"
    yield "width", lambda: op(X, X[:, :2], w), ValueError, "y of shape (6, 3), got (6, 2)"
    yield "dtype", lambda: op(X, X.double(), w), TypeError, "y of torch.float32 on cpu, as x"


#: Lengths of the levels above the images, then heights and widths.
IMAGES = {
    "typical": ([], [2, 3], [3, 1]),
    "empties": ([[3, 0, 1]], [0, 2, 4, 1], [2, 0, 3, 4]),
    "none": ([], [], []),
    "all empty": ([], [0, 0], [0, 3]),
}


def images(dtype, device):
    for label, (above, high, wide) in IMAGES.items():
        for channels, outs, size, stride in ((2, 1, (3, 2), 1), (1, 3, (2, 5), (2, 3))):
            lengths = [*above, [channels * h * w for h, w in zip(high, wide)]]
            x = lod_tensor(lengths, (1,) if stride == 1 else (), dtype, device)
            row, col = (lod_tensor([*above, n], (2,), torch.int64, device) for n in (high, wide))
            weight = values(outs, (channels, *size), dtype, device, 3)
            of = {"level": len(above), "key": "level", "names": x.level_names or (None,) * len(lengths)}
            yield Sample(f"{label} {size}", (x, row, col, weight, stride), {"level": len(above)}, **of)


def image_errors():
    op, w = tl.var_conv_2d, torch.ones(1, 2, 3, 3)
    x, row, col = (tl.from_lengths(torch.ones(n), [[n]]) for n in (12, 2, 3))
    yield (
        "lengths",
        lambda: op(x, row, col, torch.ones(1, 3, 3, 3)),
        ValueError,
        "3 x 2 x 3 scores in sequence 0, got 12",
    )
    yield "plain row", lambda: op(x, row.values(), col, w), TypeError, "row as a LoDTensor, got Tensor"
    two = tl.from_lengths(torch.ones(2), [[1, 1]])
    yield "sequences", lambda: op(x, two, col, w), ValueError, "equally many sequences in x, row and col, got [1, 2, 1]"
    wide = tl.from_lengths(torch.ones(12, 2), [[12]])
    yield "width", lambda: op(wide, row, col, w), ValueError, "x of shape (scores,) or (scores, 1), got (12, 2)"
    yield "whole", lambda: op(x.long(), row, col, w), TypeError, "x of a floating dtype, got torch.int64"
    yield "weight", lambda: op(x, row, col, w[0]), ValueError, "weight of shape (out channels, channels, height, width)"
    yield "no weight", lambda: op(x, row, col, w[:0]), ValueError, "channels, height, width), got (0, 2, 3, 3)"
    yield "dtype", lambda: op(x, row, col, w.double()), TypeError, "weight of torch.float32 on cpu, as x"
    for wrong in (0, (1,), 1.5, (1, -1), None):
        yield f"stride {wrong}", lambda s=wrong: op(x, row, col, w, s), ValueError, "stride as a number >= 1 or a pair"


#: Lengths of the nodes and a level, and per tree its edges.
TREES = {
    "two": ([[6, 0, 3]], 0, [[(1, 2), (1, 3), (3, 6), (3, 4), (3, 5)], [], [(2, 1), (2, 3)]]),
    "inside": ([[1, 1], [4, 2]], 1, [[(4, 3), (3, 2), (2, 1)], []]),
    "of the outer": ([[2, 1, 0], [2, 1, 3]], 0, [[(3, 1), (1, 2)], [(1, 2)], []]),
    "none": ([[]], 0, []),
    "no edges": ([[2, 1]], 0, [[], []]),
}


def trees(dtype, device):
    for label, (lengths, k, edges) in TREES.items():
        nodes = lod_tensor(lengths, (3,), dtype, device)
        ends = torch.tensor([e for of in edges for e in of], dtype=torch.int64, device=device).reshape(-1, 2)
        below = [[len(of) for of in edges]] if k + 1 == len(lengths) else [lengths[k], [1] * len(ends)]
        given = tl.from_lengths(ends, [*lengths[:k], *below], level_names=nodes.level_names)
        weight = values(3, (3, 2, 1), dtype, device, 4)
        of = {"level": k, "key": "level", "names": nodes.level_names}
        for depth in (1, 2, 4):
            yield Sample(f"{label} {depth}", (nodes, given, weight, depth), {"level": k}, **of)


def tree_errors():
    op, w = tl.tree_conv, torch.ones(3, 3, 2, 1)
    nodes = lod_tensor([[2, 4]], (3,), torch.float32, "cpu")

    def joined(*edges):
        return tl.from_lengths(torch.tensor(edges), [[1, len(edges) - 1]])

    edges = joined((1, 2), (1, 3), (1, 4))
    for wrong in (0, 5, -1, 2**62):
        yield (
            f"end {wrong}",
            lambda v=wrong: op(nodes, joined((1, 2), (1, 3), (1, v)), w),
            IndexError,
            f"between nodes 1 to 4 of tree 1, got [1, {wrong}] at edge 2",
        )
    twice, round_ = joined((1, 2), (1, 3), (2, 3)), joined((2, 1), (1, 2), (2, 1))
    yield "parents", lambda: op(nodes, twice, w), ValueError, "one parent, got node 3 of tree 1 below 1 and 2"
    yield "cycle", lambda: op(nodes, round_, w, 4), ValueError, "got node 1 of tree 1 as its own ancestor"
    yield "itself", lambda: op(nodes, joined((1, 2), (4, 4)), w), ValueError, "got node 4 of tree 1 as its own"
    yield "plain edges", lambda: op(nodes, edges.values(), w), TypeError, "edges as a LoDTensor, got Tensor"
    yield "floating edges", lambda: op(nodes, edges.float(), w), TypeError, "edges of an integer dtype"
    yield "shape", lambda: op(nodes, edges[:, 0], w), ValueError, "edges of shape (edges, 2), got (3,)"
    one = tl.from_lengths(torch.tensor([[1, 2]]), [[1]])
    yield "sequences", lambda: op(nodes, one, w), ValueError, "a sequence for each of 2 trees, got 1"
    yield (
        "1-d",
        lambda: op(nodes[:, 0], edges, w),
        ValueError,
        "nodes of shape (rows, features) and a floating dtype, got (6,)",
    )
    yield "whole", lambda: op(nodes.long(), edges, w), TypeError, "and a floating dtype, got (6, 3) of torch.int64"
    yield "weight", lambda: op(nodes, edges, w[:, :2]), ValueError, "weight of shape (3, 3, 2, 1), got (3, 2, 2, 1)"
    yield (
        "weight dims",
        lambda: op(nodes, edges, w[0]),
        ValueError,
        "weight of shape (3, 3, out, filters), got (3, 2, 1)",
    )
    for wrong in (0, 1.5, None, 2**40):
        yield (
            f"depth {wrong}",
            lambda d=wrong: op(nodes, edges, w, d),
            ValueError,
            f"max_depth in [1, 2**20], got {wrong}",
        )


PRODUCTS = {"products": True, "tolerance": ROUNDED}
ENTRIES = [
    SequenceInfo("match_matrix_tensor", of_partners(matches, ((3,), (2,))), match_errors, **PRODUCTS),
    SequenceInfo("var_conv_2d", images, image_errors, **PRODUCTS),
    SequenceInfo("tree_conv", trees, tree_errors, keeps=True, **PRODUCTS),
]
