# SPDX-License-Identifier: Apache-2.0
"""tl.map_sequences(..., check=True): a function that mixes the rows of a dense batch is told, one that does not passes unchanged."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import torch_lod as tl

torch.manual_seed(0)
#: Two equal lengths, no two, a batch of one.
LENGTHS = [[2, 0, 3, 3], [1, 4], [3]]


class Adaptive(nn.Module):
    """Scales channels by a mean over the whole batch."""

    def forward(self, x):
        return x * torch.sigmoid(x.mean((0, 1), keepdim=True))


class Positions(nn.Module):
    """A position table that is laid along dim 0, of code for (length, batch, width)."""

    def __init__(self):
        super().__init__()
        self.register_buffer("table", torch.randn(16, 1, 4))

    def forward(self, x):
        return x + self.table[: x.shape[0]]


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(()))
        self.drop = nn.Dropout(0.5)

    def forward(self, x):
        self.seen += 1
        return self.drop(x)


MIXES = {
    "a mean over the batch": (Adaptive(), {}),
    "a sum of all": (lambda x: x - x.sum(), {}),
    "another layout": (Positions(), {}),
    "a norm over the batch": (lambda x: F.normalize(x, dim=0), {}),
    "of the sequences": (lambda x: x.sum(1) / x.abs().max(), {"results": "sequences"}),
    "a state at dim 1": (lambda x: (x, x.cumsum(0)[None, :, -1]), {"results": ("rows", ("sequences", 1))}),
    "of another length": (lambda x: (x + x.flip(0)).repeat_interleave(2, 1), {"results": "resized"}),
    "channels": (lambda x: x - x.mean(0, keepdim=True), {"layout": "channels"}),
    "an index": (lambda x: x.flatten(0, 1).argsort(0).view(x.shape), {}),
    "random numbers": (lambda x: x + torch.randn_like(x), {}),
    "with a mask": (lambda x, mask: x * mask[..., None] / mask.sum(), {"pad_to": [4]}),
}
KEEPS = {
    "a layer": (nn.TransformerEncoderLayer(4, 2, 8, batch_first=True), {}),
    "a recurrence": (nn.GRU(4, 3), {"layout": "length_first", "results": ("rows", ("sequences", 1))}),
    "the other layout": (Positions(), {"layout": "length_first"}),
    "batch norm": (nn.BatchNorm1d(4), {"layout": "channels"}),
    "not wanted": (lambda x: (x, x.sum()), {"results": ("rows", None)}),
    "half": (lambda x: x.half() @ torch.ones(4, 4).half(), {}),
    "NaN": (lambda x: x / 0 * 0, {}),
    "complex": (lambda x: torch.fft.fft(x, dim=1), {}),
    "an index": (lambda x: x.argmax(1), {"results": "sequences"}),
    "with a mask": (lambda x, mask: x * mask[..., None] / mask.sum(1)[:, None, None], {"pad_to": [4]}),
}


def batch(lengths):
    return tl.from_lengths(torch.randn(sum(lengths), 4), [lengths])


def mapped(fn, x, options, **more):
    if isinstance(fn, nn.Module):
        return tl.nn.MapSequences(fn, **options, **more)(x)
    return tl.map_sequences(fn, x, **options, **more)


@pytest.mark.parametrize("lengths", LENGTHS[:2])
@pytest.mark.parametrize("case", MIXES)
def test_what_mixes_the_sequences_of_a_stack_is_told(case, lengths):
    fn, options = MIXES[case]
    x = batch(lengths)
    mapped(fn, x, options)
    with pytest.raises(tl.LoDError, match="expected fn to compute every sequence of a stack by itself, got results"):
        mapped(fn, x, options, check=True)


@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize("case", KEEPS)
def test_what_does_not_mix_them_passes(case, lengths):
    fn, options = KEEPS[case]
    fn = fn.eval() if isinstance(fn, nn.Module) else fn
    x = batch(lengths)
    found, own = (mapped(fn, x, options, check=c) for c in (True, False))
    torch.testing.assert_close(found, own, equal_nan=True)


def test_others_go_along():
    x, y = batch([2, 3, 3, 1]), tl.from_lengths(torch.randn(9, 4), [[1, 4, 4, 0]])
    c, d = torch.randn(4, 4), tl.per_sequence(torch.randn(4, 4))

    def cross(q, memory, c, d, mix):
        assert c.shape == d.shape == (len(q), 4)
        out = (q @ memory.mT).softmax(-1) @ memory + (c + d)[:, None]
        return out - mix * out.mean(0)

    found = tl.map_sequences(cross, x, y, c, d, mix=0, check=True)
    assert torch.equal(found, tl.map_sequences(cross, x, y, c, d, mix=0))
    with pytest.raises(tl.LoDError, match="mixes the sequences"):
        tl.map_sequences(cross, x, y, c, d, mix=1, check=True)


def test_nothing_is_changed_by_it():
    model = Counting()
    x = tl.from_lengths(torch.randn(6, 4, requires_grad=True), [[2, 2, 2]])
    torch.manual_seed(3)
    want = tl.map_sequences(model, x)
    torch.manual_seed(3)
    found = tl.map_sequences(model, x, check=True)
    assert torch.equal(found, want) and model.training and model.drop.training and model.seen == 2
    found.sum().backward()


@pytest.mark.parametrize("call", [tl.map_sequences, lambda fn, x, **more: tl.nn.MapSequences(nn.ReLU(), **more)(x)])
def test_it_is_a_bool(call):
    with pytest.raises(tl.LoDError, match="expected check as a bool, got 1"):
        call(abs, batch([2]), check=1)


# -- what goes by position, and what by keyword


@pytest.mark.parametrize("memory", [batch([2, 3]), [batch([2, 3])], {"a": (batch([2, 3]),)}], ids=type)
def test_a_lod_tensor_by_keyword_is_refused(memory):
    with pytest.raises(
        tl.LoDError, match=r"expected memory by keyword .* by position: tl.map_sequences\(fn, x, memory\)"
    ):
        tl.map_sequences(lambda x, memory: x + memory, batch([2, 3]), memory=memory)


def test_a_row_for_each_sequence_is_one_however_it_is_declared():
    x, c = batch([2, 0, 3]), torch.randn(3, 4)
    want = tl.map_sequences(lambda s, c: s + c[:, None], x, c)
    assert torch.equal(tl.map_sequences(lambda s, c: s + c[:, None], x, tl.per_sequence(c)), want)
    y = tl.from_lengths(torch.randn(6, 4), [[2, 1], [1, 2, 3]], level_names=["text", "line"])
    shapes = []
    tl.map_sequences(lambda s, c: shapes.append(c.shape) or s, y, tl.per_sequence(c[:2], "text"), level="text")
    assert shapes == [(2, 4)]
    for wrong, words in (
        (tl.per_sequence(c[:2], 0), "declared for level 1, got tl.per_sequence"),
        (tl.per_sequence(c[:2]), "3 sequences"),
    ):
        with pytest.raises(tl.LoDError, match=words):
            tl.map_sequences(lambda s, c: s, y, wrong)


@pytest.mark.parametrize("name", ["level", "layout", "results", "pad_to", "fill", "check"])
def test_a_keyword_that_has_the_name_of_an_argument(name):
    space = {}
    exec(f"def fn(x, {name}): return x * {name}", space)
    options = {"level": -1, "layout": "batch_first", "results": "rows", "pad_to": None, "fill": 3, "check": False}
    with pytest.raises(TypeError) as caught:
        tl.map_sequences(space["fn"], batch([2]), **{name: options[name]})
    assert f"functools.partial(fn, {name}=...)" in "".join(caught.value.__notes__)
