# SPDX-License-Identifier: Apache-2.0
"""sequence_norm: the L2 norm of every sequence of a LoDTensor, an operator made outside torch_lod with its headers."""

from pathlib import Path

import torch
from torch import Tensor

import torch_lod as tl

torch.ops.load_library(Path(__file__).with_name("_own_operator.so"))
segment_norm = torch.ops.own_operator.segment_norm.default


def sequence_norm(x: tl.LoDTensor, level: int | str = -1) -> Tensor:
    """The L2 norm of all rows under every sequence of a level; 0 for empty sequences.

    Equivalent to:
        torch.stack([rows.norm(dim=0) for rows in x.sequences(level)])

    Args:
        x: (rows, *element), a floating dtype.
        level: whose sequences.

    Returns:
        (sequences, *element) with the levels above; a plain tensor above the outermost.
    """
    if not isinstance(x, tl.LoDTensor):
        raise TypeError(f"sequence_norm: expected x as a LoDTensor, got {type(x).__name__}")
    norm = segment_norm(x.values(), x.row_offsets(level))
    outer = x.lod.outer(level)
    return norm if outer is None else tl.LoDTensor(norm, outer)
