# SPDX-License-Identifier: Apache-2.0
"""Shape "attention": every query of a sequence with the keys of the same sequence."""

from torch import Tensor

from .library import operator


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
) -> tuple[Tensor, Tensor]:
    """softmax(scale q k^T + bias) v, every segment of queries with the segment of keys of the same number.

    Query i of m sees the keys from `left` before to `right` after its place i + n - m among n keys: the last query stands at
    the last key. With right=0 it is causal. A query that sees no key gives zeros.

    Args:
        query: (rows, heads, width), a floating dtype; half types are summed in float32.
        key: (key rows, key heads, width), its heads a divisor of the query's, each shared by as many heads side by side.
        value: (key rows, key heads, value width).
        query_offsets, key_offsets: int64, (segments + 1,), on the device of query.
        bias: (pairs, 1) or (pairs, heads), added to the scores: a row per query and key of a segment, segment after segment,
            in each the keys of its first query first.
        slopes: (heads,), float32 (float64 where query is): bias -slope |place - key|, worked out on the way.
        seed: int64, a scalar on the device of query: which weights dropout sets to 0. The same seed sets the same.
        scale: 1 / sqrt(width) if None.
        left, right: how far a query sees; -1: without end.
        dropout: how many of the weights are set to 0, in [0, 1]; the others are divided by 1 - dropout.

    Returns:
        (rows, heads, value width), and the logsumexp of every query's scores (rows, heads), -inf where it sees none, which
        has no gradient. Memory is linear in rows, forwards and backwards; double backward goes through a composition that
        lays out the scores.
    """
