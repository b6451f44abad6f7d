# SPDX-License-Identifier: Apache-2.0
"""Function modes change nothing: what torch's functions and modules give for rows of sequences, and what they refuse, is the
same under a default device, under a mode of the user's, and under tl.strict, which may refuse more."""

import contextlib
import functools
import inspect

import pytest
import test_module_leaks
import torch
import torch.ao.nn.quantized.dynamic as quantized
from rule_samples import SHAPES, Operands, forms, names
from settings import FULL
from test_rules import TABLE, run, same
from torch import nn
from torch.nn.attention.flex_attention import flex_attention
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from torch.overrides import TorchFunctionMode

import torch_lod as tl
from torch_lod import errors
from torch_lod.tensor.table import ROWS

pytestmark = pytest.mark.filterwarnings("ignore")


class Passing(TorchFunctionMode):
    """A mode as users write them: it hands every call on, through functions of its own."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        return self.seen(func, args, kwargs or {})

    def seen(self, func, args, kwargs):
        return func(*args, **kwargs)


@contextlib.contextmanager
def several(*modes):
    with contextlib.ExitStack() as stack:
        for mode in modes:
            stack.enter_context(mode())
        yield


def cpu():
    return torch.device("cpu")


@contextlib.contextmanager
def default_device():
    before = torch.get_default_device()
    torch.set_default_device("cpu")
    try:
        yield
    finally:
        torch.set_default_device(None)
    assert torch.get_default_device() == before


#: What is compared, and with what.
MODES = {
    "a default device": (default_device, contextlib.nullcontext),
    "a device": (cpu, contextlib.nullcontext),
    "a mode of the user's": (Passing, contextlib.nullcontext),
    "two of them": (functools.partial(several, Passing, cpu, Passing), contextlib.nullcontext),
    "strict": (tl.strict, contextlib.nullcontext),
    "strict around a device": (functools.partial(several, tl.strict, cpu), tl.strict),
    "strict around a mode": (functools.partial(several, tl.strict, Passing), tl.strict),
    "strict inside a mode": (functools.partial(several, Passing, tl.strict), tl.strict),
}


def described(value, found: list):
    """What a result is, as something that can be compared; its tensors go to `found`."""
    if isinstance(value, torch.Tensor):
        p = getattr(value, "_provenance", None)
        known = None if p is None else (p.lod.to_lengths(), p.dim, p.call, p.part)
        found.append(value.values() if known else value)
        return type(value).__name__, known, tuple(value.shape), value.dtype
    if isinstance(value, (tuple, list)) and not isinstance(value, torch.Size):
        return type(value).__name__, [described(part, found) for part in value]
    return value if isinstance(value, (int, float, str)) else type(value).__name__


def outcome(call):
    """What a call gives and its tensors, or the class and the words of what it raises."""
    tensors: list = []
    torch.default_generator.manual_seed(0)
    try:
        return described(call(), tensors), tensors
    except Exception as error:
        return (f"raises {type(error).__name__}", str(error)), tensors


def equal(a, b) -> bool:
    if a.layout != torch.strided or a.is_quantized or a.is_meta:
        return True
    return same(a, b)


def raised(found) -> bool:
    return isinstance(found[0], tuple) and str(found[0][0]).startswith("raises ")


def differs(mode: str, call) -> str:
    """How a call differs under a mode; nothing if it does not."""
    under, beside = MODES[mode]
    with beside():
        expected = outcome(call)
    with under():
        got = outcome(call)
    if mode == "strict" and raised(got) and got[0][0] in ("raises LoDValueError", "raises LoDTypeError"):
        return ""  # it may refuse more
    if got[0] == expected[0] and all(map(equal, got[1], expected[1])):
        return ""
    return f"expected {expected[0]}, got {got[0]}" if got[0] != expected[0] else "other values"


# -- the functions of the table

#: Contents of memory that was never written, and numbers that count what happened before.
BY_CHANCE = "empty resize_ data_ptr storage __hash__ _cdata fbgemm_pack".split()


def called(func, code, shape, dtype):
    return run(code, func, Operands(shape, dtype, "", False))


@functools.cache
def ways(func) -> list:
    """Some forms that a function takes, and of those that it refuses some with other words."""
    found, words = [], set()
    for shape, dtype in SHAPES:
        for text, code in forms(func):
            call = functools.partial(called, func, code, shape, dtype)
            got = outcome(call)
            kind = str(got[0])[:60]
            if kind in words or (raised(got) and "raises TypeError" in kind):
                continue
            words.add(kind)
            found.append((f"{text} of {list(shape)}", call))
            if len(found) == (40 if FULL else 4):
                return found
    return found


@pytest.mark.parametrize(
    "mode", MODES if FULL else ["a device", "a mode of the user's", "strict", "strict around a mode"]
)
def test_functions_of_torch(mode):
    wrong, count = [], 0
    for func in TABLE:
        name = names()[func]
        if any(word in name for word in BY_CHANCE) or name == "torch.Tensor.new":
            continue
        for text, call in ways(func):
            count += 1
            if what := differs(mode, call):
                wrong.append(f"{name}({text}): {what}")
    assert not wrong, "\n".join([f"{len(wrong)} of {count}", *wrong[:40]])
    assert count > 2000


def of_module(module, form):
    return eval(f"module({form})", {"module": module}, test_module_leaks.made(""))


@pytest.mark.parametrize("mode", MODES)
def test_modules_of_torch(mode):
    wrong = []
    for text, calls in {**test_module_leaks.MODULES, **test_module_leaks.BATCH_NORMS}.items():
        if not hasattr(nn, text.split("(")[0]):
            continue
        torch.manual_seed(1)
        module = eval(f"nn.{text}", {"nn": nn}).eval()
        for form in calls.split("|"):
            if what := differs(mode, functools.partial(of_module, module, form)):
                wrong.append(f"{text}({form}): {what}")
    assert not wrong, "\n".join(wrong)


# -- what torch.nn's Python decides before any rule is asked, from what it was given


def ids_of_one(lengths=((6,),)):
    return tl.from_lengths(torch.randn(6, 4, generator=torch.Generator().manual_seed(3)), [list(n) for n in lengths])


X, ONE = ids_of_one([[2, 1, 3]]), ids_of_one()
HEADS = tl.from_lengths(torch.randn(6, 2, 4), [[2, 1, 3]])
P = torch.randn(6, 4)
KINDS = {"LSTM": nn.LSTM, "GRU": nn.GRU, "RNN": nn.RNN}
torch.manual_seed(7)
MADE = {name: kind(4, 5) for name, kind in KINDS.items()}
FIRST = {name: kind(4, 5, 2, bidirectional=True, batch_first=True) for name, kind in KINDS.items()}


class Mine(nn.LSTM):
    """A recurrence of the user's."""

    def forward(self, input, hx=None):
        out, last = super().forward(input * 2, hx)
        return out + 1, last


def again(module, x):
    """The state of one call is that of the next."""
    return module(x, module(x)[1])


def packed(module, x, lengths, first, sort):
    out, last = module(pack_padded_sequence(x, lengths, batch_first=first, enforce_sorted=sort))
    return pad_packed_sequence(out, batch_first=first), last


CALLS = {
    "rows padded as positions": lambda: nn.ZeroPad1d(1)(X),
    "and with a constant": lambda: nn.ConstantPad1d((1, 0), 2.0)(X),
    "rows at the last dim padded": lambda: nn.ConstantPad1d((1, 0), 2.0)(X.t()),
    "instance norm": lambda: nn.InstanceNorm1d(4)(X),
    "instance norm with weights": lambda: nn.InstanceNorm1d(6, affine=True)(X.t()),
    "instance norm of a batch of one": lambda: nn.InstanceNorm1d(4)(X[None]),
    "flex attention": lambda: flex_attention(*[HEADS[None].transpose(1, 2)] * 3),
    "flex attention of rows": lambda: flex_attention(*[X[None, None]] * 3),
    "a cell along time": lambda: nn.LSTMCell(4, 5)(X[None]),
    "a cell of columns": lambda: nn.GRUCell(4, 5)(X[:, None]),
    "batches of a transformer": lambda: nn.Transformer(4, 2, 1, 1, 8).eval()(X[None], torch.cat([P[None]] * 2)),
    "a quantised LSTM": lambda: quantized.LSTM(4, 3)(X),
    "a quantised GRU": lambda: quantized.GRU(4, 3, batch_first=True)(X[None]),
    "packed": lambda: packed(FIRST["GRU"], X[None], X.lengths(), True, False),
    "packed in order": lambda: packed(MADE["LSTM"], ONE[:, None], ONE.lengths(), False, True),
    "packed by other lengths": lambda: packed(MADE["LSTM"], X[:, None], [3, 1, 2], False, False),
    "padded to a length": lambda: pad_packed_sequence(
        pack_padded_sequence(X[None], X.lengths(), True, enforce_sorted=False), total_length=9
    ),
    "a recurrence of the user's": lambda: again(Mine(4, 5), X),
    "rows of another width": lambda: MADE["LSTM"](X[:, :3]),
    "rows of another dtype": lambda: MADE["LSTM"](X.double()),
    "rows of four dims": lambda: MADE["LSTM"](X[None, None]),
}
for _name in KINDS:
    CALLS |= {
        f"{_name} of one sequence": lambda name=_name: MADE[name](ONE),
        f"{_name} with a state for each": lambda name=_name: again(MADE[name], X),
        f"{_name} with a state for one": lambda name=_name: again(MADE[name], ONE),
        f"{_name} of a column": lambda name=_name: again(MADE[name], X[:, None]),
        f"{_name} of a batch of one": lambda name=_name: again(FIRST[name], X[None]),
        f"{_name} of a batch of one sequence": lambda name=_name: again(FIRST[name], ONE[None]),
        f"{_name} of rows as time": lambda name=_name: FIRST[name](HEADS),
        f"{_name} with a state of another size": lambda name=_name: MADE[name](X, torch.zeros(1, 4, 5)),
        f"{_name} with rows as a state": lambda name=_name: MADE[name](X, X),
        f"{_name} of plain rows": lambda name=_name: MADE[name](P),
        f"{_name} of lost rows": lambda name=_name: MADE[name](X.flip(0)),
    }


@pytest.mark.parametrize("mode", MODES)
def test_modules_that_look_at_dims(mode):
    torch.manual_seed(1)
    wrong = [f"{name}: {what}" for name, call in CALLS.items() if (what := differs(mode, call))]
    assert not wrong, "\n".join(wrong)


# -- tl.strict looks at the user's calls, wherever modes and functions of ours hand them on


@pytest.mark.parametrize("mode", [contextlib.nullcontext, cpu, Passing])
def test_strict_looks_at_what_modules_hand_on(mode):
    for call, said in (
        (lambda: nn.GRUCell(4, 4)(X, P), "gru_cell: expected rows, or what is the same"),
        (lambda: nn.GRU(4, 4)(X, torch.zeros(1, 4) + X.mean()), "gru: expected what belongs to a sequence"),
        (lambda: X / X.shape[0], "expected what belongs to a sequence"),
    ):
        call()
        with tl.strict(), mode(), pytest.raises(tl.LoDError, match=said):
            call()


def own_code_of(x):
    return tl.nn.AttentionPool(4)(x), x.to_padded(), tl.map_sequences(nn.Linear(4, 2), x), tl.nn.last_state


@pytest.mark.parametrize("mode", [cpu, Passing])
def test_strict_does_not_look_at_ours(mode):
    with tl.strict(), mode():
        own_code_of(X)


@pytest.mark.parametrize("mode", [contextlib.nullcontext, cpu, Passing])
def test_explain_names_the_line_of_the_user(mode):
    def model(x):
        with mode():
            center = x.mean(0)
            return nn.LSTM(3, 2)(x - center)

    report = tl.explain(model, X)
    assert [(found.file, found.source) for found in report] == [
        (__file__, "center = x.mean(0)"),
        (__file__, "return nn.LSTM(3, 2)(x - center)"),
        (__file__, "return nn.LSTM(3, 2)(x - center)"),
    ][: len(report)] and len(report) > 1


def test_errors_of_raw_operators_name_the_call_in_a_mode():
    def wrong():
        return errors.public(tl.ops.gather_rows)(torch.ones(3, 2), torch.tensor([0.5]))

    assert outcome(wrong)[0][0].startswith("raises LoD")
    assert not differs("a mode of the user's", wrong)


def test_arguments_are_taken_by_names_that_they_have():
    """A new torch that renames one is red here, not a TypeError of the user's."""
    for function, ours, torchs in tl.patches.REPLACED:
        there, parameters = inspect.signature(torchs).parameters, inspect.signature(ours).parameters.values()
        assert {p.name for p in parameters if p.kind is not p.VAR_KEYWORD} <= there.keys(), torchs
        assert any(p.kind is p.VAR_KEYWORD for p in parameters) or len(parameters) == len(there), torchs
        code = function.__code__
        assert code is not torchs.__code__ and list(there) == list(
            code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        )


def test_dims_and_sizes_are_plain():
    for function in (torch.Tensor.dim, torch.Tensor.size):
        row = ROWS[function]
        assert row.plain and row.rule is row.run is row.run_at_dim is None
