# SPDX-License-Identifier: Apache-2.0
"""The structure of batches one after another."""

import functools

import torch
from torch import Tensor

from ..dynamo import compiling, holds
from ..errors import LoDValueError, named
from .lod import LoD


def chain(lods) -> LoD:
    """The sequences of several LoDs one after another."""
    if len(lods) == 1:
        return lods[0]
    rows = sum(lod.rows for lod in lods)
    if not holds(rows < 2**63):
        raise named(LoDValueError(f"expected fewer than 2**63 rows in all, got {rows}"), "cat")
    lod = _joined_in_graph(lods, rows) if compiling() else LoD.joined(lods)
    return lod if not any(one.counted for one in lods) else lod.counting(counted_in(lods))


def _joined_in_graph(lods, rows: int) -> LoD:
    levels = []
    for k in range(lods[0].depth):
        parts, end = [lods[0].levels[k]], lods[0].elements_at(k)
        for lod in lods[1:]:
            parts.append(lod.levels[k][1:] + end)
            end += lod.elements_at(k)
        levels.append(torch.cat(parts))
    return LoD.checked("offsets", levels, lods[0].level_names, rows)


def within_in_graph(lods: list[LoD], k: int) -> LoD:
    """`LoD.joined`, within level k."""
    first = lods[0]
    if k == first.depth - 1:
        below = [functools.reduce(torch.add, [lod.levels[k] for lod in lods])]
    else:
        count = first.levels[k].shape[0] - 1
        order = torch.arange(count * len(lods), device="cpu").view(len(lods), count).t().flatten()
        own, *inner = chain(lods).take(k, order)[0].levels
        below = [own[:: len(lods)].contiguous(), *inner]
    return LoD.checked("offsets", [*first.levels[:k], *below], first.level_names)


def counted_in(lods, parts=None) -> Tensor:
    """The rows that count in several LoDs, or in parts of them, one after another; all rows of a LoD that does not say."""
    found = counted_each(lods)
    return torch.cat(found if parts is None else [mask[begin:end] for mask, (begin, end) in zip(found, parts)])


def counted_each(lods) -> list[Tensor]:
    """The rows that count in each of several LoDs, of which one says so, as masks (rows, 2): `counted_rows` side by side."""
    like = next(mask for lod in lods for mask in lod.counted)
    return [torch.stack(lod.counted_rows(), 1) if lod.counted else like.new_ones(lod.rows, 2) for lod in lods]


def stacked(outer: LoD | None, inner: LoD) -> LoD:
    """The levels of `outer`, whose rows are the sequences of `inner`, and those of `inner`; names occur once."""
    if outer is None:
        return inner
    names = list(outer.level_names or (None,) * outer.depth)
    names += [None if name in names else name for name in inner.level_names or (None,) * inner.depth]
    levels = [*outer.levels, *inner.levels]
    return LoD.checked("offsets", levels, names, inner.rows).counting(*inner.counted)
