# SPDX-License-Identifier: Apache-2.0
"""What is inside sequences: what the tables of the laws do not ask of the words for inner levels."""

import itertools

import numpy as np
import pytest
import torch
from samples.words import STRUCTURES, lod_tensor

import torch_lod as tl

ALL = slice(None)


@pytest.fixture
def x():
    return tl.from_lengths(torch.arange(15), [[3, 1, 2], [3, 2, 4, 1, 2, 3]], level_names=["article", "sentence"])


# -- literal cases


def test_sub_sequences_move_with_their_content(x):
    keep = x.lengths() > 2
    assert x.filter(keep, level=0).to_list() == [[[0, 1, 2], [5, 6, 7, 8]], [], [[12, 13, 14]]]
    assert x.seq[:, keep].to_list() == x.filter(keep, level="article").to_list()
    assert x.head(1, level=0).to_list() == [[[0, 1, 2]], [[9]], [[10, 11]]]
    assert x.tail(1, level=0).to_list() == x.seq[:, -1:].to_list() == [[[5, 6, 7, 8]], [[9]], [[12, 13, 14]]]
    assert x.nth(-1, level=0).to_list() == x.seq[:, -1].to_list() == [[5, 6, 7, 8], [9], [12, 13, 14]]
    assert x.nth(1, level=0).to_list() == [[3, 4], [], [12, 13, 14]] and x.nth(1, level=0).level_names == ("sentence",)
    assert x.seq[:, :, 0].to_list() == [[0, 3, 5], [9], [10, 12]] and x.seq[:, -1, -1].tolist() == [8, 9, 14]
    assert x.seq[2, :, 1:].to_list() == [[11], [13, 14]] and x.seq[2, 1, 1:].tolist() == [13, 14]
    assert x.seq[2, 1, -1].tolist() == 14 and x.seq[2, 1, ::-1].tolist() == [14, 13, 12]
    assert x.seq[0, 0, [True, False, True]].tolist() == [0, 2] and x.seq[0, 0, [-1, 0]].tolist() == [2, 0]


def test_an_index_that_is_not_there_names_the_sequence_and_the_way_out(x):
    with pytest.raises(IndexError, match="level 'article' of x, got sequence 1 of 1 elements") as caught:
        x.seq[:, 1]
    way_out = str(caught.value).split("; ")[1].removesuffix(" has padding there")
    assert eval(way_out).to_list() == [[3, 4], [], [12, 13, 14]]
    with pytest.raises(IndexError, match="sequence 0 of 1 elements") as caught:
        x.seq[1:, ::-1, 1]
    way_out = str(caught.value).split("; ")[1].removesuffix(" has padding there")
    assert eval(way_out).to_list() == [[0], [13, 11]]


@pytest.mark.parametrize("form", [list, tuple, np.array, torch.tensor], ids=["list", "tuple", "array", "tensor"])
def test_masks_and_positions_in_any_form(x, form):
    keep = form([True, False, True, False, True, True])
    assert x.filter(keep, level=0).lod.to_lengths() == [[2, 0, 2], [3, 4, 2, 3]]
    assert x.seq[:, keep].lod.to_lengths() == [[2, 0, 2], [3, 4, 2, 3]]
    assert x.seq[:, form([0, -1])].lod.to_lengths() == [[2, 2, 2], [3, 4, 1, 1, 2, 3]]


def test_sequences_of_nothing_and_no_mask():
    for lengths in STRUCTURES.values():
        y = lod_tensor(lengths, (2,), torch.float32, "cpu")
        for k in range(y.lod_level):
            assert y.filter([True] * y.lod.elements_at(k), level=k).lod == y.lod
            assert y.seq[(ALL,) * (k + 2)].lod == y.lod


# -- rows that a loss ignored stay ignored


@pytest.mark.parametrize(
    "call",
    [
        lambda loss: loss.filter(torch.arange(len(loss)) % 3 != 1),
        lambda loss: loss.filter(torch.arange(6) % 2 == 0, level=0),
        lambda loss: loss.head(1, level=0),
        lambda loss: loss.nth(0, level=0),
        lambda loss: loss.seq[:, ::-1],
        lambda loss: loss.seq[:, [0, -1]],
        lambda loss: tl.sequence_chunk(loss, 2).drop_level(-1),
    ],
    ids="filter filter-0 head nth turned list chunk".split(),
)
def test_ignored_rows_are_known_afterwards(x, call):
    target = torch.where(torch.arange(15) % 4 == 1, -100, torch.arange(15) % 2)
    scores = tl.LoDTensor(torch.randn(15, 2, generator=torch.Generator().manual_seed(0)), x.lod)
    loss = torch.nn.functional.cross_entropy(scores, target, reduction="none")
    where = call(tl.LoDTensor(torch.arange(15), x.lod)).values()
    kept = loss.values()[where][target[where] != -100]
    torch.testing.assert_close(tl.sequence_loss(call(loss)), kept.mean())


# -- chunks, unique elements, random order


def test_chunks_come_back_and_share_their_rows():
    for lengths in STRUCTURES.values():
        y = lod_tensor(lengths, (2,), torch.float64, "cpu")
        for k, size in itertools.product(range(y.lod_level), (1, 2, 3)):
            chunks = tl.sequence_chunk(y, size, level=k, name="chunk")
            assert chunks.data_ptr() == y.data_ptr() and chunks.level_names[k + 1] == "chunk"
            assert chunks.lod.drop_level("chunk") == y.lod and chunks.max_length("chunk") <= size
            assert chunks.flatten_levels(k, k + 1).num_sequences(k) == chunks.num_sequences("chunk")


@pytest.mark.parametrize(("size", "stride"), [(4, 2), (3, 1), (2, 5), (4, 3)])
def test_the_first_chunk_that_reaches_the_end_is_the_last(size, stride):
    for n in range(12):
        found = tl.sequence_chunk(tl.from_lengths(torch.arange(n), [[n]]), size, stride).to_list()[0]
        assert all(c[0] == i * stride and (len(c) == size or c[-1] == n - 1) for i, c in enumerate(found))
        assert [n - 1 in c for c in found[:-1]] == [False] * (len(found) - 1 if found else 0)
        covered = {row for c in found for row in c}
        assert covered == {row for row in range(n) if row % stride < size}


def test_unique_elements_and_their_gradient():
    leaf = torch.tensor([5.0, 3, 5, 3, 3, 7], requires_grad=True)
    kept, inverse, counts = tl.sequence_unique(
        tl.from_lengths(leaf, [[4, 0, 2]]), return_inverse=True, return_counts=True
    )
    assert kept.to_list() == [[5, 3], [], [3, 7]] and counts.to_list() == [[2, 2], [], [1, 1]]
    assert inverse.to_list() == [[0, 1, 0, 1], [], [0, 1]]
    kept.sum().backward()
    assert leaf.grad.tolist() == [1, 1, 0, 0, 1, 1]
    back = kept.values()[inverse.values() + kept.row_offsets()[:-1].repeat_interleave(inverse.lengths())]
    assert torch.equal(back, leaf)


def test_equal_sub_sequences_of_many_lengths():
    g = torch.Generator().manual_seed(0)
    lengths = torch.randint(0, 6, (200,), generator=g)
    y = tl.from_lengths(torch.randint(0, 2, (int(lengths.sum()),), generator=g), [[50] * 4, lengths])
    want = [[list(s) for s in dict.fromkeys(map(tuple, part))] for part in y.to_list()]
    assert tl.sequence_unique(y, level=0).to_list() == want
    nan, other = float("nan"), tl.from_lengths(torch.zeros(4), [[2], [2, 2]])
    assert tl.sequence_unique(other, level=0).lengths(0).tolist() == [1]
    assert tl.sequence_unique(other + nan, level=0).lengths(0).tolist() == [2]


def test_a_random_order_stays_within_the_sequence(x):
    seen = set()
    for seed in range(20):
        found = tl.sequence_sample(x, shuffle=True, generator=torch.Generator().manual_seed(seed))
        assert found.lod == x.lod and [sorted(s) for s in found.sequences(1)] == [sorted(s) for s in x.sequences(1)]
        seen.add(tuple(found.tolist()))
        some = tl.sequence_sample(x, 2, shuffle=True, generator=torch.Generator().manual_seed(seed), level=0)
        assert some.lengths(0).tolist() == [2, 1, 2]
        assert all(s in x.to_list()[i] for i, part in enumerate(some.to_list()) for s in part)
    assert len(seen) > 15


# -- padded tensors with a dim per level


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("lengths", STRUCTURES.values(), ids=list(STRUCTURES))
def test_padded_levels_come_back(lengths, side):
    for dtype, width in ((torch.float64, (2,)), (torch.int32, ()), (torch.bfloat16, (0,))):
        y = lod_tensor(lengths, width, dtype, "cpu")
        dense, per_level = y.to_padded(7, level="all", side=side)
        for given in (per_level, list(per_level), y.lod.to_lengths(), [t.numpy() for t in per_level]):
            back = tl.from_padded(dense, given, side=side, level_names=y.level_names)
            assert back.lod == y.lod and back.level_names == y.level_names and torch.equal(back, y)
            assert back.dtype == dtype


def test_padded_levels_have_a_gradient(x):
    dense, lengths = x.double().to_padded(level="all")
    leaf = torch.randn(dense.shape, dtype=torch.float64, requires_grad=True)

    def rows(t):
        return tl.from_padded(t, lengths).values()

    assert torch.autograd.gradcheck(rows, leaf) and torch.autograd.gradgradcheck(rows, leaf)
    assert torch.equal(
        torch.autograd.grad(rows(leaf).sum(), leaf)[0] > 0, torch.ones_like(x).to_padded(level="all")[0] > 0
    )


DENSE = torch.zeros(3, 3, 4)
WRONG = {
    "too long": (
        lambda: tl.from_padded(DENSE, [[3, 1, 2], [3, 2, 5, 1, 2, 3]]),
        r"lengths\[1\] in \[0, 4\], got 5 for seq.*2",
    ),
    "negative": (lambda: tl.from_padded(DENSE, [[3, -1, 2], [3]]), r"lengths\[0\] in \[0, 3\], got -1 for sequence 1"),
    "few": (
        lambda: tl.from_padded(DENSE, [[3, 1, 2], [3, 2]]),
        r"lengths\[1\] with a length for each of the 6 .*, got 2",
    ),
    "shape": (
        lambda: tl.from_padded(DENSE, [[3, 1, 2], torch.ones(3, 2).long()]),
        r"lengths\[1\] of shape \(3, 3\), got \(3, 2\)",
    ),
    "dims": (
        lambda: tl.from_padded(DENSE, [[1]] * 4),
        r"dense of at least 5 dims for lengths of 4 levels, got shape \(3, 3, 4\)",
    ),
    "floats": (lambda: tl.from_padded(DENSE, [[3, 1, 2], torch.ones(3, 3)]), r"lengths\[1\] of an integer dtype"),
    "both": (
        lambda: tl.from_padded(DENSE, [[3, 1, 2], [4] * 6], mask=torch.ones(3, 3)),
        "either lengths or mask, got both",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_lengths_per_level(name):
    call, said = WRONG[name]
    with pytest.raises(tl.LoDError, match=f"^from_padded: expected {said}"):
        call()
