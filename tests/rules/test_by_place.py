# SPDX-License-Identifier: Apache-2.0
"""What reads or mixes rows by their place in the batch, in other words than an index: right, lost or refused."""

import pytest
import torch
import torch.nn.functional as F

import torch_lod as tl
from torch_lod import LoDError, LoDTensor
from torch_lod.tensor.derived import DerivedTensor

ROWS = torch.randn(11, 8, generator=torch.Generator().manual_seed(2))
IDS = torch.arange(22).view(11, 2) % 5
TABLE = torch.randn(20, 5, generator=torch.Generator().manual_seed(3))


def batch(rows=ROWS) -> LoDTensor:
    return tl.from_lengths(rows.clone(), [[4, 2, 5]])


REFUSED = {
    "gather of a table of positions": lambda x, ids: TABLE.gather(1, ids),
    "take_along_dim of a table of positions": lambda x, ids: torch.take_along_dim(TABLE, ids, 1),
    "gather in some rows": lambda x, ids: x.gather(1, IDS[:5]),
    "scatter in some rows": lambda x, ids: x.scatter(1, IDS[:5], 0.0),
    "scatter of a table of positions": lambda x, ids: x.scatter(1, ids, TABLE[:, :2]),
    "scatter_add in the first row": lambda x, ids: x.scatter_add(1, IDS[:1], TABLE[:1, :2]),
    "gather at another dim": lambda x, ids: TABLE[None].gather(2, ids[None]),
    "a number for each sample of vmap": lambda x, ids: torch.vmap(lambda row: row - row.mean())(x.t()),
    "its largest": lambda x, ids: torch.vmap(lambda row: row / row.max())(x.t()).t(),
    "set_": lambda x, ids: x.t().set_(x.values().t().flip(1)),
    "_foreach of a part": lambda x, ids: torch._foreach_add_([x[:2]], 1),
    "_foreach of a row": lambda x, ids: torch._foreach_zero_([x[0]]),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    x = batch()
    with pytest.raises(LoDError):
        REFUSED[name](x, batch(IDS))
    assert torch.equal(x.values(), ROWS)


RIGHT = {
    "gather of rows": lambda x, ids: x.gather(1, ids),
    "gather, plain ids of every row": lambda x, ids: x.gather(1, ids.values()),
    "take_along_dim of rows": lambda x, ids: torch.take_along_dim(x, ids, 1),
    "take_along_dim of one row for all": lambda x, ids: torch.take_along_dim(TABLE[:1], ids, 1),
    "scatter of every row": lambda x, ids: x.scatter(1, ids, 0.0),
    "samples of vmap": lambda x, ids: torch.vmap(lambda row: row * 2 + 1)(x.t()).t(),
    "_foreach": lambda x, ids: torch._foreach_mul([x], 2)[0],
}


@pytest.mark.parametrize("name", RIGHT)
def test_right(name):
    found = RIGHT[name](batch(), batch(IDS))
    alone = (
        [
            RIGHT[name](*(tl.from_lengths(t, [[len(t)]]) for t in each))
            for each in zip(ROWS.split([4, 2, 5]), IDS.split([4, 2, 5]))
        ]
        if "plain" not in name
        else None
    )
    assert type(found) is LoDTensor
    if alone is not None:
        torch.testing.assert_close(found.values(), torch.cat([t.values() for t in alone]))


def test_numbers_of_the_samples_of_vmap_are_lost():
    sums = torch.vmap(lambda row: row.sum())(batch().t())
    assert type(sums) is DerivedTensor and sums.rows_dim is None and torch.equal(sums.values(), ROWS.t().sum(1))


def test_a_weight_of_more_dims_moves_the_classes():
    """torch's mean over dim 1 is then one over the rows."""
    rows = torch.rand(3, 3)
    x, target = (tl.from_lengths(t, [[2, 1]]) for t in (rows, torch.ones(3, 3)))
    found = F.multilabel_soft_margin_loss(x, target, weight=torch.rand(8, 1, 3), reduction="none")
    assert type(found) is DerivedTensor and found.rows_dim is None
    with pytest.raises(LoDError, match="lies along the rows of all sequences"):
        F.multilabel_soft_margin_loss(x, target, weight=torch.rand(2, 3, 3), reduction="none")
    for weight in (None, torch.rand(3), torch.rand(3, 3)):
        found = F.multilabel_soft_margin_loss(x, target, weight=weight, reduction="none")
        assert type(found) is LoDTensor
