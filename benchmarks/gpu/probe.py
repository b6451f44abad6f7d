# SPDX-License-Identifier: Apache-2.0
"""Questions to a GPU that no law asks: python benchmarks/gpu/probe.py faults | samples | waits | streams | graph | large |
views."""

import contextlib
import sys

import torch
from samples import OPS
from samples.words import changed

import torch_lod as tl

D = torch.device("cuda")
TWO = [[2, 3, 1], [3, 2, 4, 1, 2, 3]]
#: The host plans the steps of these: their offsets stay in host memory.
STEPS = ("lstm", "gru", "rnn", "lstm_backward", "gru_backward", "rnn_backward")


def rows(width: int = 4, lengths=TWO, grad: bool = True) -> tl.LoDTensor:
    lod = tl.LoD.from_lengths(lengths)
    return tl.LoDTensor(torch.randn(lod.rows, width, device=D), lod).requires_grad_(grad)


def faults() -> None:
    """Wrong structure is raised as an error, and the GPU goes on."""
    found = 0
    for info in OPS:
        for label, args, exception, _ in info.errors():
            if callable(args) or exception is RuntimeError or info.name in STEPS:
                continue
            moved = changed(list(args), lambda t: t.to(D) if t.device.type == "cpu" else t)
            try:
                info.op(*moved)
                tl.check_errors()
            except (ValueError, TypeError, IndexError):
                found += 1
            else:
                raise AssertionError(f"{info.name}, {label}: nothing was raised")
            assert float(torch.ones(4, device=D).sum()) == 4
    lies = torch.tensor([0, 900, 2**40, -7, 1000]), torch.tensor([0, 400, 100, 900, 1000])
    for offsets in (t.to(D) for t in lies):  # marked as right, with a longest sequence that is not
        torch.ops.torch_lod.keep_structure(offsets, 1000, True, False, 200)
        q = torch.randn(1000, 8, 64, device=D, requires_grad=True)
        with contextlib.suppress(IndexError):  # of a kernel that was called with it
            torch.ops.torch_lod.attention(q, q, q, offsets, offsets)[0].sum().backward()
        with contextlib.suppress(IndexError):
            tl.ops.segment_softmax(q.detach().flatten(1), offsets)
            tl.check_errors()
    print(f"{found} wrong calls raised, and the GPU goes on")


def samples() -> None:
    """One sample of every operator, forwards and backwards: for compute-sanitizer."""
    for info in OPS:
        all_of_it = list(info.samples(info.dtypes[0], "cuda"))
        sample = next((s for s in all_of_it if "typical" in s.label), all_of_it[0])
        out = info.run(sample)
        torch.cuda.synchronize()
        print(info.name, [tuple(t.shape) for t in out if isinstance(t, torch.Tensor)])


def waits() -> None:
    """What the budget says does not wait does not."""
    layer, heads = tl.nn.LSTM(4, 6).to(D), tl.nn.MultiheadAttention(4, 2).to(D)
    calls = {
        "pool": lambda x: tl.sequence_pool(x, "max"),
        "softmax": tl.sequence_softmax,
        "reverse": tl.sequence_reverse,
        "to_padded": lambda x: x.to_padded()[0],
        "nth": lambda x: x.nth(0),
        "concat": lambda x: tl.sequence_concat([x, x]),
        "LSTM": lambda x: layer(x)[0],
        "attention": lambda x: heads(x, x, x)[0],
    }
    for name, call in calls.items():
        x = rows()
        torch.cuda.synchronize()
        torch.cuda.set_sync_debug_mode("error")
        try:
            out = call(x)
            torch.autograd.backward(
                out.values() if isinstance(out, tl.LoDTensor) else out, torch.ones(out.shape, device=D)
            )
        finally:
            torch.cuda.set_sync_debug_mode("default")
        print(name, "does not wait")


def streams() -> None:
    """Two streams share one LoD, many times."""
    for turn in range(200):
        x = rows(64, [[turn % 7 + 1] * 1000], grad=False)
        want = x.values().view(1000, -1, 64).sum(1)
        torch.cuda.synchronize()
        busy, other = torch.cuda.Stream(), torch.cuda.Stream()
        with torch.cuda.stream(busy):
            torch.cuda._sleep(2_000_000)
            first = tl.sequence_pool(x, "sum")
        with torch.cuda.stream(other):
            second = tl.sequence_pool(x, "sum")
        torch.cuda.synchronize()
        torch.testing.assert_close(first, want, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(second, want, rtol=1e-4, atol=1e-4)
    print("200 turns, both streams right")


def graph() -> None:
    """A captured step is that of eager code, also of a LoD that it met first there, and after the LoD was used."""
    layer = tl.nn.LSTM(4, 6).to(D)
    for warm in (True, False):
        x = rows(grad=False)
        want = layer(tl.sequence_softmax(tl.sequence_reverse(x)))[0].values().detach().clone()
        fresh = tl.LoDTensor(x.values(), tl.LoD.from_lengths(TWO))
        given = x if warm else fresh
        captured = torch.cuda.CUDAGraph()
        with torch.no_grad(), torch.cuda.graph(captured):
            out = layer(tl.sequence_softmax(tl.sequence_reverse(given)))[0].values()
        captured.replay()
        torch.testing.assert_close(out, want)
        torch.testing.assert_close(layer(tl.sequence_softmax(tl.sequence_reverse(given)))[0].values(), want)
    print("captured and replayed, with a LoD seen before and with a new one")


def large() -> None:
    """More than 2**31 elements."""
    n, width = 2**26 + 5, 33
    lod = tl.LoD.from_lengths([[n - 7, 7]])
    x = tl.LoDTensor(torch.ones(n, width, device=D, dtype=torch.bfloat16), lod)
    assert x.numel() > 2**31
    assert tl.sequence_pool(x, "last").float().sum().item() == 2 * width
    assert tl.sequence_reverse(x).values()[-1].float().sum().item() == width
    assert tl.sequence_pool(x, "max").float().sum().item() == 2 * width
    print(f"{x.numel():,} elements")


def views() -> None:
    """Attention in half types over rows that words of 16 bytes do not reach: as over copies of them."""
    lod, rows = tl.LoD.from_lengths([[300, 0, 700]]), torch.randn(1000, 8, 64, device=D, dtype=torch.float16)
    behind = lambda t: torch.cat((t.new_zeros(1), t.flatten()))[1:].view(t.shape)  # noqa: E731
    odd = {
        "the same": rows,
        "behind another": behind(rows),
        "columns": torch.cat((rows.new_zeros(1000, 4), rows.flatten(1)), 1)[:, 4:].unflatten(1, (8, 64)),
        "turned": rows.transpose(1, 2).contiguous().transpose(1, 2),
    }
    found = {}
    for name, given in odd.items():
        leaf = given.detach().requires_grad_()
        x = tl.LoDTensor(leaf, lod)
        out = tl.sequence_attention(x, x, x, causal=True).values()
        found[name] = out, *torch.autograd.grad(out, leaf, behind(torch.ones_like(out)))
        torch.cuda.synchronize()
        for got, want in zip(found[name], found["the same"], strict=True):
            torch.testing.assert_close(got, want, rtol=1e-2, atol=1e-2)
    print(", ".join(odd), "are right")


if __name__ == "__main__":
    {f.__name__: f for f in (faults, samples, waits, streams, graph, large, views)}[sys.argv[1]]()
