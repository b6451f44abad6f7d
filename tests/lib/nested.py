# SPDX-License-Identifier: Apache-2.0
"""Nested Python lists as the reference of nested structure, and a hypothesis strategy that makes them."""

import itertools

from hypothesis import strategies as st

#: The structures of the design's examples.
X = [[3, 1, 2], [3, 2, 4, 1, 2, 3]]
Y = [[2, 1], [1, 2, 1], [2, 1, 3, 1]]


@st.composite
def trees(draw, max_depth=3, min_length=0):
    """(depth, batch): a batch of sequences of `depth` levels, whose rows are the floats 0, 1, 2, ..."""
    depth = draw(st.integers(1, max_depth))
    count = itertools.count()

    def part(levels):
        if levels == 0:
            return float(next(count))
        return [part(levels - 1) for _ in range(draw(st.integers(min_length, 3)))]

    return depth, [part(depth) for _ in range(draw(st.integers(min_length, 3)))]


def flat(batch, times):
    """The parts of the parts ... of a batch."""
    for _ in range(times):
        batch = [part for item in batch for part in item]
    return batch


def lengths_of(batch, depth):
    return [[len(item) for item in flat(batch, k)] for k in range(depth)]


def rows_under(batch, depth, level):
    """The rows of every sequence of a level."""
    return [flat([item], depth - level) for item in flat(batch, level)]


def without_level(batch, level):
    if level == 0:
        return flat(batch, 1)
    if level == 1:
        return [flat(item, 1) for item in batch]
    return [without_level(item, level - 1) for item in batch]


def within(batch, depth, function):
    """`function` of every innermost sequence."""
    return function(batch) if depth == 0 else [within(item, depth - 1, function) for item in batch]
