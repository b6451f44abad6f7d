# SPDX-License-Identifier: Apache-2.0
"""A function that torch.func transforms is given LoDTensors: nothing runs across sequences in silence."""

import functools

import pytest
import torch
import torch.autograd.forward_ad as forward_ad
from torch import func, nn

import torch_lod as tl
from torch_lod.tensor.lod_tensor import values_of

torch.manual_seed(0)
LSTM, CONV = nn.LSTM(3, 3).double(), nn.Conv1d(3, 3, 3, padding=1).double()
X = tl.from_lengths(
    torch.randn(3, 3, dtype=torch.float64), [[2, 0, 1]]
)  # square: a plain tensor would be taken as well
#: Functions that give other numbers for the rows of all sequences as one.
FUNCTIONS = {
    "LSTM": lambda q: LSTM(q)[0],
    "Conv1d": CONV,
    "attention": lambda q: torch.nn.functional.scaled_dot_product_attention(q, q, q),
    "sequence_softmax": tl.sequence_softmax,
}
each = pytest.mark.parametrize("f", FUNCTIONS.values(), ids=FUNCTIONS)
ONES = torch.ones(3, 3, dtype=torch.float64)


def loss(f, q):
    return f(q).pow(3).sum()


def by_autograd(f, q=X):
    leaf = q.values().clone().requires_grad_()
    return torch.autograd.functional.jacobian(lambda v: values_of(f(q.with_values(v))), leaf)


@each
def test_gradients(f):
    assert not torch.allclose(values_of(f(X)), values_of(f(tl.from_lengths(X.values(), [[3]]))))
    scalar = functools.partial(loss, f)
    want, one = by_autograd(scalar), torch.ones((), dtype=torch.float64)
    for got in (func.grad(scalar)(X), func.vjp(scalar, X)[1](one)[0], func.jacrev(scalar)(X), func.jacfwd(scalar)(X)):
        torch.testing.assert_close(got, want)
    assert type(got) is torch.Tensor
    torch.testing.assert_close(func.jvp(scalar, (X,), (ONES,))[1], want.sum())
    torch.testing.assert_close(func.grad_and_value(scalar)(X), (want, scalar(X)))
    hessian = torch.autograd.functional.hessian(lambda v: scalar(X.with_values(v)), X.values())
    torch.testing.assert_close(func.hessian(scalar)(X), hessian)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(X, ONES)
        primal, tangent = forward_ad.unpack_dual(dual)
        torch.testing.assert_close(forward_ad.unpack_dual(scalar(dual)).tangent, want.sum())
    assert dual.lod is X.lod and primal.lod is X.lod and tangent is ONES and type(ONES) is torch.Tensor


@each
def test_results_are_lod_tensors(f):
    want = f(X)
    results = (func.vjp(f, X)[0], func.jvp(f, (X,), (ONES,))[0], func.functionalize(f)(X))
    for got in results:
        assert got.lod is X.lod
        torch.testing.assert_close(got.values(), want.values())
    for jacobian in (func.jacrev(f)(X), func.jacfwd(f)(X)):
        torch.testing.assert_close(values_of(jacobian), by_autograd(f))
    assert func.vjp(lambda q: q, X)[0] is X


@each
@pytest.mark.parametrize("chunk", [None, 2])
def test_samples_of_vmap(f, chunk):
    many = tl.from_lengths(torch.randn(3, 3, 4, dtype=torch.float64), X.lod.to_lengths())
    for out in (2, -1):
        got = func.vmap(f, in_dims=2, out_dims=out, chunk_size=chunk)(many)
        want = torch.stack([f(many[..., i]).values() for i in range(4)], 2)
        assert chunk is not None or got.lod is many.lod
        torch.testing.assert_close(values_of(got), want)
    first = func.vmap(f, in_dims=2, chunk_size=chunk)(many)
    assert chunk is not None or (first.lod, first.rows_dim) == (many.lod, 1)
    torch.testing.assert_close(
        values_of(first).movedim(0, 2), torch.stack([f(many[..., i]).values() for i in range(4)], 2)
    )
    grads = func.vmap(func.grad(functools.partial(loss, f)), in_dims=2)(many)
    torch.testing.assert_close(grads[1], by_autograd(functools.partial(loss, f), many[..., 1]))


def test_along_the_rows_a_sample_of_vmap_is_a_row():
    seen = []
    got = func.vmap(lambda row: seen.append(row) or row.sum())(X)
    assert type(seen[0]) is torch.Tensor and seen[0].shape == (3,) and torch.equal(got, X.values().sum(1))


def test_rows_at_another_dim_and_lost_rows_know_it():
    def along(q):
        return CONV(q).pow(3).sum()

    turned, want = X.t(), by_autograd(lambda q: along(q.t()))
    torch.testing.assert_close(func.grad(along)(turned), want.t())
    torch.testing.assert_close(func.jvp(along, (turned,), (ONES,))[1], want.sum())
    assert func.vjp(torch.relu, turned)[0].rows_dim == 1
    many = torch.stack([X, X * 2])
    assert many.rows_dim == 1 and func.vmap(lambda q: q.lod is X.lod and q)(many).rows_dim == 1
    assert func.vmap(lambda q: q * 2, out_dims=1)(many).lod is X.lod
    assert type(func.vmap(lambda row: row.sum(), in_dims=1)(many)) is torch.Tensor
    for transform in (func.grad, functools.partial(func.vmap, out_dims=0)):
        with pytest.raises(tl.LoDError, match="became in getitem"):
            transform(lambda q: (X + q).sum())(X[[2, 0, 1]])


def test_modules_with_other_parameters():
    parameters = {name: p.detach() for name, p in LSTM.named_parameters()}
    assert torch.equal(func.functional_call(LSTM, parameters, (X,))[0].values(), LSTM(X)[0].values())

    def of(parameters, q):
        return func.functional_call(LSTM, parameters, (q,))[0].square().sum()

    got = func.grad(of)(parameters, X)
    want = torch.autograd.grad(LSTM(X)[0].square().sum(), LSTM.parameters())
    torch.testing.assert_close(tuple(got.values()), want)


class OfYours(torch.autograd.Function):
    @staticmethod
    def forward(q):
        return q * 2

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, slope):
        return slope * 2


def test_functions_of_the_user_run_with_the_rules_or_are_refused():
    assert OfYours.apply(X).lod is X.lod
    with pytest.raises(tl.LoDError, match=r"functions of yours without the rules; give it x\.values"):
        func.grad(lambda q: OfYours.apply(q).sum())(X)
    got = func.grad(lambda q: loss(FUNCTIONS["LSTM"], q.with_values(OfYours.apply(q.values()))))(X)
    torch.testing.assert_close(got, by_autograd(lambda q: loss(FUNCTIONS["LSTM"], q * 2)))


def test_tangents_of_another_structure_are_refused():
    other = tl.from_lengths(ONES, [[1] * len(X)])
    said = r"make_dual: expected a tangent with the LoD .* differs: .*see \.values"
    assert func.jvp(lambda q: q * 2, (X,), (X.with_values(ONES),))[1].shape == ONES.shape
    with pytest.raises(ValueError, match=said):
        func.jvp(lambda q: q * 2, (X,), (other,))
    with forward_ad.dual_level():
        assert forward_ad.make_dual(X, X.with_values(ONES)).lod is X.lod
        with pytest.raises(ValueError, match=said):
            forward_ad.make_dual(X, other)


def test_compiled():
    def scalar(q):  # only a LoDTensor has lengths
        return (q * q.lengths().sum()).pow(3).sum()

    want = by_autograd(scalar)
    for transformed, expected in (
        (func.grad(scalar), want),
        (lambda q: func.jvp(scalar, (q,), (torch.ones_like(q.values()),))[1], want.sum()),
    ):
        for forget in (torch._dynamo.reset, torch._dynamo.trace_rules.clear_lru_cache):  # as init_process_group does
            forget()
            torch._dynamo.reset()
            torch.testing.assert_close(torch.compile(transformed, backend="aot_eager", fullgraph=True)(X), expected)
    torch._dynamo.reset()
    along = functools.partial(loss, CONV)
    torch._dynamo.reset()
    try:
        got = torch.compile(func.grad(along), backend="aot_eager")(X)
    except RuntimeError:  # torch transforms no kernels in a graph, and older ones no composition either
        return
    torch.testing.assert_close(got, by_autograd(along))


def test_other_tensors_are_wrapped_as_before():
    v = X.values()
    assert type(func.vmap(lambda q: q * 2, in_dims=1)(v)) is torch.Tensor
    assert type(func.vjp(lambda q: q * 2, v)[0]) is torch.Tensor
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(v, ONES)
        assert type(dual) is torch.Tensor and forward_ad.unpack_dual(v).tangent is None
