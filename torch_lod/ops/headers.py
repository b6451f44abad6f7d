# SPDX-License-Identifier: Apache-2.0
"""What you need to build operators of your own, outside this package."""

from pathlib import Path

from ..errors import LoDRuntimeError


def include_paths() -> list[str]:
    """The folders to search for `<torch_lod/binding.h>` and the other headers, for operators of your own.

    For `include_dirs=` of `torch.utils.cpp_extension`'s CppExtension and CUDAExtension. C++ and CUDA sources need
    `-std=c++20 -O3`. C++ sources also need `-fno-math-errno -fno-trapping-math` to become vector code, and `-DLOD_CUDA`
    if there are CUDA sources too. docs/own_operator.md explains an example.
    """
    package = Path(__file__).parents[1]
    for folder in (package / "include", package.parent / "csrc"):  # an installed package, a source tree
        if (folder / "torch_lod" / "binding.h").is_file():
            return [str(folder)]
    raise LoDRuntimeError(
        f"include_paths: expected the headers of torch_lod in {package / 'include'}, found none; reinstall it from its "
        "checkout: pip install --no-build-isolation --force-reinstall --no-deps ."
    )
