# SPDX-License-Identifier: Apache-2.0
"""Rows that a loss ignored stay ignored in what selects, repeats and ranks losses."""

import pytest
import torch
import torch.nn.functional as F

import torch_lod as tl
from torch_lod.errors import LoDValueError

TARGETS = [1, -100, 2, -100, -100, 3, 0, 4, -100]
COUNTS = torch.tensor(TARGETS) != -100


def losses(*lengths):
    scores = tl.from_lengths(torch.randn(9, 5), [*lengths, [3, 2, 4]])
    return F.cross_entropy(scores, scores.with_values(torch.tensor(TARGETS)), reduction="none")


@pytest.mark.parametrize("i", [0, 1, -1, 2, 5])
def test_an_element_of_every_sequence(i):
    loss = losses([2, 1])
    parts = [(rows[i : i + 1] if i >= 0 or i < -1 else rows[i:]) for rows in (range(3), range(3, 5), range(5, 9))]
    rows = [row for part in parts for row in part if COUNTS[row]]
    expected = loss.values()[rows].mean() if rows else torch.tensor(0.0)
    torch.testing.assert_close(tl.sequence_loss(loss.nth(i)), expected)


def test_windows():
    loss = losses([2, 1])
    torch.testing.assert_close(tl.sequence_loss(tl.sequence_unfold(loss, 1)[:, 0]), tl.sequence_loss(loss))
    for size, step in ((2, 1), (2, 2), (3, 1)):
        windows = tl.sequence_unfold(loss, size, step)
        counts = tl.sequence_unfold(loss.with_values(COUNTS).with_lod(tl.LoD(loss.lod.to_list())), size, step)
        assert torch.equal(windows.lod.counted[0], counts.values())
        with pytest.raises(LoDValueError, match="made of ignored and of other"):
            tl.sequence_loss(windows.mean(1))


@pytest.mark.parametrize("largest", [True, False])
def test_the_first_in_order(largest):
    loss = losses([2, 1])
    values, index = tl.sequence_topk(loss, 2, largest=largest, padding_value=-1.0)
    for row, (rows, place) in enumerate(zip(values.values(), index.values(), strict=True)):
        own = [i for i in (range(3), range(3, 5), range(5, 9))[row] if COUNTS[i]]
        wanted = sorted(own, key=lambda i: loss.values()[i].item(), reverse=largest)[:2]
        assert place.tolist() == wanted + [-1] * (2 - len(wanted))
        assert rows.tolist() == [loss.values()[i].item() for i in wanted] + [-1.0] * (2 - len(wanted))


def test_the_row_of_the_largest():
    for lengths in ([[2, 1]], []):
        loss = losses(*lengths)
        index = tl.sequence_argmax(loss)
        rows = index.values() if isinstance(index, tl.LoDTensor) else index
        first = 0 if loss.values()[0] > loss.values()[2] else 2
        assert rows.tolist() == [first, -1, 5 + int(loss.values()[5:8].argmax())]
