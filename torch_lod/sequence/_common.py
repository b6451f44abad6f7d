# SPDX-License-Identifier: Apache-2.0
"""What every sequence operator does first: ask for a LoDTensor and find the level."""

from ..lod_tensor import _a_lod_tensor


def level_of(call: str, x, level: int | str) -> int:
    """The level's number; TypeError for a plain tensor, which has none."""
    return _a_lod_tensor(call, "x", x)._lod.level(level, call)
