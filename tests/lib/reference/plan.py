# SPDX-License-Identifier: Apache-2.0
"""What the operators on the plan of a recurrence mean: the same loops, step by step."""

import torch
from nested import flat, within

from reference.ops import rows_of
from reference.sequence import Nest, nest, rows_or_sequences


def ranked(table):
    """(sequence, length), longest first; sorted() is stable."""
    lengths = table.lod.to_lengths()[table.level]
    return [(s, lengths[s]) for s in sorted(range(len(lengths)), key=lambda s: -lengths[s])]


def lod_rank_table(x, level=0):
    lengths = x.lengths()[level]
    return [(s, lengths[s]) for s in sorted(range(len(lengths)), key=lambda s: -lengths[s])]


def max_sequence_len(table):
    return max([n for _, n in ranked(table)], default=0)


def lod_tensor_to_array(x, table):
    sequences, steps = flat(x.tree, table.level), []
    for t in range(max_sequence_len(table)):
        elements = [sequences[s][t] for s, n in ranked(table) if n > t]
        if table.level + 1 == x.depth:
            steps.append(rows_of([x.values[i] for i in elements], x.values))
        else:
            steps.append(Nest(elements, x.depth - table.level - 1, x.values, x.names and x.names[table.level + 1 :]))
    return steps


def array_to_lod_tensor(array, table):
    lengths = table.lod.to_lengths()[: table.level + 1]
    sequences, start = [[None] * n for n in lengths[-1]], 0
    for t, step in enumerate(array):
        elements = rows_or_sequences(step)
        if isinstance(step, Nest):
            elements = within(elements, step.depth, lambda s, start=start: [i + start for i in s])
        else:
            elements = [i + start for i in elements]
        for (s, _), element in zip(ranked(table), elements):
            sequences[s][t] = element
        start += len(step.values if isinstance(step, Nest) else step)
    rest = iter(sequences)
    tree = (
        within(nest(lengths[:-1], None).tree, len(lengths) - 1, lambda s: [next(rest) for _ in s])
        if table.level
        else sequences
    )
    depth = len(lengths) + (array[0].depth if isinstance(array[0], Nest) else 0)
    names = table.lod.level_names
    names = names and (names[:depth] if not isinstance(array[0], Nest) or len(names) == depth else None)
    return Nest(tree, depth, torch.cat([s.values if isinstance(s, Nest) else s for s in array]), names)


def taken(x, order):
    return x._replace(tree=[x.tree[i] for i in order]) if isinstance(x, Nest) else rows_of([x[i] for i in order], x)


def reorder_lod_tensor_by_rank(x, table):
    return taken(x, [s for s, _ in ranked(table)])


def shrink_memory(x, i, table):
    return taken(x, range(sum(n > i for _, n in ranked(table))))


def split_lod_tensor(x, mask, level=0):
    mask = (mask.values if isinstance(mask, Nest) else mask).flatten().tolist()
    if isinstance(x, Nest):
        x = Nest(flat(x.tree, level), x.depth - level, x.values, x.names and x.names[level:])
    return tuple(taken(x, [i for i, m in enumerate(mask) if m is side]) for side in (True, False))


def merge_lod_tensor(in_true, in_false, x, mask, level=0):
    mask = mask.flatten().tolist()
    if not isinstance(in_true, Nest):
        sources = iter(in_true), iter(in_false)
        return rows_of([next(sources[not m]) for m in mask], in_true)
    shifted = within(in_false.tree, in_false.depth, lambda s: [i + len(in_true.values) for i in s])
    sources = iter(in_true.tree), iter(shifted)
    sequences = [next(sources[not m]) for m in mask]
    values = torch.cat([in_true.values, in_false.values])
    names = in_true.names if level == 0 or not isinstance(x, Nest) else None
    if isinstance(x, Nest):
        names = x.names if x.depth == level + in_true.depth else names
    if not isinstance(x, Nest) or level == 0:
        return Nest(sequences, in_true.depth, values, names)
    rest = iter(sequences)
    return Nest(within(x.tree, level, lambda s: [next(rest) for _ in s]), level + in_true.depth, values, names)
