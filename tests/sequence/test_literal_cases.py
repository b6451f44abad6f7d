# SPDX-License-Identifier: Apache-2.0
"""Start here: every family of operators on inputs that fit on a line, with results that can be checked by hand.

A row of a table is a call on `x` and what it gives. `x` has the sequences 3 1 2 | (empty) | 5 4, in the second table of each
family also two levels. Everything else about an operator (dtypes, gradients, strides, errors) is asked by tests/laws."""

import pytest
import torch

import torch_lod as tl

NAN = float("nan")
#: One level: 3 1 2 | | 5 4. Two levels: the same rows, whose sequences are grouped 2 and 1.
X = tl.from_lengths(torch.tensor([3.0, 1.0, 2.0, 5.0, 4.0]), [[3, 0, 2]])
XX = tl.from_lengths(X.values(), [[2, 1], [3, 0, 2]], level_names=("document", "sentence"))
#: Rows of two features.
PAIRS = tl.from_lengths(torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]), [[2, 1]])

POOL = [
    ("sum", [6, 0, 9]),
    ("mean", [2, 0, 4.5]),
    ("max", [3, 0, 5]),
    ("min", [1, 0, 4]),
    ("first", [3, 0, 5]),
    ("last", [2, 0, 4]),
    ("prod", [6, 0, 20]),
    ("median", [2, 0, 4]),
]


@pytest.mark.parametrize(("pool_type", "expected"), POOL)
def test_a_pool_makes_one_row_of_a_sequence(pool_type, expected):
    result = tl.sequence_pool(X, pool_type)
    assert type(result) is torch.Tensor and result.tolist() == expected


def test_a_pool_of_the_inner_level_keeps_the_outer_one():
    result = tl.sequence_pool(XX, "sum")
    assert result.tolist() == [6, 0, 9] and result.lod == tl.LoD.from_lengths([[2, 1]])


def test_a_pool_of_the_outer_level_takes_all_rows_under_it():
    assert tl.sequence_pool(XX, "max", level="document").tolist() == [3, 5]


def test_quantiles_are_between_the_rows_in_order():
    assert tl.sequence_quantile(X, 0.75).tolist() == [2.5, 0, 4.75]
    assert tl.sequence_quantile(XX, torch.tensor([0.0, 0.5, 1.0]), level="document").tolist() == [
        [1, 2, 3],
        [4, 4.5, 5],
    ]


#: A row for each row, computed from the rows of its sequence.
WITHIN = {
    "cumsum": (lambda x: tl.sequence_cumsum(x), [3, 4, 6, 5, 9]),
    "cumprod": (lambda x: tl.sequence_cumprod(x), [3, 3, 6, 5, 20]),
    "cummax": (lambda x: tl.sequence_cummax(x)[0], [3, 3, 3, 5, 5]),
    "softmax": (lambda x: tl.sequence_softmax(x * 0), [1 / 3, 1 / 3, 1 / 3, 1 / 2, 1 / 2]),
    "sort": (lambda x: tl.sequence_sort(x), [1, 2, 3, 4, 5]),
    "rank": (lambda x: tl.sequence_sort(x, return_rank=True)[1].float(), [2, 0, 1, 1, 0]),
    "decay": (lambda x: tl.sequence_scan(x, 0.5), [3, 2.5, 3.25, 5, 6.5]),
    "decay from the end": (lambda x: tl.sequence_scan(x, 0.5, reverse=True), [4, 2, 2, 7, 4]),
    "reverse": (lambda x: tl.sequence_reverse(x), [2, 1, 3, 4, 5]),
    "shift": (lambda x: tl.sequence_shift(x, 1), [0, 3, 1, 0, 5]),
}


@pytest.mark.parametrize("name", WITHIN)
def test_a_row_for_each_row(name):
    call, expected = WITHIN[name]
    result = call(X)
    assert result.lod == X.lod
    torch.testing.assert_close(result.values(), torch.tensor(expected, dtype=torch.float32))


#: Rows or whole sequences are moved, picked or repeated: the rows and the lengths of the result.
REARRANGE = {
    "head": (lambda: X.head(2), [3, 1, 5, 4], [[2, 0, 2]]),
    "filter": (lambda: X.filter_rows(X > 1), [3, 2, 5, 4], [[2, 0, 2]]),
    "slice": (lambda: X.seq[0:2], [3, 1, 2], [[3, 0]]),
    "pick sequences": (lambda: X.seq[[2, 0]], [5, 4, 3, 1, 2], [[2, 3]]),
    "reverse sentences": (lambda: tl.sequence_reverse(XX, level=0), [3, 1, 2, 5, 4], [[2, 1], [0, 3, 2]]),
    "concatenate within": (
        lambda: tl.cat([X, X + 10], along="within", level=-1),
        [3, 1, 2, 13, 11, 12, 5, 4, 15, 14],
        [[6, 0, 4]],
    ),
    "concatenate sequences": (lambda: tl.cat([X, X.seq[2:]]), [3, 1, 2, 5, 4, 5, 4], [[3, 0, 2, 2]]),
    "expand": (lambda: tl.sequence_expand_as(torch.tensor([7.0, 8.0, 9.0]), X), [7, 7, 7, 9, 9], [[3, 0, 2]]),
    "drop a level": (lambda: XX.drop_level(0), [3, 1, 2, 5, 4], [[3, 0, 2]]),
}


@pytest.mark.parametrize("name", REARRANGE)
def test_rows_are_moved(name):
    call, rows, lengths = REARRANGE[name]
    result = call()
    assert result.values().tolist() == rows and result.lod == tl.LoD.from_lengths(lengths)


def test_a_convolution_ends_with_its_sequence():
    ones = torch.ones(1, 1, 3)  # each row with its neighbours: 0 + 3 + 1, 3 + 1 + 2, 1 + 2 + 0 | | 0 + 5 + 4, 5 + 4 + 0
    assert tl.sequence_conv1d(X[:, None], ones).values()[:, 0].tolist() == [4, 6, 3, 9, 9]


def test_attention_sees_its_own_sequence():
    same = torch.zeros(5, 1, 1)  # equal scores: every row gets the mean of its sequence
    q = X.with_values(same)
    result = tl.sequence_attention(q, q, X.with_values(X.values().view(5, 1, 1)))
    torch.testing.assert_close(result.values().flatten(), torch.tensor([2.0, 2.0, 2.0, 4.5, 4.5]))


def test_pairs_are_rows_of_one_sequence_and_its_partner():
    other = tl.from_lengths(torch.tensor([[2.0, 3.0], [4.0, 5.0]]), [[1, 1]])
    products = tl.sequence_pairwise(PAIRS, other, "dot")  # [1 0] and [0 1] with [2 3]; [1 1] with [4 5]
    assert products.values().tolist() == [2, 3, 9]


def test_a_loop_runs_along_every_sequence():
    total, last = tl.scan(lambda row, state: (row + state, row + state), X, torch.zeros(3))
    assert total.values().tolist() == [3, 4, 6, 5, 9] and last.tolist() == [6, 0, 9]


def test_an_lstm_starts_again_with_every_sequence():
    torch.manual_seed(0)
    lstm = torch.nn.LSTM(2, 4)
    rows, (h, _) = lstm(PAIRS)
    for i, sequence in enumerate([[[1.0, 0.0], [0.0, 1.0]], [[1.0, 1.0]]]):
        alone, (h_alone, _) = lstm(torch.tensor(sequence))
        torch.testing.assert_close(rows.seq[i], alone)
        torch.testing.assert_close(h[:, i], h_alone)


def test_an_edit_distance_is_one_number_for_each_pair_of_sequences():
    a = tl.lod_tensor([[1, 2, 3], [4], []])
    b = tl.lod_tensor([[1, 3], [5], [6, 7]])
    assert tl.edit_distance(a, b).tolist() == [1, 1, 2]


def test_ctc_decoding_joins_repetitions_and_drops_blanks():
    best = tl.lod_tensor([[1, 1, 0, 1, 2], [0, 2]])  # 0 is blank
    scores = best.with_values(torch.nn.functional.one_hot(best.values(), 3).float())
    assert tl.ctc_decode(scores).to_list() == [[1, 1, 2], [2]]


def test_a_loss_is_averaged_over_rows_or_over_sequences():
    loss = X * 1.0
    assert tl.sequence_loss(loss, "token").item() == 3  # 15 / 5
    assert tl.sequence_loss(loss, "sequence").item() == pytest.approx((2 + 4.5) / 2)


#: The same rows in other people's forms, and back.
def test_padded_and_back():
    dense, lengths = X.to_padded()
    assert dense.tolist() == [[3, 1, 2], [0, 0, 0], [5, 4, 0]] and lengths.tolist() == [3, 0, 2]
    assert torch.equal(tl.from_padded(dense, lengths).values(), X.values())


def test_lists_and_back():
    assert XX.to_list() == [[[3, 1, 2], []], [[5, 4]]]
    assert tl.lod_tensor(XX.to_list()).lod == XX.lod


def test_gradients_reach_the_rows():
    x = X.detach().clone().requires_grad_()
    (tl.sequence_pool(x, "mean") * torch.tensor([1.0, 1.0, 2.0])).sum().backward()
    torch.testing.assert_close(x.grad, torch.tensor([1 / 3, 1 / 3, 1 / 3, 1.0, 1.0]))


WRONG = [
    (lambda: X + X.seq[[2, 1, 0]], "LoD"),
    (lambda: X.softmax(0), "sequence_softmax"),
    (lambda: tl.sequence_pool(X, "sum", level=1), "level"),
    (lambda: tl.from_lengths(torch.ones(3), [[1, 1]]), "rows"),
    (lambda: PAIRS - PAIRS.mean(0), "mean"),
]


@pytest.mark.parametrize(("call", "word"), WRONG)
def test_what_would_mix_sequences_raises(call, word):
    with pytest.raises(tl.LoDError, match=word):
        call()
