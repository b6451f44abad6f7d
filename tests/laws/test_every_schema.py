# SPDX-License-Identifier: Apache-2.0
"""Every operator of torch_lod, by its schema: a fake kernel, gradients of a batch of gradients, forwards without hooks."""

import pytest
import torch
from gate_cases import calls, in_order
from matrix_info import CALLS
from samples import OPS
from torch._subclasses.fake_tensor import FakeTensorMode

import torch_lod as tl
from torch_lod.ops import schemas

NAMES = sorted(schemas.read())
#: Operators that have no fake kernel, and why.
WITHOUT_FAKE = {
    "check_lod": "returns numbers that it reads from the offsets",
    "cut_lod": "returns numbers that it reads from the offsets",
    "join_lods": "returns numbers that it reads from the offsets",
    "locate": "says of the entries whether they fit",
    "take_runs": "the sizes of its results are numbers that it reads from the offsets",
}


def test_there_is_a_case_for_every_schema():
    registered = {
        s.name.removeprefix("torch_lod::") for s in torch._C._jit_get_all_schemas() if "torch_lod::" in s.name
    }
    assert registered == set(NAMES) == set(calls())
    assert set(WITHOUT_FAKE) < set(NAMES)


@pytest.mark.parametrize("name", [n for n in NAMES if n not in WITHOUT_FAKE])
def test_fakes_have_the_shapes_of_results(name):
    operator, given = getattr(torch.ops.torch_lod, name).default, in_order(name, calls()[name])
    real = operator(*given)
    with FakeTensorMode() as mode:
        fake = operator(*torch.utils._pytree.tree_map_only(torch.Tensor, mode.from_tensor, given))
    real, fake = ([t for t in torch.utils._pytree.tree_leaves(x) if t is not None] for x in (real, fake))
    assert [(t.shape, t.dtype, t.device) for t in fake] == [(t.shape, t.dtype, t.device) for t in real]


@pytest.mark.parametrize("info", [i for i in OPS if i.differentiable], ids=lambda i: i.name)
def test_gradients_of_a_batch_of_gradients(info):
    """As torch.autograd.functional.jacobian(vectorize=True) asks for them."""
    function = getattr(tl.ops, info.name, None) or getattr(torch.ops.torch_lod, info.name)
    for sample in [s for s in info.samples(torch.float64, "cpu") if not s.large]:
        args = [a.clone().requires_grad_() if _differentiable(a) else a for a in sample.args]
        leaves = [a for a in args if _differentiable(a)]
        out = function(*args, **sample.kwargs)
        out = out[0] if isinstance(out, tuple) else out
        if not out.requires_grad or not out.numel():
            continue
        g = torch.Generator().manual_seed(0)
        batch = torch.randn(2, *out.shape, generator=g, dtype=out.dtype)
        found = torch.autograd.grad(out, leaves, batch, is_grads_batched=True, retain_graph=True, allow_unused=True)
        for got, *each in zip(
            found, *(torch.autograd.grad(out, leaves, b, retain_graph=True, allow_unused=True) for b in batch)
        ):
            assert (got is None) == (each[0] is None)
            if got is not None:
                torch.testing.assert_close(got, torch.stack(each))


def _differentiable(a) -> bool:
    return isinstance(a, torch.Tensor) and a.is_floating_point()


@pytest.mark.parametrize("name", CALLS)
def test_a_forward_leaves_the_graph_of_its_inputs_alone(name):
    call = next(iter(CALLS[name]()))
    seen, leaves = [], []

    def with_hook(t):
        if not t.is_floating_point():
            return t
        leaf = t.detach().clone().requires_grad_()
        leaves.append(leaf)
        inside = leaf * 1
        inside.register_hook(lambda g: seen.append(1))
        return inside

    args, kwargs = torch.utils._pytree.tree_map_only(torch.Tensor, with_hook, (call.args, call.kwargs))
    call.function(*args, **kwargs)
    assert not seen and all(leaf.grad is None for leaf in leaves)
