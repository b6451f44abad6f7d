# SPDX-License-Identifier: Apache-2.0
"""What setup.py builds: for GPUs only where torch and the CUDA toolkit fit, and one line where something is missing or fails."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def script():
    """setup.py as a module: it sets up only what is run."""
    spec = importlib.util.spec_from_file_location("setup_of_torch_lod", ROOT / "setup.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


HOME = "/opt/cuda"
CPU = ": building for the CPU only; for GPUs install a toolkit of CUDA 13, and set CUDA_HOME to its folder"
ANYWAY = (
    ": trying to build the kernels for GPUs, since TORCH_LOD_CUDA=1; install a toolkit of CUDA 13, and set CUDA_HOME"
)
#: TORCH_LOD_CUDA; torch's CUDA, the toolkit's folder, nvcc's version, missing files; whether for GPUs, and what is said.
CHOICES = {
    "torch without CUDA": (None, (None, HOME, None, ()), False, ""),
    "all that is needed": (None, ("13.0", HOME, "13.0", ()), True, ""),
    "another minor version": (None, ("13.0", HOME, "13.2", ()), True, ""),
    "no toolkit": (None, ("13.0", None, None, ()), False, f"torch_lod: no nvcc was found{CPU}"),
    "a folder without nvcc": (
        None,
        ("13.0", HOME, None, ()),
        False,
        f"torch_lod: no nvcc was found in {HOME}/bin{CPU}",
    ),
    "nvcc without headers": (
        None,
        ("13.0", "/usr/local", "13.0", ("cuda_runtime.h", "libcudart.so")),
        False,
        f"torch_lod: cuda_runtime.h, libcudart.so not found in the toolkit /usr/local{CPU}",
    ),
    "another version": (
        None,
        ("13.0", HOME, "12.8", ()),
        False,
        f"torch_lod: nvcc in {HOME} is of CUDA 12.8, and torch was built with CUDA 13.0{CPU}",
    ),
    "switched off": ("0", ("13.0", HOME, "13.0", ()), False, ""),
    "switched off, torch without CUDA": ("0", (None, None, None, ()), False, ""),
    "insisted, nothing missing": ("1", ("13.0", HOME, "13.0", ()), True, ""),
    "insisted, headers missing": (
        "1",
        ("13.0", HOME, "13.0", ("cuda.h",)),
        True,
        f"torch_lod: cuda.h not found in the toolkit {HOME}{ANYWAY}",
    ),
    "insisted, torch without CUDA": (
        "1",
        (None, HOME, None, ()),
        True,
        "torch_lod: torch was built without CUDA: trying to build the kernels for GPUs, since TORCH_LOD_CUDA=1; install a torch",
    ),
}


@pytest.mark.parametrize("name", CHOICES)
def test_what_is_built(script, name):
    asked, found, cuda, said = CHOICES[name]
    chosen, line = script.cuda_choice(asked, script.Toolkit(*found))
    assert chosen is cuda and "\n" not in line
    assert line.startswith(said) if said else line == ""


def toolkit(folder: Path, version: str, files=()) -> str:
    for name in ("bin/nvcc", *files):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\necho Cuda compilation tools, release {version}, V{version}.88\n")
        path.chmod(0o755)
    return str(folder)


WHOLE = ("include/cuda.h", "include/cuda_runtime.h", "include/cuda_fp16.h", "include/cuda_bf16.h", "lib64/libcudart.so")


@pytest.mark.parametrize("files", [WHOLE, WHOLE[:1], ()], ids=["whole", "no runtime", "nvcc alone"])
def test_what_is_looked_at(script, files, tmp_path, monkeypatch):
    home = toolkit(tmp_path, "13.0", files)
    for name in ("CPATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH", "CUDA_INC_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(script.torch.version, "cuda", "13.0")
    monkeypatch.setattr(script, "CUDA_HOME", home)
    monkeypatch.setattr(script.cpp_extension, "CUDA_HOME", home)
    missing = tuple(Path(name).name for name in WHOLE if name not in files)
    assert script.found_toolkit() == script.Toolkit("13.0", home, "13.0", missing)
    monkeypatch.setenv("CPATH", os.path.join(home, "elsewhere"))
    toolkit(tmp_path, "13.0", [name.replace("include", "elsewhere") for name in WHOLE[:4]])
    assert not {name for name in script.found_toolkit().missing if name.endswith(".h")}
    monkeypatch.setattr(script, "CUDA_HOME", str(tmp_path / "none"))
    monkeypatch.setattr(script.cpp_extension, "CUDA_HOME", str(tmp_path / "none"))
    assert script.found_toolkit().nvcc is None


NINJA = """[1/2] c++ -c {root}/csrc/kernels/chain.cpp
FAILED: [code=1] /there/build/temp/_C/csrc/bindings/segment.o
c++ -Werror=none -c {root}/csrc/bindings/segment.cpp -o segment.o
csrc/bindings/segment.cpp:5:10: fatal error: cuda_runtime.h: No such file or directory
csrc/bindings/segment.cpp:6:10: error: another
FAILED: [code=1] /there/build/temp/_kernels/csrc/kernels/scan.o
"""
FAILURES = {
    "a header": (
        NINJA,
        "csrc/bindings/segment.cpp does not compile (csrc/bindings/segment.cpp:5:10: fatal error: cuda_runtime.h",
    ),
    "memory": (
        "FAILED: csrc/kernels/scan.o\nc++: fatal error: Killed signal terminated program cc1plus\n",
        "csrc/kernels/scan.cpp does not compile (c++: fatal error: Killed signal terminated program cc1plus); MAX_JOBS=1 takes less",
    ),
    "a kernel": ("FAILED: csrc/cuda/scan.cuda.o\nError: no\n", "csrc/cuda/scan.cu does not compile (Error: no)"),
    "the linker": ("[9/9] linking\n", "the operators were not built (command c++ failed)"),
}


@pytest.mark.parametrize("name", FAILURES)
def test_a_failure_in_a_line(script, name, capfd):
    text, said = FAILURES[name]
    with script.Output() as output:
        os.write(1, text.encode())
    sources = ["csrc/kernels/scan.cpp", "csrc/kernels/segment.cpp", "csrc/cuda/scan.cu", "csrc/bindings/segment.cpp"]
    line = script.failure(output, RuntimeError("command c++ failed\nmore"), sources)
    assert line.startswith(f"torch_lod: {said}") and "\n" not in line
    assert line.endswith("; TORCH_LOD_OPERATORS=0 installs the package without operators")
    assert capfd.readouterr().out == text


BROKEN = '#!/bin/sh\ncase "$*" in *-c*) echo \'x.cpp:1:1: error: no such thing\'; exit 1;; esac\nexec c++ "$@"\n'


def run_setup(tmp_path, *commands, **env):
    command = [sys.executable, str(ROOT / "setup.py"), "-q", *commands]
    # a checkout of the sources alone, where nothing is built yet
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE", "csrc", "torch_lod"):
        if not (tmp_path / name).exists():
            (tmp_path / name).symlink_to(ROOT / name)
    env["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])  # ninja
    return subprocess.run(command, cwd=tmp_path, env={**os.environ, **env}, capture_output=True, text=True, check=False)


def test_a_compiler_that_fails(tmp_path):
    compiler = tmp_path / "broken"
    compiler.write_text(BROKEN)
    compiler.chmod(0o755)
    done = run_setup(
        tmp_path, "build_ext", "--build-lib", str(tmp_path / "site"), CXX=str(compiler), TORCH_LOD_CUDA="0"
    )
    last = done.stderr.strip().splitlines()[-1]
    assert done.returncode == 1 and last.startswith("torch_lod: csrc/") and "Traceback" not in done.stderr
    assert ".cpp does not compile (x.cpp:1:1: error: no such thing); TORCH_LOD_OPERATORS=0 installs" in last


def test_an_installation_without_operators(tmp_path):
    done = run_setup(tmp_path, "build", "--build-base", str(tmp_path / "made"), TORCH_LOD_OPERATORS="0")
    assert done.returncode == 0 and "compiler" not in done.stderr, done.stderr
    made = {path.name for path in (tmp_path / "made").rglob("*") if path.is_file()}
    assert "lod_tensor.py" in made and not [name for name in made if name.endswith((".so", ".o"))]
