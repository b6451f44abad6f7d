# SPDX-License-Identifier: Apache-2.0
"""Attributes and protocols of tensors for which torch does not call __torch_function__, or which Dynamo traces otherwise."""

import functools
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..dynamo import compiling
from ..errors import LoDTypeError, LoDValueError, named, own_code, without_dispatch
from ..structure.validate import unmasked
from .table import ROWS

_NONE: dict = {}

#: Python's operators by the names of numpy's functions, which numpy calls for them.
_OPERATORS = {
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "divide": operator.truediv,
    "true_divide": operator.truediv,
    "floor_divide": operator.floordiv,
    "remainder": operator.mod,
    "power": operator.pow,
    "matmul": operator.matmul,
    "bitwise_and": operator.and_,
    "bitwise_or": operator.or_,
    "bitwise_xor": operator.xor,
    "left_shift": operator.lshift,
    "right_shift": operator.rshift,
    "less": operator.lt,
    "less_equal": operator.le,
    "greater": operator.gt,
    "greater_equal": operator.ge,
    "equal": operator.eq,
    "not_equal": operator.ne,
}


def array_ufunc(self, ufunc, method, *inputs, **kwargs):
    """What numpy asks for where one of its functions meets rows. An operator is torch's, on the array as a tensor: torch
    leaves it to numpy, which would give a plain tensor. Other functions take the rows as they take a plain tensor."""
    operation = _OPERATORS.get(ufunc.__name__) if method == "__call__" and not kwargs else None
    if operation is not None:
        return operation(*map(_of_numpy, inputs))
    written = [t for t in (kwargs.get("out") or ()) if isinstance(t, Tensor)]
    if written:
        call = f"numpy.{ufunc.__name__}"
        raise named(
            LoDTypeError(
                f"expected out as an array, got a {type(written[0]).__name__}: numpy writes into x.values().numpy(), "
                f"torch's functions in place (x.add_(1)) into x"
            ),
            call,
        )
    plain = {name: _plain(value) for name, value in kwargs.items()}
    with without_dispatch():
        return getattr(ufunc, method)(*map(_plain, inputs), **plain)


def _of_numpy(item):
    if isinstance(item, np.generic):
        return item.item()
    return torch.from_numpy(np.array(unmasked("an operand", item))) if isinstance(item, np.ndarray) else item


def _plain(item):
    return item.as_subclass(Tensor) if isinstance(item, Tensor) else item


def _reversed(self) -> Tensor:
    """The dims in reverse."""  # by functions: Dynamo does not take what an attribute of a tensor gives
    return torch.t(self) if self.dim() <= 2 else torch.permute(self, tuple(range(self.dim() - 1, -1, -1)))


def _settable(read: Callable, name: str) -> Any:
    """An attribute whose assignment writes rows; torch does not call __torch_function__ for it."""

    def write(self, value) -> None:
        ROWS[Tensor.copy_].rule(Tensor.copy_, (self, value), _NONE)  # type: ignore[misc]
        getattr(Tensor, name).__set__(self, value)

    return property(lambda self: read(self), write)


def _method(name: str) -> Any:
    """A method that torch has in Python: in a graph the function of that name."""
    eager, traced = getattr(Tensor, name), getattr(torch, name)

    def method(self, *args, **kwargs):
        return traced(self, *args, **kwargs) if compiling() else eager(self, *args, **kwargs)

    return functools.wraps(eager)(own_code(method, name))


_H: Any = Tensor.H
_DATA: Any = Tensor.data


class Traced:
    """Attributes and methods of tensors as functions of torch: torch.compile traces these only as functions."""

    T: Any = property(_reversed)
    H: Any = property(lambda self: torch.adjoint(self) if self.dim() == 2 else _H.__get__(self))
    mT: Any = property(lambda self: torch.transpose(self, -2, -1))
    mH: Any = property(lambda self: torch.adjoint(self))
    real = _settable(torch.real, "real")
    imag = _settable(torch.imag, "imag")
    data: Any = property(
        lambda self: torch.detach(self) if compiling() else _DATA.__get__(self),
        lambda self, value: _DATA.__set__(self, value),
    )

    norm, unique, unique_consecutive, unflatten = map(_method, "norm unique unique_consecutive unflatten".split())

    def split(self, split_size, dim=0):
        return Tensor.split(self, split_size, dim)


class Missing:
    """The provenance that a tensor of a class lacks where as_subclass made it, or compiled code took it out of a LoDTensor."""

    def __init__(self, way_out: str):
        self.way_out = way_out

    def __get__(self, x, owner):
        if x is None or compiling():
            raise AttributeError("_provenance")
        said = (
            f"expected a {owner.__name__} that has a structure, got one without, as as_subclass makes it, and compiled code "
            f"returns of list(x); see {self.way_out}, and x.unbind(0)"
        )
        raise named(LoDValueError(said), owner.__name__)  # Python's operators would hide a TypeError
