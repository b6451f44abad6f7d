# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: E402 (the clock starts before the imports)
"""Train a lemmatiser: the letters of a word in, the letters of its lemma out (`raised` to `raise`).

    python examples/lemmatize.py                        five minutes of one core
    python examples/lemmatize.py --data TREEBANK        any folder with CoNLL-U files for train, dev and test
    python examples/lemmatize.py --predict words.txt    ask the trained model

The data is the English Web Treebank of Universal Dependencies, whose words have lemmas. An LSTM reads
the letters in both directions, a second one writes the lemma, attending to the letters that were read,
and beam search looks for the best lemma. It is told the part of speech of a word, as the treebank has
it (UPOS), since `left` is the past of `leave` or a side; a quarter of the words is shown without its
tag in training, so that it can also be asked without. What it writes is the network's alone: no lexicon.

--predict takes a word in a line, with its tag behind a space or a tab if there is one:

    raised VERB
    geese
"""

from __future__ import annotations

import time

STARTED = time.perf_counter()

import argparse
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import figures
import lemma_plots
import lemmas
import numpy as np
import torch
import torch.nn.functional as F
import treebank
from lemma_training import Settings, Trainer, lemmatise
from lemmas import Alphabet, Question, question
from running import (
    add_machine,
    compute_on,
    exit_status,
    fraction,
    given_settings,
    load_checkpoint,
    make_folder,
    natural,
    new_parser,
    positive,
    save_report,
    settings_to_resume,
)
from torch import nn
from treebank import Word

import torch_lod as tl

# ---- the model: rows are letters, a sequence is a word --------------------------------------------


class Lemmatizer(nn.Module):
    """Reads words, and writes lemmas letter by letter: every letter is a new one or a copy of one that was read.

    The attention is that of Luong et al. 2015, with rotary positions; the copies are those of See et al. 2017.
    """

    def __init__(self, s: Settings, symbols: int):
        super().__init__()
        self.symbols, width = symbols, 2 * s.hidden
        self.embed = nn.Embedding(symbols, s.embedding)
        self.reader = tl.nn.LSTM(s.embedding, s.hidden, bidirectional=True)
        self.first = nn.Linear(width, 2 * width)
        self.writer = tl.nn.LSTM(s.embedding, width)
        self.query, self.key = nn.Linear(width, s.embedding), nn.Linear(width, s.embedding)
        self.mix = nn.Linear(2 * width, width)
        self.out, self.new = nn.Linear(width, symbols), nn.Linear(width, 1)
        self.dropout = nn.Dropout(s.dropout)

    def read(self, words: tl.LoDTensor) -> tuple[tuple, dict]:
        """The writer's first state, with a row per word, and what it attends to, a sequence per word."""
        memory, (h, _) = self.reader(self.dropout(self.embed(words)))
        memory = self.dropout(memory)
        h, c = self.first(torch.cat([h[0], h[1]], 1)).tanh().chunk(2, 1)
        position = torch.zeros(len(h), dtype=torch.int64, device=h.device)
        keys = tl.rotary_embedding(self.key(memory))
        return (h, c, position), {"keys": keys, "values": torch.cat([memory, F.one_hot(words, self.symbols)], 1)}

    def ask(self, letters: tl.LoDTensor, state: tuple) -> tuple[tl.LoDTensor, tl.LoDTensor, tuple]:
        """The writer's rows, its queries for the letter after each of `letters`, and its state after the last."""
        h, c, position = state
        rows, (h, c) = self.writer(self.dropout(self.embed(letters)), (h[None], c[None]))
        rows = self.dropout(rows)
        query = tl.rotary_embedding(self.query(rows), start=position)
        return rows, query, (h[0], c[0], position + letters.lengths())

    def write(self, letters: tl.LoDTensor, state: tuple, source: dict) -> tuple[tl.LoDTensor, tuple]:
        """Logarithms of the probabilities of the letter after each of `letters`: all those of a lemma, or the last one."""
        rows, query, state = self.ask(letters, state)
        seen = tl.sequence_attention(query, source["keys"], source["values"])
        context, copied = seen[:, : -self.symbols], seen[:, -self.symbols :]
        rows = self.mix(torch.cat([rows, context], 1)).tanh()
        new = self.new(rows).sigmoid()
        p = new * self.out(rows).softmax(1) + (1 - new) * copied
        return p.clamp(1e-8, 1).log(), state

    def forward(self, words: tl.LoDTensor, letters: tl.LoDTensor) -> tl.LoDTensor:
        return self.write(letters, *self.read(words))[0]

    def search(self, words: tl.LoDTensor, beam: int, n_best: int, longest: int) -> Any:
        """The best lemmas of every word, a level of hypotheses, and their scores."""

        def step(letter, state, source):
            scores, state = self.write(tl.from_lengths(letter, [[1] * len(letter)]), state, source)
            return scores.values(), state

        search = tl.BeamSearch(step, end=Alphabet.END, beam=beam, n_best=n_best, max_length=longest)
        return search(torch.full((len(words.seq),), Alphabet.BEGIN), *self.read(words))

    def attention(self, words: tl.LoDTensor, letters: tl.LoDTensor) -> list[np.ndarray]:
        """How much each letter of a lemma looks at each symbol of its word: a matrix per word, of weights."""
        state, source = self.read(words)
        _, query, _ = self.ask(letters, state)
        places = F.one_hot(torch.cat([torch.arange(n) for n in words.lengths().tolist()]))
        weights = tl.sequence_attention(query, source["keys"], words.with_values(places.float()))
        sizes = words.lengths().tolist()
        return [w[:, :size].numpy(force=True) for w, size in zip(weights.seq, sizes, strict=True)]


# ---- what can be asked for -----------------------------------------------------------------------


def print_predictions(path: Path, out: Path) -> None:
    """The lemma of every word, its probability, and what else it might be."""
    state = load_checkpoint(out / "checkpoint.pt")
    settings, alphabet = Settings(**state["settings"]), Alphabet(state["tags"], state["letters"])
    words = lemmas.read_words(path, alphabet.of_tag)
    model = Lemmatizer(settings, len(alphabet))
    model.load_state_dict(state["model"])
    found = lemmatise(model, alphabet, words, settings.beam, n_best=min(3, settings.beam))
    for form, tag in words:
        (best, p), *others = found[form, tag]
        also = ", ".join(f"{lemma} {q:.0%}" for lemma, q in others if q >= 0.01)
        print(f"{p:6.1%}  {form}\t{tag or '-'}\t{best}" + (f"\t(or {also})" if also else ""))


def load_words(settings: Settings) -> dict[str, list[Word]]:
    documents = treebank.load(Path(settings.data) if settings.data else treebank.DEFAULT)
    words = {split: [word for document in found for word in document.words()] for split, found in documents.items()}
    return {split: found[: settings.limit or None] for split, found in words.items()}


def train(settings: Settings, out: Path, state: dict | None = None) -> None:
    """Train, or with the state of a checkpoint go on; the last line printed is the result."""
    splits = load_words(settings)
    make_folder(out)
    alphabet = Alphabet.of(splits["train"])
    torch.manual_seed(settings.seed)
    trainer = Trainer(settings, splits, alphabet, Lemmatizer(settings, len(alphabet)))
    test, seen = splits["test"], trainer.seen
    unseen = sum(word.form not in seen for word in test) / len(test)
    data = {
        "source": settings.data or str(treebank.DEFAULT.name),
        "training_words": len(splits["train"]),
        "distinct_training_words": len(trainer.times),
        "words_in_an_epoch": int(trainer.times.sum()),
        "test_words": len(test),
        "unseen_test_words": unseen,
        "symbols": len(alphabet),
    }
    print(
        f"{data['training_words']} words to train on, {data['distinct_training_words']} of them different; "
        f"{len(test)} to test on, {unseen:.1%} of them not seen in training"
    )
    if state:
        trainer.restore(state)
        print(f"resumed after epoch {len(trainer.history)} of {settings.epochs}")
    trainer.train(out / "checkpoint.pt")

    answers, lookups = trainer.answers(test), lemmas.most_frequent(splits["train"], tagged=True)
    without = trainer.answers(test, tagged=False)
    simple = lemmas.baselines(splits["train"])
    results = {name: lemmas.accuracy(test, f, seen) for name, f in simple.items()}
    results["network, without tags"] = lemmas.accuracy(test, without.__getitem__, seen, tagged=False)
    results["look-up with tag, else network"] = lemmas.accuracy(test, lambda q: lookups.get(q) or answers[q], seen)
    results["network"] = lemmas.accuracy(test, answers.__getitem__, seen)
    report = {
        "test": results,
        "seconds": round(time.perf_counter() - STARTED, 1),
        "cpu_seconds": round(time.process_time(), 1),
        "settings": asdict(settings),
        "parameters": sum(p.numel() for p in trainer.model.parameters()),
        "data": data,
        "dev_baselines": {name: lemmas.accuracy(splits["dev"], f, seen) for name, f in simple.items()},
        "epochs": trainer.history,
        "errors": lemmas.frequent_errors(test, answers.__getitem__, seen, 40),
    }
    save_report(report, out / "report.json")
    written = ["checkpoint.pt", "report.json"]
    if figures.available():
        lemma_plots.learning_curve(report, trainer.losses, out / "learning_curve.png")
        written += ["learning_curve.png"]
        if drawn := examples(test, answers, seen):
            lemma_plots.attention(trainer.model, alphabet, drawn, out / "attention.png")
            written += ["attention.png"]
    else:
        print("no plots: matplotlib is not installed (pip install matplotlib)")
    for name in written:
        print(f"saved {out / name}")
    print(f"{'words of the test set':30}  all     unseen")
    for name, values in results.items():
        print(f"{name:30} {values['all']:6.2%}  {values['unseen']:6.2%}")
    best = results["network"]
    seconds = time.perf_counter() - STARTED
    print(f"test accuracy {best['all']:.2%} (unseen words {best['unseen']:.2%}, {seconds:.0f} s)")


def examples(words: list[Word], answers: dict[Question, str], seen: set[str]) -> list[tuple[Question, str]]:
    """Six words to draw: right before wrong ones, new ones before others, the most edits first, no two that end alike."""
    fit = sorted({word for word in words if 2 < len(word.form) < 14 and len(word.lemma) > 2}, key=repr)
    forms = tl.lod_tensor([[ord(letter) for letter in word.form.lower()] for word in fit], depth=1)
    written = tl.lod_tensor([[ord(letter) for letter in answers[question(word)].lower()] for word in fit], depth=1)
    edits = tl.edit_distance(forms.long(), written.long()).tolist()
    order = [(w.lemma != answers[question(w)], w.form in seen, -count) for w, count in zip(fit, edits, strict=True)]
    found: dict[str, Question] = {}
    for _, word in sorted(zip(order, fit, strict=True), key=lambda pair: pair[0]):
        found.setdefault(word.form[-2:].lower(), question(word))
    return [(q, answers[q]) for q in list(found.values())[:6]]


# ---- command line ------------------------------------------------------------------------------


def parse_arguments(arguments: list[str] | None) -> argparse.Namespace:
    parser = new_parser(__doc__)
    d, count, add = Settings(), positive(int), parser.add_argument
    add("--data", metavar="FOLDER", help="of the treebank, default: examples/data/ud_ewt")
    add("--epochs", type=count, help=f"default: {d.epochs}")
    add("--hidden", type=count, help=f"units of the reader in each direction, default: {d.hidden}")
    add("--embedding", type=count, help=f"numbers per letter, even, default: {d.embedding}")
    add("--batch", type=count, help=f"words per step, default: {d.batch}")
    add("--lr", type=positive(float), help=f"highest learning rate, default: {d.lr}")
    add("--dropout", type=fraction, help=f"default: {d.dropout}")
    add("--untagged", type=fraction, help=f"words shown without their tag, default: {d.untagged}")
    add("--beam", type=count, help=f"lemmas that the search follows for each word, default: {d.beam}")
    add("--seed", type=natural, help=f"of weights and training order, default: {d.seed}")
    add("--limit", type=count, metavar="N", help="use only the first N words of each file")
    add_machine(add)
    add("--out", type=Path, default=Path("runs/lemmatize"), help="folder, default: %(default)s")
    add = parser.add_mutually_exclusive_group().add_argument
    add("--resume", action="store_true", default=False, help="go on from the checkpoint in --out")
    add("--predict", type=Path, metavar="FILE", help="write the lemmas of its words with the checkpoint")
    asked = parser.parse_args(arguments)
    if getattr(asked, "embedding", 2) % 2:
        parser.error("argument --embedding: expected an even number, whose pairs the positions rotate")
    return asked


def main(arguments: list[str] | None = None) -> int:
    asked = parse_arguments(arguments)
    given = given_settings(Settings, asked)
    compute_on(asked)

    def run() -> None:
        if hasattr(asked, "predict"):
            print_predictions(asked.predict, asked.out)
        elif asked.resume:
            state = load_checkpoint(asked.out / "checkpoint.pt")
            train(settings_to_resume(Settings, given, state, asked.out), asked.out, state)
        else:
            train(Settings(**given), asked.out)

    return exit_status(run)


if __name__ == "__main__":
    sys.exit(main())
