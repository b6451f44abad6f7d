# SPDX-License-Identifier: Apache-2.0
"""A C++ compiler that copies an object instead of making it, where an earlier build made it of the same texts.

Ninja knows an object by the absolute path of its source: in a copy of the tree it would build everything.
"""

import filecmp
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

#: What is printed for every object that was not made.
REUSED = "reused:"


def compiler(root: Path, tree: Path, script: Path) -> str:
    """Writes the compiler for `tree`, a copy of `root`. Gives its path, for CXX."""
    built: dict[str, tuple[str, list[str]]] = {}
    for folder in (path.parent for path in (root / "build/temp").glob("*/build.ninja")):
        listed = subprocess.run(["ninja", "-t", "deps"], cwd=folder, capture_output=True, text=True, check=True).stdout
        for block in listed.strip().split("\n\n"):
            head, *deps = block.splitlines()
            inside = [os.path.relpath(path.strip(), root) for path in deps]
            texts = [path for path in inside if (tree / path).is_file()]  # headers elsewhere are the same
            if head.endswith("(VALID)") and texts:
                built[texts[0]] = head.partition(":")[0], [*texts, "setup.py"]
    real = shutil.which(os.environ.get("CXX", "c++"))
    script.write_text(
        f"#!{sys.executable}\nimport sys\nsys.path[:0] = [{str(Path(__file__).parent)!r}]\nimport reuse\n"
    )
    with script.open("a") as file:
        file.write(f"reuse.run({str(root)!r}, {str(tree)!r}, {real!r}, {json.dumps(built)})\n")
    script.chmod(0o755)
    return str(script)


def run(root: str, tree: str, real: str, built: dict) -> None:
    """The command line that the script was given."""
    words = sys.argv[1:]
    if "-c" in words:
        out = words[words.index("-o") + 1]
        source = next(os.path.relpath(word, tree) for word in words if word.endswith(".cpp"))
        made, texts = built.get(source, (None, []))
        if made and filecmp.cmpfiles(root, tree, texts, shallow=False)[0] == texts:
            shutil.copy(made, out)
            print(REUSED, source)
            return
    os.execv(real, [real, *words])
