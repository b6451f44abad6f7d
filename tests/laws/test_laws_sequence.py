# SPDX-License-Identifier: Apache-2.0
"""The contract of operators on LoDTensors, in addition to test_laws.py."""

import inspect
from dataclasses import replace

import pytest
import torch
from samples import METHODS
from samples import SEQUENCES as OPERATORS
from samples.words import (
    ALL,
    assert_same,
    changed,
    finite,
    gradients,
    lod_tensors,
    of_leaves,
    same_bits,
    tensors,
    told,
)

import torch_lod as tl

SEQUENCES = OPERATORS + METHODS
each = pytest.mark.parametrize("info", SEQUENCES, ids=lambda info: info.id)
differentiable = pytest.mark.parametrize("info", [i for i in SEQUENCES if i.differentiable], ids=lambda info: info.id)
takes_level = pytest.mark.parametrize("info", [i for i in SEQUENCES if i.levels], ids=lambda info: info.id)
#: Operators whose first argument may be a plain tensor.
TAKE_PLAIN = (
    "broadcast cvm filter_by_instag im2sequence lod_append lod_reset merge_lod_tensor reorder_lod_tensor_by_rank sequence_expand "
    "sequence_expand_as sequence_mask sequence_scatter shrink_memory split_lod_tensor"
).split()
#: Operators whose results have other shapes for other values.
CHANGE_SHAPE = (
    "beam_search beam_search_decode ctc_align ctc_beam_decode ctc_decode ctc_greedy_decoder filter_by_instag sequence_erase "
    "sequence_radius sequence_unique"
).split()


@takes_level
def test_levels_go_by_number_negative_number_and_name(info, device):
    for sample in info.few(info.samples(info.dtypes[0], device), 12):
        if sample.key is None:
            continue
        depth, name = len(sample.names), sample.names[sample.level]
        forms = [sample.level, sample.level - depth, *([name] if name else [])]
        expected = info.run(sample)
        for form in forms:
            assert_same(info.run(sample, kwargs={**sample.kwargs, info.levels: form}), expected, sample.label)
        if sample.level == info.default % depth:
            without = {name: value for name, value in sample.kwargs.items() if name != info.levels}
            assert_same(info.run(sample, kwargs=without), expected, sample.label)
        for wrong in (depth, -depth - 1, 2**70, "nowhere"):
            with pytest.raises(
                tl.LoDError, match=f"^{info.name}: expected level in .*{depth - 1}.*, got {wrong!r}$"
            ) as caught:
                info.run(sample, kwargs={**sample.kwargs, info.levels: wrong})
            assert isinstance(caught.value, IndexError)
        for wrong in (0.5, None, True, [0]):
            with pytest.raises(tl.LoDError, match=f"^{info.name}: expected level in ") as caught:
                info.run(sample, kwargs={**sample.kwargs, info.levels: wrong})
            assert isinstance(caught.value, TypeError)


def level_of(sample, x):
    """The level of the sample in a LoDTensor among its arguments; the innermost where it has none."""
    return x.lod_level - 1 if sample.level is None or sample.level >= x.lod_level else sample.level


def disturbed(sample, s, poison):
    """The sample with other rows in sequence s of its level, in the first LoDTensor of its arguments."""
    first = lod_tensors((sample.args, sample.kwargs))[0]
    a, b = first.row_offsets(level_of(sample, first))[s : s + 2].tolist()
    rows = first.values().clone()
    rows[a:b] = poison if rows.is_floating_point() else rows[a:b] == 0

    def walk(value):
        if value is first:
            return first.with_values(rows)
        return type(value)(map(walk, value)) if isinstance(value, (list, tuple)) else value

    return walk(sample.args)


@each
def test_sequences_do_not_see_each_other(info, device):
    """Where a reference that takes every sequence by itself gives the same bits for other rows in one of them, so does the
    operator; results and gradients."""
    dtype = torch.float32 if torch.float32 in info.dtypes else info.dtypes[0]
    seen = 0
    for sample in info.few(info.samples(dtype, device), 30):
        given = lod_tensors((sample.args, sample.kwargs))
        if not given or info.name in ("sequence_mask", "lod_rank_table"):
            continue
        lengths = given[0].lod.row_lengths(level_of(sample, given[0])).tolist()
        full = [s for s, n in enumerate(lengths) if n]
        for s, poison in zip({*full[:1], *full[-1:]} if len(full) > 1 else (), (3.5, float("nan"))):
            other = replace(sample, args=disturbed(sample, s, poison))
            before, after, ours, then = (everything(info, t, dtype, r) for r in (True, False) for t in (sample, other))
            for b, a, o, t in zip(before, after, ours, then, strict=True):
                assert o.shape == t.shape or info.name in CHANGE_SHAPE, sample.label
                if o.shape != t.shape or b.shape != a.shape:
                    continue
                if info.products or not tl.ops.COMPILED:
                    near = torch.isclose(o, t, rtol=2e-6, atol=2e-6, equal_nan=True)
                else:
                    near = same_bits(o, t)
                leak = same_bits(b, a).to(near.device) & ~near
                for x in (
                    given if info.keeps else ()
                ):  # its own rows: where the reference is equal, an operator may round
                    if leak.shape[:1] == (x.lod.rows,) and level_of(sample, x) < x.lod_level:
                        leak[slice(*x.row_offsets(level_of(sample, x))[s : s + 2].tolist())] = False
                assert not leak.any(), f"{sample.label}: sequence {s}: {o[leak]}, then {t[leak]}"
                seen += int(same_bits(b, a).sum())
    assert seen or not info.levels or info.name == "lod_rank_table", "the samples have no two sequences to tell apart"


def everything(info, sample, dtype, by_reference):
    """The rows of every result, and every gradient."""
    rows = [rows for rows, _ in told(info.run(sample, by_reference=by_reference))]
    return rows + gradients(info, sample, dtype, by_reference) if info.differentiable else rows


@each
def test_results_of_inference_are_those_of_training(info, device):
    for sample in info.few(info.samples(info.dtypes[0], device), 20):
        expected = info.run(sample)
        fresh = changed((sample.args, sample.kwargs), lambda t: t.clone())
        for mode in (torch.inference_mode, torch.no_grad):
            with mode():
                assert_same(info.run(sample), expected, sample.label, info.products)
        with torch.inference_mode():
            info.run(sample, *fresh)
            made = changed(fresh, lambda t: t.clone())
            assert_same(info.run(sample, *made), expected, sample.label, info.products)
        assert_same(info.run(sample, *fresh), expected, sample.label, info.products)
        if info.differentiable and info.dtypes[0].is_floating_point:
            gradients(info, sample, info.dtypes[0])  # saves what inference put in the caches of a LoD


@differentiable
def test_is_a_function_of_its_values(info, device):
    """torch.func sees through LoDTensors made inside the function."""
    for sample in info.few(info.samples(torch.float64, device), 8):
        leaves, call = of_leaves(info, sample)
        given = tuple(t.detach() for t in leaves)

        def loss(*rows, call=call):
            return sum(o.square().sum() for o in call(*rows))

        if not finite(call(*given)):
            continue
        got = torch.func.grad(loss, tuple(range(len(given))))(*given)
        want = torch.autograd.grad(loss(*leaves), leaves, allow_unused=True)
        for g, w in zip(got, want):
            torch.testing.assert_close(g, torch.zeros_like(g) if w is None else w)
        _, along = torch.func.jvp(loss, given, tuple(map(torch.ones_like, given)))
        torch.testing.assert_close(along, sum(g.sum() for g in got))


@each
def test_refuses_dtypes_that_it_has_no_meaning_for(info, device):
    others, first = set(ALL) - set(info.dtypes), info.dtypes[0]
    if info.structural or not others:
        return
    sample = next(
        s
        for s in info.samples(first, device)
        if s.label.startswith(("two", "typical", "[2, 0, 3] (2,)", "one")) and all(t.numel() for t in tensors(s.args))
    )
    for dtype in others:
        args, kwargs = changed((sample.args, sample.kwargs), lambda t, d=dtype: t.to(d) if t.dtype == first else t)
        with pytest.raises(TypeError, match=f"^{info.name}: ") as caught:
            info.op(*args, **kwargs)
        assert isinstance(caught.value, tl.LoDError), dtype


@each
def test_refuses_what_is_no_lod_tensor(info, device):
    sample = next((s for s in info.samples(info.dtypes[0], device) if isinstance(s.args[0], tl.LoDTensor)), None)
    if sample is None or info.name in TAKE_PLAIN or info in METHODS:
        return
    first = next(iter(inspect.signature(info.op).parameters))
    for wrong in (sample.args[0].values(), sample.args[0].tolist(), None, sample.args[0].lod):
        with pytest.raises(
            TypeError, match=f"^{info.name}: expected {first} as a LoDTensor, got .*; see tl.from_lengths"
        ) as caught:
            info.op(wrong, *sample.args[1:], **sample.kwargs)
        assert isinstance(caught.value, tl.LoDError)
