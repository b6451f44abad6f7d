# SPDX-License-Identifier: Apache-2.0
"""Shape "segment", by order: which rows of a segment come first, separately for each element."""

from torch import Tensor

from .library import operator

__all__ = [
    "segment_order",
    "segment_topk",
]


@operator
def segment_order(values: Tensor, row_offsets: Tensor, descending: bool = False) -> Tensor:
    """The rows of every segment in the order of their numbers, separately for each element; equal ones stay in order.

    NaN is larger than every number. `values.gather(0, segment_order(values, row_offsets))` sorts.

    Equivalent to:
        torch.cat(
            [rows.argsort(dim=0, stable=True) + start for rows, start in zip(values.split(lengths), row_offsets.tolist())]
        )

    Args:
        values: (rows, *element), a floating or integer dtype.
        row_offsets: int64, (segments + 1,).
        descending: the largest first.

    Returns:
        int64, of the shape of values, as indices into all rows; it has no gradient.

    Source: on the CPU the places of up to 32 rows are counted, and more are sorted byte by byte (radix sort, from the lowest
    byte); on a GPU torch.sort, by number and then by segment.
    """


@operator
def segment_topk(values: Tensor, row_offsets: Tensor, k: int, largest: bool = True) -> Tensor:
    """The first `k` rows of every segment in descending order, separately for each element; equal ones stay in order.

    Args:
        values: (rows, *element), a floating or integer dtype.
        row_offsets: int64, (segments + 1,).
        k: at least 1 (ValueError).
        largest: False gives the smallest, in ascending order.

    Returns:
        int64, (segments, k, *element), as indices into all rows, -1 where a segment has fewer; it has no gradient.
    """
