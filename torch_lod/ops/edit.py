# SPDX-License-Identifier: Apache-2.0
"""Shape "chain", over two sequences: how far they are apart, and what of one became what of the other."""

from torch import Tensor

from .library import operator

__all__ = [
    "edit_alignment",
    "edit_distance",
]


@operator
def edit_distance(values: Tensor, row_offsets: Tensor, others: Tensor, other_offsets: Tensor) -> Tensor:
    """How many numbers must be inserted, deleted or substituted to make segment s of `others` of segment s of `values`.

    Args:
        values, others: int64, (rows,) and (other rows,).
        row_offsets, other_offsets: int64, (segments + 1,).

    Returns:
        int64 (segments,). No gradient. 64 cells of the matrix are one step. Memory is a bit for every
        symbol that the shorter segment of a pair has and every number in it, per thread.

    Source: Levenshtein, 1966; Myers, "A fast bit-vector algorithm for approximate string matching based on dynamic
    programming", JACM 46(3), 1999, with the blocks of Hyyro, 2003.
    """


@operator
def edit_alignment(
    values: Tensor, row_offsets: Tensor, others: Tensor, other_offsets: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The edit distance, and which number of one segment stands beside which of the other, in fewest edits.

    Args:
        as for `edit_distance`.

    Returns:
        int64 (segments,), the distances; (rows,) and (other rows,): the position in the other segment, -1 where a number
        was deleted or inserted. From the ends, numbers stand beside one another where they can, then those of values are
        deleted. No gradient. Memory is the product of the lengths of one pair per thread, in bytes.

    Source: Wagner and Fischer, "The string-to-string correction problem", JACM 21(1), 1974.
    """
