# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: E402 (the clock starts before the imports)
"""Train a nested RNN, token > line > function, on the standard library's own source.

    python examples/train_nested_rnn.py                        the demo: about a minute on 2 cores
    python examples/train_nested_rnn.py --data reviews.jsonl   your own documents
    python examples/train_nested_rnn.py --predict script.py    ask the trained model
    torchrun --nproc-per-node 2 examples/train_nested_rnn.py --distributed    every batch shared out to 2 processes

The task: is a function's body in its written order, or are its lines shuffled? Which tokens occur
says nothing about it: a model that ignores their order is right exactly half of the time.

--data takes one JSON object per line, {"text": ..., "label": ...}. The label is any JSON scalar.
The text is a list of lines, each a list of tokens; or a list of lines as strings, which are split
into words; or one string, which is first split at its line breaks, or into sentences if it has none.
"""

from __future__ import annotations

import time

STARTED = time.perf_counter()

import argparse
import contextlib
import io
import os
import platform
import sys
import tokenize
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import figures
import numpy as np
import plots
import torch
import torch.distributed as dist
from corpus import (
    MAX_LINES,
    MIN_LINES,
    FunctionCorpus,
    LabelledCorpus,
    Vocabulary,
    extract_functions,
    read_jsonl,
    read_python,
    standard_library,
)
from running import (
    InputError,
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
from training import Corpus, Settings, Trainer, predict

import torch_lod as tl

# ---- the models: rows are tokens, levels are function > line; one row of scores per function -----


class NestedRNN(nn.Module):
    """One RNN reads the tokens of every line, another one the lines of every function."""

    def __init__(self, s: Settings, tokens: int, classes: int, rnn: type[nn.Module] = tl.nn.LSTM):
        super().__init__()
        self.embed = nn.Embedding(tokens, s.embedding)
        self.words = rnn(s.embedding, s.hidden)
        self.lines = rnn(s.hidden, s.hidden)
        self.out = nn.Linear(s.hidden, classes)
        self.dropout = nn.Dropout(s.dropout)

    def forward(self, x: tl.LoDTensor) -> torch.Tensor:
        x = self.dropout(self.embed(x))
        y, _ = self.words(x)  # every line by itself
        lines = self.dropout(tl.sequence_pool(y, "last"))  # one row per line, level function
        y, _ = self.lines(lines)  # every function by itself
        functions = self.dropout(tl.sequence_pool(y, "last"))  # one row per function, no level
        return self.out(functions)


class FlatRNN(nn.Module):
    """One RNN reads all tokens of a function; it is not told where a line ends."""

    def __init__(self, s: Settings, tokens: int, classes: int):
        super().__init__()
        self.embed = nn.Embedding(tokens, s.embedding)
        self.words = tl.nn.LSTM(s.embedding, s.hidden)
        self.out = nn.Linear(s.hidden, classes)
        self.dropout = nn.Dropout(s.dropout)

    def forward(self, x: tl.LoDTensor) -> torch.Tensor:
        x = self.dropout(self.embed(x.drop_level("line")))
        y, _ = self.words(x)
        return self.out(self.dropout(tl.sequence_pool(y, "last")))


class Bag(nn.Module):
    """The mean of all tokens of a function, in whatever order they come."""

    def __init__(self, s: Settings, tokens: int, classes: int):
        super().__init__()
        self.embed = nn.Embedding(tokens, s.embedding)
        self.out = nn.Linear(s.embedding, classes)

    def forward(self, x: tl.LoDTensor) -> torch.Tensor:
        return self.out(tl.sequence_pool(self.embed(x), "average", level=0))


MODELS: dict[str, Callable[[Settings, int, int], nn.Module]] = {
    "nested-lstm": NestedRNN,
    "nested-gru": lambda s, tokens, classes: NestedRNN(s, tokens, classes, rnn=tl.nn.GRU),
    "flat-lstm": FlatRNN,
    "bag": Bag,
}


def make_trainer(settings: Settings, corpus: Corpus, vocabulary: Vocabulary) -> Trainer:
    torch.manual_seed(settings.seed)
    model = MODELS[settings.model](settings, vocabulary.size, len(corpus.classes))
    return Trainer(settings, corpus, vocabulary, model)


# ---- data --------------------------------------------------------------------------------------


def load_jsonl(path: Path, skip_bad: bool, need_label: bool = True) -> list:
    """The good documents. Every bad line is reported, and ends the run unless skip_bad."""
    documents, bad = read_jsonl(path, need_label)
    for number, reason in bad:
        print(f"{path}, line {number}: {reason}", file=sys.stderr)
    if bad and not skip_bad:
        raise InputError(
            f"{path} has {len(bad)} bad and {len(documents)} good lines. Nothing was written and "
            "nothing is lost: correct the bad ones, or leave them out with --skip-bad-lines."
        )
    if bad:
        print(f"{path}: {len(bad)} bad lines left out, {len(documents)} used", file=sys.stderr)
    if not documents:
        raise InputError(f"{path} has no documents")
    return documents


def load_corpus(settings: Settings) -> Corpus:
    if settings.data:
        return LabelledCorpus(limited(load_jsonl(Path(settings.data), settings.skip_bad_lines), settings.limit))
    return FunctionCorpus(limited(extract_functions(standard_library()), settings.limit))


def limited(documents: list, limit: int) -> list:
    """All of them, or as many as `limit`, drawn at random."""
    if not 0 < limit < len(documents):
        return documents
    keep = np.random.default_rng(0).permutation(len(documents))[:limit]
    return [documents[i] for i in sorted(keep)]


# ---- what can be asked for -----------------------------------------------------------------------


def print_predictions(path: Path, out: Path, skip_bad: bool) -> None:
    """Label and probability of every document of a .jsonl, or every function of a .py file."""
    state = load_checkpoint(out / "checkpoint.pt")
    settings, vocabulary = Settings(**state["settings"]), Vocabulary(state["words"])
    if path.suffix == ".py":
        if settings.data:
            raise InputError(f"the model in {out} was trained on {settings.data}: pass a .jsonl file")
        try:
            documents = read_python(path, path.name)
        except (OSError, SyntaxError, ValueError, tokenize.TokenError) as error:
            raise InputError(f"cannot read {path}: {error}") from None
        if not documents:
            raise InputError(f"{path} has no function of {MIN_LINES} to {MAX_LINES} lines")
    else:
        documents = [d for d, _ in load_jsonl(path, skip_bad, need_label=False)]
    model = MODELS[settings.model](settings, vocabulary.size, len(state["classes"]))
    model.load_state_dict(state["model"])
    probabilities = predict(model, documents, vocabulary, tuple(state["level_names"]))
    for document, row in zip(documents, probabilities.tolist(), strict=True):
        best = max(range(len(row)), key=row.__getitem__)
        print(f"{row[best]:6.1%}  {state['classes'][best]}  {document.source}")


def print_comparison(settings: Settings, steps: int, threads: int) -> None:
    """The same training steps on LoDTensors, on padded tensors and with PackedSequence."""
    import padded_twin  # here, since it imports the models of this file

    if not settings.model.startswith("nested"):
        raise InputError(f"--compare-padded is for nested-lstm and nested-gru, not {settings.model}")
    corpus = load_corpus(settings)
    trainer = make_trainer(settings, corpus, Vocabulary.of(corpus.train))
    examples = corpus.epoch(np.random.default_rng((settings.seed, 0)))
    batches = [batch for batch, _ in zip(trainer.batches(examples), range(steps), strict=False)]
    padded_twin.compare(settings, trainer.model, batches, threads)


def train_baselines(settings: Settings, corpus: Corpus, vocabulary: Vocabulary) -> dict[str, float]:
    """Test accuracy of the simpler models, trained in the same way."""
    accuracies = {}
    for name in ("bag", "flat-lstm"):
        if name == settings.model:
            break  # what is trained is itself a baseline
        # A function and its shuffle have the same mean: the bag can only be right half of the time.
        enough = name == "bag" and isinstance(corpus, FunctionCorpus)
        baseline = replace(settings, model=name, epochs=2 if enough else settings.epochs)
        accuracies[name] = make_trainer(baseline, corpus, vocabulary).train()
    return accuracies


def train(settings: Settings, out: Path, state: dict | None = None) -> None:
    """Train, or with the state of a checkpoint go on; the last line printed is the result."""
    corpus = load_corpus(settings)
    make_folder(out)
    vocabulary = Vocabulary(state["words"]) if state else Vocabulary.of(corpus.train)
    examples = corpus.epoch(np.random.default_rng(0))
    data: dict[str, Any] = {
        "source": settings.data or f"standard library of Python {platform.python_version()}",
        "classes": list(corpus.classes),
        "training_items": len(examples),
        "test_items": len(corpus.test),
        "frequent_tokens": len(vocabulary.words),
        **plots.count_cells(examples, settings.batch),
    }
    print(
        f"{data['source']}: {len(examples)} items to train on, {len(corpus.test)} to test on\n"
        f"{data['rows']} tokens in an epoch, {data['padded_cells'] / data['rows']:.1f} times as many cells if padded"
    )

    baselines = state["baselines"] if state else train_baselines(settings, corpus, vocabulary)
    trainer = make_trainer(settings, corpus, vocabulary)
    trainer.baselines = baselines
    if state:
        trainer.restore(state)
        print(f"resumed after epoch {len(trainer.history)} of {settings.epochs}")
    accuracy = trainer.train(checkpoint=out / "checkpoint.pt")
    if trainer.rank:
        return
    report = {
        "test_accuracy": accuracy,
        "baselines": baselines,
        "seconds": round(time.perf_counter() - STARTED, 1),
        "settings": asdict(settings),
        "parameters": sum(p.numel() for p in trainer.model.parameters()),
        "data": data,
        "epochs": trainer.history,
    }
    save_report(report, out / "report.json")
    written = ["checkpoint.pt", "report.json"]
    if figures.available():
        plots.learning_curve(report, trainer.losses, out / "learning_curve.png")
        plots.lengths(corpus, data, out / "lengths.png")
        written += ["learning_curve.png", "lengths.png"]
    else:
        print("no plots: matplotlib is not installed (pip install matplotlib)")
    for name in written:
        print(f"saved {out / name}")
    for name, value in (baselines | {settings.model: accuracy}).items():
        print(f"{name:12} {value:6.1%}")
    order_free = baselines.get("bag", accuracy)
    seconds = time.perf_counter() - STARTED
    print(f"test accuracy {accuracy:.1%} (order-free {order_free:.1%}, {seconds:.0f} s)")


@contextlib.contextmanager
def processes(several: bool) -> Iterator[None]:
    """Those of torchrun, which meet here; only the first of them prints."""
    if not several:
        yield
        return
    if "RANK" not in os.environ:
        raise InputError("--distributed is for torchrun: torchrun --nproc-per-node 2 " + " ".join(sys.argv))
    dist.init_process_group("gloo")
    printed = contextlib.redirect_stdout(io.StringIO()) if dist.get_rank() else contextlib.nullcontext()
    try:
        with printed, tl.distributed.watch():
            yield
    finally:
        dist.destroy_process_group()


# ---- command line ------------------------------------------------------------------------------


def parse_arguments(arguments: list[str] | None) -> argparse.Namespace:
    parser = new_parser(__doc__)
    d = Settings()
    count = positive(int)
    add = parser.add_argument
    add("--data", metavar="JSONL", help="train on these documents instead of the standard library")
    add("--skip-bad-lines", action="store_true", help="leave bad lines of a JSONL file out")
    add("--model", choices=MODELS, help=f"default: {d.model}")
    add("--epochs", type=count, help=f"default: {d.epochs}")
    add("--hidden", type=count, help=f"units of each RNN, default: {d.hidden}")
    add("--embedding", type=count, help=f"numbers per token, default: {d.embedding}")
    add("--batch", type=count, help=f"items per step, default: {d.batch}")
    add("--lr", type=positive(float), help=f"highest learning rate, default: {d.lr}")
    add("--dropout", type=fraction, help=f"default: {d.dropout}")
    add("--seed", type=natural, help=f"of weights and training order, default: {d.seed}")
    add("--limit", type=count, metavar="N", help="use only N functions or documents")
    add_machine(add)
    add("--distributed", action="store_true", default=False, help="one of the processes that torchrun started")
    add("--out", type=Path, default=Path("runs/nested_rnn"), help="folder, default: %(default)s")
    add = parser.add_mutually_exclusive_group().add_argument
    add("--resume", action="store_true", default=False, help="go on from the checkpoint in --out")
    add("--predict", type=Path, metavar="PATH", help="label a .jsonl or .py file with the checkpoint")
    add("--compare-padded", type=count, nargs="?", const=20, metavar="STEPS", help="time the padded twins")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    asked = parse_arguments(arguments)
    given = given_settings(Settings, asked)
    compute_on(asked)

    def run() -> None:
        with processes(asked.distributed):
            answer()

    def answer() -> None:
        if hasattr(asked, "predict"):
            print_predictions(asked.predict, asked.out, given.get("skip_bad_lines", False))
        elif hasattr(asked, "compare_padded"):
            if asked.device.type != "cpu":
                raise InputError("--compare-padded looks at the memory of processes: leave --device out")
            print_comparison(Settings(**given), asked.compare_padded, asked.threads)
        elif asked.resume:
            state = load_checkpoint(asked.out / "checkpoint.pt")
            train(settings_to_resume(Settings, given, state, asked.out), asked.out, state)
        else:
            train(Settings(**given), asked.out)

    return exit_status(run)


if __name__ == "__main__":
    sys.exit(main())
