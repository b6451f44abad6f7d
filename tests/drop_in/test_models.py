# SPDX-License-Identifier: Apache-2.0
"""A nested model as its users ship and train it: exported, ahead of time, on two processes."""

import io
import os
import re
from datetime import timedelta

import pytest
import torch
import torch.multiprocessing as mp
from test_compile import Nested, batches
from torch.distributed.fsdp import fully_shard

import torch_lod as tl
from torch_lod.ops.exported import in_torch


def test_a_model_is_exported_saved_and_loaded():
    model = Nested()
    plain = tl.nn.Plain(model, 2)
    first, *others = batches(8)
    file = io.BytesIO()
    torch.export.save(plain.export(first), file)
    file.seek(0)
    program = torch.export.load(file).module()
    for x in (first, *others):
        torch.testing.assert_close(program(*plain.tensors(x)), model(x))
    values, *offsets = plain.tensors(first)
    offsets[0] = offsets[0].clone()
    offsets[0][1] += 1000
    with pytest.raises(RuntimeError, match="offsets"):
        program(values, *offsets)


class Pool(torch.nn.Module):
    def forward(self, x, weight):
        return {"pooled": tl.sequence_pool(x @ weight, "mean"), "turned": tl.sequence_reverse(x, level="text")}


def test_structures_go_in_and_come_out_as_offsets():
    plain = tl.nn.Plain(Pool(), ("text", "line"), 0)
    weight = torch.randn(3, 2)
    x, y = (
        tl.from_lengths(torch.randn(sum(words), 3), [lines, words], level_names=["text", "line"])
        for lines, words in (([2, 3], [2, 4, 3, 2, 5]), ([2, 0, 2], [3, 0, 4, 2]))
    )
    program = plain.export(x, weight).module()
    for given in (x, y):
        got, expected = program(*plain.tensors(given, weight)), Pool()(given, weight)
        pooled, turned = got["pooled"], got["turned"]
        torch.testing.assert_close(tl.from_offsets(pooled[0], pooled[1:]), expected["pooled"])
        assert [o.tolist() for o in turned[1:]] == expected["turned"].lod.to_list()
        torch.testing.assert_close(turned[0], expected["turned"].values())
        torch.testing.assert_close(plain(*plain.tensors(given, weight))["turned"][0], turned[0])


def test_plain_says_what_it_wants():
    plain = tl.nn.Plain(Pool(), 2, 0)
    x = tl.from_lengths(torch.ones(3, 3), [[3]])
    for call, words in (
        (lambda: tl.nn.Plain(Pool(), None), "levels as a number or as names, got None"),
        (lambda: tl.nn.Plain(Pool(), -1), "levels as a number or as names, got -1"),
        (lambda: plain.tensors(x), "2 arguments, got 1"),
        (lambda: plain.tensors(x, x), "argument 0 with 2 levels, got 1"),
        (lambda: plain(torch.ones(3, 3)), "4 tensors, values and offsets, got 1"),
        (lambda: plain(torch.ones(3, 3), *[torch.tensor([0, 1])] * 2, torch.ones(3, 2)), "the 3 rows"),
    ):
        with pytest.raises(tl.LoDError, match=f"^(Plain|LoDTensor): expected .*{words}"):
            call()


class Held(torch.nn.Module):
    """A constant of two sequences, held in one of several ways."""

    def __init__(self, how):
        super().__init__()
        self.lstm, self.how = torch.nn.LSTM(3, 3), how
        self.unused = tl.from_lengths(torch.ones(2), [[1, 1]])
        held = tl.from_lengths(torch.randn(5, 3), [[2, 3]])
        if how == "parameter":
            self.held = torch.nn.Parameter(held)
        elif how == "list":
            self.held = [held.t()]
        else:
            self.register_buffer("held", held if how == "buffer" else held.values())

    def forward(self, x):
        held = tl.from_lengths(self.held, [[2, 3]]) if self.how == "values" else self.held
        return x * self.lstm(held[0].t() if self.how == "list" else held)[0].sum()


@pytest.mark.parametrize("how", ["buffer", "parameter", "list", "values"])
def test_constants_with_rows_are_refused_by_name(how):
    model = torch.nn.Sequential(Held(how))
    plain, x = tl.nn.Plain(model, 1), tl.from_lengths(torch.randn(6, 3), [[2, 4]])
    if how == "values":
        file = io.BytesIO()
        torch.export.save(plain.export(x), file)
        file.seek(0)
        torch.testing.assert_close(torch.export.load(file).module()(*plain.tensors(x))[0], model(x).values())
    else:
        name = "DerivedTensor as self___module_0_held_0" if how == "list" else "LoDTensor as module.0.held"
        with pytest.raises(ValueError, match=f"^Plain: expected constants .*{re.escape(name)}: torch.export drops"):
            plain.export(x)


class Text(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.pool = torch.nn.Conv1d(3, 3, 3, padding=1), tl.nn.AttentionPool(3)

    def forward(self, x):
        h = tl.sequence_reverse(self.conv(x)) - tl.sequence_expand_as(tl.sequence_pool(x, "mean"), x)
        return tl.sequence_pool(self.pool(h), "max"), tl.sequence_softmax(h)


def test_what_onnx_is_told_is_the_model():
    """Operators of torch alone, without the one that ONNX has not; onnxruntime is asked by tests/data/check_onnx.py."""
    plain = tl.nn.Plain(Text(), 2)
    first, *others = [
        tl.from_lengths(torch.randn(sum(words), 3), [lines, words])
        for lines, words in (([2, 3], [2, 4, 3, 2, 5]), ([2, 0, 2], [3, 0, 4, 2]), ([0, 3], [0, 0, 5]))
    ]
    program = in_torch(plain.export(first))
    called = {str(node.target) for node in program.graph.nodes if node.op == "call_function"}
    assert not [name for name in called if "torch_lod" in name or "repeat_interleave" in name]
    for x in (first, *others):
        torch.testing.assert_close(program.module()(*plain.tensors(x)), plain(*plain.tensors(x)))


def test_what_onnx_cannot_say_is_refused_by_name():
    for module, name in ((tl.nn.LSTM(3, 2), "lstm"), (tl.nn.MultiheadAttention(4, 2), r"\w*attention\w*")):
        x = tl.from_lengths(torch.randn(6, 3 if name == "lstm" else 4), [[2, 4]])
        with pytest.raises(
            TypeError, match=rf"^Plain: expected operators that ONNX can say \(.*\), got {name}; compile"
        ):
            tl.nn.Plain(module, 1).to_onnx(None, x)


def test_aot_inductor(tmp_path):
    """Of one sequence as well, which torch.export refuses."""
    plain = tl.nn.Plain(tl.nn.SequencePool("sum", level=0), 2)
    x, *others = (
        tl.from_lengths(torch.randn(sum(words), 3), [lines, words])
        for lines, words in (([2, 3], [2, 4, 3, 2, 5]), ([0, 2], [3, 4]), ([1], [5]))
    )
    exported = plain.export(x)
    path = torch._inductor.aoti_compile_and_package(exported, package_path=str(tmp_path / "pool.pt2"))
    program = torch._inductor.aoti_load_package(path)
    for given in (x, *others):
        torch.testing.assert_close(program(*plain.tensors(given)), tl.sequence_pool(given, "sum", level=0))
    with pytest.raises(AssertionError, match="Guard failed"):
        exported.module()(*plain.tensors(others[-1]))


def _worker(rank: int, meeting: str, kind: str, weights: dict, results: str) -> None:
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{meeting}", rank=rank, world_size=2, timeout=timedelta(seconds=60)
    )
    model = Nested()
    model.load_state_dict(weights)
    if kind == "ddp":
        model = torch.nn.parallel.DistributedDataParallel(model)
    else:
        mesh = torch.distributed.init_device_mesh("cpu", (2,))
        for part in (model.words, model.lines, model):
            fully_shard(part, mesh=mesh)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for x in list(batches(4))[rank::2]:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
    state = model.module.state_dict() if kind == "ddp" else model.state_dict()
    whole = {k: t.full_tensor() if hasattr(t, "full_tensor") else t for k, t in state.items()}
    if rank == 0:
        torch.save(whole, results)
    torch.distributed.barrier()
    os._exit(0)  # gloo's threads do not always survive the end of an interpreter


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_two_processes_train_as_one(kind, tmp_path):
    """A batch for each: their mean gradient is the step."""
    torch.manual_seed(0)
    model = Nested()
    results = str(tmp_path / "weights")
    weights = {k: t.clone() for k, t in model.state_dict().items()}
    mp.spawn(_worker, (str(tmp_path / "meeting"), kind, weights, results), nprocs=2)
    got = torch.load(results, weights_only=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    given = list(batches(4))
    for pair in (given[:2], given[2:]):
        optimizer.zero_grad()
        (sum(model(x).square().mean() for x in pair) / 2).backward()
        optimizer.step()
    for name, expected in model.state_dict().items():
        torch.testing.assert_close(got[name], expected, rtol=1e-4, atol=1e-5)
