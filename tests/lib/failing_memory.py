# SPDX-License-Identifier: Apache-2.0
"""Every operator, forwards and backwards, with the first, the second, the third ... allocation of memory failing.

A program, since it runs under LIBRARY, which must be loaded before anything else: `build` compiles it, `run` starts the
program. It prints one line of counts, or the first call that neither raised nor gave the right result.
"""

import ctypes
import os
import subprocess
import sys
from pathlib import Path

from settings import PYTHONPATH

#: Memory of tensors (posix_memalign), and what C++ takes for vectors (operator new), from LEAST bytes on.
LIBRARY = r"""
#include <cerrno>
#include <cstdlib>
#include <atomic>
#include <new>
#include <dlfcn.h>
static std::atomic<long> left(-1);
static std::atomic<int> failed(0);
extern "C" void fail_at(long n) { failed = 0; left = n; }
extern "C" int has_failed() { left = -1; return failed; }
static bool fails(size_t size) {
  if (size < LEAST || left < 0 || left-- != 0) return false;
  failed = 1;
  return true;
}
extern "C" int posix_memalign(void** to, size_t alignment, size_t size) {
  using Real = int (*)(void**, size_t, size_t);
  static Real real = Real(dlsym(RTLD_NEXT, "posix_memalign"));
  return fails(size ? LEAST : 0) ? ENOMEM : real(to, alignment, size);
}
void* operator new(size_t size) {
  if (fails(size)) throw std::bad_alloc();
  if (void* at = malloc(size ? size : 1)) return at;
  throw std::bad_alloc();
}
void* operator new(size_t size, std::align_val_t alignment) {
  void* at = nullptr;
  using Real = int (*)(void**, size_t, size_t);
  static Real real = Real(dlsym(RTLD_NEXT, "posix_memalign"));
  if (fails(size) || real(&at, size_t(alignment), size ? size : 1)) throw std::bad_alloc();
  return at;
}
void operator delete(void* at) noexcept { free(at); }
void operator delete(void* at, size_t) noexcept { free(at); }
void operator delete(void* at, std::align_val_t) noexcept { free(at); }
void operator delete(void* at, size_t, std::align_val_t) noexcept { free(at); }
"""
LEAST = 1024
SAID = ("allocate memory", "bad_alloc")


def build(compiler: str, folder: Path) -> Path:
    source, library = folder / "failing.cpp", folder / "failing.so"
    source.write_text(LIBRARY)
    flags = ["-shared", "-fPIC", "-O1", "-std=c++17", f"-DLEAST={LEAST}"]
    subprocess.run([compiler, *flags, str(source), "-o", str(library), "-ldl"], check=True)
    return library


def run(library: Path, threads: int, samples: int) -> subprocess.CompletedProcess:
    env = {**os.environ, "LD_PRELOAD": str(library), "OMP_NUM_THREADS": str(threads)}
    env["PYTHONPATH"] = PYTHONPATH
    command = [sys.executable, "-X", "faulthandler", "-W", "ignore", __file__, str(library), str(threads), str(samples)]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=600, check=False)


def calls(entry, sample):
    """The call of a sample, and with it its gradient: functions that give tensors or None."""
    import torch
    from samples.words import changed, tensors

    floats = [t for t in tensors((sample.args, sample.kwargs)) if t.is_floating_point()]

    def forwards():
        with torch.no_grad():
            return tensors(entry.run(sample))

    def backwards():
        leaves = [t.detach().requires_grad_() for t in floats]
        by = dict(zip(map(id, floats), leaves, strict=True))
        args, kwargs = (changed(given, lambda t: by.get(id(t), t)) for given in (sample.args, sample.kwargs))
        results = [t.sum() for t in tensors(entry.run(sample, args, kwargs)) if t.requires_grad]
        return list(torch.autograd.grad(results, leaves, allow_unused=True)) if results else []

    return [forwards, backwards] if entry.differentiable else [forwards]


def parallel_call():
    """Attention that several threads share, each of which takes memory of its own."""
    import torch

    q, offsets = torch.randn(3000, 2, 8), torch.tensor([0, 1000, 3000])
    return [*torch.ops.torch_lod.attention(q, q, q, offsets, offsets)]


def same(found, right) -> bool:
    import torch

    return len(found) == len(right) and all(
        b is None if a is None else torch.allclose(a, b, 0, 0, equal_nan=True)
        for a, b in zip(found, right, strict=True)
    )


def failed_allocations(failing, call, where: str) -> int:
    """How many allocations of a call fail with an error, and nothing else is wrong afterwards."""
    import torch

    def seeded():
        torch.manual_seed(0)
        return call()

    right = seeded()
    for n in range(2000):
        failing.fail_at(n)
        try:
            found, error = seeded(), None
        except (RuntimeError, MemoryError) as caught:
            found, error = right, caught
        failed = failing.has_failed()
        said = error is None or isinstance(error, MemoryError) or any(word in str(error) for word in SAID)
        assert said and (failed or error is None), (where, n, error)
        assert same(found, right) and same(seeded(), right), (where, n)
        if not failed:
            return n
    raise AssertionError(f"{where}: no end of allocations")


def main(library: str, threads: int, samples: int) -> None:
    import torch
    from samples import OPS, SEQUENCES

    torch.set_num_threads(1)
    failing, made, raised = ctypes.CDLL(library), 0, 0
    for entry in [*OPS, *SEQUENCES]:
        of_all = list(entry.samples(entry.dtypes[0], "cpu"))
        for sample in of_all[len(of_all) // 2 :: max(1, len(of_all) // samples)][:samples]:
            for call in calls(entry, sample):
                raised += failed_allocations(failing, call, f"{entry.id} {sample.label} {call.__name__}")
                made += 1
    torch.set_num_threads(threads)
    raised += failed_allocations(failing, parallel_call, "attention in parallel")
    print(f"{len([*OPS, *SEQUENCES])} operators, {made + 1} calls, {raised} failed allocations")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
