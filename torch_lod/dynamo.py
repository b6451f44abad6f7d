# SPDX-License-Identifier: Apache-2.0
"""What torch.compile must be told: our class, the sizes that are dynamic, and checks that compiled code can only assert."""

import operator
import sys
from typing import Any

import torch
from torch import Tensor
from torch.fx.experimental.sym_node import DynamicInt

#: Whether Dynamo reads this line. (Transforms and fakes run as Python, as eager code does.)
compiling = torch.compiler.is_dynamo_compiling

_VERSION = tuple(int(part) for part in torch.__version__.split(".")[:2])
#: Under this name Dynamo looks for dynamic dimensions. The newer name adds no guard.
_DYNAMIC_DIMS = "_dynamo_propagated_dynamic_indices" if _VERSION >= (2, 13) else "_dynamo_weak_dynamic_indices"
_FIRST = frozenset({0})


def admit(cls: type) -> None:
    """Makes dim 0 of every tensor of the class dynamic.

    Up to torch 2.14, AOTAutograd refuses operators that are given a Tensor subclass it does not know (pytorch#193932).
    Ours has no __torch_dispatch__, so below the landing it is an ordinary tensor and may be named among those that are
    handled. AOTAutograd keeps a copy of the list: both are told, the copy only where it exists already.
    """
    setattr(cls, _DYNAMIC_DIMS, _FIRST)
    if _VERSION >= (2, 15):
        return
    for name in ("torch.fx.experimental.proxy_tensor", "torch._functorch._aot_autograd.runtime_wrappers"):
        module: Any = sys.modules.get(name)
        if module is not None and cls not in module.HANDLED_TYPES:
            module.HANDLED_TYPES = (*module.HANDLED_TYPES, cls)


_TORCHS = (torch, Tensor, torch.nn.functional)
_PYTHONS = [f"__i{name}__" for name in "add and floordiv lshift mod mul or pow rshift sub truediv xor".split()]
#: Functions that change their first argument and return it: Dynamo takes what they return for another tensor.
IN_PLACE = {getattr(space, n): True for space in _TORCHS for n in dir(space) if n[-1] == "_" and n.strip("_") == n[:-1]}
IN_PLACE |= {getattr(space, name): True for space in (Tensor, operator) for name in _PYTHONS}


def symbols(sizes, tensors) -> tuple[int, ...]:
    """The sizes as dynamic integers; marks dim 0 of `tensors` dynamic.

    torch.compile takes an ordinary int for a constant until it changes, and each change costs another graph.
    """
    for t in tensors:
        setattr(t, _DYNAMIC_DIMS, _FIRST)
    return tuple([int.__new__(DynamicInt, n) for n in sizes])


def whole_number(t: Tensor) -> int:
    """The entry of a tensor in host memory, at least 0: in compiled code a symbol."""
    if not compiling():
        return int(t)
    n: Any = t.item()
    torch._check(n >= 0)
    return n


def failing(wrong: Tensor, said: str) -> list[int]:
    """The position where a check first fails, as a list of one; empty where none does.

    Compiled code cannot raise what depends on data, and for a GPU the host would have to wait: there it is an assertion.
    """
    if compiling() or not wrong.is_cpu:
        torch._assert_async(~wrong.any(), said)
        return []
    return wrong.nonzero().flatten()[:1].tolist()


def holds(condition) -> bool:
    """Whether a condition on sizes holds. Compiled code asserts it where a size depends on data."""
    if not compiling():
        return condition
    from torch.fx.experimental.symbolic_shapes import guard_or_false, guard_or_true

    if guard_or_false(condition):
        return True
    if not guard_or_true(condition):
        return False
    torch._check(condition)
    return True
