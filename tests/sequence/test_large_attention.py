# SPDX-License-Identifier: Apache-2.0
"""Attention of so many rows that torch's memory-efficient kernel takes it on a GPU: what goes there, with which arguments,
and that the result is ours. On the CPU the same calls run in blocks."""

import pytest
import torch
from settings import EMULATED

import torch_lod as tl

HEADS, WIDTH = 8, 64
#: Lengths of queries and keys.
SELF = [512, 30, 0, 70, 1]
FEWER = [300, 30, 0, 70, 1], [512, 45, 0, 70, 9]
MORE = FEWER[::-1]
NO_KEYS = [300, 30, 5], [512, 45, 0]
NO_QUERIES = [300, 0, 30], [512, 9, 45]
#: Queries, keys (None: the LoD of the queries), options, and what torch's kernel is called with; None where ours runs.
CALLS = {
    "self": (SELF, None, {}, "mask 0"),
    "causal": (SELF, None, {"causal": True}, "mask 1"),
    "causal, scaled": (SELF, None, {"causal": True, "scale": 0.3}, "mask 1"),
    "one sequence": ([700], None, {"causal": True}, "mask 1"),
    "window": (SELF, None, {"causal": True, "window": 20}, "mask 1 window"),
    "window of one key": (SELF, None, {"causal": True, "window": (0, 0)}, "mask 1 window"),
    "window that hides one key": (SELF, None, {"window": (510, 0)}, "mask 1 window"),
    "window that hides none": (SELF, None, {"window": (511, 0)}, "mask 1"),
    "window of all before": (SELF, None, {"window": (2**40, -1)}, "mask 0"),
    "equal lengths": (SELF, SELF, {"causal": True, "window": (7, 0)}, "mask 1 window"),
    "fewer queries": (*FEWER, {}, "mask 0"),
    "fewer queries, causal": (*FEWER, {"causal": True}, "mask 2"),
    "fewer queries, wide window": (*FEWER, {"causal": True, "window": 600}, "mask 2"),
    "more queries": (*MORE, {}, "mask 0"),
    "a few queries each": ([16] * 10, [820] * 10, {"causal": True}, "mask 2"),
    "both sides of a window": (SELF, None, {"window": 20}, None),
    "window without a mask": (SELF, None, {"window": (20, -1)}, None),
    "some keys after": (SELF, None, {"window": (-1, 2)}, None),
    "fewer queries, window": (*FEWER, {"causal": True, "window": 20}, None),
    "more queries, causal": (*MORE, {"causal": True}, None),
    "queries without keys": (*NO_KEYS, {}, None),
    "queries without keys, causal": (*NO_KEYS, {"causal": True}, None),
    "keys without queries": (*NO_QUERIES, {}, None),
    "keys without queries, causal": (*NO_QUERIES, {"causal": True}, None),
}


def batches(queries, keys, heads=(HEADS, HEADS), width=WIDTH, dtype=torch.float32):
    g = torch.Generator().manual_seed(0)
    lod = tl.LoD.from_lengths([queries])
    other = lod if keys is None else tl.LoD.from_lengths([keys])
    sizes = (lod, heads[0], WIDTH), (other, heads[1], WIDTH), (other, heads[1], width)
    return [tl.LoDTensor(torch.randn(of.rows, h, w, generator=g).to(dtype), of) for of, h, w in sizes]


def routed() -> list[str]:
    """What torch's kernel was called with since the last time, on the emulated device."""
    from emulated_gpu import emulated

    name = "op aten::_efficient_attention_"
    return sorted(what.removeprefix(name) for what in emulated.counts() if what.startswith(name))


def gradients(batch, options, device=None, level=-1):
    leaves = [x.values().to(device).requires_grad_() for x in batch]
    out = tl.sequence_attention(*(tl.LoDTensor(t, x.lod) for t, x in zip(leaves, batch)), level=level, **options)
    weights = torch.linspace(-1, 1, out.values().numel(), dtype=torch.float64).view(out.shape)
    found = torch.autograd.grad(out.values(), leaves, weights.to(leaves[0]))
    return [t.cpu() for t in (out.values().detach(), *found)]


def agree(got, want):
    for a, b in zip(got, want, strict=True):
        torch.testing.assert_close(a, b.to(a.dtype), rtol=1e-4, atol=1e-5)


#: Names of calls, and the width of their values.
WIDTHS = [*((name, WIDTH) for name in CALLS), *((name, 20) for name in ("window", "fewer queries, causal"))]


@pytest.mark.parametrize(("name", "width"), WIDTHS)
def test_equals_float64_in_host_memory(name, width, device):
    queries, keys, options, expected = CALLS[name]
    batch = batches(queries, keys, width=width)
    if EMULATED:
        routed()
    got = gradients(batch, options, device)
    if EMULATED:
        assert routed() == ([f"backward {expected}", f"forward {expected}"] if expected else [])
    agree(got, gradients([x.with_values(x.values().double()) for x in batch], options))


def test_an_outer_level(device):
    lod, inner = [[2, 3], [300, 212, 30, 0, 70]], [[2, 3], [500, 100, 0, 60, 40]]
    batch = [tl.LoDTensor(torch.randn(sum(of[1]), HEADS, WIDTH), tl.LoD.from_lengths(of)) for of in (lod, inner, inner)]
    for level, expected in ((0, "mask 0"), (1, None)):
        got = gradients(batch, {}, device, level=level)
        if EMULATED:
            assert routed() == ([f"backward {expected}", f"forward {expected}"] if expected else [])
        agree(got, gradients([x.with_values(x.values().double()) for x in batch], {}, level=level))


def test_parts_of_one_projection(device):
    """Rows of queries, keys and values next to one another, as a product of one weight leaves them."""
    lod = tl.LoD.from_lengths([SELF])
    joined = torch.randn(lod.rows, 3, HEADS, WIDTH)
    there = joined.to(device)
    got = tl.sequence_attention(*(tl.LoDTensor(t, lod) for t in there.unbind(1)), causal=True)
    if EMULATED:
        assert routed() == ["forward mask 1"]
    want = tl.sequence_attention(*(tl.LoDTensor(t.double(), lod) for t in joined.unbind(1)), causal=True)
    agree([got.values().cpu()], [want.values()])


def test_sums_of_exponentials(device):
    q, k, v = batches(*FEWER)
    cuts = [x.lod.row_offsets_at(0, torch.device(device)) for x in (q, k)]
    got = tl.ops.attention(*(x.values().to(device) for x in (q, k, v)), *cuts, right=0)
    want = tl.ops.attention(
        *(x.values().double() for x in (q, k, v)), *(x.lod.row_offsets_at(0) for x in (q, k)), right=0
    )
    agree([t.cpu() for t in got], want)


OURS = {
    "float64": ({}, {"dtype": torch.float64}),
    "half types": ({}, {"dtype": torch.float16}),
    "fewer heads of keys": ({"enable_gqa": True}, {"heads": (8, 2)}),
    "a width of 22": ({}, {"width": 22}),
    "alibi": ({"alibi": True}, {}),
    "softcap": ({"softcap": 2.0}, {}),
    "sink": ({"sink": torch.zeros(HEADS)}, {}),
    "distance_bias": ({"distance_bias": torch.zeros(HEADS, 3)}, {}),
    "prefix": ({"prefix": 2}, {}),
}


@pytest.mark.skipif(not EMULATED, reason="counts what a device is asked to do")
@pytest.mark.parametrize("name", OURS)
def test_what_torchs_kernel_does_not_know_runs_in_ours(name, device):
    options, of = OURS[name]
    batch = [x.to(device) for x in batches(SELF, None, **of)]
    routed()
    tl.sequence_attention(*batch, **{k: v.to(device) if isinstance(v, torch.Tensor) else v for k, v in options.items()})
    assert routed() == []


@pytest.mark.skipif(not EMULATED, reason="counts what a device is asked to do")
def test_dropout_and_unknown_lengths_run_in_ours(device):
    q, k, v = (x.to(device) for x in batches(SELF, None))
    layer = tl.nn.MultiheadAttention(HEADS * WIDTH, HEADS, dropout=0.5).to(device)
    x = q.with_values(q.values().flatten(1))
    routed()
    layer(x, x, x)
    assert routed() == []
    layer.eval()(x, x, x)
    assert routed() == ["forward mask 0"]
    cuts = torch.tensor([0, *torch.tensor(SELF).cumsum(0).tolist()]).to(device)  # of no LoD
    tl.ops.attention(q.values(), k.values(), v.values(), cuts, cuts)
    assert routed() == []
