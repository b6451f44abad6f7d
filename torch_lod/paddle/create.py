# SPDX-License-Identifier: Apache-2.0
"""Fluid's ways to make a LoDTensor."""

import numpy as np
import torch

from ..construct import tensor_of
from ..errors import LoDTypeError, LoDValueError, public
from ..lod import LoD
from ..tensor import LoDTensor
from ..validate import with_memory

__all__ = ["create_lod_tensor", "create_random_int_lodtensor"]


@public
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
        data = np.array([[item] for sequence in data for item in sequence]).reshape(-1, 1)
    values = tensor_of("data", data.copy() if isinstance(data, np.ndarray) else data, " or a list of sequences")
    return LoDTensor(values if device is None else values.to(device), lod)


@public
def create_random_int_lodtensor(recursive_seq_lens, base_shape, low: int, high: int, device=None) -> LoDTensor:
    """Random int64 rows of shape `base_shape` between `low` and `high`, both included, as Paddle's."""
    with_memory(low, high)
    lod = LoD.from_lengths(recursive_seq_lens)
    return LoDTensor(torch.randint(low, high + 1, (lod.rows, *base_shape), device=device), lod)
