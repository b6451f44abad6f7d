# SPDX-License-Identifier: Apache-2.0
"""Ten times as much takes ten times the calls and bytes: what `python -m benchmarks.growth` times, counted.

Counted are calls of Python and torch functions, and bytes of the tensors that they make; not what a compiled operator does
inside. With TORCH_LOD_FULL=1 all calls, otherwise a few."""

import inspect
import sys
from pathlib import Path

import pytest
import torch
from conftest import FULL
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import torch_lod as tl
from torch_lod.tensor.attributes import Traced  # torch's own methods

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
try:
    from benchmarks import growth
finally:
    del sys.path[0]
    for loaded in [name for name in sys.modules if name.partition(".")[0] == "benchmarks"]:
        del sys.modules[loaded]

SMALL, LARGE, MOST = 100, 1000, 15
#: What is small beside the work of SMALL rows: calls of Python functions, of torch functions, bytes.
BESIDE = (50, 20, 1000)
FEW = [
    "sequence_softmax",
    "sequence_pool sum",
    "LoDTensor.seq a list",
    "LoDTensor.sequences",
    "cat of many",
    "LoD.to_list",
]


class Count(TorchDispatchMode):
    """Calls of torch functions, and the bytes of results in memory of their own."""

    def __init__(self):
        super().__init__()
        self.calls = self.bytes = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        given = tree_leaves((args, kwargs or {}))
        held = {t.untyped_storage()._cdata for t in given if isinstance(t, torch.Tensor)}
        out = func(*args, **(kwargs or {}))
        self.calls += 1
        for t in tree_leaves(out):
            if isinstance(t, torch.Tensor) and t.untyped_storage()._cdata not in held:
                self.bytes += t.untyped_storage().nbytes()
        return out


def counts(call, shape: str, n: int) -> tuple[int, int, int]:
    g, python = growth.Given(shape, n), 0
    growth.run(call, g)  # makes what is given, and what is kept

    def note(frame, event, argument):
        nonlocal python
        python += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        growth.run(call, g)
    finally:
        sys.setprofile(None)
    with Count() as made:
        growth.run(call, g)
    return python, made.calls, made.bytes


def ratio(call, shape: str) -> float:
    small, large = counts(call, shape, SMALL), counts(call, shape, LARGE)
    return max((b + rest) / (a + rest) for a, b, rest in zip(small, large, BESIDE))


@pytest.mark.parametrize("name", growth.CALLS if FULL else FEW)
def test_ten_times_as_much(name):
    for shape in growth.SHAPES:
        try:
            found = ratio(growth.CALLS[name], shape)
        except (growth.TooLarge, tl.LoDError):  # PackedSequence has no empty sequences, an array no rows
            assert shape == "empty", name
            continue
        assert found <= MOST or growth.reason(name, shape), f"{name}, {shape}: {found:.0f} times as much"


QUADRATIC = {
    "bytes": lambda g: torch.ones(g.count, g.count),
    "calls of torch": lambda g: [g.leaf.sum() for _ in range(g.count**2 // 1000)],
    "calls of Python": lambda g: [len(()) for _ in range(g.count**2 // 100)],
}


@pytest.mark.parametrize("what", QUADRATIC)
def test_what_is_quadratic_is_seen(what):
    assert ratio(QUADRATIC[what], "of one row") > MOST


def test_every_function_is_among_the_calls():
    called = {name.split()[0] for name in growth.CALLS}
    functions = {name for name in tl.__all__ + tl.paddle.__all__ if inspect.isfunction(getattr(tl, name))}
    own = [cls for cls in tl.LoDTensor.__mro__ if cls.__module__.startswith("torch_lod") and cls is not Traced]
    methods = {name for cls in own for name, f in vars(cls).items() if name[0] != "_" and inspect.isfunction(f)}
    wanted = functions | {f"LoDTensor.{name}" for name in methods}
    assert wanted - called == set(growth.LEFT_OUT), "add a call to benchmarks/growth.py"
