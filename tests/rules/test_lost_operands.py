# SPDX-License-Identifier: Apache-2.0
"""What lost its rows is one result of the whole batch: it is never broadcast to a bigger one, such as a target for each
sequence. Equal shapes, biases, weights and numbers go on working."""

import itertools

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import torch_lod as tl
from torch_lod import LoDError
from torch_lod.tensor.derived import DerivedTensor

FC, FC8 = nn.Linear(8, 1), nn.Linear(8, 8)
LODS = {"one level": [[4, 2, 5]], "nested": [[2, 1], [4, 2, 5]]}


def rows(lod="one level"):
    torch.manual_seed(0)
    return tl.from_lengths(torch.randn(11, 8), LODS[lod])


#: What loses the rows, to (1, 8) or (8,), with x and t = x[None]; and the call that an error names.
SOURCES = {
    "t.mean(1)": "mean",
    "t[:, 0]": "getitem",
    "t[:, -1]": "getitem",
    "t.max(1)[0]": "max",
    "t.sum(1)": "sum",
    "t.select(1, 0)": "select",
    "t.amax(1)": "amax",
    "x.mean(0)": "mean",
    "x.mean(0, keepdim=True)": "mean",
    "x[0]": "getitem",
    "x[:, None].mean(0)": "mean",
    "x.t()[None].mean(2)": "mean",
    "x.t()[None][..., 0]": "getitem",
    "x[torch.randperm(11)].mean(0)": "getitem",
    "FC8(t.mean(1)).relu()": "mean",
}
NAMES = {"torch": torch, "F": F, "tl": tl, "FC": FC, "FC8": FC8}


def lost(source, lod="one level"):
    x = rows(lod)
    found = eval(source, NAMES, {"x": x, "t": x[None]})
    assert isinstance(found, DerivedTensor) and found.rows_dim is None
    return found


y, y1, labels, sign = torch.rand(3, 8), torch.rand(3, 1), torch.tensor([1, 0, 2]), torch.tensor([1.0, -1, 1])
R = torch.randn(3, 8, 8)
#: Forms in which p, (1, 8) or (8,), would be broadcast to 3 rows.
FORMS = """p + y | y - p | p * y | y / p | (p - y) ** 2 | p == y | p < y | torch.add(p, y, alpha=2) | y.addcmul(p, p) | torch.where(y > 0, p, y) |
torch.where(p > 0, y, y) | torch.lerp(p, y, 0.5) | torch.lerp(y, y, p) | torch.maximum(p, y) | torch.atan2(y, p) | y.masked_fill(p > 0, 0) |
y.clamp(min=p) | torch.broadcast_tensors(p, y) | F.mse_loss(p, y) | F.l1_loss(p, y) | F.smooth_l1_loss(p, y) | F.huber_loss(p, y) | F.kl_div(p, y) |
F.poisson_nll_loss(p, y) | F.hinge_embedding_loss(p, y.sign()) | F.margin_ranking_loss(p, y, y.sign()) | F.soft_margin_loss(p, y.sign()) |
F.binary_cross_entropy_with_logits(p, y) | F.gaussian_nll_loss(p, y, y) | F.cosine_similarity(p, y, dim=-1) | F.pairwise_distance(p, y) |
F.triplet_margin_loss(p, y, y) | F.mse_loss(y, p, reduction="none") | F.logsigmoid((p * y).sum(-1)) | torch.linalg.vecdot(p, y) | torch.matmul(p, R) |
torch.cdist(p.view(1, 8), R) | torch.addmm(p, y, R[0]) | torch.addmm(p, y, R[0], beta=0.5) | torch.baddbmm(p, R, R) | F.linear(y, R[0], p.view(8)) | torch.einsum("...d,...d->...", p, y) |
torch.einsum("nd,nd->nd", p.view(1, 8), y) | torch.einsum("nd,d->nd", y, p.view(8)) | p[None] * R"""
FORMS = [form.strip() for form in FORMS.replace("\n", " ").split(" | ")]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("form", FORMS)
def test_it_is_not_broadcast_to_more(form):
    for source, lod in itertools.product(SOURCES, LODS):
        p = lost(source, lod)
        with pytest.raises(Exception) as caught:
            eval(form, {**NAMES, "y": y.clone(), "R": R}, {"p": p})
        if isinstance(caught.value, LoDError):
            said = str(caught.value)
            assert SOURCES[source] in said and "tl.map_sequences" in said, (source, said)
            continue
        plain = p.values()  # where torch refuses it for plain tensors too
        with pytest.raises(type(caught.value)):
            eval(form, {**NAMES, "y": y.clone(), "R": R}, {"p": plain})


LOSSES = """F.mse_loss F.l1_loss F.smooth_l1_loss F.huber_loss F.kl_div F.poisson_nll_loss F.hinge_embedding_loss F.soft_margin_loss
    F.binary_cross_entropy_with_logits F.cosine_embedding_loss F.margin_ranking_loss F.triplet_margin_loss F.gaussian_nll_loss""".split()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("squeezed", [False, True])
def test_one_result_does_not_meet_a_target_for_each_sequence(loss, squeezed):
    f = eval(loss, NAMES)
    for source in ("t.mean(1)", "x.mean(0)", "t[:, 0]", "t.max(1)[0]"):
        p, target = FC(lost(source)), y1.squeeze() if squeezed else y1
        p = p.squeeze() if squeezed else p
        more = {
            "F.cosine_embedding_loss": (sign,),
            "F.margin_ranking_loss": (sign[:, None],),
            "F.triplet_margin_loss": (target,),
        }
        more = more.get(loss, (torch.ones_like(target),) if "gaussian" in loss else ())
        with pytest.raises((LoDError, RuntimeError, ValueError)) as caught:
            f(p, target, *more)
        if type(caught.value) in (RuntimeError, ValueError):
            with pytest.raises(type(caught.value)):
                f(p.values(), target, *more)


def test_training_on_the_mean_of_the_batch_raises():
    x, model = rows(), nn.Linear(8, 1)
    with pytest.raises(LoDError, match=r"mse_loss: .* became in mean, .* tl\.sequence_pool"):
        F.mse_loss(model(x[None].mean(1)), torch.tensor([[0.0], [5.0], [10.0]]))
    loss = F.mse_loss(model(tl.sequence_pool(x, "mean")), torch.tensor([[0.0], [5.0], [10.0]]))
    loss.backward()
    assert model.weight.grad is not None


#: What p, (1, 8) or (8,), may meet.
ALLOWED = """p + torch.randn(8) | p * 2 | 1 - p | p + torch.tensor(2.0) | FC8(p) | p @ R[0] | p @ y.t() | F.linear(p, y) | p + p | p - torch.zeros(1, 8) |
F.layer_norm(p, (8,)) | F.mse_loss(p, torch.zeros_like(p)) | F.mse_loss(p, torch.zeros(p.shape)) | torch.where(p > 0, p, 0) | p.softmax(-1) | torch.cat([p, p]) |
F.cosine_similarity(p, p, dim=-1) | torch.outer(p.view(8), torch.randn(3)) | torch.einsum("bd,nd->bn", p.view(1, 8), y) | torch.einsum("d,de->e", p.view(8), R[0]) |
torch.cdist(p.view(1, 8), y) | p.expand(3, 8) + y | F.mse_loss(p.expand_as(y), y) | torch.addmm(torch.randn(8), p.view(1, 8), R[0]) | p.values() + y |
torch.lerp(p, p * 2, 0.5) | p.norm() * y | p.sum() + y | torch.allclose(p, y) | p / p.norm(dim=-1, keepdim=True) |
p - p.mean(-1, keepdim=True)"""
ALLOWED = [form.strip() for form in ALLOWED.replace("\n", " ").split(" | ")]


@pytest.mark.parametrize("form", ALLOWED)
def test_equal_shapes_weights_and_numbers_go_on_working(form):
    names = {**NAMES, "y": y, "R": R}
    for source in SOURCES:
        p = lost(source)
        torch.manual_seed(1)
        found = eval(form, names, {"p": p})
        torch.manual_seed(1)
        with torch.no_grad():
            plain = eval(form, names, {"p": p.clone().values()}) if ".values()" not in form else p.values() + y
        found = found.values() if hasattr(found, "values") and isinstance(found, DerivedTensor) else found
        assert torch.equal(torch.as_tensor(found), torch.as_tensor(plain))


# -- results without dims

SCALARS = """s.mean(0) | s.sum(0) | s.max(0).values | s.max(0)[0] | s.min(0)[0] | s.prod(0) | s.std(0) | s.logsumexp(0) | s.median(0).values | s.amax(0) | s.norm(dim=0) |
s.quantile(0.5, 0) | s.kthvalue(2).values | s.mode().values | s.mean(-1) | s.mean((0,)) | s.argmax(0) | s.var(dim=0) | s.nanmean(0) | torch.std_mean(s, 0)[1]"""
SCALARS = [form.strip() for form in SCALARS.replace("\n", " ").split(" | ")]


@pytest.mark.parametrize("code", SCALARS)
def test_a_reduction_along_the_rows_is_lost_without_dims_too(code):
    for lod in LODS:
        s = rows(lod)[:, 0]
        number = eval(code, NAMES, {"s": s})
        assert number.dim() == 0 and isinstance(number, DerivedTensor) and number.rows_dim is None
        assert torch.equal(number.values(), eval(code, NAMES, {"s": s.values()}))
        for wrong in ("s - number", "s[None] * number", "number * y", "torch.where(number > 0, y, 0)"):
            with pytest.raises(LoDError, match="became in "):
                eval(wrong, NAMES, {"s": s, "number": number, "y": y})
        assert float(number) == number.item() and (number * 2 + torch.tensor(1.0)).dim() == 0


@pytest.mark.parametrize(
    "code",
    [
        "s.mean()",
        "s.sum()",
        "s.max()",
        "s.std()",
        "x.mean()",
        "x.norm()",
        "x[None].mean()",
        "s.quantile(0.5)",
        "x.amax()",
    ],
)
def test_a_reduction_of_everything_is_a_number(code):
    x = rows()
    number = eval(code, NAMES, {"s": x[:, 0], "x": x})
    assert type(number) is torch.Tensor and (x - number).lod is x.lod and (number * y).shape == y.shape


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiled(backend):
    def mean(x, y):
        return F.mse_loss(x[None].mean(1)[:, :1], y)

    def number(x, y):
        s = x[:, 0]
        return s - s.mean(0)

    def product(x, y):
        return x.mean(0)[None] @ y.expand(3, 8)[:, :, None]

    for program in (mean, number, product):
        torch._dynamo.reset()
        with pytest.raises(Exception, match="lost the structure"):
            torch.compile(program, backend=backend, fullgraph=True)(rows(), y1)
    torch._dynamo.reset()
    bias = torch.randn(8)
    found = torch.compile(lambda x, b: x[None].mean(1) + b, backend=backend, fullgraph=True)(rows(), bias)
    assert torch.allclose(found.values() if isinstance(found, DerivedTensor) else found, rows().values().mean(0) + bias)
