# SPDX-License-Identifier: Apache-2.0
"""Samples to batches: tl.batch, torch's default_collate, from_tensors of LoDTensors."""

import collections
import dataclasses

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, default_collate

import torch_lod as tl

ITEMS = [[[3, 1]], [[2]], [[1, 2, 0]]]
BATCH = [[2, 1, 3], [3, 1, 2, 1, 2, 0]]


@pytest.fixture
def items():
    count = iter(range(100))
    return [
        tl.from_lengths(torch.tensor([[next(count)] for _ in range(sum(lengths[0]))]), lengths) for lengths in ITEMS
    ]


def equal(x, lengths, values):
    assert isinstance(x, tl.LoDTensor) and x.recursive_sequence_lengths() == lengths
    assert x.values().tolist() == values.tolist()


def rows(items):
    return torch.cat([x.values() for x in items])


@pytest.mark.parametrize(
    "make", [tl.batch, default_collate, tl.from_tensors, lambda xs: next(iter(DataLoader(xs, 3, num_workers=1)))]
)
def test_lod_tensors_get_a_level(items, make):
    equal(make(items), BATCH, rows(items))


def test_equal_lod_tensors_are_not_stacked(items):
    equal(default_collate([items[0], items[0]]), [[2, 2], [3, 1, 3, 1]], rows([items[0], items[0]]))


def test_lod_tensors_in_records(items):
    first, second = items[:2]
    samples = [{"x": (first, 1)}, {"x": (second, 2)}]
    for make in (tl.batch, default_collate):
        x, label = make(samples)["x"]
        equal(x, [[2, 1], [3, 1, 2]], rows(items[:2]))
        assert label.tolist() == [1, 2]


def test_records_keep_their_classes(items):
    Pair = collections.namedtuple("Pair", "words label")

    @dataclasses.dataclass
    class Sample:
        words: object
        label: float

    for kind in (Pair, Sample):
        found = tl.batch([kind(items[0], 0.5), kind(items[1], 1.5)])
        assert type(found) is kind and found.label.tolist() == [0.5, 1.5]
        equal(found.words, [[2, 1], [3, 1, 2]], rows(items[:2]))


@pytest.mark.parametrize(
    ("samples", "lengths"),
    [
        ([torch.arange(2), torch.arange(0), torch.arange(3)], [[2, 0, 3]]),
        ([np.zeros((2, 4)), np.ones((1, 4))], [[2, 1]]),
        ([[1, 2, 3], [4]], [[3, 1]]),
        ([[[1, 2], [3]], [], [[4]]], [[2, 0, 1], [2, 1, 1]]),
        ([[torch.zeros(2), torch.zeros(1)], [torch.zeros(3)]], [[2, 1], [2, 1, 3]]),
    ],
)
def test_samples_of_one_kind(samples, lengths):
    x = tl.batch(samples, name="sample")
    assert x.recursive_sequence_lengths() == lengths
    assert x.level_names == ("sample", *[None] * (len(lengths) - 1))
    assert tl.batch(samples).level_names is None


def test_numbers_are_plain_and_other_objects_a_list():
    assert type(tl.batch([1, 2])) is torch.Tensor and tl.batch([1, 2]).tolist() == [1, 2]
    assert tl.batch([torch.tensor(1.0), torch.tensor(2.0)]).tolist() == [1.0, 2.0]
    assert tl.batch(["a", "b"]) == ["a", "b"] and tl.batch([None, None]) == [None, None]


def test_names_of_levels_stay_below_the_new_one(items):
    named = [tl.LoDTensor(x.values(), x.lod.named(["sentence"])) for x in items]
    assert tl.batch(named, name="document").level_names == ("document", "sentence")
    assert tl.batch(named).level_names == (None, "sentence")


def test_from_tensors_nests_lod_tensors(items):
    equal(tl.from_tensors([items[:2], items[2:]]), [[2, 1], *BATCH], rows(items))
    assert tl.from_tensors(items, level_names=["a", "b"]).level_names == ("a", "b")


def test_gradients_reach_the_samples(items):
    leaves = [torch.ones(sum(lengths[0]), 2, requires_grad=True) for lengths in ITEMS]
    batch = tl.batch([tl.from_lengths(leaf, lengths) for leaf, lengths in zip(leaves, ITEMS)])
    (batch.values() * torch.arange(9.0)[:, None]).sum().backward()
    assert torch.cat([leaf.grad for leaf in leaves])[:, 0].tolist() == list(range(9))


X = tl.from_lengths(torch.zeros(3), [[1, 2]])


@pytest.mark.parametrize(
    ("samples", "error", "said"),
    [
        ([], ValueError, "batch: expected at least 1 sample, got none"),
        (3, TypeError, "batch: expected items as a list of samples, got int"),
        ([X, 1], TypeError, "batch: expected samples of one kind, got LoDTensor at index 0 and number at index 1"),
        ([{"w": X}, {"v": X}], ValueError, "batch: expected equal keys, got ['w'] at index 0 and ['v'] at index 1"),
        ([(1,), (1, 2)], ValueError, "batch: expected tuples of equal length, got 1 at index 0 and 2 at index 1"),
        (
            [{"w": X}, {"w": tl.lod_tensor([[[1.0]]])}],
            ValueError,
            "batch: expected LoDTensors of equal depth, got depths [1, 2] in 'w'",
        ),
        (
            [{"w": (torch.zeros(2, 3),)}, {"w": (torch.zeros(1, 4),)}],
            ValueError,
            "batch: expected elements of one shape, got [(3,), (4,)] at position 0 in 'w'",
        ),
        ([[1, [2]], [3]], ValueError, "batch: expected sequences at nesting 2, got 1 beside lists"),
    ],
)
def test_errors_name_the_field_and_the_position(samples, error, said):
    with pytest.raises(error) as raised:
        tl.batch(samples)
    assert str(raised.value) == said


def test_from_tensors_refuses_lod_tensors_beside_tensors():
    with pytest.raises(TypeError, match="from_tensors: expected LoDTensors, got Tensor"):
        tl.from_tensors([X, torch.zeros(2)])
