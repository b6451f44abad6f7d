# SPDX-License-Identifier: Apache-2.0
"""Sequences with a heavy tail of lengths, against ourselves on as many rows with uniform lengths."""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

import torch_lod as tl

from ..cases import Case, Cases, Ragged, Run, Setup, exact, run_on, tensors
from ..goals import of_floor

WIDTH = 64

Function = Callable[[Tensor, Ragged], Tensor]


def _pool(reduce: str) -> Function:
    return lambda t, ragged: tl.ops.segment_reduce(t, ragged.offsets, reduce)


def _reverse(t: Tensor, ragged: Ragged) -> Tensor:
    return tl.sequence_reverse(tl.LoDTensor(t, ragged.lod)).values()


def _convolve(t: Tensor, ragged: Ragged) -> Tensor:
    weight = torch.eye(WIDTH, device=t.device).repeat(3, 1)  # the sum of the window
    return tl.sequence_conv(tl.LoDTensor(t, ragged.lod), weight, 3).values()


def _reversed(sequence: np.ndarray) -> np.ndarray:
    return sequence[::-1]


def _softmaxed(sequence: np.ndarray) -> np.ndarray:
    power = np.exp(sequence - sequence.max(0))
    return power / power.sum(0)


def _convolved(sequence: np.ndarray) -> np.ndarray:
    around = np.pad(sequence, ((1, 1), (0, 0)))
    return around[:-2] + around[1:-1] + around[2:]


#: Each with the answer for one sequence.
FUNCTIONS: dict[str, tuple[Function, Callable[[np.ndarray], np.ndarray]]] = {
    "sum": (_pool("sum"), lambda sequence: sequence.sum(0, keepdims=True)),
    "max": (_pool("max"), lambda sequence: sequence.max(0, keepdims=True)),
    "softmax": (lambda t, ragged: tl.ops.segment_softmax(t, ragged.offsets), _softmaxed),
    "reverse": (_reverse, _reversed),
    "conv": (_convolve, _convolved),
}


def cases(setup: Setup) -> Cases:
    uniform, heavy = (Ragged(kind, 256, setup.device) for kind in "UX")
    for name, (function, answer) in FUNCTIONS.items():
        for training in (False, True) if name in ("sum", "max") else (False,):
            yield _against_uniform(name, function, answer, uniform, heavy, training)


def _against_uniform(
    name: str, function: Function, answer: Callable, uniform: Ragged, heavy: Ragged, training: bool
) -> Case:
    def run(ragged: Ragged) -> Run:
        grad = ragged.randn(WIDTH, "sequence", 1) if training else None
        return run_on(lambda t: function(t, ragged), ragged.randn(WIDTH), grad)

    def expected() -> tuple[Tensor, ...]:
        rows = exact(heavy.randn(WIDTH))
        out = np.concatenate([answer(s) for s in np.split(rows, heavy.lengths.cumsum()[:-1])])
        if not training:
            return tensors(out)
        spread = heavy.repeat(exact(heavy.randn(WIDTH, "sequence", 1)))
        return tensors(out, spread * (rows == heavy.repeat(out)) if name == "max" else spread)

    return Case(
        name=f"{name}, longest {heavy.longest} of {heavy.rows} rows{', backward too' if training else ''}",
        ours={"the same call, heavy tail": run(heavy)},
        peers={},
        floor=run(uniform).call,
        floor_is=f"ours, lengths uniform in 1..{uniform.longest}",
        expected=expected,
        tolerance=1e-5,
        goals=(of_floor(1.1, "uniform"),),
    )
