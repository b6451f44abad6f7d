# SPDX-License-Identifier: Apache-2.0
"""Products of cuBLAS and of torch on a GPU: on the emulated device, which `make test-emulated` builds."""

import pytest
import torch

import torch_lod as tl

D = torch.device("emu", 0)


def test_a_convolution_takes_some_positions_at_a_time():
    """All rows of all windows would be more than the device has."""
    lod = tl.LoD.from_lengths([[700, 0, 324]])
    given = [torch.randn(*shape, dtype=torch.float64) for shape in ((1024, 64), (550, 64, 1), (1,))]
    assert given[0].nbytes * len(given[1]) > 2**28
    found = []
    for device in ("cpu", D):
        leaves = [t.to(device).requires_grad_() for t in given]
        out = tl.ops.segment_conv(*leaves, lod.row_offsets().to(device), -3)
        found.append([out, *torch.autograd.grad(out, leaves, torch.ones_like(out))])
    for want, got in zip(*found):
        torch.testing.assert_close(got.cpu(), want)


def test_a_beam_that_cannot_be_counted_is_refused():
    values, offsets = torch.zeros(2048, 3).to(D), torch.tensor([0, 0, 2048]).to(D)
    with pytest.raises(ValueError, match="below 2\\*\\*31, got a beam of 1048576 and 2048 rows in sequence 1"):
        tl.ops.ctc_beam(values, offsets, 0, 2**20, 1)
