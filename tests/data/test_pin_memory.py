# SPDX-License-Identifier: Apache-2.0
"""DataLoader(pin_memory=True), as far as it can be tested without a GPU: what torch's walk over a batch does with LoDTensors."""

from typing import NamedTuple

import pytest
import torch
from torch.utils.data._utils.pin_memory import pin_memory

import torch_lod as tl


class Batch(NamedTuple):
    words: torch.Tensor
    label: torch.Tensor


@pytest.fixture
def pinned():
    """The addresses of what was pinned: a copy in ordinary memory, where a GPU would make one in pinned memory."""
    copies = []

    def pin(t, device=None):
        copies.append(t.clone())
        return copies[-1]

    library = torch.library.Library("aten", "IMPL")
    library.impl("_pin_memory", pin, "CPU")
    yield lambda t: t.data_ptr() in [copy.data_ptr() for copy in copies]
    library._destroy()


X = tl.lod_tensor([[[1.0, 2.0], []], [[3.0]]], level_names=("text", "line"))


def same(found, x):
    assert type(found) is tl.LoDTensor and found.lod == x.lod and found.level_names == x.level_names
    assert torch.equal(found.values(), x.values()) and found.values().data_ptr() != x.values().data_ptr()


def test_a_lod_tensor_is_pinned_with_its_lod(pinned):
    for found in (pin_memory(X), X.pin_memory(), tl.lod_tensor([[1]]).pin_memory()):
        assert pinned(found.values())
    same(pin_memory(X), X)


def test_lod_tensors_in_containers_are_pinned(pinned):
    label = torch.tensor([1, 0])
    for batch, take in (
        ({"words": X, "more": {"deep": [X]}}, lambda b: [b["words"], b["more"]["deep"][0]]),
        ([X, (X, label)], lambda b: [b[0], b[1][0]]),
        (Batch(X, label), lambda b: [b.words]),
    ):
        found = pin_memory(batch)
        assert type(found) is type(batch)
        for x in take(found):
            same(x, X)
            assert pinned(x.values())
    assert type(pin_memory(Batch(X, label)).label) is torch.Tensor


def test_batches_of_a_dataset_are_pinned(pinned):
    dataset = tl.data.LoDDataset({"words": X, "label": torch.tensor([1, 0])})
    batch = tl.data.collate(dataset.__getitems__([1, 0]))
    found = pin_memory(batch)
    same(found["words"], batch["words"])
    assert pinned(found["words"].values()) and pinned(found["label"])
