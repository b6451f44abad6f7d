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
