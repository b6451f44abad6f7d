# SPDX-License-Identifier: Apache-2.0
"""Many short sequences of scalars stay fast: no branch depends on a length.

Where the machine counts mispredicted branches, they are counted: a branch at the end of a sequence of random length is
mispredicted most of the time, whatever the processor. Elsewhere what a sequence of scalars takes is compared with one of rows
of 64 columns, where such a branch costs little beside the rows: on AVX-512 a sum takes 0.08 of it, and 0.5 with the branch."""

import contextlib
import ctypes
import os
import platform
import sys
import time

import pytest
import torch

from torch_lod import LoD, ops

pytestmark = pytest.mark.skipif(not ops.COMPILED, reason="how compiled operators take short segments")
OPERATORS = {
    "sum": lambda x, offsets: ops.segment_reduce(x, offsets, "sum"),
    "max": lambda x, offsets: ops.segment_reduce(x, offsets, "max"),
    "softmax": ops.segment_softmax,
}
#: Sequences of scalars, more than a predictor learns by heart, and of wide rows that a cache holds.
MANY, FEW = 100_000, 1_000
#: Mispredicted branches of a sequence, and its time in that of one of wide rows: between those with and without the branch.
MOST_MISSES, MOST_TIME = 0.3, {"sum": 0.15, "max": 0.15, "softmax": 0.1}


class Event(ctypes.Structure):
    """perf_event_attr of Linux, in version 5."""

    _fields_ = [
        *((name, ctypes.c_uint32) for name in ("type", "size")),
        *((name, ctypes.c_uint64) for name in ("config", "period", "sample", "read", "flags")),
        ("rest", ctypes.c_uint64 * 8),
    ]


#: Types and numbers of events (linux/perf_event.h).
HARDWARE, SOFTWARE, MISSES, CLOCK = 0, 1, 5, 1
CALLS = {"x86_64": 298, "aarch64": 241}  # perf_event_open


@contextlib.contextmanager
def counter(kind: int, event: int):
    """A function that reads a counter of this thread outside of the kernel; None where the machine has no such counter."""
    number = CALLS.get(platform.machine()) if sys.platform == "linux" else None
    attr = Event(
        type=kind, size=ctypes.sizeof(Event), config=event, flags=1 << 5 | 1 << 6
    )  # neither kernel nor hypervisor
    file = -1 if number is None else ctypes.CDLL(None).syscall(number, ctypes.byref(attr), 0, -1, -1, 0)
    if file < 0:
        yield None
        return

    def read() -> int:
        return int.from_bytes(os.read(file, 8), sys.byteorder)

    try:
        repr(list(range(10_000)))  # a virtual machine may offer a counter that stands still
        yield read if read() else None
    finally:
        os.close(file)


def sequences(count: int, width: int, dtype=torch.float32) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows of 1 + Poisson(3) a sequence, and their offsets as a LoD has them."""
    g = torch.Generator().manual_seed(0)
    lod = LoD.from_lengths([1 + torch.poisson(torch.full((count,), 3.0), generator=g).long()])
    return (4 * torch.randn(lod.rows, width, generator=g)).to(dtype), lod.row_offsets_at(0)


def least(operator, given, read) -> float:
    """Of a few calls the one that takes least: others may share the machine."""
    operator(*given)
    found = []
    for _ in range(10):
        before = read()
        operator(*given)
        found.append(read() - before)
    return min(found)


def cost(name: str, dtype=torch.float32) -> float:
    """What a short sequence of scalars takes, of what it may take at most."""
    operator, scalars, wide = OPERATORS[name], sequences(MANY, 1, dtype), sequences(FEW, 64)
    with counter(HARDWARE, MISSES) as misses:
        if misses is not None:
            return least(operator, scalars, misses) / MANY / MOST_MISSES
    times = [[least(operator, given, time.thread_time) for given in (scalars, wide)] for _ in range(4)]
    here, beside = map(min, zip(*times))
    return here / MANY / (beside / FEW) / MOST_TIME[name]


@pytest.mark.parametrize("name", OPERATORS)
def test_short_sequences_of_scalars(name):
    assert cost(name) < 1, (
        f"{name}: short sequences cost as much as one after the other; see csrc/torch_lod/segment_short.h"
    )


@pytest.mark.parametrize("name", ["sum", "max"])
def test_a_branch_at_the_end_of_a_sequence_is_seen(name):
    assert cost(name, torch.int64) > 1  # integers are taken one sequence after the other


def test_a_counter_counts():
    with counter(SOFTWARE, CLOCK) as nanoseconds:
        if nanoseconds is None:
            pytest.skip("this machine has no counters")
        before, begin = nanoseconds(), time.thread_time()
        while time.thread_time() < begin + 0.01:
            pass
        assert 1e6 < nanoseconds() - before < 1e9
