# SPDX-License-Identifier: Apache-2.0
"""Samples to batches: tl.batch, torch's default_collate, from_tensors of LoDTensors."""

import collections
import collections.abc
import dataclasses
import decimal
import fractions
import random

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


def test_numbers_that_torch_lacks_are_a_list():
    for numbers in ([decimal.Decimal(1), decimal.Decimal(2)], [fractions.Fraction(1, 2)]):
        assert tl.batch(numbers) == numbers


def test_numbers_are_plain_and_other_objects_a_list():
    assert type(tl.batch([1, 2])) is torch.Tensor and tl.batch([1, 2]).tolist() == [1, 2]
    assert tl.batch([torch.tensor(1.0), torch.tensor(2.0)]).tolist() == [1.0, 2.0]
    assert tl.batch(["a", "b"]) == ["a", "b"] and tl.batch([None, None]) == [None, None]


def test_rows_taken_one_by_one_are_numbers_like_others():
    for lengths in ([1, 1, 1], [2, 0, 1]):
        x = tl.from_lengths(torch.arange(3.0, requires_grad=True), [lengths])
        rows = list(x)
        found = tl.batch(rows)
        assert type(found) is torch.Tensor and found.tolist() == [0, 1, 2] and found.requires_grad
        for count in (1, 2):
            assert tl.batch([rows] * count).to_list() == [[0, 1, 2]] * count
        assert type(tl.batch([{"a": row} for row in rows])["a"]) is torch.Tensor


def test_what_became_of_rows_is_stacked_in_workers_as_without():
    x = tl.from_lengths(torch.rand(3, 2), [[2, 1]])
    for samples in ([x.mean(0)] * 2, [x.t()] * 2, list(x)):
        here, there = (next(iter(DataLoader(samples, 2, num_workers=n))) for n in (0, 1))
        assert repr(here) == repr(there) and here.lod == x.lod


def test_names_of_levels_stay_below_the_new_one(items):
    named = [tl.LoDTensor(x.values(), x.lod.with_level_names(["sentence"])) for x in items]
    assert tl.batch(named, name="document").level_names == ("document", "sentence")
    assert tl.batch(named).level_names == (None, "sentence")


def test_from_tensors_nests_lod_tensors(items):
    equal(tl.from_tensors([items[:2], items[2:]]), [[2, 1], *BATCH], rows(items))
    assert tl.from_tensors(items, level_names=["a", "b"]).level_names == ("a", "b")


def test_lists_of_records_are_a_level_of_each_field(items):
    Word = collections.namedtuple("Word", "text tag")

    @dataclasses.dataclass
    class Line:
        words: object
        label: int

    words = [[Word("to", 1), Word("be", 2)], [Word("or", 1)]]
    found = tl.batch(words, name="line")
    assert type(found) is Word and found.text == [["to", "be"], ["or"]] and found.tag.level_names == ("line",)
    equal(found.tag, [[2, 1]], torch.tensor([1, 2, 1]))
    pages = [[Line(items[0], 3), Line(items[1], 4)], [Line(items[2], 5)], []]
    found = tl.batch(pages)
    equal(found.words, [[2, 1, 0], *BATCH], rows(items))
    equal(found.label, [[2, 1, 0]], torch.tensor([3, 4, 5]))
    found = tl.batch([[[{"id": [7, 8]}], []], [[{"id": []}, {"id": [9]}]]], "page")["id"]
    equal(found, [[2, 1], [1, 0, 2], [2, 0, 1]], torch.tensor([7, 8, 9]))


def test_strings_become_bytes_or_what_a_function_makes_of_them():
    x = tl.batch(["h\u00e9", "", "no"], strings="bytes")
    equal(x, [[3, 0, 2]], torch.tensor([*"h\u00e9".encode(), *b"no"]))
    assert x.dtype == torch.uint8
    x = tl.batch([{"lines": ["a b c", ""]}, {"lines": ["d"]}], strings=lambda text: [ord(c) for c in text.split()])
    equal(x["lines"], [[2, 1], [3, 0, 1]], torch.tensor([97, 98, 99, 100]))
    x = tl.batch([["a b"], []], strings=lambda text: {"ids": torch.arange(len(text)), "mask": [1]})
    equal(x["ids"], [[1, 0], [3]], torch.arange(3))
    equal(x["mask"], [[1, 0], [1]], torch.ones(1))
    assert tl.batch([["a"], []]) == [["a"], []] and tl.data.collate is tl.batch


def test_what_a_function_makes_of_strings_may_have_strings():
    assert tl.batch(["the cat", "it"], strings=str.split) == [["the", "cat"], ["it"]]
    assert tl.batch([["the cat"], []], strings=str.split) == [[["the", "cat"]], []]
    read = tl.batch(["ab", "c"], strings=lambda text: {"text": text, "ids": list(map(ord, text))})
    assert read["text"] == ["ab", "c"] and read["ids"].to_list() == [[97, 98], [99]]


def test_arrays_of_objects_are_lists():
    def array(*rows):
        made = np.empty(len(rows), dtype=object)
        made[:] = rows
        return made

    one, two = np.arange(3), np.arange(1)
    for samples in ([array(one, two), array(one)], array([[0, 1, 2], [0]], [[0, 1, 2]]).tolist(), [[one, two], [one]]):
        equal(tl.batch(samples), [[2, 1], [3, 1, 3]], torch.tensor([0, 1, 2, 0, 0, 1, 2]))
    equal(tl.batch([array(1, 2), array(3)]), [[2, 1]], torch.tensor([1, 2, 3]))


def test_many_numbers_are_what_a_few_are():
    draw = random.Random(0)
    for numbers in ([1, 2], [1, 2.5], [0.1, 1e300], [True, False], [True, 2], [-(2**63), 2**63 - 1], [1j, 2]):
        many = [[draw.choice(numbers) for _ in range(100)], numbers]
        x = tl.batch(many)
        torch.testing.assert_close(x.values(), torch.tensor(many[0] + many[1]), rtol=0, atol=0)
        assert tl.lod_tensor(many).dtype == x.dtype
    assert tl.lod_tensor([[1] * 99], dtype=torch.int8).dtype == torch.int8
    with pytest.raises(ValueError, match="batch: expected numbers in rows of one shape"):
        tl.batch([[2**63]])


def test_records_whose_class_takes_no_dict():
    samples = [collections.defaultdict(list, words=[1, 2]), collections.defaultdict(list, words=[3])]
    equal(tl.batch(samples)["words"], [[2, 1]], torch.tensor([1, 2, 3]))


class Table(collections.abc.Mapping):
    """Iterates over its rows, not its keys, as a TensorDict does."""

    def __init__(self, **columns):
        self.columns = columns

    def __getitem__(self, key):
        return self.columns[key]

    def keys(self):
        return self.columns.keys()

    def __len__(self):
        return 0

    def __iter__(self):
        raise TypeError("a table without rows")


@dataclasses.dataclass(frozen=True)
class Counted:
    """One of whose fields is made of the others, and not given."""

    ids: list
    start: dataclasses.InitVar[int]
    count: int = dataclasses.field(init=False)

    def __post_init__(self, start):
        object.__setattr__(self, "count", start + len(self.ids))


def test_fields_that_a_dataclass_makes_are_batches_as_well():
    found = tl.batch([Counted([1, 2, 3], 10), Counted([4], 20)])
    assert type(found) is Counted and found.ids.to_list() == [[1, 2, 3], [4]] and found.count.tolist() == [13, 21]
    assert tl.batch([[Counted([1], 0)]]).count.to_list() == [[1]]


def test_mappings_that_do_not_iterate_over_keys():
    found = tl.batch([Table(words=[1, 2], label=0), Table(label=1, words=[3])])
    equal(found["words"], [[2, 1]], torch.tensor([1, 2, 3]))
    with pytest.raises(ValueError, match=r"expected equal keys, got \['a'\] at index 0 and \['b'\] at index 1"):
        tl.batch([Table(a=1), Table(b=1)])


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
        (
            [{"w": [[1], 2]}, {"w": [[3]]}],
            ValueError,
            "batch: expected sequences at nesting 2, got 2 beside lists in 'w'",
        ),
        (
            [(torch.ones(2),), (torch.ones(1).long(),)],
            TypeError,
            "batch: expected rows of one dtype, got float32 at index 0 and int64 at index 1 at position 0",
        ),
        (
            [np.ones(2), torch.ones(1)],
            TypeError,
            "batch: expected rows of one dtype, got float64 at index 0 and float32 at index 1",
        ),
        (
            [X, tl.from_lengths(torch.zeros(1).half(), [[1]])],
            TypeError,
            "got float32 at index 0 and float16 at index 1",
        ),
        ([{"n": 1}, {"n": np.float32(2)}], TypeError, "got int64 at index 0 and float32 at index 1 in 'n'"),
        (
            [[1, "a"], [2]],
            TypeError,
            "expected lists of numbers, of tensors, of strings or of records, got number and, 1 items later, str",
        ),
        ([[{"a": 1}, {"b": 1}]], ValueError, "expected equal keys, got ['a'] at index 0 and ['b'] at index 1"),
        ([np.array(["a"])], TypeError, "expected tensors of a dtype that torch has, got an array of <U1"),
        ([np.array(None)], TypeError, "expected samples of a dtype that torch has, got an array of object"),
        *(
            (
                [{"w": make(device="cpu")}, {"w": make(device="meta")}],
                ValueError,
                "batch: expected tensors on one device, got cpu at index 0 and meta at index 1 in 'w'",
            )
            for make in (
                lambda device: torch.ones(2, device=device),
                lambda device: torch.ones((), device=device),
                X.to,
            )
        ),
    ],
)
def test_errors_name_the_field_and_the_position(samples, error, said):
    with pytest.raises(error) as raised:
        tl.batch(samples)
    words = str(raised.value)
    assert words.startswith("batch: ") and words.endswith(said) and isinstance(raised.value, tl.LoDError)


def test_fields_of_one_size_are_stacked():
    Pair = collections.namedtuple("Pair", "words vector")
    for make in (
        lambda words, vector: {"words": words, "vector": vector},
        Pair,
        lambda words, vector: {"words": words, "in": {"vector": vector}},
    ):
        for vectors in (
            [torch.ones(3), torch.zeros(3)],
            [np.ones(3, np.float32), np.zeros(3, np.float32)],
            [[1.0, 1.0, 1.0], [0.0, 0.0, 0.0]],
        ):
            found = tl.batch([make([1, 2], vectors[0]), make([3], vectors[1])], stack=["vector"])
            inner = found.get("in", found) if isinstance(found, dict) else found._asdict()
            assert type(inner["vector"]) is torch.Tensor
            assert inner["vector"].tolist() == [[1, 1, 1], [0, 0, 0]]
            assert (found["words"] if isinstance(found, dict) else found.words).to_list() == [[1, 2], [3]]
    found = tl.batch([([1, 2], [[1, 2], [3, 4]]), ([3], [[5, 6], [7, 8]])], stack=[1])
    assert found[1].shape == (2, 2, 2) and found[0].lod.to_lengths() == [[2, 1]]
    found = tl.batch([{"a": {"b": torch.ones(2), "c": 1}, "d": [1]}] * 3, stack=["a"])
    assert found["a"]["b"].shape == (3, 2) and found["a"]["c"].shape == (3,)
    found = tl.batch([[{"id": 1, "box": torch.ones(4)}] * n for n in (2, 0, 1)], stack=["box"])
    assert found["box"].lod.to_lengths() == [[2, 0, 1]] and found["box"].shape == (3, 4)
    leaf = torch.ones(2, requires_grad=True)
    tl.batch([{"v": leaf}] * 3, stack=["v"])["v"].sum().backward()
    assert leaf.grad.tolist() == [3, 3]


@pytest.mark.parametrize(
    ("samples", "stack", "error", "said"),
    [
        (
            [{"v": torch.ones(2)}, {"v": torch.ones(3)}],
            ["v"],
            ValueError,
            "expected tensors of one shape to stack, got (2,) at index 0 and (3,) at index 1 in 'v'",
        ),
        ([{"v": [1, 2]}, {"v": [3]}], ["v"], ValueError, "expected numbers in rows of one shape: "),
        ([{"v": "a"}], ["v"], TypeError, "expected tensors, arrays or numbers to stack, got str in 'v'"),
        ([{"v": X}], ["v"], TypeError, "expected tensors, arrays or numbers to stack, got LoDTensor in 'v'"),
        (
            [{"v": torch.ones(2)}, {"v": torch.ones(2).long()}],
            ["v"],
            TypeError,
            "expected rows of one dtype, got float32 at index 0 and int64 at index 1 in 'v'",
        ),
        ([{"v": 1}], ["w"], ValueError, "expected stack of fields that the samples have, got 'w'"),
        ([{"v": 1}], "v", TypeError, "expected stack as a list of names or positions of fields, got 'v'"),
        ([{"v": 1}], [1.5], TypeError, "expected stack as a list of names or positions of fields, got [1.5]"),
        (
            [{"v": {"w": torch.ones(2)}}, {"v": {"w": torch.ones(3)}}],
            ["v"],
            ValueError,
            "got (2,) at index 0 and (3,) at index 1 in 'w' in 'v'",
        ),
        (
            [{"v": torch.ones(2)}, {"v": 3}],
            ["v"],
            TypeError,
            "expected samples of one kind, got tensor with rows at index 0 and number at index 1 in 'v'",
        ),
    ],
)
def test_errors_of_what_is_stacked(samples, stack, error, said):
    with pytest.raises(error) as raised:
        tl.batch(samples, stack=stack)
    assert str(raised.value).startswith("batch: ") and said in str(raised.value)


def test_errors_of_strings():
    with pytest.raises(TypeError, match="batch: expected strings None, 'bytes' or a function, got 'utf8'"):
        tl.batch(["a"], strings="utf8")
    with pytest.raises(ValueError, match=r"batch: expected strings that UTF-8 can hold, got 'a\\udc80'"):
        tl.batch(["a\udc80"], strings="bytes")
    with pytest.raises(ZeroDivisionError):
        tl.batch(["a"], strings=lambda text: 1 / 0)


def test_from_tensors_refuses_lod_tensors_beside_tensors():
    with pytest.raises(TypeError, match="from_tensors: expected LoDTensors, got Tensor"):
        tl.from_tensors([X, torch.zeros(2)])


def test_lists_inside_themselves_are_refused_immediately():
    twice = []
    twice += [twice, twice]  # would double with every nesting
    with pytest.raises(ValueError, match="batch: expected nested lists, got a list that occurs inside itself"):
        tl.batch([twice])
