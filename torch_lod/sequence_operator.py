# SPDX-License-Identifier: Apache-2.0
"""What sequence operators do first: ask for LoDTensors, find the level, check numbers."""

import functools

import torch
from torch import Tensor

from .errors import LoDTypeError, LoDValueError
from .tensor import LoDTensor, _a_lod_tensor, plainly


def plain(function):
    """Runs an operator below the policy table: LoDTensors pass for plain tensors there, and cost as little."""

    @functools.wraps(function)
    def call(*args, **kwargs):
        with plainly():
            return function(*args, **kwargs)

    return call


def level_of(call: str, x, level: int | str, what: str = "x") -> int:
    """The level's number; TypeError for a plain tensor, which has none."""
    return _a_lod_tensor(call, what, x)._lod.level(level, call)


def number(call: str, what: str, value) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise LoDTypeError(f"{call}: expected {what} as a number, got {value!r:.60}")


def probability(call: str, what: str, value) -> None:
    number(call, what, value)
    if not 0 <= value <= 1:
        raise LoDValueError(f"{call}: expected {what} in [0, 1], got {value}")


def a_float(call: str, x: Tensor) -> None:
    if not x.is_floating_point():
        raise LoDTypeError(f"{call}: expected x of a floating dtype, got {x.dtype}")


def in_autocast(t: Tensor) -> Tensor:
    """A factor of a product in the dtype that autocast has products in."""
    kind = t.device.type
    if torch.is_autocast_enabled(kind) and t.is_floating_point() and t.dtype != torch.float64:
        return t.to(torch.get_autocast_dtype(kind))
    return t


def as_autocast(t: Tensor, x: Tensor) -> Tensor:
    """What is combined with x in the dtype of x, where autocast lets dtypes differ."""
    if t.dtype != x.dtype and t.is_floating_point() and torch.is_autocast_enabled(x.device.type):
        return t.to(x.dtype)
    return t


def on_rows(t: Tensor, like: Tensor) -> Tensor:
    """A vector over rows, shaped to be combined with the rows of `like`."""
    return t.view(-1, *[1] * (like.dim() - 1))


def one_column(call: str, what: str, x: LoDTensor) -> Tensor:
    """Whole numbers, one per row: (rows,) or (rows, 1)."""
    values = _a_lod_tensor(call, what, x).values()
    if values.is_floating_point() or values.is_complex() or values.dtype == torch.bool:
        raise LoDTypeError(f"{call}: expected {what} of an integer dtype, got {values.dtype}")
    if values.dim() > 2 or (values.dim() == 2 and values.shape[1] != 1):
        raise LoDValueError(f"{call}: expected {what} of shape (rows,) or (rows, 1), got {tuple(values.shape)}")
    return values.reshape(-1)
