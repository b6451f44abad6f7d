# SPDX-License-Identifier: Apache-2.0
"""Words and lemmas for `lemmatize.py`: symbols and numbers, what training shows how often, baselines."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from running import InputError
from treebank import Word

NO_TAG = ""
#: Form and tag: what a lemma is asked for.
Question = tuple[str, str]
Answers = Callable[[Question], str]


class Alphabet:
    """Symbols and their numbers: four marks, the tags, and the letters that more than one word of the training has."""

    BEGIN, END, UNKNOWN, UNTAGGED = range(4)

    def __init__(self, tags: Iterable[str], letters: Iterable[str]):
        self.tags, self.letters = list(tags), list(letters)
        self.symbols = ["begin", "end", "?", "any", *self.tags, *self.letters]
        self.of_tag = {tag: number for number, tag in enumerate(self.tags, start=4)} | {NO_TAG: self.UNTAGGED}
        self.of_letter = {letter: number for number, letter in enumerate(self.letters, start=4 + len(self.tags))}

    @classmethod
    def of(cls, words: Iterable[Word]) -> Alphabet:
        words = set(words)
        counts = Counter(letter for word in words for letter in {*word.form, *word.lemma})
        return cls(sorted({word.upos for word in words}), sorted(c for c, count in counts.items() if count > 1))

    def __len__(self) -> int:
        return len(self.symbols)

    def spell(self, text: str) -> list[int]:
        return [self.of_letter.get(letter, self.UNKNOWN) for letter in text]

    def source(self, question: Question) -> list[int]:
        """What the encoder reads: the tag, as a symbol of its own, and the letters of the form."""
        form, tag = question
        return [self.of_tag.get(tag, self.UNTAGGED), *self.spell(form)]

    def text(self, numbers: Iterable[int], form: str) -> str:
        """The letters of the numbers; letters that have no number are those of the form, in their order."""
        unknown = iter([letter for letter in form if letter not in self.of_letter])
        first = 4 + len(self.tags)
        letters = [next(unknown, "") if n == self.UNKNOWN else self.symbols[n] * (n >= first) for n in numbers]
        return "".join(letters)


def question(word: Word, tagged: bool = True) -> Question:
    return word.form, word.upos if tagged else NO_TAG


# ---- how good is that? -------------------------------------------------------------------------


def most_frequent(words: Iterable[Word], tagged: bool) -> dict[Question, str]:
    """The lemma that a form has most often; or a form with a tag."""
    counts: dict[Question, Counter[str]] = defaultdict(Counter)
    for word in words:
        counts[question(word, tagged)][word.lemma] += 1
    return {asked: count.most_common(1)[0][0] for asked, count in counts.items()}


def baselines(train: list[Word]) -> dict[str, Answers]:
    """What needs no network: copy the form; look it up in the training set, without and with its tag, or else copy it."""
    by_form, by_both = most_frequent(train, tagged=False), most_frequent(train, tagged=True)
    return {
        "copy": lambda asked: asked[0],
        "look-up": lambda asked: by_form.get((asked[0], NO_TAG), asked[0]),
        "look-up with tag": lambda asked: by_both.get(asked) or by_form.get((asked[0], NO_TAG), asked[0]),
    }


def accuracy(words: list[Word], answers: Answers, seen: set[str], tagged: bool = True) -> dict[str, float]:
    """The part of the words that gets its lemma, letter by letter: of all, and of those whose form is not in `seen`."""
    right = [answers(question(word, tagged)) == word.lemma for word in words]
    unseen = [r for r, word in zip(right, words, strict=True) if word.form not in seen]
    return {"all": sum(right) / len(right), "unseen": sum(unseen) / max(1, len(unseen))}


def frequent_errors(words: list[Word], answers: Answers, seen: set[str], count: int) -> list[dict]:
    """The errors that cost most, of words that training showed and of others."""
    wrong = Counter(word for word in words if answers(question(word)) != word.lemma)
    errors = [
        {"form": w.form, "tag": w.upos, "lemma": w.lemma, "written": answers(question(w)), "times": times}
        | {"seen": w.form in seen}
        for w, times in wrong.most_common()
    ]
    return [e for e in errors if e["seen"]][:count] + [e for e in errors if not e["seen"]][:count]


# ---- the user's own words ----------------------------------------------------------------------


def read_words(path: Path, tags: Mapping[str, int]) -> list[Question]:
    """A word in a line, with its tag behind a tab or a space if it has one."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise InputError(f"cannot read {path}: not UTF-8 at byte {error.start}") from None
    words = []
    for number, line in enumerate(text.split("\n"), start=1):
        columns = [part.strip() for part in line.split("\t")] if "\t" in line.strip() else line.split()
        if not columns:
            continue
        form, *rest = columns
        if len(rest) > 1 or not form:
            raise InputError(
                f"{path}, line {number}: expected a word, or a word and its tag, got {line.strip()[:40]!r}"
            )
        tag = rest[0] if rest else NO_TAG
        if tag not in tags:
            known = ", ".join(sorted(filter(None, tags)))
            raise InputError(f"{path}, line {number}: {tag[:20]!r} is no tag of the training set, which has {known}")
        words.append((form, tag))
    if not words:
        raise InputError(f"{path} has no words")
    return words
