# SPDX-License-Identifier: Apache-2.0
"""Reductions and softmax within sequences, against the bytes that they read and write."""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

import torch_lod as tl

from ..cases import (
    LARGEST_PADDED,
    LONGEST_LOOP,
    Case,
    Cases,
    Ragged,
    Run,
    Setup,
    both,
    copy,
    exact,
    has,
    optional,
    read,
    run_on,
    tensors,
    write,
)
from ..goals import Goal, avx512, faster_than, of_floor, rate

#: Sequences of the kind "T".
TINY = 100_000

Function = Callable[[Tensor], Tensor]


def cases(setup: Setup) -> Cases:
    shapes = {"U": (64,), "T": (1,)} if setup.quick else {"U": (64, 256, 1), "X": (64,), "T": (1, 2, 3, 4, 8)}
    for kind, widths in shapes.items():
        ragged = Ragged(kind, TINY if kind == "T" else 256, setup.device)
        for width in widths:
            for training in (False, True) if width in (1, 64) else (False,):
                for reduce in ("sum", "max") if setup.quick else ("sum", "mean", "max"):
                    yield _reduction(ragged, width, reduce, training)
                if width in (1, 4, 64):
                    yield _softmax(ragged, width, training)


def _name(what: str, ragged: Ragged, width: int, training: bool) -> str:
    return f"{what} {ragged.kind} D={width}{', backward too' if training else ''}"


# ---- sum, mean, max


def _reduction(ragged: Ragged, width: int, reduce: str, training: bool) -> Case:
    x = ragged.randn(width)
    grad = ragged.randn(width, "sequence", 1) if training else None
    out, offsets = torch.empty(ragged.count, width, device=x.device), ragged.offsets
    floor = both(read(x), write(out))
    peers = {name: run_on(f, x, grad) for name, f in _reduction_peers(ragged, width, reduce, training).items()}
    return Case(
        name=_name(reduce, ragged, width, training),
        ours={
            "tl.ops.segment_reduce": run_on(lambda t: tl.ops.segment_reduce(t, offsets, reduce), x, grad),
            "tl.sequence_pool": run_on(lambda t: tl.sequence_pool(t, reduce), tl.LoDTensor(x, ragged.lod), grad),
        },
        peers=peers,
        floor=both(floor, read(grad), write(x)) if training else floor,
        floor_is="read x, write y" + (", read dy, write dx" if training else ""),
        expected=lambda: _reduced(ragged, x, reduce, grad),
        tolerance=1e-5,
        goals=_reduction_goals(ragged.kind, width, reduce, training),
        fact=lambda name, seconds: f"{seconds / ragged.count * 1e9:.2f} ns a sequence" if ragged.kind == "T" else "",
    )


def _reduced(ragged: Ragged, x: Tensor, reduce: str, grad: Tensor | None) -> tuple[Tensor, ...]:
    rows = exact(x)
    out = ragged.reduce(np.maximum if reduce == "max" else np.add, rows)
    share = 1 / ragged.lengths[:, None] if reduce == "mean" else 1.0
    if grad is None:
        return tensors(out * share)
    spread = ragged.repeat(exact(grad) * share)
    return tensors(out * share, spread * (rows == ragged.repeat(out)) if reduce == "max" else spread)


def _reduction_peers(ragged: Ragged, width: int, reduce: str, training: bool) -> dict[str, Function]:
    offsets, ids, every = ragged.offsets, ragged.ids, torch.arange(ragged.rows, device=ragged.device)
    wide_ids, lengths = ids[:, None].expand(-1, width), ragged.lengths_column
    shape = (ragged.count, width)
    word = {"sum": "sum", "mean": "mean", "max": "amax"}[reduce]

    def index_add(t: Tensor) -> Tensor:
        total = t.new_zeros(shape).index_add(0, ids, t)
        return total / lengths if reduce == "mean" else total

    peers: dict[str, Function] = {
        "scatter_reduce": lambda t: t.new_zeros(shape).scatter_reduce(0, wide_ids, t, word, include_self=False),
        "F.embedding_bag(arange)": lambda t: F.embedding_bag(every, t, offsets, mode=reduce, include_last_offset=True),
        "torch.segment_reduce": lambda t: torch.segment_reduce(t, reduce, offsets=offsets, axis=0, unsafe=True),
    }
    if reduce != "max":
        peers["index_add"] = index_add
    if has("torch_scatter"):
        segment_csr = optional("torch_scatter").segment_csr
        peers["torch_scatter.segment_csr"] = lambda t: segment_csr(t, offsets, reduce=reduce)
    if has("fbgemm_gpu") and width == 1 and reduce != "max" and not training:
        sums = torch.ops.fbgemm.segment_sum_csr
        peers["fbgemm.segment_sum_csr"] = lambda t: (
            sums(1, offsets, t[:, 0])[:, None] / (lengths if reduce == "mean" else 1)
        )
    return peers


def _reduction_goals(kind: str, width: int, reduce: str, training: bool) -> tuple[Goal, ...]:
    if kind == "T":
        if training:
            return ()
        limit = 1.3 if avx512() and width == 1 else 4.5
        goals: tuple[Goal, ...] = (rate(limit, TINY, "sequence"),) if avx512() or width == 1 else ()
        if reduce == "sum":
            goals += (faster_than(3.5 if width < 4 else 3, "index_add"),)
        elif reduce == "max":
            goals += (faster_than(8 if width == 1 else 13, "scatter_reduce"),)
        return (*goals, faster_than(7, "fbgemm")) if width == 1 and reduce != "max" else goals
    if width == 1 or reduce == "mean":
        return ()
    if training:
        if reduce == "sum":
            return of_floor(1.6), faster_than(2.5, "index_add")
        return of_floor(3), faster_than(6)
    if reduce == "max":
        return of_floor(1.1), faster_than(2, "scatter_reduce"), faster_than(25, "torch.segment_reduce")
    return (
        of_floor(1.1),
        faster_than(1.2 if width == 64 else 1.3, "F.embedding_bag"),
        faster_than(12, "torch.segment_reduce"),
    )


# ---- softmax


def _softmax(ragged: Ragged, width: int, training: bool) -> Case:
    x = ragged.randn(width)
    grad = ragged.randn(width, seed=1) if training else None
    offsets = ragged.offsets
    peers = {name: run_on(f, x, grad) for name, f in _softmax_peers(ragged).items()}
    if not training and ragged.count * ragged.longest * width * 4 <= LARGEST_PADDED:
        padded = x.new_full((ragged.count * ragged.longest, width), -torch.inf).index_copy(0, ragged.places, x)
        padded = padded.view(ragged.count, ragged.longest, width)
        peers["softmax, padded, layouts given"] = Run(
            lambda: padded.softmax(1), lambda result: (result.flatten(0, 1)[ragged.places],)
        )
    goals = (rate(1.5 if ragged.kind == "T" else 0.3, x.numel(), "element"),)
    if width in (1, 64):
        goals += (faster_than(12 if width == 1 else 6),)
    return Case(
        name=_name("softmax", ragged, width, training),
        ours={
            "tl.ops.segment_softmax": run_on(lambda t: tl.ops.segment_softmax(t, offsets), x, grad),
            "tl.sequence_softmax": run_on(tl.sequence_softmax, tl.LoDTensor(x, ragged.lod), grad),
        },
        peers=peers,
        floor=both(copy(x), read(x), copy(x)) if training else copy(x),
        floor_is="copy x" + (", read y, copy dy" if training else ""),
        expected=lambda: _softmaxed(ragged, x, grad),
        tolerance=1e-5,
        goals=() if training else goals,
        fact=lambda name, seconds: f"{seconds / x.numel() * 1e9:.2f} ns an element",
    )


def _softmaxed(ragged: Ragged, x: Tensor, grad: Tensor | None) -> tuple[Tensor, ...]:
    rows = exact(x)
    power = np.exp(rows - ragged.repeat(ragged.reduce(np.maximum, rows)))
    out = power / ragged.repeat(ragged.reduce(np.add, power))
    if grad is None:
        return tensors(out)
    product = out * exact(grad)
    return tensors(out, product - out * ragged.repeat(ragged.reduce(np.add, product)))


def _softmax_peers(ragged: Ragged) -> dict[str, Function]:
    offsets, ids, lengths, longest = ragged.offsets, ragged.ids, ragged.lengths_list, ragged.longest

    def composed(t: Tensor) -> Tensor:
        top = torch.segment_reduce(t.detach(), "max", offsets=offsets, axis=0, unsafe=True)
        power = (t - top.index_select(0, ids)).exp()
        total = t.new_zeros(top.shape).index_add(0, ids, power)
        return power / total.index_select(0, ids)

    peers: dict[str, Function] = {"segment_reduce, exp, index_add": composed}
    if ragged.count <= LONGEST_LOOP:
        peers["cat(softmax of each of split)"] = lambda t: torch.cat([s.softmax(0) for s in t.split(lengths)])
    if has("fbgemm_gpu"):
        peers["fbgemm.jagged_softmax"] = lambda t: torch.ops.fbgemm.jagged_softmax(t, offsets, longest)[0]
    if has("torch_scatter"):
        library = optional("torch_scatter")

        def scattered(t: Tensor) -> Tensor:
            top = library.gather_csr(library.segment_csr(t.detach(), offsets, reduce="max"), offsets)
            power = (t - top).exp()
            return power / library.gather_csr(library.segment_csr(power, offsets, reduce="sum"), offsets)

        peers["torch_scatter segment and gather_csr"] = scattered
    return peers
