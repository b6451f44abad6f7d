# SPDX-License-Identifier: Apache-2.0
"""Wrong calls of modules and of torch's functions: whose name the error carries, and what a user's function raises."""

import operator
import re
import traceback

import pytest
import torch

import torch_lod as tl
from torch_lod.tensor.table import ROWS

F, nn = torch.nn.functional, torch.nn
LOD = tl.LoD.from_lengths([[2, 3]])
X = tl.LoDTensor(torch.randn(5, 4), LOD)
IDS = tl.LoDTensor(torch.arange(5), LOD)
FLAT = [p.detach() for p in nn.LSTM(4, 4).parameters()]
STATE = torch.zeros(1, 1, 4)
MULTI = nn.MultiheadAttention(4, 2)

# for every function of torch that runs along sequences a call that is wrong
ROUTES = {
    F.instance_norm: lambda f: f(X.unsqueeze(0), torch.zeros(4), torch.ones(4)),
    F.group_norm: lambda f: f(X, 3),
    F.ctc_loss: lambda f: f(X, IDS, [5], [5]),
    F.dropout1d: lambda f: f(X, 0.5, True, True),
    F.local_response_norm: lambda f: f(X.unsqueeze(0), 2),
    torch.channel_shuffle: lambda f: f(X.unsqueeze(0), 2),
    torch.native_channel_shuffle: lambda f: f(X.unsqueeze(0), 2),
    F.pad: lambda f: f(X, (9, 9), mode="reflect"),
    torch.conv1d: lambda f: f(X, torch.zeros(2, 3, 1)),
    torch.conv_transpose1d: lambda f: f(X, torch.zeros(3, 2, 1)),
    torch.avg_pool1d: lambda f: f(X, 0),
    torch.max_pool1d: lambda f: f(X, 0),
    F.max_pool1d: lambda f: f(X, 0),
    torch.adaptive_avg_pool1d: lambda f: f(X, -1),
    torch.adaptive_max_pool1d: lambda f: f(X, -1),
    F.adaptive_max_pool1d: lambda f: f(X, -1),
    F.lp_pool1d: lambda f: f(X, "two", 1),
    torch.max_pool1d_with_indices: lambda f: f(X, 2, padding=2),
    F.max_pool1d_with_indices: lambda f: f(X, 2, padding=2),
    F.adaptive_max_pool1d_with_indices: lambda f: f(X, -1),
    F.embedding_bag: lambda f: f(IDS, torch.zeros(9, 2), torch.zeros(1).long()),
    torch.lstm: lambda f: f(X[:, None, None], (STATE, STATE), FLAT, True, 1, 0.0, False, False, False),
    torch.gru: lambda f: f(X.unsqueeze(1), STATE, FLAT[:3], True, 1, 0.0, False, False, False),
    torch.rnn_tanh: lambda f: f(X.unsqueeze(1), torch.zeros(2, 3, 4), FLAT, True, 1, 0.0, False, False, False),
    torch.rnn_relu: lambda f: f(X.unsqueeze(1), X, FLAT, True, 1, 0.0, False, False, False),
    F.scaled_dot_product_attention: lambda f: f(X, X.values(), X),
    F.multi_head_attention_forward: lambda f: MULTI(X, X, X, torch.zeros(5, dtype=torch.bool)),
}

# modules of torch, and the function that they run
STOCK = {
    "conv1d": lambda: nn.Conv1d(3, 2, 1)(X),
    "lstm": lambda: nn.LSTM(4, 2)(tl.LoDTensor(torch.randn(5, 2, 4), LOD)),
    "gru": lambda: nn.GRU(4, 2)(tl.LoDTensor(torch.randn(5, 2, 4), LOD)),
    "max_pool1d": lambda: nn.MaxPool1d(2, padding=2)(X),
    "scaled_dot_product_attention": lambda: F.scaled_dot_product_attention(X, X, X.values()),
    "multi_head_attention_forward": lambda: nn.TransformerEncoderLayer(4, 2, 8)(X, torch.zeros(1, 1)),
    "embedding_bag": lambda: nn.EmbeddingBag(9, 2)(IDS, torch.zeros(1).long()),
    "pad": lambda: nn.ReflectionPad1d(3)(X),
}

MODULES = {
    "LSTM": [
        lambda: tl.nn.LSTM(3, 2)(X),
        lambda: tl.nn.LSTM(4, 2)(X.values()),
        lambda: tl.nn.LSTM(4, 0),
        lambda: tl.nn.LSTM(4, 2, levle=0),
        lambda: tl.nn.LSTM(4, 2)(X, None, 0),
    ],
    "GRU": [lambda: tl.nn.GRU(4, 2)(X, torch.zeros(2)), lambda: tl.nn.GRU(4, 2, level=1)(X), lambda: tl.nn.GRU(4, 0)],
    "RNN": [lambda: tl.nn.RNN(4, 2, nonlinearity="elu"), lambda: tl.nn.RNN(4, 2)(None)],
    "AttentionPool": [lambda: tl.nn.AttentionPool(4, level=1)(X), lambda: tl.nn.AttentionPool(4, 4, 0)],
    "CTCLoss": [
        lambda: tl.nn.CTCLoss(-1),
        lambda: tl.nn.CTCLoss(reduction="most"),
        lambda: tl.nn.CTCLoss()(X, IDS),
        lambda: tl.nn.CTCLoss(9)(X, tl.LoDTensor(torch.ones(5).long(), LOD)),
    ],
    "LinearChainCRF": [
        lambda: tl.nn.LinearChainCRF(0),
        lambda: tl.nn.LinearChainCRF(4, allowed=torch.ones(4, 4)),
        lambda: tl.nn.LinearChainCRF(4)(X, torch.full((5,), 4)),
        lambda: tl.nn.LinearChainCRF(3)(X, torch.zeros(5).long()),
    ],
    "DynamicRNN": [
        lambda: tl.nn.DynamicRNN(None),
        lambda: tl.nn.DynamicRNN(nn.GRUCell(4, 4), 0),
        lambda: tl.nn.DynamicRNN(nn.GRUCell(4, 4))(X.values()),
        lambda: tl.nn.DynamicRNN(lambda x, h: h)(X),
        lambda: tl.nn.DynamicRNN(lambda x, h: h[:0])(X, torch.zeros(2, 4)),
    ],
    "MapSequences": [
        lambda: tl.nn.MapSequences(abs),
        lambda: tl.nn.MapSequences(nn.ReLU(), layout="bf"),
        lambda: tl.nn.MapSequences(nn.ReLU(), pad_to=[3]),
        lambda: tl.nn.MapSequences(nn.ReLU(), results=3),
        lambda: tl.nn.MapSequences(nn.Flatten())(X),
        lambda: tl.nn.MapSequences(nn.ReLU())(X.values()),
    ],
    "MultiheadAttention": [
        lambda: tl.nn.MultiheadAttention(4, 3),
        lambda: tl.nn.MultiheadAttention(4, 2)(X.values()),
        lambda: tl.nn.MultiheadAttention(4, 2)(X, X, X, X),
        lambda: tl.nn.MultiheadAttention(4, 2, window=-2)(X),
    ],
    "Plain": [
        lambda: tl.nn.Plain(nn.Linear(4, 2), 1)(X.values()),
        lambda: tl.nn.Plain(nn.Linear(4, 2), -1),
        lambda: tl.nn.Plain(nn.Linear(4, 2), 2).tensors(X),
        lambda: tl.nn.Plain(nn.Linear(4, 2), 2).to_onnx(None, X),
        lambda: tl.nn.Plain(nn.Linear(4, 2), 1)(X.values(), torch.tensor([0, 7])),
    ],
    "RelativePositionBias": [
        lambda: tl.nn.RelativePositionBias(0),
        lambda: tl.nn.RelativePositionBias(2, 3),
        lambda: tl.nn.RelativePositionBias(2, 32, 8),
        lambda: tl.nn.RelativePositionBias(2, bidirectional=1),
    ],
    "GatedDeltaNet": [
        lambda: tl.nn.GatedDeltaNet(4, 2, 3),
        lambda: tl.nn.GatedDeltaNet(4, 0, 3),
        lambda: tl.nn.GatedDeltaNet(3, 1, 1, 2, 2)(X),
        lambda: tl.nn.GatedDeltaNet(4, 1, 1, 2, 2)(X, 1),
        lambda: tl.nn.GatedDeltaNet(4, 1, 1, 2, 2)(X, return_state=1),
    ],
    "Mamba2": [
        lambda: tl.nn.Mamba2(4, head_dim=3),
        lambda: tl.nn.Mamba2(4, 0),
        lambda: tl.nn.Mamba2(3, 2, head_dim=2)(X),
        lambda: tl.nn.Mamba2(4, 2, head_dim=2)(X, (None, 1)),
    ],
    "RowConv": [lambda: tl.nn.RowConv(4, -1), lambda: tl.nn.RowConv(4, 1, 0), lambda: tl.nn.RowConv(3, 1)(X)],
    "SequenceConv": [lambda: tl.nn.SequenceConv(4, 4, 0), lambda: tl.nn.SequenceConv(3, 4, 3)(X)],
    "SequenceConv1d": [
        lambda: tl.nn.SequenceConv1d(4, 4, 3, padding="up")(X),
        lambda: tl.nn.SequenceConv1d(3, 4, 3)(X),
    ],
    "SequencePool": [
        lambda: tl.nn.SequencePool("most")(X),
        lambda: tl.nn.SequencePool("sum", level=1)(X),
        lambda: tl.nn.SequencePool("sum")(X.values()),
    ],
    "SequenceSoftmax": [lambda: tl.nn.SequenceSoftmax()(IDS), lambda: tl.nn.SequenceSoftmax(0)],
    "TransformerEncoderLayer": [
        lambda: tl.nn.TransformerEncoderLayer(4, 2, activation="elu"),
        lambda: tl.nn.TransformerEncoderLayer(4, 2)(X.values()),
        lambda: tl.nn.TransformerEncoderLayer(4, 2)(tl.LoDTensor(torch.randn(5, 3), LOD)),
        lambda: tl.nn.TransformerEncoderLayer(4, 2)(X, torch.zeros(5, 5)),
    ],
    "last_state": [
        lambda: tl.nn.last_state(torch.zeros(1, 3, 2), X),
        lambda: tl.nn.last_state((STATE, STATE), X),
        lambda: tl.nn.last_state(STATE, X, -1),
    ],
}


def said(call) -> str:
    with pytest.raises(tl.LoDError) as caught:
        call()
    return str(caught.value)


@pytest.mark.parametrize("func", ROUTES, ids=lambda f: f.__name__)
def test_functions_of_torch_go_by_their_own_name(func):
    assert re.fullmatch(rf"{func.__name__}: expected .+, got .+", said(lambda: ROUTES[func](func)), re.S)


def test_every_route_is_asked():
    routes = {func for func, row in ROWS.items() if row.run is not None or row.run_at_dim is not None}
    own = {torch.Tensor.__eq__, operator.eq}  # a route to torch's own torch.eq
    # only for rows elsewhere than at dim 0, where the rule of the table speaks
    elsewhere = ("along", "buffers", "indexing")
    own |= {
        f
        for f in routes
        if ROWS[f].run_at_dim is not None and ROWS[f].run_at_dim.__module__.rpartition(".")[2] in elsewhere
    }
    own |= {getattr(torch, name) for name in dir(torch) if name.startswith("_foreach_")}  # and to that of one tensor
    assert routes - own == set(ROUTES)


@pytest.mark.parametrize("name", STOCK)
def test_modules_of_torch_go_by_the_function_that_they_run(name):
    assert re.fullmatch(rf"{name}: expected .+, got .+", said(STOCK[name]), re.S)


@pytest.mark.parametrize(("name", "i"), [(name, i) for name, calls in MODULES.items() for i in range(len(calls))])
def test_modules_go_by_their_class(name, i):
    # for arguments that do not fit the signature Python's own words say what came
    assert re.fullmatch(
        rf"{name}: expected .+(, got |; {name}\.(__init__|forward)\(\) ).+", said(MODULES[name][i]), re.S
    )


def test_every_module_is_asked():
    assert set(MODULES) == set(tl.nn.__all__)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            lambda: tl.nn.SequencePool("mean", 0),
            "SequencePool: expected pool_type by position and padding_value, level ",
        ),
        (lambda: tl.nn.SequencePool("mean", 0), "got 0 as argument 2; write padding_value=0 or level=0"),
        (lambda: tl.nn.SequenceSoftmax(0), "got 0 as argument 1; write level=0"),
        (lambda: tl.nn.DynamicRNN(nn.GRUCell(4, 4), 0), "got 0 as argument 2; write level=0 or reverse=0"),
        (lambda: tl.scan(lambda x, h: h, X, STATE[0], 0), "got 0 as argument 4; write level=0"),
        (lambda: tl.lod_rank_table(X, 0), "got 0 as argument 2; write level=0"),
    ],
)
def test_a_number_in_the_wrong_place_is_an_error_that_says_so(call, words):
    assert words in said(call)


def test_the_old_name_of_the_padding_value_works():
    pool = tl.nn.SequencePool("max", pad_value=-1.0)
    assert pool(tl.LoDTensor(torch.zeros(0, 2), tl.LoD.from_lengths([[0]]))).tolist() == [[-1.0, -1.0]]
    assert "padding_value=-1.0" in repr(pool)


# -- what a user's function raises


WORDS = "segment_reduce: expected a sum of 1, got nan"  # as if it came from an operator of ours


def fails(*args):
    raise ValueError(WORDS)


def fails_below(*args):
    """The user's own wrong call."""
    return tl.sequence_pool(X, "most")


class Fails(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


def hooked(module, part, function):
    getattr(module, part).register_forward_hook(lambda *args: function())
    return module


def layer(**options):
    return tl.nn.TransformerEncoderLayer(4, 2, 8, **options)


USERS = {
    "activation": lambda f: layer(activation=f)(X),
    "torch's layer, activation": lambda f: nn.TransformerEncoderLayer(4, 2, 8, activation=f)(X),
    "hook on a part of a layer": lambda f: hooked(layer(), "linear1", f)(X),
    "hook on a module": lambda f: hooked(nn.Sequential(tl.nn.LSTM(4, 2)), "0", f)(X),
    "hook on a part of a pool": lambda f: hooked(tl.nn.AttentionPool(4), "project", f)(X),
    "cell": lambda f: tl.nn.DynamicRNN(f)(X, torch.zeros(2, 4)),
    "cell as a module": lambda f: tl.nn.DynamicRNN(Fails(f))(X, torch.zeros(2, 4)),
    "cell, from the end": lambda f: tl.scan(f, X, torch.zeros(2, 4), reverse=True),
    "stacks": lambda f: tl.nn.MapSequences(Fails(f))(X),
    "plain": lambda f: tl.nn.Plain(Fails(f), 1)(X.values(), X.offsets()),
    "hook on a routed module": lambda f: hooked(nn.Sequential(nn.Conv1d(4, 2, 1)), "0", f)(X),
    "parametrization": lambda f: parametrized(tl.nn.LSTM(4, 2), f)(X),
}


def parametrized(module, function):
    active = []
    nn.utils.parametrize.register_parametrization(
        module, "weight_ih_l0", Fails(lambda w: function() if active else w), unsafe=True
    )
    active.append(True)
    return module


@pytest.mark.parametrize("where", USERS)
def test_what_a_users_function_raises_passes_through(where):
    with pytest.raises(ValueError) as caught:
        USERS[where](fails)
    assert type(caught.value) is ValueError and str(caught.value) == WORDS
    assert caught.value.__cause__ is None and caught.value.__context__ is None
    assert traceback.extract_tb(caught.tb)[-1].name == "fails"


@pytest.mark.parametrize("where", USERS)
def test_a_users_own_wrong_call_keeps_its_name(where):
    assert said(lambda: USERS[where](fails_below)).startswith("sequence_pool: expected pool_type in ")


def test_a_module_on_plain_tensors_leaves_errors_to_the_module():
    assert said(lambda: tl.nn.Plain(tl.nn.LSTM(3, 2), 1)(X.values(), X.offsets())).startswith("LSTM: ")
