# SPDX-License-Identifier: Apache-2.0
"""docs/cheat_sheet.md: every piece of code in its tables runs behind the block at its top, each in names of its own."""

import contextlib
import io
import re
import warnings

import pytest
from settings import ROOT

PAGE = (ROOT / "docs/cheat_sheet.md").read_text()
SETUP = re.search(r"```python\n(.*?)```", PAGE, re.S)[1]
CALLS = [code for line in PAGE.splitlines() if line.startswith("| ") for code in re.findall(r"`([^`]+)`", line)]
CALLS = [code for code in CALLS if code != "level="]


def test_the_sheet_fits_on_a_page():
    assert len(CALLS) > 80 and len(PAGE.splitlines()) <= 75


@pytest.mark.parametrize("code", CALLS)
def test_a_line_of_the_sheet_runs(code):
    names: dict = {}
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "The PyTorch API of nested tensors")
        exec(SETUP, names)
        exec(code, names)
