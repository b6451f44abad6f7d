# SPDX-License-Identifier: Apache-2.0
"""Whole sequences as static input of tl.scan: every step sees those of the sequences that have it, at any level."""

import re
from pathlib import Path

import pytest
import torch

import torch_lod as tl

PAGE = Path(__file__).parents[2] / "docs/recurrence.md"
TARGETS = [[2, 0, 1], [3, 0, 2]]
#: A source for each of the three targets of level 1; the source of a target that has words may be empty.
SOURCES = [[2, 0, 1], [4, 1, 0]]


def decoder():
    """The one of the documentation."""
    block = next(b for b in re.findall(r"```py\n(.*?)```", PAGE.read_text(), re.S) if "class Decoder" in b)
    assert len(block.splitlines()) <= 16, "at most 15 lines and a blank one"
    names = {"torch": torch, "tl": tl}
    exec(block, names)
    torch.manual_seed(0)
    return names["Decoder"](7, 4).double()


def alone(model, words, memory, h):
    """The same decoder for one target, in plain torch."""
    outputs = []
    for word in words:
        context = h.new_zeros(4)
        if len(memory):
            scores = model.score(torch.tanh(model.key(memory) + model.query(h))).squeeze(1)
            context = scores.softmax(0) @ memory
        h = model.cell(torch.cat([model.embed(word), context]), h)
        outputs.append(model.out(h))
    return outputs


def batch(device, lengths=TARGETS, sources=SOURCES):
    g = torch.Generator().manual_seed(1)
    words = tl.from_lengths(torch.randint(7, (sum(lengths[-1]),), generator=g).to(device), lengths)
    rows = torch.randn(sum(sources[-1]), 4, generator=g, dtype=torch.float64).to(device).requires_grad_()
    first = torch.randn(len(lengths[-1]), 4, generator=g, dtype=torch.float64).to(device).requires_grad_()
    return words, rows, tl.from_lengths(rows, sources), first


@pytest.mark.parametrize("depth", [1, 2])
def test_the_decoder_of_the_documentation_equals_a_loop(depth, device):
    model = decoder().to(device)
    words, rows, memory, first = batch(device, TARGETS[-depth:], SOURCES[-depth:])
    got = model(words, memory, first)
    assert got.lod == words.lod
    each = zip(words.sequences(-1), memory.sequences(-1), first)
    want = torch.stack([row for w, m, h in each for row in alone(model, w, m, h)])
    torch.testing.assert_close(got.values(), want)
    leaves = [rows, first, *model.parameters()]
    gradients = [torch.autograd.grad(y.square().sum(), leaves) for y in (got.values(), want)]
    for a, b in zip(*gradients):
        torch.testing.assert_close(a, b)


def test_gradients_of_gradients_reach_the_memory():
    words, rows, memory, first = batch("cpu", TARGETS[1:], SOURCES[1:])
    x = words.values().double()[:, None]

    def run(rows, first):
        def cell(word, h, source):
            weight = tl.sequence_softmax(source * tl.sequence_expand_as(h, source))
            return torch.tanh(h + word + tl.sequence_pool(source * weight, "sum"))

        return tl.scan(cell, words.with_values(x), first, static=memory.with_values(rows))[0].values()

    assert torch.autograd.gradcheck(run, (rows, first))
    assert torch.autograd.gradgradcheck(run, (rows, first))


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("level", [0, 1])
def test_a_step_sees_the_sequences_that_have_it(level, reverse, device):
    """Of two memories and a plain tensor; along the outer level the memory keeps a level below it."""
    words, _, memory, _ = batch(device)
    number = torch.arange(3.0, device=device)
    seen = []

    def cell(step, state, static):
        whole, (halves, plain) = static
        count = step.num_sequences() if level == 0 else step.shape[0]
        assert isinstance(whole, tl.LoDTensor) and whole.lod_level == 2 - level
        assert whole.num_sequences() == halves.num_sequences() == plain.shape[0] == count
        assert torch.equal(halves.values() * 2, whole.values())
        for i, n in enumerate(plain.int().tolist()):
            assert torch.equal(whole.slice(0, i).values(), memory.slice(level, n, n + 1).values())
        seen.append(plain.int().tolist())
        return state, state

    tl.scan(cell, words, number, level=level, reverse=reverse, static=(memory, [memory / 2, number]))
    assert seen == [[[0, 2], [0]], [[0, 2], [0, 2], [0]]][level]


def test_steps_share_the_memory():
    """Put in order once: as long as no sequence has ended, every step sees the same object; then a view of it."""
    x = tl.from_lengths(torch.ones(11, 1), [[4, 3, 4]])
    memory = tl.from_lengths(torch.randn(9, 2), [[2, 3, 4]])
    seen = []
    tl.scan(lambda r, h, m: seen.append(m) or h, x, torch.zeros(3, 1), static=memory)
    assert seen[0] is seen[1] is seen[2] and seen[3].lengths().tolist() == [2, 4]
    assert seen[3].data_ptr() == seen[0].data_ptr()


@pytest.mark.parametrize("lengths", [[[0, 0, 0]], [[]]])
def test_without_any_step(lengths):
    x = tl.from_lengths(torch.zeros(0, 2), lengths)
    memory = tl.from_lengths(torch.ones(len(lengths[0]), 2), [[1] * len(lengths[0])])
    cell = lambda r, h, m: h + tl.sequence_pool(m, "sum")  # noqa: E731
    out, last = tl.scan(cell, x, torch.ones(len(lengths[0]), 2), static=memory)
    assert out.shape == (0, 2) and torch.equal(last, torch.ones(len(lengths[0]), 2))


def test_rows_with_the_outer_levels_are_rows():
    words, _, memory, _ = batch("cpu")
    pooled = tl.sequence_pool(memory, "sum")
    assert pooled.lod_level == 1
    out, _ = tl.scan(lambda w, h, m: (m, h), words, torch.zeros(3, 1), static=pooled)
    assert torch.equal(out.values(), pooled.values()[words.lod.segment_ids(-1)])
    other = tl.from_lengths(pooled.values(), [[1, 1, 1]])
    with pytest.raises(tl.LoDError, match=r"LoDs that differ at index 0: at level 0, sequence 0: lengths 2 and 1"):
        tl.scan(lambda w, h, m: (m, h), words, torch.zeros(3, 1), static=other)


@pytest.mark.parametrize(
    ("static", "level", "said"),
    [
        (
            lambda m: tl.from_lengths(m.values(), [[4, 1]]),
            0,
            "a sequence of level 0 for each of 3, got 2 at index 0",
        ),
        (lambda m: [m, tl.from_lengths(m.values(), [[1, 2], [4, 1, 0]])], 1, "at index 1: at level 0: 3 and 2 seq"),
        (lambda m: tl.from_lengths(m.values(), [[1, 1, 1], [4, 1, 0]]), 1, "at index 0: at level 0, sequence 0: l"),
        (lambda m: tl.from_lengths(m.values(), [[4, 1, 0]]), 1, "got 5 rows with 1 level at index 0; .group(...) adds"),
        (lambda m: (m, torch.ones(2, 4)), 1, "static with a row for each of 3 sequences, got (2, 4) at index 1"),
        (lambda m: (m, "memory"), 1, "static of tensors, got str at index 1"),
    ],
)
def test_what_does_not_fit_is_said(static, level, said):
    words, _, memory, _ = batch("cpu")
    with pytest.raises(tl.LoDError) as caught:
        tl.scan(lambda w, h, m: h, words, torch.zeros(3, 1), level=level, static=static(memory.detach()))
    assert str(caught.value).startswith("scan: expected static") and said in str(caught.value), str(caught.value)


def test_a_compiled_cell_sees_the_memory():
    words, rows, memory, first = batch("cpu", [[3, 0, 2, 2]], [[2, 3, 0, 1]])
    x = words.with_values(words.values().double())

    def cell(word, h, source):
        return torch.tanh(h + word[:, None] + tl.sequence_pool(source * tl.sequence_expand_as(h, source), "sum"))

    torch._dynamo.reset()
    compiled = torch.compile(cell, backend="eager", fullgraph=True, dynamic=True)
    got, want = (tl.scan(function, x, first, static=memory)[0].values() for function in (compiled, cell))
    torch.testing.assert_close(got, want)
    for a, b in zip(*(torch.autograd.grad(y.square().sum(), [rows, first]) for y in (got, want))):
        torch.testing.assert_close(a, b)


def test_dynamic_rnn_hands_it_on():
    words, _, memory, first = batch("cpu")
    x = words.with_values(words.values().double())
    cell = lambda w, h, m: torch.tanh(h + w[:, None] + tl.sequence_pool(m, "max"))  # noqa: E731
    for reverse in (False, True):
        out, last = tl.nn.DynamicRNN(cell, reverse=reverse)(x, first, memory)
        want, end = tl.scan(cell, x, first, reverse=reverse, static=memory)
        assert torch.equal(out.values(), want.values()) and torch.equal(last, end)
