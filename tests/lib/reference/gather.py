# SPDX-License-Identifier: Apache-2.0
"""Elements by their position in the sequence: plain loops, as sequence.py."""

import torch
from nested import flat, within

from reference.ops import rows_of
from reference.sequence import Nest, under


def owners_of(x, index, level):
    """For every row of an index the number of the sequence that it picks from."""
    if not isinstance(index, Nest) or index.depth == level:
        return list(range(len(flat(x.tree, level))))
    return [s for s, numbers in enumerate(under(index, level)) for _ in numbers]


def sequence_gather(x, index, fill=0, *, absolute=False, level=-1):
    level %= x.depth
    positions = index.rows() if isinstance(index, Nest) else index
    sequences = flat(x.tree, level)
    everything = [element for sequence in sequences for element in sequence]

    def pick(n, position):
        source = everything if absolute else sequences[owners[n]]
        assert position == -1 or source[position] in sequences[owners[n]]
        return None if position == -1 else source[position]

    owners = owners_of(x, index, level)
    if level == x.depth - 1:
        none = torch.full(x.values.shape[1:], fill, dtype=x.values.dtype)
        picked = [pick(n, p) for n, row in enumerate(positions) for p in row.flatten().tolist()]
        rows = rows_of([none if i is None else x.values[i] for i in picked], x.values[:0])
        rows = rows.reshape(*positions.shape, *x.values.shape[1:])
        return index.with_rows(rows) if isinstance(index, Nest) else rows
    below = [pick(n, p) or [] for n, p in enumerate(positions.tolist())]
    if not isinstance(index, Nest):
        return Nest(below, x.depth - level - 1, x.values, x.names and x.names[level + 1 :])
    ours, theirs = (names or (None,) * depth for names, depth in ((index.names, index.depth), (x.names, x.depth)))
    names = (*ours, *(None if name in ours else name for name in theirs[level + 1 :]))
    tree = within(index.with_rows(positions).tree, index.depth, lambda items: [below[i] for i in items])
    return Nest(tree, index.depth + x.depth - level - 1, x.values, names if any(names) else None)
