# SPDX-License-Identifier: Apache-2.0
"""The law of writes: a function in place raises, and changes nothing, or gives what the function that returns a new tensor
gives, in every layout; and what is written through x[...] = v and through views."""

import collections
import functools

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from rule_samples import KINDS, RULES, Operands, forms, names

import torch_lod as tl
from torch_lod import LoDError, LoDTensor
from torch_lod.tensor.provenance import provenance_of

pytestmark = pytest.mark.filterwarnings("ignore")
SPACES = {"torch": torch, "torch.Tensor": torch.Tensor, "torch.nn.functional": F}
#: Where the rows are.
LAYOUTS = {
    "x": lambda t: t,
    "x[None]": lambda t: t[None],
    "x[:, None]": lambda t: t[:, None],
    "x.t()[None]": lambda t: t.movedim(0, -1)[None],
}
#: Names with another meaning in place: they draw (bernoulli_(p), normal_(std)), set sizes or memory, or change no number.
OTHERWISE = set("bernoulli normal set resize resize_as rename type requires_grad detach rrelu share_memory".split())


def twins() -> dict:
    """Every function in place, by its name, and the function that returns a new tensor."""
    found = {}
    for label, space in SPACES.items():
        for name in dir(space):
            python = name.startswith("__i") and name.endswith("__")
            single = f"__{name[3:-2]}__" if python else name[:-1]
            if (python or (name.endswith("_") and not name.startswith("_"))) and single not in OTHERWISE:
                func, twin = getattr(space, name), getattr(space, single, None) or getattr(torch, single, None)
                if callable(func) and callable(twin) and func in KINDS:
                    found[f"{label}.{name}"] = (func, twin)
    return found


TWINS = twins()


class Laid(Operands):
    """Operands in a layout, plain ones as well."""

    def __init__(self, layout, structured: bool = True):
        super().__init__((4, 4), torch.float32, "", not structured)
        self.layout = LAYOUTS[layout]

    def __missing__(self, name):
        if name in self:
            return self[name]
        t = super().__missing__(name)
        if t.dim() > 1 or name in ("v", "ids", "pids", "p1"):
            self[name] = self.layout(t).clone()
        return self[name]


def called(func, code, operands):
    torch.default_generator.manual_seed(0)
    return eval(code, {"f": func}, operands)


def told(t) -> tuple:
    mark = provenance_of(t)
    return (None,) if mark is None else (mark.dim, mark.part)


def plainly(t):
    return t.as_subclass(torch.Tensor)


def complaint(func, twin, text, code, layout) -> str:
    """What is wrong with a form of a function in place; "refused" by us, "torch" where torch raises, "" where it equals its
    twin."""
    operands = Laid(layout)
    target = operands["x" if text.startswith("x") or "=x" in text else text.partition(",")[0].strip("([")]
    before = plainly(target).clone()
    try:
        if called(func, code, operands) is NotImplemented:
            return "torch"
    except Exception as error:
        ended = "refused" if isinstance(error, LoDError) else "torch"
        return ended if torch.equal(plainly(target), before) else "it raised and had changed its operand"
    try:
        wanted = called(twin, code, Laid(layout))
    except LoDError as error:
        return f"its twin raises {error}"
    except Exception:
        return "torch"  # it has no such twin
    if told(target) != told(wanted):
        return f"it is {told(target)}, its twin {told(wanted)}"
    same = target.shape == wanted.shape and torch.allclose(plainly(target), plainly(wanted).to(before), equal_nan=True)
    return "" if same else "it differs from its twin"


@functools.cache
def taken(name) -> list[str]:
    """The forms of a function in place that torch takes with plain tensors."""
    func, twin = TWINS[name]
    found = []
    for text, code in forms(twin) if twin in names() else forms(func):
        first = text.partition(",")[0]
        if first not in ("x", "input=x", "tensor=x", "p", "v") or "rows(" in text:
            continue
        if name.endswith(".elu_") and text.count(",") == 2:
            continue  # its third argument is a scale, that of its twin says whether it is in place
        found.append((text, code))
    return found


def test_in_place_raises_or_equals_its_twin(record_property):
    wrong, counted, functions = {}, collections.Counter(), collections.defaultdict(set)
    for name, (func, twin) in TWINS.items():
        for layout in LAYOUTS:
            for text, code in taken(name):
                found = complaint(func, twin, text, code, layout)
                if found not in ("refused", "torch", ""):
                    wrong[f"{name}({text}) of {layout}"] = found
                counted[found] += 1
                functions[found].add(name)
    counts = f"{len(TWINS)} functions, {counted['']} cases equal their twins, {counted['refused']} are refused"
    record_property("law of writes", counts)
    print(counts)
    assert not wrong, (len(wrong), list(wrong.items())[:20])
    assert len(TWINS) > 220 and counted[""] > 4000 and counted["refused"] > 2000
    idle = TWINS.keys() - functions[""] - functions["refused"]
    assert idle <= NO_FLOATS, sorted(idle - NO_FLOATS)


#: Torch takes them with integers or matrices only, or no operand here fits.
NO_FLOATS = {"torch.Tensor.bitwise_not_"}


def of_parts(name) -> list:
    """What a function in place does to rows 1 to 3 of a batch, which it sees through a view: those that did not raise."""
    func, _ = TWINS[name]
    wrong = []
    for layout in LAYOUTS:
        for text, code in taken(name):
            if not text.startswith("x"):
                continue
            operands = Laid(layout)
            rows = operands["x"]
            before, dim = plainly(rows).clone(), provenance_of(rows).dim
            operands["x"] = rows.narrow(dim, 1, 2)
            try:
                called(func, code, operands)
            except Exception:
                pass
            if not torch.equal(plainly(rows), before):
                wrong.append(f"{name}({text}) of rows 1 to 3 of {layout}")
    return wrong


def test_no_function_writes_a_part_of_the_rows():
    wrong = [case for name in TWINS for case in of_parts(name)]
    assert not wrong, (len(wrong), wrong[:20])


ROWS, PE = torch.randn(11, 8), torch.randn(20, 8)
NAMES = {"torch": torch, "nn": torch.nn, "F": F, "np": np, "PE": PE, "ROWS": ROWS}
LENGTHS = [4, 2, 5]
#: y is a batch of one, y = x[None].
REFUSED = """
y[:, 0] = -100 | y[:, :2] = 0 | y[:, -1].zero_() | y[:, 1:] *= .5 | y.index_fill_(1, torch.tensor([0]), 0) | y.select(1, 0).fill_(0)
y.index_copy_(1, torch.tensor([0]), PE[None, :1]) | y.scatter_(1, torch.zeros(1, 1, 8).long(), 0.) | y.narrow(1, 0, 2).zero_()
y.put_(torch.tensor([0]), torch.tensor([1.])) | y.split(4, 1)[0].zero_() | y.chunk(2, 1)[0].zero_() | y[0, 0] = 0
y[:, 1:] = y[:, 1:] * .5 | y[:, 0].copy_(y[:, 0] * 2) | y.data[:, 0] = 0 | y.view(-1)[:8].zero_() | y.view(-1)[:8] = 0 | y[:, ::2] = 0
y.flatten().index_fill_(0, torch.tensor([0]), 1) | y[:, ::2].zero_() | y[:, torch.tensor([0, 1])] = 0 | y[:, [0]] = 1 | y[0, 3] *= 2
F.relu(y[:, :2], inplace=True) | F.relu(y[:, :2], True) | nn.ReLU(True)(y[:, :2]) | nn.init.zeros_(y[:, 0]) | y[:, 0].normal_()
y[:, :2].cumsum_(-1) | y[:, 0].detach().zero_() | y[:] = PE[None, :11] | y.masked_scatter_(torch.ones(1, 11, 8).bool(), ROWS)
y[:, 0, 0] = 1 | y.index_put_((torch.tensor([0]), torch.tensor([0])), torch.tensor(1.)) | for i in range(11): y[:, i] += PE[i]
x[0] = 0 | x[1:] *= .5 | x[0].add_(1) | x[-1].zero_() | x[:2] = 0 | for r in x: r.add_(1) | x.index_fill_(0, torch.tensor([0]), 0)
x.index_copy_(0, torch.tensor([1]), PE[:1]) | x.scatter_(0, torch.zeros(1, 8).long(), 0.) | x.put_(torch.tensor([0]), torch.tensor([1.]))
x.select(0, 0).fill_(0) | x[torch.tensor([3, 1])] = 0 | x[[0, 1]] = 0 | x[0, 0] = 1 | x[0, 0].zero_() | x[1:] = x[1:] * .5
x.scatter_(1, torch.zeros(5, 1).long(), 1.) | x[2] = x[2] * 2 | x.masked_scatter_(x > 0, ROWS) | x.as_strided((4,), (1,)).zero_()
x[np.int64(0)] = 1 | x.view(-1)[3] = 0 | x.diagonal().zero_() | x.index_add_(0, torch.tensor([1]), PE[:1]) | x.data[0] = 0
x.index_reduce_(0, torch.tensor([1]), PE[:1], "amax") | x.t()[:, 0] = 1 | x[:, None][0] = 1 | x.t()[None][..., :2].zero_() | x[x.row_offsets()[:2]] = 0
with torch.inference_mode(): x[0].zero_() | torch.ops.aten.relu_(x[:2])
"""
ALLOWED = """
x[x > 0] = 1 | x[..., 0] = 1 | x[:] = 0 | x[...] = 0 | x[x.row_offsets()[:-1]] = 0 | x[x.row_offsets()[1:] - 1, 2:] = 0
x.index_fill_(0, x.row_offsets()[:-1], 0) | x[:, 0] = x[:, 1] | x *= 2 | x.add_(x * 2) | x.view(-1).mul_(2) | x[ROWS[:, 0] > 0] = 1
x[ROWS > 0] = 1 | x.t().zero_() | x[None].add_(1) | x.masked_fill_(x > 0, 0) | x.clamp_(0) | x.t()[0] = 1 | x[:, [0, 1]] = 2 | x[:11] = 0
F.relu(x, True) | F.relu(x[None], True) | x.index_fill_(1, torch.tensor([1]), 0) | x[:, 1:] *= 2 | x[ROWS[:, 0] > 0, 1:] = 3
y[..., 0] = 1 | y[:] = 0 | y[y > 0] = 1 | y[0] = 1 | y *= 2 | y[:, :, 0] = 1 | y.index_fill_(2, torch.tensor([1]), 0) | y[..., :4] = y[..., 4:]
y[0][:, 0] = 1 | y[0].add_(1) | y.squeeze(0)[...] = 1 | F.relu(y, True) | y[:] = y * 2 | x[x.with_values(x.lod.position_ids() < 2)] = 0
"""
#: Changes of copies: the rows stay.
COPIES = """
h = x[0].clone(); h.add_(1); h[0] = 3 | h = x[1:] * 2; h.mul_(3) | h = x.mean(0); h[0] = 1; h.add_(1) | h = x[::2].clone(); h[0] = 1
h = x[0].clone(); F.relu(h, True) | h = x.unbind(1)[0].detach().clone(); h.zero_() | h = x.sum(0)[None][0]; h[0] = 1
h = y[:, 0].clone(); h[..., 1] = 2; h *= 3 | h = torch.zeros(8); h[0] = 1; x * h | x[0].requires_grad_() | h = x[0] + 1; h[:4].zero_()
"""


def listed(text) -> list[str]:
    return [case for line in text.strip().splitlines() for case in line.split(" | ")]


def ran(code: str):
    x = tl.from_lengths(ROWS.clone(), [LENGTHS])
    exec(code, {**NAMES, "x": x, "y": x[None]})
    return x


@pytest.mark.parametrize("code", listed(REFUSED))
def test_writes_at_positions_of_the_length_are_refused(code):
    x = tl.from_lengths(ROWS.clone(), [LENGTHS])
    with pytest.raises(LoDError):
        exec(code, {**NAMES, "x": x, "y": x[None]})
    assert torch.equal(x.values(), ROWS) and x.lod.to_lengths() == [LENGTHS]


@pytest.mark.parametrize("code", listed(ALLOWED))
def test_writes_that_are_the_same_in_every_sequence_stay(code):
    parts = [ran_alone(code, part) for part in ROWS.split(LENGTHS)] if "ROWS" not in code and "11" not in code else None
    x = ran(code)
    assert type(x) is LoDTensor and not torch.equal(x.values(), ROWS)
    if parts is not None:
        torch.testing.assert_close(x.values(), torch.cat(parts), rtol=0, atol=0)


def ran_alone(code: str, rows):
    """The same of one sequence."""
    x = tl.from_lengths(rows.clone(), [[len(rows)]])
    exec(code, {**NAMES, "x": x, "y": x[None]})
    return x.values()


@pytest.mark.parametrize("code", listed(COPIES))
def test_copies_are_changed(code):
    assert torch.equal(ran(code).values(), ROWS)


def test_the_error_says_what_to_write():
    x = tl.from_lengths(ROWS.clone(), [LENGTHS])
    with pytest.raises(LoDError) as caught:
        x[None][:, 1:3] = 0
    said = str(caught.value)
    assert "got one to rows 1 to 3 of the whole batch" in said
    for way in ("x.position_ids()", "torch.where(mask, v, x)", "tl.sequence_shift", "x.head(k)", "x.values()"):
        assert way in said
    x[x.with_values(x.lod.position_ids() < 1)] = -100.0
    assert (x.values()[:, 0] == -100).nonzero().flatten().tolist() == [0, 4, 6]


def has_inplace(func) -> bool:
    code = getattr(func, "__code__", None)
    return code is not None and "inplace" in code.co_varnames[: code.co_argcount]


#: Without those of channels, which refuse parts for another reason.
INPLACE = [func for func in RULES if has_inplace(func) and not names()[func].endswith(("1d", "2d", "3d"))]


@pytest.mark.parametrize("func", INPLACE, ids=names().get)
def test_an_argument_inplace_writes_no_part(func):
    x = tl.from_lengths(ROWS.clone(), [LENGTHS])
    args = (0.1, 20.0) if func is F.threshold else ()
    for part in (x[:2], x[None][:, 1:], x[0]):
        with pytest.raises(LoDError, match="expected a write to all rows"):
            func(part, *args, inplace=True)
    assert torch.equal(x.values(), ROWS)
    assert func(x, *args, inplace=True) is x and provenance_of(func(x.t(), *args, inplace=True)).dim == 1


@pytest.mark.parametrize(
    "code",
    ["y[:, 0] = 1.0", "x[1:].mul_(2)", "x[0].zero_()", "y[:, 0].add_(1)", "x[torch.tensor([1])] = 0", "x[::2].zero_()"],
)
def test_compiled(code):
    space: dict = {}
    exec(f"def write(x):\n    y = x[None]\n    {code}\n    return x + 1", globals(), space)
    torch._dynamo.reset()
    x = tl.from_lengths(ROWS.clone(), [LENGTHS])
    with pytest.raises(Exception, match="expected a write to all rows"):
        torch.compile(space["write"], backend="eager")(x)
    assert torch.equal(x.values(), ROWS)


def test_compiled_copies_are_changed():
    def step(x):
        h = x[None][:, 0].clone()
        h.mul_(2).add_(1)
        x = x * 2
        x[..., 0] = 1.0
        x.add_(1)
        return x, h

    torch._dynamo.reset()
    x = tl.from_lengths(ROWS.clone(), [LENGTHS])
    for got, want in zip(torch.compile(step, backend="eager", fullgraph=True)(x), step(x), strict=True):
        assert torch.equal(plainly(got), plainly(want))


#: Functions in place that broadcast, and their operands: c and s have a row or a number for each sequence, f a truth.
BROADCAST = """add_(c) | sub_(c) | mul_(c) | div_(c) | add_(c[:, None]) | mul_(c[:, None]) | mul_(s[:, None, None]) | add_(c[:, :, None])
lerp_(c, 0.5) | lerp_(c[:, None], 0.5) | addcmul_(c, c) | addcmul_(c[:, None], t) | addcdiv_(t, c[:, None]) | masked_fill_(f[:, None, None], 0)
copy_(c) | copy_(c[:, None]) | pow_(f[:, None, None]) | atan2_(c[:, None]) | fmod_(c[:, None]) | remainder_(c) | hypot_(c) | ge_(c[:, None]) | clamp_(c[:, None])
clamp_min_(c) | copysign_(c[:, None]) | heaviside_(c) | nextafter_(c) | floor_divide_(c[:, None]) | eq_(c) | ne_(c[:, None]) | xlogy_(c) | logical_and_(c)
float_power_(c) | true_divide_(c) | multiply_(c[:, None]) | subtract_(c) | divide_(c) | arctan2_(c) | lt_(c) | gt_(c) | le_(c) | igamma_(c) | lcm_(c) | gcd_(c)"""
#: How an operand says whose rows it has.
SAYS = {
    "declared": lambda t, lod: tl.per_sequence(t),
    "outer LoD": lambda t, lod: LoDTensor(t, lod.outer(-1)) if lod.depth > 1 else tl.per_sequence(t),
    "outermost": lambda t, lod: tl.per_sequence(t[: lod.num_sequences(0)], level=0),
}


@pytest.mark.parametrize("says", SAYS)
@pytest.mark.parametrize("lengths", [[LENGTHS], [[2, 1], LENGTHS], [[3, 2, 3]]], ids=str)
def test_in_place_with_a_row_for_each_sequence(lengths, says, record_property):
    """It raises and changes nothing, or is its twin with the same operands, which is right (test_per_sequence.py)."""
    lod, told_of, wrong = tl.LoD.from_lengths(lengths), collections.Counter(), {}
    c, s = (torch.rand(3, *shape, generator=torch.Generator().manual_seed(1)) for shape in ((8,), ()))
    others = {name: SAYS[says](t, lod) for name, t in {"c": c, "s": s, "f": s > 0.5}.items()}
    for layout in LAYOUTS:
        for code in listed(BROADCAST):
            x = LoDTensor(ROWS[: lod.rows].clone(), lod)
            t = LAYOUTS[layout](x)
            try:
                twin = code.replace("copy_(", "mul(0).add(", 1).replace("_(", "(", 1)
                wanted = eval(f"t.{twin}", {**others, "t": t})
            except Exception:
                wanted = None
            try:
                eval(f"t.{code}", {**others, "t": t})
            except Exception as error:
                told_of["refused" if isinstance(error, LoDError) else "torch"] += 1
                if not torch.equal(x.values(), ROWS[: lod.rows]):
                    wrong[layout, code] = "it raised and had written"
                continue
            told_of["equal"] += 1
            same = wanted is not None and wanted.shape == t.shape
            if not same or not torch.allclose(plainly(wanted).to(plainly(t)), plainly(t), equal_nan=True):
                wrong[layout, code] = "it differs from its twin"
    record_property(f"law of writes, {says}", dict(told_of))
    print(says, dict(told_of))
    assert not wrong, wrong
    assert told_of["equal"] > 20


FOREACH = [
    name for name in dir(torch) if name.startswith("_foreach_") and name.endswith("_") and hasattr(torch, name[:-1])
]


@pytest.mark.parametrize("name", FOREACH)
def test_in_place_over_lists(name):
    """Of whole rows they raise or equal their twins; of a part they raise."""
    func, twin = getattr(torch, name), getattr(torch, name[:-1])
    ran = 0
    for layout in LAYOUTS:
        for more in ((), (2.0,), ([2.0],), (None,), (None, None), (None, None, 0.5)):
            x, y = (tl.from_lengths(rows.clone(), [LENGTHS]) for rows in (ROWS, ROWS.abs() + 1))
            t = LAYOUTS[layout](x)
            args = [[LAYOUTS[layout](y)] if arg is None else arg for arg in more]
            try:
                func([t], *args)
            except Exception:
                assert torch.equal(x.values(), ROWS), (name, layout, more)
                continue
            ran += 1
            wanted = twin([LAYOUTS[layout](tl.from_lengths(ROWS.clone(), [LENGTHS]))], *args)
            torch.testing.assert_close(plainly(t), plainly(wanted[0]), equal_nan=True)
            x = tl.from_lengths(ROWS.clone(), [LENGTHS])
            rows_dim = {"x": 0, "x[None]": 1, "x[:, None]": 0, "x.t()[None]": 2}[layout]
            parts = [
                [a[0].narrow(rows_dim, 1, 2)] if isinstance(a, list) and isinstance(a[0], torch.Tensor) else a
                for a in args
            ]
            with pytest.raises((LoDError, RuntimeError)):
                func([LAYOUTS[layout](x).narrow(rows_dim, 1, 2)], *parts)
            assert torch.equal(x.values(), ROWS)
    assert ran, name
