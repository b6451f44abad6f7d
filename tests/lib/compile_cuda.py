# SPDX-License-Identifier: Apache-2.0
"""Compiles the kernels for GPUs with nvcc, and checks the syntax of the bindings in their GPU form. No GPU is needed.

    python tests/lib/compile_cuda.py [short]

short: of the bindings one, with the headers of CUDA. All of them are compiled for the emulated device (tests/emulated_gpu).
"""

import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch.utils.cpp_extension as extension
from settings import ROOT

EXAMPLE = ROOT / "examples/own_operator"


def toolkit() -> Path:
    """The folder of the CUDA that nvcc belongs to."""
    said = subprocess.run(["nvcc", "--dryrun", "-x", "cu", os.devnull], capture_output=True, text=True).stderr
    here = next(line for line in said.splitlines() if line.startswith("#$ _HERE_="))
    return Path(here.partition("=")[2]).parent


def commands(short: bool):
    folders = [ROOT / "csrc", EXAMPLE, *extension.include_paths()]
    include = [f"-I{folder}" for folder in folders]
    for source in [*(ROOT / "csrc/cuda").glob("*.cu"), *EXAMPLE.glob("*.cu")]:
        yield source, ["nvcc", "-c", "-arch=sm_90", "-std=c++20", "-O3", *include, source, "-o", os.devnull]
    check = [os.environ.get("CXX", "c++"), "-fsyntax-only", "-std=c++20", "-DLOD_CUDA", f"-I{ROOT}/.ci/stub"]
    bindings = [*(ROOT / "csrc/bindings").glob("*.cpp"), *EXAMPLE.glob("*.cpp")]
    numbers = Path(__file__).with_name("cublas_numbers.cpp")
    for source in [numbers, *([ROOT / "csrc/bindings/segment.cpp"] if short else bindings)]:
        yield source, [*check, f"-I{toolkit()}/include", *include, source]


def main(words: list[str]) -> int:
    if shutil.which("nvcc") is None:
        print("no nvcc: the CUDA sources were not compiled")
        return 0

    def run(job) -> int:
        source, command = job
        done = subprocess.run(command, capture_output=True, text=True)
        print(command[0], source.relative_to(ROOT), done.stderr if done.returncode else "", flush=True)
        return done.returncode

    jobs = sorted(commands("short" in words), key=lambda job: -job[0].stat().st_size)
    with ThreadPoolExecutor(int(os.environ.get("JOBS", "2"))) as pool:
        return int(any([*pool.map(run, jobs)]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
