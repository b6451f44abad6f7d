# SPDX-License-Identifier: Apache-2.0
"""What the headers promise to operators made elsewhere: they are all in the package, and the example is built with them."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from torch.utils.cpp_extension import include_paths as torch_include_paths

import torch_lod as tl

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples/own_operator"
COMPILER = shutil.which(os.environ.get("CXX", "c++"))
NO_COMPILER = "own_operator: expected a C++ compiler (c++, or $CXX), found none"


def run(*command, cwd, **env):
    done = subprocess.run(
        [*map(str, command)], cwd=cwd, env={**os.environ, **env}, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout + done.stderr


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The folder into which the package was put as a wheel has it: with headers, far from csrc."""
    folder = tmp_path_factory.mktemp("installed")
    build = ["egg_info", "--egg-base", folder, "build_py", "--build-lib", folder / "site"]
    status, output = run(sys.executable, ROOT / "setup.py", "-q", *build, cwd=ROOT)
    assert status == 0, output
    for library in Path(tl.__file__).parent.glob("*.so"):
        shutil.copy(library, folder / "site/torch_lod")
    return folder / "site"


@pytest.fixture(scope="module")
def example(tmp_path_factory):
    return shutil.copytree(
        EXAMPLE, tmp_path_factory.mktemp("example") / "own_operator", ignore=shutil.ignore_patterns("build", "*.so")
    )


def test_a_wheel_has_every_header(installed):
    code = "import torch_lod as tl; print(*tl.include_paths())"
    status, output = run(sys.executable, "-W", "ignore", "-c", code, cwd=installed, PYTHONPATH=str(installed))
    assert (status, output) == (0, f"{installed / 'torch_lod/include'}\n")
    own = {path.name: path.read_text() for path in (ROOT / "csrc/torch_lod").iterdir()}
    assert own == {path.name: path.read_text() for path in (installed / "torch_lod/include/torch_lod").iterdir()}
    for name, text in own.items():
        needed = re.findall(r'#include "(.*)"', text)
        assert {path.removeprefix("torch_lod/") for path in needed} <= set(own), name


def test_the_example_is_built_with_the_package(installed, example):
    path = {"PYTHONPATH": str(installed)}
    status, output = run(sys.executable, "setup.py", "-q", "build_ext", "--inplace", cwd=example, **path)
    if COMPILER is None:
        assert status != 0 and NO_COMPILER in output
        return
    assert status == 0, output
    status, output = run(sys.executable, "-m", "pytest", "-q", "test_own_operator.py", cwd=example, **path)
    assert status == 0 and " passed" in output, output
    code, printed = re.search(
        r"```python\n(.*?)```.*?```text\n(.*?)```", (EXAMPLE / "README.md").read_text(), re.S
    ).groups()
    assert run(sys.executable, "-W", "ignore", "-c", code, cwd=example, **path) == (0, printed)


ITERATORS = r"""
#include <torch_lod/lod_view.h>

#include <algorithm>
#include <cstdio>
#include <ranges>

static_assert(std::random_access_iterator<lod::LoDView::Iterator> && std::ranges::sized_range<lod::LoDView>);

int main() {
  const int64_t offsets[] = {0, 2, 2, 5};
  const lod::LoDView view{offsets, 3, 5, 1};
  for (const lod::Sequence s : view | std::views::reverse) std::printf("%d:%d ", int(s.index), int(s.length()));
  auto i = view.end();
  --i;
  const auto last = i--;
  const auto longest = std::ranges::max_element(view, {}, &lod::Sequence::length);
  std::printf("%d %d %d %d\n", i == view.begin() + 1, last - i == 1, i < last, longest == last);
}
"""


@pytest.mark.skipif(COMPILER is None, reason="needs a C++ compiler")
def test_a_view_is_a_random_access_range(tmp_path):
    source, program = tmp_path / "iterators.cpp", tmp_path / "iterators"
    source.write_text(ITERATORS)
    folders = [f"-I{folder}" for folder in (*tl.include_paths(), *torch_include_paths())]
    status, output = run(COMPILER, "-std=c++20", *folders, source, "-o", program, cwd=tmp_path)
    assert status == 0, output
    assert run(program, cwd=tmp_path) == (0, "2:3 1:0 0:2 1 1 1 1\n")


def test_without_a_compiler_the_example_says_so(example):
    path = os.pathsep.join(p for p in sys.path if p)
    env = {"PATH": "", "CXX": "c++", "PYTHONPATH": os.pathsep.join([str(ROOT), path])}
    status, output = run(sys.executable, "-W", "ignore", "setup.py", "-q", "build_ext", cwd=example, **env)
    assert status != 0 and NO_COMPILER in output


def test_headers_that_are_missing_are_missed(monkeypatch, tmp_path):
    [folder] = tl.include_paths()
    assert Path(folder, "torch_lod/lod_view.h").is_file()
    monkeypatch.setattr("torch_lod.ops.headers.__file__", str(tmp_path / "torch_lod/ops/headers.py"))
    with pytest.raises(
        tl.LoDError, match=r"include_paths: expected the headers of torch_lod in .* found none; reinstall"
    ):
        tl.include_paths()


PROGRAM = """
#include <cstdio>
#include <torch_lod/lod_view.h>

int main() {
  const int64_t good[] = {0, 2, 2, 5}, bad[] = {-1, 7, 3, 5};
  for (const int64_t* offsets : {good, bad}) {
    const lod::LoDView view{offsets, 3, 5, 4};
    for (const lod::Sequence s : view)
      std::printf("%d:%d-%d=%d ", int(s.index), int(s.begin), int(s.end), int(view[s.index].length()));
    std::puts("");
  }
}
"""


@pytest.mark.skipif(COMPILER is None, reason="no C++ compiler")
def test_a_view_iterates_by_sequence_and_clamps(tmp_path):
    (tmp_path / "view.cpp").write_text(PROGRAM)
    folders = [f"-I{folder}" for folder in [*tl.include_paths(), *torch_include_paths()]]
    status, output = run(COMPILER, "-std=c++20", *folders, "view.cpp", "-o", "view", cwd=tmp_path)
    assert status == 0, output
    assert run(tmp_path / "view", cwd=tmp_path) == (0, "0:0-2=2 1:2-2=0 2:2-5=3 \n0:0-5=5 1:5-5=0 2:3-5=2 \n")


def test_the_page_quotes_the_example():
    sources = [path.read_text() for pattern in ("*.h", "*.c*", "*.py") for path in EXAMPLE.glob(pattern)]
    quotes = re.findall(r"```(?:cpp|py)\n(.*?)```", (ROOT / "docs/own_operator.md").read_text(), re.S)
    assert len(quotes) >= 5
    for quote in quotes:
        assert any(quote in source for source in sources), quote


@pytest.mark.skipif(not (tl.ops.COMPILED and Path("/proc/self/task").exists()), reason="threads are counted in /proc")
def test_kernels_share_work_among_threads():
    """The first kernel that may use a second thread starts it."""
    code = """
import os, torch, torch_lod as tl
torch.set_num_threads(1)
x = tl.from_lengths(torch.ones(40_000, 64), [[40] * 1000])
torch.set_num_threads(2)
before = len(os.listdir("/proc/self/task"))
tl.sequence_softmax(x)
print(len(os.listdir("/proc/self/task")) - before)
"""
    assert int(subprocess.check_output([sys.executable, "-W", "ignore", "-c", code])) == 1
