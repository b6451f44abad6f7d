# SPDX-License-Identifier: Apache-2.0
"""Builds the operators with AddressSanitizer and UndefinedBehaviorSanitizer in a folder of their own, and runs the raw
operators' tests and the catalogue of malformed calls on them; then the parallel kernels under ThreadSanitizer.

    python tests/sanitize [short | threads]

Reports are counted, not the first one fatal. The exit status is 1 if there is any, or if a test or a call fails.
short: one level of instructions, without vectors, fewer tests, one call per class. threads: only ThreadSanitizer.
"""

import os
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch.utils.cpp_extension as extension

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
#: Kernels and bindings, the longest first: here they are one library.
CPP = sorted([*ROOT.glob("csrc/kernels/*.cpp"), *ROOT.glob("csrc/bindings/*.cpp")], key=lambda p: -p.stat().st_size)
CXX = os.environ.get("CXX", "g++")
#: Objects of an earlier build with the same flags are taken from ccache, where it is installed.
COMPILE = ["ccache", CXX, "-c"] if shutil.which("ccache") else [CXX, "-c"]
JOBS = int(os.environ.get("JOBS", "2"))
#: The compiler is asked for errors to be survived; each run says so again in its environment.
CHECKS = ["-fsanitize=address,undefined", "-fsanitize-recover=all", "-fno-omit-frame-pointer"]
FLAGS = ["-std=c++20", "-fPIC", "-fvisibility=hidden", "-fno-math-errno", "-fno-trapping-math", "-g1"]
#: Laws that compile with torch.compile, or that start processes of their own; and the whole catalogue, of which the raw
#: operators run here: others lead to torch's own `new` of 2**43 bytes, which AddressSanitizer does not let fail.
LEFT_OUT = "not compil and not registration and not export and not processes"
LEFT_OUT += " and not every_call_of_the_catalogue"
SUITE = (
    "laws/test_laws_ops",
    "sequence/test_attention",
    "sequence/test_attention_options",
    "sequence/test_recurrent",
    "robustness/test_malformed",
)


def include() -> list[str]:
    return [f"-I{path}" for path in extension.include_paths()]


def build(folder: Path, short: bool) -> Path:
    """A copy of the package with operators that watch themselves."""
    tree = folder / "tree"
    shutil.rmtree(tree, ignore_errors=True)
    for part in ("torch_lod", "csrc", "tests"):
        shutil.copytree(ROOT / part, tree / part, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    (tree / "docs").symlink_to(ROOT / "docs")
    flags = [
        *FLAGS,
        "-fopenmp",
        *CHECKS,
        *(["-O0", "-DLOD_BASE_ONLY"] if short else ["-O1"]),
    ]

    newest = max(path.stat().st_mtime for path in (ROOT / "csrc").rglob("*.*"))

    def compiled(source: Path) -> Path:
        to = folder / f"{source.parent.name}_{source.stem}.o"
        if to.exists() and to.stat().st_mtime > newest:
            return to
        subprocess.run([*COMPILE, *flags, *include(), f"-I{ROOT}/csrc", source, "-o", to], check=True)
        return to

    with ThreadPoolExecutor(JOBS) as pool:
        objects = [*pool.map(compiled, CPP)]
    libraries = [f"-L{path}" for path in extension.library_paths()] + "-lc10 -ltorch_cpu -ltorch".split()
    target = tree / "torch_lod/_C.so"
    subprocess.run([CXX, "-shared", "-fopenmp", *CHECKS, *objects, *libraries, "-o", target], check=True)
    return tree


def environment(folder: Path, tree: Path) -> dict[str, str]:
    # Python itself is C: AddressSanitizer finds who throws only if the library of C++ is there from the start
    found = (
        subprocess.run([CXX, f"-print-file-name={name}"], capture_output=True, text=True, check=True).stdout.strip()
        for name in ("libasan.so", "libstdc++.so.6")
    )
    return {
        **os.environ,
        "LD_PRELOAD": " ".join(found),
        "PYTHONPATH": f"{HERE}/site:{tree}:{tree}/tests:{tree}/tests/lib",
        "PYTHONMALLOC": "malloc",
        "MALFORMED_REPORTS": f"{folder}/report",
        "MALFORMED_LIMIT_S": "120",
        # a call may ask for too much memory: then it gets none, as without the sanitizer
        "ASAN_OPTIONS": "detect_leaks=0:halt_on_error=0:allocator_may_return_null=1:max_allocation_size_mb=4096:"
        f"handle_segv=0:log_path={folder}/report",
        "UBSAN_OPTIONS": f"print_stacktrace=1:halt_on_error=0:log_path={folder}/report",
    }


#: The first line of a report, and the first place in it that is ours.
HEAD = re.compile(r"(?:ERROR: AddressSanitizer: (?P<address>[\w-]+)|(?P<where>\S+?): runtime error: (?P<undefined>.*))")


def reports(folder: Path) -> Counter:
    """What was reported, and how often."""
    found: Counter = Counter()
    for path in folder.glob("report.*"):
        lines = path.read_text(errors="replace").splitlines()
        for i, line in enumerate(lines):
            head = HEAD.search(line)
            if head is None:
                continue
            frames = (re.search(r"csrc/([\w/.]+:\d+)", at) for at in lines[i : i + 40])
            place = next((frame[1] for frame in frames if frame), "not in csrc")
            if head["address"]:
                found[f"{head['address']} at {place}"] += 1
            else:
                words = re.sub(r"0x[0-9a-f]+|\d{4,}", "N", head["undefined"])
                found[f"{words} at {head['where'].rpartition('csrc/')[2]}, from {place}"] += 1
    return found


def check_reports(folder: Path, env: dict[str, str]) -> None:
    """Two mistakes, which must be two reports; they are deleted."""
    library = folder / "mistakes.so"
    subprocess.run(
        [CXX, *FLAGS, "-fvisibility=default", *CHECKS, "-shared", HERE / "mistakes.cc", "-o", library], check=True
    )
    made = f"import ctypes; library = ctypes.CDLL('{library}'); library.overflow(1); library.outside(1)"
    subprocess.run([sys.executable, "-c", made], env=env, check=True, capture_output=True)
    found = reports(folder)
    if sum(found.values()) != 2:
        raise SystemExit(f"sanitize: expected 2 reports of 2 mistakes, got {dict(found)}")
    delete_reports(folder)


def delete_reports(folder: Path) -> None:
    for old in folder.glob("report*"):
        old.unlink()


def address(short: bool) -> int:
    folder = ROOT / "build/sanitize" / ("short" if short else "long")
    folder.mkdir(parents=True, exist_ok=True)
    delete_reports(folder)
    began = time.monotonic()
    tree = build(folder, short)
    built = time.monotonic()
    env = environment(folder, tree)
    check_reports(folder, env)
    if short:
        env["TORCH_LOD_CPU_CAPABILITY"] = "avx2"
    python = [sys.executable, "-W", "ignore"]
    pool = [*python, "tests/lib/malformed_pool.py", "--only", "^torch.ops.", *(["--short"] if short else [])]
    suite = [*python, "-m", "pytest", "-q", "-x", "--no-header", "-p", "no:cacheprovider", "-k", LEFT_OUT]
    files = [f"tests/{name}.py" for name in SUITE]
    suite += ["-m", "quick", files[0]] if short else files
    commands = [suite, *([*pool, "--shard", f"{i}/{JOBS}"] for i in range(JOBS))]
    with ThreadPoolExecutor(JOBS) as workers:
        done = [*workers.map(lambda c: subprocess.run(c, env=env, cwd=tree, capture_output=True, text=True), commands)]
    for command, result in zip(commands, done, strict=True):
        print("$", *command[3:])
        print(*result.stdout.splitlines()[-30:], sep="\n")
        if result.returncode:
            print(result.stderr[-3000:])
    found = reports(folder)
    for said, count in found.most_common():
        print(f"{count:6} {said}")
    print(
        f"sanitize: {sum(found.values())} reports of {len(found)} kinds from AddressSanitizer and UndefinedBehaviorSanitizer; "
        f"built in {built - began:.0f} s, run in {time.monotonic() - built:.0f} s; reports in {folder}"
    )
    return int(bool(found) or any(result.returncode for result in done))


def threads() -> int:
    """The kernels without torch, with std::thread: OpenMP's own library is not built for ThreadSanitizer."""
    folder = ROOT / "build/sanitize/threads"
    folder.mkdir(parents=True, exist_ok=True)
    flags = ["-std=c++20", "-O1", "-g1", "-fsanitize=thread", "-DLOD_BASE_ONLY", f"-I{ROOT}/csrc"]

    def compiled(source: Path) -> subprocess.CompletedProcess:
        program = folder / source.stem
        subprocess.run([CXX, *flags, source, "-o", program, "-pthread"], check=True)
        env = {**os.environ, "TSAN_OPTIONS": "halt_on_error=0:exitcode=66"}
        # ThreadSanitizer wants its addresses where the kernel may not put them by chance
        return subprocess.run(["setarch", "-R", program], env=env, capture_output=True, text=True)

    sources = sorted(HERE.glob("*.cpp"))
    with ThreadPoolExecutor(JOBS) as pool:
        done = [*pool.map(compiled, sources)]
    for source, result in zip(sources, done, strict=True):
        races = result.stderr.count("WARNING: ThreadSanitizer")
        print(f"{source.name}: {result.stdout.strip()}; {races} races, exit status {result.returncode}")
        if result.returncode:
            print(result.stderr[:6000])
    return int(any(result.returncode for result in done))


if __name__ == "__main__":
    words = sys.argv[1:]
    if not set(words) <= {"short", "threads"}:
        sys.exit(__doc__)
    status = 0 if "threads" in words else address("short" in words)
    sys.exit(threads() or status)
