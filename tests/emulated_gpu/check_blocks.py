# SPDX-License-Identifier: Apache-2.0
"""Kernels whose problems are each for a block of threads (each_block of csrc/torch_lod/launch.h), on the emulated device:
it raises where a thread reads what another one writes without a barrier between them."""

import itertools

import pytest
import torch
from emulated_gpu import emulated

import torch_lod as tl

D = torch.device("emu", 0)
OPS, DEVICE = torch.ops.torch_lod, torch.ops.emulated_gpu
ORDERS = ("forward", "backward", "7")
OUTPUTS = ("logsum", "state", "gradient", "gradient of transition", "score", "path")
BY_SEQUENCE = {0: ("logsum", "score"), 1: ("state", "gradient", "path")}  # 1: by row


def problem(lengths, tags, dtype=torch.float32, kind="plain"):
    """Values, transition, offsets, and a gradient."""
    g = torch.Generator().manual_seed(tags)
    x, t = (torch.randn(rows, tags, generator=g, dtype=torch.float64) for rows in (sum(lengths), tags + 2))
    if kind == "faint":  # sums that are worked out in logarithms
        x, t = x * 100, t * 60
    if kind == "impossible":
        t[torch.rand(t.shape, generator=g) < 0.4] = -torch.inf
        x[torch.rand(x.shape, generator=g) < 0.1] = -torch.inf
    grad = torch.randn(len(lengths), generator=g, dtype=torch.float64)
    return x.to(dtype), t.to(dtype), torch.tensor([0, *itertools.accumulate(lengths)]), grad.to(dtype)


def forward(x, t, cut, grad):
    return OPS.chain_logsumexp(x, t, cut)


def backward(x, t, cut, grad, state):
    return OPS.chain_logsumexp_backward(grad, x, t, cut, state)


def best(x, t, cut, grad):
    return OPS.chain_argmax(x, t, cut, 1)


def chains(*given) -> dict[str, torch.Tensor]:
    logsum, state = forward(*given)
    out = logsum, state, *backward(*given, state), *best(*given)
    return {name: t.cpu() for name, t in zip(OUTPUTS, out, strict=True)}


def there(given):
    return [t.to(D) for t in given]


def same(a, b):
    return torch.equal(a.nan_to_num(7.0), b.nan_to_num(7.0)) and torch.equal(a.isnan(), b.isnan())


def barriers() -> int:
    """Of the block that had most, since the last question."""
    return DEVICE.leave_out(-1)


LENGTHS = {"none": [], "empty": [0], "some": [3, 0, 1, 7, 0], "long": [40, 2, 300, 9]}


@pytest.mark.parametrize("kind", ["plain", "faint", "impossible"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("tags", [1, 2, 5, 33, 70])
def test_chains(tags, dtype, kind, monkeypatch):
    for name, lengths in LENGTHS.items():
        if tags == 70 and name == "long":
            lengths = [20, 2]
        given = problem(lengths, tags, dtype, kind)
        want, found = chains(*given), []
        for order in ORDERS:
            monkeypatch.setenv("EMULATED_ORDER", order)
            barriers()
            found.append(chains(*there(given)))
            assert (barriers() > 0) == (sum(lengths) > 0)
        tolerance = {torch.float64: 1e-10, torch.float32: 3e-4, torch.bfloat16: 2e-2}[dtype]
        for output, right in want.items():
            assert all(same(one[output], found[0][output]) for one in found), output
            if output == "path":
                assert torch.equal(found[0][output], right)
            else:
                torch.testing.assert_close(
                    found[0][output], right, rtol=tolerance, atol=10 * tolerance, equal_nan=True, msg=output
                )


@pytest.mark.parametrize("tags", [3, 40])
def test_a_sequence_has_the_same_bits_in_company(tags):
    lengths = [4, 0, 17, 1, 9]
    x, t, cut, grad = problem(lengths, tags)
    together = chains(*there((x, t, cut, grad)))
    for s, (begin, end) in enumerate(itertools.pairwise(cut.tolist())):
        alone = chains(*there((x[begin:end], t, torch.tensor([0, end - begin]), grad[s : s + 1])))
        for by_row, outputs in BY_SEQUENCE.items():
            part = slice(begin, end) if by_row else slice(s, s + 1)
            assert all(torch.equal(together[name][part], alone[name]) for name in outputs)


@pytest.mark.parametrize(("tags", "blocks"), [(120, True), (130, False)])
def test_more_tags_than_fit(tags, blocks, monkeypatch):
    """64 KB of a GPU of 7.5: then a thread takes a piece alone, as on a CPU."""
    monkeypatch.delenv("EMULATED_CAPABILITY", raising=False)
    given = problem([4, 3], tags)
    barriers()
    found, want = chains(*there(given)), chains(*given)
    assert (barriers() > 0) == blocks
    for name, right in want.items():
        torch.testing.assert_close(found[name], right, rtol=3e-4, atol=3e-3, msg=name)


@pytest.mark.parametrize("tags", [5, 33, 64])
def test_a_launch_each_whose_threads_share_the_work(tags):
    given = there(problem([30] * 6, tags))
    given.append(forward(*given)[1])
    for name, call in CALLS.items():
        emulated.counts()
        with emulated.work() as work:
            call(*given)
        assert emulated.counts()["launch"] == 2, name  # one is that of the offsets' check
        assert all(longest <= 2 * mean for longest, mean in work.values()), (name, work)


CALLS = {
    "forward": lambda *given: forward(*given[:4]),
    "backward": backward,
    "faint": backward,
    "best": lambda *given: best(*given[:4]),
}


@pytest.mark.parametrize("name", CALLS)
def test_every_barrier_is_needed(name, monkeypatch):
    lengths, tags = [12, 3], 33
    given = there(problem(lengths, tags, kind="faint" if name == "faint" else "plain"))
    given.append(forward(*given)[1])
    barriers()
    want = CALLS[name](*given)
    count = barriers()
    assert count >= 12
    for left_out in range(count):
        found = []
        for order in ORDERS:
            monkeypatch.setenv("EMULATED_ORDER", order)
            DEVICE.leave_out(left_out)
            try:
                got = CALLS[name](*given)
                found.append(not all(same(a.cpu(), b.cpu()) for a, b in zip(got, want, strict=True)))
            except RuntimeError as error:
                found.append("since the last barrier" in str(error))
            finally:
                barriers()
        assert any(found), f"nothing tells that barrier {left_out} of {count} is missing"


@pytest.mark.parametrize("seed", range(3))
def test_wrong_offsets_stay_out_of_shared_memory(seed):
    g = torch.Generator().manual_seed(seed)
    x, t, _, _ = problem([50], 7)
    cut = torch.randint(-20, 80, (40,), generator=g)
    cut[::7] = torch.tensor([-(2**63), 2**63 - 1])[torch.randint(2, (6,), generator=g)]
    given = *there((x, t, cut)), torch.ones(39).to(D)
    state = forward(*there(problem([50], 7)))[1]
    for call in (lambda: forward(*given), lambda: backward(*given, state), lambda: best(*given)):
        with pytest.raises(ValueError, match="in an earlier call of chain_"):
            call()
            tl.check_errors()
