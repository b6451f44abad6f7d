# SPDX-License-Identifier: Apache-2.0
"""Masks with an entry for every pair of rows of the batch: right as a causal mask, refused where they say what is packed."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import torch_lod as tl
from torch_lod.errors import LoDError, LoDValueError

LENGTHS = [3, 1, 5, 3]
ADVICE = r"leave out a mask that keeps sequences apart, or pass attn_mask\[:5, :5\]"


def batch(lengths=LENGTHS, width=8):
    return tl.from_lengths(torch.randn(sum(lengths), width), [lengths])


def packed(x, fill=None):
    """True, or `fill`, where a query and a key are of different sequences."""
    ids = x.lod.segment_ids()
    apart = ids[:, None] != ids[None]
    return apart if fill is None else torch.zeros(apart.shape).masked_fill(apart, fill)


def layer():
    return nn.TransformerEncoderLayer(8, 2, dropout=0.0, batch_first=True)


CALLS = {
    "sdpa": lambda x, mask: F.scaled_dot_product_attention(
        x, x, x, attn_mask=mask if mask.is_floating_point() else ~mask
    ),
    "sdpa, (1, 1, rows)": lambda x, mask: F.scaled_dot_product_attention(
        *[x[None, None]] * 3, attn_mask=mask if mask.is_floating_point() else ~mask
    ),
    "MultiheadAttention": lambda x, mask: nn.MultiheadAttention(8, 2, batch_first=True)(x, x, x, attn_mask=mask)[0],
    "encoder": lambda x, mask: layer()(x, src_mask=mask),
    "decoder": lambda x, mask: nn.TransformerDecoderLayer(8, 2, batch_first=True)(x, x, memory_mask=mask),
}


@pytest.mark.parametrize("fill", [None, float("-inf")])
@pytest.mark.parametrize("call", CALLS)
def test_a_mask_of_packed_rows_is_refused(call, fill):
    x = batch()
    with pytest.raises(LoDValueError, match=ADVICE):
        CALLS[call](x, packed(x, fill))


def test_a_mask_of_packed_rows_is_refused_in_a_graph():
    x = batch()
    compiled = torch.compile(CALLS["sdpa"], backend="aot_eager", fullgraph=True)
    with pytest.raises(RuntimeError, match="by the positions within a sequence"):
        compiled(x, packed(x))


@pytest.mark.parametrize("lengths", [[4, 4, 4], [5], [0, 7, 0]])
def test_a_mask_of_packed_rows_that_says_the_same_of_positions_is_taken(lengths):
    x = batch(lengths)
    torch.testing.assert_close(CALLS["sdpa"](x, packed(x)), F.scaled_dot_product_attention(x, x, x))


def test_a_causal_mask_as_large_as_all_rows_is_taken():
    x, rows = batch(), sum(LENGTHS)
    for mask in (torch.ones(rows, rows).triu(1).bool(), nn.Transformer.generate_square_subsequent_mask(rows)):
        expected = F.scaled_dot_product_attention(x, x, x, is_causal=True)
        torch.testing.assert_close(CALLS["sdpa"](x, mask), expected)


def test_targets_of_rows_refuse_scores_that_lost_them():
    x = batch()
    y, head = x.with_values(torch.randint(0, 5, (x.lod.rows,))), nn.Linear(8, 5)
    order = torch.randperm(x.lod.rows)
    lost = {
        "getitem": lambda: head(x[order]),
        "view": lambda: head(x.view(6, 16).view(12, 8)),
        "cat": lambda: head(torch.cat([torch.zeros(1, 8), x[:-1]])),
    }
    for name, scores in lost.items():
        for loss in (
            F.cross_entropy,
            nn.CrossEntropyLoss(reduction="none"),
            lambda s, t: F.nll_loss(s.log_softmax(-1), t),
        ):
            with pytest.raises(LoDValueError, match=f"rows correspond, got what a LoDTensor became in {name}"):
                loss(scores(), y)
    torch.testing.assert_close(F.cross_entropy(head(x), y), F.cross_entropy(head(x.values()), y.values()))
    torch.testing.assert_close(F.cross_entropy(torch.ones(12, 5), y), torch.tensor(5.0).log())


def test_the_level_of_rows_per_sequence_is_named():
    x = tl.from_lengths(torch.ones(6, 3), [[2, 1], [1, 2, 3]])
    c = torch.tensor([[1.0], [2.0]])
    for call in (lambda: x + c, lambda: x + tl.per_sequence(c), lambda: x + c[:, None]):
        with pytest.raises((ValueError, RuntimeError), match=r"tl\.per_sequence\((c|operand), 0\)"):
            call()
    assert (x + tl.per_sequence(c, 0)).values()[:, 0].tolist() == [2, 2, 2, 3, 3, 3]


def test_parts_without_the_other_end_are_named():
    x = tl.from_lengths(torch.arange(6.0), [[2, 1], [1, 2, 3]])
    with pytest.raises(LoDValueError, match=r"got -1; without rows at the other end: x\.seq\[:, :, :-1\]"):
        x.head(-1)
    with pytest.raises(LoDValueError, match=r"x\.seq\[:, 1:\]"):
        x.tail(-1, level=0)
    assert x.seq[:, :, :-1].to_list() == [[[], [1.0]], [[3.0, 4.0]]]
    assert x.seq[:, 1:].to_list() == [[[1.0, 2.0]], []]
    with pytest.raises(IndexError, match=r"all but the last x\.seq\[:, :, :-1\]"):
        x[:, :-1]


def test_strict_follows_methods_that_torch_has_in_python():
    with tl.strict():
        x = batch()
        for call in (lambda: x.unflatten(0, (4, -1)), lambda: x / x.norm(), lambda: x.unique()):
            with pytest.raises(LoDError, match="expected"):
                call()
