# SPDX-License-Identifier: Apache-2.0
"""Malformed calls of the raw operators on the emulated device: every class of tests/lib/malformed_ops.py, then random structure.
A call returns or raises; kernels stay inside their memory, which make sanitize-gpu watches. As a program: all of it.

What kernels find reaches the host late, as from a GPU: an operator has long enqueued its own kernel then."""

import contextlib
import random
import sys
from collections import Counter

import torch
from emulated_gpu import emulated

if __name__ == "__main__":
    emulated.start()
from malformed_ops import raw_cases

import torch_lod as tl

tl.structure.devices.PINNED.add("emu")
D = torch.device("emu", 0)
RAISED = (RuntimeError, ValueError, TypeError, IndexError, AttributeError, NotImplementedError)
FAR = [0, 1, -1, 5, 7, 100, -100, 10**6, -(10**6), 2**31, 2**40, 2**62, -(2**62), 2**63 - 1, -(2**63)]


def there(call):
    """The arguments of a case on the device, and what its function makes itself as well."""
    if hasattr(call, "args"):
        given = [
            a.to(D)
            if isinstance(a, torch.Tensor)
            and a.device.type == "cpu"
            and a.layout == torch.strided
            and not a.is_quantized
            else a
            for a in call.args
        ]
        return lambda: call.func(*given)
    return call


def ends(call) -> str:
    """Runs a call to its end; what became of it."""
    try:
        with torch.device(D):
            result = call()
        for t in result if isinstance(result, (tuple, list)) else (result,):
            if isinstance(t, torch.Tensor) and t.requires_grad:
                t.sum().backward()
        became = "returned"
    except RAISED as error:
        became = "raised" if "emulated GPU" not in str(error) or "out of memory" in str(error) else f"broke: {error}"
    try:
        tl.check_errors()
    except tl.LoDError:
        became += ", and a fault was found"
    return became


def random_calls(g: random.Random, lie: bool = False):
    """(name, call) for one random structure, mostly wrong. lie: all of it carries the mark of structure that is right, as
    after a write that a tensor's version does not show."""
    most = 900 if g.random() < 0.1 else 20  # some with segments of several blocks
    rows, count, width = g.randint(0, most), g.randint(0, 6), g.choice([1, 3, 8, 70])

    def wrong(n, high, cuts=False):
        kind = g.random()
        entries = [g.choice(FAR) for _ in range(n)] if kind < 0.3 else [g.randint(-3, high + 3) for _ in range(n)]
        t = torch.tensor(sorted(entries) if kind < 0.6 else entries, dtype=torch.int64).to(D)
        if lie:
            torch.ops.torch_lod.keep_structure(t, high, cuts, not cuts, g.choice([-1, 1, 2**62]))
        return t

    def of(n, *shape, dtype=None):
        return torch.randn(n, *shape).to(dtype or g.choice([torch.float32, torch.float16, torch.float64])).to(D)

    ops = torch.ops.torch_lod
    cut, first, x = wrong(count + 1, rows, cuts=True), wrong(count, rows), of(rows, width)
    per = x.new_ones(count, width)
    yield "run_map", lambda: ops.run_map(first, cut, rows, g.choice([-1, 0, 1, 5]))
    yield "gather_rows", lambda: ops.gather_rows(x, wrong(g.randint(0, 9), rows), 1)
    yield "scatter_rows", lambda: ops.scatter_rows(x, wrong(rows, 7), g.randint(0, 8))
    yield "gather_runs", lambda: ops.gather_runs(of(g.randint(0, 9), width), first, cut, rows, g.choice([-1, 1]))
    yield "scatter_runs", lambda: ops.scatter_runs(x, first, cut, g.randint(0, 30), g.choice([-1, 1]), 2)
    reach = g.choice([-2, 0, 3, 2**40, -(2**40)]), g.choice([1, 3, 2**40])
    yield "segment_unfold", lambda: ops.segment_unfold(x, cut, g.randint(1, 5), *reach, 0)
    yield "segment_fold", lambda: ops.segment_fold(x[:, None].expand(rows, 3, width), cut, *reach)
    more = g.randint(0, 9)
    others = of(more, width, dtype=x.dtype), wrong(count + 1, more, cuts=True)
    yield "segment_concat", lambda: ops.segment_concat(x, cut, *others)
    for how in ("sum", "mean", "prod", "max", "first", "last"):
        yield f"segment_reduce {how}", lambda how=how: ops.segment_reduce(x, cut, how, 0.0)
    yield "segment_extreme", lambda: ops.segment_extreme(x, cut, "min", 0.0)
    yield "segment_broadcast", lambda: ops.segment_broadcast(per, cut, rows, g.choice(["sum", "mean", "sqrt", "last"]))
    yield "segment_pick", lambda: ops.segment_pick(x, wrong(count * width, rows).view(count, width), cut)
    yield "segment_place", lambda: ops.segment_place(per, wrong(count * width, rows).view(count, width), cut, rows)
    for name in ("softmax", "log_softmax", "logsumexp", "var", "normalize", "logcumsumexp"):
        yield f"segment_{name}", lambda name=name: getattr(ops, f"segment_{name}")(x, cut)
    yield "segment_scan", lambda: ops.segment_scan(x, g.choice([None, x]), cut, g.random() < 0.5)
    yield "segment_cumulative", lambda: ops.segment_cumulative(x, cut, "max")
    yield "segment_cumprod", lambda: ops.segment_cumprod(x, cut)
    yield "segment_order", lambda: ops.segment_order(x, cut, g.random() < 0.5)
    yield "segment_topk", lambda: ops.segment_topk(x, cut, g.randint(1, 5), g.random() < 0.5)
    yield "segment_conv", lambda: ops.segment_conv(x, x.new_ones(3, width, 2), None, cut, -1, 1)
    move = of(width + 2, width, dtype=x.dtype)
    yield "chain_logsumexp", lambda: ops.chain_logsumexp(x, move, cut)
    yield "chain_argmax", lambda: ops.chain_argmax(x, move, cut, 2)
    many = g.randint(0, 9)
    labels, ends_of_labels = wrong(many, width), wrong(count + 1, many, cuts=True)
    xs = x.detach().requires_grad_()
    yield "ctc_loss", lambda: ops.ctc_loss(xs, cut, labels, ends_of_labels, 0)
    yield "ctc_best_path", lambda: ops.ctc_best_path(x, cut, labels, ends_of_labels, 0)
    yield "ctc_beam", lambda: ops.ctc_beam(x, cut, 0, 3, 2)
    yield "edit_distance", lambda: ops.edit_distance(wrong(rows, 9), cut, labels, ends_of_labels)
    yield "edit_alignment", lambda: ops.edit_alignment(wrong(rows, 9), cut, labels, ends_of_labels)
    heads = [of(rows, h, w, dtype=torch.float32).requires_grad_() for h, w in ((2, 8), (1, 8), (1, 9))]
    bias = of(g.randint(0, 60), g.choice([1, 2]), dtype=torch.float32).requires_grad_() if g.random() < 0.7 else None
    rest = None, torch.tensor(5).to(D), None, g.choice([-1, 2]), g.choice([-1, 0]), g.choice([0.0, 0.3])
    f32 = torch.float32
    more = (
        g.choice([None, 2.0]),
        of(2, dtype=f32).requires_grad_(),
        of(2, 5, dtype=f32).requires_grad_(),
        wrong(rows, 9),
    )
    rest += more if g.random() < 0.5 else (None,) * 4
    yield "attention", lambda: ops.attention(*heads, cut, wrong(count + 1, rows, cuts=True), bias, *rest)[0]


def catalogue():
    for name, call, _ in raw_cases():
        yield name, there(call)


def run(cases, late: bool = True) -> Counter:
    found: Counter = Counter()
    with emulated.late() if late else contextlib.nullcontext():
        for name, call in cases:
            became = ends(call)
            found[became.partition(":")[0]] += 1
            assert not became.startswith("broke"), f"{name}: {became}"
    return found


if __name__ == "__main__":
    g = random.Random(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
    for late in (True, False):
        print("catalogue, told", "late:" if late else "at once:", dict(run(catalogue(), late)))
    print("random:", dict(run(case for _ in range(200) for case in random_calls(g))))
    print("random, marked as right:", dict(run(case for _ in range(200) for case in random_calls(g, lie=True))))
