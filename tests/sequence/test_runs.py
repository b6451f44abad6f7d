# SPDX-License-Identifier: Apache-2.0
"""Copies of runs: rows of all sizes of words in runs of all lengths, next to each other, apart, in any order."""

import itertools

import pytest
import torch

import torch_lod as tl
from torch_lod import ops

#: A word of each size, rows of several, and rows that are worth a call of memcpy.
ROWS = [
    (torch.uint8, 1),
    (torch.uint8, 3),
    (torch.int16, 1),
    (torch.int16, 5),
    (torch.float32, 1),
    (torch.float32, 3),
    (torch.float32, 8),
    (torch.float32, 16),
    (torch.float64, 1),
    (torch.float64, 7),
    (torch.complex128, 1),
    (torch.complex128, 5),
]
#: Rows of some lines of the cache, and of more.
WIDE = [(torch.float32, 41), (torch.float64, 300), (torch.float32, 1100)]
LENGTHS = [0, 1, 2, 0, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 100, 257, 3, 0, 0, 5, 1, 0]


def cuts(lengths) -> torch.Tensor:
    return torch.tensor([0, *lengths]).cumsum(0)


def numbers(rows: int, dtype, width: int) -> torch.Tensor:
    g = torch.Generator().manual_seed(rows)
    return torch.randint(1, 100, (rows, width), generator=g).to(dtype)


def map_of(starts, offsets, step) -> torch.Tensor:
    """Row r of the segments goes with this one."""
    where = [s + step * i for s, n in zip(starts.tolist(), offsets.diff().tolist()) for i in range(n)]
    return torch.tensor(where, dtype=torch.int64)


def layouts(step: int):
    """Names, the offsets of segments and the first row of each run elsewhere, which is among `there` rows."""
    g = torch.Generator().manual_seed(3)
    lengths = torch.tensor(LENGTHS * 6)  # more rows than a short run of bytes
    for name in ("side by side", "apart", "shuffled", "behind a gap"):
        order = torch.randperm(len(lengths), generator=g) if name == "shuffled" else torch.arange(len(lengths))
        gaps = torch.randint(0, 4, lengths.shape, generator=g) if name in ("apart", "shuffled") else 0 * lengths
        gaps[0] = 5 if name == "behind a gap" else gaps[0]
        ends = (lengths + gaps)[order].cumsum(0)
        low = torch.empty_like(lengths)
        low[order] = ends - lengths[order]
        there = int(ends[-1]) + (name == "apart")
        yield name, cuts(lengths.tolist()), low if step == 1 else low + lengths - 1, there


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("step", [1, -1])
@pytest.mark.parametrize("dtype, width", ROWS + WIDE, ids=lambda v: str(v).removeprefix("torch."))
def test_runs_of_every_length(dtype, width, step, threads):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for name, offsets, starts, there in layouts(step):
            rows, where = int(offsets[-1]), map_of(starts, offsets, step)
            x, y = numbers(there, dtype, width), numbers(rows, dtype, width)
            assert torch.equal(ops.gather_runs(x, starts, offsets, rows, step), x[where]), name
            expected = torch.full((there, width), 7, dtype=dtype).index_copy(0, where, y)
            assert torch.equal(ops.scatter_runs(y, starts, offsets, there, step, 7), expected), name
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("dtype, width", ROWS + WIDE, ids=lambda v: str(v).removeprefix("torch."))
@pytest.mark.parametrize("lengths", [[5] * 200, [1] * 900, [0] * 9, [4, 3, 5] * 70, [16, 0, 32, 16] * 40], ids=str)
def test_runs_that_the_first_one_speaks_for(dtype, width, lengths):
    offsets = cuts(lengths)
    x = numbers(8 * len(lengths) + 40, dtype, width)
    starts = torch.arange(len(lengths)) * 8 + 1
    there = map_of(starts, offsets, 1)
    assert torch.equal(ops.gather_runs(x, starts, offsets, len(there)), x[there])


@pytest.mark.parametrize("dtype, width", ROWS + WIDE, ids=lambda v: str(v).removeprefix("torch."))
@pytest.mark.parametrize("lengths", [LENGTHS, LENGTHS[::-1], [0, 0, 0], [600, 0, 900] * 3, [3] * 400], ids=len)
def test_a_row_of_every_segment(dtype, width, lengths):
    x = tl.from_lengths(numbers(sum(lengths), dtype, width), [lengths])
    rows = list(x.sequences())
    if dtype.is_floating_point:
        x.requires_grad_()
    for how, at in (("first", 0), ("last", -1)):
        found = tl.sequence_pool(x, how, padding_value=7)
        assert torch.equal(found, torch.stack([r[at] if len(r) else r.new_full((width,), 7) for r in rows]))
        grad = numbers(len(lengths), dtype, width)
        if dtype.is_floating_point:
            wanted = [torch.zeros_like(r) for r in rows]
            for w, g in zip(wanted, grad):
                w[slice(0, 1) if at == 0 else slice(len(w) - 1, None)] = g if len(w) else 0
            assert torch.equal(torch.autograd.grad(found, x, grad)[0].as_subclass(torch.Tensor), torch.cat(wanted))
        if not dtype.is_complex:
            laid = ops.segment_broadcast(grad, cuts(lengths), sum(lengths))
            assert torch.equal(laid, grad.repeat_interleave(torch.tensor(lengths), 0))


@pytest.mark.parametrize("dtype, width", ROWS + WIDE, ids=lambda v: str(v).removeprefix("torch."))
def test_segments_joined_and_shifted(dtype, width):
    own, other = cuts(LENGTHS * 2), cuts((LENGTHS * 2)[::-1])
    x, y = numbers(int(own[-1]), dtype, width), numbers(int(other[-1]), dtype, width)
    parts = zip(x.split(own.diff().tolist()), y.split(other.diff().tolist()))
    assert torch.equal(ops.segment_concat(x, own, y, other), torch.cat([t for pair in parts for t in pair]))
    for n in (-40, -2, 0, 1, 9, 300):
        shifted = []
        for rows in x.split(own.diff().tolist()):
            edge = torch.full((min(abs(n), len(rows)), width), 7, dtype=dtype)
            kept = rows[: max(0, len(rows) - n)] if n >= 0 else rows[-n:]
            shifted += [edge, kept] if n >= 0 else [kept, edge]
        assert torch.equal(ops.segment_unfold(x, own, 1, -n, 1, 7).squeeze(1), torch.cat(shifted)), n


@pytest.mark.parametrize("dtype, width", ROWS)
@pytest.mark.parametrize("times", [1, 300])
def test_windows(dtype, width, times):
    # those of up to 32 bytes are copied in blocks across segments, some thousand bytes at a time
    lengths = torch.tensor(LENGTHS).repeat(times)
    offsets, rows = cuts(lengths.tolist()), int(lengths.sum())
    x, row, segment = numbers(rows, dtype, width), torch.arange(rows), torch.repeat_interleave(lengths)
    for size, start in ((2, 0), (2, -1), (3, -1), (4, 2), (8, -3), (3, -70), (3, 70), (2, rows), (2, -rows)):
        there = row[:, None] + start + torch.arange(size)
        inside = (there >= offsets[segment][:, None]) & (there < offsets[segment + 1][:, None])
        wanted = torch.where(inside[..., None], x[there.clamp(0, rows - 1)], torch.tensor(7).to(dtype))
        assert torch.equal(ops.segment_unfold(x, offsets, size, start, 1, 7), wanted), (size, start)


@pytest.mark.parametrize("width", [1, 2, 16, 512, 513, 600])
@pytest.mark.parametrize("last", [1, 510, 511, 512, 513, 1024])
def test_short_runs_to_the_end(width, last):
    # runs of up to 2,048 bytes are copied in blocks, as long as so many bytes more can be written
    lengths = [3, 0, 512 // width, 1, 600 // width, 0, max(1, last // width), 0]
    offsets, rows = cuts(lengths), sum(lengths)
    x = numbers(rows, torch.float32, width)
    for gap in (0, 1, 600):
        starts = offsets[:-1] + gap * torch.arange(len(lengths))
        there = int(starts[-1]) + gap
        laid, where = torch.full((there, width), -1.0), map_of(starts, offsets, 1)
        laid[where] = x
        kept = [torch.ops.torch_lod.take_runs.default([], starts, offsets.diff(), there, True)[1], starts]
        for first in kept:  # known to a LoD, and not
            assert torch.equal(ops.scatter_runs(x, first, offsets, there, 1, -1), laid)
            assert torch.equal(ops.gather_runs(laid, first, offsets, rows, 1), x)
    parts = [*x.split(lengths)]
    both = torch.cat([t for pair in zip(parts, parts) for t in pair])
    assert torch.equal(ops.segment_concat(x, offsets, x, offsets), both)


def test_runs_that_are_known_are_known_with_their_offsets():
    x, lengths = numbers(9, torch.float32, 2), torch.tensor([2, 3])
    taken, first, _ = torch.ops.torch_lod.take_runs.default([], torch.tensor([1, 5]), lengths, 9, True)
    assert torch.equal(ops.gather_runs(x, first, taken[0], 5, 1), x[[1, 2, 5, 6, 7]])
    others = tl.LoD([[0, 1, 5]]).row_offsets_at(0)
    assert torch.equal(ops.gather_runs(x, first, others, 5, 1), x[[1, 5, 6, 7, 8]])
    with pytest.raises(IndexError, match="5 rows from 5 up at index 1"):
        ops.gather_runs(x, first, tl.LoD([[0, 1, 6]]).row_offsets_at(0), 6, 1)
    with pytest.raises(IndexError, match="4 rows from 5 up at index 1"):
        ops.gather_runs(x[:8], first, others, 5, 1)
    assert torch.equal(ops.gather_runs(x[:8], first, taken[0], 5, 1), x[[1, 2, 5, 6, 7]])
    assert torch.equal(ops.gather_runs(x, first, taken[0], 5, -1), x[[1, 0, 5, 4, 3]])
    with pytest.raises(IndexError, match="3 rows from 5 up at index 1"):
        ops.gather_runs(x[:7], first, taken[0], 5, 1)
    first[1] = 7
    with pytest.raises(IndexError, match="3 rows from 7 up at index 1"):
        ops.gather_runs(x, first, taken[0], 5, 1)


def test_large_runs_on_two_threads():
    """Pieces of the work end within runs, and what a piece writes ahead is its own."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        lengths = torch.randint(0, 40, (20000,), generator=torch.Generator().manual_seed(0))
        x = tl.from_lengths(torch.arange(int(lengths.sum())), [lengths])
        for _ in range(3):
            dense, counts = x.to_padded(-1)
            assert torch.equal(dense[x.mask()], x.values())
            assert bool((dense[~x.mask()] == -1).all())
            assert torch.equal(tl.from_padded(dense, counts).values(), x.values())
            assert torch.equal(tl.sequence_reverse(tl.sequence_reverse(x)).values(), x.values())
            halves = tl.sequence_concat([x, x]).values()[tl.sequence_concat([x, -1 - x]).values() < 0]
            assert torch.equal(halves, x.values())
            shifted, first = tl.sequence_shift(x, 1, -1).values(), x.lod.levels[0][:-1][lengths > 0]
            expected = x.values() - 1
            expected[first] = -1
            assert torch.equal(shifted, expected)
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("step", [1, -1])
@pytest.mark.parametrize("rows", [1, 7, 4000])
def test_runs_of_any_size_in_any_order_and_what_they_leave(rows, step):
    """Many short runs and few long ones, close together in a long result or spread over it; and two that meet."""
    g = torch.Generator().manual_seed(rows)
    for count, spread in ((1, 1), (rows, 1), (rows, 50), (max(1, rows // 100), 20)):
        lengths = torch.randint(1, 2 + rows // count, (count,), generator=g)
        gaps = torch.randint(0, spread, (count,), generator=g)
        order = torch.randperm(count, generator=g)
        ends = (lengths + gaps)[order].cumsum(0)
        low = torch.empty_like(lengths)
        low[order] = ends - lengths[order]
        there, offsets, y = int(ends[-1]) + 3, cuts(lengths.tolist()), torch.arange(1.0, 1 + int(lengths.sum()))
        starts = low if step == 1 else low + lengths - 1
        expected = torch.full((there,), -1.0).index_copy(0, map_of(starts, offsets, step), y)
        assert torch.equal(ops.scatter_runs(y, starts, offsets, there, step, -1), expected)
        if count > 1:
            short, long = order[[0, -1]] if lengths[order[0]] < lengths[order[-1]] else order[[-1, 0]]
            starts[short] = starts[long]
            expected = torch.zeros(there).index_add(0, map_of(starts, offsets, step), y)
            assert torch.equal(ops.scatter_runs(y, starts, offsets, there, step), expected)


@pytest.mark.parametrize("step", [1, -1])
def test_runs_of_as_many_rows_as_there_are_take_all_or_meet(step):
    """All ways in which up to 4 runs of 4 rows in all lie among 4 rows."""
    x, met = numbers(4, torch.float32, 1), 0
    for lengths in itertools.product(range(4), repeat=4):
        if sum(lengths) != 4:
            continue
        offsets = cuts(lengths)
        places = [range(5 - n) if step > 0 else range(max(n - 1, 0), 4) for n in lengths]
        for starts in map(torch.tensor, itertools.product(*places)):
            there = map_of(starts, offsets, step)
            expected = torch.full((4, 1), 7.0)
            expected[there] = torch.zeros(4, 1).index_add(0, there, x)[there]
            assert torch.equal(ops.scatter_runs(x, starts, offsets, 4, step, 7), expected), (starts, lengths)
            met += len(set(there.tolist())) < 4
    assert met > 1000


def test_the_gradient_of_a_padding_without_padding_moves_nothing():
    y = torch.randn(3, 4, 2)
    for lengths in ([4, 4, 4], [4, 2, 4]):
        rows = torch.randn(sum(lengths), 2, dtype=torch.float64, requires_grad=True)
        dense, _ = tl.from_lengths(rows, [lengths]).to_padded()
        (grad,) = torch.autograd.grad(dense, rows, y.double())
        assert torch.equal(grad, torch.cat([part[:n] for part, n in zip(y.double(), lengths)]))

        def padded(values, lengths=lengths):
            return tl.from_lengths(values, [lengths]).to_padded()[0]

        assert torch.autograd.gradcheck(padded, rows) and torch.autograd.gradgradcheck(padded, rows)
