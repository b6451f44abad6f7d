# SPDX-License-Identifier: Apache-2.0
"""The contract of every operator, on plain tensors or on LoDTensors, checked for every entry of the tables."""

import ctypes
from pathlib import Path

import pytest
import torch
from samples import METHODS, OPS, SEQUENCES
from samples.words import (
    OpInfo,
    as_double,
    assert_same,
    changed,
    close,
    finite,
    gradients,
    lod_tensors,
    of_leaves,
    references,
    tensors,
    told,
)
from settings import FULL

import torch_lod as tl

INFOS = OPS + SEQUENCES + METHODS
each = pytest.mark.parametrize("info", INFOS, ids=lambda info: info.id)
each_and_dtype = pytest.mark.parametrize(
    ("info", "dtype"),
    [(info, dtype) for info in INFOS for dtype in info.dtypes],
    ids=lambda v: getattr(v, "id", str(v).removeprefix("torch.")),
)
differentiable = pytest.mark.parametrize("info", [i for i in INFOS if i.differentiable], ids=lambda info: info.id)


def some(info, samples, most):
    """All of an operator on plain tensors, the large ones too."""
    samples = list(samples)
    return samples if isinstance(info, OpInfo) else info.few(samples, most)


def lower_cpu_levels():
    """Runs the kernels of AVX2, where the processor has AVX-512 as well."""
    if tl.ops.COMPILED:
        set_level = ctypes.CDLL(
            next(p for p in torch.ops.loaded_libraries if Path(p).name == "_C.so")
        ).torch_lod_set_cpu_level
        best = set_level(1)
        try:
            for level in range(best):
                set_level(level)
                yield level
        finally:
            set_level(best)


@each_and_dtype
def test_equals_its_reference(info, dtype, device):
    samples = list(info.samples(dtype, device))
    if isinstance(info, OpInfo):
        expected = references(info, dtype, device)
        for _ in lower_cpu_levels() if device == "cpu" else ():
            for sample, result in zip(samples, expected, strict=True):
                close(info.run(sample), result, info, dtype, sample)
        pairs = zip(samples, expected, strict=True)
    else:
        chosen = samples if dtype == info.dtypes[0] else [*info.few(samples, 60), *(s for s in samples if s.fixed)]
        pairs = ((s, info.run(s, *as_double((s.args, s.kwargs)), by_reference=True)) for s in chosen)
    for sample, expected in pairs:
        got = info.run(sample)
        close(got, expected, info, dtype, sample)
        for i, ((g, _), (e, _)) in enumerate(zip(told(got), told(expected))):
            own = torch.float32 if i in info.wide and dtype.itemsize == 2 else dtype
            assert g.dtype == (own if e.dtype == torch.float64 and dtype.is_floating_point else e.dtype), sample.label


@differentiable
def test_gradient(info, device):
    forward = not isinstance(info, OpInfo)  # of those: test_forward_mode_and_batched_gradients
    for sample in info.few(info.samples(torch.float64, device), 20):
        leaves, call = of_leaves(info, sample)
        out = call(*leaves)
        assert all(o.requires_grad for o in out), f"{sample.label}: cut off from the graph"
        if finite(out):
            checks = {"check_forward_ad": forward, "fast_mode": not FULL}
            assert torch.autograd.gradcheck(call, leaves, **checks), sample.label


@differentiable
def test_gradient_of_gradient(info, device):
    for sample in info.few(info.samples(torch.float64, device), 8):
        leaves, call = of_leaves(info, sample)
        if finite(call(*leaves)):
            assert torch.autograd.gradgradcheck(call, leaves, fast_mode=not FULL, atol=1e-4), sample.label


@differentiable
def test_gradient_equals_the_references(info, device):
    for dtype in info.floats:
        for sample in some(info, info.samples(dtype, device), 30):
            got, want = gradients(info, sample, dtype), gradients(info, sample, dtype, by_reference=True, doubles=True)
            for g, w in zip(got, want, strict=True):
                close(g, w, info, dtype, sample)


@each
def test_takes_any_strides(info, device):
    for dtype in info.dtypes[:2]:
        for sample in some(info, info.samples(dtype, device), 30):
            given = sample.args, sample.kwargs
            spread = changed(given, lambda t: torch.stack([t, t], -1)[..., 0] if t.numel() else t)
            expanded = changed(given, lambda t: t[:1].expand(t.shape) if t.dim() and len(t) else t)
            solid = changed(expanded, lambda t: t.contiguous())
            assert_same(info.run(sample, *spread), info.run(sample), sample.label, info.products)
            if "scatter" not in info.name and "unpad" not in info.name and fits(info, sample, solid):
                assert_same(info.run(sample, *expanded), info.run(sample, *solid), sample.label, info.products)


def fits(info, sample, given):
    try:
        info.run(sample, *given)
        tl.check_errors()  # of offsets on a GPU
    except (tl.LoDError, ValueError, IndexError):
        return False
    return True


@each
def test_leaves_its_arguments_alone(info, device):
    for sample in some(info, info.samples(info.dtypes[0], device), 40):
        given = sample.args, sample.kwargs
        before = [t.clone() for t in tensors(given)]
        lods = [(x, x.lod) for x in lod_tensors(given)]
        out = info.run(sample)
        for now, t in zip(tensors(given), before, strict=True):
            assert bool(((now == t) | ((now != now) & (t != t))).all()), sample.label
        assert all(x.lod is lod and lod.rows == len(x) for x, lod in lods), sample.label
        if getattr(info, "keeps", False):
            assert all(x.lod is sample.args[0].lod for x in lod_tensors(out)) and lod_tensors(out), sample.label


@each
def test_refuses_what_is_wrong(info):
    cases = list(info.errors())
    assert cases, f"{info.name} has no error samples"
    for label, call, exception, words in cases:
        with pytest.raises(exception) as caught:
            call() if callable(call) else info.op(*call)
        said = str(caught.value)
        if exception is RuntimeError:  # of memory, by torch
            continue
        if isinstance(info, OpInfo):
            assert type(caught.value) is exception, f"{label}: {caught.value!r}"
        else:
            assert isinstance(caught.value, tl.LoDError) and len(said) < 400, f"{label}: {caught.value!r}"
        assert words in said and said.startswith(f"{info.name}: "), f"{label}: {said}"
