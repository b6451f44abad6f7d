# SPDX-License-Identifier: Apache-2.0
"""Text of transformers' models, 32 prompts of ragged lengths together, is that of each prompt alone: `make formats`."""

import sys
from pathlib import Path

import pytest
import torch
import transformers as hf

import torch_lod as tl

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

from generate_text import generate

OURS, STEPS, END = tl.integrations.transformers, 8, 7
WAYS = {"greedy": {"temperature": 0}, "top-k": {"top_k": 5}, "top-p": {"temperature": 0.8, "top_p": 0.7}}
SIZES = {
    "vocab_size": 40,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "pad_token_id": 0,
}
GREEDY = {"max_new_tokens": STEPS, "do_sample": False, "pad_token_id": 0}


def made(config="LlamaConfig", cls="LlamaForCausalLM", **others):
    torch.manual_seed(0)
    return getattr(hf, cls)(getattr(hf, config)(**{**SIZES, **others})).double().eval()


class Fed:
    """A prepared model, as examples/generate_text.py calls one."""

    def __init__(self, model):
        self.model, self.blocks = OURS.use(model), range(model.config.num_hidden_layers)

    def __call__(self, ids, caches):
        return self.model(ids, past_key_values=caches).logits


@pytest.fixture(scope="module")
def prompts():
    lengths = torch.randint(1, 20, (32,), generator=torch.Generator().manual_seed(0))
    return tl.from_lengths(
        torch.randint(1, 40, (int(lengths.sum()),), generator=torch.Generator().manual_seed(1)), [lengths]
    )


@pytest.mark.parametrize("way", WAYS)
def test_texts_are_written_in_company_as_alone(way, prompts):
    model = Fed(made())
    together = generate(model, prompts, STEPS, END, **WAYS[way]).to_list()
    for i, text in enumerate(prompts.to_list()):
        assert together[i] == generate(model, tl.lod_tensor([text]), STEPS, END, seeds=[i], **WAYS[way]).to_list()[0]


@pytest.mark.parametrize("config", ["Llama", "Qwen3", "GPTNeoX"])
def test_greedy_texts_are_those_of_the_library(config, prompts):
    model = made(f"{config}Config", f"{config}ForCausalLM")
    plain = [model.generate(text[None], **GREEDY, eos_token_id=None)[0].tolist() for text in prompts.unbind_sequences()]
    mapped = tl.map_sequences(lambda s: model.generate(s, **GREEDY, eos_token_id=None), prompts, results="resized")
    assert mapped.to_list() == plain == generate(Fed(model), prompts, STEPS, temperature=0).to_list()


def test_texts_that_end_early_are_filled_by_the_library(prompts):
    model = made()
    mapped = tl.map_sequences(
        lambda s: model.generate(s, **GREEDY, eos_token_id=END), prompts, results="resized"
    ).to_list()
    for text, ours in zip(mapped, generate(Fed(model), prompts, STEPS, END, temperature=0).to_list()):
        assert text[: len(ours)] == ours and not any(text[len(ours) :])


def test_what_has_no_caches_says_so(prompts):
    model, cache = OURS.use(made()), tl.Cache(prompts.lengths() + 3)
    with torch.no_grad():
        for caches, said in (
            ([cache], "expected past_key_values as a tl.Cache for each of 2 layers"),
            ([cache, None], "expected past_key_values as a tl.Cache for each of 2 layers"),
            ([tl.Cache([9])] * 2, "expected k with the 1 sequences of the cache, got 32"),
        ):
            with pytest.raises(tl.LoDError, match=said):
                model(prompts, past_key_values=caches)
        windowed = OURS.use(made("MistralConfig", "MistralForCausalLM", sliding_window=4))
        with pytest.raises(tl.LoDError, match="has states, windows or positions of its own"):
            windowed(prompts, past_key_values=[cache, cache])
    with pytest.raises(tl.LoDError, match="needs no gradient"):
        model(prompts, past_key_values=[cache, tl.Cache(prompts.lengths())])
    for method in OURS.model.METHODS:
        model = OURS.use(made(), method=method)
        with pytest.raises(
            tl.LoDError, match=r"tl\.map_sequences\(lambda s: model\.generate\(s, \.\.\.\), x, results="
        ):
            model.generate(prompts)
