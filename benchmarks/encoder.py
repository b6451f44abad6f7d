# SPDX-License-Identifier: Apache-2.0
"""A BERT of Hugging Face transformers (4 layers of 256) on sentences of movie reviews: packed by tl.integrations.transformers,
padded, and padded in batches of sentences of similar length. They take turns; CPU time on one thread, the best of some rounds.

python -m benchmarks.encoder [--batch 32] [--batches 12] [--rounds 7] [--device cpu]   needs transformers
"""

import argparse
import time
from pathlib import Path

import numpy as np
import torch
import transformers

import torch_lod as tl

TOKENS = 8000
#: Words in every sentence of 48 reviews, a line a review.
REVIEWS = Path(__file__).parent / "groups" / "movie_reviews.txt"
#: What tokens per second should be of those of the others.
GOALS = {"padded": 2.2, "bucketed": 0.95}


def model() -> torch.nn.Module:
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=TOKENS,
        hidden_size=256,
        num_hidden_layers=4,
        num_attention_heads=4,
        intermediate_size=1024,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    return transformers.BertModel(config, add_pooling_layer=False)


def pad(rows: list) -> dict[str, torch.Tensor]:
    ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
    mask = torch.arange(ids.shape[1]) < torch.tensor([[len(r)] for r in rows])
    return {"input_ids": ids, "attention_mask": mask.long()}


def batches(size: int, count: int) -> dict[str, list]:
    """The same sentences for everybody; a padded layout is made beforehand, a LoDTensor is."""
    lengths = np.array(REVIEWS.read_text().split(), int)
    draw = np.random.default_rng(0)
    rows = [torch.from_numpy(draw.integers(1, TOKENS, n)) for n in draw.permutation(lengths)[: size * count]]
    by_length = sorted(rows, key=len)

    def cut(rows):
        return [rows[i : i + size] for i in range(0, len(rows), size)]

    return {
        "packed": [{"input_ids": tl.from_tensors(part)} for part in cut(rows)],
        "padded": [pad(part) for part in cut(rows)],
        "bucketed": [pad(part) for part in cut(by_length)],
    }


def forward(encoder, given: list) -> None:
    with torch.no_grad():
        for batch in given:
            encoder(**batch)


def training(encoder, given: list) -> None:
    optimizer = torch.optim.SGD(encoder.parameters(), 1e-6)
    for batch in given:
        rows = encoder(**batch).last_hidden_state
        rows = rows.values() if isinstance(rows, tl.LoDTensor) else rows[batch["attention_mask"].bool()]
        rows.square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def seconds_on(device: torch.device) -> float:
    """Of the process; on a GPU those of the clock, when all that it was asked to do is done."""
    if device.type == "cpu":
        return time.process_time()
    torch.accelerator.synchronize(device)
    return time.perf_counter()


def agree(encoders: dict, given: dict[str, list]) -> None:
    with torch.no_grad():
        ours, theirs = (encoders[name](**given[name][0]).last_hidden_state for name in ("packed", "padded"))
        torch.testing.assert_close(
            ours.values(), theirs[given["padded"][0]["attention_mask"].bool()], rtol=1e-4, atol=1e-4
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--batches", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--device", type=torch.device, default=torch.device("cpu"), help="default: %(default)s")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    parts = batches(asked.batch, asked.batches).items()
    given = {name: [{k: t.to(asked.device) for k, t in batch.items()} for batch in part] for name, part in parts}
    encoders = {name: model().to(asked.device) for name in given}
    tl.integrations.transformers.use(encoders["packed"])
    agree(encoders, given)
    tokens = sum(len(batch["input_ids"]) for batch in given["packed"])
    places = {name: sum(b["input_ids"].numel() for b in part) / tokens for name, part in given.items()}
    print(
        f"torch {torch.__version__}, transformers {transformers.__version__}, {tokens:,} tokens in {asked.batches} batches of "
        f"{asked.batch} sentences; places per token: " + ", ".join(f"{k} {v:.2f}" for k, v in places.items())
    )
    for kind in (forward, training):
        best = dict.fromkeys(given, float("inf"))
        for _ in range(asked.rounds):
            for name, part in given.items():
                begin = seconds_on(asked.device)
                kind(encoders[name], part)
                best[name] = min(best[name], seconds_on(asked.device) - begin)
        rates = ", ".join(f"{name} {tokens / seconds:,.0f}" for name, seconds in best.items())
        ratios = ", ".join(f"{best[name] / best['packed']:.2f} of {name} (goal {goal})" for name, goal in GOALS.items())
        print(f"  {kind.__name__:<9} tokens/s: {rates}; packed is {ratios}")


if __name__ == "__main__":
    main()
