# SPDX-License-Identifier: Apache-2.0
"""Fluid's ways to make a LoDTensor."""

import math

import numpy as np
import torch

from ..construct.rows import tensor_of
from ..errors import LoDTypeError, LoDValueError, constructor, shown
from ..structure.lod import LoD
from ..structure.validate import host_integers, whole
from ..tensor.lod_tensor import LoDTensor

__all__ = ["create_lod_tensor", "create_random_int_lodtensor"]


@constructor
def create_lod_tensor(data, recursive_seq_lens, device=None) -> LoDTensor:
    """As Paddle's: from an array or tensor of rows, or from a list of sequences (then rows get a trailing dim of 1 and the
    dtype that numpy would choose)."""
    lod = LoD.parsed_lengths("recursive_seq_lens", recursive_seq_lens, None)
    if isinstance(data, (list, tuple)):
        if not all(isinstance(item, (list, tuple)) for item in data):
            raise LoDTypeError("expected data as a list of sequences, got a flat list")
        lengths = [len(item) for item in data]
        if lod.to_lengths() != [lengths]:
            raise LoDValueError(f"expected recursive_seq_lens [{lengths}] for this list, got {recursive_seq_lens}")
        try:
            data = np.array([[item] for sequence in data for item in sequence]).reshape(-1, 1)
        except ValueError as error:
            raise LoDValueError(f"expected data as a list of sequences of numbers: {error!s:.120}") from None
    values = tensor_of("data", data.copy() if isinstance(data, np.ndarray) else data, " or a list of sequences")
    return LoDTensor(values.to(_device(device)), lod)


@constructor
def create_random_int_lodtensor(recursive_seq_lens, base_shape, low: int, high: int, device=None) -> LoDTensor:
    """Random int64 rows of shape `base_shape` between `low` and `high`, both included, as Paddle's."""
    lod = LoD.parsed_lengths("recursive_seq_lens", recursive_seq_lens, None)
    shape = [lod.rows, *host_integers("base_shape", base_shape).tolist()]
    low, high = whole("low", low), whole("high", high)
    if not -(2**63) <= low <= high < 2**63 - 1:
        raise LoDValueError(f"expected low <= high, from -2**63 to 2**63 - 2, got {shown(low)} and {shown(high)}")
    if min(shape) < 0 or math.prod(size or 1 for size in shape) >= 2**63:
        raise LoDValueError(
            f"expected base_shape of sizes >= 0, of less than 2**63 numbers in all, got {shown(shape[1:])}"
        )
    return LoDTensor(torch.randint(low, high + 1, shape, device=_device(device)), lod)


def _device(given) -> torch.device | None:
    try:
        return None if given is None else torch.device(given)
    except (RuntimeError, TypeError, ValueError) as error:
        raise LoDTypeError(f"expected device as a torch.device or its name, got {shown(given)}") from error
