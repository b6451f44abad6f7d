# SPDX-License-Identifier: Apache-2.0
"""Malformed structure is refused everywhere: with the right class and words, the object unchanged, the process alive."""

import io
import os
import pickle
import re
import subprocess
import sys
import zipfile

import malformed_calls
import malformed_classes
import malformed_pool
import numpy as np
import pytest
import torch
from malformed import cases, deep_list, ints, tensor, values
from malformed_ops import raw_cases
from malformed_pool import fresh
from settings import LIB, PYTHONPATH

import torch_lod as tl
from torch_lod import LoD, LoDError
from torch_lod.sequence.plan import _load_rank_table
from torch_lod.structure.lod import _load_lod
from torch_lod.tensor.derived import _load as _load_derived
from torch_lod.tensor.lod_tensor import _load_lod_tensor

CASES, RAW = list(cases()), list(raw_cases())


@pytest.mark.parametrize("case", CASES, ids=[case[0] for case in CASES])
def test_structure_is_refused(case):
    _, call, error, message, begins, x = case
    if x is not None:
        lod, rows = x.lod, x.values().clone()
    with pytest.raises(error) as caught:
        call()
    words = str(caught.value)
    assert isinstance(caught.value, LoDError), repr(caught.value)
    assert re.search(message, words, re.S), words
    assert not begins or words.startswith(begins), words
    assert 0 < len(words) < 600, words
    if x is not None:
        assert x.lod is lod and lod.to_list() == [[0, 2, 6]] and torch.equal(x.values(), rows)


@pytest.mark.parametrize("case", RAW, ids=[case[0] for case in RAW])
def test_raw_operators_refuse(case):
    _, call, message = case
    with pytest.raises((ValueError, TypeError, IndexError, RuntimeError)) as caught:
        call()
    assert re.search(message, str(caught.value)), str(caught.value)


@pytest.mark.parametrize("operator", ["lstm", "gru"])
def test_recurrences_name_meta_offsets(operator):
    call = next(case[1] for case in RAW if case[0] == f"{operator}-meta")
    with pytest.raises(TypeError, match="row_offsets"):
        call()


def python(*arguments, composed=not tl.ops.COMPILED):
    env = {**os.environ, "TORCH_LOD_COMPOSED": "1" if composed else "0", "PYTHONPATH": PYTHONPATH}
    command = [sys.executable, "-X", "faulthandler", "-W", "ignore", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=env, cwd=LIB, timeout=300)


def test_nothing_crashes_the_process_without_compiled_operators():
    done = python("malformed.py", composed=True)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout == f"{len(CASES) + len(RAW)} refused\n"


# -- the catalogue: every entry point with every class of malformed argument


def test_every_entry_point_is_in_the_catalogue():
    assert not malformed_calls.missing(), "add a row to tests/lib/malformed_calls.py"


#: What raises whatever it is given.
NEVER = {"tl.DerivedTensor", "LoDTensor.set_", "LoDTensor.__setstate__", "LoD.__setattr__", "LoD.__delattr__"}


def test_every_row_of_the_catalogue_begins_with_a_valid_call():
    valid, tried = set(NEVER), set()
    for entry, call in malformed_calls.calls():
        tried.add(entry)
        if entry in valid:
            continue
        try:
            call.function(*map(fresh, call.args), **call.kwargs)
        except tl.LoDError:
            continue
        valid.add(entry)
    assert valid == tried


#: D4, memory freed between forward and backward, is asked of kernels: of compositions torch's own functions save it.
CLASSES = set(malformed_classes.TITLES) - (set() if tl.ops.COMPILED else {"D4"})


def test_every_class_of_the_catalogue_is_asked():
    entries, asked = set(), {}
    for label, entry, kind, _ in malformed_pool.cases():
        entries.add(entry)
        asked.setdefault(kind, label)
    assert set(asked) == CLASSES
    assert malformed_calls.entry_points() <= entries  # each of them has arguments, if only too many


def test_every_call_of_the_catalogue_returns_or_raises():
    """A sample: one call of each class of each entry point. All of them: make catalogue."""
    done = python("malformed_pool.py", "--short")
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    counts = re.search(r"(\d+) entry points, (\d+) classes, (\d+) pairs, (\d+) calls: .* 0 failed", done.stdout)
    assert counts and int(counts[1]) > 250 and int(counts[2]) == len(CLASSES), done.stdout


BROKEN = """
import ctypes, os, time, torch, torch_lod as tl, malformed_pool as pool
pool.LIMIT = 1
def forged():
    lod = tl.LoD([[0, 2]])
    object.__setattr__(lod, "levels", (torch.tensor([0, 9]), ))
    pool.look(lod)
def misfit():
    x = tl.LoDTensor(torch.ones(2), tl.LoD([[0, 2]]))
    x._provenance = x._provenance._replace(lod=tl.LoD([[0, 1]]))
    pool.look([x])
calls = {"returns": list, "raises": lambda: [][0], "reads": lambda: ctypes.string_at(8), "waits": lambda: time.sleep(99),
         "leaves": lambda: os._exit(3), "stops": lambda: exit(0), "forged": forged, "misfit": misfit, "goes on": list}
found = pool.run([(name, "entry", "A1", call) for name, call in calls.items()])
print({name: said.splitlines()[0] for name, said in found["failures"]}, found["returned"], found["raised"])
"""


def test_the_catalogue_names_what_dies_and_goes_on():
    done = python("-c", BROKEN)
    failed = (
        "{'reads': 'died of SIGSEGV', 'waits': 'no end in 1 s', 'leaves': 'ended with 3', 'stops': 'SystemExit: 0', "
    )
    assert done.stdout.startswith(failed + "'forged': 'Invalid: "), done.stdout + done.stderr[-2000:]
    assert "'misfit': 'Invalid: 1 rows in the LoD of (2,)'} 2 1" in done.stdout


# -- files


class Forged:
    """What a file may hold: any function that loading admits, with any arguments, and a state put into the result."""

    def __init__(self, *made):
        self.made = made

    def __reduce__(self):
        return self.made


def loaded(value, pickled: bytes | None = None):
    """By way of a file; `pickled` in place of the value's own instructions."""
    file, edited = io.BytesIO(), io.BytesIO()
    torch.save(value, file)
    with zipfile.ZipFile(file) as given, zipfile.ZipFile(edited, "w") as out:
        for name in given.namelist():
            own = pickled is None or not name.endswith("data.pkl")
            out.writestr(name, given.read(name) if own else pickled)
    edited.seek(0)
    return torch.load(edited, weights_only=True)


ROWS = torch.arange(6.0)
FORGED = {
    "rows": Forged(_load_lod_tensor, (ROWS[:5], tensor().lod, False)),
    "lists": Forged(_load_lod_tensor, (ROWS, [[0, 6]], False)),
    "falls": Forged(_load_lod, ([[0, 5, 2, 6]], None)),
    "levels": Forged(_load_lod, ([[0, 3], [0, 2, 6]], None)),
    "huge": Forged(_load_lod, ([[0, 2**63]], None)),
    "floats": Forged(_load_lod, ([[0.0, 6.0]], None)),
    "names": Forged(_load_lod, ([[0, 6]], ("a", "b"))),
    "the class": Forged(LoD, ([[0, 5, 6]],)),
    "state of a LoD": Forged(_load_lod, ([[0, 2]], None), (None, {"_rows": 99})),
    "state of rows": Forged(_load_lod_tensor, (ROWS, tensor().lod, False), (ROWS[:2], 0, {}, False, {})),
    "structure as state": Forged(_load_lod_tensor, (ROWS, tensor().lod, False), {"_lod": LoD([[0, 2]])}),
    "state of a table": Forged(_load_rank_table, (tensor().lod, 0), {"order": ROWS}),
    "level of a table": Forged(_load_rank_table, (tensor().lod, 7)),
}
_DERIVED = torch.ones(2, 6), tensor().lod, 1, "t", None, False
for _at, _value in [
    *((2, dim) for dim in ("x", 1.0, 2, -1, True, (1,))),
    *(
        (4, part)
        for part in ((5, 7), (-3, -1), (2**70, 2**70 + 2), (4, 2), (0, 2, 5), ("a", "b"), 3, (0.0, 6.0), (0, 2))
    ),
    *((3, call) for call in (None, 3)),
    (0, torch.ones(2, 6).to_sparse()),
    (0, torch.ones(2, 5)),
    (1, [[0, 6]]),
]:
    FORGED[f"of a moved tensor: {_at}, {_value!r:.40}"] = Forged(
        _load_derived, (*_DERIVED[:_at], _value, *_DERIVED[_at + 1 :])
    )
FORGED["of a lost tensor: a part"] = Forged(_load_derived, (ROWS[:2], tensor().lod, None, "mean", (5, 7), False))
FORGED["gradient of integers"] = Forged(_load_derived, (torch.zeros(2, 6).long(), *_DERIVED[1:5], True))
FORGED["counted"] = Forged(_load_lod, ([[0, 6]], None, 3))
#: Instructions of pickle: the class is found, and an object made without its constructor.
UNMADE = {
    "LoD": b"\x80\x02ctorch_lod.structure.lod\nLoD\n)\x81.",
    "LoDTensor": b"\x80\x02ctorch_lod.tensor\nLoDTensor\n)\x81.",
    "RankTable": b"\x80\x02ctorch_lod.sequence.plan\nRankTable\n)\x81.",
}


@pytest.mark.parametrize("name", FORGED)
def test_forged_files_are_refused(name):
    with pytest.raises((ValueError, TypeError, IndexError, pickle.UnpicklingError)) as raised:
        loaded(FORGED[name])
    if "tensor: " in name or name == "gradient of integers":
        assert isinstance(raised.value, tl.LoDError), raised.value


@pytest.mark.parametrize("name", UNMADE)
def test_files_make_no_object_without_its_check(name):
    with pytest.raises(pickle.UnpicklingError):
        loaded(tensor(), UNMADE[name])


def test_files_are_loaded_with_weights_only():
    moved = tensor()[None].requires_grad_()
    for value in (tensor(), tensor().lod, tl.lod_rank_table(tensor()), moved, tensor()[2:4], tensor().mean(0)):
        assert type(loaded(value)) is type(value)


def broken(mode: str, *options: str):
    done = python("malformed_files.py", mode, *options)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return {word: int(count) for count, word in re.findall(r"(\d+) (\w+)", done.stdout)}


def test_broken_files_are_refused_or_valid():
    """A sample: every 13th byte. All of them, with every bit: make files."""
    counts = broken("sample")
    assert counts["files"] > 300 and counts["refused"] > 200 and counts["loaded"] > 50, counts


# -- legal, and often thought not to be


@pytest.mark.parametrize(
    "data", [ints(0, 9, 2, 9, 6)[::2], np.array([6, 2, 0])[::-1], range(0, 7, 3), (0, 2, 6)], ids=str
)
def test_views_are_copied(data):
    assert tl.from_offsets(values(), [data]).num_sequences() == 2


def test_unsigned_arrays_are_taken_where_they_fit():
    assert LoD([np.array([0, 2, 6], dtype=np.uint64)]).to_list() == [[0, 2, 6]]
    assert LoD([torch.tensor([0, 2, 6], dtype=torch.uint64)]).to_list() == [[0, 2, 6]]
    assert LoD.from_lengths([np.array([], dtype=np.uint64)]).to_list() == [[0]]


def test_rows_without_elements_need_no_memory():
    x = tl.from_lengths(torch.empty(6, 0), [[2, 4]])
    assert x.values().untyped_storage().nbytes() == 0 and tl.cat([x, x]).shape == (12, 0)


def test_lengths_are_summed_in_int64():
    assert LoD.from_lengths([torch.tensor([2**31 - 1] * 2, dtype=torch.int32)]).rows == 2**32 - 2


def test_no_rows_and_no_sequences_are_legal():
    assert tl.from_offsets(torch.zeros(0, 2), [[0]]).num_sequences() == 0
    assert tl.from_offsets(torch.zeros(0, 2), [[0, 0, 0]]).num_sequences() == 2


@pytest.mark.parametrize("make", [LoD, LoD.from_row_offsets], ids=["offsets", "row offsets"])
@pytest.mark.parametrize("kind", [torch.tensor, np.array], ids=["tensor", "numpy"])
def test_what_the_caller_does_afterwards_has_no_effect(make, kind):
    given = kind([0, 2, 6])
    lod = make([given])
    given[1] = 99
    assert lod.to_list() == [[0, 2, 6]]
    for handed in (lod.offsets(), lod.row_offsets(), lod.lengths(), lod.segment_ids(), lod.cu_seqlens()):
        handed.fill_(7)
    assert lod.to_list() == [[0, 2, 6]] and lod.row_offsets().tolist() == [0, 2, 6]
    assert lod.segment_ids().tolist() == [0, 0, 1, 1, 1, 1] and lod.cu_seqlens().tolist() == [0, 2, 6]


@pytest.mark.parametrize("make", [LoD.from_lengths, lambda given: tensor().lod_reset(given).lod], ids=["LoD", "reset"])
def test_mutated_lengths_have_no_effect(make):
    given = ints(2, 4)
    lod = make([given])
    given.zero_()
    assert lod.to_lengths() == [[2, 4]]


def test_mutation_between_forward_and_backward_has_no_effect():
    offsets = ints(0, 2, 6)
    rows = values().requires_grad_()
    pooled = tl.sequence_pool(tl.from_offsets(rows, [offsets]), "average")
    offsets.fill_(10**6)
    pooled.sum().backward()
    assert rows.grad.tolist() == [[0.5, 0.5]] * 2 + [[0.25, 0.25]] * 4


def test_depth_does_not_exhaust_the_stack():
    assert LoD([[0, 1]] * 20_000).depth == 20_000
    assert tl.lod_tensor(deep_list(900)).lod_level == 900
    with pytest.raises(LoDError, match="nestings"):
        tl.lod_tensor(deep_list(100_000))
