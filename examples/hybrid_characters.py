# SPDX-License-Identifier: Apache-2.0
"""A hybrid language model of characters, delta rule and attention layers, trained on the paragraphs of this repository's pages.

    python examples/hybrid_characters.py                about two minutes on two cores
    python examples/hybrid_characters.py --steps 20     a look

Batches are packed up to a budget of bytes, whatever the lengths of the paragraphs, and no state and no attention reaches another
paragraph. Its padded twin has the same parameters and gets the same paragraphs, each padded to the longest of its batch: the
same loss, from more rows.
"""

import copy
import math
import time
from pathlib import Path

import torch
from running import add_machine, compute_on, new_parser
from torch import nn

import torch_lod as tl

PAGES = Path(__file__).parent.parent / "docs"
WIDTH, HEADS, BUDGET, LONGEST, IGNORED = 96, 4, 4096, 800, -100


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.into, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: tl.LoDTensor, cache: tl.Cache | None = None) -> tl.LoDTensor:
        q, k, v = (t.unflatten(1, (HEADS, -1)) for t in self.into(x).chunk(3, 1))
        if cache is None:
            return self.out(tl.sequence_attention(q, k, v, causal=True).flatten(1))
        cache.append(k, v)
        return self.out(tl.sequence_attention(q, cache, causal=True).flatten(1))


class Block(nn.Module):
    def __init__(self, mixer: nn.Module):
        super().__init__()
        self.mixer, self.norms = mixer, nn.ModuleList([nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH)])
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH))

    def forward(self, x: tl.LoDTensor, cache: tl.Cache | None = None) -> tl.LoDTensor:
        normed = self.norms[0](x)
        if cache is None or isinstance(self.mixer, Attention):
            mixed = self.mixer(normed, cache)
        else:
            mixed, cache.state = self.mixer(normed, cache.state, return_state=True)
        x = x + mixed
        return x + self.mlp(self.norms[1](x))


class Hybrid(nn.Module):
    """Three delta rule layers of four, as in Qwen3-Next; they know where a row is, so there are no positions."""

    def __init__(self):
        super().__init__()
        deltas = [tl.nn.GatedDeltaNet(WIDTH, 2, HEADS, WIDTH // HEADS, WIDTH // HEADS) for _ in range(3)]
        self.blocks = nn.ModuleList(map(Block, [*deltas[:2], Attention(), deltas[2]]))
        self.embed, self.norm, self.out = nn.Embedding(256, WIDTH), nn.RMSNorm(WIDTH), nn.Linear(WIDTH, 256)

    def forward(self, x: tl.LoDTensor, caches: list[tl.Cache] | None = None) -> tl.LoDTensor:
        x = self.embed(x)
        for block, cache in zip(self.blocks, [None] * len(self.blocks) if caches is None else caches):
            x = block(x, cache)
        return self.out(self.norm(x))


def paragraphs() -> list[torch.Tensor]:
    """The bytes of every paragraph of the pages, those of the generated ones left out."""
    pages = (page.read_text(encoding="utf-8") for page in sorted(PAGES.glob("*.md")))
    texts = (text for text in pages if "<!-- Generated" not in text)
    parts = (part.encode()[:LONGEST] for text in texts for part in text.split("\n\n"))
    return [torch.frombuffer(bytearray(part), dtype=torch.uint8).long() for part in parts if len(part) > 1]


def packed(samples: list[torch.Tensor]) -> tuple[tl.LoDTensor, torch.Tensor]:
    """Bytes, and the byte that follows each; of the last byte of a paragraph nothing is asked."""
    x = tl.from_tensors(samples)
    return x, tl.sequence_shift(x, -1, padding_value=IGNORED).values()


def padded(samples: list[torch.Tensor]) -> tuple[tl.LoDTensor, torch.Tensor]:
    """The same, with every paragraph as long as the longest."""
    longest = max(map(len, samples))
    x, targets = packed(samples)
    full = torch.full((len(samples), longest), 0), torch.full((len(samples), longest), IGNORED)
    for i, (rows, wanted) in enumerate(zip(samples, targets.split(x.lengths().tolist()))):
        full[0][i, : len(rows)], full[1][i, : len(rows)] = rows, wanted
    return tl.from_lengths(full[0].flatten(), [[longest] * len(samples)]), full[1].flatten()


class Trained:
    """A model, its batches, and what its steps took."""

    def __init__(self, model: nn.Module, batch):
        self.model, self.batch, self.seconds, self.kept, self.rows = model, batch, 0.0, 0, 0
        self.optimizer = torch.optim.AdamW(model.parameters(), 3e-3)

    def step(self, samples: list[torch.Tensor]) -> float:
        memory: dict[int, int] = {}

        def keep(t: torch.Tensor) -> torch.Tensor:
            memory[t.untyped_storage().data_ptr()] = t.untyped_storage().nbytes()
            return t

        started = time.perf_counter()
        x, targets = self.batch(samples)
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda t: t):
            loss = nn.functional.cross_entropy(self.model(x).values(), targets, ignore_index=IGNORED)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.seconds += time.perf_counter() - started
        self.kept, self.rows = max(self.kept, sum(memory.values())), self.rows + len(x)
        return loss.item()


def main(steps: int, twin_steps: int) -> Hybrid:
    torch.manual_seed(0)
    texts = paragraphs()
    sampler = tl.data.TokenBudgetSampler([len(t) for t in texts], budget=BUDGET)
    model = Hybrid()
    ours = Trained(model, packed)
    twin = Trained(copy.deepcopy(model), padded)
    print(
        f"{len(texts)} paragraphs of 2 to {max(map(len, texts))} bytes; {sum(p.numel() for p in model.parameters()):,} numbers"
    )
    step, apart, losses, read, common = 0, 0.0, [], 0, 0.0
    while step < steps:
        for batch in sampler:
            samples = [texts[i] for i in batch]
            losses.append(ours.step(samples))
            read += sum(map(len, samples))
            if step < twin_steps:  # beside it, from the same parameters
                apart = max(apart, abs(twin.step(samples) - losses[-1]))
                common = ours.seconds
            step += 1
            if step % 25 == 0 or step == steps:
                recent = losses[-25:]
                bits = sum(recent) / len(recent) / math.log(2)
                print(f"step {step:4}  {bits:.2f} bits a byte  {read / ours.seconds / 1000:.1f}k bytes/s", flush=True)
            if step == steps:
                break
    print(f"padded twin, {twin_steps} steps: losses differ by {apart:.0e} at most; {twin.seconds / common:.1f}x the time, "
          f"{twin.kept / ours.kept:.1f}x the memory for the backward")  # fmt: skip
    return model


if __name__ == "__main__":
    parser = new_parser(__doc__)
    parser.add_argument("--steps", type=int, default=150, help="default: %(default)s")
    parser.add_argument("--twin-steps", type=int, default=10, help="of the padded twin, default: %(default)s")
    add_machine(parser.add_argument)
    asked = parser.parse_args()
    compute_on(asked)
    main(asked.steps, min(asked.steps, asked.twin_steps))
