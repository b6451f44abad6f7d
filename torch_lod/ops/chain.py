# SPDX-License-Identifier: Apache-2.0
"""Shape "chain": a dynamic program along every segment, over paths of tags."""

import torch
from torch import Tensor

from . import check
from .compositions import composed, vjp, wide
from .library import composition, operator
from .recurrence import Steps

__all__ = [
    "chain_argmax",
    "chain_logsumexp",
    "chain_marginals",
    "chain_sample",
]


_NEVER = float("-inf")


def _logsumexp(x: Tensor, dim: int) -> Tensor:
    """As torch.logsumexp, with gradients of 0 where all are -inf."""
    top = x.detach().amax(dim, keepdim=True)
    top = torch.where(top.isinf(), 0, top)
    total = (x - top).exp().sum(dim)
    some = total != 0
    return torch.where(some, torch.where(some, total, 1).log() + top.squeeze(dim), _NEVER)


def _relative(a: Tensor) -> tuple[Tensor, Tensor]:
    """Scores relative to the largest of every sequence, which is the other result."""
    top = a.detach().flatten(1).nan_to_num(_NEVER, torch.inf, _NEVER).amax(1)
    top = torch.where(top == _NEVER, 0, top)
    return a - top.view(-1, *[1] * (a.dim() - 1)), top


def _forward_scores(rows, start: Tensor, between: Tensor):
    """Of every step the scores of all paths that end in a tag, as `_relative` returns them."""
    a = start
    for t, e in enumerate(rows):
        a, top = _relative(e + (_logsumexp(a[: len(e), :, None] + between, 1) if t else start))
        yield a, top


def _by_sequence(steps: Steps, ends: list[Tensor], none: Tensor) -> Tensor:
    """The result of the sequences that end at every step, in their own order; `none`, a row, for those without rows."""
    empty = steps.order.shape[0] - sum(len(end) for end in ends)
    found = torch.cat([*reversed(ends), none.expand(empty, *none.shape[1:])])
    return found.index_select(0, steps.order.argsort())


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
    check.chain("chain_logsumexp", values, transition, row_offsets)
    steps, tags = Steps(row_offsets, False, values.device), values.shape[1]
    x, (start, end, between) = wide(values), wide(transition).split([1, 1, tags])
    total = x.new_zeros(0)
    states, ends, count = [], [], steps.alive[1:] + [0]
    for t, (a, top) in enumerate(_forward_scores(steps.split(x), start, between)):
        total = total[: len(a)] + top.double() if t else top.double()
        states.append(a.detach())
        left = count[t]
        ends.append((total[left:] + _logsumexp(a[left:] + end, 1).double()).to(values.dtype))
    return _by_sequence(steps, ends, values.new_zeros(1)), steps.joined(states, x, tags)


@composition
def chain_logsumexp_composed(*inputs):
    return composed.chain_logsumexp(*inputs)[0]


@composition
def chain_logsumexp_backward(grad, values, transition, row_offsets, state):
    check.chain("chain_logsumexp_backward", values, transition, row_offsets, grad=grad, state=state)

    def forward(values, transition):
        return composed.chain_logsumexp(values, transition, row_offsets)[:1]

    return tuple(vjp(forward, (values, transition), [grad]))


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
    check.chain("chain_marginals", values, transition, row_offsets)
    steps, tags = Steps(row_offsets, False, values.device), values.shape[1]
    x, (start, end, between) = wide(values), wide(transition).split([1, 1, tags])
    rows = steps.split(x)
    forward = [a for a, _ in _forward_scores(rows, start, between)]
    found: list[Tensor] = []
    after = x.new_zeros(0, tags)  # the scores of all paths from a tag to the end
    for a, e in zip(reversed(forward), reversed(rows)):
        after = torch.cat([after, end.expand(len(a) - len(after), -1)])  # of the sequences that end here
        scores = a + after
        none = scores.detach().amax(1, keepdim=True) == _NEVER
        found.append(torch.where(none, 0, torch.where(none, 0, scores).softmax(1)))
        after, _ = _relative(_logsumexp(between + (e + after)[:, None], 2))
    return steps.joined(found[::-1], x, tags).to(values.dtype)


@composition
def chain_marginals_composed(*inputs):
    return composed.chain_marginals(*inputs)


@composition
def chain_marginals_backward(grad, values, transition, row_offsets):
    """In float64: the counts of transitions are differences of large sums."""
    op = "chain_marginals_backward"
    check.chain(op, values, transition, row_offsets)
    check.kind(op, "grad", grad, values.dtype, values.device)
    if grad.shape != values.shape:
        raise ValueError(f"{op}: expected grad of shape {list(values.shape)}, as values, got {list(grad.shape)}")

    def forward(values, transition):
        return [composed.chain_marginals(values, transition, row_offsets)]

    found = vjp(forward, (values.double(), transition.double()), [grad.double()])
    return tuple(d.to(values.dtype) for d in found)


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
    check.chain("chain_argmax", values, transition, row_offsets)
    check.count("chain_argmax", n, values.shape[1])
    steps, tags = Steps(row_offsets, False, values.device), values.shape[1]
    x = wide(values.detach())
    start, end, between = wide(transition.detach()).split([1, 1, tags])

    def best(scores):
        """Of (sequences, from, to) the n largest and where they come from; equals keep their order, NaN comes last."""
        scores, index = scores.nan_to_num(_NEVER, torch.inf, _NEVER).sort(dim=1, descending=True, stable=True)
        return scores[:, :n].transpose(1, 2), index[:, :n].transpose(1, 2)

    a = total = x.new_zeros(0)
    back, ends, count = [], [], steps.alive[1:] + [0]
    for t, e in enumerate(steps.split(x)):
        if t:
            a, index = best((a[: len(e), :, :, None] + between[:, None]).flatten(1, 2))
        else:
            index = torch.zeros(len(e), tags, n, dtype=torch.int64, device=x.device)
            a = torch.cat([start.view(1, tags, 1).expand(len(e), -1, -1), x.new_full((len(e), tags, n - 1), _NEVER)], 2)
        a, top = _relative(a + e[:, :, None])
        total = total[: len(e)] + top.double() if t else top.double()
        back.append(index)
        left = count[t]
        ends.append(
            (total[left:, None], *(v.squeeze(1) for v in best((a[left:] + end.view(-1, 1)).flatten(1)[..., None])))
        )
    scores = [torch.where(v == _NEVER, _NEVER, base + v.double()).to(values.dtype) for base, v, _ in ends]
    none = torch.full((1, n), _NEVER, dtype=values.dtype, device=values.device)
    none[:, 0] = 0
    path: list[Tensor] = []
    at = torch.zeros(0, n, dtype=torch.int64, device=x.device)
    for t in reversed(range(len(ends))):  # those that go on, then those that end here
        _, last, index = ends[t]
        followed = back[t + 1][: len(at)].flatten(1).gather(1, at.clamp(min=0)) if len(at) else at
        at = torch.cat([torch.where(at < 0, -1, followed), torch.where(last == _NEVER, -1, index)])
        path.append(at.div(n, rounding_mode="floor").clamp(min=-1))
    return _by_sequence(steps, scores, none), steps.joined(path[::-1], torch.empty_like(values, dtype=torch.int64), n)


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
    check.chain_sample("chain_sample", state, transition, row_offsets, uniform)
    steps, tags = Steps(row_offsets, True, state.device), state.shape[1]
    state, transition = state.detach(), transition.detach()
    end, between = transition[1], transition[2:].t()
    path: list[Tensor] = []
    y = None
    for a, drawn in zip(steps.split(state), steps.split(uniform)):  # from the last rows back
        after = end if y is None else between[y[: len(a)].clamp(min=0)]
        scores = (a[:, None] + after).expand(-1, drawn.shape[1], -1)
        top = scores.nan_to_num(_NEVER, torch.inf, _NEVER).amax(2, keepdim=True)
        p = (scores - top).exp()
        sums = torch.where(p > 0, p, 0).cumsum(2)
        reached = (sums > drawn[..., None] * sums[..., -1:]) & (p > 0)
        last = tags - 1 - (p > 0).flip(2).long().argmax(2)
        lost = top.squeeze(2) == _NEVER
        lost = lost if y is None else lost | (y[: len(a)] < 0)
        y = torch.where(lost, -1, torch.where(reached.any(2), reached.long().argmax(2), last))
        path.append(y)
    out = steps.joined(path, torch.empty_like(uniform, dtype=torch.int64), uniform.shape[1])
    if not path:
        return out
    segment = torch.repeat_interleave(row_offsets.diff(), output_size=len(state))
    lost = torch.zeros(len(row_offsets) - 1, uniform.shape[1], dtype=torch.bool, device=state.device)
    lost = lost.index_put((segment,), out < 0, accumulate=True)
    return torch.where(lost[segment], -1, out)
