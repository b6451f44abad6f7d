# SPDX-License-Identifier: Apache-2.0
"""Every row with the rows of a partner."""

import torch

import torch_lod as tl
from samples.words import ALL, ROUNDED, Sample, SequenceInfo, X, lod_tensor, over, values

#: Lengths of x and of y, and a level: partners longer and shorter, empty on either side, or with other levels below.
PARTNERS = {
    "one": ([[2, 0, 3, 1]], [[3, 2, 0, 1]], 0),
    "one, none": ([[]], [[]], 0),
    "two": ([[2, 1], [1, 2, 3]], [[2, 1], [2, 5, 1]], 1),
    "two, of the outer": ([[0, 2, 1], [0, 3, 1]], [[1, 0, 2], [2, 1, 1]], 0),
    "three, all empty": ([[1, 1], [2, 0], [0, 0]], [[1, 1], [2, 0], [1, 3]], 2),
}


def of_partners(make, widths=((3,), (1,), (0,))):
    """Samples of `make(x, y)` for every two partners."""

    def samples(dtype, device):
        for turn, (label, (lengths, others, k)) in enumerate(PARTNERS.items()):
            for width in widths[: 3 if label == "one" else 1]:
                names = turn % 2 == 0
                x = lod_tensor(lengths, width, dtype, device, names=names)
                y = lod_tensor(others, width, dtype, device, seed=7, names=names)
                for extra, args in make(x, y):
                    said = {"level": k, "key": "level", "names": x.level_names or (None,) * len(lengths)}
                    yield Sample(f"{label} {width}{extra}", args, {"level": k}, fixed="fixed" in extra, **said)

    return samples


def pairings(x, y):
    yield "", (x, y)


def metrics(x, y):
    yield " euclidean", (x, y, "euclidean")
    if x.lod_level == 1 or not len(x):
        yield " dot", (x, y)
    if x.lod_level == 1 and x.shape[1] == 3:
        yield " sqeuclidean", (x, y, "sqeuclidean")
        yield " itself fixed", (x, x.clone(), "euclidean")


def neighbours(x, y):
    for k in (1, 2, 4) if x.shape[1] == 3 else (2,):
        yield f" {k}", (x, y, k)


def partner_errors(name, *rest, values=True):
    def errors():
        op = getattr(tl, name)
        yield "y", lambda: op(X, X.values(), *rest), TypeError, "y as a LoDTensor, got Tensor"
        one = lod_tensor([[6]], (3,), torch.float32, "cpu")
        yield "sequences", lambda: op(X, one, *rest), ValueError, "as many sequences at the level as x, 3, got 1"
        yield "device", lambda: op(X, X.to("meta"), *rest), TypeError, "y on cpu, as x, got one on meta"
        if not values:
            return
        yield "1-d", lambda: op(X[:, 0], X, *rest), ValueError, "x of shape (rows, features), got (6,)"
        yield "width", lambda: op(X, X[:, :2], *rest), ValueError, "y of shape (rows, 3), got (6, 2)"
        yield "dtypes", lambda: op(X, X.double(), *rest), TypeError, "y of torch.float32, as x, got torch.float64"
        yield "whole", lambda: op(X.long(), X.long(), *rest), TypeError, "x of a floating dtype, got torch.int64"

    return errors


def pairwise_errors():
    yield from partner_errors("sequence_pairwise")()
    for wrong in ("cosine", None, ["dot"], 2):
        yield (
            f"metric {wrong}",
            lambda w=wrong: tl.sequence_pairwise(X, X, w),
            ValueError,
            f"metric in ['dot', 'euclidean', 'sqeuclidean'], got {wrong!r}",
        )


def knn_errors():
    yield from partner_errors("sequence_knn", 2)()
    for wrong in (0, -1, 2**40, 1.5, None, True):
        yield f"k {wrong}", lambda w=wrong: tl.sequence_knn(X, X, w), ValueError, f"k in [1, 2**31], got {wrong}"


def far(x, k):
    for n in (1, 2, 5):
        yield f" {n}", (x, n), {}
    yield " of equals", (x.with_values(x.values()[:1].expand(x.shape).clone()) if len(x) else x, 3), {}


def near(x, k):
    for r in (0, 1.5, 100.0):
        yield f" {r}", (x, r), {}


def far_errors():
    for wrong in (0, -1, 2**40, 1.5, None, True):
        yield f"k {wrong}", lambda w=wrong: tl.sequence_farthest(X, w), ValueError, f"k in [1, 2**31], got {wrong}"
    yield "1-d", lambda: tl.sequence_farthest(X[:, 0], 2), ValueError, "x of shape (rows, features), got (6,)"
    yield "whole", lambda: tl.sequence_farthest(X.long(), 2), TypeError, "x of a floating dtype, got torch.int64"


def near_errors():
    op = tl.sequence_radius
    yield "negative", lambda: op(X, -1), ValueError, "expected r >= 0, got -1"
    yield "nan", lambda: op(X, float("nan")), ValueError, "expected r >= 0, got nan"
    yield "words", lambda: op(X, "a"), TypeError, "r as a number, got 'a'"
    yield "1-d", lambda: op(X[:, 0], 2), ValueError, "x of shape (rows, features), got (6,)"
    yield "whole", lambda: op(X.long(), 2), TypeError, "x of a floating dtype, got torch.int64"


def by_matrices(x, k):
    count = x.num_sequences(k)
    w = values(count * x.shape[-1], (2,), x.dtype, x.device, seed=4).view(count, x.shape[-1], 2)
    yield "", (x, w), {}
    if k:
        yield " of outer levels", (x, tl.LoDTensor(w, x.lod.outer(k))), {}
    yield " declared", (x, tl.per_sequence(w, x.level_names[k] if x.level_names else k)), {}


def many_short(dtype, device):
    """Sequences that are multiplied with those of similar lengths."""
    x = lod_tensor([[0, 1, 3, 2, 5] * 4], (3,), dtype, device)
    yield Sample("many", (x, values(60, (2,), dtype, device, seed=4).view(20, 3, 2)))
    yield Sample(
        "many, of nothing",
        (tl.LoDTensor(x.values()[:0], tl.LoD([[0] * 21])), values(60, (2,), dtype, device).view(20, 3, 2)),
    )


def matmul_errors():
    op, w = tl.sequence_matmul, torch.zeros(3, 3, 2)
    said = "w as a tensor with a matrix for each sequence, got"
    yield "list", lambda: op(X, [w]), TypeError, said
    yield "one matrix", lambda: op(X, w[0]), ValueError, "(sequences, features, out), (3, 3, out), got (3, 2)"
    yield "count", lambda: op(X, w[:2]), ValueError, "(sequences, features, out), (3, 3, out), got (2, 3, 2)"
    yield "features", lambda: op(X, w[:, :2]), ValueError, "(sequences, features, out), (3, 3, out), got (3, 2, 2)"
    yield "1-d", lambda: op(X[:, 0], w), ValueError, "x of shape (rows, features), got (6,); see x.unsqueeze(1)"
    yield "dtype", lambda: op(X, w.double()), TypeError, "w of torch.float32, as x, got torch.float64"
    yield "whole", lambda: op(X.long(), w), TypeError, "x of a floating dtype, got torch.int64"
    yield "device", lambda: op(X, w.to("meta")), TypeError, "w on cpu, as x, got one on meta"
    said = "w with a matrix for each sequence of level 1, got rows of level 0; see tl.per_sequence(w, 1)"
    yield "level", lambda: op(X, tl.per_sequence(w[:2], 0)), ValueError, said
    said = "w with a matrix for each sequence of level 0, got rows of other sequences; see tl.per_sequence(w, 0)"
    yield "rows", lambda: op(X, X.with_values(torch.zeros(6, 3, 2)), level=0), ValueError, said
    said = "a row for each of the 3 sequences of level -1, got 2 rows of tl.per_sequence"
    yield "declared", lambda: op(X, tl.per_sequence(w[:2])), ValueError, said


def matmuls(dtype, device):
    yield from over(by_matrices, ((3,), (2, 5), (1,), (2, 0)))(dtype, device)
    yield from many_short(dtype, device)


PRODUCTS = {"products": True, "tolerance": ROUNDED}
ENTRIES = [
    SequenceInfo(
        "sequence_pairs",
        of_partners(pairings),
        partner_errors("sequence_pairs", values=False),
        ALL,
        differentiable=False,
        structural=True,
    ),
    SequenceInfo("sequence_pairwise", of_partners(metrics), pairwise_errors, **PRODUCTS),
    SequenceInfo("sequence_farthest", over(far, ((3,), (1,))), far_errors, differentiable=False),
    SequenceInfo("sequence_radius", over(near, ((3,), (1,))), near_errors, differentiable=False),
    SequenceInfo("sequence_matmul", matmuls, matmul_errors, keeps=True, **PRODUCTS),
    SequenceInfo("sequence_knn", of_partners(neighbours, ((3,), (2,))), knn_errors, **PRODUCTS),
]
