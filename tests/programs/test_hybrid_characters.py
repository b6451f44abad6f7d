# SPDX-License-Identifier: Apache-2.0
"""The hybrid model of characters: it learns, and its padded twin has the same loss from more rows."""

import copy
import re
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

import hybrid_characters as example

LAST_LINE = re.compile(r"padded twin, 1 steps: losses differ by \de[+-]\d\d at most; .*x the time, .*x the memory")


def test_it_runs_and_says_what_it_measured(monkeypatch, capsys):
    monkeypatch.setattr(example, "BUDGET", 800)
    example.main(2, 1)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3 and lines[1].startswith("step    2") and LAST_LINE.match(lines[2])


def test_the_padded_twin_has_the_same_loss_and_both_learn():
    torch.manual_seed(0)
    samples = [text[:n] for text, n in zip(example.paragraphs(), (40, 3, 90, 17))]
    model = example.Hybrid()
    twin = example.Trained(copy.deepcopy(model), example.padded)
    ours = example.Trained(model, example.packed)
    losses = [(ours.step(samples), twin.step(samples)) for _ in range(8)]
    for packed, padded in losses[:3]:
        assert abs(packed - padded) < 1e-3
    assert losses[-1][0] < losses[0][0] - 0.5
    assert ours.rows == 8 * sum(map(len, samples)) and twin.rows == 8 * 4 * max(map(len, samples))
    assert ours.kept < twin.kept
