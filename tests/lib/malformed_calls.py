# SPDX-License-Identifier: Apache-2.0
"""The rows of the catalogue: of every entry point valid calls, whose arguments tests/lib/malformed_classes.py makes malformed.

Operators have theirs in tests/lib/samples already; the rest is here. `missing()` names what has none.
"""

import copy
import functools
import importlib
import inspect
import io
import itertools
import operator
import pickle
import tempfile
from dataclasses import dataclass, field

import torch
from malformed import ints
from samples import OPS, SEQUENCES

import torch_lod as tl
from torch_lod.structure.lod import _load_lod
from torch_lod.tensor.derived import DerivedTensor
from torch_lod.tensor.lod_tensor import _load_lod_tensor
from torch_lod.tensor.picking import SequenceIndex

nn, paddle = tl.nn, tl.paddle
RAW = {s.name.split("::")[1]: s for s in torch._C._jit_get_all_schemas() if s.name.startswith("torch_lod::")}
#: Samples of an operator that are made malformed, of all that the laws run.
SAMPLES = 3
LENGTHS = [[2, 1], [1, 2, 3]]


@dataclass(frozen=True)
class Call:
    """function(*args, **kwargs) is valid."""

    function: object
    args: tuple = ()
    kwargs: dict = field(default_factory=dict)


def rows(width=3, seed=0):
    return torch.randn(6, width, generator=torch.Generator().manual_seed(seed))


def lod(names=("a", "b")):
    return tl.LoD.from_lengths(LENGTHS, level_names=names)


def two(width=3, seed=0):
    return tl.LoDTensor(rows(width, seed), lod())


def one(width=3, seed=0):
    return tl.from_lengths(rows(width, seed), [[1, 2, 3]])


def ids():
    return tl.from_lengths(torch.tensor([0, 3, 1, 2, 2, 4]), [[1, 2, 3]])


def _saved(value) -> bytes:
    torch.save(value, file := io.BytesIO())
    return file.getvalue()


def _load(data, **options):
    return torch.load(io.BytesIO(data) if isinstance(data, bytes) else data, weights_only=True, **options)


def _mapped(data: bytes):
    with tempfile.NamedTemporaryFile() as file:
        file.write(data)
        file.flush()
        return torch.load(file.name, weights_only=True, mmap=True)


# -- methods: the object is an argument as well


def _step_of_state(x, state):
    return x + state, state


def _stepping(tokens, state, static=None):
    return torch.linspace(0, 1, 5).log_softmax(0).expand(len(tokens), 5), state


def _scoring(prefixes):
    return torch.zeros(len(prefixes.lengths()), 3)


def _flipped(stack):
    return stack.flip(-1)


def _masked(x, y, each, mask):
    return x * mask[0][..., None], (y.sum(1)[:, :2] * each)[None]


def _attending(x, state, memory):
    return x + tl.sequence_pool(memory, "sum") + state, state


def _get(x, key):
    return x[key]


def _put(x, key, value):
    x[key] = value
    return x


def _seq(x, key):
    return x.seq[key]


def _each(x):
    return list(x.seq), len(x.seq), repr(x.seq)


METHODS = {
    tl.LoDTensor: {
        **{n: [()] for n in "level_names levels lod lod_level recursive_sequence_lengths".split()},
        **{n: [()] for n in "to_list to_nested to_packed_sequence values".split()},
        "branch": [(1, 0), (0,)],
        "copy_lod_from": [(two(),)],
        "cu_seqlens": [(-1,)],
        "drop_level": [(0,), ("b",)],
        "elements": [(1,)],
        "filter": [(torch.tensor([True, False] * 3),), ((torch.tensor([True, False, True]),), {"level": 0})],
        "filter_rows": [(torch.tensor([True, False] * 3),)],
        "flatten_levels": [(0, 1)],
        "group": [([1, 1], "top")],
        "has_valid_recursive_sequence_lengths": [()],
        "head": [(1,), ((2,), {"level": 0})],
        "lengths": [(0,)],
        "lod_append": [([1, 0, 1, 2, 1, 1], None)],
        "lod_reset": [([[2, 4]],), (ints(2, 4),), (lod(),), (two(),)],
        "lod_slice": [(0, 0, 1)],
        "lod_slice_shared": [(1, 0, 2)],
        "mask": [(-1, 4, "right"), (0,)],
        "max_length": [(-1,)],
        "nth": [((1,), {"padding_value": 2.0}), ((0,), {"level": 0})],
        "num_sequences": [(0,)],
        "offsets": [(-1,)],
        "permute_sequences": [([1, 0],), ((ints(0, 1, 2),), {"level": 1})],
        **{key: [(-1,)] for key in ("is_first", "is_last", "position_ids", "segment_ids")},
        "row_offsets": [(-1,)],
        "sequences": [(0,), (-1,)],
        "set_lod": [(lod(),), ([[0, 2], [0, 2, 6]],)],
        "set_recursive_sequence_lengths": [([[2, 1], [1, 2, 3]],)],
        "share_lod_from": [(two(),)],
        "slice": [(0, 0, 1), (1, -1)],
        "spans": [((tl.zeros(lod(), dtype=torch.int64), tl.ones(lod(), dtype=torch.int64)), {"level": -1})],
        "tail": [(2,), ((1,), {"level": "a"})],
        "to_padded": [((0.5,), {"level": -1, "max_length": 4, "side": "left"}), ((0,), {"level": "all"})],
        "unbind_sequences": [(0,)],
        "with_lod": [(lod(),)],
        "with_values": [(rows(),)],
        "set_": [(rows(),)],
        "__getitem__": [(0,), (slice(1, 3),), (ints(0, 2),), ((slice(None), 0),), (torch.ones(6, dtype=torch.bool),)],
        "__setitem__": [(slice(None), 1.0), ((slice(None), 0), rows()[:, 0]), (torch.ones(6, dtype=torch.bool), two())],
        "__repr__": [()],
        "_repr_html_": [()],
        "__deepcopy__": [({},)],
        "__reduce_ex__": [(2,)],
        "__len__": [()],
        "__iter__": [()],
        "__setstate__": [(({},))],
    },
    tl.LoD: {
        "agreed": [(lod(),)],
        "append": [([1, 0, 1, 2, 1, 1], "word")],
        "block_mask": [((lod(),), {"level": -1, "causal": True, "window": (1, 1), "block_size": 2, "device": "cpu"})],
        "branch": [(1, 0)],
        "cu_seqlens": [((-1,), {"device": torch.device("cpu")})],
        "depth": [()],
        "difference": [(lod(),)],
        "differs": [(lod(),)],
        "drop_level": [(0,)],
        "flatten": [(0, 1)],
        "from_lengths": [(LENGTHS,), ((), {"lengths": [ints(2, 1), ints(1, 2, 3)], "level_names": ["a", "b"]})],
        "from_row_offsets": [([[0, 3, 6], [0, 1, 3, 6]],)],
        "from_segment_ids": [(ints(0, 0, 1, 2, 2, 2), 4)],
        "group": [([1, 1], None)],
        "is_trivial": [()],
        "lengths": [(-1,)],
        "level": [("a",), (0,)],
        "level_names": [()],
        "locate": [((1, 0),)],
        "max_length": [(-1,)],
        "with_level_names": [(["x", "y"],)],
        "num_sequences": [(0,)],
        "offsets": [(0,)],
        "outer": [(1,)],
        "position_ids": [((-1,), {"device": torch.device("cpu")})],
        "row_lengths": [(0, torch.device("cpu"))],
        "row_offsets": [(0, torch.device("cpu"))],
        "rows": [()],
        "counted": [()],
        "segment_ids": [(0,)],
        "slice": [(0, 0, 1), (1, 1)],
        "to_lengths": [()],
        "to_list": [()],
        "__eq__": [(lod(),)],
        "__hash__": [()],
        "__repr__": [()],
        "__len__": [()],
        "__deepcopy__": [({},)],
        "__copy__": [()],
        "__reduce__": [()],
        "__setattr__": [("rows", 3)],
        "__delattr__": [("rows",)],
    },
    DerivedTensor: {"lod": [()], "rows_dim": [()], "values": [()]},
    tl.ErrorRate: {
        "compute": [()],
        "reset": [()],
        "update": [(ids(), ids())],
        "__call__": [(ids(), ids())],
    },
    tl.RankTable: {
        "active": [(0,)],
        **{key: [()] for key in ("index", "items", "lengths", "steps")},
    },
    tl.BeamSearch: {
        "__call__": [
            (ints(1, 2), torch.zeros(2, 3), {"memory": tl.from_lengths(rows()[:, :4], [[2, 4]])}),
            (tl.from_lengths(ints(1, 2), [[2]]), (torch.zeros(2), tl.from_lengths(rows(), LENGTHS))),
        ],
    },
    tl.ChunkEvaluator: {"update": [(ids(), ids())], "compute": [()], "reset": [()]},
}
#: Of LoD's: how operators read it and make others; they trust their callers.
INTERNAL = set(
    "counted_rows counted_with counting mingled cut part runs take under any_empty_at checked elements_at end_rows_at handed_out last_rows_at levels longest_at lengths_at longest_rows_at"
    " dense_lengths_at from_steps_at moves place_at spread_at step_sizes_at steps_at joined of_padded offsets_at outer_at padded_starts_at padding_at parents_at parsed_ids rank_at parsed_lengths parsed_offsets remember row_lengths_at row_offsets_at segment_ids_at sliced together_at".split()
)


def _property(name):
    return operator.attrgetter(name)


def _methods():
    objects = {tl.LoDTensor: (two, one), tl.LoD: (lod,), tl.RankTable: (lambda: tl.RankTable(lod(), 0),)}
    objects[tl.BeamSearch] = (lambda: tl.BeamSearch(_stepping, end=0, beam=2, max_length=3),)
    objects[tl.ChunkEvaluator] = (lambda: tl.ChunkEvaluator("IOB", 2),)
    objects[tl.ErrorRate] = (tl.ErrorRate,)
    objects[DerivedTensor] = (lambda: two().t(), lambda: two().sum(0))
    for cls, methods in METHODS.items():
        for name, givens in methods.items():
            for make, given in itertools.product(objects[cls], givens):
                args, kwargs = (
                    given if given and isinstance(given[0], tuple) and isinstance(given[-1], dict) else (given, {})
                )
                found = inspect.getattr_static(cls, name)
                if isinstance(found, (classmethod, staticmethod)):
                    yield f"{cls.__name__}.{name}", Call(getattr(cls, name), args, kwargs)
                elif callable(found):
                    yield f"{cls.__name__}.{name}", Call(getattr(cls, name), (make(), *args), kwargs)
                else:
                    yield f"{cls.__name__}.{name}", Call(_property(name), (make(),))
    for key in (0, slice(0, 2), [1, 0], ints(1, 0), torch.tensor([True, False])):
        yield "SequenceIndex.__getitem__", Call(_seq, (two(), key))
    mask, turned = torch.tensor([True, False, True]), (slice(0, 2), slice(None, None, -1), 0)
    for key in ((1, 0), (0, slice(0, 1)), turned, (slice(0, 2), mask)):
        yield "SequenceIndex.__getitem__", Call(_seq, (two(), key))
    yield "SequenceIndex.__iter__", Call(_each, (two(),))


# -- modules: made, and called

MADE = {
    "GRU": [((3, 2), {"num_layers": 2, "dropout": 0.5, "bidirectional": True, "bias": True, "level": -1})],
    "LSTM": [((3, 2), {"proj_size": 1, "num_layers": 1, "dtype": torch.float32, "device": torch.device("cpu")})],
    "RNN": [((3, 2, 1, "relu"), {"bias": False})],
    "AttentionPool": [((3, 2), {"level": -1})],
    "CTCLoss": [((0, "sum"), {"zero_infinity": True, "norm_by_times": False, "level": -1})],
    "DynamicRNN": [((torch.nn.GRUCell(3, 2),), {"reverse": False})],
    "MapSequences": [((torch.nn.Linear(3, 2),), {"level": -1, "results": "rows", "fill": 0.5})],
    "LinearChainCRF": [((3,), {"allowed": torch.ones(3, 3).bool(), "allowed_end": torch.ones(3).bool(), "level": -1})],
    "MultiheadAttention": [((4, 2, 0.5), {"causal": True, "window": 2, "alibi": True, "kdim": 4, "sink": True})],
    "Plain": [((torch.nn.Linear(3, 2), 1), {})],
    "GatedDeltaNet": [((3, 1, 2, 4, 5, 3, 1e-6), {"level": "b"})],
    "Mamba2": [((3, 2, 3, 2, 3, 1), {"bias": True, "conv_bias": False, "dt_limit": (0.0, 1.0), "level": 0})],
    "RelativePositionBias": [((2, 8, 16), {"bidirectional": False})],
    "RowConv": [((3, 1), {"level": "b"})],
    "SequenceConv": [((3, 2, 3, -1), {"padding_trainable": True})],
    "SequenceConv1d": [((3, 2, 3), {"dilation": 2, "padding": "causal", "groups": 1})],
    "SequencePool": [(("sum",), {"padding_value": 0.5})],
    "SequenceSoftmax": [((), {"level": 0})],
    "TransformerEncoderLayer": [((4, 2, 8, 0.5), {"activation": "gelu", "layer_norm_eps": 1e-5, "causal": True})],
}


def _run(module, *args, **kwargs):
    return module(*args, **kwargs)


def _made(cls, *args, **kwargs):
    """A module, and what it makes of rows if it can be called with them."""
    module = cls(*args, **kwargs)
    of_four = isinstance(module, (nn.MultiheadAttention, nn.TransformerEncoderLayer))
    return module, module.eval()(two(4 if of_four else 3))


def _only_made(cls, *args, **kwargs):
    return cls(*args, **kwargs)


def _tensors(module, x):
    return module.tensors(x)


def _modules():
    for name, givens in MADE.items():
        for args, kwargs in givens:
            form = _only_made if name in ("CTCLoss", "LinearChainCRF", "Plain", "RelativePositionBias") else _made
            yield f"nn.{name}", Call(functools.partial(form, getattr(nn, name)), args, kwargs)
    gru, h = nn.GRU(3, 2), torch.zeros(1, 3, 2)
    forwards = {
        "GRU": [(gru, two(), h), (nn.GRU(3, 2, 2, bidirectional=True), one())],
        "LSTM": [
            (nn.LSTM(3, 2), two(), (h, h)),
            (nn.LSTM(3, 4, proj_size=2), one()),
            (nn.LSTM(3, 2, bias=False), one()),
        ],
        "RNN": [(nn.RNN(3, 2), two(), h)],
        "AttentionPool": [(nn.AttentionPool(3, 2), two())],
        "CTCLoss": [(nn.CTCLoss(), one(), tl.from_lengths(ints(1, 2, 1), [[1, 0, 2]]))],
        "DynamicRNN": [(nn.DynamicRNN(torch.nn.GRUCell(3, 2)), two(), torch.zeros(3, 2))],
        "LinearChainCRF": [
            (nn.LinearChainCRF(3), two(), ints(*[0, 1, 2] * 9)[: two().lod.rows]),
            (nn.LinearChainCRF(3, level=0), two(), two() > 0),
        ],
        "MapSequences": [(nn.MapSequences(torch.nn.Bilinear(3, 3, 2)), two(), two(seed=1))],
        "MultiheadAttention": [(nn.MultiheadAttention(4, 2), one(4), one(4, 1), one(4, 2))],
        "GatedDeltaNet": [(nn.GatedDeltaNet(3, 1, 2, 4, 5), two(), None, True)],
        "Mamba2": [(nn.Mamba2(3, 2, head_dim=3), two(), None, True)],
        "RelativePositionBias": [(nn.RelativePositionBias(2),)],
        "RowConv": [(nn.RowConv(3, 1), two())],
        "SequenceConv": [(nn.SequenceConv(3, 2, 3, padding_trainable=True), two())],
        "SequenceConv1d": [(nn.SequenceConv1d(3, 2, 3), two())],
        "SequencePool": [(nn.SequencePool("max"), two())],
        "SequenceSoftmax": [(nn.SequenceSoftmax(), two())],
        "TransformerEncoderLayer": [(nn.TransformerEncoderLayer(4, 2, 8).eval(), two(4))],
    }
    for name, givens in forwards.items():
        for given in givens:
            yield f"nn.{name}.forward", Call(_run, given)
    crf = nn.LinearChainCRF(3, allowed=torch.eye(3).bool())
    for name, args in {
        "decode": (two(), 2),
        "marginals": (two(),),
        "sample": (two(), 2),
        "log_partition": (two(),),
    }.items():
        yield f"nn.LinearChainCRF.{name}", Call(getattr(nn.LinearChainCRF, name), (crf, *args))
    yield "nn.LinearChainCRF.transition", Call(nn.LinearChainCRF.transition, (crf,))
    plain = nn.Plain(torch.nn.Linear(3, 2), 1)
    yield "nn.Plain.tensors", Call(_tensors, (plain, one()))
    yield "nn.Plain.forward", Call(_run, (plain, *plain.tensors(one())))
    for options in ({"bidirectional": False}, {"level": -1}):
        yield "nn.last_state", Call(nn.last_state, (h, one()), options)


# -- functions without an entry among the samples


def _calls():
    x, y, table = two(), one(), tl.lod_rank_table(two())
    of_rows = {
        "batch": [
            (([one(), one()], "text"), {}),
            (([rows(), rows()[:2]],), {}),
            (([{"words": [1, 2], "label": 0}, {"words": [3], "label": 1}],), {"name": "text"}),
            (([["to be", ""], ["or"]],), {"strings": "bytes"}),
            (([["to be", ""], ["or"]],), {"strings": str.encode}),
        ],
        "LoD": [(([[0, 2, 3], [0, 1, 3, 6]],), {"level_names": ["a", "b"]}), (([ints(0, 2, 6)],), {})],
        "LoDTensor": [((rows(), lod()), {})],
        "DerivedTensor": [((rows(),), {})],
        "cat": [(([x, x], "sequences"), {"level": 0}), (([x, x], "within"), {}), (([x, x], "features"), {"dim": 1})],
        "describe": [((x,), {}), ((lod(),), {})],
        "explain": [((tl.sequence_reverse, x), {}), ((tl.sequence_pool, x, "sum"), {"level": 0})],
        "strict": [((), {}), ((False,), {})],
        "include_paths": [((), {})],
        "empty": [((lod(), 3), {"dtype": torch.float32})],
        "zeros": [((lod(), 3), {"device": torch.device("cpu")})],
        "ones": [((lod(), 3, 2), {})],
        "rand": [((lod(), 3), {"requires_grad": True})],
        "randn": [((lod(),), {})],
        "full": [((lod(), 3), {"fill_value": 2.0})],
        "from_cu_seqlens": [((rows(), ints(0, 2, 6)), {"level_names": ["a"]})],
        "from_lengths": [((rows(), LENGTHS), {}), ((rows(), [ints(2, 4)]), {"level_names": ["a"]})],
        "from_nested": [((torch.nested.nested_tensor([rows(), rows()], layout=torch.jagged),), {})],
        "from_offsets": [((rows(), [[0, 3, 6]]), {}), ((rows(), [ints(0, 2, 6)]), {})],
        "from_packed_sequence": [((torch.nn.utils.rnn.pack_sequence([rows(), rows()[:2]]),), {})],
        "from_padded": [
            ((torch.ones(2, 3, 4), [2, 3]), {"side": "left"}),
            ((torch.ones(2, 3), None, torch.ones(2, 3, dtype=torch.bool)), {}),
        ],
        "from_boundaries": [((rows(), [ints(0, 0, 1, 0, 0, 0), torch.tensor([True, False] * 3)]), {})],
        "from_edges": [((x[:, :2].mul(0).long(), x), {"absolute": False})],
        "from_segment_ids": [
            ((rows(), ints(0, 0, 1, 1, 1, 3), 5), {}),
            ((rows(), ints(3, 0, 1, 1, 0, 3)), {"sort": True}),
        ],
        "from_tensors": [(([rows(), rows()[:2]],), {"level_names": ["a"]})],
        "lod_tensor": [(([[1.0, 2.0], [3.0]],), {"depth": 1, "dtype": torch.float32, "requires_grad": True})],
        "per_sequence": [((rows(), 0), {}), ((rows(),), {"level": "a"})],
        "stack": [(([x, x],), {"dim": 1})],
        "scan": [
            ((_step_of_state, y, torch.zeros(3, 3)), {}),
            ((torch.nn.GRUCell(3, 2), y, torch.zeros(3, 2)), {"level": -1, "reverse": True}),
            ((_attending, y, torch.zeros(3, 3)), {"static": one(seed=1)}),
            ((torch.tanh,), {"lengths": [2, 0, 1], "init": torch.zeros(3, 3)}),
        ],
        "map_sequences": [
            ((_flipped, two()), {"level": -1, "layout": "channels", "results": "rows"}),
            (
                (_masked, one(), one(seed=1), torch.zeros(3, 2)),
                {"results": ("rows", ("sequences", 1)), "pad_to": [2, 4], "fill": 1},
            ),
        ],
        "broadcast": [((tl.from_lengths(rows()[:2], [[2]]), tl.from_lengths(rows(), [[2], [2, 4]])), {})],
        "create_lod_tensor": [((rows(), [[2, 4]]), {}), (([[1, 2], [3]], [[2, 1]]), {"device": torch.device("cpu")})],
        "create_random_int_lodtensor": [(([[2, 1]], [2], 0, 9), {})],
        "RankTable": [((lod(), 0), {})],
        "ctc_beam_decode": [((x,), {"beam": 3, "n_best": 2, "threshold": 0.1, "language_model": _scoring})],
        "BeamSearch": [((_stepping,), {"end": 0, "beam": 2, "n_best": 2, "max_length": 4, "length_penalty": 0.6})],
        "ChunkEvaluator": [(("IOBES", 1), {"excluded_chunk_types": [0], "level": -1})],
        "ErrorRate": [((), {"level": -1})],
        "array_to_lod_tensor": [((tl.lod_tensor_to_array(x, table), table), {})],
        "lod_rank_table": [((x,), {"level": 0})],
        "lod_tensor_to_array": [((x, table), {})],
        "max_sequence_len": [((table,), {})],
        "merge_lod_tensor": [((rows()[:1], rows()[:1], x, torch.tensor([[True], [False]])), {})],
        "reorder_lod_tensor_by_rank": [((x, table), {})],
        "shrink_memory": [((torch.zeros(2, 3), 1, table), {})],
        "split_lod_tensor": [((x, torch.tensor([True, False])), {"level": 0})],
        "attention_lstm": [((y, torch.zeros(3, 2), torch.ones(5, 1), torch.ones(5, 8), torch.ones(1, 8)), {})],
        "dynamic_gru": [
            ((one(6), torch.ones(2, 6), torch.ones(1, 6), torch.zeros(3, 2)), {"gate_activation": "sigmoid"})
        ],
        "dynamic_lstm": [((one(8), torch.ones(2, 8), torch.ones(1, 14)), {"use_peepholes": True})],
        "dynamic_lstmp": [((one(8), torch.ones(3, 8), torch.ones(2, 3), torch.ones(1, 14)), {"cell_clip": 1.0})],
        "fused_embedding_fc_lstm": [((ids(), torch.ones(5, 8), torch.ones(2, 8)), {"use_peepholes": False})],
        "fusion_gru": [((y, torch.ones(3, 6), torch.ones(2, 6)), {})],
        "fusion_lstm": [((y, torch.ones(3, 8), torch.ones(2, 8)), {"use_peepholes": False})],
        "gru_unit": [((rows(6), rows(2), torch.ones(2, 6)), {"activation": "tanh"})],
        "lstm_unit": [((rows(8), rows(2), 0.5), {})],
    }
    for name, givens in of_rows.items():
        for args, kwargs in givens:
            yield f"tl.{name}", Call(getattr(tl, name), args, kwargs)


def _operators():
    """Operators: evenly among the samples that the laws run."""
    for info in SEQUENCES:
        dtype = torch.float32 if torch.float32 in info.dtypes else info.dtypes[0]
        for sample in _few(info.samples(dtype, "cpu")):
            yield f"tl.{info.name}", Call(getattr(tl, info.name), sample.args, sample.kwargs)
    for info in OPS:
        dtype = torch.float32 if torch.float32 in info.dtypes else info.dtypes[0]
        for sample in _few(info.samples(dtype, "cpu")):
            yield f"torch.ops.torch_lod.{info.name}", Call(info.op, sample.args, sample.kwargs)
            if info.name in tl.ops.__all__:
                yield f"tl.ops.{info.name}", Call(getattr(tl.ops, info.name), sample.args, sample.kwargs)
            composed = f"{info.name}_composed"
            if composed in RAW:
                yield (
                    f"torch.ops.torch_lod.{composed}",
                    Call(getattr(torch.ops.torch_lod, composed).default, sample.args),
                )
    raw = torch.ops.torch_lod
    yield "torch.ops.torch_lod.keep_structure", Call(raw.keep_structure.default, (ints(0, 1, 3), 3, True))
    watched = (ints(0, 2), ints(0, 2, 6), "runs", 6, 6, 1, "gather_runs")
    yield "torch.ops.torch_lod.watch_structure", Call(raw.watch_structure.default, watched)
    yield "torch.ops.torch_lod.check_errors", Call(raw.check_errors.default, (True,))
    yield "tl.check_errors", Call(tl.check_errors, ())
    yield "torch.ops.torch_lod.check_lod", Call(raw.check_lod.default, ([ints(0, 1, 3), ints(0, 1, 3, 6)], 6))
    taken = ([ints(0, 1, 3, 6)], ints(1, 0), ints(2, 1), 3)
    yield "torch.ops.torch_lod.take_runs", Call(raw.take_runs.default, taken)
    nested = [ints(0, 2), ints(0, 1, 3)]
    yield "torch.ops.torch_lod.cut_lod", Call(raw.cut_lod.default, (nested, 0, 1))
    yield "torch.ops.torch_lod.join_lods", Call(raw.join_lods.default, (nested * 2, 2, False, True))
    yield "torch.ops.torch_lod.locate", Call(raw.locate.default, (ints(0, -1, 1), ints(0, 1, 3), ints(0, 2, 6)))
    yield "torch.ops.torch_lod.rank_by_length", Call(raw.rank_by_length.default, (ints(0, 1, 3, 6),))
    yield "tl.ops.rank_by_length", Call(tl.ops.rank_by_length, (ints(0, 1, 3, 6),))


def _few(samples):
    """Those with rows, evenly from all of them."""
    kept = [s for s in samples if not s.large and any(t.numel() for t in _tensors_of((s.args, s.kwargs)))]
    typical = [s for s in kept if "typical" in s.label or s.label.startswith(("two {", "two ("))] or kept
    return typical[:: max(1, -(-len(typical) // SAMPLES))]


def _tensors_of(value):
    if isinstance(value, tl.LoDTensor):
        return [value.values()]
    if isinstance(value, torch.Tensor):
        return [value]
    items = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    return [t for item in items for t in _tensors_of(item)]


# -- loaders


def _loaders():
    small = tl.from_lengths(torch.arange(6.0), LENGTHS, level_names=["a", "b"])
    yield "torch.load", Call(_load, (_saved(small),))
    yield "torch.load", Call(_load, (_saved({"lod": small.lod, "list": [small]}),))
    yield "torch.load mmap", Call(_mapped, (_saved(small),))
    for value in (small, small.lod, [small, small.lod]):
        yield "copy.copy", Call(copy.copy, (value,))
        yield "copy.deepcopy", Call(copy.deepcopy, (value,))
        yield "pickle", Call(_pickled, (value,))
    yield "_load_lod", Call(_load_lod, ([[0, 2, 3], [0, 1, 3, 6]], ("a", "b")))
    yield "_load_lod_tensor", Call(_load_lod_tensor, (torch.arange(6.0), small.lod, False))


def _pickled(value):
    return pickle.loads(pickle.dumps(value))


def calls():
    """(entry point, valid call)"""
    # which have calls of their own, made as those here
    others = map(importlib.import_module, ("malformed_data", "malformed_distributed", "malformed_cache"))
    for made in (_operators, _calls, *(other.calls for other in others), _methods, _modules, _loaders):
        yield from made()


def entry_points() -> set[str]:
    """Everything that a user can call, read from the package."""
    found = {f"tl.{name}" for name in [*tl.__all__, *paddle.__all__] if callable(getattr(tl, name))} - {"tl.LoDError"}
    found |= {f"tl.data.{name}" for name in tl.data.__all__}
    found |= {f"tl.distributed.{name}" for name in tl.distributed.__all__}
    found |= {f"tl.integrations.transformers.{name}" for name in tl.integrations.transformers.__all__}
    found |= {f"tl.ops.{name}" for name in tl.ops.__all__ if name != "COMPILED"}
    found |= {f"torch.ops.torch_lod.{name}" for name in RAW}
    for name in nn.__all__:
        thing = getattr(nn, name)
        found.add(f"nn.{name}")
        if isinstance(thing, type):
            found.add(f"nn.{name}.forward")
            own = [n for n, f in vars(thing).items() if inspect.isfunction(f) and n[0] != "_"]
            found |= {f"nn.{name}.{n}" for n in own if n not in ("extra_repr", "reset_parameters", "export", "to_onnx")}
    plain = set(dir(torch.Tensor))
    found |= {
        f"LoDTensor.{n}"
        for n in set(dir(two())) - plain | set(vars(tl.LoDTensor)) & plain
        if n[0] != "_" and n not in ("seq", "batch_sizes")  # the latter only raises
    }
    found |= {f"DerivedTensor.{n}" for n in set(dir(DerivedTensor)) - plain if n[0] != "_"}
    found |= {f"LoD.{n}" for n in dir(tl.LoD) if n[0] != "_" and n not in INTERNAL}
    found |= {f"RankTable.{n}" for n in dir(tl.RankTable) if n[0] != "_"}
    found |= {"BeamSearch.__call__"}
    found |= {f"{kind.__name__}.{n}" for kind in (tl.Cache, tl.ChunkEvaluator) for n in dir(kind) if n[0] != "_"}
    found |= {f"SequenceIndex.{n}" for n in ("__getitem__", "__iter__") if n in vars(SequenceIndex)}
    torchs = {f"LoDTensor.{name}" for name in ("real", "imag", "T", "mT", "mH")}  # the table's tests have them
    return found - torchs


def missing() -> set[str]:
    return entry_points() - {name for name, _ in calls()}
