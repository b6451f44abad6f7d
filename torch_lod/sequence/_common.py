# SPDX-License-Identifier: Apache-2.0
"""What every sequence operator does first: ask for a LoDTensor and find the level."""

from ..errors import LoDTypeError
from ..lod_tensor import LoDTensor


def level_of(call: str, x, level: int | str) -> int:
    """The level's number; TypeError for a plain tensor, which has none."""
    if not isinstance(x, LoDTensor):
        raise LoDTypeError(f"{call}: expected x as a LoDTensor, got {type(x).__name__}; see tl.from_lengths")
    return x._lod.level(level, call)
