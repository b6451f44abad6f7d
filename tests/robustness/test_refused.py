# SPDX-License-Identifier: Apache-2.0
"""What `LoD` and `LoDTensor` refuse: the class of the error and what its message says."""

import re

import numpy as np
import pytest
import torch
from nested import X

import torch_lod as tl
from torch_lod import LoD

x = LoD.from_lengths(X)
v = torch.arange(15.0)
t = tl.LoDTensor(v, x)

OF_LOD = {
    "no levels": (lambda: LoD([]), ValueError, "LoD: expected offsets of at least 1 level, got none"),
    "a flat list": (lambda: LoD([0, 2]), TypeError, "write [offsets]"),
    "one tensor": (lambda: LoD(torch.tensor([0, 2])), TypeError, "write [offsets]"),
    "None": (lambda: LoD(None), TypeError, "got NoneType"),
    "a level of None": (lambda: LoD([None]), TypeError, "offsets[0]"),
    "strings": (lambda: LoD([["0", "2"]]), TypeError, "expected offsets[0][0] to be an integer, got '0'"),
    "bools": (lambda: LoD([[False, True]]), TypeError, "got False"),
    "floats": (lambda: LoD([[0, 2.0]]), TypeError, "expected offsets[0][1] to be an integer, got 2.0"),
    "a float tensor": (lambda: LoD([torch.tensor([0.0, 2.0])]), TypeError, "torch.float32"),
    "a float array": (lambda: LoD([np.array([0.0])]), TypeError, "float64"),
    "a bool tensor": (lambda: LoD([torch.tensor([False, True])]), TypeError, "torch.bool"),
    "two dimensions": (lambda: LoD([torch.zeros(2, 2, dtype=torch.int64)]), ValueError, "1 dimension, got 2"),
    "no dimension": (lambda: LoD([np.array(0)]), ValueError, "1 dimension, got 0"),
    "a meta tensor": (lambda: LoD([torch.zeros(2, dtype=torch.int64, device="meta")]), TypeError, "meta tensor"),
    "a sparse tensor": (lambda: LoD([torch.tensor([0, 2]).to_sparse()]), TypeError, "dense"),
    "beyond int64": (lambda: LoD([[0, 2**63]]), ValueError, "got 9223372036854775808 at index 1"),
    "uint64 beyond int64": (lambda: LoD([np.array([0, 2**63], np.uint64)]), ValueError, "below 2**63"),
    "negative offset": (lambda: LoD([[0, -3, 6]]), ValueError, "not to decrease, got 0 then -3 at index 1"),
    "negative length": (
        lambda: LoD.from_lengths([[2, -1, 3]]),
        ValueError,
        "LoD.from_lengths: expected lengths[0] >= 0, got -1 at index 1",
    ),
    "a total beyond int64": (
        lambda: LoD.from_lengths([[2**62, 2**62]]),
        ValueError,
        "expected lengths[0] to add up to less than 2**63, got more at index 1",
    ),
    "lengths that do not meet": (
        lambda: LoD.from_lengths([[3], [1, 1]]),
        ValueError,
        "expected lengths[0] to add up to the 2 sequences of level 1, got 3",
    ),
    "ambiguous row offsets": (
        lambda: LoD.from_row_offsets([[0, 2, 4], [0, 2, 2, 4]]),
        ValueError,
        "expected a unique position for offsets[0] at index 1, but 2 of offsets[1] are 2",
    ),
    "row offsets between sequences": (
        lambda: LoD.from_row_offsets([[0, 1, 4], [0, 2, 4]]),
        ValueError,
        "expected offsets[0] to be among offsets[1], got 1 at index 1",
    ),
    "row offsets of other rows": (lambda: LoD.from_row_offsets([[0, 3], [0, 4]]), ValueError, "4 rows, got 3"),
    "ids that fall": (
        lambda: LoD.from_segment_ids([0, 2, 1]),
        ValueError,
        "LoD.from_segment_ids: expected sorted ids, got 2 then 1 at index 2",
    ),
    "ids that fall beyond int64": (lambda: LoD.from_segment_ids([2**63 - 1, -(2**63)], 5), ValueError, "sorted"),
    "negative ids": (lambda: LoD.from_segment_ids([-1, 0]), ValueError, "expected ids >= 0, got -1 at index 0"),
    "an id beyond the number": (lambda: LoD.from_segment_ids([0, 3], 3), ValueError, "below num_sequences 3, got 3"),
    "a huge id without number": (lambda: LoD.from_segment_ids([0, 2**40]), ValueError, "expected num_sequences"),
    "names, too few": (lambda: LoD(x.to_list(), level_names=["a"]), ValueError, "2 different names"),
    "names, twice the same": (lambda: LoD(x.to_list(), level_names=["a", "a"]), ValueError, "2 different names"),
    "names, a string": (lambda: LoD(x.to_list(), level_names="ab"), TypeError, "got 'ab'"),
    "names, a number": (lambda: LoD(x.to_list(), level_names=["a", 1]), TypeError, "got 1"),
    "names, empty": (lambda: LoD(x.to_list(), level_names=["a", ""]), TypeError, "non-empty"),
    "level too large": (lambda: x.lengths(2), IndexError, "lengths: expected level in [-2, 1], got 2"),
    "level too small": (lambda: x.offsets(-3), IndexError, "offsets: expected level in [-2, 1], got -3"),
    "level of a bool": (lambda: x.max_length(True), TypeError, "max_length: expected level"),
    "level of a float": (lambda: x.num_sequences(1.0), TypeError, "got 1.0"),
    "level by a name that is not there": (
        lambda: x.with_level_names(["a", "b"]).row_offsets("c"),
        IndexError,
        "('a', 'b')",
    ),
    "slice outside": (lambda: x.slice(0, 3), IndexError, "slice: expected a sequence of level 0 in [-3, 2], got 3"),
    "slice backwards": (lambda: x.slice(0, 2, 1), IndexError, "0 <= begin <= end <= 3 at level 0, got 2 and 1"),
    "slice past the end": (lambda: x.slice(1, 0, 7), IndexError, "<= 6 at level 1, got 0 and 7"),
    "slice of a float": (lambda: x.slice(0, 1.0), TypeError, "begin"),
    "branch outside": (lambda: x.branch(1, 1), IndexError, "branch: expected path[1] in [-1, 0], got 1"),
    "branch too long": (lambda: x.branch(0, 0, 0), IndexError, "1 to 2 numbers, got 3"),
    "branch of nothing": (lambda: x.branch(), IndexError, "1 to 2 numbers, got 0"),
    "flatten backwards": (lambda: x.flatten(1, 0), ValueError, "got levels 1 and 0"),
    "group that does not meet": (lambda: x.group([2, 2]), ValueError, "group: expected"),
    "append that does not meet": (lambda: x.append([1] * 14), ValueError, "append: expected"),
}


loop: list = []
loop.append(loop)

OF_TENSOR = {
    "values as a list": (lambda: tl.LoDTensor([1.0], x), TypeError, "got list; see tl.lod_tensor"),
    "lod as a list": (lambda: tl.LoDTensor(v, X), TypeError, "got list; see tl.from_lengths"),
    "sparse values": (lambda: tl.LoDTensor(v.to_sparse(), x), TypeError, "dense"),
    "a scalar": (lambda: tl.LoDTensor(torch.tensor(1.0), LoD([[0, 1]])), ValueError, "got a scalar"),
    "other rows": (lambda: tl.LoDTensor(v[:14], x), ValueError, "cover the 14 rows of values, got one of 15 rows"),
    "from_lengths": (lambda: tl.from_lengths(v, [[1]]), ValueError, "from_lengths: expected"),
    "from_lengths, negative": (
        lambda: tl.from_lengths(v, [[16, -1]]),
        ValueError,
        "from_lengths: expected lengths[0] >= 0",
    ),
    "from_offsets": (lambda: tl.from_offsets(v, [[0, 3, 1]]), ValueError, "from_offsets: expected offsets[0] not to"),
    "from_offsets, rows": (lambda: tl.from_offsets(v, [[0, 3]]), ValueError, "from_offsets: expected"),
    "from_cu_seqlens": (
        lambda: tl.from_cu_seqlens(v, [0, 5, 2, 6]),
        ValueError,
        "from_cu_seqlens: expected cu_seqlens",
    ),
    "from_cu_seqlens, float": (lambda: tl.from_cu_seqlens(v, [0.5]), TypeError, "from_cu_seqlens: expected cu_seqlens"),
    "from_segment_ids": (lambda: tl.from_segment_ids(v[:2], [1, 0]), ValueError, "sorted"),
    "from_tensors of nothing": (lambda: tl.from_tensors([]), ValueError, "from_tensors: expected"),
    "from_tensors of a scalar": (lambda: tl.from_tensors([torch.tensor(1.0)]), TypeError, "from_tensors: expected"),
    "from_tensors of a tensor": (
        lambda: tl.from_tensors(torch.zeros(2, 3)),
        TypeError,
        "from_tensors: expected a list of tensors, got Tensor; a sequence for each of its entries: list(tensors)",
    ),
    "from_tensors of a dict": (
        lambda: tl.from_tensors({"a": torch.zeros(2)}),
        TypeError,
        "from_tensors: expected a list of tensors, got dict",
    ),
    "from_tensors of two shapes": (
        lambda: tl.from_tensors([torch.zeros(2, 3), torch.zeros(2, 4)]),
        ValueError,
        "from_tensors: expected elements of one shape",
    ),
    "from_padded, both": (
        lambda: tl.from_padded(torch.zeros(2, 3), [1, 2], torch.ones(2, 3, dtype=torch.bool)),
        ValueError,
        "got both",
    ),
    "from_padded, neither": (lambda: tl.from_padded(torch.zeros(2, 3)), ValueError, "got neither"),
    "from_padded, too long": (
        lambda: tl.from_padded(torch.zeros(2, 3), [1, 4]),
        ValueError,
        "from_padded: expected lengths in [0, 3], got 4 at index 1",
    ),
    "from_padded, too few": (lambda: tl.from_padded(torch.zeros(2, 3), [1]), ValueError, "expected 2 lengths"),
    "from_padded, mask": (
        lambda: tl.from_padded(torch.zeros(2, 3), mask=torch.ones(2, 2, dtype=torch.bool)),
        ValueError,
        "mask of shape (2, 3)",
    ),
    "a flat list": (
        lambda: tl.lod_tensor([1.0, 2.0]),
        ValueError,
        "lod_tensor: expected a list of sequences, got a flat",
    ),
    "strings": (
        lambda: tl.lod_tensor(["a b", "c"]),
        ValueError,
        "got a flat list; tl.batch(data, strings=...) makes numbers of strings",
    ),
    "lists of strings": (
        lambda: tl.lod_tensor([["a", "b"], ["c"]]),
        ValueError,
        "lod_tensor: expected numbers, got 'a'; tl.batch(data, strings=...) makes numbers of strings",
    ),
    "no list": (lambda: tl.lod_tensor(3), TypeError, "got int"),
    "two nestings": (lambda: tl.lod_tensor([[1.0], 2.0]), ValueError, "expected sequences at nesting 1, got 2.0"),
    "two depths": (lambda: tl.lod_tensor([[[1.0]], [2.0]]), ValueError, "nesting 2"),
    "a list inside itself": (lambda: tl.lod_tensor(loop), ValueError, "inside itself"),
    "depth 0": (lambda: tl.lod_tensor([[1.0]], depth=0), ValueError, "expected depth >= 1, got 0"),
    "too few nestings": (
        lambda: tl.lod_tensor([[1.0]], depth=2),
        ValueError,
        "expected 2 nestings below the batch, got 1",
    ),
    "zeros of lengths": (lambda: tl.zeros(X, 2), TypeError, "zeros: expected a LoD, got list"),
    "head of -1": (lambda: t.head(-1), ValueError, "got -1"),
    "head beyond int64": (lambda: t.head(2**70), ValueError, "head: expected k"),
    "tail beyond int64": (lambda: t.tail(2**70), ValueError, "tail: expected k"),
    "head of a float": (lambda: t.head(1.0), ValueError, "head: expected k"),
    "nth of a float": (lambda: t.nth(1.0), TypeError, "nth: expected i as an int"),
    "filter_rows of floats": (lambda: t.filter_rows(v), TypeError, "filter_rows: expected a bool mask of shape (15,)"),
    "filter_rows of few": (lambda: t.filter_rows(v[:3] > 0), TypeError, "shape (3,)"),
    "no permutation": (lambda: t.permute_sequences([0, 0, 1]), ValueError, "permutation of 3 sequences, got [0, 0, 1]"),
    "out of the parent": (lambda: t.permute_sequences([3, 1, 2, 0, 4, 5], level=1), ValueError, "got 3 at index 0"),
    "slice outside": (lambda: t.slice(0, 3), IndexError, "slice: expected a sequence of level 0 in [-3, 2], got 3"),
    "seq outside": (lambda: t.seq[3], IndexError, "seq: expected"),
    "seq of a path outside": (lambda: t.seq[1, 1], IndexError, "seq: expected path[1] in [-1, 0], got 1"),
    "seq list outside": (lambda: t.seq[[0, 3]], IndexError, "expected an index in [-3, 2], got 3 at position 1"),
    "seq mask too short": (lambda: t.seq[[True, False]], IndexError, "mask of shape (3,), got (2,)"),
    "seq too deep": (lambda: t.seq[0, 0, 0, 0], IndexError, "seq: expected 1 to 3 indices"),
    "seq slice first": (
        lambda: t.seq[0:2, 1],
        IndexError,
        "seq: expected index 1 within every sequence of level 0 of x.seq[0:2]",
    ),
    "seq of nothing": (lambda: t.seq[()], IndexError, "seq: expected 1 to 3 indices"),
    "seq of a float": (lambda: t.seq[1.0], TypeError, "seq: expected index"),
    "seq of a bool": (lambda: t.seq[True], TypeError, "seq: expected index"),
    "padded below the longest": (
        lambda: t.to_padded(max_length=3),
        ValueError,
        "to_padded: expected max_length of at least the longest sequence, 4, got 3",
    ),
    "padded all with a length": (lambda: t.to_padded(level="all", max_length=9), ValueError, "no max_length"),
    "padded on top": (lambda: t.to_padded(side="top"), ValueError, "'right' or 'left', got 'top'"),
    "padded, level": (lambda: t.to_padded(level=2), IndexError, "to_padded: expected level in [-2, 1], got 2"),
    "share_lod_from a number": (lambda: t.share_lod_from(3), TypeError, "share_lod_from: expected"),
    "copy_lod_from a tensor": (lambda: t.copy_lod_from(v), TypeError, "copy_lod_from: expected"),
    "lod_reset, rows": (lambda: t.lod_reset([[14]]), ValueError, "lod_reset: expected"),
    "with_values, rows": (lambda: t.with_values(v[1:]), ValueError, "cover the 14 rows"),
    "with_lod of lists": (lambda: t.with_lod(X), TypeError, "got list"),
    "nested of two levels": (lambda: t.to_nested(), ValueError, "to_nested: expected 1 level, got 2"),
    "packed with an empty one": (
        lambda: tl.lod_tensor([[1.0], []]).to_packed_sequence(),
        ValueError,
        "no empty sequence",
    ),
    "from_nested of a plain one": (lambda: tl.from_nested(v), TypeError, "torch.jagged"),
    "cat of nothing": (lambda: tl.cat([]), TypeError, "cat: expected LoDTensors, got none"),
    "cat of a plain one": (lambda: tl.cat([t, v]), TypeError, "got Tensor"),
    "cat of two depths": (lambda: tl.cat([t, t.slice(1, 0)]), ValueError, "equal depth, got depths [2, 1]"),
    "cat along rows": (lambda: tl.cat([t, t], along="rows"), ValueError, "got 'rows'"),
    "cat features, two LoDs": (lambda: tl.cat([t, t.group([3]).drop_level(1)], along="features"), ValueError, "cat"),
    "cat within, two batches": (
        lambda: tl.cat([t, t.slice(0, 1)], along="within", level=0),
        ValueError,
        "got [3, 1]",
    ),
    "stack along rows": (lambda: tl.stack([t, t], 0), ValueError, "got dim 0"),
    "create_lod_tensor": (lambda: tl.create_lod_tensor([[1], [2, 3]], [[1, 1]]), ValueError, "[[1, 2]]"),
    "create_lod_tensor there": (
        lambda: tl.create_lod_tensor(v, [[6]], []),
        TypeError,
        "device as a torch.device or its",
    ),
    **{
        f"random numbers {label}": (lambda args=args: tl.create_random_int_lodtensor([[2]], *args), cls, said)
        for label, args, cls, said in (
            ("of no shape", (3, 0, 1), TypeError, "base_shape as a list, array or tensor of integers, got int"),
            (
                "of a negative size",
                ([-1], 0, 1),
                ValueError,
                "base_shape of sizes >= 0, of less than 2**63 numbers in all",
            ),
            ("of a huge size", ([2**62], 0, 1), ValueError, f"less than 2**63 numbers in all, got [{2**62}]"),
            ("from nothing", ([1], None, 1), TypeError, "low to be an integer, got None"),
            ("to a float", ([1], 0, 1.5), TypeError, "high to be an integer, got 1.5"),
            ("the wrong way", ([1], 3, 2), ValueError, "low <= high, from -2**63 to 2**63 - 2, got 3 and 2"),
            ("beyond int64", ([1], 0, 2**63 - 1), ValueError, f"got 0 and {2**63 - 1}"),
            ("far away", ([1], 0, 1, "moon"), TypeError, "device as a torch.device or its name, got 'moon'"),
            ("nowhere", ([1], 0, 1, 3.5), TypeError, "device as a torch.device or its name, got 3.5"),
        )
    },
}
REFUSED = {
    f"{room}: {name}": case
    for room, table in (("LoD", OF_LOD), ("LoDTensor", OF_TENSOR))
    for name, case in table.items()
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case):
    call, error, message = REFUSED[case]
    start = "^" if re.match(r"[\w.]+: ", message) else ""  # where the call is named, it comes first
    with pytest.raises(error, match=start + re.escape(message)) as raised:
        call()
    assert isinstance(raised.value, tl.LoDError)

    assert t.lod is x and x.to_lengths() == X and torch.equal(t.values(), torch.arange(15.0))
