# SPDX-License-Identifier: Apache-2.0
"""Chunks of tags: named entities, phrases; how many were found, and how many of them are right."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ..dynamo import failing
from ..errors import LoDIndexError, LoDTypeError, LoDValueError, shown
from ..structure.devices import upload
from ..tensor.lod_tensor import LoDTensor
from .operator import Along, along, one_column, sequence_operator

__all__ = ["chunk_f1"]

#: How many tags a type has, and the places of begin, end and single among them, -1 for none, by scheme.
SCHEMES = {"IOB": (2, 0, -1, -1), "IOE": (2, -1, 1, -1), "IOBES": (4, 0, 2, 3), "plain": (1, -1, -1, -1)}
#: The place of a tag among those of its type in IOBES, by the letter before its type.
_PLACES = {"B": 0, "I": 1, "M": 1, "E": 2, "L": 2, "S": 3, "U": 3, "W": 3}


class Numbering(NamedTuple):
    """What the numbers of tags stand for: type * per_type + place, and types * per_type for what is outside of chunks."""

    per_type: int
    begin: int
    end: int
    single: int
    types: int
    #: The number of every tag in this numbering, if the tags have another one.
    renumbered: Tensor | None = None

    @property
    def outside(self) -> int:
        return self.types * self.per_type


class ChunkScores(NamedTuple):
    """What `chunk_f1`, `chunk_eval` and `ChunkEvaluator` return: six tensors without dims."""

    precision: Tensor
    recall: Tensor
    f1: Tensor
    #: How many chunks are in x, in label, and in both.
    inferred: Tensor
    labelled: Tensor
    correct: Tensor


torch.serialization.add_safe_globals([ChunkScores])


@sequence_operator
def chunk_f1(found: LoDTensor, tags: LoDTensor, names: Sequence[str], *, level: int | str = -1) -> ChunkScores:
    """Precision, recall and F1 of the chunks (entities, phrases) that tags stand for, over all sequences of a level.

    Tags are numbered by their names, in any order: "O" is outside of all chunks; others are a letter, a sign of "-_:" and a
    type, as "B-PER". The letters are those of IOB (BIO), IOE, IOBES (BIOES), BILOU and BMEWO:

        B            begins a chunk
        I, M         inside: goes on with the chunk of its type before it
        E, L         ends a chunk
        S, U, W      is a chunk alone

    A chunk also ends where the type changes and with its sequence. Tags that no tagger should give, as an inside without
    a begin, start a chunk, as in conlleval. A chunk is correct if both have one of its type with the same first and last row.

    Args:
        found: the tags that were predicted: of an integer dtype, (rows,) or (rows, 1), indices into `names`.
        tags: the tags that are right, with the LoD of found. Rows to leave out: `found.filter(tags != -100)` of both.
        names: the name of every number, a list or a tuple of strings. Where tags have no letter before their type, those
            of chunks of neighbours of one type, write an "I-" before it.
        level: the level whose sequences chunks do not go beyond.

    Returns:
        ChunkScores(precision, recall, f1, inferred, labelled, correct): correct / inferred, correct / labelled and their
        harmonic mean (float32; 0 where there is nothing to divide by), then the counts (int64). Of many batches add
        the counts: f1 is 2 * correct / (inferred + labelled). No gradient.

    Raises:
        IndexError: for a tag that has no name; the message names sequence, position and tag.
        ValueError: where the LoDs differ, or for a name of another form.

    Source: conlleval; Ramshaw and Marcus 1995 (IOB), Ratinov and Roth 2009 (IOBES).
    """
    return scores(chunks_counted(found, tags, _numbering(names), [], level, ("found", "tags")))


def _numbering(names) -> Numbering:
    """Of IOBES, with the number in it of every name."""
    if not isinstance(names, (list, tuple)) or not names:
        raise LoDTypeError(f"expected names as a list of the name of every tag, got {shown(names)}")
    types: dict[str, int] = {}
    places: list[int | None] = []
    for i, name in enumerate(names):
        if not isinstance(name, str):
            raise LoDTypeError(f"expected names of strings, got {shown(name)} at index {i}")
        if name in names[:i]:
            raise LoDValueError(f"expected names that differ, got {shown(name)} at index {names.index(name)} and {i}")
        if name == "O":
            places.append(None)
            continue
        if name[:1] not in _PLACES or name[1:2] not in ("-", "_", ":") or len(name) < 3:
            raise LoDValueError(
                f"expected names 'O', or one of {', '.join(_PLACES)}, '-' and a type, as 'B-PER', got {shown(name)} at "
                f"index {i}; where tags have no such letter, write 'I-' before the type"
            )
        places.append(4 * types.setdefault(name[2:], len(types)) + _PLACES[name[0]])
    outside = 4 * len(types)
    table = torch.tensor([outside if place is None else place for place in places], device="cpu")
    return Numbering(*SCHEMES["IOBES"], len(types), table)


class _Chunks:
    """Which rows begin and which end a chunk, and of what type every row is; `types` is the type outside of chunks."""

    def __init__(self, what: str, x: LoDTensor, s: Along, first: Tensor, numbering: Numbering):
        tags = _numbers(what, x, s, numbering)
        self.type, tag = tags // numbering.per_type, tags % numbering.per_type
        before = tag.roll(1)
        starts = first | (self.type != self.type.roll(1)) | (tag == numbering.begin) | (tag == numbering.single)
        starts |= (before == numbering.end) | (before == numbering.single)
        within = self.type != numbering.types
        self.begin = starts & within
        self.end = within & (starts | ~within).roll(-1)


def _numbers(what: str, x: LoDTensor, s: Along, numbering: Numbering) -> Tensor:
    """The tags of x in the numbering, int64."""
    tags, table = one_column(what, x).to(torch.int64), numbering.renumbered
    highest = numbering.outside if table is None else table.shape[0] - 1
    wrong = (tags < 0) | (tags > highest)
    call = "chunk_eval" if table is None else "chunk_f1"
    for row in failing(wrong, f"{call}: {what} has a tag out of range"):
        offsets = s.offsets.cpu()
        sequence = int(torch.searchsorted(offsets, row, right=True)) - 1
        hint = "" if table is None or tags[row] > 0 else f"; rows without a tag are left out by filter({what} >= 0)"
        raise LoDIndexError(
            f"expected tags of {what} in [0, {highest}], got {int(tags[row])} at position "
            f"{row - int(offsets[sequence])} of sequence {sequence}{hint}"
        )
    return tags if table is None else upload(table, tags.device)[tags.clamp(0, highest)]


def chunks_counted(
    x: LoDTensor,
    label: LoDTensor,
    numbering: Numbering,
    left_out: list[int],
    level: int | str,
    what: tuple[str, str] = ("x", "label"),
) -> Tensor:
    """How many chunks there are in x, in label, in both: (3,)."""
    s = along(x, level, what[0])
    other = along(label, s.k, what[1])
    if s.lod.differs(other.lod):
        difference = s.lod.difference(other.lod)
        raise LoDValueError(f"expected {what[1]} with the LoD of {what[0]}, got LoDs that differ: {difference}")
    if x.device != label.device:
        raise LoDTypeError(f"expected {what[1]} on {x.device}, as {what[0]}, got one on {label.device}")
    number = s.lod.segment_ids_at(s.k, s.rows.device)
    rows = torch.arange(number.shape[0], device=number.device)
    first = (rows == 0) | (number != number.roll(1))
    found, right = (_Chunks(name, t, s, first, numbering) for name, t in zip(what, (x, label), strict=True))
    # a chunk of label is in x if all of its rows agree: x begins there, ends there, and has nothing else in between
    differ = (found.begin != right.begin) | (found.end != right.end) | (found.type != right.type)
    wrong = torch.nn.functional.pad(differ.to(torch.int64).cumsum(0), (1, 0))
    start = torch.where(right.begin, rows, 0).cummax(0).values
    correct = right.end & (wrong[1:] == wrong[start])
    excluded = torch.tensor(left_out, dtype=torch.int64, device=rows.device)
    counted = [
        (flags & ~torch.isin(chunks.type, excluded)).sum()
        for flags, chunks in ((found.begin, found), (right.begin, right), (correct, right))
    ]
    return torch.stack(counted)


def scores(counts: Tensor) -> ChunkScores:
    inferred, labelled, correct = counts.unbind()
    share = correct.double()
    precision, recall = share / inferred.clamp(min=1), share / labelled.clamp(min=1)
    f1 = 2 * precision * recall / torch.where(correct > 0, precision + recall, 1.0)
    return ChunkScores(precision.float(), recall.float(), f1.float(), inferred, labelled, correct)
