# SPDX-License-Identifier: Apache-2.0
"""The classes of malformed arguments, as generators: a valid argument goes in, malformed ones come out, each lazily.

Most of what they make must be refused; some is legal in some calls. The contract of every call is the same: it returns a valid
result or raises an exception, and the process lives. tests/lib/malformed.py has, for structure, what must be said as well.
"""

import itertools
import math
from collections.abc import Callable, Iterator

import numpy as np
import torch
from malformed import HUGE, KIND, LENGTHS, OFFSETS, deep_list, ints, itself
from malformed_ops import BAD_MAPS, BAD_OFFSETS
from torch._subclasses import FakeTensorMode

import torch_lod as tl

LEAST = -(2**63)
#: What the classes are. A: structure, B: rows, C: options, D: state and what outlives a call.
TITLES = {
    "A1": "a level that falls",
    "A2": "negative offsets",
    "A3": "a first offset that is not 0",
    "A4": "a last offset beyond the rows",
    "A5": "a last offset before the last row",
    "A6": "offsets without an entry",
    "A7": "a single offset",
    "A8": "levels that do not fit one another",
    "A9": "too few levels, too many, none",
    "A10": "structure of another kind: scalars, matrices, words, flags, None",
    "A11": "structure in floating point, also 1e20 and NaN",
    "A12": "numbers beyond int64, up and down",
    "A13": "int32 lengths whose sum passes 2**31",
    "A14": "lengths that are negative, huge, or of another sum",
    "A15": "structure on another device, sparse, quantized",
    "A16": "structure in views: strided, expanded, read-only",
    "A17": "a tensor that changes between forward and backward",
    "A18": "operands with other LoDs",
    "A19": "operands with equal LoDs that are other objects",
    "A20": "numbers out of their range: levels, indices, sizes, widths, starts",
    "A21": "row numbers and ids that are unsorted, negative, too large",
    "A22": "depth without end, lists that contain themselves",
    "B1": "scalars, no rows, no columns, other numbers of dims",
    "B2": "empty sequences: all, the first, the last; no sequences",
    "B3": "dtypes",
    "B4": "other numbers of rows and columns",
    "B5": "strides: transposed, expanded, overlapping, with an offset",
    "B6": "NaN and infinities",
    "B7": "subnormal numbers, the largest, -0.0",
    "B8": "layouts and subclasses: sparse, quantized, mkldnn, nested, fake, wrapped",
    "B9": "no data: meta",
    "B10": "sizes past 2**31 and past 2**63 over one element of memory",
    "C1": "numbers in floating point where others are wanted: NaN, infinities, words",
    "C2": "words that are not in the list",
    "C3": "flags that are no flags",
    "C4": "dtypes and devices that do not fit",
    "C5": "optional arguments: given where there was None, None where there was one",
    "C6": "functions that raise, or return something else",
    "C7": "modules with other parameters: dtype, shape, device",
    "C8": "too few arguments, too many, of unknown names",
    "C9": "keys: slices, ellipsis, masks, None, nested",
    "D1": "files and pickles that were changed",
    "D2": "memory that is gone: a storage of 0 bytes",
    "D3": "memory that is too short by one byte",
    "D4": "memory that goes between forward and backward",
}
Malformed = Iterator[tuple[str, str, Callable]]


def _freed(t: torch.Tensor, left: int = 0) -> torch.Tensor:
    t = t.detach().clone(memory_format=torch.contiguous_format)
    t.untyped_storage().resize_(left)
    return t


def one_freed(value) -> None:
    """In place."""
    (value.values() if isinstance(value, tl.LoDTensor) else value).untyped_storage().resize_(0)


def _bytes(t: torch.Tensor) -> int:
    return t.numel() * t.element_size()


class _Subclass(torch.Tensor):
    pass


def _fake(t):
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        return mode.from_tensor(t)


def _strided(t, other):
    """A tensor of the same shape and other strides over the first element."""
    return torch.as_strided(t.detach().clone().flatten()[:1], t.shape, other)


#: Of any dense tensor: class, name, function.
DENSE = [
    ("D2", "freed", _freed),
    ("D3", "short", lambda t: _freed(t, max(_bytes(t) - 1, 0))),
    ("D3", "one byte", lambda t: _freed(t, 1)),
    ("B1", "scalar", lambda t: t.new_ones(())),
    ("B1", "no rows", lambda t: t[:0]),
    ("B1", "no columns", lambda t: t[..., :0]),
    ("B1", "more dims", lambda t: t.unsqueeze(0)),
    ("B1", "more dims behind", lambda t: t.unsqueeze(-1)),
    ("B1", "five dims of 0", lambda t: t.new_zeros(0, 0, 0, 0, 0)),
    ("B1", "fewer dims", lambda t: t.reshape(-1)),
    ("B4", "a row more", lambda t: torch.cat([t, t[:1]])),
    ("B4", "a row less", lambda t: t[1:]),
    ("B4", "a column more", lambda t: torch.cat([t, t[..., :1]], -1)),
    ("B4", "a column less", lambda t: t[..., 1:]),
    ("B4", "twice the rows", lambda t: torch.cat([t, t])),
    *(
        ("B3", str(d), lambda t, d=d: t.detach().to(d))
        for d in (torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.uint8, torch.bool)
        + (torch.complex64, torch.uint16, torch.float8_e4m3fn, torch.complex32, torch.uint64)
    ),
    ("B5", "transposed", lambda t: t.detach().mT.contiguous().mT),
    ("B5", "every other", lambda t: torch.cat([t, t], -1)[..., ::2]),
    ("B5", "expanded", lambda t: t[:1].expand(t.shape)),
    ("B5", "one element", lambda t: _strided(t, [0] * t.dim())),
    ("B5", "overlapping", lambda t: t.flatten().as_strided(t.shape, [0] * (t.dim() - 1) + [1])),
    ("B5", "offset", lambda t: torch.cat([t[:1], t])[1:]),
    (
        "B5",
        "unaligned",
        lambda t: torch.zeros(_bytes(t) + t.element_size(), dtype=torch.uint8).view(t.dtype)[1:].view(t.shape),
    ),
    ("B5", "leaf", lambda t: t.detach().clone().requires_grad_()),
    ("B5", "inference", lambda t: _inference(t)),
    ("B5", "negative view", lambda t: torch._neg_view(t)),
    ("B8", "sparse", lambda t: t.to_sparse()),
    ("B8", "csr", lambda t: t.to_sparse_csr()),
    ("B8", "mkldnn", lambda t: t.float().to_mkldnn()),
    ("B8", "quantized", lambda t: torch.quantize_per_tensor(t.float(), 1.0, 0, torch.qint8)),
    ("B8", "nested", lambda t: torch.nested.nested_tensor([t], layout=torch.jagged)),
    ("B8", "subclass", lambda t: t.as_subclass(_Subclass)),
    ("B8", "parameter", lambda t: torch.nn.Parameter(t.detach(), requires_grad=t.is_floating_point())),
    ("B8", "fake", _fake),
    ("B8", "zero", lambda t: torch._efficientzerotensor(t.shape, dtype=t.dtype)),
    ("B8", "a LoDTensor", lambda t: tl.LoDTensor(t, tl.LoD([[0, t.shape[0]]]))),
    ("B9", "meta", lambda t: t.to("meta")),
    ("B10", "2**40 rows", lambda t: t[:1].expand(2**40, *t.shape[1:])),
    (
        "B10",
        "2**62 rows",
        lambda t: t.new_zeros(1, *[0] * max(t.dim() - 1, 0)).expand(2**62, *[0] * max(t.dim() - 1, 0)),
    ),
    ("B10", "2**40 columns", lambda t: t[..., :1].expand(*t.shape[:-1], 2**40)),
    ("A10", "None", lambda t: None),
    ("A10", "list", lambda t: t.tolist()),
    ("A10", "array", lambda t: t.detach().numpy()),
    ("A10", "word", lambda t: "abc"),
    ("A10", "number", lambda t: 3),
    ("A10", "object", lambda t: object()),
]
FLOATING = [
    ("B6", "nan", lambda t: torch.full_like(t, math.nan)),
    ("B6", "inf", lambda t: torch.full_like(t, math.inf)),
    ("B6", "-inf", lambda t: torch.full_like(t, -math.inf)),
    ("B6", "a nan", lambda t: torch.cat([t[:-1], torch.full_like(t[-1:], math.nan)])),
    ("B7", "largest", lambda t: torch.full_like(t, torch.finfo(t.dtype).max)),
    ("B7", "smallest", lambda t: torch.full_like(t, torch.finfo(t.dtype).smallest_normal / 8)),
    ("B7", "-0.0", lambda t: torch.full_like(t, -0.0)),
]
#: Of a tensor of integers: they may be rows, ids, lengths, seeds.
WHOLE = [
    *(("A21", f"all {n}", lambda t, n=n: torch.full_like(t, n)) for n in (-1, -2, 5, 2**31, 2**40, HUGE, LEAST)),
    *(
        ("A21", f"last {n}", lambda t, n=n: torch.cat([t.flatten()[:-1], t.new_tensor([n])]).view(t.shape))
        for n in (-1, 7, HUGE, LEAST)
    ),
    ("A21", "reversed", lambda t: t.flip(0)),
    ("A13", "int32", lambda t: torch.full_like(t, 2**31 - 1, dtype=torch.int32)),
]


def _inference(t):
    with torch.inference_mode():
        return t.clone()


def _of_tables(*tables) -> Malformed:
    for table in tables:
        for name, entry in table.items():
            given = entry[0] if isinstance(entry, tuple) else entry
            kind, _, rest = name.partition("-")
            yield kind, rest or name, (lambda g=given: g)


#: The class of each of the raw operators' offsets.
RAW_OFFSETS = {
    f"{kind}-{name}": BAD_OFFSETS[name]
    for kind, names in {
        "A1": ["falls"],
        "A2": ["negative", "all-negative"],
        "A3": ["start", "start-of-two"],
        "A4": ["beyond", "far-beyond", "huge"],
        "A5": ["short"],
        "A6": ["empty"],
        "A7": ["single"],
        "A10": ["scalar", "matrix", "five-dims"],
        "A12": ["wraps", "wraps-to-end"],
    }.items()
    for name in names
}
RAW_MAPS = {f"A21-map {name}": given for name, given in BAD_MAPS.items()}
NUMBERS = {
    **{f"A20-{n}": n for n in (-1, 0, 1, 2, 7, -2, 2**20 + 1, 2**31 - 1, 2**31, -(2**31), 2**40, 2**62, HUGE, LEAST)},
    **{f"A12-{name}": n for name, n in {"2**63": 2**63, "2**70": 2**70, "-2**70": -(2**70)}.items()},
    "A10-True": True,
    "A10-word": "a",
    "A10-None": None,
    "A10-list": [1],
    "A10-tensor": torch.tensor(1),
    "A10-tensor of two": torch.tensor([1, 2]),
    "A10-numpy": np.int64(1),
    "A10-object": object(),
    "D2-freed": _freed(torch.ones(2)),
    "D2-freed scalar": _freed(torch.tensor(1)),
    "A11-1.5": 1.5,
    "A11-nan": math.nan,
    "A11-inf": math.inf,
    "A11-1e300": 1e300,
}
FLOATS = {
    **{f"C1-{n}": n for n in (math.nan, math.inf, -math.inf, 1e308, -1e308, 5e-324, -0.0, -1.0, 2.0, 1e40)},
    "C1-2**70": 2**70,
    "C1-2**1030": 2**1030,
    "C1-complex": 1j,
    "C1-word": "a",
    "C1-None": None,
    "C1-True": True,
    "C1-tensor": torch.tensor([1.0, 2.0]),
    "C1-object": object(),
    "D2-freed": _freed(torch.ones(2)),
}
WORDS = {
    f"C2-{n!r:.20}": n for n in ("bogus", "", None, 5, b"sum", "\0", "a" * 10_000, "\ud800", ["sum"], object(), True)
}
WORDS["D2-freed"] = _freed(torch.ones(2))
FLAGS = {f"C3-{n!r:.20}": n for n in (None, 2, "a", "", 0.5, torch.ones(2), [], object())}
FLAGS["D2-freed"] = _freed(torch.ones(2))
KINDS = {
    f"C4-{n!r:.30}": n
    for n in ("float32", None, 3, torch.complex32, torch.quint8, torch.bool, torch.float8_e5m2, float)
}
PLACES = {f"C4-{n!r:.30}": n for n in ("cuda", "meta", "bogus", "cpu:7", -1, 3.5, torch.float32, torch.device("meta"))}
GIVEN = {
    "C5-number": 1,
    "C5-huge": HUGE,
    "C5-float": 0.5,
    "C5-word": "a",
    "C5-flag": True,
    "C5-list": [1, 2],
    "C5-scalar": torch.tensor(1),
    "C5-row": torch.ones(6),
    "C5-matrix": torch.ones(2, 3),
    "C5-rows": torch.ones(6, 3),
    "C5-ids": ints(0, 1, 2),
    "C5-LoDTensor": tl.from_lengths(torch.ones(6, 3), [[2, 1], [1, 2, 3]]),
    "C5-freed": _freed(torch.ones(3, 2)),
    "C5-object": object(),
}
KEYS = {
    "C9-ellipsis": ...,
    "C9-none": None,
    "C9-slice": slice(None, None, 2),
    "C9-far slice": slice(2**62, -(2**70), 3),
    "C9-back": slice(None, None, -1),
    "C9-step 0": slice(0, 5, 0),
    "C9-words": slice("a", "b"),
    "C9-bool": True,
    "C9-bools": (True, False, [0, 1]),
    "C9-nested": ((0, 1), [0, [1]]),
    "C9-mask": torch.tensor([True, False]),
    "C9-long mask": torch.ones(10_000, dtype=torch.bool),
    "C9-matrix": torch.zeros(2, 2, dtype=torch.int64),
    "C9-beyond": torch.tensor([0, 10**9]),
    "C9-least": torch.tensor([LEAST]),
    "C9-bytes": torch.tensor([1, 0, 1], dtype=torch.uint8),
    "C9-floats": torch.tensor([0.0]),
    "C9-freed": _freed(torch.zeros(2, dtype=torch.int64)),
    "C9-many": (0,) * 70,
    "C9-number": -(2**70),
    "C9-word": "a",
}


def _raise(*args, **kwargs):
    raise KeyError("a function of the user's")


FUNCTIONS = {
    "C6-raises": _raise,
    "C6-nothing": lambda *a, **k: None,
    "C6-numbers": lambda *a, **k: 3,
    "C6-pair": lambda *a, **k: (None, None),
    "C6-wrong": lambda *a, **k: (torch.zeros(1), torch.zeros(1)),
    "C6-freed": lambda *a, **k: (_freed(torch.ones(3, 2)),) * 2,
    "C6-meta": lambda *a, **k: (torch.ones(3, 2, device="meta"),) * 2,
    "C6-word": "relu6",
    "C6-None": None,
}


def _cuts(rows: int) -> Iterator[tuple[str, str, tl.LoD]]:
    """Other LoDs over as many rows."""
    half = rows // 2
    yield "A18", "one sequence", tl.LoD([[0, rows]])
    yield "A18", "two", tl.LoD([[0, half, rows]])
    yield "A9", "three levels", tl.LoD([[0, 1], [0, 2], [0, half, rows]])
    yield "A9", "forty levels", tl.LoD([[0, 1]] * 39 + [[0, rows]])
    yield "B2", "empty ends", tl.LoD([[0, 0, rows, rows]])
    yield "B2", "an empty above", tl.LoD([[0, 0, 2, 2], [0, 0, rows]])


def _malformed_lod_tensor(x: tl.LoDTensor) -> Malformed:
    rows, lod = x.values(), x.lod
    for kind, name, function in [*DENSE, *(FLOATING if rows.is_floating_point() else WHOLE)]:
        if kind == "A10" and name != "None":
            yield kind, name, lambda f=function: f(rows)
        elif kind != "A10":  # refused where the LoD does not fit any more; else a LoDTensor of such rows
            yield kind, f"rows {name}", lambda f=function: _with_rows(f(rows), lod)
    for kind, name, other in _cuts(lod.rows):
        yield kind, name, lambda o=other: tl.LoDTensor(rows, o)
    yield "A19", "equal", lambda: tl.LoDTensor(rows, tl.LoD(lod.to_list(), level_names=lod.level_names))
    yield "A18", "other names", lambda: tl.LoDTensor(rows, tl.LoD(lod.to_list(), level_names=list("zyxw"[: lod.depth])))
    yield "B2", "all empty", lambda: tl.LoDTensor(rows[:0], tl.LoD([[0] * 3] * 1))
    yield "B2", "no sequences", lambda: tl.LoDTensor(rows[:0], tl.LoD([[0]] * lod.depth))
    yield "A10", "rows alone", lambda: rows
    yield "A10", "the LoD", lambda: lod
    yield "A10", "None", lambda: None


def _with_rows(rows, lod):
    """Rows with a LoD of as many levels, over however many rows there are now."""
    if isinstance(rows, torch.Tensor) and rows.dim() and rows.shape[0] != lod.rows:
        lod = tl.LoD([[0, 1]] * (lod.depth - 1) + [[0, rows.shape[0]]])
    return tl.LoDTensor(rows, lod)


def _malformed_list(value) -> Malformed:
    yield "A10", "none", lambda: None
    yield "A10", "word", lambda: "abc"
    yield "A6", "empty", lambda: type(value)()
    yield "A9", "nested", lambda: [value]
    yield "A9", "twice", lambda: [*value, *value]
    yield "A22", "itself", itself
    yield "A22", "deep", lambda: deep_list(2000)
    yield "A22", "many levels", lambda: [[0, 1]] * 3000
    whole = value and all(isinstance(entry, int) for entry in value)
    if whole or not value:
        for kind, name, thunk in _of_tables(OFFSETS, LENGTHS):
            yield kind, name, thunk
    for at in {0, len(value) - 1} if value else ():
        for kind, name, thunk in malformed(value[at]):
            if kind not in ("A22",):
                yield kind, f"[{at}] {name}", lambda a=at, t=thunk: type(value)([*value[:a], t(), *value[a + 1 :]])


def ours(module, name: str) -> bool:
    """Whether a parameter belongs to a module of ours: torch's own modules read what is no longer there, as they do
    everywhere."""
    return type(module.get_submodule(name.rpartition(".")[0])).__module__.startswith("torch_lod")


def _module_with(module, change):
    for name, parameter in list(module.named_parameters()):
        changed = change(parameter.detach())
        owner = module.get_submodule(name.rpartition(".")[0])
        setattr(owner, name.rpartition(".")[2], torch.nn.Parameter(changed, requires_grad=changed.is_floating_point()))
    return module


def _first(module, change):
    for name, parameter in list(module.named_parameters())[-1:]:
        owner = module.get_submodule(name.rpartition(".")[0])
        setattr(owner, name.rpartition(".")[2], torch.nn.Parameter(change(parameter.detach())))
    return module


def _malformed_module(module) -> Malformed:
    import copy

    for name in [name for name, _ in module.named_parameters() if ours(module, name)]:

        def one(left=0, name=name):
            other = copy.deepcopy(module)
            other.get_parameter(name).untyped_storage().resize_(left)
            return other

        yield "D2", f"{name} freed", one
        yield "D3", f"{name} short", lambda one=one: one(1)
    for name, change in {
        "half": lambda p: p.half(),
        "whole": lambda p: p.long(),
        "meta": lambda p: p.to("meta"),
        "narrow": lambda p: p[..., 1:],
        "rows": lambda p: p[1:],
        "scalar": lambda p: p.new_ones(()),
        "transposed": lambda p: p.mT.contiguous().mT,
    }.items():
        yield "C7", f"all {name}", lambda c=change: _module_with(copy.deepcopy(module), c)
        yield "C7", f"last {name}", lambda c=change: _first(copy.deepcopy(module), c)


def _malformed_tensor(t: torch.Tensor) -> Malformed:
    whole = not t.is_floating_point() and not t.is_complex() and t.dtype != torch.bool
    for kind, name, function in [*DENSE, *(FLOATING if t.is_floating_point() else ()), *(WHOLE if whole else ())]:
        yield kind, name, lambda f=function: f(t)
    if whole and t.dim() == 1:
        yield from _of_tables(RAW_OFFSETS, RAW_MAPS)
        yield "A14", "doubled", lambda: t * 2
        yield "A16", "strided", lambda: torch.stack([t, t], 1)[:, 0]
        yield "A16", "read-only", lambda: _read_only(t)
        yield "A16", "expanded", lambda: t[:1].expand(t.shape)
        yield "A8", "an entry more", lambda: torch.cat([t, t[-1:]])
        yield "A8", "an entry less", lambda: t[:-1]
        yield "A11", "floats", lambda: t.double()
        yield "A15", "meta", lambda: t.to("meta")


def _read_only(t):
    array = t.numpy().copy()
    array.setflags(write=False)
    return array


def malformed(value) -> Malformed:
    """(class, name, what makes the malformed argument) for a valid argument."""
    if isinstance(value, tl.LoDTensor):
        yield from _malformed_lod_tensor(value)
    elif isinstance(value, torch.Tensor):
        yield from _malformed_tensor(value)
    elif isinstance(value, tl.LoD):
        for kind, name, other in _cuts(value.rows):
            yield kind, name, lambda o=other: o
        yield "A18", "more rows", lambda: tl.LoD([[0, value.rows + 1]])
        yield "A19", "equal", lambda: tl.LoD(value.to_list())
        yield "B2", "no sequences", lambda: tl.LoD([[0]])
        yield "A10", "its lists", value.to_list
        yield "B10", "2**62 rows", lambda: tl.LoD([[0, 2**62]])
        yield from _of_tables(KIND)
    elif isinstance(value, torch.nn.Module):
        yield from _malformed_module(value)
    elif isinstance(value, bool):
        yield from _of_tables(FLAGS)
    elif isinstance(value, int):
        yield from _of_tables(NUMBERS)
    elif isinstance(value, float):
        yield from _of_tables(FLOATS)
    elif isinstance(value, str):
        yield from _of_tables(WORDS)
    elif isinstance(value, torch.dtype):
        yield from _of_tables(KINDS)
    elif isinstance(value, torch.device):
        yield from _of_tables(PLACES)
    elif isinstance(value, (list, tuple)):
        yield from _malformed_list(value)
    elif isinstance(value, (slice, type(...))):
        yield from _of_tables(KEYS)
    elif isinstance(value, bytes):
        yield from broken_files(value)
    elif callable(value):
        yield from _of_tables(FUNCTIONS)
    if value is None or isinstance(value, (torch.dtype, torch.device)):
        yield from _of_tables(GIVEN)
    elif not isinstance(value, bytes):
        yield "C5", "None", lambda: None


def broken_files(good: bytes, every: int = 1) -> Malformed:
    """A file with one bit of a byte changed, cut short, continued."""
    for at in range(0, len(good), every):
        yield "D1", f"bit of byte {at}", lambda at=at: good[:at] + bytes([good[at] ^ 1 << at % 8]) + good[at + 1 :]
    for at in itertools.chain(range(0, len(good), 5 * every)):
        yield "D1", f"{at} bytes", lambda at=at: good[:at]
    for tail in (b"\0", b"PK\5\6" + b"\0" * 18, good):
        yield "D1", f"{len(tail)} bytes more", lambda tail=tail: good + tail
