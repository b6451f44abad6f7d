# SPDX-License-Identifier: Apache-2.0
"""Rows of two operands at two dims of one result: every row beside the rows of all sequences. They are refused, also where the
table would be reduced to a number; what is summed over the rows of both, or has the rows of one, is not."""

import copy

import pytest
import torch
import torch.nn.functional as F

import torch_lod as tl
from torch_lod import LoDError
from torch_lod.tensor.provenance import provenance_of

X, X2, SQUARE = torch.randn(4, 3), torch.randn(4, 3), torch.rand(4, 4)


def operands():
    x = tl.from_lengths(X.clone(), [[3, 1]])
    x2, square, y = (
        x.with_values(X2.clone()),
        x.with_values(SQUARE.clone()),
        tl.from_lengths(torch.randn(5, 3), [[2, 3]]),
    )
    nested = tl.from_lengths(X.clone(), [[1, 1], [3, 1]])
    return {
        "x": x,
        "x2": x2,
        "y": y,
        "square": square,
        "nested": nested,
        "v": x[:, 0].clone(),
        "p": x2[:, :1].clone(),
        "w": y[:, 0].clone(),
        "torch": torch,
        "F": F,
        "M": torch.rand(3, 3),
        "Z": torch.zeros(4, 4),
    }


#: Predictions (rows, 1) beside targets (rows,): the squeeze that was forgotten.
FORGOTTEN = """
F.mse_loss(p, v)
F.mse_loss(v, p)
F.mse_loss(p[None], v[None])
F.mse_loss(p, v, reduction="none")
F.l1_loss(p, v)
F.huber_loss(p, v)
F.smooth_l1_loss(p, v)
F.poisson_nll_loss(p, v.abs())
F.gaussian_nll_loss(p, v, p.exp())
F.hinge_embedding_loss(p, v.sign())
F.margin_ranking_loss(p, v, v.sign())
F.kl_div(p, v.exp())
F.soft_margin_loss(p, v.sign())
F.binary_cross_entropy_with_logits(p, (v > 0).float())
F.binary_cross_entropy(p.sigmoid(), (v > 0).float())
F.multilabel_soft_margin_loss(p, v)
((p - v) ** 2).mean()
((p > 0) == (v > 0)).float().mean()
(p != v).sum()
(p > v).sum()
v + p
p - v
p.sub_(v)
v.sub_(p)
p.clamp(max=v)
torch.clamp(p, v.min(), v)
torch.where(p > 0, p, v)
torch.where(v > 0, p, p)
torch.lerp(p, v, 0.5)
torch.masked_fill(p, v > 0, 0.0)
torch.addcmul(p, p, v)
torch.max(p, v)
torch.dist(p, v)
torch.allclose(p, v)
torch.isclose(p, v)
torch.broadcast_tensors(p, v)
square * v
"""
PAIRS = """
v[:, None] - v[None]
v[:, None] - w[None]
v[:3, None] - v[None]
v[:3, None] - v[None, :3]
v[:3, None] * v[None, 1:3]
square - square.t()
nested[:, None] - nested[None]
(v[:, None] - v[None]).abs().mean()
(v[:, None] > v[None]).float().mean()
torch.where(v[:, None] > v[None], 1.0, 0.0)
torch.cdist(x, x)
torch.cdist(x, y)
torch.cdist(x, x).mean()
torch.cdist(x[None], x[None])
torch.cdist(x[:2], x[:2])
torch.cdist(x[:, None], x[None])
torch.pdist(x)
torch.outer(v, v)
torch.outer(v, w)
torch.ger(v, w)
torch.addr(Z, v, v)
torch.addr(v, v, Z[0])
torch.addmm(Z, x, x.t())
torch.addmm(square, x, x.t())
torch.addmm(v, x, torch.rand(3, 4))
torch.baddbmm(Z[None], x[None], x[None].mT)
torch.addbmm(Z, x[None], x[None].mT)
torch.linalg.multi_dot([x, x.t()])
torch.linalg.multi_dot([x, M, x.t()])
torch.chain_matmul(x, M, x.t())
x @ x.t()
x @ y.t()
x[:2] @ x.t()
x[:2] @ x[:2].t()
x[None] @ x[None].mT
torch.inner(x, x)
torch.inner(x, y)
torch.tensordot(x, x, dims=([1], [1]))
torch.tensordot(x, x, dims=0)
torch.tensordot(x, x.t(), dims=1)
torch.tensordot(v, v, dims=0).sum()
torch.kron(x, x)
torch.meshgrid(v, v, indexing="ij")
torch.meshgrid([v, w], indexing="ij")
torch.cartesian_prod(v, w)
torch.combinations(v)
torch.cov(x)
torch.corrcoef(x)
torch.isin(v, w)
torch.searchsorted(v, x)
F.cosine_similarity(x[:, None], x, dim=-1)
F.cosine_similarity(x[:, None], x[None], dim=-1).mean()
F.pairwise_distance(x[:, None], x)
torch.linalg.vecdot(x[:, None], x)
F.linear(x, x)
F.linear(F.normalize(x), F.normalize(y))
F.linear(x, torch.rand(4, 3), v)
F.bilinear(x, x2, y[:, :, None].expand(-1, 3, 3))
F.linear_cross_entropy(x, x, torch.arange(4))
F.layer_norm(square, (4,), v)
F.batch_norm(square, None, None, v, v, True)
F.instance_norm(square[:, :, None].expand(-1, -1, 3), None, None, v)
F.prelu(square, v)
F.cross_entropy(square, x, weight=v)
torch.einsum("i,j->", v, v)
torch.einsum("i,j->ij", v, v)
torch.einsum("i,j->i", v, v)
torch.einsum("i,j->", v, w)
torch.einsum("id,jd->", x, x)
torch.einsum("id,jd->", x, y)
torch.einsum("id,jd->d", x, y)
torch.einsum("i,j,ij->", v, v, Z)
torch.einsum("id,id,jd->i", x, x2, y)
torch.einsum("bid,bjd->", x[None], x[None])
"""
#: Summed over the rows of both, or pairs of features: their structure is lost, or they are numbers, as documented.
LOST = """
x.t() @ x2
x.mT @ x2
torch.einsum("nd,nd->d", x, x2)
torch.einsum("nd,ne->de", x, x2)
torch.einsum("nd,de->ne", square, x)
torch.tensordot(x, x2, dims=([0], [0]))
torch.cov(x.t())
torch.corrcoef(x.t())
torch.pdist(x.t())
torch.cdist(x.t(), x2.t())
torch.inner(x.t(), x2.t())
torch.kron(x, M)
torch.meshgrid(v, torch.zeros(2), indexing="ij")[0]
torch.linalg.multi_dot([x.t(), x])
torch.addmm(M, x.t(), x2)
F.embedding(torch.arange(2), x)
v[1:3] - v[:2]
"""
NUMBERS = """
torch.dot(v, v)
torch.vdot(v, p[:, 0])
torch.inner(v, v)
torch.dist(v, p[:, 0])
torch.einsum("i,i->", v, v)
torch.cov(v)
"""


def listed(text):
    return text.strip().splitlines()


def run(case):
    return eval(case, operands())


@pytest.mark.parametrize("case", listed(FORGOTTEN))
def test_a_forgotten_squeeze_is_named(case):
    with pytest.raises(
        LoDError, match=r"got some at two: .* where row i belongs to row i, y\.unsqueeze\([12]\)"
    ) as caught:
        run(case)
    said = str(caught.value)
    assert "square" in case or "p.squeeze(" in said
    for way in ("tl.sequence_pairwise", "tl.sequence_pairs", "tl.map_sequences", ".values()"):
        assert way in said


@pytest.mark.parametrize("case", listed(PAIRS))
def test_pairs_of_rows_are_refused(case):
    with pytest.raises(
        LoDError, match=r"got some at two: .* within sequences: tl.sequence_pairwise .* tl.sequence_pairs"
    ):
        run(case)


@pytest.mark.parametrize("case", listed(LOST))
def test_what_is_summed_over_the_rows_is_lost(case):
    p = provenance_of(run(case))
    assert p is not None and p.dim is None


@pytest.mark.parametrize("case", listed(NUMBERS))
def test_numbers_of_rows_that_correspond_stay_numbers(case):
    assert run(case).dim() == 0


@pytest.mark.parametrize("call", ["torch.dot(v, w[:4])", "torch.dist(v, o)", "torch.dot(v, o)", "torch.vdot(o, v)"])
def test_numbers_of_rows_that_do_not_correspond_are_refused(call):
    with pytest.raises(LoDError):
        eval(call, operands() | {"o": tl.from_lengths(torch.randn(4), [[2, 2]])})


def test_what_the_message_says_is_right():
    given = operands()
    p, v = given["p"], given["v"]
    wanted = sum(((a[:, 0] - b) ** 2).sum() for a, b in zip(p.sequences(), v.sequences())) / 4
    torch.testing.assert_close(F.mse_loss(p, v.unsqueeze(1)), wanted)
    torch.testing.assert_close(F.mse_loss(p.squeeze(1), v), wanted)
    torch.testing.assert_close(F.mse_loss(p[None], v[None].unsqueeze(2)), wanted)
    i, j = tl.sequence_pairs(v, v)
    pairs = v.values()[i.values()] - v.values()[j.values()]
    alone = torch.cat([(a[:, None] - a[None]).flatten() for a in v.sequences()])
    torch.testing.assert_close(pairs, alone)
    assert torch.cdist(given["x"].values(), given["x"].values()).shape == (4, 4)


def test_rows_of_a_declared_tensor_do_not_meet_one_another():
    c = tl.per_sequence(torch.rand(2, 3))
    with pytest.raises(LoDError, match="got some at two"):
        torch.cdist(c, c)
    with pytest.raises(LoDError, match="got some at two"):
        c[:, None] - c


@pytest.mark.parametrize(
    "loss", [F.mse_loss, F.l1_loss, lambda p, y: ((p - y) ** 2).mean(), lambda p, y: (p == y).sum()]
)
def test_one_row_is_refused_as_well(loss):
    one = tl.from_lengths(torch.rand(1), [[1]])
    with pytest.raises(LoDError, match="got some at two"):
        loss(one[:, None], one)


COMPILED = [
    "F.mse_loss(p, v)",
    "((p - v) ** 2).mean()",
    "((p > 0) == (v > 0)).float().mean()",
    "v[:, None] - v[None]",
    "torch.cdist(x, x)",
    "torch.outer(v, v)",
    'torch.einsum("id,jd->", x, x)',
    "torch.tensordot(x, x, dims=([1], [1]))",
    "F.cosine_similarity(x[:, None], x, dim=-1)",
    "F.linear(x, x)",
    "torch.where(p > 0, p, v)",
]


@pytest.mark.parametrize("case", COMPILED)
def test_compiled_code_refuses_them(case):
    given = operands()
    names = [name for name in ("x", "v", "p") if isinstance(given[name], tl.LoDTensor) and name in case]
    scope: dict = {"torch": torch, "F": F}
    exec(f"def f({', '.join(names)}):\n    return {case}", scope)
    torch.compiler.reset()
    with pytest.raises(Exception, match="got some at two"):
        torch.compile(scope["f"], backend="eager", fullgraph=True)(*[copy.copy(given[name]) for name in names])
