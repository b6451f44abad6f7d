# SPDX-License-Identifier: Apache-2.0
"""What third-party models do with rows, in nine families: it comes out as for every sequence alone, or raises an error that
names the call that lost the structure and what to write instead. And what a mark goes through."""

import copy
import io
import pickle

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import torch_lod as tl
from torch_lod import LoDError, LoDTensor
from torch_lod.tensor.derived import DerivedTensor

LENGTHS = [4, 2, 5]
torch.manual_seed(5)
ROWS = torch.randn(11, 8)
CONV, NORM = nn.Conv1d(8, 8, 3, padding=1), nn.BatchNorm1d(8).eval()
LSTM, EMBED = nn.LSTM(8, 8, batch_first=True), nn.Embedding(9, 8)
CELL = nn.GRUCell(8, 8)
ATTEND = nn.MultiheadAttention(8, 2, batch_first=True)
LAYER = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
NAMES = {**globals(), "conv": CONV, "norm": NORM, "lstm": LSTM, "attend": ATTEND, "layer": LAYER, "embed": EMBED}
RIGHT = """
x + conv(x.transpose(-1, -2)).transpose(-1, -2) | x + conv(x.t()).t() | x + conv(x.mT).mT | x + conv(x.T).T
x + conv(x[None].permute(0, 2, 1)).permute(0, 2, 1)[0] | x + norm(conv(x.t()[None])).squeeze(0).t()
F.relu(conv(x.movedim(0, 1))).movedim(0, 1) | x + F.max_pool1d(x.t(), 3, 1, 1).t() | F.avg_pool1d(x.t()[None], 3, 1, 1)[0].t()
F.adaptive_max_pool1d(x.t(), 2).t() | nn.GroupNorm(2, 8)(x.t()[None])[0].t() | nn.GroupNorm(2, 8)(x.unsqueeze(-1)).squeeze(-1) | nn.InstanceNorm1d(8)(x.t()[None])[0].t()
nn.LocalResponseNorm(2)(x.t()[None])[0].t() | nn.ChannelShuffle(2)(x.t()[None])[0].t() | nn.ZeroPad1d(1)(x.t()).t()
nn.ConstantPad1d((1, 2), 3.0)(x.t()[None])[0].t() | F.pad(x.t()[None], (1, 1), mode="replicate")[0].t() | F.pad(x, (0, 1, 0, 0))
F.pad(x, (1, 2)) | F.pad(x, (1, -1), "constant", 2.0) | nn.ConstantPad1d(0, 1.0)(x) | nn.ZeroPad1d(1)(x.view(-1, 2, 4))
torch.vander(x[:, 0], 3) | F.pad(x, (0, 0, 1, -1)) | F.pad(x, (1, 0, 2, 1), value=3.0) | nn.ZeroPad2d((0, 0, 1, -1))(x[None])[0] | F.pad(x[:, 0], (1, 0))
torch.cat([torch.zeros(0), x]) | torch.cat([torch.zeros(0), x[None]], -2)[0]
F.pad(conv(F.pad(x.t()[None], (2, 2))), (0, -2))[0].t() | F.pad(x.t()[None], (0, 0), mode="reflect")[0].t()
F.pad(x.view(len(x), 2, 4).transpose(0, 1), (0, 0, 3, 1)).transpose(0, 1) | torch.stack([row.tanh() @ ROWS[:8] for row in x])
step_by_step(x, 0) | step_by_step(x[None], 1)[0] | step_by_step(x[None], -2)[0]
nn.Conv1d(8, 8, 3, padding=1, padding_mode="circular")(x.t()).t() | heads(x, -3) | lstm(x[None])[0][0] | lstm(x)[0]
lstm(x.view(1, *x.shape))[0].squeeze(0) | lstm(x.reshape(1, -1, 8))[0][0] | lstm(torch.stack([x]))[0][0]
attend(x[None], x[None], x[None])[0][0] | layer(x[None])[0] | layer(x) | embed((x[:, 0] > 0).long().view(1, x.shape[0]))[0]
x - x.max(1, keepdim=True)[0] | F.conv_transpose1d(x.t(), CONV.weight).t() | F.scaled_dot_product_attention(*[x[None]] * 3)[0]
x[None].softmax(-1).squeeze(0) | nn.LazyConv1d(8, 3, padding=1)(x.t()[None])[0].t() | torch.cat([x[:4], x[4:]]).tanh()
torch.cat([x[:40], x[40:]]) | torch.cat([x[:0], x]) | torch.cat([x.t()[:, :40], x.t()[:, 40:]], 1).t()
"""
#: And words of the message.
RAISES = {
    "x + torch.softmax(x @ x.transpose(-2, -1) / 8**0.5, -1) @ x": "sequence_attention",
    "x @ x.t()": "sequence_attention",
    "heads(x, 1)": "transpose(0, 1)",
    "F.scaled_dot_product_attention(*[x.view(len(x), -1, 2, 4).transpose(1, 2)] * 3)": "no dims for a batch",
    "x - x.mean(0)": "became in mean, which lost the structure of its rows; to pool sequences: tl.sequence_pool",
    "x - x.mean(-2)": "became in mean",
    "x - torch.mean(x, dim=())": "means all dims",
    "x + x[torch.randperm(11)]": "became in getitem",
    "x - x.max(0, keepdim=True)[0]": "became in max",
    "x + torch.tanh(x.sum(0) @ ROWS[:8])": "became in sum",
    "x[None] + torch.randn(1, 11, 8)": "would not start again with every sequence",
    "F.softmax(x, 0)": "tl.sequence_softmax",
    "lstm(x.view(-1, 4).view(1, -1, 8))": "became in view",
    "nn.LSTM(8, 8)(x[None])": "batch_first",
    "nn.ZeroPad1d(1)(x)": "F.pad(x.t(), (before, after)).t()",
    "nn.ConstantPad1d((0, 1), 2.0)(input=x)": "ConstantPad1d: expected rows of several dims",
    "nn.Upsample(scale_factor=2)(x)": "x.to_padded()",
    "nn.Upsample(scale_factor=2)(x.t()[None])": "x.to_padded()",
    "nn.LazyConv1d(3, 1)(x)": "nn.Conv1d",
    "nn.MaxUnpool1d(2)(x, x.long())": "x.to_padded()",
    "tl.sequence_pool(x.t(), 'sum')": "rows at dim 1, moved by t",
    "tl.sequence_pool(x.mean(0), 'sum')": "lost their structure in mean",
    "torch.zeros(11, 8).copy_(x) + x": "write their .values() into it",
    "ROWS.clone().__setitem__(slice(None), x)": "write their .values() into it",
    "torch.add(x, 1, out=torch.empty(11, 8))": "write their .values() into it",
    "x.view(-1).add_(x.flip(1).view(-1))": "write their .values() into it",
    "x.clone().t().cumsum_(-1)": "tl.sequence_cumsum",
    "conv(x.sum(0)[None])": "became in sum",
    "nn.GroupNorm(8, 8)(x)": "over the rows of every sequence: x.t()[None], then [0].t(); each row for itself: x.unsqueeze(-1)",
    "F.group_norm(x[None].reshape(-1, 8), 2).view(1, -1, 8)": "which may be positions or samples",
    "x + torch.cat([x[None], x[None]], 1)[0, :11]": "tl.cat(xs, along='within')",
    "torch.vander(x[:, 0])": "pass N",
    "F.pad(x[None][:, :-1], (0, 0, 1, 0))": "these rows are a part of the batch",
    "F.scaled_dot_product_attention(*[x[:, None, None].expand(-1, 11, 2, 8)] * 2, x[:, None])": "of as many dims, got 4, 4 and 3",
    "F.group_norm(x.t()[None], 3)": "expected a number of groups that divides the 8 channels",
    "x[1:] - x[:-1]": "got rows 1 to 11 and rows 0 to 10: integers and slices index the rows of the whole batch",
    "(x[None][:, 1:] - x[None][:, :-1]).abs().mean()": "tl.sequence_shift",
    "F.cross_entropy(x[None][:, :-1].reshape(-1, 8), (x > 0).long()[None, 1:, 0].reshape(-1))": "rows 0 to 10 and rows 1 to 11",
    "torch.cat([x[1:], x[:-1]], -1)": "rows of one sequence",
    "F.mse_loss(x[2], x[5])": "got row 2 and row 5",
    "looped(x, 0)": "got row 4 and rows 0 to 4: integers and slices index the rows of the whole batch; along each sequence: tl.scan",
    "looped(x[None], 1)": "got row 4 and rows 0 to 4",
    "looped(x[:, None], 0)": "got row 4 and rows 0 to 4",
    "looped(x, 0, lambda row, h: torch.tanh(torch.cat([row, h], -1) @ torch.ones(16, 8)))": "cat: expected rows of one",
    "x.t()[None] + F.pad(x.t()[None], (0, 2))[..., :-2]": "got rows 0 to 15 of 17 beside all of 11: a slice counts the rows",
    "conv(x.t()[..., :-1])": "to cut the last k rows of every sequence, F.pad with (0, -k)",
    "x + torch.cat([ROWS[:1], x])[1:]": "became in cat, which lost the structure of its rows; to put rows before or after",
    "attend(ROWS[:2], x, x)": "expected query as a LoDTensor, got a plain tensor; rows that are the same for each of n sequences",
    "x[None][:, 1:].softmax(1)": "move the rows to dim 0: tl.sequence_softmax",
    "ROWS.clone().__setitem__(0, x[0])": "collect rows in a list for torch.stack",
}


def heads(v, dim):
    """Attention of two heads, which are moved in front of dim `dim`."""
    q = v.view(*v.shape[:-1], -1, 4).transpose(*((1, 2) if dim == 1 else (-3, -2)))
    out = F.scaled_dot_product_attention(q, q, q)
    return out.transpose(*((1, 2) if dim == 1 else (-3, -2))).reshape(v.shape)


def looped(v, dim, cell=CELL):
    """A recurrence along dim `dim`, step by step."""
    h, states = torch.zeros(8) if v.dim() == 2 else torch.zeros(1, 8), []
    for t in range(v.shape[dim]):
        h = cell(v.select(dim, t), h)
        states.append(h)
    return torch.stack(states, dim)


def step_by_step(v, dim):
    """Every row by itself, put together again."""
    return torch.stack([EMBED.weight[:8].sum(0) * v.select(dim, t).exp() for t in range(v.shape[dim])], dim)


NAMES |= {"heads": heads, "looped": looped, "step_by_step": step_by_step}


def batch() -> LoDTensor:
    return tl.from_lengths(ROWS.clone(), [LENGTHS])


def seeded(code: str, x):
    torch.manual_seed(1)
    return eval(code, NAMES, {"x": x})


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("code", [code for line in RIGHT.strip().splitlines() for code in line.split(" | ")])
def test_comes_out_as_for_every_sequence_alone(code):
    found = seeded(code, batch())
    alone = [seeded(code, part) for part in ROWS.split(LENGTHS)]
    assert type(found) is LoDTensor and found.lod.to_lengths() == [[len(part) for part in alone]]
    torch.testing.assert_close(found.values(), torch.cat(alone), rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("code", RAISES)
def test_raises_and_says_what_to_write(code):
    with pytest.raises(LoDError) as caught:
        seeded(code, batch())
    assert RAISES[code] in str(caught.value)


def test_channels_of_rows_are_those_of_samples():
    """Rows (rows, channels) as they are, where torch's modules want (1, channels, rows)."""
    x = batch()
    for make in (lambda: nn.LocalResponseNorm(2), lambda: nn.ChannelShuffle(2)):
        module = make()
        alone = torch.cat([module(part.t()[None])[0].t() for part in ROWS.split(LENGTHS)])
        torch.testing.assert_close(module(x).values(), alone)
    dropped = nn.Dropout1d(0.5)(tl.from_lengths(torch.ones(11, 8), [LENGTHS])).values()
    assert set(dropped.unique().tolist()) == {0.0, 2.0}
    for part in dropped.split(LENGTHS):
        assert torch.equal(part, part[:1].expand_as(part))
    assert len(dropped.unique(dim=0)) > 1 and nn.Dropout1d(0.5).eval()(x) is x


def test_plain_tensors_work_without_ceremony():
    x, target = batch(), torch.randn(11, 8)
    assert F.mse_loss(x, target).dim() == 0 and type(F.mse_loss(x, target)) is torch.Tensor
    assert type(x * (target > 0)) is type(x + target) is type(x + torch.randn(8)) is LoDTensor
    assert F.mse_loss(x[None], target[None], reduction="none").rows_dim == 1
    logits, classes = x[None].transpose(1, 2), torch.randint(8, (1, 11))
    torch.testing.assert_close(F.cross_entropy(logits, classes), F.cross_entropy(x.values(), classes[0]))
    assert F.cross_entropy(logits, classes, reduction="none").rows_dim == 1
    pooled = torch.relu(nn.Linear(8, 3)(x.sum(0)))
    assert pooled.rows_dim is None and type(F.cross_entropy(pooled[None], torch.tensor([1]))) is torch.Tensor
    assert type(tl.sequence_pool(x, "sum") - 1) is torch.Tensor


def test_masks_of_pairs_of_rows_do_not_come_back():
    ids = tl.from_lengths(torch.arange(11), [LENGTHS])
    with pytest.raises(LoDError, match="eq: expected rows at one dim of the result"):
        batch() + (ids[:, None] == ids[None]).float().mean(1)[:, None]


@pytest.mark.parametrize("make", [lambda x: x.t(), lambda x: x.mean(0), lambda x: x[2:5], lambda x: x[3]])
def test_the_mark_goes_with_the_tensor(make):
    x = make(batch())
    buffer = io.BytesIO()
    torch.save({"x": x}, buffer)
    buffer.seek(0)
    module = nn.Module()
    module.register_buffer("x", x)
    for other in (
        copy.deepcopy(x),
        pickle.loads(pickle.dumps(x)),
        torch.load(buffer, weights_only=True)["x"],
        module.state_dict()["x"],
        x.detach(),
        x.clone(),
        x.double().float(),
        x.to("cpu"),
        x.requires_grad_().detach(),
        torch.relu(x) + x.relu().neg() + x,
    ):
        assert (
            type(other) is DerivedTensor
            and other._provenance == x._provenance
            and torch.equal(other.values(), x.detach().values())
        )
    assert type(x.values()) is torch.Tensor and x[..., :1]._provenance.lod == x.lod
    with pytest.raises(RuntimeError, match="leaves"):
        copy.deepcopy(x * 2)


def test_pickles_are_validated():
    from torch_lod.tensor.derived import _load

    lod = tl.LoD.from_lengths([LENGTHS])
    with pytest.raises(LoDError, match="expected 11 rows at dim 1"):
        _load(torch.zeros(2, 3), lod, 1, "t", None, False)
    with pytest.raises(LoDError, match="a LoD"):
        _load(torch.zeros(2, 3), [[1]], 1, "t", None, False)


def test_rows_of_one_sequence_meet():
    x = batch()
    for made, part in {
        x[0] + x[2]: (0, 3),
        x[6:8].sum(0) * x[10]: (6, 11),
        torch.cat([x[6], x[7]]): (6, 8),
        torch.cat([x[:1], x[5:6]]): (0, 6),  # picked, not combined
        torch.cat([x[None][:, 0], x[None][:, 8]]): (0, 9),
        torch.stack([x[0:2].mean(0), x[2:2].sum(0)]): (0, 2),
    }.items():
        assert made.rows_dim is None and made._provenance.part == part
    torch.testing.assert_close(looped(x[:4], 0).values(), looped(ROWS[:4], 0))
    picked = F.cross_entropy(x[:10], torch.randint(8, (10,)), reduction="none")
    assert picked.rows_dim == 0 and picked._provenance.part == (0, 10)


@pytest.mark.parametrize(
    "call",
    """
    x[n] | x[n, n] | x[..., n] | x[n] + x[n + 3] | torch.stack([x[n - 1], x[n]]) | x.t()[n] | x.select(n - 1, n) | x.narrow(0, n, n)
    x.sum(n) | x.sum(n - 1) | torch.sum(x, dim=n) | x.amax(n) | x.argmax(n) | x.softmax(n) | x.softmax(n - 1) | F.normalize(x, dim=n)
    x.cumsum(n) | x.sort(n)[0] | x.gather(n, torch.zeros(11, 1, dtype=torch.int64)) | x.index_select(n, torch.tensor([3]))
    torch.cat([x, x], n) | torch.cat([x[:4], x[4:]], n - 1) | torch.stack([x, x], n)
    """.strip()
    .replace(" | ", "\n")
    .split("\n"),
    ids=str.strip,
)
@pytest.mark.parametrize("form", [np.int64, torch.tensor], ids=["numpy", "tensor"])
def test_numbers_from_arrays_and_tensors_are_ints(call, form):
    x = tl.from_lengths(ROWS, [LENGTHS])
    answers = []
    for n in (1, form(1)):
        try:
            answers.append(eval(call.strip(), {**NAMES, "x": x, "n": n}))
        except LoDError as error:
            answers.append(str(error))
    want, got = answers
    assert type(got) is type(want), (got, want)
    assert (got == want) if isinstance(want, str) else torch.equal(torch.Tensor(got), torch.Tensor(want))
    if isinstance(want, DerivedTensor):
        assert got.rows_dim == want.rows_dim and got._provenance == want._provenance


def test_gradients_are_those_of_every_sequence_alone():
    rows = ROWS.clone().requires_grad_()
    x = tl.from_lengths(rows, [LENGTHS])
    (found,) = torch.autograd.grad((x + CONV(x.t()).t()).pow(2).sum(), rows)
    alone = sum((part + CONV(part.t()).t()).pow(2).sum() for part in rows.split(LENGTHS))
    torch.testing.assert_close(found, torch.autograd.grad(alone, rows)[0])
    assert type(found) is torch.Tensor


def test_numbers_of_uint8_without_dims_are_masks():
    x = tl.from_lengths(ROWS, [LENGTHS])
    for one in (False, True):
        taken, masked = x[torch.tensor(int(one), dtype=torch.uint8)], x[torch.tensor(one)]
        assert taken.shape == masked.shape == (one, *ROWS.shape) and taken._provenance == masked._provenance


def test_what_is_printed_says_what_it_is():
    x = batch()
    assert repr(x.t()).endswith("rows of a LoDTensor at dim 1 through t, lod=LoD([[4, 2, 5]]))")
    assert "rows of a LoDTensor lost in mean" in repr(x.mean(0)) and "rows 2 to 5 of a LoDTensor at dim 0" in repr(
        x[2:5]
    )
    assert f"{x[0, 0]:.3f}" == f"{float(ROWS[0, 0]):.3f}"
