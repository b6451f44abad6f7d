# SPDX-License-Identifier: Apache-2.0
"""Batches from a source that is read once from its beginning to its end."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import IterableDataset, get_worker_info

from ..errors import LoDTypeError, LoDValueError, public, shown
from ..structure.validate import whole
from ..tensor.lod_tensor import LoDTensor
from . import planning
from .items import a_number, a_seed, check_state, chosen, of_processes
from .planning import Groups

__all__ = ["TokenBudgetStream"]

#: Samples of a batch at most: also those that cost nothing make batches.
_MOST_SAMPLES = 2**20


class TokenBudgetStream(IterableDataset):
    """Batches, as lists of samples, from a source without an index: through a shuffle buffer, up to a budget.

    `DataLoader(stream, batch_size=None, collate_fn=tl.data.collate)`. Every process and every worker reads the whole source,
    makes the same batches and takes its own of them: so every sample occurs once, every rank has the same number of
    batches, those of a step of about equal cost, and neither ranks nor workers talk to one another. What is left over at
    the end is shared out over a last step or two.

    Args:
        source: an iterable that starts again each time it is iterated over, or a function of the epoch that returns an
            iterator. With workers that are spawned it is pickled.
        budget: what a batch costs at most. It also ends at 2**20 samples, for sources whose samples cost nothing.
        buffer: samples among which the next one is drawn; 0 keeps their order.
        seed: of the drawing, with the epoch.
        rank, world_size: of this process; None: of torch.distributed if it runs, otherwise one process.
        cost: a function of a sample that gives a number; len counts the rows of tensors and LoDTensors.
        too_large: a sample that costs more than the budget is refused ("refuse": ValueError), a batch by itself ("alone"),
            or cut into runs of items or rows of at most the budget ("cut": lists, strings, arrays and tensors, by length).
        drop_last: leave out what does not fill a step of all ranks.

    Raises:
        ValueError: while iterating, for a sample that is too large, and for too few samples for all ranks; with fewer than 3
            for each rank, which ones are too few may depend on their order.
    """

    @public
    def __init__(
        self,
        source: Iterable | Callable[[int], Iterator],
        budget: float,
        buffer: int = 10_000,
        seed: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
        *,
        cost: Callable[[Any], float] = len,
        too_large: str = "refuse",
        drop_last: bool = False,
    ):
        if isinstance(source, Iterator):
            raise LoDTypeError(
                f"expected source as an iterable that starts again, got {type(source).__name__}; pass a function of the epoch "
                "that makes it"
            )
        if not (isinstance(source, Iterable) or hasattr(source, "__getitem__") or callable(source)):
            raise LoDTypeError(f"expected source as an iterable or a function, got {shown(source)}")
        if not callable(cost):
            raise LoDTypeError(f"expected cost as a function of a sample, got {shown(cost)}")
        self.rank, self.world_size = of_processes(rank, world_size)
        self.budget, self.buffer, self.seed = a_number("budget", budget), whole("buffer", buffer), a_seed("seed", seed)
        if self.buffer < 0:
            raise LoDValueError(f"expected buffer >= 0, got {buffer}")
        self.too_large = chosen("too_large", too_large, ("refuse", "alone", "cut"))
        if too_large == "cut" and cost is not len:
            raise LoDValueError("expected too_large='cut' with cost=len, got another cost")
        if too_large == "cut" and self.budget < 1:
            raise LoDValueError(f"expected a budget of at least 1 with too_large='cut', got {shown(budget)}")
        self.drop_last = chosen("drop_last", drop_last, (True, False))
        self.source, self.cost = source, cost
        self._epoch = torch.zeros(1, dtype=torch.int64).share_memory_()  # workers that live on see it change
        self._step, self._resumed = 0, False
        self._begun = 0  # the step that the first worker gives

    @public
    def set_epoch(self, epoch: int) -> None:
        """The epoch that is drawn next; it does not change by itself. Workers see it as well."""
        if a_seed("epoch", epoch) != int(self._epoch):
            self._step, self._resumed = 0, False
        self._epoch.fill_(epoch)

    @public
    def state_dict(self, step: int | None = None) -> dict:
        """Where this copy of the stream is: the epoch, and the step behind the last batch that it gave.

        Workers of a DataLoader have copies of their own: give the number of batches that training has had as `step`, or use
        torchdata's StatefulDataLoader, which keeps the states of the copies.
        """
        step = self._step if step is None else a_seed("step", step)
        return {"epoch": int(self._epoch), "step": step, **self._identity()}

    @public
    def load_state_dict(self, state: dict) -> None:
        """Goes on from a state: the source is read again from its beginning, and the batches before the step left out."""
        check_state(state, self._identity(), "TokenBudgetStream.state_dict", "a stream with the same options")
        epoch, step = a_seed("epoch", state["epoch"]), a_seed("step", state["step"])
        self._epoch.fill_(epoch)
        self._step, self._resumed = step, True
        self._begun = self._step if get_worker_info() is None else 0  # a worker's own state: its steps are as they were

    def _identity(self) -> dict:
        keys = ("budget", "buffer", "seed", "world_size", "too_large", "drop_last")
        return {key: getattr(self, key) for key in keys}

    def __iter__(self) -> Iterator[list]:
        first, begun = (self._step, self._begun) if self._resumed else (0, 0)
        self._step, self._resumed = first, False
        info = get_worker_info()
        worker, workers = (0, 1) if info is None else (info.id, info.num_workers)
        for step, batches in enumerate(self._steps(int(self._epoch))):
            if step >= first and (step - begun) % workers == worker:
                self._step = step + 1
                yield batches[self.rank]

    def _steps(self, epoch: int) -> Iterator[list[list]]:
        """The batches of all ranks, step by step."""
        world, budget = self.world_size, self.budget
        pending: list[list] = []  # a step is held back, so that what is left over has company
        batches: list[list] = [[]]
        load, totals = 0.0, np.zeros(world)
        for sample, cost in self._drawn(epoch):
            if batches[-1] and (load + cost > budget or len(batches[-1]) >= _MOST_SAMPLES):
                if len(batches) == world:
                    if pending:
                        yield self._dealt(pending, totals)
                    pending, batches = self._leveled(batches, world) or batches, []
                batches.append([])
                load = 0.0
            batches[-1].append((sample, cost))
            load += cost
        if batches[-1:] == [[]]:
            batches.pop()
        if len(batches) == world:
            if pending:
                yield self._dealt(pending, totals)
            pending, batches = self._leveled(batches, world) or batches, []
        if not batches:
            if pending:
                yield self._dealt(pending, totals)
            return
        last = [] if self.drop_last else self._leveled(batches, world)
        if last is None:
            last, pending = self._leveled(pending + batches, len(pending) + world), []
        if last is None:
            raise LoDValueError(
                f"expected samples for equally many batches on {world} ranks, got {len(batches)} batches that were left over; "
                "pass drop_last=True, or use fewer ranks"
            )
        if pending:
            yield self._dealt(pending, totals)
        for at in range(0, len(last), world):
            yield self._dealt(last[at : at + world], totals)

    def _leveled(self, batches: list[list], count: int) -> list[list] | None:
        """The samples of batches as `count` batches of about equal cost, or twice as many; None if that does not work out."""
        if count == 1:
            return batches
        samples = [sample for batch in batches for sample in batch]
        costs = np.array([float(cost) for _, cost in samples])
        rest = Groups(np.arange(len(samples)), np.array([0, len(samples)]))
        found = planning.spread(rest, costs, count, lambda g: g.fit(costs, self.budget), costs, self.budget)
        if found is None or (len(found.offsets) - 1 > count and len(batches) == count):
            return None
        return [[samples[i] for i in found.order[a:b].tolist()] for a, b in zip(found.offsets, found.offsets[1:])]

    def _dealt(self, batches: list[list], totals: np.ndarray) -> list[list]:
        """The batches of a step, by rank: the most expensive one for the rank that has had least."""
        costs = np.array([float(sum(cost for _, cost in batch)) for batch in batches])
        order, ranks = np.argsort(-costs, kind="stable"), np.argsort(totals, kind="stable")
        totals[ranks] += costs[order]
        found = [[sample for sample, _ in batches[at]] for at in order.tolist()]
        return [found[at] for at in np.argsort(ranks).tolist()]

    def _drawn(self, epoch: int) -> Iterator[tuple[Any, float]]:
        """Samples with their costs, in the order in which the buffer lets them go."""
        if not self.buffer:
            yield from self._read(epoch)
            return
        rng = np.random.Generator(np.random.PCG64([self.seed, epoch]))
        held: list[tuple[Any, float]] = []
        draws: list[int] = []
        for entry in self._read(epoch):
            if len(held) < self.buffer:
                held.append(entry)
                continue
            if not draws:
                draws = rng.integers(0, self.buffer, 1024).tolist()
            at = draws.pop()
            yield held[at]
            held[at] = entry
        yield from (held[at] for at in rng.permutation(len(held)).tolist())

    def _read(self, epoch: int) -> Iterator[tuple[Any, float]]:
        for i, sample in enumerate(self.source(epoch) if callable(self.source) else self.source):
            cost = self.cost(sample)
            if isinstance(cost, Tensor):
                cost = cost.item()
            if not (isinstance(cost, (int, float, np.integer, np.floating)) and 0 <= cost < 2**62):
                raise LoDValueError(f"expected cost(sample) in [0, 2**62), got {shown(cost)} for sample {i}")
            if cost <= self.budget or self.too_large == "alone":
                yield sample, cost
            elif self.too_large == "refuse":
                raise LoDValueError(
                    f"expected samples that cost at most the budget {self.budget}, got {cost} for sample {i}; pass "
                    "too_large='alone' or 'cut', or a larger budget"
                )
            elif isinstance(sample, LoDTensor) or not isinstance(sample, (list, tuple, str, bytes, Tensor, np.ndarray)):
                raise LoDTypeError(
                    f"expected lists, strings, arrays or tensors with too_large='cut', got {type(sample).__name__} at sample "
                    f"{i}"
                )
            else:
                size = int(self.budget)
                for at in range(0, len(sample), size):
                    yield sample[at : at + size], min(size, len(sample) - at)
