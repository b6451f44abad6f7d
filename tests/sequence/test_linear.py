# SPDX-License-Identifier: Apache-2.0
"""Linear recurrences beside loops and what they are used for, case by case; their laws are in tests/laws."""

import re
from pathlib import Path

import pytest
import torch

import torch_lod as tl

PAGE = (Path(__file__).parents[2] / "docs/recurrence.md").read_text()
LENGTHS = [[2, 1], [3, 0, 4]]


def batch(width=(2,), dtype=torch.float64):
    rows = torch.randn(7, *width, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return tl.from_lengths(rows.to(dtype), LENGTHS)


def loop(rows, factors, reverse):
    steps, h, out = range(len(rows)), torch.zeros_like(rows[:1]).sum(0), [None] * len(rows)
    for t in reversed(steps) if reverse else steps:
        h = factors[t] * h + rows[t]
        out[t] = h
    return torch.stack(out)


@pytest.mark.parametrize("reverse", [False, True])
def test_a_number_a_vector_and_rows(reverse):
    x = batch()
    rows = tl.LoDTensor(torch.rand(7, 2, dtype=torch.float64), x.lod)
    for a, factors in (
        (0.9, torch.full((7, 2), 0.9).double()),
        (-2, torch.full((7, 2), -2.0).double()),
        (torch.tensor([0.5, 1.5]).double(), torch.tensor([[0.5, 1.5]]).double().expand(7, 2)),
        (torch.tensor(0.5).double(), torch.full((7, 2), 0.5).double()),
        (rows, rows.values()),
        (rows[:, 0], rows.values()[:, :1].expand(7, 2)),
        (rows[:, :1], rows.values()[:, :1].expand(7, 2)),
    ):
        for level, cuts in ((1, (3, 4)), (0, (3, 4))):
            got = tl.sequence_scan(x, a, reverse=reverse, level=level)
            parts = zip(x.values().split(cuts), factors.split(cuts))
            torch.testing.assert_close(got.values(), torch.cat([loop(r, f, reverse) for r, f in parts]))
            assert got.lod is x.lod


def test_an_outer_level_runs_through_its_rows():
    x = tl.from_lengths(torch.ones(4), [[2, 1], [1, 2, 1]])
    assert tl.sequence_scan(x, 0.5).tolist() == [1.0, 1.0, 1.5, 1.0]
    assert tl.sequence_scan(x, 0.5, level=0).tolist() == [1.0, 1.5, 1.75, 1.0]


def test_it_is_a_sum_where_a_is_one_and_starts_again_where_it_is_zero():
    x = batch()
    torch.testing.assert_close(tl.sequence_scan(x, 1).values(), tl.sequence_cumsum(x).values())
    rows = x.values().clone()
    rows[3] = torch.inf
    rows[5, 0] = torch.nan
    a = torch.ones(7).double()
    a[[4, 6]] = 0.0
    y = tl.sequence_scan(tl.LoDTensor(rows, x.lod), tl.LoDTensor(a, x.lod))
    assert torch.equal(y[4], rows[4]) and torch.equal(y[6], rows[6])


def test_half_types_have_a_state_in_float32():
    for dtype in (torch.float16, torch.bfloat16):
        x = tl.from_lengths(torch.ones(4000, dtype=dtype) / 64, [[4000]])
        got = tl.sequence_scan(x, 1)
        assert got.dtype == dtype and abs(got[-1].item() / 62.5 - 1) < 0.01


@pytest.mark.parametrize("reverse", [False, True])
def test_gradients_twice_by_x_and_by_every_kind_of_a(reverse):
    x = batch()
    rows = x.values().requires_grad_()
    for a in (torch.rand(()), torch.rand(2), torch.rand(7), torch.rand(7, 1), torch.rand(7, 2)):
        a = a.double().requires_grad_()

        def of(rows, a):
            factor = tl.LoDTensor(a, x.lod) if a.dim() and len(a) == 7 else a
            return tl.sequence_scan(x.with_values(rows), factor, reverse=reverse).values()

        assert torch.autograd.gradcheck(of, (rows, a)) and torch.autograd.gradgradcheck(of, (rows, a))


def test_nothing_leaks_into_the_gradient_of_a_neighbour():
    """Backwards, the factor of a row comes from the row after it."""
    x = batch()
    rows = x.values().clone()
    rows[3:] = torch.nan
    a = torch.rand(7, 2, dtype=torch.float64, requires_grad=True)
    tl.sequence_scan(tl.LoDTensor(rows, x.lod), tl.LoDTensor(a, x.lod), reverse=True)[:3].sum().backward()
    assert a.grad[:3].isfinite().all()


def test_autocast_takes_factors_of_another_dtype():
    x = batch(dtype=torch.bfloat16)
    with pytest.raises(tl.LoDError, match=r"a of .*bfloat16 on cpu, as x, got .*float64"):
        tl.sequence_scan(x, torch.ones(2, dtype=torch.float64))
    factors = torch.ones(2) / 3
    assert tl.sequence_scan(x, factors).equal(tl.sequence_scan(x.float(), factors).to(torch.bfloat16))
    with torch.autocast("cpu", torch.bfloat16):
        assert tl.sequence_scan(x, torch.ones(2)).dtype == torch.bfloat16


def test_one_graph_for_batches_of_any_lengths():
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()

    def of(x, a):
        return (
            tl.sequence_scan(x, a) + tl.sequence_scan(x, a.sigmoid(), reverse=True, level=0) + tl.sequence_scan(x, 0.5)
        )

    compiled = torch.compile(of, backend="aot_eager", fullgraph=True)
    for lengths in ([[2, 3], [2, 4, 3, 2, 5]], [[3, 2], [2, 0, 4, 3, 7]], [[1, 1, 2], [3, 2, 2, 9]]):
        rows = torch.randn(sum(lengths[1]), 2, requires_grad=True)
        x, a = tl.from_lengths(rows, lengths), tl.from_lengths(torch.rand(len(rows), 2), lengths)
        got, expected = compiled(x, a), of(x, a)
        torch.testing.assert_close(got, expected)
        torch.testing.assert_close(
            torch.autograd.grad(got.sum(), rows)[0], torch.autograd.grad(expected.sum(), rows)[0]
        )
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1


def test_the_lines_of_the_page_are_what_they_are_called():
    section = PAGE.split("## A linear recurrence")[1].split("## ")[0]
    line = re.search(r"```python\n(.*?)```", section, re.S)[1]
    g = torch.Generator().manual_seed(0)
    rewards, values = (tl.from_lengths(torch.randn(9, generator=g), [[4, 0, 3, 2]]) for _ in "rv")
    gamma, lam, alpha = 0.9, 0.8, 0.3
    names = {"tl": tl, "torch": torch, "rewards": rewards, "values": values, "gamma": gamma, "lam": lam, "alpha": alpha}
    lines = [code for code in line.splitlines() if re.match(r"(returns|advantages|average) =", code)]
    assert len(lines) == 3
    exec("\n".join(lines), names)
    returns, advantages, average = [], [], []
    for r, v in zip(rewards.values().split([4, 0, 3, 2]), values.values().split([4, 0, 3, 2])):
        n = len(r)
        returns += [sum(gamma ** (j - t) * r[j] for j in range(t, n)) for t in range(n)]
        delta = [r[t] + (gamma * v[t + 1] if t + 1 < n else 0) - v[t] for t in range(n)]
        advantages += [sum((gamma * lam) ** (j - t) * delta[j] for j in range(t, n)) for t in range(n)]
        weights = [(1 - alpha) ** j for j in range(n)]
        average += [sum(weights[j] * r[t - j] for j in range(t + 1)) / sum(weights[: t + 1]) for t in range(n)]
    for name, expected in (("returns", returns), ("advantages", advantages), ("average", average)):
        torch.testing.assert_close(names[name].values(), torch.stack(expected))
    (code,) = re.findall(r"`(tl.sequence_scan\(torch.where.*?\))` with `(.*?)`", section)
    names["x"] = rewards
    exec(code[1], names)
    one_by_one = []
    for r in rewards.values().split([4, 0, 3, 2]):
        h = r[:1].sum()
        for t, row in enumerate(r):
            h = row if t == 0 else (1 - alpha) * h + alpha * row
            one_by_one.append(h)
    torch.testing.assert_close(eval(code[0], names).values(), torch.stack(one_by_one))
