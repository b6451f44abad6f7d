# SPDX-License-Identifier: Apache-2.0
"""The two pictures of `tag_sentences.py`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from figures import BLUE, GREY, ORANGE, draw_losses, legend_below, new_figure, save_figure

COLORS = {"crf": BLUE, "softmax": ORANGE, "most frequent": GREY}


def learning_curve(report: dict, losses: list[float], path: Path) -> None:
    """Loss by step; accuracy on dev by epoch; accuracy on test beside the baseline, of known and of unknown words."""
    figure, (left, middle, right) = new_figure(3, 14)
    draw_losses(left, losses, np.log(len(report["data"]["tags"])), unit="nats per word")
    left.set_title(f"Training loss, {next(iter(report['epochs']))}")

    for name, epochs in report["epochs"].items():
        accuracy = [100 * e["dev_accuracy"] for e in epochs]
        middle.plot([e["epoch"] for e in epochs], accuracy, "o-", color=COLORS[name], label=name)
    middle.set(title="After every epoch", xlabel="epoch", ylabel="accuracy on dev (%)")
    middle.xaxis.get_major_locator().set_params(integer=True)
    legend_below(middle)

    groups = ("all", "known", "unknown")
    scores = report["accuracies"]
    width = 0.8 / len(scores)
    for i, (name, of) in enumerate(scores.items()):
        place = np.arange(len(groups)) + (i - (len(scores) - 1) / 2) * width
        bars = right.bar(place, [100 * of[group] for group in groups], width, color=COLORS[name], label=name)
        right.bar_label(bars, [f"{100 * of[group]:.1f}" for group in groups], padding=2, fontsize=8)
    right.set_xticks(range(len(groups)), ["all words", "forms that\ntraining has", "forms that\nit has not"])
    right.set(title=f"Test accuracy {report['test_accuracy']:.1%}", ylabel="accuracy on test (%)", ylim=(0, 105))
    right.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=len(scores))
    save_figure(figure, path)


def confusion(report: dict, path: Path) -> None:
    """The tag that words should have against the tag that they were given: how many are wrong, and in which way."""
    tags, counts = report["data"]["tags"], np.array(report["confusion"])
    used = np.flatnonzero(counts.sum(0) + counts.sum(1))
    tags, counts = [tags[i] for i in used], counts[np.ix_(used, used)]
    totals, right = counts.sum(1), np.diag(counts)
    wrong = counts - np.diag(right)
    size = 2.5 + 0.45 * len(tags)
    figure, axes = new_figure(1, size + 1, size - 0.6)
    shown = axes.imshow(wrong, cmap="Oranges", vmin=0, vmax=max(1, wrong.max()))
    for i, j in np.argwhere(wrong):
        color = "white" if wrong[i, j] > 0.6 * wrong.max() else "black"
        axes.text(j, i, wrong[i, j], ha="center", va="center", fontsize=8, color=color)
    for i in np.flatnonzero(totals):
        axes.text(i, i, f"{right[i] / totals[i]:.0%}", ha="center", va="center", fontsize=8, color=BLUE, weight="bold")
    axes.set_xticks(range(len(tags)), tags, rotation=90)
    axes.set_yticks(range(len(tags)), [f"{tag}  {total:,}" for tag, total in zip(tags, totals)])
    axes.set(xlabel="tag that was given", ylabel="tag of the treebank, and its number of words")
    axes.set_title(f"{wrong.sum():,} of {totals.sum():,} words are wrong (blue: how many words of a tag are right)")
    figure.colorbar(shown, ax=axes, label="words that are wrong", shrink=0.7)
    save_figure(figure, path)
