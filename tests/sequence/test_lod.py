# SPDX-License-Identifier: Apache-2.0
"""`LoD`: constructors and what they refuse, questions, surgery, immutability; against nested lists."""

import copy
import itertools
import pickle
import re

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from nested import X, Y, flat, lengths_of, rows_under, trees, without_level

import torch_lod as tl
from torch_lod import LoD

x, y = LoD.from_lengths(X), LoD.from_lengths(Y)
QUESTIONS = ("offsets", "lengths", "row_offsets", "row_lengths", "cu_seqlens", "segment_ids", "position_ids")
check_lod = torch.ops.torch_lod.check_lod


@st.composite
def lods(draw, min_length=0):
    """(depth, batch of nested lists, its LoD): one to three levels, empties anywhere."""
    depth, batch = draw(trees(min_length=min_length))
    return depth, batch, LoD.from_lengths(lengths_of(batch, depth))


def sums(lengths):
    return [0, *itertools.accumulate(lengths)]


# -- construction

WAYS = {
    "offsets": lambda: LoD([[0, 3, 4, 6], [0, 3, 5, 9, 10, 12, 15]]),
    "offsets, tuples": lambda: LoD(((0, 3, 4, 6), (0, 3, 5, 9, 10, 12, 15))),
    "offsets, a numpy array and a range": lambda: LoD([np.array([0, 3, 4, 6], np.int16), [0, 3, 5, 9, 10, 12, 15]]),
    "offsets, int32 tensors": lambda: LoD([torch.tensor(o, dtype=torch.int32) for o in x.to_list()]),
    "offsets, numbers of numpy and torch": lambda: LoD(
        [[np.int64(0), 3, torch.tensor(4), np.uint8(6)], x.to_list()[1]]
    ),
    "offsets, strided": lambda: LoD([torch.tensor(o).repeat_interleave(2)[::2] for o in x.to_list()]),
    "offsets, a numpy array backwards": lambda: LoD([np.array(o[::-1])[::-1] for o in x.to_list()]),
    "lengths": lambda: LoD.from_lengths(X),
    "lengths, tensors": lambda: LoD.from_lengths([torch.tensor(level) for level in X]),
    "row offsets": lambda: LoD.from_row_offsets([[0, 9, 10, 15], [0, 3, 5, 9, 10, 12, 15]]),
    "append": lambda: LoD.from_lengths(X[:1]).append(X[1]),
    "group": lambda: LoD.from_lengths(X[1:]).group(X[0]),
}


@pytest.mark.parametrize("way", WAYS)
def test_ways_to_the_same_structure(way):
    lod = WAYS[way]()
    assert lod.to_list() == [[0, 3, 4, 6], [0, 3, 5, 9, 10, 12, 15]]
    assert lod.to_lengths() == X
    assert (lod.rows, lod.depth, lod.num_sequences(), lod.level_names) == (15, 2, 3, None)
    assert lod == x and hash(lod) == hash(x)


@pytest.mark.parametrize(
    ("ids", "n", "lengths"),
    [
        ([0, 0, 2, 2, 2, 3], None, [2, 0, 3, 1]),
        ([1, 1], 4, [0, 2, 0, 0]),
        ([], None, []),
        ([], 2, [0, 0]),
        (torch.tensor([0, 1], dtype=torch.uint8), None, [1, 1]),
    ],
    ids=str,
)
def test_from_segment_ids(ids, n, lengths):
    lod = LoD.from_segment_ids(ids, n, level_names=["s"])
    assert lod.to_lengths() == [lengths] and lod.level_names == ("s",)


def test_from_row_offsets_keeps_what_empties_do_not_blur():
    assert LoD.from_row_offsets([[0, 0, 3], [0, 1, 3]]).to_lengths() == [[0, 2], [1, 2]]
    assert LoD.from_row_offsets([[0, 2], [0, 0, 2]]).to_lengths() == [[2], [0, 2]]
    assert LoD.from_row_offsets([[0, 2]], level_names=["s"]).level_names == ("s",)


# -- the five rules, each broken alone

RULES = {
    "at least one offset": ([[]], None, "expected at least 1 offset in offsets[0]", [1, 0, 0]),
    "starts at 0": ([[1, 2, 4]], None, "expected offsets[0] to start at 0, got 1", [2, 0, 0, 0, 1]),
    "never decreases": (
        [[0, 3], [0, 5, 2, 6]],
        None,
        "expected offsets[1] not to decrease, got 5 then 2 at index 2",
        [3, 1, 2, 5, 2],
    ),
    "ends at the sequences of the next": (
        [[0, 1, 3], [0, 2, 4]],
        None,
        "expected the last of offsets[0] to equal the 2 sequences of level 1, got 3 at index 2",
        [4, 0, 2, 2, 3],
    ),
    "covers the rows": ([[0, 2], [0, 1, 3]], 4, "cover the 4 rows of values, got one of 3 rows", [4, 1, 2, 4, 3]),
}


@pytest.mark.parametrize("rule", RULES)
def test_rule(rule):
    offsets, rows, message, _ = RULES[rule]
    with pytest.raises(tl.LoDError, match=re.escape(message)) as raised:
        lod = LoD(offsets)
        if rows is not None:
            tl.LoDTensor(torch.zeros(rows), lod)
    assert isinstance(raised.value, ValueError)


@pytest.mark.parametrize("rule", RULES)
def test_report_of_a_rule(rule):
    offsets, rows, _, report = RULES[rule]
    levels = [torch.tensor(level, dtype=torch.int64) for level in offsets]
    assert list(check_lod(levels, -1 if rows is None else rows))[: len(report)] == report


@pytest.mark.parametrize(
    "wrong", [torch.zeros(3), torch.zeros(3).int(), torch.zeros(1, 3).long()], ids=("float", "int32", "2-D")
)
def test_offsets_of_another_kind_are_refused(wrong):
    with pytest.raises(TypeError, match="check_lod: expected contiguous 1-D int64 offsets in host memory"):
        check_lod([torch.tensor([0, 2]), wrong], 6)


def test_report_of_a_valid_lod_is_zero_and_the_longest_of_every_level():
    levels = [torch.tensor(level) for level in x.to_list()]
    assert list(check_lod(levels, 15)) == [0, 15, 3, 4]
    assert list(check_lod(levels, -1)) == [0, 15, 3, 4]
    assert list(check_lod([torch.tensor([0])], 0)) == [0, 0, 0]


# -- runs of a level, with the levels below


LEVELS = ([], [[0, 2, 2, 5, 6]], [[0, 0, 3, 4, 4], [0, 2, 2, 5, 6]], [[0, 1, 1, 3, 3], [0, 2, 2, 4], [0, 3, 3, 3, 5]])
RUNS = ([], [(0, 4)], [(2, 1), (0, 2), (1, 0), (1, 3), (2, 1)], [(4, 0), (0, 0)], [(3, 1)] * 3)


@pytest.mark.parametrize("levels", LEVELS, ids=len)
@pytest.mark.parametrize("runs", RUNS, ids=len)
@pytest.mark.parametrize("kept", [False, True])
def test_take_runs_equals_nested_lists(levels, runs, kept):
    def tree(k, i):
        return i if k == len(levels) else [tree(k + 1, j) for j in range(*levels[k][i : i + 2])]

    def rows(k, i):
        return i if k == len(levels) else rows(k + 1, levels[k][i])

    def rows_in(items, k):
        return len(items) if k == len(levels) else sum(rows_in(item, k + 1) for item in items)

    nested = [[tree(0, i) for i in range(s, s + n)] for s, n in runs]
    expected, items = [], nested
    for _ in range(len(levels) + 1):
        expected.append([len(item) for item in items])
        items = [part for item in items for part in item]
    whole, of_rows = len(items), [rows_in(run, 0) for run in nested]
    given = [torch.tensor(level) for level in levels]
    starts, lengths = (torch.tensor([run[i] for run in runs], dtype=torch.int64) for i in (0, 1))
    taken, begin, report = torch.ops.torch_lod.take_runs(given, starts, lengths, 4, kept)
    assert [level.diff().tolist() for level in taken] == [*expected, *([of_rows] if levels else [])]
    assert all(int(level[0]) == 0 for level in taken)
    assert begin.tolist() == [rows(0, s) for s, _ in runs]
    assert list(report) == [whole, *(max(level, default=0) for level in expected)]
    with torch.inference_mode():
        again = torch.ops.torch_lod.take_runs(given, starts, lengths, 4, kept)
    assert not any(t.is_inference() for t in (*again[0], again[1]))


@pytest.mark.parametrize("levels", LEVELS[1:], ids=len)
@pytest.mark.parametrize("count", [1, 2, 5])
@pytest.mark.parametrize("kept", [False, True])
def test_join_lods_equals_joined_lists(levels, count, kept):
    empty = [[0]] * len(levels)
    many = [levels if i % 2 == 0 else empty for i in range(count)]
    given = [torch.tensor(level) for lod in many for level in lod]
    joined, report = torch.ops.torch_lod.join_lods(given, len(levels), kept)
    for k, level in enumerate(joined):
        lengths = [n for lod in many for n in torch.tensor(lod[k]).diff().tolist()]
        assert level.diff().tolist() == lengths and level[0] == 0
        assert report[k + 1] == max(lengths, default=0)
    assert report[0] == joined[-1][-1]
    with torch.inference_mode():
        again = torch.ops.torch_lod.join_lods(given, len(levels), kept)[0]
    assert not any(t.is_inference() for t in again)


@pytest.mark.parametrize("levels", LEVELS[1:], ids=len)
@pytest.mark.parametrize("kept", [False, True])
def test_cut_lod_equals_sliced_lists(levels, kept):
    depth, n = len(levels), len(levels[0]) - 1

    def tree(k, i):
        return i if k == depth else [tree(k + 1, j) for j in range(*levels[k][i : i + 2])]

    given = [torch.tensor(level) for level in levels]
    for begin, end in itertools.combinations_with_replacement(range(n + 1), 2):
        with torch.inference_mode(begin == 1):
            cut, report = torch.ops.torch_lod.cut_lod(given, begin, end, kept)
        items, longest = [tree(0, i) for i in range(begin, end)], []
        for level in cut:
            lengths = [len(item) for item in items]
            assert level.diff().tolist() == lengths and level[0] == 0 and not level.is_inference()
            longest.append(max(lengths, default=0))
            items = [part for item in items for part in item]
        assert list(report[1:]) == [len(items), *longest]
        assert items == list(range(report[0], report[0] + len(items)))


#: LoDs of two sequences, which may be empty: the levels and their depth.
PAIRS = (
    ([[0, 2, 3]], [[0, 0, 4]], [[0, 0, 0]]),
    ([[0, 2, 3], [0, 1, 1, 4]], [[0, 0, 2], [0, 2, 5]], [[0, 0, 0], [0]]),
    ([[0, 1, 3], [0, 2, 2, 3], [0, 1, 4, 4]], [[0, 2, 2], [0, 0, 2], [0, 3, 3]], [[0, 1, 1], [0, 1], [0, 0]]),
)


@pytest.mark.parametrize("lods", PAIRS, ids=lambda lods: f"{len(lods[0])} levels")
@pytest.mark.parametrize("turns", ["a", "ab", "ba", "abc", "cab", "aa"])
@pytest.mark.parametrize("kept", [False, True])
def test_join_lods_within_equals_joined_lists(lods, turns, kept):
    depth, many = len(lods[0]), [lods["abc".index(turn)] for turn in turns]

    def tree(lod, k, i):
        return i if k == depth else [tree(lod, k + 1, j) for j in range(*lod[k][i : i + 2])]

    expected = [[part for lod in many for part in tree(lod, 0, i)] for i in range(2)]
    joined, report = torch.ops.torch_lod.join_lods(
        [torch.tensor(level) for lod in many for level in lod], depth, kept, True
    )
    for k, level in enumerate(joined):
        lengths = [len(item) for item in expected]
        assert level.diff().tolist() == lengths and level[0] == 0
        assert report[k + 1] == max(lengths, default=0)
        expected = [part for item in expected for part in item]
    assert report[0] == joined[-1][-1] == len(expected)


def test_join_lods_within_without_sequences():
    joined, report = torch.ops.torch_lod.join_lods([torch.zeros(1, dtype=torch.int64)] * 4, 2, True, True)
    assert [level.tolist() for level in joined] == [[0], [0]] and list(report) == [0, 0, 0]


@pytest.mark.parametrize("k", [0, 1])
def test_lods_joined_within_an_inner_level(k):
    lod = LoD([[0, 1, 3], [0, 2, 2, 3], [0, 1, 4, 4]], level_names=("a", "b", "c"))
    joined = LoD.joined([lod, lod], k)
    assert joined == LoD(joined.to_list()) and joined.level_names == lod.level_names
    assert [joined.max_length(j) for j in range(3)] == [LoD(joined.to_list()).max_length(j) for j in range(3)]
    assert joined.levels[:k] == lod.levels[:k] and joined.rows == 8


def test_long_lods_joined_piece_by_piece():
    lengths = [torch.arange(n) % 7 for n in (5000, 2048, 1, 2049)]
    lods = [tl.LoD.from_lengths([n]) for n in lengths]
    joined = tl.LoD.joined(lods)
    assert torch.equal(joined.levels[0].diff(), torch.cat(lengths))
    assert joined.max_length(0) == 6 and joined.rows == int(torch.cat(lengths).sum())


def test_runs_without_starts_are_first_in_their_segments():
    cut = torch.tensor([0, 3, 3, 5, 9])
    taken, begin, report = torch.ops.torch_lod.take_runs([], None, torch.tensor([2, 0, 2, 1]), 9, True, cut)
    assert [t.tolist() for t in taken] == [[0, 2, 2, 4, 5]]
    assert begin.tolist() == [0, 3, 3, 5] and list(report) == [5, 2]


@pytest.mark.parametrize("taken", [[3, 0, 2, 4], [3, 0, 2, 1], [3, 0, 0, 0], [2, 0, 2, 4], [0, 0, 2, 4]])
def test_rows_of_runs_within_segments(taken):
    x = torch.arange(9.0)
    cut, lengths = torch.tensor([0, 3, 3, 5, 9]), torch.tensor(taken)
    for starts in (None, cut.diff() - lengths):
        offsets, begin, _ = torch.ops.torch_lod.take_runs([], starts, lengths, 9, True, cut)
        first = cut[:-1] if starts is None else cut[:-1] + starts
        want = torch.cat([x[b : b + n] for b, n in zip(first.tolist(), taken)])
        assert torch.equal(tl.ops.gather_runs(x, begin, offsets[0], len(want)), want)


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("most", [0, 1, 2, 3, 2**63 - 1])
@pytest.mark.parametrize("levels", [[], [torch.tensor([0, 2, 2, 5, 6, 9, 9, 9, 10, 11])]], ids=len)
def test_parts_of_segments_are_runs_of_limited_lengths(levels, most, last):
    cut = torch.tensor([0, 3, 3, 5, 9])
    lengths = cut.diff().clamp(max=most)
    starts = cut.diff() - lengths if last else None
    wanted = torch.ops.torch_lod.take_runs(levels, starts, lengths, 9, True, cut)
    found = torch.ops.torch_lod.take_runs(levels, None, None, 9, True, cut, most, last)
    torch.testing.assert_close(found, wanted, rtol=0, atol=0)


def test_classes_of_ones_own():
    class Own(tl.LoD):
        pass

    class Slim(tl.LoD):
        __slots__ = ()

    class Wide(tl.LoD):
        __slots__ = ("more",)

    for cls in (Own, Slim, Wide):
        own = cls([[0, 2, 3], [0, 1, 1, 4]], level_names=("a", "b"))
        assert type(own) is cls and own == tl.LoD([[0, 2, 3], [0, 1, 1, 4]])
        assert own.rows == 4 and own.max_length(-1) == 3 and own.level_names == ("a", "b")
        with pytest.raises(AttributeError, match="immutable"):
            own.levels = ()


def test_parts_of_many_segments():
    lengths = torch.arange(5000) % 7
    x = tl.from_lengths(torch.arange(float(lengths.sum())), [lengths])
    for part, rows in ((x.head(3), [t[:3] for t in x.sequences()]), (x.tail(3), [t[-3:] for t in x.sequences()])):
        assert torch.equal(part.values(), torch.cat(rows))
        assert torch.equal(part.lengths(), lengths.clamp(max=3)) and part.max_length() == 3


def test_runs_counted_within_their_own_segments():
    inner, cut = torch.tensor([0, 2, 2, 5, 6, 9]), torch.tensor([0, 3, 3, 5])
    starts, lengths = torch.tensor([1, 0, 0]), torch.tensor([2, 0, 1])
    taken, begin, report = torch.ops.torch_lod.take_runs([inner], starts, lengths, 5, True, cut)
    assert [t.tolist() for t in taken] == [[0, 2, 2, 3], [0, 0, 3, 4], [0, 3, 3, 4]]
    assert begin.tolist() == [2, 5, 5] and list(report) == [4, 2, 3]
    assert starts.tolist() == [1, 0, 0]


# -- questions


def test_questions_of_the_example():
    lod = x.with_level_names(["article", "sentence"])
    for level, k in ((0, 0), (1, 1), (-1, 1), (-2, 0), (np.int64(0), 0), ("article", 0), ("sentence", 1)):
        assert lod.lengths(level).tolist() == X[k]
        assert lod.num_sequences(level) == [3, 6][k] and lod.max_length(level) == [3, 4][k]
    assert lod.row_offsets("article").tolist() == [0, 9, 10, 15]
    assert lod.row_offsets().tolist() == lod.offsets().tolist() == [0, 3, 5, 9, 10, 12, 15]
    assert lod.offsets(0).tolist() == [0, 3, 4, 6]
    assert lod.row_lengths(0).tolist() == [9, 1, 5]
    assert lod.cu_seqlens(0).tolist() == [0, 9, 10, 15] and lod.cu_seqlens().dtype == torch.int32
    assert lod.segment_ids(0).tolist() == [0] * 9 + [1] + [2] * 5
    assert lod.position_ids().tolist() == [0, 1, 2, 0, 1, 0, 1, 2, 3, 0, 0, 1, 0, 1, 2]
    for question in set(QUESTIONS) - {"cu_seqlens"}:
        assert getattr(lod, question)().dtype == torch.int64 and getattr(lod, question)().is_cpu
    assert lod.row_offsets(0, device="cpu").tolist() == [0, 9, 10, 15]
    assert lod.row_offsets(0, device="meta").is_meta and lod.row_offsets(0).is_cpu


@pytest.mark.parametrize(
    ("lengths", "trivial"),
    [
        ([[1, 1, 1]], True),
        ([[]], True),
        ([[1, 2]], False),
        ([[2, 0]], False),
        ([[1, 0]], False),
        ([[2], [1, 1]], False),
    ],
    ids=str,
)
def test_is_trivial(lengths, trivial):
    assert LoD.from_lengths(lengths).is_trivial is trivial


@settings(max_examples=60, deadline=None)
@given(lods())
def test_questions_agree_with_nested_lists(drawn):
    depth, batch, lod = drawn
    lengths = lengths_of(batch, depth)
    assert lod.to_lengths() == lengths and lod.to_list() == [sums(level) for level in lengths]
    assert LoD(lod.to_list()) == lod and lod.depth == depth and lod.rows == len(flat(batch, depth))
    for k in range(depth):
        parts = rows_under(batch, depth, k)
        assert lod.num_sequences(k) == len(parts) and lod.max_length(k) == max(lengths[k], default=0)
        assert lod.row_offsets(k).tolist() == lod.cu_seqlens(k).tolist() == sums(map(len, parts))
        assert lod.row_lengths(k).tolist() == [len(part) for part in parts]
        assert lod.segment_ids(k).tolist() == [i for i, part in enumerate(parts) for _ in part]
        assert lod.position_ids(k).tolist() == [j for part in parts for j in range(len(part))]
    assert LoD.from_segment_ids(lod.segment_ids(), lod.num_sequences(-1)).to_lengths() == lengths[-1:]


@settings(max_examples=60, deadline=None)
@given(lods(min_length=1))
def test_row_offsets_alone_tell_the_structure_where_nothing_is_empty(drawn):
    depth, _, lod = drawn
    assert LoD.from_row_offsets([lod.row_offsets(k) for k in range(depth)]) == lod


# -- surgery


def test_surgery_of_the_examples():
    assert x.drop_level(0).to_lengths() == [[3, 2, 4, 1, 2, 3]]
    assert x.drop_level(-1).to_lengths() == [[9, 1, 5]]
    assert y.drop_level(1).to_lengths() == [[3, 1], [2, 1, 3, 1]]
    assert x.drop_level(0).drop_level(0) is None
    assert x.flatten(0, 1).to_lengths() == [[3, 2, 4, 1, 2, 3]] and x.flatten(1, 1) == x
    assert x.outer(0) is None and x.outer(1).to_lengths() == [[3, 1, 2]] and x.outer(-1).rows == 6
    assert y.outer(2).to_lengths() == [[2, 1], [1, 2, 1]]
    assert x.group([2, 1]).to_lengths() == [[2, 1], *X]
    assert x.append([1, 0] + [2] * 13).to_lengths() == [*X, [1, 0] + [2] * 13]
    assert x.slice(0, 2).to_lengths() == x.branch(2).to_lengths() == [[2], [2, 3]]
    assert x.slice(1, 2).to_lengths() == [[4]] and x.branch(2, 0).to_lengths() == [[2]]
    assert x.slice(0, 2).slice(1, 1).to_lengths() == [[3]]
    assert y.slice(1, 1).to_lengths() == y.branch(0, 1).to_lengths() == [[2], [1, 3]]
    assert y.branch(0, 1, 0).to_lengths() == [[1]]
    assert x.slice(1, 1, 4).to_lengths() == [[2, 4, 1]]
    assert x.slice(0, -1) == x.slice(0, 2) and x.branch(-1, -2) == x.branch(2, 0)
    assert x.slice(0, 1, 1).to_lengths() == [[], []]


@settings(max_examples=60, deadline=None)
@given(lods(), st.data())
def test_surgery_agrees_with_nested_lists(drawn, data):
    depth, batch, lod = drawn
    k = data.draw(st.integers(0, depth - 1))
    parts = flat(batch, k)
    begin = data.draw(st.integers(0, len(parts)))
    end = data.draw(st.integers(begin, len(parts)))
    assert lod.slice(k, begin, end).to_lengths() == lengths_of(parts[begin:end], depth - k)
    for j, part in enumerate(parts):
        assert lod.slice(k, j).to_lengths() == lengths_of([part], depth - k)
    if depth > 1:
        assert lod.drop_level(k).to_lengths() == lengths_of(without_level(batch, k), depth - 1)
    assert (lod.outer(k).to_lengths() if k else lod.outer(k)) == (lengths_of(batch, depth)[:k] if k else None)
    flattened = batch
    for _ in range(k):
        flattened = without_level(flattened, 0)
    assert lod.flatten(0, k).to_lengths() == lengths_of(flattened, depth - k)


@settings(max_examples=40, deadline=None)
@given(lods())
def test_group_and_append_undo_drop_level_and_outer(drawn):
    depth, batch, lod = drawn
    assume(depth > 1)
    lengths = lengths_of(batch, depth)
    assert lod.drop_level(0).group(lengths[0]) == lod
    assert lod.outer(-1).append(lengths[-1]) == lod


def test_names_follow_their_levels():
    lod = LoD.from_lengths(Y, level_names=["book", None, "line"])
    assert lod.level_names == ("book", None, "line") and lod.lengths("line").tolist() == Y[2]
    assert lod.drop_level("book").level_names == (None, "line")
    assert lod.drop_level(1).level_names == lod.flatten(1, 2).level_names == ("book", "line")
    assert lod.slice(1, 0).level_names == (None, "line") and lod.branch(0, 0, 0).level_names == ("line",)
    assert lod.outer("line").level_names == ("book", None)
    assert lod.outer(1).drop_level("book") is None
    assert lod.group([2], "shelf").level_names == ("shelf", "book", None, "line")
    assert lod.append([1] * 7, "word").level_names == ("book", None, "line", "word")
    assert y.append([1] * 7).level_names is None
    assert lod.with_level_names(None).level_names is None and lod.with_level_names([None] * 3).level_names is None
    with pytest.raises(ValueError, match="group: expected level_names"):
        lod.group([2], "book")


# -- values


def test_equality_and_hash_are_those_of_the_offsets():
    assert x == x.with_level_names(["a", "b"]) and hash(x) == hash(x.with_level_names(["a", "b"]))
    assert x != y and x != LoD.from_lengths([[3, 1, 2], [3, 2, 4, 1, 3, 2]]) and x != x.drop_level(0)
    assert x != X and x != 3 and x is not None
    assert len({x, LoD.from_lengths(X), y, LoD(x.to_list(), level_names=["a", "b"])}) == 2


def test_repr():
    assert repr(x) == "LoD([[3, 1, 2], [3, 2, 4, 1, 2, 3]])"
    assert repr(x.with_level_names(["a", None])) == "LoD([[3, 1, 2], [3, 2, 4, 1, 2, 3]], level_names=('a', None))"
    assert repr(LoD.from_lengths([[2] * 12])) == "LoD([[2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2]])"
    assert repr(LoD.from_lengths([range(20)])) == "LoD([[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, ... 8 more ..., 19]])"


def test_pickle_and_copy():
    lod = x.with_level_names(["a", None])
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        again = pickle.loads(pickle.dumps(lod, protocol))
        assert again == lod and again.level_names == ("a", None) and again.rows == 15 and again.max_length() == 4
    assert copy.copy(lod) is lod and copy.deepcopy([lod])[0] is lod
    load, (offsets, names) = lod.__reduce__()
    offsets[1][3] = 4
    with pytest.raises(ValueError, match="not to decrease"):
        load(offsets, names)


def test_attributes_cannot_be_changed():
    lod = LoD.from_lengths(X)
    for name in ("rows", "level_names", "depth", "_offsets", "_cache", "anything"):
        with pytest.raises(AttributeError, match="immutable"):
            setattr(lod, name, 1)
        with pytest.raises(AttributeError, match="immutable"):
            delattr(lod, name)
    assert lod == x and lod.rows == 15


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("level", [0, 1])
def test_what_is_handed_out_does_not_write_back(question, level):
    lod = LoD.from_lengths(X)
    before = getattr(lod, question)(level).tolist()
    for _ in range(2):  # made, then from the cache
        getattr(lod, question)(level).add_(7)
        getattr(lod, question)(level).numpy()[...] = 5
        assert getattr(lod, question)(level).tolist() == before
    lod.to_list()[0][1] = lod.to_lengths()[1][0] = 99
    assert lod == x and hash(lod) == hash(x) and repr(lod) == repr(x)


def test_what_was_passed_in_is_copied():
    inner = torch.tensor([0, 3, 5, 9, 10, 12, 15])
    array = np.array([0, 3, 4, 6])
    rows = [[0, 9, 10, 15], [0, 3, 5, 9, 10, 12, 15]]
    lod, other, alias = LoD([array, inner]), LoD.from_row_offsets(rows), LoD([inner])
    inner.numpy()[1] = 1
    inner[2] = 77
    array[1] = 0
    rows[0][1] = 0
    assert lod == other == x and alias.to_lengths() == X[1:]
    lengths = torch.tensor([1, 2])
    made = LoD.from_lengths([[2], lengths]), LoD.from_lengths([[1, 1]]).append(lengths), LoD.from_segment_ids(lengths)
    lengths.zero_()
    assert [m.to_lengths() for m in made] == [[[2], [1, 2]], [[1, 1], [1, 2]], [[0, 1, 1]]]


def test_levels_by_the_thousand():
    lod = LoD.from_lengths([[1]] * 2000)
    assert lod.depth == 2000 and lod.rows == 1 and lod.row_offsets(0).tolist() == [0, 1]
