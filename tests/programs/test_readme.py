# SPDX-License-Identifier: Apache-2.0
"""Every cell of README's table "You have, you write" runs as it is written, its snippets one after another."""

import re
import warnings

import pytest
import torch
from settings import ROOT
from torch import nn

import torch_lod as tl

TABLE = re.search(r"\| you have \| you write \|\n\|---\|---\|\n(.*?)\n\n", (ROOT / "README.md").read_text(), re.S)
LINES = {}
for line in TABLE[1].splitlines():
    kind, code = line.strip("| ").split(" | ")
    LINES[kind] = re.findall(r"`([^`]*)`", code)


def names(kind: str) -> dict:
    """What the reader of a line has."""
    x = tl.from_lengths(torch.randn(11, 8), [[4, 2, 5]])
    given = {
        "torch": torch,
        "nn": nn,
        "tl": tl,
        "embed": nn.Embedding(10, 8),
        "ids": tl.from_lengths(torch.arange(11), [[4, 2, 5]]),
        "relevance": x[:, 0],
        "scores": x[:, 1],
        "events": torch.randn(5, 3),
        "session": torch.tensor([0, 0, 1, 1, 1]),
        "clips": [torch.randn(6, 8), torch.randn(4, 8)],
        "labels": tl.lod_tensor([[1, 2], [4]]),
        "dense": torch.randn(3, 5, 8),
        "lengths": torch.tensor([4, 2, 5]),
        "rows": torch.randn(11, 8),
        "cu_seqlens": torch.tensor([0, 4, 6, 11], dtype=torch.int32),
        "model": nn.TransformerEncoderLayer(8, 2, 8, batch_first=True),
    }
    given |= dict.fromkeys("qkv", tl.from_lengths(torch.randn(11, 2, 4), [[4, 2, 5]]))
    if kind.startswith("documents"):
        given["ids"] = [[[1, 2], [3]], [[4]]]
    if not any(code.startswith("x = ") for code in LINES[kind]):
        given["x"] = x
    return given


def run(code: str, given: dict) -> dict:
    """The names after a snippet, with `_` for the value of an expression."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        if re.match(r"[\w, ]+ = ", code):
            exec(code, given)
        else:
            given["_"] = eval(code, given)
    return given


def test_the_table_has_every_kind_of_users():
    assert len(LINES) >= 9 and all(LINES.values())
    assert all("..." not in code for cell in LINES.values() for code in cell)


@pytest.mark.parametrize("kind", LINES)
def test_a_cell_runs_as_it_is_written(kind):
    given = names(kind)
    for code in LINES[kind]:
        given.pop("_", None)
        run(code, given)
        assert given.get("_", True) is not None
    assert isinstance(given["x"], tl.LoDTensor)


def test_next_events_and_next_tokens():
    """The two lines that train on what comes next: inputs without the last row, targets without the first."""
    given = names("sessions and events in a table")
    for code in LINES["sessions and events in a table"]:
        run(code, given)
    events = given["events"]
    assert given["_"].equal(tl.from_lengths(events[[1, 3, 4]], [[1, 2]]))
    assert given["x"].seq[:, :-1].equal(tl.from_lengths(events[[0, 2, 3]], [[1, 2]]))
    given = names("packed language models")
    for code in LINES["packed language models"]:
        run(code, given)
    assert given["_"].tolist() == [1, 2, 3, -100, 5, -100, 7, 8, 9, 10, -100]
