# SPDX-License-Identifier: Apache-2.0
"""Batch samplers and streams of tl.data."""

import itertools
import random

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

import torch_lod as tl
from torch_lod.data import planning
from torch_lod.data.planning import Groups

DATA = tl.data
KINDS = {
    "budget": lambda lengths, **options: DATA.TokenBudgetSampler(lengths, 64, **options),
    "packed": lambda lengths, **options: DATA.PackingSampler(lengths, 64, **options),
    "bucket": lambda lengths, **options: DATA.BucketSampler(lengths, 4, buckets=5, **options),
    "padded": lambda lengths, **options: DATA.BucketSampler(lengths, budget=64, buckets=5, **options),
}


def drawn(n, longest=20, seed=0):
    return np.random.default_rng(seed).integers(0, longest + 1, n)


def ranks(kind, lengths, world, **options):
    """The batches of every rank."""
    return [list(KINDS[kind](lengths, world_size=world, rank=r, **options)) for r in range(world)]


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_every_item_once_within_the_budget_and_as_many_steps_everywhere(kind, shuffle):
    for n, world, seed in itertools.product((1, 7, 50, 300), (1, 2, 3, 8), (0, 1)):
        lengths = drawn(n, seed=n + seed)
        try:
            found = ranks(kind, lengths, world, shuffle=shuffle, seed=seed)
        except ValueError as error:
            assert n < 2 * world and "expected items for equally many batches" in str(error)
            continue
        assert len({len(batches) for batches in found}) == 1 and all(all(batches) for batches in found)
        assert sorted(i for batches in found for batch in batches for i in batch) == list(range(n))
        for batch in itertools.chain(*found):
            own = lengths[batch]
            size = {"bucket": 16 * len(batch), "padded": len(batch) * own.max()}.get(kind, own.sum())
            assert size <= 64
        whole = ranks(kind, lengths, world, shuffle=shuffle, seed=seed, drop_last=True) if len(found[0]) > 2 else []
        taken = [i for batches in whole for batch in batches for i in batch]
        assert len(taken) == len(set(taken)) and len({len(batches) for batches in whole}) <= 1


def test_groups_are_those_of_the_obvious_loops():
    def first_fit(costs, budget):
        rooms = []
        for cost in sorted(costs.tolist(), reverse=True):
            fitting = [g for g, room in enumerate(rooms) if room >= cost]
            if fitting:
                rooms[fitting[0]] -= cost
            else:
                rooms.append(max(0, budget - cost))
        return sorted(rooms)

    def next_fit(costs, budget):
        groups, load = [[0]], costs[0]
        for i, cost in enumerate(costs[1:], 1):
            if load + cost > budget:
                groups.append([])
                load = 0
            groups[-1].append(i)
            load += cost
        return groups

    for seed in range(120):
        rng = np.random.default_rng(seed)
        costs, budget = rng.integers(0, rng.integers(1, 60), rng.integers(1, 200)), int(rng.integers(1, 90))
        packed = planning.first_fit_decreasing(costs, budget, rng if seed % 2 else None)
        assert sorted(packed.order.tolist()) == list(range(len(costs)))
        rooms = np.maximum(0, budget - packed.sums(costs))
        assert sorted(rooms.tolist()) == first_fit(costs, budget)
        assert packed.fit(costs, budget) and (np.diff(packed.offsets) > 0).all()
        order = rng.permutation(len(costs))
        cut = planning.next_fit(order, costs, budget)
        found = [list(range(a, b)) for a, b in itertools.pairwise(cut.offsets.tolist())]
        assert found == next_fit(costs[order].tolist(), budget)


def test_costs_of_many_kinds_are_packed_with_little_loss():
    rng = np.random.default_rng(0)
    for costs in (rng.integers(1, 10**9, 20_000), rng.random(20_000) * 1e-3, np.full(9, 0.1)):
        budget = costs.max() * 9
        packed = planning.first_fit_decreasing(costs, budget, rng)
        assert packed.fit(costs, budget * (1 + 1e-12))
        assert len(packed.offsets) - 1 <= np.ceil(costs.sum() / budget * 1.003)


def test_packing_is_full_and_ranks_are_balanced():
    lengths = np.clip(np.random.default_rng(0).lognormal(3, 0.6, 60_000), 1, 200).astype(int)
    assert DATA.PackingSampler(lengths, 8192).summary()["filled"] > 0.99
    for make in (DATA.TokenBudgetSampler, DATA.PackingSampler):
        summary = make(lengths, 1024, world_size=64, rank=3).summary()
        assert summary["imbalance"] < 0.02 and summary["step_imbalance"] < 0.02 and summary["items"] == 60_000
    # over the epoch no rank is always the one with most
    assert DATA.TokenBudgetSampler(lengths, 1024, world_size=8, rank=0).summary()["imbalance"] < 1e-4
    square = DATA.TokenBudgetSampler(lengths, 1024, world_size=8, rank=0, balance="square").summary()
    assert square["step_imbalance"] < 0.05 < square["step_imbalance"] + 1
    loads = [[lengths[b].sum() for b in DATA.TokenBudgetSampler(lengths, 1024, world_size=4, rank=r)] for r in range(4)]
    total = np.sum(loads, 1)
    summary = DATA.TokenBudgetSampler(lengths, 1024, world_size=4, rank=0).summary()
    assert summary["imbalance"] == pytest.approx(total.max() / total.mean() - 1, abs=1e-9)
    steps = np.array(loads)
    assert summary["step_imbalance"] == pytest.approx((steps.max(0) / steps.mean(0) - 1).mean(), abs=1e-9)


def test_what_is_left_over_always_finds_room():
    """Twice as many groups have room for whatever had room in as many."""
    for seed in range(60):
        rng = random.Random(seed)
        world = rng.randint(2, 9)
        costs = []
        for _ in range(rng.randint(1, world - 1)):  # batches that are exactly full
            cuts = sorted(rng.sample(range(1, 100), rng.randint(1, 12)))
            costs += [b - a for a, b in itertools.pairwise([0, *cuts, 100])]
        costs = np.array(costs + [0] * rng.randint(0, 3))
        rest = Groups(np.arange(len(costs)), np.array([0, len(costs)]))
        for least in (1, world + 2):

            def fit(found, costs=costs, least=least):
                return len(found.offsets) >= least and found.fit(costs, 100)

            found = planning.spread(rest, costs, world, fit, costs, 100)
            if found is None:
                assert len(costs) < 2 * world
                continue
            assert (len(found.offsets) - 1) in (world, 2 * world) and found.fit(costs, 100)
            assert sorted(found.order.tolist()) == list(range(len(costs))) and (np.diff(found.offsets) > 0).all()


def test_what_is_left_over_takes_as_much_company_as_it_needs():
    found = [list(DATA.PackingSampler([9] * 13 + [2] * 20, 10, world_size=4, rank=r)) for r in range(4)]
    assert [len(batches) for batches in found] == [5] * 4  # 17 batches, of which 13 have a single item
    assert sorted(itertools.chain(*itertools.chain(*found))) == list(range(33))
    samples = [[0] * n for n in (5, 5, 5, 5, 10)]
    found = [list(DATA.TokenBudgetStream(samples, 10, buffer=0, world_size=2, rank=r)) for r in range(2)]
    assert [len(batches) for batches in found] == [2, 2]
    assert sorted(itertools.chain(*itertools.chain(*found))) == sorted(samples)


@pytest.mark.parametrize("kind", KINDS)
def test_epochs_differ_and_repeat(kind):
    lengths = drawn(200)
    sampler, other = KINDS[kind](lengths, seed=3), KINDS[kind](lengths, seed=3)
    first, second = list(sampler), list(sampler)
    assert sampler.epoch == 2 and first != second
    other.set_epoch(1)
    assert list(other) == second and len(other) > 0
    other.set_epoch(0)
    assert list(other) == first != list(KINDS[kind](lengths, seed=4))
    assert list(KINDS[kind](lengths, shuffle=False)) == list(KINDS[kind](lengths, shuffle=False, seed=5))


@pytest.mark.parametrize("kind", KINDS)
def test_a_state_goes_on_with_the_same_batches(kind):
    lengths = drawn(200)
    sampler = KINDS[kind](lengths, world_size=2, rank=1)
    list(sampler)
    batches = iter(sampler)
    head = list(itertools.islice(batches, 3))
    state = sampler.state_dict()
    tail = list(batches)
    resumed = KINDS[kind](lengths, world_size=2, rank=1)
    resumed.load_state_dict(state)
    resumed.set_epoch(1)  # as trainers call it before every epoch
    assert resumed.state_dict() == state and len(resumed) == len(head) + len(tail)
    assert list(resumed) == tail and resumed.epoch == 2
    again = list(resumed)
    resumed.load_state_dict(sampler.state_dict())
    assert list(resumed) == again  # the state behind an epoch is the beginning of the next
    resumed.load_state_dict({**state, "step": len(resumed)})
    assert list(resumed) == [] and resumed.epoch == 2


def test_a_loader_with_workers_counts_steps_itself():
    lengths = drawn(300)
    sampler = DATA.TokenBudgetSampler(lengths, 64)
    loader = DataLoader(range(300), batch_sampler=sampler, num_workers=2, collate_fn=list)
    batches = iter(loader)
    head = list(itertools.islice(batches, 5))
    state = sampler.state_dict(step=5)
    tail = list(batches)
    sampler.load_state_dict(state)
    assert list(loader) == tail and sorted(itertools.chain(*head, *tail)) == list(range(300))


@pytest.mark.parametrize("kind", ["sampler", "stream"])
def test_ranks_with_workers_go_on_with_the_very_same_batches(kind):
    """In the middle of an epoch, everything made again, as after a crash; and in the epochs after it."""
    rng = np.random.default_rng(0)
    lengths = [rng.integers(0, 5, rng.integers(0, 4)) for _ in range(120)]
    corpus = tl.lod_tensor([[rng.random(n).tolist() for n in of] for of in lengths], depth=2)
    dataset = DATA.LoDDataset({"words": corpus, "label": torch.arange(120)})

    def made(rank):
        if kind == "sampler":
            sampler = DATA.TokenBudgetSampler(corpus, 40, rank=rank, world_size=2)
            return sampler, DataLoader(dataset, batch_sampler=sampler, num_workers=2, collate_fn=DATA.collate)
        samples = [{"words": x, "label": i} for i, x in enumerate(corpus.sequences())]
        stream = DATA.TokenBudgetStream(samples, 40, 20, rank=rank, world_size=2, cost=lambda s: len(s["words"]))
        return stream, DataLoader(stream, batch_size=None, num_workers=2, collate_fn=DATA.collate)

    def content(batches):
        return [(x["words"].values().tolist(), x["words"].lod.to_list(), x["label"].tolist()) for x in batches]

    seen = []
    for rank in range(2):
        source, loader = made(rank)
        source.set_epoch(3)
        batches = iter(loader)
        head = content(itertools.islice(batches, 3))
        state = source.state_dict(step=3)
        tail = content(batches)
        source.set_epoch(4)
        following = content(loader)
        source, loader = made(rank)
        source.load_state_dict(state)
        source.set_epoch(3)  # as trainers call it before every epoch
        assert content(loader) == tail and len(tail) > 2
        source.set_epoch(4)
        assert content(loader) == following and source.state_dict(step=0)["epoch"] >= 4
        seen += [label for _, _, labels in head + tail for label in labels]
    assert sorted(seen) == list(range(120))


def test_costs_at_levels():
    x = tl.from_lengths(torch.zeros(30), [[2, 0, 1], [1, 3, 2], [5, 0, 5, 10, 0, 10]])
    items = {(-1, "length"): [20, 0, 10], (0, "length"): [2, 0, 1], (1, "length"): [4, 0, 2]}
    items |= {(-1, "square"): [150, 0, 100], (1, "square"): [10, 0, 4], (-1, lambda n: n * 0.5): [10.0, 0.0, 5.0]}
    for (level, cost), expected in items.items():
        for given in (x, x.lod):
            sampler = DATA.TokenBudgetSampler(given, 1000, level=level, cost=cost)
            assert sampler._items.costs.tolist() == expected
    assert DATA.PackingSampler(x, 1000, balance="square")._items.weights.tolist() == [150, 0, 100]
    named = x.with_lod(x.lod.with_level_names(["a", "b", "c"]))
    assert DATA.TokenBudgetSampler(named, 9, level="b").summary()["items"] == 3
    empty = tl.from_lengths(torch.zeros(0), [[0, 0], []])
    assert DATA.TokenBudgetSampler(empty, 9)._items.costs.tolist() == [0, 0]


def test_items_that_are_too_large():
    lengths = [3, 25, 10, 11]
    for make in (DATA.TokenBudgetSampler, DATA.PackingSampler):
        with pytest.raises(ValueError, match="cost at most the budget 10, got 25 at index 1 and 2 such items in all"):
            make(lengths, 10)
        batches = list(make(lengths, 10, too_large="alone"))
        assert [1] in batches and [3] in batches and sorted(itertools.chain(*batches)) == [0, 1, 2, 3]
        batches = list(make(lengths, 10, too_large="cut"))
        pieces = sorted(i for i in itertools.chain(*batches) if isinstance(i, DATA.Piece))
        assert pieces == [(1, 0, 10), (1, 10, 20), (1, 20, 25), (3, 0, 10), (3, 10, 11)]
        assert sorted(i for i in itertools.chain(*batches) if type(i) is int) == [0, 2]
        sizes = [sum(lengths[i] if type(i) is int else i.end - i.begin for i in batch) for batch in batches]
        assert max(sizes) <= 10 and sum(sizes) == 49
    batches = list(DATA.TokenBudgetSampler(lengths, 50, cost="square", too_large="cut"))
    assert max(i.end - i.begin for i in itertools.chain(*batches) if type(i) is not int) == 7
    batches = list(DATA.BucketSampler(lengths, budget=12, too_large="cut"))
    assert sum(3 if i == 0 else 10 if i == 2 else 11 if i == 3 else i.end - i.begin for b in batches for i in b) == 49
    cut = DATA.TokenBudgetSampler(tl.LoD.from_lengths([lengths]), 10, too_large="cut")
    assert sum(len(batch) for batch in cut) == 7


LOD = tl.LoD.from_lengths([[1, 1], [5, 90]])
MAKE, PACK, BUCKET = DATA.TokenBudgetSampler, DATA.PackingSampler, DATA.BucketSampler


@pytest.mark.parametrize(
    ("call", "error", "said"),
    [
        (lambda: MAKE([], 5), ValueError, "TokenBudgetSampler: expected at least 1 item, got none"),
        (lambda: MAKE(tl.LoD([[0]]), 5), ValueError, "TokenBudgetSampler: expected at least 1 item, got none"),
        (lambda: PACK([3, -1], 5), ValueError, "PackingSampler: expected lengths >= 0, got -1 at index 1"),
        (lambda: MAKE([3.0], 5), TypeError, "expected lengths[0] to be an integer, got 3.0"),
        (lambda: MAKE([3], None), TypeError, "expected budget above 0 and below 2**62, got None"),
        (lambda: MAKE([3], 0), ValueError, "expected budget above 0 and below 2**62, got 0"),
        (lambda: MAKE([3], float("nan")), ValueError, "expected budget above 0 and below 2**62, got nan"),
        (lambda: MAKE([3], 5, rank=2, world_size=2), ValueError, "expected 0 <= rank < world_size, got rank 2 of 2"),
        (lambda: MAKE([3], 5, world_size=0), ValueError, "expected 0 <= rank < world_size, got rank 0 of 0"),
        (lambda: MAKE([3], 5, seed=-1), ValueError, "expected seed in [0, 2**63), got -1"),
        (lambda: MAKE([3], 5, shuffle=1), TypeError, "expected shuffle as one of (True, False), got 1"),
        (lambda: MAKE([3], 5, too_large="drop"), ValueError, "as one of ('refuse', 'alone', 'cut'), got 'drop'"),
        (lambda: MAKE([3], 5, cost="rows"), TypeError, "expected cost 'length', 'square' or a function, got 'rows'"),
        (lambda: MAKE([3], 5, cost=lambda n: -n), ValueError, "expected cost in [0, 2**62), got -3 for length 3"),
        (lambda: MAKE([3], 5, cost=lambda n: n * np.nan), ValueError, "in [0, 2**62), got nan for length 3"),
        (lambda: MAKE([3], 5, cost=np.sum), TypeError, "expected cost(lengths) as numbers of shape (1,), got int64 ()"),
        (lambda: MAKE([2**61] * 9, 2**61), None, None),
        (lambda: MAKE([2**40], 2**61, cost="square"), ValueError, "expected cost in [0, 2**62), got 1.2"),
        (lambda: MAKE(LOD, 50, too_large="cut"), ValueError, "'cut' with items of one level, got items of 2 levels"),
        (lambda: MAKE(LOD, 99, level=2), IndexError, "TokenBudgetSampler: expected level in [-2, 1], got 2"),
        (lambda: MAKE([3], 0.5, too_large="cut"), ValueError, "a budget of at least one row of the item at index 0"),
        (lambda: len(MAKE([3], 5, world_size=2, rank=0)), ValueError, "equally many batches on 2 ranks, got 1 items"),
        (lambda: len(MAKE([3] * 3, 5, drop_last=True, world_size=4, rank=0)), ValueError, "at least 4 batches"),
        (lambda: BUCKET([3]), ValueError, "BucketSampler: expected either batch_size or budget, got neither"),
        (lambda: BUCKET([3], 2, budget=4), ValueError, "expected either batch_size or budget, got both"),
        (lambda: BUCKET([3], 0), ValueError, "expected batch_size >= 1, got 0"),
        (lambda: BUCKET([3], 2, buckets=0), ValueError, "expected buckets >= 1, got 0"),
        (lambda: BUCKET([3], 2, buckets=[2.5]), TypeError, "expected buckets[0] to be an integer, got 2.5"),
        (lambda: MAKE([3], 5).set_epoch(-1), ValueError, "set_epoch: expected epoch in [0, 2**63), got -1"),
        (
            lambda: MAKE([3], 5).load_state_dict({}),
            TypeError,
            "load_state_dict: expected a state of TokenBudgetSampler",
        ),
        (
            lambda: MAKE([3, 4], 5).load_state_dict(MAKE([3, 4, 4], 5).state_dict()),
            ValueError,
            "the state of a sampler with the same lengths and options, got one of items 3 beside 2",
        ),
        (lambda: MAKE([3, 4], 5).load_state_dict(MAKE([4, 3], 5).state_dict()), ValueError, "got one of crc"),
        (lambda: MAKE([3, 4], 5).load_state_dict(MAKE([3, 4], 6).state_dict()), ValueError, "got one of crc"),
        (lambda: MAKE([3], 5).load_state_dict(PACK([3], 5).state_dict()), ValueError, "of sampler 'PackingSampler'"),
        (lambda: MAKE([3], 5).load_state_dict({**MAKE([3], 5).state_dict(), "step": 2}), ValueError, "step in [0, 1]"),
    ],
)
def test_errors(call, error, said):
    if error is None:
        call()
        return
    with pytest.raises(error) as raised:
        call()
    assert said in str(raised.value) and isinstance(raised.value, tl.LoDError)


# -- streams


def streams(source, world, budget=20, **options):
    return [list(DATA.TokenBudgetStream(source, budget, world_size=world, rank=r, **options)) for r in range(world)]


def test_streams_give_every_sample_once_on_one_rank():
    for n, world, buffer in itertools.product((1, 5, 40, 133), (1, 2, 5), (0, 7)):
        samples = [[i] * length for i, length in enumerate(drawn(n, 9, seed=n) + 1)]
        try:
            found = streams(samples, world, buffer=buffer)
        except ValueError as error:
            assert n < 3 * world and "expected samples for equally many batches" in str(error)
            continue
        assert len({len(batches) for batches in found}) == 1 and all(all(batches) for batches in found)
        assert sorted(itertools.chain(*itertools.chain(*found))) == samples
        assert max(sum(map(len, batch)) for batches in found for batch in batches) <= 20
        assert (n < 40) or buffer == 0 or [s for batch in found[0] for s in batch] != samples
        dropped = streams(samples, world, buffer=buffer, drop_last=True)
        assert len({len(batches) for batches in dropped}) == 1
        assert sum(map(len, itertools.chain(*dropped))) > n - 20 * world
    in_order = streams([[i] for i in range(30)], 1, budget=4, buffer=0)[0]
    assert [s for batch in in_order for s in batch] == [[i] for i in range(30)]


def test_ranks_of_a_stream_are_balanced():
    samples = [torch.empty(n) for n in np.clip(np.random.default_rng(0).lognormal(3, 0.6, 5000), 1, 200).astype(int)]
    loads = np.array([[sum(map(len, batch)) for batch in batches] for batches in streams(samples, 8, budget=512)])
    assert loads.sum(1).max() / loads.sum(1).mean() < 1.002 and (loads.max(0) / loads.mean(0)).mean() < 1.02


@pytest.mark.parametrize("workers", [0, 2])
def test_streams_are_the_same_with_workers_and_resume(workers):
    samples = [[i] * (i % 7) for i in range(100)]

    def loader(stream):
        return DataLoader(stream, batch_size=None, num_workers=workers, collate_fn=lambda batch: batch)

    stream = DATA.TokenBudgetStream(samples, 20, buffer=16)
    expected = list(stream)
    assert list(loader(stream)) == expected == list(stream)
    stream.set_epoch(1)
    second = list(loader(stream))
    assert second != expected and sorted(itertools.chain(*second)) == sorted(samples)
    if not workers:
        batches = iter(loader(stream))
        head = list(itertools.islice(batches, 4))
        state, resumed = stream.state_dict(), DATA.TokenBudgetStream(samples, 20, buffer=16)
        resumed.load_state_dict(state)
        assert head + list(loader(resumed)) == second


def test_streams_from_functions_and_samples_that_are_too_large():
    stream = DATA.TokenBudgetStream(lambda epoch: iter([[epoch], [epoch] * 3]), 3, buffer=0)
    stream.set_epoch(7)
    assert list(stream) == [[[7]], [[7, 7, 7]]]
    big = [[1], [2] * 7, [3]]
    with pytest.raises(ValueError, match="cost at most the budget 3, got 7 for sample 1"):
        list(DATA.TokenBudgetStream(big, 3))
    assert [[2] * 7] in list(DATA.TokenBudgetStream(big, 3, too_large="alone", buffer=0))
    cut = list(DATA.TokenBudgetStream(big, 3, too_large="cut", buffer=0))
    assert cut == [[[1]], [[2] * 3], [[2] * 3], [[2], [3]]]
    assert list(DATA.TokenBudgetStream(big, 50, cost=lambda s: torch.tensor(len(s) ** 2), buffer=0)) == [
        big[:2],
        big[2:],
    ]


@pytest.mark.parametrize(
    ("call", "error", "said"),
    [
        (lambda: DATA.TokenBudgetStream(iter([[1]]), 3), TypeError, "an iterable that starts again, got list_iterator"),
        (lambda: DATA.TokenBudgetStream(3, 3), TypeError, "expected source as an iterable or a function, got 3"),
        (lambda: DATA.TokenBudgetStream([], 3, buffer=-1), ValueError, "expected buffer >= 0, got -1"),
        (lambda: DATA.TokenBudgetStream([], 3, cost=3), TypeError, "expected cost as a function of a sample, got 3"),
        (lambda: DATA.TokenBudgetStream([], 3, cost=sum, too_large="cut"), ValueError, "'cut' with cost=len"),
        (lambda: list(DATA.TokenBudgetStream([[1]], 3, cost=lambda s: -1)), ValueError, "got -1 for sample 0"),
        (lambda: list(DATA.TokenBudgetStream([{1: 2, 3: 4}], 1, too_large="cut")), TypeError, "got dict at sample 0"),
        (lambda: list(DATA.TokenBudgetStream([[1]], 3, world_size=2, rank=0)), ValueError, "got 1 batches"),
        (
            lambda: DATA.TokenBudgetStream([], 3).load_state_dict(DATA.TokenBudgetStream([], 4).state_dict()),
            ValueError,
            "the state of a stream with the same options, got one of budget 4 beside 3",
        ),
        (
            lambda: DATA.TokenBudgetStream([], 3).load_state_dict(None),
            TypeError,
            "TokenBudgetStream.state_dict, got None",
        ),
    ],
)
def test_errors_of_streams(call, error, said):
    with pytest.raises(error) as raised:
        call()
    assert said in str(raised.value) and isinstance(raised.value, tl.LoDError)


# -- weights


def test_items_are_drawn_by_their_weights():
    lengths, weights = [3, 1, 2, 4] * 50, torch.tensor([0.0, 1.0, 2.0, 5.0]).repeat(50)
    sampler = tl.data.TokenBudgetSampler(lengths, 10, seed=3, weights=weights)
    drawn, epochs = np.zeros(200), 40
    for _ in range(epochs):
        batches = list(sampler)
        assert all(sum(lengths[i] for i in batch) <= 10 for batch in batches)
        items = [i for batch in batches for i in batch]
        assert len(items) == 200
        np.add.at(drawn, items, 1)
    share = drawn.reshape(50, 4).sum(0) / drawn.sum()
    assert share[0] == 0 and np.allclose(share, [0, 0.125, 0.25, 0.625], atol=0.02)
    assert list(
        tl.data.TokenBudgetSampler(lengths, 10, seed=3, weights=(weights.double() * 2.0**1000).tolist())
    ) == list(tl.data.TokenBudgetSampler(lengths, 10, seed=3, weights=weights.numpy()))


def test_a_state_goes_on_with_the_same_draws_and_tells_other_weights():
    lengths, weights = list(range(1, 31)), np.linspace(1, 4, 30)
    sampler = tl.data.TokenBudgetSampler(lengths, 60, weights=weights)
    whole = list(sampler)
    sampler.set_epoch(0)
    batches = iter(sampler)
    first = [next(batches) for _ in range(3)]
    other = tl.data.TokenBudgetSampler(lengths, 60, weights=weights)
    other.load_state_dict(sampler.state_dict())
    assert first + list(other) == whole
    ranks = [tl.data.TokenBudgetSampler(lengths, 60, rank=r, world_size=2, weights=weights) for r in (0, 1)]
    assert len({len(list(rank)) for rank in ranks}) == 1
    for changed in (None, weights[::-1].copy()):
        with pytest.raises(ValueError, match="state_dict"):
            tl.data.TokenBudgetSampler(lengths, 60, weights=changed).load_state_dict(sampler.state_dict())


@pytest.mark.parametrize(
    ("weights", "options", "error", "said"),
    [
        ([1.0], {}, ValueError, "weights of shape (2,), one for each item, got (1,)"),
        ([1.0, -1.0], {}, ValueError, "weights of at least 0, got -1.0 at index 1"),
        ([float("nan"), 1.0], {}, ValueError, "weights of at least 0, got nan at index 0"),
        ([float("inf"), 1.0], {}, ValueError, "weights of at least 0, got inf at index 0"),
        ([0, 0], {}, ValueError, "weights that are not all 0"),
        (["a", "b"], {}, TypeError, "weights as a list, an array or a tensor of numbers, got ['a', 'b']"),
        (torch.ones(2, device="meta"), {}, TypeError, "weights as a dense tensor with data, got a meta tensor"),
        ([[1], [1, 2]], {}, TypeError, "weights as a list, an array or a tensor of numbers"),
        ([1, 1], {"shuffle": False}, ValueError, "shuffle=True with weights, got False"),
        ([1, 1], {"too_large": "cut"}, ValueError, "too_large 'refuse' or 'alone' with weights, got 'cut'"),
    ],
)
def test_weights_that_are_refused(weights, options, error, said):
    with pytest.raises(error) as caught:
        tl.data.TokenBudgetSampler([3, 4], 10, weights=weights, **options)
    assert str(caught.value).startswith("TokenBudgetSampler: expected ") and said in str(caught.value)
