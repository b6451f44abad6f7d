# SPDX-License-Identifier: Apache-2.0
"""Checks the answers of a case, times its contestants interleaved, and prints them."""

import ctypes
import gc
import os
import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import torch

import torch_lod as tl

from .cases import OPTIONAL, Case, Run, Setup, optional, plain
from .goals import Goal, Times

#: Every case gets this many rounds, however long they take, unless fewer are asked for.
FEWEST_ROUNDS = 3
#: Seconds of a sample: long beside the clock's own time, short beside the turns of other processes on a busy machine.
SAMPLE = 2e-4
#: Samples of a turn at least: the first suffer from what the contestant before left in caches and memory.
SETTLED = 5
#: Seconds of a turn after which fewer will do.
ALONE = 0.25
#: A first call of fewer seconds may have loaded code for most of them.
LOADING = 3.0
#: A peer that takes this many times as long as ours has one turn.
HOPELESS = 10


def keep_freed_memory() -> bool:
    """Asks glibc not to give freed memory back; False where it cannot be asked."""
    trim_threshold, mmap_threshold, size = -1, -3, 2**30
    change = getattr(ctypes.CDLL(None), "mallopt", None) if os.name == "posix" else None
    return bool(change and change(trim_threshold, size) and change(mmap_threshold, size))


@dataclass(frozen=True)
class Effort:
    """rounds: how often everyone's turn comes; turn: seconds of one; limit: seconds of a case, kept by fewer rounds."""

    rounds: int
    turn: float
    limit: float


class Reached(NamedTuple):
    """A goal with what one of ours reached, and what it would reach as fast as the floor; None where that is unknown."""

    goal: Goal
    reached: float | None
    at_floor: float | None


@dataclass
class Result:
    """One contestant in one case; `seconds`, one entry per round, is empty where `problem` says why."""

    group: str
    case: str
    contestant: str
    kind: str  # "floor", "ours" or "peer"
    seconds: list[float] = field(default_factory=list)
    problem: str = ""
    note: str = ""
    goals: list["Reached"] = field(default_factory=list)

    @property
    def min(self) -> float:
        return min(self.seconds, default=float("nan"))


def error_of(answer: tuple, expected: tuple) -> float:
    """The largest difference as a part of the largest element expected; infinite where the shapes differ."""
    worst = 0.0
    if len(answer) != len(expected):
        return float("inf")
    for found, right in zip(answer, expected, strict=True):
        found, right = plain(found.detach()).cpu().double(), right.double()
        if found.shape != right.shape or not bool(found.isfinite().all()):
            return float("inf")
        worst = max(worst, float((found - right).abs().max() / right.abs().max().clamp(min=1e-30)))
    return worst


class Clock:
    """Times a call in samples of several calls; on a GPU of a turn's calls, since a sample must wait for their end."""

    def __init__(self, call: Callable[[], object], turn: float, cuda: bool):
        self.call, self.turn, self.cuda = call, turn, cuda
        #: Seconds of one call, roughly; calls in a sample.
        self.once, self.calls = 0.0, 1

    def _wait(self) -> None:
        if self.cuda:
            torch.cuda.synchronize()

    def first(self) -> object:
        """The result of the first call."""
        self._wait()
        started = time.perf_counter()
        result = self.call()
        self._wait()
        self.once = time.perf_counter() - started
        return result

    def prepare(self) -> None:
        if self.once < LOADING:
            self.once = min(self.once, self._sample())
            self.calls = max(1, int((self.turn if self.cuda else SAMPLE) / max(self.once, 1e-7)))

    def _sample(self) -> float:
        call, calls = self.call, self.calls
        self._wait()
        started = time.perf_counter()
        for _ in range(calls):
            call()
        self._wait()
        return (time.perf_counter() - started) / calls

    @property
    def turn_takes(self) -> float:
        return max(self.turn, self.once, min(self.once * SETTLED, ALONE))

    def take_turn(self) -> float:
        """The smallest sample of a turn."""
        started, best, samples = time.perf_counter(), float("inf"), 0
        while (now := time.perf_counter() - started) < self.turn or (samples < SETTLED and now < ALONE):
            best, samples = min(best, self._sample()), samples + 1
        return best


def measure(case: Case, group: str, effort: Effort, setup: Setup) -> list[Result]:
    """The floor, ours, then the peers from fast to slow. Whoever answers wrongly is not timed."""
    cuda = setup.device.type == "cuda"
    expected = case.expected()
    entries = [(Result(group, case.name, case.floor_is, "floor"), Clock(case.floor, effort.turn, cuda))]
    entries[0][1].first()
    for kind, runs in (("ours", case.ours), ("peer", case.peers)):
        for name, run in runs.items():
            result, clock = Result(group, case.name, name, kind), Clock(run.call, effort.turn, cuda)
            result.problem = _problem(run, clock, expected, case.tolerance)
            entries.append((result, clock))
    timed = [(result, clock) for result, clock in entries if not result.problem]
    _interleave(timed, effort)
    results = [result for result, _ in entries]
    peers = {result.contestant: result.min for result, _ in timed if result.kind == "peer"}
    for result, _ in timed:
        result.note = case.fact(result.contestant, result.min) if result.kind != "floor" else ""
        if result.kind == "ours" and not cuda:
            times = Times(result.min, results[0].min, peers)
            best = times._replace(ours=times.floor)
            result.goals = [Reached(goal, goal.reached(times), goal.reached(best)) for goal in case.goals]
    return sorted(results, key=lambda r: (r.kind == "peer", bool(r.problem), r.min if r.kind == "peer" else 0))


def _problem(run: Run, clock: Clock, expected: tuple, tolerance: float) -> str:
    """Calls a contestant for the first time and says what is wrong with its answer."""
    try:
        error = error_of(run.answer(clock.first()), expected)
    except Exception as failure:  # a peer may refuse in any way; that is its result
        return f"{type(failure).__name__}: {(str(failure).strip().splitlines() or [''])[0]:.80}"
    return f"wrong answer: off by {error:.1e}, allowed are {tolerance:.0e}" if error > tolerance else ""


def _interleave(timed: list[tuple[Result, Clock]], effort: Effort) -> None:
    """Round-robin over all of them, so that a disturbance meets all; garbage is collected between rounds only."""
    enabled = gc.isenabled()
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        for _, clock in timed:
            clock.prepare()
        ours = min((clock.once for result, clock in timed if result.kind == "ours"), default=float("inf"))
        runners = []
        for result, clock in timed:
            if result.kind == "peer" and clock.once > HOPELESS * ours:
                result.seconds.append(clock.once if clock.once > ALONE else clock.take_turn())
            else:
                runners.append((result, clock))
        gc.collect()
        rounds = int(effort.limit / sum(clock.turn_takes for _, clock in runners))
        for _ in range(min(effort.rounds, max(FEWEST_ROUNDS, rounds))):
            for result, clock in runners:
                result.seconds.append(clock.take_turn())
            gc.collect()
    finally:
        gc.unfreeze()
        if enabled:
            gc.enable()


# ---- what is printed

COLUMNS = {"case": 40, "contestant": 46, "min": 9, "- floor": 9, "/ floor": 7, "peer / ours": 11, "notes": 0}


def header(setup: Setup, effort: Effort) -> dict[str, str]:
    """What the numbers depend on."""
    level = os.environ.get("TORCH_LOD_CPU_CAPABILITY")
    libraries = {name: optional(name) for name in OPTIONAL}
    found = [
        f"{name} {getattr(m, '__version__', '')}".strip() for name, m in libraries.items() if not isinstance(m, str)
    ]
    about = {
        "processor": f"{_processor()}, {os.cpu_count()} cores, {setup.threads} threads used",
        "device": torch.cuda.get_device_name(setup.device) if setup.device.type == "cuda" else "cpu",
        "torch": f"{torch.__version__}, {torch.backends.cpu.get_cpu_capability()}, Python {platform.python_version()}",
        "torch_lod": f"{tl.__version__}, operators {'compiled' if tl.ops.COMPILED else 'composed of torch operators'}, "
        f"TORCH_LOD_CPU_CAPABILITY {'not set: the best of this processor' if level is None else level}",
        "method": f"minima of {min(FEWEST_ROUNDS, effort.rounds)} to {effort.rounds} interleaved rounds",
        "peers": ", ".join(["torch", *found]),
        "peers left out": ", ".join(f"{n} ({why})" for n, why in libraries.items() if isinstance(why, str)) or "none",
    }
    if "GLIBC_TUNABLES" in os.environ:
        about["C library"] = os.environ["GLIBC_TUNABLES"]
    if hasattr(os, "getloadavg"):
        about["load average at the start"] = f"{os.getloadavg()[0]:.1f}"
    return about


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def head_rows(group: str) -> list[str]:
    titles = [title.ljust(width) for title, width in COLUMNS.items()]
    rules = ["-" * max(3, width) for width in COLUMNS.values()]
    return [f"\n### {group}\n", f"| {' | '.join(titles)} |", f"|{'|'.join(f'-{rule}-' for rule in rules)}|"]


def table_rows(results: list[Result]) -> list[str]:
    """One row per contestant of a case."""
    floor, lines = results[0].min, []
    for i, r in enumerate(results):
        cells = [r.case if i == 0 else "", f"floor: {r.contestant}" if r.kind == "floor" else r.contestant]
        if r.kind == "ours":
            cells[1] = f"**{r.contestant}**"
        if r.problem:
            cells += ["", "", "", "", r.problem]
        else:
            ratio = peer_ratio(r, results)
            notes = [r.note] * bool(r.note) + [f"{goal}: {goal.shown(reached)}" for goal, reached, _ in r.goals]
            cells += [_time(r.min), "", "", "", "; ".join(notes)]
            if r.kind != "floor":
                cells[3:5] = _time(r.min - floor), f"{r.min / floor:.2f}"
            if ratio is not None:
                cells[5] = f"{ratio:.2f}"
        padded = [cell.ljust(width) for cell, width in zip(cells, COLUMNS.values(), strict=True)]
        lines.append(f"| {' | '.join(padded)} |")
    return lines


def peer_ratio(r: Result, results: list[Result]) -> float | None:
    """On a row of ours the best peer's time over it; on a peer's row its time over the first of ours."""
    peers = [p.min for p in results if p.kind == "peer" and p.seconds]
    ours = [o.min for o in results if o.kind == "ours" and o.seconds]
    if r.kind == "ours" and peers:
        return min(peers) / r.min
    return r.min / ours[0] if r.kind == "peer" and ours else None


def _time(seconds: float) -> str:
    sign, size = ("-", -seconds) if seconds < 0 else ("", seconds)
    for unit, scale in (("us", 1e6), ("ms", 1e3), ("s", 1.0)):
        if size * scale < 1000 or unit == "s":
            number = size * scale
            return f"{sign}{number:.{2 if number < 10 else 1 if number < 100 else 0}f} {unit}"
    raise AssertionError


def as_json(results: list[Result]) -> list[dict]:
    """The results of a case with their ratios."""
    floor = results[0].min
    rows = []
    for r in results:
        row = {name: value for name, value in vars(r).items() if name != "goals"}
        if r.seconds:
            row |= {"min": r.min, "median": statistics.median(r.seconds), "per_floor": r.min / floor}
            row["peer_per_ours"] = peer_ratio(r, results)
        rows.append(row)
    return rows


# ---- goals


def goals_as_json(results: list[Result]) -> list[dict]:
    """A row per goal and contestant of ours."""
    rows = []
    for r in results:
        for goal, reached, at_floor in r.goals:
            verdict = "unknown" if reached is None else "met" if goal.meets(reached) else "missed"
            if verdict == "missed" and at_floor is not None and not goal.meets(at_floor):
                verdict = "beyond the floor"
            row = {"group": r.group, "case": r.case, "contestant": r.contestant, "goal": str(goal), "limit": goal.limit}
            row |= {"reached": reached, "shown": goal.shown(reached), "verdict": verdict}
            rows.append(row | {"at_floor": at_floor, "shown_at_floor": goal.shown(at_floor)})
    return rows


def goal_rows(goals: list[dict]) -> list[str]:
    """One line per case and goal, with what each of ours reached, and how many goals were met."""
    together: dict[tuple, list[dict]] = {}
    for row in goals:
        together.setdefault((row["group"], row["case"], row["goal"]), []).append(row)
    cells = [("case", "goal", "at the floor", "reached", "", "by")]
    for (_, case, goal), rows in together.items():
        reached, by = (" / ".join(row[key] for row in rows) for key in ("shown", "contestant"))
        cells.append((case, goal, rows[0]["shown_at_floor"], reached, " / ".join(row["verdict"] for row in rows), by))
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = [f"| {' | '.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))} |" for row in cells]
    lines.insert(1, f"|{'|'.join('-' * (width + 2) for width in widths)}|")
    verdicts = [row["verdict"] for row in goals]
    count = ", ".join(f"{verdicts.count(v)} {v}" for v in ("met", "missed", "beyond the floor", "unknown"))
    return ["\n### goals\n", *lines, f"\n{len(goals)} goals: {count}"]


def put_into(page: Path, lines: list[str]) -> None:
    """Replaces what stands between the marks of a page."""
    before, _, rest = page.read_text().partition("<!-- measured -->\n")
    after = rest.partition("<!-- end -->")[2]
    page.write_text("\n".join([f"{before}<!-- measured -->", *lines, f"<!-- end -->{after}"]))
