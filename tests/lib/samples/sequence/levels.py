# SPDX-License-Identifier: Apache-2.0
"""The elements of a level picked, cut, turned or mixed: operators, and methods of LoDTensor."""

import torch

import torch_lod as tl
from samples.sequence.rearrange import concat_errors, concats
from samples.words import ALL, M, MethodInfo, SequenceInfo, V, X, over


def elements(x, k):
    return len(x) if k + 1 == x.lod_level else x.num_sequences(k + 1)


def masks(x, k):
    count = elements(x, k)
    some = torch.arange(count) % 3 != 1
    yield " some", (x, some), {}
    yield " none", (x, torch.zeros(count, dtype=torch.bool)), {}
    yield " all", (x, [True] * count), {}
    yield " of numpy", (x, (~some).numpy()), {}
    yield " a LoDTensor", (x, tl.LoDTensor(some, x.lod if k + 1 == x.lod_level else x.lod.outer(k + 1))), {}


def mask_errors():
    keep = torch.tensor([True, False, True])
    yield "dtype", lambda: X.filter(keep.long(), level=0), TypeError, "mask as a bool tensor, got torch.int64"
    yield "ints", lambda: X.filter([0, 1, 0], level=0), TypeError, "mask as a bool tensor, got list"
    yield "nothing", lambda: X.filter(None), TypeError, "mask as a bool tensor, got NoneType"
    yield "meta", lambda: X.filter(M[:, 0] > 0), TypeError, "mask with data, got a meta tensor"
    yield (
        "level",
        lambda: X.filter(keep),
        ValueError,
        "each of the 6 elements of level 1, got (3,); it has one for each of level 0",
    )
    yield "count", lambda: X.filter(keep[:2], level=0), ValueError, "each of the 3 elements of level 0, got (2,)"
    yield "2-d", lambda: X.filter(V > 0), ValueError, "each of the 6 elements of level 1, got (6, 3)"
    other = tl.from_lengths(torch.ones(6, dtype=torch.bool), [[2, 1], [1, 3, 2]])
    yield "LoD", lambda: X.filter(other), ValueError, "at level 1, sequence 1: lengths 2 and 3"
    yield "depth", lambda: X.filter(X[:, 0] > 0, level=0), ValueError, "got LoDs that differ: 1 and 2 levels"


def counts(x, k):
    for n in (0, 1, 2, 2**62):
        yield f" {n}", (x, n), {}


def count_errors(name):
    def errors():
        op = getattr(X, name)
        for wrong in (-1, 2**70, 1.0, None, True):
            yield f"{wrong}", lambda w=wrong: op(w), ValueError, f"k in [0, 2**63), got {wrong}"
        yield "by position", lambda: op(1, 0), TypeError, "got 0 as argument 2; write level=0"

    return errors


def positions(x, k):
    for i in (0, 1, -1, -2, 2**61):
        yield f" {i}", (x, i), {}
    yield " filled", (x, 2), {"padding_value": 1}


def position_errors():
    yield "float", lambda: X.nth(1.0), TypeError, "i as an int, got float"
    yield "far", lambda: X.nth(2**62), ValueError, f"i within 62 bits, got {2**62}"
    yield "filler", lambda: X.long().nth(0, padding_value=0.5), ValueError, "a whole padding_value within torch.int64"
    yield "outer filler", lambda: X.nth(0, padding_value="a", level=0), TypeError, "padding_value as a number, got 'a'"


ALL_OF_IT = slice(None)


def keys(x, _):
    depth, n = x.lod_level, x.num_sequences()
    all_of_it = (ALL_OF_IT,)
    for cut in (
        slice(None, 2),
        slice(1, None),
        slice(None, None, -1),
        slice(-2, None, 2),
        slice(-1, 0, -2),
        slice(1, -1),
    ):
        for p in range(1, depth + 1):
            yield f" {cut} at {p}", (x, *all_of_it * p, cut), {}
    yield " turned twice", (x, slice(None, None, -1), slice(None, None, -1)), {}
    for p in range(1, depth + 1):
        some = torch.arange(elements(x, p - 1)) % 2 == 0
        yield f" mask at {p}", (x, *all_of_it * p, some), {}
        lengths = x.lengths(p - 1)
        if lengths.numel() and lengths.min() > 0:
            for i in (0, -1):
                yield f" {i} at {p}", (x, *all_of_it * p, i), {}
                if p < depth:
                    yield f" {i} at {p} and a slice", (x, *all_of_it * p, i, slice(1, None)), {}
            yield f" list at {p}", (x, *all_of_it * p, [0, -1, 0]), {}
    if n:
        yield " int and slices", (x, n - 1, *all_of_it * (depth - 1), slice(None, None, -1)), {}
        yield " slice and slice", (x, slice(1, None), slice(None, 1)), {}


def key_errors():
    seq = X.seq
    yield (
        "too many",
        lambda: seq[0, 0, 0, 0],
        IndexError,
        "1 to 3 indices, one per level and one of rows, got (0, 0, 0, 0)",
    )
    yield "none", lambda: seq[()], IndexError, "1 to 3 indices"
    yield (
        "short",
        lambda: seq[:, 1],
        IndexError,
        "index 1 within every sequence of level 'a' of x, got sequence 1 of 1 elements",
    )
    yield "way out", lambda: seq[:, ::2, -2], IndexError, "elements; x.seq[:, ::2].nth(-2, level='b') has padding there"
    yield "row", lambda: seq[0, 0, 1], IndexError, "path[2] in [-1, 0], got 1"
    yield (
        "list",
        lambda: seq[:, [0, 1]],
        IndexError,
        "index 1 within every sequence of level 0, got sequence 1 of 1 elements",
    )
    yield "two lists", lambda: seq[[0], [0]], IndexError, "at most 1 list or mask among the indices, got 2"
    yield "mask", lambda: seq[:, torch.ones(2).bool()], ValueError, "each of the 3 elements of level 0, got (2,)"
    yield "float", lambda: seq[:, 0.5], TypeError, "index 1 as a list, array or tensor of integers, got float"
    yield "ellipsis", lambda: seq[..., 0], TypeError, "index as a list, array or tensor of integers, got ellipsis"
    yield "float slice", lambda: seq[:, 0.5:], TypeError, "a slice of ints, got 0.5"
    yield "step", lambda: seq[:, ::0], ValueError, "a slice with a step, got 0"
    yield "a LoDTensor", lambda: seq[:, X[:, 0].long()], TypeError, "positions for every sequence, got a LoDTensor"


def chunks(x, k):
    for size, stride in ((1, None), (2, None), (3, 1), (2, 3), (2**40, None), (2, 2)):
        yield f" {size} {stride}", (x, size, stride), {"name": "chunk"} if size == 2 else {}


def chunk_errors():
    op = tl.sequence_chunk
    for wrong in (0, -1, 1.5, None, True, 2**41):
        yield f"size {wrong}", lambda w=wrong: op(X, w), ValueError, f"size in [1, 2**40], got {wrong}"
    for wrong in (0, 0.5, False):
        yield f"stride {wrong}", lambda w=wrong: op(X, 1, w), ValueError, f"stride in [1, 2**40], got {wrong}"
    yield "name", lambda: op(X, 1, name=2), TypeError, "level_names"
    yield "a name twice", lambda: op(X, 1, name="a"), ValueError, "level_names"


def rolls(x, k):
    for n in (0, 1, -1, 2, 7, -(2**40)):
        yield f" {n}", (x, n), {}
    yield " each its own", (x, torch.arange(x.num_sequences(k)) - 1), {}
    yield " a list", (x, [2] * x.num_sequences(k)), {}


def roll_errors():
    op = tl.sequence_roll
    for wrong in (0.5, None, True):
        yield f"n {wrong}", lambda w=wrong: op(X, w), TypeError, "n as an int or a list, array or tensor of integers"
    yield "floats", lambda: op(X, torch.ones(3)), TypeError, "n of an integer dtype, got torch.float32"
    yield "far", lambda: op(X, 2**63), ValueError, "n within int64"
    yield "few", lambda: op(X, [1, 2]), ValueError, "n with one number for each of 3 sequences, got 2"


def repeats(x, k):
    flags = {"return_inverse": True, "return_counts": True}
    yield "", (x,), {}
    yield " with both fixed", (x,), flags
    if len(x):
        again = tl.cat([x, x, x.with_values(x.values().flip(0))], along="within", level=k)
        yield " repeated fixed", (again,), flags
        yield " repeated fixed counts", (again,), {"return_counts": True}
        if x.is_floating_point() or x.is_complex():
            holes = again.values().clone()
            holes[::3] = float("nan")
            holes[1::4] = 0
            holes[3::4] = -0.0
            yield " holes fixed", (again.with_values(holes),), flags
        few = x.with_values(x.values()[torch.arange(len(x)) % 2])
        yield " few fixed", (few,), flags


def repeat_errors():
    op = tl.sequence_unique
    yield "meta", lambda: op(X.with_values(M)), TypeError, "x with data, got a meta tensor"
    yield "nothing", lambda: op(None), TypeError, "x as a LoDTensor, got NoneType"
    yield "flag", lambda: op(X, return_inverse=1), TypeError, "return_inverse as a bool, got 1"
    yield "other flag", lambda: op(X, return_counts=None), TypeError, "return_counts as a bool, got None"


ENTRIES = [
    SequenceInfo("sequence_chunk", over(chunks), chunk_errors, ALL),
    SequenceInfo("sequence_roll", over(rolls), roll_errors, ALL),
    SequenceInfo("sequence_interleave", over(concats), concat_errors("sequence_interleave"), ALL),
    SequenceInfo("sequence_unique", over(repeats), repeat_errors, ALL),
]
METHODS = [
    MethodInfo("filter", over(masks), mask_errors, ALL),
    MethodInfo("head", over(counts), count_errors("head"), ALL),
    MethodInfo("tail", over(counts), count_errors("tail"), ALL),
    MethodInfo("nth", over(positions), position_errors, ALL),
    MethodInfo("seq", over(keys, key=None), key_errors, ALL, levels=None),
]
