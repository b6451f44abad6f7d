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


def build(compiler: str, folder: Path) -> Path:
    source, library = folder / "failing.cpp", folder / "failing.so"
    source.write_text(LIBRARY)
    flags = ["-shared", "-fPIC", "-O1", "-std=c++17", f"-DLEAST={LEAST}"]
    subprocess.run([compiler, *flags, str(source), "-o", str(library), "-ldl"], check=True)
    return library


def run(library: Path, threads: int) -> subprocess.CompletedProcess:
    env = {**os.environ, "LD_PRELOAD": str(library), "OMP_NUM_THREADS": str(threads)}
    env["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parents[1]), str(Path(__file__).parent)])
    command = [sys.executable, "-X", "faulthandler", "-W", "ignore", __file__, str(library), str(threads)]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=600, check=False)


def calls(entry, sample):
    """The call of a sample, and with it its gradient."""
    import torch
    from samples.words import tensors

    floats = [t for t in tensors((sample.args, sample.kwargs)) if t.is_floating_point()]

    def forwards():
        with torch.no_grad():
            return list(tensors(entry.run(sample)))

    def backwards():
        leaves = [t.detach().requires_grad_() for t in floats]
        by = dict(zip(map(id, floats), leaves, strict=True))
        from samples.words import changed

        args = changed(sample.args, lambda t: by.get(id(t), t))
        kwargs = changed(sample.kwargs, lambda t: by.get(id(t), t))
        results = [t for t in tensors(entry.run(sample, args, kwargs)) if t.requires_grad]
        if not results:
            return []
        return list(torch.autograd.grad([t.sum() for t in results], leaves, allow_unused=True))

    return [forwards, backwards] if entry.differentiable else [forwards]


def main(library: str, threads: int) -> None:
    import torch
    from samples import OPS, SEQUENCES

    torch.set_num_threads(threads)
    failing = ctypes.CDLL(library)
    said = ("allocate memory", "bad_alloc")
    entries = operators = raised = 0
    for entry in [*OPS, *SEQUENCES]:
        operators += 1
        for sample in list(entry.samples(entry.dtypes[0], "cpu"))[1:20:6]:
            for call in calls(entry, sample):
                torch.manual_seed(0)
                right = call()
                entries += 1
                for n in range(200):
                    torch.manual_seed(0)
                    failing.fail_at(n)
                    try:
                        found, error = call(), None
                    except (RuntimeError, MemoryError) as caught:
                        found, error = None, caught
                    failed = failing.has_failed()
                    where = f"{entry.id} {sample.label} {call.__name__}, allocation {n}"
                    if error is not None:
                        assert failed and (isinstance(error, MemoryError) or any(w in str(error) for w in said)), (where, error)
                        raised += 1
                    torch.manual_seed(0)
                    again = call()
                    for result in (again, *([found] if found is not None else [])):
                        assert len(result) == len(right), where
                        for a, b in zip(result, right, strict=True):
                            assert (a is None) == (b is None) and (a is None or torch.equal(a.nan_to_num() if a.is_floating_point() else a, b.nan_to_num() if b.is_floating_point() else b)), where
                    if not failed:
                        break
                else:
                    raise AssertionError(f"{where}: no end")
    print(f"{operators} operators, {entries} calls, {raised} failed allocations raised")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
