# SPDX-License-Identifier: Apache-2.0
"""Malformed structure is refused everywhere: with the right class and words, the object unchanged, the process alive."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from malformed import cases, deep_list, ints, tensor, values
from malformed_ops import raw_cases

import torch_lod as tl
from torch_lod import LoD, LoDError

HERE = Path(__file__).parent
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


def python(*arguments, composed=False):
    env = {**os.environ, "TORCH_LOD_COMPOSED": "1" if composed else "0", "PYTHONPATH": str(HERE.parent)}
    command = [sys.executable, "-X", "faulthandler", "-W", "ignore", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=env, cwd=HERE, timeout=300)


@pytest.mark.parametrize("composed", [False, True], ids=["compiled", "composed"])
def test_nothing_crashes_the_process(composed):
    done = python("malformed.py", composed=composed)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout == f"{len(CASES) + len(RAW)} refused\n"


FUZZ = """
import io, sys, torch, torch_lod as tl
x = tl.from_lengths(torch.arange(12.0).view(6, 2), [[2, 1], [1, 2, 3]])
file = io.BytesIO(); torch.save(x, file); good = file.getvalue()
loaded = refused = 0
def load(data):
    global loaded, refused
    try:
        y = torch.load(io.BytesIO(data), weights_only=True)
    except Exception:
        refused += 1
        return
    loaded += 1
    if isinstance(y, tl.LoDTensor):
        assert y.shape[0] == y.lod.rows and tl.LoD(y.lod.to_list()) == y.lod
        y.to_list(), y.seq[0], y.to_padded()
load(good)
assert loaded == 1
for i in range(0, len(good), 7):
    load(good[:i] + bytes([good[i] ^ 1 << i % 8]) + good[i + 1:])
    load(good[:i])
print("done", loaded > 1, refused > 100)
"""


def test_broken_files_are_refused_or_valid():
    done = python("-c", FUZZ)
    assert done.returncode == 0 and done.stdout == "done True True\n", done.stdout + done.stderr[-3000:]


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
