# SPDX-License-Identifier: Apache-2.0
"""`python -m torch_lod.check`: what runs here, and whether a sum over sequences and its gradient are right; beside a GPU,
whether every family of kernels gives there what it gives on the CPU."""

import ctypes
import platform
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import torch

import torch_lod as tl
from torch_lod.ops.library import BINDING

#: The levels of csrc/torch_lod/each_level.h; on other processors there is one.
_LEVELS = ("AVX2", "AVX-512")


def cpu_level() -> str:
    """The instructions that compiled kernels use on this processor."""
    if BINDING.library is None:
        return "those of torch"
    set_level = ctypes.CDLL(str(BINDING.library)).torch_lod_set_cpu_level
    level = set_level(0)  # gives the level before
    set_level(level)
    return _LEVELS[level] if platform.machine() in ("x86_64", "AMD64") else "those of the compiler's target"


def openmp() -> list[str]:
    """The OpenMP runtimes that are loaded: with two, each has threads of its own."""
    maps = Path("/proc/self/maps")
    text = maps.read_text() if maps.is_file() else ""
    return sorted(set(re.findall(r"/\S*/lib(?:gomp|omp|iomp5)\b[^/\s]*", text)))


def gpu() -> str:
    if not torch.cuda.is_available():
        return "none"
    kernels = torch._C._dispatch_has_kernel_for_dispatch_key("torch_lod::segment_reduce", "CUDA")
    return f"{torch.cuda.get_device_name()}, {'compiled kernels' if kernels else 'composed operators'}"


def other_copies() -> list[str]:
    """Other packages of this name that Python would find without this one."""
    here = Path(tl.__file__).resolve().parent
    found = [Path(folder or ".", "torch_lod").resolve() for folder in sys.path]
    return sorted({str(path) for path in found if (path / "__init__.py").is_file() and path != here})


def sum_is_right(device: str) -> tuple[bool, str]:
    """A sum over three sequences, one of them empty, and the gradient of its square; and what they are."""
    rows = torch.arange(6.0, device=device).requires_grad_()
    sums = tl.sequence_pool(tl.from_lengths(rows, [[2, 0, 4]]), "sum")
    (gradient,) = torch.autograd.grad(sums.square().sum(), rows)
    got = (sums.tolist(), gradient.tolist())
    right = got == ([1.0, 0.0, 14.0], [2.0, 2.0, 28.0, 28.0, 28.0, 28.0])
    return right, f"sums {got[0]}, gradient {got[1]}: {'right' if right else 'WRONG'}"


def operators() -> str:
    if BINDING.library is not None:
        return f"compiled, {BINDING.library.name}"
    return f"composed of torch's own, slower: {BINDING.why}. To get compiled ones: {BINDING.remedy}"


def report() -> Iterator[tuple[bool, str]]:
    """Lines, and whether each is as it should be."""
    yield True, f"torch_lod  {tl.__version__}, {Path(tl.__file__).parent}"
    for path in other_copies():
        yield True, f"           another copy, not used: {path}"
    yield True, f"Python     {platform.python_version()}, {platform.system()} {platform.machine()}"
    yield True, f"torch      {torch.__version__}"
    yield True, f"operators  {operators()}"
    yield True, f"CPU        instructions: {cpu_level()}; threads: {torch.get_num_threads()}"
    yield True, f"OpenMP     {', '.join(openmp()) or 'none'}"
    yield True, f"GPU        {gpu()}"
    for device in ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]:
        right, said = sum_is_right(device)
        yield right, f"{device:<11}{said}"
    if torch.cuda.is_available():
        from torch_lod.check.families import compared

        yield from ((right, f"{'cuda':<11}{said}") for right, said in compared("cuda"))


def main() -> int:
    """0 if everything is right, 1 otherwise."""
    all_right = True
    for right, line in report():
        print(line, flush=True)
        all_right &= right
    return 0 if all_right else 1
