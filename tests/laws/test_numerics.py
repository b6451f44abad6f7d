# SPDX-License-Identifier: Apache-2.0
"""What docs/numerics.md promises beside the dtype contract: half types, places, anomaly mode."""

import pytest
import torch
from samples import SEQUENCES
from samples.words import finite, of_leaves, same_bits

import torch_lod as tl

HALVES = (torch.float16, torch.bfloat16)
POOLS = "sum mean sqrt max min first last prod logsumexp var std".split()
WITHIN = "softmax log_softmax normalize cumsum cumprod cummax cummin logcumsumexp sort".split()


@pytest.mark.parametrize("kind", ["var", "std"])
def test_half_types_do_not_overflow_on_the_way(kind):
    x = tl.from_lengths(torch.tensor([-300.0, 300.0, 5.0, 7.0, 60000.0, -60000.0]).half(), [[2, 2, 2]])
    assert tl.sequence_normalize(x).tolist() == [-1, 1, -1, 1, 1, -1]
    found, exact = tl.sequence_pool(x, kind), tl.sequence_pool(x.double(), kind)
    assert found.tolist() == exact.half().tolist() and found[:1].isfinite().all() == (kind == "std")


def of_halves(dtype, *numbers):
    return tl.from_lengths(torch.tensor(numbers, dtype=dtype)[:, None], [[len(numbers)]])


def test_sums_of_half_types_do_not_overflow_on_the_way():
    far = of_halves(torch.float16, 300, -300)
    assert tl.row_conv(far, torch.full((2, 1), 300.0).half())[:1].tolist() == [[0]]
    scores = of_halves(torch.float16, 40000, 40000, 40000)
    sizes = of_halves(torch.float16, 1), of_halves(torch.float16, 1, 2, 3)
    assert tl.sequence_topk_avg_pooling(scores, *sizes, [1, 3, 100_000], 1).tolist() == [[40000, 40000, 1.2001953125]]
    around, weight = torch.tensor([[-300.0], [0.0]]).half(), torch.tensor([[300.0], [300.0], [0.0]]).half()
    assert tl.sequence_conv(far, weight, 3, padding_data=around).tolist() == [[0], [0]]


@pytest.mark.parametrize("dtype", HALVES)
def test_sums_of_half_types_are_rounded_once(dtype):
    g = torch.Generator().manual_seed(0)
    x = tl.from_lengths(torch.randn(40, 4, generator=g).to(dtype), [[5, 0, 30, 5]])
    weight, around, kernel = (torch.randn(n, 4, generator=g).to(dtype) for n in (20, 4, 6))
    for call, given in (
        (lambda x, w, p: tl.sequence_conv(x, w, 5, padding_data=p), (weight, around)),
        (tl.row_conv, (kernel,)),
    ):
        found, exact = call(x, *given).values(), call(x.double(), *[t.double() for t in given]).values()
        assert found.dtype == dtype
        torch.testing.assert_close(found.double(), exact, rtol=0.51 * torch.finfo(dtype).eps, atol=1e-6)


def test_nothing_is_multiplied_by_what_is_not_there():
    """An infinite weight beyond the end of a sequence, and rows for empty sequences."""
    weight = torch.tensor([[1.0], [float("inf")]], requires_grad=True)
    out = tl.row_conv(tl.from_lengths(torch.ones(3, 1), [[2, 1]]), weight)
    assert out.tolist() == [[float("inf")], [1], [1]]
    assert torch.autograd.grad(out.sum(), weight)[0].tolist() == [[3], [1]]
    x = tl.from_lengths(torch.ones(3, 2), [[1, 1], [3, 0]])
    for wrong in (float("nan"), float("inf")):
        y = torch.tensor([[1.0, 1], [wrong, 1]])
        for given in (y, tl.LoDTensor(y, x.lod.outer(1))):
            weight = torch.ones(4, 1, requires_grad=True)
            near = tl.from_lengths(x.values(), [[3, 0]]) if given is y else x
            out = tl.fusion_seqexpand_concat_fc([near, given], weight)
            assert torch.autograd.grad(out.sum(), weight)[0].tolist() == [[3]] * 4 and out.tolist() == [[4]] * 3


def test_words_that_are_not_selected_have_no_gradient():
    numbers = torch.tensor([[0.0, 0, -200], [0, -200, -200], [0, -200, -200]], requires_grad=True)
    last = tl.from_lengths(torch.tensor([5, 6, 1]), [[2, 1], [1, 1, 1]])  # the third has ended
    before = torch.tensor([-0.1, -0.2, -0.3], requires_grad=True)
    chances = numbers.softmax(1) * torch.tensor([[1.0], [1], [0]])
    ids, scores = tl.beam_search(last, before, None, chances, 2, 1, is_accumulated=False)
    slopes, of_before = torch.autograd.grad(scores.sum(), (numbers, before))
    assert slopes[0].abs().sum() == 1 and slopes[0].sum() == 0 and not slopes[1:].any()
    assert of_before.tolist() == [1, 1, 0] and len(ids) == 2


FAR_APART = {
    "float16": (torch.float16, [1 / 512, 1, 512, 512]),
    "float32": (torch.float32, [1e-20, 1, 1e20, 1e20]),
    "both ways": (torch.float32, [1e-30, 1e-30, 1, 1e30, 1e30]),
    "subnormal on the way": (torch.float32, [1e-20, 1e-24, 1e20, 3e23, 7.0]),
    "a zero": (torch.float32, [1e-30, 0, 1e-20, 1e30, 1e30]),
}


@pytest.mark.parametrize("case", FAR_APART)
@pytest.mark.parametrize(
    "call",
    [
        lambda x, offsets: tl.ops.segment_reduce(x, offsets, "prod"),
        tl.ops.segment_cumprod,
        lambda x, offsets: tl.ops.segment_cumprod(x, offsets, exclusive=True),
        lambda x, offsets: tl.ops.segment_cumprod(x, offsets, reverse=True),
    ],
    ids=["prod", "cumprod", "exclusive", "reverse"],
)
def test_gradients_of_products_do_not_overflow_on_the_way(call, case, device):
    dtype, numbers = FAR_APART[case]
    rows = torch.tensor([*numbers, 2.0, 3.0], dtype=dtype, device=device)
    offsets = torch.tensor([0, len(numbers), len(rows)], device=device)
    exact, found, graphed = (
        torch.autograd.grad(call(x, offsets).sum(), x, create_graph=graph)[0]
        for x, graph in (
            (rows.double().requires_grad_(), False),
            (rows.clone().requires_grad_(), False),
            (rows.clone().requires_grad_(), True),
        )
    )
    for gradient in (found, graphed):
        torch.testing.assert_close(gradient, exact.to(dtype), rtol=4e-7 if dtype == torch.float32 else 1e-3, atol=0)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("width", [1, 5, 70])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("exclusive", [False, True])
def test_gradients_of_products_with_and_without_their_own(exclusive, reverse, width, dtype, device):
    offsets = torch.tensor([0, 0, 1, 150, 150, 157, 500, 640], device=device)
    g = torch.Generator().manual_seed(width)
    x, dy = ((0.8 + 0.45 * torch.rand(640, width, generator=g)).to(device, dtype) for _ in range(2))  # nothing cancels
    x[4], x[300], x[600] = 0, 0, torch.nan
    x.requires_grad_()
    so_far = tl.ops.segment_cumprod(x, offsets, reverse, exclusive)
    product = tl.ops.segment_reduce(x, offsets, "prod")
    rtol = {torch.float64: 1e-13, torch.float32: 1e-6, torch.bfloat16: 1e-2}[dtype]
    for y, g in ((so_far, dy), (product, dy[: len(product)])):
        alone, graphed = (
            torch.autograd.grad(y, x, g, create_graph=graph, retain_graph=True)[0].detach() for graph in (False, True)
        )
        torch.testing.assert_close(alone, graphed, rtol=rtol, atol=0, equal_nan=True)


@pytest.mark.parametrize("call", [tl.ops.segment_cumprod, lambda x, offsets: tl.ops.segment_reduce(x, offsets, "prod")])
def test_gradients_of_products_read_what_a_gradient_says(call, device):
    x = torch.rand(5, 2, device=device).requires_grad_()
    y = call(x, torch.tensor([0, 2, 5], device=device))
    g = torch.randn(y.shape, device=device)
    grads = (torch._neg_view(g), -g, torch._efficientzerotensor(y.shape, device=device))
    negated, negative, none = (torch.autograd.grad(y, x, grad, retain_graph=True)[0] for grad in grads)
    assert torch.equal(negated, negative) and negative.any() and not none.any()


def test_logcumsumexp_of_many_rows_keeps_its_digits():
    rows = torch.randn(100_000, 2, generator=torch.Generator().manual_seed(0))
    results = []
    for x in (rows.requires_grad_(), rows.detach().double().requires_grad_()):
        out = tl.sequence_logcumsumexp(tl.from_lengths(x, [[len(x)]])).values()
        results.append((out, torch.autograd.grad(out.sum(), x)[0]))
    (out, gradient), (exact_out, exact_gradient) = results
    torch.testing.assert_close(out.double(), exact_out, rtol=0, atol=2e-6)  # of up to 12
    torch.testing.assert_close(gradient.double(), exact_gradient, rtol=1e-6, atol=0)


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_keeps_the_sign_of_zero(side, device):
    x = tl.from_lengths(torch.tensor([-0.0, 1.0, -0.0], device=device), [[1, 2]])
    signs = [[False, True], [False, True]] if side == "left" else [[True, False], [False, True]]
    assert x.to_padded(side=side)[0].signbit().tolist() == signs


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize(
    "line",
    [
        "log_softmax(0)",
        "softmax(0)",
        "logsumexp(0)",
        "var(0)",
        "std(0)",
        "mean(0)",
        "sum(0)",
        "cumsum(0)",
        "logcumsumexp(0)",
    ],
)
def test_half_types_err_as_much_as_torch_at_most(line, dtype):
    name = line.removesuffix("(0)")
    own = getattr(tl, f"sequence_{name}", None) or (lambda x: tl.sequence_pool(x, name))
    x = tl.from_lengths(torch.randn(4000, 5, generator=torch.Generator().manual_seed(3)).to(dtype), [[3, 997, 0, 3000]])
    parts = [rows for rows in x.sequences() if len(rows)]
    torchs, exact = ([getattr(rows, name)(0) for rows in given] for given in (parts, [p.double() for p in parts]))
    got = own(x)
    got = [rows for rows in got.sequences() if len(rows)] if isinstance(got, tl.LoDTensor) else [got[0], got[1], got[3]]
    for g, t, e in zip(got, torchs, exact, strict=True):
        ours, theirs = ((v.double() - e).abs() for v in (g, t))
        assert ours.max() <= theirs.max() and ours.median() <= theirs.median(), f"{ours.max()}, torch {theirs.max()}"


def by_sequence(call, x):
    """What becomes of every sequence: its rows of the result and of the gradient."""
    rows = x.values().clone().requires_grad_()
    out = call(x.with_values(rows))
    out = out[0] if isinstance(out, tuple) else out
    (grad,) = torch.autograd.grad(out.square().sum(), rows)
    of_out = out.sequences() if isinstance(out, tl.LoDTensor) else out.unbind()
    return list(zip(of_out, x.with_values(grad).sequences(), strict=True))


PLACED = {kind: lambda x, kind=kind: tl.sequence_pool(x, kind) for kind in POOLS}
PLACED |= {name: getattr(tl, f"sequence_{name}") for name in WITHIN}
PLACED["topk"] = lambda x: tl.sequence_topk(x, 3)


@pytest.mark.parametrize("name", PLACED)
def test_a_sequence_does_not_depend_on_its_place_and_company(name):
    """In every dtype, at a width that leaves odd ends behind vectors, with and without a gradient."""
    lengths, g = [3, 20, 1, 0, 7, 130, 2, 1100, 5], torch.Generator().manual_seed(5)
    for dtype in (torch.float32, torch.float64, *HALVES):
        for width in (1, 20):
            x = tl.from_lengths(torch.randn(sum(lengths), width, generator=g).to(dtype), [lengths])
            whole = by_sequence(PLACED[name], x)
            for s, rows in enumerate(x.sequences()):
                (alone,) = by_sequence(PLACED[name], tl.from_lengths(rows.clone(), [[len(rows)]]))
                for a, b in zip(whole[s], alone):
                    assert same_bits(a, b).all(), f"{dtype}, width {width}, sequence {s}"


def _multiplying(dtype, width):
    torch.manual_seed(2)
    for kind in (torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN):
        module = kind(width, width).to(dtype)
        yield lambda x, module=module: module(x)[0]
    weight = torch.randn(3 * width, 5, dtype=dtype)
    yield lambda x: tl.sequence_conv(x, weight, 3)


@pytest.mark.parametrize("width", [5, 17, 33, 80])
@pytest.mark.parametrize("dtype", (torch.float32, torch.float64, *HALVES))
def test_products_leave_nan_in_its_sequence(dtype, width):
    rows = torch.randn(22, width, generator=torch.Generator().manual_seed(5)).to(dtype)
    spoilt = rows.clone()
    spoilt[1:21] = torch.nan
    for call in _multiplying(dtype, width):
        whole, hit = (by_sequence(call, tl.from_lengths(r, [[1, 20, 1]])) for r in (rows, spoilt))
        for s in (0, 2):
            assert all(same_bits(a, b).all() for a, b in zip(whole[s], hit[s], strict=True))
        assert all(t.isnan().all() for t in hit[1])


@pytest.mark.parametrize("info", [i for i in SEQUENCES if i.differentiable], ids=lambda info: info.id)
def test_anomaly_mode_raises_nothing_where_gradients_are_finite(info, device):
    """Nor in gradients of gradients: a NaN that reaches no row is still one to anomaly mode."""
    samples = info.few(info.samples(torch.float64, device), 90 if info.name == "sequence_pool" else 12)
    tried = 0
    for sample in samples:
        leaves, call = of_leaves(info, sample)
        out = [o for o in call(*leaves) if o.requires_grad]
        if not out or not finite(out):
            continue

        def twice(out, leaves):
            first = torch.autograd.grad([o.square().sum() for o in out], leaves, create_graph=True, allow_unused=True)
            first = [g for g in first if g is not None and g.requires_grad]
            second = torch.autograd.grad([g.square().sum() for g in first], leaves, allow_unused=True) if first else ()
            return [*first, *(g for g in second if g is not None)]

        if not all(g.isfinite().all() for g in twice(out, leaves)):
            continue
        with torch.autograd.detect_anomaly(check_nan=True):
            leaves, call = of_leaves(info, sample)
            twice([o for o in call(*leaves) if o.requires_grad], leaves)
        tried += 1
    assert tried
