# SPDX-License-Identifier: Apache-2.0
"""Comments, names and pages say what the field says: tests/lib/private_words.txt has the words that are not written here."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from settings import LIB, ROOT

WORDS = LIB / "private_words.txt"
FOLDERS = ("torch_lod", "csrc", "tests", "docs", "examples", "benchmarks")
FILES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "Makefile", "setup.py", "pyproject.toml")
LEFT_OUT = {"build", "golden", "__pycache__"}
SUFFIXES = {".py", ".h", ".cpp", ".cu", ".md", ".ipynb", ".toml", ".sh"}
#: What is read for an underscore, so that a word ends there.
BETWEEN = "\x01"
#: White space, or the end of a line and the sign of a comment on the next one.
GAP = r"(?:[^\S\n]+|[^\S\n]*\n[^\S\n]*(?:#:?|//|\*)?[^\S\n]*)"


class Use(NamedTuple):
    file: str
    line: int
    word: str
    instead: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.word!r}; write {self.instead}"


def words() -> list[tuple[str, str]]:
    """Patterns, and what to write instead."""
    lines = [line for line in WORDS.read_text().splitlines() if line and not line.startswith("#")]
    pairs = [line.split(" = ", 1) for line in lines]
    spelled = [(pattern.replace("[ _]", f"(?:_|{GAP})").replace(" ", GAP), instead) for pattern, instead in pairs]
    return [(pattern.replace("_", BETWEEN), instead) for pattern, instead in spelled]


INSTEAD = {re.compile(pattern): instead for pattern, instead in words()}
#: Without groups around the patterns, which would make it ten times slower.
ANY = re.compile("|".join(pattern for pattern, _ in words()))


def sources() -> Iterator[Path]:
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            folders = {*path.relative_to(ROOT).parts}
            if path.suffix in SUFFIXES and path != Path(__file__) and not LEFT_OUT & folders:
                yield path
    yield from (ROOT / name for name in FILES)


def uses(file: str, text: str) -> Iterator[Use]:
    text = text.replace("_", BETWEEN)
    for match in ANY.finditer(text):
        instead = next(to for pattern, to in INSTEAD.items() if pattern.match(text, match.start()))
        word = " ".join(re.sub(r"[#/*]", " ", match[0]).split()).replace(BETWEEN, "_")
        yield Use(file, text.count("\n", 0, match.start()) + 1, word, instead)


def test_words_are_those_of_the_field():
    left = [use for path in sources() for use in uses(path.relative_to(ROOT).as_posix(), path.read_text())]
    assert not left, "words that only this project uses:\n" + "\n".join(map(str, left))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x = 1\n# all rows at" + " once\n", "a.py:2: 'at once'; write fused; in one pass; immediately; fast path"),
        ("// which begin at\n  // once\n", "a.py:1: 'at once'; write fused; in one pass; immediately; fast path"),
        ("def at" + "_once(): ...", "a.py:1: 'at_once'; write fused; in one pass; immediately; fast path"),
        ("std::vector dear" + "est_first", "a.py:1: 'dearest'; write expensive; costly"),
        ("a whole\nnumber", "a.py:1: 'whole number'; write integer"),
        ("that once was a scan", None),
        ("ahead of time", None),
    ],
    ids=["comment", "two lines", "name", "in a name", "prose", "no word", "another word"],
)
def test_a_word_is_found_with_its_place_and_its_replacement(text, expected):
    assert list(map(str, uses("a.py", text))) == ([expected] if expected else [])


def test_every_word_has_a_replacement_that_is_none():
    assert len(INSTEAD) > 20
    assert not [instead for instead in INSTEAD.values() if not instead.strip() or ANY.search(instead)]
