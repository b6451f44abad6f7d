# SPDX-License-Identifier: Apache-2.0
"""What programs of the law of compositions (composition_law.py) are written with: batches, and the names that a step may use."""

import functools
import itertools
from typing import NamedTuple

import torch
import torch.nn.functional as F

import torch_lod as tl
from torch_lod import LoDTensor

# -- what programs are written with

_TABLE = torch.Generator().manual_seed(7)


def _rand(*shape):
    return torch.randn(*shape, generator=_TABLE, dtype=torch.float64)


def _module(make, *args, **kwargs):
    module = make(*args, **kwargs)
    for p in module.parameters():
        p.data = _rand(*p.shape) * 0.4
        p.requires_grad_(False)
    return module


def put(v, key, value=1.0):
    return wrote(v.clone(), key, value)


def wrote(v, key, value=1.0):
    v[key] = value
    return v


def changed(v, change):
    v = v.clone()
    change(v)
    return v


def mul_(v, other):
    v *= other
    return v


def sub_(v, other):
    v -= other
    return v


def each(v, dim):
    for t in v.unbind(dim):
        t.add_(1)
    return v


def mean(v, level=-1):
    """A row for each sequence, declared."""
    pooled = tl.sequence_pool(v, "mean", level=level)
    return pooled if isinstance(pooled, LoDTensor) else tl.per_sequence(pooled, level)


def cell(a, h):
    h = torch.tanh(a + h * 0.5)
    return h, h


def scan(v, static):
    init = v.values().new_zeros(v.num_sequences(-1), *v.shape[1:])
    return tl.scan(lambda a, h, other: (torch.tanh(a + other), h), v, init, static=static)[0]


def rows_of(t) -> tuple[int, LoDTensor] | None:
    """The dim of the rows of sequences in a tensor, and the same with the rows first; None where there are none."""
    if isinstance(t, LoDTensor):
        return 0, t
    if not isinstance(t, torch.Tensor) or type(t) in (torch.Tensor, torch.nn.Parameter):
        return None
    for dim in range(1, t.dim()):
        front = t.movedim(dim, 0)
        if isinstance(front, LoDTensor):
            return dim, front
    return None


def first(v, dim):
    """The numbers of the first rows of all sequences, where they are at that dim."""
    if type(v) is torch.Tensor:
        return torch.tensor([0])
    found = rows_of(v)
    if found is None or found[0] != dim:
        raise IndexError("no rows there")
    return found[1].row_offsets(-1)[:-1]


def heads(v):
    return v.view(1, v.shape[1], 2, 4).transpose(1, 2)


def keys(mask):
    """A mask of keys for heads, of (1, length)."""
    return mask[:, None, None, :]


def biased(v, bias):
    return F.scaled_dot_product_attention(heads(v), heads(v), heads(v), attn_mask=bias)


WIDTH = 8
_OURS = {"batch_first": True}
NAMES = {
    "torch": torch,
    "F": F,
    "tl": tl,
    **{f.__name__: f for f in (put, wrote, changed, mul_, sub_, each, mean, cell, scan, first, heads, keys, biased)},
    "w": _rand(8, 8),
    "b": _rand(8),
    "k1": _rand(8, 8, 1),
    "k3": _rand(8, 8, 3),
    "w3": _rand(8, 8, 3),
    "table": _rand(20, 8),
    "pe": _rand(1, 20, 8),
    "order": torch.tensor([1, 2, 0, 5, 4, 3, 7, 6]),
    "HEADS": torch.nn.Parameter(_rand(3, 8), requires_grad=False),
    "W3": torch.nn.Parameter(_rand(3, 8, 8), requires_grad=False),
    "lstm": _module(torch.nn.LSTM, 8, 8, batch_first=True),
    "gru": _module(torch.nn.GRU, 8, 8, batch_first=True),
    "attend": _module(torch.nn.MultiheadAttention, 8, 2, batch_first=True),
    "layer": _module(torch.nn.TransformerEncoderLayer, 8, 2, 8, dropout=0.0, batch_first=True),
    "lstm_ours": _module(tl.nn.LSTM, 8, 8),
    "gru_ours": _module(tl.nn.GRU, 8, 8),
    "attend_ours": _module(tl.nn.MultiheadAttention, 8, 2),
}
for _value in NAMES.values():
    if isinstance(_value, torch.nn.Module):
        _value.double().eval()

#: Lengths by level, of three outermost sequences of which the middle one changes. 8 rows are as many as there are features, and
#: three sequences as many as there are heads: sizes prove nothing.
BATCHES = (
    [[4, 2, 5]],
    [[2, 1, 2], [1, 3, 2, 2, 3]],
    [[3, 2, 3]],
    [[1, 2, 1], [3, 1, 1, 3]],
    [[6, 2, 0]],
    [[2, 2, 1], [2, 0, 3, 1, 5]],
)


class Batch(NamedTuple):
    """Numbers for all operands: `rows` by row, `inner` and `outer` by sequence of the innermost and outermost level."""

    lengths: list
    rows: dict
    inner: dict
    outer: dict

    @property
    def counts(self) -> list[int]:
        """The number of innermost sequences in every outermost one."""
        return self.lengths[0] if len(self.lengths) > 1 else [1] * len(self.lengths[0])


def _other(t, change):
    """What the rows of the changed sequence become."""
    if change == "other":
        return (t.flip(0) + 1) % 5 if t.dtype == torch.int64 else t.flip(0) * 3 + 1
    return torch.cat([t, (t + 2) % 5 if t.dtype == torch.int64 else t * 2 - 1, t[:1]])  # longer


@functools.cache
def numbers(which: int, change: str = "") -> Batch:
    lengths = [list(level) for level in BATCHES[which]]
    g = torch.Generator().manual_seed(which)
    counts = lengths[0] if len(lengths) > 1 else [1] * 3
    inside = range(counts[0], counts[0] + counts[1])  # the innermost sequences of the changed one
    total, n = sum(lengths[-1]), len(lengths[-1])

    def drawn(count, *shape):
        return torch.randn(count, *shape, generator=g, dtype=torch.float64)

    rows = {"x": drawn(total, 8), "y": drawn(total, 8), "ids": torch.randint(0, 5, (total,), generator=g)}
    inner = {"c": drawn(n, 8), "s": drawn(n), "r": drawn(n, 8, 8), "o": drawn(n, 8), "big": drawn(n, 8)}
    inner |= {"R": drawn(n, 8, 8), "aim": drawn(n, 8), "aim1": drawn(n, 1), "aim0": drawn(n), "whole0": drawn(n, 8)}
    outer = {"c0": drawn(3, 8)}
    if change:
        for name, t in rows.items():
            parts = list(t.split(lengths[-1]))
            for j in inside:
                parts[j] = _other(parts[j], change if change == "other" or j == inside[-1] else "other")
            rows[name] = torch.cat(parts)
        for name in ("c", "s", "r", "o"):  # the others are plain: weights may have as many entries
            inner[name][list(inside)] = inner[name][list(inside)] * 3 + 1
        outer["c0"][1] = outer["c0"][1] * 3 + 1
        if change == "longer":
            lengths[-1][inside[-1]] = 2 * lengths[-1][inside[-1]] + min(1, lengths[-1][inside[-1]])
    return Batch(lengths, rows, inner, outer)


#: Plain tensors with an entry for each sequence.
PLAIN = ("big", "R", "aim", "aim1", "aim0", "whole", "whole0")


def one_of(batch: Batch, i: int, innermost: bool, weights: bool = False) -> Batch:
    """A sequence alone, of the outermost or of the innermost level; with `weights`, plain tensors have all entries."""
    ends = list(itertools.accumulate(batch.counts, initial=0))
    first, end = (i, i + 1) if innermost else ends[i : i + 2]
    parent = next(k for k in range(len(batch.counts)) if ends[k + 1] > i) if innermost else i
    inner = batch.lengths[-1][first:end]
    begin = sum(batch.lengths[-1][:first])
    lengths = [inner] if innermost or len(batch.lengths) == 1 else [[len(inner)], inner]
    rows = {name: t[begin : begin + sum(inner)] for name, t in batch.rows.items()}
    return Batch(
        lengths,
        rows,
        {name: t if weights and name in PLAIN else t[first:end] for name, t in batch.inner.items()},
        {name: t[parent : parent + 1] for name, t in batch.outer.items()},
    )


class Operands(dict):
    """The names of a program, made when they are looked up: declared and with a LoD, or plain."""

    def __init__(self, batch: Batch, dense: bool = False, gradient: bool = False):
        super().__init__()
        self.batch, self.dense, self.gradient, self.leaves = batch, dense, gradient, {}
        self.lod = tl.LoD.from_lengths(batch.lengths)

    def __missing__(self, name):
        batch = self.batch
        if name == "whole":
            self[name] = torch.ones(len(batch.lengths[-1]), dtype=torch.int64)
            return self[name]
        if name == "f":
            self[name] = self.declared(batch.inner["s"] > 0, -1)
            return self[name]
        t = next((own[name] for own in batch[1:] if name in own), None)
        if t is None:
            raise KeyError(name)
        t = t.clone()
        if self.gradient and t.is_floating_point():
            self.leaves[name] = t.requires_grad_()
            t = t * 1
        if name in batch.rows:
            t = t if self.dense else LoDTensor(t, self.lod)
        elif name in ("c", "s", "r", "c0") or (name == "o" and self.lod.depth == 1):
            t = self.declared(t, 0 if name == "c0" else -1)
        elif name == "o":
            t = t if self.dense else LoDTensor(t, self.lod.outer(-1))
        self[name] = t
        return t

    def declared(self, t, level):
        return t if self.dense else tl.per_sequence(t, level)
