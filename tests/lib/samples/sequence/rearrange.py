# SPDX-License-Identifier: Apache-2.0
"""Other orders and numbers of the same elements, and expansion."""

import math

import torch

import torch_lod as tl
from samples.words import ALL, SequenceInfo, V, X, lod_tensor, over, values, without_level


def same(x, k):
    yield "", (x,), {}


def only_plain(name):
    def errors():
        yield "nothing", lambda: getattr(tl, name)(None), TypeError, "x as a LoDTensor, got NoneType"
        yield "a LoD", lambda: getattr(tl, name)(X.lod), TypeError, "x as a LoDTensor, got LoD"

    return errors


def slices(x, k):
    room = x.lengths(k)
    yield " all", (x, torch.zeros_like(room), room), {}
    yield " none", (x, room.tolist(), torch.zeros_like(room)), {}
    yield " inside", (x, (room > 1).long()[:, None], torch.where(room > 1, room - 1, room).int()), {}
    yield " first", (x, torch.zeros_like(room).cpu().numpy(), room.clamp(max=1).tolist()), {}
    for o, n in ((1, 2), (-1, 3), (0, 2**62), (2**62, 2**62), (-(2**62), 2**62 + 1)):
        yield f" clamped {o} {n}", (x, o, n), {"clamp": True}
    yield " clamped each", (x, room - 2, [2] * len(room)), {"clamp": True}


def slice_errors():
    cut = tl.sequence_slice
    for label, o, n, words in (
        ("negative", [0, -1, 0], [0, 0, 0], "sequence 1 of 2 elements, got offset -1 and length 0"),
        ("beyond", [0, 0, 1], [1, 2, 3], "sequence 2 of 3 elements, got offset 1 and length 3"),
        ("negative length", [0, 0, 0], [1, -1, 0], "got offset 0 and length -1"),
        ("wrapping", [0, 2**62, 0], [0, 2**62, 0], f"got offset {2**62} and length {2**62}"),
        ("largest", [0, 0, 1], [0, 0, 2**63 - 1], f"length {2**63 - 1}"),
        ("smallest", [0, 0, -(2**63)], [0, 0, 0], f"offset {-(2**63)}"),
        ("few", [0, 0], [0, 0, 0], "offset with one number for each of 3 sequences, got 2"),
        ("many", [0, 0, 0], [0] * 4, "length with one number for each of 3 sequences, got 4"),
    ):
        yield label, lambda o=o, n=n: cut(X, o, n), ValueError, words
    for wrong, words in (
        (1.5, "float"),
        (None, "NoneType"),
        ([0, 0.5, 0], "0.5"),
        (torch.zeros(3), "torch.float32"),
        ([True, 0, 0], "True"),
    ):
        yield f"offset {wrong}", lambda w=wrong: cut(X, w, [0, 0, 0]), TypeError, words
    yield (
        "2-d",
        lambda: cut(X, torch.zeros(3, 2, dtype=torch.int64), [0, 0, 0]),
        ValueError,
        "offset with 1 dimension, got 2",
    )
    yield "outer", lambda: cut(X, [0, 1], [2, 1], level=0), ValueError, "sequence 1 of 1 elements"
    yield "way out", lambda: cut(X, 0, 2), ValueError, "sequence 0 of 1 elements, got offset 0 and length 2; clamp=True"
    yield "clamped length", lambda: cut(X, 0, [1, -1, 0], clamp=True), ValueError, "length >= 0, got -1 for sequence 1"
    yield "clamp", lambda: cut(X, 0, 1, clamp=1), TypeError, "clamp as a bool, got 1"
    yield "far", lambda: cut(X, 2**63, 1), ValueError, "offset within int64"


def concats(x, k):
    y = x.with_values(x.values().flip(0))
    yield " one", ([x],), {}
    yield " itself", ((x, x),), {}
    yield " three", ([x, y, x],), {}
    inner = [n + i % 2 for i, n in enumerate(x.lengths().tolist())]
    z = lod_tensor(
        [*x.lod.to_lengths()[:-1], inner], tuple(x.shape[1:]), x.dtype, x.device.type, names=x.level_names is not None
    )
    yield " longer", ([x, z],), {}


def concat_errors(name):
    def errors():
        op = getattr(tl, name)
        y = lod_tensor([[1, 2], [1, 2, 3]], (3,), torch.float32, "cpu")
        yield "sequences", lambda: op([X, X.slice(0, 0, 1)]), ValueError, "equally many sequences, got [3, 2]"
        yield "levels above", lambda: op([X, y]), ValueError, "at level 0, sequence 0: lengths 2 and 1"
        yield "depths", lambda: op([X, X.flatten_levels(0, 1)]), ValueError, "of equal depth, got depths [2, 1]"
        yield "none", lambda: op([]), TypeError, "expected LoDTensors, got none"
        yield "plain", lambda: op([X, V]), TypeError, "expected LoDTensors, got Tensor"
        yield "alone", lambda: op(X), TypeError, "a list of LoDTensors, got LoDTensor"
        yield "rows", lambda: op([X, X[:, :2]]), ValueError, "rows of one shape, got (3,) and, at index 1, (2,)"

    return errors


def shifts(x, k):
    for n in (0, 1, -1, 2, -7, 2**40):
        yield f" {n}", (x, n), {}
    yield " filled", (x, 1, 2), {}
    yield " filled left", (x, -2, 1), {}
    if k + 1 == x.lod_level:
        rows = values(x.num_sequences(k), x.shape[1:], x.dtype, x.device, seed=5)
        for n in (1, -2, 0, 2**40):
            yield f" {n} before", (x, n, tl.per_sequence(rows)), {}
        if k:
            yield " before, of outer levels", (x, 1, tl.LoDTensor(rows, x.lod.outer(k))), {}


def shift_errors():
    for wrong in (0.5, None, True, 2**41, -(2**62), 2**70):
        yield (
            f"n {wrong}",
            lambda w=wrong: tl.sequence_shift(X, w),
            ValueError,
            f"n as an int within 2**40, got {wrong}",
        )
    given = torch.ones(3, 3)
    said = "padding_value with a row for each sequence of level 1, got rows of level 0; see tl.per_sequence(rows, 1)"
    yield "level", lambda: tl.sequence_shift(X, 1, tl.per_sequence(given[:2], 0)), ValueError, said
    said = "padding_value with a row for each sequence of level 1, got rows of other sequences"
    yield "rows", lambda: tl.sequence_shift(X, 1, X), ValueError, said
    said = "padding_value of elements (3,) of torch.float32 on cpu, as x, got (2,) of torch.float32 on cpu"
    yield "elements", lambda: tl.sequence_shift(X, 1, tl.per_sequence(given[:, :2])), TypeError, said
    yield "dtype", lambda: tl.sequence_shift(X, 1, tl.per_sequence(given.long())), TypeError, "got (3,) of torch.int64"
    said = "padding_value as a number at an outer level, got a row for each sequence"
    yield "outer", lambda: tl.sequence_shift(X, 1, tl.per_sequence(given[:2], 0), level=0), TypeError, said
    said = "padding_value as a number or tl.per_sequence(rows), a row for each sequence, got Tensor"
    yield "plain", lambda: tl.sequence_shift(X, 1, given), TypeError, said
    yield "pad", lambda: tl.sequence_shift(X, 1, "a"), TypeError, "padding_value as a number, got 'a'"
    yield (
        "whole pad",
        lambda: tl.sequence_shift(X.long(), 1, 0.5),
        ValueError,
        "a whole padding_value within torch.int64, got 0.5",
    )


def draws(x, k):
    yield " none", (x, 0), {}
    yield " all", (x, 100), {}
    yield " as many", (x, x.max_length(k)), {"generator": torch.Generator()}
    yield " every one", (x,), {}
    yield " shuffled none", (x, 0), {"shuffle": True}


def draw_errors():
    yield "shuffle", lambda: tl.sequence_sample(X, shuffle=1), TypeError, "shuffle as a bool, got 1"
    for wrong in (-1, 0.5, True, 2**70):
        yield f"k {wrong}", lambda w=wrong: tl.sequence_sample(X, w), ValueError, f"k in [0, 2**63), got {wrong}"
    yield (
        "generator",
        lambda: tl.sequence_sample(X, 1, generator=7),
        TypeError,
        "generator as a torch.Generator in host memory, got int",
    )


def drops(x, k):
    yield " none", (x, 0), {}
    yield " all", (x, 1.0), {}
    yield " not training", (x,), {"training": False}


def drop_errors():
    for wrong in (-0.1, 1.5, math.nan):
        yield f"p {wrong}", lambda w=wrong: tl.sequence_dropout(X, w), ValueError, f"p in [0, 1], got {wrong}"
    yield "no p", lambda: tl.sequence_dropout(X, None), TypeError, "p as a number, got None"
    yield "whole", lambda: tl.sequence_dropout(X.long()), TypeError, "x of a floating dtype, got torch.int64"


def expands(y, k):
    times = y.num_sequences(k)
    for width in ((3,), ()):
        yield f" plain {width}", (values(times, width, y.dtype, y.device), y), {}
    yield " of a LoD", (values(times, (2,), y.dtype, y.device), y.lod), {}
    for lengths in (
        [[i % 3 for i in range(times)]],
        [[i % 2 for i in range(times)], [2 - i % 3 for i in range(times // 2)]],
    ):
        yield f" {len(lengths)} levels", (lod_tensor(lengths, (2,), y.dtype, y.device.type), y), {}


def expand_errors():
    op = tl.sequence_expand
    yield "rows", lambda: op(V, X), ValueError, "the 3 sequences of y at level -1, got 6"
    yield "sequences", lambda: op(X, X), ValueError, "the 3 sequences of y at level -1, got 2"
    yield "outer", lambda: op(V[:3], X, ref_level="a"), ValueError, "2 sequences of y at level 'a', got 3"
    yield "plain y", lambda: op(V, V), TypeError, "y as a LoDTensor or LoD, got Tensor"
    yield "no x", lambda: op(None, X), TypeError, "x as a tensor with rows, got NoneType"
    yield "scalar x", lambda: op(V[0, 0], X), TypeError, "x as a tensor with rows, got a scalar"
    many = tl.LoD.from_lengths([[2**50]])
    yield "total", lambda: op(torch.zeros(1, 3), many), RuntimeError, ""


def laid(y, k):
    count = y.num_sequences(k)
    x = values(count, (2,), y.dtype, y.device)
    outer = y.lod.outer(k)
    x = x if outer is None else tl.LoDTensor(x, outer)
    yield "", (x, y), {}
    yield " numbers over a LoD", (x[:, 0], y.lod), {}
    if outer is not None:  # an equal structure, another object
        yield " equal", (tl.LoDTensor(x.values(), tl.LoD(outer.to_list())), y), {}


def laid_errors():
    op = tl.sequence_expand_as
    one = tl.from_lengths(torch.zeros(3, 2), [[1, 2]])
    yield "rows", lambda: op(V, X), ValueError, "each of the 2 sequences of y, got 6"
    yield "inner rows", lambda: op(V[:3], X), ValueError, "as tl.LoDTensor(x, y.lod.outer(1))"
    yield "rows of a LoD", lambda: op(V[:3], X.lod), ValueError, "as tl.LoDTensor(x, y.outer(1))"
    yield "depth", lambda: op(X, X), ValueError, "fewer levels than the 2 of y, got 2"
    yield "differ", lambda: op(one, X), ValueError, "at level 0, sequence 0: lengths 1 and 2"
    yield "plain y", lambda: op(V, V), TypeError, "y as a LoDTensor or LoD, got Tensor"
    yield "no x", lambda: op(3.0, X), TypeError, "x as a tensor with rows, got float"


def mixed(y, k):
    count = y.num_sequences(k)
    x = values(count, (3,), y.dtype, y.device)
    outer = y.lod.outer(k)
    x = x if outer is None else tl.LoDTensor(x, outer)
    yield "", (x, y, 2), {}
    first = values(y.num_sequences(0), (), y.dtype, y.device)
    yield " three", (first, y, x, values(1, (), y.dtype, y.device)[0], "word"), {}
    yield " equal", (y, y.with_lod(tl.LoD(y.lod.to_list()))), {}


def mixed_errors():
    op, one = tl.broadcast, tl.from_lengths(torch.zeros(3, 2), [[1, 2]])
    yield "none", lambda: op(V, 2.0), ValueError, "at least 1 LoDTensor, got none"
    yield "nothing", lambda: op(), ValueError, "at least 1 LoDTensor, got none"
    yield (
        "same depth",
        lambda: op(X, X.with_lod(tl.LoD([[0, 1, 3], [0, 1, 3, 6]]))),
        ValueError,
        "at level 0, sequence 0: lengths 2 and 1",
    )
    yield "outer", lambda: op(X, one), ValueError, "got LoDs that differ: at level 0, sequence 0: lengths 1 and 2"
    yield "rows", lambda: op(X, V), ValueError, "each of the 2 sequences of y, got 6"


ENTRIES = [
    SequenceInfo("sequence_reverse", over(same), only_plain("sequence_reverse"), ALL),
    SequenceInfo("sequence_slice", over(slices), slice_errors, ALL),
    SequenceInfo("sequence_concat", over(concats), concat_errors("sequence_concat"), ALL),
    SequenceInfo("sequence_shift", over(shifts), shift_errors, ALL),
    SequenceInfo("sequence_sample", over(draws), draw_errors, ALL),
    SequenceInfo("sequence_dropout", over(drops), drop_errors, keeps=True),
    SequenceInfo("sequence_expand", over(expands, ((),), "ref_level"), expand_errors, ALL, levels="ref_level"),
    SequenceInfo("sequence_expand_as", without_level(over(laid)), laid_errors, ALL, levels=None),
    SequenceInfo("broadcast", without_level(over(mixed)), mixed_errors, ALL, levels=None),
]
