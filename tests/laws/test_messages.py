# SPDX-License-Identifier: Apache-2.0
"""docs/messages.md: its calls raise what it says, and it has the messages of every sequence operator."""

import sys
import traceback

import pytest
from samples import SEQUENCES
from settings import ROOT

import torch_lod as tl

sys.path.insert(0, str(ROOT / "docs"))
import messages


def raised_at(error: Exception) -> str | None:
    """The line of the package that raised; None for errors of kernels, and of arguments that fit no signature."""
    lines = [f for f in traceback.extract_tb(error.__traceback__) if f.filename.startswith(f"{ROOT}/torch_lod/")]
    if not lines or lines[-1].filename.endswith("/errors.py"):
        return None
    return f"{lines[-1].filename.removeprefix(f'{ROOT}/')}:{lines[-1].lineno}"


@pytest.fixture(scope="module")
def errors():
    return {code: messages.raised(code) for code in messages.CALLS}


def test_the_page_is_current():
    assert (ROOT / "docs/messages.md").read_text() == messages.page(), "docs/messages.md is out of date: make docs"


def test_every_call_raises_an_error_of_ours(errors):
    for code, error in errors.items():
        raw = code.startswith("tl.ops.") and type(error) in (ValueError, TypeError)
        assert isinstance(error, tl.LoDError) or raw, f"{code}: {error!r}"
        assert "expected " in str(error), f"{code}: {error}"


def test_every_call_has_a_message_of_its_own(errors):
    assert list(errors) == sorted(set(errors))
    said = {}
    for code, error in errors.items():
        assert said.setdefault(str(error), code) == code, f"{code} says what {said[str(error)]} does"


def test_every_message_of_a_sequence_operator_is_on_the_page(errors):
    """By the line that raises it; messages of one form have one example."""
    here = {raised_at(error) for error in errors.values()}
    missing = {}
    for info in (info for info in SEQUENCES if info.name in tl.sequence.__all__):
        for label, call, exception, _ in info.errors():
            with pytest.raises(exception) as caught:
                call()
            at = raised_at(caught.value)
            if at is not None and at not in here:
                missing.setdefault(at, f"{info.name}, {label}: {caught.value}")
    assert not missing, "add a call to docs/message_examples.py:\n" + "\n".join(missing.values())
