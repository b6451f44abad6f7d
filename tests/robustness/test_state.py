# SPDX-License-Identifier: Apache-2.0
"""Copies, files, processes, threads and modes: what a LoDTensor keeps when it moves."""

import contextlib
import copy
import io
import pickle
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch
import torch.multiprocessing as mp
from nested import X
from torch import nn
from torch._subclasses import FakeTensorMode
from torch.utils._pytree import tree_leaves

import torch_lod as tl
from torch_lod import LoD, LoDTensor

ROOT = Path(__file__).resolve().parents[2]


def make(requires_grad=False):
    lod = LoD.from_lengths(X, level_names=["article", "sentence"])
    return LoDTensor(torch.arange(30.0).view(15, 2), lod).requires_grad_(requires_grad)


def same(a, b):
    assert type(a) is LoDTensor and a.lod == b.lod and a.level_names == b.level_names
    assert torch.equal(a.values(), b.values()) and a.dtype == b.dtype and a.requires_grad == b.requires_grad
    return True


def saved(value):
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


WAYS = {
    "deepcopy": copy.deepcopy,
    "pickle": lambda value: pickle.loads(pickle.dumps(value)),
    "torch.save": saved,
}
each_way = pytest.mark.parametrize("way", WAYS)

# -- copies


def test_copy_shares_the_rows_and_not_later_lods():
    x = make()
    y = copy.copy(x)
    assert same(y, x) and y is not x and y.lod is x.lod and y.data_ptr() == x.data_ptr()
    y.set_lod([[0, 15]])
    assert x.recursive_sequence_lengths() == X


@each_way
@pytest.mark.parametrize("requires_grad", [False, True])
def test_way(way, requires_grad):
    x = make(requires_grad)
    y = WAYS[way](x)
    assert same(y, x) and y.is_leaf and y.data_ptr() != x.data_ptr()
    with torch.no_grad():
        y.zero_()
    assert float(x.detach().sum()) == 435


@each_way
def test_two_tensors_keep_sharing(way):
    x = make()
    again = WAYS[way]({"x": x, "same": x, "other": [x + 1]})
    assert again["x"] is again["same"] and again["x"].lod is again["other"][0].lod
    assert same(again["x"], x) and same(again["other"][0], x + 1)


@each_way
@pytest.mark.parametrize("lengths", [[[]], [[0, 0]], [[], [], []]], ids=str)
def test_nothing_is_something(way, lengths):
    x = tl.zeros(LoD.from_lengths(lengths), 3)
    assert same(WAYS[way](x), x)


def test_deepcopy_of_a_leaf_keeps_its_gradient():
    x = make(True)
    (x * 3).sum().backward()
    y = copy.deepcopy(x)
    assert torch.equal(y.grad, x.grad) and y.grad is not x.grad and y.grad.data_ptr() != x.grad.data_ptr()
    assert copy.deepcopy(make(True)).grad is None


def test_deepcopy_of_a_result_is_refused():
    with pytest.raises(RuntimeError, match="leaves of the autograd graph"):
        copy.deepcopy(make(True) * 2)


@each_way
def test_parameters_stay_parameters(way):
    p = nn.Parameter(make())
    q = WAYS[way](p)
    for t in (p, q):
        assert isinstance(t, nn.Parameter) and isinstance(t, LoDTensor) and t.requires_grad and t.is_leaf
    assert q.lod == p.lod and torch.equal(q.values(), p.values())
    frozen = WAYS[way](nn.Parameter(make(), requires_grad=False))
    assert isinstance(frozen, nn.Parameter) and not frozen.requires_grad
    assert not isinstance(WAYS[way](make(True)), nn.Parameter)


class Module(nn.Module):
    def __init__(self, scale=1.0):
        super().__init__()
        self.p = nn.Parameter(make() * scale)
        self.register_buffer("b", make() * scale)


@each_way
def test_modules(way):
    module = Module()
    if way == "deepcopy":
        other = copy.deepcopy(module)
        assert [name for name, _ in other.named_parameters()] == ["p"] and same(other.b, module.b)
    state = WAYS[way](module.state_dict())
    assert list(state) == ["p", "b"] and state["p"].lod == state["b"].lod == module.p.lod
    other = Module(2.0)
    other.load_state_dict(state)
    assert torch.equal(other.p.values(), module.p.values()) and isinstance(other.p, nn.Parameter)
    optimizer = torch.optim.SGD(other.parameters(), 0.5)
    other.p.sum().backward()
    optimizer.step()
    assert torch.equal(other.p.values(), module.p.values() - 0.5) and other.p.lod == module.p.lod
    other.double()
    assert isinstance(other.p, nn.Parameter) and other.p.dtype == other.b.dtype == torch.float64
    assert other.b.lod == module.b.lod


@pytest.mark.parametrize(
    "move",
    [
        lambda t: t.to(torch.float64),
        lambda t: t.half(),
        lambda t: t.bfloat16(),
        lambda t: t.int(),
        lambda t: t.clone(),
        lambda t: t.detach(),
        lambda t: t.cpu(),
        lambda t: t.to("cpu"),
        lambda t: t.to("meta"),
        lambda t: t.contiguous(),
        lambda t: t.data,
    ],
    ids="float64 half bfloat16 int clone detach cpu to-cpu meta contiguous data".split(),
)
def test_moves_keep_the_lod_object(move):
    x = make()
    assert type(move(x)) is LoDTensor and move(x).lod is x.lod and move(x).shape == (15, 2)


def test_results_are_not_views():
    x, p = make(), torch.zeros(2, requires_grad=True)
    with torch.no_grad():
        y = x + 1
    assert not y._is_view()
    y += p
    assert y.lod is x.lod and y.requires_grad
    y.sum().backward()
    assert p.grad.tolist() == [15, 15]


# -- files and processes

LOAD = """
import sys, torch
import torch_lod as tl
x, y, p = torch.load(sys.argv[1], weights_only=True)
assert type(x) is tl.LoDTensor and x.lod is y.lod and isinstance(p, torch.nn.Parameter), (x, y, p)
assert x.recursive_sequence_lengths() == [[3, 1, 2], [3, 2, 4, 1, 2, 3]] and x.level_names == ("article", "sentence")
assert y.requires_grad and not x.requires_grad and torch.equal(y.values(), x.values() + 1)
print(float(x.values().sum()), tl.sequence_pool(y, "sum").recursive_sequence_lengths())
"""


def test_load_in_a_fresh_process(tmp_path):
    x = make()
    torch.save((x, (x + 1).requires_grad_(), nn.Parameter(make())), tmp_path / "x.pt")
    done = subprocess.run(
        [sys.executable, "-c", LOAD, tmp_path / "x.pt"], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert (done.stdout.strip(), done.returncode) == ("435.0 [[3, 1, 2]]", 0), done.stderr


def test_a_file_is_validated(tmp_path):
    x = make()
    load, (values, *rest) = x.__reduce_ex__(2)
    with pytest.raises(ValueError, match="cover the 14 rows"):
        load(values[1:], *rest)
    load, given = x.lod.counting(torch.ones(15, dtype=torch.bool)).__reduce__()
    assert load(*given).counted[0].all()
    for wrong in (torch.ones(14, dtype=torch.bool), torch.ones(15), torch.tensor(True), [True] * 15, x > 3):
        with pytest.raises(TypeError, match="expected bool masks of 15 rows, got"):
            load(*given[:2], wrong)


def test_share_memory():
    x = make()
    assert x.share_memory_() is x and x.is_shared() and x.values().is_shared()
    child = mp.get_context("fork").Process(target=x.values().fill_, args=(7.0,))
    child.start()
    child.join(60)
    assert child.exitcode == 0 and float(x.sum()) == 7 * 30


def _produce(queue, received):
    queue.put((make(), tl.lod_tensor([[1], []])))
    received.wait(60)


def test_queue():
    context = mp.get_context("fork")
    queue, received = context.Queue(), context.Event()
    child = context.Process(target=_produce, args=(queue, received))
    child.start()
    x, y = queue.get(timeout=60)
    assert same(x, make()) and x.is_shared() and y.to_list() == [[1], []]
    received.set()
    child.join(60)
    assert child.exitcode == 0


@pytest.mark.parametrize("workers", [0, 2])
def test_data_loader(workers):
    samples = [[float(i)] * (i % 3) for i in range(10)]
    context = "fork" if workers else None
    loader = torch.utils.data.DataLoader(
        samples, batch_size=4, num_workers=workers, collate_fn=tl.lod_tensor, multiprocessing_context=context
    )
    batches = list(loader)
    assert all(type(batch) is LoDTensor for batch in batches)
    assert [sequence for batch in batches for sequence in batch.to_list()] == samples


def test_threads_share_the_caches_of_a_lod():
    lengths = [[3] * 200, [2, 0, 5] * 200]
    reference = LoD.from_lengths(lengths)
    questions = [(q, k) for q in ("row_offsets", "cu_seqlens", "segment_ids", "position_ids") for k in (0, 1)]
    expected = [getattr(reference, q)(k).tolist() for q, k in questions]
    for _ in range(5):
        lod, start, wrong = LoD.from_lengths(lengths), threading.Barrier(8), []

        def ask(number, lod=lod, start=start, wrong=wrong):
            start.wait(30)
            for i in range(len(questions)):
                question, k = questions[(i + number) % len(questions)]
                if getattr(lod, question)(k).tolist() != expected[(i + number) % len(questions)]:
                    wrong.append((question, k))
            if hash(lod) != hash(reference) or lod.outer(1).to_lengths() != lengths[:1]:
                wrong.append("hash or outer")

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert wrong == []


# -- modes: what is asked of a LoDTensor, in any of them

ASKED = {
    "row_offsets": lambda x: x.lod.row_offsets(0),
    "cu_seqlens": lambda x: x.lod.cu_seqlens(),
    "segment_ids": lambda x: x.lod.segment_ids(0),
    "position_ids": lambda x: x.lod.position_ids(),
    "from_segment_ids": lambda x: LoD.from_segment_ids([0, 0, 2], 4).lengths(),
    "from_row_offsets": lambda x: LoD.from_row_offsets([[0, 2], [0, 1, 2]]).offsets(0),
    "append": lambda x: x.lod.append([1] * 15).row_offsets(0),
    "drop_level": lambda x: x.drop_level(0),
    "to_padded": lambda x: x.to_padded()[0],
    "to_padded, left": lambda x: x.to_padded(1.0, level=0, max_length=10, side="left")[0],
    "to_padded, all": lambda x: x.to_padded(level="all")[0],
    "mask": lambda x: x.mask(),
    "from_padded": lambda x: tl.from_padded(x.to_padded()[0], [3, 2, 4, 1, 2, 3]),
    "slice": lambda x: x.slice(0, 2),
    "branch": lambda x: x.branch(2, 0),
    "seq int": lambda x: x.seq[2],
    "seq slice": lambda x: x.seq[0, ::-1],
    "seq list": lambda x: x.seq[[2, 0]],
    "seq mask": lambda x: x.seq[[True, False, True]],
    "cat": lambda x: tl.cat([x, x]),
    "torch.cat": lambda x: torch.cat([x, x]),
    "cat within": lambda x: tl.cat([x, x], "within"),
    "stack": lambda x: tl.stack([x, x]),
    "head": lambda x: x.head(2),
    "tail": lambda x: x.tail(2),
    "nth": lambda x: x.nth(1),
    "permute": lambda x: x.permute_sequences([2, 0, 1]),
    "packed": lambda x: x.to_packed_sequence().data,
    "from_packed": lambda x: tl.from_packed_sequence(x.to_packed_sequence()),
    "pool": lambda x: tl.sequence_pool(x, "max", level=0),
    "softmax": lambda x: tl.sequence_softmax(x),
    "reverse": lambda x: tl.sequence_reverse(x, level=0),
    "expand": lambda x: tl.sequence_expand_as(x.values()[:3], x),
    "first step": lambda x: tl.sequence_first_step(x),
    "last step": lambda x: tl.sequence_last_step(x),
}


def check_asked(found, expected):
    assert type(found) is type(expected) and found.device == expected.device and found.dtype == expected.dtype
    assert getattr(found, "lod", None) == getattr(expected, "lod", None)
    assert found.tolist() == expected.tolist()


@pytest.mark.parametrize("asked", ASKED)
def test_default_device_does_not_move_structure(asked):
    expected, values = ASKED[asked](make()), make().values()
    with torch.device("meta"):
        x = LoDTensor(values, LoD.from_lengths(X, level_names=["article", "sentence"]))
        found = ASKED[asked](x)
    check_asked(found, expected)


def test_default_device_is_that_of_new_values():
    with torch.device("meta"):
        assert tl.zeros(make().lod, 2).is_meta and LoD(make().lod.to_list()) == make().lod


@pytest.mark.parametrize("asked", ASKED)
@pytest.mark.parametrize("built", ["under inference mode", "before it"])
def test_a_lod_first_used_under_inference_mode_trains(asked, built):
    lod = make().lod.with_level_names(["article", "sentence"])
    with torch.inference_mode():
        if built == "under inference mode":
            lod = LoD.from_lengths(X, level_names=["article", "sentence"])
        check_asked(ASKED[asked](LoDTensor(make().values(), lod)), ASKED[asked](make()))
    leaf = make().values().requires_grad_()
    x = LoDTensor(leaf * 1, lod)
    found = ASKED[asked](x)
    check_asked(found, ASKED[asked](make()))
    if found.is_floating_point():
        found.sum().backward()
        again = make(True)
        ASKED[asked](again).sum().backward()
        assert torch.equal(leaf.grad, again.grad)


@pytest.mark.parametrize("asked", ASKED)
@pytest.mark.parametrize("passing", ["fake tensors", "a transform"])
def test_a_lod_keeps_nothing_that_ends_with_a_mode(passing, asked):
    lod, values, expected = make().lod.with_level_names(["article", "sentence"]), make().values(), ASKED[asked](make())
    if passing == "fake tensors":
        # torch has no fake LoDTensor, and refuses most operators of one
        with FakeTensorMode(allow_non_fake_inputs=True), contextlib.suppress(RuntimeError, TypeError):
            ASKED[asked](LoDTensor(values, lod))
    else:
        torch.func.grad(lambda v: (ASKED[asked](LoDTensor(v, lod)), v.sum())[1])(values)
    kept = [t for t in tree_leaves(lod._cache) if isinstance(t, torch.Tensor)]
    assert all(type(t) is torch.Tensor and not torch._C._functorch.is_functorch_wrapped_tensor(t) for t in kept)
    check_asked(ASKED[asked](LoDTensor(values, lod)), expected)


@pytest.mark.parametrize("module", ["LSTM", "GRU", "RNN"])
def test_recurrence_after_inference_mode(module):
    net, lod = getattr(tl.nn, module)(2, 3), make().lod.with_level_names(None)
    with torch.inference_mode():
        expected = net(LoDTensor(make().values(), lod))[0].values().clone()
    out, _ = net(LoDTensor(make().values(), lod))
    assert torch.equal(out.values(), expected) and out.lod is lod
    out.sum().backward()
    assert all(p.grad is not None for p in net.parameters())
