# SPDX-License-Identifier: Apache-2.0
"""What operators and methods do to the elements of a level: plain loops over nested lists, as in reference/sequence.py."""

import itertools

import torch
from nested import flat

from reference.ops import rows_of
from reference.sequence import Nest, moved, numbered

# -- methods of LoDTensor


def filter(x, mask, level=-1):
    keep = iter((mask.values if isinstance(mask, Nest) else torch.as_tensor(mask)).tolist())
    return moved(x, level, lambda s: [e for e in s if next(keep)])


def head(x, k, level=-1):
    return moved(x, level, lambda s: s[:k])


def tail(x, k, level=-1):
    return moved(x, level, lambda s: s[max(0, len(s) - k) :])


def without(names, level):
    left = names and (*names[:level], *names[level + 1 :])
    return left if left and any(left) else None


def nth(x, i, padding_value=0.0, level=-1):
    inner = level + 1 == x.depth
    filler = torch.full((1, *x.values.shape[1:]), padding_value, dtype=x.values.dtype, device=x.values.device)
    nothing = len(x.values) if inner else []
    short = moved(x, level, lambda s: s[i] if -len(s) <= i < len(s) else nothing)
    values = torch.cat([x.values, filler])
    if x.depth == 1:
        return rows_of([values[r] for r in short.tree], x.values)
    return Nest(short.tree, x.depth - 1, values, without(x.names, level))


def seq(x, *key):
    masks = {
        p: iter(entry.tolist()) for p, entry in enumerate(key) if hasattr(entry, "dtype") and entry.dtype == torch.bool
    }

    def pick(items, p):
        if p == len(key):
            return items
        entry = key[p]
        if isinstance(entry, int):
            return pick(items[entry], p + 1)
        if p in masks:
            items = [item for item in items if next(masks[p])]
        else:
            items = items[entry] if isinstance(entry, slice) else [items[i] for i in entry]
        return [pick(item, p + 1) for item in items]

    tree, names, kept = pick(x.tree, 0), x.names, 0
    for entry in key:
        if isinstance(entry, int):
            names = without(names, max(kept - 1, 0))
        else:
            kept += 1
    depth = x.depth - sum(isinstance(entry, int) for entry in key)
    if depth < 0:
        return x.values[tree]
    return Nest(tree, depth, x.values, names) if depth else rows_of([x.values[r] for r in tree], x.values)


# -- operators


def sequence_chunk(x, size, stride=None, name=None, level=-1):
    def one(s):
        chunks, begin = [], 0
        while begin < len(s) and (not chunks or begin - (stride or size) + size < len(s)):
            chunks.append(s[begin : begin + size])
            begin += stride or size
        return chunks

    names = x.names or (None,) * x.depth
    names = (*names[: level + 1], name, *names[level + 1 :])
    return Nest(moved(x, level, one).tree, x.depth + 1, x.values, names if any(names) else None)


def sequence_roll(x, n, level=-1):
    steps = itertools.repeat(n) if isinstance(n, int) else iter(torch.as_tensor(n).tolist())

    def one(s):
        step = next(steps)
        return [s[(i - step) % len(s)] for i in range(len(s))]

    return moved(x, level, one)


def sequence_interleave(xs, level=-1):
    starts = list(itertools.accumulate([len(x.values) for x in xs], initial=0))
    whole = torch.cat([x.values for x in xs])

    def renumbered(items, start):
        return [renumbered(item, start) if isinstance(item, list) else item + start for item in items]

    sequences = [iter(flat(renumbered(x.tree, start), level)) for x, start in zip(xs, starts)]

    def one(_):
        rounds = itertools.zip_longest(*[next(it) for it in sequences])
        return [e for around in rounds for e in around if e is not None]

    return moved(xs[0]._replace(values=whole), level, one)


def sequence_unique(x, return_inverse=False, return_counts=False, level=-1):
    inverse, counts = [], []

    def same(a, b):
        if isinstance(a, list):
            return len(a) == len(b) and all(map(same, a, b))
        return torch.equal(x.values[a], x.values[b])

    def one(s):
        kept, times = [], []
        for e in s:
            i = next((i for i, other in enumerate(kept) if same(e, other)), len(kept))
            if i == len(kept):
                kept.append(e)
                times.append(0)
            times[i] += 1
            inverse.append(i)
        counts.extend(times)
        return kept

    out = moved(x, level, one)
    names = x.names and x.names[: level + 1]
    more = []
    for asked, tree, numbers in ((return_inverse, x.tree, inverse), (return_counts, out.tree, counts)):
        if asked:
            more.append(Nest(numbered(tree, level + 1), level + 1, torch.tensor(numbers, dtype=torch.int64), names))
    return (out, *more) if more else out
