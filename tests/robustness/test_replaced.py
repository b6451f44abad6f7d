# SPDX-License-Identifier: Apache-2.0
"""Modules of torch.nn whose forward is replaced (torch_lod.patches) do with plain tensors what they did, whatever is made of them."""

import copy
import inspect
import io
import pickle

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import torch_lod as tl

pytestmark = pytest.mark.filterwarnings("ignore")
X = tl.from_lengths(torch.randn(6, 4), [[2, 1, 3]])
ONE = tl.from_lengths(torch.randn(6, 4), [[6]])
P = torch.randn(6, 3, 4)
RECURRENCES = [nn.LSTM, nn.GRU, nn.RNN]


class First(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, x):
        return self.module(x)[0]


class Packs(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru = nn.GRU(4, 5)

    def forward(self, x, lengths):
        packed = pack_padded_sequence(x, lengths, enforce_sorted=False)
        out, _ = self.gru(packed)
        return pad_packed_sequence(out)[0]


def by_hand(module, x):
    """What torch's own code gives, of no function that was replaced."""
    torchs = next(torchs for function, _, torchs in tl.patches.REPLACED if function is type(module).forward)
    return torchs(module, x)[0]


def saved(module):
    file = io.BytesIO()
    torch.jit.save(torch.jit.script(First(module)), file)
    file.seek(0)
    return torch.jit.load(file)


MADE_OF = {
    "itself": First,
    "a copy": lambda module: First(copy.deepcopy(module)),
    "unpickled": lambda module: First(pickle.loads(pickle.dumps(module))),
    "a script": lambda module: torch.jit.script(First(module)),
    "a saved script": saved,
    "a trace": lambda module: torch.jit.trace(First(module), P, check_trace=False),
    "exported": lambda module: torch.export.export(First(module), (P,), strict=True).module(),
    "exported without Dynamo": lambda module: torch.export.export(First(module), (P,), strict=False).module(),
}


@pytest.mark.parametrize("how", MADE_OF)
@pytest.mark.parametrize("kind", RECURRENCES)
def test_recurrences_of_plain_tensors(kind, how):
    module = kind(4, 5)
    found = MADE_OF[how](module)
    module.flatten_parameters()
    torch.testing.assert_close(found(P), by_hand(module, P))
    if how in ("itself", "a copy", "unpickled"):
        torch.testing.assert_close(found(P[:, 0]), by_hand(module, P[:, 0]))
        for j, rows in enumerate(X.sequences()):
            torch.testing.assert_close(found(X).seq[j], by_hand(module, rows))


def test_packing_of_plain_tensors():
    module, lengths = Packs(), torch.tensor([2, 6, 4])
    want = module(P, lengths)
    torch.testing.assert_close(torch.jit.script(module)(P, lengths), want)
    torch._dynamo.reset()
    torch.testing.assert_close(torch.compile(module, backend="eager")(P, lengths), want)


@pytest.mark.parametrize("module", [nn.LSTMCell(4, 5), nn.GRUCell(4, 5), nn.RNNCell(4, 5), nn.ConstantPad1d(1, 2.0)])
def test_scripts_of_others(module):
    script = torch.jit.script(module)
    assert str(script(P[0])) == str(module(P[0]))


def test_quantised_recurrences():
    module = torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.LSTM(4, 5)), {nn.LSTM}, torch.qint8)
    assert module(P)[0].shape == (6, 3, 5) and torch.jit.script(module)(P)[0].shape == (6, 3, 5)


def test_source_and_signature_are_torchs():
    for function, _, torchs in tl.patches.REPLACED:
        assert inspect.signature(function) == inspect.signature(torchs)
        assert inspect.getsource(function) == inspect.getsource(torchs) and function.__doc__ == torchs.__doc__
        assert inspect.getfullargspec(function).args == inspect.getfullargspec(torchs).args


@pytest.mark.parametrize("kind", RECURRENCES)
@pytest.mark.parametrize("whole", [True, False])
def test_compiled(kind, whole):
    """With a state for each sequence, and a batch of one, as in eager code."""
    torch._dynamo.reset()
    module = kind(4, 5)
    with torch._dynamo.config.patch(allow_rnn=whole):
        compiled = torch.compile(module, backend="eager", fullgraph=whole)
        torch.testing.assert_close(compiled(P), module(P))
        for x in (X, ONE):
            (out, last), (got, state) = module(x), compiled(x)
            torch.testing.assert_close(got.values(), out.values())
            torch.testing.assert_close(state, last)
            torch.testing.assert_close(compiled(x, last)[0].values(), module(x, last)[0].values())
        packed = pack_padded_sequence(P, torch.tensor([6, 4, 2]))
        torch.testing.assert_close(torch.compile(module, backend="eager")(packed)[0].data, module(packed)[0].data)
