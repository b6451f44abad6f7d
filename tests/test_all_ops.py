# SPDX-License-Identifier: Apache-2.0
"""What every operator owes, checked for every entry of op_info.OPS."""

import os
import re
import subprocess
import sys

import pytest
import torch
from conftest import FULL
from op_info import OPS, Sample

import torch_lod.ops as public_ops
from torch_lod.ops import composed

each_op = pytest.mark.parametrize("info", OPS, ids=lambda info: info.name)
each_op_and_dtype = pytest.mark.parametrize(
    ("info", "dtype"),
    [(info, dtype) for info in OPS for dtype in info.dtypes],
    ids=lambda v: getattr(v, "name", str(v).removeprefix("torch.")),
)
differentiable = pytest.mark.parametrize("info", [i for i in OPS if i.differentiable], ids=lambda info: info.name)


def results(out, info):
    return tuple(out)[: info.outputs] if isinstance(out, (tuple, list)) else (out,)


def as_double(args):
    return tuple(a.double() if isinstance(a, torch.Tensor) and a.is_floating_point() else a for a in args)


def close(got, expected, info, dtype, large=False):
    rtol, atol = info.tolerance.get(dtype, (None, None))
    if large and dtype == torch.float32:
        rtol, atol = rtol or 1.3e-6, 1e-4  # sums of thousands err by their magnitudes, not by what is left of them
    for g, e in zip(got, expected, strict=True):
        if e.dtype != g.dtype:
            e = e.to(g.dtype)
        torch.testing.assert_close(g, e, rtol=rtol, atol=atol, equal_nan=True)


def differentiated(sample: Sample, grad: bool = True):
    """The floating tensors among the arguments as leaves, and a function of them."""
    places = [i for i, a in enumerate(sample.args) if isinstance(a, torch.Tensor) and a.is_floating_point()]
    leaves = [sample.args[i].detach().clone().requires_grad_(grad) for i in places]

    def call(function, info):
        def of_leaves(*tensors):
            args = list(sample.args)
            for i, t in zip(places, tensors):
                args[i] = t
            return tuple(r for r in results(function(*args), info) if r.is_floating_point())

        return of_leaves

    return leaves, call


def small(info, dtype, device):
    return [s for s in info.samples(dtype, device) if not s.large]


@each_op_and_dtype
def test_equals_its_reference(info, dtype, device):
    for sample in info.samples(dtype, device):
        wide = as_double(sample.args) if dtype.is_floating_point else sample.args
        expected = results(info.reference(*wide), info)
        got = results(info.op(*sample.args), info)
        assert all(g.shape == e.shape for g, e in zip(got, expected)), sample.label
        assert all(g.dtype in (dtype, torch.int64) for g in got), sample.label
        close(got, expected, info, dtype, sample.large)


@differentiable
def test_gradient(info, device):
    for sample in small(info, torch.float64, device):
        leaves, call = differentiated(sample)
        assert torch.autograd.gradcheck(call(info.op, info), leaves, fast_mode=not FULL), sample.label


@differentiable
def test_gradient_of_gradient(info, device):
    for sample in small(info, torch.float64, device):
        leaves, call = differentiated(sample)
        assert torch.autograd.gradgradcheck(call(info.op, info), leaves, fast_mode=not FULL, atol=1e-4), sample.label


@differentiable
def test_forward_mode_and_batched_gradients(info, device):
    function = getattr(public_ops, info.name, None)
    if function is None:
        function = composed.COMPOSITIONS[info.name]
    for sample in small(info, torch.float64, device):
        leaves, call = differentiated(sample)
        checks = {"check_forward_ad": True, "check_backward_ad": False, "fast_mode": not FULL}
        assert torch.autograd.gradcheck(call(function, info), leaves, **checks), sample.label


@differentiable
def test_gradient_equals_the_references(info, device):
    for dtype in (d for d in info.dtypes if d.is_floating_point):
        for sample in info.samples(dtype, device):
            leaves, call = differentiated(sample)
            doubles = [t.detach().double().requires_grad_() for t in leaves]
            out, expected = call(info.op, info)(*leaves), call(info.reference, info)(*doubles)
            weights = [
                torch.linspace(-1, 1, o.numel(), device=o.device).view(o.shape) / (1 + o.numel() // 64) for o in out
            ]
            pairs = [(o, e, w) for o, e, w in zip(out, expected, weights) if o.requires_grad and e.requires_grad]
            if not pairs:
                continue
            got = torch.autograd.grad(
                [o for o, _, _ in pairs], leaves, [w.to(dtype) for _, _, w in pairs], allow_unused=True
            )
            want = torch.autograd.grad(
                [e for _, e, _ in pairs], doubles, [w.to(dtype).double() for _, _, w in pairs], allow_unused=True
            )
            for g, w, leaf in zip(got, want, leaves):
                g, w = (torch.zeros_like(leaf) if t is None else t for t in (g, w))
                close((g,), (w,), info, dtype, sample.large)


@each_op
def test_registration(info, device):
    for sample in small(info, info.dtypes[0], device) if FULL else small(info, info.dtypes[0], device)[::3]:
        args = tuple(
            a.clone().requires_grad_()
            if isinstance(a, torch.Tensor) and a.is_floating_point() and info.differentiable
            else a
            for a in sample.args
        )
        torch.library.opcheck(info.op, args)


def compiles(info, samples, backend):
    """One function per kind of call, fed with every structure."""
    groups = {}
    symbolic = set(re.findall(r"SymInt (\w+)", str(info.op._schema)))
    for sample in samples:
        tensors = [(a.dim(), *a.shape[1:]) if isinstance(a, torch.Tensor) else a is None for a in sample.args]
        named = zip((argument.name for argument in info.op._schema.arguments), sample.args)
        options = [a for name, a in named if isinstance(a, (str, bool, float, int)) and name not in symbolic]
        groups.setdefault(str((tensors, options)), []).append(sample)
    for group in groups.values():
        torch._dynamo.reset()
        function = torch.compile(lambda *args: info.op(*args), fullgraph=True, dynamic=True, backend=backend)
        for sample in group:
            leaves, call = differentiated(sample, info.differentiable)
            out, expected = call(function, info)(*leaves), call(info.op, info)(*leaves)
            close(out, expected, info, torch.float64)
            if any(o.requires_grad for o in out):
                weights = [torch.ones_like(o) for o in out]
                got = torch.autograd.grad(out, leaves, weights, allow_unused=True)
                want = torch.autograd.grad(expected, leaves, weights, allow_unused=True)
                for g, w in zip(got, want):
                    torch.testing.assert_close(g, w)


@each_op
def test_compiles_whole(info, device):
    samples = small(info, info.dtypes[0], device)
    compiles(info, samples if FULL else [s for s in samples if "(2, 17)" not in s.label], "aot_eager")


@pytest.mark.parametrize("name", ["gather_rows", "segment_reduce", "segment_softmax", "lstm", "gru", "rnn"])
def test_compiles_with_inductor(name, device):
    info = next(i for i in OPS if i.name == name)
    samples = small(info, torch.float64, device)
    compiles(info, samples if FULL else samples[:1], "inductor")


@each_op
def test_takes_any_strides(info, device):
    for dtype in info.dtypes[:2]:
        for sample in info.samples(dtype, device):
            spread = tuple(
                torch.stack([a, a], -1)[..., 0] if isinstance(a, torch.Tensor) and a.numel() else a for a in sample.args
            )
            got, expected = results(info.op(*spread), info), results(info.op(*sample.args), info)
            for g, e in zip(got, expected):
                torch.testing.assert_close(g, e, rtol=1e-6, atol=1e-6)


@each_op
def test_leaves_its_arguments_alone(info, device):
    for sample in info.samples(info.dtypes[0], device):
        before = [a.clone() if isinstance(a, torch.Tensor) else a for a in sample.args]
        info.op(*sample.args)
        for a, b in zip(sample.args, before):
            assert a is b or (torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b)


@each_op
def test_is_deterministic_whatever_the_threads(info, device):
    threads = torch.get_num_threads()
    for dtype in info.dtypes[1:2] or info.dtypes:
        for sample in info.samples(dtype, device):
            runs = []
            for n in (1, 2, 2):
                torch.set_num_threads(n)
                runs.append(results(info.op(*sample.args), info))
            torch.set_num_threads(threads)
            for other in runs[1:]:
                for a, b in zip(runs[0], other):
                    assert torch.equal(a, b) or (
                        info.shape == "recurrence" and torch.allclose(a, b, rtol=2e-6, atol=1e-6)
                    )


@pytest.mark.parametrize("width", [1, 2, 7, 12, 64])
@pytest.mark.parametrize("name", ["segment_reduce", "segment_extreme", "segment_softmax", "segment_softmax_backward"])
def test_a_segment_is_bitwise_independent_of_the_others(name, width, device):
    info = next(i for i in OPS if i.name == name)
    g = torch.Generator().manual_seed(1)
    lengths = torch.cat(
        [torch.randint(0, 9, (37,), generator=g), torch.tensor([3000, 0, 1, 16, 17, 2100, 64, 5, 33, 2])]
    )
    offsets = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])
    rows = [torch.randn(int(offsets[-1]), width, generator=g).to(device) for _ in range(2 if "backward" in name else 1)]
    rest = {"segment_reduce": ("sum",), "segment_extreme": ("max",)}.get(name, ())
    whole = results(info.op(*rows, offsets.to(device), *rest), info)[0]
    for s, (a, b) in enumerate(zip(offsets.tolist(), offsets.tolist()[1:])):
        alone = info.op(*(r[a:b] for r in rows), torch.tensor([0, b - a], device=device), *rest)
        alone, part = results(alone, info)[0], whole[s : s + 1] if rest else whole[a:b]
        if public_ops.COMPILED:
            assert torch.equal(alone, part), f"segment {s}"
        else:
            torch.testing.assert_close(alone, part)


@each_op
def test_refuses_what_is_wrong(info):
    cases = list(info.errors())
    assert cases, f"{info.name} has no error samples"
    for label, args, exception, words in cases:
        with pytest.raises(exception) as caught:
            info.op(*args)
        assert type(caught.value) is exception, f"{label}: {caught.value!r}"
        assert words in str(caught.value), f"{label}: {caught.value}"
        assert info.name in str(caught.value).split(":")[0], f"{label}: {caught.value}"


@each_op
def test_fakes_refuse_what_is_wrong_in_shape(info):
    from torch._subclasses.fake_tensor import FakeTensorMode

    by_data = ("start", "fall", "negative", "wrapping", "short", "long", "end", "rows")
    for label, args, exception, words in info.errors():
        if label in by_data or label.startswith("entry"):
            continue
        with FakeTensorMode() as mode, pytest.raises(exception) as caught:
            info.op(*(mode.from_tensor(a) if isinstance(a, torch.Tensor) else a for a in args))
        assert words in str(caught.value), f"{label}: {caught.value}"


@each_op
def test_equals_its_composition(info, device):
    compose = composed.COMPOSITIONS[info.name]
    for sample in info.samples(info.dtypes[0], device):
        for g, e in zip(results(info.op(*sample.args), info), results(compose(*sample.args), info), strict=True):
            torch.testing.assert_close(g, e)


def test_nan_and_infinities_are_kept(device):
    nan, inf = float("nan"), float("inf")
    x = torch.tensor([[1.0, nan], [nan, 2.0], [3.0, inf], [-inf, -inf], [-inf, 0.0]], device=device)
    offsets = torch.tensor([0, 3, 5], device=device)
    for info in OPS:
        if info.name == "segment_reduce":
            for reduce in ("sum", "mean", "max", "min"):
                close((info.op(x, offsets, reduce),), (info.reference(x, offsets, reduce),), info, torch.float32)
        if info.name == "segment_softmax":
            close((info.op(x, offsets),), (info.reference(x, offsets),), info, torch.float32)
        if info.name == "segment_extreme":
            for g, e in zip(info.op(x, offsets, "max"), info.reference(x, offsets, "max")):
                torch.testing.assert_close(g, e, equal_nan=True)


@pytest.mark.parametrize("level", ["0", "1"])
def test_lower_instruction_levels_agree(level):
    """The baseline and AVX2 forms of the kernels, in a process that is told to use them."""
    code = (
        "import torch, test_all_ops as t\n"
        "for info in t.OPS:\n"
        "    for dtype in info.dtypes:\n"
        "        t.test_equals_its_reference(info, dtype, 'cpu')\n"
    )
    env = {**os.environ, "TORCH_LOD_CPU_CAPABILITY": level, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=os.path.dirname(__file__), env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
