# SPDX-License-Identifier: Apache-2.0
"""The items of a sampler and what they cost."""

from typing import NamedTuple

import numpy as np
import torch
from torch.utils.data import Subset

from ..errors import LoDIndexError, LoDTypeError, LoDValueError, shown
from ..structure.lod import LoD
from ..structure.validate import as_int, host_integers, unmasked, whole

__all__ = ["Piece"]

#: Pieces of large items at most, or 4 for each item: a plan takes about 150 bytes for each.
_MOST_PIECES = 2**25


class Piece(NamedTuple):
    """Rows `begin` to `end` of an item: what a sampler with too_large="cut" yields in place of an index."""

    item: int
    begin: int
    end: int


class Items:
    """The items of a sampler, those that were cut as pieces: what each counts against the budget, and in the balance."""

    def __init__(self, lengths, level, cost, balance, budget, too_large: str):
        lod = _lod_of(lengths)
        if lod is not None:
            k = lod.level(level)
            inner, outer = lod.levels[k].diff().numpy(), lod.levels[0].numpy() if k else None
            for offsets in lod.levels[1:k]:
                outer = offsets.numpy()[outer]
        else:
            if as_int(level) not in (-1, 0):
                raise LoDValueError(f"expected level with a LoD or LoDTensor only, got {shown(level)} with lengths")
            inner, outer = host_integers("lengths", lengths).numpy(), None
            for i in np.flatnonzero(inner < 0)[:1]:
                raise LoDValueError(f"expected lengths >= 0, got {inner[i]} at index {i}")
        if (inner if outer is None else outer[1:]).size == 0:
            raise LoDValueError("expected at least 1 item, got none")
        self.lengths = _summed(inner, outer)
        self.count = len(self.lengths)
        self.costs = _summed(_costs("cost", cost, inner), outer)
        self.weights = self.costs if balance is None else _summed(_costs("balance", balance, inner), outer)
        self.pieces: np.ndarray | None = None  # of the items behind the first `count`
        self.whole = np.arange(self.count)  # those that are not cut
        large = np.flatnonzero(self.costs > (np.inf if budget is None else budget))
        if len(large) and too_large == "refuse":
            raise LoDValueError(
                f"expected items that cost at most the budget {budget}, got {self.costs[large[0]]} at index {large[0]} and "
                f"{len(large)} such items in all; pass too_large='alone' or 'cut', or a larger budget"
            )
        if len(large) and too_large == "cut":
            if isinstance(lengths, Subset):
                raise LoDValueError(
                    "expected too_large='cut' with items of a dataset itself, got a Subset, which takes no Pieces; make a "
                    "LoDDataset of x.seq[indices]"
                )
            if outer is not None or (lod is not None and lod.depth > 1):
                raise LoDValueError(
                    f"expected too_large='cut' with items of one level, got items of {lod.depth if lod else 2} levels"
                )
            self._cut(large, cost, balance, budget)

    def _cut(self, large: np.ndarray, cost, balance, budget) -> None:
        low, high = 1, int(self.lengths[large].max())  # the largest piece that is within the budget
        while low < high:
            middle = (low + high + 1) // 2
            within = _costs("cost", cost, np.array([middle]))[0] <= budget
            low, high = (middle, high) if within else (low, middle - 1)
        if _costs("cost", cost, np.array([low]))[0] > budget:
            raise LoDValueError(f"expected a budget of at least one row of the item at index {large[0]}, got {budget}")
        lengths = self.lengths[large]
        many = -(-lengths // low)
        if many.sum(dtype=np.float64) > max(_MOST_PIECES, 4 * self.count):
            raise LoDValueError(
                f"expected a budget that cuts items into at most {max(_MOST_PIECES, 4 * self.count)} pieces, got {budget} for "
                f"{many.sum(dtype=np.float64):.0f} pieces; a larger budget, or TokenBudgetStream, which cuts as it reads"
            )
        begin = (np.arange(many.sum()) - np.repeat(np.cumsum(many) - many, many)) * low
        index = np.repeat(large, many)
        end = np.minimum(begin + low, self.lengths[index])
        self.pieces = np.stack([index, begin, end], 1)
        self.lengths = np.concatenate([self.lengths, end - begin])
        self.costs = np.concatenate([self.costs, _costs("cost", cost, end - begin)])
        self.weights = np.concatenate(
            [self.weights, _costs("balance", cost if balance is None else balance, end - begin)]
        )
        kept = np.ones(len(self.lengths), dtype=bool)
        kept[large] = False
        self.whole = np.flatnonzero(kept)

    def named(self, items: np.ndarray) -> list:
        """What a sampler yields for items."""
        if self.pieces is None or not (items >= self.count).any():
            return items.tolist()
        return [i if i < self.count else Piece(*self.pieces[i - self.count].tolist()) for i in items.tolist()]


def _lod_of(lengths) -> LoD | None:
    """The LoD whose outermost sequences are the items, if lengths are given by one; those of a Subset are the items it has."""
    if not isinstance(lengths, Subset):
        lod = lengths if isinstance(lengths, LoD) else getattr(lengths, "lod", None)
        return lod if isinstance(lod, LoD) else None
    lod = _lod_of(lengths.dataset)
    if lod is None:
        raise LoDTypeError(
            f"expected lengths as integers, or a Subset of a LoDDataset, got a Subset of {type(lengths.dataset).__name__}; "
            "pass [len(item) for item in subset]"
        )
    index, count = host_integers("indices", lengths.indices), lod.num_sequences()
    for i in ((index < -count) | (index >= count)).nonzero()[:1].flatten().tolist():
        raise LoDIndexError(f"expected indices of the Subset in [{-count}, {count - 1}], got {int(index[i])}")
    return lod.take(0, index % count if count else index)[0]


def _costs(what: str, cost, lengths: np.ndarray) -> np.ndarray:
    if cost == "length":
        found = lengths
    elif cost == "square":
        found = lengths * lengths if not lengths.size or lengths.max() < 2**31 else lengths.astype(np.float64) ** 2
    elif callable(cost):
        given = unmasked(f"{what}(lengths)", cost(lengths))
        try:
            found = np.asarray(given)
        except (TypeError, ValueError):
            raise LoDTypeError(f"expected {what}(lengths) as an array of numbers, got {shown(given)}") from None
        if found.shape != lengths.shape or found.dtype.kind not in "iuf":
            raise LoDTypeError(
                f"expected {what}(lengths) as numbers of shape {lengths.shape}, got {found.dtype} {found.shape}"
            )
        found = found.astype(np.float64 if found.dtype.kind == "f" else np.int64)
    else:
        raise LoDTypeError(f"expected {what} 'length', 'square' or a function, got {shown(cost)}")
    for i in np.flatnonzero(~((found >= 0) & (found < 2**62)))[:1]:
        raise LoDValueError(f"expected {what} in [0, 2**62), got {found[i]} for length {lengths[i]}")
    if found.dtype.kind == "i" and float(found.sum(dtype=np.float64)) > 2**62:
        return found.astype(np.float64)
    return found


def _summed(costs: np.ndarray, outer: np.ndarray | None) -> np.ndarray:
    """The costs of all inner sequences of every item."""
    if outer is None:
        return costs
    ends = np.concatenate([np.zeros(1, costs.dtype), np.cumsum(costs)])
    return ends[outer[1:]] - ends[outer[:-1]]


def a_number(what: str, value):
    number = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
    if not (number and 0 < value < 2**62):
        raise (LoDValueError if number else LoDTypeError)(
            f"expected {what} above 0 and below 2**62, got {shown(value)}"
        )
    return value.item() if isinstance(value, np.generic) else value


def a_seed(what: str, value) -> int:
    value = whole(what, value)
    if not 0 <= value < 2**63:
        raise LoDValueError(f"expected {what} in [0, 2**63), got {shown(value)}")
    return value


def check_state(state, own: dict, call: str, same: str) -> None:
    """An error unless `state` is of `call` and belongs to what `own` says, besides an epoch and a step."""
    if not isinstance(state, dict) or state.keys() != {"epoch", "step", *own}:
        raise LoDTypeError(f"expected a state of {call}, got {shown(state)}")
    for key, value in own.items():
        given = as_int(state[key])
        if not isinstance(given, (int, float, str)) or given != value:
            raise LoDValueError(f"expected the state of {same}, got one of {key} {shown(given)} beside {value!r}")


def chosen(what: str, value, among: tuple):
    if type(value) is not type(among[0]):
        raise LoDTypeError(f"expected {what} as one of {among}, got {shown(value)}")
    if value not in among:
        raise LoDValueError(f"expected {what} as one of {among}, got {shown(value)}")
    return value


def of_processes(rank, world_size) -> tuple[int, int]:
    """Rank and number of processes, as given or of torch.distributed."""
    distributed = torch.distributed.is_available() and torch.distributed.is_initialized()
    if world_size is None:
        world_size = torch.distributed.get_world_size() if distributed else 1
    if rank is None:
        rank = torch.distributed.get_rank() if distributed else 0
    rank, world_size = whole("rank", rank), whole("world_size", world_size)
    if not 0 <= rank < world_size < 2**31:
        raise LoDValueError(f"expected 0 <= rank < world_size, got rank {shown(rank)} of {shown(world_size)}")
    return rank, world_size
