# SPDX-License-Identifier: Apache-2.0
"""Text and training for `tag_sentences.py`: documents as LoDTensors, vocabulary, batches, steps, what is counted."""

from __future__ import annotations

import math
import re
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from running import InputError, Progress, set_learning_rate
from torch import nn
from treebank import Document, Sentence, Word

import torch_lod as tl

LEVELS = ("document", "paragraph", "sentence", "word")


@dataclass(frozen=True)
class Settings:
    """What a checkpoint depends on."""

    data: str | None = None
    model: str = "both"
    epochs: int = 8
    hidden: int = 128
    embedding: int = 100
    batch: int = 400
    lr: float = 3e-3
    dropout: float = 0.4
    seed: int = 0
    limit: int = 0


# ---- text as rows ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Vocabulary:
    """Numbers of words, characters and tags. Word 0 and character 0 are those that training has too seldom."""

    words: list[str]  # in lower case: the characters say the rest
    counts: list[int]  # how often training has each word
    characters: list[str]
    tags: list[str]  # the most frequent first

    WORD_COUNT, CHARACTER_COUNT = 2, 5  # what occurs less often is unknown

    @classmethod
    def of(cls, documents: Iterable[Document]) -> Vocabulary:
        words = [word for document in documents for word in document.words()]
        forms = Counter(word.form.lower() for word in words)
        known = [(form, count) for form, count in forms.most_common() if count >= cls.WORD_COUNT]
        characters = Counter(character for word in words for character in word.form)
        tags = [tag for tag, _ in Counter(word.upos for word in words).most_common()]
        if len(tags) < 2:
            raise InputError(f"there is nothing to tell apart: the tags (column UPOS) that occur are {tags}")
        return cls(
            [form for form, _ in known],
            [count for _, count in known],
            [character for character, count in characters.most_common() if count >= cls.CHARACTER_COUNT],
            tags,
        )

    def unknown_rates(self) -> torch.Tensor:
        """How often training calls each word unknown: the rarer a word, the more its context has to be read."""
        return torch.tensor([0.0] + [1 / (1 + count) for count in self.counts])


class Text(NamedTuple):
    """Documents as rows."""

    characters: tl.LoDTensor  # document > paragraph > sentence > word
    words: tl.LoDTensor  # document > paragraph > sentence
    tags: tl.LoDTensor  # as words; -1 for a tag that training does not have

    def pick(self, documents: torch.Tensor) -> Text:
        return Text(*(x.seq[documents] for x in self))


def as_text(documents: list[Document], vocabulary: Vocabulary) -> Text:
    """All characters, words and tags of the documents, nothing padded and nothing cut off."""
    paragraphs = [paragraph for document in documents for paragraph in document.paragraphs]
    sentences = [sentence for paragraph in paragraphs for sentence in paragraph]
    words = [word for sentence in sentences for word in sentence]
    lengths = [
        [len(document.paragraphs) for document in documents],
        [len(paragraph) for paragraph in paragraphs],
        [len(sentence) for sentence in sentences],
        [len(word.form) for word in words],
    ]
    number, letter, label = (
        {entry: i for i, entry in enumerate(entries, start)}
        for entries, start in ((vocabulary.words, 1), (vocabulary.characters, 1), (vocabulary.tags, 0))
    )
    characters = torch.tensor([letter.get(c, 0) for word in words for c in word.form], dtype=torch.long)
    rows = torch.tensor([number.get(word.form.lower(), 0) for word in words])
    by_word = tl.from_lengths(rows, lengths[:3], level_names=LEVELS[:3])
    tags = by_word.with_values(torch.tensor([label.get(word.upos, -1) for word in words]))
    return Text(tl.from_lengths(characters, lengths, level_names=LEVELS), by_word, tags)


def pieces(documents: Iterable[Document], most: int) -> list[Document]:
    """Documents of more than `most` words cut between sentences: a treebank without marks is one document."""
    found = []
    for document in documents:
        room = 0
        for paragraph in document.paragraphs:
            is_open = False  # whether the piece has a part of this paragraph
            for sentence in paragraph:
                if room < len(sentence):
                    found.append(Document(document.name))
                    room, is_open = max(most, len(sentence)), False
                if not is_open:
                    found[-1].paragraphs.append([])
                    is_open = True
                found[-1].paragraphs[-1].append(sentence)
                room -= len(sentence)
    return found


def batches(text: Text, size: int, rng: np.random.Generator | None = None) -> Iterator[Text]:
    """Whole documents of about `size` words together, in random order if there is an `rng`."""
    words = text.words.lod.row_lengths("document").numpy()
    order = rng.permutation(len(words)) if rng else np.arange(len(words))
    before = np.cumsum(words[order]) - words[order]
    for part in np.split(order, np.flatnonzero(np.diff(before // size)) + 1):
        yield text.pick(torch.from_numpy(part))


def padded_cells(text: Text, size: int) -> int:
    """The characters of an epoch if every batch were padded at every level."""
    return sum(
        batch.words.num_sequences() * math.prod(batch.characters.max_length(level) for level in LEVELS)
        for batch in batches(text, size, np.random.default_rng(0))
    )


# As in English treebanks: n't and 's are words of their own, with either apostrophe.
WORD = re.compile(
    r"\w+(?=n['\u2019]t\b)|n['\u2019]t\b|['\u2019](?:s|m|d|re|ve|ll)\b|\d+(?:[.,]\d+)+|\w+|[^\w\s]", re.IGNORECASE
)
SENTENCE_END = re.compile(r"(?<=[.!?])\s+|(?<=[.!?][\"')\u201d\u2019])\s+")


def split_text(text: str, name: str) -> list[Document]:
    """Plain text as a document: paragraphs end at blank lines, sentences after . ! or ?"""
    document = Document(name)
    for paragraph in re.split(r"\n\s*\n", text):
        parts = [WORD.findall(part) for part in SENTENCE_END.split(paragraph)]
        sentences: list[Sentence] = [[Word(form, "_", "_") for form in part] for part in parts if part]
        if sentences:
            document.paragraphs.append(sentences)
    return [document] if document.paragraphs else []


# ---- training ----------------------------------------------------------------------------------


class Trainer:
    """A tagger, its optimizer, and all that a checkpoint needs to go on as if never stopped."""

    def __init__(self, name: str, settings: Settings, model: Any, train: Text, dev: Text):
        self.name, self.settings, self.model, self.text, self.dev = name, settings, model, train, dev
        self.optimizer = torch.optim.Adam(model.parameters(), lr=settings.lr, fused=True)
        self.history: list[dict] = []  # one entry per epoch
        self.losses: list[float] = []  # one per step

    def epochs(self) -> Iterator[int]:
        """Trains the epochs that are missing, and stops after each for what is to be done then."""
        s = self.settings
        progress = Progress(self.name, len(self.history), s.epochs)
        for epoch in range(len(self.history), s.epochs):
            entry = self._train_epoch(epoch, progress)
            right = tags_of(self.model, self.dev, s.batch) == self.dev.tags.values()
            entry["dev_accuracy"] = right.double().mean().item()
            self.history.append(entry)
            note = f"  dev {entry['dev_accuracy']:.1%}"
            progress.show(epoch, 1, entry["loss"], entry["words_per_second"], note, unit="words")
            yield epoch

    def _train_epoch(self, epoch: int, progress: Progress) -> dict:
        s = self.settings
        # A seed per epoch: a resumed run sees the same batches and drops the same words.
        rng = np.random.default_rng((s.seed, epoch))
        torch.manual_seed(int(rng.integers(2**63)))
        parts = list(batches(self.text, s.batch, rng))
        started, cpu, words, loss_sum, speed = time.perf_counter(), time.process_time(), 0, 0.0, 0.0
        self.model.train()
        for step, batch in enumerate(parts, start=1):
            set_learning_rate(self.optimizer, s.lr, (epoch + step / len(parts)) / s.epochs, rise=0.1)
            loss = self.model.loss(batch)
            self.optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            self.losses.append(loss.item())
            if not math.isfinite(self.losses[-1]):
                raise InputError(f"the loss is {self.losses[-1]} in epoch {epoch + 1}: try a lower --lr")
            loss_sum += self.losses[-1]
            words += len(batch.words)
            speed = words / (time.perf_counter() - started)
            if step < len(parts):
                progress.show(epoch, step / len(parts), loss_sum / step, speed, unit="words")
        return {
            "epoch": epoch + 1,
            "steps": len(parts),
            "loss": loss_sum / len(parts),
            "words_per_second": round(speed),
            "seconds": round(time.perf_counter() - started, 2),
            "cpu_seconds": round(time.process_time() - cpu, 2),
        }

    def state(self) -> dict:
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "history": self.history,
            "losses": self.losses,
        }

    def restore(self, state: dict) -> None:
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.history, self.losses = state["history"], state["losses"]


@torch.no_grad()
def tags_of(model: Any, text: Text, size: int) -> torch.Tensor:
    """The tag that the model gives to every word."""
    model.eval()
    return torch.cat([model.tag(batch).values() for batch in batches(text, size)])


# ---- what is counted ---------------------------------------------------------------------------


def most_frequent_tags(train: list[Document], test: list[Document]) -> list[str]:
    """The tag that every word of the test has most often in training, the most frequent one for others."""
    words = [word for document in train for word in document.words()]
    by_form: dict[str, Counter] = defaultdict(Counter)
    for word in words:
        by_form[word.form][word.upos] += 1
    best = {form: tags.most_common(1)[0][0] for form, tags in by_form.items()}
    usual = Counter(word.upos for word in words).most_common(1)[0][0]
    return [best.get(word.form, usual) for document in test for word in document.words()]


def accuracies(found: list[str], train: list[Document], test: list[Document]) -> dict[str, float]:
    """Of all words, of those whose form training has, and of the others."""
    seen = {word.form for document in train for word in document.words()}
    counts = {"all": [0, 0], "known": [0, 0], "unknown": [0, 0]}
    for tag, word in zip(found, (word for document in test for word in document.words()), strict=True):
        for group in ("all", "known" if word.form in seen else "unknown"):
            counts[group][0] += tag == word.upos
            counts[group][1] += 1
    return {group: right / max(1, of) for group, (right, of) in counts.items()}


def confusion(found: list[str], test: list[Document], tags: list[str]) -> list[list[int]]:
    """How often a word of each tag (row) was given each tag (column)."""
    pairs = Counter(zip((word.upos for document in test for word in document.words()), found, strict=True))
    return [[pairs[true, given] for given in tags] for true in tags]
