# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: E402 (the clock starts before the imports)
"""Train a speech recogniser, utterance > word > sample, on digits spoken one after another.

    python examples/spoken_digits.py                             some minutes on one core
    python examples/spoken_digits.py --data mine                 your own recordings
    python examples/spoken_digits.py --predict utterance.wav     ask the trained model

The task: which digits does an utterance have? It is 1 to 8 recordings of one speaker, one behind the other, in new
company every epoch. The model is not told where a digit begins: connectionist temporal classification (CTC) sums over
all possibilities. Afterwards, forced alignment finds the most probable one: alignment.png.

--data takes a folder (or a .zip or .tar of one) of mono wav files, 16 bits at 8 kHz, one word each, with names like
LABEL_SPEAKER_INDEX.wav; those with an index below 5 are the test. The labels may be any words. Without it the
recordings are those of the Free Spoken Digit Dataset in examples/data/fsdd; a few are in examples/data/digits_sample,
with which --epochs 300 is about right.

--predict takes a wav file of 16 bits at 8 kHz. Recordings of the training follow one another without a pause, so the
model has not heard any: where words are far apart, cut the silence out, or train on recordings that have some at their
ends.
"""

from __future__ import annotations

import time

STARTED = time.perf_counter()

import argparse
import math
import sys
from dataclasses import asdict, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import digit_plots
import figures
import numpy as np
import torch
from digit_plots import Span
from digit_training import Settings, Trainer
from recordings import RATE, SpokenCorpus, Utterance, read_file, read_recordings
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

import torch_lod as tl

WINDOW, HOP, TRANSFORM, BANDS = 200, 80, 256, 40  # samples of a frame, from frame to frame, of the transform; mel bands
STRIDE = 4  # frames of a row of scores
MASKED = 8  # at most so many bands next to one another are hidden at a time in training


# ---- the model: rows are samples, then frames, then scores; their level is utterance ---------------------


def mel_bands() -> torch.Tensor:
    """(frequencies, bands): triangles that are equally wide on the mel scale, from 40 Hz to half the sampling rate."""
    lowest, highest = 2595 * np.log10(1 + np.array([40, RATE / 2]) / 700)
    mel = np.linspace(lowest, highest, BANDS + 2)
    hertz = 700 * (10 ** (mel / 2595) - 1)
    frequencies = np.arange(TRANSFORM // 2 + 1)[:, None] * RATE / TRANSFORM
    low, middle, high = hertz[:-2], hertz[1:-1], hertz[2:]
    bands = np.minimum((frequencies - low) / (middle - low), (high - frequencies) / (high - middle))
    return torch.as_tensor(np.maximum(bands, 0).astype(np.float32))


class LogMel(nn.Module):
    """Samples to frames, 100 a second: the logarithm of the energy in each band."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("window", torch.hann_window(WINDOW), persistent=False)
        self.register_buffer("bands", mel_bands(), persistent=False)

    def forward(self, x: tl.LoDTensor, level: str = "utterance") -> tl.LoDTensor:
        frames = tl.sequence_unfold(x, WINDOW, HOP, level=level)  # within sequences of the level
        power = torch.fft.rfft(frames * self.window, TRANSFORM).abs().square()
        return (power @ self.bands + 1e-6).log()


def BatchNorm(features: int) -> nn.Module:
    return nn.BatchNorm1d(features, momentum=0.02)  # batches are small: means over the last 50


class Recogniser(nn.Module):
    """Convolutions over time, a recurrence in both directions, and scores of the blank and of every class."""

    def __init__(self, s: Settings, classes: int):
        super().__init__()
        self.log_mel = LogMel()
        self.conv1 = nn.Conv1d(BANDS, 64, 5, stride=2, padding=2)
        self.conv2 = nn.Conv1d(64, 128, 5, stride=2, padding=2)
        self.norm0, self.norm1, self.norm2 = BatchNorm(BANDS), BatchNorm(64), BatchNorm(128)
        self.context = CONTEXTS[s.model](128, s.hidden)
        self.out = nn.Linear(2 * s.hidden, 1 + classes)
        self.dropout = nn.Dropout(s.dropout)

    def forward(self, x: tl.LoDTensor) -> tl.LoDTensor:
        x = self.norm0(self.log_mel(x))  # by the statistics of all frames: the rows of a batch, none of them padding
        if self.training:
            x = x * tl.sequence_expand_as(random_bands(x.lod.num_sequences()), x)  # the same in all frames
        x = self.dropout(self.norm1(self.conv1(x)).relu())  # 50 rows a second
        x = self.dropout(self.norm2(self.conv2(x)).relu())  # 25 rows a second
        return self.out(self.dropout(self.context(x)))


class Recurrence(nn.Module):
    """Both directions along every utterance."""

    def __init__(self, features: int, hidden: int, rnn: type[nn.Module] = tl.nn.LSTM):
        super().__init__()
        self.rnn = rnn(features, hidden, bidirectional=True)

    def forward(self, x: tl.LoDTensor) -> tl.LoDTensor:
        return self.rnn(x)[0]


class Convolution(nn.Module):
    """In the place of the recurrence: a row sees two neighbours on each side, so that a score sees 0.3 s of sound."""

    def __init__(self, features: int, hidden: int):
        super().__init__()
        self.conv, self.norm = nn.Conv1d(features, 2 * hidden, 5, padding=2), BatchNorm(2 * hidden)

    def forward(self, x: tl.LoDTensor) -> tl.LoDTensor:
        return self.norm(self.conv(x)).relu()


CONTEXTS = {
    "lstm": Recurrence,
    "gru": lambda features, hidden: Recurrence(features, hidden, rnn=tl.nn.GRU),
    "conv": Convolution,
}


def random_bands(utterances: int) -> torch.Tensor:
    """(utterances, bands): 0 for two random ranges of bands, 1 for the others."""
    width = torch.randint(0, MASKED + 1, (utterances, 2, 1))
    first = (torch.rand(utterances, 2, 1) * (BANDS + 1 - width)).long()
    band = torch.arange(BANDS)
    return ((band < first) | (band >= first + width)).all(1).float()


def class_means_error(corpus: SpokenCorpus) -> float:
    """A baseline that is told where words begin: the error of the class with the nearest mean spectrum."""
    log_mel = LogMel()

    def spectra(spoken: list[Utterance]) -> tuple[torch.Tensor, torch.Tensor]:
        found = []
        for x, labels in corpus.batches(spoken, 64):
            spectrum = tl.sequence_pool(log_mel(x, level="word"), "mean", level="word").values()
            found.append((spectrum - spectrum.mean(1, keepdim=True), labels.values()))  # without its loudness
        words, classes = zip(*found, strict=True)
        return torch.cat(words), torch.cat(classes)

    words, classes = spectra(corpus.epoch(np.random.default_rng(0)))
    known = classes.unique()
    means = torch.stack([words[classes == c].mean(0) for c in known])
    words, classes = spectra(corpus.test)
    return (known[torch.cdist(words, means).argmin(1)] != classes).double().mean().item()


# ---- forced alignment: when was each word said? ------------------------------------------------


@torch.no_grad()
def align(model: Recogniser, x: tl.LoDTensor, labels: tl.LoDTensor) -> list[list[Span]]:
    """Begin, end and probability of every label, in seconds. Words meet where it is quietest between their scores."""
    model.eval()
    path, log_probability = tl.ctc_alignment(model(x), labels)  # of every row the position of its label, or -1
    loudness = model.log_mel(x).mean(1)  # of every frame
    length = x.lod.row_lengths("utterance").tolist()
    found = []
    for u in range(len(length)):
        rows, frames = path.seq[u].tolist(), loudness.seq[u]
        words = [[row for row, position in enumerate(rows) if position == k] for k in range(max(rows, default=-1) + 1)]
        cuts = [0.0]
        for left, right in pairwise(words):
            between = slice(STRIDE * left[-1], STRIDE * right[0] + 1)
            quietest = between.start + int(frames[between].argmin())
            cuts.append((quietest * HOP + WINDOW / 2) / RATE)
        cuts.append(length[u] / RATE)
        best = [math.exp(max(log_probability.seq[u][word].tolist())) for word in words]
        found.append([Span(*ends, p) for ends, p in zip(pairwise(cuts), best)])
    return found


def alignment_errors(model: Recogniser, corpus: SpokenCorpus) -> list[float]:
    """How far the boundaries between the words of the test are from where one recording ends and the next begins."""
    errors = []
    for begin in range(0, len(corpus.test), 64):
        spoken = corpus.test[begin : begin + 64]
        for utterance, spans in zip(spoken, align(model, *corpus.batch(spoken)), strict=True):
            ends = np.cumsum([len(r.samples) / RATE for r in utterance])
            errors += [abs(span.end - end) for span, end in zip(spans[:-1], ends, strict=False)]
    return errors


# ---- what can be asked for -----------------------------------------------------------------------


def print_prediction(path: Path, out: Path) -> None:
    """The words of a recording, when each was said, and how sure the model is."""
    state = load_checkpoint(out / "checkpoint.pt")
    model = Recogniser(Settings(**state["settings"]), len(state["classes"]))
    model.load_state_dict(state["model"])
    model.eval()
    samples = torch.as_tensor(read_file(path) / np.float32(2**15))
    x = tl.from_tensors([samples], level_names=("utterance",))
    with torch.no_grad():
        labels = tl.ctc_decode(model(x))
    for label, span in zip(labels.tolist(), align(model, x, labels)[0], strict=True):
        print(f"{span.begin:6.2f} to {span.end:5.2f} s  {state['classes'][label - 1]}  {span.probability:6.1%}")
    if not len(labels):
        print("no word was recognised")


def make_trainer(settings: Settings, corpus: SpokenCorpus) -> Trainer:
    torch.manual_seed(settings.seed)
    return Trainer(settings, corpus, Recogniser(settings, len(corpus.classes)))


def train_baselines(settings: Settings, corpus: SpokenCorpus) -> dict[str, float]:
    """Test error of simpler models."""
    errors = {"class means": class_means_error(corpus)}
    if settings.model != "conv":
        errors["conv"] = make_trainer(replace(settings, model="conv"), corpus).train()
    return errors


def train(settings: Settings, out: Path, state: dict | None = None) -> None:
    """Train, or with the state of a checkpoint go on; the last line printed is the result."""
    corpus = SpokenCorpus(read_recordings(Path(settings.data)), settings.limit)
    make_folder(out)
    data: dict[str, Any] = {
        "source": settings.data,
        "classes": corpus.classes,
        "training_recordings": len(corpus.train),
        "test_utterances": len(corpus.test),
        "test_words": sum(map(len, corpus.test)),
        "test_recordings": len({r.name for utterance in corpus.test for r in utterance}),
    }
    print(
        f"{settings.data}: {len(corpus.train)} recordings to train on, {data['test_recordings']} others in "
        f"{len(corpus.test)} utterances of {data['test_words']} words to test on"
    )
    trainer = make_trainer(settings, corpus)
    if state:
        trainer.restore(state)
        print(f"resumed after epoch {len(trainer.history)} of {settings.epochs}")
    else:
        baselines = train_baselines(settings, corpus)
        trainer = make_trainer(settings, corpus)
        trainer.baselines = baselines
    error = trainer.train(checkpoint=out / "checkpoint.pt")

    boundaries = alignment_errors(trainer.model, corpus)
    report = {
        "test_error": error,
        "baselines": trainer.baselines,
        "boundaries": {
            "count": len(boundaries),
            "median_error": float(np.median(boundaries)) if boundaries else None,
            "within_50_ms": float(np.mean(np.array(boundaries) < 0.05)) if boundaries else None,
        },
        "seconds": round(time.perf_counter() - STARTED, 1),
        "cpu_seconds": round(time.process_time(), 1),
        "settings": asdict(settings),
        "parameters": sum(p.numel() for p in trainer.model.parameters()),
        "data": data,
        "epochs": trainer.history,
    }
    save_report(report, out / "report.json")
    written = ["checkpoint.pt", "report.json"]
    if figures.available():
        digit_plots.learning_curve(report, trainer.losses, out / "learning_curve.png")
        draw_alignment(trainer.model, corpus, out / "alignment.png")
        written += ["learning_curve.png", "alignment.png"]
    else:
        print("no plots: matplotlib is not installed (pip install matplotlib)")
    for name in written:
        print(f"saved {out / name}")
    if boundaries:
        print(f"half of the {len(boundaries)} boundaries are within {1000 * np.median(boundaries):.0f} ms of the truth")
    for name, value in (trainer.baselines | {settings.model: error}).items():
        print(f"{name:12} {value:6.1%} of the words wrong")
    seconds = time.perf_counter() - STARTED
    means = trainer.baselines["class means"]
    print(f"test error {error:.1%} (class means, told where words begin, {means:.1%}, {seconds:.0f} s)")


def draw_alignment(model: Recogniser, corpus: SpokenCorpus, path: Path) -> None:
    """The first of the longest utterances of the test."""
    utterance = max(corpus.test, key=len)
    x, labels = corpus.batch([utterance])
    with torch.no_grad():
        scores, log_mel = model.eval()(x), model.log_mel(x)
    names = ["blank", *corpus.classes]
    found = [names[label] for label in tl.ctc_decode(scores).tolist()]
    true_ends = np.cumsum([len(r.samples) / RATE for r in utterance])
    digit_plots.alignment(
        log_mel.values().numpy(force=True),
        scores.softmax(1).values().numpy(force=True),
        names,
        [names[label] for label in labels.tolist()],
        found,
        align(model, x, labels)[0],
        true_ends,
        path,
    )


# ---- command line ------------------------------------------------------------------------------


def parse_arguments(arguments: list[str] | None) -> argparse.Namespace:
    parser = new_parser(__doc__)
    d = Settings()
    count = positive(int)
    add = parser.add_argument
    add("--data", metavar="FOLDER", help="recordings, a folder or an archive of one; default: examples/data/fsdd")
    add("--model", choices=CONTEXTS, help=f"default: {d.model}")
    add("--epochs", type=count, help=f"default: {d.epochs}")
    add("--hidden", type=count, help=f"units of each direction of the recurrence, default: {d.hidden}")
    add("--batch", type=count, help=f"utterances per step, default: {d.batch}")
    add("--lr", type=positive(float), help=f"highest learning rate, default: {d.lr}")
    add("--dropout", type=fraction, help=f"default: {d.dropout}")
    add("--seed", type=natural, help=f"of weights and utterances, default: {d.seed}")
    add("--limit", type=count, metavar="N", help="use only N recordings to train on and N to test on")
    add_machine(add)
    add("--out", type=Path, default=Path("runs/spoken_digits"), help="folder, default: %(default)s")
    add = parser.add_mutually_exclusive_group().add_argument
    add("--resume", action="store_true", default=False, help="go on from the checkpoint in --out")
    add("--predict", type=Path, metavar="WAV", help="print the words of a recording, with their times")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    asked = parse_arguments(arguments)
    given = given_settings(Settings, asked)
    compute_on(asked)

    def run() -> None:
        if hasattr(asked, "predict"):
            print_prediction(asked.predict, asked.out)
        elif asked.resume:
            state = load_checkpoint(asked.out / "checkpoint.pt")
            train(settings_to_resume(Settings, given, state, asked.out), asked.out, state)
        else:
            train(Settings(**given), asked.out)

    return exit_status(run)


if __name__ == "__main__":
    sys.exit(main())
