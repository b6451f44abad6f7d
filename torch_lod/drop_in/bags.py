# SPDX-License-Identifier: Apache-2.0
"""Embedding bags and instance norms of innermost sequences."""

import torch.nn.functional as F

from ..errors import LoDTypeError, LoDValueError
from ..sequence import sequence_normalize
from ..sequence_operator import along
from ..tensor import LoDTensor, made, rows_of
from .routes import OneSample, one_sample, only_first, route


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


@route(F.instance_norm, kind=None, samples=True)
def instance_norm(
    input,
    running_mean=None,
    running_var=None,
    weight=None,
    bias=None,
    use_input_stats=True,
    momentum=0.1,
    eps=1e-5,
):
    """InstanceNorm1d passes (rows, channels) as one sample; here every sequence is normalised by its own mean and
    variance."""
    if not isinstance(input, OneSample):
        return NotImplemented
    if running_mean is not None or running_var is not None or not use_input_stats:
        raise LoDValueError(
            "expected no running statistics, got some: they would be those of all sequences together; see tl.sequence_normalize"
        )
    rows = rows_of(sequence_normalize(input.rows, eps=eps))
    rows = rows if weight is None else rows * weight
    return one_sample(made(rows if bias is None else rows + bias, input.rows.lod))
