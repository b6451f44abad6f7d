# SPDX-License-Identifier: Apache-2.0
"""The plan of a recurrence: rank tables, steps, memories, branches."""

import torch

import torch_lod as tl
from samples.words import ALL, Sample, SequenceInfo, V, X, alone, lod_tensor, over, values, without_level

TABLE = tl.lod_rank_table(X)


def table_errors():
    yield "LoD", lambda: tl.lod_rank_table(X.lod), TypeError, "x as a LoDTensor, got LoD"
    yield "nothing", lambda: tl.lod_rank_table(None), TypeError, "x as a LoDTensor, got NoneType"


def of_table(x, k):
    yield "", (tl.lod_rank_table(x, level=k),), {}


def no_table(name, *args):
    op = getattr(tl, name)
    yield "no table", lambda: op(*args, None), TypeError, "table as a RankTable, got NoneType; see tl.lod_rank_table"
    yield "a LoD", lambda: op(*args, X.lod), TypeError, "table as a RankTable, got LoD"
    yield "a tensor", lambda: op(*args, X), TypeError, "table as a RankTable, got LoDTensor"


def with_table(x, k):
    yield "", (x, tl.lod_rank_table(x, level=k)), {}


def array_errors():
    op = tl.lod_tensor_to_array
    yield from no_table("lod_tensor_to_array", X)
    yield "plain", lambda: op(V, TABLE), TypeError, "x as a LoDTensor, got Tensor"
    yield (
        "LoD",
        lambda: op(X.with_lod(tl.LoD([[0, 1, 3], [0, 1, 3, 6]])), TABLE),
        ValueError,
        "at level 0, sequence 0: lengths 1 and 2",
    )
    yield "depth", lambda: op(X.flatten_levels(0, 1), TABLE), ValueError, "1 and 2 levels"


def steps(x, k):
    """Steps of plain rows, and of sequences of whatever length."""
    table = tl.lod_rank_table(x, level=k)
    sizes = [table.active(t) for t in range(tl.max_sequence_len(table))]
    if not sizes:
        return
    yield " of rows", ([values(n, (3,), x.dtype, x.device, t) for t, n in enumerate(sizes)], table), {}
    yield " of numbers", (tuple(values(n, (), x.dtype, x.device, t) for t, n in enumerate(sizes)), table), {}
    nested = [
        lod_tensor([[(i + t) % 3 for i in range(n)]], (2,), x.dtype, x.device.type, t, False)
        for t, n in enumerate(sizes)
    ]
    yield " of sequences", (nested, table), {}
    yield " of its own", (tl.lod_tensor_to_array(x, table), table), {}


def step_errors():
    op = tl.array_to_lod_tensor
    good = [torch.zeros(2, 3), torch.zeros(1, 3)]
    yield from no_table("array_to_lod_tensor", good)
    yield "steps", lambda: op(good[:1], TABLE), ValueError, "2 steps, got 1"
    yield "rows", lambda: op([good[0], good[0]], TABLE), ValueError, "1 rows at step 1, got 2"
    yield "sequences", lambda: op([X, X], TABLE), ValueError, "1 sequences at step 1, got 2"
    yield (
        "kinds",
        lambda: op([good[0], X.slice(0, 0)], TABLE),
        TypeError,
        "steps of one kind with rows, got LoDTensor at step 1",
    )
    yield "scalar", lambda: op([good[0], torch.tensor(1.0)], TABLE), TypeError, "at step 1"
    yield "not a list", lambda: op(X, TABLE), TypeError, "array as a list of tensors, got LoDTensor"
    yield "not tensors", lambda: op([1, 2], TABLE), TypeError, "steps of one kind with rows, got int at step 0"
    yield (
        "widths",
        lambda: op([good[0], good[1][:, :2]], TABLE),
        ValueError,
        "rows of one shape, got (3,) and, at step 1, (2,)",
    )
    yield (
        "none",
        lambda: op([], tl.lod_rank_table(lod_tensor([[0]], (), torch.float32, "cpu"))),
        ValueError,
        "at least 1 step, got none",
    )


def ordered(x, k):
    table = tl.lod_rank_table(x, level=k)
    count = x.num_sequences(k)
    yield " rows", (values(count, (3,), x.dtype, x.device), table), {}
    yield " numbers", (values(count, (), x.dtype, x.device), table), {}
    yield " sequences", (lod_tensor([[i % 3 for i in range(count)]], (2,), x.dtype, x.device.type), table), {}
    if k == 0:
        yield " its own", (x, table), {}


def order_errors():
    op = tl.reorder_lod_tensor_by_rank
    yield from no_table("reorder_lod_tensor_by_rank", X)
    yield (
        "lost",
        lambda: op(X[[1, 0]], TABLE),
        TypeError,
        "x as a LoDTensor or a plain tensor, got rows that lost their",
    )
    yield "rows", lambda: op(V, TABLE), ValueError, "x with the 2 sequences of the table, got 6"
    yield "no x", lambda: op(None, TABLE), TypeError, "x as a tensor with rows, got NoneType"
    yield "scalar", lambda: op(V[0, 0], TABLE), TypeError, "x as a tensor with rows, got a scalar"


def shrunk(x, k):
    table = tl.lod_rank_table(x, level=k)
    count = x.num_sequences(k)
    for i in (0, 1, 3, 100):
        yield f" rows {i}", (values(count, (3,), x.dtype, x.device), i, table), {}
        yield (
            f" sequences {i}",
            (lod_tensor([[j % 3 for j in range(count)]], (2,), x.dtype, x.device.type), i, table),
            {},
        )


def shrink_errors():
    op = tl.shrink_memory
    yield from no_table("shrink_memory", X, 0)
    for wrong in (-1, 0.5, None, True):
        yield f"i {wrong}", lambda i=wrong: op(X, i, TABLE), IndexError, f"i in [0, 2**63), got {wrong}"
    yield "lost", lambda: op(X[[1, 0]], 0, TABLE), TypeError, "x as a LoDTensor or a plain tensor, got rows that lost"
    yield "rows", lambda: op(V[:1], 0, TABLE), ValueError, "at least the 2 sequences that have a step 0, got 1"
    yield "no x", lambda: op(None, 0, TABLE), TypeError, "x as a tensor with rows, got NoneType"
    yield "huge", lambda: op(V[:1], 2**70, TABLE), IndexError, f"got {2**70}"


def splits(x, k):
    count = x.num_sequences(k)
    for label, mask in (
        ("some", torch.arange(count) % 2 == 0),
        ("all", torch.ones(count).bool()),
        ("none", torch.zeros(count).bool()),
    ):
        yield f" {label}", (x, mask), {}
        yield f" {label}, a column", (x, mask[:, None]), {}


def split_plain(dtype, device):
    yield from over(splits)(dtype, device)
    for width in ((3,), (), (0,)):
        x = values(5, width, dtype, device)
        yield Sample(f"plain {width}", (x, torch.arange(5) % 2 == 0))
    yield Sample("plain none", (values(0, (3,), dtype, device), torch.zeros(0, dtype=torch.bool)))


def split_errors():
    op, mask = tl.split_lod_tensor, torch.tensor([True, False])
    yield "length", lambda: op(X, mask[:1]), ValueError, "mask of shape (2,) or (2, 1), got (1,)"
    yield "inner", lambda: op(X, mask, level=-1), ValueError, "mask of shape (3,) or (3, 1), got (2,)"
    yield "dtype", lambda: op(X, mask.long()), TypeError, "mask as a bool tensor, got torch.int64"
    yield "list", lambda: op(X, [True, False]), TypeError, "mask as a bool tensor, got list"
    yield "plain", lambda: op(V, mask), ValueError, "mask of shape (6,) or (6, 1), got (2,)"
    yield "no x", lambda: op(None, mask), TypeError, "x as a tensor with rows, got NoneType"
    yield "lost", lambda: op(X[[1, 0]], mask), TypeError, "x as a LoDTensor or a plain tensor, got rows that lost their"
    yield "meta mask", lambda: op(X, mask.to("meta")), TypeError, "mask as a bool tensor with data"


def merges(x, k):
    for label, args, _ in splits(x, k):
        yield label, (*tl.split_lod_tensor(*args, level=k), *args), {}
    mask = torch.arange(x.num_sequences(k)) % 2 == 0
    yes, no = values(int(mask.sum()), (3,), x.dtype, x.device), values(int((~mask).sum()), (3,), x.dtype, x.device, 1)
    yield " of rows", (yes, no, x, mask), {}


def merge_errors():
    op, mask = tl.merge_lod_tensor, torch.tensor([True, False])
    one = X.slice(0, 0)
    yield "in_true", lambda: op(X, one, X, mask), ValueError, "in_true with 1 sequences, got 2"
    yield "in_false", lambda: op(one, X, X, mask), ValueError, "in_false with 1 sequences, got 2"
    yield (
        "kinds",
        lambda: op(one, V[:1], X, mask),
        TypeError,
        "in_true and in_false of one kind, got LoDTensor and Tensor",
    )
    yield (
        "depths",
        lambda: op(one, X.flatten_levels(0, 1).slice(0, 0), X, mask),
        ValueError,
        "of equal depth, got depths [2, 1]",
    )
    yield "widths", lambda: op(V[:1], V[:1, :2], X, mask), ValueError, "rows of one shape, got (3,) and (2,)"
    yield "mask", lambda: op(one, one, X, mask[:1]), ValueError, "mask of shape (2,) or (2, 1), got (1,)"
    yield "no parts", lambda: op(None, None, X, mask), TypeError, "in_true as a tensor with rows, got NoneType"
    yield "no x", lambda: op(one, one, None, mask), TypeError, "x as a tensor with rows, got NoneType"


def planned(name, samples, errors, **options):
    """Plans begin at the outermost level; tables know theirs."""
    return SequenceInfo(name, samples, errors, **{"dtypes": ALL, "levels": None, "default": 0, **options})


#: A question about structure: one dtype stands for all.
STRUCTURE = {"dtypes": (torch.float32,), "differentiable": False, "structural": True}
ENTRIES = [
    planned("lod_rank_table", over(alone), table_errors, levels="level", **STRUCTURE),
    planned("max_sequence_len", without_level(over(of_table)), lambda: no_table("max_sequence_len"), **STRUCTURE),
    planned("lod_tensor_to_array", without_level(over(with_table)), array_errors),
    planned("array_to_lod_tensor", without_level(over(steps)), step_errors),
    planned("reorder_lod_tensor_by_rank", without_level(over(ordered)), order_errors),
    planned("shrink_memory", without_level(over(shrunk)), shrink_errors),
    planned("split_lod_tensor", split_plain, split_errors, levels="level"),
    planned("merge_lod_tensor", over(merges), merge_errors, levels="level"),
]
