# SPDX-License-Identifier: Apache-2.0
"""Short segments of narrow rows, which the kernels take side by side: the bits of every segment alone, on any number of threads."""

import pytest
import torch
from threads import on_threads

import torch_lod  # noqa: F401
from torch_lod import ops

_raw = torch.ops.torch_lod
#: An operator of rows, other rows and offsets, and whether it takes integers.
OPERATORS = {
    "sum": (lambda x, y, o: ops.segment_reduce(x, o, "sum"), True),
    "mean": (lambda x, y, o: ops.segment_reduce(x, o, "mean"), False),
    "prod": (lambda x, y, o: ops.segment_reduce(x, o, "prod", 2.0), True),
    "max": (lambda x, y, o: ops.segment_reduce(x, o, "max", -1.0), True),
    "argmin": (lambda x, y, o: _by_position(*ops.segment_extreme(x, o, "min"), o), True),
    "logsumexp": (lambda x, y, o: ops.segment_logsumexp(x, o), False),
    "var": (lambda x, y, o: ops.segment_var(x, o), False),
    "softmax": (lambda x, y, o: ops.segment_softmax(x, o), False),
    "softmax_backward": (_raw.segment_softmax_backward, False),
    "log_softmax": (lambda x, y, o: ops.segment_log_softmax(x, o), False),
    "log_softmax_backward": (_raw.segment_log_softmax_backward, False),
    "normalize": (lambda x, y, o: ops.segment_normalize(x, o), False),
    "normalize_backward": (lambda x, y, o: _raw.segment_normalize_backward(y, x, o, 1e-5), False),
    "cumsum": (lambda x, y, o: ops.segment_scan(x, None, o), True),
    "cumsum, reversed": (lambda x, y, o: ops.segment_scan(x, None, o, True), True),
}
WIDTHS = (1, 2, 3, 4, 5, 8, 9)
DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.int64)


def _by_position(best, index, offsets):
    """The extremes, and beside them their places in the segments, -1 of empty ones."""
    place = torch.where(index < 0, -1, index - offsets[:-1, None])
    return torch.cat([best, place.to(best.dtype)], -1)


def _lengths(kind: str) -> torch.Tensor:
    g = torch.Generator().manual_seed(1)
    short = torch.randint(0, 9, (150,), generator=g)
    if kind == "short":
        return short
    if kind == "equal":
        return torch.full((100,), 3)
    if kind == "to 40":
        return torch.cat([torch.randint(0, 41, (64,), generator=g), short])
    return torch.cat([short, torch.tensor([2500, 0]), short])  # "one long"


def _rows(count: int, width: int, dtype, seed: int) -> torch.Tensor:
    g = torch.Generator().manual_seed(seed)
    if dtype == torch.int64:
        return torch.randint(-3, 4, (count, width), generator=g)
    x = torch.randn(count, width, generator=g)
    for value in (float("nan"), float("inf"), -float("inf"), -0.0):
        x[torch.rand(count, width, generator=g) < 0.01] = value
    return x.to(dtype)


def _offsets(lengths: torch.Tensor) -> torch.Tensor:
    return torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])


def _equal(got: torch.Tensor, want: torch.Tensor) -> None:
    torch.testing.assert_close(got, want, rtol=0, atol=0, equal_nan=True)
    assert not got.is_floating_point() or torch.equal(got.signbit() & (got == 0), want.signbit() & (want == 0))


@pytest.mark.parametrize("kind", ["short", "equal", "to 40", "one long"])
@pytest.mark.parametrize("name", OPERATORS)
def test_the_bits_of_every_segment_alone(name, kind):
    call, of_integers = OPERATORS[name]
    lengths = _lengths(kind)
    offsets = _offsets(lengths)
    for width in WIDTHS:
        for dtype in DTYPES if of_integers else DTYPES[:3]:
            x, y = (_rows(int(offsets[-1]), width, dtype, seed) for seed in (0, 1))
            together = call(x, y, offsets)
            alone = [
                call(a, b, _offsets(n[None]))
                for a, b, n in zip(x.split(lengths.tolist()), y.split(lengths.tolist()), lengths)
            ]
            _equal(together, torch.cat(alone))


def _same_on_threads(call, x, y, offsets) -> None:
    results = [on_threads(threads, lambda: call(x, y, offsets)) for threads in (1, 2, 3)]
    for other in results[1:]:
        _equal(other, results[0])


def _around(place: int) -> torch.Tensor:
    """Offsets of 12,000 short segments, and of a long one before segment `place` of them."""
    short = torch.randint(0, 9, (12_000,), generator=torch.Generator().manual_seed(2))
    return _offsets(torch.cat([short[:place], torch.tensor([30_000]), short[place:]]))


@pytest.mark.parametrize("place", [0, 8400, 12_000])
@pytest.mark.parametrize("name", OPERATORS)
def test_the_same_bits_on_two_threads_around_a_segment_that_they_share(name, place):
    call, of_integers = OPERATORS[name]
    offsets = _around(place)
    for width in (1, 2, 3, 7):
        for dtype in (torch.float32, torch.int64) if of_integers else (torch.float32,):
            _same_on_threads(call, *(_rows(int(offsets[-1]), width, dtype, seed) for seed in (0, 1)), offsets)


@pytest.mark.parametrize("name", ["softmax", "log_softmax_backward", "normalize", "cumsum"])
def test_what_is_written_behind_a_short_segment_is_not_left_in_one_that_threads_share(name):
    """Results for every row are stored in groups of segments: at one of these places the last group ends at the long segment."""
    for place in range(3000, 3032):
        offsets = _around(place)
        _same_on_threads(
            OPERATORS[name][0], *(_rows(int(offsets[-1]), 1, torch.float32, seed) for seed in (0, 1)), offsets
        )
