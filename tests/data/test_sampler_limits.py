# SPDX-License-Identifier: Apache-2.0
"""Samplers and streams of tl.data at their limits: pieces, samples that cost nothing, states, subsets, epochs without a step."""

import itertools

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Subset, random_split

import torch_lod as tl
from torch_lod.data import items, stream

DATA = tl.data
SAMPLERS = {
    "budget": lambda lengths, **options: DATA.TokenBudgetSampler(lengths, 12, **options),
    "packed": lambda lengths, **options: DATA.PackingSampler(lengths, 12, **options),
    "bucket": lambda lengths, **options: DATA.BucketSampler(lengths, 3, **options),
}
X = tl.from_lengths(torch.arange(60), [[3, 0, 9, 4, 6, 11, 2, 5, 8, 1, 4, 7]])


# -- pieces


@pytest.mark.parametrize("make", [DATA.TokenBudgetSampler, DATA.PackingSampler])
def test_pieces_have_a_limit(make, monkeypatch):
    for lengths in ([2**31 - 2], [2**25 + 1], [2**62 - 1, 5]):
        with pytest.raises(
            ValueError, match=r"cuts items into at most 33554432 pieces, got 1 for \d+ pieces"
        ) as raised:
            make(lengths, 1, too_large="cut")
        assert isinstance(raised.value, tl.LoDError)
    monkeypatch.setattr(items, "_MOST_PIECES", 10)
    assert sum(map(len, make([10], 1, too_large="cut"))) == 10
    assert sum(map(len, make([4] * 50, 1, too_large="cut"))) == 200  # 4 for each item
    for lengths in ([11], [5] * 50):
        with pytest.raises(ValueError, match="a larger budget, or TokenBudgetStream"):
            make(lengths, 1, too_large="cut")


# -- samples that cost nothing


@pytest.mark.parametrize("cost", [lambda sample: 0, lambda sample: 1e-300])
def test_an_endless_source_of_samples_that_cost_nothing_gives_batches(cost, monkeypatch):
    monkeypatch.setattr(stream, "_MOST_SAMPLES", 100)
    for world in (1, 3):
        made = [
            DATA.TokenBudgetStream(lambda epoch: itertools.count(), 5, 20, rank=r, world_size=world, cost=cost)
            for r in range(world)
        ]
        batches = [list(itertools.islice(s, 4)) for s in made]
        assert [[len(batch) for batch in of] for of in batches] == [[100] * 4] * world
        seen = [n for of in batches for batch in of for n in batch]
        assert len(set(seen)) == len(seen)


def test_a_batch_of_samples_that_cost_something_ends_at_the_budget_or_the_limit(monkeypatch):
    monkeypatch.setattr(stream, "_MOST_SAMPLES", 4)
    samples = [[0] * n for n in (0, 0, 3, 0, 0, 3, 3, 0, 0, 0, 0)]
    found = list(DATA.TokenBudgetStream(samples, 5, buffer=0))
    assert [[len(s) for s in batch] for batch in found] == [[0, 0, 3, 0], [0, 3], [3, 0, 0, 0], [0]]
    with pytest.raises(ValueError, match=r"a budget of at least 1 with too_large='cut', got 0\.5"):
        DATA.TokenBudgetStream(samples, 0.5, too_large="cut")


# -- states

WRONG = [
    torch.tensor([3, 3]),
    np.array([3, 3]),
    torch.tensor([]),
    np.array([]),
    torch.tensor(0.5),
    None,
    [3],
    {},
    torch.ones(3).to_sparse(),
    torch.empty(3, device="meta"),
]
LOADED = {
    "budget": lambda: DATA.TokenBudgetSampler([3, 4, 5], 6, seed=3),
    "bucket": lambda: DATA.BucketSampler([3, 4, 5], 2, seed=3),
    "stream": lambda: DATA.TokenBudgetStream([[1], [2, 3]], 6, seed=3),
}


@pytest.mark.parametrize("kind", LOADED)
def test_states_with_values_of_other_types(kind):
    fresh = LOADED[kind]()
    fresh.set_epoch(7)
    state = fresh.state_dict()
    loaded = LOADED[kind]()
    loaded.load_state_dict(  # as a checkpoint may give them back
        {key: torch.tensor(value) if type(value) is int else value for key, value in state.items()}
    )
    assert loaded.state_dict() == state and list(loaded) == list(fresh)
    for key, wrong in itertools.product(state, WRONG):
        before = loaded.state_dict()
        with pytest.raises((ValueError, TypeError), match="load_state_dict: expected") as raised:
            loaded.load_state_dict({**state, "epoch": 1, key: wrong})
        assert isinstance(raised.value, tl.LoDError) and len(str(raised.value)) < 300
        assert loaded.state_dict() == before  # nothing of a state that is refused


# -- subsets


@pytest.mark.parametrize("kind", SAMPLERS)
def test_parts_of_a_dataset(kind):
    dataset = DATA.LoDDataset({"x": X, "i": torch.arange(12)})
    generator = torch.Generator().manual_seed(0)
    halves = random_split(dataset, [5, 7], generator)
    seen = []
    for part in (*halves, Subset(halves[1], [6, 0, -2]), Subset(dataset, range(4))):
        lengths = [len(part[i]["x"]) for i in range(len(part))]
        sampler = SAMPLERS[kind](part)
        assert list(sampler) == list(SAMPLERS[kind](lengths)) and sampler.summary()["items"] == len(part)
        batches = list(DataLoader(part, batch_sampler=sampler, collate_fn=DATA.collate))
        assert sorted(n for b in batches for n in b["x"].lengths().tolist()) == sorted(lengths)
        assert kind == "bucket" or max(len(b["x"]) for b in batches) <= 12
        seen.append(sorted(i for b in batches for i in b["i"].tolist()))
    assert sorted(seen[0] + seen[1]) == list(range(12)) and seen[3] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("given", "options", "error", "said"),
    [
        (Subset([[1], [2, 3]], [0]), {}, TypeError, "got a Subset of list; pass [len(item) for item in subset]"),
        (Subset(DATA.LoDDataset(X), [0, 12]), {}, IndexError, "expected indices of the Subset in [-12, 11], got 12"),
        (Subset(DATA.LoDDataset(X), [0.5]), {}, TypeError, "expected indices[0] to be an integer, got 0.5"),
        (Subset(DATA.LoDDataset(X), []), {}, ValueError, "expected at least 1 item, got none"),
        (Subset(DATA.LoDDataset(X), [2]), {"too_large": "cut"}, ValueError, "got a Subset, which takes no Pieces"),
    ],
)
def test_subsets_that_are_refused(given, options, error, said):
    with pytest.raises(error) as raised:
        DATA.TokenBudgetSampler(given, 5, **options)
    assert said in str(raised.value) and isinstance(raised.value, tl.LoDError)
    assert str(raised.value).startswith("TokenBudgetSampler: ")


# -- epochs without a step


def test_what_raises_raises_in_the_first_epoch():
    outcomes = set()
    for seed, drop_last in itertools.product(range(30), (True, False)):
        rng = np.random.default_rng(seed)
        world = int(rng.integers(2, 5))
        lengths = rng.integers(1, 10, rng.integers(1, 4 * world))
        for kind in SAMPLERS:
            try:
                sampler = SAMPLERS[kind](lengths, seed=seed, world_size=world, rank=0, drop_last=drop_last)
                steps = [len(sampler)]
            except ValueError:
                steps = [0]
            for epoch in range(1, 25):
                sampler.set_epoch(epoch)
                if steps[0]:
                    steps.append(len(sampler))  # does not raise
                else:
                    with pytest.raises(ValueError, match="ranks"):
                        len(sampler)
            outcomes.add((kind, drop_last, bool(steps[0])))
    assert len(outcomes) == 12  # both outcomes of each
