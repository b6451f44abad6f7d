# SPDX-License-Identifier: Apache-2.0
"""Long segments, whose blocks are shared among threads: the same bits as on one thread, and what torch says."""

import numpy as np
import pytest
import torch
from threads import on_threads

import torch_lod as tl
from torch_lod import ops

#: One column, columns of a register and beyond it, strips of several widths; for reductions also strips of every one.
WIDTHS = (1, 3, 8, 13, 87)
WIDEST = 509
DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.int64)
#: Of 70,000 elements and more, so that they are worth another thread.
NUMBERS = 140_000


def cut(rows: int) -> torch.Tensor:
    """One segment of most rows between short and empty ones, one of a block's length, one with a row more."""
    middle = rows - 2 * 1024 - 1 - 7
    return torch.tensor([0, 0, 3, 3 + middle, 3 + middle, 7 + middle, 7 + middle + 1024, rows, rows])


def given(width: int, dtype, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    rows = max(NUMBERS // width, 3 * 2048)
    g = torch.Generator().manual_seed(seed + width)
    if dtype == torch.int64:
        return torch.randint(-50, 50, (rows, width), generator=g), cut(rows)
    return torch.randn(rows, width, generator=g, dtype=torch.float64).to(dtype), cut(rows)


def same(call) -> tuple[torch.Tensor, ...]:
    """The results of call, which one thread and several agree on, bit by bit."""
    one = on_threads(1, call)
    one = one if isinstance(one, tuple) else (one,)
    for threads in (2, 3, 4):
        many = on_threads(threads, call)
        for a, b in zip(one, many if isinstance(many, tuple) else (many,), strict=True):
            torch.testing.assert_close(b, a, rtol=0, atol=0, equal_nan=True)
    return one


def by_segment(f, x: torch.Tensor, offsets: torch.Tensor, empty: float = 0.0) -> torch.Tensor:
    """f of the rows of every segment, a row each."""
    wide = x.double() if x.is_floating_point() else x
    rows = [f(part) if len(part) else torch.full_like(wide[0], empty) for part in wide.split(offsets.diff().tolist())]
    return torch.stack(rows)


def by_row(f, x: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    wide = x.double() if x.is_floating_point() else x
    return torch.cat([f(part) for part in wide.split(offsets.diff().tolist())])


def close(got: torch.Tensor, want: torch.Tensor, size: float = 1.0) -> None:
    """Equal up to the rounding of got's dtype; of sums that cancel, to that of their terms, `size`."""
    if not got.is_floating_point():
        return torch.testing.assert_close(got, want)
    eps = torch.finfo(got.dtype).eps
    torch.testing.assert_close(got.double(), want.double(), rtol=16 * eps, atol=16 * eps * size)


REDUCTIONS = {
    "sum": lambda x: x.sum(0),
    "mean": lambda x: x.mean(0),
    "sqrt": lambda x: x.sum(0) / len(x) ** 0.5,
    "max": lambda x: x.amax(0),
    "min": lambda x: x.amin(0),
}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("width", (*WIDTHS, WIDEST))
@pytest.mark.parametrize("reduce", REDUCTIONS)
def test_reductions(reduce, width, dtype):
    if dtype == torch.int64 and reduce in ("mean", "sqrt"):
        with pytest.raises(TypeError, match="floating dtype"):
            ops.segment_reduce(*given(width, dtype), reduce)
        return
    x, offsets = given(width, dtype)
    (got,) = same(lambda: ops.segment_reduce(x, offsets, reduce))
    close(got, by_segment(REDUCTIONS[reduce], x, offsets), size=len(x) ** 0.5)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("width", (*WIDTHS, WIDEST))
def test_products(width, dtype):
    x, offsets = given(width, dtype)
    x = 1 - 2 * (x > 0).to(dtype)  # ones and their opposites, so that nothing is rounded
    (got,) = same(lambda: ops.segment_reduce(x, offsets, "prod", 5.0))
    torch.testing.assert_close(got, by_segment(lambda part: part.prod(0), x, offsets, 5).to(dtype), rtol=0, atol=0)


@pytest.mark.parametrize("nan", [False, True])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("width", (*WIDTHS, WIDEST))
@pytest.mark.parametrize("reduce", ["max", "min"])
def test_extremes_and_their_rows(reduce, width, dtype, nan):
    x, offsets = given(width, dtype)
    if nan and dtype != torch.int64:
        x[len(x) // 2], x[len(x) // 3] = float("nan"), float("nan")
    best, index = same(lambda: ops.segment_extreme(x, offsets, reduce))
    alone = same(lambda: ops.segment_reduce(x, offsets, reduce))
    torch.testing.assert_close(alone, (best,), rtol=0, atol=0, equal_nan=True)
    for s, (a, b) in enumerate(zip(offsets.tolist(), offsets.tolist()[1:])):
        if a == b:
            assert (best[s] == 0).all() and (index[s] == -1).all()
            continue
        want = getattr(x[a:b], "a" + reduce)(0)
        torch.testing.assert_close(best[s], want, rtol=0, atol=0, equal_nan=True)
        is_best = (x[a:b] == want) | (x[a:b].isnan() & want.isnan())
        assert torch.equal(index[s], a + is_best.int().argmax(0))


@pytest.mark.parametrize("dtype", DTYPES[:3], ids=str)
@pytest.mark.parametrize("width", (*WIDTHS, WIDEST))
def test_softmax_and_what_goes_with_it(width, dtype):
    x, offsets = given(width, dtype)
    g = given(width, dtype, 1)[0]
    y, log = same(lambda: ops.segment_softmax(x, offsets))[0], same(lambda: ops.segment_log_softmax(x, offsets))[0]
    close(y, by_row(lambda part: part.softmax(0), x, offsets), size=0.1)
    close(log, by_row(lambda part: part.log_softmax(0), x, offsets))
    close(
        same(lambda: ops.segment_logsumexp(x, offsets))[0],
        by_segment(lambda part: part.logsumexp(0), x, offsets),
    )
    gradients = torch.ops.torch_lod
    dx = same(lambda: gradients.segment_softmax_backward(g, y, offsets))[0]
    want = by_row(lambda p: p[:, 0] * (p[:, 1] - (p[:, 0] * p[:, 1]).sum(0)), torch.stack((y, g), 1), offsets)
    close(dx, want)
    dx = same(lambda: gradients.segment_log_softmax_backward(g, log, offsets))[0]
    want = by_row(lambda p: p[:, 1] - p[:, 0].exp() * p[:, 1].sum(0), torch.stack((log, g), 1), offsets)
    close(dx, want)


SOFTMAX = {
    "softmax": (ops.segment_softmax, lambda x: x.softmax(0)),
    "log_softmax": (ops.segment_log_softmax, lambda x: x.log_softmax(0)),
    "logsumexp": (ops.segment_logsumexp, lambda x: x.logsumexp(0)[None] if len(x) else x.new_zeros(1, x.shape[1])),
}


@pytest.mark.parametrize("width", [1, 2, 3, 7, 8, 9, 15, 16, 17, 24, 64, 65, 129, 200])
@pytest.mark.parametrize("op", SOFTMAX)
def test_softmax_of_a_segment_is_its_own_affair(op, width):
    """Whatever its neighbours, which share registers with it: the same bits as alone; NaN and infinities as torch's."""
    ours, theirs = SOFTMAX[op]
    g = torch.Generator().manual_seed(width)
    lengths = torch.randint(0, 40, (50,), generator=g).tolist() + [17_000, 5, 0, 1025] + [3] * 33 + [1, 700, 2]
    offsets = torch.tensor([0, *lengths]).cumsum(0)
    x = 5 * torch.randn(sum(lengths), width, generator=g)
    begins = dict(enumerate(offsets.tolist()))
    inf, nan = float("inf"), float("nan")
    odd = {51: [-inf] * 5, 55: [nan, 1, 2], 57: [1, -inf, 2], 58: [inf, 1, 2], 60: [1e38, -1e38, 0]}
    for s, values in odd.items():
        x[begins[s] : begins[s + 1], width // 2] = torch.tensor(values)
    x[begins[53] + 1000, 0] = nan
    got = ours(x, offsets).split([1] * len(lengths) if op == "logsumexp" else lengths)
    for s, n in enumerate(lengths):
        own = x[begins[s] : begins[s + 1]]
        alone = ours(own, torch.tensor([0, n]))
        torch.testing.assert_close(got[s], alone, rtol=0, atol=0, equal_nan=True)
        torch.testing.assert_close(got[s], theirs(own.double()).float(), rtol=1e-5, atol=5e-6, equal_nan=True)


@pytest.mark.parametrize("width", [1, 2, 3, 8])
@pytest.mark.parametrize("uneven", [False, True])
def test_softmax_of_groups_about_as_long_as_there_is_room_for(width, uneven):
    """A thread's memory holds the terms of a group of segments of up to 17 registers each, and their remainders."""
    for lanes in (16, 8):  # floats of a register
        rows = lanes // (width if width < 3 else 4 if width < 5 else 8)  # of a register, and segments of a group
        for more in (-1, 0, 1):
            full = 17 * rows * rows + more
            lengths = [1] * (rows - 1) + [full - rows + 1] if uneven else [full // rows] * (rows - 1)
            lengths += [] if uneven else [full - sum(lengths)]
            lengths = 3 * lengths + [5] * 2 * lanes
            x = torch.randn(sum(lengths), width, generator=torch.Generator().manual_seed(full))
            got = ops.segment_softmax(x, torch.tensor([0, *lengths]).cumsum(0))
            for own, part in zip(got.split(lengths), x.split(lengths), strict=True):
                close(own, part.double().softmax(0))


def shared(width: int, most: int, company: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Rows, offsets and the rows of 64 segments of at most `most` rows, each before one of `company` rows, if any."""
    g = torch.Generator().manual_seed(most)
    lengths = torch.randint(0, most + 1, (64,), generator=g)
    odd = torch.tensor([0.0, -0.0, float("nan"), float("inf"), -float("inf"), 1e38])
    x = 3 * torch.randn(int(lengths.sum()), width, generator=g)
    put = torch.rand(x.shape, generator=g) < 0.2
    x[put] = odd[torch.randint(0, 6, (int(put.sum()),), generator=g)]
    x[: len(x) // 4] = -0.0  # segments of nothing else
    parts = x.split(lengths.tolist())
    more = torch.full((company, width), 7.0)
    rows = torch.cat([row for part in parts for row in (part, more)]) if company else x
    offsets = torch.tensor([0, *[n for own in lengths.tolist() for n in (own, company)[: 1 + bool(company)]]]).cumsum(0)
    starts = offsets[:-1:2] if company else offsets[:-1]
    return rows, offsets, torch.cat([torch.arange(a, a + n) for a, n in zip(starts.tolist(), lengths.tolist())])


def of_group(width: int, most: int, company: int) -> dict[str, torch.Tensor]:
    """What the operators make of shared(): numbers of segments, and of their rows."""
    x, offsets, own = shared(width, most, company)
    segments = slice(None, None, 2 if company else 1)
    got = {reduce: ops.segment_reduce(x, offsets, reduce, -1.0)[segments] for reduce in (*REDUCTIONS, "prod")}
    for best in ("max", "min"):
        value, index = ops.segment_extreme(x, offsets, best)
        row = torch.where(index < 0, index, index - offsets[:-1, None])
        got |= {f"{best} there": value[segments], f"{best} row": row[segments]}
    got["logsumexp"] = ops.segment_logsumexp(x, offsets)[segments]
    calls, dy = torch.ops.torch_lod, torch.full_like(x, 5.0)
    dy[own] = shared(width, most, 0)[0].roll(1, 0)
    dy[dy.isinf()] = 0
    got["softmax"] = ops.segment_softmax(x, offsets)[own]
    got["log_softmax"] = ops.segment_log_softmax(x, offsets)[own]
    y = x.nan_to_num(posinf=3, neginf=-3).clamp(-3, 3)
    got["softmax, backward"] = calls.segment_softmax_backward(dy, y, offsets)[own]
    got["log_softmax, backward"] = calls.segment_log_softmax_backward(dy, y, offsets)[own]
    return got


@pytest.mark.parametrize("most", [1, 2, 3, 4, 5, 8, 9, 16, 17])
@pytest.mark.parametrize("width", [1, 2, 3, 4, 5])
def test_short_segments_in_any_company(width, most):
    """Registers take several short segments; the bits are those of a segment beside longer ones, zeros' signs too."""
    alike = of_group(width, most, 0)
    for company in (1, 6, 12, 40):
        for name, beside in of_group(width, most, company).items():
            bits = (beside.view(torch.int32), alike[name].view(torch.int32))
            nan = beside.isnan() if beside.is_floating_point() else torch.zeros_like(beside, dtype=torch.bool)
            different = (bits[0] != bits[1]).view(*beside.shape, -1).any(-1) & ~nan
            assert not different.any(), (name, company, different.nonzero()[:3].tolist())
            assert torch.equal(nan, alike[name].isnan()), (name, company)


@pytest.mark.parametrize("dtype", DTYPES[:3], ids=str)
@pytest.mark.parametrize("width", WIDTHS)
def test_moments(width, dtype):
    x, offsets = given(width, dtype)
    g = given(width, dtype, 1)[0]
    (var,) = same(lambda: ops.segment_var(x, offsets, 0.0))
    close(var, by_segment(lambda part: part.var(0, correction=0), x, offsets))

    def norm(part):
        return torch.nn.functional.layer_norm(part.T, part.shape[:1], eps=1e-5).T if len(part) else part

    (y,) = same(lambda: ops.segment_normalize(x, offsets, 1e-5))
    close(y, by_row(norm, x, offsets))
    (dx,) = same(lambda: torch.ops.torch_lod.segment_normalize_backward(g, x, offsets, 1e-5))
    wide = x.double().requires_grad_()
    (want,) = torch.autograd.grad(by_row(norm, wide, offsets), wide, g.double())
    big = offsets.diff()[torch.searchsorted(offsets, torch.arange(len(x)), right=True) - 1] > 3
    close(dx[big], want[big])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("reverse", [False, True])
def test_cumulative_sums(reverse, width, dtype):
    x, offsets = given(width, dtype)
    (got,) = same(lambda: ops.segment_scan(x, None, offsets, reverse))
    turn = (lambda part: part.flip(0).cumsum(0).flip(0)) if reverse else (lambda part: part.cumsum(0))
    terms = len(x) if dtype == torch.float64 else len(x) ** 0.5  # float64 is summed in float64, with as many roundings
    close(got, by_row(turn, x, offsets), size=terms)


#: Several of more than one block, of one and of less, at many places in the blocks of the rows; and short ones alone.
CUTS = {
    "long and short": [
        *(0, 5, 256, 257, 1024, 1025, 0, 512, 513, 3000, 17, 2048, 2049, 1),
        *[3] * 40,
        5000,
        0,
        900,
        1025,
        0,
    ],
    "very long": [7, 700_000, 3, 1200],
    "short": [3, 0, 50, 256, 7, *[40] * 30, 0, 200, 1],
}


def lengths_on(device, lengths: list[int]) -> list[int]:
    """Tiles of the emulated GPU have an eighth of the rows that those of a GPU have."""
    return [n if n <= 257 else n // 8 for n in lengths] if "emu" in str(device) else lengths


@pytest.mark.parametrize("dtype", DTYPES[:3], ids=str)
@pytest.mark.parametrize(
    ("lengths", "width"), [(cut, w) for cut in CUTS for w in ((1,) if "very" in cut else (1, 3, 40))]
)
@pytest.mark.parametrize("marked", [False, True], ids=["offsets", "offsets of a LoD"])
def test_segments_of_all_lengths(marked, lengths, width, dtype, device):
    """A GPU shares the blocks of long ones, unless it is known that there are none, and copies narrow rows of short ones
    to where their threads find them."""
    lod = tl.LoD.from_lengths([lengths_on(device, CUTS[lengths])])
    here = lod.row_offsets(0)
    x, g = (torch.randn(lod.rows, width, dtype=torch.float64).to(dtype) for _ in range(2))
    there, grad = x.to(device), g.to(device)
    offsets = lod.row_offsets(0, device) if marked else here.clone().to(device)

    def holds(got, want, size: float = 1.0):
        close(got.cpu(), want, size)

    def norm(part):
        return torch.nn.functional.layer_norm(part.T, part.shape[:1], eps=1e-5).T if len(part) else part

    for reduce, f in REDUCTIONS.items():
        holds(ops.segment_reduce(there, offsets, reduce), by_segment(f, x, here), size=len(x) ** 0.5)
    best, index = ops.segment_extreme(there, offsets, "max")
    holds(best, by_segment(REDUCTIONS["max"], x, here))
    begin, some = here[:-1, None], here.diff()[:, None] > 0
    assert torch.equal(
        index.cpu(), torch.where(some, begin + by_segment(lambda p: p.max(0).indices, x, here).long(), -1)
    )
    placed = torch.ops.torch_lod.segment_place(best, index, offsets, len(x))
    holds(ops.segment_reduce(placed, offsets, "sum"), best.cpu())
    assert int((placed != 0).sum()) == int((best != 0).sum())
    y, log = ops.segment_softmax(there, offsets), ops.segment_log_softmax(there, offsets)
    holds(y, by_row(lambda part: part.softmax(0), x, here), size=0.1)
    holds(log, by_row(lambda part: part.log_softmax(0), x, here))
    holds(ops.segment_logsumexp(there, offsets), by_segment(lambda part: part.logsumexp(0), x, here))
    gradients, y, log = torch.ops.torch_lod, y.cpu(), log.cpu()
    dx = gradients.segment_softmax_backward(grad, y.to(device), offsets)
    holds(dx, by_row(lambda p: p[:, 0] * (p[:, 1] - (p[:, 0] * p[:, 1]).sum(0)), torch.stack((y, g), 1), here))
    dx = gradients.segment_log_softmax_backward(grad, log.to(device), offsets)
    want = by_row(lambda p: p[:, 1] - p[:, 0].exp() * p[:, 1].sum(0), torch.stack((log, g), 1), here)
    holds(dx, want, size=len(x) ** 0.5)
    holds(ops.segment_var(there, offsets, 0.0), by_segment(lambda part: part.var(0, correction=0), x, here))
    holds(ops.segment_normalize(there, offsets, 1e-5), by_row(norm, x, here))
    wide = x.double().requires_grad_()
    (want,) = torch.autograd.grad(by_row(norm, wide, here), wide, g.double())
    big = (here.diff() > 3).repeat_interleave(here.diff())
    holds(gradients.segment_normalize_backward(grad, there, offsets, 1e-5)[big.to(device)], want[big])
    terms = len(x) if dtype == torch.float64 else len(x) ** 0.5
    for reverse, turn in ((False, lambda p: p.cumsum(0)), (True, lambda p: p.flip(0).cumsum(0).flip(0))):
        holds(ops.segment_scan(there, None, offsets, reverse), by_row(turn, x, here), size=terms)
    high, at = ops.segment_cumulative(there, offsets, "max")
    holds(high, by_row(lambda p: p.cummax(0).values if len(p) else p, x, here))
    assert torch.equal(there.gather(0, at), high)
    pooled = ops.segment_reduce(there, offsets, "mean")
    spread = pooled.cpu().repeat_interleave(here.diff(), 0)
    assert torch.equal(ops.segment_broadcast(pooled, offsets, len(x)).cpu(), spread)
    ends = torch.zeros_like(x).index_copy_(0, here[1:][here.diff() > 0] - 1, pooled.cpu()[here.diff() > 0])
    assert torch.equal(ops.segment_broadcast(pooled, offsets, len(x), "last").cpu(), ends)


def test_long_segments_of_no_numbers(device):
    x, offsets = torch.zeros(5000, 0, device=device), torch.tensor([0, 0, 4000, 5000], device=device)
    assert ops.segment_reduce(x, offsets, "sum").shape == (3, 0)
    assert ops.segment_extreme(x, offsets, "max")[1].shape == (3, 0)
    assert ops.segment_broadcast(x[:3], offsets, 5000).shape == (5000, 0)
    for op in (
        ops.segment_softmax,
        ops.segment_logcumsumexp,
        ops.segment_cumprod,
        lambda *a: ops.segment_scan(a[0], x, a[1]),
    ):
        assert op(x, offsets).shape == x.shape


def recurrent(values: torch.Tensor, factors: torch.Tensor) -> torch.Tensor:
    """y[r] = values[r] + factors[r] y[r - 1], row by row; a factor of 0 forgets what is infinite."""
    v, f = values.numpy(), factors.numpy()
    out, y = v.copy(), v[:1].sum(0) * 0
    for r in range(len(v)):
        y = v[r] + np.where(f[r] == 0, 0, y * f[r]) if r else v[r]
        out[r] = y
    return torch.from_numpy(out)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    ("lengths", "width"), [(cut, w) for cut in CUTS for w in ((1,) if "very" in cut else (1, 3, 40))]
)
def test_scans_of_segments_of_all_lengths(lengths, width, dtype, device):
    """A GPU's threads scan blocks, and combine their partial results, of very long segments level by level."""
    here = tl.LoD.from_lengths([lengths_on(device, CUTS[lengths])]).row_offsets(0)
    rows, floating = int(here[-1]), dtype != torch.int64
    g = torch.Generator().manual_seed(width)
    x = (torch.randn if floating else lambda *a, **k: torch.randn(*a, **k).round())(rows, width, generator=g).to(dtype)
    factors = torch.randn(rows, width, generator=g).mul(0.7 if floating else 1).clamp(-1, 1).to(dtype)
    if not floating:
        factors[::50] = 0
    signs = torch.where(torch.rand(rows, width, generator=g) < 0.5, -1, 1)
    offsets, wide = here.to(device), torch.float64 if floating else torch.int64

    def on_device(op, *given):
        return op(*[t.to(device) for t in given[:-1]], offsets, *given[-1]).cpu()

    for reverse in (False, True):
        turned = (lambda p: p.flip(0)) if reverse else (lambda p: p)
        v = x.clone()
        if floating:
            v[rows // 3], factors[rows // 3 + 200 % rows] = float("inf"), 0
            v[rows // 2], factors[rows // 2 - 150 % rows] = float("inf"), 0
        want = [
            turned(recurrent(turned(a), turned(f.roll(-1, 0) if reverse else f)))
            for a, f in zip(*(t.to(wide).split(here.diff().tolist()) for t in (v, factors)), strict=True)
        ]
        close(on_device(ops.segment_scan, v, factors, (reverse,)), torch.cat(want), size=10)
        powers = signs.to(torch.float64)  # products of them are exact
        powers[::101], powers[50::101] = 2, 0.5
        powers[5 : rows : rows // 2 + 1] = 0
        if not floating:
            powers = signs
        products = by_row(lambda p, turned=turned: turned(turned(p).cumprod(0)), powers.to(dtype), here)
        assert torch.equal(on_device(ops.segment_cumprod, powers.to(dtype), (reverse,)).to(wide), products)
    if not floating:
        return
    # what overflows, or becomes 0, from one row on stays so, whatever the result of the rows after it alone is
    for start, rest, end in (
        (0.0, 1e3, 1.0),
        (-0.0, -1e3, 1.0),
        (1e30, 1e30, 1e-3),
        (1e-30, 1e-30, 1e3),
        (1.0, 1e3, 0.0),
    ):
        far = torch.full((rows, width), rest, dtype=dtype)
        far[rows // 2 :], far[here[:-1][here.diff() > 0]] = end or 1e-3, start
        if not end:
            far[here[1:][here.diff() > 0] - 1] = 0
        wider = far.to(torch.float32 if dtype == torch.bfloat16 else wide).split(here.diff().tolist())
        want = torch.cat([torch.from_numpy(np.cumprod(p.numpy(), 0)) for p in wider]).to(dtype)
        torch.testing.assert_close(on_device(ops.segment_cumprod, far, ()), want, rtol=0.02, atol=0, equal_nan=True)
    close(on_device(ops.segment_logcumsumexp, x, ()), by_row(lambda p: p.logcumsumexp(0), x, here), size=100)
    index = ops.segment_cumulative(x, here, "max")[1]
    dx = on_device(torch.ops.torch_lod.segment_cumulative_backward, x, index, ())
    close(dx, torch.zeros(rows, width, dtype=wide).scatter_add(0, index, x.to(wide)), size=rows**0.5)
    ones = signs.to(dtype)
    ones[5 : rows : rows // 2 + 1] = 0
    for exclusive in (False, True):
        leaf, far = ones.to(device).requires_grad_(), ones.double().requires_grad_()
        (got,) = torch.autograd.grad(ops.segment_cumprod(leaf, offsets, False, exclusive), leaf, x.to(device))
        one = torch.ones(1, width, dtype=wide)
        want = by_row(
            lambda p, exclusive=exclusive, one=one: (
                torch.cat([one, p[:-1]])[: len(p)].cumprod(0) if exclusive else p.cumprod(0)
            ),
            far,
            here,
        )
        close(got.cpu(), torch.autograd.grad(want, far, x.double())[0], size=rows if dtype == wide else rows**0.5)
    leaf, far = ones.to(device).requires_grad_(), ones.double().requires_grad_()
    (got,) = torch.autograd.grad(ops.segment_reduce(leaf, offsets, "prod").sum(), leaf)
    assert torch.equal(
        got.cpu().double(), torch.autograd.grad(by_segment(lambda p: p.prod(0), far, here).sum(), far)[0]
    )


#: Segments of rows of width 1 that are scanned side by side: empty ones, ones of a row, of a block, and longer;
#: and fewer than there are lanes.
LENGTHS = {
    "many": [500, 0, 130, 1, 2048, 1024, 0, 0, 1025, 300, 7, 128, 3000, 127, 900, 2, 5000, 0, 640, 1],
    "three": [400, 1, 700],
    "one": [1000],
    "none": [0, 0, 0],
}


def so_far(name: str, part: torch.Tensor) -> torch.Tensor:
    if name == "sum":
        return part.cumsum(0)
    return part.cumprod(0) if name == "prod" else torch.cat([part[:1] * 0 + 1, part[:-1]]).cumprod(0)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("lengths", LENGTHS)
def test_columns_side_by_side(lengths, backwards, dtype):
    offsets = torch.tensor([0, *LENGTHS[lengths]]).cumsum(0)
    x = given(1, dtype)[0][: offsets[-1], 0]
    factors = 1 + x / 64 if dtype != torch.int64 else x % 3 - 1
    operators = {
        "sum": (x, lambda x, offsets: ops.segment_scan(x, None, offsets, backwards)),
        "prod": (factors, lambda x, offsets: ops.segment_cumprod(x, offsets, backwards)),
        "others": (factors, lambda x, offsets: ops.segment_cumprod(x, offsets, backwards, True)),
    }
    for name, (x, operator) in operators.items():
        (got,) = same(lambda operator=operator, x=x: operator(x, offsets))
        parts = x.split(offsets.diff().tolist())
        alone = torch.cat([operator(part, torch.tensor([0, len(part)])) for part in parts])
        assert torch.equal(got, alone), name
        want = by_row(lambda part, name=name: so_far(name, part.flip(0)).flip(0), x, offsets)
        close(got, want if backwards else by_row(lambda part, name=name: so_far(name, part), x, offsets), size=len(x))


@pytest.mark.parametrize("nan", [False, True])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("reduce", ["max", "min"])
def test_extremes_so_far(reduce, width, dtype, nan):
    x, offsets = given(width, dtype)
    if nan and dtype != torch.int64:
        x[len(x) // 2], x[len(x) // 3] = float("nan"), float("nan")
    best, index = same(lambda: ops.segment_cumulative(x, offsets, reduce))
    want = torch.cat([getattr(part, "cum" + reduce)(0).values for part in x.split(offsets.diff().tolist())])
    torch.testing.assert_close(best, want, rtol=0, atol=0, equal_nan=True)
    torch.testing.assert_close(x.gather(0, index), best, rtol=0, atol=0, equal_nan=True)
    inside = ~torch.isin(torch.arange(1, len(x)), offsets)  # rows with one before them in their segment
    again = (best[1:] == best[:-1]) | best[:-1].isnan()
    assert torch.equal((index.diff(dim=0) == 0)[inside], again[inside])  # of equals the first counts


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("width", (*WIDTHS, 2, 4))
def test_rows_of_a_segment_spread_over_it(width, dtype):
    x, offsets = given(width, dtype)
    rows, lengths = x[: len(offsets) - 1], offsets.diff()
    (got,) = same(lambda: ops.segment_broadcast(rows, offsets, len(x), "sum"))
    assert torch.equal(got, rows.repeat_interleave(lengths, 0))
    index = (offsets[:-1, None] + torch.arange(width) * 977 % lengths.clamp_min(1)[:, None]).where(
        lengths[:, None] > 0, -1
    )
    (got,) = same(lambda: ops.segment_place(rows, index, offsets, len(x)))
    want = torch.zeros_like(x)
    full = lengths > 0
    want.scatter_(0, index[full], rows[full])
    assert torch.equal(got, want)
    for end, at in (("first", offsets[:-1]), ("last", offsets[1:] - 1)):
        (got,) = same(lambda end=end: ops.segment_broadcast(rows, offsets, len(x), end))
        assert torch.equal(got, torch.zeros_like(x).index_copy(0, at[full], rows[full]))


@pytest.mark.parametrize(
    "dtype", [torch.float16, torch.bfloat16, torch.int8, torch.uint8, torch.int16, torch.int32], ids=str
)
@pytest.mark.parametrize("width", [1, 2, 5, 40])
def test_narrow_types_are_computed_in_wide_ones(width, dtype):
    """Some segments at a time are converted, also those that are longer than the memory for it: the same bits."""
    g = torch.Generator().manual_seed(width)
    lengths = torch.cat([torch.randint(0, 300, (60,), generator=g), torch.tensor([0, 9000, 1, 0])])
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)])
    wide = torch.float32 if dtype.is_floating_point else torch.int64
    x = torch.randint(0, 100, (int(offsets[-1]), width), generator=g).to(dtype)
    operators = [
        lambda x, reduce=reduce: ops.segment_reduce(x, offsets, reduce, 3.0) for reduce in ("sum", "max", "min")
    ]
    operators += [lambda x: ops.segment_extreme(x, offsets, "max")[0], lambda x: ops.segment_scan(x, None, offsets)]
    operators += [
        lambda x: ops.segment_scan(x, x, offsets, True),
        lambda x: ops.segment_cumulative(x, offsets, "min")[0],
    ]
    if dtype.is_floating_point:
        x = (x - 50) / 16
        operators += [lambda x: ops.segment_softmax(x, offsets), lambda x: ops.segment_normalize(x, offsets, 1e-5)]
        operators += [lambda x: ops.segment_var(x, offsets, 1.0), lambda x: ops.segment_logsumexp(x, offsets)]
    for operator in operators:
        (got,) = same(lambda operator=operator: operator(x))
        torch.testing.assert_close(got, operator(x.to(wide)).to(dtype), rtol=0, atol=0, equal_nan=True)


def test_a_long_sequence_among_short_ones_of_a_lod_tensor():
    x = tl.LoDTensor(torch.randn(70_000, 2, requires_grad=True), tl.LoD.from_lengths([[69_990, 0, 10]]))

    def run():
        y = tl.sequence_softmax(x) * x
        loss = tl.sequence_pool(y, "sum").square().sum()
        return (loss, *torch.autograd.grad(loss, [x]))

    same(run)
