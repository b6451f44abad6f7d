# SPDX-License-Identifier: Apache-2.0
"""What nvcc makes of the kernels, without a GPU: registers and spills for some architectures, and the instructions that a
thread runs for one element, beside what the memory of an H200 leaves time for.

python benchmarks/gpu/compiled.py [--write FILE.md]    needs nvcc; with NVDISASM=<nvdisasm of the toolkit> the instructions
"""

import argparse
import os
import re
import shutil
import subprocess
import tempfile
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent.parent
ARCHITECTURES = ("sm_80", "sm_90", "sm_100")
NVDISASM = os.environ.get("NVDISASM") or shutil.which("nvdisasm")
#: An H200 as its data sheet has it: bytes of HBM3e a second, of which a copy reaches 0.87, and instructions a second of
#: single threads, 132 multiprocessors of 4 schedulers of 32 lanes at 1.98 GHz.
COPY = 0.87 * 4.8e12
INSTRUCTIONS = 132 * 128 * 1.98e9
#: Seconds from a read of memory to its value on a busy machine, by others' measurements.
LATENCY = 6e-7


class Kernel(NamedTuple):
    """A kernel of float32 that is bound by memory: bytes that one access of its loop stands for, how many bytes one instruction accesses,
    and what its name has."""

    name: str
    bytes: float
    pattern: str
    word: int = 4


F = r"<float>"
#: Rows of 64 numbers; indices and offsets are shared by a row and left out.
KERNELS = (
    Kernel("gather_rows, words of 16", 32, r"GatherKernel<lod::Wide>", 16),
    Kernel("gather_rows, words of 4", 8, r"GatherKernel<unsigned int>"),
    Kernel("gather of runs, words of 16", 32, r"GatherRunsKernel<lod::Wide>", 16),
    Kernel("gather of runs, words of 4", 8, r"GatherRunsKernel<unsigned int>"),
    Kernel("scatter of runs, words of 16", 32, r"ScatterRunsKernel<lod::Wide>", 16),
    Kernel("scatter of runs, words of 4", 8, r"ScatterRunsKernel<unsigned int>"),
    Kernel("scatter_rows (sum of lists)", 4, r"SumListsKernel" + F),
    Kernel("unfold, words of 16", 16, r"UnfoldKernel<lod::Wide>", 16),
    Kernel("fold", 8, r"FoldKernel" + F),
    Kernel("sum", 4, r"ReduceKernel.*float.*Sum"),
    Kernel("max", 4, r"ReduceKernel.*float.*(Max|Extreme)"),
    Kernel("broadcast, words of 16", 16, r"BroadcastKernel.*float, 4>", 16),
    Kernel("broadcast, words of 4", 4, r"BroadcastKernel.*float, 1>"),
    Kernel("place, words of 16", 16, r"PlaceKernel.*float, 4>", 16),
    Kernel("place, words of 4", 4, r"PlaceKernel.*float, 1>"),
    Kernel("softmax", 8, r"SoftmaxKernel.*float"),
    Kernel("softmax, backward", 12, r"SoftmaxBackward\w*.*float"),
    Kernel("normalize", 8, r"NormalizeKernel.*float"),
    Kernel("scan (cumsum)", 8, r"ScanKernel.*float"),
    Kernel("cumulative max", 16, r"CumulativeKernel.*float"),
    Kernel("LSTM cell", 44, r"Lstm\w*Kernel.*float"),
)


class Compiled(NamedTuple):
    registers: int
    spilled: int
    stack: int


def run(*command) -> str:
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr[-3000:])
    return done.stdout + done.stderr


def compiled(source: Path, arch: str, folder: Path) -> tuple[dict[str, Compiled], dict[str, list[str]]]:
    """By the name of a kernel: what it needs, and its instructions."""
    cubin = folder / f"{source.stem}.{arch}.cubin"
    include = [f"-I{ROOT}/csrc"]
    flags = ["-cubin", f"-arch={arch}", "-std=c++20", "-O3", "-Xptxas", "-v"]
    said = run("nvcc", *flags, *include, source, "-o", cubin)
    found, name, stack, spilled = {}, "", 0, 0
    for line in said.splitlines():
        if at := re.search(r"Compiling entry function '(\w+)'", line):
            name, stack, spilled = at[1], 0, 0
        elif name and (at := re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes", line)):
            stack, spilled = int(at[1]), int(at[2]) + int(at[3])
        elif name and (at := re.search(r"Used (\d+) registers", line)):
            found[name] = Compiled(int(at[1]), spilled, stack)
            name = ""
    code: dict[str, list[str]] = defaultdict(list)
    if NVDISASM:
        here: list[str] = []
        for line in run(NVDISASM, "-c", cubin).splitlines():
            if at := re.match(r"\.text\.(\w+):", line):
                here = code[at[1]]
            elif at := re.match(r"(\.L_x_\d+):", line):
                here.append(at[1])
            elif at := re.match(r"\s+/\*[0-9a-f]+\*/\s+(.*?)\s*;", line):
                here.append(at[1])
    return found, code


class Loop(NamedTuple):
    begin: int
    end: int


def loops(code: list[str]) -> list[Loop]:
    """From the target of every branch backwards to the branch."""
    labels = {line: i for i, line in enumerate(code) if line.startswith(".L_x_")}
    found = []
    for i, line in enumerate(code):
        at = re.search(r"BRA.*`\((\.L_x_\d+)\)", line)
        if at and labels.get(at[1], i) < i:
            found.append(Loop(labels[at[1]], i))
    return found


class Work(NamedTuple):
    """Of the loop that reads or writes the values: accesses of a turn, and its instructions."""

    accesses: int
    instructions: int


def work_of(code: list[str], size: int) -> Work | None:
    """The loop with the fewest instructions for an access of that size."""
    access = r"\.128" if size == 16 else r"(?!.*\.(64|128) )"
    found = []
    every = loops(code)
    for loop in every:
        inside = [a for a in every if a != loop and loop.begin <= a.begin and a.end <= loop.end]
        body = [
            line
            for i, line in enumerate(code[loop.begin : loop.end + 1], loop.begin)
            if line[0] != "." and not any(a.begin <= i <= a.end for a in inside)
        ]
        reads, writes = (sum(bool(re.search(rf"\b{op}\.E{access}", line)) for line in body) for op in ("LDG", "STG"))
        if reads or writes:
            found.append(Work(max(reads, writes), len(body)))
    return min(found, key=lambda work: work.instructions / work.accesses, default=None)


def share_of(kernel: Kernel, work: Work, registers: int) -> tuple[float, float]:
    """Of the copy's speed: what the instructions leave, and what the accesses in flight do, with threads enough."""
    each = work.instructions / work.accesses
    issued = kernel.bytes / COPY * INSTRUCTIONS / each
    threads = min(2048, 65536 // (-(-registers // 8) * 8 * 256) * 256)
    in_flight = 132 * threads * work.accesses * kernel.word
    return min(1.0, issued), min(1.0, in_flight / (LATENCY * COPY))


def demangled(names: list[str]) -> list[str]:
    done = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


ABOUT = f"""# What nvcc makes of the kernels

`python benchmarks/gpu/compiled.py`, {{nvcc}}; no GPU is needed. First registers of a thread (fewest and most of a source's
kernels), how many kernels spill registers to memory and how many bytes, and the largest stack.

Then what that means for memory-bound kernels of float32 on an H200, as a part of what a copy reaches ({COPY / 1e12:.2f} TB/s),
where there are threads enough: as many elements as a second has instructions for ({INSTRUCTIONS / 1e12:.1f}e12), and as many as there
are accesses in flight for, by Little's law with {LATENCY * 1e9:.0f} ns. An estimate, to be replaced by measurements.

Instructions are those of a kernel's leanest loop; softmax and normalising have others as well. Not in the table: reductions,
softmax and scans give a thread to every channel of a segment. A batch of 10,000 segments of 64 channels has threads enough;
one sequence of 64 channels keeps 64 of the 270,000 busy, by the same law 0.0004 of the copy's speed.

So the ten furthest from the ceiling: sum, max, softmax, logsumexp, variance, normalising and scans of one long sequence; then
runs of rows of 4 bytes, gather_rows of rows of 4 bytes, and the backward of softmax.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", type=Path, help="put the tables into this file")
    asked = parser.parse_args()
    sources = sorted((ROOT / "csrc/cuda").glob("*.cu"))
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(os.cpu_count()) as pool:
        jobs = [(source, arch) for source in sources for arch in ARCHITECTURES]
        found = dict(zip(jobs, pool.map(lambda job: compiled(*job, Path(folder)), jobs), strict=True))
    nvcc = run("nvcc", "--version").strip().splitlines()[-2].split()[-1].removeprefix("V")
    lines = [ABOUT.format(nvcc=f"nvcc {nvcc}")]
    lines.append("| source | kernels |" + "".join(f" {arch}: registers, spilled, stack |" for arch in ARCHITECTURES))
    lines.append("|---|---|" + "---|" * len(ARCHITECTURES))
    for source in sources:
        row = [found[source, arch][0].values() for arch in ARCHITECTURES]
        cells = [
            f" {min(k.registers for k in own)} to {max(k.registers for k in own)}, "
            f"{sum(k.spilled > 0 for k in own)} kernels, at most {max(k.spilled for k in own):,} B, {max(k.stack for k in own):,} B |"
            for own in row
        ]
        lines.append(f"| {source.stem} | {len(row[0])} |" + "".join(cells))
    if NVDISASM:
        code = {name: body for source in sources for name, body in found[source, "sm_90"][1].items()}
        names = dict(zip(demangled(list(code)), code.values(), strict=True))
        needs = {name: need for source in sources for name, need in found[source, "sm_90"][0].items()}
        registers = dict(zip(demangled(list(needs)), (need.registers for need in needs.values()), strict=True))
        lines += [
            "",
            "| kernel, float32, sm_90 | bytes | instructions | registers | instructions allow | accesses in flight allow |",
            "|---|---|---|---|---|---|",
        ]
        for kernel in KERNELS:
            works = {
                name: work_of(body, kernel.word) for name, body in names.items() if re.search(kernel.pattern, name)
            }
            rows = [(registers[name], work) for name, work in works.items() if work is not None]
            if not rows:
                raise SystemExit(f"{kernel.name}: no kernel has {kernel.pattern}")
            shares = [(*share_of(kernel, work, own), own, work) for own, work in rows]
            issued, flying, own, work = min(shares, key=lambda share: min(share[:2]))
            lines.append(
                f"| {kernel.name} | {kernel.bytes:g} | {work.instructions / work.accesses:.0f} | {own} | "
                f"{issued:.2f} | {flying:.2f} |"
            )
    print("\n".join(lines))
    if asked.write:
        asked.write.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
