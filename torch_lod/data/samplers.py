# SPDX-License-Identifier: Apache-2.0
"""Batch samplers for items of variable length."""

import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
from torch import Tensor
from torch.utils.data import Sampler

from ..errors import LoDError, LoDTypeError, LoDValueError, named, public, shown
from ..structure.validate import dense_with_data, host_integers, unmasked, whole
from . import planning
from .items import Items, a_number, a_seed, check_state, chosen, of_processes
from .planning import Groups

__all__ = ["BucketSampler", "PackingSampler", "TokenBudgetSampler"]


class _BatchSampler(Sampler[list]):
    """Plans an epoch in one call, deals its batches to the ranks, and knows where it is."""

    def __init__(
        self, lengths, budget, shuffle, seed, rank, world_size, level, cost, balance, too_large, drop_last
    ) -> None:
        self.rank, self.world_size = of_processes(rank, world_size)
        self.budget, self.seed = None if budget is None else a_number("budget", budget), a_seed("seed", seed)
        self.too_large = chosen("too_large", too_large, ("refuse", "alone", "cut"))
        self.shuffle = chosen("shuffle", shuffle, (True, False))
        self.drop_last = chosen("drop_last", drop_last, (True, False))
        self._items = Items(lengths, level, cost, balance, budget, too_large)
        self._epoch, self._step = 0, 0
        self._ended: int | None = None  # the epoch whose end was reached, until something else begins
        self._planned: tuple[int, Groups] | None = None

    def _grouped(self, items: Items, rng) -> Groups:
        """The batches of an epoch, before they are dealt to the ranks: of every sampler its own."""
        raise NotImplementedError

    def _again(self, rest: Groups, count: int) -> Groups | None:
        """The items of batches that are too few for all ranks, as more of them."""
        items = self._items
        return planning.spread(
            rest, items.weights, count, lambda found: found.fit(items.costs, self.budget), items.costs, self.budget
        )

    def _plan(self, epoch: int) -> Groups:
        try:
            return self._planned_for(epoch)
        except LoDError as error:
            raise named(error, type(self).__name__) from None

    def _planned_for(self, epoch: int) -> Groups:
        if self._planned is None or self._planned[0] != epoch:
            rng = np.random.Generator(np.random.PCG64([self.seed, epoch])) if self.shuffle else None
            groups = self._grouped(self._items, rng)
            weights = self._items.weights if self.shuffle or self._sorts else None
            again = None if self.drop_last else self._again
            dealt = planning.deal(groups, weights, self.world_size, rng, again)
            if len(dealt.offsets) == 1:
                raise LoDValueError(
                    f"expected at least {self.world_size} batches, one for each rank, got {len(groups.offsets) - 1}; pass "
                    "drop_last=False, or use fewer ranks"
                )
            self._planned = epoch, dealt
        return self._planned[1]

    #: Whether items are in an order of the sampler's own even without shuffle.
    _sorts = False

    @property
    def epoch(self) -> int:
        return self._epoch

    @public
    def set_epoch(self, epoch: int) -> None:
        """The epoch whose batches are drawn next. An iteration that reaches its end goes on to the next epoch by itself."""
        epoch = a_seed("epoch", epoch)
        if epoch != self._epoch:
            self._epoch, self._step, self._ended = epoch, 0, None
        self._resumed = self._step > 0

    _resumed = False

    @public
    def __len__(self) -> int:
        """The batches of the epoch, on every rank."""
        return (len(self._plan(self._epoch).offsets) - 1) // self.world_size

    def __iter__(self) -> Iterator[list]:
        """Batches as lists of indices (and `Piece`s), from the step of a loaded state or from the first one."""
        return self._batches()

    def _batches(self) -> Iterator[list]:
        # begins with the first batch: a DataLoader makes iterators that it does not use
        step, epoch = self._step if self._resumed else 0, self._epoch
        self._resumed, self._step, self._ended = False, step, None
        plan = self._plan(epoch)
        offsets, world = plan.offsets, self.world_size
        for at in range(step, (len(offsets) - 1) // world):
            group = at * world + self.rank
            self._epoch, self._step = epoch, at + 1
            yield self._items.named(plan.order[offsets[group] : offsets[group + 1]])
        self._epoch, self._step, self._ended = epoch + 1, 0, epoch

    @public
    def state_dict(self, step: int | None = None) -> dict:
        """Where the sampler is: epoch and step, and what both belong to.

        A DataLoader with workers asks a sampler for batches ahead of time: give the number of batches that training has had
        as `step`, or use torchdata's StatefulDataLoader, which keeps count itself.
        """
        epoch, step = self._epoch, self._step if step is None else a_seed("step", step)
        if step and self._ended is not None:  # workers had all batches of an epoch before training had
            epoch = self._ended
        return {"epoch": epoch, "step": step, **self._identity()}

    @public
    def load_state_dict(self, state: dict) -> None:
        """Goes on from a state; the next iteration begins with its step. ValueError for a state of other lengths or options."""
        call, same = f"{type(self).__name__}.state_dict", "a sampler with the same lengths and options"
        check_state(state, self._identity(), call, same)
        epoch, step = a_seed("epoch", state["epoch"]), whole("step", state["step"])
        steps = (len(self._plan(epoch).offsets) - 1) // self.world_size
        if not 0 <= step <= steps:
            raise LoDValueError(f"expected step in [0, {steps}], got {shown(step)}")
        self._epoch, self._step, self._resumed, self._ended = epoch, step, True, None

    def _identity(self) -> dict[str, Any]:
        items, crc = self._items, 0
        if self._crc is None:
            for array in (items.lengths, items.costs, items.weights):
                crc = zlib.crc32(np.ascontiguousarray(array).data, crc)
            self._crc = zlib.crc32(repr(self._options()).encode(), crc)
        kind = type(self).__name__
        return {
            "sampler": kind,
            "items": items.count,
            "world_size": self.world_size,
            "seed": self.seed,
            "crc": self._crc,
        }

    _crc: int | None = None

    def _options(self) -> tuple:
        return self.budget, self.shuffle, self.too_large, self.drop_last

    @public
    def summary(self) -> dict[str, float]:
        """Of the epoch: `steps`; `items` that its batches hold; how full they are (`filled`, of the budget); how much more
        than the mean the rank has that has most, over the epoch (`imbalance`) and in a step (`step_imbalance`, on average)."""
        plan, items = self._plan(self._epoch), self._items
        costs, weights = plan.sums(items.costs), plan.sums(items.weights).astype(np.float64)
        steps = weights.reshape(-1, self.world_size)
        ranks, means = steps.sum(0), np.maximum(steps.mean(1), 1e-300)
        return {
            "steps": len(steps),
            "items": len(plan.order),
            "filled": float(costs.mean() / self.budget) if self.budget else float("nan"),
            "imbalance": float(ranks.max() / max(ranks.mean(), 1e-300) - 1),
            "step_imbalance": float((steps.max(1) / means - 1).mean()),
        }


_ABOUT = """{about}

    A batch sampler for torch.utils.data.DataLoader: `DataLoader(dataset, batch_sampler=sampler, collate_fn=tl.data.collate)`.
    Every item occurs once in an epoch. Every rank has the same number of batches, those of a step of about equal {equal}; what
    is left over is shared out over a last step of smaller batches. Batches depend on the lengths, the options, the seed and
    the epoch, and on nothing else; a state that was saved in the middle of an epoch goes on with the very same batches.

    Args:
        lengths: integers (items,); or a LoD, LoDTensor or LoDDataset, whose outermost sequences are the items, or a Subset
            of a LoDDataset (`torch.utils.data.random_split`): give the sampler what the DataLoader gets.
{size}
        shuffle: other batches in every epoch. False: {unshuffled}.
        seed: of the shuffling, with the epoch. The end of an iteration moves on to the next epoch, and so does `set_epoch`.
        rank, world_size: of this process; None: of torch.distributed if it runs, otherwise one process.
        level: with a LoD, the level whose sequences are charged; an item costs what they cost together.
{cost}
        too_large: an item that costs more than the budget is refused ("refuse": ValueError), a batch by itself ("alone"), or
            cut into `Piece`s, which LoDDataset takes in place of an index ("cut"; items of one level, into at most 2**25
            pieces or 4 for each item).
        drop_last: leave out what does not fill a step of all ranks.

    Raises:
        ValueError: for no items, negative lengths, an item that is too large, too many pieces; in the first epoch for too few
            items or, with drop_last, too few batches for all ranks.
        TypeError: for lengths that are no integers.
    """
_BUDGET = "        budget: what a batch costs at most."
_COST = """        cost: of a sequence of a length: "length" (rows, at the innermost level), "square" (of the length, as attention
            costs), or a function of an array of lengths that gives an array.
        balance: by what the batches of a step are alike, given as `cost`; None: by the cost."""


class TokenBudgetSampler(_BatchSampler):
    __doc__ = _ABOUT.format(
        about="""Batches of as many items, in random order, as a budget takes. Their number, and so that of the steps, may differ
    between epochs. With drop_last, and so few items that there may be fewer batches than ranks, they are packed as by
    PackingSampler, with as many batches in every epoch. With weights, an epoch draws as many items as there are, with
    replacement: then an item may occur several times in it, or not at all.""",
        equal="cost",
        size=_BUDGET,
        unshuffled="items in order, a batch for each rank, round-robin",
        cost=_COST
        + """
        weights: how often each item is drawn, (items,), numbers of at least 0, not all of them 0, as of
            torch.utils.data.WeightedRandomSampler: `1 / count[label]` for classes that are rare. With shuffle only, and not
            with too_large="cut". With drop_last an epoch that draws few or small items may have too few batches for all
            ranks: ValueError.""",
    )

    @public
    def __init__(
        self,
        lengths,
        budget: float,
        shuffle: bool = True,
        seed: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
        *,
        level: int | str = -1,
        cost="length",
        balance=None,
        too_large: str = "refuse",
        drop_last: bool = False,
        weights=None,
    ):
        a_number("budget", budget)
        super().__init__(lengths, budget, shuffle, seed, rank, world_size, level, cost, balance, too_large, drop_last)
        self._share = None if weights is None else _shares(weights, self._items.count)
        if weights is not None and not shuffle:
            raise LoDValueError("expected shuffle=True with weights, got False")
        if weights is not None and too_large == "cut":
            raise LoDValueError("expected too_large 'refuse' or 'alone' with weights, got 'cut'")

    def _options(self) -> tuple:
        drawn = () if self._share is None else (zlib.crc32(self._share.data),)
        return *super()._options(), *drawn

    def _grouped(self, items, rng):
        if rng is not None and self._share is not None:
            drawn = rng.choice(items.count, items.count, p=self._share)
            return planning.next_fit(items.whole[drawn], items.costs, self.budget)
        if rng is not None and self.drop_last:
            least = np.minimum(items.costs[items.whole], self.budget).sum(dtype=np.float64) / self.budget
            if least <= self.world_size - 1:  # in some orders there would be fewer batches than ranks
                return _packed(items, self.budget, rng)
        order = items.whole if rng is None else items.whole[rng.permutation(len(items.whole))]
        return planning.next_fit(order, items.costs, self.budget)


def _shares(weights, count: int) -> np.ndarray:
    """What each weight is of their sum."""
    found = _host_numbers("weights", weights)
    if found.shape != (count,):
        raise LoDValueError(f"expected weights of shape ({count},), one for each item, got {found.shape}")
    if (wrong := ~((found >= 0) & (found < np.inf))).any():
        i = int(wrong.argmax())
        raise LoDValueError(f"expected weights of at least 0, got {found[i]} at index {i}")
    most = found.max(initial=0)
    if most == 0:
        raise LoDValueError("expected weights that are not all 0")
    found = found / most  # the sum of the largest numbers would overflow
    return found / found.sum()


def _host_numbers(what: str, given) -> np.ndarray:
    """Numbers in host memory, float64."""
    given = unmasked(what, given)
    if isinstance(given, Tensor):
        dense_with_data(what, given)
    try:
        found = given.detach().cpu().numpy() if isinstance(given, Tensor) else np.asarray(given)
        if found.dtype.kind not in "iuf":
            raise TypeError
    except (TypeError, ValueError, RuntimeError):
        raise LoDTypeError(f"expected {what} as a list, an array or a tensor of numbers, got {shown(given)}") from None
    return found.astype(np.float64)


class PackingSampler(_BatchSampler):
    __doc__ = _ABOUT.format(
        about="""Batches as full as first-fit decreasing makes them: from the largest item to the smallest, each goes into the
    first batch with room for it. Items of equal cost are exchanged at random. Where there are more than 4,096 distinct costs,
    they are rounded up to 11 bits.""",
        equal="cost",
        size=_BUDGET,
        unshuffled="the same batches in every epoch",
        cost=_COST,
    )
    _sorts = True

    @public
    def __init__(
        self,
        lengths,
        budget: float,
        shuffle: bool = True,
        seed: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
        *,
        level: int | str = -1,
        cost="length",
        balance=None,
        too_large: str = "refuse",
        drop_last: bool = False,
    ):
        a_number("budget", budget)
        super().__init__(lengths, budget, shuffle, seed, rank, world_size, level, cost, balance, too_large, drop_last)

    def _grouped(self, items, rng):
        return _packed(items, self.budget, rng)


def _packed(items: Items, budget, rng) -> Groups:
    packed = planning.first_fit_decreasing(items.costs[items.whole], budget, rng)
    return Groups(items.whole[packed.order], packed.offsets)


class BucketSampler(_BatchSampler):
    __doc__ = _ABOUT.format(
        about="Batches of items of similar length, for models that pad.",
        equal="length",
        size="""        batch_size: items of a batch; or
        budget: what a padded batch has at most: its items times the longest of them.""",
        unshuffled="the same batches in every epoch",
        cost="""        buckets: how many groups of similar length there are, of equally many items; or the lengths at which they end.
        balance: by what the batches of a step are alike: "length", "square" or a function of lengths; None: by length.""",
    )
    _sorts = True

    @public
    def __init__(
        self,
        lengths,
        batch_size: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
        *,
        budget: float | None = None,
        buckets=100,
        level: int | str = -1,
        balance=None,
        too_large: str = "refuse",
        drop_last: bool = False,
    ):
        if (batch_size is None) == (budget is None):
            raise LoDValueError(f"expected either batch_size or budget, got {'neither' if budget is None else 'both'}")
        if batch_size is not None and not 1 <= whole("batch_size", batch_size) < 2**62:
            raise LoDValueError(f"expected batch_size >= 1, got {shown(batch_size)}")
        if isinstance(buckets, (int, np.integer)) and not isinstance(buckets, bool):
            if buckets < 1:
                raise LoDValueError(f"expected buckets >= 1, got {shown(buckets)}")
        else:
            buckets = host_integers("buckets", buckets).numpy()
        if budget is None and too_large != "refuse":
            raise LoDValueError(f"expected too_large with a budget only, got {shown(too_large)} with batch_size")
        self.batch_size, self.buckets = batch_size, buckets
        super().__init__(
            lengths, budget, shuffle, seed, rank, world_size, level, "length", balance, too_large, drop_last
        )

    def _grouped(self, items, rng):
        lengths = items.lengths[items.whole]
        if isinstance(self.buckets, np.ndarray):
            ends = np.unique(self.buckets)
        else:  # so that all have about equally many items
            distinct, counts, _ = planning.ranked(lengths)
            share = np.cumsum(counts) * min(self.buckets, len(distinct)) // len(lengths)
            ends = distinct[np.flatnonzero(np.diff(share, append=share[-1] + 1))]
        bucket = np.searchsorted(ends, lengths)
        order = planning.by_rank(bucket, rng)
        if self.budget is None:
            return Groups(items.whole[order], np.append(np.arange(0, len(order), self.batch_size), len(order)))
        longest = np.zeros(len(ends) + 1, dtype=np.int64)
        np.maximum.at(longest, bucket, lengths)
        most = np.maximum(1, np.minimum(self.budget // np.maximum(1, longest), len(order))).astype(np.int64)
        groups = planning.in_buckets(order, bucket, most)
        return Groups(items.whole[groups.order], groups.offsets)

    def _again(self, rest, count):
        return planning.alike(rest, self._items.lengths, count, self._fit)

    def _fit(self, groups: Groups) -> bool:
        counts = np.diff(groups.offsets)
        if self.batch_size is not None:
            return bool((counts <= self.batch_size).all())
        longest = np.maximum.reduceat(self._items.lengths[groups.order], groups.offsets[:-1])
        return bool(((counts * longest <= self.budget) | (counts == 1)).all())

    def _options(self):
        return (*super()._options(), self.batch_size, np.asarray(self.buckets).tolist())
