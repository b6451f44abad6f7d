# SPDX-License-Identifier: Apache-2.0
"""Of operators on LoDTensors what the table cannot say: infinities, zeros and NaN, draws, fillings, parts of sequences."""

import itertools
import math

import pytest
import torch
import torch.nn.functional as F
from nested import flat, within
from reference.ops import extreme_of
from samples.words import STRUCTURES, lod_tensor

import torch_lod as tl

INF, NAN = math.inf, math.nan
FINITE = (0.0, 1.0, -1e4, 3.0, 800.0)
MASKED, ALL = (-INF, *FINITE), (-INF, INF, NAN, 0.0, 1e4, -800.0)
#: operator, torch's for one sequence, values whose results are compared, values whose gradients are as well
NUMBERS = {
    "logcumsumexp": (
        tl.sequence_logcumsumexp,
        lambda r: torch.stack([r[: i + 1].logsumexp(0) for i in range(len(r))]),
        ALL,
        MASKED,
    ),
    "logsumexp": (lambda x: tl.sequence_pool(x, "logsumexp"), lambda r: r.logsumexp(0), ALL, MASKED),
    "log_softmax": (tl.sequence_log_softmax, lambda r: r.log_softmax(0), ALL, ALL),
    "softmax": (tl.sequence_softmax, lambda r: r.softmax(0), ALL, ALL),
    "cumsum": (tl.sequence_cumsum, lambda r: r.cumsum(0), ALL, ALL),
    "cumprod": (tl.sequence_cumprod, lambda r: r.cumprod(0), ALL, (0.0, 0.5, -3.0, 2.0)),
    "prod": (lambda x: tl.sequence_pool(x, "prod"), lambda r: r.prod(0), ALL, (0.0, 0.5, -3.0, 2.0)),
    "var": (lambda x: tl.sequence_pool(x, "var"), lambda r: r.var(0), ALL, FINITE),
    "std": (lambda x: tl.sequence_pool(x, "std"), lambda r: r.std(0), ALL, FINITE),
    "normalize": (
        tl.sequence_normalize,
        lambda r: F.instance_norm(r.view(1, 1, -1), eps=1e-5).flatten(),
        ALL,
        FINITE,
    ),
    # without gradient: ours goes to the first of equals, torch's to the last
    "cummax": (lambda x: tl.sequence_cummax(x)[0], lambda r: r.cummax(0).values, ALL, ()),
    "cummin": (lambda x: tl.sequence_cummin(x)[0], lambda r: r.cummin(0).values, ALL, ()),
    "sort": (tl.sequence_sort, lambda r: torch.sort(r, dim=0, stable=True).values, ALL, ALL),
    "sort, largest first": (
        lambda x: tl.sequence_sort(x, descending=True),
        lambda r: torch.sort(r, dim=0, stable=True, descending=True).values,
        ALL,
        ALL,
    ),
    "argmax": (
        lambda x: tl.sequence_argmax(x) - x.row_offsets()[:-1],
        lambda r: extreme_of(r[:, None], "max")[1],
        ALL,
        (),
    ),
    "max": (lambda x: tl.sequence_pool(x, "max"), lambda r: r.max(0).values, ALL, ()),
    "min": (lambda x: tl.sequence_pool(x, "min"), lambda r: r.min(0).values, ALL, ()),
    "any": (lambda x: tl.sequence_pool(x, "any"), lambda r: (r != 0).any(0), ALL, ()),
    "all": (lambda x: tl.sequence_pool(x, "all"), lambda r: (r != 0).all(0), ALL, ()),
}


def plain(t):
    return t.values() if isinstance(t, tl.LoDTensor) else t


@pytest.mark.parametrize("name", NUMBERS)
def test_every_three_numbers(name, device):
    op, one, numbers, smooth = NUMBERS[name]
    if name in ("cumprod", "prod") and not tl.ops.COMPILED:
        numbers = (NAN, *FINITE)  # the composition multiplies infinities by 0 on its way
    for given, differentiates in ((numbers, False), (smooth, True)) if smooth else ((numbers, False),):
        rows = torch.tensor(list(itertools.product(given, repeat=3)), dtype=torch.float64, device=device)
        leaf, single = rows.flatten().requires_grad_(), rows.clone().requires_grad_()
        out = plain(op(tl.from_lengths(leaf, [[3] * len(rows)]))).view(len(rows), -1)
        want = torch.stack([one(r).reshape(-1) for r in single])
        torch.testing.assert_close(out, want, equal_nan=True)
        if differentiates:
            got, expected = (torch.autograd.grad(t.sum(), i)[0] for t, i in ((out, leaf), (want, single)))
            torch.testing.assert_close(got.view(rows.shape), expected, equal_nan=True)


def test_a_logarithm_of_sums_does_not_overflow_in_half_types(device):
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        rows = torch.tensor([-60000.0, 60000.0, 0.0, 60000.0, -INF, -INF, -60000.0], dtype=dtype, device=device)
        out = tl.sequence_logcumsumexp(tl.from_lengths(rows, [[4, 3]])).values().double()
        want = torch.cat([r.double().logcumsumexp(0) for r in rows.split([4, 3])])
        torch.testing.assert_close(out, want.to(dtype).double(), rtol=1e-2, atol=1e-2)


def test_pad_values_take_no_gradient_and_give_none(device):
    x = tl.from_lengths(torch.randn(3, 2, device=device, requires_grad=True), [[0, 2, 1, 0]])
    fill = torch.tensor(7.0, device=device, requires_grad=True)
    for make in (
        lambda: tl.sequence_pad(x, fill)[0],
        lambda: tl.sequence_pool(x, "prod", padding_value=7.0).reshape(4, 1, 2),
        lambda: tl.sequence_pool(x, "max", padding_value=7.0).reshape(4, 1, 2),
        lambda: tl.sequence_pool(x, "std", padding_value=7.0, correction=0).reshape(4, 1, 2),
        lambda: tl.sequence_topk(x, 3, pad_value=7.0)[0],
    ):
        out = make()
        assert (out[0] == 7).all() and (out[3] == 7).all()
        for sequence in (0, 3):
            found = torch.autograd.grad(out[sequence].sum(), (x, fill), allow_unused=True, retain_graph=True)
            assert found[1] is None and (found[0] is None or not found[0].any())


@pytest.mark.parametrize("lengths", STRUCTURES.values(), ids=list(STRUCTURES))
def test_samples_are_elements_in_their_order(lengths, device):
    x = lod_tensor(lengths, (2,), torch.float64, device)
    for k, n in itertools.product(range(len(lengths)), (1, 2)):
        before = x.to_list()
        drawn = [
            tl.sequence_sample(x, n, generator=torch.Generator().manual_seed(seed), level=k).to_list()
            for seed in (0, 0, 1, 2)
        ]
        assert drawn[0] == drawn[1]
        for out in drawn:
            assert len(out) == len(before)
            for kept, given in zip(flat(out, k), flat(before, k), strict=True):
                rest = iter(given)
                assert len(kept) == min(n, len(given)) and all(any(e == other for other in rest) for e in kept)


def test_all_samples_are_equally_likely(device):
    x = tl.from_lengths(torch.arange(4, device=device), [[4]])
    torch.manual_seed(3)
    seen = [tuple(tl.sequence_sample(x, 2).values().tolist()) for _ in range(1200)]
    counts = [seen.count(pair) for pair in itertools.combinations(range(4), 2)]
    assert sum(counts) == 1200 and min(counts) > 140 and max(counts) < 260


@pytest.mark.parametrize("lengths", STRUCTURES.values(), ids=list(STRUCTURES))
def test_dropout_takes_whole_sequences(lengths, device):
    x = lod_tensor(lengths, (3,), torch.float64, device)
    leaf = x.values().clone().requires_grad_()
    for k in range(len(lengths)):
        out = tl.sequence_dropout(x.with_values(leaf), 0.25, level=k)
        assert out.lod is x.lod
        ratio = torch.autograd.grad(out.sum(), leaf)[0]
        torch.testing.assert_close(out.values(), leaf * ratio)
        for a, b in itertools.pairwise(x.row_offsets(k).tolist()):
            assert bool((ratio[a:b] == 0).all()) or torch.allclose(ratio[a:b], torch.tensor(4 / 3).double())


def test_dropout_keeps_its_share(device):
    x = tl.from_lengths(torch.ones(2000, device=device), [[1] * 2000])
    torch.manual_seed(0)
    kept = int((tl.sequence_dropout(x, 0.25).values() > 0).sum())
    assert 1400 < kept < 1600


def test_conv1d_is_torchs_same_convolution(device):
    x = tl.from_lengths(torch.randn(9, 4, device=device, dtype=torch.float64), [[5, 0, 1, 3]])
    for size, dilation, groups in itertools.product((1, 2, 3, 4, 5), (1, 2, 3), (1, 2, 4)):
        weight, bias = torch.randn(4, 4 // groups, size).double().to(device), torch.randn(4).double().to(device)
        out = tl.sequence_conv1d(x, weight, bias, dilation=dilation, groups=groups)
        for got, rows in zip(out.sequences(), x.sequences()):
            if len(rows):
                want = F.conv1d(rows.t()[None], weight, bias, 1, "same", dilation, groups)[0].t()
                torch.testing.assert_close(got, want)


def test_a_sequence_split_in_two_levels_comes_back(device):
    for lengths in STRUCTURES.values():
        x = lod_tensor(lengths, (2,), torch.float64, device)
        for k in range(len(lengths)):
            mask = torch.rand(x.num_sequences(k)) < 0.5
            back = tl.merge_lod_tensor(*tl.split_lod_tensor(x, mask, level=k), x, mask, level=k)
            assert back.lod == x.lod and back.level_names == x.level_names and torch.equal(back, x)
            table = tl.lod_rank_table(x, level=k)
            if tl.max_sequence_len(table):
                back = tl.array_to_lod_tensor(tl.lod_tensor_to_array(x, table), table)
                assert back.lod == x.lod and back.level_names == x.level_names and torch.equal(back, x)


# -- parts of sequences, against nested lists


@pytest.mark.parametrize("lengths", STRUCTURES.values(), ids=list(STRUCTURES))
def test_heads_and_tails(lengths, device):
    x = lod_tensor(lengths, (), torch.int64, device)
    items, depth = x.to_list(), len(lengths)
    for k in (0, 1, 2, 9, 2**62):
        assert x.head(k).to_list() == within(items, depth, lambda s, k=k: s[:k])
        assert x.tail(k).to_list() == within(items, depth, lambda s, k=k: s[len(s) - min(k, len(s)) :])
        assert x.head(k).level_names == x.level_names
    for i in (0, 1, 2, -1, -2, -9, 2**61, -(2**62)):
        expected = [s[i] if -len(s) <= i < len(s) else 7 for s in flat(items, depth - 1)]
        out = x.nth(i, padding_value=7)
        assert plain(out).tolist() == expected and getattr(out, "lod", None) == x.lod.outer(-1)


@pytest.mark.parametrize("lengths", STRUCTURES.values(), ids=list(STRUCTURES))
def test_sequences_in_another_order(lengths, device):
    x = lod_tensor(lengths, (2,), torch.float64, device)
    items, n = x.to_list(), len(lengths[0])
    order = torch.randperm(n)
    assert x.permute_sequences(order).to_list() == [items[i] for i in order.tolist()]
    for k in range(1, len(lengths)):
        order = [i for s in parents(lengths, k) for i in reversed(s)]
        moved = x.permute_sequences(order, level=k)
        assert moved.to_list() == within(items, k, lambda s: s[::-1])
        assert moved.level_names == x.level_names


def parents(lengths, k):
    """The numbers of the sequences of level k, by the sequence that they are in."""
    rest = iter(range(sum(lengths[k - 1])))
    return [list(itertools.islice(rest, n)) for n in lengths[k - 1]]


@pytest.mark.parametrize("lengths", STRUCTURES.values(), ids=list(STRUCTURES))
def test_sequences_by_index_and_rows_by_mask(lengths, device):
    x = lod_tensor(lengths, (2,), torch.float64, device)
    items, n = x.to_list(), len(lengths[0])
    for key in (slice(None, None, -1), slice(1, None), slice(5, 2), slice(None, None, 2)):
        assert x.seq[key].to_list() == items[key]
    picked = [i for i in (1, 0, -1, 0) if -n <= i < n]
    assert x.seq[picked].to_list() == [items[i] for i in picked]
    mask = torch.arange(n) % 2 == 0
    assert x.seq[mask].to_list() == [items[i] for i in range(0, n, 2)]
    if len(lengths) > 1 and n:
        i = n - 1
        for key in (slice(None, None, -1), slice(0, 1)):
            assert x.seq[i, key].to_list() == items[i][key]
    keep = torch.arange(len(x), device=device) % 3 != 1
    numbers = iter(range(len(x)))
    expected = within(items, len(lengths), lambda s: [row for row in s if next(numbers) % 3 != 1])
    assert x.filter_rows(keep).to_list() == expected


@pytest.mark.parametrize("sign", [1, -1], ids=["cummax", "cummin"])
def test_extremes_so_far_of_many_rows_of_one_number(sign):
    g = torch.Generator().manual_seed(0)
    lengths = [0, 1, 2, 15, 16, 17, 40, 0, 100, 33]
    rows = torch.randint(-6, 7, (sum(lengths),), generator=g).float()
    rows[torch.rand(len(rows), generator=g) < 0.03] = -sign * INF
    rows[[20, 21, 60, 150]] = NAN
    x = tl.from_lengths(rows, [lengths])
    best, index = (tl.sequence_cummax if sign > 0 else tl.sequence_cummin)(x)
    expected = []
    for first, end in itertools.pairwise(x.lod.levels[0].tolist()):
        at = first
        for r in range(first, end):
            better = sign * rows[r] > sign * rows[at] or (rows[r].isnan() and not rows[at].isnan())
            at = r if better else at
            expected.append(at)
    assert index.values().tolist() == expected
    torch.testing.assert_close(best.values(), rows[expected], rtol=0, atol=0, equal_nan=True)
    flat_at_its_best = tl.from_lengths(torch.full((40,), -sign * INF), [[40]])
    assert (tl.sequence_cummax if sign > 0 else tl.sequence_cummin)(flat_at_its_best)[1].values().tolist() == [0] * 40
