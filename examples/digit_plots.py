# SPDX-License-Identifier: Apache-2.0
"""The two pictures of `spoken_digits.py`."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
from figures import BLUE, GREY, ORANGE, draw_losses, legend_below, new_figure, save_figure


class Span(NamedTuple):
    """When a word was said, in seconds, and the largest probability that one of its rows gives it."""

    begin: float
    end: float
    probability: float


def learning_curve(report: dict, losses: list[float], path: Path) -> None:
    """Loss by step and test error by epoch, with the baselines as lines."""
    figure, (left, right) = new_figure(2, 10)
    draw_losses(left, losses, unit="CTC loss per word (nats)")
    left.set_ylim(0, 1.5 * max(losses[len(losses) // 20 :]))  # the first steps are far above all others
    epochs = report["epochs"]
    errors = [100 * e["test_error"] for e in epochs]
    right.plot([e["epoch"] for e in epochs], errors, "o-", markersize=3, color=BLUE, label=report["settings"]["model"])
    for (name, error), style in zip(report["baselines"].items(), ("--", ":"), strict=False):
        right.axhline(100 * error, color=GREY, linestyle=style, label=f"{name}, {error:.1%}")
    right.set(title=f"Test error {report['test_error']:.1%}", xlabel="epoch", ylabel="words wrong (%)", yscale="log")
    right.set_ylim(0.7 * max(0.1, min([*errors, *(100 * e for e in report["baselines"].values())])), 120)
    right.set_yticks([1, 2, 5, 10, 20, 50, 100], minor=False)
    right.yaxis.set_major_formatter("{x:g}")
    right.minorticks_off()
    right.xaxis.get_major_locator().set_params(integer=True)
    legend_below(right)
    save_figure(figure, path)


def alignment(
    log_mel: np.ndarray,
    probabilities: np.ndarray,
    names: list[str],
    said: list[str],
    recognised: list[str],
    spans: list[Span],
    true_ends: np.ndarray,
    path: Path,
) -> None:
    """The spectrogram of an utterance with the boundaries of its words, and the probabilities of its classes below."""
    figure, (upper, lower) = new_figure(1, 11, 5.5, rows=2)
    seconds = float(true_ends[-1])
    upper.imshow(log_mel.T, origin="lower", aspect="auto", cmap="magma", extent=(0, seconds, 0, log_mel.shape[1]))
    for axes in (upper, lower):
        for k, end in enumerate(true_ends[:-1]):
            axes.axvline(end, color=GREY, linestyle=":", linewidth=2, label="a recording ends" if k == 0 else None)
        for k, span in enumerate(spans[:-1]):
            axes.axvline(span.end, color=ORANGE, linewidth=1.2, label="the alignment's boundary" if k == 0 else None)
        axes.set_xlim(0, seconds)
    for word, span in zip(said, spans):
        at = (span.begin + span.end) / 2, 1.01
        upper.text(*at, word, transform=upper.get_xaxis_transform(), ha="center", va="bottom", weight="bold")
    upper.set_title(f"Said: {' '.join(said)}     recognised: {' '.join(recognised)}", pad=22)
    upper.set(ylabel="mel band", xticklabels=[])

    time = (np.arange(len(probabilities)) + 0.5) * seconds / max(1, len(probabilities))
    lower.plot(time, probabilities[:, 0], color=GREY, linewidth=0.8, label="blank")
    for number in sorted({names.index(word) for word in said}):
        lower.fill_between(time, probabilities[:, number], alpha=0.6, color=BLUE, linewidth=0)
    for word, span in zip(said, spans):
        inside = np.flatnonzero((time >= span.begin) & (time < span.end))
        if len(inside):
            peak = inside[probabilities[inside, names.index(word)].argmax()]
            lower.text(time[peak], probabilities[peak, names.index(word)] + 0.03, word, ha="center", va="bottom")
    lower.set(xlabel="seconds", ylabel="probability", ylim=(0, 1.2), yticks=(0, 0.5, 1))
    lower.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=3)
    save_figure(figure, path)
