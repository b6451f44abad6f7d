# SPDX-License-Identifier: Apache-2.0
"""The training loop of `spoken_digits.py`: steps, the test, what a checkpoint holds."""

from __future__ import annotations

import math
import time
import zlib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from recordings import DEFAULT, SpokenCorpus
from running import InputError, Progress, check_fingerprint, fingerprint, save_checkpoint, set_learning_rate
from torch import nn

import torch_lod as tl


@dataclass(frozen=True)
class Settings:
    """What a checkpoint depends on."""

    data: str = str(DEFAULT)
    model: str = "lstm"
    epochs: int = 40
    hidden: int = 96
    batch: int = 8
    lr: float = 5e-3
    dropout: float = 0.2
    seed: int = 0
    limit: int = 0


class Trainer:
    """A model, its optimizer, and all that a checkpoint needs to go on as if never stopped."""

    def __init__(self, settings: Settings, corpus: SpokenCorpus, model: Any):
        self.settings, self.corpus, self.model = settings, corpus, model
        self.loss = tl.nn.CTCLoss()
        self.optimizer = torch.optim.Adam(model.parameters(), lr=settings.lr)
        self.history: list[dict] = []  # one entry per epoch
        self.losses: list[float] = []  # one per step
        self.baselines: dict[str, float] = {}  # test error of other models, kept with this one

    def train(self, checkpoint: Path | None = None) -> float:
        """The epochs that are missing, each saved if there is where; the test error after them."""
        epochs = self.settings.epochs
        progress = Progress(self.settings.model, len(self.history), epochs)
        for epoch in range(len(self.history), epochs):
            entry = self._train_epoch(epoch, progress)
            entry["test_error"] = self.test_error()
            self.history.append(entry)
            progress.show(epoch, 1, entry["loss"], entry["speed"], f"  test error {entry['test_error']:.1%}", "samples")
            if checkpoint:
                self.save(checkpoint)
        return self.history[-1]["test_error"]

    def _train_epoch(self, epoch: int, progress: Progress) -> dict:
        s = self.settings
        # A seed per epoch: a resumed run sees the same utterances in the same order.
        rng = np.random.default_rng((s.seed, epoch))
        spoken = self.corpus.epoch(rng)
        steps = math.ceil(len(spoken) / s.batch)
        started, cpu, samples, loss_sum = time.perf_counter(), time.process_time(), 0, 0.0
        self.model.train()
        for step, (x, labels) in enumerate(self.corpus.batches(spoken, s.batch, rng), start=1):
            set_learning_rate(self.optimizer, s.lr, (epoch + step / steps) / s.epochs, rise=0.15)
            loss = self.loss(self.model(x), labels)
            self.optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            self.losses.append(loss.item())
            if not math.isfinite(self.losses[-1]):
                raise InputError(f"the loss is {self.losses[-1]} in epoch {epoch + 1}: try a lower --lr")
            loss_sum += self.losses[-1]
            samples += len(x)
            if step < steps:
                speed = samples / (time.perf_counter() - started)
                progress.show(epoch, step / steps, loss_sum / step, speed, unit="samples")
        seconds = time.perf_counter() - started
        return {
            "epoch": epoch + 1,
            "steps": steps,
            "loss": loss_sum / steps,
            "samples": samples,
            "speed": round(samples / seconds),
            "seconds": round(seconds, 2),
            "cpu_seconds": round(time.process_time() - cpu, 2),
        }

    @torch.no_grad()
    def test_error(self) -> float:
        """Words that are wrong, missing or too many, per word."""
        self.model.eval()
        rate = tl.ErrorRate()
        for x, labels in self.corpus.batches(self.corpus.test, 64):
            rate.update(tl.ctc_decode(self.model(x)), labels)
        return rate.compute()

    # ---- checkpoints

    def fingerprint(self) -> int:
        used = [*self.corpus.train, *(r for utterance in self.corpus.test for r in utterance)]
        return fingerprint([(r.name, zlib.crc32(r.samples.tobytes())) for r in used])

    def save(self, path: Path) -> None:
        state = {
            "settings": asdict(self.settings),
            "classes": self.corpus.classes,
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
        self.history, self.losses, self.baselines = state["history"], state["losses"], state["baselines"]
