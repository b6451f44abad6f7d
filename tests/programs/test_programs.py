# SPDX-License-Identifier: Apache-2.0
"""The programs of examples/programs: they run, learn, and compute what their twins without LoDTensors do."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from frames import Frame

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))
from benchmarks import programs  # noqa: E402

PROGRAMS = programs.programs()
#: What a program says at its end of how much it learned, by the name it has there.
LEARNED = {
    "Nested classifier": lambda names: names["right"] > 0.85,
    "Tagger": lambda names: names["right"] > 0.85,
    "Frames": lambda names: names["right"] > 0.85,
    "Packed Transformer": lambda names: names["bits"] < 4.5,
    "CTC": lambda names: names["right"] > 0.7,
    "Chunks": lambda names: names["f1"] > 0.7,
    "Forecast": lambda names: names["error"] < 0.12,
    "Sessions": lambda names: names["right"] > 0.85 and names["reciprocal"] > 0.7,
    "Interest": lambda names: names["right"] > 0.85,
    "Graphs": lambda names: names["right"] > 0.9,
    "Ranking": lambda names: names["right"] > 0.9,
}


def test_every_program_has_a_twin_and_a_line_of_the_page():
    assert list(PROGRAMS) == list(LEARNED) and len(PROGRAMS) == len(list(programs.FOLDER.glob("*.py")))
    assert all(30 <= len(source.splitlines()) <= 60 for source in PROGRAMS.values())
    page = (ROOT / "docs/programs.md").read_text()
    assert all(f"(../examples/programs/{path.name})" in page for path in programs.FOLDER.glob("*.py"))


@pytest.mark.parametrize("title", PROGRAMS)
def test_programs_learn_and_equal_their_twins(title, monkeypatch):
    monkeypatch.chdir(ROOT)  # pandas itself, and polars: tests/data/check_frames.py
    monkeypatch.setitem(sys.modules, "pandas", SimpleNamespace(DataFrame=lambda columns: Frame(**columns)))
    pair = programs.paired(title, PROGRAMS[title])
    assert LEARNED[title](pair.names), pair.printed
    assert pair.apart <= programs.TOLERANCE and pair.rows > 500
