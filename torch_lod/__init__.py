# SPDX-License-Identifier: Apache-2.0
"""Nested sequences of any length for PyTorch, without padding."""

from importlib.metadata import PackageNotFoundError, version

from torch import empty_like, full_like, ones_like, rand_like, randn_like, zeros_like

from . import nn, ops
from .construct import (
    cat,
    create_lod_tensor,
    create_random_int_lodtensor,
    empty,
    from_cu_seqlens,
    from_lengths,
    from_nested,
    from_offsets,
    from_packed_sequence,
    from_padded,
    from_segment_ids,
    from_tensors,
    full,
    lod_tensor,
    ones,
    rand,
    randn,
    stack,
    zeros,
)
from .errors import LoDError
from .lod import LoD
from .lod_tensor import LoDTensor
from .printing import describe
from .sequence import (
    sequence_expand,
    sequence_expand_as,
    sequence_first_step,
    sequence_last_step,
    sequence_pool,
    sequence_reverse,
    sequence_softmax,
)

try:
    __version__ = version("torch_lod")
except PackageNotFoundError:  # used from a source tree
    __version__ = "0+source"

__all__ = [
    "LoD",
    "LoDError",
    "LoDTensor",
    "cat",
    "create_lod_tensor",
    "create_random_int_lodtensor",
    "describe",
    "empty",
    "empty_like",
    "from_cu_seqlens",
    "from_lengths",
    "from_nested",
    "from_offsets",
    "from_packed_sequence",
    "from_padded",
    "from_segment_ids",
    "from_tensors",
    "full",
    "full_like",
    "lod_tensor",
    "nn",
    "ones",
    "ones_like",
    "ops",
    "rand",
    "rand_like",
    "randn",
    "randn_like",
    "sequence_expand",
    "sequence_expand_as",
    "sequence_first_step",
    "sequence_last_step",
    "sequence_pool",
    "sequence_reverse",
    "sequence_softmax",
    "stack",
    "zeros",
    "zeros_like",
]
