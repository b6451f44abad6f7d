# SPDX-License-Identifier: Apache-2.0
"""Nested sequences of any length for PyTorch, without padding."""

from .requirements import steps_aside as _steps_aside

if not _steps_aside():
    import importlib.metadata as _metadata
    from typing import TYPE_CHECKING

    from .requirements import check as _check_requirements

    _check_requirements()

    from torch import empty_like as empty_like
    from torch import full_like as full_like
    from torch import ones_like as ones_like
    from torch import rand_like as rand_like
    from torch import randn_like as randn_like
    from torch import zeros_like as zeros_like

    from . import construct, sequence
    from . import data as data
    from . import distributed as distributed
    from . import functions as functions
    from . import integrations as integrations
    from . import nn as nn
    from . import ops as ops
    from . import paddle as paddle
    from . import patches as patches
    from .construct import *
    from .data.batch import *
    from .errors import LoDError as LoDError
    from .functions.strict import explain as explain
    from .functions.strict import strict as strict
    from .ops.headers import include_paths as include_paths
    from .sequence import *
    from .structure.devices import check_errors as check_errors
    from .structure.lod import LoD as LoD
    from .tensor.derived import DerivedTensor as DerivedTensor
    from .tensor.lod_tensor import LoDTensor as LoDTensor
    from .tensor.printing import describe as describe

    try:
        __version__ = _metadata.version("torch_lod")
    except _metadata.PackageNotFoundError:  # used from a source tree
        __version__ = "0+source"

    if TYPE_CHECKING:
        from .paddle import *
    else:  # as in torch_lod.sequence
        __all__ = [
            "DerivedTensor",
            "LoD",
            "LoDError",
            "LoDTensor",
            "check_errors",
            "data",
            "describe",
            "distributed",
            "explain",
            "include_paths",
            "integrations",
            "nn",
            "ops",
            "paddle",
        ]
        __all__ += ["strict", "batch", *construct.__all__, *sequence.__all__]

        def __getattr__(name: str):
            """Paddle's names are reachable, but not in __all__."""
            if name[:1] != "_" and name in paddle.__all__:
                globals().update({name: getattr(paddle, name) for name in paddle.__all__})
                return globals()[name]
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

        def __dir__() -> list[str]:
            return sorted([*__all__, *(name for name in globals() if name[:2] == "__")])
