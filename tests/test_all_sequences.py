# SPDX-License-Identifier: Apache-2.0
"""What every operator on LoDTensors owes, checked for every entry of sequence_info.SEQUENCES."""

import pytest
import torch
from conftest import FULL
from op_words import ANY, FLOATS, WHOLE
from sequence_info import SEQUENCES
from sequence_words import changed, differentiated, run, tensors, told

import torch_lod as tl

each = pytest.mark.parametrize("info", SEQUENCES, ids=lambda info: info.name)
each_and_dtype = pytest.mark.parametrize(
    ("info", "dtype"),
    [(info, dtype) for info in SEQUENCES for dtype in info.dtypes],
    ids=lambda v: getattr(v, "name", str(v).removeprefix("torch.")),
)
differentiable = pytest.mark.parametrize("info", [i for i in SEQUENCES if i.differentiable], ids=lambda info: info.name)
takes_level = pytest.mark.parametrize("info", [i for i in SEQUENCES if i.levels], ids=lambda info: info.name)
#: Operators whose first argument may be a plain tensor.
TAKE_PLAIN = (
    "broadcast im2sequence lod_append lod_reset merge_lod_tensor reorder_lod_tensor_by_rank sequence_expand "
    "sequence_expand_as sequence_mask sequence_scatter shrink_memory split_lod_tensor"
).split()
DTYPES = FLOATS + WHOLE + ANY


def close(got, expected, info, dtype, label):
    rtol, atol = info.tolerance.get(dtype, (None, None))
    got, expected = told(got), told(expected)
    assert len(got) == len(expected), label
    for (g, g_lod), (e, e_lod) in zip(got, expected):
        assert g_lod == e_lod, f"{label}: {g_lod}, expected {e_lod}"
        assert g.shape == e.shape, f"{label}: {tuple(g.shape)}, expected {tuple(e.shape)}"
        torch.testing.assert_close(
            g, e.to(g.dtype), rtol=rtol, atol=atol, equal_nan=True, msg=lambda m: f"{label}: {m}"
        )


def as_double(value):
    return changed(value, lambda t: t.double() if t.is_floating_point() else t)


def few(samples, most):
    """At most so many of the samples, evenly from all of them, so that every structure and every form is among them."""
    samples = [s for s in samples if not s.fixed]
    return samples if FULL else samples[:: -(-len(samples) // most) | 1]


@each_and_dtype
def test_equals_its_reference(info, dtype, device):
    samples = list(info.samples(dtype, device))
    for sample in samples if dtype == info.dtypes[0] else [*few(samples, 60), *(s for s in samples if s.fixed)]:
        expected = run(info, sample, *as_double((sample.args, sample.kwargs)), by_reference=True)
        got = run(info, sample)
        close(got, expected, info, dtype, sample.label)
        for (g, _), (e, _) in zip(told(got), told(expected)):
            assert g.dtype == (dtype if e.dtype == torch.float64 and dtype.is_floating_point else e.dtype), sample.label


@takes_level
def test_levels_go_by_number_negative_number_and_name(info, device):
    dtype, other = info.dtypes[0], 0 if info.kind == "plans" else -1
    for sample in few(info.samples(dtype, device), 12):
        if sample.key is None:
            continue
        depth, name = len(sample.names), sample.names[sample.level]
        forms = [sample.level, sample.level - depth, *([name] if name else [])]
        expected = run(info, sample)
        for form in forms:
            assert_same(run(info, sample, kwargs={**sample.kwargs, info.levels: form}), expected, sample.label)
        if sample.level == other % depth:
            without = {name: value for name, value in sample.kwargs.items() if name != info.levels}
            assert_same(run(info, sample, kwargs=without), expected, sample.label)
        for wrong in (depth, -depth - 1, 2**70, "nowhere"):
            with pytest.raises(
                tl.LoDError, match=f"^{info.name}: expected level in .*{depth - 1}.*, got {wrong!r}$"
            ) as caught:
                run(info, sample, kwargs={**sample.kwargs, info.levels: wrong})
            assert isinstance(caught.value, IndexError)
        for wrong in (0.5, None, True, [0]):
            with pytest.raises(tl.LoDError, match=f"^{info.name}: expected level in ") as caught:
                run(info, sample, kwargs={**sample.kwargs, info.levels: wrong})
            assert isinstance(caught.value, TypeError)


@differentiable
def test_gradient(info, device):
    for sample in few(info.samples(torch.float64, device), 20):
        leaves, call = differentiated(sample)
        out = call(info)(*leaves)
        assert all(o.requires_grad for o in out), f"{sample.label}: cut off from the graph"
        if not out or not all(o.isfinite().all() for o in out):
            continue  # the deviation of a single row
        checks = {"check_forward_ad": True, "fast_mode": not FULL}
        assert torch.autograd.gradcheck(call(info), leaves, **checks), sample.label


@differentiable
def test_gradient_of_gradient(info, device):
    for sample in few(info.samples(torch.float64, device), 8):
        leaves, call = differentiated(sample)
        out = call(info)(*leaves)
        if not out or not all(o.isfinite().all() for o in out):
            continue
        assert torch.autograd.gradgradcheck(call(info), leaves, fast_mode=not FULL, atol=1e-4), sample.label


@differentiable
def test_gradient_equals_the_references(info, device):
    for dtype in (torch.float64, torch.float32) if info.dtypes[0] == torch.float64 else ():
        for sample in few(info.samples(dtype, device), 30):
            got = gradients(info, sample, torch.float64 if dtype == torch.float64 else dtype)
            want = gradients(info, sample, torch.float64, by_reference=True)
            for g, w in zip(got, want):
                close(g, w.to(g.dtype), info, dtype, sample.label)


def gradients(info, sample, dtype, by_reference=False):
    """Of a weighted sum of all results, by every floating tensor among the arguments; zeros where nothing is reached."""
    leaves, call = differentiated(sample, dtype)
    out = [o for o in call(info, by_reference)(*leaves) if o.requires_grad]
    weights = [torch.linspace(-1, 1, o.numel(), dtype=o.dtype, device=o.device).view(o.shape) for o in out]
    found = torch.autograd.grad(out, leaves, weights, allow_unused=True) if out else [None] * len(leaves)
    return [torch.zeros_like(t) if g is None else g for t, g in zip(leaves, found)]


def same_bits(a, b):
    return (a == b) | ((a != a) & (b != b))


def lod_tensors(sample):
    found = []

    def walk(value):
        if isinstance(value, tl.LoDTensor):
            found.append(value)
        for item in value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ():
            walk(item)

    walk((sample.args, sample.kwargs))
    return found


def disturbed(sample, s, poison):
    """The sample with other rows in sequence s of its level, in the first LoDTensor of its arguments."""
    first = lod_tensors(sample)[:1]

    def other(x):
        level = x.lod_level - 1 if sample.level is None or sample.level >= x.lod_level else sample.level
        a, b = x.row_offsets(level)[s : s + 2].tolist()
        rows = x.values().clone()
        rows[a:b] = poison if rows.is_floating_point() else rows[a:b] == 0
        return x.with_values(rows)

    def walk(value):
        if value is first[0]:
            return other(value)
        if isinstance(value, (list, tuple)):
            return type(value)(map(walk, value))
        return value

    return type(sample)(sample.label, walk(sample.args), sample.kwargs, sample.level, sample.key, sample.names)


@each
def test_sequences_do_not_see_each_other(info, device):
    """Where a reference that takes every sequence by itself gives the same bits for other rows in one of them, so does the
    operator; results and gradients."""
    dtype = torch.float32 if torch.float32 in info.dtypes else info.dtypes[0]
    seen = 0
    for sample in few(info.samples(dtype, device), 30):
        given = lod_tensors(sample)
        if not given or info.name in ("sequence_mask", "lod_rank_table"):
            continue
        level = given[0].lod_level - 1 if sample.level is None or sample.level >= given[0].lod_level else sample.level
        lengths = given[0].lod.row_lengths(level).tolist()
        full = [s for s, n in enumerate(lengths) if n]
        for s, poison in zip({*full[:1], *full[-1:]} if len(full) > 1 else (), (3.5, float("nan"))):
            other = disturbed(sample, s, poison)
            results = [run(info, t, by_reference=r) for r in (True, False) for t in (sample, other)]
            if info.differentiable:
                results = [
                    (told(out), gradients(info, t, dtype, r))
                    for out, (r, t) in zip(results, ((r, t) for r in (True, False) for t in (sample, other)))
                ]
            before, after, ours, then = ([rows for rows, _ in told(flat_pairs(out))] for out in results)
            for b, a, o, t in zip(before, after, ours, then, strict=True):
                assert o.shape == t.shape or info.name == "sequence_erase", sample.label
                if o.shape != t.shape or b.shape != a.shape:
                    continue
                if info.products or not tl.ops.COMPILED:
                    near = torch.isclose(o, t, rtol=2e-6, atol=2e-6, equal_nan=True)
                else:
                    near = same_bits(o, t)
                leak = same_bits(b, a) & ~near
                assert not leak.any(), f"{sample.label}: sequence {s}: {o[leak]}, then {t[leak]}"
                seen += int(same_bits(b, a).sum())
    assert seen or not info.levels or info.name == "lod_rank_table", "the samples have no two sequences to tell apart"


def flat_pairs(out):
    if (
        isinstance(out, tuple)
        and len(out) == 2
        and isinstance(out[0], list)
        and out[0]
        and isinstance(out[0][0], tuple)
    ):
        return [rows for rows, _ in out[0]] + list(out[1])
    return out


@each
def test_takes_any_strides(info, device):
    for dtype in info.dtypes[:2]:
        for sample in few(info.samples(dtype, device), 30):
            spread = changed(
                (sample.args, sample.kwargs), lambda t: torch.stack([t, t], -1)[..., 0] if t.numel() else t
            )
            expanded = changed(
                (sample.args, sample.kwargs), lambda t: t[:1].expand(t.shape) if t.dim() and len(t) else t
            )
            solid = changed(expanded, lambda t: t.contiguous())
            products = info.products
            assert_same(run(info, sample, *spread), run(info, sample), sample.label, products)
            if "scatter" not in info.name and "unpad" not in info.name and sample_fits(info, sample, solid):
                assert_same(run(info, sample, *expanded), run(info, sample, *solid), sample.label, products)


def sample_fits(info, sample, given):
    try:
        run(info, sample, *given)
    except tl.LoDError:
        return False
    return True


def assert_same(got, expected, label, nearly=False):
    got, expected = told(got), told(expected)
    assert len(got) == len(expected), label
    for (g, g_lod), (e, e_lod) in zip(got, expected):
        assert g_lod == e_lod, label
        assert g.shape == e.shape and g.dtype == e.dtype, label
        assert torch.allclose(g, e, rtol=1e-6, atol=1e-6) if nearly else same_bits(g, e).all(), label


@each
def test_leaves_its_arguments_alone(info, device):
    for sample in few(info.samples(info.dtypes[0], device), 40):
        before = [t.clone() for t in tensors((sample.args, sample.kwargs))]
        lods = [(x, x.lod) for x in lod_tensors(sample)]
        out = run(info, sample)
        for t, b in zip(tensors((sample.args, sample.kwargs)), before):
            assert torch.equal(t, b), sample.label
        assert all(x.lod is lod and lod.rows == len(x) for x, lod in lods), sample.label
        if info.keeps:
            results = out if isinstance(out, tuple) else (out,)
            assert all(result.lod is sample.args[0].lod for result in results), sample.label


@each
def test_results_of_inference_are_those_of_training(info, device):
    for sample in few(info.samples(info.dtypes[0], device), 20):
        expected = run(info, sample)
        fresh = changed((sample.args, sample.kwargs), lambda t: t.clone())
        for mode in (torch.inference_mode, torch.no_grad):
            with mode():
                assert_same(run(info, sample), expected, sample.label, info.products)
        with torch.inference_mode():
            run(info, sample, *fresh)
            made = changed(fresh, lambda t: t.clone())
            assert_same(run(info, sample, *made), expected, sample.label, info.products)
        assert_same(run(info, sample, *fresh), expected, sample.label, info.products)
        if (
            info.differentiable and info.dtypes[0].is_floating_point
        ):  # what inference put in the caches of a LoD can be saved
            gradients(info, sample, info.dtypes[0])


@differentiable
def test_is_a_function_of_its_values(info, device):
    """torch.func sees through LoDTensors made inside the function."""
    for sample in few(info.samples(torch.float64, device), 8):
        leaves, call = differentiated(sample)
        given = [t.detach() for t in leaves]

        def loss(*rows, call=call):
            return sum(o.square().sum() for o in call(info)(*rows))

        out = call(info)(*given)
        if not out or not all(o.isfinite().all() for o in out):
            continue
        got = torch.func.grad(loss, tuple(range(len(given))))(*given)
        want = torch.autograd.grad(loss(*leaves), leaves, allow_unused=True)
        for g, w in zip(got, want):
            torch.testing.assert_close(g, torch.zeros_like(g) if w is None else w)
        _, along = torch.func.jvp(loss, tuple(given), tuple(map(torch.ones_like, given)))
        torch.testing.assert_close(along, sum(g.sum() for g in got))


@each
def test_refuses_what_is_wrong(info):
    cases = list(info.errors())
    assert cases, f"{info.name} has no error samples"
    for label, call, exception, words in cases:
        with pytest.raises(exception) as caught:
            call()
        said = str(caught.value)
        if exception is RuntimeError:  # of memory, by torch
            continue
        assert isinstance(caught.value, tl.LoDError), f"{label}: {caught.value!r}"
        assert words in said, f"{label}: {said}"
        assert said.startswith(f"{info.name}: ") and len(said) < 400, f"{label}: {said}"


@each
def test_refuses_dtypes_that_it_has_no_meaning_for(info, device):
    if info.kind == "plans":
        return
    sample = next(
        s
        for s in info.samples(info.dtypes[0], device)
        if s.label.startswith(("two", "typical", "[2, 0, 3] (2,)", "one")) and all(t.numel() for t in tensors(s.args))
    )
    for dtype in set(DTYPES) - set(info.dtypes):
        first = info.dtypes[0]
        args, kwargs = changed((sample.args, sample.kwargs), lambda t, d=dtype, f=first: t.to(d) if t.dtype == f else t)
        with pytest.raises(TypeError, match=f"^{info.name}: ") as caught:
            info.op(*args, **kwargs)
        assert isinstance(caught.value, tl.LoDError), dtype


@each
def test_refuses_what_is_no_lod_tensor(info, device):
    sample = next((s for s in info.samples(info.dtypes[0], device) if isinstance(s.args[0], tl.LoDTensor)), None)
    if sample is None or info.name in TAKE_PLAIN:
        return
    for wrong in (sample.args[0].values(), sample.args[0].tolist(), None, sample.args[0].lod):
        with pytest.raises(
            TypeError, match=f"^{info.name}: expected (x|q|ids|loss_rows) as a LoDTensor, got .*; see tl.from_lengths"
        ) as caught:
            info.op(wrong, *sample.args[1:], **sample.kwargs)
        assert isinstance(caught.value, tl.LoDError)
