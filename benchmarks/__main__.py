# SPDX-License-Identifier: Apache-2.0
"""The command line: python -m benchmarks --help."""

import argparse
import json
import logging
import sys
import time
from pathlib import Path

import torch

from . import measure
from .cases import Setup
from .groups import GROUPS


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Checks every contestant's answer, times ours, the peers and the floor interleaved, prints ratios.",
    )
    add = parser.add_argument
    add("--only", metavar="GROUP[,GROUP]", default=",".join(GROUPS), help=f"among {', '.join(GROUPS)}; default: all")
    add("--threads", type=int, default=1, metavar="N", help="default: %(default)s")
    add("--device", default="cpu", type=torch.device, help="cpu or cuda, default: %(default)s")
    add("--rounds", type=int, metavar="R", help="at most; default: 9, with --quick 5")
    add("--quick", action="store_true", help="fewer cases, shorter turns: under a minute, for a look")
    add("--keep-memory", action="store_true", help="ask glibc to keep what is freed: no result is made of new pages")
    add("--json", type=Path, metavar="FILE", help="also write every round of every contestant")
    asked = parser.parse_args(arguments)
    asked.only = asked.only.split(",")
    for group in asked.only:
        if group not in GROUPS:
            parser.error(f"there is no group {group!r}: choose among {', '.join(GROUPS)}")
    if asked.threads < 1 or (asked.rounds is not None and asked.rounds < 1):
        parser.error("--threads and --rounds are at least 1")
    if asked.device.type not in ("cpu", "cuda"):
        parser.error(f"--device is cpu or cuda, not {asked.device}")
    if asked.device.type == "cuda" and not torch.cuda.is_available():
        parser.error("torch finds no CUDA device here")
    return asked


def main(arguments: list[str] | None = None) -> int:
    """0, or 1 where one of our own answers was wrong."""
    asked = parse(arguments)
    started = time.perf_counter()
    logging.getLogger("torch.fx").setLevel(logging.ERROR)  # nested tensors make it warn
    torch.set_num_threads(asked.threads)
    torch.backends.cudnn.allow_tf32 = False  # float32 is to be float32 for everyone
    setup = Setup(asked.device, asked.threads, asked.quick)
    rounds, turn, limit = (5, 0.003, 0.5) if asked.quick else (9, 0.01, 1.5)
    effort = measure.Effort(asked.rounds or rounds, turn, limit)
    kept = asked.keep_memory and measure.keep_freed_memory()
    about = measure.header(setup, effort) | {
        "freed memory": "kept by the process" if kept else "the C library's affair"
    }
    for what, value in about.items():
        print(f"- {what}: {value}")
    results, goals, failed = [], [], []
    for group in asked.only:
        print(*measure.head_rows(group), sep="\n", flush=True)
        for case in GROUPS[group](setup):
            try:
                found = measure.measure(case, group, effort, setup)
            finally:
                case.close()
            print(*measure.table_rows(found), sep="\n", flush=True)
            results += measure.as_json(found)
            goals += measure.goals_as_json(found)
            failed += [r for r in found if r.kind == "ours" and r.problem]
    if goals:
        print(*measure.goal_rows(goals), sep="\n")
    print(f"\n{len(results)} results in {time.perf_counter() - started:.0f} s")
    for r in failed:
        print(f"FAILED: {r.group}, {r.case}, {r.contestant}: {r.problem}")
    if asked.json:
        asked.json.write_text(json.dumps({"about": about, "results": results, "goals": goals}, indent=1) + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
