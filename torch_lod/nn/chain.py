# SPDX-License-Identifier: Apache-2.0
"""Modules for structured prediction."""

from typing import TYPE_CHECKING, overload

import torch
from torch import Tensor

from ..dynamo import holds
from ..errors import LoDTypeError, LoDValueError, public, shown
from ..sequence.operator import sequence_operator
from ..sequence.paths import allowed_of, best, drawn, emissions, log_partition, loss, marginals, tags_of
from ..structure.validate import integer, with_memory
from ..tensor.lod_tensor import LoDTensor, MaybeLoD
from .module import Constants, at_least_one

__all__ = ["LinearChainCRF"]


class LinearChainCRF(Constants):
    """A linear-chain conditional random field: the last layer of a tagger, over the scores that a network gives to every tag.

        score(y) = start[y_0] + sum_t x[t, y_t] + sum_t transitions[y_t, y_t+1] + end[y_last]
        p(y) = exp(score(y)) / sum over all paths of exp(score)

    >>> crf = tl.nn.LinearChainCRF(3)
    >>> x = tl.from_lengths(torch.zeros(5, 3), [[2, 0, 3]])
    >>> crf(x, torch.tensor([0, 1, 2, 2, 0])).shape
    torch.Size([3])

    Args:
        num_tags: how many tags there are.
        allowed: bool, (num_tags, num_tags): whether a tag (row) may be followed by another (column).
        allowed_start, allowed_end: bool, (num_tags,): whether a sequence may start, or end, with a tag.
        level: whose sequences the tags follow one another in.

    Parameters are `start_transitions` and `end_transitions`, (num_tags,), and `transitions`, (num_tags, num_tags), from the
    row to the column.

    Source: Lafferty, McCallum and Pereira, "Conditional random fields", 2001.
    """

    forbidden: Tensor | None

    @public
    def __init__(
        self,
        num_tags: int,
        *,
        allowed: Tensor | None = None,
        allowed_start: Tensor | None = None,
        allowed_end: Tensor | None = None,
        level: int | str = -1,
        device=None,
        dtype=None,
    ):
        super().__init__()
        at_least_one(num_tags=num_tags)
        self.num_tags, self.level = num_tags, level
        make = {"device": device, "dtype": dtype}
        self.start_transitions = torch.nn.Parameter(torch.empty(num_tags, **make))
        self.end_transitions = torch.nn.Parameter(torch.empty(num_tags, **make))
        self.transitions = torch.nn.Parameter(torch.empty(num_tags, num_tags, **make))
        rules = {"allowed_start": allowed_start, "allowed_end": allowed_end, "allowed": allowed}
        given = [
            torch.ones(rows, num_tags, dtype=torch.bool, device="cpu") if t is None else _rule(name, t, rows, num_tags)
            for (name, t), rows in zip(rules.items(), (1, 1, num_tags))
        ]
        if all(t is None for t in rules.values()):
            self.forbidden = None
        else:
            forbidden = ~torch.cat([t if t.is_meta else t.cpu() for t in given])
            self.constant("forbidden", forbidden, self.transitions.device)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Uniform within 0.1 of 0."""
        for parameter in self.parameters():
            torch.nn.init.uniform_(parameter, -0.1, 0.1)
        self.restore()

    def transition(self) -> Tensor:
        """All transitions as `tl.ops.chain_logsumexp` takes them, (num_tags + 2, num_tags); -inf where forbidden."""
        with_memory(self.start_transitions, self.end_transitions, self.transitions, self.forbidden)
        whole = torch.cat([self.start_transitions[None], self.end_transitions[None], self.transitions])
        return whole if self.forbidden is None else whole.masked_fill(self.forbidden, float("-inf"))

    @sequence_operator
    def forward(self, x: LoDTensor, tags: Tensor) -> MaybeLoD:
        """The negative log-likelihood of every sequence: a loss.

        Args:
            x: (rows, num_tags), a floating dtype.
            tags: integers in [0, num_tags), (rows,); IndexError otherwise. Or, where not every tag is known, bool,
                (rows, num_tags): the tags that a row may have; then the loss is that of all paths through them. With the
                LoD of x, or plain.

        Returns:
            (sequences,), with the levels above; plain if there are none. Of the dtype of x, float32 for half types under
            autocast. 0 for an empty sequence, inf where the tags are forbidden.
        """
        s, transition = self._of(x)
        partial = isinstance(tags, Tensor) and tags.dtype == torch.bool
        return s.pool(loss(s, transition, (allowed_of if partial else tags_of)(s, tags, "tags")))

    @overload
    def decode(self, x: LoDTensor, n: None = None) -> LoDTensor: ...
    @overload
    def decode(self, x: LoDTensor, n: int) -> tuple[LoDTensor, MaybeLoD]: ...
    @sequence_operator
    def decode(self, x: LoDTensor, n: int | None = None) -> LoDTensor | tuple[LoDTensor, MaybeLoD]:
        """The best tags of every sequence.

        Args:
            x: as for `forward`.
            n: how many paths; None for the best alone.

        Returns:
            int64, (rows,), with the LoD of x. With `n`: (rows, n), best first, -1 where there are fewer paths, and their
            scores (sequences, n), with the levels above.
        """
        s, transition = self._of(x)
        scores, path = best(s, transition, 1 if n is None else integer("n", n, most=2**16))
        return s.keep(path.squeeze(1)) if n is None else (s.keep(path), s.pool(scores))

    @sequence_operator
    def marginals(self, x: LoDTensor) -> LoDTensor:
        """The probability of every tag at every row, (rows, num_tags), with the LoD of x. Differentiable."""
        s, transition = self._of(x)
        return s.keep(marginals(s, transition))

    @sequence_operator
    def sample(self, x: LoDTensor, n: int = 1, *, generator: torch.Generator | None = None) -> LoDTensor:
        """`n` paths of tags for every sequence, drawn with their probability: int64, (rows, n), with the LoD of x."""
        s, transition = self._of(x)
        return s.keep(drawn(s, transition, integer("n", n, most=2**16), generator))

    @sequence_operator
    def log_partition(self, x: LoDTensor) -> MaybeLoD:
        """The logarithm of the sum of exp(score) over all paths, (sequences,), with the levels above."""
        s, transition = self._of(x)
        return s.pool(log_partition(s, transition))

    def _of(self, x):
        if isinstance(x, LoDTensor) and (x.dim() != 2 or not holds(x.shape[1] == self.num_tags)):
            raise LoDValueError(f"expected x of shape (rows, {self.num_tags}), got {tuple(x.shape)}")
        transition = self.transition()
        return emissions(x, transition, self.level), transition

    if TYPE_CHECKING:

        def __call__(self, x: LoDTensor, tags: Tensor) -> MaybeLoD: ...

    def extra_repr(self) -> str:
        level = "" if self.level == -1 else f", level={self.level!r}"
        return f"{self.num_tags}{level}" + (
            "" if self.forbidden is None else f", forbidden={int(self.forbidden.sum())}"
        )


def _rule(name: str, given, rows: int, tags: int) -> Tensor:
    if not isinstance(given, Tensor) or given.dtype != torch.bool:
        got = given.dtype if isinstance(given, Tensor) else type(given).__name__
        raise LoDTypeError(f"expected {name} as a tensor of dtype bool, got {got}")
    with_memory(given)
    shape = (tags, tags) if name == "allowed" else (tags,)
    if tuple(given.shape) != shape:
        raise LoDValueError(f"expected {name} of shape {shape}, got {shown(tuple(given.shape))}")
    return given.view(rows, tags)
