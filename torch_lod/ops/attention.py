# SPDX-License-Identifier: Apache-2.0
"""Shape "attention": every query of a sequence attends to the keys of the same sequence."""

from torch import Tensor

from . import attention_composed as attention_composed
from .library import operator

__all__ = [
    "attention",
]


@operator
def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    query_offsets: Tensor,
    key_offsets: Tensor,
    bias: Tensor | None = None,
    slopes: Tensor | None = None,
    seed: Tensor | None = None,
    scale: float | None = None,
    left: int = -1,
    right: int = -1,
    dropout: float = 0.0,
    softcap: float | None = None,
    sink: Tensor | None = None,
    distance_bias: Tensor | None = None,
    key_ends: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """softmax(scale q k^T + bias) v: the queries of every segment attend to the keys of the same segment.

    Queries and keys are aligned at their ends (bottom-right): of m queries and n keys, query i is at key position
    p = i + n - m and sees the keys from p - left to p + right. With right=0 attention is causal. A query that sees no key
    gives zeros.

    Args:
        query: (rows, heads, width), a floating dtype; half types are summed in float32.
        key: (key rows, key heads, width). Their number divides the number of query heads: neighbouring query heads
            share one.
        value: (key rows, key heads, value width).
        query_offsets, key_offsets: int64, (segments + 1,), on the device of query.
        bias: (pairs, 1) or (pairs, heads), added to the scores, in order of the segments. Within a segment of n keys,
            query i and key j are pair i * n + j.
        slopes: (heads,), float32 (float64 if query is float64): adds a bias of -slope |p - key position|, which is
            never stored.
        seed: int64, a scalar on the device of query. The same seed drops the same weights.
        scale: 1 / sqrt(width) if None.
        left, right: how many keys a query sees on either side of its position; -1: all.
        dropout: the share of the weights that is set to 0, in [0, 1]; the others are divided by 1 - dropout.
        softcap: c, above 0: scale q k^T becomes c tanh(scale q k^T / c), before everything that is added.
        sink: (heads,), float32 (float64 if query is float64): the score of one more key without a value.
        distance_bias: (heads, 2 n + 1), of the dtype of sink: entry n + d is added to the scores of keys at p + d; of keys
            further away than n the first or the last entry.
        key_ends: int64, (rows,), on the device of query, not decreasing within a segment: a query sees keys before this
            position in its segment only.

    Returns:
        (rows, heads, value width), and the logsumexp of every query's scores and its sink (rows, heads), -inf of no key and no sink.
        The logsumexp has no gradient. Memory is linear in rows, forwards and backwards; double backward goes through a
        composition that stores the scores.
    """
