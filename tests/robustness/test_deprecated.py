# SPDX-License-Identifier: Apache-2.0
"""Names of before work, and warn with the new ones."""

import importlib
import pickle
import subprocess
import sys
import warnings

import pytest
import torch
from settings import ROOT

import torch_lod as tl
from torch_lod import testing
from torch_lod.deprecated import MOVED, RENAMED

X = tl.from_lengths(torch.arange(6.0), [[2, 1], [1, 2, 3]])
TABLE = tl.lod_rank_table(X, level=1)
#: What each name of before gives, and the new one.
CALLS = {
    "torch_lod.testing.alone": (lambda: testing.alone(X, 1), lambda: testing.batch_of_one(X, 1)),
    "torch_lod.testing.laid_out": (
        lambda: testing.laid_out(X.values(), "strided"),
        lambda: testing.to_layout(X.values(), "strided"),
    ),
    "LoD.named": (lambda: X.lod.named(["a", "b"]).level_names, lambda: X.lod.with_level_names(["a", "b"]).level_names),
    "RankTable.alive": (lambda: TABLE.alive(1), lambda: TABLE.active(1)),
    "torch_lod.moved_rows.MovedRows": (
        lambda: importlib.import_module("torch_lod.moved_rows").MovedRows,
        lambda: tl.DerivedTensor,
    ),
}


def test_every_name_has_a_call():
    assert CALLS.keys() == RENAMED.keys()


@pytest.mark.parametrize("old", CALLS)
def test_a_name_of_before_works_and_warns(old):
    before, now = CALLS[old]
    with pytest.warns(DeprecationWarning) as warned:
        result = before()
    assert [str(w.message) for w in warned] == [f"{old} is deprecated; write {RENAMED[old]}"]
    assert warned[0].filename == __file__  # the line of the caller
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        expected = now()
    if isinstance(result, torch.Tensor):
        testing.assert_close(result, expected, exact=True)
    else:
        assert result == expected


#: A name of each module of before.
NAMES = {
    "torch_lod.construct": "from_lengths",
    "torch_lod.declared": "per_sequence",
    "torch_lod.devices": "check_errors",
    "torch_lod.explained": "explanation",
    "torch_lod.lod": "LoD",
    "torch_lod.moved_rows": "DerivedTensor",
    "torch_lod.porting": "strict",
    "torch_lod.printing": "describe",
}


@pytest.mark.parametrize("old", MOVED)
def test_a_module_of_before_has_its_names(old):
    module, name = importlib.import_module(old), NAMES[old]
    with pytest.warns(DeprecationWarning, match=rf"^{old}\.{name} is deprecated; write {MOVED[old]}\.{name}$"):
        found = getattr(module, name)
    assert found is getattr(importlib.import_module(MOVED[old]), name)
    with pytest.raises(AttributeError), warnings.catch_warnings():
        warnings.simplefilter("error")  # not for what is not there, nor for what tools ask every module for
        hasattr(module, "__file__")
        module.no_such_name  # noqa: B018


def test_imports_of_before_are_statements():
    code = "from torch_lod.lod import LoD; import torch_lod.porting; torch_lod.porting.strict; print(LoD([[0, 2]]))"
    command = [sys.executable, "-W", "default::DeprecationWarning", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.stdout == "LoD([[2]])\n", done.stderr
    assert (
        "<string>:1: DeprecationWarning: torch_lod.lod.LoD is deprecated; write torch_lod.structure.lod.LoD"
        in done.stderr
    )


def test_pickles_of_before_are_read():
    """As the last version wrote them: LoD and LoDTensor name torch_lod.lod, a DerivedTensor torch_lod.moved_rows."""
    for value, module, old in (
        (X.lod, b"torch_lod.structure.lod", b"torch_lod.lod"),
        (X[None], b"torch_lod.tensor.derived", b"torch_lod.moved_rows"),
    ):
        text = pickle.dumps(value, protocol=2)
        before = text.replace(b"c" + module + b"\n", b"c" + old + b"\n")
        assert before != text
        with pytest.warns(DeprecationWarning, match=f"{old.decode()}._load"):
            result = pickle.loads(before)
        assert type(result) is type(value) and getattr(result, "lod", result) == X.lod


def test_the_package_uses_no_name_of_before():
    with warnings.catch_warnings():
        warnings.simplefilter("error", DeprecationWarning)
        x = tl.from_lengths(torch.arange(6.0), [[2, 1], [1, 2, 3]], level_names=["a", "b"])
        assert tl.batch([x, x], "top").level_names == ("top", "a", "b")
        assert len(tl.shrink_memory(torch.ones(3), 1, TABLE)) == TABLE.active(1)
