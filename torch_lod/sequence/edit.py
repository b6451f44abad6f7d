# SPDX-License-Identifier: Apache-2.0
"""Edit distances: between the sequences of two batches, and the error rates made of them."""

from typing import Any

import torch
from torch import Tensor

from .. import ops
from ..errors import LoDTypeError, public, shown
from ..structure.validate import a_bool
from ..tensor.lod_tensor import LoDTensor
from .ctc import labels_of
from .operator import Along, along, one_column, sequence_operator

__all__ = [
    "ErrorRate",
    "edit_distance",
]


def _pairs(hypotheses, references, level) -> tuple[Along, tuple[Tensor, ...]]:
    s = along(hypotheses, level, "hypotheses")
    numbers = one_column("hypotheses", hypotheses).to(torch.int64)
    others = labels_of(s, references, "references", "hypotheses")
    return s, (numbers, s.lod.row_offsets_at(s.k, numbers.device), *others)


@sequence_operator
def edit_distance(
    hypotheses: LoDTensor,
    references: LoDTensor,
    *,
    normalized: bool = False,
    return_alignment: bool = False,
    level: int | str = -1,
) -> Any:
    """How many numbers must be inserted, deleted or substituted to make every reference of its hypothesis (Levenshtein).

    Args:
        hypotheses, references: integers (rows,) or (rows, 1), with equally many sequences at the level of hypotheses and
            equal levels above it.
        normalized: divides by the length of the reference (float32): 0 where both are empty, inf where it alone is.
        return_alignment: also returns which number of one stands beside which of the other, in fewest edits; takes time and
            memory of the product of the lengths.

    Returns:
        (sequences,), int64, with the levels above. With return_alignment also, int64 with the LoDs of hypotheses and of
        references, the position in the other sequence, or -1 for what was inserted (in hypotheses) or left out (of
        references); numbers that stand beside one another and differ are substitutions. No gradient.

    Raises:
        ValueError, TypeError: where references do not fit hypotheses.

    Source: Myers, "A fast bit-vector algorithm for approximate string matching based on dynamic programming", JACM 46(3),
    1999; Paddle Fluid's edit_distance, which refuses to divide by the length of an empty reference.
    """
    for name, flag in (("normalized", normalized), ("return_alignment", return_alignment)):
        a_bool(name, flag)
    s, given = _pairs(hypotheses, references, level)
    positions: tuple[Tensor, ...] = ()
    if return_alignment:
        distance, *positions = ops.edit_alignment(*given)  # type: ignore[assignment]
    else:
        distance = ops.edit_distance(*given)
    if normalized:
        ratio = distance.float() / given[3].diff().float()
        distance = torch.where(distance == 0, 0, ratio)
    if not return_alignment:
        return s.pool(distance)
    return s.pool(distance), s.keep(positions[0]), along(references, 0, "references").keep(positions[1])


class ErrorRate:
    """Edits per number of the references, over all batches so far: the word error rate of words, the character error rate
    of characters, the label error rate of labels.

    `ErrorRate()(hypotheses, references)` is the rate of one batch. Over several:

        rate = ErrorRate()
        for hypotheses, references in batches:
            rate.update(hypotheses, references)
        print(rate.compute())

    Args:
        level: the level whose sequences are compared, as `edit_distance` takes it.

    `rate.errors` and `rate.length` are the edits and the length of the references so far.
    """

    @public
    def __init__(self, *, level: int | str = -1):
        if type(level) not in (int, str):
            raise LoDTypeError(f"expected level as a number or a name, got {shown(level)}")
        self.level = level
        self.reset()

    @public
    def reset(self) -> None:
        """Forgets all batches."""
        self.errors = self.length = 0

    @public
    def update(self, hypotheses: LoDTensor, references: LoDTensor) -> None:
        """Adds a batch; arguments and errors are those of `edit_distance`."""
        self._add(hypotheses, references)

    @public
    def compute(self) -> float:
        """The rate so far; without any reference 0 if there are no errors, otherwise inf."""
        return _rate(self.errors, self.length)

    @public
    def __call__(self, hypotheses: LoDTensor, references: LoDTensor) -> float:
        """Adds a batch, and returns the rate of this batch alone."""
        return _rate(*self._add(hypotheses, references))

    def _add(self, hypotheses, references) -> tuple[int, int]:
        errors, length = _counted(hypotheses, references, self.level)
        self.errors, self.length = self.errors + errors, self.length + length
        return errors, length


@sequence_operator
def _counted(hypotheses, references, level) -> tuple[int, int]:
    _, given = _pairs(hypotheses, references, level)
    return int(ops.edit_distance(*given).sum()), int(given[2].shape[0])


def _rate(errors: int, length: int) -> float:
    return errors / length if length else float("inf") if errors else 0.0
