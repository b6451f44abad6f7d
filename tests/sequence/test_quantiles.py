# SPDX-License-Identifier: Apache-2.0
"""Medians, quantiles and ranks beside torch's and SciPy's definitions, case by case; their laws are in tests/laws."""

import pytest
import torch
import torch.nn.functional as F
from settings import FULL

import torch_lod as tl

LENGTHS = [[2, 1, 2], [3, 0, 4, 2, 1]]
MODES = ("linear", "lower", "higher", "nearest", "midpoint")
NAN, INF = float("nan"), float("inf")


def batch(dtype=torch.float32, width=(2,)):
    rows = torch.randn(10, *width, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return tl.from_lengths(rows.to(dtype), LENGTHS)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("mode", MODES)
def test_quantiles_are_torchs_to_the_bit(mode, dtype):
    wide = torch.promote_types(dtype, torch.float32)
    for q in (0.3, 0.5, 1, torch.tensor([0.0, 0.29, 0.5, 0.9, 1.0], dtype=wide)):
        for level in (0, 1):
            x = batch(dtype)
            got = tl.sequence_quantile(x, q, interpolation=mode, level=level, padding_value=7)
            parts = list(x.to(wide).sequences(0)) if level == 0 else x.to(wide).drop_level(0).unbind_sequences()
            for row, rows in zip(got, [p.values() if isinstance(p, tl.LoDTensor) else p for p in parts], strict=True):
                empty = torch.full((*(q.shape if isinstance(q, torch.Tensor) else ()), 2), 7.0)
                expected = rows.quantile(q, 0, interpolation=mode) if len(rows) else empty
                assert torch.equal(row, expected.to(dtype))


def test_shapes_and_levels():
    x = batch(width=())
    several = torch.tensor([0.25, 0.75])
    assert tl.sequence_quantile(x, 0.5).lod == tl.LoD.from_lengths(LENGTHS[:1])
    assert tl.sequence_quantile(x, several).shape == (5, 2)
    assert type(tl.sequence_quantile(x, several, level=0)) is torch.Tensor
    assert tl.sequence_quantile(x, several[:0]).shape == (5, 0)
    assert tl.sequence_quantile(x, several[0]).shape == (5,)
    assert tl.sequence_quantile(batch(width=(0,)), several).shape == (5, 2, 0)
    nothing = tl.from_lengths(torch.zeros(0, 3), [[0, 0]])
    assert tl.sequence_quantile(nothing, several, padding_value=INF).eq(INF).all()
    assert tl.sequence_pool(nothing, "median", padding_value=INF).eq(INF).all()


def test_nan_and_infinity():
    x = tl.from_lengths(torch.tensor([[1.0, NAN], [INF, 2.0], [3.0, 1.0], [4.0, -INF]]), [[3, 1]])
    for q in (0.0, 0.5):
        got = tl.sequence_quantile(x, q, interpolation="lower")
        assert got[0, 0] == (1.0, 3.0)[q > 0] and got[0, 1].isnan() and got[1].tolist() == [4.0, -INF]
    linear = tl.sequence_quantile(x, 0.5)
    assert linear[:, 0].tolist() == [3.0, 4.0] and linear[:, 1].isnan().all()  # torch: inf - inf
    value, row = tl.sequence_pool(x, "median", return_index=True)
    assert value[0, 0] == 3.0 and value[0, 1].isnan() and value[1].tolist() == [4.0, -INF]
    assert row.tolist() == [[2, 0], [3, 3]]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int64, torch.int8, torch.uint8, torch.uint16])
def test_medians_are_torchs(dtype):
    rows = torch.randint(0, 9, (10, 2), generator=torch.Generator().manual_seed(1)).to(dtype)
    x = tl.from_lengths(rows, LENGTHS)
    value, row = tl.sequence_pool(x, "median", padding_value=5, return_index=True)
    assert value.dtype == dtype and row.dtype == torch.int64
    for s, part in enumerate(rows.long().split(LENGTHS[1])):
        if not len(part):
            assert value[s].tolist() == [5, 5] and row[s].tolist() == [-1, -1]
            continue
        assert value[s].tolist() == part.median(0).values.tolist()
        assert rows.long().gather(0, row[s : s + 1].values())[0].tolist() == value[s].tolist()
    assert torch.equal(tl.nn.SequencePool("median")(x), tl.sequence_pool(x, "median"))


def test_gradients_go_to_the_rows_and_to_q():
    x, q = batch(torch.float64), torch.tensor([0.13, 0.47, 0.71], dtype=torch.float64, requires_grad=True)
    rows = x.values().requires_grad_()

    def of(rows, q):
        return tl.sequence_quantile(x.with_values(rows), q).values()

    assert torch.autograd.gradcheck(of, (rows, q)) and torch.autograd.gradgradcheck(of, (rows, q))
    (found,) = torch.autograd.grad(tl.sequence_pool(x.with_values(rows), "median").sum(), rows)
    _, index = tl.sequence_pool(x, "median", return_index=True)
    assert torch.equal(found, torch.zeros(10, 2).double().scatter(0, index.values()[[0, 2, 3, 4]], 1.0))
    broken = x.values().clone()
    broken[0, 0] = broken[3, 1] = NAN
    (of_q,) = torch.autograd.grad(of(broken, q).nan_to_num().sum(), q)
    assert of_q.isfinite().all() and of_q.ne(0).all()


def test_ignored_rows_are_left_out():
    logits, target = torch.randn(6, 4), torch.tensor([0, -100, 2, 3, -100, -100])
    lod = tl.LoD.from_lengths([[3, 2, 1]])
    loss = F.cross_entropy(tl.LoDTensor(logits, lod), tl.LoDTensor(target, lod), reduction="none")
    plain = loss.values()
    for got in (tl.sequence_quantile(loss, 0.5), tl.sequence_quantile(loss, torch.tensor([0.5]))[:, 0]):
        assert got.tolist() == [plain[[0, 2]].quantile(0.5).item(), plain[3].item(), 0.0]
    assert tl.sequence_pool(loss, "median").tolist() == [plain[[0, 2]].median().item(), plain[3].item(), 0.0]


@pytest.mark.skipif(not FULL, reason="TORCH_LOD_FULL=1: 17 million rows")
def test_a_long_sequence_stays_within_itself():
    n = 2**24 + 5  # beyond what float32 counts
    x = tl.from_lengths(torch.cat([torch.arange(n, dtype=torch.float32), torch.tensor([-1.0, -2.0])]), [[n, 2]])
    assert tl.sequence_quantile(x, 1.0).tolist() == [float(n - 1), -1.0]


def test_ranks():
    x = tl.from_lengths(torch.tensor([3.0, 1.0, 3.0, 2.0, 5.0, NAN, 4.0]), [[2, 1], [4, 0, 3]])
    _, rank = tl.sequence_sort(x, return_rank=True)
    assert rank.lod is x.lod and rank.tolist() == [2, 0, 3, 1, 1, 2, 0]
    _, back = tl.sequence_sort(x, descending=True, return_rank=True)
    assert back.tolist() == [0, 3, 1, 2, 1, 0, 2]
    # the element at every rank, put back by the ranks
    sorted_, rank = tl.sequence_sort(x, return_rank=True)
    starts = x.row_offsets()[:-1][x.lod.segment_ids()]
    torch.testing.assert_close(sorted_.values()[starts + rank.values()], x.values(), equal_nan=True)
    moved, order = tl.sequence_sort(x, key=torch.tensor([1, 0, 0]), level=0, return_rank=True)
    assert order.lod == tl.LoD.from_lengths([[2, 1]]) and order.tolist() == [1, 0, 0]
    assert moved.lod.to_lengths() == [[2, 1], [0, 4, 3]]
    _, by_key = tl.sequence_sort(x, key=-x.values().nan_to_num(), return_rank=True)
    assert by_key.lod is x.lod and by_key.tolist() == [0, 3, 1, 2, 0, 2, 1]


def test_one_graph_for_batches_of_any_lengths():
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()

    def of(x, q):
        return tl.sequence_quantile(x, q), tl.sequence_pool(x, "median"), tl.sequence_sort(x, return_rank=True)[1]

    compiled, q = torch.compile(of, backend="aot_eager", fullgraph=True), torch.tensor([0.2, 0.7])
    for lengths in ([[2, 3], [2, 4, 3, 2, 5]], [[3, 2], [2, 0, 4, 3, 7]], [[1, 1, 2], [3, 2, 2, 9]]):
        x = tl.from_lengths(torch.randn(sum(lengths[1]), 2), lengths)
        for got, expected in zip(compiled(x, q), of(x, q), strict=True):
            torch.testing.assert_close(got, expected)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1
    with pytest.raises(RuntimeError, match="q in \\[0, 1\\]"):
        compiled(x, q + 0.5)
