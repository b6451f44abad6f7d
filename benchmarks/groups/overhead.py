# SPDX-License-Identifier: Apache-2.0
"""What a call costs before any work is done: 10 rows of 4."""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

import torch_lod as tl

from ..cases import Case, Cases, Run, Setup, exact, plain, run_on, tensors


def cases(setup: Setup) -> Cases:
    lod = tl.LoD.from_lengths([[3, 7]])
    x = torch.randn(10, 4, generator=torch.Generator().manual_seed(0)).to(setup.device)
    offsets = lod.row_offsets(0).to(setup.device)
    linear = torch.nn.Linear(4, 4, device=setup.device)
    functions: dict[str, Callable[[Tensor], Tensor]] = {
        "x + 1": lambda t: t + 1,
        "x * x": lambda t: t * t,
        "relu(x)": torch.relu,
        "Linear(4, 4)(x)": linear,
    }
    for name, function in functions.items():
        yield _row_wise(name, function, x, lod, offsets)
    for training in (False, True):
        yield _pool(x, lod, offsets, training)


def _nested(x: Tensor, offsets: Tensor) -> Tensor:
    return torch.nested.nested_tensor_from_jagged(x, offsets, min_seqlen=3, max_seqlen=7)


def _row_wise(name: str, function: Callable, x: Tensor, lod: tl.LoD, offsets: Tensor) -> Case:
    ours, nested = tl.LoDTensor(x, lod), _nested(x, offsets)

    def expected():
        return (plain(function(x)).detach().cpu(),)

    def on(t: Tensor) -> Run:
        return Run(lambda: function(t), lambda result: (plain(result),))

    return Case(
        name=name,
        ours={"LoDTensor": on(ours)},
        peers={"torch.nested": on(nested)},
        floor=lambda: function(x),
        floor_is="plain tensor",
        expected=expected,
        tolerance=1e-6,
        goal="<= 4 us over floor",
    )


def _pool(x: Tensor, lod: tl.LoD, offsets: Tensor, training: bool) -> Case:
    """A sum within sequences on rows that require a gradient; with its backward if `training`."""
    ones = torch.ones(2, 4, device=x.device)

    def run(function: Callable[[Tensor], Tensor], rows: Tensor = x) -> Run:
        if training:
            return run_on(function, rows, ones)
        leaf = rows.detach().requires_grad_()
        return Run(lambda: function(leaf), lambda result: (plain(result),))

    def expected():
        rows = exact(x)
        sums = np.stack([rows[:3].sum(0), rows[3:].sum(0)])
        return tensors(sums, np.ones_like(rows)) if training else tensors(sums)

    def floor(t: Tensor) -> Tensor:
        return t.sum(0, keepdim=True).expand(2, 4)

    return Case(
        name="sum, 10 rows, with gradient" + (", and backward" if training else ""),
        ours={
            "tl.sequence_pool": run(lambda t: tl.sequence_pool(t, "sum"), tl.LoDTensor(x, lod)),
            "tl.ops.segment_reduce": run(lambda t: tl.ops.segment_reduce(t, offsets, "sum")),
        },
        peers={
            "torch.segment_reduce": run(lambda t: torch.segment_reduce(t, "sum", offsets=offsets, axis=0, unsafe=True)),
            "torch.nested, made of the rows": run(lambda t: _nested(t, offsets).sum(1)),
        },
        floor=run(floor).call,
        floor_is="x.sum(0) of the plain tensor",
        expected=expected,
        tolerance=1e-6,
        goal="" if training else "<= 6 us; >= 10x torch.nested",
    )
