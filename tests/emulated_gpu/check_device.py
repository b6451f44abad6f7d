# SPDX-License-Identifier: Apache-2.0
"""The contract of calls on a GPU, in addition to the laws: on the emulated device, which `make test-emulated` builds."""

import importlib
import json
import os
import random
from pathlib import Path
from unittest import mock

import pytest
import torch
from emulated_gpu import budget, emulated, wrong_calls
from samples import OPS
from samples.words import ALL, changed, values

import torch_lod as tl
from torch_lod.check import families
from torch_lod.structure import devices

D = torch.device("emu", 0)
ORDERS = ("forward", "backward", "7")
TWO = [[2, 3, 1], [3, 2, 4, 1, 2, 3]]
#: Operators whose offsets stay in host memory.
STEPS = ("lstm", "gru", "rnn", "lstm_backward", "gru_backward", "rnn_backward")


@pytest.fixture(autouse=True)
def _nothing_left():
    emulated.counts()
    yield
    assert "device assert" not in emulated.counts()
    torch.ops.torch_lod.check_errors()


# -- the device itself


def block_sums(mistake: int, order: str) -> bool:
    """Whether the kernel of barriers.cu is right; RuntimeError where the device finds what it does wrong."""
    given = torch.arange(300, dtype=torch.float64)
    with mock.patch.dict(os.environ, EMULATED_ORDER=order):
        sums, turned = torch.ops.emulated_gpu.block_sums(given.to(D), mistake)
    blocks = torch.nn.functional.pad(given, (0, 84)).view(3, 128)
    right = torch.equal(sums.cpu(), blocks.sum(1)) and torch.equal(turned.cpu(), blocks.flip(1).flatten()[:300])
    return right


@pytest.mark.parametrize("order", ORDERS)
def test_barriers_shared_memory_and_shuffles(order):
    assert block_sums(0, order)


MISTAKES = ["no barrier", "mask", "return", "two barriers", "index", "not written"]


@pytest.mark.parametrize("mistake", range(1, 7), ids=MISTAKES)
def test_mistakes_are_found(mistake):
    found = []
    for order in ORDERS:
        try:
            found.append(not block_sums(mistake, order))
        except RuntimeError as error:
            found.append("emulated GPU: " in str(error))
    assert any(found)


def test_fresh_memory_is_filled():
    assert torch.empty(5, device=D).isnan().all() and (torch.empty(5, dtype=torch.int64, device=D) == -1).all()


def test_kernels_divide():
    some = random.Random(0)
    near = [n + d for n in (0, 2**16, 2**31, 2**32, 2**33, 2**62) for d in (-1, 0, 1) if n + d >= 0]
    for by in [1, 2, 3, 7, 64, 2**31, 2**32 - 1, 2**32, 2**40, *(some.randrange(1, 2**20) for _ in range(50))]:
        multiples = [by * k + d for k in (1, 2, 5, (2**32 - 1) // by) for d in (-1, 0, 1) if by * k + d >= 0]
        numbers = torch.tensor([*near, *multiples, *(some.randrange(2**32) for _ in range(200))])
        assert torch.equal(torch.ops.emulated_gpu.quotients(numbers, by), numbers // by)


@pytest.mark.parametrize("shift", [1, 2, 4])
def test_rows_that_are_not_aligned(shift):
    """Words of 16 bytes only where a GPU may access them: make sanitize-gpu watches."""
    x = torch.arange(24.0 + shift).to(D)[shift:].view(3, 8)
    assert torch.equal(tl.ops.gather_rows(x, torch.tensor([2, 0]).to(D)).cpu(), x.cpu()[[2, 0]])
    out = tl.sequence_reverse(tl.from_lengths(x, [[2, 1]]))
    assert torch.equal(out.values().cpu(), x.cpu()[[1, 0, 2]])


# -- structure that others made


def on_device(args, name):
    """Arguments there, but for offsets whose steps the host plans."""
    moved = changed(list(args), lambda t: t.to(D) if t.device.type == "cpu" else t)
    return [
        a if name in STEPS and isinstance(a, torch.Tensor) and a.dtype == torch.int64 else m
        for a, m in zip(args, moved)
    ]


@pytest.mark.parametrize("info", OPS, ids=lambda info: info.id)
def test_faults_are_raised_at_last(info):
    """Every wrong call of an operator: what the host cannot see returns, and is found by the next question."""
    for label, args, exception, words in info.errors():
        if callable(args) or exception is RuntimeError:
            continue
        # whichever thread is first, and what the host does not know
        either = (exception, IndexError, ValueError) if info.name.endswith("runs") else exception
        with pytest.raises(either) as caught:
            info.op(*on_device(args, info.name))
            tl.check_errors()
        said = str(caught.value)
        later = f"in an earlier call of {info.name} on a GPU"
        assert words in said or later in said or "emu" in said, f"{label}: {said}"


def watched(bad):
    """A fault that no call has looked for yet."""
    torch.ops.torch_lod.watch_structure(bad, None, "cuts", 6, -1, 0, "segment_reduce")


def test_a_later_call_raises_and_the_one_after_it_does_not():
    x, cut, bad = torch.ones(6, 2).to(D), torch.tensor([0, 2, 6]).to(D), torch.tensor([0, 7, 6]).to(D)
    watched(bad)
    said = (
        "expected row_offsets not to decrease, got 7 then 6 at index 2, in an earlier call of segment_reduce on a GPU"
    )
    with pytest.raises(ValueError, match=said):
        tl.ops.segment_softmax(x, cut)
    assert torch.equal(tl.ops.segment_reduce(x, cut, "sum").cpu(), torch.tensor([[2.0, 2.0], [4.0, 4.0]]))


def test_reading_structure_raises():
    x = torch.ones(6, 2).to(D)
    watched(torch.tensor([0, 7, 6]).to(D))
    with pytest.raises(tl.LoDError, match="from_cu_seqlens: expected row_offsets not to decrease"):
        tl.from_cu_seqlens(x, torch.tensor([0, 6], dtype=torch.int32).to(D))


def test_checks_of_the_package_are_no_device_asserts():
    lod = tl.LoD.from_lengths([[2, 1]])
    index, updates = (tl.LoDTensor(t.to(D), lod) for t in (torch.tensor([0, 9, 1]), torch.ones(3)))
    with pytest.raises(tl.LoDError, match="in an earlier call of sequence_scatter on a GPU"):
        tl.sequence_scatter(torch.zeros(2, 4).to(D), index, updates)
        tl.check_errors()


def test_tags_out_of_range_do_not_index():
    scores, lod = torch.randn(3, 4).to(D), tl.LoD.from_lengths([[2, 1]])
    tags = tl.LoDTensor(torch.tensor([0, 9, 1]).to(D), lod)
    with pytest.raises(
        ValueError, match="tags hold a tag out of range, in an earlier call of linear_chain_crf on a GPU"
    ):
        tl.nn.LinearChainCRF(4).to(D)(tl.LoDTensor(scores, lod), tags)
        tl.check_errors()


def test_losses_of_torch_are_torchs():
    lod, labels = tl.LoD.from_lengths([[4, 3]]), tl.from_lengths(torch.tensor([1, 2, 1]), [[2, 1]])
    x = tl.LoDTensor(torch.randn(7, 4).log_softmax(1), lod)
    want = torch.nn.functional.ctc_loss(x, labels, None, None)
    there = torch.nn.functional.ctc_loss(x.to(D), labels.to(D), None, None)
    torch.testing.assert_close(there.cpu(), want)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32], ids=str)
def test_compiled_code_tells_later(dtype):
    lod = tl.LoD.from_lengths([[2, 1]])
    index, updates = (tl.LoDTensor(t.to(D), lod) for t in (torch.tensor([0, 3, 1], dtype=dtype), torch.ones(3)))
    x, compiled = torch.zeros(2, 4).to(D), torch.compile(tl.sequence_scatter, backend="aot_eager")
    assert torch.equal(compiled(x, index, updates).cpu(), tl.sequence_scatter(x, index, updates).cpu())
    tl.check_errors()
    with pytest.raises(ValueError, match="in an earlier call of sequence_scatter on a GPU"):
        compiled(x, index.with_values(torch.tensor([0, 9, 1], dtype=dtype).to(D)), updates)
        tl.check_errors()


@pytest.mark.parametrize("late", [True, False], ids=["told late", "told immediately"])
def test_malformed_calls_end(late):  # compositions too, which wait
    found = wrong_calls.run(wrong_calls.catalogue(), late)
    assert found["raised"] > 500
    g = random.Random(1)
    wrong_calls.run((case for _ in range(15) for case in wrong_calls.random_calls(g)), late)


def test_calls_with_marks_that_are_untrue_end():
    g = random.Random(2)
    found = wrong_calls.run(case for _ in range(15) for case in wrong_calls.random_calls(g, lie=True))
    assert found["returned"] > 200


def test_kernels_run_before_the_host_is_told():
    x, bad = torch.ones(6, 2).to(D), torch.tensor([0, 7, 3]).to(D)
    with emulated.late():
        emulated.counts()
        got = tl.ops.segment_reduce(x, bad, "sum")
        assert emulated.counts()["launch"] == 2  # of the check, and of the operator
        with pytest.raises(ValueError, match="not to decrease, got 7 then 3 at index 2, in an earlier call"):
            tl.check_errors()
        assert torch.equal(got.cpu(), torch.tensor([[6.0, 6.0], [0.0, 0.0]]))


# -- rows, in shares of LOD_TILE_BYTES, which is 2048 here


def many_rows(seed: int, longest: int) -> torch.Tensor:
    """Offsets of short segments, one of several shares, and more empty ones in one place than a turn takes."""
    g = random.Random(seed)
    some = [g.choice((0, 0, 1, 1, 2, 3, 31, 32, 33)) for _ in range(longest // 20)]
    lengths = [*some, *[0] * 4200, longest, *[0] * 4095, *some[::-1], 0]
    return torch.tensor([0, *lengths]).cumsum(0)


def row_calls(x, cut, index) -> dict[str, torch.Tensor]:
    """What operators by row return for rows x of segments `cut`, and rows `index` of each segment."""
    ops, rows, n = tl.ops, len(x), len(cut) - 1
    back = rows - cut[1:]  # the first rows of all segments, the last segment first
    ends = ops.segment_reduce(x, cut, "first")
    shuffled = torch.arange(rows, device=x.device) * 7 % rows
    return {
        "run_map": ops.run_map(cut[:-1] * 3, cut, rows, -2),
        "gather_rows": ops.gather_rows(x, shuffled, 3),
        "gather_runs": ops.gather_runs(x, back, cut, rows),
        "in reverse": ops.gather_runs(x, cut[1:] - 1, cut, rows, -1),
        "scatter_runs": ops.scatter_runs(x, back, cut, rows),
        "scattered": ops.scatter_runs(x, back + torch.arange(n, device=x.device).flip(0), cut, rows + n, 1, 3),
        "concat": ops.segment_concat(x, cut, x.flip(0), (rows - cut).flip(0)),
        "unfold": ops.segment_unfold(x, cut, 3, -1, 2, 3),
        "fold": ops.segment_fold(x.unsqueeze(1).expand(-1, 2, *x.shape[1:]), cut, -1),
        "first": ops.segment_broadcast(ends, cut, rows, "first"),
        "broadcast": ops.segment_broadcast(ends, cut, rows),
        "mean": ops.segment_broadcast(ends, cut, rows, "mean" if x.is_floating_point() else "sum"),
        "place": ops.segment_place(ends, index, cut, rows),
    }


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.uint8], ids=str)
@pytest.mark.parametrize("width", [1, 3, 8, 520])  # the last: of a row that is wider than a share
def test_rows_of_many_shares(dtype, width):
    cut = many_rows(width, 800 if width < 100 else 40)
    x = values(int(cut[-1]), (width,), dtype, "cpu")
    length = cut.diff()[:, None]
    index = cut[:-1, None] + torch.arange(width) % length.clamp_min(1) - (length == 0).long()
    want, got = row_calls(x, cut, index), row_calls(x.to(D), cut.to(D), index.to(D))
    for name, rows in want.items():
        assert torch.equal(got[name].cpu(), rows), name


def test_a_row_that_a_map_names_often():
    """The gradient of gather_rows: by all threads, and what a map says that is known is sorted once."""
    map = torch.tensor([4, *[2] * 10_000, -1, 0])
    given, there = values(len(map), (2,), torch.int64, "cpu"), map.to(D)
    torch.ops.torch_lod.keep_structure(there, 6, False, False, -1, None)
    for sorts in (True, False):
        with emulated.work() as work:
            got = tl.ops.scatter_rows(given.to(D), there, 6)
        assert any(what.startswith("op aten::sort") for what in emulated.counts()) == sorts
        assert torch.equal(got.cpu(), tl.ops.scatter_rows(given, map, 6))
        assert all(longest <= 4 * mean for longest, mean in work.values()), work


@pytest.mark.parametrize("seed", range(3))
def test_rows_of_wrong_offsets(seed):
    """Anything but a read or write out of bounds: make sanitize-gpu watches."""
    g = torch.Generator().manual_seed(seed)
    cut = torch.randint(-50, 900, (3000,), generator=g)
    cut[::7] = torch.tensor([-(2**63), 2**63 - 1])[torch.randint(2, (429,), generator=g)]
    x = torch.randn(700, 3)
    for name, op in {"gather_runs": tl.ops.gather_runs, "scatter_runs": tl.ops.scatter_runs}.items():
        with pytest.raises((ValueError, IndexError), match=f"in an earlier call of {name} on a GPU"):
            op(x.to(D), cut[:-1].to(D), cut.to(D), 700)
            torch.accelerator.synchronize()
            tl.check_errors()
    for name, op in {
        "segment_broadcast": lambda: tl.ops.segment_broadcast(torch.randn(2999, 3).to(D), cut.to(D), 700),
        "segment_reduce": lambda: tl.ops.segment_reduce(x.to(D), cut.to(D), "sum"),
        "segment_softmax": lambda: tl.ops.segment_softmax(x.to(D), cut.to(D)),
        "segment_scan": lambda: tl.ops.segment_scan(x.to(D), None, cut.to(D)),
        "segment_cumprod": lambda: tl.ops.segment_cumprod(x.to(D), cut.to(D)),
    }.items():
        with pytest.raises(ValueError, match=f"in an earlier call of {name} on a GPU"):
            op()
            tl.check_errors()


def test_where_tiles_begin_is_found_once():
    """For offsets of a LoD by the first call; for others by every one, with the check and two passes over parts."""
    x, lod, launched = torch.randn(700, 3).to(D), tl.LoD.from_lengths([[7] * 100]), []
    for offsets in [lod.row_offsets_at(0, D)] * 2 + [lod.row_offsets().to(D)] * 2:
        tl.ops.segment_logsumexp(x, offsets)
        launched.append(emulated.counts()["launch"])
    assert launched == [2, 1, 7, 7]


OF_TILES = {
    "reduce": lambda x, cut: tl.ops.segment_reduce(x, cut, "sum"),
    "extreme": lambda x, cut: tl.ops.segment_extreme(x, cut, "max"),
    "logsumexp": tl.ops.segment_logsumexp,
    "var": lambda x, cut: tl.ops.segment_var(x, cut, correction=0.0),
    "softmax": tl.ops.segment_softmax,
    "scan": lambda x, cut: tl.ops.segment_scan(x, None, cut),
    "cumprod": tl.ops.segment_cumprod,
}


@pytest.mark.parametrize("op", OF_TILES)
def test_a_segment_that_reaches_out_of_its_tile(op):
    """Its neighbours' offsets are of few rows, which fit into shared memory; it is of more than there is memory behind."""
    x, cut = torch.ones(4_000_000, 1).to(D), torch.tensor([0, 4_000_000, 0, 1, 2]).to(D)
    with emulated.late(), pytest.raises(ValueError, match="not to decrease"):
        OF_TILES[op](x, cut)
        tl.check_errors()


@pytest.mark.parametrize("op", list(OF_TILES)[:4])
def test_segments_of_no_tile_are_zeros(op):
    x, cut = torch.ones(10_000, 1).to(D), torch.tensor([9000, 9001, 0, 1, 9500]).to(D)
    with emulated.late(), pytest.raises(ValueError, match="row_offsets to start at 0"):
        got = OF_TILES[op](x, cut)
        for t in got if isinstance(got, tuple) else [got]:
            assert t.cpu().isfinite().all() and (t.cpu() < 10_000).all()  # new memory of the device is 0xFF
        tl.check_errors()


# -- runs that do not meet


@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_layouts_are_exact(dtype):
    lod = tl.LoD.from_lengths(TWO)
    rows = values(lod.rows, (3,), dtype, "cpu")
    if dtype == torch.int64:
        rows[0] = 2**62 + 1
    if dtype.is_floating_point:
        rows[1] = -0.0
    here, there = tl.LoDTensor(rows, lod), tl.LoDTensor(rows.to(D), lod)
    fill = 2**62 + 1 if dtype == torch.int64 else True if dtype == torch.bool else 1
    calls = {
        "pad": lambda x: x.to_padded(fill)[0],
        "pad to the left": lambda x: x.to_padded(fill, side="left")[0],
        "pad to more": lambda x: x.to_padded(fill, max_length=7)[0],
        "outer": lambda x: x.to_padded(fill, level=0)[0],
        "all": lambda x: x.to_padded(fill, level="all")[0],
        "mask": lambda x: x.mask(),
        "reverse": lambda x: tl.sequence_reverse(x).values(),
        "outer reverse": lambda x: tl.sequence_reverse(x, level=0).values(),
        "pick": lambda x: x.seq[[2, 0]].values(),
    }
    for name, call in calls.items():
        emulated.counts()
        got, want = call(there), call(here)
        counts = emulated.counts()
        got = got.cpu()
        assert torch.equal(got, want), name
        if dtype.is_floating_point:
            assert torch.equal(got.signbit(), want.signbit()), name
        assert not any("sort" in what for what in counts), (name, counts)


LAYOUTS = {
    "reverse": tl.sequence_reverse,
    "pad": lambda x: x.to_padded()[0],
    "pad to the left": lambda x: x.to_padded(level=0, side="left")[0],
    "pad all": lambda x: x.to_padded(level="all")[0],
    "pad all to the left": lambda x: x.to_padded(2.0, level="all", side="left")[0],
    "unpad": lambda x: tl.from_padded(x.values().view(3, 5, 3), [4, 0, 5]),
    "unpad from the left": lambda x: tl.from_padded(x.values().view(3, 5, 3), [4, 0, 5], side="left"),
    "pick": lambda x: x.seq[[2, 0]],
    "nth": lambda x: x.nth(1),
    "mask": lambda x: x.filter_rows(x.values()[:, 0] > 0),
    "pack": lambda x: x.to_packed_sequence().data,
}


@pytest.mark.parametrize("call", LAYOUTS.values(), ids=LAYOUTS)
def test_gradients_of_layouts_copy(call):
    rows, of = torch.randn(15, 3), tl.LoD.from_lengths(TWO)
    here, there = (tl.LoDTensor(rows.to(device), of).requires_grad_() for device in ("cpu", D))
    outs = [out.values() if isinstance(out, tl.LoDTensor) else out for out in (call(here), call(there))]
    assert torch.equal(*(out.detach().cpu() for out in outs))
    grad = torch.randn(outs[0].shape)
    found = []
    for out, device in zip(outs, ("cpu", D), strict=True):
        grad_there = grad.to(device)
        emulated.counts()
        torch.autograd.backward(out, grad_there)
        found.append(emulated.counts())
    assert torch.equal(here.grad, there.grad.cpu())
    assert not any("sort" in what or what.startswith("sync") for what in found[1]), found[1]


# -- uploads


def test_what_is_uploaded_together_is_written_to_apart():
    """A caller's write to the lengths is seen by no gradient and no other call."""
    rows, lod = torch.randn(15, 3), tl.LoD.from_lengths(TWO)
    x = tl.LoDTensor(rows.to(D), lod).requires_grad_()
    dense, lengths = x.to_padded()
    lengths.fill_(7)
    dense.sum().backward()
    assert torch.equal(x.grad.cpu(), torch.ones(15, 3))
    emulated.counts()
    again = x.to_padded()[1]
    assert emulated.counts()["upload"] == 1 and again.tolist() == TWO[1]
    assert torch.equal(
        tl.sequence_pool(x, "sum").values().cpu(), tl.sequence_pool(tl.LoDTensor(rows, lod), "sum").values()
    )


def test_what_inference_uploads_serves_training():
    lod = tl.LoD.from_lengths(TWO)
    x = tl.LoDTensor(torch.randn(15, 2, 8).to(D), lod).requires_grad_()
    calls = [tl.sequence_reverse, lambda x: tl.sequence_reverse(x, level=0), lambda x: x.to_padded()[0]]
    calls += [lambda x: tl.sequence_attention(x, x, x, alibi=True), lambda x: tl.sequence_concat([x, x])]
    for call in calls:
        with torch.inference_mode():
            call(x)
        emulated.counts()
        out = call(x)
        rows = out.values() if isinstance(out, tl.LoDTensor) else out
        rows.sum().backward()
        assert x.grad is not None


def test_another_stream_waits_for_an_upload(monkeypatch):
    rows = torch.randn(15, 3)
    want = tl.sequence_pool(tl.from_lengths(rows, TWO), "sum").values()

    def pooled(look):
        x = tl.LoDTensor(rows.to(D), tl.LoD.from_lengths(TWO))
        x.lod.row_offsets_at(1, D)  # enqueued here, used in the other stream
        with torch.Stream(device=D), monkeypatch.context() as m:
            if not look:
                m.setattr("torch_lod.structure.partition.usable", lambda t: True)
            out = tl.sequence_pool(x, "sum").values()
        torch.accelerator.synchronize()
        return out.cpu()

    assert torch.equal(pooled(True), want)
    assert not torch.equal(pooled(False), want)  # that the device would tell


def test_the_plan_of_a_recurrence_waits_too():
    layer = tl.nn.LSTM(3, 4)
    rows = torch.randn(15, 3)
    want = layer(tl.from_lengths(rows, TWO))[0].values()
    x, there = tl.LoDTensor(rows.to(D), tl.LoD.from_lengths(TWO)), layer.to(D)
    there(x)  # the plan is enqueued
    with torch.Stream(device=D):
        out = there(x)[0].values()
    torch.accelerator.synchronize()
    torch.testing.assert_close(out.cpu(), want)


def test_deterministic_algorithms_leave_products_to_torch():
    layer, x = tl.nn.LSTM(3, 4).to(D), tl.LoDTensor(torch.randn(15, 3).to(D), tl.LoD.from_lengths(TWO))
    emulated.counts()
    want = layer(x)[0].cpu()
    assert emulated.counts()["product"] == 3  # of four steps, all but the first
    torch.use_deterministic_algorithms(True)
    try:
        assert torch.equal(layer(x)[0].cpu(), want)
    finally:
        torch.use_deterministic_algorithms(False)
    assert "product" not in emulated.counts()


def test_nothing_is_kept_of_a_capture():
    lod = tl.LoD.from_lengths(TWO)
    x = tl.LoDTensor(torch.randn(15, 3).to(D), lod)
    kept = len(devices._read_by_replays)
    torch.ops.emulated_gpu.capture(True)
    try:
        tl.sequence_pool(x, "sum")
        tl.sequence_reverse(x, level=0)
    finally:
        torch.ops.emulated_gpu.capture(False)
    assert not [key for key, t in lod._cache.items() if isinstance(t, torch.Tensor) and t.device.type == "emu"]
    assert len(devices._read_by_replays) > kept
    emulated.counts()
    tl.sequence_pool(x, "sum")
    assert emulated.counts()["upload"] == 1
    tl.sequence_pool(x, "sum")
    assert "upload" not in emulated.counts()


# -- memory


def test_memory_of_alignments_is_what_their_states_take():
    """In float32 two states of 8 bytes for every row and label."""
    rows, labels = 300, 100
    x, words = torch.randn(2 * rows, 2), torch.zeros(2 * labels, dtype=torch.int64)
    given = torch.ones(2), x, torch.tensor([0, rows, 2 * rows]), words, torch.tensor([0, labels, 2 * labels])
    there = [t.to(D) for t in given]
    emulated.largest_allocation()
    got = torch.ops.torch_lod.ctc_loss_backward(*there, 1)
    cells = 2 * rows * (labels + 1)
    assert 16 * cells < emulated.largest_allocation() < 17.5 * cells
    torch.testing.assert_close(got.cpu(), torch.ops.torch_lod.ctc_loss_backward(*given, 1), rtol=1e-3, atol=1e-4)
    path, _ = torch.ops.torch_lod.ctc_best_path(*there[1:], 1)
    assert 2 * cells < emulated.largest_allocation() < 3.5 * cells
    assert torch.equal(path.cpu(), torch.ops.torch_lod.ctc_best_path(*given[1:], 1)[0])


def test_words_of_no_pair_are_aligned_with_none():
    words = torch.arange(6).to(D)
    emulated.counts()
    with pytest.raises(ValueError, match="in an earlier call of edit_alignment"):
        tl.ops.edit_alignment(words, torch.tensor([0, 2, 4]).to(D), words, torch.tensor([0, 3, 6]).to(D))
        assert emulated.counts().get("op aten::fill_", 0) == 2  # fresh memory of this device is -1 by itself
        tl.check_errors()


# -- what the owner of a GPU runs


@pytest.mark.parametrize("name", families.FAMILIES)
def test_check_finds_families_right(name, monkeypatch):
    monkeypatch.setattr(families, "FAMILIES", {name: families.FAMILIES[name]})
    [(right, said)] = families.compared(D)
    assert right, said


# -- programs


SAMPLES = Path(__file__).resolve().parent.parent.parent / "examples/data"
PROGRAMS = {
    "train_nested_rnn": "--data {reviews} --hidden 8 --embedding 8 --batch 16",
    "tag_sentences": f"--data {SAMPLES}/ewt_sample --hidden 16 --embedding 16 --batch 100 --limit 3",
    "lemmatize": f"--data {SAMPLES}/ewt_sample --hidden 8 --embedding 8 --batch 16 --limit 30",
    "spoken_digits": f"--data {SAMPLES}/digits_sample --hidden 8 --batch 2 --limit 4",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_examples_train_there(name, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(SAMPLES.parent))
    monkeypatch.setattr("figures.available", lambda: False)
    reviews = tmp_path / "reviews.jsonl"
    texts = ("it was good . really good !", "it was bad . so bad !")
    reviews.write_text("".join(json.dumps({"text": texts[i % 2], "label": i % 2}) + "\n" for i in range(20)))
    given = [*PROGRAMS[name].format(reviews=reviews).split(), "--device", "emu", "--out", str(tmp_path / "out")]
    example = importlib.import_module(name)
    try:
        assert example.main([*given, "--epochs", "1"]) == 0
        assert "launch" in emulated.counts()
        assert example.main([*given, "--epochs", "2", "--resume"]) == 0
    finally:
        torch.set_default_device(None)


# -- the budget


@pytest.mark.parametrize(("name", "call", "args"), list(budget.cases()), ids=lambda v: v if isinstance(v, str) else "")
def test_budget(name, call, args):
    """No more than budget.txt allows, and no less: what has become cheaper is written down. Steps are a compiler's."""
    got, kept = budget.measured(call, args), budget.table()[name]
    assert got[:-1] == kept[:-1], f"{budget.line(name, got)}; budget.py writes the table"
    assert got[-1] <= max(kept[-1], 4), budget.line(name, got)
