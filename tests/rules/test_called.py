# SPDX-License-Identifier: Apache-2.0
"""Operators called without torch's own way from Python: what is seen, returned and raised is the same."""

import sys
import threading

import numpy as np
import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from torch_lod import ops

pytestmark = pytest.mark.skipif(not ops.COMPILED, reason="compositions are called torch's way")

RAW = torch.ops.torch_lod
OFFSETS = torch.tensor([0, 2, 2, 5])


def rows(**options):
    return torch.arange(10.0, **options).view(5, 2)


def freed():
    x = rows()
    x.untyped_storage().resize_(0)
    return x


CALLS = {
    "numbers": ("segment_reduce", (rows(), OFFSETS, "sum", -1)),
    "standards": ("segment_reduce", (rows(), OFFSETS, "mean")),
    "results": ("segment_extreme", (rows(), OFFSETS, "max", 2.5)),
    "fill": ("gather_rows", (rows(), torch.tensor([1, -1]), 7)),
    "none": ("segment_conv", (rows(), torch.ones(1, 2, 3), None, OFFSETS, 0)),
    "lists": ("take_runs", ([OFFSETS], torch.tensor([1]), torch.tensor([2]), 3, True)),
    "tuple": ("join_lods", ((OFFSETS, OFFSETS), 1)),
    "no levels": ("take_runs", ((), torch.tensor([1]), torch.tensor([2]), 3)),
    "nothing": ("check_errors", ()),
    "an array's number": ("run_map", (torch.tensor([0, 1, 2]), OFFSETS, np.int64(5), 1)),
}
WRONG = {
    "offsets": ("segment_reduce", (rows(), torch.tensor([0, 2]), "sum")),
    "choice": ("segment_reduce", (rows(), OFFSETS, "summe")),
    "kind": ("segment_reduce", ("x", OFFSETS, "sum")),
    "text": ("segment_reduce", (rows(), OFFSETS, 1)),
    "surrogate": ("segment_reduce", (rows(), OFFSETS, "\ud800")),
    "real": ("run_map", (torch.tensor([0, 1, 2]), OFFSETS, 5.0)),
    "beyond": ("run_map", (torch.tensor([0, 1, 2]), OFFSETS, 2**63)),
    "none": ("segment_reduce", (None, OFFSETS, "sum")),
    "few": ("segment_reduce", (rows(),)),
    "many": ("segment_reduce", (rows(), OFFSETS, "sum", 0.0, 1)),
    "list": ("check_lod", ([OFFSETS, "x"], 5)),
    "memory": ("segment_reduce", (freed(), OFFSETS, "sum")),
}


@pytest.mark.parametrize("case", CALLS)
def test_results_are_those_of_torchs_way(case):
    name, given = CALLS[case]
    torch.testing.assert_close(ops.called(name)(*given), getattr(RAW, name)(*given), rtol=0, atol=0)


@pytest.mark.parametrize("case", WRONG)
def test_errors_are_those_of_torchs_way(case):
    name, given = WRONG[case]
    with pytest.raises(Exception) as wanted:
        getattr(RAW, name).default(*given)
    with pytest.raises(type(wanted.value)) as found:
        ops.called(name)(*given)
    assert str(found.value) == str(wanted.value)


def test_keywords():
    given = {"values": rows(), "row_offsets": OFFSETS, "reduce": "max", "pad_value": 3.0}
    assert torch.equal(ops.called("segment_reduce")(**given), RAW.segment_reduce(**given))


def test_gradients_arrive():
    x = rows().requires_grad_()
    ops.called("segment_reduce")(x, OFFSETS, "mean").sum().backward()
    assert x.grad[:, 0].tolist() == pytest.approx([1 / 2, 1 / 2, 1 / 3, 1 / 3, 1 / 3])


@pytest.mark.parametrize("kind", [TorchFunctionMode, TorchDispatchMode])
def test_modes_see_the_call(kind):
    seen = []
    method = "__torch_function__" if kind is TorchFunctionMode else "__torch_dispatch__"

    def look(self, func, types, args=(), kwargs=None):
        seen.append(func)
        return func(*args, **kwargs or {})

    x = rows()
    with type("Looking", (kind,), {method: look})():
        out = ops.segment_reduce(x, OFFSETS, "sum")
    assert seen == [RAW.segment_reduce.default] and out.shape == (3, 2)


def test_a_subclass_is_asked():
    class Own(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return func

    own = rows().as_subclass(Own)
    assert ops.called("segment_reduce")(own, OFFSETS, "sum") is RAW.segment_reduce.default
    with torch._C.DisableTorchFunction():
        assert ops.called("segment_reduce")(own, OFFSETS, "sum").shape == (3, 2)


def test_a_trace_has_the_operator():
    class Sum(torch.nn.Module):
        def forward(self, x):
            return ops.segment_reduce(x, OFFSETS, "sum")

    traced = torch.jit.trace(Sum(), rows())
    assert "torch_lod::segment_reduce" in str(traced.graph)
    assert torch.equal(traced(rows() + 1), Sum()(rows() + 1))


def test_other_threads_run_meanwhile():
    done, go = [], threading.Event()
    thread = threading.Thread(target=lambda: (go.wait(), done.append(True)))
    thread.start()
    sort, x, offsets = ops.called("segment_order"), torch.randn(20_000, 1), torch.tensor([0, 20_000])
    interval = sys.getswitchinterval()
    sys.setswitchinterval(60)  # no thread is made to stop for another one
    try:
        go.set()
        results = []  # kept: where a tensor ends, torch lets other threads run
        while not done and len(results) < 500:  # other processes may keep the thread from running
            results.append(sort(x, offsets, False))
        assert done
    finally:
        sys.setswitchinterval(interval)
        thread.join()
