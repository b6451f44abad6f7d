# SPDX-License-Identifier: Apache-2.0
"""Builds the compiled operators against the torch that is installed: pip install --no-build-isolation .

Without a C++ compiler the package is installed without them; it then runs on its pure PyTorch implementation and says so.
TORCH_LOD_OPERATORS=0 does that on purpose. Kernels for GPUs are built where torch and the CUDA toolkit fit (cuda_choice).
"""

import copy
import os
import re
import shlex
import shutil
import subprocess
import sys
import threading
from glob import glob
from pathlib import Path
from typing import NamedTuple

import torch
from setuptools import Extension, setup
from setuptools.command.build_py import build_py
from setuptools.errors import BaseError, CCompilerError
from torch.utils import cpp_extension
from torch.utils.cpp_extension import CUDA_HOME, BuildExtension, CppExtension, CUDAExtension

#: What torch's headers include, and what is linked, of a CUDA toolkit.
HEADERS = ("cuda.h", "cuda_runtime.h", "cuda_fp16.h", "cuda_bf16.h")
LIBRARIES = ("libcudart.so",) if sys.platform == "linux" else ()


class Toolkit(NamedTuple):
    """What there is of CUDA: the version that torch was built with, the folder of the toolkit and the version of its nvcc,
    None for each that there is none of; and the files that the toolkit lacks."""

    torch: str | None
    home: str | None
    nvcc: str | None
    missing: tuple[str, ...]


def found_toolkit() -> Toolkit:
    if not torch.version.cuda or not CUDA_HOME:
        return Toolkit(torch.version.cuda, CUDA_HOME or None, None, ())
    try:
        command = [os.path.join(CUDA_HOME, "bin", "nvcc"), "--version"]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        said = ""
    version = re.search(r"release (\d+\.\d+)", said)
    given = os.pathsep.join(os.environ.get(name, "") for name in ("CPATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH"))
    folders = [*cpp_extension.include_paths("cuda"), *cpp_extension.library_paths("cuda"), "/usr/include"]
    folders += filter(None, given.split(os.pathsep))
    missing = [n for n in (*HEADERS, *LIBRARIES) if not any(os.path.isfile(os.path.join(f, n)) for f in folders)]
    return Toolkit(torch.version.cuda, CUDA_HOME, version and version[1], tuple(missing))


def cuda_choice(asked: str | None, found: Toolkit) -> tuple[bool, str]:
    """Whether to build the kernels for GPUs; and a line that says what is missing for them, "" where nothing is.

    asked: TORCH_LOD_CUDA. "1" builds them whatever is missing, "0" does not; otherwise they are built if nothing is.
    """
    if asked == "0" or (asked != "1" and found.torch is None):
        return False, ""
    remedy = f"install a toolkit of CUDA {(found.torch or '').partition('.')[0]}, and set CUDA_HOME to its folder"
    if found.torch is None:
        why, remedy = "torch was built without CUDA", "install a torch with CUDA"
    elif found.home is None or found.nvcc is None:
        why = f"no nvcc was found{'' if found.home is None else f' in {found.home}/bin'}"
    elif found.missing:
        why = f"{', '.join(found.missing)} not found in the toolkit {found.home}"
    elif found.nvcc.partition(".")[0] != found.torch.partition(".")[0]:
        why = f"nvcc in {found.home} is of CUDA {found.nvcc}, and torch was built with CUDA {found.torch}"
    else:
        return True, ""
    if asked == "1":
        return True, f"torch_lod: {why}: trying to build the kernels for GPUs, since TORCH_LOD_CUDA=1; {remedy}"
    return False, f"torch_lod: {why}: building for the CPU only; for GPUs {remedy}"


def architectures(flags: str) -> str:
    """What torch was compiled for ("sm_80 sm_90 compute_90"), as TORCH_CUDA_ARCH_LIST has it ("8.0;9.0+PTX")."""
    numbers = sorted({int(flag[3:]) for flag in flags.split() if flag.startswith("sm_") and flag[3:].isdigit()})
    return ";".join(f"{n // 10}.{n % 10}" for n in numbers) + "+PTX" * bool(numbers)


with_cuda, cuda_lacks = cuda_choice(os.environ.get("TORCH_LOD_CUDA"), found_toolkit())
# torch takes the architectures of the GPUs in sight, and fails where none is: in a container that is being built
if with_cuda and not torch.cuda.is_available() and not os.environ.get("TORCH_CUDA_ARCH_LIST"):
    os.environ["TORCH_CUDA_ARCH_LIST"] = architectures(torch._C._cuda_getArchFlags()) or "9.0+PTX"
# torch shares work among threads by OpenMP, in code that is compiled here; without the flag everything runs on one
openmp = ["-fopenmp"] if sys.platform == "linux" and torch.backends.openmp.is_available() else []
host = ["-std=c++20", "-fvisibility=hidden", "-g0"]
#: GCC writes out loops of 16 turns before it looks for vectors; kernels have such loops to become vectors.
fast = ["-O3", "-fopenmp-simd", "-fno-math-errno", "-fno-trapping-math", "--param=max-completely-peel-times=8"]
#: A copy that GCC makes a call or narrow stores of is not yet there to be read as a wide vector (AVX2).
fast += ["-fno-tree-loop-distribute-patterns"]
KERNELS = sorted(glob("csrc/kernels/*.cpp") + (glob("csrc/cuda/*.cu") if with_cuda else []))
BINDINGS = sorted(glob("csrc/bindings/*.cpp"))
#: Linux links a library to another that lies beside it; elsewhere everything is one.
apart = sys.platform == "linux"

common = {"include_dirs": [os.path.abspath("csrc")], "define_macros": [("LOD_CUDA", "1")] if with_cuda else []}
#: Knows neither torch nor Python.
kernels = Extension(
    "torch_lod._kernels",
    KERNELS,
    extra_compile_args={"cxx": [*host, *fast], "nvcc": ["-O3", "-std=c++20"]},
    libraries=["cudart"] if with_cuda else [],
    library_dirs=cpp_extension.library_paths("cuda") if with_cuda else [],
    extra_link_args=["-Wl,-soname,_kernels.so", "-Wl,-z,defs", "-Wl,-s"],
    language="c++",
    **copy.deepcopy(common),
)
#: Knows torch, and nothing of Python: torch.ops loads it.
bindings = (CUDAExtension if with_cuda else CppExtension)(
    "torch_lod._C",
    BINDINGS if apart else KERNELS + BINDINGS,
    extra_compile_args={"cxx": [*host, *openmp, *(["-O2"] if apart else fast)], "nvcc": ["-O3", "-std=c++20"]},
    extra_link_args=[*openmp, *(["-l:_kernels.so", "-Wl,-s"] if apart else [])],
    runtime_library_dirs=["$ORIGIN"] if apart else [],
    py_limited_api=True,  # without libtorch_python
    **copy.deepcopy(common),
)
extensions = [kernels, bindings] if apart else [bindings]
#: TORCH_LOD_OPERATORS=0 installs without them.
wanted = os.environ.get("TORCH_LOD_OPERATORS", "1") != "0"
compiler = shutil.which(shlex.split(os.environ.get("CXX") or "c++")[0]) if wanted else None


class Output:
    """What compilers write to file descriptor 1 in its context: it is passed on, and the first failure is remembered."""

    def __enter__(self):
        self.failed, self.error = "", ""
        sys.stdout.flush()
        self.before = os.dup(1)
        read, write = os.pipe()
        os.dup2(write, 1)
        os.close(write)
        self.thread = threading.Thread(target=self.copy, args=(read,))
        self.thread.start()
        return self

    def copy(self, read: int) -> None:
        with open(read, "rb") as lines, open(self.before, "wb", closefd=False) as out:
            for line in lines:
                out.write(line)
                out.flush()
                text = line.decode(errors="replace").strip()
                if not self.failed and text.startswith("FAILED: "):
                    self.failed = text.split()[-1]
                elif self.failed and not self.error and re.search(r"\berror ?[:#]", text, re.I):
                    self.error = text

    def __exit__(self, *error):
        sys.stdout.flush()
        os.dup2(self.before, 1)
        self.thread.join()
        os.close(self.before)


def failure(output: Output, error: Exception, sources: list[str]) -> str:
    """What to say, in a line, where the operators could not be built."""
    source = next((s for s in sources if f"{os.path.splitext(s)[0]}." in output.failed), "")
    what = f"{source or output.failed} does not compile" if output.failed else "the operators were not built"
    said = output.error or next(iter(str(error).splitlines()), "")
    memory = "; MAX_JOBS=1 takes less memory" if "Killed" in said else ""
    cpu = "; TORCH_LOD_CUDA=0 builds for the CPU only" if with_cuda else ""
    lacks = f"{cuda_lacks}\n" if with_cuda and cuda_lacks else ""
    return (
        f"{lacks}torch_lod: {what} ({said}){memory}{cpu}; TORCH_LOD_OPERATORS=0 installs the package without operators"
    )


def precompiled(command: list[str], folder: str) -> list[str]:
    """Flags with which `command`, a call of GCC without files, has read csrc/bindings/torch.h before a source: what it
    makes of torch's headers is kept in `folder`, so that they are parsed once instead of once for each binding. None where
    that fails, as with other compilers: they parse them each time."""
    kept, stamp = (os.path.abspath(os.path.join(folder, name)) for name in ("torch.h", "command"))
    # Sources depend on torch's headers, and do not see their pragmas.
    flags = ["-fpch-deps", "-Wno-sign-compare", "-include", kept]
    made = f"{command} {torch.__version__} {os.stat('csrc/bindings/torch.h').st_mtime_ns}"
    if os.path.isfile(stamp) and Path(stamp).read_text() == made:
        return flags
    os.makedirs(folder, exist_ok=True)
    Path(stamp).unlink(missing_ok=True)  # a build that ends here would leave it beside headers of another command
    Path(kept).write_text('#include "bindings/torch.h"\n')
    if subprocess.run([*command, "-w", "-fpch-deps", "-x", "c++-header", kept, "-o", f"{kept}.gch"]).returncode:
        Path(f"{kept}.gch").unlink(missing_ok=True)
        return []
    Path(stamp).write_text(made)
    return flags


class BuildOperators(BuildExtension.with_options(no_python_abi_suffix=True)):
    """Keeps the objects in the tree, where ninja finds them the next time: pip would build in a new folder."""

    def build_extension(self, ext):
        self.build_temp = os.path.join("build/temp", ext.name.rpartition(".")[2])  # ninja's logs are one extension's
        if ext is bindings and apart:
            ext.library_dirs.insert(0, os.path.dirname(self.get_ext_fullpath(kernels.name)))
            defined = [f"-D{name}={value}" for name, value in ext.define_macros]
            folders = [f"-I{folder}" for folder in ext.include_dirs + self.include_dirs]
            flags = ext.extra_compile_args["cxx"]
            gcc = [*shlex.split(os.environ.get("CXX") or "c++"), *self.compiler.compiler_so[1:]]
            flags += precompiled([*gcc, *defined, *folders, *flags], os.path.join(self.build_temp, "precompiled"))
        super().build_extension(ext)

    def run(self):
        with Output() as output:
            try:
                super().run()
                return
            except (RuntimeError, BaseError, CCompilerError) as raised:
                error = raised
        raise SystemExit(failure(output, error, KERNELS + BINDINGS))


class BuildPackage(build_py):
    """Puts the headers into the package that is installed; a source tree has them in csrc (torch_lod.include_paths)."""

    def run(self):
        super().run()
        if not self.editable_mode:
            self.copy_tree("csrc/torch_lod", os.path.join(self.build_lib, "torch_lod/include/torch_lod"))


if __name__ == "__main__":
    if cuda_lacks:
        print(cuda_lacks, file=sys.stderr)
    if wanted and compiler is None:
        print("torch_lod: no C++ compiler was found (c++, or $CXX); installing without the operators", file=sys.stderr)
    setup(
        ext_modules=extensions if compiler else [],
        cmdclass={"build_ext": BuildOperators, "build_py": BuildPackage},
    )
