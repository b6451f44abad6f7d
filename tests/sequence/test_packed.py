# SPDX-License-Identifier: Apache-2.0
"""PackedSequence: the same as torch packs, in memory linear in rows and sequences."""

import pytest
import torch
from torch.nn.utils.rnn import PackedSequence, pack_sequence
from torch.utils._python_dispatch import TorchDispatchMode

import torch_lod as tl


class Largest(TorchDispatchMode):
    """The numbers of the largest tensor that an operator makes."""

    numel = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for t in out if isinstance(out, (list, tuple)) else [out]:
            if isinstance(t, torch.Tensor):
                self.numel = max(self.numel, t.numel())
        return out


@pytest.mark.parametrize("lengths", [[1], [4], [2, 2], [1, 3, 2], [5, 1, 1, 4, 5], [1, 1, 1, 9]])
def test_equals_what_torch_packs(lengths):
    rows = torch.arange(sum(lengths) * 2.0).view(-1, 2).requires_grad_()
    found = tl.from_lengths(rows, [lengths]).to_packed_sequence()
    wanted = pack_sequence(rows.split(lengths), enforce_sorted=False)
    for got, want in zip(found, wanted):
        assert got.dtype == want.dtype and torch.equal(got, want)
    back = tl.from_packed_sequence(wanted)
    assert back.lod.to_lengths() == [lengths] and torch.equal(back.values(), rows)
    ordered = PackedSequence(wanted.data, wanted.batch_sizes)  # without sorted_indices the longest comes first
    assert tl.from_packed_sequence(ordered).lod.to_lengths() == [sorted(lengths, reverse=True)]
    slope = torch.arange(float(rows.numel())).view_as(rows)
    (grad,) = torch.autograd.grad(tl.from_packed_sequence(found).values(), rows, slope)
    assert torch.equal(grad, slope)


def test_one_long_sequence_and_many_short_ones():
    n = 300
    x = tl.from_lengths(torch.arange(2 * n), [[n] + [1] * n])
    with Largest() as made:
        packed = x.to_packed_sequence()
    assert made.numel <= 4 * n
    with Largest() as made:
        back = tl.from_packed_sequence(packed)
    assert made.numel <= 4 * n
    assert torch.equal(back.values(), x.values()) and back.lod == x.lod
    assert packed.batch_sizes.tolist() == [n + 1] + [1] * (n - 1)


def test_the_steps_of_a_rank_table():
    n = 300
    x = tl.from_lengths(torch.arange(2.0 * n)[:, None], [[1] * n + [n]])
    with Largest() as made:
        rows, sizes = tl.lod_rank_table(x).steps()
    assert made.numel <= 4 * n
    assert sizes == [n + 1] + [1] * (n - 1)
    assert rows.tolist() == [n, *range(n), *range(n + 1, 2 * n)]
