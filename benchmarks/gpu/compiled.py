# SPDX-License-Identifier: Apache-2.0
"""What nvcc makes of the kernels, without a GPU: registers of a thread, and spills.

python benchmarks/gpu/compiled.py [--arch sm_90 ...] [--write FILE.md]    needs nvcc; fails where tiles have too few blocks
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
    name: str
    registers: int
    spilled: int  # bytes that a thread stores to memory, and loads
    shared: int  # bytes of a block

    def fits(self) -> bool:
        if "Lb1EEEv" in self.name:  # run_tiles<F, true>, of wide rows
            return self.registers <= 80 and self.shared <= 16384
        two_blocks = re.search("Recurrence|CumExtremeBackward|ProdBackward", self.name)  # more than 8 bytes of a row
        return self.registers <= (128 if two_blocks else 80)


def output_of(*command: object) -> str:
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr[-3000:])
    return done.stdout + done.stderr


def kernels_of(source: Path, arch: str) -> list[Kernel]:
    flags = ["-cubin", f"-arch={arch}", "-std=c++20", "-O3", "-Xptxas", "-v", f"-I{ROOT}/csrc"]
    said = output_of("nvcc", *flags, source, "-o", os.devnull)
    spills = r"(\d+) bytes spill stores, (\d+) bytes spill loads"
    used = r"Used (\d+) registers(?:, used \d+ barriers)?(?:, \d+ bytes cumulative stack size)?(?:, (\d+) bytes smem)?"
    found = re.findall(rf"entry function '(\w+)'.*?{spills}\s.*?{used}", said, re.S)
    return [Kernel(name, int(regs), int(a) + int(b), int(smem or 0)) for name, a, b, regs, smem in found]


def row(name: str, compiled: list[list[Kernel]]) -> str:
    cells = [name, str(len(compiled[0]))]
    for kernels in compiled:
        used = sorted(kernel.registers for kernel in kernels)
        spilled = [kernel.spilled for kernel in kernels if kernel.spilled]
        cells.append(f"{statistics.median_low(used)}, {used[-1]}; {len(spilled)}: {max(spilled, default=0)}")
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arch", nargs="+", default="sm_75 sm_80 sm_86 sm_90 sm_100 sm_120".split())
    parser.add_argument("--write", type=Path, help="put the table into this file")
    asked = parser.parse_args()
    sources = sorted((ROOT / "csrc/cuda").glob("*.cu"))
    jobs = [(source, arch) for source in sources for arch in asked.arch]
    with ThreadPoolExecutor(int(os.environ.get("JOBS", "2"))) as pool:
        found = dict(zip(jobs, pool.map(lambda job: kernels_of(*job), jobs), strict=True))
    nvcc = output_of("nvcc", "--version").strip().splitlines()[-2].split()[-1].removeprefix("V")
    lines = [
        "# What nvcc makes of the kernels\n",
        f"`python benchmarks/gpu/compiled.py`, nvcc {nvcc}; no GPU is needed. Registers of a thread (median and most of a",
        "source's kernels); how many kernels spill some to memory: the most bytes that a thread stores and loads.",
        "",
        f"| source | kernels | {' | '.join(asked.arch)} |",
        f"|---|---|{'---|' * len(asked.arch)}",
    ]
    tiles = {job: [kernel for kernel in kernels if "run_tiles" in kernel.name] for job, kernels in found.items()}
    for source in sources:
        lines.append(row(source.stem, [found[source, arch] for arch in asked.arch]))
        if tiles[source, asked.arch[0]]:
            lines.append(row(f"{source.stem}, tiles", [tiles[source, arch] for arch in asked.arch]))
    print("\n".join(lines))
    if asked.write:
        asked.write.write_text("\n".join(lines) + "\n")
    if unfit := [(arch, kernel) for (_, arch), some in tiles.items() for kernel in some if not kernel.fits()]:
        raise SystemExit(unfit)


if __name__ == "__main__":
    main()
