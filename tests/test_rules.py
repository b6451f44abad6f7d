# SPDX-License-Identifier: Apache-2.0
"""The leak law over the table of torch_rules: no rule keeps a LoD over rows that another sequence's rows went into."""

import functools

import pytest
import torch
import torch.nn.functional as F

import torch_lod as tl
from torch_lod import LoD, LoDError, LoDTensor, torch_rules

LENGTHS = [[1, 2, 1]]
CHANGED, OTHERS = slice(1, 3), [0, 3]  # the rows of the middle sequence, and the rows of the others
STRUCTURE = LoD.from_lengths(LENGTHS)
#: 4 rows of 4 features: on purpose square, so that shapes prove nothing.
SHAPES = (((4, 4), torch.float32), ((4,), torch.float32), ((4, 4, 4), torch.float32))
#: Only for functions that take none of the first.
MORE = (
    ((4, 4), torch.int64),
    ((4, 4), torch.bool),
    ((4, 4), torch.complex64),
    ((4, 4, 4, 4), torch.float32),
    ((4, 4, 4, 4, 4), torch.float32),
    ((4, 2), torch.float32),
)
#: Operands by name: (shape or None for that of x, dtype or None for that of x, seed, whether with a LoD).
OPERANDS = {
    "x": (None, None, 0, True),
    "y": (None, None, 1, True),
    "z": (None, None, 2, True),
    "v": ((4,), None, 3, True),
    "cube": ((4, 4, 4), None, 4, True),
    "cond": (None, torch.bool, 5, True),
    "ids": ((4,), torch.int64, 6, True),
    "p": (None, None, 7, False),
    "q": (None, None, 8, False),
    "p1": ((4,), None, 9, False),
    "row": ((1, 4), None, 10, False),
    "p3": ((4, 4, 4), None, 11, False),
    "mask": (None, torch.bool, 12, False),
    "pids": ((4,), torch.int64, 13, False),
    "weight": ((4, 4), torch.float32, 14, False),
    "w1": ((4, 4, 2), None, 15, False),
    "w2": ((4, 4, 2, 2), None, 16, False),
    "w3": ((4, 4, 2, 2, 2), None, 17, False),
    "grid": ((4, 4), torch.int64, 18, False),
}
FIXED = {"perm": torch.tensor([3, 0, 2, 1]), "levels": torch.linspace(0, 1, 4), "torch": torch}
_DIM_FORMS = """x, {d}|x, dim={d}|input=x, dim={d}|x, axis={d}|x, {d}, True|x, {d}, keepdim=True|x, 1, {d}|x, 2, {d}
x, (1, 2), {d}|x, [0, 1], {d}|x, 0.5, {d}|x, 0.5, dim={d}|x, 2.0, {d}, 0.1|x, {d}, perm|x, {d}, grid|x, grid, {d}
x, perm, dim={d}|x, dim={d}, index=perm|x, y, {d}|x, y, dim={d}|x, p, {d}|p, x, {d}|p1, x, {d}|x, levels, {d}
x, dim={d}, dtype=torch.float64|x, dims={d}|x, dims=({d},)|x, dim=({d},)|x, shifts=1, dims={d}|x, n=1, dim={d}
x, tau=1.0, dim={d}|x, 1.0, False, 1e-10, {d}|x, [2, 2], {d}|x, 2, dim={d}|x, 2.0, dim={d}|x, {d}, (2, 2)|x, {d}, -1
x, stable=True, dim={d}|x, None, {d}|x, {d}, 0|x, {d}, 0, 1|[x, y], {d}|(x, p), dim={d}|(p, x), dim={d}
tensors=(x, y), dim={d}|x, ({d}, 1)|x, source={d}, destination=1|x, dim0={d}, dim1=1|x, start_dim={d}|x, {d}, 1, 5.0"""
_OTHER_FORMS = """x|input=x|x, 2.0|x, 0.5|x, True|x, 0.2, 0.7|x, min=0.3|x, other=2.0|x, exponent=2.0|x, None|2.0, x
x, y|y, x|x, other=y|input=x, other=y|input=x, target=y|x, y, reduction="none"|x, y, reduction="mean"|x, p|p, x
x, other=p|input=x, mat2=p|input=x, vec=p1|x, p1|x, row|x, p3|p3, x|p1, x|x, v|v, x|x, cube|cube, x|x, y, z
x, p, q|p, x, q|p, q, x|p1, x, y|p1, x, q|p1, p, v|p1, p, x|x, mask, 0.0|x, cond, 0.0|cond, x, y|mask, x, y|cond
x, y, 0.5|x, p, 0.5|x, y, 0.5, 0.1|x, other=y, alpha=2|x, (0, 1)|x, (1,)|x, (4, 4)|x, (4, 2, 2)|x, (4, 4, 1)|x, 4, 4
x, -1, 4|x, 4, 2, 2|x, (16,)|x, size=(4, 4)|x, shape=(4, 4)|x, shape=(4, 2, 2)|x, (4,)|x, ((4,))|x, 1, 0|x, 0, 1, 2
x, 2, 1, 0|x, (1, 0)|x, 1, 1|x, 1, 2, 1|x, (2, 1)|x, (1, 2)|x, dims=(1, 2)|x, (1, 1)|x, (0, 0, 1, 1)|x, num_classes=4
x, torch.float64|x, torch.int32|x, "cpu"|x, dtype=torch.float64|x, ()|x, dim=()|x, dim=[]|x, p=0.5, training=True
x, 2, 1|x, 2.0, 2|x, 2, 3|x, 2, output_size=3|x, w1|x, w2|x, w3|x, weight|weight, x|pids, x|x, ids|x, pids
x, ids, reduction="none"|x, pids, reduction="none"|ids, weight|x, groups=4, weight=w1|x, 4|x, None, None|x, p1, p1
x, (4,), p1, p1, 1e-5|x, None, None, p1, p1, False, 0.1, 1e-5, False|x, None, None, None, None, True, 0.1, 1e-5, False
x, y, p3|p, x, p3|x, y, p3, None|x, y, ids, 0.0|x, y, v|x, y, p1|x, y, z, reduction="none"|x, perm|perm, x|x, 1, 2.0
x, 2, 0.0|x, 0, 2|p, x, y, None|x, y, z, 0.0|p, x, y, z|x, 2.0, 3.0|x, 4, 1.0|x, 0.1, 0.2, False|x, (4, 4), (4, 1)
[x, y]|x, [perm, perm], False|x, perm, perm, None|x, dims=(1, 0)|2, x|x, y, value=0.5|x, 2, 2, 1|x, torch.tensor(2.0)
[x, y], 1|(x, p), dim=-1|p1, x, p1|x, y, p1, reduction="none"|x, "sum"|x, start_dim=0, end_dim=-1|x, 1, (2, 2)|x, fill_value=2.0|x, high=9|x, indices=(1, 2), dim=1|x, y, z, 1.0"""
_KEYS = """(all, 0)|(..., 0)|...|None|(all, None)|(all, perm)|(..., perm)|(..., perm, None)|(perm, all)|(..., all, perm)
(..., 0, all)|(..., perm, perm)|(..., torch.eye(4).bool())|(..., torch.eye(4).bool().numpy())
(..., torch.eye(4).bool().tolist())|slice(None, None, 2)|perm|ids|cond|True|(all, True)|(all, perm, all, perm)
(all, perm, None, perm)|(all, perm, 0, perm)|(..., perm, 0)|(..., perm, all, perm)|(all, perm.numpy())
(all, perm.numpy(), all, perm.numpy())|(all, range(4), None, range(4))|(all, tuple(range(4)), None, [3, 2, 1, 0])"""


def _compiled(texts: str, call: str = "f({})"):
    pieces = [piece for line in texts.splitlines() for piece in line.split("|")]
    return [(text, compile(call.format(text), text, "eval")) for text in pieces]


_BY_DIM = {d: _compiled(_DIM_FORMS.format(d=d)) for d in (0, 1, -1, -2)}
FORMS = [form for forms in _BY_DIM.values() for form in forms] + _compiled(_OTHER_FORMS)
#: For functions that mostly have no dim.
FEWER = _BY_DIM[0] + _compiled(_OTHER_FORMS)
_RNN = "x, {state}, [torch.ones({n}, 4), torch.ones({n}, 4)], False, 1, 0.0, False, False, False"
_ONLY = {
    "__getitem__": _compiled(_KEYS, "f(x, {})"),
    "lstm": _compiled(_RNN.format(n=16, state="[p3[:1, :, :].contiguous(), p3[:1, :, :].contiguous()]")),
    "gru": _compiled(_RNN.format(n=12, state="p3[:1, :, :].contiguous()")),
    "rnn_tanh": _compiled(_RNN.format(n=4, state="p3[:1, :, :].contiguous()")),
    "multi_head_attention_forward": _compiled(
        "x, y, z, 4, 2, torch.ones(12, 4), torch.ones(12), None, None, False, 0.0, weight, p1"
    ),
    "scaled_dot_product_attention": _compiled("x, y, z|x, p, p|p, x, x"),
    "embedding_bag": _compiled("ids, weight, perm.sort()[0]|x.long(), weight|weight, ids, pids.sort()[0] * 0"),
    "gaussian_nll_loss": _compiled('x, y, z|x, y, z, reduction="none"|x, p, q, reduction="none"'),
}
_ONLY["poisson_nll_loss"] = _compiled("x, y, True, False, 1e-8, 0|x, y|x, p, reduction='none'|p, x, reduction='none'")
_ONLY["float_power_"] = _compiled("x.double(), 2.0|x.double(), y.double()|p.double(), x|x.double(), p3")
_ONLY["rnn_relu"] = _ONLY["rnn_tanh"]
_SOFTMAX = "x, {d}|x, dim={d}|input=x, dim={d}|x, {d}, torch.float64|x, {d}, dtype=torch.float64"
for _name in ("softmax", "log_softmax", "softmin"):
    _ONLY[_name] = [form for d in (0, 1, -1, -2) for form in _compiled(_SOFTMAX.format(d=d))]
_GUMBEL = "x, dim={d}|logits=x, dim={d}|x, tau=1.0, hard=True, dim={d}|x, 1.0, False, 1e-10, {d}|x"
_ONLY["gumbel_softmax"] = [form for d in (0, 1, -1, -2) for form in _compiled(_GUMBEL.format(d=d))]
#: Forms by which only torch's running statistics are at stake: training mode is documented to use the whole batch.
TRAINING = {"torch.batch_norm", "functional.batch_norm"}
#: torch refuses to detach a view in place, and a LoDTensor is a view of its values; torch does not ask
#: __torch_function__ about Tensor.set_, so that LoDTensor.set_ refuses by itself (test_rules_cases.py).
VIEWS = {"torch.detach_", "Tensor.detach_", "Tensor.set_"}
#: Contents of uninitialised memory, or of devices that are not there; an assignment writes where its caller says.
APART = {"torch.empty_like", "Tensor.cuda", "Tensor.pin_memory", "Tensor.__setitem__"}


class Operands(dict):
    """The names of a form, made when they are looked up."""

    def __init__(self, shape, dtype, changed: bool, plain: bool):
        super().__init__(FIXED, all=slice(None))
        self.shape, self.dtype, self.changed, self.plain, self.made = shape, dtype, changed, plain, []

    def __missing__(self, name):
        if name not in OPERANDS:
            raise KeyError(name)
        shape, dtype, seed, structured = OPERANDS[name]
        t = _rows(shape or self.shape, dtype or self.dtype, seed, self.changed and structured).clone()
        if structured and not self.plain:
            t = LoDTensor(t, STRUCTURE)
            self.made.append(t)
        self[name] = t
        return t


@functools.cache
def _rows(shape, dtype, seed: int, changed: bool):
    t = torch.rand(shape, generator=torch.Generator().manual_seed(seed)) * 0.8 + 0.1
    if changed:
        t[CHANGED] = torch.rand(t[CHANGED].shape, generator=torch.Generator().manual_seed(seed + 100)) * 0.8 + 0.1
    if dtype == torch.bool:
        return t > 0.5
    return torch.complex(t, t * 2) if dtype.is_complex else (t if dtype.is_floating_point else t * 4).to(dtype)


@functools.cache
def names() -> dict:
    """A readable name for every function of the table."""
    found = dict(torch_rules.functions())
    for label, space in (("torch", torch), ("torch.Tensor", torch.Tensor), ("torch.nn.functional", F), ("torch.special", torch.special), ("torch.nn.init", torch.nn.init)):
        for name in dir(space):
            func = getattr(space, name, None)
            func = func if callable(func) else getattr(func, "__get__", None)
            if func is not None and func in torch_rules.RULES:
                found.setdefault(func, f"{label}.{name}")
            change = getattr(getattr(space, name, None), "__set__", None)
            if change is not None and change in torch_rules.RULES:
                found.setdefault(change, f"{label}.{name} =")
    return found


def _structured(result, found=None) -> list:
    found = [] if found is None else found
    if isinstance(result, LoDTensor):
        found.append(result)
    elif isinstance(result, (tuple, list)):
        for part in result:
            _structured(part, found)
    return found


def _run(code, func, operands):
    torch.default_generator.manual_seed(0)  # torch.manual_seed keeps a stack trace for the GPUs
    return eval(code, {"f": func}, operands)


def _equal(a, b) -> bool:
    if torch.equal(a, b):
        return True
    return not a.dtype.is_complex and torch.allclose(a.double(), b.double(), rtol=1e-5, atol=1e-6, equal_nan=True)


def verdict(func, code, shape, dtype) -> str:
    """'torch refuses' (it does so with plain tensors as well), 'refused', 'plain', 'kept', or a complaint."""
    try:
        if _run(code, func, Operands(shape, dtype, False, True)) is NotImplemented:
            return "no such form"
    except TypeError as error:  # of the form, or of the dtype
        return "torch refuses" if "complex" in str(error) else "no such form"
    except Exception:
        return "torch refuses"
    seen = []
    for changed in (False, True):
        operands = Operands(shape, dtype, changed, False)
        try:
            result = _run(code, func, operands)
        except (LoDError, TypeError):
            return "refused"
        except Exception as error:
            return f"raised {type(error).__name__}: {error}"
        seen.append((_structured(result), operands.made))
    (first, operands), (second, changed_operands) = seen
    if len(first) != len(second):
        return "the kind of the result depends on the rows"
    for a, b in zip(first + operands, second + changed_operands, strict=True):
        if a.shape[:1] != (a.lod.rows,) or a.shape != b.shape:
            return f"its LoD has {a.lod.rows} rows for a shape {tuple(a.shape)}"
        if not _equal(a.values()[OTHERS], b.values()[OTHERS]):
            return "rows of other sequences changed"
    return "kept" if first else "plain"


@functools.cache
def verdicts(func) -> dict[str, list[str]]:
    """Every form of calling a function, under what came of it."""
    found: dict[str, list[str]] = {}
    general = FEWER if torch_rules.KINDS[func] in ("keep", "join") else FORMS
    forms = _ONLY.get(getattr(func, "__name__", ""), general)
    unknown = set()
    for shape, dtype in (*SHAPES, *MORE):
        if (shape, dtype) in MORE and "kept" in found and not names()[func].endswith("__getitem__"):
            break
        for text, code in forms:
            if text in unknown or (names()[func] in TRAINING and "True" in text):
                continue
            outcome = verdict(func, code, shape, dtype)
            if outcome == "no such form":
                unknown.add(text)
            else:
                found.setdefault(outcome, []).append(f"f({text}) of {list(shape)} {str(dtype)[6:]}")
    return found


RUNS = {"refused", "plain", "kept"}
#: Without what getattr also finds in a module: its own __eq__ and the like.
TABLE = [func for func in torch_rules.RULES if func in names() and names()[func] not in APART | VIEWS]


pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True, scope="module")
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("func", TABLE, ids=lambda func: names()[func])
def test_no_rule_leaks(func):
    wrong = {what: forms[:6] for what, forms in verdicts(func).items() if what not in RUNS | {"torch refuses"}}
    assert not wrong, f"{names()[func]} ({torch_rules.KINDS[func]}): {wrong}"


#: Not reached by any form.
NOT_RUN: set[str] = set()
#: Neither kept nor refused by any form: the first operand is overwritten by a product of the others, or the result is a bool.
ALWAYS_PLAIN = {"Tensor.addmm_", "Tensor.addmv_", "torch.addmv_", "Tensor.addbmm_", "Tensor.addr_"}
ALWAYS_PLAIN |= {"Tensor.equal", "torch.equal", "Tensor.allclose", "torch.allclose"}


def test_the_law_reaches_the_table():
    not_run = {names()[func] for func in TABLE if not RUNS & verdicts(func).keys()}
    assert not_run <= NOT_RUN, sorted(not_run - NOT_RUN)
    assert len(NOT_RUN) <= 0.05 * len(TABLE)


def test_rules_do_what_their_kind_says():
    idle = {
        names()[func]
        for func in TABLE
        if names()[func] not in NOT_RUN
        and ("refused" if torch_rules.KINDS[func] == "refuse" else "kept") not in verdicts(func)
    }
    assert idle <= ALWAYS_PLAIN, sorted(idle - ALWAYS_PLAIN)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64], ids=str)
def test_functions_without_a_rule_give_plain_tensors(dtype):
    x = tl.LoDTensor(torch.arange(16).view(4, 4).to(dtype), STRUCTURE)
    for func in (torch.triu, torch.tril, torch.Tensor.index_add, torch.Tensor.scatter, torch.scatter_add):
        assert func not in torch_rules.RULES
    assert type(torch.triu(x)) is torch.Tensor
