# SPDX-License-Identifier: Apache-2.0
"""Builds the compiled operators against the torch that is installed: pip install --no-build-isolation .

Without a C++ compiler the package is installed without them; it then runs on its pure PyTorch implementation and says so.
"""

import os
import shutil
import sys
from glob import glob

import torch
from setuptools import setup
from setuptools.command.build_py import build_py
from torch.utils.cpp_extension import CUDA_HOME, BuildExtension, CppExtension, CUDAExtension

with_cuda = os.environ.get("TORCH_LOD_CUDA", "1" if torch.version.cuda and CUDA_HOME else "0") == "1"


def architectures(flags: str) -> str:
    """What torch was compiled for ("sm_80 sm_90 compute_90"), as TORCH_CUDA_ARCH_LIST has it ("8.0;9.0+PTX")."""
    numbers = sorted({int(flag[3:]) for flag in flags.split() if flag.startswith("sm_") and flag[3:].isdigit()})
    return ";".join(f"{n // 10}.{n % 10}" for n in numbers) + "+PTX" * bool(numbers)


# torch takes the architectures of the GPUs in sight, and fails where none is: in a container that is being built
if with_cuda and not torch.cuda.is_available() and not os.environ.get("TORCH_CUDA_ARCH_LIST"):
    os.environ["TORCH_CUDA_ARCH_LIST"] = architectures(torch._C._cuda_getArchFlags()) or "9.0+PTX"
# torch shares work among threads by OpenMP, in code that is compiled here; without the flag everything runs on one
openmp = ["-fopenmp"] if sys.platform == "linux" and torch.backends.openmp.is_available() else []
host = [*openmp, "-O3", "-std=c++20", "-fvisibility=hidden", "-fno-math-errno", "-fno-trapping-math", "-g0"]
# GCC writes out loops of 16 turns before it looks for vectors; kernels have such loops to become vectors
host.append("--param=max-completely-peel-times=8")

extension = (CUDAExtension if with_cuda else CppExtension)(
    "torch_lod._C",
    sorted(glob("csrc/*.cpp") + (glob("csrc/cuda/*.cu") if with_cuda else [])),
    include_dirs=[os.path.abspath("csrc")],
    define_macros=[("LOD_CUDA", "1")] if with_cuda else [],
    extra_compile_args={"cxx": host, "nvcc": ["-O3", "-std=c++20"]},
    extra_link_args=openmp,
)
compiler = shutil.which(os.environ.get("CXX", "c++"))
if compiler is None:
    print("torch_lod: no C++ compiler was found (c++, or $CXX); installing without the operators", file=sys.stderr)


class BuildOperators(BuildExtension.with_options(no_python_abi_suffix=True)):
    """Keeps the objects in the tree, where ninja finds them the next time: pip would build in a new folder."""

    def finalize_options(self):
        super().finalize_options()
        self.build_temp = "build/temp"


class BuildPackage(build_py):
    """Puts the headers into the package that is installed; a source tree has them in csrc (torch_lod.include_paths)."""

    def run(self):
        super().run()
        if not self.editable_mode:
            self.copy_tree("csrc/torch_lod", os.path.join(self.build_lib, "torch_lod/include/torch_lod"))


setup(
    ext_modules=[extension] if compiler else [],
    cmdclass={"build_ext": BuildOperators, "build_py": BuildPackage},
)
