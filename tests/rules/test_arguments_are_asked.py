# SPDX-License-Identifier: Apache-2.0
"""Every argument of every public function, method and module, and what every function of the user's returns, is asked what
it is made of: what lost the structure of its rows is refused, and so are rows at another dim."""

import inspect
import types

import pytest
import torch

import torch_lod as tl
from torch_lod import LoDError, LoDTensor
from torch_lod.integrations import transformers
from torch_lod.tensor.attributes import Traced

SPACES = {
    "tl": tl,
    "tl.nn": tl.nn,
    "tl.data": tl.data,
    "tl.distributed": tl.distributed,
    "tl.paddle": tl.paddle,
    "transformers": transformers,
}
METHODS = ("__init__", "__call__", "__getitem__")
ROWS = torch.arange(22.0).view(11, 2)


def batch() -> LoDTensor:
    return tl.from_lengths(ROWS.clone(), [[4, 2, 5]])


def lost():
    return batch().mean(0)


def functions() -> dict:
    found: dict = {}
    for label, space in SPACES.items():
        for name in getattr(space, "__all__", dir(space)):
            value = getattr(space, name)
            if name.startswith("_") or isinstance(value, types.ModuleType) or value is tl.LoD:  # which has no rows
                continue
            if inspect.isclass(value):
                found |= {f"{value.__name__}.{key}": f for key, f in methods(value).items()}
            elif callable(value):
                found[f"{label}.{name}"] = value
    found |= {f"x.seq.{key}": f for key, f in methods(type(batch().seq)).items()}
    return found


def methods(cls) -> dict:
    found: dict = {}
    for base in cls.__mro__:
        if base.__module__.partition(".")[0] != "torch_lod" or base is Traced:  # which has torch's own methods
            continue
        for key, value in vars(base).items():
            value = value.__func__ if isinstance(value, (staticmethod, classmethod)) else value
            if inspect.isfunction(value) and (key in METHODS or not key.startswith("_")):
                found.setdefault(key, value)
    return found


#: They give their arguments a new structure, whatever they were rows of: what is made so was declared.
DECLARE = """tl.from_lengths tl.from_offsets tl.from_segment_ids tl.from_boundaries tl.from_cu_seqlens tl.from_tensors tl.from_padded tl.from_nested
    tl.from_packed_sequence tl.lod_tensor tl.batch  tl.data.from_mask
    tl.data.from_position_ids tl.data.from_keys tl.data.from_sparse tl.data.from_frame tl.data.from_arrow tl.data.from_awkward transformers.from_encoding
    tl.data.collate tl.paddle.create_lod_tensor tl.paddle.create_random_int_lodtensor""".split()
#: They run functions of the user's, or print; refuse any argument; have no tensor as an argument; are asked by what they call.
OTHERS = """tl.explain tl.describe tl.data.save strict.__init__ strict.switch LoDTensor.set_ DerivedTensor.set_ RankTable.__init__ RankTable.active
    x.seq.__init__ Plain.forward""".split()
OTHERS += [
    f"{module}.{name}"
    for module in ("LinearChainCRF", "MultiheadAttention", "RelativePositionBias")
    for name in ("constant", "restore")
]
#: They are asked on every rank in the same call: test_distributed.py.
RANKS = """tl.distributed.all_gather tl.distributed.gather tl.distributed.scatter tl.distributed.broadcast tl.distributed.all_to_all
    tl.distributed.global_token_count tl.distributed.global_token_mean""".split()


def not_asked(name: str, func, parameter) -> str | None:
    """How a function took what lost its rows as an argument; the others are no arguments at all."""
    given, named = [], {}
    for p in inspect.signature(func).parameters.values():
        if p.name in ("self", "cls"):
            given.append(batch() if name.startswith("LoDTensor.") else object())
        elif p.name == parameter.name or (p.kind <= p.POSITIONAL_OR_KEYWORD and p.default is p.empty):
            value = lost() if p.name == parameter.name else object()
            if (
                p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD) and p.default is not p.empty
            ) or p.kind == p.KEYWORD_ONLY:
                named[p.name] = value
            else:
                given.append(value)
    try:
        func(*given, **named)
    except LoDError as error:
        said = str(error)
        return None if f"expected {parameter.name} as" in said and "lost their structure in mean" in said else said
    except Exception as error:
        return f"raises {error!r}"
    return "takes it"


def arguments():
    for name, func in functions().items():
        if name in DECLARE + OTHERS + RANKS:
            continue
        for parameter in inspect.signature(func).parameters.values():
            if parameter.name not in ("self", "cls") and parameter.kind is not parameter.VAR_KEYWORD:
                yield name, func, parameter


def test_every_argument_is_asked(record_property):
    found = [(f"{name}({p.name})", not_asked(name, func, p)) for name, func, p in arguments()]
    wrong = {name: why for name, why in found if why}
    counts = f"{len(found)} arguments of {len(functions())} functions, methods and modules, {len(wrong)} not asked"
    record_property("arguments", counts)
    print(counts)
    assert not wrong, wrong
    assert len(found) > 600
    gone = {*DECLARE, *OTHERS, *RANKS} - functions().keys()
    assert not gone, gone


#: What the user's functions return, with the parameters by which they are given.
CALLBACKS = {
    "tl.scan(cell)": lambda: tl.scan(lambda a, h: (a + lost(), a), batch(), torch.zeros(3, 2)),
    "tl.map_sequences(fn)": lambda: tl.map_sequences(lambda t: lost().expand(t.shape), batch()),
    "DynamicRNN.__init__(cell)": lambda: tl.nn.DynamicRNN(lambda a, h: (lost().expand(len(a), 2), h))(
        batch(), torch.zeros(3, 2)
    ),
    "BeamSearch.__init__(step)": lambda: tl.BeamSearch(lambda t, s: (lost().expand(len(t), 2), s), end=0)(
        torch.zeros(3, dtype=torch.int64)
    ),
    "tl.ctc_beam_decode(language_model)": lambda: tl.ctc_beam_decode(
        batch(), language_model=lambda p: lost().expand(p.num_sequences(), 2)
    ),
    "TransformerEncoderLayer.__init__(activation)": lambda: tl.nn.TransformerEncoderLayer(
        2, 1, 4, activation=lambda t: t * lost().repeat(2)
    )(batch()),
    "transformers.check_packing(model)": lambda: transformers.check_packing(lambda **g: lost(), samples=[[1], [2]]),
    "transformers.check_packing(packing)": lambda: transformers.check_packing(
        lambda **g: torch.ones(1, 2), lambda s: {"input_ids": lost()}, samples=[[1], [2]]
    ),
    "transformers.check_packing(unpack)": lambda: transformers.check_packing(
        lambda **g: torch.ones(1, 2), unpack=lambda o: [lost(), lost()], samples=[[1], [2]]
    ),
}
#: Functions of the user's that return numbers, samples or structures, or whose results are returned as they are.
OF_NO_ROWS = {
    "tl.batch(strings)",
    "tl.data.collate(strings)",
    "TokenBudgetStream.__init__(source)",
    "TokenBudgetStream.__init__(cost)",
    "Record.map(function)",
    "LoDDataset.__init__(transform)",
}


def test_what_functions_of_the_user_return_is_asked():
    given = {
        f"{name}({p.name})"
        for name, func in functions().items()
        for p in inspect.signature(func).parameters.values()
        if "Callable" in str(p.annotation) or p.name == "cell"
    }
    given = {name for name in given if name.partition("(")[0] not in OTHERS}
    assert given == CALLBACKS.keys() | OF_NO_ROWS
    for call in CALLBACKS.values():
        with pytest.raises(LoDError, match=r"lost their structure in mean|became in mean"):
            call()


NESTED = {
    "a list": lambda: tl.cat([batch(), batch().mean(0)]),
    "a dict": lambda: tl.scan(lambda a, h: h, batch(), {"h": batch().mean(0, keepdim=True).expand(3, 2)}),
    "an index": lambda: batch().seq[(batch().mean(0) > 0).long()],
    "rows at another dim": lambda: tl.sequence_expand_as(batch().t(), batch()),
    "a key": lambda: tl.sequence_sort(batch(), batch()[torch.arange(11).flip(0)][:, 0]),
    "start": lambda: tl.rotary_embedding(batch()[:, :2], start=(batch().mean(0)[:2] * 3).long()),
    "a bias": lambda: tl.sequence_conv1d(batch(), torch.ones(3, 2, 1), batch().mean(0)[:1].expand(3)),
    "an offset": lambda: tl.sequence_slice(batch(), batch().mean(0).long()[:1].expand(3), [1, 1, 1]),
    "values of the same structure": lambda: tl.LoDTensor(batch()[torch.randperm(11)], batch().lod),
    "with_values": lambda: batch().with_values(batch()[torch.randperm(11)]),
    "data": lambda: setattr(batch(), "data", batch()[torch.randperm(11)]),
    "set_": lambda: batch().set_(batch()[torch.randperm(11)]),
    "set_ of rows at another dim": lambda: batch().t().set_(batch()[:, :1].clone().values()),
}


@pytest.mark.parametrize("name", NESTED)
def test_wherever_it_is_given(name):
    with pytest.raises(LoDError):
        NESTED[name]()


def test_states_may_have_their_sequences_at_another_dim():
    x = batch().group([2, 1])
    last = tl.sequence_pool(x, "last")
    assert last.unsqueeze(0).rows_dim == 1
    for layer in (tl.nn.GRU(2, 2), tl.nn.RNN(2, 2)):
        torch.testing.assert_close(layer(x, last.unsqueeze(0))[1], layer(x, last.values().unsqueeze(0))[1])


def test_values_and_new_structures_are_declared():
    x = batch()
    index = torch.randperm(11)
    declared = [
        tl.from_lengths(x[index], [[6, 5]]),
        tl.from_lengths(x[index], [[4, 2, 5]]),
        tl.LoDTensor(x[index], tl.LoD.from_lengths([[11]])),
        tl.from_tensors([x[index][:3], x[index][3:]]),
        tl.batch([x[0], x[1]]),
        x.with_values(x[index].values()),
        tl.sequence_expand_as(x.mean(0, keepdim=True).expand(3, 2).values(), x),
    ]
    assert all(type(t) is LoDTensor for t in declared)
