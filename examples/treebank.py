# SPDX-License-Identifier: Apache-2.0
"""Treebanks in the CoNLL-U format, as documents of paragraphs of sentences of words.

The format: https://universaldependencies.org/format.html
"""

from __future__ import annotations

import lzma
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from running import InputError

SPLITS = ("train", "dev", "test")
FOLDER = Path(__file__).parent / "data"
DEFAULT, SAMPLE = FOLDER / "ud_ewt", FOLDER / "ewt_sample"


@dataclass(frozen=True)
class Word:
    form: str
    lemma: str
    upos: str


Sentence = list[Word]


@dataclass
class Document:
    """A file without marks of documents and paragraphs is one document of one paragraph."""

    name: str
    paragraphs: list[list[Sentence]] = field(default_factory=list)

    def sentences(self) -> Iterator[Sentence]:
        return (sentence for paragraph in self.paragraphs for sentence in paragraph)

    def words(self) -> Iterator[Word]:
        return (word for sentence in self.sentences() for word in sentence)


def read_conllu(path: Path) -> list[Document]:
    """The documents of a `.conllu` file, or of one packed by xz."""
    try:
        with (lzma.open if path.suffix == ".xz" else open)(path, "rt", encoding="utf-8") as file:
            documents = parse_conllu(file, str(path))
    except (OSError, UnicodeDecodeError, lzma.LZMAError, EOFError) as error:
        raise InputError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from None
    if not any(True for document in documents for _ in document.words()):
        raise InputError(f"{path} has no words")
    return documents


def parse_conllu(lines: Iterable[str], name: str) -> list[Document]:
    """The words of the text: ranges (`1-2`) and words that are not written (`1.1`) are left out."""
    documents: list[Document] = []
    sentence: Sentence = []
    begins_document = begins_paragraph = True

    def end_sentence() -> None:
        nonlocal sentence, begins_document, begins_paragraph
        if not sentence:
            return
        if begins_document:
            documents.append(Document(document_name))
        if begins_document or begins_paragraph:
            documents[-1].paragraphs.append([])
        documents[-1].paragraphs[-1].append(sentence)
        sentence, begins_document, begins_paragraph = [], False, False

    document_name = name
    for number, line in enumerate(lines, start=1):
        line = line.rstrip("\r\n")
        if not line.strip():
            end_sentence()
        elif line.startswith("# newdoc"):
            begins_document, document_name = True, line.partition("=")[2].strip() or f"{name}, line {number}"
        elif line.startswith("# newpar"):
            begins_paragraph = True
        elif not line.startswith("#"):
            columns = line.split("\t")
            if len(columns) != 10:
                raise InputError(f"{name}, line {number}: {len(columns)} columns between tabs, a CoNLL-U file has 10")
            if columns[0].isdecimal():
                sentence.append(Word(columns[1], columns[2], columns[3]))
    end_sentence()
    return documents


def load(folder: Path) -> dict[str, list[Document]]:
    """Training, development and test documents: the files whose names have `train`, `dev` and `test`."""
    if not folder.is_dir():
        raise InputError(
            f"there is no folder {folder}. A treebank comes with\n"
            f"  git clone --depth 1 https://github.com/UniversalDependencies/UD_English-EWT {DEFAULT}\n"
            f"--data FOLDER takes any other, and --data {SAMPLE} trains on the sample that is here"
        )
    found = {}
    for split in SPLITS:
        paths = sorted(p for p in folder.iterdir() if split in p.name and p.name.endswith((".conllu", ".conllu.xz")))
        if len(paths) != 1:
            names = ", ".join(p.name for p in paths) or "none"
            raise InputError(f"{folder} needs one .conllu file with {split!r} in its name, it has {names}")
        found[split] = read_conllu(paths[0])
    return found
