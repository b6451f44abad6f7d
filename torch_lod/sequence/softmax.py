# SPDX-License-Identifier: Apache-2.0
"""Normalisation within sequences."""

from .. import ops
from ..errors import public
from ..lod_tensor import LoDTensor
from ._common import level_of

__all__ = ["sequence_softmax"]


@public
def sequence_softmax(x: LoDTensor, level: int | str = -1) -> LoDTensor:
    """Softmax over all rows under every sequence of a level, each element of a row for itself.

    Equivalent to:
        torch.cat([rows.softmax(0) for rows in x.sequences(level)])

    Args:
        x: (rows, *element), a floating dtype (TypeError otherwise); half types are computed in float32.

    Returns:
        the shape, dtype and LoD of x.

    Source: Paddle Fluid's sequence_softmax, which takes rows of one element and the innermost level.
    """
    k = level_of("sequence_softmax", x, level)
    values = x.values()
    return x.with_values(ops.segment_softmax(values, x._lod._row_offsets(k, values.device)))
