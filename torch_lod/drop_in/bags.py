# SPDX-License-Identifier: Apache-2.0
"""Embedding bags of innermost sequences."""

import torch.nn.functional as F

from ..errors import LoDTypeError
from ..sequence_operator import along
from ..tensor.lod_tensor import LoDTensor, rows_of
from .routes import only_first, route


@route(F.embedding_bag)
def embedding_bag(
    input,
    weight,
    offsets=None,
    max_norm=None,
    norm_type=2,
    scale_grad_by_freq=False,
    mode="mean",
    sparse=False,
    per_sample_weights=None,
    include_last_offset=False,
    padding_idx=None,
):
    """Ids of shape (rows,): every innermost sequence is a bag, and an empty one gives zeros; the result has the levels
    above. Ids of shape (rows, n): every row is a bag, as with plain tensors."""
    if not only_first(input, weight=weight, offsets=offsets):
        if isinstance(per_sample_weights, LoDTensor):
            raise LoDTypeError("expected a LoDTensor as input, as per_sample_weights, got a plain tensor")
        return NotImplemented
    if offsets is not None:
        raise LoDTypeError(
            f"expected no offsets with a LoDTensor, whose innermost sequences are the bags, got {type(offsets).__name__}"
        )
    if isinstance(per_sample_weights, LoDTensor):
        input.lod.agreed(per_sample_weights.lod)
        per_sample_weights = rows_of(per_sample_weights)
    if input.dim() != 1:
        return NotImplemented
    s = along(input)
    if max_norm is not None and s.rows.shape[0] == 0:
        max_norm = None  # nothing is scaled; on a GPU torch fails where it is asked to
    starts = s.offsets.to(input.dtype)
    bags = F.embedding_bag(
        s.rows,
        weight,
        starts,
        max_norm,
        norm_type,
        scale_grad_by_freq,
        mode,
        sparse,
        per_sample_weights,
        True,
        padding_idx,
    )
    return s.pool(bags)
