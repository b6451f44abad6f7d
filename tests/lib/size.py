# SPDX-License-Identifier: Apache-2.0
"""Lines of code by room: `make size`."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
ROOMS = {
    "kernels and bindings": "csrc/**/*.*",
    "plain-tensor operators": "torch_lod/ops/**/*.py",
    "import, errors, batches": "torch_lod/*.py",
    "structure": "torch_lod/structure/*.py",
    "tensor": "torch_lod/tensor/*.py",
    "what torch's functions do": "torch_lod/tensor/rules/*.py",
    "engines": "torch_lod/engine/*.py",
    "sequence operators": "torch_lod/sequence/*.py",
    "names of Paddle": "torch_lod/paddle/*.py",
    "modules": "torch_lod/nn/*.py",
    "files to batches": "torch_lod/data/*.py",
    "processes": "torch_lod/distributed/*.py",
    "drop-in": "torch_lod/drop_in/*.py",
    "other people's libraries": "torch_lod/integrations/**/*.py",
    "tests": "tests/**/*.py",
    "examples": "examples/**/*.*",
    "benchmarks": "benchmarks/**/*.py",
    "docs": "docs/**/*.*",
}
SUFFIXES = (".py", ".h", ".cpp", ".cu", ".md")


def lines(path: Path) -> tuple[int, int]:
    """All lines, and those with something on them beside a comment."""
    text = path.read_text(encoding="utf-8").splitlines()
    return len(text), sum(bool(line.strip()) and not line.strip().startswith(("#", "//")) for line in text)


def main() -> None:
    total = [0, 0, 0]
    print(f"{'room':<26}{'files':>7}{'lines':>9}{'code':>9}   longest")
    for room, pattern in ROOMS.items():
        files = {path: lines(path) for path in sorted(ROOT.glob(pattern)) if path.suffix in SUFFIXES}
        counts = [len(files), sum(a for a, _ in files.values()), sum(b for _, b in files.values())]
        total = [a + b for a, b in zip(total, counts)]
        longest = max(files, key=lambda path: files[path][0], default=None)
        tail = f"{longest.relative_to(ROOT)} {files[longest][0]}" if longest else ""
        print(f"{room:<26}{counts[0]:>7}{counts[1]:>9}{counts[2]:>9}   {tail}")
    print(f"{'all':<26}{total[0]:>7}{total[1]:>9}{total[2]:>9}")


if __name__ == "__main__":
    main()
