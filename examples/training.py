# SPDX-License-Identifier: Apache-2.0
"""The training loop of `train_nested_rnn.py`: batches, steps, what a checkpoint holds."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from corpus import Document, FunctionCorpus, LabelledCorpus, Vocabulary
from running import InputError, Progress, check_fingerprint, fingerprint, save_checkpoint, set_learning_rate
from torch import nn

import torch_lod as tl

Corpus = FunctionCorpus | LabelledCorpus


@dataclass(frozen=True)
class Settings:
    """What a checkpoint depends on."""

    data: str | None = None
    model: str = "nested-lstm"
    epochs: int = 8
    hidden: int = 64
    embedding: int = 64
    batch: int = 32
    lr: float = 5e-3
    dropout: float = 0.3
    seed: int = 0
    limit: int = 0
    skip_bad_lines: bool = False


def make_batch(documents: list[Document], vocabulary: Vocabulary, level_names: tuple[str, str]) -> tl.LoDTensor:
    """The tokens of all documents as rows, nothing padded and nothing cut."""
    lines = [line for d in documents for line in d.lines]
    lengths = [[len(d.lines) for d in documents], [len(line) for line in lines]]
    rows = torch.as_tensor(vocabulary.rows(documents))
    return tl.from_lengths(rows, lengths, level_names=level_names)


class Trainer:
    """A model, its optimizer, and all that a checkpoint needs to go on as if never stopped."""

    def __init__(self, settings: Settings, corpus: Corpus, vocabulary: Vocabulary, model: nn.Module):
        self.settings, self.corpus, self.vocabulary, self.model = settings, corpus, vocabulary, model
        self.rank, self.processes = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
        self.shared = nn.parallel.DistributedDataParallel(model) if dist.is_initialized() else model
        self.optimizer = torch.optim.Adam(model.parameters(), lr=settings.lr)
        self.history: list[dict] = []  # one entry per epoch
        self.losses: list[float] = []  # one per step
        self.baselines: dict[str, float] = {}  # test accuracy of other models, kept with this one

    def batches(self, documents: list[Document]) -> Iterator[tuple[tl.LoDTensor, torch.Tensor]]:
        """Of every batch the part of this process."""
        size = self.settings.batch
        for begin in range(0, len(documents), size):
            part = documents[begin : begin + size][self.rank :: self.processes]
            x = make_batch(part, self.vocabulary, self.corpus.level_names)
            yield x, torch.tensor([d.label for d in part])

    def train(self, checkpoint: Path | None = None) -> float:
        """The epochs that are missing, each saved if there is where; the test accuracy after them."""
        epochs = self.settings.epochs
        progress = Progress(self.settings.model, len(self.history), epochs)
        for epoch in range(len(self.history), epochs):
            entry = self._train_epoch(epoch, progress)
            entry["test_accuracy"] = self.test_accuracy()
            self.history.append(entry)
            note = f"  test {entry['test_accuracy']:.1%}"
            progress.show(epoch, 1, entry["loss"], entry["tokens_per_second"], note)
            if checkpoint and self.rank == 0:
                self.save(checkpoint)
        return self.history[-1]["test_accuracy"]

    def _train_epoch(self, epoch: int, progress: Progress) -> dict:
        s = self.settings
        # A seed per epoch: a resumed run sees the same examples in the same order.
        examples = self.corpus.epoch(np.random.default_rng((s.seed, epoch)))
        steps = math.ceil(len(examples) / s.batch)
        started, tokens, correct, loss_sum, speed = time.perf_counter(), 0, 0, 0.0, 0.0
        self.model.train()
        if self.processes > 1:  # each draws its own dropout, also after it was resumed
            torch.manual_seed(hash((s.seed, epoch, self.rank)))
        for step, (x, labels) in enumerate(self.batches(examples), start=1):
            set_learning_rate(self.optimizer, s.lr, (epoch + step / steps) / s.epochs, rise=0.15)
            scores = self.shared(x)
            loss = self.loss(scores, labels)
            self.optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            self.losses.append(loss.item())
            if not math.isfinite(self.losses[-1]):
                raise InputError(f"the loss is {self.losses[-1]} in epoch {epoch + 1}: try a lower --lr")
            loss_sum += self.losses[-1]
            correct += int((scores.argmax(dim=1) == labels).sum())
            tokens += len(x)
            speed = tokens / (time.perf_counter() - started)
            if step < steps:
                progress.show(epoch, step / steps, loss_sum / step, speed)
        if self.processes > 1:
            correct, tokens = (int(tl.distributed.global_token_count(n)) for n in (correct, tokens))
            speed *= self.processes
        return {
            "epoch": epoch + 1,
            "steps": steps,
            "loss": loss_sum / steps,
            "train_accuracy": correct / len(examples),
            "tokens": tokens,
            "tokens_per_second": round(speed),
            "seconds": round(time.perf_counter() - started, 2),
        }

    def loss(self, scores: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """The mean over the documents of a batch, also if several processes have parts of it."""
        if self.processes == 1:
            return nn.functional.cross_entropy(scores, labels)
        return tl.distributed.global_token_mean(nn.functional.cross_entropy(scores, labels, reduction="none"))

    def test_accuracy(self) -> float:
        labels = torch.tensor([d.label for d in self.corpus.test])
        scores = predict(self.model, self.corpus.test, self.vocabulary, self.corpus.level_names)
        return (scores.argmax(dim=1) == labels).double().mean().item()

    # ---- checkpoints

    def fingerprint(self) -> int:
        return fingerprint([(d.lines, d.label) for d in (*self.corpus.train, *self.corpus.test)])

    def save(self, path: Path) -> None:
        state = {
            "settings": asdict(self.settings),
            "classes": list(self.corpus.classes),
            "level_names": list(self.corpus.level_names),
            "words": self.vocabulary.words,
            "fingerprint": self.fingerprint(),
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "random_state": torch.get_rng_state(),
            "history": self.history,
            "losses": self.losses,
            "baselines": self.baselines,
        }
        save_checkpoint(state, path)

    def restore(self, state: dict) -> None:
        check_fingerprint(state, self.fingerprint())
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        torch.set_rng_state(state["random_state"])
        self.history, self.losses = state["history"], state["losses"]


@torch.no_grad()
def predict(
    model: nn.Module, documents: list[Document], vocabulary: Vocabulary, level_names: tuple[str, str]
) -> torch.Tensor:
    """Probabilities, one row per document and one column per class."""
    model.eval()
    parts = [documents[begin : begin + 256] for begin in range(0, len(documents), 256)]
    scores = [model(make_batch(part, vocabulary, level_names)) for part in parts]
    return torch.cat(scores).softmax(dim=1)
