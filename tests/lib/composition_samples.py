# SPDX-License-Identifier: Apache-2.0
"""Steps of programs for the laws in test_compositions.py: `v` is what the step before gave, `x` the LoDTensor that a
program began with. They take rows in any number, so that the rows may become more."""

import torch
import torch.nn.functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


def _listed(text: str) -> list[str]:
    return [step for line in text.strip().splitlines() for step in line.split(" | ")]


#: Where the rows are afterwards is another matter.
SHAPES = _listed("""
v.t() | v.T | v.mT | v.transpose(0, 1) | v.transpose(-1, -2) | v.transpose(1, 2) | v.movedim(0, 1) | v.movedim(0, -1)
v.permute(1, 0) | v.permute(1, 2, 0) | v.permute(0, 2, 1) | v.swapaxes(0, -1) | torch.einsum("...ij->...ji", v) | v[None]
v.unsqueeze(0) | v.unsqueeze(1) | v.unsqueeze(-1) | v[:, None] | v[None, :, None] | v[..., None] | v.view(1, *v.shape)
v.reshape(1, -1, v.shape[-1]) | v.view(*v.shape[:-1], 2, 4) | v.unflatten(-1, (2, 4)) | v.flatten() | v.flatten(1)
v.flatten(-2) | v.flatten(0, 1) | v.reshape(-1) | v.reshape(-1, 4) | v.reshape(v.shape[0], -1) | v.squeeze() | v.squeeze(0)
v.squeeze(1) | v.expand(1, *v.shape) | v.expand(2, *v.shape) | torch.stack([v]) | torch.stack([v, v], 1) | torch.stack([v, v])
torch.stack([v, v], -1) | v.contiguous() | v.transpose(0, 1).contiguous() | torch.atleast_3d(v) | v.clone() | v.detach()
v.repeat(1, 2) | v.repeat(1, 1, 1) | v.tile(1, 2) | v.view(v.shape) | v.narrow(-1, 0, 4) | v.select(-1, 0) | v.unfold(-1, 2, 2)
v.adjoint() | v.ravel() | v.reshape(2, -1) | v.diagonal() | v.as_strided((4, 4), (4, 1)) | v.mT.contiguous()
""")
#: Row by row where the rows are at dim 0, and not the last.
ROWS = _listed("""
v + 1 | torch.relu(v) | v * v | v.softmax(-1) | F.linear(v, w) | v @ w | torch.matmul(w, v) | F.layer_norm(v, (8,)) | v * b
v.sum(-1, keepdim=True) | v.mean(-1) | F.gelu(v) | torch.cat([v, v], -1) | torch.where(v > 0, v, 0.0) | v.chunk(2, -1)[0]
v[..., :4] | torch.cat(v.split(5)) | torch.cat([t * 2 for t in v.split(3)]) | torch.cat(v.chunk(3)) | torch.stack(v.unbind())
torch.stack([t * 2 for t in v]) | torch.cat([v[:4], v[4:]]) | F.batch_norm(v, b, b.abs()) | torch.einsum("ij,jk->ik", v, w)
v.norm(dim=-1, keepdim=True) | F.normalize(v, dim=-1) | v.double().float() | v.view_as(v) | F.embedding((v > 0).long(), w)
v.masked_fill(v > 0, 0.0) | v.clamp(0, 1) | F.cosine_similarity(v, v, dim=-1) | w[(v > 0).long()] | v.max(-1, keepdim=True)[0]
v.sort(-1)[0] | torch.cat([v, torch.zeros_like(v)], -1) | F.pad(v, (0, 0, 0, 0)) | F.pad(v, (1, 0, 0, 0)) | v.cumsum(-1)
torch.maximum(v, v.neg()) | v / v.norm(dim=-1, keepdim=True) | v.mul(2).sub_(1) | v.clone().add_(v) | torch.lerp(v, v * 2, 0.5)
F.glu(v) | v.flip(-1) | v[..., [1, 0]] | v.bool().float() | torch.addmm(b, v, w) | F.rms_norm(v, (8,)) | v.std(-1)
torch.cdist(v, w) | torch.bmm(v, v.mT) | v.chunk(2, -1)[1].contiguous() | v.unbind(-1)[1] | v.gather(-1, (v > 0).long())
F.conv1d(v, k1) | F.one_hot((v > 0).long(), 2).float() | v.index_select(-1, order) | v - v.mean(-1, keepdim=True) | v.pow(2)
v + torch.ones(v.shape) | torch.ones(v.shape).mul_(v) | v * b.expand(v.shape) | v * torch.zeros(v.shape[:-1])[..., None]
""")
#: Along sequences, in the layout of torch.
SEQUENCES = _listed("""
F.conv1d(v, k3, padding=1) | F.max_pool1d(v, 3, 1, 1) | F.avg_pool1d(v, 3, 1, 1) | F.instance_norm(v) | F.group_norm(v, 2)
lstm(v)[0] | gru(v)[0] | F.scaled_dot_product_attention(v, v, v) | F.scaled_dot_product_attention(v, v, v, is_causal=True)
attend(v, v, v)[0] | F.max_pool1d(v, 2) | F.pad(v, (1, 1), mode="replicate") | F.pad(v, (1, 1)) | F.adaptive_avg_pool1d(v, 1)
F.adaptive_max_pool1d(v, 2) | F.conv_transpose1d(v, k3) | layer(v) | torch.conv1d(v, k3, b, 1, 1)
v.softmax(1) | v.softmax(-1) | F.log_softmax(v, -2) | v.cumsum(-1) | v.cumsum(1) | v.flip(1) | v.flip(-1) | v.sort(1)[0] | v.sort(-1)[1].float()
v.cummax(1)[0] | v.cummin(-1)[1].float() | v.argsort(1).float() | v.logcumsumexp(-1) | F.conv1d(v, k3, padding=2)[..., :-2]
F.conv1d(v, k3, padding=2).relu()[..., :-2] | F.conv1d(v, k3, padding=2)[..., :-1] | F.conv1d(v, k3, padding=2) | v[..., :-2] | packed(v)
""")
#: What uses the rows of several sequences. (torch's median of an expanded tensor is wrong for plain tensors as well.)
MIXES = _listed("""
v @ v.transpose(-1, -2) | v.mean(0) | v.sum(0, keepdim=True) | v.flip(0) | v[order] | v.cumsum(0) | v.max(0)[0] | v.sort(0)[0]
v.roll(1, 0) | v[::2] | v[0] | v[1:] | v.softmax(0) | v.t() @ v | torch.cdist(v, v) | v.mean(-2, keepdim=True) | v.amax((0, 1))
torch.cov(v) | v.index_select(0, order) | torch.outer(v[:, 0], v[:, 0]) | v.transpose(-1, -2).mean(-1) | v[v > 0] | v.unbind()[1]
v.topk(2, 0)[0] | v.repeat_interleave(2, 0) | torch.cat([v, v]) | torch.zeros(8, 8).index_add(0, order, v[order]) | v.var(0)
torch.mean(v, dim=()) | F.softmax(v @ v.transpose(-1, -2), -1) @ v | v.argsort(0) | torch.einsum("nd,md->nm", v, v) | v.diff(dim=0)
torch.einsum("nd,nd->d", v, v) | v.contiguous().median(0)[0] | torch.nonzero(v) | torch.unique(v) | v.sum() | v.quantile(0.5, 0) | v.logsumexp(0)
torch.tensordot(v, v, ([0], [0])) | torch.kron(v, v) | v.take(order) | v.norm() | torch.bincount((v > 0).long().flatten(), minlength=8)
torch.zeros(8, 8).index_add_(0, order, v[order]) | torch.zeros(v.shape).index_add_(0, torch.arange(len(v)) // 2, v)
F.fold(v, (2, 2), (2, 2)) | v.fft().abs() | torch.fft.fft(v, dim=0).abs() | v.histc(8) | torch.linalg.svdvals(v) | v.std(0)
""")
#: Writes into a copy, of all rows or by their number.
WRITES = _listed("""
put(v, 5) | put(v, -1) | put(v, slice(5)) | put(v, (slice(None), 5)) | put(v, (..., 0)) | put(v, ...) | put(v, v > 0) | put(v, order)
v.clone().index_fill_(0, order[3:4], 1.0) | v.clone().index_fill_(-1, order[:2], 1.0) | v.clone().scatter_(0, order[None], 1.0)
v.clone().mul_(2).clamp_(0, 1) | changed(v, lambda t: t[5].zero_()) | changed(v, lambda t: t[..., 0].zero_()) | put(v, (0, 5))
changed(v, lambda t: t.narrow(0, 5, 2).mul_(2)) | changed(v, lambda t: t.unbind(0)[5].add_(1)) | changed(v, lambda t: t.t().zero_())
""")
#: Back to the rows of x.
BACK = _listed("""
v | v.transpose(-1, -2) | v.t() | v[0] | v.squeeze(0) | v.movedim(-1, 0) | v.permute(1, 0) | v.permute(2, 0, 1) | v.reshape(x.shape)
v.view(x.shape[0], -1) | x + v | x * v | torch.cat([x, v], -1) | torch.where(x > 0, x, v) | x + v.transpose(-1, -2) | x + v[0]
x - v.t() | x + v.reshape(x.shape) | torch.zeros_like(x) + v | v.mT.contiguous() | x.mul(v) | torch.addcmul(x, v, v) | v * x
x.clone().add_(v) | x @ v | torch.stack([x, v], 1) | v.expand_as(x) | v.view_as(x) | F.linear(x, v) | x.clone().copy_(v)
torch.zeros(x.shape).copy_(v) + x | x[(v > 0).long()] | x + v[0].t() | v.transpose(0, 1) | v[0].t() | v.squeeze() | x + v.squeeze(0)
x + v.sum(-1, keepdim=True) | x.lerp(v, 0.5) | torch.maximum(x, v) | x.masked_fill(v > 0, 0.0) | F.mse_loss(x, v, reduction="none")
torch.atleast_2d(v) + x | v.unsqueeze(0).squeeze(0) + x | x.to(v) + v.to(x) | torch.baddbmm(x, x, v) | v.float() + x
""")
_TABLE = torch.Generator().manual_seed(7)


def _rand(*shape):
    return torch.randn(*shape, generator=_TABLE)


_LSTM, _GRU = torch.nn.LSTM(8, 8, batch_first=True), torch.nn.GRU(8, 8, batch_first=True)
_ATTEND = torch.nn.MultiheadAttention(8, 2, batch_first=True)
_LAYER = torch.nn.TransformerEncoderLayer(8, 2, 8, dropout=0.0, batch_first=True)
for _module in (_LSTM, _GRU, _ATTEND, _LAYER):
    for _p in _module.parameters():
        _p.data = _rand(*_p.shape) * 0.4
        _p.requires_grad_(False)


def put(v, key):
    v = v.clone()
    v[key] = 1.0
    return v


def changed(v, change):
    v = v.clone()
    change(v)
    return v


def packed(v):
    """Through a PackedSequence and a recurrence."""
    rows = pack_padded_sequence(v, v.lod.lengths(), batch_first=True, enforce_sorted=False)
    return pad_packed_sequence(_LSTM(rows)[0], batch_first=True)[0]


NAMES = {
    "packed": packed,
    "put": put,
    "changed": changed,
    "torch": torch,
    "F": F,
    "w": _rand(8, 8),
    "b": _rand(8),
    "k1": _rand(8, 8, 1),
    "k3": _rand(8, 8, 3),
    "order": torch.tensor([1, 2, 0, 5, 4, 3, 7, 6]),
    "lstm": _LSTM,
    "gru": _GRU,
    "attend": _ATTEND,
    "layer": _LAYER,
}


def drawn(g) -> list[str]:
    """A program: one to three steps, and a way back."""
    kinds = (SHAPES, SHAPES, SHAPES, ROWS, ROWS, SEQUENCES, MIXES, WRITES)

    def one(of):
        return of[int(torch.randint(len(of), (1,), generator=g))]

    count = 1 + int(torch.randint(3, (1,), generator=g))
    return [one(one(kinds)) for _ in range(count)] + [one(BACK)]


def run(program: list[str], x):
    torch.default_generator.manual_seed(0)
    v = x
    for step in program:
        v = eval(step, NAMES, {"x": x, "v": v})
    return v
