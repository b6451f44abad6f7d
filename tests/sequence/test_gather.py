# SPDX-License-Identifier: Apache-2.0
"""Positions within sequences, beyond the laws of `sequence_gather`: what gives them, and spans."""

import pytest
import torch

import torch_lod as tl
from torch_lod.ops.compositions import COMPOSITIONS

X = tl.from_lengths(torch.tensor([3.0, 1.0, 2.0, 5.0, 4.0]), [[3, 0, 2]])
XX = tl.from_lengths(X.values(), [[2, 1], [3, 0, 2]], level_names=("document", "sentence"))


def of(*positions, dtype=torch.int64):
    return tl.lod_tensor(positions, depth=1, dtype=dtype)


def test_positions_count_within_the_sequence():
    found = tl.sequence_gather(X, of([2, 0, -1], [-1], [1]), fill=9)
    assert found.to_list() == [[2, 3, 9], [9], [4]]
    assert tl.sequence_gather(X, torch.tensor([1, -1, 0]), fill=7).tolist() == [1, 7, 5]


def test_at_an_outer_level_whole_sub_sequences_are_picked():
    found = tl.sequence_gather(XX, of([1, 0, 0], [-1, 0]), level="document")
    assert found.to_list() == [[[], [3, 1, 2], [3, 1, 2]], [[], [5, 4]]]
    assert found.level_names == (None, "sentence")
    assert tl.sequence_gather(XX, torch.tensor([0, 0]), level=0).to_list() == [[3, 1, 2], [5, 4]]
    assert tl.sequence_gather(XX, torch.tensor([-1, -1]), level=0).to_list() == [[], []]


def test_the_lod_of_the_result_is_that_of_the_index():
    index = of([2, 0], [], [1])
    assert tl.sequence_gather(X, index).lod is index.lod


def cloud(*lengths, width=2):
    g = torch.Generator().manual_seed(0)
    return tl.from_lengths(torch.randn(sum(lengths), width, generator=g, dtype=torch.float64), [list(lengths)])


def test_neighbours_of_short_clouds_are_filled_and_not_the_last_row():
    x = cloud(1, 4, 0, 2)
    near, row = tl.sequence_knn(x, x, 3)
    beside = tl.sequence_gather(x, row, fill=0, absolute=True)
    assert beside.shape == (7, 3, 2) and (beside.values()[row.values() < 0] == 0).all() and (row < 0).any()
    apart = (x.values()[:, None] - beside.values()).norm(dim=2)
    torch.testing.assert_close(apart[row.values() >= 0], near.values()[row.values() >= 0])


def test_top_k_argmax_and_the_index_of_a_pool_name_rows():
    x = cloud(1, 4, 0, 2)
    scores = x[:, 0].contiguous()
    best, row = tl.sequence_topk(x, 3, channel=0)
    assert torch.equal(tl.sequence_gather(x, row, absolute=True), best)
    top, index = tl.sequence_pool(scores, "max", return_index=True)
    assert torch.equal(tl.sequence_gather(scores, index, absolute=True), top)
    assert torch.equal(tl.sequence_gather(scores, tl.sequence_argmax(scores), absolute=True), top)


LOCATES = [torch.ops.torch_lod.locate.default, COMPOSITIONS["locate"]]


@pytest.mark.parametrize("locate", LOCATES, ids=["operator", "composition"])
def test_locate_equals_a_loop_over_segments(locate):
    g = torch.Generator().manual_seed(0)
    low = -(2**63)
    for case in range(200):
        n, each, absolute = int(torch.randint(0, 5, (), generator=g)), case % 3 + 1, case % 2 == 0
        within, cuts = (torch.randint(0, 4, (n + 1,), generator=g).cumsum(0) for _ in range(2))
        within, cuts = within - within[0], cuts - cuts[0]
        owner = torch.repeat_interleave(torch.arange(n), cuts.diff() * each)
        index = torch.randint(-1, 4, owner.shape, generator=g)
        begin, room = within[:-1][owner], within.diff()[owner]
        index = torch.where(index < room, index, -1)
        rows = torch.where(index < 0, -1, index + begin)
        found, fits = locate(rows if absolute else index, cuts, within, each, absolute)
        assert fits and torch.equal(found, rows) and not found.is_set_to(rows)
        for i in range(len(rows)):
            first, end = (begin, begin + room) if absolute else (0 * begin, room)
            for wrong in {
                -2,
                -1 - int(begin[i]),
                int(end[i]),
                int(first[i]) - 1,
                low,
                low + int(begin[i]),
                -low - 1,
            } - {-1}:
                bad = (rows if absolute else index).clone()
                bad[i] = wrong
                assert not locate(bad, cuts, within, each, absolute)[1], (bad, cuts, within, i)


@pytest.mark.parametrize("locate", LOCATES, ids=["operator", "composition"])
@pytest.mark.parametrize(
    "changed, message",
    [
        ({"each": 2}, "expected each to divide the 3 entries of index, got 2"),
        ({"each": 0}, "expected each to divide the 3 entries of index, got 0"),
        ({"row_offsets": torch.tensor([0, 2])}, "expected index_offsets with the 2 offsets of row_offsets, got 3"),
        ({"index_offsets": torch.tensor([0, 1, 4])}, "the last of index_offsets to equal the 3 rows of index, got 4"),
        ({"row_offsets": torch.tensor([0, 2, 1])}, "expected row_offsets not to decrease, got 2 then 1"),
    ],
)
def test_locate_refuses_what_does_not_belong_together(changed, message, locate):
    given = {"index": torch.tensor([0, -1, 1]), "index_offsets": torch.tensor([0, 1, 3])}
    given |= {"row_offsets": torch.tensor([0, 2, 6]), "each": 1, "absolute": False}
    with pytest.raises(ValueError, match=message):
        locate(*{**given, **changed}.values())


def test_an_absolute_index_of_another_sequence_is_refused():
    with pytest.raises(tl.LoDError, match=r"index -1 or in \[3, 4\] in sequence 2 of 2 elements, got 2 at row 1"):
        tl.sequence_gather(X, of([0], [], [2]), absolute=True)
    with pytest.raises(
        tl.LoDError, match=r"index in \[-1, -1\] in sequence 1 of 0 elements, got 0 at row 1; if it counts"
    ):
        tl.sequence_gather(X, of([0], [0], [1]))


def test_ragged_neighbours_are_a_level_of_the_index():
    x, adjacency = cloud(3, 2), tl.lod_tensor([[[1, 2], [], [0, 0, 1]], [[1], [0]]])
    message = tl.sequence_pool(tl.sequence_gather(x, adjacency), "sum")
    assert message.lod == x.lod
    for i, (row, near) in enumerate(zip(message, [[1, 2], [], [0, 0, 1], [4], [3]])):
        torch.testing.assert_close(row, x.values()[near].sum(0), msg=str(i))


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
@pytest.mark.parametrize("level", [0, 1])
def test_gradients_of_rows_named_twice_add_up(dtype, level):
    index = {1: tl.lod_tensor([[[0, 2, 2, -1], [-1]], [[1, 1]]]), 0: of([0, 0, -1, 1], [0])}[level]

    def gathered(rows):
        return tl.sequence_gather(tl.LoDTensor(rows, XX.lod), index, fill=2, level=level).values().square()

    rows = torch.randn(5, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(dtype)
    assert torch.autograd.gradcheck(gathered, rows.requires_grad_())
    assert torch.autograd.gradgradcheck(gathered, rows)


def test_rows_that_a_loss_ignored_stay_known():
    logits, target = torch.randn(5, 3, generator=torch.Generator().manual_seed(0)), torch.tensor([0, -100, 2, -100, 1])
    loss = torch.nn.functional.cross_entropy(X.with_values(logits), X.with_values(target), reduction="none")
    kept = tl.sequence_gather(loss, of([0, 1, -1], [], [0, 1]))
    expected = torch.stack([loss.values()[0], loss.values()[4]]).mean()
    torch.testing.assert_close(tl.sequence_loss(kept), expected)
    whole = tl.sequence_gather(loss.lod_reset([[2, 1], [3, 0, 2]]), torch.tensor([0, 0]), level=0)
    torch.testing.assert_close(tl.sequence_loss(whole), loss.values()[[0, 2, 4]].mean())


# -- spans


def test_spans_are_one_more_level():
    start, end = of([0, 1, 2], [0], [1, 0]), of([2, 1, 3], [0], [2, 2])
    spans = X.spans(start, end)
    assert spans.to_list() == [[[3, 1], [], [2]], [[]], [[4], [5, 4]]]
    means = tl.sequence_pool(spans, "sum")
    assert means.to_list() == [[4, 0, 2], [0], [4, 9]] and means.lod == start.lod


@pytest.mark.parametrize(
    "dtype", [torch.float16, torch.bfloat16, torch.int64, torch.bool, torch.complex64, torch.uint8]
)
def test_spans_of_any_dtype_and_element(dtype):
    rows = torch.arange(10).view(5, 2).to(dtype)
    spans = X.with_values(rows).spans(of([1], [], [0, 0], dtype=torch.int32), of([3], [], [2, 1], dtype=torch.uint8))
    assert spans.dtype == dtype and torch.equal(spans.values(), rows[[1, 2, 3, 4, 3]])


def test_spans_of_sentences_hold_whole_sentences():
    spans = XX.spans(of([0, 1], []), of([2, 2], []), level="document")
    assert spans.to_list() == [[[[3, 1, 2], []], [[]]], []]
    assert spans.level_names == (None, None, "sentence")
    deep = XX.spans(tl.lod_tensor([[[1], []], [[0, 0]]]), tl.lod_tensor([[[3], []], [[1, 2]]]))
    assert deep.to_list() == [[[[1, 2]], []], [[[5], [5, 4]]]]


@pytest.mark.parametrize("lengths", [[[0, 0]], [[]], [[2, 0], [0, 0]]])
def test_spans_of_nothing(lengths):
    lod = tl.LoD.from_lengths(lengths)
    x, none = tl.LoDTensor(torch.zeros(0, 3), lod), tl.LoDTensor(torch.zeros(0, dtype=torch.int64), lod)
    assert x.spans(none, none).lod.to_lengths() == [*lengths, []]


def test_gradients_of_spans_that_overlap_add_up():
    start, end = of([0, 1, 2], [0], [1, 0]), of([2, 3, 3], [0], [2, 2])

    def pooled(rows):
        return tl.sequence_pool(tl.LoDTensor(rows, X.lod).spans(start, end), "mean").values().square()

    rows = torch.randn(5, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(pooled, rows) and torch.autograd.gradgradcheck(pooled, rows)


@pytest.mark.parametrize(
    ("start", "end", "error", "said"),
    [
        (of([0], [], [1]), of([2], [], [3]), ValueError, "0 <= start <= end <= 2 in sequence 2, got 1 and 3 at row 1"),
        (of([-1], [], []), of([2], [], []), ValueError, "in sequence 0, got -1 and 2 at row 0"),
        (of([2], [], []), of([1], [], []), ValueError, "in sequence 0, got 2 and 1 at row 0"),
        (of([0], [], []), of([], [1], []), ValueError, "at level 0, sequence 0: lengths 1 and 0"),
        (of([0], []), of([1], []), ValueError, "start with as many sequences as x, 3, got 2"),
        (of([0], [], []), of([1.0], [], [], dtype=torch.float32), TypeError, "end of a signed integer dtype or uint8"),
        (
            torch.tensor([0]),
            of([1]),
            TypeError,
            "start as a LoDTensor of shape (spans,), of 1 or more levels, got a torch.i",
        ),
        (
            of([0], [], []),
            [1],
            TypeError,
            "end as a LoDTensor of shape (spans,), of 1 or more levels, got [1]; for one part",
        ),
        (of([0], [], [])[:, None], of([1], [], []), TypeError, "got one of shape (1, 1) and 1 levels"),
    ],
)
def test_wrong_spans(start, end, error, said):
    with pytest.raises(error) as raised:
        X.spans(start, end)
    assert (
        said in str(raised.value) and str(raised.value).startswith("spans: ") and isinstance(raised.value, tl.LoDError)
    )
    with pytest.raises(tl.LoDError, match="spans: expected start as a LoDTensor"):
        XX.spans(of([0], []), of([1], []))
