# SPDX-License-Identifier: Apache-2.0
"""Steps of programs for the law of compositions (composition_law.py): `v` is what the step before gave, `x` the LoDTensor that a
program began with, and `y` and `ids` other rows of it. They take rows in any number, so that the rows may become more."""


def _listed(text: str) -> list[str]:
    return [step for line in text.strip().splitlines() for step in line.split(" | ")]


#: Where a program begins: rows, and the layouts of a batch of one.
LAYOUTS = _listed("x | x[None] | x[:, None] | x.t()[None]")
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
v.sum(-1, keepdim=True) | v.mean(-1) | F.gelu(v) | torch.cat([v, v], -1) | torch.where(v > 1e-6, v, 0.0) | v.chunk(2, -1)[0]
v[..., :4] | torch.cat(v.split(5)) | torch.cat([t * 2 for t in v.split(3)]) | torch.cat(v.chunk(3)) | torch.stack(v.unbind())
torch.stack([t * 2 for t in v]) | torch.cat([v[:4], v[4:]]) | F.batch_norm(v, b, b.abs()) | torch.einsum("ij,jk->ik", v, w)
v.norm(dim=-1, keepdim=True) | F.normalize(v, dim=-1) | v.double() | v.view_as(v) | F.embedding((v > 1e-6).long(), w)
v.masked_fill(v > 1e-6, 0.0) | v.clamp(0, 1) | F.cosine_similarity(v, v, dim=-1) | w[(v > 1e-6).long()] | v.max(-1, keepdim=True)[0]
v.sort(-1)[0] | torch.cat([v, torch.zeros_like(v)], -1) | F.pad(v, (0, 0, 0, 0)) | F.pad(v, (1, 0, 0, 0)) | v.cumsum(-1)
torch.maximum(v, v.neg()) | v / v.norm(dim=-1, keepdim=True) | v.mul(2).sub_(1) | v.clone().add_(v) | torch.lerp(v, v * 2, 0.5)
F.glu(v) | v.flip(-1) | v[..., [1, 0]] | v.bool().double() | torch.addmm(b, v, w) | F.rms_norm(v, (8,)) | v.std(-1)
torch.cdist(v, w) | torch.bmm(v, v.mT) | v.chunk(2, -1)[1].contiguous() | v.unbind(-1)[1] | v.gather(-1, (v > 1e-6).long())
F.conv1d(v, k1) | F.one_hot((v > 1e-6).long(), 2).double() | v.index_select(-1, order) | v - v.mean(-1, keepdim=True) | v.pow(2)
v + torch.ones(v.shape) | torch.ones(v.shape, dtype=v.dtype).mul_(v) | v * b.expand(v.shape) | v * torch.zeros(v.shape[:-1])[..., None]
""")
#: Along sequences, in the layout of torch.
SEQUENCES = _listed("""
F.conv1d(v, k3, padding=1) | F.max_pool1d(v, 3, 1, 1) | F.avg_pool1d(v, 3, 1, 1) | F.instance_norm(v) | F.group_norm(v, 2)
lstm(v)[0] | gru(v)[0] | F.scaled_dot_product_attention(v, v, v) | F.scaled_dot_product_attention(v, v, v, is_causal=True)
attend(v, v, v)[0] | F.max_pool1d(v, 2) | F.pad(v, (1, 1), mode="replicate") | F.pad(v, (1, 1)) | F.adaptive_avg_pool1d(v, 1)
F.adaptive_max_pool1d(v, 2) | F.conv_transpose1d(v, k3) | layer(v) | torch.conv1d(v, k3, b, 1, 1)
v.softmax(1) | v.softmax(-1) | F.log_softmax(v, -2) | v.cumsum(-1) | v.cumsum(1) | v.flip(1) | v.flip(-1) | v.sort(1)[0] | v.sort(-1)[1].double()
v.cummax(1)[0] | v.cummin(-1)[1].double() | v.argsort(1).double() | v.logcumsumexp(-1) | F.conv1d(v, k3, padding=2)[..., :-2]
F.conv1d(v, k3, padding=2).relu()[..., :-2] | F.conv1d(v, k3, padding=2)[..., :-1] | F.conv1d(v, k3, padding=2) | v[..., :-2]
""")
#: What uses the rows of several sequences. (torch's median of an expanded tensor is wrong for plain tensors as well.)
MIXES = _listed("""
v @ v.transpose(-1, -2) | v.mean(0) | v.sum(0, keepdim=True) | v.flip(0) | v[order] | v.cumsum(0) | v.max(0)[0] | v.sort(0)[0]
v.roll(1, 0) | v[::2] | v[0] | v[1:] | v.softmax(0) | v.t() @ v | torch.cdist(v, v) | v.mean(-2, keepdim=True) | v.amax((0, 1))
torch.cov(v) | v.index_select(0, order) | torch.outer(v[:, 0], v[:, 0]) | v.transpose(-1, -2).mean(-1) | v[v > 0] | v.unbind()[1]
v.topk(2, 0)[0] | v.repeat_interleave(2, 0) | torch.cat([v, v]) | torch.zeros(8, 8).index_add(0, order, v[order]) | v.var(0)
torch.mean(v, dim=()) | F.softmax(v @ v.transpose(-1, -2), -1) @ v | v.argsort(0) | torch.einsum("nd,md->nm", v, v) | v.diff(dim=0)
torch.einsum("nd,nd->d", v, v) | v.contiguous().median(0)[0] | torch.nonzero(v) | torch.unique(v) | v.sum() | v.quantile(0.5, 0) | v.logsumexp(0)
torch.tensordot(v, v, ([0], [0])) | torch.kron(v, v) | v.take(order) | v.norm() | torch.bincount((v > 1e-6).long().flatten(), minlength=8)
F.fold(v, (2, 2), (2, 2)) | torch.fft.fft(v, dim=0).abs() | v.histc(8) | torch.linalg.svdvals(v) | v.std(0)
torch.zeros(8, 8, dtype=v.dtype).index_add_(0, order, v[order])
""")
#: Writes into a copy, of all rows or by their number.
WRITES = _listed("""
put(v, 5) | put(v, -1) | put(v, slice(5)) | put(v, (slice(None), 5)) | put(v, (..., 0)) | put(v, ...) | put(v, v > 1e-6) | put(v, order)
v.clone().index_fill_(0, order[3:4], 1.0) | v.clone().index_fill_(-1, order[:2], 1.0) | v.clone().scatter_(0, order[None], 1.0)
v.clone().mul_(2).clamp_(0, 1) | changed(v, lambda t: t[5].zero_()) | changed(v, lambda t: t[..., 0].zero_()) | put(v, (0, 5))
changed(v, lambda t: t.narrow(0, 5, 2).mul_(2)) | changed(v, lambda t: t.unbind(0)[5].add_(1)) | changed(v, lambda t: t.t().zero_())
""")
#: A row for each sequence: c (sequences, 8), s, r (sequences, 8, 8) and truths f are declared, o has the LoD of the outer levels,
#: c0 is of the outermost; big and R are as c and r, and not declared; HEADS and W3 are parameters with as many entries.
SEQUENCES_BESIDE = _listed("""
v * c | v * (1 + c) | v * (1 + c[:, None]) | v - c[:, None] | v / (2 + s[:, None, None].sigmoid()) | torch.where(f[:, None, None], v, 0)
v @ r | torch.cdist(v, r) | v * c[:, :, None] | r @ v | v + o | v * o[:, None] | o * v | torch.lerp(v, c[:, None], 0.3) | v * s[:, None]
v.masked_fill(f[:, None, None], 0) | F.linear(c, w)[:, None] + v | torch.einsum("...nd,...de->...ne", v, r) | torch.maximum(v, c[:, None])
torch.einsum("bnd,bde->bne", v, r) | torch.einsum("bnd,bd->bn", v, c) | v - c[:, None].expand(-1, v.shape[-2], -1) | v + c[None]
mul_(v.clone(), c) | mul_(v.clone(), c[:, None]) | sub_(v.clone(), o) | put(v, ..., c) | put(v, slice(None), o) | torch.cat([v, c], -1)
torch.addcmul(v, c[:, None], v) | torch.bmm(v, r) | F.cosine_similarity(v, c[:, None], dim=-1) | v * c0 | v - c0[:, None] | c0 * c
v - mean(x) | v - mean(v) | v / (1 + mean(v * v)) | v - mean(v)[:, None] | v - mean(v, 0) | tl.sequence_expand_as(mean(v), x) * v
F.embedding((s > 0).long(), w) * v | torch.where(s[:, None] > 0, v, o) | o + c | c * 2 | o - mean(v) | c @ w + v | v + c.t() | c.sum(-1) * v[..., 0]
v * (1 + big[:, None]) | v - big[:, None] | v @ R | R @ v | torch.cdist(v, R) | v * big | v + big[:, :, None] | torch.where(big[:, None] > 0, v, 0)
torch.einsum("bnd,hde->hne", v, R) | torch.lerp(v, big[:, None], 0.5) | v.masked_fill(big[:, None] > 0, 0) | mul_(v.clone(), big)
v * HEADS[:, None] | v @ W3 | torch.einsum("bnd,hde->hne", v, W3) | torch.stack([v, v, v]) + HEADS.view(3, 1, 1, 8) | v * HEADS | W3 @ v
""")
#: Losses against something for each row, for each sequence, declared and not (aim, aim1, aim0), before they are reduced.
LOSSES = _listed("""
F.mse_loss(v, y, reduction="none") | F.l1_loss(v, c[:, None], reduction="none") | F.smooth_l1_loss(v, o, reduction="none")
F.mse_loss(v, aim, reduction="none") | F.mse_loss(v, aim1, reduction="none") | F.l1_loss(v, aim0, reduction="none") | (v - aim) ** 2
F.huber_loss(mean(v), aim, reduction="none") | F.mse_loss(v.mean(1), aim, reduction="none") | F.mse_loss(v.mean(1), aim1, reduction="none")
F.mse_loss(v.mean(0, True), aim, reduction="none") | F.l1_loss(v[:, 0], aim, reduction="none") | F.smooth_l1_loss(v.max(1)[0], aim, reduction="none")
F.binary_cross_entropy_with_logits(v.mean(1), aim.sigmoid(), reduction="none") | F.kl_div(v.mean(1), aim.softmax(-1), reduction="none")
F.margin_ranking_loss(v.mean(0, True), aim, aim.sign(), reduction="none") | F.triplet_margin_loss(v.mean(1), aim, aim, reduction="none")
F.cosine_embedding_loss(v.mean(1), aim, aim0.sign(), reduction="none") | F.hinge_embedding_loss(v.mean(1), aim.sign(), reduction="none")
F.gaussian_nll_loss(v.mean(1), aim, torch.ones_like(aim), reduction="none") | F.poisson_nll_loss(v.amax(1), aim, reduction="none")
F.soft_margin_loss(v.mean(1), aim.sign(), reduction="none") | F.cosine_similarity(v.mean(1), aim, dim=-1) | F.pairwise_distance(v.mean(1), aim)
F.logsigmoid((v.mean(1) * aim).sum(-1)) | torch.where(aim > 0, v.mean(1), aim) | torch.lerp(v.mean(0, True), aim, 0.5) | aim - v.mean(0, True)
F.cross_entropy(v, ids, reduction="none") | F.mse_loss(mean(v), aim, reduction="none") | F.nll_loss(v, ids, reduction="none")
F.mse_loss(v, HEADS[:, None], reduction="none") | F.mse_loss(v, c0[:, None], reduction="none") | F.mse_loss(mean(v), o, reduction="none")
tl.sequence_loss(v[..., 0], "token") | tl.sequence_loss(F.cross_entropy(v, ids, reduction="none"), 0) | tl.sequence_loss(v[..., 0], -1) - aim0
""")
#: Operators of torch_lod and what they take beside rows: rows, numbers, and what may have lost its rows.
OPERATORS = _listed("""
tl.sequence_softmax(v) | tl.sequence_softmax(v, level=0) | tl.sequence_cumsum(v) | tl.sequence_reverse(v) | tl.sequence_normalize(v)
tl.sequence_shift(v, 1) | tl.sequence_shift(v, -1, level=0) | tl.sequence_log_softmax(v) | tl.sequence_cummax(v)[0] | tl.sequence_unfold(v, 3)
tl.sequence_pool(v, "max") | tl.sequence_pool(v, "sum", level=0) | tl.sequence_pool(v, "last") | tl.sequence_topk(v, 2)[0]
tl.sequence_expand_as(mean(v), x) | tl.sequence_expand_as(v, x) | tl.sequence_expand_as(o, v) | tl.sequence_expand(v, x) | tl.sequence_expand(o, x)
tl.broadcast(x, v)[1] | tl.broadcast(v, o)[1] | tl.broadcast(o, v)[0] | tl.sequence_expand_as(aim, v) | tl.sequence_expand_as(v[:3], x) | tl.sequence_expand_as(v.mean(0, True).expand(len(whole), 8), x)
tl.sequence_sort(v) | tl.sequence_sort(x, v[:, 0]) | tl.sequence_sort(x, v[..., 0]) | tl.sequence_sort(v, y[:, 0], level=0)
tl.sequence_attention(x, v, v) | tl.sequence_attention(v, x, y) | tl.sequence_attention(v, v, v, causal=True) | tl.sequence_attention(x, x, x, bias=v)
tl.sequence_attention(x, x, x, bias=v.reshape(-1)) | tl.sequence_attention(x, y, v, level=0) | tl.sequence_attention(x, x, x, alibi=v.reshape(-1)[:1])
tl.sequence_conv1d(v, w3) | tl.sequence_conv1d(x, w3, v) | tl.sequence_conv1d(x, v, b) | tl.sequence_conv1d(x, w3, x.mean(0)) | tl.sequence_conv1d(x, w3, b)
tl.rotary_embedding(v) | tl.rotary_embedding(x, start=ids[:3]) | tl.rotary_embedding(x, start=v.reshape(-1)[:3].long()) | tl.rotary_embedding(x, start=whole)
tl.sequence_slice(x, whole, whole) | tl.sequence_slice(v, whole * 0, whole * 0 + 1) | tl.sequence_slice(x, v.mean(0)[:3].long() * 0, whole)
tl.sequence_concat([x, v]) | tl.cat([x, v], along="within") | tl.cat([x, v], along="features") | tl.cat([x, v]) | tl.cat([v, v * 2], along="within")
tl.scan(lambda a, h: (a + h, a + h), v, c.values())[0] | tl.scan(cell, x, v)[0] | tl.scan(cell, x, o)[0] | tl.scan(cell, v, whole0)[0] | tl.scan(cell, x, v.mean(0))[0]
scan(x, v) | scan(x, v.mean(0, True)) | scan(v, c.values()) | scan(x, o) | scan(v, whole0) | tl.nn.last_state(gru_ours(v)[1]) | attend_ours(v, x, x) | attend_ours(x, v, v) | attend_ours(v, v, v)
tl.map_sequences(lambda t: t.cumsum(1), v) | tl.map_sequences(lambda t, u: t + u.mean(1, keepdim=True), x, v) | lstm_ours(v)[0] | gru_ours(v)[0]
lstm_ours(x, (v[None], v[None]))[0] | gru_ours(x, v[None])[0] | gru_ours(x, whole0[None])[0] | gru_ours(v, o[None])[0] | lstm_ours(v, (c.values()[None], whole0[None]))[0] | gru_ours(x, gru_ours(v)[1])[0] | gru_ours(x, v.mean(0))[0] | tl.nn.SequencePool("mean")(v)
x.with_values(v) | x.filter_rows(v[..., 0] > 0) | x.filter_rows(v.reshape(-1)[:len(x)] > 0) | v.head(2) | v.tail(1) | v.nth(0)
v.nth(-1) | tl.sequence_pairwise(v, x).sum(-1) | tl.sequence_knn(v, x, 1)[0] | v.seq[(v.mean(0) > 0)[:3]]
tl.sequence_dropout(v, 0.0) | tl.LoDTensor(v, x.lod) | tl.LoDTensor(v * 2, v.lod)
F.scaled_dot_product_attention(heads(v), heads(v), heads(v), attn_mask=keys(ids.ne(0)[None])) | attend(v, v, v, need_weights=False)[0]
F.scaled_dot_product_attention(heads(v), heads(v), heads(v), attn_mask=keys(ids.double()[None])) | biased(v, keys(v[..., 0])) | biased(v, keys(v[..., 0].sigmoid().log()))
biased(v, keys(v[..., 0]).expand(1, 1, v.shape[1], v.shape[1])) | biased(v, heads(v) @ w[:4, :v.shape[1]]) | biased(v, keys(v[..., 0]).mT) | biased(v, v.mean(1)[:, None])
biased(v, 1.0 - keys(ids.ne(0)[None].double()).expand(1, 1, v.shape[1], v.shape[1])) | biased(v, keys(v[..., 0]).repeat(1, 1, v.shape[1], 1)) | biased(v, table[:9, :9])
""")
#: One result of the whole batch, broadcast over the rows of every sequence.
SPREAD = "tl.sequence_expand_as(v.mean(0, True).expand(len(whole), 8), x)"
#: Writes into what may be a view of x, c or o, and what there is after them.
IN_PLACE = _listed("""
wrote(v, (slice(None), 0)) | wrote(v, 0) | wrote(v, (..., 0)) | wrote(v, slice(None)) | wrote(v, v > 1e-6) | wrote(v, (slice(None), slice(None, 2)))
wrote(v, (slice(None), -1)) | wrote(v, -1) | wrote(v, slice(1, None)) | wrote(v, (..., slice(2, 4))) | wrote(v, (slice(None), ids > 1)) | wrote(v, ids > 1)
wrote(v, first(v, 0)) | wrote(v, (slice(None), first(v, 1))) | wrote(v, (..., first(v, v.dim() - 1))) | wrote(v, order) | wrote(v, (0, 0))
wrote(v, ..., c) | wrote(v, ..., c[:, None]) | wrote(v, slice(None), o) | wrote(v, slice(None), y) | wrote(v, ..., b) | wrote(v, slice(None), v.mean(0, True)) | wrote(v, ..., v * 2)
wrote(v, (..., slice(4)), v[..., 4:]) | wrote(v, slice(None), v.flip(-1)) | wrote(v, slice(None), big) | wrote(x, ..., v) | wrote(x, v > 1e-6) | wrote(x, (..., 0), v[..., 0])
mul_(v, 0.5) | mul_(v, v) | mul_(v, c) | mul_(v, c[:, None]) | mul_(v, o) | mul_(v, y) | mul_(v, b) | mul_(v, big) | mul_(v[:, :2], 2) | mul_(v[..., :2], 2) | mul_(v[0], 3)
sub_(v, mean(v)) | sub_(v, v.mean(0, True)) | sub_(v[:, 0], 1) | sub_(x, v) | sub_(v, pe[:, :v.shape[1]]) | sub_(x, o) | sub_(v, v.mean(-1, keepdim=True))
v.index_fill_(0, order[:2], 1.0) | v.index_fill_(1, order[:2], 1.0) | v.index_fill_(-1, order[:2], 1.0) | v.index_fill_(0, first(v, 0), 1.0) | v.index_fill_(1, first(v, 1), 1.0)
v.index_copy_(0, order[:2], v[:2]) | v.index_add_(0, order[:2], v[:2]) | v.scatter_(0, order[None], 1.0) | v.scatter_(1, order[None], 1.0) | v.scatter_(-1, order[None], 1.0)
v.masked_fill_(v > 1e-6, 0) | v.masked_fill_(f[:, None, None], 0) | v.copy_(v * 2) | v.copy_(y) | x.copy_(v) | v.clamp_(-1, 1) | v.tanh_() | v.zero_() | v.fill_(2) | v.cumsum_(0)
v.cumsum_(-1) | v.lerp_(c[:, None], 0.5) | v.addcmul_(v, v) | torch.relu_(v) | F.relu(v, True) | F.relu(v[:, :2], True) | F.leaky_relu(v, 0.1, True) | v.t_() | v.put_(order, b)
v.select(-1, 0).zero_() | v.select(1, 0).fill_(1) | v.select(0, 0).add_(1) | v.narrow(-1, 0, 2).mul_(2) | v.narrow(1, 0, 2).mul_(2) | v.detach().mul_(2) | v.data.mul_(2)
each(v, 0) | each(v, 1) | each(v, -1) | v.transpose(-1, -2).mul_(2) | v.unbind(-1)[0].zero_() | v.unbind(0)[0].zero_() | v.chunk(2, -1)[0].add_(v.chunk(2, -1)[1])
v.view(-1).mul_(2) | v.view(-1)[:8].zero_() | v.view(-1).index_fill_(0, order[:2], 1.0) | v.diagonal().zero_() | v.masked_scatter_(v > 1e-6, table) | v.clone().addmm_(v, w)
v.renorm_(2, 0, 1.0) | v.renorm_(2, -1, 1.0) | v.sort(-1)[0].mul_(2) | torch._foreach_mul_([v], 2) | torch._foreach_add_([v[:2]], 1) | v.swapaxes_(0, 1) | v.squeeze_() | v.unsqueeze_(0)
""")
#: Back to the rows of x.
BACK = _listed("""
v | v.transpose(-1, -2) | v.t() | v[0] | v.squeeze(0) | v.movedim(-1, 0) | v.permute(1, 0) | v.permute(2, 0, 1) | v.reshape(x.shape)
v.view(x.shape[0], -1) | x + v | x * v | torch.cat([x, v], -1) | torch.where(x > 0, x, v) | x + v.transpose(-1, -2) | x + v[0]
x - v.t() | x + v.reshape(x.shape) | torch.zeros_like(x) + v | v.mT.contiguous() | x.mul(v) | torch.addcmul(x, v, v) | v * x
x.clone().add_(v) | x @ v | torch.stack([x, v], 1) | v.expand_as(x) | v.view_as(x) | F.linear(x, v) | x.clone().copy_(v)
torch.zeros(x.shape).copy_(v) + x | x[(v > 1e-6).long()] | x + v[0].t() | v.transpose(0, 1) | v[0].t() | v.squeeze() | x + v.squeeze(0)
x + v.sum(-1, keepdim=True) | x.lerp(v, 0.5) | torch.maximum(x, v) | x.masked_fill(v > 1e-6, 0.0) | F.mse_loss(x, v, reduction="none")
torch.atleast_2d(v) + x | v.unsqueeze(0).squeeze(0) + x | x.to(v) + v.to(x) | torch.baddbmm(x, x, v) | v.double() + x
""")
