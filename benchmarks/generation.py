# SPDX-License-Identifier: Apache-2.0
"""The numbers of benchmarks/results/generation.md: 32 texts of different lengths go on together, greedy, with tl.Cache.

python -m benchmarks.generation            prints the table
python -m benchmarks.generation --write    and puts it into the page

A Llama of transformers with caches of ours, beside its own generate of the prompts as a padded batch (left padding and a mask),
and a decoder of the repository's operators with tl.Cache, beside the same decoder with tl.cat in every step. All texts are
compared before a time is shown. Float32, one thread, in turns, the best of some rounds.
"""

import argparse
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from torch import nn

import torch_lod as tl

from . import measure
from .cases import Setup

PAGE = Path(__file__).parent.parent / "benchmarks/results/generation.md"
TEXTS, LONGEST, STEPS, ROUNDS = 32, (512, 2048), 128, 3
WORDS, WIDTH, HEADS, LAYERS = 1000, 256, 8, 4
#: Times of the other way over ours.
BESIDE_CAT, BESIDE_PADDED = 3.0, 1.0
Ways = dict[str, Callable[[tl.LoDTensor], tuple[list[list[int]], float]]]


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 3 * WIDTH), nn.GELU(), nn.Linear(3 * WIDTH, WIDTH))

    def forward(self, x, cache):
        q, k, v = (t.unflatten(-1, (HEADS, -1)) for t in self.qkv(self.norms[0](x)).chunk(3, -1))
        start = cache.lengths()
        q, k = tl.rotary_embedding(q, start=start), tl.rotary_embedding(k, start=start)
        k, v = cache.append(k, v)
        x = x + self.out(tl.sequence_attention(q, k, v, causal=True).flatten(1))
        return x + self.mlp(self.norms[1](x))


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, WORDS)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))

    def forward(self, ids, caches):
        x = self.embed(ids)
        for layer, cache in zip(self.layers, caches):
            x = layer(x, cache)
        return self.head(x)


class InPlace:
    """Keys and values where they lie."""

    def __init__(self, prompts: tl.LoDTensor):
        self.cache = tl.Cache(prompts.lengths() + STEPS)
        self.lengths = self.cache.lengths

    def append(self, k, v):
        self.cache.append(k, v)
        return self.cache, None


class Copied:
    """Keys and values of all rows, copied in every step."""

    def __init__(self, prompts: tl.LoDTensor):
        self.held: list[tl.LoDTensor] = []
        self.count = torch.zeros(prompts.num_sequences(), dtype=torch.int64)

    def lengths(self):
        return self.held[0].lengths() if self.held else self.count

    def append(self, k, v):
        self.held = [tl.cat([old, new], along="within") for old, new in zip(self.held, (k, v))] or [k, v]
        return self.held


@torch.no_grad()
def written(model: Callable, caches: list, prompts: tl.LoDTensor) -> tuple[list[list[int]], float]:
    """The new tokens, and the seconds of all steps behind the prompts."""
    rows, new, start = prompts, [], 0.0
    for _ in range(STEPS):
        token = tl.sequence_pool(model(rows, caches), "last").argmax(-1)
        start = start or time.perf_counter()
        new.append(token)
        rows = tl.from_lengths(token, [[1] * len(token)])
    return torch.stack(new, 1).tolist(), time.perf_counter() - start


def by_ours(model, prompts: tl.LoDTensor) -> tuple[list[list[int]], float]:
    start = time.perf_counter()
    caches = [tl.Cache(prompts.lengths() + STEPS) for _ in range(LAYERS)]
    new, _ = written(lambda ids, caches: model(ids, past_key_values=caches).logits, caches, prompts)
    return new, time.perf_counter() - start


@torch.no_grad()
def by_padded(model, prompts: tl.LoDTensor) -> tuple[list[list[int]], float]:
    start = time.perf_counter()
    texts = prompts.unbind_sequences()
    longest = max(map(len, texts))
    ids = torch.stack([nn.functional.pad(text, (longest - len(text), 0)) for text in texts])
    mask = torch.stack([nn.functional.pad(torch.ones_like(text), (longest - len(text), 0)) for text in texts])
    options = {"max_new_tokens": STEPS, "do_sample": False, "pad_token_id": 0, "eos_token_id": None}
    new = model.generate(ids, attention_mask=mask, **options)[:, longest:].tolist()
    return new, time.perf_counter() - start


def llama():
    import transformers as hf

    sizes = {"vocab_size": WORDS, "hidden_size": WIDTH, "intermediate_size": 3 * WIDTH, "num_hidden_layers": LAYERS}
    return hf.LlamaForCausalLM(hf.LlamaConfig(**sizes, num_attention_heads=HEADS, max_position_embeddings=4096)).eval()


def line(what: str, prompts: tl.LoDTensor, ways: Ways, goal: float) -> str:
    best, texts = dict.fromkeys(ways, float("inf")), {}
    for _ in range(ROUNDS):
        for name, way in ways.items():
            texts[name], spent = way(prompts)
            best[name] = min(best[name], spent)
    ours, other = best.values()
    if texts["ours"] != texts["other"]:
        raise SystemExit(f"{what}: the texts differ")
    met = "met" if other >= goal * ours else "missed"
    return f"| {what} | {ours:.2f} s | {other:.2f} s | {other / ours:.1f}x | {goal:.0f}x: {met} |"


def lines_of_table() -> list[str]:
    lines = ["| | tl.Cache | other | | goal |", "|---|---|---|---|---|"]
    decoder, plain = Decoder().eval(), llama()
    packed = llama()
    packed.load_state_dict(plain.state_dict())
    tl.integrations.transformers.use(packed, method="packed")
    for longest in LONGEST:
        lengths = torch.randint(1, longest + 1, (TEXTS,))
        prompts = tl.from_lengths(torch.randint(1, WORDS, (int(lengths.sum()),)), [lengths])
        said = f"prompts of 1 to {longest} tokens"
        copies: Ways = {
            "ours": lambda given: written(decoder, [InPlace(given) for _ in decoder.layers], given),
            "other": lambda given: written(decoder, [Copied(given) for _ in decoder.layers], given),
        }
        lines.append(line(f"tl.cat in every step; {said}, steps behind them", prompts, copies, BESIDE_CAT))
        padded: Ways = {"ours": partial(by_ours, packed), "other": partial(by_padded, plain)}
        lines.append(line(f"transformers, padded; {said}, with them", prompts, padded, BESIDE_PADDED))
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.generation", description=__doc__.split("\n")[0])
    parser.add_argument("--write", action="store_true", help=f"put the table into {PAGE.name}")
    asked = parser.parse_args()
    try:
        import transformers
    except ImportError:
        raise SystemExit(
            "python -m benchmarks.generation compares with transformers: pip install transformers"
        ) from None
    torch.set_num_threads(1)
    torch.manual_seed(0)
    about = measure.header(Setup(torch.device("cpu"), 1, False), measure.Effort(ROUNDS, 0, 0))
    lines = [*(f"- {what}: {about[what]}" for what in ("processor", "torch", "torch_lod"))]
    lines += [f"- transformers: {transformers.__version__}", "", *lines_of_table()]
    print("\n".join(lines))
    if asked.write:
        measure.put_into(PAGE, lines)


if __name__ == "__main__":
    main()
