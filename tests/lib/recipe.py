# SPDX-License-Identifier: Apache-2.0
"""The recipes of CONTRIBUTING.md, executed in a copy of the tree.

python tests/lib/recipe.py "An operator with a kernel"     build it, and hold the laws of it
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import reuse

ROOT = Path(__file__).resolve().parents[2]
#: What a copy needs: sources, the built operators beside them, and the pages that tests read.
PARTS = ("torch_lod", "csrc", "tests", "docs", "examples", "benchmarks")


class Edit(NamedTuple):
    """A code block of the page: a file, and the line behind or before which the text goes; at the end without either."""

    file: str
    text: str
    after: str | None = None
    before: str | None = None

    def apply(self, tree: Path) -> None:
        path = tree / self.file
        text = path.read_text()
        anchor = self.after or self.before
        if anchor is None:
            path.write_text(text.rstrip("\n") + "\n\n\n" + self.text)
            return
        assert text.count(f"{anchor}\n") >= 1, f"{self.file} has no line {anchor!r}"
        new = f"{anchor}\n{self.text}" if self.after else f"{self.text}{anchor}\n"
        path.write_text(text.replace(f"{anchor}\n", new, 1))


def edits(title: str) -> list[Edit]:
    """The steps under a heading of CONTRIBUTING.md."""
    page = (ROOT / "CONTRIBUTING.md").read_text()
    section = page.partition(f"### {title}\n")[2].partition("\n### ")[0].partition("\n## ")[0]
    blocks = re.findall(r"^```\w+ (title=.*)\n((?:.*\n)*?)```$", section, re.M)
    return [Edit(text=text, **_attributes(info)) for info, text in blocks]


def _attributes(info: str) -> dict[str, str]:
    found = dict(re.findall(r"(\w+)=\"(.*?)\"(?= \w+=|$)", info))
    return {"file" if key == "title" else key: value for key, value in found.items()}


def copy(tree: Path) -> None:
    """The checkout as it is now, with its operators."""
    skip = shutil.ignore_patterns("__pycache__", "golden", "results")
    for part in PARTS:
        if (ROOT / part).is_dir():
            shutil.copytree(ROOT / part, tree / part, ignore=skip)
    for path in ROOT.iterdir():
        if path.is_file():
            shutil.copy2(path, tree)


def run(tree: Path, *command: str, **variables: str) -> subprocess.CompletedProcess:
    env = {**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1", **variables}
    return subprocess.run([sys.executable, *command], cwd=tree, env=env, capture_output=True, text=True)


HOUSE = "test_every or test_public or test_generated or test_equivalents or test_operators_have or test_python_repeats"


def hold(tree: Path, name: str) -> subprocess.CompletedProcess:
    """The rules of the house about operators, and the laws of one."""
    laws = sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("tests/laws/test_laws*.py"))
    which = f"({HOUSE}) or {name}"
    tests = ("tests/test_literal_cases.py", "tests/laws/test_house.py", *laws)
    return run(tree, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests, "-k", which)


def counted(steps: list[Edit]) -> str:
    lines = sum(len(step.text.strip().splitlines()) for step in steps)
    return f"{len(steps)} edits, {len({step.file for step in steps})} files, {lines} lines"


def main(title: str) -> None:
    import tempfile

    steps = edits(title)
    with tempfile.TemporaryDirectory() as folder:
        tree, script = Path(folder, "tree"), Path(folder, "g++")
        copy(tree)
        for step in steps:
            step.apply(tree)
        print(f"{title}: {counted(steps)}", flush=True)
        # what the recipe adds is compiled for one instruction level: the laws do not depend on it
        compiler = {"CXX": reuse.compiler(ROOT, tree, script), "CFLAGS": "-DLOD_BASE_ONLY"}
        built = run(tree, "setup.py", "-q", "build_ext", "--inplace", **compiler)
        print(f"objects reused: {built.stdout.count(reuse.REUSED)}", flush=True)
        for what, done in (
            ("build", built),
            ("docs", run(tree, "docs/build.py")),
            ("laws", hold(tree, "segment_difference")),
        ):
            print(
                f"{what}: {'held' if done.returncode == 0 else done.stdout[-4000:] + done.stderr[-4000:]}", flush=True
            )
            if done.returncode:
                sys.exit(1)


if __name__ == "__main__":
    main(*sys.argv[1:])
