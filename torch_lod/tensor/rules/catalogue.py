# SPDX-License-Identifier: Apache-2.0
"""What the table has to classify: every public function that torch shows to a subclass, by name."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

_SPACES = {
    "torch": torch,
    "torch.Tensor": Tensor,
    "torch.nn.functional": F,
    "torch.special": torch.special,
    "torch.linalg": torch.linalg,
    "torch.fft": torch.fft,
}


def functions() -> dict[Callable, str]:
    """The functions that torch.overrides lists, and those that torch shows to a subclass although they are not listed
    there: in-place forms, methods."""
    overridable = {func for funcs in torch.overrides.get_overridable_functions().values() for func in funcs}
    ignored = torch.overrides.get_ignored_functions()
    found: dict[Callable, str] = {}
    for prefix, space in _SPACES.items():
        for name in dir(space):
            func: Any = getattr(space, name, None)
            if isinstance(func, type) or not callable(func):
                func = getattr(func, "__get__", None)  # an attribute of tensors
            public = not name.startswith("_") and isinstance(func, _SHOWN) and func not in ignored
            if public or func in overridable:
                found.setdefault(func, f"{prefix}.{name}")
    return found


#: The types of functions and methods written in C++, which call __torch_function__ themselves.
_SHOWN = (type(torch.add), type(Tensor.add))
