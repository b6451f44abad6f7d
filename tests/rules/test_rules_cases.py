# SPDX-License-Identifier: Apache-2.0
"""What functions that a model meets do to a LoD, case by case."""

import re

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import torch_lod as tl
from torch_lod import LoD, LoDError, LoDTensor
from torch_lod.tensor.derived import DerivedTensor

LOD = LoD.from_lengths([[1, 2, 1]])
OTHER = LoD.from_lengths([[2, 1, 1]])
PERM = torch.tensor([3, 0, 2, 1])
P4, W, Q = torch.rand(4), torch.rand(4, 4), torch.tensor([0.1, 0.2, 0.3, 0.4])


def make(*shape, lod=LOD, dtype=torch.float32):
    return LoDTensor(torch.rand(4, *shape).mul(4).to(dtype), lod)


def operands():
    return {
        "x": make(4),
        "y": make(4),
        "v": make(),
        "cube": make(4, 4),
        "frames": make(3, 6, 6),
        "ids": make(dtype=torch.int64),
        "other": make(4, lod=OTHER),
        "twin": make(4, lod=LoD.from_lengths([[1, 2, 1]])),
        "one": LoDTensor(torch.rand(1, 4), LoD.from_lengths([[1]])),
        "three": LoDTensor(torch.rand(3, 3), LoD.from_lengths([[1, 2]])),
        "matrices": make(3, 3),
        "single": LoDTensor(torch.rand(1, 1), LoD.from_lengths([[1]])),
        "plain": torch.rand(4, 4),
        "perm": PERM,
        "eye": torch.eye(4).bool(),
        "wide": torch.rand(4, 4, 4),
        "np": np,
        "torch": torch,
        "nn": torch.nn,
        "F": F,
        "W": W,
        "P4": P4,
        "Q": Q,
    }


def run(text):
    return eval(text, operands())


def listed(text):
    return [case for line in text.strip().splitlines() for case in line.split(" | ")]


KEPT = """
x + 1 | x + y | x + twin | x * plain | x * P4 | x.exp() | x > 0.5 | torch.max(x, y) | torch.maximum(x, y) | x.clamp(min=0.2)
torch.where(x > 0.5, x, y) | x.sum(1) | x.sum(-1, keepdim=True) | x.mean(dim=1) | torch.sum(input=x, dim=1) | cube.sum((1, 2))
x[:] | x[:, 0] | x[..., 0] | x[:, None] | x[:, perm] | x[:, [1, 0]] | x[..., perm] | x[:, ::2] | cube[:, 1, :] | x[...]
x.softmax(1) | x.cumsum(-1) | x.sort(1).values | x.flip(1) | x.roll(1, 1) | x.diff(dim=1) | torch.argsort(x, dim=1)
F.gumbel_softmax(x) | F.normalize(x) | torch.cumsum(x, axis=1) | torch.sort(x, stable=True, dim=-1).values
x @ W | F.linear(x, W) | torch.addmm(P4, x, W) | torch.matmul(input=x, other=W) | x.view(4, 2, 2) | x.reshape(-1, 4)
x.unsqueeze(1) | x.unsqueeze(-1) | cube.transpose(1, 2) | cube.permute(0, 2, 1) | cube.flatten(1) | x.squeeze() | x.squeeze(1)
torch.permute(input=cube, dims=(0, 2, 1)) | torch.transpose(input=cube, dim0=1, dim1=2) | torch.squeeze(input=x)
torch.unsqueeze(input=x, dim=1) | torch.flatten(input=cube, start_dim=1) | torch.reshape(input=x, shape=(4, 2, 2))
torch.tile(input=x, dims=(1, 2)) | x.expand(4, 4) | x.tile(1, 2) | x.repeat(1, 2) | F.pad(x, (1, 1, 0, 0)) | F.pad(x, (1, 1)) | one.squeeze(1) | x.narrow(0, 0, 4) | plain[ids]
x.double() | x.to(torch.float64) | x.to("cpu") | x.detach() | x.clone() | x.contiguous() | torch.zeros_like(x) | x.float()
torch.cat([x, y], 1) | torch.cat([x, plain], dim=-1) | torch.stack([x, y], 1) | torch.cat(tensors=[x, y], dim=1)
nn.Linear(4, 3)(x) | nn.Embedding(4, 3)(ids) | nn.LayerNorm(4)(x) | nn.BatchNorm1d(4)(x) | nn.Dropout()(x)
nn.Conv2d(3, 2, 3)(frames) | nn.MaxPool2d(2)(frames) | nn.GroupNorm(3, 3)(frames) | nn.ReLU()(x) | nn.PReLU()(x)
nn.CrossEntropyLoss(reduction="none")(x, ids) | nn.MSELoss(reduction="none")(x, y) | F.one_hot(ids, 4)
F.cosine_similarity(x, y) | nn.RMSNorm(4)(x) | nn.Sequential(nn.Linear(4, 2), nn.Tanh())(x) | x.chunk(2, 1)[0]
x.split(2, 1)[1] | torch.split(x, 2, dim=-1)[0] | x.unbind(1)[0] | x.topk(2, 1).values | x.max(1).values | x.norm(dim=1)
nn.LSTM(4, 3)(x) | nn.LSTM(4, 3, batch_first=True)(x) | nn.GRU(4, 3)(x) | nn.GRU(4, 3, batch_first=True)(x) | nn.RNN(4, 3)(x)
nn.RNN(4, 3, batch_first=True, nonlinearity="relu")(x) | nn.Conv1d(4, 2, 2)(x) | nn.InstanceNorm1d(4)(x) | nn.MaxPool1d(1)(x)
nn.MultiheadAttention(4, 2)(x, x, x) | nn.MultiheadAttention(4, 2, batch_first=True)(x, y, y)
nn.TransformerEncoderLayer(4, 2, 8)(x) | nn.TransformerEncoderLayer(4, 2, 8, batch_first=True).eval()(x)
F.scaled_dot_product_attention(x, x, x) | nn.AvgPool1d(2)(x) | nn.ConvTranspose1d(4, 2, 2)(x) | F.pad(x, (1, 1), mode="replicate") | nn.GRUCell(4, 3)(x)
torch.quantile(x, 0.5, dim=1) | x.renorm(2, 0, 0.1) | torch.no_grad()(lambda: x + 1)()
1 / x | x**2 | 2**x | x + torch.tensor(2.0) | x + np.float32(2) | x.double() + y | x + ids[:, None] | x.half() * y | x > ids[:, None]
x.cfloat() | x.cdouble() | torch.complex(x, y) | torch.fft.fft(x) | torch.fft.rfft(x, dim=1) | torch.fft.fftn(x, (2,))
torch.fft.fft2(cube) | torch.fft.fftshift(x, 1) | torch.linalg.inv(matrices) | torch.linalg.det(matrices) | matrices.mT
torch.linalg.solve(matrices, x[:, :3]) | torch.linalg.solve(W, cube) | torch.linalg.norm(x, dim=1) | torch.linalg.vecdot(x, y)
torch.einsum("ij,jk->ik", x, W) | torch.einsum("ij,ij->i", x, y) | torch.einsum("bij,bjk->bik", cube, cube)
torch.einsum("...j,jk->...k", x, W) | torch.einsum("ij,kj", x, W) | torch.einsum("...i,...i->...", x, twin)
torch.einsum("i,ij->ij", v, x) | torch.einsum(x, [0, 1], W, [1, 2], [0, 2]) | torch.einsum("ij,jk->ik", [x, W])
torch.tensordot(x, W, 1) | cube @ cube | W @ cube | torch.outer(v, P4) | torch.addr(x, v, P4) | torch.addmm(x, W, W)
torch.cross(x[:, :3], y[:, :3], dim=1) | torch.cross(three, three, dim=-1) | cube.tril() | x.fliplr()
x.scatter(1, ids[:, None], 1.0) | x.index_add(1, perm, y) | x.gather(1, ids[:, None]) | x.index_fill(1, perm, 0.0)
torch.hstack([x, v[:, None]]) | torch.column_stack([v, x]) | torch.hstack([v, v]) | torch.vstack([x, x]) | x.unfold(1, 2, 1)
torch.bucketize(x, Q) | torch.isin(ids, perm) | torch.special.expit(x) | x.frexp()[0] | torch.std_mean(x, 1)[0]
cube[:, True] | cube[:, True, [0, 1]] | F.gumbel_softmax(x, tau=P4 + 1) | torch.linalg.pinv(matrices, P4) | F.embedding_bag(ids[:, None], W)
torch.atleast_2d(x) | torch.atleast_3d(x) | torch.diag_embed(x) | cube.diagonal(dim1=1, dim2=2) | torch.trapezoid(x)
nn.LSTMCell(4, 3)(x)[0] | nn.GRUCell(4, 4)(x, y) | F.interpolate(cube, 8) | nn.ChannelShuffle(2)(frames[:, :2]) | torch.stft(x, 4, return_complex=True, window=torch.ones(4))
F.gaussian_nll_loss(x, W, v, reduction="none") | F.gaussian_nll_loss(W, W, var=v, reduction="none")
torch.trapezoid(cube, P4, dim=1) | torch.select_scatter(cube, W, 1, 0) | torch.Tensor.__rmatmul__(cube, other=W) | torch.embedding_renorm_(x.clone(), perm, 0.1, 2.0)
torch.normal(x, 1.0) | torch.bernoulli(x.sigmoid()) | torch.poisson(x) | x.multinomial(2) | torch.cdist(cube, cube) | torch.vander(v, 3)
"""
#: The rows are at another dim, the last or that behind a new one.
MOVED = """
x[None] | x.t() | x.T | x.transpose(0, 1) | x.swapaxes(0, 1) | torch.transpose(input=x, dim0=0, dim1=1)
torch.permute(input=x, dims=(1, 0)) | x.movedim(0, 1) | single.t() | v.unsqueeze(0) | torch.unsqueeze(input=v, dim=0)
x.reshape(4, 4).t() | x.expand(4, 4, 4) | x.tile(4, 1, 1) | torch.stack([x, y]) | torch.stack([x, y], dim=0)
torch.einsum("ij->ji", x) | x.mT | torch.atleast_2d(v) | torch.atleast_3d(v) | cube.transpose(0, 2)
cube.permute(2, 1, 0) | x.t() + 1 | x[None].softmax(-1) | W @ x.t() | torch.stack([x]) | x.view(1, 4, 4)
x.reshape(1, -1, 4) | ids.view(1, -1) | nn.Embedding(4, 3)(ids[None]) | nn.Linear(4, 2)(x[None])
torch.max(input=x.t(), other=y.t()) | torch.minimum(input=x.t(), other=y.t())
torch.diagonal_scatter(cube.movedim(0, 2), W[:1].expand(4, 4)) | torch.select_scatter(cube.movedim(0, 1), W[:1].expand(4, 4), 0, 1) | F.prelu(x.t()[None], P4)
torch.slice_scatter(x[None], torch.zeros(1, 4, 2), 2, 0, 2) | torch.trapezoid(cube.movedim(0, 2), P4, dim=0)
F.gaussian_nll_loss(x.t(), W, P4, reduction="none") | torch.cumulative_trapezoid(x.t(), P4, dim=0)
torch.cat([x.t(), y.t()]) | x.t().contiguous() | torch.zeros_like(x.t()) | x[None, :, 1:]
"""
#: Some of the rows.
PART = """
x[0] | x.unbind()[0] | x[1:] | x.chunk(2)[0] | x.split(2)[0] | torch.chunk(input=x, chunks=2)[0]
"""
#: The structure of the rows is lost.
LOST = """
x.sum(0) | x.sum(dim=0, keepdim=True) | x.mean(axis=0) | x.max(0).values | x.std(0) | torch.sum(input=x, dim=0)
cube.sum((0, 1)) | x.prod(-2) | single.sum(0, keepdim=True) | one.sum(0, keepdim=True) | x[perm] | x[v > 0.5] | x[::2]
x[[3, 2, 1, 0]] | x[perm, :] | x[perm, perm] | x[x > 0.5] | cube[..., perm, None, perm] | cube[:, perm, None, perm]
x[..., eye] | cube[:, perm.numpy(), None, perm.numpy()] | cube[:, range(4), None, range(4)]
cube[:, [0, 1, 2, 3], None, [0, 1, 2, 3]] | x[perm.numpy()] | x[np.array([True, False, True, True])] | x[True]
x.flatten() | x.reshape(16) | x.reshape(2, 8) | one.squeeze() | single.squeeze() | single.squeeze(0) | one.squeeze(0)
one.flatten(0) * 1 | W @ x | x.t() @ x | x @ y.values().t() @ x | torch.mm(W, x) | F.linear(plain, x)
torch.addmm(P4, x, y) | torch.addmm(P4, W, x) | torch.addmv(P4, W, v) | F.bilinear(plain, plain, cube)
torch.embedding(x, perm) | F.embedding(perm, x) | F.conv1d(wide, cube)
x.matmul(y) | torch.quantile(x, Q, dim=1) | torch.nanquantile(x, Q, dim=1) | torch.quantile(x, Q, 1)
x.quantile(Q, dim=1, keepdim=True) | torch.where(v > 0.5)[0] | torch.where(x > 0.5)[1] | torch.nonzero(x)
torch.cat([x, plain]) | x.select(0, 1) | x.index_select(0, perm) | x.gather(0, perm[None])
x.topk(4, 0).values | torch.take_along_dim(x, perm[:, None], 0)
x.scatter(0, perm[None], 1.0) | x.view(16) | x.repeat_interleave(1, 0) | plain.index_select(0, ids) | torch.diag(x)
x[:, ids] | x[..., v > 0.5] | x.index_select(1, ids) | x.repeat_interleave(ids, 1)
cube[:, True, :, [0, 1, 2, 3]] | cube[:, perm, :, True] | F.embedding_bag(x, perm[:, None])
F.gumbel_softmax(x, tau=wide + 1) | F.local_response_norm(cube, 2, alpha=wide[:, None])
torch.linalg.pinv(matrices, plain) | torch.linalg.pinv(matrices, rtol=plain)
torch.linalg.matrix_rank(matrices, plain) | torch.linalg.matrix_rank(matrices, atol=plain) | torch.einsum("ij->j", x)
torch.einsum("ii->i", x) | torch.einsum("ij,jk->ik", x, y)
torch.tensordot(x, y, 1) | torch.einsum("ij,ji->i", x, y) | torch.kron(x, W)
torch.meshgrid(v, P4, indexing="ij") | torch.bucketize(P4, v) | torch.isin(plain, x)
x.index_add(0, perm, y) | x.scatter(0, perm[None], y) | torch.trapezoid(x, dim=0) | x.diagonal() | v.multinomial(2)
torch.vstack([x, plain]) | torch.vstack([v, x])
torch.std_mean(x, 0)[0] | torch.trapezoid(x.t(), v, dim=0) | torch.cumulative_trapezoid(x.t(), v, dim=0)
torch.searchsorted(Q, P4, sorter=ids)
torch.select_scatter(cube.movedim(0, 1), x.t(), 0, 1)
torch.diagonal_scatter(cube.movedim(0, 1), x.t(), dim1=0, dim2=2) | torch.select_scatter(wide, x.t(), 0, 1)
F.triplet_margin_with_distance_loss(x, y, x, distance_function=lambda a, b: (a @ b.t())[0], reduction="none")
"""
PLAIN = """
x.sum() | x.argmax() | x.norm() | nn.CrossEntropyLoss()(x, ids) | nn.MSELoss()(x, y) | x.to_sparse()
torch.zeros_like(x, layout=torch.sparse_coo) | torch.tensordot(x, W) | F.triplet_margin_loss(v, P4, P4)
x * plain.to_sparse() | x.t().sum() | x.sum(0).sum() | x.sum(0).numpy()
"""
#: LoDTensors again, by way of another dim or in parts.
BACK = """
x.t().t() | x[None][0] | x[None].squeeze(0) | x.unsqueeze(0).flatten(0, 1) | x.mT.mT | x.T.T
x.permute(1, 0).permute(1, 0) | x.view(1, 4, 4).view(4, 4) | torch.cat(x.split(3)) | torch.cat([x[:1] * 2, x[1:] * 2])
torch.stack(x.unbind()) | torch.stack([row * 2 for row in x]) | torch.cat(x.chunk(2)) | x.t().sum(0)
x.expand(2, 4, 4)[1] | (W @ x.t()).t() | cube.movedim(0, -1).movedim(-1, 0) | torch.einsum('ji->ij', x.t())
x[None].mean(0) | x.t().reshape(1, 4, 4)[0].transpose(0, 1)
"""
REFUSED = """
x.softmax(0) | torch.softmax(input=x, dim=0) | F.log_softmax(v, dim=-1) | F.softmin(x, 0) | F.gumbel_softmax(v)
F.gumbel_softmax(x, 1.0, False, 1e-10, 0) | x.cumsum(0) | v.cumsum(-1) | torch.cumsum(x, axis=0) | x.cumprod(dim=0)
x.logcumsumexp(0) | x.cummax(0) | x.sort(0) | v.sort() | x.argsort(0) | torch.sort(x, stable=True, dim=0) | torch.msort(x)
torch.argsort(input=v) | x.flip(0) | x.flip(1, 0) | x.flip([0, 1]) | torch.flip(input=x, dims=(0,)) | x.flipud() | x.roll(1)
x.roll(1, 0) | torch.roll(x, shifts=1, dims=0) | x.diff(dim=0) | v.diff() | F.normalize(x, dim=0) | F.glu(x, 0)
x.clone().cumsum_(0) | x.clone().renorm_(2, 1, 0.1) | x.renorm(2, 1, 0.1) | x.clone().t_() | x.clone().resize_(2, 8)
torch.triu(x) | x.tril() | x.clone().set_(plain) | x.clone().set_() | x.clone().transpose_(0, 1) | x.clone().unsqueeze_(0)
nn.Conv1d(4, 2, 1)(v) | nn.MaxPool1d(2)(v) | nn.Conv2d(4, 2, 1)(cube)
F.layer_norm(x, (4, 4)) | F.pad(x[:2], (0, 0, 1, 1)) | nn.EmbeddingBag(4, 3)(ids, torch.tensor([0, 2])) | F.linear(v, W)
torch.fft.fft(x, dim=0) | torch.fft.fft2(x) | torch.fft.fftn(x) | torch.fft.fftshift(x) | torch.fft.fftn(cube, dim=(0, 1))
torch.linalg.inv(x) | torch.linalg.svd(x) | torch.linalg.qr(x) | torch.linalg.solve(W, x) | torch.linalg.solve(x, P4) | x.inverse()
torch.linalg.pinv(x) | torch.linalg.tensorinv(cube) | torch.cross(three, three) | torch.linalg.cross(three, three, dim=0)
reversed(x) | x.rot90() | x.clone().fill_diagonal_(0) | torch.cumulative_trapezoid(x, dim=0) | x.unfold(0, 2, 1)
torch.stft(v, 2, return_complex=True) | F.ctc_loss(cube.log(), ids[:, None], (4,) * 4, (1,) * 4) | x.clone().addmm_(W, y)
x.clone().index_add_(0, perm, y) | x.clone().scatter_(0, perm[None], y) | x.clone().index_copy_(0, ids, plain)
x.clone().index_put_([perm], y) | x.clone().masked_scatter_(x > 0.5, plain) | x.clone().put_(ids, P4) | x.clone().addbmm_(wide, cube)
torch.native_group_norm(x, None, None, 1, 4, 4, 2, 1e-5) | torch.add(x, 1, out=x) | torch.mul(plain, plain, out=x) | torch.sort(plain, 1, out=(x, ids))
x + wide | wide + x | torch.einsum("ij,kj->ik", x, y) | x @ y.t() | x @ x.mT | x - x.mean(0) | x + x[perm]
x * x.max(0).values | torch.where(x.mean(0) > 0, x, y) | x[None] + wide[:1] | x.softmax(0) | x[None][:, 1:].cumsum(1) | x.sort(0)
torch.diagonal_scatter(cube.movedim(0, 2), W) | torch.select_scatter(cube.movedim(0, 1), W, 0, 1) | torch.slice_scatter(x[None], plain[None], 2)
torch.select_scatter(x[None], plain, 0, 0) | F.prelu(x[None], P4) | nn.PReLU(4)(x[None])
F.linear(x.t(), W) | F.layer_norm(x.t(), (4,)) | x + x.view(4, 2, 2).flatten() [:4] | x + x[1:2] | torch.zeros(4, 4).copy_(x)
torch.zeros(4, 4).add_(x.t()) | torch.zeros(4, 4).index_put_([perm], x) | torch.zeros(4, 4).scatter_(1, ids[:, None], 1.0)
F.embedding(perm, x.clone().t(), max_norm=0.1) | F.embedding_bag(perm[:, None], x.clone().t(), max_norm=0.1) | torch.Tensor.__rmatmul__(x.t(), other=y)
v[:3].stft(2, return_complex=True) | F.max_pool2d(cube[1:], 2) | torch.embedding_renorm_(x.clone().t(), perm, 0.1, 2.0) | F.embedding(perm, x.clone().view(2, 8), max_norm=0.1)
torch.add(x, 1, out=torch.zeros(4, 4)) | torch.mul(x.t(), 2, out=torch.zeros(4, 4)) | plain.__setitem__(0, x[0])
plain.__setitem__(ids, 0.0) | x.__setitem__(0, x[1]) | x[0].add_(x[1]) | x.clone().t().cumsum_(1) | x.view(16).cumsum_(0)
x.clone().copy_(x.flip(1).flatten().view(4, 4).sum(0)) | torch.mean(x, dim=()) | x.sum([])
x.addmm_(x, W) | x.addmm_(y, x.values()) | x.addmm_(x[:, :4], W) | x.addmm_(mat1=x, mat2=W) | torch.addmv_(v, y, v) | cube.baddbmm_(cube, wide)
x.addbmm_(x[:, None], wide) | x.addr_(x[:, 0], P4) | x.t().addmm_(W, x.t())
"""


def subject(result):
    return result[0] if isinstance(result, (tuple, list)) else result


@pytest.mark.parametrize("case", listed(KEPT))
def test_keeps(case):
    result = subject(run(case))
    assert type(result) is LoDTensor and result.shape[0] == result.lod.rows


@pytest.mark.parametrize("case", listed(BACK))
def test_comes_back(case):
    assert type(run(case)) is LoDTensor


@pytest.mark.parametrize("case", listed(PLAIN))
def test_is_plain(case):
    assert type(run(case)) is not DerivedTensor and type(run(case)) is not LoDTensor


@pytest.mark.parametrize("case", listed(MOVED))
def test_rows_are_at_another_dim(case):
    result = run(case)
    assert type(result) is DerivedTensor and result.rows_dim > 0 and result.shape[result.rows_dim] == result.lod.rows


@pytest.mark.parametrize("case", listed(PART))
def test_is_a_part_of_the_rows(case):
    result = subject(run(case))
    assert type(result) is DerivedTensor and result._provenance.part is not None


@pytest.mark.parametrize("case", listed(LOST))
def test_loses_the_structure(case):
    result = subject(run(case))
    assert type(result) is DerivedTensor and result.rows_dim is None
    with pytest.raises(LoDError, match=f"which lost the structure of its rows.*{re.escape('.values()')}"):
        result.flatten()[:1] + make()


@pytest.mark.parametrize("case", listed(REFUSED))
def test_refuses_and_names_the_way_out(case):
    with pytest.raises(LoDError) as caught:
        run(case)
    assert any(
        way in str(caught.value)
        for way in ("tl.", "x.", ".values()", "normalized_shape", "input of", "LoD", "pass dim")
    )


# -- joins


def test_joins_name_the_first_difference():
    with pytest.raises(LoDError, match=r"add: expected operands with equal LoDs.*level 0, sequence 0: lengths 1 and 2"):
        make(4) + make(4, lod=OTHER)
    deep = LoD.from_lengths([[2, 1], [1, 2, 1]]), LoD.from_lengths([[2, 1], [1, 1, 2]])
    with pytest.raises(ValueError, match=r"level 1, sequence 1: lengths 2 and 1"):
        torch.maximum(make(lod=deep[0]), make(lod=deep[1]))
    with pytest.raises(ValueError, match=r"2 and 1 levels"):
        make(lod=deep[0]) * make()
    with pytest.raises(ValueError, match=r"level 0: 3 and 2 sequences"):
        torch.where(make() > 0, make(), make(lod=LoD.from_lengths([[2, 2]])))


@pytest.mark.parametrize(
    "call", [torch.add, torch.max, torch.Tensor.mul_, F.mse_loss, F.pairwise_distance, torch.hypot]
)
def test_unequal_lods_do_not_join(call):
    x = make(4)
    before = x.values().clone()
    with pytest.raises(LoDError, match="equal LoDs"):
        call(x, make(4, lod=OTHER))
    assert torch.equal(x.values(), before) and x.lod is LOD


def test_equal_but_distinct_lods_join():
    twin = LoD([[0, 1, 3, 4]])
    assert twin is not LOD
    assert (make(4) + make(4, lod=twin)).lod == LOD
    named = LoD([[0, 1, 3, 4]], level_names=["s"])
    assert (make(4) + make(4, lod=named)).lod == LOD


# -- in place


@pytest.mark.parametrize("packet", [torch.ops.aten.cumsum_, torch.ops.aten.transpose_, torch.ops.aten.relu_])
def test_functions_in_place_without_a_kind_refuse(packet):
    x, args = make(4), {"cumsum_": (0,), "transpose_": (0, 1)}.get(packet.__name__, ())
    before = x.values().clone()
    for func in (packet, packet.default):
        with pytest.raises(LoDError, match=rf"^{packet.__name__[:-1]}: expected a plain tensor.*x\.values\(\)"):
            func(x, *args)
    with pytest.raises(LoDError, match="expected a plain tensor"):
        packet(self=x, **dict(zip(("dim", "dim1") if len(args) == 1 else ("dim0", "dim1"), args)))
    assert torch.equal(x.values(), before) and x.lod is LOD
    packet(x.values(), *args)


def test_a_plain_tensor_that_is_written_into_does_not_take_rows():
    plain, x = torch.zeros(4, 4), make(4)
    with pytest.raises(
        LoDError, match=r"add: .*would not know which rows it holds; .* tl\.map_sequences .*\.values\(\)"
    ):
        plain += x
    assert not plain.any()
    plain += x.values()
    assert type(plain) is torch.Tensor and torch.equal(plain, x.values())


def test_in_place_keeps_object_and_lod():
    x = make(4)
    before = x
    x += 1
    x.mul_(make(4)).relu_()
    x[:] = 0
    assert x is before and x.lod is LOD and not x.values().any()


def test_an_operator_in_place_does_not_turn_into_another():
    x = make(4)
    before = x
    with pytest.raises(LoDError, match="add: expected rows at one dim of the result"):
        x += make()
    with pytest.raises(LoDError, match="equal LoDs"):
        x *= make(4, lod=OTHER)
    assert x is before and x.lod is LOD


@pytest.mark.parametrize("name", ["add_", "mul_", "sub_", "div_", "copy_"])
def test_in_place_with_another_rank_is_refused(name):
    x = make(4)
    with pytest.raises(LoDError):
        getattr(x, name)(make())


@pytest.mark.parametrize(
    "assign",
    [
        lambda x, y: x.__setitem__(PERM, y),
        lambda x, y: x.__setitem__(make(dtype=torch.int64), 0.0),
        lambda x, y: x.__setitem__((slice(None), 0), y),
        lambda x, y: x.__setitem__(y > 0.5, torch.rand(16)),
        lambda x, y: x.__setitem__(slice(None), make(4, lod=OTHER)),
        lambda x, y: x.__setitem__(make(4, lod=OTHER) > 0.5, 0.0),
        lambda x, y: setattr(x, "real", make()),
        lambda x, y: setattr(x, "real", make(4, lod=OTHER)),
        lambda x, y: torch.Tensor.module_load(x, make(4, lod=OTHER)),
    ],
)
def test_assignment_writes_rows_over_the_same_rows_only(assign):
    x = make(4)
    before = x.values().clone()
    with pytest.raises(LoDError):
        assign(x, make(4))
    assert torch.equal(x.values(), before) and x.lod is LOD


def test_assignments_that_are_row_by_row():
    x, y = make(4), make(4)
    expected = x.values().clone()
    x[:, 1:] = y[:, 1:]
    expected[:, 1:] = y.values()[:, 1:]
    x[y > 0.5] = 0.0
    expected[y.values() > 0.5] = 0.0
    ends = x.row_offsets()[1:] - 1  # one row of every sequence
    x[ends] = y.values()[:3]
    expected[ends] = y.values()[:3]
    assert torch.equal(x.values(), expected) and x.lod is LOD
    z = make(4, dtype=torch.complex64)
    z.real, z.imag = 0.0, y
    assert torch.equal(z.values(), torch.complex(torch.zeros(4, 4), y.values())) and z.real.lod is LOD


def test_an_element_of_rows_moves_as_gradcheck_moves_it():
    """By what was made of itself, and not by a write at a position."""
    x = make(4)
    expected = x.values().clone()
    expected[0, 1] += 5
    element = x[0, 1]
    element.copy_(element.clone() + 5)
    assert torch.equal(x.values(), expected) and x.lod is LOD
    for write in (lambda: x[0].add_(5), lambda: x[None][0, 1].mul_(2), lambda: element.zero_()):
        with pytest.raises(LoDError, match="expected a write to all rows"):
            write()


@pytest.mark.parametrize("write", ["copy_", "fill_", "add_", "__setitem__"])
@pytest.mark.parametrize("what", [lambda: make(4).sum(0)[0], lambda: make(lod=OTHER).unbind()[0]])
def test_an_element_of_a_row_takes_none_of_other_sequences(write, what):
    rows = make().unbind()
    with pytest.raises(LoDError, match=r"which rows it holds|a write to all rows"):
        getattr(rows[0], write)(*[()] * (write == "__setitem__"), what())
    rows[0].copy_(rows[0] * 2)
    assert torch.stack(rows).lod is LOD


def test_nested_tensors_of_rows_are_another_layout():
    nested = torch.nested.as_nested_tensor([make(4), make(4)])
    assert type(nested) is torch.Tensor and "nested" in repr(nested)


def test_arguments_that_come_back_stay_what_they_are():
    x, plain = make(4), torch.rand(4, 4)
    first, second = torch.atleast_2d(x, plain)
    assert first.lod is LOD and type(second) is torch.Tensor and type(plain) is torch.Tensor
    torch.nn.functional.dropout(input=plain, p=0.0) + x
    assert type(plain) is torch.Tensor


@pytest.mark.parametrize(
    "call",
    [
        lambda x, y: x.gather(1, y.long()),
        lambda x, y: torch.diff(x, prepend=y),
        lambda x, y: torch.cdist(x[:, None], y[:, None]),
        lambda x, y: x[:, None] @ y[..., None],
        lambda x, y: torch.einsum("ij,ij->i", x, y),
        lambda x, y: torch.column_stack([x, y]),
        lambda x, y: torch.linalg.vecdot(x, y),
        lambda x, y: F.cosine_embedding_loss(x, x, y[:, 0], reduction="none"),
        lambda x, y: torch.nn.GRUCell(4, 4)(x, y),
        lambda x, y: x.select_scatter(y[:, 0], 1, 0),
    ],
)
def test_operands_of_two_structures_are_refused_wherever_rows_meet(call):
    with pytest.raises(LoDError, match="equal LoDs"):
        call(make(4), make(4, lod=OTHER))
    call(make(4), make(4))


def test_data_takes_only_as_many_rows():
    x = make(4)
    x.data = torch.ones(4, 4)
    assert x.lod is LOD and x.values().sum() == 16
    with pytest.raises(LoDError, match="4 rows"):
        x.data = torch.ones(3, 4)
    assert x.shape == (4, 4)


# -- gradients


def test_gradients_are_plain():
    x = make(4).requires_grad_()
    seen = []
    x.register_hook(lambda grad: seen.append(type(grad)))
    (x * 2).sum().backward()
    assert type(x) is LoDTensor and type(x.grad) is torch.Tensor and seen == [torch.Tensor]
    assert type(torch.autograd.grad((x * x).sum(), x)[0]) is torch.Tensor


# -- cat


def test_cat_along_rows_chains_the_sequences():
    joined = torch.cat([make(4), make(4, lod=OTHER)])
    assert joined.recursive_sequence_lengths() == [[1, 2, 1, 2, 1, 1]]
    assert torch.cat([make(4), make(4)], dim=-2).num_sequences() == 6
    deep = make(4, lod=LoD.from_lengths([[2, 1], [1, 2, 1]]))
    assert torch.cat([make(4), deep]).rows_dim is None
    with pytest.raises(LoDError, match="equal LoDs"):
        torch.cat([make(4), make(4, lod=OTHER)], 1)


# -- batch norm


def test_batch_norm_mixes_rows_only_in_training():
    norm, x, y = torch.nn.BatchNorm1d(4), make(4), make(4)
    y.values()[0] = x.values()[0]
    assert norm(x).lod is LOD
    assert not torch.equal(norm(x).values()[0], norm(y).values()[0])
    norm.eval()
    assert torch.equal(norm(x).values()[0], norm(y).values()[0])


@pytest.mark.parametrize("call", [tl.full_like, torch.full_like])
def test_likes_keep(call):
    assert call(make(4), 3.0).lod is LOD


@pytest.mark.parametrize(
    "rows, way_out", [(2, r"expand_as\(operand, x\)"), (3, r"LoDTensor\(operand, x.lod.outer\(1\)\), x\)")]
)
def test_a_row_per_sequence_beside_rows_names_the_way_out(rows, way_out):
    x = tl.from_lengths(torch.randn(7, 2), [[2, 1], [2, 1, 4]])
    for combine in (torch.mul, torch.Tensor.__sub__, torch.Tensor.__iadd__):
        with pytest.raises(
            RuntimeError, match=f"^[a-z_]+: expected operands whose rows correspond, got {rows} rows.*{way_out}"
        ):
            combine(x, torch.randn(rows, 2))
    with pytest.raises(RuntimeError, match="must match the size"):  # of no level
        x + torch.randn(5, 2)
