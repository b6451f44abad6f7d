# SPDX-License-Identifier: Apache-2.0
"""The order that a recurrence takes sequences in."""

import pytest
import torch

import torch_lod as tl

#: The compiled operator counts lengths up to 4 per sequence and 1024; where one is longer it compares.
LENGTHS = {
    "typical": [2, 3, 1, 3, 0, 2],
    "equal": [4] * 9,
    "rising": list(range(40)),
    "falling": list(range(40, 0, -1)),
    "none": [],
    "empty": [0, 0, 0],
    "one": [7],
    "the longest that is counted": [5, 4 * 4 + 1024, 0, 5],
    "the shortest that is compared": [5, 4 * 4 + 1025, 0, 5],
    "long": [2**40, 3, 2**50, 3, 0, 2**40],
    "long and equal": [2**40] * 5,
}


@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=list(LENGTHS))
def test_rank_is_stable_sorting_by_length(lengths):
    expected = sorted(range(len(lengths)), key=lambda s: -lengths[s])
    offsets = tl.LoD.from_lengths([lengths]).offsets()
    order = tl.ops.rank_by_length(offsets)
    assert order.tolist() == expected and order.dtype == torch.int64
    assert tl.LoD.from_lengths([lengths]).rank_at(0).tolist() == expected
    spread = torch.stack([offsets, offsets], -1)[:, 0]
    assert tl.ops.rank_by_length(spread).tolist() == expected


@pytest.mark.parametrize("longest", [3, 2000, 5000], ids=["few steps", "counted", "compared"])
def test_rank_of_many_sequences(longest):
    lengths = torch.randint(0, longest + 1, (300,), generator=torch.Generator().manual_seed(longest)).tolist()
    order = tl.ops.rank_by_length(tl.LoD.from_lengths([lengths]).offsets()).tolist()
    assert order == sorted(range(300), key=lambda s: -lengths[s])


@pytest.mark.parametrize(
    ("offsets", "exception", "words"),
    [
        (torch.tensor([2, 4]), ValueError, "offsets to start at 0, got 2"),
        (torch.tensor([0, 5, 3]), ValueError, "got 5 then 3 at index 2"),
        (torch.tensor([0, -1, 3]), ValueError, "got 0 then -1 at index 1"),
        (torch.tensor([0, 2**63 - 1, -(2**63)]), ValueError, "at index 2"),
        (torch.tensor([], dtype=torch.int64), ValueError, "at least 1 entry, got none"),
        (torch.tensor([[0, 3]]), ValueError, "1-D offsets, got 2 dimensions"),
        (torch.tensor(0), ValueError, "1-D offsets, got 0 dimensions"),
        (torch.tensor([0, 3], dtype=torch.int16), TypeError, "offsets of dtype int64"),
        (torch.tensor([0.0, 3.0]), TypeError, "offsets of dtype int64"),
        (torch.zeros(2, dtype=torch.int64, device="meta"), TypeError, "offsets"),
        (torch.tensor([0, 3]).to_sparse(), TypeError, "offsets"),
    ],
    ids=str,
)
def test_rank_refuses(offsets, exception, words):
    with pytest.raises(exception) as caught:
        tl.ops.rank_by_length(offsets)
    assert type(caught.value) is exception and words in str(caught.value), str(caught.value)
    assert str(caught.value).startswith("rank_by_length: "), str(caught.value)


def test_a_table_says_who_is_alive_at_a_step():
    x = tl.from_lengths(torch.arange(6.0), [[2, 3, 0, 1]])
    table = tl.lod_rank_table(x)
    assert table.items() == [(1, 3), (0, 2), (3, 1), (2, 0)]
    assert [table.active(t) for t in (0, 1, 2, 3, 100)] == [3, 2, 1, 0, 0]
    assert tl.max_sequence_len(table) == 3 and repr(table) == "RankTable([(1, 3), (0, 2), (3, 1), (2, 0)])"
    table.index.zero_(), table.lengths.zero_()
    assert table.items() == [(1, 3), (0, 2), (3, 1), (2, 0)]


def test_what_shrinks_is_a_view():
    x = tl.from_lengths(torch.arange(6.0), [[2, 3, 1]])
    state = torch.zeros(3, 2)
    assert tl.shrink_memory(state, 1, tl.lod_rank_table(x)).data_ptr() == state.data_ptr()
    assert tl.shrink_memory(x, 1, tl.lod_rank_table(x)).values().data_ptr() == x.values().data_ptr()
