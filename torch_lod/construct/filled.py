# SPDX-License-Identifier: Apache-2.0
"""LoDTensors of a structure, filled with one value or at random."""

import math

import torch

from ..dynamo import compiling
from ..errors import LoDTypeError, LoDValueError, public
from ..structure.lod import LoD
from ..structure.validate import whole
from ..tensor.lod_tensor import LoDTensor

__all__ = ["empty", "full", "ones", "rand", "randn", "zeros"]


def _shape_of(lod: LoD, element: tuple) -> tuple[int, ...]:
    if not isinstance(lod, LoD):
        raise LoDTypeError(f"expected a LoD, got {type(lod).__name__}; see tl.LoD.from_lengths")
    if compiling():
        return lod.rows, *element
    shape = (lod.rows, *(whole(f"element[{i}]", size) for i, size in enumerate(element)))
    if min(shape) < 0 or math.prod(size or 1 for size in shape) >= 2**63:
        raise LoDValueError(f"expected sizes >= 0 of less than 2**63 numbers in all, got {shape[1:]!r:.80}")
    return shape


def _filled(make, doc: str):
    def fill(lod: LoD, *element: int, **kwargs) -> LoDTensor:
        return LoDTensor(make(_shape_of(lod, element), **kwargs), lod)

    fill.__name__ = fill.__qualname__ = make.__name__
    fill.__doc__ = f"{doc} rows of shape `element` for every row of `lod`; keyword arguments as torch.{make.__name__}."
    return public(fill)


zeros, ones, empty = _filled(torch.zeros, "Zero"), _filled(torch.ones, "One"), _filled(torch.empty, "Uninitialised")
rand, randn = _filled(torch.rand, "Uniform random"), _filled(torch.randn, "Normal random")


@public
def full(lod: LoD, *element: int, fill_value, **kwargs) -> LoDTensor:
    """A LoDTensor with the structure `lod`, whose rows of shape `element` are filled with one value; keyword arguments
    as torch.full."""
    return LoDTensor(torch.full(_shape_of(lod, element), fill_value, **kwargs), lod)
