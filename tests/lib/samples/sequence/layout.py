# SPDX-License-Identifier: Apache-2.0
"""Other layouts of the same rows."""

import torch

import torch_lod as tl
from samples.words import ALL, NUMBERS, WHOLE, Sample, SequenceInfo, V, X, lod_tensor, over, values


def pads(x, k):
    yield "", (x,), {}
    yield " wide", (x, 2), {"maxlen": 20}
    if x.numel() and x.dtype != torch.bool:
        yield " of rows fixed", (x, torch.ones(x.shape[1:], dtype=x.dtype)), {}
        yield " of one fixed", (x, torch.ones(1, 1, dtype=x.dtype) * 2), {"maxlen": 12}


def pad_errors():
    pad = tl.sequence_pad
    for wrong in (1, 0, -1):
        yield f"short {wrong}", lambda w=wrong: pad(X, 0.0, maxlen=w), ValueError, "3"
    for wrong in (2.5, "a", True):
        yield (
            f"maxlen {wrong}",
            lambda w=wrong: pad(X, 0.0, maxlen=w),
            ValueError,
            f"longest sequence, 3, got {wrong!r}",
        )
    yield "huge", lambda: pad(X, 0.0, maxlen=2**40), RuntimeError, ""
    yield "pad", lambda: pad(X, torch.zeros(2)), ValueError, "padding_value of one element or of shape (3,), got (2,)"
    yield "no pad", lambda: pad(X, None), TypeError, "as a number, got None"
    yield "whole pad", lambda: pad(X.long(), 0.5), ValueError, "got 0.5"
    yield (
        "whole pad tensor",
        lambda: pad(X.long(), torch.tensor(0.5)),
        TypeError,
        "of a dtype that torch.int64 takes in, got torch.float32",
    )
    for dtype, wrong in (
        (torch.uint8, torch.tensor(300)),
        (torch.int8, torch.tensor([1, 255, 3], dtype=torch.uint8)),
        (torch.uint64, torch.tensor(-1)),
        (torch.int64, torch.tensor(2**63, dtype=torch.uint64)),
    ):
        got = wrong.flatten()[min(1, wrong.numel() - 1)].item()
        yield (
            f"pad tensor of {dtype}",
            lambda d=dtype, w=wrong: pad(X.to(d), w),
            ValueError,
            f"expected a whole padding_value within {dtype}, got {got}",
        )


def unpads(dtype, device):
    for label, lengths in {"typical": [2, 0, 3], "ends": [0, 1, 0], "none": [], "all empty": [0, 0]}.items():
        for width in ((3,), (), (2, 5), (0,)):
            dense = values(len(lengths) * 4, width, dtype, device).reshape(len(lengths), 4, *width)
            yield Sample(f"{label} {width}", (dense, lengths))
            column = torch.tensor(lengths, dtype=torch.int32, device=device)[:, None]
            yield Sample(f"{label} {width} column", (dense, column))


def unpad_errors():
    op, dense = tl.sequence_unpad, torch.zeros(2, 4, 3)
    yield "long", lambda: op(dense, [1, 5]), ValueError, "5"
    yield "negative", lambda: op(dense, [1, -1]), ValueError, "-1"
    yield "huge", lambda: op(dense, [1, 2**62]), ValueError, str(2**62)
    yield "few", lambda: op(dense, [1]), ValueError, ""
    yield "floating", lambda: op(dense, torch.ones(2)), TypeError, "torch.float32"
    yield "1-d", lambda: op(dense[0, :, 0], [1, 1]), ValueError, ""
    yield "no dense", lambda: op(None, [1, 1]), ValueError, "NoneType"
    yield "no lengths", lambda: op(dense, None), (TypeError, ValueError), ""


def masks(dtype, device):
    for label, lengths in {"typical": [2, 0, 3], "negative": [-1, 2], "zeros": [0, 0], "none": []}.items():
        given = torch.tensor(lengths, dtype=dtype, device=device)
        yield Sample(label, (given,))
        yield Sample(f"{label} list", (lengths,), {"dtype": torch.float32}) if lengths else Sample(label, (given, 3))
        yield Sample(f"{label} wide", (given, 7, torch.bool))
        yield Sample(f"{label} cut", (given, 1))
        yield Sample(f"{label} 2-d", (torch.stack([given, given + 1]), 4))
    yield Sample("rows", (tl.from_lengths(torch.tensor([2, 1, 0], dtype=dtype), [[2, 1]]),))
    yield Sample("number", (3,))


def mask_errors():
    op, n = tl.sequence_mask, torch.tensor([2, 3])
    for wrong in (0, -1, 2.5, True):
        yield f"maxlen {wrong}", lambda w=wrong: op(n, w), ValueError, f"maxlen >= 1, got {wrong}"
    yield "huge", lambda: op(n, 2**47), ValueError, "fewer than 2**48 entries, got 2 x"
    yield "huge length", lambda: op(torch.tensor([2**62])), ValueError, "fewer than 2**48 entries"
    yield "floating", lambda: op(n.float()), TypeError, "lengths of an integer dtype, got torch.float32"
    yield "bool", lambda: op(n > 2), TypeError, "lengths of an integer dtype, got torch.bool"
    yield "words", lambda: op(["a"]), TypeError, "lengths as"
    yield "nothing", lambda: op(None), TypeError, "lengths as"
    yield "dtype", lambda: op(n, 4, "float"), TypeError, "dtype as a torch.dtype, got 'float'"


def erases(x, k):
    for tokens in ([], [0], [1, 3, 99, -5], torch.tensor([0, 1, 2, 3, 4])):
        yield f" {tokens}", (x, tokens), {}


def erase_errors():
    ids = X[:, 0].long()
    yield "floating", lambda: tl.sequence_erase(X[:, 0], [1]), TypeError, "x of an integer dtype, got torch.float32"
    yield "wide", lambda: tl.sequence_erase(X.long(), [1]), ValueError, "x of shape (rows,) or (rows, 1), got (6, 3)"
    yield "tokens", lambda: tl.sequence_erase(ids, [1.5]), TypeError, "tokens[0] to be an integer, got 1.5"
    yield "no tokens", lambda: tl.sequence_erase(ids, None), TypeError, "tokens as a list"
    yield (
        "2-d tokens",
        lambda: tl.sequence_erase(ids, torch.zeros(1, 1).long()),
        ValueError,
        "tokens with 1 dimension, got 2",
    )


def enumerates(x, k):
    for n in (1, 2, 5):
        yield f" {n}", (x, n), {"padding_value": 0 if x.dtype == torch.bool else 3}


def enumerate_errors():
    op, ids = tl.sequence_enumerate, X[:, 0].long()
    for wrong in (0, -1, 2**40, 1.5, None, True):
        yield f"size {wrong}", lambda w=wrong: op(ids, w), ValueError, f"win_size in [1, 2**20], got {wrong}"
    yield "pad", lambda: op(ids, 2, padding_value=0.5), TypeError, "padding_value as an int, got 0.5"
    yield (
        "pad range",
        lambda: op(ids.to(torch.int8), 2, padding_value=300),
        ValueError,
        "a whole padding_value within torch.int8, got 300",
    )
    yield "huge pad", lambda: op(ids, 2, padding_value=2**70), ValueError, f"{2**70}"
    yield "floating", lambda: op(X[:, 0], 2), TypeError, "x of an integer dtype, got torch.float32"
    yield "wide", lambda: op(X.long(), 2), ValueError, "x of shape (rows,) or (rows, 1), got (6, 3)"


def folds(x, k):
    width = x.shape[1]
    yield " flat", (x, 1), {}
    yield " same", (x, max(width, 1)), {}
    yield " half", (x, max(width // 2, 1)), {}
    if not (x.lengths() * width % 12).any():
        yield " wide", (x, 12), {}


def fold_errors():
    op = tl.sequence_reshape
    yield "rest", lambda: op(X, 2), ValueError, "a multiple of 2 elements, got 3 in sequence 0 (1 rows of 3)"
    for wrong in (0, -3, 1.5, None, True):
        yield f"new_dim {wrong}", lambda w=wrong: op(X, w), ValueError, f"new_dim in [1, 2**62), got {wrong}"
    yield "huge", lambda: op(X, 2**70), ValueError, f"got {2**70}"
    yield "1-d", lambda: op(X[:, 0], 1), ValueError, "x of shape (rows, features), got (6,)"
    yield "3-d", lambda: op(X[:, None], 1), ValueError, "x of shape (rows, features), got (6, 1, 3)"


def scatters(dtype, device):
    for lengths in ([2, 0, 3], [0, 4, 0], [0, 0], []):
        for element in ((), (2,), (2, 3), (0,)):
            for column in (False, True):
                lod = tl.LoD.from_lengths([lengths])
                positions = torch.tensor([1, 1, 3, 0, 3], device=device)[: lod.rows]
                index = tl.LoDTensor(positions[:, None] if column else positions.int(), lod)
                x = values(len(lengths), (4, *element), dtype, device)
                updates = values(lod.rows, (1,) if column and not element else element, dtype, device)
                updates = tl.LoDTensor(updates, lod) if column else updates
                yield Sample(f"{lengths} {element}{' column' * column}", (x, index, updates))


def scatter_errors():
    op, x = tl.sequence_scatter, torch.zeros(2, 4)
    index, u = tl.from_lengths(torch.tensor([0, 1, 3]), [[2, 1]]), torch.zeros(3)
    for wrong in (4, -1, 2**62, -(2**63)):
        bad = index.with_values(torch.tensor([0, 1, wrong]))
        yield f"index {wrong}", lambda b=bad: op(x, b, u), IndexError, f"index in [0, 3], got {wrong} at row 2"
    yield "rows", lambda: op(torch.zeros(3, 4), index, u), ValueError, "each of 2 sequences, got 3"
    yield "x", lambda: op(x[0], index, u), ValueError, "x of shape (sequences, size, ...), got (4,)"
    yield "no x", lambda: op(None, index, u), TypeError, "x as a tensor, got NoneType"
    yield (
        "dtype",
        lambda: op(x, index, u.double()),
        TypeError,
        "updates of the dtype of x, torch.float32, got torch.float64",
    )
    yield "updates", lambda: op(x, index, u[:2]), ValueError, "updates of shape (3,), got (2,)"
    lost = index.with_values(u)[[1, 0, 2]]
    yield (
        "lost updates",
        lambda: op(x, index, lost),
        TypeError,
        "updates as a LoDTensor or a plain tensor, got rows that",
    )
    yield "lost x", lambda: op(X[[1, 0]], index, u), TypeError, "x as a LoDTensor or a plain tensor, got rows that lost"
    yield "updates LoD", lambda: op(x, index, tl.from_lengths(u, [[1, 2]])), ValueError, "lengths 2 and 1"
    yield "floating", lambda: op(x, index.float(), u), TypeError, "index of an integer dtype, got torch.float32"
    yield "plain index", lambda: op(x, index.values(), u), TypeError, "index as a LoDTensor, got Tensor"
    yield "levels", lambda: op(x, index.group([1, 1]), u), ValueError, "index with 1 level, got 2"
    yield (
        "updates on another device",
        lambda: op(x, index, u.to("meta")),
        TypeError,
        "index and updates on cpu, as x, got them on cpu and meta",
    )


def resets(x, k):
    rows = len(x)
    other = lod_tensor([[0, rows, 0]], (), torch.int64, x.device.type)
    yield " by a tensor", (x, other), {}
    yield " by a LoD", (x, other.lod), {}
    yield " by lengths", (x, [[1, 1], [rows, 0]]), {}
    yield " by one level", (x.values(), torch.tensor([0, rows])), {}
    yield " plain", (x.values(), x), {}


def reset_errors():
    op = tl.lod_reset
    yield "rows", lambda: op(X, [[2, 3]]), ValueError, "cover the 6 rows of values, got one of 5 rows"
    yield "levels", lambda: op(X, [[2], [1, 2, 3]]), ValueError, "lod[0] to add up to the 3 sequences of level 1, got 2"
    yield "negative", lambda: op(X, [[7, -1]]), ValueError, "lod[0] >= 0, got -1 at index 1"
    yield "flat", lambda: op(X, [2, 4]), TypeError, "a flat list; write [lod]"
    yield "scalar", lambda: op(V[0, 0], [[1]]), ValueError, "got a scalar"
    yield "no x", lambda: op(None, [[6]]), TypeError, "x as a tensor, got NoneType"
    yield "no lod", lambda: op(X, None), TypeError, "NoneType"
    yield "floating", lambda: op(X, torch.ones(6)), TypeError, "torch.float32"


def appends(x, k):
    rows = len(x)
    yield " plain", (x.values(), [0, rows]), {}
    lengths = [2, 0] * (rows // 2) + [1] * (rows % 2)
    coarse = tl.LoDTensor(values(rows, (), x.dtype, x.device), tl.LoD.from_lengths([lengths]))
    for form in (lengths, torch.tensor(lengths, dtype=torch.int32), coarse.lod, coarse):
        yield f" {type(form).__name__}", (x, form), {}


def append_errors():
    op = tl.lod_append
    yield "rows", lambda: op(V, [2, 3]), ValueError, "cover the 6 rows of values, got one of 5 rows"
    yield "sequences", lambda: op(X, [3, 3]), ValueError, ""
    yield "negative", lambda: op(V, [7, -1]), ValueError, "lengths[0] >= 0, got -1 at index 1"
    yield "levels", lambda: op(V, X.lod), ValueError, "lengths of 1 level, got 2"
    yield "no x", lambda: op(None, [1]), TypeError, "x as a tensor, got NoneType"
    yield "floating", lambda: op(V, [1.5]), TypeError, "1.5"


ENTRIES = [
    SequenceInfo("sequence_pad", over(pads), pad_errors, ALL),
    SequenceInfo("sequence_unpad", unpads, unpad_errors, ALL, levels=None),
    SequenceInfo("sequence_mask", masks, mask_errors, WHOLE, levels=None, differentiable=False),
    SequenceInfo(
        "sequence_erase", over(erases, ((), (1,)), None), erase_errors, WHOLE, levels=None, differentiable=False
    ),
    SequenceInfo(
        "sequence_enumerate", over(enumerates, ((), (1,))), enumerate_errors, WHOLE, keeps=True, differentiable=False
    ),
    SequenceInfo("sequence_reshape", over(folds, ((4,), (3,), (12,)), None), fold_errors, ALL, levels=None),
    SequenceInfo("sequence_scatter", scatters, scatter_errors, NUMBERS, levels=None),
    SequenceInfo("lod_reset", over(resets, key=None), reset_errors, ALL, levels=None),
    SequenceInfo("lod_append", over(appends, key=None), append_errors, ALL, levels=None),
]
