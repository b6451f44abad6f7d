# SPDX-License-Identifier: Apache-2.0
"""Who else holds the memory of a tensor. What is computed must not depend on it, only whether a copy is made."""

import sys

import torch
from torch import Tensor


def users(t: Tensor) -> int:
    """How often the memory of a tensor is used."""
    return torch._C._storage_Use_Count(t.untyped_storage()._cdata)


def _references(view: Tensor) -> int:
    """Python's references to what it is a view of."""
    return sys.getrefcount(view._base)


#: Of a tensor that nothing else shares memory with, and of a view whose base has no other name.
ONCE, _NAMELESS = users(torch.zeros(1)), _references(torch.zeros(2)[:1])


def held_elsewhere(view: Tensor, views: list) -> bool:
    """Whether the memory of a view is held by anything but `views`, of which it is one (None is skipped), and what they are views
    of: by an attribute of a module, a variable of a closure, an array. Of a tensor that Python has no other name for."""
    try:
        storage, tensors = view.untyped_storage(), set()
        for other in views:
            if other is None or other.untyped_storage()._cdata != storage._cdata:
                continue
            if other._base is not None and _references(other) > _NAMELESS:
                return True
            tensors |= {other._cdata, (other if other._base is None else other._base)._cdata}
        return users(view) - ONCE + 1 > len(tensors) or not storage.resizable()
    except (NotImplementedError, RuntimeError):  # sparse, or of a transform, which has no memory of its own
        return False
