# SPDX-License-Identifier: Apache-2.0
"""`conv(t)[..., :-k]` and `conv(t)[..., :n]`, which cut the rows that the padding of a convolution added: right for every sequence. Other cuts are parts
of the batch, and raise where they meet rows."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import torch_lod as tl
from torch_lod import LoDError

LODS = [[[4, 2, 5]], [[2, 1], [4, 2, 5]], [[11]], [[1, 4, 1, 5]]]
torch.manual_seed(0)
CONV, WIDE, EVEN = (
    nn.Conv1d(8, 8, 3, padding=2).double(),
    nn.Conv1d(8, 8, 3, padding=4, dilation=2, groups=2).double(),
    nn.Conv1d(8, 8, 4, padding=2).double(),
)
NORM = nn.BatchNorm1d(8).double().eval()


class Chomp(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.size = size

    def forward(self, x):
        return x[:, :, : -self.size].contiguous()


TCN = nn.Sequential(
    nn.utils.parametrizations.weight_norm(nn.Conv1d(8, 8, 3, padding=2).double()),
    Chomp(2),
    nn.ReLU(),
    nn.Dropout(0.0),
    nn.utils.parametrizations.weight_norm(nn.Conv1d(8, 8, 3, padding=4, dilation=2).double()),
    Chomp(4),
    nn.ReLU(),
)
#: Of t, (1, 8, length).
CUTS = {
    "a slice": lambda t: CONV(t)[..., :-2],
    "a count": lambda t: CONV(t)[..., : t.shape[2]] + t,
    "a count, all dims, transposed": lambda t: F.silu(CONV(t)).mT[:, : t.size(2), :].mT * t,
    "all dims": lambda t: CONV(t)[:, :, 0:-2],
    "after functions": lambda t: NORM(F.gelu(CONV(t) * 2 + 1))[..., :-2] + t,
    "of two": lambda t: (CONV(t) * CONV(t).sigmoid())[..., :-2],
    "of a sum of two": lambda t: t - (CONV(t) + F.pad(WIDE(t), (0, -2)))[..., :-2],
    "transposed": lambda t: CONV(t).transpose(1, 2)[:, :-2].transpose(1, 2) * t,
    "heads": lambda t: CONV(t).unflatten(1, (2, 4))[..., :-2].flatten(1, 2) + t,
    "an even kernel": lambda t: EVEN(t)[..., :-1] + t,
    "twice": lambda t: WIDE(CONV(t)[..., :-2])[..., :-4] + t,
    "tcn": lambda t: F.relu(TCN(t) + t),
    "an int of numpy": lambda t: CONV(t)[..., : torch.tensor(-2)] + t,
}


@pytest.mark.parametrize("lengths", LODS, ids=str)
@pytest.mark.parametrize("name", CUTS)
def test_every_sequence_as_alone(name, lengths):
    torch.manual_seed(0)
    rows = torch.randn(11, 8, dtype=torch.float64, requires_grad=True)
    x = tl.from_lengths(rows, lengths)
    found = CUTS[name](x[None].transpose(1, 2))
    alone = torch.cat([CUTS[name](r.t()[None]) for r in rows.split(lengths[-1])], 2)
    assert found.rows_dim == 2 and found.lod is x.lod
    torch.testing.assert_close(found.values(), alone)
    weights = torch.rand_like(alone)
    leaves = [rows, CONV.weight, WIDE.bias, EVEN.weight]
    both = [torch.autograd.grad((t * weights).sum(), leaves, allow_unused=True) for t in (found.values(), alone)]
    for a, b in zip(*both):
        torch.testing.assert_close(a, b)


def test_an_empty_sequence_stays_empty():
    x = tl.from_lengths(torch.randn(9, 8, dtype=torch.float64), [[0, 4, 0, 5]])
    found = CONV(x.t()[None])[..., :-2]
    assert found.lod is x.lod
    torch.testing.assert_close(found.values()[..., :4], CONV(x.values()[:4].t()[None])[..., :-2])


STRIDED = nn.Conv1d(8, 8, 3, padding=2, stride=2).double()
OTHERS = {
    "fewer": lambda t: CONV(t)[..., :-1],
    "more": lambda t: CONV(t)[..., :-3],
    "at the start": lambda t: CONV(t)[..., 2:],
    "on both sides": lambda t: CONV(t)[..., 1:-1],
    "a count of a row less": lambda t: CONV(t)[..., : t.shape[2] - 1],
    "a count of a row more": lambda t: CONV(t)[..., : t.shape[2] + 1],
    "a count from a row on": lambda t: CONV(t)[..., 1 : t.shape[2]],
    "a count of what is no convolution": lambda t: torch.cat([t, t], 2)[..., : t.shape[2]],
    "another step": lambda t: CONV(t)[..., :-2:2],
    "a row less besides": lambda t: CONV(t)[:, :-1, :-2],
    "strided": lambda t: STRIDED(t)[..., :-2],
    "no convolution": lambda t: t[..., :-2],
    "a second time": lambda t: CONV(t)[..., :-2][..., :-2],
    "narrow": lambda t: CONV(t).narrow(2, 0, 11),
    "a part": lambda t: CONV(t)[..., 1:][..., :-2],
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_cuts_are_parts_of_the_batch(name):
    x = tl.from_lengths(torch.randn(11, 8, dtype=torch.float64), [[4, 2, 5]])
    t = x.t()[None]
    found = OTHERS[name](t)
    assert found.rows_dim is None or found._provenance.part is not None
    with pytest.raises((LoDError, RuntimeError)):
        found.sum(1, keepdim=True) + t


def test_a_cut_of_ignored_rows_is_a_part():
    logits, targets = (
        CONV(tl.from_lengths(torch.randn(11, 8).double(), [[4, 2, 5]]).t()[None]),
        torch.zeros(1, 17).long(),
    )
    loss = F.cross_entropy(logits, targets, reduction="none")
    assert loss[:, :-2]._provenance.part is not None


@pytest.mark.parametrize("name", ["tcn", "a count"])
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiled(backend, name):
    torch._dynamo.reset()
    program = torch.compile(lambda x: CUTS[name](x.t()[None]), backend=backend, fullgraph=True)
    for lengths in ([4, 2, 5], [3, 6], [1, 1, 1, 9]):
        x = tl.from_lengths(torch.randn(sum(lengths), 8, dtype=torch.float64), [lengths])
        torch.testing.assert_close(program(x).values(), CUTS[name](x.t()[None]).values())


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_result_of_a_graph_can_be_cut(backend):
    torch._dynamo.reset()
    x = tl.from_lengths(torch.randn(11, 8, dtype=torch.float64), [[4, 2, 5]])
    longer = torch.compile(lambda x: CONV(x.t()[None]), backend=backend, fullgraph=True)(x)
    torch.testing.assert_close(longer[..., :-2].values(), CUTS["a slice"](x.t()[None]).values())


def test_a_loss_behind_a_cut_is_that_of_every_sequence():
    """As in state space models: a causal convolution whose output is cut to the length."""
    x = tl.from_lengths(torch.randn(11, 8, dtype=torch.float64), [[4, 2, 5]])
    y = x.with_values(torch.randint(8, (11,)))

    def net(t):
        return CONV(t.mT)[..., : t.shape[1]].mT

    each = [F.cross_entropy(net(a[None])[0], b, reduction="sum") for a, b in zip(x.sequences(), y.sequences())]
    torch.testing.assert_close(F.cross_entropy(net(x[None])[0], y), sum(each) / 11)
    with pytest.raises(
        LoDError, match="cross_entropy: expected operands whose rows correspond, got rows 0 to 11 of 17"
    ):
        F.cross_entropy(CONV(x[None].mT).mT[0][:11], y)
