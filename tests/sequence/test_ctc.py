# SPDX-License-Identifier: Apache-2.0
"""Connectionist temporal classification beyond what the enumeration of tests/lib/reference/ctc.py can count."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch.nn.utils.rnn import pad_sequence

import torch_lod as tl

ops = tl.ops
DOUBLE, SINGLE = torch.float64, torch.float32


def cuts(lengths):
    return torch.tensor([0, *lengths]).cumsum(0)


def drawn(frames, counts, classes, scale=1.0, seed=0, blank=0):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(sum(frames), classes, generator=g, dtype=DOUBLE) * scale
    labels = torch.randint(0, classes - 1, (sum(counts),), generator=g)
    return x, cuts(frames), labels + (labels >= blank), cuts(counts), blank


def of_torch(x, frames, labels, counts, blank):
    """Losses and their gradient, by torch's in float64."""
    leaf = x.detach().double().requires_grad_()
    dense = pad_sequence(leaf.log_softmax(1).split(frames.diff().tolist()))
    losses = F.ctc_loss(dense, labels, frames.diff(), counts.diff(), blank, "none", zero_infinity=True)
    return losses, torch.autograd.grad(losses.sum(), leaf)[0]


def of_ours(x, *rest):
    leaf = x.detach().requires_grad_()
    losses = ops.ctc_loss(leaf, *rest, True)
    return losses, torch.autograd.grad(losses.sum(), leaf)[0]


@pytest.mark.parametrize("dtype", [DOUBLE, SINGLE])
@pytest.mark.parametrize("scale", [1.0, 30.0, 1e4])
@pytest.mark.parametrize("blank", [0, 28])
def test_equals_torchs(dtype, scale, blank):
    given = drawn([50, 17, 130, 16, 33, 2], [20, 0, 47, 15, 16, 1], 29, scale, blank=blank)
    x = given[0].to(dtype)
    losses, gradient = of_ours(x, *given[1:])
    wanted, wanted_gradient = of_torch(x, *given[1:])
    tight = {"rtol": 1e-10, "atol": 1e-10} if dtype == DOUBLE else {"rtol": 1e-6, "atol": 1e-5 * max(1, scale / 10)}
    torch.testing.assert_close(losses.double(), wanted, **tight)
    torch.testing.assert_close(gradient.double(), wanted_gradient, rtol=0, atol=1e-8 if dtype == DOUBLE else 2e-3)


@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_twenty_thousand_rows_in_float32(scale):
    """Also where the best path begins with what is least likely, which probabilities of one scale would lose."""
    x, *rest = drawn([20_000], [40], 5, scale)
    x[:2000, 1:] -= 1e4
    losses, gradient = of_ours(x.float(), *rest)
    wanted, wanted_gradient = of_ours(x.float().double(), *rest)
    assert losses.isfinite().all() and float(((losses - wanted).abs() / wanted).detach()) < 1e-6
    assert float((gradient - wanted_gradient).abs().max()) < 1e-3


def test_paths_that_look_impossible_at_first():
    """The label is 10,000 less likely than the blank where it must come first, then the blank is."""
    x = torch.zeros(60, 3)
    x[:30, 1:] = -1e4
    x[30:, 0] = -1e4
    labels = torch.tensor([1, 1, 1, 2, 1] * 6)
    given = x, cuts([60]), labels, cuts([30])
    for dtype in (DOUBLE, SINGLE):
        losses, gradient = of_ours(given[0].to(dtype), *given[1:], 0)
        wanted, wanted_gradient = of_torch(*given, 0)
        torch.testing.assert_close(losses.double(), wanted, rtol=1e-6, atol=0)
        torch.testing.assert_close(gradient.double(), wanted_gradient, rtol=0, atol=1e-3)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_types_are_worked_out_in_float32(dtype):
    given = drawn([400, 90], [60, 30], 31)
    x = given[0].to(dtype)
    for got, wanted in zip(of_ours(x, *given[1:]), of_ours(x.float(), *given[1:])):
        torch.testing.assert_close(got, wanted.to(dtype), rtol=1e-2, atol=1e-3)


def test_what_is_not_finite_stays_in_its_sequence():
    x, *rest = drawn([6, 6, 6, 6, 6], [2] * 5, 4)
    clean, clean_gradient = of_ours(x, *rest)
    x[1], x[8, 2], x[13], x[20, :] = math.nan, math.inf, -math.inf, torch.tensor([-math.inf, 0, -math.inf, -math.inf])
    losses, gradient = of_ours(x, *rest)
    assert losses[:3].isnan().all() and gradient[:18].isnan().all()
    assert torch.equal(losses[4], clean[4]) and torch.equal(gradient[24:], clean_gradient[24:])
    assert losses[3].isfinite() and gradient[18:24].isfinite().all()
    path, scores = ops.ctc_best_path(x, *rest)
    assert (path[:18] == -1).all() and scores[:3].isnan().all() and scores[3:].isfinite().all()


def test_classes_that_no_row_can_emit():
    x = torch.zeros(4, 3, dtype=DOUBLE)
    x[:, 2] = -math.inf
    for labels, counts in (([2], [1]), ([1, 1, 1], [3])):
        given = x, cuts([4]), torch.tensor(labels), cuts(counts), 0
        assert ops.ctc_loss(*given) == math.inf and ops.ctc_loss(*given, True) == 0
        assert (of_ours(*given)[1] == 0).all()
        path, score = ops.ctc_best_path(*given)
        assert (path == -1).all() and score == -math.inf


def test_the_best_path_is_one_of_the_labels_and_no_better_one_is_near():
    x, *rest = drawn([40, 25, 64], [11, 12, 20], 20, 3.0)
    path, scores = ops.ctc_best_path(x, *rest)
    frames, labels, counts, blank = rest
    rows = x.log_softmax(1)
    assert (scores <= -ops.ctc_loss(x, *rest)).all()
    for s in range(3):
        own, found = path[frames[s] : frames[s + 1]], labels[counts[s] : counts[s + 1]]
        steps = own[own >= 0]
        assert set(steps.tolist()) == set(range(len(found))) and (steps.diff() >= 0).all()
        emitted = torch.where(own < 0, blank, found[own.clamp(min=0)])
        kept = emitted[torch.cat([torch.tensor([True]), emitted.diff() != 0])]
        assert kept[kept != blank].tolist() == found.tolist()
        total = rows[frames[s] : frames[s + 1]].gather(1, emitted[:, None]).sum()
        torch.testing.assert_close(scores[s], total)
    # the maximum of the lattice is the limit of its sum, as scores grow apart
    sharp = ops.ctc_loss(rows * 1000, *rest)
    close = -ops.ctc_best_path(rows * 1000, *rest)[1]
    torch.testing.assert_close(sharp, close, rtol=1e-6, atol=1e-3)


def test_threads_and_company_change_no_bit():
    x, *rest = drawn([70, 300, 5, 0, 33], [20, 80, 2, 0, 7], 37)
    x, (frames, labels, counts, _) = x.float(), rest
    threads = torch.get_num_threads()
    runs = []
    for n in (1, 2):
        torch.set_num_threads(n)
        runs.append((*of_ours(x, *rest), *ops.ctc_best_path(x, *rest)))
    torch.set_num_threads(threads)
    assert all(map(torch.equal, *runs))
    for s in range(5):
        rows, own = x[frames[s] : frames[s + 1]], labels[counts[s] : counts[s + 1]]
        alone = of_ours(rows, cuts([len(rows)]), own, cuts([len(own)]), 0)
        equal = torch.equal if ops.COMPILED else torch.allclose
        assert equal(alone[0], runs[0][0][s : s + 1])
        assert equal(alone[1], runs[0][1][frames[s] : frames[s + 1]])


def clips(seed=0):
    g = torch.Generator().manual_seed(seed)
    x = tl.from_lengths(torch.randn(30, 5, generator=g, dtype=DOUBLE), [[2, 2], [9, 6, 0, 15]])
    y = tl.from_lengths(torch.randint(1, 5, (9,), generator=g), [[2, 2], [4, 0, 1, 4]])
    return x, y


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_the_module_is_torchs(reduction):
    x, y = clips()
    for zero in (False, True):
        loss = tl.nn.CTCLoss(reduction=reduction, zero_infinity=zero)
        wanted = torch.nn.CTCLoss(reduction=reduction, zero_infinity=zero)
        found, expected = loss(x, y), wanted(x.log_softmax(1), y, None, None)
        assert type(found) is type(expected)
        torch.testing.assert_close(*(t.values() if reduction == "none" else t for t in (found, expected)))
        torch.testing.assert_close(loss(x.log_softmax(1), y), found)  # log-probabilities are scores of themselves
    if reduction == "none":
        assert found.lod == x.lod.outer(-1)


def test_by_times_the_gradient_is_divided():
    x, y = clips()
    grads = []
    for by_times in (False, True):
        leaf = x.values().clone().requires_grad_()
        losses = tl.warpctc(x.with_values(leaf), y, norm_by_times=by_times)
        grads.append((losses.values(), *torch.autograd.grad(losses.values().sum(), leaf)))
    assert torch.equal(grads[0][0], grads[1][0]) and losses[2] == 0
    rows = x.lengths().clamp(min=1).repeat_interleave(x.lengths())[:, None]
    torch.testing.assert_close(grads[1][1], grads[0][1] / rows)
    module = tl.nn.CTCLoss(norm_by_times=True)
    assert module(x, y) == math.inf and "norm_by_times=True" in repr(module)


def test_runs_go_on_over_inner_sequences():
    ids = tl.from_lengths(torch.tensor([1, 1, 1, 0, 1, 2, 2]), [[2, 1], [2, 3, 2]])
    assert tl.ctc_align(ids).to_list() == [[[1], [1, 1]], [[2]]]
    assert tl.ctc_align(ids, level=0).to_list() == [[[1], [1]], [[2]]]


WRONG = {
    "tl.nn.CTCLoss(reduction='max')": "CTCLoss: expected reduction in ['mean', 'none', 'sum'], got 'max'",
    "tl.nn.CTCLoss(-1)": "CTCLoss: expected blank as a class, got -1",
    "tl.nn.CTCLoss(zero_infinity=1)": "CTCLoss: expected zero_infinity as a bool, got 1",
    "tl.nn.CTCLoss(norm_by_times=None)": "CTCLoss: expected norm_by_times as a bool, got None",
    "tl.nn.CTCLoss(7)(x, y)": "CTCLoss: expected blank in [0, 4], got 7",
    "tl.nn.CTCLoss()(x, y + 3)": "labels in [0, 4] other than the blank 0, got ",
    "tl.warpctc(x, y, 0, 1)": "warpctc: expected norm_by_times as a bool, got 1",
}


@pytest.mark.parametrize("call", WRONG)
def test_wrong_calls_are_refused(call):
    x, y = clips()
    with pytest.raises(tl.LoDError) as caught:
        eval(call, {"tl": tl, "x": x, "y": y})
    assert WRONG[call] in str(caught.value)
