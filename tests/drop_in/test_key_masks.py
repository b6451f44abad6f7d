# SPDX-License-Identifier: Apache-2.0
"""Masks of keys that were made of rows, in scaled_dot_product_attention: every sequence gets its own columns. Other masks made of
rows are refused."""

import pytest
import torch
from torch.nn import functional as F

import torch_lod as tl
from torch_lod import LoDError

LODS = [[[4, 2, 5]], [[2, 1], [4, 2, 5]], [[11]], [[0, 6, 5, 0]]]
SLOPES = torch.nn.Parameter(torch.tensor([1.0, 2.0]))
IDS = torch.tensor([1, 2, 0, 3, 4, 5, 6, 0, 7, 8, 9])


def bert(keep, n):
    """The mask that BERT of transformers 4.44 makes (AttentionMaskConverter._expand_mask)."""
    expanded = keep.float()[:, None, None, :].expand(1, 1, n, n)
    inverted = 1.0 - expanded
    return inverted.masked_fill(inverted.to(torch.bool), torch.finfo(torch.float32).min)


MASKS = {
    "bool": lambda keep, n: keep[:, None, None, :],
    "expanded": lambda keep, n: keep[:, None, None, :].expand(1, 1, n, n),
    "repeated": lambda keep, n: keep[:, None, None, :].repeat(1, 1, n, 1),
    "a bias": lambda keep, n: keep.float().log()[:, None, None, :],
    "by head": lambda keep, n: keep.float()[:, None, None, :] * SLOPES[:, None, None],
    "bert": bert,
    "three dims": lambda keep, n: keep[:, None, :],
    "two dims": lambda keep, n: keep,
}


def heads(x):
    return x.view(1, x.shape[1], 2, 4).transpose(1, 2)


def attended(t, keep, mask):
    q = heads(t)
    return F.scaled_dot_product_attention(q, q.flip(-1), q * 2, attn_mask=MASKS[mask](keep, t.shape[1]))


@pytest.mark.parametrize("lengths", LODS, ids=str)
@pytest.mark.parametrize("mask", MASKS)
def test_every_sequence_has_its_own_columns(mask, lengths):
    torch.manual_seed(0)
    rows = torch.randn(11, 8, requires_grad=True)
    x, ids = tl.from_lengths(rows, lengths), tl.from_lengths(IDS, lengths)
    result = attended(x[None], ids.ne(0)[None], mask)
    parts = zip(rows.split(lengths[-1]), IDS.split(lengths[-1]))
    alone = torch.cat([attended(r[None], i.ne(0)[None], mask) for r, i in parts if len(r)], 2)
    assert result.rows_dim == 2 and result.lod == x.lod
    torch.testing.assert_close(result.values(), alone)
    weights = torch.rand_like(alone)
    for a, b in zip(*(torch.autograd.grad((t * weights).sum(), [rows]) for t in (result.values(), alone))):
        torch.testing.assert_close(a, b)


def test_a_bias_of_keys_has_a_gradient():
    torch.manual_seed(0)
    values, x = torch.randn(11, requires_grad=True), tl.from_lengths(torch.randn(11, 8), [[4, 2, 5]])
    bias = tl.LoDTensor(values, x.lod)
    q = heads(x[None])
    found = F.scaled_dot_product_attention(q, q, q, attn_mask=bias[None, None, None]).values()
    parts = [heads(r[None]) for r in x.sequences()]
    alone = torch.cat(
        [
            F.scaled_dot_product_attention(p, p, p, attn_mask=b[None, None, None])
            for p, b in zip(parts, values.split([4, 2, 5]))
        ],
        2,
    )
    weights = torch.rand_like(alone)
    torch.testing.assert_close(*(torch.autograd.grad((t * weights).sum(), values)[0] for t in (found, alone)))


def refused():
    x, ids = tl.from_lengths(torch.randn(11, 8), [[4, 2, 5]]), tl.from_lengths(IDS, [[4, 2, 5]])
    n, q, keep = 11, heads(x[None]), ids.ne(0)[None]
    other = tl.from_lengths(IDS, [[4, 3, 4]]).ne(0)[None]
    return q, {
        "by distance": (q @ torch.randn(20, 4)[:n].t(), "at dim 2 of"),
        "of queries": (keep[:, None, :, None], "at dim 2 of"),
        "differs by query": (keep[:, None, None, :].float() + torch.randn(n, 1), "the same for every query"),
        "of other sequences": (other[:, None, None, :], "LoDs that differ"),
        "a part": (keep[:, None, None, :5], "."),
        "lost": (keep.float().mean(1)[:, None, None].expand(1, 1, n, n), "became in mean"),
        "of four heads": (keep[:, None, None, :].float() * torch.ones(4, 1, 1), "for 1 or 2 heads"),
    }


@pytest.mark.parametrize("name", refused()[1])
def test_other_masks_of_rows_are_refused(name):
    torch.manual_seed(0)
    q, masks = refused()
    mask, said = masks[name]
    with pytest.raises(LoDError, match=said):
        F.scaled_dot_product_attention(q, q, q, attn_mask=mask)


def test_plain_masks_are_tables_of_positions_as_before():
    x = tl.from_lengths(torch.randn(11, 8), [[4, 2, 5]])
    q, mask = heads(x[None]), torch.randn(5, 5)
    found = F.scaled_dot_product_attention(q, q, q, attn_mask=mask).values()
    parts = [heads(r[None]) for r in x.sequences()]
    alone = [F.scaled_dot_product_attention(p, p, p, attn_mask=mask[: p.shape[2], : p.shape[2]]) for p in parts]
    torch.testing.assert_close(found, torch.cat(alone, 2))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("mask", ["bool", "bert"])
def test_compiled(mask, backend):
    torch._dynamo.reset()
    x, ids = tl.from_lengths(torch.randn(11, 8), [[4, 2, 5]]), tl.from_lengths(IDS, [[4, 2, 5]])
    of = MASKS[mask]

    def program(x, ids):
        t = x[None]
        q = t.view(1, t.shape[1], 2, 4).transpose(1, 2)
        return F.scaled_dot_product_attention(q, q, q, attn_mask=of(ids.ne(0)[None], t.shape[1]))

    found = torch.compile(program, backend=backend)(x, ids)
    torch.testing.assert_close(found.values(), program(x, ids).values())
