# SPDX-License-Identifier: Apache-2.0
"""The two pictures of `train_nested_rnn.py`, and the padding that they show."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from corpus import Document
from figures import BLUE, GREY, ORANGE, draw_losses, legend_below, new_figure, save_figure

if TYPE_CHECKING:
    from training import Corpus


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


def learning_curve(report: dict, losses: list[float], path: Path) -> None:
    """Loss by step and accuracy by epoch, with the baselines as lines."""
    figure, (left, right) = new_figure(2, 10)
    epochs = report["epochs"]
    draw_losses(left, losses, np.log(len(report["data"]["classes"])))

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
    legend_below(right)
    save_figure(figure, path)


def lengths(corpus: Corpus, data: dict, path: Path) -> None:
    """How long functions and lines are, and what padding them would have cost."""
    figure, (left, middle, right) = new_figure(3, 13)
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
    save_figure(figure, path)
