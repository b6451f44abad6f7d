# SPDX-License-Identifier: Apache-2.0
"""What `make wheel` (packaging/wheel.py) relies on: an sdist that needs neither network nor git, libraries that need
neither Python nor a new glibc."""

import importlib.util
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import torch_lod as tl

ROOT = Path(__file__).parents[2]
COMPILER = shutil.which(os.environ.get("CXX", "c++").split()[-1])
LIBRARIES = sorted(Path(tl.__file__).parent.glob("_*.so"))


@pytest.fixture(scope="module")
def wheel():
    """packaging/wheel.py."""
    spec = importlib.util.spec_from_file_location("make_wheel", ROOT / "packaging/wheel.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def without_network() -> list[str]:
    """What runs a command in a network of its own, which reaches nothing; [] where that is not permitted."""
    command = ["unshare", "--net", "--map-root-user"]
    try:
        done = subprocess.run([*command, "true"], capture_output=True)
    except OSError:
        return []
    return command if done.returncode == 0 else []


def test_an_sdist_is_built_without_network_and_git(wheel, tmp_path):
    tree = wheel.unpacked_sdist(tmp_path)
    assert (tree / "packaging/wheel.py").is_file() and not list(tree.rglob("*.so")) and not (tree / ".git").exists()
    env = {"PATH": "", "HOME": str(tmp_path), "TORCH_LOD_OPERATORS": "0"}
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-build-isolation", "--no-deps", "-w", tmp_path, tree]
    unshare = [shutil.which(word) or word for word in without_network()[:1]] + without_network()[1:]
    done = subprocess.run([*unshare, *map(str, command)], capture_output=True, text=True, env=env, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    [made] = tmp_path.glob("*.whl")
    with zipfile.ZipFile(made) as archive:
        names = set(archive.namelist())
    assert {"torch_lod/py.typed", "torch_lod/check/__main__.py", "torch_lod/include/torch_lod/binding.h"} <= names


@pytest.mark.skipif(not LIBRARIES, reason="no compiled operators")
def test_libraries_need_nothing_of_python(wheel):
    for library in LIBRARIES:
        assert not [fault for fault in wheel.faults(library) if "Python" in fault], library
    if (kernels := Path(tl.__file__).parent / "_kernels.so") in LIBRARIES:
        assert not [name for name in wheel.symbols(kernels, "undefined") if "3c10" in name or "2at" in name]


NEW = r"""
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <memory>
#include <sstream>

extern "C" __attribute__((visibility("default"))) double tried(double x) {
  std::mutex mutex;
  std::unique_lock lock(mutex);
  std::condition_variable never;
  const auto begin = std::chrono::steady_clock::now();
  const bool woken = never.wait_for(lock, std::chrono::milliseconds(20), [] { return false; });
  const double waited = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  std::ostringstream text;
  text << std::string(60, 'a') << 7;
  if (text.str() != std::string(60, 'a') + "7") return -2;
  const auto shared = std::make_shared<double>(std::exp(x) + std::log(x));
  const auto again = shared;
  return woken || waited < 0.015 || waited > 10 ? -1 : *again;
}
"""


@pytest.mark.skipif(COMPILER is None or sys.platform != "linux", reason="no C++ compiler")
def test_a_library_runs_with_an_old_glibc(wheel, tmp_path):
    (tmp_path / "new.cpp").write_text(NEW)
    build = ["c++", "-std=c++20", "-O2", "-fPIC", "-fvisibility=hidden", "-shared", tmp_path / "new.cpp"]
    subprocess.run(
        ["cc", *wheel.SHIM_FLAGS, "-c", ROOT / "packaging/manylinux.c", "-o", tmp_path / "manylinux.o"], check=True
    )
    subprocess.run([*build, tmp_path / "manylinux.o", "-o", tmp_path / "new.so"], check=True)
    assert wheel.faults(tmp_path / "new.so") == []
    code = "import ctypes, math, sys; f = ctypes.CDLL(sys.argv[1]).tried; f.restype = ctypes.c_double\n"
    code += "f.argtypes = [ctypes.c_double]; assert f(2.0) == math.exp(2.0) + math.log(2.0), f(2.0)"
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "new.so")], check=True)


def test_what_a_wheel_must_not_need_is_named(wheel, tmp_path):
    if COMPILER is None or sys.platform != "linux":
        pytest.skip("no C++ compiler")
    (tmp_path / "bad.cpp").write_text(
        'extern "C" int Py_IsInitialized(); extern "C" int f() { int n = 0;\n#pragma omp parallel\nn += Py_IsInitialized(); return n; }'
    )
    subprocess.run(["c++", "-fopenmp", "-fPIC", "-shared", tmp_path / "bad.cpp", "-o", tmp_path / "bad.so"], check=True)
    assert wheel.faults(tmp_path / "bad.so") == ["needs libgomp.so.1", "needs Py_IsInitialized of Python"]


def test_the_newest_torch_of_a_wheel_is_documented(wheel):
    page = (ROOT / "docs/releasing.md").read_text()
    first, last = (version.rpartition(".")[0] for version in (wheel.TORCH[0], wheel.TORCH[-1]))
    assert f"torch {first} to {last}" in page and f"torch>={first}" in (ROOT / "pyproject.toml").read_text()
