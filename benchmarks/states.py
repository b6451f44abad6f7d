# SPDX-License-Identifier: Apache-2.0
"""The numbers of benchmarks/results/states.md: recurrences with a matrix as state, beside transformers' own torch functions.

python -m benchmarks.states            prints the tables
python -m benchmarks.states --write    and puts them into the page

32 sequences of 1 to 512 rows, 4 heads, one thread; sequence by sequence, and as one padded batch, whose results at the padding
are not looked at. Every result and gradient is compared before anything is timed. Needs transformers, without its optional
kernels.
"""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

import torch_lod as tl

from . import measure
from .cases import Setup

PAGE = Path(__file__).parent.parent / "benchmarks/results/states.md"
ROUNDS, TURN = 7, 0.05
SEQUENCES, LONGEST, HEADS, CHUNK = 32, 512, 4, 64
#: Of the loop over sequences, forwards and in a training step, by the width of heads; of the padded batch.
GOALS, PADDED = {64: (5, 4), 128: (2.5, 2.5)}, 5
TOLERANCE = 1e-3
Rows = dict[str, Tensor]


class Rule(NamedTuple):
    inputs: Callable[[int, int], Rows]
    ours: Callable[[Rows, tl.LoD], Tensor]
    theirs: Callable[[Rows], Tensor]  # of (sequences, rows, ...)


def _delta_inputs(rows: int, width: int) -> Rows:
    q, k, v = torch.randn(3, rows, HEADS, width)
    g, beta = -torch.rand(rows, HEADS), torch.rand(rows, HEADS)
    return {"q": q, "k": torch.nn.functional.normalize(k, dim=-1), "v": v, "g": g, "beta": beta}


def _delta(given: Rows, lod: tl.LoD) -> Tensor:
    return tl.gated_delta_rule(*(tl.LoDTensor(t, lod) for t in given.values())).values()


def _their_delta(given: Rows) -> Tensor:
    from transformers.models.qwen3_next.modeling_qwen3_next import torch_chunk_gated_delta_rule

    return torch_chunk_gated_delta_rule(*given.values(), chunk_size=CHUNK)[0]


_A = -torch.linspace(0.5, 4, HEADS)


def _dual_inputs(rows: int, width: int) -> Rows:
    x, B, C = torch.randn(3, rows, HEADS, width)
    return {"x": x, "dt": torch.rand(rows, HEADS), "B": B, "C": C}


def _dual(given: Rows, lod: tl.LoD) -> Tensor:
    x, dt, B, C = (tl.LoDTensor(t, lod) for t in given.values())
    return tl.ssd(x, dt, _A, B, C).values()


def _their_dual(given: Rows) -> Tensor:
    from transformers.models.mamba2.modeling_mamba2 import mamba2_chunk_scan

    x, dt, B, C = given.values()
    return mamba2_chunk_scan(x, dt, _A, B, C, chunk_size=CHUNK)


RULES = {"gated delta rule": Rule(_delta_inputs, _delta, _their_delta), "SSD": Rule(_dual_inputs, _dual, _their_dual)}


def contestants(rule: Rule, lengths: list[int]) -> dict[str, Callable[[Rows], Tensor]]:
    """Of packed rows, to packed rows."""
    lod = tl.LoD.from_lengths([lengths])
    places = lod.segment_ids(0) * max(lengths) + lod.position_ids(0)

    def loop(given: Rows) -> Tensor:
        parts = zip(*(t.split(lengths) for t in given.values()))
        return torch.cat([rule.theirs(dict(zip(given, (t[None] for t in part))))[0] for part in parts])

    def padded(given: Rows) -> Tensor:
        dense = {name: pad_sequence(t.split(lengths), batch_first=True) for name, t in given.items()}
        return rule.theirs(dense).flatten(0, 1)[places]

    return {"torch_lod": lambda given: rule.ours(given, lod), "by sequence": loop, "padded": padded}


def _call(function: Callable[[Rows], Tensor], given: Rows, grad: Tensor | None) -> Callable[[], tuple[Tensor, ...]]:
    if grad is None:

        def forward():
            with torch.no_grad():
                return (function(given),)

        return forward
    leaves = {name: t.detach().requires_grad_() for name, t in given.items()}

    def step():
        out = function(leaves)
        return (out.detach(), *torch.autograd.grad(out, list(leaves.values()), grad))

    return step


def times(rule: Rule, width: int, training: bool) -> dict[str, float]:
    """The smallest of every contestant, in turns; an error where one is wrong."""
    torch.manual_seed(0)
    lengths = torch.randint(1, LONGEST + 1, (SEQUENCES,)).tolist()
    given = rule.inputs(sum(lengths), width)
    grad = torch.randn(sum(lengths), HEADS, width) if training else None
    calls = {name: _call(f, given, grad) for name, f in contestants(rule, lengths).items()}
    clocks = {name: measure.Clock(call, TURN, cuda=False) for name, call in calls.items()}
    results: dict[str, object] = {name: clock.first() for name, clock in clocks.items()}
    for name, result in results.items():
        for a, b in zip(result, results["by sequence"]):  # type: ignore[call-overload]
            error = float((a - b).abs().max() / b.abs().max())
            if not error <= TOLERANCE:
                raise SystemExit(f"{name} differs from the loop by {error:.1e} of the largest number")
    for clock in clocks.values():
        clock.prepare()
    best = dict.fromkeys(clocks, float("inf"))
    for _ in range(ROUNDS):
        for name, clock in clocks.items():
            best[name] = min(best[name], clock.take_turn())
    return best


def peers_table() -> list[str]:
    lines = ["| | torch_lod | by sequence | | padded | | goals |", "|---|---|---|---|---|---|---|"]
    for name, rule in RULES.items():
        for width, goals in GOALS.items():
            for training in (False, True):
                best = times(rule, width, training)
                ours, loop, padded = best.values()
                goal = goals[training]
                met = loop / ours >= goal and padded / ours >= PADDED
                told = f"{goal}x and {PADDED}x: {'met' if met else 'missed'}"
                what = f"{name}, heads of {width}, {'training step' if training else 'forward'}"
                cells = [measure._time(ours), measure._time(loop), f"{loop / ours:.1f}x", measure._time(padded)]
                lines.append(f"| {what} | {' | '.join(cells)} | {padded / ours:.1f}x | {told} |")
    return lines


def growth_table() -> list[str]:
    """One sequence, one head of 32: linear in rows."""
    lines = ["| rows of one sequence | forward | training step | a row, training |", "|---|---|---|---|"]
    rule = RULES["gated delta rule"]
    for rows in (10_000, 100_000, 1_000_000):
        lod, spent = tl.LoD.from_lengths([[rows]]), []
        q, k, v = torch.randn(3, rows, 1, 32)
        unit = torch.nn.functional.normalize(k, dim=-1)
        given = {"q": q, "k": unit, "v": v, "g": -torch.rand(rows, 1), "beta": torch.rand(rows, 1)}
        for grad in (None, torch.randn(rows, 1, 32)):
            clock = measure.Clock(_call(lambda of, lod=lod: rule.ours(of, lod), given, grad), TURN, cuda=False)  # type: ignore[misc]
            clock.first()
            clock.prepare()
            spent.append(min(clock.take_turn() for _ in range(3)))
        shown = " | ".join(map(measure._time, spent))
        lines.append(f"| {rows:,} | {shown} | {spent[1] / rows * 1e6:.2f} us |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.states", description=__doc__.split("\n")[0])
    parser.add_argument("--write", action="store_true", help=f"put the tables into {PAGE.name}")
    asked = parser.parse_args()
    try:
        import transformers
    except ImportError:
        raise SystemExit("python -m benchmarks.states compares with transformers: pip install transformers") from None
    torch.set_num_threads(1)
    about = measure.header(Setup(torch.device("cpu"), 1, False), measure.Effort(ROUNDS, TURN, 0))
    lines = [*(f"- {what}: {about[what]}" for what in ("processor", "torch", "torch_lod"))]
    lines += [f"- transformers: {transformers.__version__}", "", *peers_table(), "", *growth_table()]
    print("\n".join(lines))
    if asked.write:
        measure.put_into(PAGE, lines)


if __name__ == "__main__":
    main()
