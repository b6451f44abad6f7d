# SPDX-License-Identifier: Apache-2.0
"""The rows of docs/matrix.md: a call of every operator and module, on structures with and without empty sequences."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from samples import OPS, SEQUENCES
from samples.words import lod_tensor

import torch_lod as tl

#: Neither 0 nor 1 of anything, so that sizes are symbols; then empty sequences.
SOME, EMPTIES = [[2, 3], [2, 4, 3, 2, 5]], [[0, 2, 1, 0], [0, 3, 0]]


@dataclass(frozen=True)
class Call:
    """function(*args, **kwargs); `outputs`: how many of the results are more than what a backward keeps."""

    label: str
    function: Callable
    args: tuple
    kwargs: dict
    outputs: int | None = None


def _of_operator(info) -> Iterator[Call]:
    function = getattr(tl.ops, info.name)
    for sample in info.samples(info.dtypes[0], "cpu"):
        if not sample.large:
            yield Call(sample.label, function, sample.args, {}, info.outputs)


def _of_sequences(info) -> Iterator[Call]:
    for sample in info.samples(info.dtypes[0], "cpu"):
        if not sample.fixed:
            yield Call(sample.label, info.op, sample.args, sample.kwargs)


def _rank() -> Iterator[Call]:
    for offsets in ([0, 2, 5, 9], [0, 0, 3, 3]):
        yield Call("", tl.ops.rank_by_length, (torch.tensor(offsets),), {})


def _random(*shape) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)), dtype=torch.float64)


def _recurrences() -> Iterator[tuple[str, Callable]]:
    def over(make):
        def calls():
            for lengths in (SOME, EMPTIES):
                x = lod_tensor(lengths, (8,), torch.float64, "cpu")
                function, args, kwargs = make(x)
                yield Call(str(lengths), function, args, kwargs)

        return calls

    w = _random(2, 8)
    cell = torch.nn.GRUCell(8, 4).double()
    yield "scan", over(lambda x: (tl.scan, (lambda a, h: torch.tanh(a + h), x, _random(x.num_sequences(-1), 8)), {}))

    def stacked(stack):
        return stack.flip(1).tanh(), stack.square().sum(1)

    yield "map_sequences", over(lambda x: (tl.map_sequences, (stacked, x), {"results": ("rows", "sequences")}))
    yield "dynamic_lstm", over(lambda x: (tl.dynamic_lstm, (x, w, _random(14)), {}))
    yield "dynamic_lstmp", over(lambda x: (tl.dynamic_lstmp, (x, _random(3, 8), _random(2, 3), _random(14)), {}))
    yield "dynamic_gru", over(lambda x: (tl.dynamic_gru, (x[:, :6], _random(2, 6)), {}))
    yield "fusion_lstm", over(lambda x: (tl.fusion_lstm, (x, _random(8, 8), w, _random(14)), {}))
    yield "fusion_gru", over(lambda x: (tl.fusion_gru, (x, _random(8, 6), _random(2, 6)), {}))

    def ids(x):
        return x.with_values(torch.arange(len(x)) % 5)

    yield (
        "fused_embedding_fc_lstm",
        over(lambda x: (tl.fused_embedding_fc_lstm, (ids(x), _random(5, 8), w, _random(14)), {})),
    )

    def attention(x):
        flat = x.drop_level(0)
        given = (flat, _random(flat.num_sequences(), 2), _random(10, 1), _random(10, 8), _random(8))
        return tl.attention_lstm, given, {}

    yield "attention_lstm", over(attention)
    yield "gru_unit", over(lambda x: (tl.gru_unit, (x.values()[:, :6], _random(len(x), 2), _random(2, 6)), {}))
    yield "lstm_unit", over(lambda x: (tl.lstm_unit, (x.values(), _random(len(x), 2)), {}))

    modules = {
        "nn.LSTM": tl.nn.LSTM(8, 4, 2, bidirectional=True, proj_size=2),
        "nn.GRU": tl.nn.GRU(8, 4),
        "nn.RNN": tl.nn.RNN(8, 4),
        "nn.AttentionPool": tl.nn.AttentionPool(8),
        "nn.GatedDeltaNet": tl.nn.GatedDeltaNet(8, 1, 2, 3, 2),
        "nn.Mamba2": tl.nn.Mamba2(8, 3, expand=1, head_dim=2, groups=2),
        "nn.MapSequences": tl.nn.MapSequences(torch.nn.Linear(8, 4)),
        "nn.MultiheadAttention": tl.nn.MultiheadAttention(8, 2),
        "nn.TransformerEncoderLayer": tl.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0),
        "nn.RowConv": tl.nn.RowConv(8, 2),
        "nn.SequenceConv": tl.nn.SequenceConv(8, 4, 3),
        "nn.SequenceConv1d": tl.nn.SequenceConv1d(8, 4, 3),
        "nn.SequencePool": tl.nn.SequencePool("mean"),
        "nn.SequenceSoftmax": tl.nn.SequenceSoftmax(),
    }
    for name, module in modules.items():
        module.double()
        given = 3 if name == "nn.MultiheadAttention" else 1
        yield name, over(lambda x, m=module, n=given: (m, (x,) * n, {}))
    yield "nn.CTCLoss", over(lambda x: (tl.nn.CTCLoss(), (x, x.with_values(1 + torch.arange(len(x)) % 7)), {}))
    crf = tl.nn.LinearChainCRF(8).double()
    yield "nn.LinearChainCRF", over(lambda x: (crf, (x, x.with_values(torch.arange(len(x)) % 8)), {}))
    near = _Near()
    yield "nn.RelativePositionBias", over(lambda x: (near, (x,), {}))
    dynamic = tl.nn.DynamicRNN(cell)
    yield "nn.DynamicRNN", over(lambda x: (dynamic, (x,), {}))
    yield "nn.last_state", over(lambda x: (tl.nn.last_state, (_random(2, x.num_sequences(-1), 3), x), {}))


class _Near(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.bias = tl.nn.RelativePositionBias(1, 4, 5, dtype=torch.float64)

    def forward(self, x):
        return tl.sequence_attention(x, x, x, distance_bias=self.bias())


def _decoding() -> Iterator[tuple[str, Callable]]:
    """One call of each: their graphs are large."""

    def one(name, make):
        return name, lambda: iter([Call("", getattr(tl, name), *make())])

    def scores(x, *width):
        return _random(len(x), *width)

    x = tl.from_lengths(torch.tensor([1, 0, 2, 3, 0]), SOME[:1] + [[1] * 5])
    yield one("chunk_eval", lambda: ((x, x.with_values(x.values().flip(0)), "IOB", 2), {}))
    names = ["O", "B-a", "I-a", "B-b"]
    yield one("chunk_f1", lambda: ((x, x.with_values(x.values().flip(0)), names), {}))
    yield one("beam_search", lambda: ((x, scores(x), None, x.with_values(scores(x, 3)), 2, 0), {}))
    y = tl.from_lengths(torch.tensor([1, 2, 0, 3]), [[2, 3], [1, 0, 1, 2, 0]])
    beams = [x.with_values(scores(x)), y.with_values(scores(y))]
    yield one("beam_search_decode", lambda: (([x, y], beams, 2, 0), {}))


#: Under the names of docs/matrix.py.
CALLS: dict[str, Callable[[], Iterator[Call]]] = {
    **{f"ops.{info.name}": (lambda i=info: _of_operator(i)) for info in OPS if info.name in tl.ops.__all__},
    "ops.rank_by_length": _rank,
    **{info.name: (lambda i=info: _of_sequences(i)) for info in SEQUENCES},
    **dict(_recurrences()),
    **dict(_decoding()),
}
