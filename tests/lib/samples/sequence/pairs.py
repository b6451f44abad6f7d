# SPDX-License-Identifier: Apache-2.0
"""Every row with the rows of a partner."""

import torch

import torch_lod as tl
from samples.words import ALL, ROUNDED, Sample, SequenceInfo, X, lod_tensor

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
    SequenceInfo("sequence_knn", of_partners(neighbours, ((3,), (2,))), knn_errors, **PRODUCTS),
]
