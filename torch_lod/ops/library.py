# SPDX-License-Identifier: Apache-2.0
"""Loads the compiled operators, or registers the compositions of `composed.py` under the same schemas."""

import os
import warnings
from pathlib import Path

import torch
from torch.autograd import forward_ad

from . import composed

_HOW = "reinstall it against this torch: pip install --no-build-isolation --force-reinstall --no-deps torch_lod"


def _load() -> str | None:
    """Loads the extension; returns why it could not be, or None."""
    if os.environ.get("TORCH_LOD_COMPOSED") == "1":
        return "TORCH_LOD_COMPOSED=1 is set"
    found = sorted(Path(__file__).parent.parent.glob("_C*.so"))
    if not found:
        return "they were not built (a C++ compiler is needed)"
    try:
        torch.ops.load_library(found[0])
    except OSError as error:
        cause = str(error.__cause__ or error).splitlines()[0]
        return f"they were built for another torch than {torch.__version__} ({cause})"
    return None


_missing = _load()
#: Whether the compiled operators are in use.
COMPILED = _missing is None
#: Keeps the registrations alive.
_registrations = composed.register(torch.library.Library("torch_lod", "FRAGMENT" if COMPILED else "DEF"), COMPILED)

if not COMPILED:
    warnings.warn(
        f"torch_lod runs without its compiled operators: {_missing}. Everything works, on a slower pure PyTorch "
        f"implementation. To get them, {_HOW}",
        RuntimeWarning,
        stacklevel=2,
    )

_peek = torch._C._functorch.peek_interpreter_stack
_is_compiling = torch.compiler.is_compiling


def operator(name: str):
    """The operator as a Python function of plain tensors.

    torch.func transforms and forward-mode tangents need rules that a C++ autograd function cannot have: there the
    composition, made of torch operators, takes its place.
    """
    compiled = getattr(torch.ops.torch_lod, name).default
    composition = composed.COMPOSITIONS[name].function

    def call(*args):
        if not _is_compiling() and (_peek() is not None or forward_ad._current_level >= 0):
            return composition(*args)
        return compiled(*args)

    return call
