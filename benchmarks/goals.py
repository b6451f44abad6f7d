# SPDX-License-Identifier: Apache-2.0
"""What ours should reach, as limits that a measurement meets or misses. They are meant for one thread of a CPU."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch


class Times(NamedTuple):
    """The minima of a case in seconds: one contestant of ours, the floor, and the peers that were timed."""

    ours: float
    floor: float
    peers: dict[str, float]


@dataclass(frozen=True)
class Goal:
    """`reached` is what `limit` limits, None where it cannot be told, since a peer is missing."""

    of: str
    limit: float
    reached: Callable[[Times], float | None]
    unit: str = ""
    at_least: bool = False

    def __str__(self) -> str:
        return f"{'>=' if self.at_least else '<='} {self.limit:.3g}{self.unit} {self.of}".rstrip()

    def meets(self, reached: float) -> bool:
        return reached >= self.limit if self.at_least else reached <= self.limit

    def shown(self, reached: float | None) -> str:
        if reached is None:
            return "no peer"
        return f"{reached:.{3 if reached < 1 else 2 if reached < 100 else 0}f}{self.unit}"


def of_floor(limit: float, floor: str = "floor") -> Goal:
    return Goal(f"of {floor}", limit, lambda times: times.ours / times.floor)


def over_floor(microseconds: float) -> Goal:
    return Goal("over floor", microseconds, lambda times: (times.ours - times.floor) * 1e6, " us")


def within(microseconds: float) -> Goal:
    return Goal("a call", microseconds, lambda times: times.ours * 1e6, " us")


def rate(nanoseconds: float, items: int, item: str) -> Goal:
    return Goal(f"a{'n' * (item[0] in 'aeiou')} {item}", nanoseconds, lambda times: times.ours / items * 1e9, " ns")


def faster_than(factor: float, peer: str = "") -> Goal:
    """Than the fastest of the peers that have these words in their names, so many times."""

    def reached(times: Times) -> float | None:
        theirs = [seconds for name, seconds in times.peers.items() if peer in name]
        return min(theirs) / times.ours if theirs else None

    return Goal(peer or "the best peer", factor, reached, "x", at_least=True)


def avx512() -> bool:
    """Whether our kernels use it: some limits differ."""
    forced = os.environ.get("TORCH_LOD_CPU_CAPABILITY", "avx512")
    return torch.backends.cpu.get_cpu_capability() == "AVX512" and forced == "avx512"
