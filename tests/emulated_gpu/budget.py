# SPDX-License-Identifier: Apache-2.0
"""What calls ask of a GPU: launches of our kernels, of torch's, products of cuBLAS without torch, uploads, and times that
the host waits.

    python tests/emulated_gpu build && PYTHONPATH=build/emulated_gpu/plain/tree:... python tests/emulated_gpu/budget.py

prints the table that is kept in budget.txt; check_device.py holds the calls to it. Counted is the second call on the same
structure, forwards and backwards; of the first call only the uploads.
"""

import math
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from emulated_gpu import emulated

if __name__ == "__main__":
    emulated.start()  # before torch_lod is imported, as in tests/conftest.py

import torch_lod as tl
from torch_lod.structure import devices, partition

TABLE = Path(__file__).with_name("budget.txt")
D = torch.device("emu", 0)
TWO = [[2, 3, 1], [3, 2, 4, 1, 2, 3]]


def rows(width=(4,), dtype=torch.float32, lengths=TWO, grad=True) -> tl.LoDTensor:
    lod = tl.LoD.from_lengths(lengths)
    x = tl.LoDTensor(torch.randn(lod.rows, *width).to(D).to(dtype), lod)
    return x.requires_grad_() if grad else x


def cases() -> Iterator[tuple[str, Callable, tuple]]:
    """(name, call, arguments)"""
    for how in ("sum", "max", "first", "prod", "logsumexp", "var"):
        yield f"pool {how}", lambda x, how=how: tl.sequence_pool(x, how), (rows(),)
    yield "pool sum, outer level", lambda x: tl.sequence_pool(x, "sum", level=0), (rows(),)
    yield "topk", lambda x: tl.sequence_topk(x, 2)[0], (rows(()),)
    yield "sort", tl.sequence_sort, (rows(),)
    yield "softmax", tl.sequence_softmax, (rows(),)
    yield "reverse", tl.sequence_reverse, (rows(),)
    yield "reverse, outer level", lambda x: tl.sequence_reverse(x, level=0), (rows(),)
    yield "cumsum", tl.sequence_cumsum, (rows(),)
    yield "cumprod", tl.sequence_cumprod, (rows(),)
    yield "unfold", lambda x: tl.sequence_unfold(x, 2), (rows(),)
    yield "cummax", lambda x: tl.sequence_cummax(x)[0], (rows(),)
    yield "to_padded", lambda x: x.to_padded()[0], (rows(),)
    yield "to_padded, all levels", lambda x: x.to_padded(level="all")[0], (rows(),)
    yield "mask", lambda x: x.mask(), (rows(grad=False),)
    yield "sequence_pad", lambda x: tl.sequence_pad(x, torch.zeros((), device="cpu"))[0], (rows(),)
    yield "from_padded", lambda d: tl.from_padded(d, [3, 1, 2]), (torch.randn(3, 4, 5).to(D).requires_grad_(),)
    yield "to_packed_sequence", lambda x: x.to_packed_sequence().data, (rows(),)
    yield "x.seq[1]", lambda x: x.seq[1], (rows(),)
    yield "x.seq[[1, 0]]", lambda x: x.seq[[1, 0]], (rows(),)
    yield "permute_sequences", lambda x: x.permute_sequences([2, 0, 1]), (rows(),)
    yield "filter_rows", lambda x: x.filter_rows(x.values()[:, 0] > 0), (rows(),)
    yield "head", lambda x: x.head(2), (rows(),)
    yield "nth", lambda x: x.nth(0), (rows(),)
    expand = lambda x, y: tl.sequence_expand(x, y, ref_level=1)  # noqa: E731
    yield "expand", expand, (torch.randn(6, 3).to(D).requires_grad_(), rows(grad=False))
    yield "expand_as", tl.sequence_expand_as, (torch.randn(3, 3).to(D).requires_grad_(), rows(grad=False))
    yield "expand, sequences", expand, (rows(lengths=[[1, 2, 1, 0, 3, 1]]), rows(grad=False))
    yield "concat", lambda x, y: tl.sequence_concat([x, y]), (rows(), rows())
    yield "concat of three", lambda x, y, z: tl.sequence_concat([x, y, z]), (rows(), rows(), rows())
    yield "shift", lambda x: tl.sequence_shift(x, 1), (rows(),)
    yield "x + x", lambda x: x + x, (rows(),)
    for name, options in (("LSTM", {}), ("LSTM", {"num_layers": 2, "bidirectional": True}), ("GRU", {}), ("RNN", {})):
        layer = getattr(tl.nn, name)(4, 6, **options).to(D)
        yield f"{name}{' two layers both ways' * bool(options)}", lambda x, m=layer: m(x)[0], (rows(),)
    lstm = tl.nn.LSTM(4, 6).to(D)
    yield "LSTM 40 steps", lambda x: lstm(x)[0], (rows(lengths=[[40, 3, 20]]),)
    conv = tl.nn.SequenceConv1d(4, 6, 3).to(D)
    yield "SequenceConv1d", conv, (rows(),)
    heads = tl.nn.MultiheadAttention(4, 2).to(D)
    yield "MultiheadAttention", lambda x: heads(x, x, x)[0], (rows(),)
    yield "attention", lambda x: tl.sequence_attention(x, x, x), (rows((2, 8)),)
    large = rows((4, 32), lengths=[[700, 60]])  # torch's kernel
    yield "attention, large", lambda x: tl.sequence_attention(x, x, x), (large,)
    yield "attention, alibi", lambda x: tl.sequence_attention(x, x, x, alibi=True), (rows((2, 8)),)
    yield "attention, softcap", lambda x: tl.sequence_attention(x, x, x, softcap=2.0), (rows((2, 8)),)
    cell = torch.nn.GRUCell(4, 5).to(D)
    yield "scan GRUCell", lambda x, h: tl.scan(cell, x, h)[0], (rows(), torch.zeros(6, 5).to(D))
    some = [t.to(D) for t in (torch.ones(4, 12), torch.ones(1, 12), torch.ones(4, 16), torch.ones(1, 28))]
    yield "dynamic_gru", lambda x: tl.dynamic_gru(x, *some[:2]), (rows((12,)),)
    yield "dynamic_lstm", lambda x: tl.dynamic_lstm(x, *some[2:])[0], (rows((16,)),)
    given = [t.to(D) for t in (torch.ones(6, 4), torch.ones(8, 1), torch.ones(8, 16), torch.ones(1, 16))]
    yield "attention_lstm", lambda x: tl.attention_lstm(x, *given)[0], (rows(lengths=TWO[1:]),)
    labels, ctc = (
        tl.LoDTensor(torch.ones(6, dtype=torch.int64).to(D), tl.LoD.from_lengths([TWO[0], [1] * 6])),
        tl.nn.CTCLoss(),
    )
    yield "CTC", lambda x: ctc(x, labels), (rows(),)
    yield "edit distance", lambda x: tl.edit_distance(x, x), (rows((), torch.int64, grad=False),)
    crf = tl.nn.LinearChainCRF(4).to(D)
    tags = tl.LoDTensor(torch.randint(0, 4, (15,)).to(D), tl.LoD.from_lengths(TWO))
    yield "CRF", lambda x: crf(x, tags), (rows(),)
    yield "loss", lambda x: tl.sequence_loss(x, "token"), (rows(()),)


def counted(counts: dict[str, int]) -> list[int]:
    """Launches of ours, of torch's, products, uploads, waits."""

    def total(*starts):
        return sum(n for what, n in counts.items() if what.startswith(starts))

    own = [counts.get("launch", 0), total("op ", "device assert"), counts.get("product", 0)]
    return [*own, counts.get("upload", 0), total("sync ")]


def measured(call: Callable, args: tuple) -> list[int]:
    """Uploads of the first call; then what is counted of a second call, and of its backward; and the work of both."""
    partition._constants.clear()
    emulated.counts()
    call(*args)
    first = emulated.counts()
    backward = [0] * 5
    with emulated.work() as work:
        out = call(*args)
        forward = counted(emulated.counts())
        if isinstance(out, torch.Tensor) and out.requires_grad:
            rows_out = out.values() if isinstance(out, tl.LoDTensor) else out
            grad = torch.ones_like(rows_out)
            emulated.counts()
            torch.autograd.backward(rows_out, grad)
            backward = counted(emulated.counts())
    longest = max((math.ceil(most / mean) for most, mean in work.values() if mean), default=1)
    return [counted(first)[3], *forward, *backward, longest]


HEAD = """# Written by budget.py. first: uploads of the first call. Then of the second call, forwards and backwards: launches of our
# kernels, of torch's, products of cuBLAS, uploads, times that the host waits. work: steps of the longest thread of a kernel,
# over those of an average one, rounded up.
# call                        first |  ours torch  blas upload sync |  ours torch  blas upload sync | work
"""


def line(name: str, numbers: list[int]) -> str:
    f = "".join(f"{n:6}" for n in numbers[1:6])
    b = "".join(f"{n:6}" for n in numbers[6:11])
    return f"{name:30}{numbers[0]:5} |{f} |{b} |{numbers[11]:5}"


def table() -> dict[str, list[int]]:
    kept = (row for row in TABLE.read_text().splitlines() if not row.startswith("#"))
    return {row[:30].strip(): [int(n) for n in row[30:].replace("|", " ").split()] for row in kept}


if __name__ == "__main__":
    import sys

    devices.PINNED.add("emu")
    said = [HEAD]
    for name, call, args in cases():
        torch.manual_seed(0)
        try:
            said.append(line(name, measured(call, args)) + "\n")
        except Exception as error:
            print(name, type(error).__name__, str(error).splitlines()[0][:150], file=sys.stderr)
    print(*said, sep="", end="")
