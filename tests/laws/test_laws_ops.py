# SPDX-License-Identifier: Apache-2.0
"""The contract of operators on plain tensors, in addition to test_laws.py."""

import re

import pytest
import torch
from samples import OPS
from samples.words import OpInfo, Sample, close, differentiated, same_bits
from settings import FULL
from torch.utils._python_dispatch import TorchDispatchMode

import torch_lod as tl
import torch_lod.ops as public_ops

each_op = pytest.mark.parametrize("info", OPS, ids=lambda info: info.id)
#: Operators whose result has a row for every row, from all rows of its segment.
NORMALIZING = [f"segment_{name}{of}" for name in ("softmax", "log_softmax", "normalize") for of in ("", "_backward")]
differentiable = pytest.mark.parametrize("info", [i for i in OPS if i.differentiable], ids=lambda info: info.id)


def small(info: OpInfo, dtype, device) -> list[Sample]:
    return info.few(info.samples(dtype, device))


def covering(items, parts):
    """The first item in which each of the parts of all items occurs: every width and every option, but not every pair. What
    is traced or registered does not depend on pairs; make test-all has them."""
    seen = set()
    for item in items:
        new = set(parts(item)) - seen
        if new or FULL:
            seen |= new
            yield item


def calls(info, function):
    """A function of all arguments as a function of (args, kwargs)."""
    return lambda args, kwargs: info.shown(function(*args))


@differentiable
def test_forward_mode_and_batched_gradients(info, device):
    function = getattr(public_ops, info.name, info.composition)
    for sample in small(info, torch.float64, device):
        leaves, call = differentiated(sample)
        checks = {"check_forward_ad": True, "check_backward_ad": False, "fast_mode": not FULL}
        assert torch.autograd.gradcheck(call(calls(info, function)), leaves, **checks), sample.label


@each_op
def test_autocast_stays_outside(info, device):
    """Results are those without it, and so are gradients taken inside, but of torch's own nodes, which compositions
    leave: the dtype of the region is for who calls operators."""
    if torch.float16 not in info.dtypes:
        return

    def outcome(sample, function, on):
        leaves, call = differentiated(sample, grad=info.differentiable)
        with torch.autocast(device, torch.bfloat16, enabled=on):
            outs = call(calls(info, function))(*leaves)
        ends = [out for out in outs if out.requires_grad]
        ones = [torch.ones_like(out) for out in ends]
        with torch.autocast(device, torch.bfloat16, enabled=on and public_ops.COMPILED and function is info.op):
            grads = torch.autograd.grad(ends, leaves, ones, allow_unused=True) if ends else ()
        return [*outs, *(grad for grad in grads if grad is not None)]

    for sample in small(info, torch.float16, device):
        for function in (info.op, info.composition):
            for got, want in zip(*(outcome(sample, function, on) for on in (True, False)), strict=True):
                assert got.dtype == want.dtype, sample.label
                if device == "cuda" and function is info.composition:  # torch's own add up in no fixed order
                    torch.testing.assert_close(got, want, rtol=1e-2, atol=1e-2, equal_nan=True)
                else:
                    assert same_bits(got, want).all(), sample.label


@pytest.mark.skipif(not public_ops.COMPILED, reason="compositions leave the nodes of torch's operators")
@differentiable
def test_the_graph_names_its_operators(info, device):
    leaves, call = differentiated(small(info, torch.float64, device)[0])
    out = [o for o in call(calls(info, info.op))(*leaves) if o.requires_grad]
    name = "".join(word.capitalize() for word in info.name.split("_"))
    assert {o.grad_fn.name() for o in out} == {f"torch_lod::{name}Backward"}
    assert all(f"grad_fn=<{name}Backward>" in repr(o) for o in out)


@pytest.mark.skipif(not public_ops.COMPILED, reason="compositions leave the nodes of torch's operators")
@differentiable
def test_compiled_autograd_finds_what_was_saved(info, device):
    leaves, call = differentiated(small(info, torch.float64, device)[0])
    function = call(calls(info, info.op))

    def gradients():
        out = [o for o in function(*leaves) if o.requires_grad]
        torch.autograd.backward(out, [torch.ones_like(o) for o in out], inputs=leaves)
        found = [t.grad for t in leaves]
        for t in leaves:
            t.grad = None
        return found

    expected = gradients()
    with torch._dynamo.compiled_autograd._enable(torch.compile(backend="eager")):
        got = gradients()
    assert any(g is not None and g.count_nonzero() for g in expected)
    torch.testing.assert_close(got, expected, rtol=0, atol=0)


def test_a_lod_tensor_prints_the_node_it_came_from():
    x = tl.from_lengths(torch.ones(3, 2, requires_grad=True), [[2, 1]])
    assert "grad_fn=<MulBackward0>" in repr(x * 2)
    if public_ops.COMPILED:
        assert "grad_fn=<SegmentSoftmaxBackward>" in repr(tl.sequence_softmax(x))


#: test_compiles_whole traces each operator with dynamic sizes and compares results and gradients: opcheck's last test again.
UTILS = ["test_schema", "test_autograd_registration", "test_faketensor", *["test_aot_dispatch_dynamic"] * FULL]


@each_op
def test_registration(info, device):
    def parts(sample):
        for i, a in enumerate(sample.args):
            structure = isinstance(a, torch.Tensor) and a.dtype == torch.int64 and a.dim() == 1
            yield i, str(a.tolist()) if structure else a.shape[1:] if isinstance(a, torch.Tensor) else a

    for sample in covering(small(info, info.dtypes[0], device), parts):
        args = tuple(
            a.clone().requires_grad_()
            if isinstance(a, torch.Tensor) and a.is_floating_point() and info.differentiable
            else a
            for a in sample.args
        )
        torch.library.opcheck(info.op, args, test_utils=UTILS)


def compiles(info, samples, backend):
    """One function per kind of call. The first is fed with every structure, of which those with sizes of 0 and 1 make graphs of
    their own; the others with what goes through one graph."""
    groups = {}
    arguments = [argument.name for argument in info.op._schema.arguments]
    symbolic = set(re.findall(r"SymInt (\w+)", str(info.op._schema)))
    for sample in samples:
        kinds = tuple((a.dim(), *a.shape[1:]) if isinstance(a, torch.Tensor) else a is None for a in sample.args)
        named = zip(arguments, sample.args)
        options = [(n, a) for n, a in named if isinstance(a, (str, bool, float, int)) and n not in symbolic]
        groups.setdefault((kinds, *options), []).append(sample)
    for i, group in enumerate(covering(groups, lambda group: group)):
        torch._dynamo.reset()
        function = torch.compile(lambda *args: info.op(*args), fullgraph=True, dynamic=True, backend=backend)
        for sample in groups[group] if FULL or i == 0 else groups[group][:3]:
            leaves, call = differentiated(sample, grad=info.differentiable)
            out, expected = (call(calls(info, f))(*leaves) for f in (function, info.op))
            close(out, expected, info, torch.float64, sample)
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
def test_is_deterministic_whatever_the_threads(info, device):
    threads = torch.get_num_threads()
    recurrent = info.name.removesuffix("_backward") in ("lstm", "gru", "rnn")
    for dtype in info.dtypes[1:2] or info.dtypes:
        for sample in info.samples(dtype, device):
            runs = []
            for n in (1, 2, 2):
                torch.set_num_threads(n)
                runs.append(info.run(sample))
            torch.set_num_threads(threads)
            for other in runs[1:]:
                for a, b in zip(runs[0], other):
                    assert torch.equal(a, b) or (recurrent and torch.allclose(a, b, rtol=2e-6, atol=1e-6))


@pytest.mark.parametrize("width", [1, 2, 7, 12, 64])
@pytest.mark.parametrize(
    "name", [*"segment_reduce segment_extreme segment_logsumexp segment_var".split(), *NORMALIZING]
)
def test_a_segment_is_bitwise_independent_of_the_others(name, width, device):
    info = next(i for i in OPS if i.name == name)
    g = torch.Generator().manual_seed(1)
    lengths = torch.cat(
        [torch.randint(0, 9, (37,), generator=g), torch.tensor([3000, 0, 1, 16, 17, 2100, 64, 5, 33, 2])]
    )
    offsets = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])
    rows = [torch.randn(int(offsets[-1]), width, generator=g).to(device) for _ in range(2 if "backward" in name else 1)]
    rest = {"segment_reduce": ("sum",), "segment_extreme": ("max",), "segment_normalize_backward": (0.1,)}.get(name, ())
    whole = info.shown(info.op(*rows, offsets.to(device), *rest))[0]
    for s, (a, b) in enumerate(zip(offsets.tolist(), offsets.tolist()[1:])):
        alone = info.op(*(r[a:b] for r in rows), torch.tensor([0, b - a], device=device), *rest)
        alone, part = info.shown(alone)[0], whole[a:b] if name in NORMALIZING else whole[s : s + 1]
        if public_ops.COMPILED:
            assert same_bits(alone, part).all(), f"segment {s}"
        else:
            torch.testing.assert_close(alone, part, equal_nan=True)


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
    for sample in info.samples(info.dtypes[0], device):
        for g, e in zip(info.run(sample), info.shown(info.composition(*sample.args)), strict=True):
            torch.testing.assert_close(g, e)


@each_op
def test_its_composition_refuses_what_is_wrong(info):
    for label, call, exception, _ in info.errors():
        if not callable(call):
            with pytest.raises((exception, ValueError, TypeError)):
                info.composition(*call)
                pytest.fail(label)


class _Operators(TorchDispatchMode):
    """The operators of ours that run."""

    def __init__(self):
        super().__init__()
        self.seen = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.seen |= {str(func)} if func.namespace == "torch_lod" else set()
        return func(*args, **(kwargs or {}))


@pytest.mark.skipif(not public_ops.COMPILED, reason="the composition is the operator")
@each_op
def test_its_composition_runs_no_kernel(info):
    """It stands beside the kernel: in tests as a second opinion, and on devices where there is none."""
    for sample in small(info, info.dtypes[0], "cpu")[:8]:
        with _Operators() as operators:
            info.composition(*sample.args)
        assert not operators.seen, sample.label


def test_nan_and_infinities_are_kept(device):
    nan, inf = float("nan"), float("inf")
    x = torch.tensor([[1.0, nan], [nan, 2.0], [3.0, inf], [-inf, -inf], [-inf, 0.0]], device=device)
    offsets = torch.tensor([0, 3, 5], device=device)
    asked = {"segment_reduce": ("sum", "mean", "max", "min"), "segment_extreme": ("max",), "segment_softmax": (None,)}
    for info in OPS:
        for option in asked.get(info.name, ()):
            sample = Sample(f"{info.name} {option}", (x, offsets, *([option] if option else [])))
            close(info.run(sample), info.run(sample, by_reference=True), info, torch.float32, sample)
