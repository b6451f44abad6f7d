# SPDX-License-Identifier: Apache-2.0
"""tl.map_sequences beside a loop over the sequences and beside a padded batch: a training step (forward, and the gradients of
the weights) on 32 sequences of lengths that are uniform in 1 to 100, of a heavy tail, and of a batch of tl.data.BucketSampler.
"padded" is the model on a dense batch in which every sequence is as long as the longest, without the mask that it would need to
be right. CPU time of one thread, the best of some rounds.

python -m benchmarks.map_sequences [--public] [--rounds 3] [names]

--public adds the models of tests/public_model_list.py, in the environment of `make models`:
PYTHONPATH=. .venv-models/bin/python -W ignore -m benchmarks.map_sequences --public
"""

import argparse
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils import _pytree as pytree

import torch_lod as tl

COUNT, LONGEST, WIDTH = 32, 100, 256


class Attention(nn.Module):
    """Pre-norm blocks with attention written out, for (batch, length, width)."""

    def __init__(self, heads: int = 4, layers: int = 2):
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2 * layers))
        self.qkv = nn.ModuleList(nn.Linear(WIDTH, 3 * WIDTH) for _ in range(layers))
        self.mlp = nn.ModuleList(
            nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)) for _ in range(layers)
        )

    def forward(self, x):
        for i, (qkv, mlp) in enumerate(zip(self.qkv, self.mlp, strict=True)):
            q, k, v = qkv(self.norms[2 * i](x)).unflatten(-1, (3, self.heads, -1)).unbind(2)
            scores = torch.einsum("bqhd,bkhd->bhqk", q, k) / q.shape[-1] ** 0.5
            x = x + torch.einsum("bhqk,bkhd->bqhd", scores.softmax(-1), v).flatten(2)
            x = x + mlp(self.norms[2 * i + 1](x))
        return x


class Fourier(nn.Module):
    def __init__(self):
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, WIDTH))

    def forward(self, x):
        return x + self.mlp(torch.fft.fft2(x, dim=(1, 2)).real)


class Contestant:
    """A module in tl.nn.MapSequences, its inputs made of a LoDTensor, and what runs it on one sequence."""

    def __init__(
        self, name: str, mapped: tl.nn.MapSequences, values: Callable, inputs: Callable, keywords, alone: Callable
    ):
        self.name, self.mapped, self.values, self.inputs = name, mapped, values, inputs
        self.keywords, self.alone = keywords, alone
        self.weights = [p for p in mapped.parameters() if p.requires_grad]

    def whole(self, x) -> list:
        return [
            t for t in pytree.tree_leaves(self.mapped(*self.inputs(x), **self.keywords)) if isinstance(t, torch.Tensor)
        ][:1]

    def loop(self, x) -> list:
        return [self.alone(rows) for rows in x.sequences()]

    def step(self, run: Callable, x) -> None:
        total = sum((t.values() if isinstance(t, tl.LoDTensor) else t).sin().sum() for t in run(x))
        torch.autograd.grad(total, self.weights, allow_unused=True)


def wide() -> list[Contestant]:
    def rows(n):
        return torch.randn(n, WIDTH)

    def made(name, module, alone, **options):
        return Contestant(name, tl.nn.MapSequences(module, **options), rows, lambda x: (x,), {}, alone)

    attention, fourier, gru = Attention(), Fourier(), nn.GRU(WIDTH, WIDTH, batch_first=True)
    convolutions = nn.Sequential(*[nn.Conv1d(WIDTH, WIDTH, 3, padding=1), nn.ReLU()] * 2)
    return [
        made("attention, width 256", attention, lambda x: attention(x[None])),
        made("Fourier mixing, width 256", fourier, lambda x: fourier(x[None])),
        made("GRU, width 256", gru, lambda x: gru(x[None])[0], results=("rows", None)),
        made("convolutions, width 256", convolutions, lambda x: convolutions(x.t()[None]), layout="channels"),
    ]


def public() -> list[Contestant]:
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
    from public_model_list import MODELS

    found = []
    for name in sorted(MODELS, key=lambda name: MODELS[name][1]):
        torch.manual_seed(1)
        m = MODELS[name][0]()
        m.module.eval()
        found.append(
            Contestant(name, m.mapped, lambda n, v=m.values: v[torch.arange(n) % len(v)], m.inputs, m.keywords, m.call)
        )
    return found


def batches() -> dict[str, list[int]]:
    draw = np.random.default_rng(0)
    uniform = draw.integers(1, LONGEST + 1, 100 * COUNT)
    grouped = next(iter(tl.data.BucketSampler(torch.from_numpy(uniform), COUNT, buckets=100)))
    tail = np.minimum(LONGEST, 1 + 8 * draw.pareto(1.2, COUNT)).astype(int)
    return {"uniform": uniform[:COUNT].tolist(), "heavy tail": tail.tolist(), "grouped": uniform[grouped].tolist()}


def least(contestant: Contestant) -> int:
    """The shortest sequence that the model takes by itself."""
    for n in range(1, LONGEST):
        try:
            contestant.alone(contestant.values(n))
            return n
        except Exception:  # a kernel or a reflection that is longer
            continue
    raise ValueError(f"expected a model that takes {LONGEST} rows, got {contestant.name}")


def seconds(run: Callable, rounds: int) -> float:
    """The best of some rounds; a slow call is not repeated."""
    best = float("inf")
    for _ in range(rounds):
        begin = time.process_time()
        run()
        best = min(best, time.process_time() - begin)
        if best > 2:
            break
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--public", action="store_true")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("names", nargs="*")
    given = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    drawn = batches()
    print("Milliseconds of a training step: map_sequences (calls) / loop / padded\n")
    print(f"| model | {' | '.join(drawn)} |\n" + "|---" * (1 + len(drawn)) + "|")
    for contestant in [*wide(), *(public() if given.public else [])]:
        if given.names and contestant.name not in given.names:
            continue
        shortest, cells = least(contestant), []
        for lengths in drawn.values():
            lengths = [max(n, shortest) for n in lengths]
            x = tl.from_lengths(contestant.values(sum(lengths)), [lengths])
            padded = tl.from_lengths(contestant.values(COUNT * max(lengths)), [[max(lengths)] * COUNT])
            runs = (contestant.whole, x), (contestant.loop, x), (contestant.whole, padded)
            ours, loop, dense = (1e3 * seconds(partial(contestant.step, run, t), given.rounds) for run, t in runs)
            cells.append(f"{ours:.0f} ({len(set(lengths))}) / {loop:.0f} / {dense:.0f}")
        print(f"| {contestant.name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
