# SPDX-License-Identifier: Apache-2.0
"""Texts that go on together are written as each alone, token by token; what is drawn is among the most likely."""

import sys
from pathlib import Path

import pytest
import torch

import torch_lod as tl

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

import generate_text as example

STEPS, END = 10, 7
WAYS = {"greedy": {"temperature": 0}, "top-k": {"top_k": 5}, "top-p": {"temperature": 0.8, "top_p": 0.7}}


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    made = example.hybrid_characters.Hybrid().double().eval()
    made.out = torch.nn.Linear(example.hybrid_characters.WIDTH, 40).double()  # few words, so that some texts end
    return made


@pytest.fixture(scope="module")
def prompts():
    lengths = torch.randint(1, 20, (32,), generator=torch.Generator().manual_seed(0))
    return tl.from_lengths(
        torch.randint(40, (int(lengths.sum()),), generator=torch.Generator().manual_seed(1)), [lengths]
    )


@pytest.mark.parametrize("way", WAYS)
def test_texts_are_written_in_company_as_alone(way, model, prompts):
    together = example.generate(model, prompts, STEPS, END, **WAYS[way]).to_list()
    for i, text in enumerate(prompts.to_list()):
        alone = example.generate(model, tl.lod_tensor([text]), STEPS, END, seeds=[i], **WAYS[way]).to_list()[0]
        assert together[i] == alone and together[i][: len(text)] == text
    new = [text[n:] for text, n in zip(together, prompts.lengths().tolist())]
    assert all(END not in text[:-1] and (len(text) == STEPS or text[-1] == END) for text in new)
    assert way == "greedy" or any(len(text) < STEPS for text in new)


def test_a_token_is_drawn_from_the_most_likely():
    logits, draws = torch.tensor([[0.0, 3.0, 1.0, 2.9, -1.0]]).double(), [torch.Generator().manual_seed(3)]
    seen = {
        name: {int(example.pick(logits, draws, **options)) for _ in range(300)}
        for name, options in {
            "all": {"temperature": 3.0},
            "two": {"top_k": 2},
            "half": {"top_p": 0.5},
            "most": {"top_p": 0.92},
            "one": {"top_p": 1e-9},
            "first": {"temperature": 0},
        }.items()
    }
    best = {"all": {0, 1, 2, 3, 4}, "two": {1, 3}, "half": {1, 3}, "most": {1, 2, 3}, "one": {1}, "first": {1}}
    assert seen == best  # probabilities of the tokens: 0.475, 0.430, 0.064, 0.024 and 0.009
    counts = torch.bincount(example.pick(logits.expand(4000, 5), draws * 4000), minlength=5) / 4000
    torch.testing.assert_close(counts.double(), logits[0].softmax(0), atol=0.03, rtol=0)


def test_it_prints_four_texts_in_three_ways(capsys):
    example.main(0, 5)
    lines = capsys.readouterr().out.splitlines()
    assert (
        len(lines) == 12
        and lines[0].startswith("greedy  ")
        and "A cache " in lines[0]
        and lines[8].startswith("top-p ")
    )
