# SPDX-License-Identifier: Apache-2.0
"""The rows of the catalogue (malformed_calls.py) of tl.data and tl.integrations."""

import functools
import importlib
import itertools
import tempfile
from types import SimpleNamespace

import numpy as np
import torch
from frames import Frame
from malformed import ints
from malformed_calls import Call, lod, one, rows, two

import torch_lod as tl


def _drawn(cls, *args, **kwargs):
    """The first batches of a sampler or a stream, and what it says about itself."""
    sampler = cls(*args, **kwargs)
    found = list(itertools.islice(sampler, 20))
    return found, sampler.state_dict(), sampler.summary() if hasattr(sampler, "summary") else None


def _resumed(sampler, state, epoch):
    sampler.load_state_dict(state)
    sampler.set_epoch(epoch)
    return list(itertools.islice(sampler, 3)), sampler.state_dict(1)


def _kept(data):
    """tl.data.save, as bytes."""
    with tempfile.TemporaryDirectory() as folder:
        tl.data.save(data, f"{folder}/x")
        with open(f"{folder}/x", "rb") as file:
            return file.read()


def _given_back(data: bytes, **options):
    with tempfile.TemporaryDirectory() as folder:
        with open(f"{folder}/x", "wb") as file:
            file.write(data)
        return tl.data.load(f"{folder}/x", **options)


def _if_installed(name: str, given, **kwargs):
    """A conversion, with what the library makes of lists; nothing where it is not installed."""
    try:
        if name == "from_arrow":
            given = importlib.import_module("pyarrow").array(given)
        if name == "from_awkward":
            given = importlib.import_module("awkward").Array(given)
        return getattr(tl.data, name)(given, **kwargs)
    except ImportError:
        return None


def _items(data, index, indices):
    dataset = tl.data.LoDDataset(data)
    return dataset[index], tl.data.collate(dataset.__getitems__(indices))


def _recorded(fields, key, mask):
    record = tl.data.Record(fields)
    return (
        record.seq[key],
        record.filter_rows(mask),
        record.filter(mask, level=-1),
        record.to(torch.float64),
        len(record.seq),
    )


class _Column:
    """As a column of pandas, which tests/data/check_frames.py has."""

    def __init__(self, values):
        self.values = np.asarray(values)
        self.dtype = self.values.dtype

    def to_numpy(self):
        return self.values

    def isna(self):
        return _Column(np.zeros(len(self.values), bool))

    def factorize(self):
        labels, codes = np.unique(self.values, return_inverse=True)
        return codes, labels


def _framed(keys, **options):
    columns = {"user": _Column([1, 0, 1]), "time": _Column([5, 3, 1]), "x": _Column([0.5, 1.5, 2.5])}
    frame = type(
        "Frame", (), {"columns": list(columns), "shape": (3, 3), "__getitem__": lambda self, name: columns[name]}
    )
    record = tl.data.from_frame(frame(), keys, **options)
    return dict(record), record.ids


def _encoding(ids, word_ids, offsets):
    """As tokenizers.Encoding, which tests/data/check_tokens.py has."""
    mask, zeros = [1] * len(ids), [0] * len(ids)
    return SimpleNamespace(
        ids=ids, word_ids=word_ids, offsets=offsets, attention_mask=mask, type_ids=zeros, sequence_ids=zeros
    )


def _used(model, **options):
    """A model of torch, which `use` refuses, and refuses without the library too."""
    try:
        return tl.integrations.transformers.use(model, **options)
    except ImportError:
        return None


def _collated(samples, **options):
    """By a collator for a model that has the hooks of `use`, with a loss that compares a row with the label of the next."""
    model, packing = torch.nn.Linear(2, 2), tl.integrations.transformers.model.Packing(-1)
    packing.shifts = True
    tl.integrations.transformers.model._install(model, packing)
    return tl.integrations.transformers.Collator(model, **options)(samples)


def _rowwise(input_ids, **others):
    """In the place of a model that computes every row by itself."""
    return input_ids[..., None].double()


def _integrations():
    ours, entry = tl.integrations.transformers, "tl.integrations.transformers."
    texts = [
        _encoding([2, 5, 6, 3], [None, 0, 0, None], [(0, 0), (0, 2), (2, 4), (0, 0)]),
        _encoding([7], [0], [(0, 1)]),
    ]
    tokens = ours.from_encoding(texts)
    options = {"words": True, "spans": [[(0, 2), (2, 4)], [(0, 1)]], "lengths": [[2]], "level_names": list("abcd")}
    yield entry + "from_encoding", Call(ours.from_encoding, (texts,), options)
    labels = {"all_tokens": True, "ignore_index": -1, "truncated": False, "level": 0}
    yield entry + "labels_of_tokens", Call(ours.labels_of_tokens, ([[1], [2]], tokens), labels)
    yield entry + "labels_of_tokens", Call(ours.labels_of_tokens, (tl.lod_tensor([[1], [2]]), tokens), labels)
    yield entry + "Tokens", Call(ours.Tokens, tuple(tokens))
    model = torch.nn.Linear(2, 2)
    yield (
        entry + "check_packing",
        Call(ours.check_packing, (_rowwise,), {"packing": "seq_idx", "samples": [[1, 2], [3]]}),
    )
    yield entry + "use", Call(_used, (model,), {"level": -1, "check": True})
    samples = [
        {"input_ids": [1, 2, 3], "attention_mask": [1, 1, 0], "label": 0},
        {"input_ids": [4], "attention_mask": [1], "label": 1},
    ]
    yield entry + "Collator", Call(_collated, (samples,), {"ids_are_labels": True})


def calls():
    """(entry point, valid call)"""
    yield from _integrations()
    mask = torch.tensor([[1, 1, 0], [0, 1, 1]])
    yield "tl.data.from_mask", Call(tl.data.from_mask, (torch.ones(2, 3, 4), mask), {"level_names": ["a"]})
    yield "tl.data.from_mask", Call(tl.data.from_mask, (torch.ones(2, 3), mask.bool()))
    yield "tl.data.from_position_ids", Call(tl.data.from_position_ids, (rows(), ints(0, 1, 0, 0, 1, 2)))
    yield (
        "tl.data.from_position_ids",
        Call(tl.data.from_position_ids, (rows()[None], ints(4, 5, 0, 1, 8, 9)[None]), {"any_start": True}),
    )
    yield (
        "tl.data.from_position_ids",
        Call(tl.data.from_position_ids, (rows()[None], ints(0, 1, 0, 0, 1, 2).expand(3, 1, 6))),
    )
    columns = {"x": rows(), "y": ints(*range(6))}
    yield "tl.data.from_keys", Call(tl.data.from_keys, (columns, ints(1, 2, 1, 2, 2, 2)), {"level_names": ["a"]})
    yield "tl.data.Record", Call(_recorded, ({"x": two(), "y": two(seed=1)}, [1, 0], torch.tensor([True, False] * 3)))
    yield "tl.data.from_keys", Call(tl.data.from_keys, (rows(), ints(1, 2, 1, 2, 2, 2), ["a", "b", "a", "c", "b", "b"]))
    frame = Frame(user=["b", "a", "b"], time=[3, 1, 2], item=[7, 8, 9])
    yield (
        "tl.data.from_frame",
        Call(tl.data.from_frame, (frame, ["user"]), {"sort_by": "time", "gap": 1.0, "sort_keys": True}),
    )
    yield "tl.data.lookup", Call(tl.data.lookup, (Frame(item=[9, 7, 8], price=[1, 2, 3]), "item", ints(7, 9)))
    yield (
        "tl.data.lookup",
        Call(
            tl.data.lookup, (Frame(item=[9, 7, 8], price=[1, 2, 3]), "item", tl.from_lengths(ints(7, 8, 9), [[1, 2]]))
        ),
    )
    yield "tl.data.to_numpy", Call(tl.data.to_numpy, (two(),))
    for name in ("to_arrow", "to_awkward"):  # tests/data/check_formats.py has the libraries
        yield f"tl.data.{name}", Call(functools.partial(_if_installed, name), (two(),))
    yield "tl.data.from_arrow", Call(functools.partial(_if_installed, "from_arrow"), ([[1]],), {"nulls": "empty"})
    yield "tl.data.from_awkward", Call(functools.partial(_if_installed, "from_awkward"), ([[1]],))
    yield "tl.data.save", Call(_kept, (two(),))
    yield "tl.data.save", Call(_kept, ({"x": two(), "y": rows()},))
    for options in ({"mmap": False, "verify": None}, {"mmap": True, "verify": True}):
        yield "tl.data.load", Call(_given_back, (_kept(two()),), options)
    yield "tl.data.LoDDataset", Call(_items, (two(), 1, [0, -1, 1]))
    yield "tl.data.LoDDataset", Call(_items, ({"x": one(), "y": ints(1, 2, 3)}, 1, [0, tl.data.Piece(2, 1, 3)]))
    data, lengths = tl.data, [3, 1, 2, 5]
    yield "tl.data.collate", Call(data.collate, ([one(), one()],), {"name": "text", "strings": None})
    yield "tl.data.collate", Call(data.collate, ([{"v": rows(), "n": 1}] * 2,), {"stack": ["v"]})
    yield "tl.data.from_frame", Call(_framed, ("user",), {"sort_by": "time", "gap": 2, "sort_keys": True})
    yield "tl.data.from_frame", Call(_framed, (["user", "time"],), {"sort_by": ["time", "x"]})
    yield "tl.data.from_sparse", Call(data.from_sparse, (torch.eye(1).to_sparse(),))
    yield "tl.data.to_sparse", Call(data.to_sparse, (one(),))
    options = {"shuffle": True, "seed": 3, "rank": 0, "world_size": 2, "level": -1, "too_large": "cut"}
    for cls in (data.TokenBudgetSampler, data.PackingSampler):
        entry = f"tl.data.{cls.__name__}"
        yield entry, Call(functools.partial(_drawn, cls), (ints(*lengths), 5), options)
        yield entry, Call(functools.partial(_drawn, cls), (lengths, 6.5), {"cost": "square", "too_large": "alone"})
        yield entry, Call(functools.partial(_drawn, cls), (two(), 9), {"balance": abs, "drop_last": False})
    entry, bucket = "tl.data.BucketSampler", functools.partial(_drawn, data.BucketSampler)
    yield entry, Call(bucket, (ints(*lengths), 2), {"buckets": 3})
    yield entry, Call(bucket, (lod(), None), {"budget": 9, "buckets": [1, 3], "balance": "square"})
    yield "tl.data.TokenBudgetStream", Call(functools.partial(_drawn, data.TokenBudgetStream), ([[1, 2], [3]], 5, 4, 0))
    make = functools.partial(data.TokenBudgetStream, too_large="cut")
    yield "tl.data.TokenBudgetStream", Call(functools.partial(_drawn, make), ([torch.ones(3)], 2), {"world_size": 1})
    yield "tl.data.TokenBudgetSampler", Call(data.TokenBudgetSampler, (lengths, 6), {"weights": [1.0] * len(lengths)})
    sampler = data.TokenBudgetSampler(lengths, 6)
    yield "tl.data.TokenBudgetSampler", Call(_resumed, (sampler, sampler.state_dict(), 1))
    yield "tl.data.Piece", Call(data.Piece, (1, 0, 2))
