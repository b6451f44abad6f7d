# SPDX-License-Identifier: Apache-2.0
"""Edit distances of long sequences, their alignments, and error rates."""

import math

import pytest
import torch
from reference.edit import aligned

import torch_lod as tl


def drawn(lengths, symbols, seed):
    g = torch.Generator().manual_seed(seed)
    return tl.from_lengths(torch.randint(0, symbols, (sum(lengths),), generator=g), [lengths])


@pytest.mark.parametrize("symbols", [2, 30, 2**60])
def test_blocks_of_bits_equal_the_recursion(symbols):
    a = drawn([1, 63, 64, 65, 127, 128, 129, 190, 3, 0], symbols, 0)
    b = drawn([70, 64, 1, 65, 130, 256, 60, 193, 0, 0], symbols, 1)
    b.values()[70:134] = torch.cat([a.values()[1:64], a.values()[:1]])  # one insertion at the end
    want = [aligned(x.tolist(), y.tolist())[0] for x, y in zip(a.sequences(), b.sequences())]
    assert tl.edit_distance(a, b).tolist() == want == tl.edit_distance(b, a).tolist()
    assert want[1] == 1 and tl.edit_distance(a, a).tolist() == [0] * 10


def test_alignments_have_as_many_edits_as_the_distance():
    a, b = drawn([40, 90, 0, 3], 4, 2), drawn([50, 70, 2, 0], 4, 3)
    distance, of_a, of_b = tl.edit_distance(a, b, return_alignment=True)
    assert torch.equal(distance, tl.edit_distance(a, b)) and of_a.lod is a.lod and of_b.lod is b.lod
    for x, y, p, q, d in zip(a.sequences(), b.sequences(), of_a.sequences(), of_b.sequences(), distance.tolist()):
        pairs = [(i, j) for i, j in enumerate(p.tolist()) if j >= 0]
        assert pairs == sorted(pairs) and [q[j] for _, j in pairs] == [i for i, _ in pairs]
        substituted = sum(int(x[i] != y[j]) for i, j in pairs)
        assert substituted + int((p < 0).sum()) + int((q < 0).sum()) == d


def test_by_the_length_of_the_reference():
    a, b = drawn([2, 0, 3, 0], 5, 4), tl.from_lengths(torch.tensor([9, 9, 9]), [[1, 2, 0, 0]])
    assert tl.edit_distance(a, b, normalized=True).tolist() == [2.0, 1.0, math.inf, 0.0]


def test_error_rates():
    a, b = drawn([4, 7], 3, 5), drawn([5, 6], 3, 6)
    rate = tl.ErrorRate()
    once = rate(a, b)
    assert once == int(tl.edit_distance(a, b).sum()) / 11 == rate.compute()
    rate.update(b, b)
    assert rate.compute() == once / 2 and (rate.errors, rate.length) == (round(once * 11), 22)
    rate.reset()
    assert rate.compute() == 0.0 and rate(a, tl.from_lengths(a.values()[:0], [[0, 0]])) == math.inf
    with pytest.raises(tl.LoDError, match="references as a LoDTensor"):
        rate.update(a, None)
    assert rate.length == 0
    with pytest.raises(tl.LoDError, match="level as a number or a name"):
        tl.ErrorRate(level=None)


def test_threads_change_nothing():
    a, b = drawn([30, 700, 2, 90] * 20, 6, 7), drawn([40, 600, 9, 80] * 20, 6, 8)
    threads, found = torch.get_num_threads(), []
    for n in (1, 2):
        torch.set_num_threads(n)
        found.append(tl.edit_distance(a, b))
    torch.set_num_threads(threads)
    assert torch.equal(*found)
