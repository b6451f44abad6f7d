# SPDX-License-Identifier: Apache-2.0
"""LinearChainCRF.marginals and sample in every mode of autograd, under transforms and in compiled code. That the operator
equals enumeration is a law (tests/samples/ops/chain.py)."""

import pytest
import torch
from reference import ops as reference
from torch.autograd import forward_ad
from torch.utils._python_dispatch import TorchDispatchMode

import torch_lod as tl
from torch_lod.ops.compositions import COMPOSITIONS

TAGS, LENGTHS = 3, [[2, 0, 3]]


def crf_of():
    torch.manual_seed(0)
    return tl.nn.LinearChainCRF(TAGS, dtype=torch.float64)


def scores():
    return torch.randn(5, TAGS, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def expected(crf, rows):
    offsets = torch.tensor([0, 2, 2, 5])
    return reference.chain_marginals(rows, crf.transition(), offsets)


class Calls(TorchDispatchMode):
    """Counts the operators that run, and the numbers that they write."""

    def __init__(self):
        super().__init__()
        self.count = self.numbers = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        self.count += 1
        for t in out if isinstance(out, (list, tuple)) else [out]:
            self.numbers += t.numel() if isinstance(t, torch.Tensor) and not t._is_view() else 0
        return out


@pytest.mark.parametrize("hook", [lambda g: g.clamp(-0.01, 0.01), lambda g: g * 2])
def test_the_forward_runs_no_hooks(hook):
    crf, h, seen = crf_of(), scores().requires_grad_(), []
    rows = h * 1
    rows.register_hook(lambda g: seen.append(1) or hook(g))
    found = crf.marginals(tl.from_lengths(rows, LENGTHS)).values()
    torch.testing.assert_close(found, expected(crf, rows))
    torch.testing.assert_close(found.sum(1), torch.ones(5, dtype=torch.float64))
    assert not seen and h.grad is None
    found[:, 0].sum().backward()
    assert seen == [1]


@pytest.mark.parametrize("parameters", [True, False])
def test_forward_mode_keeps_the_tangent(parameters):
    crf, rows = crf_of().requires_grad_(parameters), scores()
    tangent = torch.randn(rows.shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    with forward_ad.dual_level():
        x = tl.from_lengths(forward_ad.make_dual(rows, tangent), LENGTHS)
        found = forward_ad.unpack_dual(crf.marginals(x).values())
    wanted = torch.func.jvp(lambda v: expected(crf, v), (rows,), (tangent,))[1]
    torch.testing.assert_close(found.primal, expected(crf, rows))
    torch.testing.assert_close(found.tangent, wanted)


def test_gradients_and_gradients_of_gradients():
    crf, rows = crf_of(), scores().requires_grad_()
    parameters = tuple(crf.parameters())

    def of(rows, *given):
        named = dict(zip(dict(crf.named_parameters()), given))
        x, given = tl.from_lengths(rows, LENGTHS), {f"crf.{k}": v for k, v in named.items()}
        return torch.func.functional_call(_Marginals(crf), given, (x,)).values()

    assert torch.autograd.gradcheck(of, (rows, *parameters))
    assert torch.autograd.gradgradcheck(of, (rows, *parameters))


class _Marginals(torch.nn.Module):
    def __init__(self, crf):
        super().__init__()
        self.crf = crf

    def forward(self, x):
        return self.crf.marginals(x)


def test_vmap_equals_a_loop():
    crf, batch = crf_of(), torch.stack([scores(), scores().flip(0)])

    def of(rows):
        return crf.marginals(tl.from_lengths(rows, LENGTHS)).values()

    torch.testing.assert_close(torch.vmap(of)(batch), torch.stack([of(rows) for rows in batch]))


def test_jacobians_in_every_way():
    crf, rows = crf_of(), scores()

    def of(rows):
        return crf.marginals(tl.from_lengths(rows, LENGTHS)).values()

    wanted = torch.autograd.functional.jacobian(lambda v: expected(crf, v), rows)
    for found in (
        torch.autograd.functional.jacobian(of, rows),
        torch.autograd.functional.jacobian(of, rows, vectorize=True),
        torch.func.jacrev(of)(rows),
        torch.func.jacfwd(of)(rows),
    ):
        torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_marginals_compile_whole(backend):
    crf = crf_of()
    compiled = torch.compile(lambda x: crf.marginals(x), fullgraph=True, backend=backend)
    for lengths in (LENGTHS, [[1, 4, 2]]):
        rows = torch.randn(sum(lengths[0]), TAGS, dtype=torch.float64)
        found = []
        for call in (compiled, crf.marginals):
            leaf = rows.clone().requires_grad_()
            out = call(tl.from_lengths(leaf, lengths)).values()
            crf.zero_grad()
            (out * torch.arange(TAGS)).square().sum().backward()
            found.append((out.detach(), leaf.grad, *(p.grad for p in crf.parameters())))
        for got, wanted in zip(*found):
            torch.testing.assert_close(got, wanted)
    with torch.no_grad():
        torch.testing.assert_close(compiled(tl.from_lengths(rows, lengths)).values(), out.detach())


def test_sample_compiles_whole():
    crf, x = crf_of(), tl.from_lengths(scores() + torch.tensor([0, 900, 0]), LENGTHS)
    for call in (crf.sample, torch.compile(lambda x: crf.sample(x, 2), fullgraph=True, backend="aot_eager")):
        assert call(x).values().unique().tolist() == [1]  # the only path with a probability


def test_marginals_of_one_call_for_any_rows():
    """Inference outside of no_grad is the usual mistake."""
    crf, counts = crf_of(), []
    for rows in (20, 200):
        x = tl.from_lengths(torch.zeros(rows, TAGS, dtype=torch.float64), [[rows]])
        with Calls() as calls:
            crf.marginals(x)
        counts.append(calls.count)
    assert counts[0] == counts[1]


@pytest.mark.parametrize(
    "name", ["chain_marginals", "chain_marginals_backward", "chain_logsumexp", "chain_logsumexp_backward"]
)
@pytest.mark.parametrize("shape", ["one", "heavy tail"])
def test_compositions_are_linear(name, shape):
    written = []
    for n in (20, 200):
        lengths = [n] if shape == "one" else [n, *[1] * n]
        rows = sum(lengths)
        values, transition = torch.zeros(rows, TAGS), torch.zeros(TAGS + 2, TAGS)
        given = [values, transition, tl.LoD.from_lengths([lengths]).row_offsets()]
        if name == "chain_marginals_backward":
            given = [torch.ones(rows, TAGS), *given]
        if name == "chain_logsumexp_backward":
            given = [torch.ones(len(lengths)), *given, values]
        with Calls() as calls:
            COMPOSITIONS[name](*given)
        written.append((calls.count, calls.numbers))
    assert all(after <= 11 * before for before, after in zip(*written)), written


def test_a_batch_of_structures_is_refused():
    batch = torch.zeros(2, 5, TAGS)

    def of(decode):
        return lambda rows: decode(tl.from_lengths(rows, LENGTHS)).values()

    for decode in (tl.ctc_decode, lambda x: tl.ctc_greedy_decoder(x, 0), lambda x: tl.ctc_beam_decode(x)[1]):
        with pytest.raises(ValueError, match=r"expected .* that can be read, got a batch of torch.vmap: ") as caught:
            torch.vmap(of(decode))(batch)
        assert isinstance(caught.value, tl.LoDError)
