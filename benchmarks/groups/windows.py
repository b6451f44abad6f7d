# SPDX-License-Identifier: Apache-2.0
"""Convolution over a context of 3 rows that stays within its sequence, against its products alone."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

import torch_lod as tl

from ..cases import LARGEST_PADDED, Case, Cases, Ragged, Run, Setup, both
from ..goals import faster_than, of_floor

CONTEXT = 3

Function = Callable[[Tensor, Tensor], Tensor]  # of rows and a weight


def cases(setup: Setup) -> Cases:
    for kind, width in [("U", 64)] if setup.quick else [("U", 64), ("X", 64), ("U", 256)]:
        ragged = Ragged(kind, 256, setup.device)
        for training in (False, True):
            yield _convolution(ragged, width, training)


def _convolution(ragged: Ragged, width: int, training: bool) -> Case:
    x, grad = ragged.randn(width), ragged.randn(width, seed=1) if training else None
    kernel = torch.randn(width, width, CONTEXT, generator=torch.Generator().manual_seed(2)).to(x.device) / width**0.5
    flat = kernel.permute(2, 1, 0).reshape(CONTEXT * width, width)
    offsets, lod_tensor = ragged.offsets, tl.LoDTensor(x, ragged.lod)

    def operator(t: Tensor, weight: Tensor) -> Tensor:
        return tl.ops.segment_conv(t, weight.view(CONTEXT, width, width), None, offsets, -1)

    def of_kernel(function: Function, rows: Tensor = x) -> Run:
        return _run(function, rows, kernel, grad, lambda t: t)

    def of_flat(function: Function, rows: Tensor = x) -> Run:
        return _run(function, rows, flat, grad, lambda t: t.view(CONTEXT, width, width).permute(2, 1, 0))

    peers = _peers(ragged, width)
    goals = [of_floor(1.1), faster_than(1, "zeros between")]
    if "conv1d, padded" in peers:
        goals.append(faster_than(1.9, "conv1d, padded"))
    return Case(
        name=f"conv {ragged.kind} D={width}{', backward too' if training else ''}",
        ours={
            "tl.ops.segment_conv": of_flat(operator),
            "tl.sequence_conv": of_flat(lambda t, weight: tl.sequence_conv(t, weight, CONTEXT), lod_tensor),
            "tl.sequence_conv1d": of_kernel(tl.sequence_conv1d, lod_tensor),
        },
        peers={name: of_kernel(function) for name, function in peers.items()},
        floor=_products(ragged.rows, width, training, x.device),
        floor_is="the product of the windows" + (", and those of both gradients" if training else ""),
        expected=lambda: _expected(ragged, x, kernel, grad),
        tolerance=1e-5,
        goals=tuple(goals),
        fact=lambda _, seconds: f"{(3 if training else 1) * 2 * flat.numel() * len(x) / seconds / 1e9:.0f} GFLOP/s",
    )


def _run(function: Function, x: Tensor, weight: Tensor, grad: Tensor | None, as_kernel: Callable) -> Run:
    """With `grad` also the gradients of the rows and, brought to the layout of conv1d, of the weight."""
    if grad is None:
        return Run(lambda: function(x, weight))
    inputs = [x.detach().requires_grad_(), weight.detach().requires_grad_()]

    def call():
        y = function(*inputs)
        return (y, *torch.autograd.grad(y, inputs, grad))

    return Run(call, lambda result: (*result[:2], as_kernel(result[2])))


def _products(rows: int, width: int, training: bool, device: torch.device) -> Callable[[], object]:
    windows, weight = (
        torch.ones(rows, CONTEXT * width, device=device),
        torch.ones(CONTEXT * width, width, device=device),
    )
    out, weights, seen = torch.ones(rows, width, device=device), torch.empty_like(weight), torch.empty_like(windows)

    def forward():
        torch.mm(windows, weight, out=out)

    def backward():
        torch.mm(out, weight.t(), out=seen)
        torch.mm(windows.t(), out, out=weights)

    return both(forward, backward) if training else forward


def _expected(ragged: Ragged, x: Tensor, kernel: Tensor, grad: Tensor | None) -> tuple[Tensor, ...]:
    """conv1d in float64, sequence by sequence."""
    inputs = [t.detach().cpu().double().requires_grad_() for t in (x, kernel)]
    rows, weight = inputs
    parts = [F.conv1d(s.t()[None], weight, padding=CONTEXT // 2)[0].t() for s in rows.split(ragged.lengths_list)]
    y = torch.cat(parts)
    gradients = () if grad is None else torch.autograd.grad(y, inputs, grad.cpu().double())
    return (y.detach(), *gradients)


def _peers(ragged: Ragged, width: int) -> dict[str, Function]:
    """All are given the places of the rows in the layout that they compute in."""
    count, longest, rows, device, reach = ragged.count, ragged.longest, ragged.rows, ragged.device, CONTEXT // 2
    every = torch.arange(rows, device=device)
    between = every + reach * (ragged.ids + 1)  # zeros before, between and after the sequences
    spread = rows + reach * (count + 1)
    lengths = ragged.lengths_column.flatten()[ragged.ids]
    seen = [
        torch.where((ragged.position + d >= 0) & (ragged.position + d < lengths), every + d, rows)
        for d in range(-reach, reach + 1)
    ]
    neighbours = torch.stack(seen, 1).flatten()  # `rows` is a row of zeros

    def laid_out(t: Tensor, places: Tensor, size: int) -> Tensor:
        return t.new_zeros(size, width).index_copy(0, places, t)

    def padded(t: Tensor, kernel: Tensor) -> Tensor:
        dense = laid_out(t, ragged.places, count * longest).view(count, longest, width)
        made = F.conv1d(dense.transpose(1, 2), kernel, padding=reach)
        return made.transpose(1, 2).reshape(-1, width).index_select(0, ragged.places)

    def one_conv1d(t: Tensor, kernel: Tensor) -> Tensor:
        made = F.conv1d(laid_out(t, between, spread).t()[None], kernel, padding=reach)[0]
        return made.t().index_select(0, between)

    def shifted_products(t: Tensor, kernel: Tensor) -> Tensor:
        apart, parts = laid_out(t, between, spread), kernel.permute(2, 1, 0)
        total = apart[: spread - 2 * reach] @ parts[0]
        for j in range(1, CONTEXT):
            total = total + apart[j : spread - 2 * reach + j] @ parts[j]
        return total.index_select(0, between - reach)

    def gathered(t: Tensor, kernel: Tensor) -> Tensor:
        windows = torch.cat([t, t.new_zeros(1, width)]).index_select(0, neighbours).view(rows, -1)
        return windows @ kernel.permute(2, 1, 0).reshape(-1, width)

    peers = {
        "conv1d over all, zeros between": one_conv1d,
        "products of shifts, zeros between": shifted_products,
        "index_select of windows + mm": gathered,
    }
    if count * longest * width * 4 <= LARGEST_PADDED:
        peers["conv1d, padded"] = padded
    return peers
