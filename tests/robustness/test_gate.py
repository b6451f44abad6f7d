# SPDX-License-Identifier: Apache-2.0
"""The gate: no tensor reaches an operator's code without memory behind it, nor structure that others can change."""

import copy
import os
import pickle
import subprocess
import sys

import pytest
import torch
from malformed import ints
from settings import LIB, PYTHONPATH

import torch_lod as tl
from torch_lod import ops

compiled = pytest.mark.skipif(not ops.COMPILED, reason="compositions copy structure on every call: there are no marks")


def python(*arguments, composed=False):
    env = {**os.environ, "TORCH_LOD_COMPOSED": "1" if composed else "0", "PYTHONPATH": PYTHONPATH}
    command = [sys.executable, "-X", "faulthandler", "-W", "ignore", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=env, cwd=LIB, timeout=300, check=False)


@pytest.mark.parametrize("how", ["compiled", "composed"])
def test_every_tensor_of_every_operator_passes_the_gate(how):
    composed = how == "composed"
    done = python("gate_cases.py", *["composed"] * composed, composed=composed)
    lines = done.stdout.splitlines()
    wrong = [line for line in lines if line.startswith("wrong")]
    assert not wrong, "\n".join(wrong[:20])
    assert done.returncode == 0 and lines[-1].startswith("done"), (lines[-1:], done.stderr[-2000:])


#: A thread writes to structure while operators run on it. Every call returns or raises.
WRITES = """
import sys, threading, time, torch, torch_lod as tl
torch.set_num_threads(2)
ops, rows = torch.ops.torch_lod, 200_000 if tl.ops.COMPILED else 1000
offsets = torch.arange(0, rows + 1, 100); starts = offsets[:-1].clone()
map = torch.arange(rows).flip(0).contiguous(); index = starts[:, None].expand(-1, 2).contiguous()
x, wide, few = torch.randn(rows, 2), torch.randn(rows, 64), torch.randn(rows // 100, 2)
weights = torch.randn(12, 2), torch.randn(12, 3)
calls = {
    "reduce": (offsets, lambda: ops.segment_reduce(x, offsets, "sum")),
    "softmax": (offsets, lambda: ops.segment_softmax(x, offsets)),
    "broadcast": (offsets, lambda: ops.segment_broadcast(few, offsets, rows)),
    "conv": (offsets, lambda: ops.segment_conv(x, torch.ones(3, 2, 2), None, offsets, -1)),
    "lstm": (offsets, lambda: ops.lstm(x, *weights, None, None, None, None, offsets)),
    "attention": (offsets, lambda: ops.attention(*[x[:, None]] * 3, offsets, offsets)),
    "take": (starts, lambda: ops.take_runs([offsets], starts // 100, torch.ones_like(starts), rows // 100, True)),
    "runs": (starts, lambda: ops.gather_runs(wide, starts, offsets, rows)),
    "back": (starts, lambda: ops.scatter_runs(wide, starts, offsets, rows)),
    "gather": (map, lambda: ops.gather_rows(x, map)),
    "scatter": (map, lambda: ops.scatter_rows(x, map, rows)),
    "pick": (index, lambda: ops.segment_pick(x, index, offsets)),
    "place": (index, lambda: ops.segment_place(few, index, offsets, rows)),
}
for name, (structure, call) in calls.items():
    raw, stop = structure.numpy().reshape(-1), threading.Event()
    middle = len(raw) // 2
    kept = int(raw[middle])
    def write():
        while not stop.is_set():
            for far in (10**12, -10**12):
                raw[middle] = far
                for _ in range(20): raw[middle] = kept
    thread = threading.Thread(target=write); thread.start()
    end, returned, raised = time.monotonic() + SECONDS, 0, 0
    while time.monotonic() < end:
        try:
            call(); returned += 1
        except (ValueError, IndexError):
            raised += 1
    stop.set(); thread.join(); raw[middle] = kept
    print(name, returned, raised, flush=True)
print("done")
"""


@pytest.mark.parametrize("how", ["compiled", "composed"])
def test_a_thread_that_writes_to_structure_does_no_harm(how):
    seconds = os.environ.get("TORCH_LOD_GATE_SECONDS", "0.05")
    done = python("-c", WRITES.replace("SECONDS", seconds), composed=how == "composed")
    assert done.returncode == 0 and done.stdout.endswith("done\n"), done.stdout + done.stderr[-2000:]


@pytest.mark.parametrize("module", [tl.nn.LSTM, tl.nn.GRU, tl.nn.RNN])
@pytest.mark.parametrize("name", ["weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"])
def test_weights_whose_storage_is_freed_are_named(module, name):
    m = module(8, 32)
    getattr(m, name).untyped_storage().resize_(0)
    with pytest.raises(tl.LoDError, match=f"expected {name[:-3]} with memory behind it"):
        m(tl.from_lengths(torch.randn(5, 8), [[5]]))


def test_transforms_look_at_what_they_wrap():
    x = torch.ones(6, 2)
    x.untyped_storage().resize_(0)
    for call in (
        lambda: torch.func.grad(lambda v: ops.segment_softmax(v, ints(0, 2, 6)).sum())(x),
        lambda: torch.func.vmap(lambda v: ops.segment_reduce(v, ints(0, 6), "sum"), in_dims=1)(x),
    ):
        with pytest.raises(ValueError, match="expected values with memory behind it"):
            call()


# -- marks


def sums(offsets):
    return ops.segment_reduce(torch.ones(6, 2, dtype=torch.float64), offsets, "sum")[:, 0].tolist()


def trusted(offsets) -> bool:
    """Whether offsets that no longer fit are used as they are, which kernels of float64 survive."""
    raw = offsets.detach().numpy()  # a write that no version tells of
    kept, raw[1] = raw[1], 7
    try:
        sums(offsets)
    except ValueError:
        return False
    finally:
        raw[1] = kept
    return True


@compiled
def test_what_a_lod_made_is_not_checked_again():
    assert trusted(tl.LoD([[0, 2, 6]]).row_offsets_at(0))
    nested = tl.LoD([[0, 1, 2], [0, 2, 6]])
    assert trusted(nested.row_offsets_at(0)) and trusted(nested.row_offsets_at(1)) and trusted(nested.offsets_at(1))
    assert not trusted(ints(0, 2, 6)) and not trusted(tl.LoD([[0, 2, 6]]).row_offsets())
    ends = tl.LoD([[0, 2, 6]]).end_rows_at(0, True)
    ends.numpy()[0] = 99
    assert ops.gather_rows(torch.ones(6, 1), ends).tolist() == [[0.0], [1.0]]


@compiled
def test_a_mark_is_void_once_the_tensor_is_another():
    def offsets():
        t = ints(0, 2, 6)
        torch.ops.torch_lod.check_lod([t], 6, True)
        return t

    def written(t):
        t[1] = 3
        return t

    def replaced(t):
        t.set_(ints(0, 2, 6))
        return t

    assert trusted(offsets()) and trusted(offsets().detach())
    for change in (
        written,
        replaced,
        torch.clone,
        lambda t: t[:],
        copy.deepcopy,
        lambda t: pickle.loads(pickle.dumps(t)),
    ):
        assert not trusted(change(offsets())), change
    with pytest.raises(ValueError, match="to equal the 5 rows"):
        ops.segment_softmax(torch.ones(5, 2), offsets())
    with pytest.raises(IndexError, match="expected map in"):
        ops.gather_rows(torch.ones(6, 2), offsets())
    freed = offsets()
    freed.untyped_storage().resize_(0)
    with pytest.raises(ValueError, match="expected row_offsets with memory behind it"):
        sums(freed)


@pytest.mark.skipif(not ops.COMPILED, reason="compositions save what the operators of torch that they are made of save")
@pytest.mark.parametrize("other", [ints(0, 2), ints(0, 2, 5, 6), torch.tensor([0.0, 2, 6]), ints(0, 2, 6, 0)[::2]])
def test_offsets_that_a_hook_gives_back_are_looked_at(other):
    x, y = torch.ones(6, 2, requires_grad=True), torch.ones(6, 2, requires_grad=True)
    for part in (0, 1):
        calls = []

        def unpack(t, part=part, calls=calls):
            calls.append(t)
            return other if len(calls) - 1 == part else t

        with torch.autograd.graph.saved_tensors_hooks(torch.clone, unpack):
            joined = ops.segment_concat(x, ints(0, 2, 6), y, ints(0, 4, 6))
        with pytest.raises((TypeError, ValueError, RuntimeError), match="expected"):
            torch.autograd.grad(joined, [x, y], torch.ones_like(joined))
        assert calls


@compiled
@pytest.mark.parametrize("other", [ints(0, 2, 4), ints(*[0] * 5000), torch.zeros(2)])
@pytest.mark.parametrize("marked", [False, True])
def test_first_rows_that_a_hook_gives_back_are_looked_at(other, marked):
    x, starts, offsets = torch.ones(6, 2, requires_grad=True), ints(0, 2), ints(0, 2, 6)
    keep = torch.ops.torch_lod.keep_structure
    keep(offsets, 6, True)
    if marked and other.dtype == torch.int64:
        keep(other, 10, False)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: other if len(t) == 2 else t):
        moved = ops.scatter_runs(x, starts, offsets, 6)
    with pytest.raises((TypeError, ValueError), match=r"expected .*starts"):
        torch.autograd.grad(moved, x, torch.ones_like(moved))


def test_only_the_wanted_side_of_a_concatenation_is_made():
    x, y = torch.ones(6, 2, requires_grad=True), torch.ones(4, 2, requires_grad=True)
    joined = ops.segment_concat(x, ints(0, 2, 6), y, ints(0, 3, 4))
    grad = torch.arange(20.0).view(10, 2)
    both = torch.autograd.grad(joined, [x, y], grad, retain_graph=True)
    assert both[0][:, 0].tolist() == [0, 2, 10, 12, 14, 16] and both[1][:, 0].tolist() == [4, 6, 8, 18]
    for i, side in enumerate((x, y)):
        assert torch.equal(torch.autograd.grad(joined, side, grad, retain_graph=True)[0], both[i])
    one = ops.segment_concat(x.detach(), ints(0, 2, 6), y, ints(0, 3, 4))
    assert torch.equal(torch.autograd.grad(one, y, grad)[0], both[1])


@compiled
def test_only_what_is_right_is_marked():
    keep = torch.ops.torch_lod.keep_structure
    for structure, rows, cuts, error in [
        (ints(0, 7, 6), 6, True, ValueError),
        (ints(0, 6), 7, True, ValueError),
        (ints(0, 7), 7, False, IndexError),
        (torch.ones(2), 1, True, TypeError),
        (torch.zeros(2, dtype=torch.int64, device="meta"), 0, True, TypeError),
    ]:
        with pytest.raises(error, match=r"keep_structure: expected .*structure"):
            keep(structure, rows, cuts)
    for host, error in ((ints(0, 6), ValueError), (torch.ones(3), TypeError), (ints(0, 2, 6)[:, None], ValueError)):
        with pytest.raises(error, match=r"keep_structure: expected .*host"):
            keep(ints(0, 2, 6), 6, True, host=host)
    apart = ints(0, 9, 2, 9, 6)[::2]
    keep(apart, 6, True)
    assert not trusted(apart)
    with torch.inference_mode():
        t = ints(0, 2, 6)
        keep(t, 6, True)
        assert sums(t) == [2.0, 4.0]
