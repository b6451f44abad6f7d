# SPDX-License-Identifier: Apache-2.0
"""What README's table tells each kind of user to write."""

import re
import warnings

import pytest
import torch
from settings import ROOT

import torch_lod as tl

TABLE = re.search(r"\| you have \| you write \|\n\|---\|---\|\n(.*?)\n\n", (ROOT / "README.md").read_text(), re.S)
LINES = {}
for line in TABLE[1].splitlines():
    kind, code = line.strip("| ").split(" | ")
    LINES[kind] = [c for c in re.findall(r"`([^`]*)`", code) if "(" in c and c != "(batch, length)"]


def names(kind: str) -> dict:
    """What the snippets of a line take for given."""
    x = tl.from_lengths(torch.randn(11, 8), [[4, 2, 5]])
    found = {
        "torch": torch,
        "tl": tl,
        "x": x,
        "ids": [[[1, 2], [3]], [[4]]],
        "relevance": x[:, 0],
        "scores": x[:, 1],
        "events": torch.randn(5, 3),
        "session": torch.tensor([0, 0, 1, 1, 1]),
        "clips": [torch.randn(6, 8), torch.randn(4, 8)],
        "dense": torch.randn(3, 5, 8),
        "lengths": torch.tensor([4, 2, 5]),
        "rows": torch.randn(11, 8),
        "cu_seqlens": torch.tensor([0, 4, 6, 11], dtype=torch.int32),
        "cell": torch.nn.GRUCell(8, 4),
        "state": torch.zeros(3, 4),
        "model": torch.nn.TransformerEncoderLayer(8, 2, 8, batch_first=True),
    }
    found |= dict.fromkeys("qkv", tl.from_lengths(torch.randn(11, 2, 4), [[4, 2, 5]]))
    if kind.startswith("documents"):
        found["x"] = tl.from_lengths(torch.randn(6, 8), [[2, 1], [1, 2, 3]], level_names=("document", "sentence"))
    return found


def test_the_table_has_every_kind_of_users():
    assert len(LINES) >= 8 and all(LINES.values())


@pytest.mark.parametrize("kind", LINES)
def test_what_the_table_says_runs(kind):
    given = names(kind)
    for code in LINES[kind]:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            if code.startswith("x = "):
                made = eval(code[4:], given)
                assert isinstance(made, tl.LoDTensor)
            else:
                eval(code.replace("...", "8, 4, 3"), given)
