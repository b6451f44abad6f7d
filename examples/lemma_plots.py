# SPDX-License-Identifier: Apache-2.0
"""The two pictures of `lemmatize.py`: how it learned, and where it looks when it writes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from figures import BLUE, GREY, ORANGE, draw_losses, legend_below, new_figure, save_figure
from lemmas import Alphabet, Question

import torch_lod as tl

if TYPE_CHECKING:
    from lemmatize import Lemmatizer


def learning_curve(report: dict, losses: list[float], path: Path) -> None:
    """Loss by step, and by epoch the part of the development words that are right."""
    figure, (left, right) = new_figure(2, 11)
    draw_losses(left, losses, unit="cross entropy per letter (nats)")
    left.set(yscale="log", ylim=(0.8 * min(losses), 1.2 * max(losses)))

    epochs = report["epochs"]
    look_up, copy = report["dev_baselines"]["look-up with tag"]["all"], report["dev_baselines"]["copy"]["unseen"]
    for key, label, color, known, name in (
        ("all", "all words", BLUE, look_up, "looked up in training"),
        ("unseen", "words not in training", ORANGE, copy, "copied"),
    ):
        right.plot([e["epoch"] for e in epochs], [100 * e["dev"][key] for e in epochs], "o-", color=color, label=label)
        right.axhline(100 * known, color=color, linestyle="--", linewidth=1, label=f"{name}, {known:.1%}")
    lowest = min(copy, look_up, *(e["dev"][key] for e in epochs for key in ("all", "unseen")))
    test = report["test"]["network"]
    right.set(
        title=f"Development set. Test: {test['all']:.1%}, unseen {test['unseen']:.1%}",
        xlabel="epoch",
        ylabel="lemmas that are right (%)",
        ylim=(max(0, 100 * lowest - 5), 101),
    )
    right.xaxis.get_major_locator().set_params(integer=True)
    legend_below(right)
    save_figure(figure, path)


@torch.no_grad()
def attention(model: Lemmatizer, alphabet: Alphabet, words: list[tuple[Question, str]], path: Path) -> None:
    """A matrix per word: its symbols from left to right, the letters of the lemma from top to bottom."""
    model.eval()
    sources = tl.lod_tensor([alphabet.source(q) for q, _ in words])
    given = tl.lod_tensor([[Alphabet.BEGIN, *alphabet.spell(lemma)] for _, lemma in words])
    weights = model.attention(sources, given)
    rows = (len(words) + 2) // 3
    figure, axes = new_figure(min(3, len(words)), 11, 3.6 * rows, rows)
    axes = np.atleast_1d(axes)
    for panel, matrix, ((form, tag), lemma) in zip(axes.flat, weights, words, strict=False):
        panel.imshow(matrix, cmap="Blues", vmin=0, vmax=1, aspect="auto")
        panel.set_xticks(range(len(form) + 1), [tag, *form])
        panel.get_xticklabels()[0].set(rotation=90, color=GREY, fontsize=8)
        panel.set_yticks(range(len(lemma) + 1), [*lemma, "end"])
        panel.get_yticklabels()[-1].set(color=GREY, fontsize=8)
        panel.set_title(f"{form} ({tag}): {lemma}", fontsize=10)
        panel.tick_params(length=0)
        panel.xaxis.tick_bottom()
    for panel in list(axes.flat)[len(words) :]:
        panel.set_axis_off()
    figure.supxlabel("what is read")
    figure.supylabel("what is written")
    figure.colorbar(axes.flat[0].images[0], ax=axes, label="attention", shrink=0.8)
    save_figure(figure, path)
