# SPDX-License-Identifier: Apache-2.0
"""Self-attention within sequences, 8 heads of 64, against its products alone."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

import torch_lod as tl

from ..cases import LARGEST_PADDED, Case, Cases, Ragged, Run, Setup
from ..goals import faster_than, of_floor

HEADS, WIDTH = 8, 64

Function = Callable[[Tensor, Tensor, Tensor], Tensor]  # of queries, keys and values, (rows, heads, width)


def cases(setup: Setup) -> Cases:
    for kind in "U" if setup.quick else "UX":
        ragged = Ragged(kind, 32, setup.device)
        for training in (False, True):
            yield _attention(ragged, training)


def _attention(ragged: Ragged, training: bool) -> Case:
    rows = [ragged.randn(HEADS * WIDTH, seed=seed).view(-1, HEADS, WIDTH) for seed in range(4)]
    inputs, grad = rows[:3], rows[3] if training else None
    offsets = ragged.offsets

    def operator(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return tl.ops.attention(q, k, v, offsets, offsets)[0]

    def on_lod_tensors(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return tl.sequence_attention(*(tl.LoDTensor(t, ragged.lod) for t in (q, k, v))).values()

    peers = _peers(ragged)
    goals = [of_floor(2), faster_than(1.5, "sequence by sequence"), faster_than(8, "torch.nested")]
    if "SDPA, padded" in peers:
        goals.append(faster_than(3 if ragged.kind == "U" else 6, "SDPA, padded"))
    products = sum(4 * n * n for n in ragged.lengths_list) * HEADS * WIDTH * (3.5 if training else 1)
    return Case(
        name=f"attention {ragged.kind} B={ragged.count} {HEADS}x{WIDTH}{', backward too' if training else ''}",
        ours={
            "tl.ops.attention": _run(operator, inputs, grad),
            "tl.sequence_attention": _run(on_lod_tensors, inputs, grad),
        },
        peers={name: _run(function, inputs, grad) for name, function in peers.items()},
        floor=_products(ragged, training),
        floor_is=f"its {7 if training else 2} products of every sequence",
        expected=lambda: _expected(ragged, inputs, grad),
        tolerance=1e-4,
        goals=tuple(goals),
        fact=lambda _, seconds: f"{products / seconds / 1e9:.0f} GFLOP/s",
    )


def _run(function: Function, inputs: list[Tensor], grad: Tensor | None) -> Run:
    """With `grad` also the gradients of queries, keys and values."""
    if grad is None:
        return Run(lambda: function(*inputs))
    leaves = [t.detach().requires_grad_() for t in inputs]

    def call():
        y = function(*leaves)
        return (y, *torch.autograd.grad(y, leaves, grad))

    return Run(call)


def _products(ragged: Ragged, training: bool) -> Callable[[], object]:
    """Scores and results of every sequence, and backwards the scores again and four gradients, into memory that is there."""
    parts = []
    for n in sorted(set(ragged.lengths_list)):
        rows, scores = (torch.ones(HEADS, n, width, device=ragged.device) for width in (WIDTH, n))
        parts.append((ragged.lengths_list.count(n), rows, rows.mT.contiguous(), scores, torch.empty_like(rows)))

    def floor():
        for count, rows, turned, scores, out in parts:
            for _ in range(count):
                torch.bmm(rows, turned, out=scores)
                torch.bmm(scores, rows, out=out)
                if training:
                    torch.bmm(rows, turned, out=scores)
                    torch.bmm(rows, turned, out=scores)
                    torch.bmm(scores, rows, out=out)
                    torch.bmm(scores.mT, rows, out=out)
                    torch.bmm(scores.mT, rows, out=out)

    return floor


def _by_sequence(ragged: Ragged, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    parts = zip(*(t.transpose(0, 1).split(ragged.lengths_list, 1) for t in (q, k, v)))
    return torch.cat([F.scaled_dot_product_attention(*(t[None] for t in part))[0] for part in parts], 1).transpose(0, 1)


def _expected(ragged: Ragged, inputs: list[Tensor], grad: Tensor | None) -> tuple[Tensor, ...]:
    leaves = [t.detach().cpu().double().requires_grad_() for t in inputs]
    y = _by_sequence(ragged, *leaves)
    gradients = () if grad is None else torch.autograd.grad(y, leaves, grad.cpu().double())
    return (y.detach(), *gradients)


def _peers(ragged: Ragged) -> dict[str, Function]:
    """All are given lengths, places and masks in the layout that they compute in."""
    count, longest, places = ragged.count, ragged.longest, ragged.places
    seen = (torch.arange(longest, device=ragged.device) < ragged.lengths_column)[:, None, None, :]

    def laid_out(t: Tensor) -> Tensor:
        dense = t.new_zeros(count * longest, HEADS, WIDTH).index_copy(0, places, t)
        return dense.view(count, longest, HEADS, WIDTH).transpose(1, 2)

    def padded(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        made = F.scaled_dot_product_attention(*map(laid_out, (q, k, v)), attn_mask=seen)
        return made.transpose(1, 2).reshape(-1, HEADS, WIDTH).index_select(0, places)

    def nested(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        parts = (torch.nested.nested_tensor_from_jagged(t, ragged.offsets).transpose(1, 2) for t in (q, k, v))
        return F.scaled_dot_product_attention(*parts).transpose(1, 2).values()

    peers: dict[str, Function] = {
        "SDPA, sequence by sequence": lambda q, k, v: _by_sequence(ragged, q, k, v),
        "SDPA of torch.nested, jagged": nested,
    }
    if count * longest * HEADS * WIDTH * 4 <= LARGEST_PADDED:
        peers["SDPA, padded"] = padded
    return peers
