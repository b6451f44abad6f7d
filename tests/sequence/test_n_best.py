# SPDX-License-Identifier: Apache-2.0
"""The n best paths for large n, and pairs in more than one part."""

import pytest
import torch

import torch_lod as tl
from torch_lod.ops.compositions import COMPOSITIONS
from torch_lod.sequence import pairs

COMPOSED = COMPOSITIONS["chain_argmax"]


@pytest.mark.parametrize("tags", [1, 2, 5, 20])
@pytest.mark.parametrize("n", [2, 7, 200])
@pytest.mark.parametrize("kind", ["random", "equal", "forbidden", "not finite"])
def test_as_many_best_paths_as_wanted(tags, n, kind):
    """The kernel merges what the composition sorts."""
    g = torch.Generator().manual_seed(tags)
    offsets = torch.tensor([0, 1, 1, 4, 9])
    x, t = torch.randn(9, tags, generator=g), torch.randn(tags + 2, tags, generator=g)
    if kind == "equal":  # exact sums, and many of them the same
        x, t = x.round(), t.round()
    if kind == "forbidden":
        t[2:][torch.rand(tags, tags, generator=g) < 0.4] = -float("inf")
    if kind == "not finite":
        x[2, 0], x[5, -1], x[8, 0] = float("nan"), float("inf"), -float("inf")
    scores, path = tl.ops.chain_argmax(x, t, offsets, n)
    wanted, other = COMPOSED(x, t, offsets, n)
    torch.testing.assert_close(scores, wanted)
    if kind != "random":
        return
    assert torch.equal(path, other)


def test_equal_paths_keep_the_order_of_tags():
    found = tl.ops.chain_argmax(torch.zeros(2, 3), torch.zeros(5, 3), torch.tensor([0, 2]), 9)[1]
    assert found.t().tolist() == [[i, j] for j in range(3) for i in range(3)]


@pytest.mark.parametrize("most", [1, 7, 40, 10**6])
def test_pairs_in_parts_are_the_same(monkeypatch, most):
    """Signals are heard between the parts of a search; a part is some sequences or some rows of one."""
    g = torch.Generator().manual_seed(0)
    x = tl.from_lengths(torch.randn(19, 2, generator=g, dtype=torch.float64), [[5, 0, 1, 6, 7]]).requires_grad_()
    y = tl.from_lengths(torch.randn(15, 2, generator=g, dtype=torch.float64), [[4, 3, 0, 6, 2]]).requires_grad_()
    calls = {
        "knn": lambda: tl.sequence_knn(x, y, 3),
        "dot": lambda: (tl.sequence_pairwise(x, y),),
        "euclidean": lambda: (tl.sequence_pairwise(x, y, "euclidean"),),
    }

    def results():
        for call in calls.values():
            out = call()
            finite = out[0].values()[out[0].values().isfinite()]
            yield *(o.values() for o in out), *torch.autograd.grad(finite.sum(), (x, y))

    wanted = list(results())
    monkeypatch.setattr(pairs, "PAIRS", most)
    for got, want in zip(results(), wanted):
        for a, b in zip(got, want):
            torch.testing.assert_close(a, b)


def test_a_search_makes_no_tensor_of_all_pairs(monkeypatch):
    monkeypatch.setattr(pairs, "PAIRS", 1000)
    rows, largest = [], torch.baddbmm
    monkeypatch.setattr(torch, "baddbmm", lambda *a, **k: rows.append(a[1].shape[1]) or largest(*a, **k))
    x = tl.from_lengths(torch.randn(300, 2), [[300]])
    tl.sequence_knn(x, x, 3)
    assert sum(rows) == 300 and max(rows) * 300 <= 1000
