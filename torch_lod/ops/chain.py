# SPDX-License-Identifier: Apache-2.0
"""Shape "chain": a dynamic program along every segment, over paths of tags."""

from torch import Tensor

from .library import operator

__all__ = [
    "chain_argmax",
    "chain_logsumexp",
    "chain_marginals",
    "chain_sample",
]


@operator
def chain_logsumexp(values: Tensor, transition: Tensor, row_offsets: Tensor) -> tuple[Tensor, Tensor]:
    """The logarithm of the sum of exp(score) over all paths of tags, a tag for each row of a segment.

        score(y) = start[y_0] + sum_t values[t, y_t] + sum_t between[y_t, y_t+1] + end[y_last]

    A row's scores are kept relative to their largest, so that tens of thousands of rows lose no digits; scores of -inf
    forbid a tag or a transition. Half types are summed in float32.

    Args:
        values: (rows, tags), a floating dtype.
        transition: (tags + 2, tags), of the dtype of values: rows start, end, then `between` from each tag to each.
        row_offsets: int64, (segments + 1,).

    Returns:
        (segments,), of the dtype of values: 0 for an empty segment, -inf where no path is possible (its gradient is 0);
        and the forward scores (rows, tags) of every row, relative to its largest, in what values are summed in, which
        have no gradient. The gradient is the posterior of tags and transitions. Double backward goes through a slower
        composition.

    Source: the forward-backward algorithm, Rabiner, "A tutorial on hidden Markov models", 1989; Lafferty, McCallum and
    Pereira, "Conditional random fields", 2001.
    """


@operator
def chain_marginals(values: Tensor, transition: Tensor, row_offsets: Tensor) -> Tensor:
    """The probability of every tag at every row: the sum of exp(score) over the paths through it (see `chain_logsumexp`),
    divided by that over all paths.

    Args:
        values, transition, row_offsets: as `chain_logsumexp`.

    Returns:
        (rows, tags), of the dtype of values; 0 in a segment where no path is possible. It is the gradient of the sum of
        `chain_logsumexp` by values. Its own gradient goes through a slower composition, a step of all segments at a time.

    Source: the forward-backward algorithm, Rabiner, "A tutorial on hidden Markov models", 1989.
    """


@operator
def chain_argmax(values: Tensor, transition: Tensor, row_offsets: Tensor, n: int = 1) -> tuple[Tensor, Tensor]:
    """The n paths of the largest score (see `chain_logsumexp`), best first; of equal ones that of the smaller tags at the
    last row where they differ. NaN is never best, nor is a score of +inf, of which no difference can be taken.

    Args:
        values, transition, row_offsets: as `chain_logsumexp`.
        n: how many.

    Returns:
        scores (segments, n), -inf where there are fewer paths, and tags (rows, n), int64, -1 for such a path. The only
        path of an empty segment has the score 0. Without gradient. Takes an int32 per row, tag and path while it runs, and
        per row and tag a time of tags + n log(tags).

    Source: Viterbi, "Error bounds for convolutional codes", 1967.
    """


@operator
def chain_sample(state: Tensor, transition: Tensor, row_offsets: Tensor, uniform: Tensor) -> Tensor:
    """Paths drawn with the probability exp(score) / sum of exp(score), each from numbers of its own.

    Args:
        state: (rows, tags), float32 or float64: the second result of `chain_logsumexp`.
        transition, row_offsets: as there, transition of the dtype of state.
        uniform: (rows, n), of the dtype of state, in [0, 1).

    Returns:
        tags (rows, n), int64; -1 in all rows of a segment where no path is possible.

    Source: forward filtering, backward sampling: Scott, "Bayesian methods for hidden Markov models", 2002.
    """
