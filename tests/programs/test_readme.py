# SPDX-License-Identifier: Apache-2.0
"""README: every cell of "You have, you write" runs as it is written, every cell of "Why" is what was tried here, and the numbers
of "Speed" are in the tables that it names."""

import inspect
import re
import sys
import warnings

import pytest
import torch
import torch._dynamo.testing
from settings import ROOT
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_sequence, pad_sequence

import torch_lod as tl

sys.path.insert(0, str(ROOT / "docs/site"))
import pages

README = (ROOT / "README.md").read_text()
TABLE = re.search(r"\| you have \| you write \|\n\|---\|---\|\n(.*?)\n\n", README, re.S)
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


def test_what_is_said_below_the_example():
    lengths = [[3, 1, 2], [3, 2, 4, 1, 2, 3]]
    x = tl.from_lengths(torch.arange(15.0), lengths, level_names=("article", "sentence"))
    assert x[0].shape == () and len(x) == 15
    assert x.seq[0].tolist() == list(range(9)) and x.seq[2, 1].tolist() == [12, 13, 14]
    for outer, inner in ((0, -1), ("article", "sentence")):
        assert tl.sequence_pool(x, "sum", level=outer).shape == (3,)
        assert tl.sequence_pool(x, "sum", level=inner).equal(tl.sequence_pool(x, "sum"))
    assert x.num_sequences() == 3 and len(list(x.sequences())) == 3
    given = inspect.signature(tl.sequence_pool).parameters, inspect.signature(tl.LoDTensor.num_sequences).parameters
    assert [parameters["level"].default for parameters in given] == [-1, 0]


# -- Why


def raises(function, *args, **kwargs) -> bool:
    """Whether a call is refused; what it says to the user is torch's affair."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            function(*args, **kwargs)
        except (TypeError, ValueError, RuntimeError, AttributeError, NotImplementedError):
            return True
    return False


def graphs(function, *batches) -> int:
    """How many graphs whole calls on these batches make."""
    torch._dynamo.reset()
    counted = torch._dynamo.testing.CompileCounter()
    compiled = torch.compile(function, fullgraph=True, backend=counted)
    for batch in batches:
        torch.testing.assert_close(compiled(batch), function(batch))
    return counted.frame_count


class Why:
    """The same sequences in four forms; each method tries the cells of one row."""

    def __init__(self):
        torch.manual_seed(0)
        self.parts = [torch.randn(n, 2, 8) for n in (3, 1, 4)]
        self.flat = [part.flatten(1) for part in self.parts]
        self.dense, self.lengths = pad_sequence(self.flat, batch_first=True), torch.tensor([3, 1, 4])
        self.packed = pack_sequence(self.flat, enforce_sorted=False)
        self.nested = torch.nested.nested_tensor(self.flat, layout=torch.jagged, requires_grad=True)
        self.x = tl.from_tensors(self.flat)
        self.heads = torch.nested.as_nested_tensor(self.parts, layout=torch.jagged).transpose(1, 2)
        self.q = tl.from_tensors(self.parts)
        self.lstm, self.conv = nn.LSTM(16, 4, batch_first=True), nn.Conv1d(16, 4, 3, padding=1)

    def padding_changes(self, function, index) -> bool:
        """Whether what is in the padding changes what a sequence gets."""
        other = self.dense.clone()
        other[torch.arange(4) >= self.lengths[:, None]] = 1
        return not function(self.dense)[index].equal(function(other)[index])

    def memory(self):
        assert self.dense.shape[:2].numel() == 3 * 4
        assert len(self.packed.data) == len(self.nested.values()) == len(self.x) == 8

    def recurrence(self):
        assert self.lstm(self.dense)[0].shape[:2].numel() == 3 * 4
        torch.testing.assert_close(self.lstm(self.packed)[0].data.sum(), self.lstm(self.x)[0].values().sum())
        assert raises(pack_sequence, [torch.ones(2, 1), torch.ones(0, 1)], enforce_sorted=False)
        assert raises(self.lstm, self.nested)
        assert self.lstm(tl.from_lengths(torch.randn(2, 16), [[2, 0]]))[0].lod.to_lengths() == [[2, 0]]

    def convolution(self):
        assert self.padding_changes(lambda dense: self.conv(dense.mT).mT, (0, 2))
        assert raises(self.conv, self.packed) and raises(self.conv, self.nested)
        expected = torch.cat([self.conv(part.T).T for part in self.flat])
        torch.testing.assert_close(self.conv(self.x).values(), expected)

    def attention(self):
        dense = pad_sequence(self.parts, batch_first=True).transpose(1, 2)
        mask = (torch.arange(4) < self.lengths[:, None])[:, None, None]
        expected = F.scaled_dot_product_attention(dense, dense, dense, attn_mask=mask)[0, :, :3].transpose(0, 1)
        assert raises(F.scaled_dot_product_attention, *[self.packed] * 3)
        found = F.scaled_dot_product_attention(*[self.heads] * 3).transpose(1, 2).unbind()[0]
        torch.testing.assert_close(found, expected)
        assert raises(F.scaled_dot_product_attention, *[self.heads] * 3, is_causal=True)
        torch.testing.assert_close(tl.sequence_attention(*[self.q] * 3).seq[0], expected)
        pairs = tl.sequence_pairwise(self.x, self.x)[:, None].expand(-1, 2)
        for options in ({"causal": True}, {"window": (1, 1)}, {"bias": pairs}):
            assert not tl.sequence_attention(*[self.q] * 3, **options).seq[0].equal(expected)

    def levels(self):
        dense, _ = tl.from_lengths(self.x.values(), [[2, 1], [3, 1, 4]]).to_padded(level="all")
        assert dense.shape == (2, 2, 4, 16)
        assert raises(pack_sequence, [self.packed]) and raises(torch.nested.nested_tensor, [self.nested] * 2)
        assert tl.batch([tl.batch([self.x, self.x], name="article")], name="author").lod_level == 3

    def gradient(self):
        dense = self.dense.clone().requires_grad_()
        mask = (torch.arange(4) < self.lengths[:, None])[..., None]
        assert torch.autograd.grad((dense * mask).sum(1).sum(), dense)[0].sum() == 8 * 16
        assert raises(lambda: self.packed.sum(1)) and raises(lambda: self.nested.sum(1).sum().backward())
        rows = self.x.values().clone().requires_grad_()
        pooled = tl.sequence_pool(tl.LoDTensor(rows, self.x.lod) ** 2, "sum").sum()
        (first,) = torch.autograd.grad(pooled, rows, create_graph=True)
        assert torch.autograd.grad(first.sum(), rows)[0].equal(torch.full_like(rows, 2))

    def compiled(self):
        layer, other = tl.nn.LSTM(16, 4), tl.from_tensors([torch.randn(n, 16) for n in (2, 5)])
        with torch._dynamo.config.patch(allow_rnn=True):
            assert graphs(lambda dense: self.lstm(dense)[0], self.dense) == 1
            assert raises(graphs, lambda packed: self.lstm(packed)[0].data, self.packed)
            assert raises(graphs, lambda nested: self.lstm(nested)[0], self.nested)
        assert graphs(lambda x: tl.sequence_pool(layer(x)[0], "last"), self.x, other) == 1

    def mixed(self):
        assert self.dense.softmax(1).shape == self.dense.shape and self.padding_changes(lambda d: d.softmax(1), (0, 0))
        assert self.packed.data.softmax(0).shape == (8, 16)
        assert raises(self.nested.softmax, 0)
        with pytest.raises(tl.LoDError, match=r"tl\.sequence_softmax"):
            self.x.softmax(0)


#: The table as it was tried: the title of a row, its cells, and what tries them.
WHY = {
    ("memory grows with", "sequences times the longest", "rows", "rows", "rows"): Why.memory,
    ("LSTM, GRU", "compute the padding as well", "yes; no empty sequences", "no", "yes"): Why.recurrence,
    ("convolution along sequences", "reads the padding", "no", "no", "yes"): Why.convolution,
    (
        "attention",
        "with a mask",
        "no",
        "full; causal not on a CPU",
        "full, causal, windows, biases",
    ): Why.attention,
    ("levels", "a dim each, all padded", "one", "one", "any number, with names"): Why.levels,
    (
        "gradient of a sum over each sequence",
        "with a mask",
        "no such sum",
        "no",
        "yes, also of second order",
    ): Why.gradient,
    ("`torch.compile` of an LSTM", "yes", "no", "no LSTM", "one graph for all lengths"): Why.compiled,
    (
        "softmax across sequences by mistake",
        "numbers, in silence",
        "numbers, in silence",
        "raises",
        "raises, and says what to write",
    ): Why.mixed,
}


def test_the_table_of_reasons_is_what_was_tried():
    section = re.search(r"^## Why\n\n.*?\n\|---.*?\n(.*?)\n\n", README, re.S | re.M)[1]
    rows = [tuple(pages.LINK.sub(r"\1", line).strip("| ").split(" | ")) for line in section.splitlines()]
    assert rows == list(WHY)


@pytest.mark.parametrize("row", WHY, ids=lambda row: row[0])
def test_a_reason_holds(row):
    WHY[row](Why())


# -- Speed


def test_speeds_are_those_of_the_tables():
    text = re.search(r"^## Speed\n(.*?)^## ", README, re.S | re.M)[1]
    tables = {name: (ROOT / name).read_text() for name in re.findall(r"\((benchmarks/results/[^)]*)\)", text)}
    short, zen5, drivers, h200 = tables.values()

    def beside(case: str, peer: str) -> str:
        """How often as fast sequence_pool or sequence_softmax is as the fastest peer, which is this one."""
        cell = re.search(rf"^\| {re.escape(case)} \| tl\.sequence_\w+ \|.*\| ([^|]*) \|$", short, re.M)[1]
        ratio, named = cell.split(" ", 1)
        assert named == f"({peer})"
        return f"{float(ratio):.1f} times"

    assert "T: 100,000 sequences of 1 + Poisson(3) rows" in short and "of 4 events on average" in text
    assert "fbgemm_gpu and torch_scatter\nbeside it" in short
    flat = " ".join(pages.LINK.sub(r"\1", text).split())
    with_gradient = ", backward too"
    for case, peer in (("sum T D=1", "index_add"), ("softmax T D=1", "fbgemm.jagged_softmax")):
        said = rf"{beside(case, peer)} as fast as (fbgemm's )?`{peer.rpartition('.')[2]}`, {beside(case + with_gradient, peer)} with"
        assert re.search(said, flat), said
    padded, packed = re.search(r">= 8x padded: ([\d.]+)x; >= 4x packed: ([\d.]+)x", zen5).groups()
    assert f"{float(padded):.1f} times as fast as on padded batches" in flat
    assert f"{float(packed):.1f} times as fast as on `PackedSequence`" in flat
    rows = re.search(r"\| rows of both \| (\d+) \|", drivers)[1]
    reached = re.search(r"at 0.9 or more of torch's dense operator \| \d+ \| (\d+) \|", drivers)[1]
    assert f"at least 0.9 of the speed of torch's on a dense tensor in {reached} of {rows} cases" in flat
    row = r"^\| (?:LSTM|GRU) H=[^|]*\|[^|]*\|[^|]*\| ([\d.]+) \|[^|]*\|[^|]*\| ([\d.]+) \|$"
    times = [float(faster) for pair in re.findall(row, h200, re.M) for faster in pair]
    assert len(times) == 32 and "0.2 to\n  0.7 of the time" in text
    assert round(1 / max(times), 1) == 0.2 and round(1 / min(times), 1) == 0.7
    shares = re.findall(r"\*\*tl\.nn\.(?:LSTM|GRU)\*\* .*\| ([\d.]+) +\|  \|\n.*padded, layouts given", h200)
    assert len(shares) > 3 and max(map(float, shares)) <= 0.2 and "5 times as fast as we are, or more" in text


# -- Where it is


def test_the_page_is_short_and_names_the_repository_where_it_is_known():
    assert len(README.splitlines()) <= 135
    address = pages.repository()
    assert address in README if address else not re.search(r"git clone|git\+https", README)
