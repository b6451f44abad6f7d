# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: E402 (the clock starts before the imports)
"""Tag every word with its part of speech: characters, words, sentences and documents, and a CRF at the end.

    python examples/tag_sentences.py                       English Web Treebank: 6 minutes on one core
    python examples/tag_sentences.py --data FOLDER         any treebank of Universal Dependencies, any language
    python examples/tag_sentences.py --predict text.txt    tag a text, or a .conllu file, with the trained model

One LSTM reads the characters of every word in both directions, another one the words of every sentence; the
mean of all words of a document says what it is about. Batches are whole documents, and nothing is padded.
A linear-chain CRF finds the best tags of a sentence together. The same network with a softmax at every word
is trained beside it (--model both); the tag that every form has most often in training is the baseline.

A folder has three files in the CoNLL-U format, plain or packed by xz, with train, dev and test in their
names. The accuracy on dev is printed after every epoch; the test is evaluated a single time, at the end.

--predict takes a .conllu file, or text in UTF-8: paragraphs end at blank lines, sentences after . ! or ?
and words as in English treebanks (did n't). It prints a line per word with the tag and its probability,
and after a .conllu file that has tags how many of them were found.
"""

from __future__ import annotations

import time

STARTED = time.perf_counter()

import argparse
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import figures
import numpy as np
import tagging_plots
import torch
from running import (
    InputError,
    add_machine,
    check_fingerprint,
    compute_on,
    exit_status,
    fingerprint,
    fraction,
    given_settings,
    load_checkpoint,
    make_folder,
    natural,
    new_parser,
    positive,
    save_checkpoint,
    save_report,
    settings_to_resume,
)
from tagging import (
    Settings,
    Text,
    Trainer,
    Vocabulary,
    accuracies,
    as_text,
    batches,
    confusion,
    most_frequent_tags,
    padded_cells,
    pieces,
    split_text,
    tags_of,
)
from torch import nn
from treebank import DEFAULT, Document, load, read_conllu

import torch_lod as tl

# ---- the model ---------------------------------------------------------------------------------


class Tagger(nn.Module):
    """Levels are document > paragraph > sentence > word; rows are characters, then words, and in the end scores of tags."""

    unknown_rates: torch.Tensor

    def __init__(self, s: Settings, vocabulary: Vocabulary, crf: bool):
        super().__init__()
        letters, features = s.hidden // 2, s.embedding + s.hidden
        self.embed_characters = nn.Embedding(1 + len(vocabulary.characters), letters // 2)
        self.embed_words = nn.Embedding(1 + len(vocabulary.words), s.embedding)
        self.spelling = tl.nn.LSTM(letters // 2, letters, bidirectional=True, level="word")
        self.topic = nn.Linear(features, s.hidden // 4)
        self.context = tl.nn.LSTM(features + s.hidden // 4, s.hidden, bidirectional=True, level="sentence")
        self.out = nn.Linear(2 * s.hidden, len(vocabulary.tags))
        self.crf = tl.nn.LinearChainCRF(len(vocabulary.tags), level="sentence") if crf else None
        self.dropout = nn.Dropout(s.dropout)
        self.register_buffer("unknown_rates", vocabulary.unknown_rates())
        for embedding in (self.embed_characters, self.embed_words):
            nn.init.normal_(embedding.weight, std=0.3)

    def forward(self, text: Text) -> tl.LoDTensor:
        """The score of every tag for every word."""
        words = text.words
        if self.training:
            words = words.masked_fill(torch.rand(len(words)) < self.unknown_rates[words.values()], 0)
        _, (h, _) = self.spelling(self.embed_characters(text.characters))  # every word by itself
        spelled = tl.nn.last_state(h, text.characters, level="word", bidirectional=True)  # one row per word
        x = tl.cat([self.embed_words(words), spelled], "features")
        documents = tl.sequence_pool(x, "mean", level="document")  # one row per document
        topic = tl.sequence_expand_as(self.topic(self.dropout(documents)), x)  # one row per word again
        y, _ = self.context(self.dropout(torch.cat([x, topic], 1)))  # every sentence by itself
        return self.out(self.dropout(y))

    def loss(self, text: Text) -> torch.Tensor:
        """Per word, so that losses with and without CRF are of one size."""
        scores = self(text)
        if self.crf:
            return self.crf(scores, text.tags).sum() / len(scores)
        return nn.functional.cross_entropy(scores, text.tags)

    def tag(self, text: Text) -> tl.LoDTensor:
        """The best tags of every sentence; without CRF, the best tag of every word."""
        scores = self(text)
        return self.crf.decode(scores) if self.crf else scores.argmax(1)

    def probabilities(self, text: Text) -> tl.LoDTensor:
        """The probability of every tag for every word; with CRF, over all tags that the rest of the sentence may have."""
        scores = self(text)
        return self.crf.marginals(scores) if self.crf else scores.softmax(1)


def names(settings: Settings) -> list[str]:
    """What is trained; the first is what the report is about and what predicts."""
    return ["crf", "softmax"] if settings.model == "both" else [settings.model]


def make_tagger(name: str, settings: Settings, vocabulary: Vocabulary) -> Tagger:
    torch.manual_seed(settings.seed)
    return Tagger(settings, vocabulary, crf=name == "crf")


# ---- what can be asked for -----------------------------------------------------------------------


def limited(documents: list[Document], limit: int) -> list[Document]:
    """All of them, or as many as `limit`, drawn at random."""
    if not 0 < limit < len(documents):
        return documents
    keep = np.random.default_rng(0).permutation(len(documents))[:limit]
    return [documents[i] for i in sorted(keep)]


def read_text(path: Path) -> list[Document]:
    if path.name.endswith((".conllu", ".conllu.xz")):
        return read_conllu(path)
    try:
        documents = split_text(path.read_text(encoding="utf-8-sig"), path.name)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise InputError(f"cannot read {path}: not UTF-8, {error.reason} at byte {error.start}") from None
    if not documents:
        raise InputError(f"{path} has no words")
    return documents


def load_state(out: Path) -> dict:
    state = load_checkpoint(out / "checkpoint.pt")
    if state.get("example") != "tag_sentences":
        raise InputError(f"{out / 'checkpoint.pt'} is not a checkpoint of this example")
    return state


@torch.no_grad()
def print_predictions(path: Path, out: Path) -> None:
    """Form, tag and probability of every word, a blank line after every sentence."""
    state = load_state(out)
    settings, vocabulary = Settings(**state["settings"]), Vocabulary(**state["vocabulary"])
    documents = pieces(read_text(path), settings.batch)
    name = names(settings)[0]
    model = make_tagger(name, settings, vocabulary)
    model.load_state_dict(state["models"][name]["model"])
    model.eval()

    def tagged() -> Iterator[tuple[str, float]]:
        for batch in batches(as_text(documents, vocabulary), settings.batch):
            best, p = model.tag(batch).values(), model.probabilities(batch).values()
            for tag, probability in zip(best.tolist(), p.gather(1, best[:, None])[:, 0].tolist(), strict=True):
                yield vocabulary.tags[tag], probability

    found = tagged()
    right = total = 0
    for document in documents:
        for sentence in document.sentences():
            for word, (tag, probability) in zip(sentence, found, strict=False):
                print(f"{word.form}\t{tag}\t{probability:.1%}")
                right += tag == word.upos
                total += word.upos != "_"
            print()
    if total:
        print(f"{right} of {total} tags as in the file ({right / total:.1%})", file=sys.stderr)


def train(settings: Settings, out: Path, state: dict | None = None) -> None:
    """Train, or with the state of a checkpoint go on; the last line printed is the result."""
    cpu = time.process_time()
    splits = load(Path(settings.data) if settings.data else DEFAULT)
    splits["train"] = limited(splits["train"], settings.limit)
    make_folder(out)
    vocabulary = Vocabulary(**state["vocabulary"]) if state else Vocabulary.of(splits["train"])
    data_fingerprint = fingerprint(splits)
    if state:
        check_fingerprint(state, data_fingerprint)
    text = {split: as_text(pieces(documents, settings.batch), vocabulary) for split, documents in splits.items()}
    words, characters = text["train"].words, text["train"].characters
    data: dict[str, Any] = {
        "source": settings.data or "UD English EWT",
        "tags": vocabulary.tags,
        "words": {split: len(of.words) for split, of in text.items()},
        "documents": {split: len(of) for split, of in splits.items()},
        "characters": len(characters),
        "padded_cells": padded_cells(text["train"], settings.batch),
    }
    print(
        f"{data['source']}: {len(words)} words to train on, {data['words']['test']} to test on, {len(vocabulary.tags)} tags\n"
        f"{len(characters)} characters in an epoch, {data['padded_cells'] / len(characters):.0f} times as many cells if padded"
    )

    state = {
        "example": "tag_sentences",
        "settings": asdict(settings),
        "fingerprint": data_fingerprint,
        "vocabulary": asdict(vocabulary),
        "models": state["models"] if state else {},
    }
    trainers = {}
    for name in names(settings):
        model = make_tagger(name, settings, vocabulary)
        trainer = trainers[name] = Trainer(name, settings, model, text["train"], text["dev"])
        if name in state["models"]:
            trainer.restore(state["models"][name])
            print(f"{name}: resumed after epoch {len(trainer.history)} of {settings.epochs}")
        for _ in trainer.epochs():
            state["models"][name] = trainer.state()
            save_checkpoint(state, out / "checkpoint.pt")

    found = {}
    for name, trainer in trainers.items():
        numbers = tags_of(trainer.model, text["test"], settings.batch)
        found[name] = [vocabulary.tags[number] for number in numbers.tolist()]
    found["most frequent"] = most_frequent_tags(splits["train"], splits["test"])
    scores = {name: accuracies(tags, splits["train"], splits["test"]) for name, tags in found.items()}
    name, best = next(iter(trainers.items()))
    report = {
        "test_accuracy": scores[name]["all"],
        "accuracies": scores,
        "confusion": confusion(found[name], splits["test"], vocabulary.tags),
        "seconds": round(time.perf_counter() - STARTED, 1),
        "cpu_seconds": round(time.process_time() - cpu, 1),
        "settings": asdict(settings),
        "parameters": sum(p.numel() for p in best.model.parameters()),
        "data": data,
        "epochs": {name: trainer.history for name, trainer in trainers.items()},
    }
    save_report(report, out / "report.json")
    written = ["checkpoint.pt", "report.json"]
    if figures.available():
        tagging_plots.learning_curve(report, best.losses, out / "learning_curve.png")
        tagging_plots.confusion(report, out / "confusion.png")
        written += ["learning_curve.png", "confusion.png"]
    else:
        print("no plots: matplotlib is not installed (pip install matplotlib)")
    for file in written:
        print(f"saved {out / file}")
    for other, of in scores.items():
        print(f"{other:13} {of['all']:6.1%}   known words {of['known']:6.1%}   unknown words {of['unknown']:6.1%}")
    baseline, seconds = scores["most frequent"]["all"], time.perf_counter() - STARTED
    print(f"test accuracy {report['test_accuracy']:.1%} (most frequent tags {baseline:.1%}, {seconds:.0f} s)")


# ---- command line ------------------------------------------------------------------------------


def parse_arguments(arguments: list[str] | None) -> argparse.Namespace:
    parser = new_parser(__doc__)
    d = Settings()
    count = positive(int)
    add = parser.add_argument
    add("--data", metavar="FOLDER", help=f"a treebank, default: {DEFAULT}")
    add("--model", choices=("both", "crf", "softmax"), help=f"how tags are chosen, default: {d.model}")
    add("--epochs", type=count, help=f"default: {d.epochs}")
    add("--hidden", type=count_of_four, help=f"units of the LSTM over words, default: {d.hidden}")
    add("--embedding", type=count, help=f"numbers per word, default: {d.embedding}")
    add("--batch", type=count, metavar="WORDS", help=f"words per step, and at most per document, default: {d.batch}")
    add("--lr", type=positive(float), help=f"highest learning rate, default: {d.lr}")
    add("--dropout", type=fraction, help=f"default: {d.dropout}")
    add("--seed", type=natural, help=f"of weights and training order, default: {d.seed}")
    add("--limit", type=count, metavar="N", help="train on only N documents")
    add_machine(add)
    add("--out", type=Path, default=Path("runs/tag_sentences"), help="folder, default: %(default)s")
    add = parser.add_mutually_exclusive_group().add_argument
    add("--resume", action="store_true", default=False, help="go on from the checkpoint in --out")
    add("--predict", type=Path, metavar="PATH", help="tag a text or a .conllu file with the checkpoint")
    return parser.parse_args(arguments)


def count_of_four(text: str) -> int:
    """The LSTM over characters has half as many units, their embedding a quarter."""
    if int(text) < 4 or int(text) % 4:
        raise ValueError
    return int(text)


def main(arguments: list[str] | None = None) -> int:
    asked = parse_arguments(arguments)
    given = given_settings(Settings, asked)
    compute_on(asked)

    def run() -> None:
        if hasattr(asked, "predict"):
            print_predictions(asked.predict, asked.out)
        elif asked.resume:
            state = load_state(asked.out)
            train(settings_to_resume(Settings, given, state, asked.out), asked.out, state)
        else:
            train(Settings(**given), asked.out)

    return exit_status(run)


if __name__ == "__main__":
    sys.exit(main())
