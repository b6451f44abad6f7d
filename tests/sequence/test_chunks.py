# SPDX-License-Identifier: Apache-2.0
"""Chunks counted over batches, and what a chunk is, by hand; the operator's laws are those of every operator."""

import pytest
import torch

import torch_lod as tl


@pytest.mark.parametrize(
    ("scheme", "types", "tags", "chunks"),
    [
        ("IOB", 2, [0, 1, 1, 0, 4, 2, 3, 1], 4),  # B0 I0 I0 | B0 | O | B1 I1 | I0
        ("IOE", 2, [0, 1, 1, 4, 0, 0, 2], 4),  # I0 E0 | E0 | O | I0 I0 | I1
        ("IOBES", 1, [0, 1, 2, 3, 3, 4, 1, 2, 1], 5),  # B I E | S | S | O | I E | I
        ("plain", 2, [0, 0, 1, 1, 2, 1], 3),
    ],
)
def test_a_chunk_is(scheme, types, tags, chunks):
    x = tl.from_lengths(torch.tensor(tags), [[len(tags)]])
    scores = tl.chunk_eval(x, x, scheme, types)
    assert [int(n) for n in scores[3:]] == [chunks] * 3 and [float(v) for v in scores[:3]] == [1.0] * 3


def test_a_chunk_ends_with_its_sequence():
    tags = torch.tensor([0, 1, 1, 1])
    two = tl.from_lengths(tags, [[1, 1], [2, 2]])
    assert int(tl.chunk_eval(two, two, "IOB", 1).labelled) == 2
    assert int(tl.chunk_eval(two, two, "IOB", 1, level=0).labelled) == 2
    one = tl.from_lengths(tags, [[2], [2, 2]])
    assert int(tl.chunk_eval(one, one, "IOB", 1, level=0).labelled) == 1


def test_batches_are_summed():
    g = torch.Generator().manual_seed(0)
    x, label = (tl.from_lengths(torch.randint(7, (400,), generator=g), [[10] * 40]) for _ in range(2))
    whole = tl.chunk_eval(x, label, "IOB", 3, [1])
    metric = tl.ChunkEvaluator("IOB", 3, [1])
    assert all(float(v) == 0 for v in metric.compute())
    for begin in range(0, 40, 8):
        part = [t.slice(0, begin, begin + 8) for t in (x, label)]
        assert metric.update(*part) == tl.chunk_eval(*part, "IOB", 3, [1])
    assert metric.compute() == whole and 0 < int(whole.correct) < int(whole.labelled)
    metric.reset()
    metric.update(label, label)
    assert float(metric.compute().f1) == 1


def test_a_wrong_batch_is_refused_and_not_counted():
    metric, x = tl.ChunkEvaluator("IOB", 1), tl.from_lengths(torch.tensor([0, 1, 2]), [[1, 2]])
    metric.update(x, x)
    with pytest.raises(
        IndexError, match=r"^ChunkEvaluator.update: expected tags of x in \[0, 2\], got 4 at position 1 "
    ):
        metric.update(x * 2, x)
    assert int(metric.compute().labelled) == 2
    with pytest.raises(ValueError, match=r"^ChunkEvaluator: expected chunk_scheme among"):
        tl.ChunkEvaluator("BIO", 1)


def test_names_say_what_numbers_are():
    """The same tags in three numberings: what a permutation of the names does to the numbers, the score does not see."""
    g = torch.Generator().manual_seed(1)
    x, label = (tl.from_lengths(torch.randint(5, (300,), generator=g), [[10] * 30]) for _ in range(2))
    names = ["B-PER", "I-PER", "B-LOC", "I-LOC", "O"]  # as chunk_eval numbers them
    expected = tl.chunk_eval(x, label, "IOB", 2)
    assert tl.chunk_f1(x, label, names) == expected and 0 < int(expected.correct) < int(expected.labelled)
    for order in ([4, 0, 1, 2, 3], [3, 4, 1, 0, 2]):
        number = torch.tensor(order).argsort()
        found, right = (t.with_values(number[t.values()]) for t in (x, label))
        assert tl.chunk_f1(found, right, tuple(names[i] for i in order)) == expected


def test_words_without_a_tag_are_left_out_where_the_message_says():
    names = ["O", "B-a", "I-a"]
    tags = tl.from_lengths(torch.tensor([1, -100, 2, 0, 1, -100]), [[4, 2]])
    with pytest.raises(IndexError, match=r"^chunk_f1: .*left out by filter\(tags >= 0\)"):
        tl.chunk_f1(tags.clamp(min=0), tags, names)
    found = tl.from_lengths(torch.tensor([1, 1, 2, 0, 1, 2]), [[4, 2]])
    scores = tl.chunk_f1(found.filter(tags >= 0), tags.filter(tags >= 0), names)
    assert [int(n) for n in scores[3:]] == [2, 2, 2]
