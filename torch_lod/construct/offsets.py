# SPDX-License-Identifier: Apache-2.0
"""Rows beside their structure: lengths, offsets, and those of flash attention."""

import numpy as np
from torch import Tensor

from ..errors import constructor
from ..structure.lod import LoD
from ..structure.validate import host_integers
from ..tensor.lod_tensor import LoDTensor
from .rows import rows_to_share

__all__ = ["from_cu_seqlens", "from_lengths", "from_offsets"]


@constructor
def from_lengths(values: Tensor | np.ndarray, lengths, *, level_names=None) -> LoDTensor:
    """A LoDTensor from rows and recursive sequence lengths, outermost level first. Shares the memory of `values`, a
    tensor or a numpy array; a tensor also keeps its autograd graph."""
    return LoDTensor(rows_to_share(values), LoD.parsed_lengths("lengths", lengths, level_names))


@constructor
def from_offsets(values: Tensor | np.ndarray, offsets, *, level_names=None) -> LoDTensor:
    """A LoDTensor from rows and the offsets of every level, relative to the next level. Shares the memory of
    `values`."""
    return LoDTensor(rows_to_share(values), LoD.parsed_offsets("offsets", offsets, level_names))


@constructor
def from_cu_seqlens(values: Tensor | np.ndarray, cu_seqlens, *, level_names=None) -> LoDTensor:
    """A LoDTensor from rows and the row offsets (int32) of flash attention. Shares `values`. One sync if they are on a
    GPU."""
    offsets = host_integers("cu_seqlens", cu_seqlens)
    return LoDTensor(rows_to_share(values), LoD.checked("cu_seqlens", [offsets], level_names))
