# SPDX-License-Identifier: Apache-2.0
"""Whose error it is: what a user's own function raises comes out as raised, what a call of ours raises goes by its name."""

import ast
import collections
import dataclasses
import pickle
import re
import traceback
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import torch_lod as tl
from torch_lod.errors import shown

X = tl.from_lengths(torch.arange(12.0).view(6, 2), [[2, 1], [1, 2, 3]], level_names=["text", "line"])
RAISED = [
    (ValueError, "segment_reduce: expected weights, got none"),
    (IndexError, "no such row"),
    (TypeError, "expected a tensor, got a list"),
    (KeyError, "word"),
    (RuntimeError, "out of paper"),
    (tl.LoDError, "expected better data, got this"),
]


def calls(fail):
    """A call of every kind that runs a function of the user's; `fail` raises."""
    layer = tl.nn.TransformerEncoderLayer(2, 1, 4)
    hooked = tl.nn.TransformerEncoderLayer(2, 1, 4)
    hooked.linear1.register_forward_hook(fail)
    deep = tl.nn.TransformerEncoderLayer(2, 1, 4)
    deep.self_attn.register_forward_pre_hook(fail)
    active = tl.nn.TransformerEncoderLayer(2, 1, 4, activation=fail)
    lstm = tl.nn.LSTM(2, 2)
    lstm.register_forward_hook(fail)
    state = torch.zeros(3, 2)
    distance = {"distance_function": fail, "reduction": "none"}
    return {
        "cell": lambda: tl.scan(fail, X, state),
        "cell in a cell": lambda: tl.scan(
            lambda x, s: (tl.scan(fail, x, s)[0], s), X, torch.zeros(2, 2), level=0, reverse=False
        ),
        "stacks": lambda: tl.map_sequences(fail, X),
        "hook": lambda: hooked(X),
        "hook before": lambda: deep(X),
        "hook of a recurrence": lambda: lstm(X),
        "activation": lambda: active(X),
        "distance": lambda: F.triplet_margin_with_distance_loss(X, X + 1, X + 2, **distance),
        "Plain": lambda: tl.nn.Plain(fail, 2)(*tl.nn.Plain(layer, 2).tensors(X)),
    }


@pytest.mark.parametrize("cls, message", RAISED, ids=lambda given: getattr(given, "__name__", ""))
@pytest.mark.parametrize("name", calls(print))
def test_errors_of_the_users_functions_come_out_as_raised(name, cls, message):
    error = cls(message)
    said = str(error)

    def fail(*args, **kwargs):
        raise error

    with pytest.raises(cls) as caught:
        calls(fail)[name]()
    assert caught.value is error and type(error) is cls and str(error) == said
    assert error.__cause__ is None and error.__context__ is None
    frame = traceback.extract_tb(error.__traceback__)[-1]
    assert (frame.filename, frame.name) == (__file__, "fail")


@pytest.mark.parametrize("name", calls(print))
def test_our_call_in_a_users_function_keeps_its_name(name):
    def fail(*args, **kwargs):
        return tl.sequence_pool(X, "mode")

    with pytest.raises(tl.LoDError) as caught:
        calls(fail)[name]()
    assert caught.value.call == "sequence_pool" and str(caught.value).startswith(
        "sequence_pool: expected pool_type in "
    )


@pytest.mark.parametrize(
    "call, name, said",
    [
        (
            lambda: tl.sequence_first_step(X, padding_value="a"),
            "sequence_first_step",
            "padding_value as a number, got 'a'",
        ),
        (lambda: tl.sequence_unpad(torch.zeros(2, 3), [4, 1]), "sequence_unpad", "lengths in [0, 3], got 4 at index 0"),
        (lambda: tl.sequence_pad(X, level="word"), "sequence_pad", "level in [-2, 1] or one of ('text', 'line')"),
        (lambda: tl.sequence_concat([X, X[:3]]), "sequence_concat", "got rows 0 to 3 of a LoDTensor, through getitem"),
        (lambda: tl.nn.SequencePool("mode")(X), "SequencePool", "pool_type in "),
        (lambda: tl.nn.AttentionPool(3)(X), None, "mat1 and mat2 shapes cannot be multiplied"),
        (lambda: tl.sequence_softmax(X.long()), "sequence_softmax", "values of dtype float16"),
        (lambda: tl.from_lengths(torch.ones(3), [[1, 1]]), "from_lengths", "to cover the 3 rows of values"),
    ],
)
def test_errors_go_by_the_call_that_the_user_made(call, name, said):
    with pytest.raises((tl.LoDError, RuntimeError)) as caught:
        call()
    message = str(caught.value)
    assert said in message
    assert getattr(caught.value, "call", None) == name and (name is None or message.startswith(f"{name}: expected "))


MISPLACED = {
    "sequence_softmax": (lambda: tl.sequence_softmax(X, 0), "got 0 as argument 2; write level=0"),
    "sequence_pool": (lambda: tl.sequence_pool(X, "sum", 0), "got 0 as argument 3; write padding_value=0 or level=0"),
    "sequence_first_step": (lambda: tl.sequence_first_step(X, 0.0), "write padding_value=0.0 or level=0.0"),
    "sequence_expand": (lambda: tl.sequence_expand(X, X, 0), "got 0 as argument 3; write ref_level=0"),
    "sequence_pad": (lambda: tl.sequence_pad(X, 0.0, 9), "got 9 as argument 3; write maxlen=9 or level=9"),
    "sequence_shift": (lambda: tl.sequence_shift(X, 1, 0.0, "line"), "got 'line' as argument 4; write level='line'"),
    "sequence_attention": (lambda: tl.sequence_attention(X, X, X, -1), "got -1 as argument 4; write level=-1"),
    "to_padded": (lambda: X.to_padded(0, 1), "got 1 as argument 2; write level=1 or max_length=1"),
    "nth": (lambda: X.nth(0, 1.0), "got 1.0 as argument 2; write padding_value=1.0"),
    "sequence_slice": (lambda: tl.sequence_slice(X, [0], [1], X), "got LoDTensor as argument 4; write level=..."),
}


@pytest.mark.parametrize("name", MISPLACED)
def test_what_goes_by_keyword_says_how_to_write_it(name):
    call, said = MISPLACED[name]
    with pytest.raises(TypeError) as caught:
        call()
    assert isinstance(caught.value, tl.LoDError)
    assert str(caught.value).startswith(f"{name}: expected ") and said in str(caught.value)


def test_typos_name_the_arguments_that_there_are():
    with pytest.raises(TypeError, match=r"^sequence_softmax: expected arguments x, level; .*'levle'"):
        tl.sequence_softmax(X, levle=0)
    with pytest.raises(TypeError, match=r"^sequence_pool: expected arguments x, pool_type, .*missing"):
        tl.sequence_pool(X)


def test_the_padding_value_goes_by_its_old_names():
    zeros = tl.from_lengths(torch.tensor([1, 2, 3]), [[1, 0, 2]])
    for old, call in [
        ("pad_value", lambda **k: tl.sequence_pool(zeros, "sum", **k)),
        ("pad_value", lambda **k: tl.sequence_first_step(zeros, **k)),
        ("pad_value", lambda **k: tl.sequence_last_step(zeros, **k)),
        ("pad_value", lambda **k: tl.sequence_topk(zeros, 2, **k)[0]),
        ("pad_value", lambda **k: tl.sequence_pad(zeros, **k)[0]),
        ("pad_value", lambda **k: tl.sequence_enumerate(zeros, 2, **k)),
        ("pad_value", lambda **k: zeros.nth(1, **k)),
        ("pad_value", lambda **k: tl.nn.SequencePool("max", **k)(zeros)),
        ("fill", lambda **k: tl.sequence_shift(zeros, 1, **k)),
    ]:
        assert torch.equal(call(**{old: 7}), call(padding_value=7)) and bool((call(**{old: 7}) == 7).any())
        with pytest.raises(TypeError, match=f"'{old}'"):
            call(**{old: 7, "padding_value": 7})


def test_assertions_of_compiled_code_name_the_call():
    """Where data is only asserted, no boundary adds the name."""
    package = Path(tl.__file__).parent
    said = []
    for path in package.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "failing":
                said.append((path.name, node.lineno, ast.unparse(node.args[1]).lstrip("f")))
    unnamed = [s for s in said if not re.match(r"""["']([\w.]+|\{call\}): |said$""", s[2])]
    assert len(said) >= 12 and [name for name, _, _ in unnamed] == ["lod.py"], (
        unnamed
    )  # differs, of whatever joins LoDs


def test_an_error_says_its_call_in_every_form():
    with pytest.raises(tl.LoDError) as caught:
        X.head(-1)
    assert (
        str(caught.value).startswith("head: expected k")
        and repr(caught.value) == f"LoDValueError({str(caught.value)!r})"
    )
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_a_number_that_fits_is_not_called_misplaced():
    with pytest.raises(TypeError, match="missing 1 required keyword-only argument: 'fill_value'"):
        tl.full(X.lod, 3)


class _Unread(torch.Tensor):
    def __repr__(self, **_):
        raise AssertionError("the numbers were read")


@dataclasses.dataclass
class _Holder:
    t: torch.Tensor


_Pair = collections.namedtuple("_Pair", "t n")


@pytest.mark.parametrize("depth", ["itself", "list", "pairs", "dict", "set", "named tuple", "dataclass", "array"])
def test_messages_do_not_read_tensors(depth):
    """There may be no memory behind them."""
    t = torch.ones(2).as_subclass(_Unread)
    array = np.empty(1, object)
    array[0] = t
    given = {
        **{"itself": t, "list": [t], "pairs": [(t, 5)], "dict": {"a": [{"b": t}]}, "set": {t}},
        **{"named tuple": [_Pair(t, 1)], "dataclass": _Holder(t), "array": array},
    }[depth]
    assert len(shown(given)) <= 60


def test_messages_show_what_was_given():
    assert shown([3, "a", None, 2.5, (1,)]) == "[3, 'a', None, 2.5, (1,)]"
    assert shown({"b": 1, "a": 2}) == "{'a': 2, 'b': 1}"
    assert shown(list(range(100))).startswith("[0, 1, 2, 3, 4, 5, 6, 7") and shown("x" * 99).startswith("'xxx")
    assert shown([(torch.ones(2), 5)]) == "[(a torch.float32 Tensor of shape (2,), 5)]"
    assert shown(2**200) == "an int of 201 bits"


IMAGE, MASK = torch.rand(1, 1, 4, 4), torch.tensor([[True, False], [True, True]])
SCALAR_BIAS = (torch.zeros(3, 2), torch.rand(4, 1), torch.rand(4, 8), torch.rand(8))
#: Calls with an argument that only others give a meaning, and what the error says.
WITHOUT_EFFECT = {
    "pool": (lambda: tl.sequence_pool(X, "mean", correction=0), "pool_type 'var' or 'std' with correction, got 'mean'"),
    "cat": (lambda: tl.cat([X, X], dim=1), "dim with along='features' only, got 1 with 'sequences'"),
    "cat within": (
        lambda: tl.cat([X, X], along="within", dim=0),
        "dim with along='features' only, got 0 with 'within'",
    ),
    "cat level": (lambda: tl.cat([X, X], along="features", level=1), "level with along='within' only, got 1 with"),
    "padded": (
        lambda: tl.from_padded(torch.rand(2, 2), mask=MASK, side="left"),
        "no side with a mask, which says where",
    ),
    "bucket": (
        lambda: tl.data.BucketSampler([1, 2], batch_size=1, too_large="cut"),
        "too_large with a budget only, got 'cut' with batch_size",
    ),
    "lengths": (
        lambda: tl.data.TokenBudgetSampler([1, 2], 3, level=1),
        "level with a LoD or LoDTensor only, got 1 with lengths",
    ),
    "images": (lambda: tl.paddle.im2sequence(IMAGE, 2, out_stride=2), "out_stride with input_image_size only, got 2"),
    "attention_lstm": (
        lambda: tl.paddle.attention_lstm(X.drop_level(0), *SCALAR_BIAS, attention_scalar_bias=torch.ones(1)),
        "attention_scalar_bias with attention_scalar, got it alone",
    ),
    "pad": (
        lambda: F.pad(tl.from_lengths(torch.rand(5, 2), [[2, 3]]).t()[None], (1, 1), mode="reflect", value=1.0),
        "value with mode 'constant' only, got 1.0 with 'reflect'",
    ),
}


@pytest.mark.parametrize("name", WITHOUT_EFFECT)
def test_an_argument_without_effect_is_refused(name):
    call, said = WITHOUT_EFFECT[name]
    with pytest.raises(tl.LoDError, match="expected " + re.escape(said)):
        call()
