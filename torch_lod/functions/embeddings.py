# SPDX-License-Identifier: Apache-2.0
"""Lookups in a table, and embedding bags of innermost sequences."""

import torch
import torch.nn.functional as F

from ..errors import LoDTypeError
from ..sequence.operator import along
from ..tensor.lod_tensor import LoDTensor, rows_of
from ..tensor.provenance import provenance_of
from .layouts import only_first
from .refusals import along_rows, lost_meets, refusal
from .row import enter
from .signature import Signature, by_element, only_at_dim_0, refuse, signature


@signature(
    "input, weight: plain, offsets, max_norm, norm_type, scale_grad_by_freq, mode, sparse, per_sample_weights: rows"
)
def bag(func, input):
    """A bag per row of ids. A floating input is the weight: torch also takes the arguments in that order."""
    if input.dim() < 2:
        raise refusal(func, "its bags are cut by offsets of their own; pool nn.Embedding's rows with tl.sequence_pool")
    return not input.is_floating_point()


def scaling(rule, text: str = "input, weight, padding_idx, max_norm"):
    """`rule` for a lookup in a table whose rows are scaled in place to a norm of at most `max_norm`."""
    of = Signature(text)

    def rule_scaling(func, args, kwargs):
        bound = dict(zip(of.names, of.bind(args, kwargs)))
        p = provenance_of(bound["weight"])
        if p is not None and bound["max_norm"] is not None:
            if p.dim is None:
                raise lost_meets(func, p, "expected a plain tensor as weight, since it would be changed along all rows")
            if p.dim:
                raise along_rows(func, p, "max_norm would scale it by norms over the rows of all sequences")
        return rule(func, args, kwargs)

    return rule_scaling


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


enter("keep", scaling(by_element("input, weight: plain")), "embedding", (F,))
enter("keep", by_element("weight: plain, indices: rows"), "embedding", (torch,))
enter("move", scaling(by_element("weight, indices: plain"), "weight, indices, max_norm"), "embedding_renorm_")
enter("sequence-wise", only_at_dim_0(bag), "embedding_bag", (F,), run=embedding_bag)
enter(
    "refuse",
    refuse("its bags are cut by offsets of their own; pool rows with tl.sequence_pool"),
    "embedding_bag",
    (torch,),
)
enter("keep", by_element("weight, indices: rows"), "embedding_byte embedding_4bit", (torch.ops.quantized,))
