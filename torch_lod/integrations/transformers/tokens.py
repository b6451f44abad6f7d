# SPDX-License-Identifier: Apache-2.0
"""What a fast tokenizer knows of its tokens, as levels: text > span > word > token."""

import itertools
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...data.batch import batch
from ...errors import LoDTypeError, LoDValueError, constructor, public, shown
from ...structure.lod import LoD
from ...structure.validate import a_bool, host_levels, whole, with_memory
from ...tensor.lod_tensor import LoDTensor

__all__ = ["Tokens", "from_encoding", "labels_of_tokens"]


class Tokens(NamedTuple):
    """What `from_encoding` makes of a tokenizer's encodings: LoDTensors of one LoD, a row for each token."""

    #: int64, (rows,)
    input_ids: LoDTensor
    #: int64, (rows,): 1 for the second text of a pair
    token_type_ids: LoDTensor
    #: int64, (rows,): the number of the word in its text, -1 for special tokens; the words of a pair are counted through
    word_ids: LoDTensor
    #: int64, (rows, 2): where a token begins and ends in its text, or in its word if texts were given as words
    offsets: LoDTensor


@constructor
def from_encoding(encoding, *, words: bool = True, spans=None, lengths=None, level_names=None) -> Tokens:
    """LoDTensors from the encodings of a fast tokenizer, called with a list of texts, or of lists of words.

    The innermost level is `word`, whose rows are the tokens of a word: special tokens are words of one token. Above it is
    `text`. Padding is left out. Attention belongs to the texts: `use(model, level="text")`.

    Args:
        encoding: a BatchEncoding of transformers, or a list of tokenizers.Encoding.
        words: False: no level of words.
        spans: for every text a list of its parts, (begin, end) in characters, such as its sentences, in order. They become a
            level `span` between texts and words; a token belongs to the last part that begins before its end. Pairs and lists
            of words have no spans: their tokens count characters again from 0.
        lengths: how texts are grouped, as in `tl.from_lengths`: lengths=[[2, 1]] are two documents, of two texts and of one.
        level_names: in place of (None, ..., "text", "span", "word").

    Returns:
        Tokens: input_ids, token_type_ids, word_ids and offsets.

    Raises:
        TypeError: for encodings without words and offsets: those of a slow tokenizer, and those of something else.
        ValueError: for lengths and spans that do not fit.
    """
    a_bool("words", words)
    texts = _encodings(encoding)
    if spans is not None and (not isinstance(spans, (list, tuple)) or len(spans) != len(texts)):
        raise LoDValueError(f"expected spans as a list for each of {len(texts)} texts, got {shown(spans)}")
    per_text: list[int] = []
    per_span: list[int] = []
    per_word: list[int] = []
    columns: tuple[list, ...] = ([], [], [], [])
    for i, text in enumerate(texts):
        kept = [j for j, visible in enumerate(text.attention_mask) if visible]
        ids, types, numbers, offsets = (
            [part[j] for j in kept] for part in (text.ids, text.type_ids, text.word_ids, text.offsets)
        )
        sequence = [text.sequence_ids[j] for j in kept]
        whole_text = [text, *getattr(text, "overflowing", ())]  # the words of the first text that was cut count, too
        ahead = max(
            (
                n + 1
                for part in whole_text
                for n, s in zip(part.word_ids, part.sequence_ids)
                if s == 0 and n is not None
            ),
            default=0,
        )
        numbers = [n + ahead if n is not None and s == 1 else n for n, s in zip(numbers, sequence)]
        for column, values in zip(columns, (ids, types, [-1 if n is None else n for n in numbers], offsets)):
            column.extend(values)
        begins = None if spans is None else _begins(i, spans[i])
        if begins is not None:
            _of_one_text(i, sequence, numbers, offsets)
        parts = [0] * len(kept) if begins is None else _parts(i, begins, numbers, offsets)
        # a special token is a word by itself
        keys = [(part, n, None if n is not None else j) for j, (part, n) in enumerate(zip(parts, numbers))]
        runs = [(key[0], len(list(run))) for key, run in itertools.groupby(keys)]
        inner = runs if words else [(part, 1) for part in parts]
        counts = [0] * (1 if begins is None else len(begins))
        for part, _ in inner:
            counts[part] += 1
        per_text.append(len(counts) if begins is not None else counts[0])
        per_span.extend(counts)
        per_word.extend(count for _, count in runs)
    levels = [per_text, *([per_span] if spans is not None else []), *([per_word] if words else [])]
    names = ["text", *(["span"] if spans is not None else []), *(["word"] if words else [])]
    outer = [] if lengths is None else [t.tolist() for t in host_levels("lengths", lengths)]
    lod = LoD.parsed_lengths("lengths", [*outer, *levels], level_names or [None] * len(outer) + names)
    rows = [torch.tensor(column, dtype=torch.int64, device="cpu") for column in columns]
    rows[3] = rows[3].view(-1, 2)
    return Tokens(*(LoDTensor(values, lod) for values in rows))


def _encodings(encoding) -> list[Any]:
    found = encoding if isinstance(encoding, (list, tuple)) else getattr(encoding, "encodings", None)
    if found is None:
        if hasattr(encoding, "input_ids"):
            raise LoDTypeError(
                "expected the encodings of a fast tokenizer, got those of a slow one, which knows neither words nor offsets; "
                "load it with use_fast=True, or take its ids alone: tl.batch(encoding['input_ids'])"
            )
        raise LoDTypeError(
            f"expected encoding as a BatchEncoding or a list of tokenizers.Encoding, got {shown(encoding)}"
        )
    for i, text in enumerate(found):
        if not all(hasattr(text, name) for name in ("ids", "word_ids", "offsets", "attention_mask", "sequence_ids")):
            raise LoDTypeError(f"expected a list of tokenizers.Encoding, got {type(text).__name__} at index {i}")
    if hasattr(encoding, "keys") and "overflow_to_sample_mapping" in encoding:
        raise LoDValueError(
            "expected a text as one encoding, got pieces of texts; tokenize without return_overflowing_tokens"
        )
    return list(found)


def _begins(i: int, spans) -> list[int]:
    begins = []
    try:
        pairs = [(whole("begin", begin), whole("end", end)) for begin, end in spans]
    except (TypeError, ValueError) as error:
        raise LoDValueError(f"expected spans[{i}] as pairs of integers, got {shown(spans)}: {error}") from None
    if not pairs:
        raise LoDValueError(f"expected at least 1 span in spans[{i}], got none")
    at = 0
    for j, (begin, end) in enumerate(pairs):
        if not at <= begin <= end:
            raise LoDValueError(f"expected spans[{i}] in order, got ({begin}, {end}) at index {j} behind {at}")
        begins.append(begin)
        at = end
    return begins


def _of_one_text(i: int, sequence: list, numbers: list, offsets: list) -> None:
    """ValueError where offsets start again, in the second text of a pair or in every word."""
    if 1 in sequence:
        raise LoDValueError(
            f"expected single texts for spans, got a pair at index {i}, whose offsets start again in the second text; leave "
            "spans out"
        )
    first = {n: offset for n, offset in zip(reversed(numbers), reversed(offsets)) if n is not None}
    last = {n: end for n, (_, end) in zip(numbers, offsets) if n is not None}
    words = sorted(first)
    again = [b for a, b in itertools.pairwise(words) if first[b][0] < last[a] and first[a] != first[b]]
    # a character may be several words: they begin where it does
    if again or (len(words) > 1 and not any(begin for begin, _ in first.values()) and any(last.values())):
        raise LoDValueError(
            f"expected texts for spans, got a list of words at index {i}, whose offsets start again in every word; tokenize "
            "texts without is_split_into_words"
        )


def _parts(i: int, begins: list[int], numbers: list, offsets: list) -> list[int]:
    """The part of a text that each token belongs to; a special token belongs to that of the token before it."""
    if any(n is not None for n in numbers) and not any(end for _, end in offsets):
        raise LoDTypeError(f"expected a tokenizer with offsets for spans, got none for text {i}")
    parts, part = [], 0
    for number, (_, end) in zip(numbers, offsets):
        while number is not None and part + 1 < len(begins) and begins[part + 1] < end:
            part += 1
        parts.append(part)
    return parts


@public
def labels_of_tokens(
    labels,
    tokens: Tokens,
    *,
    all_tokens: bool = False,
    ignore_index: int = -100,
    truncated: bool = False,
    level: int | str = "text",
) -> LoDTensor:
    """Labels of words to labels of their tokens, as a tagger is trained.

    Args:
        labels: for every text, or pair, a list of an integer for each of its words; or a LoDTensor whose innermost sequences
            they are.
        tokens: of `from_encoding`.
        all_tokens: every token has the label of its word; otherwise the first alone, and the others `ignore_index`.
        ignore_index: the label of special tokens.
        truncated: there may be more labels than words, since the tokenizer cut texts.
        level: that of the texts.

    Returns:
        int64, (rows,), with the LoD of the tokens.

    Raises:
        TypeError: for labels that are no integers.
        ValueError: where a text has another number of labels than of words.
    """
    if not isinstance(tokens, Tokens) or not all(isinstance(field, LoDTensor) for field in tokens):
        raise LoDTypeError(f"expected tokens of from_encoding, got {shown(tokens)}")
    number = tokens.word_ids
    if number.dtype != torch.int64 or number.dim() != 1 or number.device.type != "cpu":
        raise LoDTypeError(f"expected word_ids of from_encoding, int64 (rows,), got {shown(number)}")
    for name, flag in {"all_tokens": all_tokens, "truncated": truncated}.items():
        a_bool(name, flag)
    ignore_index = whole("ignore_index", ignore_index)
    values, starts = _of_words(labels)
    with_memory(number)
    lod, numbers = number.lod, number.values()
    k = lod.level(level)
    texts = lod.segment_ids_at(k)
    if starts.numel() - 1 != lod.num_sequences(k):
        raise LoDValueError(f"expected labels for {lod.num_sequences(k)} texts, got those of {starts.numel() - 1}")
    known = numbers >= 0
    counts = torch.zeros(lod.num_sequences(k), dtype=torch.int64, device="cpu")
    counts = counts.scatter_reduce(0, texts, numbers + 1, "amax")
    given = starts.diff()
    wrong = counts > given if truncated else counts != given
    for i in wrong.nonzero()[:1].flatten().tolist():
        raise LoDValueError(
            f"expected a label for each of {int(counts[i])} words of text {i}, got {int(given[i])}"
            + ("" if truncated or counts[i] > given[i] else "; if its end was cut, pass truncated=True")
        )
    found = torch.full_like(numbers, ignore_index)
    at = starts[texts] + numbers
    chosen = known.clone()
    if not all_tokens:
        chosen[1:] &= (texts[1:] != texts[:-1]) | (numbers[1:] != numbers[:-1])
    found[chosen] = values.cpu().to(torch.int64)[at[chosen]]
    return LoDTensor(found, lod)


def _of_words(labels) -> tuple[Tensor, Tensor]:
    """Labels of words as integers, and the offsets of their texts."""
    if not isinstance(labels, LoDTensor):
        labels = batch(labels)
    if not isinstance(labels, LoDTensor) or labels.dim() != 1:
        raise LoDTypeError(f"expected labels as a list of integers for each text, got {shown(labels)}")
    with_memory(labels)
    values = labels.values()
    if values.dtype.is_floating_point and not len(values):
        values = values.long()
    if values.dtype.is_floating_point or values.dtype.is_complex or values.dtype == torch.bool:
        raise LoDTypeError(f"expected labels as integers, got {values.dtype}")
    return values, labels.lod.levels[-1]
