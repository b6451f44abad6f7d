# SPDX-License-Identifier: Apache-2.0
"""Linear recurrences, element by element and with a matrix as state."""

import itertools

import torch

import torch_lod as tl
from samples.words import CARRIED, M, SequenceInfo, V, X, lod_tensor, over, values


def scans(x, k):
    element = x.shape[1:]
    vector = values(1, element, x.dtype, x.device, seed=1)[0] / 2
    each = x.with_values(values(len(x), element, x.dtype, x.device, seed=2) / 2)
    column = x.with_values(values(len(x), (), x.dtype, x.device, seed=3) / 2)
    for reverse in (False, True):
        said, options = " reverse" * reverse, {"reverse": reverse}
        yield f" number{said}", (x, -0.5), options
        yield f" features{said}", (x, vector), options
        yield f" rows{said}", (x, each), options
        yield f" a number a row{said}", (x, column), options
        if len(element) == 2:
            yield f" last dim{said}", (x, vector[0]), options
            yield f" last dim of rows{said}", (x, each[:, :1]), options
        before = values(x.num_sequences(k), element, summed_in(x.dtype), x.device, seed=4)
        yield f" from a state{said}", (x, column), {**options, "initial": before, "return_state": True}
        yield f" a number from a state{said}", (x, 0.25), {**options, "initial": before}
        yield f" to a state{said}", (x, each), {**options, "return_state": True}
    yield " sum", (x, 1), {}
    yield " scalar", (x, torch.tensor(0.25, dtype=x.dtype, device=x.device)), {}


def scan_errors():
    op = tl.sequence_scan
    for wrong in (None, "a", [0.5], True):
        yield f"a {wrong}", lambda a=wrong: op(X, a), TypeError, f"expected a as a number, got {wrong!r}"
    for shape in ((2,), (6, 3), (1, 3), (3, 1)):
        yield (
            f"a of {shape}",
            lambda s=shape: op(X, torch.ones(s)),
            ValueError,
            f"broadcasts to (3,), an element of x, or as a LoDTensor with the LoD of x, got {shape}",
        )
    yield "plain rows", lambda: op(X[:, 0], V[:, 0]), ValueError, "a value for each row, pass x.with_values(a)"
    yield "wide rows", lambda: op(X[:, 0], X), ValueError, "broadcasts to (), an element of x"
    yield (
        "narrow rows",
        lambda: op(X, X[:, :2]),
        ValueError,
        "an element of x, or as a LoDTensor with the LoD of x, got (6, 2)",
    )
    yield "outer", lambda: op(X, tl.sequence_pool(X, "sum")), ValueError, "2 and 1 levels; lay the rows of the one with"
    other = tl.from_lengths(V, [[2, 1], [2, 1, 3]])
    yield "lod", lambda: op(X, other), ValueError, "LoDs that differ: at level 1, sequence 0: lengths 1 and 2"
    yield "dtype", lambda: op(X, X.double()), TypeError, "a of torch.float32 on cpu, as x, got torch.float64 on cpu"
    yield "device", lambda: op(X, M[0]), TypeError, "a of torch.float32 on cpu, as x, got torch.float32 on meta"
    yield "whole", lambda: op(X.long(), 1), TypeError, "x of a floating dtype, got torch.int64"
    yield "reverse", lambda: op(X, 1, reverse=1), TypeError, "reverse as a bool, got 1"
    yield "return_state", lambda: op(X, 1, return_state=1), TypeError, "return_state as a bool, got 1"
    yield "initial", lambda: op(X, 1, initial=V), ValueError, "initial of shape (3, 3), with an entry per sequence, got"
    yield "no initial", lambda: op(X, 1, initial=0.0), TypeError, "initial as a tensor of shape (3, 3), got 0.0"
    halves = torch.zeros(3, 3, dtype=torch.half)
    yield (
        "half initial",
        lambda: op(X, 1, initial=halves),
        TypeError,
        "initial of torch.float32 on cpu, got torch.float16",
    )


def summed_in(dtype):
    return torch.float64 if dtype == torch.float64 else torch.float32


class Heads:
    """Rows of (heads, width) beside a batch x, and what belongs to its sequences and heads."""

    def __init__(self, x, k, key_heads, keys):
        self.x, self.heads, self.width, self.wide = x, *x.shape[1:], summed_in(x.dtype)
        self.sequences, self.key_heads, self.keys = x.num_sequences(k), key_heads, keys

    def rows(self, *element, seed, dtype=None):
        return self.x.with_values(values(len(self.x), element, dtype or self.x.dtype, self.x.device, seed))

    def by_key(self, seed):
        return self.rows(self.key_heads, self.keys, seed=seed)

    def unit(self, seed):
        t = self.by_key(seed)
        return t.with_values(torch.nn.functional.normalize(t.values(), dim=-1))

    def gate(self, *element, seed, dtype=None):
        t = self.rows(self.heads, *element, seed=seed, dtype=dtype)
        return t.with_values(t.values().sigmoid())

    def per_head(self, seed):
        return values(self.heads, (), self.wide, self.x.device, seed)

    def initial(self):
        return values(self.sequences, (self.heads, self.keys, self.width), self.wide, self.x.device, 9)


def key_heads(x):
    return (1, x.shape[1]) if x.shape[1] > 1 else (1,)


def deltas(x, k):
    for shared, by_key in itertools.product(key_heads(x), (False, True)):
        of = Heads(x, k, shared, 3)
        g = of.gate(*[3] * by_key, seed=4)
        args = of.by_key(1), of.unit(2), x, g.with_values(g.values().log()), of.gate(seed=5)
        said = f" {shared} heads of keys" + " by key" * by_key
        yield said, args, {}
        yield f"{said} from a state", args, {"initial": of.initial(), "return_state": True, "scale": 0.5}
        yield f"{said} to a state", args, {"return_state": True}


def attentions(x, k):
    of = Heads(x, k, 1, 2)
    args = of.by_key(1), of.by_key(2), x
    yield "", args, {}
    yield " from a state", (*args, -of.gate(seed=4)), {"initial": of.initial(), "return_state": True, "scale": 0.5}
    yield " by key", (*args, -of.gate(2, seed=4, dtype=of.wide)), {"return_state": True}


def duals(x, k):
    for shared in key_heads(x):
        of = Heads(x, k, shared, 2)
        args = x, of.gate(seed=4), -of.per_head(5).abs(), of.by_key(1), of.by_key(2)
        yield f" {shared} groups", args, {}
        yield f" {shared} groups skipped", (*args, of.per_head(6)), {"initial": of.initial(), "return_state": True}
        yield f" {shared} groups to a state", args, {"return_state": True}


H = lod_tensor([[2, 1], [1, 2, 3]], (2, 4), torch.float32, "cpu")
KEYS, GATE, STATE = H[:, :1, :3], H[..., 0], torch.zeros(3, 2, 3, 4)
OTHER = tl.from_lengths(H.values(), [[2, 1], [2, 1, 3]])


def recurrence_errors(op, query, key, value, others):
    """`op(**arguments)`, and those beside queries, keys and values that are right."""
    good = {query: KEYS, key: KEYS, value: H, **others}

    def call(**wrong):
        return lambda: op(**{**good, **wrong})

    yield "no value", call(**{value: None}), TypeError, f"{value} as a LoDTensor, got NoneType"
    yield "plain", call(**{key: KEYS.values()}), TypeError, f"{key} as a LoDTensor, got Tensor"
    yield "2-d", call(**{value: GATE}), ValueError, f"{value} of shape (rows, heads, width), got (6, 2)"
    yield "whole", call(**{value: H.long()}), TypeError, f"{value} of a floating dtype, got torch.int64"
    yield (
        "lods",
        call(**{query: OTHER[:, :1, :3]}),
        ValueError,
        f"{query} with the LoD of {value}, got LoDs that differ",
    )
    yield "dtypes", call(**{query: KEYS.double()}), TypeError, f"{query} of torch.float32 on cpu, as {value}, got torch"
    three = H.with_values(torch.zeros(6, 3, 4))
    yield (
        "heads",
        call(**{value: three, key: H}),
        ValueError,
        f"{key} of shape (rows, a divisor of the 3 heads of {value}",
    )
    yield "query", call(**{query: H}), ValueError, f"{query} of shape (6, 1, 3), as {key}, got (6, 2, 4)"
    yield (
        "initial",
        call(initial=STATE[:2]),
        ValueError,
        "initial of shape (3, 2, 3, 4), with an entry per sequence, got",
    )
    yield "states", call(initial=STATE.mT), ValueError, "initial of shape (3, 2, 3, 4), with an entry per sequence, got"
    yield "double", call(initial=STATE.double()), TypeError, "initial of torch.float32 on cpu, got torch.float64"
    yield "no state", call(initial=1), TypeError, "initial as a tensor of shape (3, 2, 3, 4), got 1"
    yield "return_state", call(return_state=None), TypeError, "return_state as a bool, got None"


def gate_errors(name, op, good, by_key):
    shapes = "(6, 2) or (6, 2, 3)" if by_key else "(6, 2)"

    def call(wrong):
        return lambda: op(**{**good, name: wrong})

    yield f"{name} heads", call(GATE[:, :1]), ValueError, f"{name} of shape {shapes}, got (6, 1)"
    yield f"{name} lod", call(OTHER[..., 0]), ValueError, f"{name} with the LoD of the values, got LoDs that differ"
    yield (
        f"{name} dtype",
        call(GATE.long()),
        TypeError,
        f"{name} of torch.float32 on cpu, got torch.int64",
    )
    yield f"plain {name}", call(GATE.values()), TypeError, f"{name} as a LoDTensor, got Tensor"


def delta_errors():
    op, gates = tl.gated_delta_rule, {"g": -GATE.abs(), "beta": GATE.sigmoid()}
    good = {"q": KEYS, "k": KEYS, "v": H, **gates}
    yield from recurrence_errors(op, "q", "k", "v", gates)
    yield from gate_errors("g", op, good, True)
    yield from gate_errors("beta", op, good, False)
    yield "scale", lambda: op(**good, scale="a"), TypeError, "scale as a number, got 'a'"


def attention_errors():
    op = tl.linear_attention
    yield from recurrence_errors(op, "q", "k", "v", {})
    yield from gate_errors("g", op, {"q": KEYS, "k": KEYS, "v": H}, True)
    yield "scale", lambda: op(KEYS, KEYS, H, scale=True), TypeError, "scale as a number, got True"


def dual_errors():
    op, others = tl.ssd, {"dt": GATE.sigmoid(), "A": -torch.ones(2)}
    good = {"x": H, "B": KEYS, "C": KEYS, **others}
    yield from recurrence_errors(op, "C", "B", "x", others)
    yield from gate_errors("dt", op, good, False)
    for name in "AD":

        def call(wrong, name=name):
            return lambda: op(**{**good, name: wrong})

        yield f"{name}", call(torch.ones(3)), ValueError, f"{name} of shape (2,), a number per head, got (3,)"
        yield f"rows {name}", call(GATE), TypeError, f"{name} as a plain tensor of shape (2,), got"
        yield f"no {name}", call(1.0), TypeError, f"{name} as a plain tensor of shape (2,), got 1.0"
        yield (
            f"whole {name}",
            call(torch.ones(2).long()),
            TypeError,
            f"{name} of torch.float32 on cpu, got",
        )


KEEPS = {"keeps": True, "tolerance": CARRIED, "wide": (1,)}
MATRICES = ((2, 3), (1, 2))
ENTRIES = [
    SequenceInfo("sequence_scan", over(scans), scan_errors, **KEEPS),
    SequenceInfo("gated_delta_rule", over(deltas, MATRICES), delta_errors, **KEEPS),
    SequenceInfo("linear_attention", over(attentions, MATRICES), attention_errors, **KEEPS),
    SequenceInfo("ssd", over(duals, MATRICES), dual_errors, **KEEPS),
]
