# SPDX-License-Identifier: Apache-2.0
"""Depth, sizes, memory, signals, processes and threads at their ends: every call returns or raises."""

import copy
import os
import pickle
import re
import shutil
import subprocess
import sys
import threading

import failing_memory
import pytest
import torch
from samples import SEQUENCES
from settings import FULL, LIB, PYTHONPATH

import torch_lod as tl

LARGE = os.environ.get("TORCH_LOD_LARGE") == "1"
COMPILER = shutil.which(os.environ.get("CXX", "c++"))
DEEP = 3000
#: Level by level one sequence of one sequence, and at the end one of two rows.
deep = tl.from_offsets(torch.arange(2.0), [[0, 1]] * (DEEP - 1) + [[0, 2]])


def program(*arguments, **env):
    env = {**os.environ, "PYTHONPATH": PYTHONPATH, **env}
    command = [sys.executable, "-X", "faulthandler", "-W", "ignore", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env=env, cwd=LIB, timeout=900, check=False)


# -- depth


@pytest.mark.parametrize(
    "printed", [repr, str, format, lambda x: x._repr_html_()], ids=["repr", "str", "format", "html"]
)
def test_a_deep_tree_is_printed_in_part(printed):
    text = printed(deep)
    assert len(text) < 200_000 and f"... {DEEP - 12} more levels ..., [2]" in text and "... more than 200 lines" in text
    assert "0\n" in text and "1: " not in text


def test_a_broad_tree_is_printed_in_part():
    x = tl.zeros(tl.LoD.from_lengths([[2] * 2**k for k in range(1, 16)]))
    lines = repr(x).splitlines()
    assert len(lines) == 202 and lines[-1] == "... more than 200 lines"
    assert lines[15:17] == ["│  " * 14 + "├─ 0: [0, 0]", "│  " * 14 + "└─ 1: [0, 0]"]


@pytest.mark.parametrize("depth", [1, 11, 12, 13, 14])
def test_levels_that_are_printed(depth):
    lod = tl.LoD.from_lengths([[1]] * depth, level_names=[f"l{k}" for k in range(depth)])
    text = repr(lod)
    assert text.count("[1]") == min(depth, 12) and text.count("'l") == min(depth, 12)
    assert ("more levels" in text) == (depth > 12) and f"'l{depth - 1}'" in text


def test_a_deep_lod_can_be_used():
    lod = deep.lod
    other = tl.LoD(lod.to_list())
    assert lod == other and hash(lod) == hash(other) and (deep + tl.LoDTensor(deep.values(), other)).lod == lod
    assert pickle.loads(pickle.dumps(deep)).lod == lod and copy.deepcopy(deep).lod == lod
    assert lod.flatten(0, -1) == tl.LoD([[0, 2]]) and lod.flatten(1, -1).to_list() == [[0, 1], [0, 2]]
    assert lod.flatten(1, -2).depth == 3
    assert deep.branch(*[0] * DEEP).lod == tl.LoD([[0, 2]]) and deep.seq[(0,) * DEEP].tolist() == [0, 1]
    assert tl.sequence_pool(deep, "sum", level=0).tolist() == [1] and tl.sequence_reverse(deep).tolist() == [1, 0]
    table = tl.describe(deep)
    assert table.count("\n") == DEEP + 2 and table.endswith("2 rows")
    items = deep.to_list()
    for _ in range(DEEP):
        (items,) = items if len(items) == 1 else (items,)
    assert items == [0, 1]


@pytest.mark.parametrize(("first", "last"), [(0, 0), (0, 1), (0, 2), (1, 2), (1, 1), (0, 3), (2, 3), (1, 3)])
def test_flatten_is_dropping_levels(first, last):
    names = ["a", "b", "c", "d"]
    lod = tl.LoD.from_lengths([[2, 0, 1], [1, 2, 0], [2, 1, 0], [1, 0, 3]], level_names=names)
    expected = lod
    for _ in range(last - first):
        expected = expected.drop_level(first)
    assert lod.flatten(first, last) == expected and lod.flatten(first, last).level_names == expected.level_names


def most():
    return tl.zeros(tl.LoD([[0, 2**63 - 1]]), 0)


def nested(depth, item):
    for _ in range(depth):
        item = [item]
    return item


REFUSED = {
    "to_padded at all of too many levels": (
        lambda: deep.to_padded(level="all"),
        "to_padded: expected at most 63 levels with level='all' and rows of 0 dims, got 3000; see flatten_levels",
    ),
    "nested lists too deep": (lambda: tl.lod_tensor(nested(DEEP, 1.0)), "expected at most 1000 nestings, got more"),
    "nested tensors too deep": (lambda: tl.from_tensors(nested(DEEP, deep.values())), "expected at most 1000 nestings"),
    "max_length": (
        lambda: tl.from_lengths(torch.zeros(3, 4), [[2, 1]]).to_padded(max_length=2**62),
        f"to_padded: expected a padded tensor of less than 2**63 numbers, got 2 sequences padded to {2**62} rows of 4",
    ),
    "max_length beyond int64": (
        lambda: tl.from_lengths(torch.zeros(3, 0), [[2, 1]]).mask(max_length=2**64),
        "mask: expected a padded tensor of less than 2**63 numbers, got 2 sequences",
    ),
    "maxlen": (
        lambda: tl.paddle.sequence_pad(tl.from_lengths(torch.zeros(3, 4), [[2, 1]]), 0.0, maxlen=2**62),
        "expected a padded tensor of less than 2**63 numbers",
    ),
    "all levels": (
        lambda: tl.zeros(tl.LoD.from_lengths([[9] + [0] * 8] * 21)).to_padded(level="all"),
        f"to_padded: expected a padded tensor of less than 2**63 numbers, got 9 sequences padded to {9**21} rows of 1",
    ),
    "element": (lambda: tl.zeros(deep.lod, 2**62, 2), "zeros: expected sizes >= 0 of less than 2**63 numbers in all"),
    "element beyond int64": (lambda: tl.full(deep.lod, 2**64, fill_value=0), "full: expected sizes >= 0 of less"),
    "element below 0": (lambda: tl.rand(deep.lod, -1), "rand: expected sizes >= 0 of less than 2**63 numbers in all"),
    "padding": (
        lambda: deep.to_padded(2**63),
        "to_padded: expected padding_value within int64 or as a float, got 9223372036854775808",
    ),
    "padding of many digits": (
        lambda: deep.nth(0, padding_value=10**5000),
        "within int64 or as a float, got an int of",
    ),
    "base": (
        lambda: tl.rotary_embedding(tl.ones(deep.lod, 2), base=10**400),
        "expected base as a float or within int64",
    ),
    "eps": (
        lambda: tl.sequence_normalize(deep, eps=2**64),
        "sequence_normalize: expected eps as a float or within int64",
    ),
    "lengths": (
        lambda: tl.LoD.from_lengths([[2**62, 2**62]]),
        "LoD.from_lengths: expected lengths[0] to add up to less than 2**63, got more at index 1",
    ),
    "a length of many digits": (lambda: tl.LoD.from_lengths([[10**5000]]), "within int64, got an int of 16610 bits at"),
    "group": (lambda: deep.lod.group([2**63 - 1, 2]), "expected lengths[0] to add up to less than 2**63, got more"),
    "cat": (lambda: tl.cat([most(), most()]), f"cat: expected fewer than 2**63 rows in all, got {2**64 - 2}"),
    "torch.cat": (lambda: torch.cat([most(), most()]), f"cat: expected fewer than 2**63 rows in all, got {2**64 - 2}"),
    "shift": (lambda: tl.sequence_shift(deep, 2**62), "expected n as an int within 2**40"),
    "unfold": (
        lambda: tl.sequence_unfold(deep, 2**62),
        "sequence_unfold: expected size in [1, 2**20], got 4611686018427387904",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_too_large(case):
    call, message = REFUSED[case]
    with pytest.raises(tl.LoDError, match=re.escape(message)):
        call()


def test_large_and_right():
    structure = tl.LoD([[0, 2**62]])
    assert structure.rows == structure.max_length() == 2**62 and tl.zeros(structure, 0).shape == (2**62, 0)
    most = tl.LoD([[0, 2**63 - 1]])
    assert most.lengths().tolist() == [2**63 - 1] and most.slice(0, 0).rows == 2**63 - 1
    wide = tl.LoD.from_lengths([[100] + [0] * 99] * 3000)
    assert "10**6002.0" in tl.describe(wide).splitlines()[-2]


def test_rows_without_numbers():
    """Kernels count no rows that have nothing to add up or to fill."""
    empty = tl.from_lengths(torch.zeros(3, 0), [[2, 1]])
    assert empty.to_padded(max_length=2**61)[0].shape == (2, 2**61, 0)
    structure = tl.LoD([[0, 2**62]])
    assert tl.sequence_pool(tl.zeros(structure, 0), "sum").shape == (1, 0)


# -- an assignment that torch does not show us


def test_rows_that_set_has_replaced():
    calls = 0
    for entry in SEQUENCES:
        for sample in list(entry.samples(entry.dtypes[0], "cpu"))[2:40:25]:
            if not isinstance(sample.args[0], tl.LoDTensor):
                continue
            for rows in (0, 3, 500):
                x = sample.args[0].clone()
                torch.Tensor.set_(x, torch.ones(rows, *x.shape[1:], dtype=x.dtype))
                try:
                    entry.run(sample, [x, *sample.args[1:]])
                except (ValueError, TypeError, IndexError, RuntimeError):
                    pass
                calls += 1
    assert calls > 150


# -- memory


@pytest.mark.skipif(COMPILER is None, reason="needs a C++ compiler")
@pytest.mark.skipif(sys.platform != "linux", reason="replaces functions of the C library by LD_PRELOAD")
def test_allocations_that_fail(tmp_path, record_property):
    done = failing_memory.run(failing_memory.build(COMPILER, tmp_path), 2, 8 if FULL else 1)
    assert done.returncode == 0, done.stderr[-3000:]
    found = re.fullmatch(r"(\d+) operators, (\d+) calls, (\d+) failed allocations\n", done.stdout)
    assert found and int(found[3]) > 5 * int(found[1])
    record_property("failed allocations", done.stdout.strip())


# -- signals


@pytest.mark.skipif(not tl.ops.COMPILED, reason="between operators of torch Python answers by itself")
@pytest.mark.parametrize("threads", [1, 2] if FULL else [2])
def test_long_operators_answer_signals(threads, record_property):
    done = program("interrupted.py", threads)
    assert done.returncode == 0, done.stderr[-3000:]
    *answers, last = done.stdout.splitlines()
    assert last == "handlers: ok" and len(answers) == 9
    # none of them would have ended in less than a quarter of a minute
    assert all(float(line.split()[-2]) < 5 for line in answers), answers
    record_property("Ctrl-C", "; ".join(answers))


# -- processes and threads

FORK = """
import os, signal, torch, torch_lod as tl
torch.set_num_threads(2)
x = tl.from_lengths(torch.randn(200_000, 8), [[120_000, 80_000]])
y = tl.from_lengths(torch.randn(40, 8), [[30, 10]])
lstm = tl.nn.LSTM(8, 16)
calls = [lambda: tl.sequence_softmax(x), lambda: tl.sequence_cumsum(x), lambda: tl.sequence_pool(x, "max"),
         lambda: tl.sequence_reverse(x), lambda: tl.nn.SequenceConv1d(8, 8, 3)(x), lambda: lstm(y)[0].sum().backward()]
for call in calls:
    torch.manual_seed(0)
    call()
right = tl.sequence_softmax(x).values()
child = os.fork()
if child == 0:
    signal.alarm(60)
    for call in calls:
        call()
    same = all(torch.equal(a, b) for a, b in zip(tl.sequence_softmax(x).values().split(1000), right.split(1000)))
    print("same" if same else "other", flush=True)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
print("ended")
"""


@pytest.mark.skipif(not tl.ops.COMPILED or not hasattr(os, "fork"), reason="is about threads of kernels")
def test_kernels_after_a_fork():
    done = program("-c", FORK, OMP_NUM_THREADS="2")
    assert (done.returncode, done.stdout) == (0, "same\nended\n"), done.stderr[-3000:]


@pytest.fixture
def hasty():
    """Python switches threads every microsecond."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def test_threads_share_a_tensor(hasty):
    values, lengths = torch.randn(600, 6), [[3, 0, 2], [40, 0, 60, 1, 19]]
    values = values[: sum(lengths[1])].requires_grad_()

    def work(x):
        lod = x.lod
        found = [lod.row_offsets(k) for k in (0, 1)] + [lod.segment_ids(0), lod.position_ids(), lod.cu_seqlens()]
        found += [
            tl.sequence_softmax(x),
            tl.sequence_pool(x, "max", level=0),
            tl.sequence_reverse(x, level=0),
            x.head(2),
        ]
        found += [
            tl.sequence_attention(*[x.unsqueeze(1)] * 3),
            x.to_padded()[0],
            torch.tensor([hash(lod)]),
            x.values() * 2,
        ]
        found.append(torch.autograd.grad(tl.sequence_softmax(x)[:, 0].sum(), values)[0])
        return [t.detach().clone() for t in found]

    right = work(tl.from_lengths(values, lengths))
    wrong = []
    for _ in range(25):
        x, start = tl.from_lengths(values, lengths), threading.Barrier(4)

        def thread(x=x, start=start):
            start.wait()
            try:
                found = work(x)
                wrong.extend(i for i, (a, b) in enumerate(zip(found, right, strict=True)) if not torch.equal(a, b))
            except BaseException as error:
                wrong.append(error)

        threads = [threading.Thread(target=thread) for _ in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    assert not wrong


# -- TORCH_LOD_LARGE=1: 8 to 12 GB, some minutes


@pytest.mark.skipif(not LARGE, reason="TORCH_LOD_LARGE=1 and 12 GB")
@pytest.mark.parametrize("what", ["rows", "sequences"])
def test_large(what, record_property):
    done = program("large.py", what)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    record_property(f"large, {what}", done.stdout.splitlines()[-1])
