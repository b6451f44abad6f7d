# SPDX-License-Identifier: Apache-2.0
"""Public names of before: they go on working, and a DeprecationWarning says the new one. `RENAMED` has all of them."""

import importlib
import sys
import types
import warnings
from collections.abc import Callable
from typing import Any

#: By the module or the class that has the name.
RENAMED = {
    "torch_lod.testing.alone": "torch_lod.testing.batch_of_one",
    "torch_lod.testing.laid_out": "torch_lod.testing.to_layout",
    "LoD.named": "LoD.with_level_names",
    "RankTable.alive": "RankTable.active",
    "torch_lod.moved_rows.MovedRows": "torch_lod.DerivedTensor",
}
#: Modules of before, which pickles and imports name.
MOVED = {
    "torch_lod.construct": "torch_lod.tensor.construct",
    "torch_lod.declared": "torch_lod.tensor.declared",
    "torch_lod.devices": "torch_lod.structure.devices",
    "torch_lod.explained": "torch_lod.tensor.explained",
    "torch_lod.lod": "torch_lod.structure.lod",
    "torch_lod.moved_rows": "torch_lod.tensor.derived",
    "torch_lod.porting": "torch_lod.tensor.porting",
    "torch_lod.printing": "torch_lod.tensor.printing",
}


def warn(old: str, new: str) -> None:
    """Of the line that called the caller."""
    warnings.warn(f"{old} is deprecated; write {new}", DeprecationWarning, stacklevel=3)


def attributes(module: str) -> Callable[[str], Any]:
    """`__getattr__` for a module of which functions were renamed."""

    def renamed(name: str) -> Any:
        new = RENAMED.get(f"{module}.{name}")
        if new is None:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        warn(f"{module}.{name}", new)
        return getattr(sys.modules[module], new.rpartition(".")[2])

    return renamed


def _method(old: str, new: str) -> Callable:
    def renamed(self: Any, *args: Any, **kwargs: Any) -> Any:
        warn(old, new)
        return getattr(self, new.rpartition(".")[2])(*args, **kwargs)

    return renamed


class _Moved(types.ModuleType):
    """A module of before; its names are looked up where they are now."""

    def __getattr__(self, name: str) -> Any:
        if name[:2] == "__":  # what tools ask every module for
            raise AttributeError(name)
        old = f"{self.__name__}.{name}"
        module, _, name = RENAMED.get(old, f"{MOVED[self.__name__]}.{name}").rpartition(".")
        value = getattr(importlib.import_module(module), name)
        warn(old, f"{module}.{name}")
        return value


def keep(*classes: type) -> None:
    """Gives classes their methods of before, and the package its modules: `import torch_lod.lod`, and pickles that name it."""
    for cls in classes:
        for old, new in RENAMED.items():
            owner, _, name = old.rpartition(".")
            if owner == cls.__name__:
                setattr(cls, name, _method(old, new))
    package = sys.modules[__package__ or "torch_lod"]
    for old in MOVED:
        sys.modules[old] = module = _Moved(old)
        module.__file__ = __file__
        if old.rpartition(".")[2] not in vars(package):
            setattr(package, old.rpartition(".")[2], module)
