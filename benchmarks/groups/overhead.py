# SPDX-License-Identifier: Apache-2.0
"""What a call costs before any work is done: 10 rows of 4."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

import torch_lod as tl

from ..cases import Case, Cases, Run, Setup, plain
from ..goals import Goal, faster_than, over_floor, within

Function = Callable[[Tensor], object]


@dataclass
class Call:
    """An operator on the rows: ours, and the floor, which does about as much without knowing of sequences."""

    name: str
    ours: dict[str, tuple[Function, Tensor]]  # each with what it is called on
    peers: dict[str, tuple[Function, Tensor]]
    floor: tuple[Function, Tensor]
    floor_is: str
    answer: Callable[[Tensor], Tensor]  # by plain means


def cases(setup: Setup) -> Cases:
    x = torch.randn(10, 4, generator=torch.Generator().manual_seed(0)).to(setup.device)
    lod = tl.LoD.from_lengths([[3, 7]])
    offsets = lod.row_offsets(0).to(setup.device)
    linear = torch.nn.Linear(4, 4, device=setup.device)
    for name, function in {
        "x + 1": lambda t: t + 1,
        "x * x": lambda t: t * t,
        "relu(x)": torch.relu,
        "Linear(4, 4)(x)": linear,
    }.items():
        call = Call(
            name,
            ours={"LoDTensor": (function, tl.LoDTensor(x, lod))},
            peers={"torch.nested": (function, _nested(x, offsets))},
            floor=(function, x),
            floor_is="plain tensor",
            answer=function,
        )
        yield _case(call, call.floor[1], lambda function, t: lambda: function(t), (over_floor(4),))
    calls = _calls(x, lod, offsets)
    for call in calls[: 2 if setup.quick else None]:
        goals = (within(6), faster_than(10, "torch.nested")) if call.peers else (within(6),)
        yield _case(call, call.floor[1], _with_gradient, goals, ", with gradient")
    yield _case(calls[0], x, _and_backward, (), ", with gradient and backward")


def _case(call: Call, x: Tensor, run: Callable, goals: tuple[Goal, ...], how: str = "") -> Case:
    def rows(result: object) -> tuple[Tensor, ...]:
        return tuple(map(plain, result if isinstance(result, tuple) else (result,)))

    def runs(contestants: dict[str, tuple[Function, Tensor]]) -> dict[str, Run]:
        return {name: Run(run(*given), rows) for name, given in contestants.items()}

    def expected() -> tuple[Tensor, ...]:
        return tuple(t.detach().cpu() for t in rows(run(call.answer, x)()))

    return Case(
        name=f"{call.name}{how}",
        ours=runs(call.ours),
        peers=runs(call.peers),
        floor=run(*call.floor),
        floor_is=call.floor_is,
        expected=expected,
        tolerance=1e-6,
        goals=goals,
    )


def _with_gradient(function: Function, t: Tensor) -> Callable[[], object]:
    """On rows that require a gradient, which is not asked for."""
    leaf = t.detach().requires_grad_()
    return lambda: function(leaf)


def _and_backward(function: Function, t: Tensor) -> Callable[[], object]:
    leaf = t.detach().requires_grad_()
    ones = torch.ones(2, 4, device=t.device)

    def call():
        y = function(leaf)
        return (y, *torch.autograd.grad(y, leaf, ones))

    return call


def _nested(x: Tensor, offsets: Tensor) -> Tensor:
    return torch.nested.nested_tensor_from_jagged(x, offsets, min_seqlen=3, max_seqlen=7)


def _calls(x: Tensor, lod: tl.LoD, offsets: Tensor) -> list[Call]:
    ours, nested = tl.LoDTensor(x, lod), _nested(x, offsets)
    deep = tl.LoDTensor(x, tl.LoD.from_lengths([[2], [3, 7]]))
    pairs, ids, last = x[:2].clone(), lod.segment_ids(0, x.device), offsets[1:] - 1
    starts, weight = torch.tensor([0, 7], device=x.device), torch.randn(12, 4, device=x.device)

    kernel = weight.view(3, 4, 4)

    def each(function: Function) -> Function:
        return lambda t: torch.cat([function(t[:3]), function(t[3:])])

    def padded(t: Tensor) -> Tensor:
        return torch.stack([F.pad(t[:3], (0, 0, 0, 4)), t[3:]])

    def convolved(t: Tensor) -> Tensor:
        around = F.pad(t, (0, 0, 1, 1))
        return torch.cat([around[i : i + len(t)] for i in range(3)], 1) @ weight

    def sums(t: Tensor) -> Tensor:
        return tl.sequence_pool(t, "sum")

    return [
        Call(
            "sum, 10 rows",
            ours={
                "tl.ops.segment_reduce": (lambda t: tl.ops.segment_reduce(t, offsets, "sum"), x),
                "tl.sequence_pool": (sums, ours),
                "tl.sequence_pool of two levels": (sums, deep),
            },
            peers={
                "torch.segment_reduce": (
                    lambda t: torch.segment_reduce(t, "sum", offsets=offsets, axis=0, unsafe=True),
                    x,
                ),
                "torch.nested": (lambda t: t.sum(1), nested),
                "torch.nested, made of the rows": (lambda t: _nested(t, offsets).sum(1), x),
            },
            floor=(lambda t: t.sum(0, keepdim=True).expand(2, 4), x),
            floor_is="x.sum(0) of the plain tensor",
            answer=each(lambda s: s.sum(0, keepdim=True)),
        ),
        Call(
            "softmax, 10 rows",
            ours={
                "tl.ops.segment_softmax": (lambda t: tl.ops.segment_softmax(t, offsets), x),
                "tl.sequence_softmax": (tl.sequence_softmax, ours),
            },
            peers={"torch.nested": (lambda t: t.softmax(1), nested)},
            floor=(lambda t: t.softmax(0), x),
            floor_is="x.softmax(0) of the plain tensor",
            answer=each(lambda s: s.softmax(0)),
        ),
        Call(
            "reverse, 10 rows",
            ours={
                "tl.ops.gather_runs": (lambda t: tl.ops.gather_runs(t, last, offsets, 10, -1), x),
                "tl.sequence_reverse": (tl.sequence_reverse, ours),
            },
            peers={},
            floor=(lambda t: t.flip(0), x),
            floor_is="x.flip(0) of the plain tensor",
            answer=each(lambda s: s.flip(0)),
        ),
        Call(
            "expand, 10 rows",
            ours={
                "tl.ops.segment_broadcast": (lambda t: tl.ops.segment_broadcast(t, offsets, 10), pairs),
                "tl.sequence_expand_as": (lambda t: tl.sequence_expand_as(t, lod), pairs),
                "tl.sequence_expand": (lambda t: tl.sequence_expand(t, lod), pairs),
            },
            peers={},
            floor=(lambda t: t.index_select(0, ids), pairs),
            floor_is="index_select, index given",
            answer=lambda t: t[ids],
        ),
        Call(
            "pad, 10 rows",
            ours={
                "tl.ops.scatter_runs": (lambda t: tl.ops.scatter_runs(t, starts, offsets, 14).view(2, 7, 4), x),
                "LoDTensor.to_padded": (lambda t: t.to_padded()[0], ours),
            },
            peers={},
            floor=(lambda t: F.pad(t, (0, 0, 0, 4)), x),
            floor_is="4 rows added to the plain tensor",
            answer=padded,
        ),
        Call(
            "conv, 10 rows",
            ours={
                "tl.ops.segment_conv": (lambda t: tl.ops.segment_conv(t, kernel, None, offsets, -1), x),
                "tl.sequence_conv": (lambda t: tl.sequence_conv(t, weight, 3), ours),
            },
            peers={},
            floor=(convolved, x),
            floor_is="the windows of the plain tensor, mm",
            answer=each(convolved),
        ),
    ]
