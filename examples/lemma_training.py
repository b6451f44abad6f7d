# SPDX-License-Identifier: Apache-2.0
"""The training loop of `lemmatize.py`: batches, steps, what a checkpoint holds; and the lemmas of many words."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import lemmas
import numpy as np
import torch
import torch.nn.functional as F
from lemmas import Alphabet, Question, question
from running import InputError, Progress, check_fingerprint, fingerprint, save_checkpoint, set_learning_rate
from torch import nn
from treebank import Word

import torch_lod as tl

if TYPE_CHECKING:
    from lemmatize import Lemmatizer


@dataclass(frozen=True)
class Settings:
    """What a checkpoint depends on."""

    data: str | None = None
    epochs: int = 12
    hidden: int = 96
    embedding: int = 64
    batch: int = 128
    lr: float = 3e-3
    dropout: float = 0.25
    untagged: float = 0.25
    beam: int = 4
    seed: int = 0
    limit: int = 0


@torch.no_grad()
def lemmatise(model: Lemmatizer, alphabet: Alphabet, asked: Iterable[Question], beam: int, n_best: int = 1) -> dict:
    """The n best lemmas of every word, each with its probability."""
    model.eval()
    found: dict[Question, list[tuple[str, float]]] = {}
    words = sorted(set(asked), key=lambda q: (len(q[0]), q))  # words of about a length end together
    for begin in range(0, len(words), 512):
        part = words[begin : begin + 512]
        sources = tl.lod_tensor([alphabet.source(q) for q in part])
        best = model.search(sources, beam, n_best, longest=len(part[-1][0]) + 10)
        for q, lemmas_, scores in zip(part, best.tokens.to_list(), best.scores.exp().to_list(), strict=True):
            found[q] = [(alphabet.text(lemma, q[0]), p) for lemma, p in zip(lemmas_, scores, strict=True)]
    return found


class Trainer:
    """The model, its data, and all that a checkpoint needs to go on as if never stopped."""

    def __init__(self, settings: Settings, splits: dict[str, list[Word]], alphabet: Alphabet, model: Lemmatizer):
        self.settings, self.splits, self.alphabet, self.model = settings, splits, alphabet, model
        self.optimizer = torch.optim.Adam(model.parameters(), lr=settings.lr, betas=(0.9, 0.98))
        self.history: list[dict] = []  # one entry per epoch
        self.losses: list[float] = []  # one per step
        self.fingerprint = fingerprint(splits)

        # Training shows every word of the vocabulary, not of the text: one that the text has n times is shown
        # 1 + log2(n) times in an epoch, so that `the` does not take the time that `geese` needs.
        counts, a = Counter(splits["train"]), self.alphabet
        self.seen = {word.form for word in counts}
        self.times = np.array([1 + int(math.log2(n)) for n in counts.values()])
        self.sources = tl.lod_tensor([a.source(question(word)) for word in counts])
        self.given = tl.lod_tensor([[a.BEGIN, *a.spell(word.lemma)] for word in counts])
        self.wanted = tl.lod_tensor([[*a.spell(word.lemma), a.END] for word in counts])

    def batches(self, epoch: int) -> Iterator[tuple[tl.LoDTensor, tl.LoDTensor, tl.LoDTensor]]:
        # A seed per epoch: a resumed run sees the same words in the same order.
        rng = np.random.default_rng((self.settings.seed, epoch))
        order = rng.permutation(np.arange(len(self.times)).repeat(self.times))
        for begin in range(0, len(order), self.settings.batch):
            words = torch.from_numpy(order[begin : begin + self.settings.batch])
            sources, tags = self.sources.seq[words], torch.from_numpy(rng.random(len(words)))
            rows = sources.values().clone()
            rows[sources.lod.row_offsets()[:-1][tags < self.settings.untagged]] = Alphabet.UNTAGGED
            yield sources.with_values(rows), self.given.seq[words], self.wanted.seq[words]

    def train(self, checkpoint: Path) -> None:
        """The epochs that are missing, each saved."""
        s = self.settings
        progress = Progress("lemmatiser", len(self.history), s.epochs)
        steps = math.ceil(self.times.sum() / s.batch)
        for epoch in range(len(self.history), s.epochs):
            self.model.train()
            started, letters, loss_sum, speed = time.perf_counter(), 0, 0.0, 0.0
            for step, (words, given, wanted) in enumerate(self.batches(epoch), start=1):
                set_learning_rate(self.optimizer, s.lr, (epoch + step / steps) / s.epochs, rise=0.1)
                scores = self.model(words, given)
                loss = F.nll_loss(scores, wanted)
                self.optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
                self.optimizer.step()
                self.losses.append(loss.item())
                if not math.isfinite(self.losses[-1]):
                    raise InputError(f"the loss is {self.losses[-1]} in epoch {epoch + 1}: try a lower --lr")
                loss_sum += self.losses[-1]
                letters += len(given)
                speed = letters / (time.perf_counter() - started)
                if step < steps:
                    progress.show(epoch, step / steps, loss_sum / step, speed, unit="letters")
            dev = self.accuracy("dev")
            self.history.append({"epoch": epoch + 1, "loss": loss_sum / steps, "steps": steps, "letters": letters})
            self.history[-1] |= {"seconds": round(time.perf_counter() - started, 2), "dev": dev}
            note = f"  dev {dev['all']:.1%} unseen {dev['unseen']:.1%}"
            progress.show(epoch, 1, loss_sum / steps, speed, note, unit="letters")
            self.save(checkpoint)

    def answers(self, words: list[Word], tagged: bool = True) -> dict[Question, str]:
        asked = [question(word, tagged) for word in words]
        found = lemmatise(self.model, self.alphabet, asked, self.settings.beam)
        return {q: best[0][0] for q, best in found.items()}

    def accuracy(self, split: str, tagged: bool = True) -> dict[str, float]:
        words = self.splits[split]
        return lemmas.accuracy(words, self.answers(words, tagged).__getitem__, self.seen, tagged)

    def save(self, path: Path) -> None:
        state = {
            "settings": asdict(self.settings),
            "tags": self.alphabet.tags,
            "letters": self.alphabet.letters,
            "fingerprint": self.fingerprint,
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "random_state": torch.get_rng_state(),
            "history": self.history,
            "losses": self.losses,
        }
        save_checkpoint(state, path)

    def restore(self, state: dict) -> None:
        check_fingerprint(state, self.fingerprint)
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        torch.set_rng_state(state["random_state"])
        self.history, self.losses = state["history"], state["losses"]
