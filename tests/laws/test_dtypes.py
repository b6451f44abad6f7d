# SPDX-License-Identifier: Apache-2.0
"""The dtype contract: what a docstring calls equivalent is run beside the operator, in every dtype, at extreme magnitudes.

The same dtype results, and the same numbers. Where a floating result differs from torch's in the same dtype, the line is
run in float64 to say who is right: the operator may err by `SLACK` units in the last place, or as much as torch does.
"""

import importlib.util
from pathlib import Path

import pytest
import torch
from samples import SEQUENCES
from samples.words import ALL, FLOATS, WHOLE, same_bits

import torch_lod as tl

ROOT = Path(__file__).parents[2]
spec = importlib.util.spec_from_file_location("build_docs", ROOT / "docs/build.py")
docs = importlib.util.module_from_spec(spec)
spec.loader.exec_module(docs)
pages = docs.operator_pages

#: What the kinds of sequence_pool are equivalent to, on the rows of a sequence.
POOLS = {
    "average": "rows.mean(0)",
    "sqrt": "rows.sum(0) / len(rows) ** 0.5",
    "max": "rows.max(0).values",
    "min": "rows.min(0).values",
    "first": "rows[0]",
    "last": "rows[-1]",
    "prod": "rows.prod(0)",
    "logsumexp": "rows.logsumexp(0)",
    "var": "rows.var(0)",
    "std": "rows.std(0)",
    "any": "(rows != 0).any(0)",
    "all": "(rows != 0).all(0)",
}
#: Units in the last place that a result may differ from the exact one, however right torch is.
SLACK = {torch.float16: 0.51, torch.bfloat16: 0.51, torch.float32: 4, torch.float64: 16}
LINES = [(name, code) for name in pages.EXAMPLES for code in pages.equivalents(getattr(tl, name).__doc__)]
#: Whose float64 kernel leaves a key out whose score is -inf, where 0 times its infinite value would be NaN.
LEAVES_OUT = {("sequence_attention", torch.float64)}
#: Which of equal rows they take, 0.0 and -0.0 for example, is their own: the first.
TAKE_THE_FIRST = ("sequence_topk", "sequence_cummax", "sequence_cummin")
TAKES = {info.name: info.dtypes for info in SEQUENCES} | {"map_sequences": FLOATS}


def rows_of(dtype):
    """(what it shows, six rows)."""
    if dtype == torch.bool:
        yield "bool", [True, False, True, True, False, False]
        yield "true", [True] * 6
    elif dtype in WHOLE:
        most, least = torch.iinfo(dtype).max, torch.iinfo(dtype).min
        yield "small", [3, 1, 2, 5, 4, 6]
        yield "extremes", [most, least, most - 1, least + 1, most, 1]
        yield "large", [most, most, most, most, most, most]
    else:
        of = torch.finfo(dtype if dtype in FLOATS else torch.float32)
        most, nan, inf = of.max, float("nan"), float("inf")
        tiny = of.smallest_normal * of.eps  # the smallest number above 0
        yield "small", [0.3, -0.7, 0.2, 1.5, -0.4, 0.6]
        yield "hundreds", [-300, 300, 250.5, -299, 300, 0.25]
        yield "near overflow", [0.9 * most, 0.8 * most, most, 0.4 * most, 0.3 * most, 0.7 * most]
        part = most / 16 if dtype == torch.float64 else most  # nothing wider tells which sum overflows on its way
        yield "of both signs", [0.9 * part, -0.8 * part, 0.5 * part, -0.4 * part, 0.3 * part, -0.1 * part]
        yield "back below", [0.9 * part, 0.8 * part, 0.9 * part, 0.8 * part, -0.9 * part, -0.5 * part]
        yield "roots of the largest", [3 * most**0.5, most**0.5, -2 * most**0.5, most**0.5, 1, -(most**0.5)]
        yield "subnormal", [3 * tiny, tiny, -5 * tiny, 2 * tiny, 0.0, 9 * tiny]
        yield "near underflow", [of.tiny, 3 * of.tiny, -of.tiny, 2 * of.tiny, 5 * of.tiny, of.tiny]
        yield "zeros", [0.0, -0.0, -0.0, 0.0, -0.0, -0.0]
        yield "minus zeros", [-0.0] * 6
        yield "large and small", [most, tiny, -tiny, 1.0, 1.0, tiny]
        yield "far apart", [0.0, -80.0, -200.0, 0.0, -15.0, 20.0]
        yield "nan", [1.0, nan, 2.0, 3.0, 4.0, 5.0]
        yield "all nan", [nan] * 6
        yield "infinite", [inf, 1.0, 2.0, 3.0, inf, -1.0]
        yield "minus infinite", [-inf, 1.0, -inf, -inf, -2.0, 3.0]
        yield "all minus infinite", [-inf, -inf, 1.0, 2.0, 3.0, 4.0]
        yield "both infinite", [inf, -inf, 2.0, -inf, inf, 1.0]
        yield "infinite and zero", [inf, 0.0, 0.0, inf, 2.0, 0.0]


def batch(rows, dtype):
    return tl.from_lengths(
        torch.tensor(rows, dtype=torch.float64 if dtype in FLOATS else dtype).to(dtype),
        [[2, 4]],
        level_names=["sentence"],
    )


def in_dtype(example, dtype):
    """Weights, updates and the like in the dtype of x."""
    for name, value in example.space.items():
        if isinstance(value, torch.Tensor) and value.is_floating_point() and dtype in FLOATS and name != "x":
            example.space[name] = value.to(dtype)


def of_docstring(name, code):
    """What the operator gives for x, and the line; None where the example has no meaning in the dtype of x."""

    def both(x):
        try:
            example = pages.Example(name, x)
        except (RuntimeError, TypeError, ValueError):
            return None
        in_dtype(example, x.dtype)
        names = {**vars(tl), "torch": torch, "F": torch.nn.functional, **example.bound()}
        return attempted(lambda: pages.leaves(example.result())[0]), attempted(lambda: eval(code, names))

    return both


def of_pool(kind, code):
    def both(x):
        line = f"torch.stack([{code} for rows in x.sequences()])"
        return attempted(lambda: tl.sequence_pool(x, kind)), attempted(lambda: eval(line, {"torch": torch, "x": x}))

    return both


def attempted(function):
    """An error in place of a result."""
    try:
        found = function()
        return found.values() if isinstance(found, tl.LoDTensor) else found
    except (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError) as error:
        return error


def ulps(got, exact):
    """How far from exact numbers, in units of the last place that the dtype has there."""
    of, d = torch.finfo(got.dtype), exact.double()
    at = d.abs().clamp(min=of.tiny, max=of.max)
    unit = torch.ldexp(torch.full_like(at, of.eps), torch.frexp(at).exponent - 1)
    alike = same_bits(got.double(), d.to(got.dtype).double())
    error = (got.double() - d).abs() / unit
    return torch.where(alike, error.nan_to_num(0, 0, 0).clamp(max=0.5), error.nan_to_num(torch.inf, torch.inf))


def wrong(name, got, torchs, exact):
    """Where a result is further from the exact one than torch's, and than the slack."""
    if got.dtype not in FLOATS:
        return ~same_bits(got, torchs)
    bad = ~same_bits(got, torchs)
    turned = (name not in TAKE_THE_FIRST) & (got == 0) & (torchs == 0) & (got.signbit() != torchs.signbit())
    if got.dtype == torch.float64:
        scale = torchs[torchs.isfinite()].abs().max() if torchs.isfinite().any() else 0
        unit = torch.finfo(got.dtype).eps * max(scale, torch.finfo(got.dtype).tiny)
        return turned | (bad & ~((got - torchs).abs() <= SLACK[got.dtype] * unit))
    ours, theirs = ulps(got, exact), ulps(torchs, exact)
    worst = max(SLACK[got.dtype], float(theirs.max()) if theirs.numel() else 0)
    return turned | (bad & ~(ours <= worst))


def taken(name, both):
    """The dtypes that the operator takes. A difference fails."""
    for dtype in ALL:
        refused = False
        for said, rows in rows_of(dtype):
            x = batch(rows, dtype)
            label, pair = f"{dtype}, {said}", both(x)
            if pair is None:
                refused = True
                break
            got, torchs = pair
            if isinstance(got, Exception):
                assert isinstance(got, tl.LoDError), f"{label}: {got!r}"
                assert isinstance(got, TypeError) or isinstance(torchs, Exception), f"{label}: {got!r}"
                refused |= isinstance(got, TypeError)
                continue
            if isinstance(torchs, Exception):
                continue  # more than torch has
            assert got.dtype == torchs.dtype and got.shape == torchs.shape, f"{label}: {got.dtype}, {torchs.dtype}"
            exact = both(x.double())[1] if dtype in FLOATS else torchs
            bad = wrong(name, got, torchs, exact)
            if (name, dtype) in LEAVES_OUT:
                bad &= ~torchs.isnan()
            values = f"{got[bad].tolist()}, torch {torchs[bad].tolist()}, exactly {exact[bad].tolist()}"
            assert not bad.any(), f"{label}: {values}"
        if not refused:
            yield dtype


@pytest.mark.parametrize(("name", "code"), LINES, ids=[name for name, _ in LINES])
def test_equals_what_its_docstring_says_in_every_dtype(name, code):
    assert set(taken(name, of_docstring(name, code))) >= set(TAKES[name]) - {torch.complex64, torch.complex128}


@pytest.mark.parametrize("kind", POOLS)
def test_kinds_of_pool_equal_torch_in_every_dtype(kind):
    found = set(taken(kind, of_pool(kind, POOLS[kind])))
    assert found >= set(FLOATS) and (
        kind not in ("max", "min", "first", "last", "prod", "any", "all") or found >= set(WHOLE)
    )
