# SPDX-License-Identifier: Apache-2.0
"""pack_padded_sequence(t, lengths) before a recurrence and pad_packed_sequence behind it, of rows as a batch of one."""

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

import torch_lod as tl
from torch_lod import LoDError

LODS = [[[4, 2, 5]], [[2, 1], [4, 2, 5]], [[11]], [[5, 3, 3]], [[3, 3, 5]]]
torch.manual_seed(0)
MODULES = {
    "lstm": lambda first: nn.LSTM(8, 6, batch_first=first),
    "gru": lambda first: nn.GRU(8, 6, 2, batch_first=first, bidirectional=True),
    "rnn": lambda first: nn.RNN(8, 6, batch_first=first),
    "lstm, projected": lambda first: nn.LSTM(8, 6, 2, batch_first=first, bidirectional=True, proj_size=3),
}


def program(module, t, lengths, first, in_order=False):
    packed = pack_padded_sequence(t, lengths, batch_first=first, enforce_sorted=in_order)
    out, state = module(packed)
    out, counted = pad_packed_sequence(out, batch_first=first)
    return out, counted, state if isinstance(state, tuple) else (state,)


@pytest.mark.parametrize("lengths", LODS, ids=str)
@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("name", MODULES)
def test_every_sequence_as_alone(name, first, lengths):
    torch.manual_seed(0)
    module, own = MODULES[name](first).double(), lengths[-1]
    rows = torch.randn(11, 8, dtype=torch.float64, requires_grad=True)
    x, dim = tl.from_lengths(rows, lengths), 1 if first else 0
    out, counted, states = program(module, x.unsqueeze(1 - dim), own, first)
    alone = [program(module, r.unsqueeze(1 - dim), [len(r)], first) for r in rows.split(own)]
    assert out.lod is x.lod and out._provenance.dim == dim and counted.tolist() == own
    torch.testing.assert_close(out.values(), torch.cat([a[0] for a in alone], dim))
    for i, state in enumerate(states):
        torch.testing.assert_close(state, torch.cat([a[2][i] for a in alone], 1))
    weights, leaves = torch.rand_like(out.values()), [rows, *module.parameters()]
    found = torch.autograd.grad((out.values() * weights).sum() + states[0].square().sum(), leaves)
    wanted = torch.cat([a[0] for a in alone], dim) * weights
    wanted = torch.autograd.grad(wanted.sum() + sum(a[2][0].square().sum() for a in alone), leaves)
    for a, b in zip(found, wanted):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize(
    "lengths", [torch.tensor([5, 4, 2]), [5, 4, 2], (5, 4, 2), torch.tensor([5, 4, 2], dtype=torch.int32)]
)
def test_in_decreasing_order(lengths):
    x, gru = tl.from_lengths(torch.randn(11, 8), [[5, 4, 2]]), nn.GRU(8, 6, batch_first=True)
    out, _, (h,) = program(gru, x[None], lengths, True, True)
    wanted, last = gru(x[None])
    torch.testing.assert_close(out.values(), wanted.values())
    torch.testing.assert_close(h, last)


def test_initial_states_are_those_of_the_sequences():
    x, lstm, state = tl.from_lengths(torch.randn(11, 8), [[4, 2, 5]]), nn.LSTM(8, 6), torch.randn(2, 1, 3, 6)
    packed = pack_padded_sequence(x[:, None], x.lengths(), enforce_sorted=False)
    out, (h, _) = lstm(packed, tuple(state))
    out, _ = pad_packed_sequence(out)
    for i, rows in enumerate(x.sequences()):
        wanted, (last, _) = lstm(rows[:, None], tuple(state[:, :, i : i + 1]))
        torch.testing.assert_close(out.values()[x.lod.segment_ids() == i], wanted)
        torch.testing.assert_close(h[:, i], last[:, 0])


def test_packed_rows_are_in_torchs_order_and_correspond_to_no_rows():
    rows = torch.randn(11, 8)
    x = tl.from_lengths(rows, [[4, 2, 5]])
    packed = pack_padded_sequence(x[None], x.lengths(), batch_first=True, enforce_sorted=False)
    wanted = pack_padded_sequence(x.to_padded()[0], x.lengths(), batch_first=True, enforce_sorted=False)
    for a, b in zip(packed, wanted):
        assert torch.equal(a.as_subclass(torch.Tensor), b)
    for function in (lambda: packed.data + x, lambda: nn.LSTM(8, 6)(packed.data), lambda: packed.data[None] * x[None]):
        with pytest.raises(LoDError, match="became in pack_padded_sequence"):
            function()
    changed = PackedSequence(packed.data * 2, *packed[1:])
    with pytest.raises(LoDError, match="became in pack_padded_sequence"):
        nn.LSTM(8, 6)(changed)
    assert pad_packed_sequence(changed)[0].rows_dim is None


REFUSED = {
    "the length of all rows": (
        lambda x: pack_padded_sequence(x[None], [11], batch_first=True),
        r"\[4, 2, 5\], got \[11\]",
    ),
    "other lengths": (
        lambda x: pack_padded_sequence(x[None], [4, 3, 4], batch_first=True, enforce_sorted=False),
        r"\[4, 2, 5\], got \[4, 3, 4\]",
    ),
    "not sorted": (lambda x: pack_padded_sequence(x[None], x.lengths(), True), "pass enforce_sorted=False"),
    "another layout": (
        lambda x: pack_padded_sequence(x[None], x.lengths(), enforce_sorted=False),
        r"expected a batch of one, x\[:, None\]",
    ),
    "rows as they are": (lambda x: pack_padded_sequence(x, x.lengths()), r"expected a batch of one, x\[:, None\]"),
    "a part": (
        lambda x: pack_padded_sequence(x[None][:, 1:], x.lengths(), batch_first=True),
        r"expected a batch of one, x\[None\]",
    ),
    "lengths of rows": (
        lambda x: pack_padded_sequence(x[None], x[:, 0].gt(9).sum(0, keepdim=True), batch_first=True),
        "expected lengths as a plain tensor",
    ),
    "total_length": (
        lambda x: pad_packed_sequence(
            pack_padded_sequence(x[None], x.lengths(), True, enforce_sorted=False), total_length=9
        ),
        "expected no total_length",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_others_are_refused(name):
    function, said = REFUSED[name]
    with pytest.raises(LoDError, match=said):
        function(tl.from_lengths(torch.randn(11, 8), [[4, 2, 5]]))


def test_empty_sequences_are_refused_as_torch_refuses_them():
    x = tl.from_lengths(torch.randn(5, 8), [[3, 0, 2]])
    with pytest.raises(LoDError, match="expected sequences with rows, got an empty one"):
        pack_padded_sequence(x[None], x.lengths(), batch_first=True, enforce_sorted=False)


def test_in_a_graph_it_is_refused_and_outside_right():
    x, gru = tl.from_lengths(torch.randn(11, 8), [[5, 4, 2]]), nn.GRU(8, 6, batch_first=True)
    lengths = x.lengths()
    for in_order in (True, False):
        torch._dynamo.reset()
        compiled = torch.compile(lambda x, n, i=in_order: program(gru, x[None], n, True, i)[0], backend="eager")
        torch.testing.assert_close(compiled(x, lengths).values(), gru(x[None])[0].values())
    torch._dynamo.reset()
    with pytest.raises(Exception, match="pack_padded_sequence"):
        torch.compile(lambda x, n: pack_padded_sequence(x[None], n, True).data, backend="eager", fullgraph=True)(
            x, lengths
        )
