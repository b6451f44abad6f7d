# SPDX-License-Identifier: Apache-2.0
"""Every Python block of a page runs by itself and prints the text block that follows it."""

import contextlib
import io
import re

import hypothesis
import pytest
import torch
from settings import ROOT

PAGES = ["README.md"]
PAGES += [f"docs/{name}.md" for name in ("concepts", "numerics", "drop_in", "porting", "data", "distributed")]
PAGES += [f"docs/{name}.md" for name in ("differences_from_paddle", "compile_and_export", "testing", "recurrence")]
PAGES += ["docs/metrics.md", "docs/inner_levels.md"]
PAGES += [f"docs/{name}.md" for name in ("structured", "map_sequences", "events", "graphs", "minus_one")]
# A page that is read on a busy machine is as right as on another.
hypothesis.settings.register_profile("patient", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    monkeypatch.chdir(ROOT)
    before = hypothesis.settings.get_current_profile_name()
    hypothesis.settings.load_profile("patient")
    yield
    hypothesis.settings.load_profile(before)


def output(code: str, name: str) -> str:
    """What a block prints, in a namespace of its own."""
    torch.manual_seed(0)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, name, "exec"), {"__name__": "__main__"})
    return printed.getvalue()


@pytest.mark.parametrize("page", PAGES)
def test_a_page_prints_what_it_says(page):
    blocks = re.findall(r"```(python|text)\n(.*?)```", (ROOT / page).read_text(), re.S)
    compared = 0
    for i, ((kind, code), (following, expected)) in enumerate(zip(blocks, [*blocks[1:], ("", "")])):
        if kind == "python":
            printed = output(code, f"{page}, block {i}")
            if following == "text":
                assert printed == expected, f"{page}: printed\n{printed}"
                compared += 1
    assert compared
