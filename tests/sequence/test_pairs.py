# SPDX-License-Identifier: Apache-2.0
"""Pairs of rows, and what Paddle ranks with, beyond the laws: precision, and gradients that are not of the formula."""

import pytest
import torch

import torch_lod as tl


def test_distances_of_clouds_far_from_the_origin_are_those_of_differences():
    g = torch.Generator().manual_seed(0)
    x = tl.from_lengths(torch.randn(40, 3, generator=g, dtype=torch.float64) + 1e6, [[15, 25]])
    got = tl.sequence_pairwise(x, x, "euclidean")
    i, j = tl.sequence_pairs(x, x)
    expected = (x.values()[i.values()] - x.values()[j.values()]).norm(dim=1)
    torch.testing.assert_close(got.values(), expected, rtol=1e-9, atol=1e-12)
    assert got.lod == i.lod and torch.equal(got.values() == 0, i.values() == j.values())


def test_the_slope_of_a_distance_of_zero_is_zero():
    rows = torch.tensor([[1.0, 2.0], [1.0, 2.0], [3.0, 1.0]], requires_grad=True)
    x = tl.from_lengths(rows, [[3]])
    for out in (tl.sequence_pairwise(x, x, "euclidean"), tl.sequence_knn(x, x, 3)[0]):
        assert out.values().flatten()[0] == 0
        (slope,) = torch.autograd.grad(out.sum(), rows)
        assert slope.isfinite().all() and slope.any()


@pytest.mark.parametrize("size", [1e-24, 1e-22, 1.0, 1e19])
def test_neighbours_are_in_order_whatever_their_size(size):
    rows = torch.tensor([[0.0, 0.0], [1.0, 2.0], [4.0, 1.0]]) * size
    x = tl.from_lengths(rows, [[3]])
    near, found = tl.sequence_knn(x, x, 3)
    assert found.tolist() == [[0, 1, 2], [1, 0, 2], [2, 1, 0]]
    want = torch.tensor([[0, 5, 17], [0, 5, 10], [0, 10, 17]]).double().sqrt() * size
    torch.testing.assert_close(near.values(), want.float(), rtol=1e-6, atol=0)


def test_neighbours_with_an_infinity_are_as_far_as_in_pairs():
    inf = float("inf")
    rows = torch.tensor([[inf, 0.0], [1.0, 2.0], [3.0, inf], [inf, 0.0]], requires_grad=True)
    x = tl.from_lengths(rows, [[4]])
    near, found = tl.sequence_knn(x, x, 4)
    assert torch.equal(
        near.values(), tl.sequence_pairwise(x, x, "euclidean").values().view(4, 4).gather(1, found.values())
    )
    assert torch.autograd.grad(near.values()[near.isfinite().values()].sum(), rows)[0].isfinite().all()


ODD = [float("inf"), -float("inf"), float("nan"), 1e9, 1e25, 1e38]
EXACT = "donot_use_mm_for_euclid_dist"


@pytest.mark.parametrize("odd", ODD)
def test_a_row_far_from_all_others_leaves_their_neighbours_alone(odd):
    g = torch.Generator().manual_seed(0)
    x, y = torch.randn(40, 3, generator=g), torch.randn(90, 3, generator=g)
    y[17, 1] = y[65, 0] = odd
    near, found = tl.sequence_knn(tl.from_lengths(x, [[20, 20]]), tl.from_lengths(y, [[50, 40]]), 4)
    for rows, others, begin in ((slice(0, 20), slice(0, 50), 0), (slice(20, 40), slice(50, 90), 50)):
        every = torch.cdist(x[rows], y[others], compute_mode=EXACT).nan_to_num(nan=3e38, posinf=3e38)
        want = every.topk(4, largest=False)
        assert torch.equal(found[rows] - begin, want.indices)
        torch.testing.assert_close(near[rows], want.values)


@pytest.mark.parametrize("odd", ODD)
def test_distances_from_a_row_with_an_infinity_or_nan_are_infinite_or_nan_and_no_others(odd):
    g = torch.Generator().manual_seed(1)
    x, y = torch.randn(7, 3, generator=g), torch.randn(6, 3, generator=g)
    y[2, 1] = odd
    x.requires_grad_(), y.requires_grad_()
    got = tl.sequence_pairwise(tl.from_lengths(x, [[7]]), tl.from_lengths(y, [[6]]), "euclidean").values().view(7, 6)
    want = torch.cdist(x.double(), y.double(), compute_mode=EXACT).float()
    torch.testing.assert_close(got, want, equal_nan=True)
    ours, theirs = (torch.autograd.grad(d.sum(), (x, y)) for d in (got, want))
    for mine, torchs in zip(ours, theirs):
        known = torch.isfinite(torchs)  # torch lets an infinity reach the gradients of the finite rows, as NaN
        torch.testing.assert_close(mine[known], torchs[known])
    assert torch.isfinite(ours[0]).all() or odd != odd
    back = tl.sequence_pairwise(tl.from_lengths(y, [[6]]), tl.from_lengths(x, [[7]]), "euclidean").values().view(6, 7)
    torch.testing.assert_close(back, want.T, equal_nan=True)


@pytest.mark.parametrize("use_cvm", [True, False])
@pytest.mark.parametrize("compiled", [False, True])
def test_counts_are_the_gradient_of_their_columns(use_cvm, compiled):
    rows = torch.rand(4, 3, requires_grad=True)
    counts = torch.tensor([[5.0, 1.0], [7.0, 2.0], [9.0, 3.0]])
    x = tl.from_lengths(rows, [[2, 1], [1, 0, 3]])
    torch._dynamo.reset()
    op = torch.compile(tl.cvm, backend="aot_eager", fullgraph=True) if compiled else tl.cvm
    (slope,) = torch.autograd.grad((3 * op(x, counts, use_cvm)).sum(), rows)
    assert torch.equal(slope, torch.tensor([[5.0, 1.0, 3.0]] + [[9.0, 3.0, 3.0]] * 3))
    (slope,) = torch.autograd.grad(tl.cvm(x, counts[:2], use_cvm, level=0).sum(), rows)
    assert torch.equal(slope[:, 0], torch.tensor([5.0, 7.0, 7.0, 7.0]))
