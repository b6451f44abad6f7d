# SPDX-License-Identifier: Apache-2.0
"""The look of the examples' pictures. Without matplotlib there are none."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path

import numpy as np

BLUE, ORANGE, GREY = "#2f6db5", "#d9822b", "#8a8f98"


def available() -> bool:
    return find_spec("matplotlib") is not None


def new_figure(columns: int, width: float, height: float = 4.0, rows: int = 1):
    """A figure of `width` x `height` inches and its axes."""
    import matplotlib

    matplotlib.use("Agg")  # a picture in a file needs no display
    import matplotlib.pyplot as plt

    plt.rcParams.update({"axes.spines.top": False, "axes.spines.right": False, "font.size": 10})
    return plt.subplots(rows, columns, figsize=(width, height), layout="constrained")


def save_figure(figure, path: Path) -> None:
    import matplotlib.pyplot as plt

    figure.savefig(path, dpi=120)
    plt.close(figure)


def smooth(values: Iterable[float], window: int) -> np.ndarray:
    """The mean of the last `window` values, fewer at the start."""
    total = np.concatenate([[0.0], np.cumsum(list(values))])
    end = np.arange(1, len(total))
    begin = np.maximum(0, end - window)
    return (total[end] - total[begin]) / (end - begin)


def legend_below(axes) -> None:
    """Outside, where it hides no line."""
    axes.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.15), ncols=2)


def draw_losses(axes, losses: list[float], guess: float | None = None, unit: str = "cross entropy (nats)") -> None:
    """The loss of every step, and their running mean; `guess` is the loss of a model that knows nothing."""
    axes.plot(np.arange(1, len(losses) + 1), losses, color=BLUE, alpha=0.25, linewidth=0.7, label="each step")
    axes.plot(np.arange(1, len(losses) + 1), smooth(losses, 50), color=BLUE, label="mean of the last 50 steps")
    if guess is not None:
        axes.axhline(guess, color=GREY, linestyle="--", label=f"guessing, {guess:.2f}")
    axes.set(title="Training loss", xlabel="step", ylabel=unit, xlim=(0, len(losses)))
    axes.set_ylim(0, 1.05 * max(losses))
    legend_below(axes)
