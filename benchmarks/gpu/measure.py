# SPDX-License-Identifier: Apache-2.0
"""Seconds on a GPU, by CUDA events: medians of 20 calls, on 0.5 to 2 GB, beside torch's own functions and a plain copy.

python benchmarks/gpu/measure.py kernels | recurrences | attention | worst | quick FILE.json

quick: kernels on an eighth of the bytes and two recurrences, in two minutes; and whether results repeat, alone and beside others.
"""

import json
import statistics
import sys
from collections.abc import Callable
from pathlib import Path

import torch

import torch_lod as tl
from torch_lod import ops

D = torch.device("cuda")
BYTES = 10**9
WIDTHS = (1, 8, 64, 256)
TYPES = (torch.float32, torch.bfloat16)


def seconds(call: Callable[[], object], repeats: int = 20) -> float:
    """The median; before each call the L2 is filled with something else."""
    flush = torch.empty(2**26, device=D)
    for _ in range(3):
        call()
    times = []
    for _ in range(repeats):
        flush.zero_()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        call()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) / 1000)
    return statistics.median(times)


def lengths_of(kind: str, rows: int) -> list[int]:
    if kind == "one long":
        return [rows]
    if kind == "uniform":
        return [50] * (rows // 50) + [rows % 50]
    g = torch.Generator().manual_seed(0)
    share = torch.randn(rows // 50, generator=g).mul(1.2).exp()
    lengths = (share / share.sum() * rows).long()
    lengths[0] += rows - lengths.sum()
    return lengths.tolist()


def calls_on(x: torch.Tensor, lod: tl.LoD) -> dict[str, tuple[Callable[[], object], int]]:
    """By name: a call, and how often it reads or writes all rows."""
    cut, rows = lod.row_offsets_at(0, D), x.shape[0]
    starts, pooled = cut[:-1].contiguous(), ops.segment_reduce(x, cut, "sum")
    y, factors = ops.segment_softmax(x, cut), torch.rand_like(x)
    peers: dict[str, tuple[Callable[[], object], int]] = {}
    if lod.longest_at(0) < 10**5:  # a thread of torch's goes through a segment: seconds
        peers["torch.segment_reduce sum"] = lambda: torch.segment_reduce(x, "sum", offsets=cut, unsafe=True), 1
    return {
        "reduce sum": (lambda: ops.segment_reduce(x, cut, "sum"), 1),
        "reduce max": (lambda: ops.segment_reduce(x, cut, "max"), 1),
        "softmax": (lambda: ops.segment_softmax(x, cut), 2),
        "softmax backward": (lambda: torch.ops.torch_lod.segment_softmax_backward(x, y, cut), 3),
        "normalize": (lambda: ops.segment_normalize(x, cut, 1e-5), 2),
        "broadcast": (lambda: ops.segment_broadcast(pooled, cut, rows), 1),
        "logsumexp": (lambda: ops.segment_logsumexp(x, cut), 1),
        "scan": (lambda: ops.segment_scan(x, None, cut), 2),
        "scan with factors": (lambda: ops.segment_scan(x, factors, cut), 3),
        "cumprod": (lambda: ops.segment_cumprod(factors, cut), 2),
        "logcumsumexp": (lambda: ops.segment_logcumsumexp(x, cut), 2),
        "cummax": (lambda: ops.segment_cumulative(x, cut, "max"), 2),
        "gather runs": (lambda: ops.gather_runs(x, starts, cut, rows), 2),
        "unfold 3": (lambda: ops.segment_unfold(x, cut, 3, -1), 4),
        **peers,
    }


def copying(x: torch.Tensor) -> float:
    """Seconds that a copy takes to read all rows, or to write them."""
    out = torch.empty_like(x)
    return seconds(lambda: out.copy_(x)) / 2


def kernels(size: int = BYTES, repeats: int = 8) -> dict[str, dict]:
    found: dict[str, dict] = {}
    for dtype in TYPES:
        for width in WIDTHS:
            rows = size // (width * dtype.itemsize)
            x = torch.randn(rows, width, device=D, dtype=dtype)
            once = copying(x)
            for kind in ("uniform", "heavy tail", "one long"):
                for name, (call, passes) in calls_on(x, tl.LoD.from_lengths([lengths_of(kind, rows)])).items():
                    t = seconds(call, repeats)
                    case = f"{name}, {kind}, D={width}, {str(dtype)[6:]}"
                    found[case] = {"seconds": t, "of the copy": once * passes / t}
    return found


def recurrences(sizes=(64, 256, 512, 1024), batches=(32, 256), precisions=(False, True)) -> dict[str, dict]:
    from torch.nn.utils.rnn import pack_sequence

    found: dict[str, dict] = {}
    for tf32 in precisions:
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = tf32
        for cell in ("LSTM", "GRU"):
            for hidden in sizes:
                for batch in batches:
                    lengths = torch.randint(1, 101, (batch,), generator=torch.Generator().manual_seed(0)).tolist()
                    ours, theirs = (getattr(lib, cell)(hidden, hidden).to(D) for lib in (tl.nn, torch.nn))
                    x = tl.LoDTensor(torch.randn(sum(lengths), hidden, device=D), tl.LoD.from_lengths([lengths]))
                    leaf = x.values().clone().requires_grad_()

                    def own(x=x, leaf=leaf, ours=ours):
                        ours(x.with_values(leaf))[0].values().sum().backward()

                    def packed(leaf=leaf, theirs=theirs, lengths=lengths):
                        theirs(pack_sequence(leaf.split(lengths), enforce_sorted=False))[0].data.sum().backward()

                    a, b = seconds(own, 10), seconds(packed, 10)
                    found[f"{cell} H={hidden} B={batch} tf32={tf32}"] = {"seconds": a, "packed": b, "times": b / a}
    return found


def attention() -> dict[str, dict]:
    return {
        f"attention, {kind}, {str(dtype)[6:]}": attention_of(lengths_of(kind, 8000), dtype)
        for dtype in (torch.float32, torch.bfloat16)
        for kind in ("uniform", "heavy tail")
    }


def attention_of(lengths: list[int], dtype: torch.dtype) -> dict[str, float]:
    lod = tl.LoD.from_lengths([[4 * n for n in lengths]])
    q = tl.LoDTensor(torch.randn(lod.rows, 8, 64, device=D, dtype=dtype), lod)
    leaf, grad = q.values().clone().requires_grad_(), torch.randn_like(q.values())

    def trained() -> None:
        x = q.with_values(leaf)
        torch.autograd.grad(tl.sequence_attention(x, x, x, causal=True).values(), leaf, grad)

    row = {"seconds": seconds(lambda: tl.sequence_attention(q, q, q), 10), "causal, trained": seconds(trained, 4)}
    if dtype != torch.float32:
        from torch.nn.attention.varlen import varlen_attn

        cut, longest = lod.cu_seqlens(0, D), lod.max_length(0)
        row["varlen_attn"] = seconds(lambda: varlen_attn(*[q.values()] * 3, cut, cut, longest, longest), 10)
    dense, mask = q.to_padded()[0].transpose(1, 2), q.mask()[:, None, None]
    sdpa = torch.nn.functional.scaled_dot_product_attention
    return row | {"padded": seconds(lambda: sdpa(dense, dense, dense, mask), 10)}


def worst(path: str) -> None:
    """The eight kernels furthest from the ceiling, twice each: what ncu looks at."""
    measured = json.loads(Path(path).read_text())
    ours = {case: row for case, row in measured.items() if not case.startswith("torch.")}
    for case in sorted(ours, key=lambda case: ours[case]["of the copy"])[:8]:
        name, kind, width, dtype = case.split(", ")
        rows = BYTES // 4 // (int(width[2:]) * getattr(torch, dtype).itemsize)
        x = torch.randn(rows, int(width[2:]), device=D, dtype=getattr(torch, dtype))
        lod = tl.LoD.from_lengths([lengths_of(kind, rows)])
        print(case, ours[case])
        for _ in range(2):
            calls_on(x, lod)[name][0]()
    torch.cuda.synchronize()


def repeats(rows: int = 10**5) -> None:
    """Twice the same bits; and for a sequence beside others those that it has alone."""
    for width in WIDTHS:
        for dtype in TYPES:
            lengths = lengths_of("heavy tail", rows)
            x = torch.randn(sum(lengths), width, device=D, dtype=dtype)
            of = lengths.index(max(lengths))
            begin = sum(lengths[:of])
            alone = x[begin : begin + lengths[of]].contiguous()
            beside, own = (calls_on(t, tl.LoD.from_lengths([n])) for t, n in ((x, lengths), (alone, [len(alone)])))
            for name in ("reduce sum", "softmax", "normalize", "logsumexp", "scan", "logcumsumexp", "cummax"):
                one, two, other = (call() for call in (beside[name][0], beside[name][0], own[name][0]))
                if isinstance(one, tuple):
                    one, two, other = one[0], two[0], other[0]
                part = one[of : of + 1] if len(one) == len(lengths) else one[begin : begin + len(alone)]
                assert torch.equal(one, two) and torch.equal(part, other), (name, width, dtype)
    print("the same bits twice, and beside other sequences")


def quick() -> dict[str, dict]:
    repeats()
    return kernels(BYTES // 8, 4) | recurrences((64, 256), (32,), (False,))


if __name__ == "__main__":
    what, path = sys.argv[1:]
    if what == "worst":
        worst(path)
    else:
        table = {"kernels": kernels, "recurrences": recurrences, "attention": attention, "quick": quick}[what]()
        Path(path).write_text(json.dumps(table, indent=1))
        for case, row in table.items():
            print(f"{case:60}", {key: round(value, 6) for key, value in row.items()})
