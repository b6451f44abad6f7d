# SPDX-License-Identifier: Apache-2.0
"""Under torch.compile with inductor: what it gains, and what a LoDTensor costs at the door of a graph; a plain model beside."""

import torch
from torch import Tensor

import torch_lod as tl

from ..cases import Case, Cases, Run, Setup, plain
from ..goals import faster_than, of_floor, over_floor

WORDS = 1000


class Nested(torch.nn.Module):
    """Words weighed in lines, lines in texts, both seen with their neighbours."""

    def __init__(self, width: int):
        super().__init__()
        self.embed = torch.nn.Embedding(WORDS, width)
        self.levels = torch.nn.ModuleList(
            torch.nn.ModuleDict(
                {
                    "mix": torch.nn.Sequential(
                        torch.nn.Linear(width, width), torch.nn.GELU(), torch.nn.LayerNorm(width)
                    ),
                    "pool": tl.nn.AttentionPool(width),
                }
            )
            for _ in range(2)
        )
        self.out = torch.nn.Linear(width, 2)

    def forward(self, x):
        x = self.embed(x)
        for level in self.levels:
            x = level["pool"](x + level["mix"](x))
        return self.out(x)


class NestedRNN(torch.nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.embed = torch.nn.Embedding(WORDS, width)
        self.words, self.lines = tl.nn.LSTM(width, width), tl.nn.LSTM(width, width)
        self.out = torch.nn.Linear(width, 2)

    def forward(self, x):
        words, _ = self.words(self.embed(x))
        lines, _ = self.lines(tl.sequence_pool(words, "last"))
        return self.out(tl.sequence_pool(lines, "last"))


def cases(setup: Setup) -> Cases:
    torch.manual_seed(0)
    models = {"nested attention": Nested(64), "nested RNN": NestedRNN(64)}
    for texts in (2, 32):
        g = torch.Generator().manual_seed(0)
        lines = torch.randint(5, 25, (texts,), generator=g)
        words = torch.randint(1, 16, (int(lines.sum()),), generator=g)
        x = tl.from_lengths(torch.randint(0, WORDS, (int(words.sum()),), generator=g).to(setup.device), [lines, words])
        for name, model in models.items():
            yield from _model(f"{name}, {texts} texts of {len(x)} words", model.to(setup.device), x)
    yield _door(setup)
    yield _rows(setup)


def _model(name: str, model: torch.nn.Module, x: tl.LoDTensor) -> Cases:
    compiled = torch.compile(model, fullgraph=True)
    weights = list(model.parameters())

    def step(run):
        return lambda: torch.autograd.grad(run(x).square().mean(), weights)

    def forward(run):
        def call():
            with torch.no_grad():
                return run(x)

        return call

    for how, turn in (("forward", forward), ("forward and backward", step)):
        yield Case(
            name=f"{name}, {how}",
            ours={"compiled": Run(turn(compiled))},
            peers={"eager": Run(turn(model))},
            floor=turn(model),
            floor_is="eager",
            expected=lambda turn=turn: tuple(t.detach().cpu() for t in _tuple(turn(model)())),
            tolerance=1e-4,
            goals=(faster_than(1.2, "eager"),),
        )


def _tuple(result) -> tuple[Tensor, ...]:
    return result if isinstance(result, tuple) else (result,)


def _door(setup: Setup) -> Case:
    """A small graph on a LoDTensor of two levels, and the same on its values and row offsets."""
    lod = tl.LoD.from_lengths([[2, 3], [2, 4, 3, 2, 5]])
    values, offsets = torch.randn(16, 8).to(setup.device), lod.row_offsets(1, setup.device)
    linear = torch.nn.Linear(8, 8).to(setup.device)
    x = tl.LoDTensor(values, lod)
    ours = torch.compile(lambda x: tl.sequence_pool(torch.relu(linear(x)), "sum"), fullgraph=True)
    theirs = torch.compile(
        lambda v, o: tl.ops.segment_reduce(torch.relu(linear(v)), o, "sum"), fullgraph=True, dynamic=True
    )

    def quiet(function, *args):
        def call():
            with torch.no_grad():
                return function(*args)

        return call

    return Case(
        name="a call of a compiled function: linear, relu, sequence_pool",
        ours={"LoDTensor": Run(quiet(ours, x), lambda result: (plain(result),))},
        peers={},
        floor=quiet(theirs, values, offsets),
        floor_is="compiled on values and row offsets",
        expected=lambda: (theirs(values, offsets).detach().cpu(),),
        tolerance=1e-5,
        goals=(over_floor(30),),
    )


def _rows(setup: Setup) -> Case:
    rows, model = 10_000, torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU()).to(setup.device)
    values = torch.randn(rows, 64).to(setup.device)
    x = tl.from_lengths(values, [torch.full((500,), 20)])

    def quiet(given):
        def call():
            with torch.no_grad():
                return model(given)

        return call

    return Case(
        name=f"not compiled: Linear(64, 64) and ReLU on {rows} rows",
        ours={"LoDTensor": Run(quiet(x), lambda result: (plain(result),))},
        peers={},
        floor=quiet(values),
        floor_is="plain tensor",
        expected=lambda: (model(values).detach().cpu(),),
        tolerance=1e-6,
        goals=(of_floor(1.03, "plain"),),
    )
