# SPDX-License-Identifier: Apache-2.0
"""Documents for `train_nested_rnn.py`: functions of the standard library, or the user's own JSONL.

A document is a list of lines and a line is a list of tokens, both as long as they happen to be.

* `FunctionCorpus`: the functions of this machine's Python, each once as written (label 1) and
  once with its lines shuffled (label 0). Nothing is downloaded.
* `LabelledCorpus`: a file with one JSON object per line, `{"text": ..., "label": ...}`.
"""

from __future__ import annotations

import ast
import io
import json
import os
import re
import sysconfig
import tokenize
import warnings
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from running import InputError

Lines = list[list[str]]

MIN_LINES, MAX_LINES = 5, 24
MIN_TEST_FUNCTIONS = 1500  # two test items each: a standard error of 0.6 points at 88%
TEST_SHUFFLE_SEED = 1  # the test set does not depend on the seed of the training

# The library's own tests are left out: many installations come without them, and the task should
# be the same everywhere. Site packages are not the standard library.
SKIPPED_FOLDERS = {"test", "tests", "idle_test", "site-packages", "dist-packages", "__pycache__"}


@dataclass(frozen=True)
class Document:
    """Lines of tokens, where they come from, and the label as a class number."""

    lines: Lines
    source: str
    group: str  # documents of one group are never split between training and test
    label: int | None = None


class Vocabulary(dict):
    """Token -> number. Frequent tokens have their own; the others share numbers by hash.

    Hashing a rare name, instead of calling it unknown, leaves two rare names of a function apart
    and two uses of one name together.
    """

    MIN_COUNT, BUCKETS = 5, 512

    def __init__(self, words: Iterable[str]):
        super().__init__((word, number) for number, word in enumerate(words))
        self.words = list(self)
        self.size = len(self.words) + self.BUCKETS

    @classmethod
    def of(cls, documents: Iterable[Document]) -> Vocabulary:
        counts = Counter(token for d in documents for line in d.lines for token in line)
        return cls(word for word, count in counts.most_common() if count >= cls.MIN_COUNT)

    def __missing__(self, word: str) -> int:
        return len(self.words) + zlib.crc32(word.encode("utf-8", "replace")) % self.BUCKETS

    def rows(self, documents: Iterable[Document]) -> np.ndarray:
        """All tokens of all documents, one number per row."""
        tokens = (token for d in documents for line in d.lines for token in line)
        return np.fromiter(map(self.__getitem__, tokens), dtype=np.int64)


# ---- the standard library's own source ---------------------------------------------------------


def logical_lines(source: str) -> Lines:
    """The tokens of every logical line.

    Comments and indentation are gone; a string or a number of whatever content is one token. An
    f-string is one string too, although Python 3.12 and later hand it over in pieces.
    """
    lines: Lines = [[]]
    inside_fstring = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        kind = tokenize.tok_name[token.type]
        if kind.endswith("STRING_END"):
            inside_fstring -= 1
        elif kind.endswith("STRING_START"):
            inside_fstring += 1
            if inside_fstring == 1:
                lines[-1].append("<str>")
        elif inside_fstring or kind in ("COMMENT", "NL", "INDENT", "DEDENT", "ENDMARKER"):
            continue
        elif kind == "NEWLINE":
            lines.append([])
        else:
            lines[-1].append({"STRING": "<str>", "NUMBER": "<num>"}.get(kind, token.string))
    return [line for line in lines if line]


def functions_of(source: str) -> Iterator[tuple[str, Lines]]:
    """`("line number qualified name", body lines)` of every function and method of 5 to 24 body lines.

    A function inside a function belongs to the body of the outer one. The `def` line and the
    docstring are dropped: they would give the first place away.
    """
    physical_lines = source.split("\n")

    def body_of(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Lines:
        starts = {node.lineno for node in ast.walk(function) if isinstance(node, ast.stmt)}
        if len(starts) > MAX_LINES + 2:  # with `def` and docstring; spares the slow tokenizer
            return []
        text = "\n".join(physical_lines[function.lineno - 1 : function.end_lineno])
        has_docstring = ast.get_docstring(function, clean=False) is not None
        return logical_lines(text)[2 if has_docstring else 1 :]

    def visit(node: ast.AST, prefix: str) -> Iterator[tuple[str, Lines]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
                body = body_of(child)
                if MIN_LINES <= len(body) <= MAX_LINES:
                    yield f"{child.lineno} {prefix}{child.name}", body
            elif isinstance(child, ast.ClassDef):
                yield from visit(child, f"{prefix}{child.name}.")
            elif isinstance(child, (ast.stmt, ast.excepthandler)):  # below `if`, `try`, `with`
                yield from visit(child, prefix)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # old escapes in the library's strings are not our matter
        tree = ast.parse(source)
    yield from visit(tree, "")


def read_python(path: Path, module: str) -> list[Document]:
    """The functions of one source file."""
    with tokenize.open(path) as file:  # honours the file's coding line
        return [Document(body, f"{module}:{name}", module) for name, body in functions_of(file.read())]


def python_files(root: Path) -> Iterator[tuple[Path, str]]:
    """`(path, dotted module name)` of every source file below root, in a fixed order."""
    for folder, subfolders, names in os.walk(root):
        subfolders[:] = sorted(set(subfolders) - SKIPPED_FOLDERS)
        for name in sorted(names):
            if name.endswith(".py"):
                path = Path(folder, name)
                yield path, ".".join(path.relative_to(root).with_suffix("").parts)


def standard_library() -> Path:
    return Path(sysconfig.get_paths()["stdlib"])


def extract_functions(root: Path) -> list[Document]:
    """All functions below root, identical bodies once."""
    unique: dict[tuple, Document] = {}
    for path, module in python_files(root):
        try:
            functions = read_python(path, module)
        except (OSError, SyntaxError, ValueError, tokenize.TokenError):
            continue  # a template, or a file that is broken on purpose
        for function in functions:
            body = tuple(map(tuple, function.lines))
            if len(set(body)) > 1:  # equal lines look the same in every order
                unique.setdefault(body, function)
    if not unique:
        raise InputError(
            f"no Python sources with functions of {MIN_LINES} to {MAX_LINES} lines below {root}: this "
            "Python came without the source of its standard library. Pass your own documents "
            'instead: --data FILE.jsonl, one {"text": ..., "label": ...} per line.'
        )
    return list(unique.values())


# ---- the user's own documents ------------------------------------------------------------------


def split_text(text: str) -> Lines:
    """Plain text as lines of words: at line breaks, or at the ends of sentences if it has none."""
    lines = text.splitlines() if "\n" in text.strip() else re.split(r"(?<=[.!?])\s+", text)
    return [words for words in (re.findall(r"\w+|[^\w\s]", line) for line in lines) if words]


def parse_lines(text: object) -> Lines:
    """The three forms of "text"; ValueError says what is wrong and where."""
    if isinstance(text, str):
        lines = split_text(text)
    elif isinstance(text, list) and all(isinstance(line, str) for line in text):
        lines = [re.findall(r"\w+|[^\w\s]", line) for line in text]
    elif isinstance(text, list):
        lines = []
        for i, line in enumerate(text):
            if not isinstance(line, list):
                raise ValueError(f'"text"[{i}] is {json.dumps(line)[:40]}, expected a list of tokens as before')
            for j, token in enumerate(line):
                if not isinstance(token, str):
                    raise ValueError(f'"text"[{i}][{j}] is {json.dumps(token)[:40]}, expected a string')
            lines.append(line)
    else:
        raise ValueError(
            f'"text" is {json.dumps(text)[:40]}, expected a string, a list of lines or a list of lists of tokens'
        )
    if not any(lines):
        raise ValueError('"text" has no tokens')
    return lines


def parse_record(line: bytes, need_label: bool) -> tuple[Lines, str]:
    """Lines and the label as JSON text; ValueError says what is wrong."""

    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is not JSON")

    try:
        record = json.loads(line.decode("utf-8-sig"), parse_constant=refuse)
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8: {error.reason} at byte {error.start}") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error.msg} at column {error.colno}") from None
    except RecursionError:
        raise ValueError("not usable: nested too deeply") from None
    if not isinstance(record, dict):
        raise ValueError(f'expected an object {{"text": ..., "label": ...}}, got {json.dumps(record)[:40]}')
    for key in ("text", "label") if need_label else ("text",):
        if key not in record:
            raise ValueError(f'"{key}" is missing; there are {sorted(record)}')
    if isinstance(record.get("label"), (list, dict)):
        raise ValueError(
            f'"label" is {json.dumps(record["label"])[:40]}, expected a string, number, true, false or null'
        )
    return parse_lines(record["text"]), json.dumps(record.get("label"), allow_nan=False)


BadLines = list[tuple[int, str]]


def read_jsonl(path: Path, need_label: bool = True) -> tuple[list[tuple[Document, str]], BadLines]:
    """`[(document, label as JSON text)]` and `[(line number, what is wrong)]`. Blank lines are skipped."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None
    documents, bad = [], []
    for number, line in enumerate(data.split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            lines, label = parse_record(line, need_label)
        except ValueError as error:
            bad.append((number, str(error)))
            continue
        group = repr(lines)  # the same text twice stays on one side of the split
        documents.append((Document(lines, f"{path.name}:{number}", group), label))
    return documents, bad


# ---- training and test -------------------------------------------------------------------------


def split_by_group(documents: list[Document], test_size: int) -> tuple[list[Document], list[Document]]:
    """Whole groups, in the order of their hash, go to the test set until it has its size."""
    sizes = Counter(d.group for d in documents)
    in_test, count = set(), 0
    for group in sorted(sizes, key=lambda name: (zlib.crc32(name.encode("utf-8", "replace")), name)):
        if count >= test_size:
            break
        in_test.add(group)
        count += sizes[group]
    train = [d for d in documents if d.group not in in_test]
    test = [d for d in documents if d.group in in_test]
    if not train or not test:
        raise InputError(f"{len(documents)} documents in {len(sizes)} groups are too few to train and to test on")
    return train, test


def shuffle_lines(document: Document, rng: np.random.Generator) -> Document:
    """The same lines in an order that differs visibly from the written one."""
    lines = document.lines
    while lines == document.lines:
        lines = [document.lines[i] for i in rng.permutation(len(lines))]
    return replace(document, lines=lines, label=0)


@dataclass
class FunctionCorpus:
    """Every function as written (1), and with its lines shuffled (0)."""

    functions: list[Document]
    classes = ("shuffled", "as written")
    level_names = ("function", "line")
    train: list[Document] = field(init=False)
    test: list[Document] = field(init=False)

    def __post_init__(self) -> None:
        count = len(self.functions)
        test_size = max(count // 5, min(MIN_TEST_FUNCTIONS, count // 3))
        self.train, test = split_by_group(self.functions, test_size)
        self.test = self._both_orders(test, np.random.default_rng(TEST_SHUFFLE_SEED))

    @staticmethod
    def _both_orders(functions: list[Document], rng: np.random.Generator) -> list[Document]:
        return [d for f in functions for d in (replace(f, label=1), shuffle_lines(f, rng))]

    def epoch(self, rng: np.random.Generator) -> list[Document]:
        """The training examples in random order; every epoch sees new shuffles."""
        examples = self._both_orders(self.train, rng)
        return [examples[i] for i in rng.permutation(len(examples))]


@dataclass
class LabelledCorpus:
    """The user's documents; the classes are the labels that occur."""

    labelled: list[tuple[Document, str]]
    level_names = ("document", "line")
    classes: list[str] = field(init=False)
    train: list[Document] = field(init=False)
    test: list[Document] = field(init=False)

    def __post_init__(self) -> None:
        self.classes = sorted({label for _, label in self.labelled})
        if len(self.classes) < 2:
            raise InputError(f"there is nothing to tell apart: the labels that occur are {self.classes}")
        documents = [replace(d, label=self.classes.index(label)) for d, label in self.labelled]
        self.train, self.test = split_by_group(documents, max(1, len(documents) // 5))

    def epoch(self, rng: np.random.Generator) -> list[Document]:
        return [self.train[i] for i in rng.permutation(len(self.train))]
