# SPDX-License-Identifier: Apache-2.0
"""Sequence operators on LoDTensors: every level of one to three levels, empties anywhere, against loops over sequences."""

import itertools

import pytest
import torch

import torch_lod as tl

STRUCTURES = {
    "one level": [[2, 0, 3, 1]],
    "two levels": [[3, 1, 2], [3, 2, 4, 1, 2, 3]],
    "two levels, empties": [[2, 0, 1, 1], [0, 3, 2, 0]],
    "three levels": [[2, 1], [1, 2, 1], [2, 1, 3, 1]],
    "three levels, empties": [[0, 2, 1], [2, 0, 1], [0, 3, 2]],
    "all empty": [[2, 0], [0, 0]],
    "no sequences": [[], []],
}
each_level = pytest.mark.parametrize(
    ("lengths", "level"),
    [(lengths, k) for lengths in STRUCTURES.values() for k in range(len(lengths))],
    ids=[f"{name}, level {k}" for name, lengths in STRUCTURES.items() for k in range(len(lengths))],
)


def tensor(lengths, device, width=(3,), seed=0):
    lod = tl.LoD.from_lengths(lengths)
    g = torch.Generator().manual_seed(seed)
    return tl.LoDTensor(torch.randn(lod.rows, *width, generator=g, dtype=torch.float64).to(device), lod)


def plain(t):
    return t.values() if isinstance(t, tl.LoDTensor) else t


def rows_under(x, level):
    """The rows under every sequence of a level."""
    return [plain(s) for s in x.sequences(level)]


POOLS = {
    "sum": lambda r: r.sum(0),
    "AVERAGE": lambda r: r.mean(0),
    "mean": lambda r: r.mean(0),
    "sqrt": lambda r: r.sum(0) / len(r) ** 0.5,
    "Max": lambda r: r.amax(0),
    "min": lambda r: r.amin(0),
    "first": lambda r: r[0],
    "last": lambda r: r[-1],
}


@each_level
@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize("width", [(3,), (), (2, 4)], ids=str)
def test_pool(lengths, level, pool, width, device):
    x = tensor(lengths, device, width)
    out = tl.sequence_pool(x, pool, padding_value=7.0, level=level)
    parts = [POOLS[pool](r) if len(r) else torch.full(width, 7.0).to(r) for r in rows_under(x, level)]
    expected = torch.stack(parts) if parts else x.values()[:0]
    torch.testing.assert_close(plain(out), expected)
    assert getattr(out, "lod", None) == x.lod.outer(level)


@each_level
def test_pool_returns_the_row_of_every_maximum(lengths, level, device):
    x = tensor(lengths, device)
    out, index = tl.sequence_pool(x, "max", level=level, return_index=True)
    offsets = x.row_offsets(level).tolist()
    for s, (a, b) in enumerate(itertools.pairwise(offsets)):
        expected = x.values()[a:b].argmax(0) + a if b > a else torch.full((3,), -1, device=device)
        assert torch.equal(plain(index)[s], expected)
    assert plain(out).shape == plain(index).shape


@each_level
def test_softmax(lengths, level, device):
    x = tensor(lengths, device)
    out = tl.sequence_softmax(x, level=level)
    parts = [r.softmax(0) for r in rows_under(x, level) if len(r)]
    torch.testing.assert_close(out.values(), torch.cat(parts) if parts else x.values())
    assert out.lod is x.lod


@each_level
def test_reverse_moves_whole_elements(lengths, level, device):
    x = tensor(lengths, device)
    out = tl.sequence_reverse(x, level=level)

    def turned(nested, k):
        return nested[::-1] if k == 0 else [turned(part, k - 1) for part in nested]

    assert out.to_list() == turned(x.to_list(), level + 1)
    assert tl.sequence_reverse(out, level=level).to_list() == x.to_list()


@each_level
def test_expand_repeats_rows_and_whole_sequences(lengths, level, device):
    y = tensor(lengths, device)
    times = y.lengths(level).tolist()
    x = torch.randn(len(times), 2, device=device)
    torch.testing.assert_close(
        tl.sequence_expand(x, y, ref_level=level), x.repeat_interleave(y.lengths(level).to(device), 0)
    )
    z = tensor([[1 + i % 3 for i in range(len(times))]], device, seed=3)
    out = tl.sequence_expand(z, y, ref_level=level)
    assert out.to_list() == [s for s, n in zip(z.to_list(), times) for _ in range(n)]


@each_level
def test_expand_as_goes_across_levels(lengths, level, device):
    y = tensor(lengths, device)
    outer = y.lod.outer(level)
    x = torch.randn(y.num_sequences(level), 2, device=device)
    x = x if outer is None else tl.LoDTensor(x, outer)
    out = tl.sequence_expand_as(x, y)
    assert out.lod is y.lod
    torch.testing.assert_close(out.values(), plain(x)[y.lod.segment_ids(level).to(device)])


@pytest.mark.parametrize(
    "call",
    [
        lambda x, k: tl.sequence_pool(x, "sum", level=k),
        lambda x, k: tl.sequence_pool(x, "max", level=k),
        lambda x, k: tl.sequence_softmax(x, level=k),
        lambda x, k: tl.sequence_reverse(x, level=k),
        lambda x, k: tl.sequence_expand_as(tl.sequence_pool(x, "mean", level=k), x),
        lambda x, k: x.to_padded(level=k)[0],
        lambda x, k: x.head(1),
        lambda x, k: x.nth(-1),
        lambda x, k: x.seq[::-1],
    ],
    ids="pool-sum pool-max softmax reverse expand-as padded head nth seq".split(),
)
@each_level
def test_gradients_flow_to_the_rows(call, lengths, level, device):
    x = tensor(lengths, device)
    leaf = x.values().requires_grad_()
    assert torch.autograd.gradcheck(lambda v: plain(call(x.with_values(v), level)), leaf, check_forward_ad=True)


def test_levels_go_by_name(device):
    x = tl.LoDTensor(
        torch.randn(15, 2, device=device), tl.LoD.from_lengths(STRUCTURES["two levels"], level_names=("a", "b"))
    )
    assert torch.equal(tl.sequence_pool(x, "sum", level="a"), tl.sequence_pool(x, "sum", level=0))
    assert tl.sequence_pool(x, "sum", level="b").level_names == ("a",)


def test_operators_refuse_what_does_not_fit():
    x = tl.from_lengths(torch.randn(5, 3), [[2, 3]])
    for call, exception, words in (
        (lambda: tl.sequence_pool(x, "mode"), ValueError, "got 'mode'"),
        (lambda: tl.sequence_pool(x, "sum", level=1), IndexError, "sequence_pool: expected level in [-1, 0], got 1"),
        (lambda: tl.sequence_pool(x, "sum", level="word"), IndexError, "got 'word'"),
        (lambda: tl.sequence_pool(x, "sum", level=0.5), TypeError, "got 0.5"),
        (lambda: tl.sequence_pool(torch.randn(3), "sum"), TypeError, "x as a LoDTensor, got Tensor"),
        (
            lambda: tl.sequence_pool(x, "sum", return_index=True),
            TypeError,
            "'max', 'min' or 'median' with return_index",
        ),
        (
            lambda: tl.sequence_pool(x.long(), "mean"),
            TypeError,
            "x of a floating dtype for 'mean', got torch.int64; see x.float()",
        ),
        (lambda: tl.sequence_softmax(x.long()), TypeError, "got Long"),
        (lambda: tl.sequence_expand(torch.randn(3, 2), x), ValueError, "2 sequences of y at level -1, got 3"),
        (
            lambda: tl.sequence_expand(torch.randn(2, 2), torch.randn(2)),
            TypeError,
            "y as a LoDTensor or LoD, got Tensor",
        ),
        (lambda: tl.sequence_expand_as(torch.randn(3, 2), x), ValueError, "2 sequences of y, got 3"),
        (lambda: tl.sequence_expand_as(x, x), ValueError, "fewer levels than the 1 of y, got 1"),
    ):
        with pytest.raises(exception) as caught:
            call()
        assert isinstance(caught.value, tl.LoDError), repr(caught.value)
        assert words in str(caught.value)
