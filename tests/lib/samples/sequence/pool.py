# SPDX-License-Identifier: Apache-2.0
"""Sequences into rows."""

import torch

import torch_lod as tl
from samples.words import (
    ALL,
    NUMBERS,
    REAL,
    ROUNDED,
    Sample,
    SequenceInfo,
    V,
    X,
    alone,
    dtype_errors,
    lod_tensor,
    over,
    values,
)

REDUCES = (
    "sum",
    "average",
    "MEAN",
    "sqrt",
    "Max",
    "min",
    "first",
    "last",
    "prod",
    "logsumexp",
    "var",
    "std",
    "Median",
    "any",
    "all",
)


def pools(x, k):
    whole = not x.is_floating_point()
    for reduce in REDUCES:
        if whole and reduce in ("average", "MEAN", "sqrt", "logsumexp", "var", "std"):
            continue
        if x.dtype == torch.bool and reduce not in ("any", "all", "sum", "prod"):
            continue
        pads = (0, 1) if reduce in ("any", "all") else (0.0, 2.0)
        # in a column of ones nothing varies, zeros are what products and conditions turn on
        rows = torch.where(
            torch.arange(len(x), device=x.device).remainder(4).view(-1, *[1] * (x.dim() - 1)) == 1, 0, x.values()
        )
        given = x.with_values(rows) if reduce in ("prod", "any", "all") else x
        for pad in pads[1:] if k % 2 else pads:
            yield f" {reduce} pad {pad}", (given, reduce), {"padding_value": pad}
        if reduce in ("Max", "min", "Median"):
            yield f" {reduce} with index", (x, reduce), {"return_index": True, "padding_value": 3}
    if not whole:
        yield " var of all", (x, "var"), {"correction": 0}
        yield " std of all", (x, "std"), {"correction": 0, "padding_value": -1.0}


def pool_errors():
    pool = tl.sequence_pool
    yield "kind", lambda: pool(X, "mode"), ValueError, "pool_type in ['all', 'any', "
    yield "no kind", lambda: pool(X, None), ValueError, "got None"
    yield (
        "pad is a level",
        lambda: pool(X, "sum", "a"),
        TypeError,
        "got 'a' as argument 3; write padding_value='a' or level='a'",
    )
    yield "bool pad", lambda: pool(X, "sum", padding_value=True), TypeError, "padding_value as a number, got True"
    yield (
        "index of a sum",
        lambda: pool(X, "sum", return_index=True),
        TypeError,
        "'max', 'min' or 'median' with return_index, got 'sum'",
    )
    yield "index of any", lambda: pool(X, "any", return_index=True), TypeError, "with return_index, got 'any'"
    yield (
        "whole mean",
        lambda: pool(X.long(), "mean"),
        TypeError,
        "x of a floating dtype for 'mean', got torch.int64; see x.float()",
    )
    for kind in ("logsumexp", "var", "std"):
        yield (
            f"whole {kind}",
            lambda kind=kind: pool(X.long(), kind),
            TypeError,
            "x of a floating dtype, got torch.int64",
        )
    yield "correction", lambda: pool(X, "var", correction=None), TypeError, "correction as a number, got None"
    yield "correction of a mean", lambda: pool(X, "mean", correction=0), TypeError, "'std' with correction, got 'mean'"
    yield (
        "whole pad",
        lambda: pool(X.long(), "sum", padding_value=0.5),
        ValueError,
        "a whole padding_value within torch.int64, got 0.5",
    )
    yield (
        "whole pad of prod",
        lambda: pool(X.long(), "prod", padding_value=0.5),
        ValueError,
        "a whole padding_value within torch.int64, got 0.5",
    )
    yield "complex", lambda: pool(X.to(torch.cfloat), "sum"), TypeError, "floating or integer dtype"
    yield "complex prod", lambda: pool(X.to(torch.cfloat), "prod"), TypeError, "floating or integer dtype"
    yield "bool", lambda: pool(X.bool(), "max"), TypeError, "x of a floating or integer dtype for 'max', got torch.bool"
    yield (
        "bool median",
        lambda: pool(X.bool(), "median"),
        TypeError,
        "floating or integer dtype for 'median', got torch.bool",
    )


def ends(x, k):
    yield "", (x,), {}
    yield " pad", (x,), {"padding_value": 3.0}


def end_errors(name):
    def errors():
        op = getattr(tl, name)
        yield "pad", lambda: op(X, padding_value=None), TypeError, "padding_value as a number, got None"
        yield (
            "whole pad",
            lambda: op(X.long(), padding_value=0.5),
            ValueError,
            "a whole padding_value within torch.int64, got 0.5",
        )

    return errors


def losses(x, k):
    yield "", (x,), {}
    for reduce in ("token", "sequence", *range(k + 1), -1, *(x.level_names or ())):
        yield f" {reduce}", (x, reduce), {}
    of_level = {
        j: tl.LoDTensor(torch.arange(lod.rows, device=x.device), lod)
        for j in range(1, k + 1)
        if (lod := x.lod.outer(j))
    }
    of_level[k + 1] = x.with_values(torch.arange(len(x), device=x.device))
    if x.num_sequences() not in (len(x), *[x.num_sequences(j) for j in range(1, k + 1)]):
        of_level[0] = torch.arange(x.num_sequences(), device=x.device)
    for j, numbers in of_level.items():
        mask, weight = numbers % 3 != 1, (numbers % 4 + 0.5).to(x.dtype)
        for reduce in ("token", "sequence", *range(k + 1)):
            yield f" {reduce} of {j}", (x, reduce), {"mask": mask}
            if reduce in ("token", "sequence") or j > reduce:
                yield f" {reduce} by {j}", (x, reduce), {"mask": of_level[k + 1] % 4 > 0, "weight": weight}


def loss_errors():
    loss, x = tl.sequence_loss, X[:, 0]
    yield "wide", lambda: loss(X), ValueError, "one element per row, (rows,), got (6, 3); see loss_rows.mean(1)"
    yield "level", lambda: loss(x, 2), IndexError, "expected level in [-2, 1] or one of ('a', 'b'), got 2"
    yield "name", lambda: loss(x, "mean"), IndexError, "got 'mean'"
    yield "no level", lambda: loss(x, None), TypeError, "got None"
    yield "whole", lambda: loss(x.long()), TypeError, "floating dtype, got torch.int64"
    yield "plain", lambda: loss(V[:, 0]), TypeError, "loss_rows as a LoDTensor, got Tensor"
    ones, alone = torch.ones(6), tl.from_lengths(torch.ones(2), [[1, 0, 1], [2, 0]])
    yield (
        "mask",
        lambda: loss(x, mask=ones),
        TypeError,
        "mask as a bool tensor, got a torch.float32 Tensor of shape (6,)",
    )
    yield (
        "weight",
        lambda: loss(x, weight=ones > 0),
        TypeError,
        "weight as a tensor of a floating dtype, got a torch.bool",
    )
    yield "a list", lambda: loss(x, mask=[True] * 6), TypeError, "mask as a bool tensor, got [True"
    yield (
        "size",
        lambda: loss(x, mask=ones[:5] > 0),
        ValueError,
        "mask for 6 rows or, per level, [2, 3] sequences, got 5",
    )
    yield "dims", lambda: loss(x, weight=torch.ones(6, 1)), ValueError, "weight of one dim, a number per row"
    other = tl.from_lengths(ones, [[6]])
    yield "lod", lambda: loss(x, weight=other), ValueError, "expected operands with equal LoDs"
    yield "deep", lambda: loss(other, weight=x), ValueError, "weight with at most 1 levels, got 2"
    yield (
        "moved",
        lambda: loss(x, weight=x[:3]),
        TypeError,
        "weight as a LoDTensor or a plain tensor, got rows 0 to 3 of a LoDTensor, through getitem",
    )
    yield (
        "own level",
        lambda: loss(x, 0, weight=torch.ones(2)),
        ValueError,
        "which changes none of the means of level 0",
    )
    yield (
        "which",
        lambda: loss(alone, weight=torch.ones(2)),
        ValueError,
        "as many as the sequences of level 1 and the rows",
    )
    row = tl.from_lengths(torch.ones(2), [[1, 1]])
    yield (
        "means",
        lambda: loss(row, "sequence", weight=torch.ones(2)),
        ValueError,
        "make it a LoDTensor: loss_rows.with",
    )


def topks(x, k):
    for n in (1, 2, 7):
        yield f" {n}", (x, n), {}
        yield f" {n} smallest", (x, n), {"largest": False, "padding_value": 2.0}
    if x.dim() == 2 and x.shape[1]:
        for channel in (0, -1):
            yield f" by {channel}", (x, 2, channel), {"padding_value": 1.0}


def topk_errors():
    topk = tl.sequence_topk
    for k in (0, -1, 2**40, True, 1.0, None):
        yield f"k {k}", lambda k=k: topk(X, k), ValueError, f"k in [1, 2**31], got {k}"
    for channel in (3, -4, 0.5, True):
        yield (
            f"channel {channel}",
            lambda c=channel: topk(X, 1, c),
            ValueError,
            f"(rows, channels), got {channel} for (6, 3)",
        )
    yield "channel of 1-d", lambda: topk(X[:, 0], 1, 0), ValueError, "got 0 for (6,)"
    yield "pad", lambda: topk(X, 7, padding_value="a"), TypeError, "padding_value as a number, got 'a'"
    yield (
        "whole pad",
        lambda: topk(X.long(), 7, padding_value=0.5),
        ValueError,
        "a whole padding_value within torch.int64, got 0.5",
    )


def embedded(dtype, device):
    def make(x, k):
        ids = x.with_values(x.values().remainder(5).long())
        weight = values(6, (4,), dtype, device)
        kinds = ("sum", "mean", "sqrt", "max") if dtype.is_floating_point else ("sum", "max", "prod")
        for combiner in kinds if dtype != torch.bool else ("sum", "prod"):
            yield f" {combiner}", (ids, weight, combiner), {}
        for padding in (2, -2):
            yield f" padded with {padding}", (ids, weight, "sum"), {"padding_idx": padding}
        yield " of int32", (ids.with_values(ids.values().int()), weight), {}

    yield from over(make, widths=((), (1,), (2,)))(torch.int64, device)


def embedding_errors():
    op, w = tl.fused_embedding_seq_pool, torch.zeros(4, 2)
    ids = X[:, 0].with_values(torch.tensor([0, 1, 2, 3, 0, 1]))
    for wrong in (-1, 4, 2**62, -(2**63)):
        rows = ids.values().clone()
        rows[3] = wrong
        yield (
            f"id {wrong}",
            lambda r=rows: op(ids.with_values(r), w),
            IndexError,
            f"ids in [0, 3], got {wrong} at index 3",
        )
    for wrong in (4, -5):
        yield (
            f"padding {wrong}",
            lambda p=wrong: op(ids, w, padding_idx=p),
            IndexError,
            f"padding_idx in [-4, 3], got {wrong}",
        )
    yield "floating ids", lambda: op(X, w), TypeError, "ids of an integer dtype, got torch.float32"
    yield "bool ids", lambda: op(ids.bool(), w), TypeError, "ids of an integer dtype, got torch.bool"
    yield "plain ids", lambda: op(ids.values(), w), TypeError, "ids as a LoDTensor, got Tensor"
    yield "weight", lambda: op(ids, w[0]), ValueError, "weight of shape (words, width), got (2,)"
    yield "no weight", lambda: op(ids, None), TypeError, "weight as a tensor, got NoneType"
    yield "whole weight", lambda: op(ids, w.long(), "mean"), TypeError, "weight of a floating dtype for 'mean'"
    yield "combiner", lambda: op(ids, w, "mode"), ValueError, "combiner in ['all', "
    yield "padding_idx", lambda: op(ids, w, padding_idx="a"), TypeError, "padding_idx to be an integer, got 'a'"
    yield "words on another device", lambda: op(ids, w.to("meta")), TypeError, "weight on cpu, as ids, got one on meta"


def averages(dtype, device):
    for label, high, broad in (
        ("typical", [2, 3], [3, 1]),
        ("empties", [0, 2, 0, 1], [2, 0, 0, 4]),
        ("none", [], []),
        ("all empty", [0, 0], [0, 0]),
    ):
        for channels, topk in ((2, [1, 3]), (1, (2,)), (3, [2, 1, 5])):
            lengths = [channels * h * b for h, b in zip(high, broad)]
            for width in ((), (1,)):
                x = lod_tensor([lengths], width, dtype, device)
                row, col = (lod_tensor([n], (2,), torch.int64, device) for n in (high, broad))
                yield Sample(f"{label} {channels} {topk} {width}", (x, row, col, topk, channels))


def average_errors():
    op, row, col = (
        tl.sequence_topk_avg_pooling,
        lod_tensor([[2]], (), torch.float32, "cpu"),
        lod_tensor([[3]], (), torch.float32, "cpu"),
    )
    x = lod_tensor([[12]], (), torch.float32, "cpu")
    yield "topks", lambda: op(x, row, col, [], 2), ValueError, "topks as a list of numbers >= 1, got []"
    for wrong in ([0], [1, -1], [1.0], 3, None, [True]):
        yield f"topks {wrong}", lambda w=wrong: op(x, row, col, w, 2), ValueError, f"got {wrong}"
    for wrong in (0, -1, 2.0, None):
        yield f"channels {wrong}", lambda w=wrong: op(x, row, col, [1], w), ValueError, f"channel_num >= 1, got {wrong}"
    yield "lengths", lambda: op(x, row, col, [1], 3), ValueError, "3 x 2 x 3 scores in sequence 0, got 12"
    yield (
        "sequences",
        lambda: op(x, lod_tensor([[1, 1]], (), torch.float32, "cpu"), col, [1], 2),
        ValueError,
        "equally many sequences in x, row and col, got [1, 2, 1]",
    )
    yield "levels", lambda: op(X, row, col, [1], 2), ValueError, "x with 1 level, got 2"
    yield (
        "width",
        lambda: op(lod_tensor([[12]], (2,), torch.float32, "cpu"), row, col, [1], 2),
        ValueError,
        "x of shape (n,) or (n, 1), got (12, 2)",
    )
    yield "plain row", lambda: op(x, V, col, [1], 2), TypeError, "row as a LoDTensor, got Tensor"
    yield "whole scores", lambda: op(x.long(), row, col, [1], 2), TypeError, "x of a floating dtype, got torch.int64"


ENTRIES = [
    SequenceInfo("sequence_pool", over(pools), pool_errors, REAL, tolerance=ROUNDED),
    SequenceInfo("sequence_first_step", over(ends), end_errors("sequence_first_step"), ALL),
    SequenceInfo("sequence_last_step", over(ends), end_errors("sequence_last_step"), ALL),
    SequenceInfo("sequence_argmax", over(alone), dtype_errors("sequence_argmax"), NUMBERS, differentiable=False),
    SequenceInfo("sequence_topk", over(topks), topk_errors, REAL),
    SequenceInfo("sequence_loss", over(losses, ((),), None), loss_errors, levels=None, tolerance=ROUNDED),
    SequenceInfo("fused_embedding_seq_pool", embedded, embedding_errors, REAL),
    SequenceInfo("sequence_topk_avg_pooling", averages, average_errors, levels=None, tolerance=ROUNDED),
]
