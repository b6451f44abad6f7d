# SPDX-License-Identifier: Apache-2.0
"""Losses: those of torch.nn on LoDTensors, rows that do not count, and CTC, against plain loops."""

import copy
import io
import itertools
import math
import pickle

import pytest
import torch
import torch._dynamo.testing
import torch.nn.functional as F
from torch import nn
from torch.nn.modules import loss as losses_of_torch

import torch_lod as tl
from torch_lod.functions import losses

LENGTHS = ([[4, 0, 3, 2]], [[2, 0, 2], [4, 0, 3, 2]], [[1, 2], [2, 0, 2], [4, 0, 3, 2]])
CLASSES = 5


def batch(lengths=LENGTHS[0], width=(CLASSES,), dtype=torch.float64, seed=0):
    """Rows that need a gradient, and their LoDTensor."""
    torch.manual_seed(seed)
    rows = torch.randn(sum(lengths[-1]), *width, dtype=dtype, requires_grad=True)
    return rows, tl.from_lengths(rows, lengths)


#: For every loss of torch.nn: how it is made and called with rows, and functions of rows beside them.
LOSSES = {
    "L1Loss": lambda r: (nn.L1Loss(reduction=r), lambda x, ids, p: (x, p)),
    "NLLLoss": lambda r: (nn.NLLLoss(reduction=r), lambda x, ids, p: (x.log_softmax(1), ids)),
    "NLLLoss2d": lambda r: (nn.NLLLoss(reduction=r), lambda x, ids, p: (x[:, :, None, None].expand(-1, -1, 2, 3),
                                                                         ids[:, None, None].expand(-1, 2, 3))),
    "PoissonNLLLoss": lambda r: (nn.PoissonNLLLoss(reduction=r), lambda x, ids, p: (x, p)),
    "GaussianNLLLoss": lambda r: (nn.GaussianNLLLoss(reduction=r), lambda x, ids, p: (x, p, p)),
    "KLDivLoss": lambda r: (nn.KLDivLoss(reduction=r), lambda x, ids, p: (x.log_softmax(1), p)),
    "MSELoss": lambda r: (nn.MSELoss(reduction=r), lambda x, ids, p: (x, p)),
    "BCELoss": lambda r: (nn.BCELoss(reduction=r), lambda x, ids, p: (x.sigmoid(), p)),
    "BCEWithLogitsLoss": lambda r: (nn.BCEWithLogitsLoss(reduction=r), lambda x, ids, p: (x, p)),
    "HingeEmbeddingLoss": lambda r: (nn.HingeEmbeddingLoss(reduction=r), lambda x, ids, p: (x[:, 0], ids % 2 * 2 - 1)),
    "MultiLabelMarginLoss": lambda r: (nn.MultiLabelMarginLoss(reduction=r),
                                       lambda x, ids, p: (x, (p * 0).long() + ids[:, None])),
    "SmoothL1Loss": lambda r: (nn.SmoothL1Loss(reduction=r), lambda x, ids, p: (x, p)),
    "HuberLoss": lambda r: (nn.HuberLoss(reduction=r), lambda x, ids, p: (x, p)),
    "SoftMarginLoss": lambda r: (nn.SoftMarginLoss(reduction=r), lambda x, ids, p: (x[:, 0], ids % 2 * 2 - 1)),
    "CrossEntropyLoss": lambda r: (nn.CrossEntropyLoss(torch.arange(1.0, 6.0).double(), reduction=r, label_smoothing=0.1),
                                   lambda x, ids, p: (x, ids)),
    "LinearCrossEntropyLoss": lambda r: (linear(r), lambda x, ids, p: (x, ids)),
    "MultiLabelSoftMarginLoss": lambda r: (nn.MultiLabelSoftMarginLoss(reduction=r), lambda x, ids, p: (x, p)),
    "CosineEmbeddingLoss": lambda r: (nn.CosineEmbeddingLoss(reduction=r), lambda x, ids, p: (x, p, ids % 2 * 2 - 1)),
    "MarginRankingLoss": lambda r: (nn.MarginRankingLoss(reduction=r), lambda x, ids, p: (x[:, 0], p[:, 0], ids % 2 * 2 - 1)),
    "MultiMarginLoss": lambda r: (nn.MultiMarginLoss(reduction=r), lambda x, ids, p: (x, ids)),
    "TripletMarginLoss": lambda r: (nn.TripletMarginLoss(reduction=r), lambda x, ids, p: (x, p, x + 1)),
    "TripletMarginWithDistanceLoss": lambda r: (nn.TripletMarginWithDistanceLoss(reduction=r),
                                                lambda x, ids, p: (x, p, x + 1)),
}  # fmt: skip


def linear(reduction):
    torch.manual_seed(1)
    return nn.LinearCrossEntropyLoss(CLASSES, CLASSES, dtype=torch.float64, reduction=reduction)


def test_no_loss_of_torch_is_left_out():
    assert set(losses_of_torch.__all__) == {*LOSSES, "CTCLoss"} - (set(LOSSES) - set(dir(nn)))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [name for name in LOSSES if hasattr(nn, name)])
def test_losses_of_torch_are_those_of_the_rows(name):
    for lengths, reduction, plain_targets in itertools.product(LENGTHS, ("none", "mean", "sum"), (True, False)):
        rows, x = batch(lengths)
        ids, chances = torch.arange(len(rows)) % CLASSES, torch.rand(len(rows), CLASSES, dtype=torch.float64)
        chances = chances.softmax(1)
        module, arguments = LOSSES[name](reduction)
        want = module(*arguments(rows, ids, chances))
        beside = (ids, chances) if plain_targets else (x.with_values(ids), x.with_values(chances))
        got = module(*arguments(x, *beside))
        assert (type(got) is tl.LoDTensor) == (reduction == "none")
        if reduction == "none":
            assert got.lod == x.lod
            got = got.values()
        torch.testing.assert_close(got, want)
        weights = torch.arange(1.0, 1 + want.numel()).view(want.shape)
        found, expected = (torch.autograd.grad((t * weights).sum(), rows)[0] for t in (got, want))
        torch.testing.assert_close(found, expected)


# -- rows that do not count


def by_loop(rows, lengths, mask, reduce):
    """The mean of the rows of every innermost sequence that count, and the mean of these."""
    kept = [part[m] for part, m in zip(rows.split(lengths[-1]), mask.split(lengths[-1]))]
    if reduce == "token":
        return torch.cat(kept).mean()
    means = [part.mean() for part in kept if len(part)]
    return torch.stack(means).mean() if reduce == "sequence" else means


IGNORING = {
    "cross_entropy": lambda x, y: F.cross_entropy(x, y, reduction="none", ignore_index=3),
    "a module": lambda x, y: nn.CrossEntropyLoss(ignore_index=3, reduction="none")(x, y),
    "nll_loss": lambda x, y: F.nll_loss(x.log_softmax(1), y, ignore_index=3, reduction="none"),
    "by position": lambda x, y: F.nll_loss(x.log_softmax(1), y, None, None, 3, None, "none"),
    "the old way": lambda x, y: F.cross_entropy(x, y, reduce=False, ignore_index=3),
    "smoothed": lambda x, y: F.cross_entropy(x, y, reduction="none", ignore_index=3, label_smoothing=0.1),
    "half": lambda x, y: F.cross_entropy(x.bfloat16(), y, reduction="none", ignore_index=3).double(),
    "scaled": lambda x, y: F.cross_entropy(x, y, reduction="none", ignore_index=3).mul(2).clamp(max=3) + 1,
    "two heads": lambda x, y: torch.stack([F.cross_entropy(v, y, reduction="none", ignore_index=3) for v in (x, -x)], 1).sum(1),
    "beside another": lambda x, y: F.mse_loss(x, x * 0, reduction="none").sum(1) + F.cross_entropy(
        x, y, reduction="none", ignore_index=3),
    "of the default": lambda x, y: F.cross_entropy(x, torch.where(y == 3, -100, y), reduction="none"),
    "with a dim of one": lambda x, y: F.cross_entropy(x[:, :, None], y[:, None], reduction="none", ignore_index=3)[:, 0],
    "at another dim": lambda x, y: F.cross_entropy(x[None].mT, y[None], reduction="none", ignore_index=3)[0],
    "in chunks": lambda x, y: torch.cat([
        F.cross_entropy(a, b, reduction="none", ignore_index=3) for a, b in zip(x.split(4), y.split(4))]),
    "linear": lambda x, y: F.linear_cross_entropy(x, torch.eye(CLASSES).double(), y, reduction="none", ignore_index=3),
}  # fmt: skip
IGNORING = {name: call for name, call in IGNORING.items() if name != "linear" or hasattr(F, "linear_cross_entropy")}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", IGNORING)
@pytest.mark.parametrize("lengths", LENGTHS[:2], ids=str)
def test_targets_that_are_ignored_do_not_count(name, lengths):
    rows, x = batch(lengths)
    targets = torch.arange(len(rows)) % CLASSES
    targets[:4] = 3  # the first sequence as a whole
    for y in (targets, x.with_values(targets)):
        of_rows, want_rows = IGNORING[name](x, y), IGNORING[name](rows, targets)
        for reduce in ("token", "sequence"):
            want = by_loop(want_rows, lengths, targets != 3, reduce)
            got = tl.sequence_loss(of_rows, reduce)
            torch.testing.assert_close(got, want)
            found, expected = (torch.autograd.grad(t, rows, retain_graph=True)[0] for t in (got, want))
            torch.testing.assert_close(found, expected)
    if name in ("cross_entropy", "half"):
        scores = rows.bfloat16().double() if name == "half" else rows
        tolerance = {"rtol": 0.01, "atol": 0.01} if name == "half" else {}
        torch.testing.assert_close(
            tl.sequence_loss(of_rows), F.cross_entropy(scores, targets, ignore_index=3), **tolerance
        )


def test_the_rows_that_count_go_with_the_sequences():
    _, x = batch(LENGTHS[1])
    y = torch.arange(len(x)) % 4
    loss = F.cross_entropy(x, y, reduction="none", ignore_index=3)
    kept, some, ones = y != 3, torch.tensor([True, False, True]), [1] * len(x)
    tags = tl.from_lengths(torch.tensor([1, 2, 1]), [[1, 1, 1]])
    file = io.BytesIO()
    torch.save(loss.detach(), file)
    file.seek(0)
    for part in (
        loss.slice(0, 0, 2),
        loss.seq[0:2],
        loss.seq[[2, 0]],
        loss.head(2),
        loss.tail(1),
        loss.filter_rows(y != 0),
        loss.permute_sequences([2, 0, 1]),
        loss.flatten_levels(0, 1),
        loss.drop_level(0),
        loss.group([1, 2]),
        torch.cat([loss, x[:, 0]]),
        torch.cat([loss[:5], loss[5:]]),
        loss.t(),
        loss.detach().clone(),
        loss.with_lod(x.lod),
        loss.lod_reset([[4, len(x) - 4]]),
        loss.lod_append(ones),
        tl.lod_append(loss, ones),
        copy.copy(loss).share_lod_from(x),
        tl.sequence_reshape(loss[:, None], 1)[:, 0],
        tl.sequence_reshape(torch.stack([loss, loss], 1), 1)[:, 0],
        tl.sequence_concat([loss]),
        tl.cat([loss, x[:, 0], loss], along="within"),
        tl.merge_lod_tensor(*tl.split_lod_tensor(loss, some), loss, some),
        tl.merge_lod_tensor(*tl.split_lod_tensor(loss, some), torch.zeros(3), some),
        tl.filter_by_instag(loss, tags, [1])[0],
        tl.filter_by_instag(loss, tags, [7], 5)[0],
        tl.from_tensors(loss.unbind_sequences()),
        tl.array_to_lod_tensor(tl.lod_tensor_to_array(loss, table := tl.lod_rank_table(x)), table),
        pickle.loads(pickle.dumps(loss.detach())),
        torch.load(file),
    ):
        position = {v: i for i, v in enumerate(loss.values().tolist()) if v}
        rows = [v for v in part.values().tolist() if v not in position or kept[position[v]]]
        rows = [v for v in rows if v not in (0, 5)]
        torch.testing.assert_close(tl.sequence_loss(part).item(), sum(rows) / max(1, len(rows)))
    for sum_of in (tl.cat([x[:, :1], loss[:, None]], along="features").sum(1), tl.stack([x[:, 0], loss]).sum(1)):
        torch.testing.assert_close(tl.sequence_loss(sum_of), (x[:, 0] + loss).values()[kept].mean())
    plain = tl.LoDTensor(loss.values(), x.lod)  # ends it: all rows count
    torch.testing.assert_close(tl.sequence_loss(plain), loss.values().mean())
    torch.testing.assert_close(tl.sequence_loss(plain, mask=kept), tl.sequence_loss(loss))
    assert not x.lod.counted and not loss.lod.outer(-1).counted
    assert loss.lod == x.lod and hash(loss.lod) == hash(x.lod)
    torch.testing.assert_close(tl.sequence_loss(loss, mask=y != 0), loss.values()[(y != 0) & kept].mean())


MOVING = (
    tl.sequence_reverse,
    tl.sequence_sort,
    lambda loss: tl.sequence_sample(loss, 1, generator=torch.Generator().manual_seed(0)),
    lambda loss: tl.sequence_slice(loss, [0, 0, 0, 0], [2, 0, 1, 1]),
    lambda loss: tl.sequence_slice(loss.group([2, 2]), [1, 0], [1, 2], level=0),
    lambda loss: tl.sequence_reverse(loss.group([2, 2]), level=0),
    lambda loss: tl.array_to_lod_tensor(tl.lod_tensor_to_array(loss, table := tl.lod_rank_table(loss)), table),
)


def test_what_ignores_different_rows_is_not_averaged():
    _, x = batch()
    y = torch.arange(len(x)) % CLASSES
    one, other = (F.cross_entropy(x, y, reduction="none", ignore_index=i) for i in (3, 2))
    in_part = F.cross_entropy(
        x[:, :, None].expand(-1, -1, 2), torch.stack([y, y * 0], 1), reduction="none", ignore_index=3
    )
    for loss in (one + other, in_part.mean(1), torch.cat([one, in_part[:, 0]])):
        with pytest.raises(tl.LoDError, match=r"sequence_loss: expected losses that are ignored as a whole.*at row"):
            tl.sequence_loss(loss)
    for operator in MOVING:
        with pytest.raises(tl.LoDError, match=r"sequence_loss: expected losses .* or moved by an operator, at row"):
            tl.sequence_loss(operator(one))
        kept = F.cross_entropy(x, y, reduction="none", ignore_index=7)  # nothing was ignored
        torch.testing.assert_close(tl.sequence_loss(operator(kept)), operator(kept).values().mean())
    equal = F.cross_entropy(x, y + 0, reduction="none", ignore_index=3)
    torch.testing.assert_close(tl.sequence_loss(one + equal), 2 * tl.sequence_loss(one))
    chances = F.cross_entropy(x, x.detach().softmax(1), reduction="none")
    assert not chances.lod.counted and not F.cross_entropy(x, y).dim()


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), -float("inf")])
def test_what_is_masked_may_be_anything(wrong):
    rows, x = batch(width=())
    mask = torch.arange(len(rows)) % 3 > 0
    weight = torch.rand(len(rows), dtype=torch.float64, requires_grad=True)
    for reduce in ("token", "sequence", 0):
        clean = tl.sequence_loss(x, reduce, mask=mask, weight=weight)
        poisoned = torch.where(mask, rows, wrong)
        heavy = torch.where(mask, weight, wrong)
        found = tl.sequence_loss(x.with_values(poisoned), reduce, mask=mask, weight=heavy)
        torch.testing.assert_close(found, clean, rtol=0, atol=0, equal_nan=True)
        leaf = poisoned.detach().requires_grad_()
        (gradient,) = torch.autograd.grad(tl.sequence_loss(x.with_values(leaf), reduce, mask=mask).sum(), leaf)
        assert (
            torch.equal(gradient[~mask], torch.zeros(len(rows) - int(mask.sum())).double())
            and gradient.isfinite().all()
        )


def test_sequences_without_weight_are_as_empty_ones():
    rows, x = batch(width=())
    first = torch.arange(len(rows)) < 4
    zero = torch.where(first, 0.0, torch.rand(len(rows))).double()
    cancel = torch.tensor([1.0, -1, 2, -2, 1, 1, 1, 1, 1]).double()
    shorter = tl.from_lengths(rows[4:], [[0, 0, 3, 2]])
    for kwargs, beside in (({"mask": ~first}, {}), ({"weight": zero}, {"weight": zero[4:]}), ({"weight": cancel}, {})):
        for reduce in ("sequence", 0):
            got, want = tl.sequence_loss(x, reduce, **kwargs), tl.sequence_loss(shorter, reduce, **beside)
            torch.testing.assert_close(got, want, equal_nan=True)
            torch.testing.assert_close(*(torch.autograd.grad(t.sum(), rows)[0] for t in (got, want)))
    for nothing in ({"mask": first & ~first}, {"weight": zero * 0}, {"weight": torch.zeros(4)}):
        for reduce in ("token", "sequence"):
            assert tl.sequence_loss(x, reduce, **nothing) == 0
    of_sequences = torch.tensor([1.0, 5.0, 0.0, 2.0]).double()
    means = [part.mean() for part in rows.split(LENGTHS[0][0])]
    torch.testing.assert_close(tl.sequence_loss(x, "sequence", weight=of_sequences), (means[0] + 2 * means[3]) / 3)
    torch.testing.assert_close(
        tl.sequence_loss(x, weight=of_sequences), (rows[:4].sum() + 2 * rows[7:].sum()) / (4 + 2 * 2)
    )


@pytest.mark.parametrize("reduce", ["token", "sequence", 0])
def test_gradients_of_rows_and_weights(reduce):
    rows, x = batch(LENGTHS[1], ())
    mask = torch.arange(len(rows)) % 4 != 1
    forms = {"row": torch.rand(len(rows)).double() + 0.5}
    if reduce != 0:
        forms |= {
            "sequence": tl.LoDTensor(torch.rand(4).double() + 0.5, x.lod.outer(1)),
            "outer": torch.rand(3).double(),
        }
    for weight in forms.values():
        values = weight.values() if isinstance(weight, tl.LoDTensor) else weight

        def of(rows, values, weight=weight):
            weight = weight.with_values(values) if isinstance(weight, tl.LoDTensor) else values
            return tl.sequence_loss(x.with_values(rows), reduce, mask=mask, weight=weight).nan_to_num()

        assert torch.autograd.gradcheck(of, (rows, values.requires_grad_()))


@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
@pytest.mark.parametrize("kept", [None, "mask", "ignored"])
def test_means_of_sequences_agree_with_the_mean_over_them(lengths, kept):
    """Of sequences that are empty, or of which no row counts, too."""
    rows, x = batch(lengths)
    targets = torch.arange(len(rows)) % CLASSES
    targets[-2:] = -100
    loss = F.cross_entropy(x, targets, reduction="none")
    loss = loss if kept == "ignored" else x.with_values(loss.values())
    options = {"mask": targets >= 0} if kept == "mask" else {}
    own, want = tl.sequence_loss(loss, -1, **options), tl.sequence_loss(loss, "sequence", **options)
    torch.testing.assert_close(own.nanmean() if len(lengths) == 1 else own.values().nanmean(), want)
    missing = 1 + (kept is not None)
    assert int(own.isnan().sum()) == missing and torch.isfinite(torch.autograd.grad(own.nansum(), rows)[0]).all()
    if len(lengths) > 1:
        torch.testing.assert_close(tl.sequence_loss(tl.sequence_loss(loss, -1, **options)), want)
        torch.testing.assert_close(
            tl.sequence_pool(tl.sequence_loss(loss, -1, **options), "sum").nansum(), own.nansum()
        )


@pytest.mark.parametrize("pool", "sum mean sqrt max min first last prod logsumexp var std any all".split())
def test_pools_leave_out_what_a_loss_ignored(pool):
    for lengths in LENGTHS:
        rows, x = batch(lengths)
        targets = torch.arange(len(rows)) % CLASSES
        kept = targets != 3
        loss = F.cross_entropy(x, targets, reduction="none", ignore_index=3)
        alone = tl.from_lengths(loss.values(), lengths).filter_rows(kept)
        for level in range(len(lengths)):
            got, want = (tl.sequence_pool(t, pool, level=level, padding_value=1.0) for t in (loss, alone))
            assert torch.equal(torch.Tensor(got), torch.Tensor(want)) or torch.allclose(got, want, equal_nan=True)
    largest, index = tl.sequence_pool(loss, "max", return_index=True)
    there = index.values() >= 0
    assert torch.equal(loss.values()[index.values()[there]], largest.values()[there])
    assert kept[index.values()[there]].all() and int((~there).sum()) == 1


def test_class_weights_as_torch_divides_them():
    rows, x = batch()
    y, weights = torch.arange(len(rows)) % CLASSES, torch.rand(CLASSES).double()
    loss = F.cross_entropy(x, y, reduction="none", ignore_index=3)
    want = F.cross_entropy(rows, y, weight=weights, ignore_index=3)
    torch.testing.assert_close(tl.sequence_loss(loss, weight=x.with_values(weights[y])), want)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_types_are_summed_in_float32(dtype):
    x = tl.from_lengths(torch.full((1000,), 100.0, dtype=dtype), [[600, 400]])
    mask, weight = torch.arange(1000) % 7 != 0, torch.full((1000,), 30.0, dtype=dtype)
    for reduce in ("token", "sequence", 0):
        for kwargs in ({"mask": mask}, {"weight": weight}, {"mask": mask, "weight": weight}):
            got = tl.sequence_loss(x, reduce, **kwargs)
            assert got.dtype == dtype and (got == 100).all()


def test_compiled_losses_are_one_graph():
    def step(x, y, mask, weight):
        loss = F.cross_entropy(x, y, reduction="none", ignore_index=3) * 2
        return (
            tl.sequence_loss(loss.head(3), mask=mask.head(3)),
            tl.sequence_loss(loss, "sequence", weight=weight),
            loss,
        )

    torch._dynamo.reset()
    count = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(step, backend=count, fullgraph=True)
    for seed, lengths in enumerate(([[4, 0, 3, 2]], [[2, 3, 9, 4, 6]])):
        rows, x = batch(lengths, seed=seed)
        y, mask = (x.with_values(torch.arange(len(rows)) % n) for n in (CLASSES, 4))
        mask, weight = mask > 0, torch.rand(len(lengths[0])).double() + 0.5
        torch._dynamo.mark_dynamic(weight, 0)
        got, want = compiled(x, y, mask, weight), step(x, y, mask, weight)
        for g, w in zip(got, want):
            torch.testing.assert_close(g, w)
        torch.testing.assert_close(tl.sequence_loss(got[-1]), tl.sequence_loss(want[-1]))
        torch.testing.assert_close(*(torch.autograd.grad(sum(t[:2]), rows)[0] for t in (got, want)))
    assert count.frame_count == 1


# -- CTC


def ctc_by_loop(rows, lengths, labels, counts, **kwargs):
    found = []
    for part, ids in zip(rows.split(lengths), labels.split(counts)):
        if len(part) == 0:
            found.append(rows.new_tensor(0.0 if len(ids) == 0 or kwargs.get("zero_infinity") else float("inf")))
        else:
            found.append(F.ctc_loss(part[:, None], ids[None], [len(part)], [len(ids)], reduction="none", **kwargs)[0])
    return torch.stack(found)


@pytest.mark.parametrize("lengths", [*LENGTHS, [[0, 0]], [[1]]], ids=str)
def test_ctc_runs_along_every_sequence(lengths):
    rows, x = batch(lengths)
    counts = [2, 0, 1, 1][: len(lengths[-1])]
    labels = torch.arange(sum(counts)) % (CLASSES - 1) + 1
    y = tl.from_lengths(labels, [*lengths[:-1], counts])
    for reduction, zero in itertools.product(("none", "mean", "sum"), (False, True)):
        options = {"reduction": reduction, "zero_infinity": zero}
        each = ctc_by_loop(rows.log_softmax(1), lengths[-1], labels, counts, zero_infinity=zero)
        want = {"none": each, "sum": each.sum(), "mean": (each / torch.tensor(counts).clamp(min=1)).mean()}[reduction]
        scores = x.log_softmax(1)
        padded = torch.zeros(len(counts), 3, dtype=torch.long)
        for i, ids in enumerate(labels.split(counts)):
            padded[i, : len(ids)] = ids
        for got in (
            F.ctc_loss(scores, y, x.lengths(), y.lengths(), **options),
            nn.CTCLoss(**options)(scores, y, None, None),
            F.ctc_loss(scores, labels, tuple(lengths[-1]), tuple(counts), **options),
            F.ctc_loss(scores, padded, x.lengths(), y.lengths(), **options),
        ):
            if reduction == "none" and len(lengths) > 1:
                assert got.lod == x.lod.outer(-1)
                got = got.values()
            assert type(got) is torch.Tensor
            torch.testing.assert_close(got, want)
            if want.isfinite().all() and want.requires_grad:
                found, expected = (torch.autograd.grad(t.sum(), rows, retain_graph=True)[0] for t in (got, want))
                torch.testing.assert_close(found, expected)


def test_ctc_of_labels_beside_padded_inputs_and_of_nothing():
    rows, x = batch([[4, 3]])
    y = tl.from_lengths(torch.tensor([1, 2, 3]), [[2, 1]])
    dense = x.log_softmax(1).to_padded()[0].transpose(0, 1)
    want = F.ctc_loss(x.log_softmax(1), y, None, None)
    torch.testing.assert_close(F.ctc_loss(dense, y, torch.tensor([4, 3]), None), want)
    none = tl.from_lengths(torch.zeros(0, CLASSES), [[]])
    ids = tl.from_lengths(torch.zeros(0, dtype=torch.long), [[]])
    assert F.ctc_loss(none, ids, None, None, reduction="none").shape == (0,)
    assert F.ctc_loss(none, ids, None, None, reduction="sum") == 0
    narrow = tl.from_lengths(rows.detach().log_softmax(1).requires_grad_(), [[4, 3]])
    assert torch.autograd.gradcheck(
        lambda r: F.ctc_loss(narrow.with_values(r.log_softmax(1)), y, None, None), rows.detach().requires_grad_()
    )


def of_both(monkeypatch, x, *given, **options):
    """Loss and gradient by the kernel and by torch's function of padded rows, or what they raise."""
    found = []
    for packed in (losses._packed, lambda *_: None):
        monkeypatch.setattr(losses, "_packed", packed)
        leaf = x.detach().requires_grad_()
        try:
            result = F.ctc_loss(leaf, *given, **options)
            found += [(result.detach(), torch.autograd.grad(result.sum(), leaf)[0])]
        except (RuntimeError, ValueError, IndexError) as error:
            found += [(type(error), str(error))]
        monkeypatch.undo()
    return found


Y = tl.from_lengths(torch.tensor([1, 2, 2, 4, 3]), [[2, 0, 3]])
GIVEN = {
    "labels": (Y, None, None),
    "too many labels": (tl.from_lengths(torch.tensor([1, 1, 1, 1, 2, 2, 4, 3]), [[4, 1, 3]]), None, None),
    "in a row": (Y.values(), (5, 0, 9), torch.tensor([2, 0, 3])),
    "padded": (torch.tensor([[1, 2, 0], [0, 0, 0], [2, 4, 3]]), None, [2, 0, 3]),
    "int32": (Y.int(), None, None),
    "the blank": (Y * 0, None, None),
    "floating": (Y.float(), None, None),
    "beyond the labels": (Y.values(), None, [2, 0, 9]),
    "negative": (Y.values(), None, [2, -1, 4]),
}


@pytest.mark.parametrize("given", GIVEN)
@pytest.mark.parametrize("kind", ["log-probabilities", "unnormalised", "impossible rows", "NaN"])
def test_ctc_by_the_kernel_is_torchs(given, kind, monkeypatch):
    """The values and the gradient, which is that of rows after log_softmax whatever they are; and what torch raises."""
    x = tl.from_lengths(
        torch.randn(14, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64), [[5, 0, 9]]
    )
    if kind == "log-probabilities":
        x = x.log_softmax(1)
    elif kind != "unnormalised":
        x.values()[7] = -math.inf if kind == "impossible rows" else math.nan
    for reduction, zero in itertools.product(("none", "mean", "sum"), (False, True)):
        ours, theirs = of_both(monkeypatch, x, *GIVEN[given], reduction=reduction, zero_infinity=zero)
        if isinstance(theirs[1], str):
            assert ours == theirs
        else:
            torch.testing.assert_close(ours, theirs, equal_nan=True)
    ours, theirs = of_both(monkeypatch, x, *GIVEN[given], blank=7)
    assert ours == theirs or given in ("floating", "beyond the labels", "negative")


def test_ctc_of_labels_that_torch_would_look_up_beyond_its_memory():
    x = tl.from_lengths(torch.randn(14, 5).log_softmax(1), [[5, 0, 9]])
    with pytest.raises(
        IndexError, match=r"ctc_loss: expected labels in .0, 4. other than the blank 0, got 10 at position 0"
    ):
        F.ctc_loss(x, Y + 9, None, None)


def test_ctc_goes_through_the_kernel(monkeypatch):
    called = []
    whole = losses.ops.ctc_loss
    monkeypatch.setattr(losses.ops, "ctc_loss", lambda *given: called.append(given) or whole(*given))
    x = tl.from_lengths(torch.randn(14, 5, requires_grad=True).log_softmax(1), [[5, 0, 9]])
    nn.CTCLoss()(x, Y, None, None).backward()
    assert len(called) == 1


CTC = {
    "F.ctc_loss(x, y, [4, 2], None)": "input_lengths as the LoD has them, pass .lod.lengths() of the LoDTensor, or None, got 2",
    "F.ctc_loss(x, y, [4, 3, 1], None)": "input_lengths of the 2 innermost sequences, got",
    "F.ctc_loss(x, y, x, None)": "input_lengths as plain lengths, got a torch.float64 LoDTensor",
    "F.ctc_loss(x, y, None, [1, 2])": "target_lengths as the LoD has them",
    "F.ctc_loss(x, y.values(), None, None)": "target_lengths for plain targets, got None",
    "F.ctc_loss(x[:, None], y, None, None)": "of shape (rows, classes)",
    "F.ctc_loss(x[None], y, [7], [3])": "got its rows at dim 1",
    "F.ctc_loss(x.values()[:, None], y[None], [7], [3])": "got its rows at dim 1",
    "F.ctc_loss(x.values()[:, None], y[:, None], [7], [3])": "targets as a LoDTensor of shape (labels,)",
    "F.ctc_loss(x, tl.from_lengths(y.values(), [[3]]), None, None)": "labels for 2 innermost sequences, got 1",
    "torch.ctc_loss(x, y, x.lengths(), y.lengths())": "F.ctc_loss runs along every one",
}


@pytest.mark.parametrize("code", CTC)
def test_ctc_says_what_to_write(code):
    _, x = batch([[4, 3]])
    y = tl.from_lengths(torch.tensor([1, 2, 3]), [[2, 1]])
    with pytest.raises(tl.LoDError) as caught:
        eval(code, {"F": F, "torch": torch, "tl": tl, "x": x, "y": y})
    assert str(caught.value).startswith("ctc_loss: ") and CTC[code] in str(caught.value)
