# SPDX-License-Identifier: Apache-2.0
"""Modules around the sequence operators: equal to loops over sequences, trainable, saved and restored."""

import copy

import pytest
import torch

import torch_lod as tl

F = torch.nn.functional
LENGTHS = [[2, 0, 2], [3, 1, 0, 5]]


@pytest.fixture
def x(device):
    g = torch.Generator().manual_seed(0)
    return tl.from_lengths(torch.randn(9, 4, generator=g).to(device), LENGTHS)


def test_conv1d_is_torchs_on_every_sequence(x, device):
    torch.manual_seed(1)
    ours = tl.nn.SequenceConv1d(4, 6, 3, dilation=2, groups=2).to(device)
    torch.manual_seed(1)
    theirs = torch.nn.Conv1d(4, 6, 3, padding="same", dilation=2, groups=2).to(device)
    theirs.load_state_dict(ours.state_dict())
    assert all(torch.equal(a, b) for a, b in zip(ours.state_dict().values(), theirs.state_dict().values()))
    for level in (0, 1):
        ours.level = level
        parts = [tl.LoDTensor.values(s) if isinstance(s, tl.LoDTensor) else s for s in x.sequences(level)]
        expected = torch.cat([theirs(rows.t()[None])[0].t() for rows in parts if len(rows)])
        torch.testing.assert_close(ours(x).values(), expected)
        assert ours(x).lod is x.lod


def test_constants_come_back_where_a_module_gets_memory():
    allowed, slopes = torch.eye(3, dtype=torch.bool), torch.tensor([0.5, 0.25])
    crf, attention = tl.nn.LinearChainCRF(3, allowed=allowed), tl.nn.MultiheadAttention(4, 2, alibi=slopes)
    for module, name in ((crf, "forbidden"), (attention, "alibi")):
        moved = copy.deepcopy(module).to("meta")
        assert getattr(moved, name).is_meta
        assert torch.equal(getattr(moved.to_empty(device="cpu"), name), getattr(module, name))
        assert name not in module.state_dict()
    for device in ({"device": "meta"}, {}):
        with torch.device("cpu" if device else "meta"):
            made = (
                tl.nn.LinearChainCRF(3, allowed=allowed, **device),
                tl.nn.MultiheadAttention(4, 2, alibi=slopes, **device),
            )
        assert torch.equal(made[0].to_empty(device="cpu").forbidden, crf.forbidden)
        assert torch.equal(made[1].to_empty(device="cpu").alibi, slopes)
    emptied = copy.deepcopy(crf).to_empty(device="cpu")
    emptied.forbidden.fill_(False)
    emptied.reset_parameters()
    assert torch.equal(emptied.forbidden, crf.forbidden)
    assert crf.to(torch.float64).forbidden.dtype == torch.bool


def test_conv1d_starts_from_torchs_parameters():
    torch.manual_seed(3)
    ours = tl.nn.SequenceConv1d(4, 6, 3)
    torch.manual_seed(3)
    theirs = torch.nn.Conv1d(4, 6, 3)
    assert torch.equal(ours.weight, theirs.weight) and torch.equal(ours.bias, theirs.bias)


def test_conv_sees_zeros_or_what_it_learns_outside(x, device):
    conv = tl.nn.SequenceConv(4, 5, 3, padding_trainable=True).to(device)
    assert conv.padding_data.shape == (2, 4)
    with torch.no_grad():
        conv.padding_data.copy_(torch.arange(8.0).view(2, 4))
    expected = []
    for rows in x.sequences(1):
        if len(rows):
            longer = torch.cat([conv.padding_data[:1], rows, conv.padding_data[1:]])
            expected += [longer[t : t + 3].reshape(-1) @ conv.weight + conv.bias for t in range(len(rows))]
    torch.testing.assert_close(conv(x).values(), torch.stack(expected))
    conv(x).values().sum().backward()
    assert all(p.grad.abs().sum() > 0 for p in conv.parameters())


def test_attention_pool_is_a_weighted_mean(x, device):
    pool = tl.nn.AttentionPool(4, 7).to(device)
    expected = []
    for rows in x.sequences(1):
        weights = pool.context(pool.project(rows).tanh()).softmax(0)
        expected.append((weights * rows).sum(0))
    pooled = pool(x)
    torch.testing.assert_close(pooled.values(), torch.stack(expected))
    assert pooled.recursive_sequence_lengths() == LENGTHS[:1]


def test_pool_softmax_and_row_conv(x, device):
    torch.testing.assert_close(
        tl.nn.SequencePool("max", padding_value=-1.0, level=0)(x),
        torch.stack([s.values().amax(0) if len(s) else torch.full((4,), -1.0, device=device) for s in x.sequences(0)]),
    )
    assert torch.equal(tl.nn.SequenceSoftmax(level=0)(x), tl.sequence_softmax(x, level=0))
    ahead = tl.nn.RowConv(4, 2).to(device)
    parts = [F.pad(rows, (0, 0, 0, 2)) for rows in x.sequences(1)]
    expected = torch.cat([sum(p[w : len(p) - 2 + w] * ahead.weight[w] for w in range(3)) for p in parts])
    torch.testing.assert_close(ahead(x).values(), expected)


MODULES = {
    "pool": lambda: tl.nn.SequencePool("mean"),
    "softmax": lambda: tl.nn.SequenceSoftmax(),
    "attention": lambda: tl.nn.AttentionPool(4),
    "conv": lambda: tl.nn.SequenceConv(4, 4, 3),
    "conv1d": lambda: tl.nn.SequenceConv1d(4, 4, 3),
    "row": lambda: tl.nn.RowConv(4, 1),
}


@pytest.mark.parametrize("name", MODULES)
def test_gradients_reach_every_parameter(name):
    module = MODULES[name]().double()
    names = [n for n, _ in module.named_parameters()]
    rows = torch.randn(9, 4, dtype=torch.float64, requires_grad=True)

    def call(rows, *parameters):
        x = tl.from_lengths(rows, LENGTHS)
        out = torch.func.functional_call(module, dict(zip(names, parameters)), (x,))
        return out.values()

    assert torch.autograd.gradcheck(call, (rows, *module.parameters()))


@pytest.mark.parametrize("name", MODULES)
def test_state_is_saved_and_restored(name, x, tmp_path, device):
    module, other = MODULES[name]().to(device), MODULES[name]().to(device)
    torch.save(module.state_dict(), tmp_path / "m.pt")
    other.load_state_dict(torch.load(tmp_path / "m.pt", weights_only=True))
    assert torch.equal(module(x), other(x))
    assert type(module).__name__ in repr(module)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: tl.nn.SequenceConv(4, 0, 3), "SequenceConv: expected out_features as an int of at least 1, got 0"),
        (lambda: tl.nn.SequenceConv(4, 4, 3, "a"), "SequenceConv: expected context_start as an int, got 'a'"),
        (lambda: tl.nn.SequenceConv1d(4, 6, 3, groups=3), "expected groups that divide 4 and 6, got 3"),
        (lambda: tl.nn.AttentionPool(0), "AttentionPool: expected features as an int of at least 1, got 0"),
        (lambda: tl.nn.RowConv(4, -1), "RowConv: expected future_context >= 0, got -1"),
    ],
)
def test_wrong_sizes_are_refused(make, words):
    with pytest.raises(ValueError) as caught:
        make()
    assert words in str(caught.value) and isinstance(caught.value, tl.LoDError)
