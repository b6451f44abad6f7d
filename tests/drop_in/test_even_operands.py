# SPDX-License-Identifier: Apache-2.0
"""Plain operands that lie along the rows and are the same at every one of them: right for all sequences. Others are refused."""

import pytest
import torch
from torch import nn

import torch_lod as tl
from torch_lod import LoDError

LODS = [[[4, 2, 5]], [[2, 1], [4, 2, 5]], [[11]], [[0, 6, 5, 0]]]
torch.manual_seed(0)
EMBED, ONE = nn.Embedding(3, 8), nn.Parameter(torch.randn(8))
TYPES = torch.zeros(1, 20, dtype=torch.long)
#: Of t, (1, length, 8).
EVEN = {
    "expanded": lambda t: t + ONE[None, None].expand(1, t.shape[1], 8),
    "expanded from the left": lambda t: ONE.expand(t.shape) * t,
    "ones": lambda t: t * torch.ones(1, t.shape[1], 1),
    "zeros of its shape": lambda t: t + torch.zeros(t.shape),
    "full": lambda t: torch.full((1, t.shape[1], 8), 2.0) - t,
    "types": lambda t: t + EMBED(torch.zeros(t.shape[:2], dtype=torch.long)),
    "types of a buffer": lambda t: t + EMBED(TYPES[:, : t.shape[1]].expand(1, t.shape[1])),
    "a mask of ones": lambda t: t.masked_fill(~torch.ones(1, t.shape[1], 1, dtype=torch.bool), 0),
    "where": lambda t: torch.where(torch.ones(1, t.shape[1], 1, dtype=torch.bool), t, 0.0),
    "a column": lambda t: torch.cat([t, torch.ones(1, t.shape[1], 1)], -1),
    "channels": lambda t: (t.transpose(1, 2) + ONE[None, :, None].expand(1, 8, t.shape[1])).transpose(1, 2),
    "a value": lambda t: _written(t, torch.ones(1, t.shape[1], 8)),
    "gathered types": lambda t: t + EMBED(torch.gather(TYPES, 1, t.gt(0).sum(-1))),
    "gathered from one entry": lambda t: t * ONE[:1, None].expand(1, 20).gather(1, t.gt(0).sum(-1))[..., None],
}


def _written(t, value):
    t = t * 2
    t[:, :, 2:] = value[:, :, 2:]
    return t


@pytest.mark.parametrize("lengths", LODS, ids=str)
@pytest.mark.parametrize("name", EVEN)
def test_every_sequence_as_alone(name, lengths):
    torch.manual_seed(0)
    rows = torch.randn(11, 8, requires_grad=True)
    result = EVEN[name](tl.from_lengths(rows, lengths)[None])
    alone = torch.cat([EVEN[name](r[None]) for r in rows.split(lengths[-1])], 1)
    assert result.rows_dim == 1 and result.lod.to_lengths() == lengths
    torch.testing.assert_close(result.values(), alone)
    weights, leaves = torch.rand_like(alone), [rows, ONE, EMBED.weight]
    both = [torch.autograd.grad((t * weights).sum(), leaves, allow_unused=True) for t in (result.values(), alone)]
    for a, b in zip(*both):
        assert (a is None) == (b is None)
        if a is not None:
            torch.testing.assert_close(a, b)


PE = nn.Parameter(torch.zeros(1, 20, 8))
UNEVEN = {
    "positions": lambda t: t + torch.arange(11.0)[None, :, None],
    "one of them": lambda t: t * torch.ones(1, 11, 1).index_fill(1, torch.tensor([7]), 0),
    "nan": lambda t: t + torch.full((1, 11, 1), float("nan")),
    "learned positions, zeros at first": lambda t: t + PE[:, :11],
    "a parameter of zeros": lambda t: t + nn.Parameter(torch.zeros(1, 11, 8), requires_grad=False),
    "made of them": lambda t: t + PE[:, :11] * 2,
    "positions in a table": lambda t: t + EMBED(torch.arange(11).clamp(max=2))[None],
    "a view of types": lambda t: t + EMBED(torch.zeros(11, dtype=torch.long))[None],
    "types and positions": lambda t: t + (EMBED(TYPES[:, :11]) + PE[:, :11]),
    "a value": lambda t: _written(t, torch.randn(1, 11, 8)),
    "a table that is not even": lambda t: t + torch.arange(20)[None].gather(1, t.gt(0).sum(-1))[..., None],
}


@pytest.mark.parametrize("name", UNEVEN)
def test_others_are_refused(name):
    with pytest.raises(LoDError, match="lies along the rows of all sequences"):
        UNEVEN[name](tl.from_lengths(torch.randn(11, 8), [[4, 2, 5]])[None])


def test_learned_positions_are_refused_without_a_gradient_too():
    t = tl.from_lengths(torch.randn(11, 8), [[4, 2, 5]])[None]
    with torch.no_grad(), pytest.raises(LoDError, match="lies along the rows of all sequences"):
        t + PE[:, :11]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiled_knows_strides_alone(backend):
    torch._dynamo.reset()
    x = tl.from_lengths(torch.randn(11, 8), [[4, 2, 5]])
    found = torch.compile(lambda x: EVEN["expanded"](x[None]), backend=backend, fullgraph=True)(x)
    torch.testing.assert_close(found.values(), EVEN["expanded"](x[None]).values())
    with pytest.raises(Exception, match="lies along the rows of all sequences"):
        torch.compile(lambda x: x[None] * torch.ones(1, x.shape[0], 1), backend=backend, fullgraph=True)(x)


def test_transforms_and_fake_tensors_are_not_looked_at():
    t = tl.from_lengths(torch.randn(11, 8), [[4, 2, 5]])[None]
    with pytest.raises(LoDError, match="lies along the rows of all sequences"):
        torch.vmap(lambda w: (t * w).values())(torch.ones(3, 1, 11, 1))
    with torch._subclasses.FakeTensorMode(allow_non_fake_inputs=True), pytest.raises(LoDError):
        t + torch.ones(1, 11, 8)
