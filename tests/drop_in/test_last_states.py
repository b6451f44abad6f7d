# SPDX-License-Identifier: Apache-2.0
"""Last states of torch.nn's recurrences: (layers, sequences, hidden) in every layout, and what one call returns the next one
takes."""

import itertools

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import torch_lod as tl

LODS = [[[4, 2, 5]], [[2, 1], [4, 2, 5]], [[11]], [[0, 11, 0]], [[1] * 11]]


def several(state):
    return state if isinstance(state, tuple) else (state,)


def cut(state, j):
    found = tuple(t[:, j : j + 1].contiguous() for t in several(state))
    return found if isinstance(state, tuple) else found[0]


@pytest.mark.parametrize("options", [{}, {"num_layers": 2, "bidirectional": True}, {"proj_size": 3}], ids=str)
@pytest.mark.parametrize("batched", [False, True])
@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("kind", [nn.RNN, nn.GRU, nn.LSTM])
def test_last_states(kind, batch_first, batched, options):
    if "proj_size" in options and kind is not nn.LSTM:
        options = {"num_layers": 3}
    module = kind(8, 6, batch_first=batch_first, **options).double()
    widths = [options.get("proj_size", 6), 6]
    layers = options.get("num_layers", 1) * (1 + options.get("bidirectional", False))
    for lengths in LODS:
        x = tl.from_lengths(torch.randn(11, 8, dtype=torch.float64), lengths)
        given = x if not batched else x[None] if batch_first else x[:, None]
        out, last = module(given)
        assert [tuple(t.shape) for t in several(last)] == [
            (layers, len(lengths[-1]), w) for w in widths[: len(several(last))]
        ]
        again, after = module(given, last)
        assert type(again) is type(out) and again.shape == out.shape and again.lod == x.lod
        assert [t.shape for t in several(after)] == [t.shape for t in several(last)]
        rows = again.values().squeeze(0 if batch_first else 1) if batched else again.values()
        for j, (part, own) in enumerate(
            zip(x.sequences(-1) if len(lengths) == 1 else x.drop_level(0).sequences(), rows.split(lengths[-1]))
        ):
            if len(part):
                expected, state = module(part[None] if batch_first else part[:, None], cut(last, j))
                torch.testing.assert_close(own, expected.squeeze(0 if batch_first else 1))
                for a, b in zip(several(after), several(state)):
                    torch.testing.assert_close(a[:, j : j + 1], b)


def test_the_last_state_is_a_row_for_each_sequence():
    x, gru, fc = tl.from_lengths(torch.randn(11, 8), [[4, 2, 5]]), nn.GRU(8, 8, batch_first=True), nn.Linear(8, 4)
    found = [fc(gru(given)[1][-1]).softmax(1) for given in (x, x[None])]
    alone = torch.cat([fc(gru(part[None])[1][-1]).softmax(1) for part in x.sequences()])
    assert all(torch.allclose(probabilities, alone, atol=1e-6) for probabilities in found)
    both = nn.GRU(8, 8, bidirectional=True)(x[:, None])[1]
    assert torch.cat((both[-2], both[-1]), 1).shape == (3, 16)
    F.cross_entropy(found[1], torch.tensor([0, 1, 2])).backward()
    assert gru.weight_hh_l0.grad.abs().sum() > 0


def test_states_have_gradients():
    x, lstm = tl.from_lengths(torch.randn(11, 8), [[4, 2, 5]]), nn.LSTM(8, 6)
    h, c = (torch.randn(1, 3, 6, requires_grad=True) for _ in range(2))
    grads = [torch.autograd.grad(lstm(given, (h, c))[0].values().sum(), (h, c)) for given in (x, x[:, None])]
    alone = sum(lstm(part, (h[:, i], c[:, i]))[0].sum() for i, part in enumerate(x.sequences()))
    for got in grads:
        for a, b in zip(got, torch.autograd.grad(alone, (h, c), retain_graph=True)):
            torch.testing.assert_close(a, b)


def test_one_state_for_all_sequences_goes_on_working():
    x = tl.from_lengths(torch.randn(11, 8), [[4, 2, 5]])
    gru, state = nn.GRU(8, 6), torch.randn(1, 6)
    found = [
        gru(x, state)[0].values(),
        gru(x, state[:, None])[0].values(),
        gru(x[:, None], state[:, None])[0].values()[:, 0],
    ]
    assert all(torch.equal(found[0], other) for other in found[1:])


@pytest.mark.parametrize("shape", [(1, 2, 6), (1, 4, 6), (2, 3, 6), (1, 3, 5), (3, 6)])
def test_wrong_states(shape):
    x, gru = tl.from_lengths(torch.randn(11, 8), [[4, 2, 5]]), nn.GRU(8, 6, batch_first=True)
    for given, state in itertools.product((x, x[None]), (torch.randn(shape),)):
        with pytest.raises((RuntimeError, ValueError), match=r"hidden|initial state|hx"):
            gru(given, state)


def test_lost_states_are_refused():
    x, gru = tl.from_lengths(torch.randn(11, 8), [[4, 2, 5]]), nn.GRU(8, 8)
    state = x.mean(0, keepdim=True).expand(3, 8)[None]
    for given in (x, x[:, None]):
        with pytest.raises(tl.LoDError, match="initial states"):
            gru(given, state)


def test_a_batch_in_every_row_is_torchs():
    x = tl.from_lengths(torch.randn(11, 4, 8), [[4, 2, 5]])
    gru = nn.GRU(8, 6, batch_first=True)
    last, expected = gru(x)[1], gru(x.values())[1]
    torch.testing.assert_close(last, expected)
    torch.testing.assert_close(gru(x, last)[0].values(), gru(x.values(), expected)[0])
