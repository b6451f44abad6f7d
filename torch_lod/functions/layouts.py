# SPDX-License-Identifier: Apache-2.0
"""The layouts of torch's modules: where functions that run instead of torch's take the rows."""

from collections.abc import Callable
from typing import Any

from ..errors import LoDTypeError, LoDValueError, shown
from ..tensor.derived import DerivedTensor, rows_at
from ..tensor.lod_tensor import LoDTensor


def structured(value) -> bool:
    return isinstance(value, (LoDTensor, DerivedTensor))


def only_first(first, **others) -> bool:
    """Whether the input is a LoDTensor; refuses parameters that are."""
    if not structured(first):
        return False
    for name, value in others.items():
        if structured(value):
            raise LoDTypeError(f"expected {name} as a plain tensor, got a LoDTensor; see its .values()")
    return True


def one(what: str, value, least: int) -> int:
    """A number, given as such or as a tuple of one number, the form in which torch's modules keep it."""
    number = value[0] if isinstance(value, (tuple, list)) and len(value) == 1 else value
    if type(number) is not int or not least <= number <= 2**20:
        raise LoDValueError(f"expected {what} in [{least}, {2**20}], got {shown(value)}")
    return number


def at_dim(x, dim: int) -> bool:
    """Whether x has all rows of its LoD at a dim, counted from the right."""
    return (
        isinstance(x, DerivedTensor)
        and x._provenance.dim is not None
        and x._provenance.part is None
        and x._provenance.dim == x.dim() + dim
    )


def rows_last(ours: Callable) -> Callable:
    """`ours`, a function of rows (rows, channels), for rows at the last dim: (channels, rows) or (1, channels, rows)."""

    def run_at_dim(input, *args, **kwargs):
        if any(structured(value) for value in (*args, *kwargs.values())):
            return None
        if not at_dim(input, -1) or any(size != 1 for size in input.shape[:-2]):
            return None
        rows = input.values().reshape(input.shape[-2:]).t().contiguous()
        return _turned_back(ours(LoDTensor(rows, input.lod), *args, **kwargs), input)

    return run_at_dim


def _turned_back(result: Any, input) -> Any:
    if isinstance(result, tuple):
        return tuple(_turned_back(t, input) for t in result)
    if not isinstance(result, LoDTensor):
        return NotImplemented
    values = result.values().t()
    return rows_at(
        values.reshape(*input.shape[:-2], *values.shape), result.lod, input._provenance.dim, input._provenance.call
    )
