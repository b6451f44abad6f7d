# SPDX-License-Identifier: Apache-2.0
"""Computes every cell of docs/matrix.md: what is said to work works, and what is said not to says so itself."""

import importlib.util
import io
import itertools
from pathlib import Path

import numpy as np
import pytest
import torch
from matrix_info import CALLS, Call
from samples import OPS
from samples.words import changed, tensors, told
from settings import FULL
from torch.utils import _pytree as pytree
from torch.utils.checkpoint import checkpoint

import torch_lod as tl

SPEC = importlib.util.spec_from_file_location("matrix", Path(__file__).parents[2] / "docs/matrix.py")
matrix = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(matrix)


def of_leaves(call: Call):
    """The floating tensors among the arguments as leaves; a function of them that gives the floating results; and all of
    the results."""
    given = (call.args, call.kwargs)
    leaves = [t.detach().clone().requires_grad_() for t in tensors(given) if t.is_floating_point()]

    def everything(*floats, function=None):
        rest = iter(floats)
        args, kwargs = changed(given, lambda t: next(rest) if t.is_floating_point() else t)
        torch.default_generator.manual_seed(0)
        return (function or call.function)(*args, **kwargs)

    def floating(*floats, function=None):
        out = told(everything(*floats, function=function))[: call.outputs]
        return tuple(rows for rows, _ in out if rows.is_floating_point())

    return leaves, floating, everything


def same(got, expected, **tolerance):
    got, expected = told(got), told(expected)
    assert len(got) == len(expected)
    for (g, g_lod), (e, e_lod) in zip(got, expected):
        assert g_lod == e_lod
        torch.testing.assert_close(g, e.to(g.dtype), equal_nan=True, **tolerance)


def same_gradients(got, expected, leaves):
    for g, e, t in zip(got, expected, leaves, strict=True):
        g, e = (torch.zeros_like(t) if v is None else v for v in (g, e))
        torch.testing.assert_close(g, e, equal_nan=True)


def gradients(out, leaves):
    out = [o for o in out if o.requires_grad]
    weights = [torch.linspace(-1, 1, o.numel(), dtype=o.dtype).view(o.shape) for o in out]
    return torch.autograd.grad(out, leaves, weights, allow_unused=True) if out else [None] * len(leaves)


def compiles(call: Call):
    torch._dynamo.reset()
    compiled = torch.compile(lambda args, kwargs: call.function(*args, **kwargs), backend="aot_eager", fullgraph=True)
    leaves, floating, everything = of_leaves(call)

    def function(*args, **kwargs):
        return compiled(args, kwargs)

    same(everything(*leaves, function=function), everything(*leaves))
    out, want = floating(*leaves, function=function), floating(*leaves)
    assert [o.requires_grad for o in out] == [o.requires_grad for o in want]
    same_gradients(gradients(out, leaves), gradients(want, leaves), leaves)


class OfTensors(torch.nn.Module):
    """A call as a module of the tensors among its arguments."""

    def __init__(self, call: Call):
        super().__init__()
        self.function = call.function
        leaves, self.spec = pytree.tree_flatten((call.args, call.kwargs))
        self.given = [t for t in leaves if isinstance(t, torch.Tensor)]
        self.constants = [None if isinstance(t, torch.Tensor) else t for t in leaves]
        self.positions = [i for i, t in enumerate(leaves) if isinstance(t, torch.Tensor)]

    def forward(self, *tensors):
        leaves = list(self.constants)
        for i, t in zip(self.positions, tensors):
            leaves[i] = t
        args, kwargs = pytree.tree_unflatten(leaves, self.spec)
        return self.function(*args, **kwargs)


def exports(call: Call):
    module = OfTensors(call)
    args = module.given
    plain = tl.nn.Plain(module, *(a.level_names or a.lod_level if isinstance(a, tl.LoDTensor) else 0 for a in args))
    try:
        program = plain.export(*args)
    except AssertionError as error:  # torch's, of what it cannot export: not of what came out
        raise RuntimeError(str(error)) from error
    batches = [args]
    if tl.ops.COMPILED and all(isinstance(a, tl.LoDTensor) for a in args):  # a composed scan is cut for its rows
        batches.append([tl.cat([a, a]) for a in args])
    for batch in batches:
        torch.default_generator.manual_seed(0)
        try:
            expected = plain(*plain.tensors(*batch))
        except tl.LoDError:  # a structure that is not among the tensors does not double with them
            continue
        torch.default_generator.manual_seed(0)
        same(program.module()(*plain.tensors(*batch)), expected)


def sizes_are_symbols(call: Call) -> bool:
    """Neither 0 nor 1 sequences or rows, nor a list of numbers for each sequence: torch.export takes those for constants."""
    given = [t for t in pytree.tree_leaves((call.args, call.kwargs)) if isinstance(t, tl.LoDTensor)]
    enough = all(min(len(t), *(t.num_sequences(k) for k in range(t.lod_level))) > 1 for t in given)
    return enough and not any(
        isinstance(a, np.ndarray) or (isinstance(a, list) and int in map(type, a)) for a in call.args
    )


def transforms(call: Call):
    leaves, floating, _ = of_leaves(call)
    given = tuple(t.detach() for t in leaves)
    out = floating(*leaves)
    if not out or not all(o.isfinite().all() for o in out):
        return
    weights = tuple(torch.linspace(-1, 1, o.numel(), dtype=o.dtype).view(o.shape) for o in out)
    want = torch.autograd.grad(out, leaves, weights, allow_unused=True)

    def loss(*floats):
        return sum((o * w).sum() for o, w in zip(floating(*floats), weights))

    same_gradients(torch.func.grad(loss, tuple(range(len(given))))(*given), want, leaves)
    _, pull = torch.func.vjp(floating, *given)
    same_gradients(pull(weights), want, leaves)
    _, along = torch.func.jvp(loss, given, tuple(map(torch.ones_like, given)))
    torch.testing.assert_close(along, sum(w.sum() for w in want if w is not None))


def maps(call: Call):
    leaves, floating, _ = of_leaves(call)
    if not leaves:
        return
    batch = [torch.stack([t, t * 0.5, t + 0.25]).detach() for t in leaves]
    got = torch.vmap(floating, randomness="same")(*batch)
    for i, each in enumerate(zip(*batch)):
        same([g[i] for g in got], floating(*each))


def carries_tangents(call: Call):
    leaves, floating, _ = of_leaves(call)
    out = floating(*leaves)
    if not out or not all(o.isfinite().all() for o in out):
        return
    want = torch.autograd.grad(out, leaves, list(map(torch.ones_like, out)), allow_unused=True)
    with torch.autograd.forward_ad.dual_level():
        duals = [torch.autograd.forward_ad.make_dual(t.detach(), torch.ones_like(t)) for t in leaves]
        found = [torch.autograd.forward_ad.unpack_dual(o).tangent for o in floating(*duals)]
    total = sum((t.sum() for t in found if t is not None), torch.zeros((), dtype=torch.float64))
    torch.testing.assert_close(total, sum(w.sum() for w in want if w is not None))


def twice(call: Call):
    leaves, floating, _ = of_leaves(call)
    out = floating(*leaves)
    if out and all(o.isfinite().all() for o in out):
        torch.autograd.gradgradcheck(floating, leaves, fast_mode=True, atol=1e-4)


def checkpoints(call: Call):
    leaves, floating, _ = of_leaves(call)
    want = gradients(floating(*leaves), leaves)
    same_gradients(gradients(checkpoint(floating, *leaves, use_reentrant=False), leaves), want, leaves)
    out = checkpoint(floating, *leaves, use_reentrant=True)
    weights = [torch.linspace(-1, 1, o.numel(), dtype=o.dtype).view(o.shape) for o in out]
    torch.autograd.backward(out, weights)
    same_gradients([t.grad for t in leaves], want, leaves)


def in_halves(call: Call):
    for half in (torch.bfloat16, torch.float16):
        _, _, everything = of_leaves(call)
        floats = [t.detach().float() for t in of_leaves(call)[0]]
        module = call.function if isinstance(call.function, torch.nn.Module) else torch.nn.Module()
        module.float()
        try:
            expected = everything(*floats)
            with torch.autocast("cpu", half):
                same(everything(*floats), expected, rtol=0.1, atol=0.1)
                same(
                    everything(*(t.to(half) if i == 0 else t for i, t in enumerate(floats))),
                    expected,
                    rtol=0.1,
                    atol=0.1,
                )
        finally:
            module.double()


def saves(call: Call):
    _, _, everything = of_leaves(call)
    result, file = everything(*(t.detach() for t in of_leaves(call)[0])), io.BytesIO()
    torch.save(result, file)
    file.seek(0)
    same(torch.load(file, weights_only=True), result)


CHECKS = {
    "compile": compiles,
    "export": exports,
    "func": transforms,
    "vmap": maps,
    "forward": carries_tangents,
    "double": twice,
    "checkpoint": checkpoints,
    "autocast": in_halves,
    "save": saves,
}
#: Calls of an operator that a cell is computed with.
MOST = {"compile": 1, "export": 1}


def few(feature, calls):
    if feature == "export":
        calls = [call for call in calls if sizes_are_symbols(call)]
    most = MOST.get(feature, 4)
    # odd steps, so that all structures and all forms are among them, and not the first, which is no hard one
    return calls if FULL else calls[len(calls) // 3 :: -(-len(calls) // most) | 1][:most]


def test_the_matrix_has_every_operator_and_every_feature():
    assert set(CALLS) == set(matrix.rows()) and set(CHECKS) == set(matrix.FEATURES)
    for feature, of in matrix.EXCEPTIONS.items():
        assert feature in CHECKS and set(of) <= set(CALLS), feature


#: That these compile is a law of its own: test_laws_ops.py::test_compiles_whole.
LAW = {f"ops.{info.name}" for info in OPS} - set(matrix.EXCEPTIONS["compile"])


def cells():
    """All but those of operators without a gradient that are about gradients."""
    for feature, name in itertools.product(CHECKS, CALLS):
        law = feature == "compile" and name in LAW
        if not law and not (matrix.FEATURES[feature].gradient and name in matrix.WHOLE):
            yield pytest.param(feature, name, id=f"{feature}-{name}")


@pytest.mark.parametrize(("feature", "name"), cells())
def test_a_cell_is_what_the_matrix_says(feature, name):
    reason = matrix.EXCEPTIONS.get(feature, {}).get(name)
    refused = []
    for call in few(feature, list(CALLS[name]())):
        try:
            CHECKS[feature](call)
        except AssertionError:
            raise
        except Exception as error:
            if reason is None:
                raise
            refused.append(error)
    assert bool(refused) == (reason is not None), "the matrix says that this does not work, and it does"
