# SPDX-License-Identifier: Apache-2.0
"""What errors say to write instead: code for padded batches runs in tl.map_sequences, and what a message names is there and right."""

import pytest
import test_rules_cases as cases
import torch
import torch.nn.functional as F
from torch import nn

import torch_lod as tl

torch.manual_seed(0)
X = tl.from_lengths(torch.randn(6, 4), [[2, 1, 3]])
NESTED = tl.from_lengths(torch.randn(6, 3), [[2, 1], [1, 2, 3]])
IDS = tl.from_lengths(torch.arange(6), [[2, 1, 3]])
MASK = torch.tensor([True, False, True])
C = torch.randn(3, 4)
SPAN = [tl.from_lengths(torch.tensor([i]), [[1, 0]]) for i in (0, 5)]
t = X[None]


@torch.jit.script
def scripted(x: torch.Tensor) -> torch.Tensor:
    return x.tanh()


#: Errors that are about one call, which names what to write.
OF_THE_CALL = """leave the LoD behind | leave its LoD behind | is undefined; see | no offsets with a LoDTensor | see x.unsqueeze(1) | pass dim=-1 | leave dim out
every row a batch of its own"""


@pytest.mark.parametrize("case", cases.listed(cases.REFUSED))
def test_errors_of_rows_name_what_runs_code_for_padded_batches(case):
    with pytest.raises(tl.LoDError) as caught:
        cases.run(case)
    said = str(caught.value)
    assert "tl.map_sequences" in said or any(words in said for words in cases.listed(OF_THE_CALL)), said


#: What a call says.
SAID = {
    # a slice of a batch counts rows
    "nn.LSTM(4, 3)(X[:2])": "got rows 0 to 2 of 6: a slice counts the rows of the whole batch; the first k sequences are x.seq[:k]",
    "nn.LSTM(4, 3, batch_first=True)(X[2:5])": "got rows 2 to 5 of 6: a slice counts",
    "nn.GRU(4, 3)(X[:2])": "x.seq[:k]",
    "nn.MultiheadAttention(4, 2)(X[:2], X[:2], X[:2])": "x.seq[:k]",
    "F.scaled_dot_product_attention(t[:, :2], t[:, :2], t[:, :2])": "x.seq[:k]",
    "nn.Conv1d(4, 3, 2)(X[:2].t())": "x.seq[:k]",
    "tl.nn.LSTM(4, 3)(X[:2])": "x.seq[:k]",
    'tl.sequence_pool(X[:2], "sum")': "x.seq[:k]",
    # what lost its rows
    "t.gather(1, torch.zeros(1, 1, 4, dtype=torch.long)).squeeze(1) + C": "the last rows of the sequences are x.nth(-1)",
    "torch.zeros(3, 4).index_add(0, IDS.values() // 2, X) + X": "to pool sequences: tl.sequence_pool",
    "torch.zeros(3, 4).scatter_add(0, (IDS.values() // 2)[:, None].expand(-1, 4), X) * torch.ones(5, 3, 4)": "tl.map_sequences",
    "(t.mean(1) > 0) & (X > 0)": "no row is padding, so a mask of padding is left out",
    "tl.sequence_expand_as(t.mean(1), X)": "tl.map_sequences",
    # a row for each sequence
    "torch.cat([t, tl.per_sequence(C)[:, None].expand(-1, 6, -1)], -1)": "tl.sequence_expand_as(c, x)",
    "torch.cat([X, tl.per_sequence(C)], -1)": "tl.sequence_expand_as(c, x)",
    "tl.sequence_scan(X, tl.per_sequence(C))": "tl.sequence_expand_as(c, x)",
    # windows, masks, scripted functions
    "F.conv2d(t[None], torch.ones(1, 1, 3, 3))": "results=('resized', layout)",
    "F.conv2d(t, torch.ones(1, 1, 3, 3))": "results=('resized', layout)",
    "F.interpolate(t.mT, scale_factor=2)": "results=('resized', layout)",
    "t * scripted(t)": "what a function of torch.jit made of rows is plain: call it unscripted",
    "t.mT @ torch.eye(6).masked_fill(torch.ones(6, 6).triu(1) > 0, 2) + t.mT": "tl.map_sequences",
    "(X[:, None] * X[:, None]).mT[:, 0].t().masked_fill(torch.ones(4, 6).triu(1) > 0, 0)": "lies along the rows",
    "t[0].t()[:1].expand(6, 6).masked_fill(torch.ones(6, 6).triu(1) > 0, 0)": "as a mask of all pairs of rows it is left out",
    "F.scaled_dot_product_attention(t, t, t, torch.ones(1, 1, 6) > 0)": "a mask of padding is left out",
    # along the rows
    "X.roll(1, 0)": "tl.sequence_roll rolls every sequence",
    "X.diff(dim=0)": "x - tl.sequence_shift(x, 1) is the difference within sequences",
    "F.normalize(X, dim=0)": "x / tl.sequence_expand_as(tl.sequence_pool(x * x, 'sum').sqrt(), x)",
    # operators
    'tl.sequence_pool(IDS, "mean")': "got torch.int64; see x.float()",
    'tl.sequence_pool(IDS, "std")': "got torch.int64; see x.float()",
    "tl.sequence_softmax(IDS)": "see .float()",
    "X.filter(MASK)": "whole sequences are taken with x.seq[mask]",
    "X.filter_rows(MASK)": "whole sequences are taken with x.seq[mask]",
    "NESTED.filter(MASK[:2])": "whole sequences are taken with x.seq[mask]",
    "tl.from_tensors([[1, 2], [3]])": "a nested list of numbers: tl.lod_tensor",
    "NESTED.spans(*SPAN, level=0)": "in sequence 0 of level 0, counting sequences of level 1 and not rows, got 0 and 5",
    "tl.ErrorRate().update(tl.lod_tensor([[[1, 2]], [[3]]]), tl.lod_tensor([[1], [3]]))": "hypotheses.seq[:, 0]",
}  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("code", SAID)
def test_an_error_says_what_to_write(code):
    with pytest.raises((tl.LoDError, RuntimeError)) as caught:
        eval(code, {"torch": torch, **globals()})
    assert SAID[code] in str(caught.value), str(caught.value)


def test_what_they_say_is_right():
    parts = X.values().split([2, 1, 3])
    first, both = nn.LSTM(4, 3), X.seq[:2]
    torch.testing.assert_close(first(both)[0].values(), torch.cat([first(rows)[0] for rows in parts[:2]]))
    found = X / tl.sequence_expand_as(tl.sequence_pool(X * X, "sum").sqrt(), X)
    torch.testing.assert_close(found.values(), torch.cat([F.normalize(rows, dim=0) for rows in parts]))
    found = (X - tl.sequence_shift(X, 1)).seq[:, 1:]
    torch.testing.assert_close(found.values(), torch.cat([rows.diff(dim=0) for rows in parts]))
    torch.testing.assert_close(tl.sequence_roll(X, 1).values(), torch.cat([rows.roll(1, 0) for rows in parts]))
    found = tl.map_sequences(
        lambda x: F.interpolate(x, scale_factor=2), X, layout="channels", results=("resized", "channels")
    )
    torch.testing.assert_close(
        found.values(), torch.cat([F.interpolate(rows.t()[None], scale_factor=2)[0].t() for rows in parts])
    )
    assert X.seq[MASK].lengths().tolist() == [2, 3] and tl.lod_tensor([[1, 2], [3]]).lengths().tolist() == [2, 1]
    mapped = tl.sequence_scan(X, tl.sequence_expand_as(C.abs(), X))
    assert mapped.lod == X.lod


def test_factors_of_float32_beside_half_types():
    a = X.with_values(torch.rand(6, 4))
    for dtype in (torch.float16, torch.bfloat16):
        x = X.to(dtype).requires_grad_()
        found, want = tl.sequence_scan(x, a), tl.sequence_scan(x.float(), a).to(dtype)
        assert found.dtype == dtype and torch.equal(found, want)
        (gradient,) = torch.autograd.grad(found.sum(), x)
        assert gradient.dtype == dtype
        assert torch.equal(
            tl.sequence_scan(x, torch.rand(4, generator=torch.Generator().manual_seed(0))),
            tl.sequence_scan(x.float(), torch.rand(4, generator=torch.Generator().manual_seed(0))).to(dtype),
        )
    with pytest.raises(tl.LoDError, match=r"expected a of torch.float32 .* got torch.float64"):
        tl.sequence_scan(X, a.double())
