# SPDX-License-Identifier: Apache-2.0
"""Shape "chain": a dynamic program along every sequence, step t of all of them together."""

import torch
from torch import Tensor

from .. import check
from .recurrence import Steps
from .table import composition, vjp, wide

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


@composition
def chain_logsumexp(values, transition, row_offsets, *, op="chain_logsumexp", **given):
    check.chain(op, values, transition, row_offsets, **given)
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
    return chain_logsumexp(*inputs)[0]


@composition
def chain_logsumexp_backward(grad, values, transition, row_offsets, state):
    def forward(values, transition):
        given = {"grad": grad, "state": state}
        return chain_logsumexp(values, transition, row_offsets, op="chain_logsumexp_backward", **given)[:1]

    return tuple(vjp(forward, (values, transition), [grad]))


@composition
def chain_marginals(values, transition, row_offsets, *, op="chain_marginals"):
    check.chain(op, values, transition, row_offsets)
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
    return chain_marginals(*inputs)


@composition
def chain_marginals_backward(grad, values, transition, row_offsets):
    """In float64: the counts of transitions are differences of large sums."""
    op = "chain_marginals_backward"
    check.chain(op, values, transition, row_offsets)
    check.kind(op, "grad", grad, values.dtype, values.device)
    if grad.shape != values.shape:
        raise ValueError(f"{op}: expected grad of shape {list(values.shape)}, as values, got {list(grad.shape)}")

    def forward(values, transition):
        return [chain_marginals(values, transition, row_offsets, op=op)]

    found = vjp(forward, (values.double(), transition.double()), [grad.double()])
    return tuple(d.to(values.dtype) for d in found)


@composition
def chain_argmax(values, transition, row_offsets, n=1):
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


@composition
def chain_sample(state, transition, row_offsets, uniform):
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
