# SPDX-License-Identifier: Apache-2.0
"""Rows written into a fresh plain tensor in place: what the function gives that returns a new one, or refused."""

import pytest
import torch

import torch_lod as tl
from torch_lod import LoDError, LoDTensor
from torch_lod.tensor.provenance import provenance_of

LENGTHS = [4, 2, 5]
ROWS = torch.randn(11, 8, generator=torch.Generator().manual_seed(0))
SEGMENTS = torch.tensor([0] * 4 + [1] * 2 + [2] * 5)
IDS = torch.tensor([1, 2, 0, 3, 4, 5, 6, 0, 7, 8, 9])
#: Per case: the tensor that is written into, the function without its underscore, and the other arguments, made of x and ids.
CASES = {
    "index_add": (lambda: torch.zeros(3, 8), "index_add", lambda x, ids: (0, SEGMENTS, x)),
    "ids of rows": (lambda: torch.zeros(12, 8), "index_add", lambda x, ids: (0, ids, x)),
    "a number for each": (lambda: torch.zeros(3), "index_add", lambda x, ids: (0, SEGMENTS, x[:, 0])),
    "index_reduce": (lambda: torch.ones(3, 8), "index_reduce", lambda x, ids: (0, SEGMENTS, x, "amax")),
    "scatter_add": (
        lambda: torch.zeros(3, 8),
        "scatter_add",
        lambda x, ids: (0, SEGMENTS[:, None].expand(11, 8), x),
    ),
    "scatter_reduce": (
        lambda: torch.zeros(3, 8),
        "scatter_reduce",
        lambda x, ids: (0, SEGMENTS[:, None].expand(11, 8), x, "mean"),
    ),
    "scatter_add, ids of rows": (
        lambda: torch.zeros(12, 8),
        "scatter_add",
        lambda x, ids: (0, ids[:, None].expand(11, 8), x),
    ),
    "features": (lambda: torch.zeros(11, 8), "index_add", lambda x, ids: (1, torch.arange(8), x)),
    "mul": (lambda: torch.arange(11), "mul", lambda x, ids: (ids != 0,)),
    "mul of elements": (lambda: torch.ones(11, 8), "mul", lambda x, ids: (x,)),
    "mul of a batch of one": (lambda: torch.ones(1, 11, 8), "mul", lambda x, ids: (x[None],)),
    "masked_fill": (lambda: torch.ones(11), "masked_fill", lambda x, ids: (ids == 0, 2.0)),
    "a row for each sequence": (
        lambda: torch.ones(11, 8),
        "mul",
        lambda x, ids: (tl.per_sequence(torch.ones(3, 8)) * x,),
    ),
}


def batch(rows=ROWS):
    return tl.from_lengths(rows, [LENGTHS]), tl.from_lengths(IDS, [LENGTHS])


def plainly(t):
    return t.as_subclass(torch.Tensor)


@pytest.mark.filterwarnings("ignore:index_reduce")
@pytest.mark.parametrize("name", CASES)
def test_it_becomes_what_the_twin_gives(name):
    fresh, function, others = CASES[name]
    rows = ROWS.clone().requires_grad_()
    args = others(*batch(rows))
    wanted, target = getattr(fresh(), function)(*args), fresh()
    found = getattr(target, f"{function}_")(*args)
    assert found is target and type(found) is type(wanted) and provenance_of(found) == provenance_of(wanted)
    torch.testing.assert_close(plainly(found), plainly(wanted).to(found.dtype), rtol=0, atol=0)
    if wanted.requires_grad:
        both = [torch.autograd.grad((plainly(t) ** 2).sum(), rows, retain_graph=True)[0] for t in (found, wanted)]
        torch.testing.assert_close(*both)


def test_pooled_rows_are_those_of_every_sequence_alone():
    x, _ = batch()
    found = x.new_zeros(3, 8).index_add_(0, SEGMENTS, x)
    torch.testing.assert_close(found.values(), torch.stack([r.sum(0) for r in ROWS.split(LENGTHS)]))
    with pytest.raises(LoDError, match="became in index_add"):
        x - found[:1]
    found.index_add_(0, SEGMENTS, x)
    torch.testing.assert_close(found.values(), 2 * torch.stack([r.sum(0) for r in ROWS.split(LENGTHS)]))


def test_positions_of_sasrec():
    """One name more for the tensor is no other tensor."""
    _, ids = batch()
    positions = same = torch.cat([torch.arange(1, n + 1) for n in LENGTHS])
    positions *= ids != 0
    assert positions is same and type(positions) is LoDTensor
    alone = [torch.arange(1, n + 1) * (i != 0) for n, i in zip(LENGTHS, IDS.split(LENGTHS))]
    assert torch.equal(positions.values(), torch.cat(alone))


KEPT: list = []


def beside(t, other):
    """The tensor, whose memory another one has."""
    KEPT.append(other)
    return t


def seen(t):
    return beside(t, t.view(-1))


def detached(t):
    return beside(t, t.detach())


PE = torch.nn.Parameter(torch.zeros(11, 8))
REFUSED = {
    "a view": lambda x, ids: torch.zeros(4, 8)[1:].index_add_(0, SEGMENTS, x),
    "with a view": lambda x, ids: seen(torch.zeros(3, 8)).index_add_(0, SEGMENTS, x),
    "detached elsewhere": lambda x, ids: detached(torch.ones(11)).mul_(ids != 0),
    "its data": lambda x, ids: PE.data.add_(x),
    "a parameter": lambda x, ids: PE.add_(x),
    "a running mean": lambda x, ids: torch.zeros(8).mul_(0.9).add_(x.mean(0)),
    "positions at another dim": lambda x, ids: torch.arange(11.0)[None].clone().mul_(ids[None]),
    "another dtype": lambda x, ids: torch.arange(11).mul_(x[:, 0]),
    "a sum": lambda x, ids: torch.zeros(11, 8).add_(x),
    "a copy": lambda x, ids: torch.zeros(11, 8).copy_(x),
    "some rows": lambda x, ids: torch.zeros(2, 8).add_(x[:2]).add_(x),
    "an index of other rows": lambda x, ids: torch.zeros(11, 8).scatter_add_(1, SEGMENTS[:5, None], x),
}


@pytest.mark.parametrize("name", REFUSED)
def test_others_are_refused(name):
    x, ids = batch()
    with pytest.raises((LoDError, RuntimeError)):
        REFUSED[name](x, ids)
    KEPT.clear()
    assert type(PE) is torch.nn.Parameter and not PE.any()


def test_in_a_graph_it_is_refused_and_outside_right():
    x, _ = batch()

    def pooled(x, index):
        return x.new_zeros(3, 8).index_add_(0, index, x)

    torch._dynamo.reset()
    with pytest.raises(Exception, match="exception"):
        torch.compile(pooled, backend="eager", fullgraph=True)(x, SEGMENTS)
    found = torch.compile(pooled, backend="eager")(x, SEGMENTS)
    assert found.rows_dim is None and torch.equal(found.values(), pooled(x, SEGMENTS).values())
