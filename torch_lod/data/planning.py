# SPDX-License-Identifier: Apache-2.0
"""Which items make a batch, and which batches a step of all ranks: numpy on one array of costs.

A grouping is a pair (order, offsets): group g has the items order[offsets[g]:offsets[g + 1]]. No group is empty.
"""

import bisect
import heapq
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ..errors import LoDValueError

#: Distinct costs that first-fit decreasing works with; where there are more, costs are rounded up to 11 bits.
_DISTINCT = 4096


class Groups(NamedTuple):
    order: np.ndarray
    offsets: np.ndarray

    def sums(self, costs: np.ndarray) -> np.ndarray:
        ends = np.concatenate([np.zeros(1, costs.dtype), np.cumsum(costs[self.order])])
        return ends[self.offsets[1:]] - ends[self.offsets[:-1]]

    def take(self, groups: np.ndarray) -> "Groups":
        starts, lengths = self.offsets[groups], np.diff(self.offsets)[groups]
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        index = np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], lengths)
        return Groups(self.order[index], offsets)

    def then(self, other: "Groups") -> "Groups":
        order = np.concatenate([self.order, other.order])
        return Groups(order, np.concatenate([self.offsets, self.offsets[-1] + other.offsets[1:]]))

    def fit(self, costs: np.ndarray, budget) -> bool:
        """Whether every group is within the budget, but for those of a single item."""
        return bool(((self.sums(costs) <= budget) | (np.diff(self.offsets) == 1)).all())


def mixed(n: int, rng: np.random.Generator | None) -> np.ndarray:
    """The items in random order, or as they are."""
    return np.arange(n) if rng is None else rng.permutation(n)


def by_rank(ranks: np.ndarray, rng: np.random.Generator | None) -> np.ndarray:
    """The items ordered by small integers, those of equal number in random order."""
    order = mixed(len(ranks), rng)
    keys = ranks[order]
    return order[np.argsort(keys.astype(np.uint16) if keys.size and keys.max() < 2**16 else keys, kind="stable")]


def ranked(costs: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The distinct costs, ascending; how many items have each; of every item the index of its own."""
    if costs.size and costs.dtype.kind == "i" and costs.max() < max(2**16, 4 * costs.size):
        counts = np.bincount(costs)
        distinct = np.flatnonzero(counts)
        index = np.zeros(len(counts), dtype=np.int32)
        index[distinct] = np.arange(len(distinct))
        return distinct, counts[distinct], index[costs]
    distinct, inverse, counts = np.unique(costs, return_inverse=True, return_counts=True)
    return distinct, counts, inverse.reshape(-1)


def next_fit(order: np.ndarray, costs: np.ndarray, budget) -> Groups:
    """Items in order, as many to a group as the budget takes; one that is larger is a group by itself."""
    n = len(order)
    ends = np.cumsum(costs[order])
    view, offsets, begin, before = ends.data, [0], 0, 0
    reach = int(min(n, 2 * n * budget / max(1, ends[-1] if n else 1))) + 16
    while begin < n:
        end = min(begin + reach, n)
        if end < n and view[end - 1] <= before + budget:
            end = n
        begin = max(begin + 1, bisect.bisect_right(view, before + budget, begin, end))
        before = view[begin - 1]
        offsets.append(begin)
    return Groups(order, np.array(offsets))


def first_fit_decreasing(costs: np.ndarray, budget, rng: np.random.Generator | None) -> Groups:
    """Items from large to small, each into the first group that has room for it.

    Items of equal cost are placed together: the groups are kept as runs of consecutive ones with equal room, so that the
    work depends on the number of distinct costs and not on that of items.
    """
    costs, budget = _whole(costs, budget)
    distinct, counts, index = ranked(costs)
    smallest, opened = int(distinct[0]), 0
    begin = many = room = np.empty(
        0, dtype=np.int64
    )  # of every run: its first group, how many they are, what fits into each
    taken: list[tuple] = []  # first groups, how many, items for each
    for cost, count in zip(distinct[::-1].tolist(), counts[::-1].tolist()):
        each = room // cost if cost else np.full(len(room), count)
        runs = np.flatnonzero(each)
        filled = np.cumsum(each[runs] * many[runs])
        whole = int(np.searchsorted(filled, count, side="right"))
        full, left = runs[:whole], count - (int(filled[whole - 1]) if whole else 0)
        taken.append((begin[full], many[full], each[full]))
        room[full] -= each[full] * cost
        if left:  # the first groups of a run, or of new ones, take as many as they can, one takes the rest
            run = int(runs[whole]) if whole < len(runs) else len(room)
            if run < len(room):
                per, first, space, other = int(each[run]), int(begin[run]), int(room[run]), int(many[run])
            else:
                per, first, space, other = min(max(1, budget // cost), left) if cost else left, opened, budget, 0
            groups, rest = divmod(left, per)
            opened = max(opened, first + groups + (rest > 0))
            parts = [(first, groups, space - per * cost), (first + groups, int(rest > 0), space - rest * cost)]
            parts.append((first + groups + (rest > 0), other - groups - (rest > 0), space))
            taken.append(([p[0] for p in parts[:2]], [p[1] for p in parts[:2]], [per, rest]))
            kept = [part for part in parts if part[1] > 0]
            begin, many, room = (
                np.concatenate([old[:run], [part[i] for part in kept], old[run + 1 :]]).astype(np.int64)
                for i, old in enumerate((begin, many, room))
            )
        useful = room >= smallest
        begin, many, room = begin[useful], many[useful], room[useful]
    starts, groups, each = (np.concatenate(parts) for parts in zip(*taken))
    opens = np.repeat(starts - (np.cumsum(groups) - groups), groups) + np.arange(groups.sum())
    group = np.repeat(opens, np.repeat(each, groups))  # of the items, from large to small
    largest_first = by_rank(len(distinct) - 1 - index, rng)
    keys = np.sort((group << 32) | largest_first) if len(costs) < 2**32 else None
    order = largest_first[np.argsort(group, kind="stable")] if keys is None else keys & (2**32 - 1)
    return Groups(order, np.concatenate([[0], np.cumsum(np.bincount(group))]))


def _whole(costs: np.ndarray, budget) -> tuple[np.ndarray, int]:
    """Costs as integers, of few distinct ones, that are never too small beside the budget."""
    if costs.dtype.kind == "f":
        unit = budget / 2**40
        costs = np.ceil(np.minimum(costs / unit, 2**41)).astype(np.int64)
        budget = 2**40
    if len(ranked(costs)[0]) > _DISTINCT:
        step = np.maximum(0, np.frexp(costs.astype(np.float64))[1] - 11).astype(np.int64)
        rounded = -(-costs >> step) << step
        costs = np.where((rounded <= budget) | (costs > budget), rounded, costs)
    return costs, int(budget)


def in_buckets(order: np.ndarray, bucket: np.ndarray, most: np.ndarray) -> Groups:
    """Items that are ordered by bucket, as many to a group as the bucket of its last one says, which are fewer and fewer."""
    ends, sizes = np.cumsum(np.bincount(bucket, minlength=len(most))).tolist(), most.tolist()
    offsets, begin, b = [0], 0, 0
    while begin < len(order):
        while ends[b] <= begin:
            b += 1
        c, end = b, min(begin + sizes[b], ends[b])
        while end == ends[c] and c + 1 < len(ends) and begin + sizes[c + 1] > end:
            c += 1
            end = min(begin + sizes[c], ends[c])
        offsets.append(end)
        begin = end
    return Groups(order, np.array(offsets))


# -- steps


def spread(
    rest: Groups, weights: np.ndarray, count: int, fit: Callable[[Groups], bool], costs, budget
) -> Groups | None:
    """The items of groups as `count` groups, or a multiple, of about equal weight; None if that does not work out."""
    items = rest.order
    if not 0 < count <= len(items):
        return None
    order = items[np.argsort(-weights[items], kind="stable")]
    loads, group = np.zeros(count), np.empty(len(order), dtype=np.int64)
    for begin in range(0, len(order), count):  # the largest of them to the group that has least
        chunk = order[begin : begin + count]
        least = np.argsort(loads, kind="stable")[: len(chunk)]
        group[begin : begin + count] = least
        loads[least] += weights[chunk]
    by_group = np.argsort(group, kind="stable")
    candidate = Groups(order[by_group], np.concatenate([[0], np.cumsum(np.bincount(group, minlength=count))]))
    if fit(candidate):
        return candidate
    return _one_by_one(items, costs, count, budget, fit) or _one_by_one(items, costs, 2 * count, budget, fit)


def _one_by_one(items: np.ndarray, costs: np.ndarray, count: int, budget, fit) -> Groups | None:
    """The largest item to the group that has least. Twice as many groups as the items had before always have room."""
    if not 0 < count <= len(items):
        return None
    order = items[np.argsort(-costs[items], kind="stable")]
    heap, group = [(0.0, 0, g) for g in range(count)], np.empty(len(order), dtype=np.int64)
    for i, cost in enumerate(costs[order].tolist()):
        load, held, g = heap[0]
        group[i] = g
        heapq.heapreplace(heap, (load + cost if cost <= budget else float("inf"), held + 1, g))
    by_group = np.argsort(group, kind="stable")
    candidate = Groups(order[by_group], np.concatenate([[0], np.cumsum(np.bincount(group, minlength=count))]))
    return candidate if fit(candidate) else None


def alike(rest: Groups, lengths: np.ndarray, count: int, fit: Callable[[Groups], bool]) -> Groups | None:
    """The items of groups as `count` groups, or a multiple, of equally many of similar length; or the shortest together."""
    order, first = rest.order[np.argsort(lengths[rest.order], kind="stable")], count
    while 0 < count <= len(order):
        candidate = Groups(order, np.linspace(0, len(order), count + 1).astype(np.int64))
        if fit(candidate):
            return candidate
        count *= 2
    return _one_by_one(order, lengths, first, np.inf, fit)


def deal(groups: Groups, weights: np.ndarray | None, world: int, rng, again: Callable | None) -> Groups:
    """Groups step by step: those of step s are s * world to (s + 1) * world, one for each rank.

    With weights, the groups of a step are of about equal weight. With a random generator the steps are in random order. What
    is left over is made groups again by `again(groups, count)`; without it, it is left out.
    """
    count = len(groups.offsets) - 1
    whole = count // world * world
    if weights is None:
        order = np.arange(count)
    else:
        order = np.argsort(-groups.sums(weights), kind="stable")
        steps = order[:whole].reshape(-1, world)
        steps[1::2] = steps[1::2, ::-1].copy()  # over two steps, what one rank has more the other has less
    ids, begin = order[:whole], whole
    if whole < count and again is not None:
        last, more = None, 0
        while last is None:
            begin = max(0, whole - more * world)
            last = again(groups.take(order[begin:]), whole - begin + world)
            if last is None and begin == 0:  # as many groups as there can be: whether that works depends on no order
                last = again(groups, len(groups.order) // world * world)
            if last is None and begin == 0:
                raise LoDValueError(
                    f"expected items for equally many batches on {world} ranks, got {len(groups.order)} items that fit into "
                    f"{count} batches; pass drop_last=True, or use fewer ranks"
                )
            more = 2 * more + 1
        ids = np.concatenate([order[:begin], count + np.arange(len(last.offsets) - 1)])
        groups = groups.then(last)
    steps = ids.reshape(-1, world)
    return groups.take((steps if rng is None else steps[rng.permutation(len(steps))]).reshape(-1))
