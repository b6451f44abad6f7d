# SPDX-License-Identifier: Apache-2.0
"""LoD.block_mask: block by block what torch's create_block_mask finds by asking about every pair, and attention by it."""

import itertools
import math

import pytest
import torch
from attended import visible
from settings import EMULATED
from torch.nn.attention.flex_attention import create_block_mask, create_mask, flex_attention

import torch_lod as tl

#: Queries, and keys where they have a LoD of their own.
LODS = {
    "self": ([[3, 0, 2, 7, 1]], None),
    "one": ([[9]], None),
    "blocks exactly": ([[4, 8, 4]], None),
    "nested": ([[2, 0, 3], [3, 0, 2, 7, 1]], None),
    "other lengths": ([[3, 0, 2, 7, 1]], [[4, 2, 0, 5, 3]]),
    "nested, other lengths": ([[2, 0, 3], [3, 0, 2, 7, 1]], [[2, 1, 1], [6, 0, 1, 2]]),
    "more keys": ([[1, 2, 1]], [[20, 0, 9]]),
    "fewer keys": ([[20, 5, 9]], [[2, 1, 4]]),
    "many short": ([[1] * 30], None),
    "empty": ([[0, 0]], None),
    "no sequences": ([[]], [[]]),
    "no queries": ([[0, 0]], [[2, 3]]),
    "no keys": ([[2, 3]], [[0, 0]]),
}
WINDOWS = (None, (2, 1), (0, 0), 3, (1, -1), (-1, 2), (2**40, 2**40))
PARTS = ("kv_num_blocks", "kv_indices", "full_kv_num_blocks", "full_kv_indices")
PARTS += ("q_num_blocks", "q_indices", "full_q_num_blocks", "full_q_indices")


def lods(name):
    queries, keys = (None if lengths is None else tl.LoD.from_lengths(lengths) for lengths in LODS[name])
    return queries, keys, [0, -1] if "nested" in name and name != "nested, other lengths" else [0]


def seen(queries, keys, level, causal, window):
    """bool, (queries, keys): the definition, sequence by sequence."""
    keys = queries if keys is None else keys
    found = torch.zeros(queries.rows, keys.rows, dtype=torch.bool)
    pairs = zip(*(itertools.pairwise(of.row_offsets(level).tolist()) for of in (queries, keys)), strict=True)
    window = (window, window) if isinstance(window, int) else window
    for (a, b), (c, d) in pairs:
        found[a:b, c:d] = visible(b - a, d - c, causal, window)
    return found


@pytest.mark.parametrize("window", WINDOWS, ids=str)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", LODS)
def test_equals_create_block_mask(name, causal, window):
    queries, keys, levels = lods(name)
    for level in levels:
        dense = seen(queries, keys, level, causal, window)
        for size in (1, 3, 4, 16):
            got = queries.block_mask(keys, level=level, causal=causal, window=window, block_size=size)
            asked = (lambda b, h, i, j, t=dense: t[i, j]) if dense.numel() else lambda b, h, i, j: i < j - j
            want = create_block_mask(asked, None, None, *dense.shape, "cpu", size)
            assert got.seq_lengths == want.seq_lengths and got.BLOCK_SIZE == want.BLOCK_SIZE
            for part in PARTS:
                a, b = getattr(got, part), getattr(want, part)
                assert torch.equal(a, b) and a.dtype == b.dtype, (size, part)
            if dense.numel():
                assert torch.equal(create_mask(got.mask_mod, 1, 1, *dense.shape, device="cpu")[0, 0], dense)


def by_blocks(q, k, v, mask):
    """What FlexAttention computes of a BlockMask: full blocks without asking mask_mod, partial ones with, no others."""
    (rows, keys), (size, _) = mask.seq_lengths, mask.BLOCK_SIZE
    asked = create_mask(mask.mask_mod, 1, 1, rows, keys, device="cpu")[0, 0]
    found = torch.zeros(rows, keys, dtype=torch.bool)
    kinds = ((mask.kv_num_blocks, mask.kv_indices, asked), (mask.full_kv_num_blocks, mask.full_kv_indices, ~found))
    for counts, columns, of in kinds:
        for i, count in enumerate(counts[0, 0].tolist()):
            for j in columns[0, 0, i, :count].tolist():
                block = slice(i * size, (i + 1) * size), slice(j * size, (j + 1) * size)
                found[block] = of[block]
    x = torch.einsum("ihd,jhd->hij", q, k).mul(q.shape[2] ** -0.5).masked_fill(~found, -math.inf)
    nothing = ~found.any(1)[:, None]
    weights = x.masked_fill(nothing, 0).softmax(2).masked_fill(nothing, 0)
    return torch.einsum("hij,jhd->ihd", weights, v)


OPTIONS = [{}, {"causal": True}, {"causal": True, "window": 3}, {"window": (2, 1)}]


def batch(queries, keys, dtype=torch.float64, width=8):
    keys = queries if keys is None else keys
    return [torch.randn(of.rows, 2, width, dtype=dtype) for of in (queries, keys, keys)]


def by_ours(queries, keys, rows, **options):
    keys = queries if keys is None else keys
    q, k, v = (tl.LoDTensor(t, of) for t, of in zip(rows, (queries, keys, keys)))
    return tl.sequence_attention(q, k, v, **options).values()


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("name", ["self", "nested", "other lengths", "more keys", "fewer keys"])
def test_attention_by_it_is_sequence_attention(name, options):
    queries, keys, levels = lods(name)
    for level in levels:
        leaves = [t.requires_grad_() for t in batch(queries, keys)]
        got = by_blocks(*leaves, queries.block_mask(keys, level=level, block_size=4, **options))
        want = by_ours(queries, keys, leaves, level=level, **options)
        torch.testing.assert_close(got, want)
        weights = torch.linspace(-1, 1, got.numel(), dtype=got.dtype).view(got.shape)
        for a, b in zip(*(torch.autograd.grad(out, leaves, weights) for out in (got, want)), strict=True):
            torch.testing.assert_close(a, b)


def flex(rows, mask, call=flex_attention):
    q, k, v = (t.transpose(0, 1)[None] for t in rows)
    return call(q, k, v, block_mask=mask)[0].transpose(0, 1)


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("name", ["self", "other lengths", "fewer keys"])
def test_flex_attention_takes_it(name, options):
    queries, keys, _ = lods(name)
    rows = batch(queries, keys)
    got = flex(rows, queries.block_mask(keys, block_size=16, **options))
    torch.testing.assert_close(got, by_ours(queries, keys, rows, **options))


def test_flex_attention_under_inductor():
    """Compiled once: other lengths, of as many rows, are other tensors of the same mask."""
    compiled = torch.compile(flex_attention)
    torch._dynamo.utils.counters.clear()
    for lengths in ([300, 0, 200, 1], [1, 250, 30, 220]):
        lod = tl.LoD.from_lengths([lengths])
        rows = batch(lod, None, torch.float32, 16)
        with torch.no_grad():
            got = flex(rows, lod.block_mask(causal=True, window=70), compiled)
        torch.testing.assert_close(got, by_ours(lod, None, rows, causal=True, window=70), rtol=1e-4, atol=1e-5)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1


def test_on_a_device(device):
    queries, keys, _ = lods("other lengths")
    want = queries.block_mask(keys, causal=True, block_size=4)
    got = queries.block_mask(keys, causal=True, block_size=4, device=device)
    if EMULATED:  # the second time, which finds what was uploaded
        from emulated_gpu import emulated

        emulated.counts()
        queries.block_mask(keys, causal=True, block_size=4, device=device)
        assert not any(what.startswith(("sync", "upload")) for what in emulated.counts())
    for part in PARTS:
        assert getattr(got, part).device.type == torch.device(device).type
        assert torch.equal(getattr(got, part).cpu(), getattr(want, part))


LOD = tl.LoD.from_lengths([[2, 1]], level_names=("sentence",))


@pytest.mark.parametrize(
    ("call", "error", "said"),
    [
        (lambda: LOD.block_mask(3), TypeError, "block_mask: expected keys as a LoD or None, got 3"),
        (lambda: LOD.block_mask(tl.from_lengths(torch.zeros(2), [[1, 1]])), TypeError, "pass its .lod"),
        (lambda: LOD.block_mask(tl.LoD.from_lengths([[3]])), ValueError, "sequences of keys .* at the level, 2, got 1"),
        (lambda: LOD.block_mask(level=1), IndexError, "level"),
        (lambda: LOD.block_mask(level="word"), IndexError, "word"),
        (lambda: LOD.block_mask(causal=1), TypeError, "expected causal as a bool, got 1"),
        (lambda: LOD.block_mask(window=-2), ValueError, "expected window as a number of keys"),
        (lambda: LOD.block_mask(block_size=0), ValueError, r"expected block_size in \[1, 2\*\*31\), got 0"),
    ],
)
def test_errors(call, error, said):
    with pytest.raises(error, match=said):
        call()
