# SPDX-License-Identifier: Apache-2.0
"""Fluid's chunks of tags: numbered type by type, the one outside of all chunks last; see `chunk_f1` for names of tags."""

import torch
from torch import Tensor

from ..errors import LoDValueError, boundary, public, shown
from ..sequence.operator import sequence_operator
from ..sequence.tags import SCHEMES, ChunkScores, Numbering, chunks_counted, scores
from ..structure.validate import host_integers, integer
from ..tensor.lod_tensor import LoDTensor

__all__ = ["ChunkEvaluator", "chunk_eval"]


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
    """`chunk_f1` of tags numbered type by type, of which O, the tag outside of any chunk, is the last number.

    Precision, recall and F1 of the chunks that tags stand for, counted over all sequences of a level. A tag is type * (tags
    per type) + the place of the tag among those of its type; the one after them, num_chunk_types * (tags per type), is
    outside of any chunk:

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
    return scores(chunks_counted(x, label, *_settings(chunk_scheme, num_chunk_types, excluded_chunk_types), level))


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

    @boundary("ChunkEvaluator.update")
    def update(self, x: LoDTensor, label: LoDTensor) -> ChunkScores:
        """Counts a batch, and returns the scores of this batch alone."""
        counts = chunks_counted(x, label, *self._settings, self.level)
        self._total = counts + self._total.to(counts.device)
        return scores(counts)

    @public
    def compute(self) -> ChunkScores:
        """The scores of all batches since the last reset."""
        return scores(self._total)

    @public
    def reset(self) -> None:
        """Forgets what was counted."""
        self._total = torch.zeros(3, dtype=torch.int64, device="cpu")


def _settings(scheme, types, excluded) -> tuple[Numbering, list[int]]:
    if not isinstance(scheme, str) or scheme not in SCHEMES:
        raise LoDValueError(f"expected chunk_scheme among {', '.join(SCHEMES)}, got {shown(scheme)}")
    types = integer("num_chunk_types", types)
    left_out = [] if excluded is None else host_integers("excluded_chunk_types", excluded).tolist()
    for i, kind in enumerate(left_out):
        if not 0 <= kind < types:
            raise LoDValueError(f"expected excluded_chunk_types in [0, {types - 1}], got {kind} at index {i}")
    return Numbering(*SCHEMES[scheme], types), left_out
