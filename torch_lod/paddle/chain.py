# SPDX-License-Identifier: Apache-2.0
"""Structured prediction: tags that follow one another."""

import torch
from torch import Tensor

from ..sequence.operator import sequence_operator
from ..sequence.paths import best, emissions, loss, tags_of
from ..tensor.lod_tensor import LoDTensor, MaybeLoD

__all__ = [
    "crf_decoding",
    "linear_chain_crf",
]


@sequence_operator
def linear_chain_crf(emission: LoDTensor, label: Tensor, transition: Tensor, *, level: int | str = -1) -> MaybeLoD:
    """The negative log-likelihood of every sequence's tags in a linear-chain conditional random field.

        score(y) = start[y_0] + sum_t emission[t, y_t] + sum_t between[y_t, y_t+1] + end[y_last]
        loss = log(sum of exp(score) over all paths) - score(label)

    Args:
        emission: (rows, tags), a floating dtype: the score of every tag at every row.
        label: integers in [0, tags), (rows,) or (rows, 1), with the LoD of emission or plain; IndexError otherwise.
        transition: (tags + 2, tags): rows start, end, then `between` from each tag to each. A score of -inf forbids.
        level: whose sequences the tags follow one another in.

    Returns:
        (sequences, 1), with the levels above; plain if there are none. Of the dtype of emission, float32 for half types
        under autocast; added up in float32 at least. 0 for an empty sequence, inf for tags that transitions forbid.
        Differentiable, twice as well.

    Source: Lafferty, McCallum and Pereira, "Conditional random fields", 2001; Paddle Fluid's linear_chain_crf.
    """
    s = emissions(emission, transition, level, "emission")
    return s.pool(loss(s, transition, tags_of(s, label, "label"))[:, None])


@sequence_operator
def crf_decoding(
    emission: LoDTensor, transition: Tensor, label: Tensor | None = None, *, level: int | str = -1
) -> LoDTensor:
    """The tags of the largest score for every sequence; or, given labels, which of these tags are right.

    Args:
        emission, transition, label, level: as for `linear_chain_crf`.

    Returns:
        int64, (rows, 1), with the LoD of emission: the tags, -1 in a sequence that has no path; with `label` 1 where the
        tag is that of the label and 0 elsewhere. Of equal paths that of the smaller tags at the last row where they differ.
        Without gradient.

    Source: Viterbi, "Error bounds for convolutional codes", 1967; Paddle Fluid's crf_decoding.
    """
    s = emissions(emission, transition, level, "emission")
    path = best(s, transition)[1]
    if label is not None:
        path = (path.squeeze(1) == tags_of(s, label, "label")).to(torch.int64)[:, None]
    return s.keep(path)
