# SPDX-License-Identifier: Apache-2.0
"""Random calls of the functions of the table of torch's functions: the forms of rule_samples.py with arguments replaced, put in, left out,
exchanged or named; and random keys and equations."""

import ast
import functools
import inspect
import random

import torch
from rule_samples import MORE, OPERANDS, RULES, SHAPES, forms, names
from test_rules import TABLE, _runs_plainly

#: torch itself does not survive wrong arguments of these, or returns memory that nothing was written to.
FRAGILE = (
    "cell",
    "quantized",
    "fbgemm",
    "mkldnn",
    "miopen",
    "cudnn",
    "rnn",
    "lstm",
    "gru",
    "int8",
    "storage",
    "set_",
    "grid_sampler",
)
FUNCTIONS = [f for f in TABLE if not any(word in names()[f].split(".")[-1] for word in FRAGILE)]
#: Those whose result may have a LoD, and those that take keys, come up more often.
WITH_RULES = [f for f in FUNCTIONS if f in RULES]
KEYED = [f for f in WITH_RULES if getattr(f, "__name__", "") in ("__getitem__", "__setitem__", "einsum", "index_put_")]


def _split(text: str) -> tuple[str, ...]:
    return tuple(piece.strip() for line in text.splitlines() for piece in line.split("|"))


#: What an argument may be: numbers, dims and shapes; tensors; the rest.
NUMBERS = _split(
    "0|1|-1|2|-2|3|4|0.5|2.0|(0,)|(1,)|(-1,)|(0, 1)|(1, 0)|(4,)|(4, 4)|(4, -1)|(-1, 4)|(1, 4)|(4, 1, 4)|[0]|()|[]"
)
TENSORS = (
    *OPERANDS,
    *_split("""[x]|[x, y]|[x, p]|(p, x)|torch.tensor(0)|torch.tensor(2.0)|torch.tensor([0, 1])|x[:2]|x[:, :1]|x.unsqueeze(1)
x.unsqueeze(-1)|p[:2]|y.clone()|x > 0.5|p1 > 0.5|x.long()|p.unsqueeze(0)|p3[:1]|cube.clone()|x.values()|perm|x|x|y|p"""),
)
OTHERS = _split("True|False|None|'none'|'sum'|'mean'|'max'|...|slice(None)|torch.float64|torch.int64|torch.float16")
KEYS = _split("""all|...|None|0|-1|True|False|perm|[0, 1]|[3, 2, 1, 0]|ids|pids|grid|cond|mask|slice(1, None)|slice(None, None, 2)
range(4)|p1 > 0.5|v > 0.5|torch.tensor(1)|torch.tensor([0, 1])|perm.numpy()|slice(0, 2)""")
VALUES = _split("0.0|y|p|v|p1|row|p[:2]|y[:, 0]|v[0]|p1[:1]|p3|cube|torch.tensor(1.0)")
LETTERS = "ijkb"


@functools.cache
def _keywords(func) -> tuple[str, ...]:
    """The names of the parameters, as torch lists them; some functions are not listed."""
    stub = torch.overrides.get_testing_overrides().get(func)
    known = tuple(inspect.signature(stub).parameters) if stub is not None else ()
    return (*known, "dim", "keepdim", "out", "dtype", "other", "input", "weight", "alpha")


@functools.cache
def _calls(func) -> tuple[tuple[tuple[str | None, str], ...], ...]:
    """Every form of a function as its arguments, each with its name or None."""
    found = []
    for text, _ in forms(func):
        try:
            call = ast.parse(f"f({text})", mode="eval").body
        except SyntaxError:
            continue
        arguments = [(None, ast.unparse(a)) for a in call.args] + [(k.arg, ast.unparse(k.value)) for k in call.keywords]
        found.append(tuple(arguments))
    return tuple(found) or (((None, "x"),),)


def _key(rng) -> str:
    return f"({', '.join(rng.choice(KEYS) for _ in range(rng.randint(1, 4)))},)"


def _equation(rng) -> str:
    operands = [rng.choice(("x", "x", "y", "p", "v", "p1", "cube", "p3", "four")) for _ in range(rng.randint(1, 3))]
    dims = {"v": 1, "p1": 1, "cube": 3, "p3": 3, "four": 4}
    terms = ["".join(rng.choice(LETTERS) for _ in range(dims.get(o, 2))) for o in operands]
    if rng.random() < 0.5:
        terms = ["..." + t[1:] if rng.random() < 0.5 else t for t in terms]
    used = sorted({*"".join(terms)} - {"."})
    result = "".join(rng.sample(used, min(len(used), rng.randint(0, 3)))) if used else ""
    arrow = f"->{rng.choice(('', '...'))}{result}" if rng.random() < 0.5 else ""
    return f"'{','.join(terms)}{arrow}', {', '.join(operands)}"


@functools.cache
def _runs(func, form: int, shape, dtype) -> bool:
    text = _text(_calls(func)[form])
    return bool(_runs_plainly(func, compile(f"f({text})", text, "eval"), shape, dtype, ""))


def _text(arguments) -> str:
    named = {name: text for name, text in arguments if name is not None}
    plain = [text for name, text in arguments if name is None]
    return ", ".join([*plain, *(f"{name}={value}" for name, value in named.items())])


def _changed(rng, func, shape, dtype) -> str:
    """A form of the table that torch takes, with up to three changes."""
    known = _calls(func)
    first = rng.randint(0, len(known) - 1)
    order = [(first + i) % len(known) for i in range(min(24, len(known)))]
    arguments = list(known[next((i for i in order if _runs(func, i, shape, dtype)), first)])

    def piece():
        return rng.choice(rng.choice((TENSORS, NUMBERS, TENSORS, OTHERS, NUMBERS)))

    for _ in range(rng.choice((1, 1, 2, 3))):
        at = rng.randint(0, len(arguments))
        what = rng.choice(("replace", "replace", "replace", "insert", "name", "remove", "exchange"))
        if what == "insert":
            arguments.insert(at, (None, piece()))
        elif what == "name":
            arguments.append((rng.choice(_keywords(func)), piece()))
        elif at < len(arguments):
            if what == "replace":
                arguments[at] = (arguments[at][0], piece())
            elif what == "remove":
                del arguments[at]
            else:
                arguments[at], arguments[0] = (arguments[at][0], arguments[0][1]), (arguments[0][0], arguments[at][1])
    return _text(arguments)


def random_call(rng: random.Random):
    """(function, the text of its arguments, shape and dtype of x)."""
    shape, dtype = rng.choice((*SHAPES, *SHAPES, *SHAPES, *MORE))
    func = rng.choice(rng.choice((FUNCTIONS, WITH_RULES, WITH_RULES, WITH_RULES, KEYED)))
    name = getattr(func, "__name__", "")
    if name == "__getitem__":
        text = f"{rng.choice(('x', 'x', 'cube', 'four'))}, {_key(rng)}"
    elif name == "__setitem__":
        text = f"{rng.choice(('x', 'x', 'cube', 'p'))}, {_key(rng)}, {rng.choice(VALUES)}"
    elif name == "einsum":
        text = _equation(rng)
    else:
        text = _changed(rng, func, shape, dtype)
    return func, text, shape, dtype
