# SPDX-License-Identifier: Apache-2.0
"""LoDDataset: items, batches, workers."""

import pickle

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, StackDataset, Subset, default_collate

import torch_lod as tl
from torch_lod.data.batch import Fields, FixedField, SequenceField

Piece = tl.data.Piece
DEEP = tl.from_lengths(torch.arange(22.0).view(11, 2), [[2, 0, 1, 2], [3, 0, 2, 1, 5]], level_names=("text", "line"))
FLAT = tl.from_lengths(torch.arange(9), [[3, 0, 4, 2]])
LABEL = torch.tensor([3, 1, 4, 1])
ALL = {"deep": DEEP, "flat": FLAT, "label": LABEL}


def equal(a, b):
    """Of items as of batches: those of a dataset know whether they are sequences, and are plain tensors otherwise."""
    kinds = {FixedField: torch.Tensor, SequenceField: torch.Tensor, Fields: dict}
    assert kinds.get(type(a), type(a)) is kinds.get(type(b), type(b))
    if isinstance(b, dict):
        assert a.keys() == b.keys()
        for key in b:
            equal(a[key], b[key])
        return
    if isinstance(b, tl.LoDTensor):
        assert a.lod == b.lod
        a, b = a.values(), b.values()
    assert a.dtype == b.dtype and torch.equal(a, b)


@pytest.fixture(params=["memory", "file", "mapped"])
def opened(request, tmp_path):
    def make(data):
        if request.param == "memory":
            return tl.data.LoDDataset(data)
        tl.data.save(data, tmp_path / "x")
        return tl.data.LoDDataset(tmp_path / "x", mmap=request.param == "mapped")

    return make


def test_items_are_the_outermost_sequences(opened):
    for x in (DEEP, FLAT):
        dataset = opened(x)
        assert len(dataset) == 4 and dataset.lod == x.lod
        for i in (0, 1, 3, -1, torch.tensor(2)):
            equal(dataset[i], x.seq[int(i)])
        assert len([*dataset]) == 4
    dataset = opened(ALL)
    equal(dataset[2], {"deep": DEEP.seq[2], "flat": FLAT.seq[2], "label": LABEL[2]})


def test_batches_are_those_of_the_items(opened):
    for data in (DEEP, FLAT, ALL):
        dataset = opened(data)
        for indices in ([0], [1], [3, 0, -4, 1], [1, 1, 2], [2, 3]):
            taken = dataset.__getitems__(indices)
            items = [dataset[i] for i in indices]
            assert len(taken) == len(items)
            for a, b in zip(taken, items):
                equal(a, b)
            equal(taken[-1], items[-1])
            assert len(taken[0:2]) == len(items[:2])
            for found in (tl.data.collate(taken), tl.data.collate(list(taken))):
                equal(found, tl.data.collate(items))
    names = [x.level_names for x in (tl.data.collate(opened(DEEP).__getitems__([1, 0]), "sample"),)]
    assert names == [("sample", "line")]
    assert tl.data.collate(opened(ALL).__getitems__([1, 0]), "sample")["flat"].level_names == ("sample",)
    for data in (DEEP, FLAT.with_lod(FLAT.lod.with_level_names(["text"]))):
        found = default_collate(opened(data).__getitems__([3, 0]))
        equal(found, tl.batch([data.seq[3], data.seq[0]]))
        assert found.level_names == data.level_names


def test_pieces_are_rows_of_an_item(opened):
    dataset = opened({"flat": FLAT, "label": LABEL})
    taken = dataset.__getitems__([Piece(2, 1, 3), 3, Piece(0, 0, 3), Piece(-2, 4, 4)])
    batch = tl.data.collate(taken)
    assert batch["flat"].to_list() == [[4, 5], [7, 8], [0, 1, 2], []] and batch["label"].tolist() == [4, 1, 3, 4]
    assert dataset[Piece(2, 1, 3)]["flat"].tolist() == [4, 5] and dataset[Piece(2, 1, 3)]["label"] == 4
    sampler = tl.data.TokenBudgetSampler(dataset, 2, too_large="cut", shuffle=False)
    loader = DataLoader(dataset, batch_sampler=sampler, collate_fn=tl.data.collate)
    batches = [batch["flat"] for batch in loader]
    assert max(len(x) for x in batches) == 2
    assert sorted(torch.cat([x.values() for x in batches]).tolist()) == list(range(9))


# -- fields of one size


#: Of every item: a vector, an image, features of an image as rows, labels of several classes, a number.
SIZED = {
    "user": torch.rand(4, 5),
    "image": torch.rand(4, 3, 2, 2),
    "boxes": torch.rand(4, 2, 4),
    "tags": torch.eye(4).long(),
    "label": LABEL,
}
#: All items as long as each other, so that stacking would not raise.
EVEN = tl.from_lengths(torch.rand(8, 2), [[2, 2, 2, 2]])


class Around(Dataset):
    """A dataset around another, as users write them."""

    def __init__(self, data):
        self.data = data

    def __len__(self):
        return len(self.data)

    def __getitem__(self, i):
        item = dict(self.data[i])
        return {**item, "even": item["even"] * 2 / 2, "user": item["user"] * 1.0}


def kept(item):
    return {name: item[name] for name in item}


def table(dataset):
    """The same items in every kind of Dataset."""
    yield "dataset", dataset
    yield "Subset", Subset(dataset, range(4))
    yield "around", Around(dataset)
    yield "list", [dataset[i] for i in range(4)]
    yield "transform", tl.data.LoDDataset(dataset.fields, transform=kept)


@pytest.mark.parametrize("start", [None, "fork", "spawn"])
def test_a_field_is_what_it_is_in_every_dataset(start, tmp_path):
    data = {"deep": DEEP, "flat": FLAT, "even": EVEN, **SIZED}
    tl.data.save(data, tmp_path / "x")
    options = {} if start is None else {"num_workers": 1, "multiprocessing_context": start}
    at = [2, 0, 3]
    expected = {name: x.seq[at] if isinstance(x, tl.LoDTensor) else x[at] for name, x in data.items()}
    datasets = [tl.data.LoDDataset(data), tl.data.LoDDataset(tmp_path / "x")][: 2 if start is None else 1]
    for dataset in datasets:
        for collate in (tl.data.collate, default_collate):
            for kind, given in table(dataset):
                loader = DataLoader(given, batch_sampler=[at], collate_fn=collate, **options)
                (batch,) = loader
                assert list(batch) == list(expected), kind
                for name, found in batch.items():
                    assert type(found) is type(expected[name]), (kind, name)
                equal(batch, expected)


def test_a_sequence_alone_is_never_stacked():
    dataset = tl.data.LoDDataset(EVEN)
    for given in (dataset, Subset(dataset, range(4)), [*dataset]):
        for collate in (tl.data.collate, default_collate):
            (batch,) = DataLoader(given, batch_size=4, collate_fn=collate)
            equal(batch, EVEN)


def test_what_a_transform_makes_of_fields_is_what_they_were():
    def normed(item):
        user = item["user"] / item["user"].norm()
        scaled = item["flat"][:, None] * user
        return {"user": user, "seen": item["flat"].clip(max=3), "one": user[0], "scaled": scaled, "new": torch.ones(2)}

    dataset = tl.data.LoDDataset({"flat": FLAT, **SIZED}, transform=normed)
    batch = tl.data.collate(dataset.__getitems__([0, 3]), stack=["new"])
    assert batch["user"].shape == (2, 5) and batch["one"].shape == (2,) and batch["new"].shape == (2, 2)
    assert {type(batch[name]) for name in ("user", "one", "new")} == {torch.Tensor}
    assert batch["seen"].to_list() == [[0, 1, 2], [3, 3]]
    assert batch["scaled"].lod.to_lengths() == [[3, 2]] and batch["scaled"].shape == (5, 5)
    # unless it is named, a tensor with rows is a sequence
    assert tl.data.collate([dataset[0], dataset[3]])["new"].lod.to_lengths() == [[2, 2]]
    taken = pickle.loads(pickle.dumps(tl.data.LoDDataset({"flat": FLAT}, transform=kept)))
    assert taken[Piece(2, 1, 3)]["flat"].tolist() == [4, 5]


def test_a_loader_of_rows_is_warned_of():
    loader = DataLoader(FLAT, batch_size=4, collate_fn=tl.data.collate)
    with pytest.warns(UserWarning, match=r"got a LoDTensor, whose items are rows: those of tl.data.LoDDataset\(x\)"):
        batch = next(iter(loader))
    assert batch.tolist() == [0, 1, 2, 3]


def loaded(dataset, sampler, start):
    """All batches, by way of a worker."""
    options = {"num_workers": 1, "multiprocessing_context": start}
    return list(DataLoader(dataset, batch_sampler=sampler, collate_fn=tl.data.collate, **options))


def test_forked_workers(opened):
    dataset = opened(ALL)
    sampler = tl.data.TokenBudgetSampler(dataset.lod, 8, seed=2)
    found = loaded(dataset, sampler, "fork")
    sampler.set_epoch(0)
    expected = [tl.data.collate([dataset[i] for i in indices]) for indices in sampler]
    assert len(found) == len(expected) > 1
    for a, b in zip(found, expected):
        equal(a, b)


def test_spawned_workers(tmp_path):
    tl.data.save(ALL, tmp_path / "x")
    both = StackDataset(tl.data.LoDDataset(ALL), tl.data.LoDDataset(tmp_path / "x"))  # in memory, and mapped
    for found, indices in zip(loaded(both, [[0, 3], [2]], "spawn"), [[0, 3], [2]], strict=True):
        for a in found:
            equal(a, tl.data.collate([both.datasets[0][i] for i in indices]))


def test_a_mapped_file_is_opened_again_where_the_dataset_goes(tmp_path):
    path = tmp_path / "x"
    large = tl.from_lengths(torch.arange(100_000), [[10] * 10_000])
    tl.data.save(large, path)
    dataset = tl.data.LoDDataset(path)
    sent = pickle.dumps(dataset)
    assert len(sent) < 1000
    equal(pickle.loads(sent)[9_999], torch.arange(99_990, 100_000))
    assert len(pickle.dumps(tl.data.LoDDataset(path, mmap=False))) > 800_000
    tl.data.save(large.with_values(large.values().int()), path)
    with pytest.raises(RuntimeError, match=r"LoDDataset: expected .* as it was when it was opened, got another file"):
        pickle.loads(sent)
    path.write_bytes(b"")
    with pytest.raises(ValueError, match="LoDDataset: expected a header"):
        pickle.loads(sent)


def test_gradients_reach_rows_in_memory():
    rows = torch.ones(9, requires_grad=True)
    dataset = tl.data.LoDDataset(tl.LoDTensor(rows, FLAT.lod))
    tl.data.collate(dataset.__getitems__([2, 0, 2])).sum().backward()
    assert rows.grad.tolist() == [1, 1, 1, 2, 2, 2, 2, 0, 0]


@pytest.mark.parametrize(
    ("call", "error", "said"),
    [
        (lambda: tl.data.LoDDataset(LABEL), TypeError, "expected data as a LoDTensor, a dict with one, or a path, got"),
        (lambda: tl.data.LoDDataset({"label": LABEL}), TypeError, "a dict with one, or a path, got dict"),
        (lambda: tl.data.LoDDataset({"x": FLAT, "y": [1]}), TypeError, "expected tensors with rows in data, got [1]"),
        (lambda: tl.data.LoDDataset({"x": FLAT, "y": torch.tensor(1)}), TypeError, "expected tensors with rows"),
        (lambda: tl.data.LoDDataset({"x": FLAT, "y": LABEL[1:]}), ValueError, "got {'x': 4, 'y': 3}"),
        (lambda: tl.data.LoDDataset(FLAT, mmap=None), TypeError, "expected mmap True or False, got None"),
        (
            lambda: tl.data.LoDDataset(FLAT, transform=3),
            TypeError,
            "expected transform as a function of an item, got 3",
        ),
        (lambda: tl.data.LoDDataset(FLAT)[4], IndexError, "__getitem__: expected an index in [-4, 3], got 4"),
        (lambda: tl.data.LoDDataset(FLAT)[2**80], IndexError, "expected an index in [-4, 3]"),
        (lambda: tl.data.LoDDataset(FLAT)[True], TypeError, "expected an index as an integer or a Piece, got True"),
        (lambda: tl.data.LoDDataset(FLAT)["x"], TypeError, "expected an index as an integer or a Piece, got 'x'"),
        (lambda: tl.data.LoDDataset(FLAT).__getitems__([]), TypeError, "a list of at least 1 index, got []"),
        (lambda: tl.data.LoDDataset(FLAT)[Piece(0, 1, 4)], IndexError, "a Piece within the 3 rows of its item"),
        (lambda: tl.data.LoDDataset(FLAT)[Piece(0, 2, 1)], IndexError, "a Piece within the 3 rows of its item"),
        (lambda: tl.data.LoDDataset(FLAT)[Piece(0, -1, 1)], IndexError, "a Piece within the 3 rows of its item"),
        (lambda: tl.data.LoDDataset(FLAT)[Piece(0, 0, 1.5)], IndexError, "a Piece within the 3 rows of its item"),
        (lambda: tl.data.LoDDataset(DEEP)[Piece(0, 0, 1)], ValueError, "expected Pieces of items of one level"),
    ],
)
def test_errors(call, error, said):
    with pytest.raises(error) as raised:
        call()
    assert said in str(raised.value) and isinstance(raised.value, tl.LoDError)
