# SPDX-License-Identifier: Apache-2.0
"""What is installed, and what is imported: wheels and sdists hold every source, and a checkout steps aside for an installation
that has what it lacks."""

import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

import torch_lod as tl

ROOT = Path(__file__).parents[2]
SHOWN = """
import os, sys
sys.path = [p for p in sys.path if p in ("", os.environ["PYTHONPATH"]) or not os.path.isdir(os.path.join(p, "torch_lod"))]
import torch_lod, torch_lod.nn
from torch_lod.ops.library import COMPILED
folders = {m.__file__.partition("torch_lod/")[0] for name, m in sys.modules.items() if name.split(".")[0] == "torch_lod"}
print(*folders, COMPILED, callable(torch_lod.sequence_pool))
"""


def setup(*commands, **env):
    command = [sys.executable, str(ROOT / "setup.py"), "-q", *map(str, commands)]
    subprocess.run(command, cwd=ROOT, env={**os.environ, **env}, capture_output=True, check=True)


@pytest.fixture(scope="module")
def trees(tmp_path_factory):
    """A checkout without built operators, and the folder of an installation that has what this one has."""
    folder = tmp_path_factory.mktemp("trees")
    setup("egg_info", "--egg-base", folder, "build_py", "--build-lib", folder / "site")
    python_only = shutil.ignore_patterns("*.so", "__pycache__")
    shutil.copytree(ROOT / "torch_lod", folder / "checkout/torch_lod", ignore=python_only)
    shutil.copytree(ROOT / "csrc/torch_lod", folder / "checkout/csrc/torch_lod")
    for library in built():
        shutil.copy(library, folder / "site/torch_lod")
    return folder


def built() -> list[Path]:
    return list(Path(tl.__file__).parent.glob("*.so"))


def imported(trees: Path, path: str, **env) -> str:
    command = [sys.executable, "-W", "ignore", "-c", SHOWN]
    env = {**os.environ, "PYTHONPATH": path, **env}
    done = subprocess.run(command, cwd=trees / "checkout", env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.replace(str(trees), "").strip()


@pytest.mark.skipif(not tl.ops.COMPILED, reason="no compiled operators to install")
def test_a_checkout_without_operators_steps_aside(trees):
    installed = str(trees / "site")
    assert imported(trees, installed) == "/site/ True True"
    assert imported(trees, installed, TORCH_LOD_COMPOSED="1") == "/checkout/ False True"
    assert imported(trees, "") == "/checkout/ False True"
    for library in built():
        shutil.copy(library, trees / "checkout/torch_lod")
    assert imported(trees, installed) == "/checkout/ True True"


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*.py")}


def test_an_installation_has_every_module(trees):
    assert files(trees / "site/torch_lod") == files(ROOT / "torch_lod")
    assert (trees / "site/torch_lod/py.typed").is_file()


@pytest.mark.parametrize("compiler", ["c++", "none"])
def test_an_sdist_has_every_source_on_every_way_to_make_it(compiler, tmp_path):
    setup("egg_info", "--egg-base", tmp_path, "sdist", "--dist-dir", tmp_path, CXX=compiler)
    [archive] = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        names = {name.partition("/")[2] for name in opened.getnames()}
    kinds = (".py", ".cpp", ".cu", ".h", ".md", ".npz", ".json")
    folders = ("csrc", "torch_lod", "tests", "docs", "examples", "benchmarks")
    sources = [path for folder in folders for path in (ROOT / folder).rglob("*") if path.suffix in kinds]
    tops = {
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "LICENSE",
        "MANIFEST.in",
        "Makefile",
        "README.md",
        "pyproject.toml",
        "setup.py",
    }
    expected = tops | {str(path.relative_to(ROOT)) for path in sources if "build" not in path.parts}
    assert expected <= names, sorted(expected - names)
    assert len([name for name in names if name.endswith(".cpp")]) > 5
    assert not [name for name in names if name.endswith((".so", ".pyc"))]
