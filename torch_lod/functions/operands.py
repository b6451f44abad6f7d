# SPDX-License-Identifier: Apache-2.0
"""Which operands of a function are broadcast against each other."""

from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor

from .signature import Signature


class Entry(NamedTuple):
    """An operand, and those of its dims that are broadcast; after them it has `core` dims that are not."""

    operand: Tensor | None
    shape: tuple[int, ...]
    core: int = 0


def all_operands(args, kwargs) -> list[Entry]:
    return [Entry(t, tuple(t.shape)) for t in (*args, *kwargs.values()) if isinstance(t, Tensor)]


def operands(text: str, core: int = 0) -> Callable:
    signature = Signature(text)

    def entries(args, kwargs):
        tensors = [t for t in signature.bind(args, kwargs)[: len(signature.names)] if isinstance(t, Tensor)]
        return [Entry(t, tuple(t.shape[: max(t.dim() - core, 0)]), min(core, t.dim())) for t in tensors]

    return entries


def summed(sizes: Callable) -> Callable:
    """The first operand is broadcast to the product of the others."""

    def entries(args, kwargs):
        base, left, right = added(args, kwargs)
        if not all(isinstance(t, Tensor) for t in (base, left, right)) or left.dim() == 0 or right.dim() == 0:
            return []
        return [Entry(base, tuple(base.shape)), Entry(None, tuple(sizes(left.shape, right.shape)))]

    return entries


_LINEAR = Signature("input, weight, bias")


def biased(args, kwargs) -> list[Entry]:
    input, weight, bias = _LINEAR.bind(args, kwargs)
    if not all(isinstance(t, Tensor) for t in (input, weight, bias)) or input.dim() == 0:
        return []
    return [Entry(bias, tuple(bias.shape)), Entry(None, (*input.shape[:-1], *weight.shape[:-1]))]


_ADDED = Signature("input, mat1, mat2")


def added(args, kwargs) -> list:
    """The three operands of addmm and similar functions; torch also takes them with numbers between."""
    return _ADDED.bind(tuple(value for value in args if isinstance(value, Tensor)), kwargs)
