# SPDX-License-Identifier: Apache-2.0
"""Last states of torch.nn's recurrences: (layers, sequences, hidden) in every layout, which modules of tl.nn take."""

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
        last = several(module(given)[1])
        assert [tuple(t.shape) for t in last] == [(layers, len(lengths[-1]), w) for w in widths[: len(last)]]
        sequences = x.sequences() if len(lengths) == 1 else x.drop_level(0).sequences()
        for j, part in enumerate(sequences):
            if len(part):
                expected = several(module(part[None] if batch_first else part[:, None])[1])
                for a, b in zip(last, expected):
                    torch.testing.assert_close(a[:, j : j + 1], b)


@pytest.mark.parametrize("kind", ["RNN", "GRU", "LSTM"])
def test_what_a_module_of_torch_returns_one_of_ours_takes(kind):
    x = tl.from_lengths(torch.randn(11, 8), [[4, 2, 5]])
    module, ours = getattr(nn, kind)(8, 6), getattr(tl.nn, kind)(8, 6)
    ours.load_state_dict(module.state_dict())
    last = module(x[:, None])[1]
    found = ours(x, last)[0]
    for j, part in enumerate(x.sequences()):
        torch.testing.assert_close(found.seq[j], module(part[:, None], cut(last, j))[0][:, 0])


@pytest.mark.parametrize("options", [{}, {"num_layers": 2, "bidirectional": True}, {"proj_size": 3}], ids=str)
@pytest.mark.parametrize("lengths", LODS, ids=str)
@pytest.mark.parametrize("layout", ["x", "x[None]", "x[:, None]"])
@pytest.mark.parametrize("kind", [nn.RNN, nn.GRU, nn.LSTM])
def test_the_last_state_of_one_call_is_the_first_of_the_next(kind, layout, lengths, options):
    if "proj_size" in options and kind is not nn.LSTM:
        options = {"num_layers": 3}
    module = kind(8, 6, batch_first=layout == "x[None]", **options).double()
    x = tl.from_lengths(torch.randn(11, 8, dtype=torch.float64), lengths)
    given = eval(layout)
    first = module(given)[1]
    states = tuple(t.detach().requires_grad_() for t in several(first))
    out, last = module(given, states if isinstance(first, tuple) else states[0])
    rows = out.values().reshape(11, -1)
    sequences = x.lod.row_offsets().tolist()
    for j, (begin, end) in enumerate(itertools.pairwise(sequences)):
        if begin == end:
            continue
        alone = x.values()[begin:end]
        expected, final = module(alone[None] if module.batch_first else alone[:, None], cut(first, j))
        torch.testing.assert_close(rows[begin:end], expected.reshape(end - begin, -1))
        for a, b in zip(several(last), several(final)):
            torch.testing.assert_close(a[:, j : j + 1], b)
    rows.sum().backward()
    assert states[0].grad.abs().sum() > 0


def test_a_state_that_is_the_same_for_every_sequence_is_given_without_a_batch():
    x, gru = tl.from_lengths(torch.randn(11, 8), [[4, 2, 5]]), nn.GRU(8, 6)
    state = torch.randn(1, 6)
    for part, out in zip(x.sequences(), gru(x, state)[0].sequences()):
        torch.testing.assert_close(out, gru(part, state)[0])


def test_the_last_state_is_a_row_for_each_sequence():
    x, gru, fc = tl.from_lengths(torch.randn(11, 8), [[4, 2, 5]]), nn.GRU(8, 8, batch_first=True), nn.Linear(8, 4)
    found = [fc(gru(given)[1][-1]).softmax(1) for given in (x, x[None])]
    alone = torch.cat([fc(gru(part[None])[1][-1]).softmax(1) for part in x.sequences()])
    assert all(torch.allclose(probabilities, alone, atol=1e-6) for probabilities in found)
    both = nn.GRU(8, 8, bidirectional=True)(x[:, None])[1]
    assert torch.cat((both[-2], both[-1]), 1).shape == (3, 16)
    F.cross_entropy(found[1], torch.tensor([0, 1, 2])).backward()
    assert gru.weight_hh_l0.grad.abs().sum() > 0


@pytest.mark.parametrize("shape", [(1, 2, 6), (1, 4, 6), (2, 3, 6), (1, 3, 5), (3, 6)])
def test_wrong_states(shape):
    x, gru = tl.from_lengths(torch.randn(11, 8), [[4, 2, 5]]), nn.GRU(8, 6, batch_first=True)
    for given, state in itertools.product((x, x[None]), (torch.randn(shape),)):
        with pytest.raises((RuntimeError, ValueError), match=r"hidden|initial state|hx"):
            gru(given, state)


def test_a_batch_in_every_row_is_torchs():
    x = tl.from_lengths(torch.randn(11, 4, 8), [[4, 2, 5]])
    gru = nn.GRU(8, 6, batch_first=True)
    last, expected = gru(x)[1], gru(x.values())[1]
    torch.testing.assert_close(last, expected)
    torch.testing.assert_close(gru(x, last)[0].values(), gru(x.values(), expected)[0])
