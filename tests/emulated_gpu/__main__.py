# SPDX-License-Identifier: Apache-2.0
"""Builds the operators in their GPU form for a device whose memory is the host's, and runs the tests on it: the texts of
csrc/cuda, compiled by a C++ compiler, their threads one after another. No GPU is needed, and none is seen.

    python tests/emulated_gpu [short | sanitize | build] [arguments of pytest]

short: the first dtype of every operator, and threads in one order. sanitize: under AddressSanitizer and
UndefinedBehaviorSanitizer, with the catalogue of malformed calls of the raw operators. build: nothing is run.
"""

import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(1, str(Path(__file__).resolve().parent.parent))

from sanitize.__main__ import (
    CHECKS,
    COMPILE,
    CPP,
    CXX,
    FLAGS,
    JOBS,
    ROOT,
    check_reports,
    delete_reports,
    environment,
    include,
    reports,
)
from torch.utils.cpp_extension import library_paths

HERE = Path(__file__).resolve().parent
#: The hooks of csrc/torch_lod/binding.h, and of csrc/bindings/cublas.h.
GPU = ["-DLOD_CUDA", "-DLOD_GPU_KEY=PrivateUse1", "-DLOD_IS_GPU(tensor)=(tensor).is_privateuseone()"]
GPU.append("-DLOD_BLAS_SYMBOL(name)=dlsym(RTLD_DEFAULT,name)")
WORDS = ["-include", "cuda_words.h", "-x", "c++"]
LAWS = ["tests/laws/test_laws.py", "tests/laws/test_laws_ops.py", "tests/laws/test_laws_sequence.py"]
#: What needs another compiler, or starts processes, which have their own builds of torch_lod; and torch's opcheck and
#: autocast, which know their own devices alone.
LEFT_OUT = "not inductor and not processes and not registration and not autocast_stays"


def stale(to: Path) -> bool:
    """Whether a source or header of an object is newer than it."""
    made_of = to.with_suffix(".d")
    if not to.exists() or not made_of.exists():
        return True
    names = made_of.read_text().replace("\\\n", " ").split(":", 1)[1].split()
    paths = [Path(name).resolve() for name in names]  # ccache may write them relative to the folder of the call
    ours = [path for path in paths if path.is_relative_to(ROOT)]
    return any(not path.exists() or path.stat().st_mtime > to.stat().st_mtime for path in ours)


def build(folder: Path, checks: list[str]) -> Path:
    """A copy of the package whose operators run on the emulated device."""
    folder.mkdir(parents=True, exist_ok=True)
    flags = [
        *FLAGS,
        "-fopenmp",
        *checks,
        "-w",
        "-DLOD_BASE_ONLY",
        "-DLOD_TILE_BYTES=2048",  # so that few rows are many tiles
        f"-I{HERE}/include",
    ]  # before torch's
    flags += [*include(), f"-I{ROOT}/csrc", f"-I{HERE}", "-MMD"]
    steps = ["-O1", "-fsanitize-coverage=trace-pc"]  # threads.cpp counts them
    texts = [(path, [*steps, *WORDS]) for path in (ROOT / "csrc/cuda").glob("*.cu")]
    texts.append((HERE / "barriers.cu", [*steps, "-include", "ATen/ATen.h", *WORDS]))  # torch before the words
    host = [(path, ["-O0", *GPU]) for path in CPP]
    own = [(HERE / "device.cpp", ["-O0"]), (HERE / "threads.cpp", ["-O1"])]

    def compiled(job) -> Path:
        source, extra = job
        to = folder / f"{source.parent.name}_{source.stem}.o"
        if stale(to):
            subprocess.run([*COMPILE, *flags, *extra, source, "-o", to], check=True)
        return to

    with ThreadPoolExecutor(JOBS) as pool:
        objects = [*pool.map(compiled, sorted([*texts, *host, *own], key=lambda job: -job[0].stat().st_size))]
    tree = folder / "tree"
    for part in ("torch_lod", "tests"):
        shutil.rmtree(tree / part, ignore_errors=True)
        shutil.copytree(ROOT / part, tree / part, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    for part in ("docs", "csrc", "pyproject.toml", "benchmarks", "examples", "README.md"):
        if not (tree / part).exists():
            (tree / part).symlink_to(ROOT / part)
    target, linked = tree / "torch_lod/_C.so", folder / "_C.so"
    if not linked.exists() or any(path.stat().st_mtime > linked.stat().st_mtime for path in objects):
        libraries = [f"-L{path}" for path in library_paths()] + "-lc10 -ltorch_cpu -ltorch".split()
        subprocess.run([CXX, "-shared", "-fopenmp", *checks, *objects, *libraries, "-o", linked], check=True)
    shutil.copy(linked, target)
    return tree


def ended(command: list, env: dict, tree: Path) -> tuple[int, Counter]:
    """The exit status of pytest, and its last line."""
    done = subprocess.run(command, env=env, cwd=tree, stdout=subprocess.PIPE, text=True)
    print(done.stdout, end="", flush=True)
    last = next((line for line in reversed(done.stdout.splitlines()) if " in " in line and "second" not in line), "")
    return done.returncode, Counter(
        {word: int(n) for n, word in re.findall(r"(\d+) (passed|failed|error|skipped)", last)}
    )


def main(words: list[str]) -> int:
    kind = words.pop(0) if words and words[0] in ("short", "sanitize", "build") else "all"
    folder = ROOT / "build/emulated_gpu" / ("sanitized" if kind == "sanitize" else "plain")
    tree = build(folder, CHECKS if kind == "sanitize" else [])
    if kind == "build":
        return 0
    env = {**os.environ, "PYTHONPATH": f"{tree}:{tree}/tests:{tree}/tests/lib"}
    if kind == "sanitize":
        env = environment(folder, tree)
        delete_reports(folder)
        check_reports(folder, env)
    env["TORCH_LOD_EMULATED"] = "1"
    python = [sys.executable, "-W", "ignore"]
    pytest = [*python, "-m", "pytest", "--no-header", "-p", "no:cacheprovider", "-n", str(JOBS)]
    pytest += ["--dist", "worksteal"]
    status, counts = 0, Counter()
    if words:
        runs = [("forward", words)]
    else:
        laws = ["-k", f"emu and {LEFT_OUT}", *LAWS, *([] if kind == "all" else ["-m", "quick"])]
        files = [
            *(f"emulated_gpu/check_{part}.py" for part in ("device", "attention", "products", "blocks")),
            "laws/test_blocks.py",
            "sequence/test_large_attention.py",
        ]
        own = ["-k", "emu or check_", *(f"tests/{name}" for name in files)]
        runs = [("forward", own), ("forward", laws)]
        if kind == "all":
            runs.append(("forward", ["-k", "emu and recorded", "tests/test_golden.py"]))
            again = ["-k", f"emu and {LEFT_OUT}", "-m", "quick", *LAWS]
            runs += [("backward", again), ("12345", again)]
    for order, arguments in runs:
        code, found = ended([*pytest, *arguments], {**env, "EMULATED_ORDER": order}, tree)
        print(f"threads {order}: {dict(found)}", flush=True)
        status, counts = status or code, counts + found
    if kind == "sanitize":
        pool = [*python, "tests/emulated_gpu/wrong_calls.py"]
        status |= subprocess.run(pool, env=env, cwd=tree).returncode
        found = reports(folder)
        for said, count in found.most_common():
            print(f"{count:6} {said}")
        print(f"sanitize-gpu: {sum(found.values())} reports of {len(found)} kinds")
        status |= bool(found)
    print(f"{counts['passed']} passed, {counts['failed'] + counts['error']} failed")
    return int(bool(status))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
