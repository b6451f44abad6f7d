# SPDX-License-Identifier: Apache-2.0
"""Softmax, cumulative functions, flip and sort along the length of a batch of one: along every sequence, forward and gradient."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import torch_lod as tl
from torch_lod import LoDError

LODS = [[[4, 2, 5]], [[2, 1], [4, 2, 5]], [[11]], [[0, 6, 5, 0]]]
#: Where the length is, and what gets there.
LAYOUTS = {
    "(1, length, width)": (1, lambda r: r[None]),
    "(1, width, length)": (-1, lambda r: r.t()[None]),
    "(width, length)": (1, lambda r: r.t()),
    "(1, heads, length, width)": (-2, lambda r: r.unflatten(1, (2, 4)).transpose(0, 1)[None]),
}
#: Of t and the dim d of its length.
FUNCTIONS = {
    "softmax": lambda t, d: t.softmax(d),
    "F.softmax": lambda t, d: F.softmax(t, d, dtype=torch.float64),
    "nn.Softmax": lambda t, d: nn.Softmax(d)(t),
    "special": lambda t, d: torch.special.log_softmax(t, d),
    "log_softmax": lambda t, d: torch.log_softmax(t, dim=d),
    "F.log_softmax": lambda t, d: F.log_softmax(t, dim=d),
    "softmin": lambda t, d: F.softmin(t, d),
    "cumsum": lambda t, d: t.cumsum(d),
    "cumsum by axis": lambda t, d: torch.cumsum(t, axis=d),
    "cumsum of another dtype": lambda t, d: t.cumsum(d, dtype=torch.float64),
    "cumprod": lambda t, d: torch.cumprod(t, d),
    "logcumsumexp": lambda t, d: t.logcumsumexp(d),
    "cummax": lambda t, d: t.cummax(d),
    "cummin": lambda t, d: torch.cummin(t, dim=d),
    "flip": lambda t, d: t.flip(d),
    "flip of two dims": lambda t, d: torch.flip(t, (0, d)),
    "sort": lambda t, d: t.sort(dim=d, stable=True),
    "sort, descending": lambda t, d: torch.sort(t, d, True),
    "argsort": lambda t, d: t.argsort(dim=d, stable=True),
    "attention pooling": lambda t, d: t.sum(0, keepdim=True).softmax(d) * t,
    "positions of RoBERTa": lambda t, d: (t.gt(0).int().cumsum(d).type_as(t) * t.gt(0)).long() + 1,
}


def together(parts, d):
    if isinstance(parts[0], tuple):
        return [torch.cat(p, d) for p in zip(*parts)]
    return [torch.cat(parts, d)]


def check(function, rows, lengths, layout, dim=None):
    d, laid = LAYOUTS[layout]
    t = laid(tl.from_lengths(rows, lengths))
    found = function(t, d)
    alone = together([function(laid(r), d) for r in rows.split(lengths[-1]) if len(r)], d)
    found = list(found) if isinstance(found, tuple) else [found]
    assert len(found) == len(alone)
    for a, b in zip(found, alone):
        assert a.rows_dim == d % t.dim() and a.lod.to_lengths() == lengths
        torch.testing.assert_close(a.values(), b, equal_nan=True)
        if b.requires_grad:
            weights = torch.rand_like(b)
            one, other = (torch.autograd.grad((v * weights).sum(), rows, retain_graph=True)[0] for v in (a.values(), b))
            torch.testing.assert_close(one, other)


@pytest.mark.parametrize("lengths", LODS, ids=str)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_sequence_as_alone(name, layout, lengths):
    torch.manual_seed(0)
    check(FUNCTIONS[name], torch.randn(11, 8).requires_grad_(), lengths, layout)


@pytest.mark.parametrize("name", ["cummax", "cummin", "sort", "sort, descending", "argsort"])
def test_equal_rows(name):
    """The last of them counts for cummax and cummin, in values, indices and gradients; the order stays in sort."""
    torch.manual_seed(0)
    rows = torch.randn(11, 8).round().requires_grad_()
    check(FUNCTIONS[name], rows, [[4, 2, 5]], "(1, length, width)")
    with_nan = rows.detach().masked_fill(torch.rand(11, 8) < 0.2, float("nan")).requires_grad_()
    if "cum" in name:
        check(FUNCTIONS[name], with_nan, [[4, 2, 5]], "(1, length, width)")


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8, torch.bool, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_dtypes(name, dtype):
    rows = torch.randint(0, 5, (11, 8), generator=torch.Generator().manual_seed(0)).to(dtype)
    try:
        FUNCTIONS[name](rows[None], 1)
    except RuntimeError:
        with pytest.raises((LoDError, RuntimeError)):
            FUNCTIONS[name](tl.from_lengths(rows, [[4, 2, 5]])[None], 1)
        return
    check(FUNCTIONS[name], rows, [[4, 2, 5]], "(1, length, width)")


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.softmax(0),
        lambda x: x.cumsum(0),
        lambda x: x[:, None].softmax(0),
        lambda x: x.flip(0),
        lambda x: x[:, None].sort(0),
        lambda x: x[None].cumsum_(1),
        lambda x: F.softmax(x[None]),
        lambda x: x[None][:, 1:].softmax(1),
        lambda x: x[None][:, :3].cumsum(1),
        lambda x: F.gumbel_softmax(x[None], dim=1),
        lambda x: x[None].flip(1, 1),
    ],
)
def test_rows_that_may_be_the_batch_and_parts_are_refused(function):
    x = tl.from_lengths(torch.randn(11, 8), [[4, 2, 5]])
    with pytest.raises((LoDError, RuntimeError)) as caught:
        function(x)
    assert "dims" in str(caught.value) or "sequences" in str(caught.value) or "rows" in str(caught.value)


def test_other_dims_are_those_of_any_tensor():
    x = tl.from_lengths(torch.randn(11, 8), [[4, 2, 5]])
    for function in (lambda t: t.softmax(-1), lambda t: t.cumsum(2), lambda t: t.flip(-1), lambda t: t.sort(-1)[0]):
        found = function(x[None])
        assert found.rows_dim == 1
        torch.testing.assert_close(found.values(), function(x.values()[None]))
    with pytest.raises(IndexError):
        x[None].cumsum(3)


def test_a_sum_over_the_length_is_lost():
    x = tl.from_lengths(torch.randn(11, 8), [[4, 2, 5]])
    t = x[None]
    assert (t.softmax(1) * t).sum(1).rows_dim is None


def test_gradcheck():
    x = torch.randn(5, 2, dtype=torch.float64, requires_grad=True)
    for name in ("softmax", "log_softmax", "cumsum", "cumprod", "logcumsumexp", "flip"):

        def run(values, of=FUNCTIONS[name]):
            return of(tl.from_lengths(values, [[3, 0, 2]])[None], 1).values()

        assert torch.autograd.gradcheck(run, (x,)) and torch.autograd.gradgradcheck(run, (x,))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize(
    "name", ["softmax", "F.log_softmax", "cumsum", "cummax", "sort", "flip", "positions of RoBERTa"]
)
def test_compiled(name, backend):
    torch._dynamo.reset()
    x = tl.from_lengths(torch.randn(11, 8), [[4, 2, 5]])
    found = torch.compile(lambda x: FUNCTIONS[name](x[None], 1), backend=backend, fullgraph=True)(x)
    wanted = FUNCTIONS[name](x[None], 1)
    for a, b in zip(*(v if isinstance(v, tuple) else (v,) for v in (found, wanted))):
        assert a.rows_dim == 1
        torch.testing.assert_close(a.values(), b.values())
