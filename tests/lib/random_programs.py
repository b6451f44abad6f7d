# SPDX-License-Identifier: Apache-2.0
"""Random programs: chains of functions of LoDTensors, and the same chain as plain loops over sequences.

The state of a program is a pair: a LoDTensor and a `Nest` of the references. A `Step` does the same to both.
"""

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import reference.attend as attend
import reference.levels as levels
import reference.order as order
import reference.sequence as loops
import reference.states as states
import torch
import torch.nn.functional as F
from hypothesis import strategies as st
from nested import flat, within, without_level
from reference.sequence import Nest, joined, numbered, parts
from torch import nn

import torch_lod as tl


class Step(NamedTuple):
    name: str
    #: (x, *options), of the LoDTensor; of the Nest.
    ours: Callable
    loop: Callable
    #: Whether x may be given to it.
    takes: Callable = lambda x: True
    #: A strategy for each option.
    options: tuple = ()
    #: Whether the level, a number, is the last option.
    level: bool = False


# -- ordinary functions of torch: of the batch what they are of every sequence alone


def _rowwise(function: Callable) -> Callable:
    def loop(x: Nest, *options):
        like = function(x.values[:0], *options)
        return x.with_rows(joined([function(r, *options) for r in parts(x, x.depth - 1) if len(r)], like))

    return loop


def _in_place(change: Callable) -> Callable:
    def function(r):
        r = r.clone()
        change(r)
        return r

    return function


def _write(r):
    r[..., 0] = 2.0


def rank(least: int, most: int = 9):
    return lambda x: least <= x.dim() <= most and x.shape[1:].numel() > 0


def wide(x) -> bool:
    return x.dim() > 1 and x.shape[1:].numel() > 0 and x.shape[1:].numel() < 20


def _constant(*shape, dtype):
    return torch.linspace(-1, 1, math.prod(shape), dtype=dtype).view(shape)


ANY = {
    "tanh": torch.tanh,
    "sigmoid": lambda r: r.sigmoid(),
    "gelu": F.gelu,
    "softplus": F.softplus,
    "x * 2 + 1": lambda r: r * 2 + 1,
    "1 - x / 3": lambda r: 1 - r / 3,
    "x * x": lambda r: r * r,
    "sin": torch.sin,
    "neg": torch.neg,
    "clone": torch.clone,
    "contiguous": lambda r: r.contiguous(),
    "exp(-x ** 2)": lambda r: torch.exp(-(r**2)),
    "lerp": lambda r: torch.lerp(r, r * 2, 0.25),
    "addcmul": lambda r: torch.addcmul(r, r, r, value=0.5),
    "dropout(0)": lambda r: F.dropout(r, 0.0),
    "unsqueeze(-1)": lambda r: r.unsqueeze(-1),
    "mul_": _in_place(lambda r: r.mul_(0.5)),
    "tanh_": _in_place(lambda r: torch.tanh_(r)),
    "add_": _in_place(lambda r: r.add_(r)),
    "x += 1": _in_place(lambda r: r.__iadd__(1)),
    "relu": torch.relu,
    "abs": torch.abs,
    "clamp": lambda r: r.clamp(-1, 0.5),
    "where": lambda r: torch.where(r > 0, r, r * 0.1),
    "masked_fill": lambda r: r.masked_fill(r < 0, 0.25),
    "x[x > 0] =": _in_place(lambda r: r.__setitem__(r > 0, 0.5)),
    "relu_": _in_place(lambda r: r.relu_()),
    "leaky_relu": lambda r: F.leaky_relu(r, 0.1),
}
WIDE = {
    "softmax(-1)": lambda r: r.softmax(-1),
    "log_softmax(-1)": lambda r: F.log_softmax(r, -1),
    "sum(1)": lambda r: r.sum(1),
    "mean(-1)": lambda r: r.mean(-1, keepdim=True),
    "logsumexp(1)": lambda r: r.logsumexp(1),
    "cumsum(1)": lambda r: r.cumsum(1),
    "flip(1)": lambda r: r.flip(1),
    "roll(1)": lambda r: r.roll(1, 1),
    "cat([x, 2x], 1)": lambda r: torch.cat([r, r * 2], 1),
    "stack([x, -x], 1)": lambda r: torch.stack([r, -r], 1),
    "unsqueeze(1)": lambda r: r.unsqueeze(1),
    "flatten(1)": lambda r: r.flatten(1),
    "x[:, :1]": lambda r: r[:, :1],
    "x[..., -1]": lambda r: r[..., -1],
    "x[:, [0, 0]]": lambda r: r[:, [0, 0]],
    "transpose(1, -1)": lambda r: r.transpose(1, -1),
    "layer_norm": lambda r: F.layer_norm(r, tuple(r.shape[1:])),
    "pad": lambda r: F.pad(r, (1, 0, 0, 0)),
    "linear": lambda r: F.linear(r, _constant(3, r.shape[-1], dtype=r.dtype), _constant(3, dtype=r.dtype)),
    "x @ w": lambda r: r @ _constant(r.shape[-1], 4, dtype=r.dtype),
    "reshape": lambda r: r.reshape(len(r), r.shape[1:].numel()),
    "chunk": lambda r: r.chunk(2, 1)[0],
    "unbind(1)": lambda r: r.unbind(1)[0],
    "narrow": lambda r: r.narrow(1, 0, 1),
    "index_select": lambda r: r.index_select(1, torch.tensor([0, 0])),
    "einsum": lambda r: torch.einsum("i...,i...->i...", r, r),
    "var(1)": lambda r: r.var(1, correction=0),
    "x[..., 0] =": _in_place(_write),
    "expand": lambda r: r.unsqueeze(1).expand(-1, 2, *r.shape[1:]),
    "sort(1)": lambda r: r.sort(1).values,
    "amax(1)": lambda r: r.amax(1),
    "repeat": lambda r: r.repeat(1, 2, *[1] * (r.dim() - 2)),
}
ROWS = [
    *(Step(name, f, _rowwise(f)) for name, f in ANY.items()),
    *(Step(name, f, _rowwise(f), wide) for name, f in WIDE.items()),
]

# -- the modules of torch.nn that run along a sequence


@functools.cache
def _module(kind: str, width: int, dtype):
    g = torch.Generator().manual_seed(width)
    made = {
        "LSTM": lambda: nn.LSTM(width, 3, batch_first=True),
        "GRU": lambda: nn.GRU(width, 3, bidirectional=True),
        "RNN": lambda: nn.RNN(width, 2),
        "Conv1d": lambda: nn.Conv1d(width, 3, 3, padding=1),
        "Conv1d(2)": lambda: nn.Conv1d(width, 2, 2, stride=2),
        "MaxPool1d": lambda: nn.MaxPool1d(2, 1),
        "AvgPool1d": lambda: nn.AvgPool1d(2),
        "MultiheadAttention": lambda: nn.MultiheadAttention(width, 1, batch_first=True),
    }[kind]()
    with torch.no_grad():
        for p in made.parameters():
            p.copy_(torch.rand(p.shape, generator=g) - 0.5)
    return made.to(dtype).requires_grad_(False).eval()


def _apply(kind: str, r):
    """A module along rows: of one plain sequence, or of a LoDTensor."""
    module, plain = _module(kind, r.shape[1], r.dtype), not isinstance(r, tl.LoDTensor)
    if kind == "MultiheadAttention":
        return module(r, r, r, need_weights=False)[0]
    if kind in ("LSTM", "GRU", "RNN"):
        return module(r)[0]
    return module(r.t()[None])[0].t() if plain else module(r)


def _along(kind: str, x: Nest):
    """What is too short for a window has no rows left."""
    made = []
    for r in parts(x, x.depth - 1):
        made.append(_apply(kind, r) if len(r) >= (2 if "Pool" in kind or "(2)" in kind else 1) else None)
    like = _apply(kind, x.values.new_zeros(2, x.values.shape[1]))[:0]
    made = [like if m is None else m for m in made]
    counts = iter(map(len, made))
    tree = numbered(within(x.tree, x.depth, lambda _: [0] * next(counts)), x.depth)
    return Nest(tree, x.depth, joined(made, like), x.names)


MODULES = [
    Step(
        f"nn.{kind}",
        functools.partial(_apply, kind),
        functools.partial(_along, kind),
        rank(2, 2),
    )
    for kind in ("LSTM", "GRU", "RNN", "Conv1d", "Conv1d(2)", "MaxPool1d", "AvgPool1d", "MultiheadAttention")
]

# -- sequence operators, against tests/lib/reference


def _operator(name: str, *options, takes=lambda x: True, call=None, said="") -> Step:
    """tl.name and its reference, at any level. `call(operator, x, *options, level)` calls either."""
    call = call or (lambda operator, x, *rest: operator(x, *rest[:-1], level=rest[-1]))
    spaces = tl, next(module for module in (loops, order, states, attend) if hasattr(module, name))
    ours, loop = (functools.partial(call, getattr(space, name)) for space in spaces)
    return Step(f"{name}{said}", ours, loop, takes, tuple(map(st.sampled_from, options)), True)


def _first(operator, x, level):
    return operator(x, level=level)[0]


def _weighted(shape):
    def call(operator, x, level):
        values = x.values if isinstance(x, Nest) else x.values()
        return operator(x, _constant(*shape(values.shape), dtype=values.dtype), level=level)

    return call


def _itself(operator, x, *rest):
    return operator(x, x, x, causal=rest[0], level=rest[-1])


def _conv(operator, x, level):
    values = x.values if isinstance(x, Nest) else x.values()
    return operator(x, _constant(3 * values.shape[1], 2, dtype=values.dtype), 3, level=level)


def _middle(x, level):
    """Offsets and lengths of slices: all but the first element."""
    counts = [len(s) for s in flat(x.tree, level)] if isinstance(x, Nest) else x.lengths(level).tolist()
    return [min(1, n) for n in counts], [max(0, n - 1) for n in counts]


_KINDS = ("sum", "mean", "sqrt", "max", "min", "first", "last", "logsumexp", "prod", "var", "std", "median")
OPERATORS = [
    *(_operator("sequence_pool", (kind,), said=f" {kind}") for kind in _KINDS),
    _operator("sequence_first_step"),
    _operator("sequence_last_step"),
    _operator("sequence_softmax"),
    _operator("sequence_log_softmax"),
    _operator("sequence_normalize"),
    _operator("sequence_cumsum", (False, True), call=lambda op, x, back, level: op(x, reverse=back, level=level)),
    _operator("sequence_quantile", (0.3, 1), call=lambda op, x, q, level: op(x, q, level=level)),
    _operator(
        "sequence_scan",
        (-0.5, 1),
        (False, True),
        call=lambda op, x, a, back, level: op(x, a, reverse=back, level=level),
    ),
    _operator("sequence_cumprod"),
    _operator("sequence_logcumsumexp"),
    _operator("sequence_cummax", call=_first),
    _operator("sequence_cummin", call=_first),
    _operator("sequence_sort", (False, True), call=lambda op, x, down, level: op(x, descending=down, level=level)),
    _operator("sequence_reverse"),
    _operator("sequence_shift", (1, -1, 2, 0, -3)),
    _operator("sequence_concat", call=lambda op, x, level: op([x, x], level=level)),
    _operator("sequence_unfold", (1, 2, 3), (1, 2)),
    _operator("sequence_sample", (99,)),
    _operator("sequence_dropout", (0,)),
    _operator("sequence_conv", call=_conv, takes=rank(2, 2)),
    _operator("sequence_conv1d", call=_weighted(lambda s: (2, s[1], 3)), takes=rank(2, 2)),
    _operator("row_conv", call=_weighted(lambda s: (2, *s[1:])), takes=rank(2, 2)),
    _operator("sequence_attention", (False, True), call=_itself, takes=rank(2, 3)),
    _operator("rotary_embedding", takes=lambda x: 1 < x.dim() < 4 and x.shape[-1] % 2 == 0 and x.shape[1:].numel() > 0),
    _operator(
        "sequence_topk",
        (1, 2),
        call=lambda op, x, k, level: op(x, k, level=level)[0],
        takes=lambda x: x.shape[1:].numel() > 0,
    ),
    _operator(
        "sequence_slice",
        call=lambda op, x, level: op(x, *(torch.tensor(t, dtype=torch.int64) for t in _middle(x, level)), level=level),
    ),
]

# -- structure


def _tree(function: Callable) -> Callable:
    """Of the lists of a Nest; `function(tree, depth, *options)` returns lists of the same depth."""
    return lambda x, *options: x._replace(tree=function(x.tree, x.depth, *options))


def _dropped(x: Nest, k: int):
    names = x.names and (*x.names[:k], *x.names[k + 1 :])
    return Nest(without_level(x.tree, k), x.depth - 1, x.values, names if names and any(names) else None)


def _grouped(x: Nest):
    return Nest([x.tree], x.depth + 1, x.values, x.names and (None, *x.names))


def _mask(x):
    return torch.arange(len(x)) % 3 != 1


def _spread(x, level):
    pooled = tl.sequence_pool(x, "sum", level=level)
    return tl.sequence_expand_as(pooled, x) if level + 1 == x.lod_level else x


def _spread_loop(x, level):
    pooled = loops.sequence_pool(x, "sum", level=level)
    return loops.sequence_expand_as(pooled, x) if level + 1 == x.depth else x


several = (lambda x: x.lod_level > 1,)
STRUCTURE = [
    Step(
        "head",
        lambda x, k: x.head(k),
        _tree(lambda t, d, k: within(t, d, lambda s: s[:k])),
        options=(st.integers(0, 3),),
    ),
    Step(
        "tail",
        lambda x, k: x.tail(k),
        _tree(lambda t, d, k: within(t, d, lambda s: s[max(0, len(s) - k) :])),
        options=(st.integers(0, 3),),
    ),
    Step(
        "filter_rows",
        lambda x: x.filter_rows(_mask(x)),
        _tree(lambda t, d: within(t, d, lambda s: [i for i in s if i % 3 != 1])),
    ),
    Step(
        "permute_sequences",
        lambda x: x.permute_sequences(list(reversed(range(x.num_sequences())))),
        _tree(lambda t, d: t[::-1]),
    ),
    Step("seq[1:]", lambda x: x.seq[1:], _tree(lambda t, d: t[1:])),
    Step("seq[::-1]", lambda x: x.seq[::-1], _tree(lambda t, d: t[::-1])),
    Step("seq[[0, 0]]", lambda x: x.seq[[0, 0]], _tree(lambda t, d: [t[0], t[0]]), lambda x: x.num_sequences() > 0),
    Step("drop_level(0)", lambda x: x.drop_level(0), lambda x: _dropped(x, 0), *several),
    Step("drop_level(-1)", lambda x: x.drop_level(-1), lambda x: _dropped(x, x.depth - 1), *several),
    Step("group", lambda x: x.group([x.num_sequences()]), _grouped, lambda x: x.lod_level < 4),
    Step("cat", lambda x: tl.cat([x, x * 2]), lambda x: _twice(x), lambda x: len(x) < 60),
    Step("sum over its sequence", _spread, _spread_loop, level=True),
    Step(
        "filter",
        lambda x, level: x.filter(torch.arange(x.lod.elements_at(level)) % 3 != 1, level=level),
        lambda x, level: levels.filter(x, torch.arange(len(flat(x.tree, level + 1))) % 3 != 1, level),
        level=True,
    ),
    Step(
        "tail(1) of a level",
        lambda x, level: x.tail(1, level=level),
        lambda x, level: levels.tail(x, 1, level),
        level=True,
    ),
    Step("seq[:, ::-1]", lambda x: x.seq[:, ::-1], lambda x: levels.seq(x, slice(None), slice(None, None, -1))),
    Step(
        "sequence_roll",
        lambda x, n, level: tl.sequence_roll(x, n, level=level),
        levels.sequence_roll,
        options=(st.integers(-2, 3),),
        level=True,
    ),
    Step(
        "sequence_chunk",
        lambda x, level: tl.sequence_chunk(x, 2, level=level),
        lambda x, level: levels.sequence_chunk(x, 2, level=level),
        lambda x: x.lod_level < 4,
        level=True,
    ),
    Step("with_values", lambda x: x.with_values(x.values() * 2), lambda x: x.with_rows(x.rows() * 2)),
]


def _twice(x: Nest):
    again = within(x.tree, x.depth, lambda s: [i + len(x.values) for i in s])
    return x._replace(tree=[*x.tree, *again], values=torch.cat([x.values, x.values * 2]))


# -- two operands: what the program had before, with the same structure

PAIRS: dict[str, Callable] = {
    "x + y": torch.add,
    "x * y": torch.mul,
    "x - y": torch.sub,
    "cat([x, y], -1)": lambda x, y: torch.cat([x, y], -1) if x.dim() > 1 else x + y,
    "x += y": lambda x, y: x.clone().add_(y),
    "copy_": lambda x, y: x.clone().copy_(y),
    "addcmul": lambda x, y: torch.addcmul(x, x, y),
    "where": lambda x, y: torch.where(torch.ones_like(x, dtype=torch.bool), x, y),
}
STEPS = {step.name: step for step in (*ROWS, *MODULES, *OPERATORS, *STRUCTURE)}


def applicable(x: Any) -> list[str]:
    """The names of the steps that x may be given to."""
    return [name for name, step in STEPS.items() if step.takes(x)]
