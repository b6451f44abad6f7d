# SPDX-License-Identifier: Apache-2.0
"""The words that every group is written in: a case, its contestants, its inputs and its floor."""

import importlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

import torch_lod as tl

from .goals import Goal

Tensors = tuple[Tensor, ...]


@dataclass(frozen=True)
class Setup:
    """What the command line asked for."""

    device: torch.device
    threads: int
    quick: bool


class Run(NamedTuple):
    """What is timed, and how its result becomes tensors that can be compared; that is not timed."""

    call: Callable[[], object]
    answer: Callable[[object], Tensors] = lambda result: result if isinstance(result, tuple) else (result,)


@dataclass
class Case:
    """One thing to compute, and everyone who can.

    `ours`, `peers`: contestants by name; peers compare with the first of ours. `floor`: what any implementation must do
    at least (the same bytes moved, the same products formed), and in words `floor_is`. `expected`: the answer, by plain
    means. `tolerance`: the largest difference allowed, as a part of the largest element expected. `goals`: for each of ours.
    `fact`: more to say about a contestant, from its name and its seconds. `close`: called at the end.
    """

    name: str
    ours: dict[str, Run]
    peers: dict[str, Run]
    floor: Callable[[], object]
    floor_is: str
    expected: Callable[[], Tensors]
    tolerance: float
    goals: tuple[Goal, ...] = ()
    fact: Callable[[str, float], str] = field(default=lambda name, seconds: "")
    close: Callable[[], None] = field(default=lambda: None)


Cases = Iterator[Case]

# ---- inputs


class Ragged:
    """Sequences of rows in every form that a contestant may want, on the device of the setup.

    kind: "U", lengths uniform in 1..100; "X", a heavy tail: log-normal lengths, in all as many rows as "U"; "T", tiny:
    1 and a Poisson number of mean 3. None is empty: not every peer allows that.
    """

    def __init__(self, kind: str, count: int, device: torch.device):
        rng = np.random.default_rng(0)
        lengths = 1 + rng.poisson(3, count) if kind == "T" else rng.integers(1, 101, count)
        if kind == "X":
            share = rng.lognormal(0, 0.8, count)
            rows, lengths = lengths.sum(), np.maximum(1, np.floor(share / share.sum() * lengths.sum())).astype(int)
            lengths[lengths.argmax()] += rows - lengths.sum()
        self.kind, self.count, self.device = kind, count, device
        self.lengths = lengths
        self.rows, self.longest = int(lengths.sum()), int(lengths.max())
        self.lod = tl.LoD.from_lengths([lengths])
        self.offsets = self.lod.row_offsets(0).to(device)
        self.ids, self.position = self.lod.segment_ids(0).to(device), self.lod.position_ids(0).to(device)
        self.lengths_list, self.lengths_column = lengths.tolist(), torch.from_numpy(lengths)[:, None].to(device)
        #: The place of every row in a padded layout (sequences, longest).
        self.places = self.ids * self.longest + self.position

    def randn(self, width: int, per: str = "row", seed: int = 0) -> Tensor:
        """Random rows, one per "row", per "sequence", or per "place" of the padded layout."""
        rows = {"row": self.rows, "sequence": self.count, "place": self.count * self.longest}[per]
        return torch.randn(rows, width, generator=torch.Generator().manual_seed(seed)).to(self.device)

    def reduce(self, ufunc: np.ufunc, rows: np.ndarray) -> np.ndarray:
        """The rows of every sequence reduced by numpy."""
        return ufunc.reduceat(rows, self.lod.row_offsets(0).numpy()[:-1], axis=0)

    def repeat(self, rows: np.ndarray) -> np.ndarray:
        """Every row as often as its sequence is long, by numpy."""
        return np.repeat(rows, self.lengths, axis=0)


def exact(t: Tensor) -> np.ndarray:
    """The elements in float64."""
    return t.detach().cpu().double().numpy()


def tensors(*arrays: np.ndarray) -> Tensors:
    return tuple(torch.from_numpy(np.ascontiguousarray(a)) for a in arrays)


# ---- contestants


def run_on(function: Callable[[Tensor], Tensor], x: Tensor, grad: Tensor | None) -> Run:
    """`function(x)`; with `grad` also its gradient. A LoDTensor stays one."""
    if grad is None:
        return Run(lambda: function(x))
    leaf = x.detach().requires_grad_()

    def call():
        y = function(leaf)
        return (y, *torch.autograd.grad(y, leaf, grad))

    return Run(call)


def plain(t: Tensor) -> Tensor:
    """The rows of a LoDTensor or of a nested tensor."""
    return t.values() if isinstance(t, tl.LoDTensor) or t.is_nested else t


#: Padded peers take part up to so many bytes; larger outputs would time the page faults of fresh memory.
LARGEST_PADDED = 2**25
#: A Python loop over the sequences takes part up to this many.
LONGEST_LOOP = 1000
OPTIONAL = ("fast_ctc_decode", "fbgemm_gpu", "rapidfuzz.distance", "torch_scatter", "torchcrf")


@cache
def optional(name: str) -> object:
    """A library that need not be there: the module, or in words why not."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        return "not installed" if error.name == name else str(error)
    except Exception as error:  # built for another torch: whatever the loader says
        return f"does not load: {str(error).splitlines()[0]:.80}"


def has(name: str) -> bool:
    return not isinstance(optional(name), str)


# ---- floors: what moving the bytes costs, in memory that is there already


def read(x: Tensor) -> Callable[[], object]:
    return lambda: x.sum()


def write(x: Tensor) -> Callable[[], object]:
    out = torch.zeros_like(x)
    return lambda: out.zero_()


def copy(x: Tensor) -> Callable[[], object]:
    out = torch.zeros_like(x)
    return lambda: out.copy_(x)


def both(*parts: Callable[[], object]) -> Callable[[], object]:
    def all_of_them():
        for part in parts:
            part()

    return all_of_them
