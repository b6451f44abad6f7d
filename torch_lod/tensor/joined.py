# SPDX-License-Identifier: Apache-2.0
"""The structure of batches one after another."""

import torch
from torch import Tensor

from ..dynamo import compiling, holds
from ..errors import LoDValueError, named
from ..structure.lod import LoD


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


def counted_in(lods, parts=None) -> Tensor:
    """The rows that count in several LoDs, or in parts of them, one after another; all rows of a LoD that does not say."""
    found = counted_each(lods)
    return torch.cat(found if parts is None else [mask[begin:end] for mask, (begin, end) in zip(found, parts)])


def counted_each(lods) -> list[Tensor]:
    """The rows that count in each of several LoDs, of which one says so, as masks (rows, 2): `counted_rows` side by side."""
    like = next(mask for lod in lods for mask in lod.counted)
    return [torch.stack(lod.counted_rows(), 1) if lod.counted else like.new_ones(lod.rows, 2) for lod in lods]
