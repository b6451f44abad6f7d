# SPDX-License-Identifier: Apache-2.0
"""Attention on a GPU, beside its laws: on the emulated device, which `make test-emulated` builds."""

import pytest
import torch
from emulated_gpu import emulated

import torch_lod as tl

D = torch.device("emu", 0)


def gradients_of_distances(lengths, heads, width, distance, device):
    """Of q, k, v and the table."""
    g = torch.Generator().manual_seed(0)
    lod = tl.LoD.from_lengths([lengths])
    leaves = [torch.randn(lod.rows, heads, width, generator=g) for _ in range(3)]
    leaves = [t.to(device).requires_grad_() for t in [*leaves, torch.randn(heads, 2 * distance + 1, generator=g)]]
    x = tl.sequence_attention(*(tl.LoDTensor(t, lod) for t in leaves[:3]), distance_bias=leaves[3]).values()
    return torch.autograd.grad(x, leaves, torch.linspace(-1, 1, x.numel()).view(x.shape).to(device))


@pytest.mark.parametrize("distance", [0, 1, 16, 500])
def test_no_thread_adds_up_what_is_beyond_the_ends_of_a_table(distance):
    """The entries at its ends stand for most pairs of a long sequence."""
    lengths = [300, 3, 0, 40, 1]
    with emulated.work() as work:
        found = gradients_of_distances(lengths, 2, 3, distance, D)
    for got, want in zip(found, gradients_of_distances(lengths, 2, 3, distance, "cpu")):
        torch.testing.assert_close(got.cpu(), want, rtol=2e-4, atol=2e-4)
    longest = max(most for kernel, (most, _) in work.items() if "Attend" in kernel and "Distance" not in kernel)
    of_tables = [most for kernel, (most, _) in work.items() if "Distance" in kernel]
    assert of_tables and max(of_tables) <= 4 * longest, work


def half_attention(device, turned=False, **options):
    """Rows of attention in bfloat16, and the gradients of q, k and v; turned: rows that a GPU cannot read in words."""
    lods = [tl.LoD.from_lengths([lengths]) for lengths in ([3, 0, 7, 1], [5, 2, 7, 4])]
    g, leaves = torch.Generator().manual_seed(0), []
    for lod, heads in zip((lods[0], lods[1], lods[1]), (4, 2, 2)):
        memory = torch.randn(lod.rows, heads * 16 + turned, generator=g)[:, turned:].to(torch.bfloat16)
        memory = torch.nn.functional.pad(memory, (int(turned), 0)).to(device)
        leaves.append(memory[:, turned:].unflatten(1, (heads, 16)).detach().requires_grad_())
    q, k, v = (tl.LoDTensor(t, lod) for t, lod in zip(leaves, (lods[0], lods[1], lods[1])))
    out = tl.sequence_attention(q, k, v, enable_gqa=True, **options).values()
    grad = torch.linspace(-1, 1, out.numel()).view(out.shape).to(torch.bfloat16).to(device)
    return [out.detach(), *torch.autograd.grad(out, leaves, grad)]


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("options", [{}, {"causal": True}, {"window": (2, 1)}], ids=str)
@pytest.mark.parametrize("capability", ["7.5", "8.0", "9.0"])
def test_half_types_take_torchs_attention_where_it_runs(capability, options, turned, monkeypatch):
    monkeypatch.setenv("EMULATED_CAPABILITY", capability)
    emulated.flash_calls(), emulated.counts()
    found = half_attention(D, turned, **options)
    assert emulated.flash_calls() == ["forward", "backward"] * (capability != "7.5")
    assert ("launch" in emulated.counts()) == (capability == "7.5")
    for got, want in zip(found, half_attention("cpu", turned, **options)):
        torch.testing.assert_close(got.cpu(), want, rtol=3e-2, atol=3e-2)


@pytest.mark.parametrize("marked", [True, False])
def test_a_table_takes_memory_as_far_as_sequences_reach(marked):
    """All of it, for every sequence, would be more than the device has."""
    lod = tl.LoD.from_lengths([[2] * 600])
    cut = lod.row_offsets_at(0, D) if marked else lod.row_offsets().to(D)
    rows, table = torch.randn(1200, 16, 2), torch.randn(16, 8193)
    q, table = rows.to(D).requires_grad_(), table.to(D).requires_grad_()
    out = tl.ops.attention(q, q, q, cut, cut, distance_bias=table)[0]
    (got,) = torch.autograd.grad(out, table, torch.ones_like(out))
    assert got.cpu()[:, 4095:4098].any() and not got.cpu()[:, :4095].any() and not got.cpu()[:, 4098:].any()
