# SPDX-License-Identifier: Apache-2.0
"""The numbers of benchmarks/results/lengths_or_offsets.md: what one asks of a structure, answered from offsets and from lengths.

python -m benchmarks.lengths_or_offsets            prints the table
python -m benchmarks.lengths_or_offsets --write    and puts it into the page
"""

import argparse
import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

import torch_lod as tl

from . import measure
from .cases import Ragged, Setup

PAGE = Path(__file__).parent.parent / "benchmarks/results/lengths_or_offsets.md"
ROUNDS, TURN = 25, 0.01
#: Few sequences of 50 rows, many of 4.
BATCHES = {"256 x 50": ("U", 256), "100,000 x 4": ("T", 100_000)}


class Question(NamedTuple):
    """What is asked of one structure; both answers must be equal."""

    name: str
    offsets: Callable[[], object]
    lengths: Callable[[], object]


def questions(kind: str, count: int) -> list[Question]:
    ragged = Ragged(kind, count, torch.device("cpu"))
    n = ragged.lengths.astype(np.int64)
    o = np.concatenate([[0], n.cumsum()])
    rows, i, a, b = ragged.rows, count // 2, count // 4, count // 4 + count // 10
    some = np.random.default_rng(1).integers(0, count, 100)
    outer = np.full(count // 8, 8)  # groups of eight sequences
    o0, n0, j = np.concatenate([[0], outer.cumsum()]), outer, count // 16
    own = int(outer.sum())
    o1, n1 = o[: own + 1], n[:own]
    offsets, lengths = torch.from_numpy(o), torch.from_numpy(n)
    narrow, wide = ragged.randn(1), ragged.randn(64 if count < 1000 else 16)

    def from_lengths() -> torch.Tensor:
        made = lengths.new_zeros(count + 1)
        torch.cumsum(lengths, 0, out=made[1:])
        return made

    def first_row(k: int) -> int:
        return int(n[:k].sum())

    return [
        Question("first and last row of sequence i", lambda: (o[i], o[i + 1]), lambda: ((s := first_row(i)), s + n[i])),
        Question(
            "the same of 100 sequences, at random",
            lambda: (o[some], o[some + 1]),
            lambda: ((e := n.cumsum())[some] - n[some], e[some]),
        ),
        Question(
            "the same of group j, two levels up",
            lambda: (o1[o0[j]], o1[o0[j + 1]]),
            lambda: (int(n1[: (s := int(n0[:j].sum()))].sum()), int(n1[: s + n0[j]].sum())),
        ),
        Question(
            "the sequence that row r is in",
            lambda: np.searchsorted(o, rows // 2, "right") - 1,
            lambda: np.searchsorted(n.cumsum(), rows // 2, "right"),
        ),
        Question(
            "is it valid, for these rows", lambda: _valid(o, rows), lambda: bool((n >= 0).all()) and n.sum() == rows
        ),
        Question(
            "a tenth of the batch: its rows", lambda: (o[a], o[b]), lambda: ((s := first_row(a)), s + n[a:b].sum())
        ),
        Question("a tenth of the batch: its structure", lambda: o[a : b + 1] - o[a], lambda: n[a:b]),
        Question(
            "two batches joined",
            lambda: np.concatenate([o, o[1:] + o[-1]]),
            lambda: np.concatenate([n, n]),
        ),
        Question("all lengths", lambda: np.diff(o), lambda: n),
        Question("the longest", lambda: np.diff(o).max(), lambda: n.max()),
        Question(
            "the order of a recurrence, longest first",
            lambda: np.argsort(-np.diff(o), kind="stable"),
            lambda: np.argsort(-n, kind="stable"),
        ),
        *(
            Question(
                f"sums, rows of {v.shape[1]}, tl.ops.segment_reduce",
                lambda v=v: tl.ops.segment_reduce(v, offsets, "sum"),
                lambda v=v: tl.ops.segment_reduce(v, from_lengths(), "sum"),
            )
            for v in (narrow, wide)
        ),
        *(
            Question(
                f"sums, rows of {v.shape[1]}, torch.segment_reduce",
                lambda v=v: torch.segment_reduce(v, "sum", offsets=offsets, unsafe=True),
                lambda v=v: torch.segment_reduce(v, "sum", lengths=lengths, unsafe=True),
            )
            for v in (narrow, wide)
        ),
    ]


def _valid(o: np.ndarray, rows: int) -> bool:
    return bool(o[0] == 0 and o[-1] == rows and (o[1:] >= o[:-1]).all())


#: Where the answers are structures, they come in the form that was asked.
IN_THEIR_OWN_FORM = ("a tenth of the batch: its structure", "two batches joined")


def same(question: Question) -> bool:
    one, other = question.offsets(), question.lengths()
    if question.name in IN_THEIR_OWN_FORM:
        one = np.diff(one)
    return all(np.array_equal(x, y) for x, y in zip(np.atleast_1d(one), np.atleast_1d(other), strict=True))


def measured(question: Question) -> tuple[float, float]:
    """Seconds of a call from offsets and from lengths: minima of turns that alternate."""
    clocks = [measure.Clock(call, TURN, cuda=False) for call in (question.offsets, question.lengths)]
    for clock in clocks:
        clock.first()
        clock.prepare()
    turns = [[clock.take_turn() for clock in clocks] for _ in range(ROUNDS)]
    return min(t[0] for t in turns), min(t[1] for t in turns)


def table() -> list[str]:
    results: dict[str, list[str]] = {}
    for kind, count in BATCHES.values():
        for question in questions(kind, count):
            assert same(question), question.name
            one, other = measured(question)
            row = results.setdefault(re.sub(r"rows of (16|64)", "wide rows", question.name), [])
            row += [measure._time(one), measure._time(other), f"{other / one:.2f}"]
    head = [f"{batch}: {what}" for batch in BATCHES for what in ("offsets", "lengths", "lengths / offsets")]
    lines = [f"| | {' | '.join(head)} |", f"|---|{'---|' * len(head)}"]
    return lines + [f"| {name} | {' | '.join(row)} |" for name, row in results.items()]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.lengths_or_offsets", description=__doc__.split("\n")[0])
    parser.add_argument("--write", action="store_true", help=f"put the table into {PAGE.name}")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    about = measure.header(Setup(torch.device("cpu"), 1, False), measure.Effort(ROUNDS, TURN, 0))
    kept = ("processor", "torch", "torch_lod")
    lines = [*(f"- {what}: {about[what]}" for what in kept), f"- minima of {ROUNDS} alternating turns", "", *table()]
    print("\n".join(lines))
    if asked.write:
        measure.put_into(PAGE, lines)


if __name__ == "__main__":
    main()
