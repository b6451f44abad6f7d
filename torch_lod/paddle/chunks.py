# SPDX-License-Identifier: Apache-2.0
"""Chunks (named entities, phrases) in sequences of tags: how many were found, and how many of them are right."""

from typing import NamedTuple

import torch
from torch import Tensor

from ..dynamo import failing
from ..errors import LoDIndexError, LoDTypeError, LoDValueError, border, public, shown
from ..sequence_operator import Along, along, integer, one_column, sequence_operator
from ..structure.validate import host_integers
from ..tensor.lod_tensor import LoDTensor

__all__ = ["ChunkEvaluator", "chunk_eval"]

#: How many tags a type has, and the places of begin, end and single among them, -1 for none, by scheme.
_SCHEMES = {"IOB": (2, 0, -1, -1), "IOE": (2, -1, 1, -1), "IOBES": (4, 0, 2, 3), "plain": (1, -1, -1, -1)}


class ChunkScores(NamedTuple):
    """What `chunk_eval` and `ChunkEvaluator` return: six tensors without dims."""

    precision: Tensor
    recall: Tensor
    f1: Tensor
    #: How many chunks are in x, in label, and in both.
    inferred: Tensor
    labelled: Tensor
    correct: Tensor


torch.serialization.add_safe_globals([ChunkScores])


@sequence_operator
def chunk_eval(
    x: LoDTensor,
    label: LoDTensor,
    chunk_scheme: str,
    num_chunk_types: int,
    excluded_chunk_types=(),
    *,
    level: int | str = -1,
) -> ChunkScores:
    """Precision, recall and F1 of the chunks that tags stand for, counted over all sequences of a level.

    A tag is type * (tags per type) + the place of the tag among those of its type; the one after them, num_chunk_types *
    (tags per type), is outside of any chunk:

        scheme    tags of a type                    a chunk
        IOB       0 begin, 1 inside                 from its begin to the next
        IOE       0 inside, 1 end                   up to its end
        IOBES     0 begin, 1 inside, 2 end, 3 single
        plain     0                                 neighbours of one type

    A chunk also ends where the type changes and with its sequence. Tags that no tagger should give, as an inside without
    a begin, start a chunk. A chunk of x is correct if label has one of its type with the same first and last row.

    Args:
        x: the tags found: of an integer dtype, (rows,) or (rows, 1).
        label: the tags that are right, with the LoD of x.
        chunk_scheme: "IOB", "IOE", "IOBES" or "plain".
        num_chunk_types: how many types there are.
        excluded_chunk_types: types that are not counted.
        level: the level whose sequences chunks do not go beyond.

    Returns:
        ChunkScores(precision, recall, f1, inferred, labelled, correct): correct / inferred, correct / labelled and their
        harmonic mean (float32; 0 where there is nothing to divide by), then the counts (int64). No gradient.

    Raises:
        IndexError: for a tag below 0 or above the one outside; the message names sequence, position and tag.
        ValueError: where the LoDs differ, or for another scheme.

    Source: Paddle Fluid's chunk_eval. Schemes: Ramshaw and Marcus 1995 (IOB), Ratinov and Roth 2009 (IOBES).
    """
    return _scores(_counts(x, label, *_settings(chunk_scheme, num_chunk_types, excluded_chunk_types), level))


class ChunkEvaluator:
    """`chunk_eval` over many batches: counts are summed, and the scores are those of all batches together.

        metric = tl.paddle.ChunkEvaluator("IOB", num_chunk_types=3)
        for x, label in batches:
            metric.update(x, label)
        print(metric.compute().f1)

    Args: as chunk_eval's.

    Source: Paddle Fluid's metrics.ChunkEvaluator.
    """

    _total: Tensor

    @public
    def __init__(self, chunk_scheme: str, num_chunk_types: int, excluded_chunk_types=(), *, level: int | str = -1):
        self._settings, self.level = _settings(chunk_scheme, num_chunk_types, excluded_chunk_types), level
        self.reset()

    @border("ChunkEvaluator.update")
    def update(self, x: LoDTensor, label: LoDTensor) -> ChunkScores:
        """Counts a batch, and returns the scores of this batch alone."""
        counts = _counts(x, label, *self._settings, self.level)
        self._total = counts + self._total.to(counts.device)
        return _scores(counts)

    @public
    def compute(self) -> ChunkScores:
        """The scores of all batches since the last reset."""
        return _scores(self._total)

    @public
    def reset(self) -> None:
        """Forgets what was counted."""
        self._total = torch.zeros(3, dtype=torch.int64, device="cpu")


def _settings(scheme, types, excluded) -> tuple[str, int, list[int]]:
    if not isinstance(scheme, str) or scheme not in _SCHEMES:
        raise LoDValueError(f"expected chunk_scheme among {', '.join(_SCHEMES)}, got {shown(scheme)}")
    types = integer("num_chunk_types", types)
    left_out = [] if excluded is None else host_integers("excluded_chunk_types", excluded).tolist()
    for i, kind in enumerate(left_out):
        if not 0 <= kind < types:
            raise LoDValueError(f"expected excluded_chunk_types in [0, {types - 1}], got {kind} at index {i}")
    return scheme, types, left_out


class _Chunks:
    """Which rows begin and which end a chunk, and of what type every row is; `types` is the type outside of chunks."""

    def __init__(self, what: str, x: LoDTensor, s: Along, first: Tensor, scheme: str, types: int):
        per_type, begin, end, single = _SCHEMES[scheme]
        tags = one_column(what, x).to(torch.int64)
        outside = (tags < 0) | (tags > types * per_type)
        for row in failing(outside, f"chunk_eval: {what} has a tag out of range"):
            offsets = s.offsets.cpu()
            sequence = int(torch.searchsorted(offsets, row, right=True)) - 1
            raise LoDIndexError(
                f"expected tags of {what} in [0, {types * per_type}], got {int(tags[row])} at position "
                f"{row - int(offsets[sequence])} of sequence {sequence}"
            )
        self.type, tag = tags // per_type, tags % per_type
        before = tag.roll(1)
        starts = first | (self.type != self.type.roll(1)) | (tag == begin) | (tag == single)
        starts |= (before == end) | (before == single)
        within = self.type != types
        self.begin = starts & within
        self.end = within & (starts | ~within).roll(-1)


def _counts(x: LoDTensor, label: LoDTensor, scheme: str, types: int, left_out: list[int], level: int | str) -> Tensor:
    """How many chunks there are in x, in label, in both: (3,)."""
    s = along(x, level)
    other = along(label, s.k, "label")
    if s.lod.differs(other.lod):
        raise LoDValueError(f"expected label with the LoD of x, got LoDs that differ: {s.lod.difference(other.lod)}")
    if x.device != label.device:
        raise LoDTypeError(f"expected label on {x.device}, as x, got one on {label.device}")
    number = s.lod.segment_ids_at(s.k, s.rows.device)
    rows = torch.arange(number.shape[0], device=number.device)
    first = (rows == 0) | (number != number.roll(1))
    found, right = (_Chunks(what, t, s, first, scheme, types) for what, t in (("x", x), ("label", label)))
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


def _scores(counts: Tensor) -> ChunkScores:
    inferred, labelled, correct = counts.unbind()
    share = correct.double()
    precision, recall = share / inferred.clamp(min=1), share / labelled.clamp(min=1)
    f1 = 2 * precision * recall / torch.where(correct > 0, precision + recall, 1.0)
    return ChunkScores(precision.float(), recall.float(), f1.float(), inferred, labelled, correct)
