# SPDX-License-Identifier: Apache-2.0
"""The two pictures of `train_nested_rnn.py`, and the padding that they show."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from corpus import Document

if TYPE_CHECKING:
    from training import Corpus

BLUE, ORANGE, GREY = "#2f6db5", "#d9822b", "#8a8f98"


def available() -> bool:
    return find_spec("matplotlib") is not None


def count_cells(documents: list[Document], batch: int) -> dict[str, int]:
    """Rows of an epoch, and the cells of its batches when padded to the longest at both levels."""
    rows = cells = longest = 0
    for begin in range(0, len(documents), batch):
        lines = [[len(line) for line in d.lines] for d in documents[begin : begin + batch]]
        widest = max(max(line) for line in lines)
        cells += len(lines) * max(map(len, lines)) * widest
        rows += sum(map(sum, lines))
        longest = max(longest, widest)
    return {"rows": rows, "padded_cells": cells, "longest_line": longest}


def _figure(columns: int, width: float):
    import matplotlib

    matplotlib.use("Agg")  # a picture in a file needs no display
    import matplotlib.pyplot as plt

    plt.rcParams.update({"axes.spines.top": False, "axes.spines.right": False, "font.size": 10})
    return plt.subplots(1, columns, figsize=(width, 4.0), layout="constrained")


def _save(figure, path: Path) -> None:
    import matplotlib.pyplot as plt

    figure.savefig(path, dpi=120)
    plt.close(figure)


def _smooth(values: Iterable[float], window: int) -> np.ndarray:
    """The mean of the last `window` values, fewer at the start."""
    total = np.concatenate([[0.0], np.cumsum(list(values))])
    end = np.arange(1, len(total))
    begin = np.maximum(0, end - window)
    return (total[end] - total[begin]) / (end - begin)


def _legend_below(axes) -> None:
    """Outside, where it hides no line."""
    axes.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.15), ncols=2)


def learning_curve(report: dict, losses: list[float], path: Path) -> None:
    """Loss by step and accuracy by epoch, with the baselines as lines."""
    figure, (left, right) = _figure(2, 10)
    epochs = report["epochs"]
    steps = np.arange(1, len(losses) + 1)
    left.plot(steps, losses, color=BLUE, alpha=0.25, linewidth=0.7, label="each step")
    left.plot(steps, _smooth(losses, 50), color=BLUE, label="mean of the last 50 steps")
    guess = np.log(len(report["data"]["classes"]))
    left.axhline(guess, color=GREY, linestyle="--", label=f"guessing, {guess:.2f}")
    left.set(title="Training loss", xlabel="step", ylabel="cross entropy (nats)", xlim=(0, len(losses)))
    left.set_ylim(0, 1.05 * max(losses))
    _legend_below(left)

    numbers = [e["epoch"] for e in epochs]
    for key, label, color in (
        ("test_accuracy", "test", BLUE),
        ("train_accuracy", "training, with dropout", ORANGE),
    ):
        right.plot(numbers, [100 * e[key] for e in epochs], "o-", color=color, label=label)
    for (name, accuracy), style in zip(report["baselines"].items(), ("--", ":"), strict=False):
        label = f"{'order-free' if name == 'bag' else name}, test, {accuracy:.1%}"
        right.axhline(100 * accuracy, color=GREY, linestyle=style, label=label)
    lowest = min([e["train_accuracy"] for e in epochs] + list(report["baselines"].values()))
    right.set(
        title=f"{report['settings']['model']}: test accuracy {report['test_accuracy']:.1%}",
        xlabel="epoch",
        ylabel="accuracy (%)",
        ylim=(100 * lowest - 5, 101),
    )
    right.xaxis.get_major_locator().set_params(integer=True)
    _legend_below(right)
    _save(figure, path)


def lengths(corpus: Corpus, data: dict, path: Path) -> None:
    """How long functions and lines are, and what padding them would have cost."""
    figure, (left, middle, right) = _figure(3, 13)
    outer, inner = corpus.level_names
    per_document = [len(d.lines) for d in corpus.train]
    per_line = [len(line) for d in corpus.train for line in d.lines]
    for axes, values, what, of in (
        (left, per_document, f"{inner}s per {outer}", f"{outer}s"),
        (middle, per_line, f"tokens per {inner}", f"{inner}s"),
    ):
        bins = np.arange(min(values), max(values) + 2) - 0.5
        if len(bins) > 60:
            bins = np.linspace(bins[0], bins[-1], 60)
        axes.hist(values, bins=bins, color=BLUE)
        mean = np.mean(values)
        axes.axvline(mean, color=ORANGE, label=f"mean {mean:.1f}")
        axes.axvline(max(values), color=GREY, linestyle="--", label=f"longest {max(values)}")
        axes.set(title=what[0].upper() + what[1:], xlabel=what, ylabel=f"number of {of}")
        axes.legend(frameon=False)
    middle.set_yscale("log")

    counts = [data["rows"] / 1e6, data["padded_cells"] / 1e6]
    bars = right.bar(["tokens\n(LoDTensor)", "cells if every batch\nwere padded"], counts, color=[BLUE, GREY])
    right.bar_label(bars, [f"{count:,.2f}" for count in counts], padding=2)
    avoided = 1 - counts[0] / counts[1]
    right.set(title=f"Padding avoided: {avoided:.0%}", ylabel="rows in an epoch (millions)")
    right.margins(y=0.1)
    _save(figure, path)
