# SPDX-License-Identifier: Apache-2.0
"""The numbers of benchmarks/results/recurrence.md: memory of a training step as sequences grow unequal, and what a second thread gives.

python -m benchmarks.recurrence            prints the tables
python -m benchmarks.recurrence --write    and puts them into the page
"""

import argparse
import multiprocessing
from contextlib import suppress
from pathlib import Path

import torch
from torch import nn
from torch.nn.utils.rnn import pack_sequence, pad_sequence

import torch_lod as tl

from . import measure
from .cases import Ragged, Setup

PAGE = Path(__file__).parent.parent / "benchmarks/results/recurrence.md"
ROUNDS, TURN = 15, 0.05
ROWS, SEQUENCES, HIDDEN = 16_000, 64, 128
#: Of so many rows the longest sequence takes this many, the others share the rest.
LONGEST = (250, 1000, 2000, 4000)


def _lengths(longest: int) -> list[int]:
    rest, others = ROWS - longest, SEQUENCES - 1
    return [longest, *((rest * (i + 1)) // others - (rest * i) // others for i in range(others))]


def _step(form: str, lengths: list[int]) -> None:
    x = torch.randn(sum(lengths), HIDDEN)
    if form == "tl.nn.LSTM":
        y = tl.nn.LSTM(HIDDEN, HIDDEN)(tl.from_lengths(x, [lengths]))[0].values()
    elif form == "PackedSequence":
        y = nn.LSTM(HIDDEN, HIDDEN)(pack_sequence(x.split(lengths), enforce_sorted=False))[0].data
    else:
        y = nn.LSTM(HIDDEN, HIDDEN)(pad_sequence(x.split(lengths)))[0]
    y.sum().backward()


def _memory_now_and_peak() -> tuple[float, ...]:
    entries = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return tuple(int(entries[key].split()[0]) / 1024 for key in ("VmRSS", "VmHWM"))


def _measure_memory(pipe, form: str, lengths: list[int]) -> None:
    torch.set_num_threads(1)
    _step(form, [2, 1])  # loads code
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # the peak starts again from here
    before = _memory_now_and_peak()[0]
    _step(form, lengths)
    pipe.send(_memory_now_and_peak()[1] - before)


def extra_memory(form: str, lengths: list[int]) -> float:
    """MB that a training step takes at its peak, in a process of its own."""
    context = multiprocessing.get_context("spawn")
    near, far = context.Pipe()
    process = context.Process(target=_measure_memory, args=(far, form, lengths))
    process.start()
    megabytes = near.recv()
    process.join()
    return megabytes


def memory_table() -> list[str]:
    forms = ("tl.nn.LSTM", "PackedSequence", "padded")
    lines = [f"| longest sequence | rows | padded cells | {' | '.join(forms)} |", f"|---|---|---|{'---|' * len(forms)}"]
    for longest in LONGEST:
        megabytes = [f"{extra_memory(form, _lengths(longest)):,.0f} MB" for form in forms]
        lines.append(f"| {longest:,} | {ROWS:,} | {longest * SEQUENCES:,} | {' | '.join(megabytes)} |")
    return lines


def threads_table() -> list[str]:
    """The same step with one thread and with two, in turns."""
    lines = ["| training step | one thread | two threads | |", "|---|---|---|---|"]
    cases = [("LSTM", "U", 32, 256), ("LSTM", "U", 256, 128), ("LSTM", "X", 32, 256), ("GRU", "U", 32, 256)]
    for cell, kind, count, hidden in cases:
        ragged = Ragged(kind, count, torch.device("cpu"))
        best = _best_times(cell, ragged, hidden)
        times = " | ".join(measure._time(t) for t in best.values())
        named = f"{cell}, {ragged.rows:,} rows of {count}, the longest {ragged.longest}, H={hidden}"
        lines.append(f"| {named} | {times} | {best[1] / best[2]:.2f}x |")
    return lines


def _best_times(cell: str, ragged: Ragged, hidden: int) -> dict[int, float]:
    module, leaf = getattr(tl.nn, cell)(hidden, hidden), ragged.randn(hidden).requires_grad_()
    x, grad = tl.LoDTensor(leaf, ragged.lod), ragged.randn(hidden, seed=1)
    inputs = [leaf, *module.parameters()]
    clock = measure.Clock(lambda: torch.autograd.grad(module(x)[0].values(), inputs, grad), TURN, cuda=False)
    clock.first()
    clock.prepare()
    best = {1: float("inf"), 2: float("inf")}
    for _ in range(ROUNDS):
        for threads in best:
            torch.set_num_threads(threads)
            best[threads] = min(best[threads], clock.take_turn())
    torch.set_num_threads(1)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.recurrence", description=__doc__.split("\n")[0])
    parser.add_argument("--write", action="store_true", help=f"put the tables into {PAGE.name}")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    about = measure.header(Setup(torch.device("cpu"), 1, False), measure.Effort(ROUNDS, TURN, 0))
    lines = [*(f"- {what}: {about[what]}" for what in ("processor", "torch", "torch_lod")), ""]
    lines += [*memory_table(), "", *threads_table()]
    print("\n".join(lines))
    if asked.write:
        measure.put_into(PAGE, lines)


if __name__ == "__main__":
    main()
