# SPDX-License-Identifier: Apache-2.0
"""Operators whose memory is a product of lengths say how much they needed where there is not enough of it."""

import contextlib
import re
import resource

import pytest
import torch

import torch_lod as tl

pytestmark = pytest.mark.skipif(not tl.ops.COMPILED, reason="compositions allocate by torch, which says it itself")


@contextlib.contextmanager
def memory(more: int):
    """The process may allocate so many bytes more than it has."""
    with open("/proc/self/statm") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + more, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def sequence(n, *element):
    return tl.from_lengths(torch.zeros(n, *element, dtype=torch.float32 if element else torch.int64), [[1, n - 1]])


CALLS = {
    "edit_alignment: expected to allocate memory for an alignment, a byte for each of 40000 x 40000 cells (1.5 GiB) in "
    "sequence 1, got none; the distance alone needs no such matrix": lambda: tl.edit_distance(
        sequence(40_000), sequence(40_000), return_alignment=True
    ),
    "ctc_beam: expected to allocate memory for a beam of 1048576 over 299 rows (7.2 GiB) in sequence 1, got none; make the "
    "beam smaller": lambda: tl.ctc_beam_decode(sequence(300, 3), beam=2**20),
    "ctc_best_path: expected to allocate memory for a lattice of 99999 rows x 9999 labels (up to 29.8 GiB) in sequence 1, "
    "got none; cut it into shorter sequences": lambda: tl.ctc_alignment(
        sequence(100_000, 3), sequence(10_000) + (torch.arange(10_000) % 2 + 1)
    ),
}


@pytest.mark.parametrize("said", CALLS, ids=lambda said: said.partition(":")[0])
def test_the_error_says_what_was_needed(said):
    with memory(2**30), pytest.raises(torch.OutOfMemoryError, match=f"^{re.escape(said)}"):
        CALLS[said]()


def test_a_beam_has_fewer_than_two_to_the_31_prefixes():
    said = "ctc_beam_decode: expected a beam times the rows of a sequence below 2**31, got a beam of 1048576 and 2999 rows "
    with pytest.raises(tl.LoDError, match=re.escape(said + "in sequence 1")):
        tl.ctc_beam_decode(sequence(3000, 3), beam=2**20)
