# SPDX-License-Identifier: Apache-2.0
"""torch.diff with rows before those of a batch of one, as models of transformers look for packed sequences by their positions: the
error says what to write."""

import pytest
import torch

import torch_lod as tl
from torch_lod import LoDError

IDS = torch.arange(11)


@pytest.mark.parametrize(
    "function",
    [
        lambda p: torch.diff(p, prepend=p[:, :1] - 1),
        lambda p: torch.diff(p, prepend=p[:, :1] - 1, dim=-1),
        lambda p: p.diff(append=p[:, -1:]),
        lambda p: p.diff(1, 1, p[:, :1]),
    ],
)
@pytest.mark.parametrize("lengths", [[[4, 2, 5]], [[2, 1], [4, 2, 5]]])
def test_the_error_says_what_to_pass(function, lengths):
    ids = tl.from_lengths(IDS, lengths)
    positions = ids.with_values(ids.lod.position_ids())
    with pytest.raises(LoDError, match=r"attention_mask=torch.ones_like\(ids\)") as caught:
        function(positions[None])
    assert "x - tl.sequence_shift(x, 1)" in str(caught.value)
    steps = positions - tl.sequence_shift(positions, 1)
    alone = [torch.diff(p, prepend=p.new_zeros(1)) for p in positions.values().split(lengths[-1])]
    assert torch.equal(steps.values(), torch.cat(alone))


@pytest.mark.parametrize(
    "function", [lambda p: torch.diff(p), lambda p: torch.diff(p, prepend=torch.zeros(1, 1).long())]
)
def test_other_differences_along_the_length_are_refused_too(function):
    with pytest.raises(LoDError):
        function(tl.from_lengths(IDS, [[4, 2, 5]])[None])


def test_a_mask_of_ones_is_made_of_rows():
    """What the error and docs/porting.md advise, in the way in which transformers uses it."""
    ids = tl.from_lengths(IDS, [[4, 2, 5]])[None]
    mask = torch.ones_like(ids)
    assert mask.rows_dim == 1 and mask.bool().rows_dim == 1
    positions = mask.cumsum(1) - 1
    assert torch.equal(positions.values()[0], ids.lod.position_ids())
