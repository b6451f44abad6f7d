# SPDX-License-Identifier: Apache-2.0
"""Builds the operator against the torch and the torch_lod that are installed: pip install --no-build-isolation ."""

import os
import shutil
import sys

import torch
from setuptools import setup
from torch.utils.cpp_extension import CUDA_HOME, BuildExtension, CppExtension, CUDAExtension

import torch_lod as tl

if shutil.which(os.environ.get("CXX", "c++")) is None:
    sys.exit("own_operator: expected a C++ compiler (c++, or $CXX), found none")
with_cuda = os.environ.get("TORCH_LOD_CUDA", "1" if torch.version.cuda and CUDA_HOME else "0") == "1"
# torch shares work among threads by OpenMP, in code that is compiled here; without the flag everything runs on one
openmp = ["-fopenmp"] if sys.platform == "linux" and torch.backends.openmp.is_available() else []

extension = (CUDAExtension if with_cuda else CppExtension)(
    "_own_operator",
    ["segment_norm.cpp"] + (["segment_norm_cuda.cu"] if with_cuda else []),
    include_dirs=[os.path.dirname(os.path.abspath(__file__)), *tl.include_paths()],
    define_macros=[("LOD_CUDA", "1")] if with_cuda else [],
    extra_compile_args={
        "cxx": [
            *openmp,
            "-fopenmp-simd",
            "-O3",
            "-std=c++20",
            "-fvisibility=hidden",
            "-fno-math-errno",
            "-fno-trapping-math",
            "-g0",
        ],
        "nvcc": ["-O3", "-std=c++20"],
    },
    extra_link_args=openmp,
)

setup(
    name="own_operator",
    version="1.0",
    py_modules=["own_operator"],
    ext_modules=[extension],
    cmdclass={"build_ext": BuildExtension.with_options(no_python_abi_suffix=True)},
)
