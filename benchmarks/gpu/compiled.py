# SPDX-License-Identifier: Apache-2.0
"""What nvcc makes of the kernels, without a GPU: registers of a thread, spills, and lines of source.

python benchmarks/gpu/compiled.py [--arch sm_90] [--write FILE.md]    needs nvcc
"""

import argparse
import os
import re
import statistics
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent.parent


class Kernel(NamedTuple):
    registers: int
    spilled: int  # bytes that a thread stores to memory, and loads


def output_of(*command: object) -> str:
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr[-3000:])
    return done.stdout + done.stderr


def kernels_of(source: Path, arch: str) -> list[Kernel]:
    flags = ["-cubin", f"-arch={arch}", "-std=c++20", "-O3", "-Xptxas", "-v", f"-I{ROOT}/csrc"]
    said = output_of("nvcc", *flags, source, "-o", os.devnull)
    found = re.findall(r"(\d+) bytes spill stores, (\d+) bytes spill loads\s.*?Used (\d+) registers", said, re.S)
    return [Kernel(int(registers), int(stores) + int(loads)) for stores, loads, registers in found]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arch", default="sm_90")
    parser.add_argument("--write", type=Path, help="put the table into this file")
    asked = parser.parse_args()
    sources = sorted((ROOT / "csrc/cuda").glob("*.cu"))
    with ThreadPoolExecutor(int(os.environ.get("JOBS", "2"))) as pool:
        found = dict(zip(sources, pool.map(lambda source: kernels_of(source, asked.arch), sources), strict=True))
    nvcc = output_of("nvcc", "--version").strip().splitlines()[-2].split()[-1].removeprefix("V")
    lines = [
        "# What nvcc makes of the kernels",
        "",
        f"`python benchmarks/gpu/compiled.py`, nvcc {nvcc}, {asked.arch}; no GPU is needed. Registers of a thread (fewest, median, most",
        "of a source's kernels), how many kernels spill registers to memory, and the most bytes that a thread stores and loads.",
        "",
        "| source | kernels | registers | spill | at most, bytes |",
        "|---|---|---|---|---|",
    ]
    for source, kernels in found.items():
        used = sorted(kernel.registers for kernel in kernels)
        lines.append(
            f"| {source.stem} | {len(kernels)} | {used[0]}, {statistics.median_low(used)}, {used[-1]} | "
            f"{sum(kernel.spilled > 0 for kernel in kernels)} | {max(kernel.spilled for kernel in kernels)} |"
        )
    print("\n".join(lines))
    if asked.write:
        asked.write.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
