# SPDX-License-Identifier: Apache-2.0
"""Connectionist temporal classification: which row of a sequence emits which label."""

import torch
from torch import Tensor

from .. import ops
from ..dynamo import known
from ..errors import LoDValueError
from ..sequence_operator import Along, a_float, along, integer, one_column, sequence_operator
from ..tensor import LoDTensor
from ..validate import with_memory

__all__ = [
    "ctc_alignment",
    "ctc_decode",
]


def with_classes(s: Along, blank) -> int:
    """The blank, one of the classes that the rows have scores for."""
    if s.rows.dim() != 2 or s.rows.shape[1] == 0:
        raise LoDValueError(f"expected x of shape (rows, classes), got {tuple(s.rows.shape)}")
    a_float(s.rows)
    return integer("blank", blank, 0, s.rows.shape[1] - 1)


def labels_of(s: Along, labels, what: str = "labels", of: str = "x") -> tuple[Tensor, Tensor]:
    """The labels of the sequences of s, and their offsets."""
    numbers = one_column(what, labels).to(torch.int64)
    lod = labels._lod
    if lod.depth <= s.k:
        raise LoDValueError(f"expected {what} with at least {s.k + 1} levels, as {of} has, got {lod.depth}")
    counts = s.lod.num_sequences(s.k), lod.num_sequences(s.k)
    if not known(counts[0] == counts[1]):
        raise LoDValueError(f"expected {what} for {counts[0]} sequences, as in {of}, got {counts[1]}")
    if s.k:
        above = s.lod.outer_at(s.k), lod.outer_at(s.k)
        above[0].agreed(above[1])  # type: ignore[union-attr, arg-type]
    return numbers, lod.row_offsets_at(s.k, numbers.device)


def emitted(s: Along, ids: Tensor, blank: int, merge: bool) -> LoDTensor:
    """The ids of the rows without blanks, runs of one id along a sequence of the level merged."""
    kept = ids != blank
    if merge:
        of = s.lod.segment_ids_at(s.k, ids.device)
        same = (ids[1:] == ids[:-1]) & (of[1:] == of[:-1])
        kept = kept & ~torch.cat([same.new_zeros(min(len(ids), 1)), same])
    return s.keep(ids.clone()).filter_rows(kept)


@sequence_operator
def ctc_decode(x: LoDTensor, *, blank: int = 0, level: int | str = -1) -> LoDTensor:
    """The labels of the most probable class of every row (greedy decoding): runs are merged, then blanks left out.

    Args:
        x: scores (rows, classes), a floating dtype; of equal ones the first counts, NaN beats every number.
        blank: the class that is no label.

    Returns:
        int64 (labels,), with the levels of x and the lengths that are left; a sequence may become empty. A run does not
        end where a sequence of a level inside `level` does; its label is in the one where it began. No gradient; one sync
        if on a GPU.

    Source: Graves et al., "Connectionist Temporal Classification", ICML 2006, section 3.2 (best path decoding).
    """
    s = along(x, level)
    blank = with_classes(s, blank)
    with_memory(s.rows)
    scores = s.rows.detach().contiguous()  # so that columns expanded beyond memory raise, and do not take days
    return emitted(s, scores.argmax(1), blank, True)


@sequence_operator
def ctc_alignment(
    x: LoDTensor, labels: LoDTensor, *, blank: int = 0, level: int | str = -1
) -> tuple[LoDTensor, LoDTensor]:
    """The most probable way in which the rows of every sequence emit its labels (forced alignment).

    Args:
        x: unnormalised scores or log-probabilities (rows, classes), a floating dtype.
        labels: integers (labels,) or (labels, 1) in [0, classes) and not the blank (IndexError otherwise), with as many
            sequences at the level of x and equal levels above it.
        blank: the class that is no label.

    Returns:
        int64 (rows,): the position of the row's label among the labels of its sequence, -1 for the blank; and (rows,), the
        log-probability of the class that the row emits, which is differentiable. Both have the LoD of x. In a sequence
        that cannot emit its labels all rows are blank and their log-probabilities -inf.

    Raises:
        ValueError, IndexError: where labels do not fit x.

    Source: Graves et al., "Connectionist Temporal Classification", ICML 2006, with the maximum in place of the sum.
    """
    s = along(x, level)
    blank = with_classes(s, blank)
    numbers, offsets = labels_of(s, labels)
    with_memory(s.rows)
    path, scores = ops.ctc_best_path(s.rows.detach(), s.offsets, numbers, offsets, blank)
    first = s.spread(offsets[:-1])
    last = max(numbers.shape[0] - 1, 0)
    of_path = numbers[(first + path).clamp(0, last)] if known(numbers.shape[0] > 0) else torch.full_like(path, blank)
    classes = torch.where(path < 0, blank, of_path)
    whole = s.spread(scores)
    finite = whole.isfinite()
    rows = torch.where(finite[:, None], s.rows, 0)  # the softmax of others would have NaN for its gradient
    found = rows.log_softmax(1).gather(1, classes[:, None])[:, 0]
    return s.keep(path), s.keep(torch.where(finite, found, whole))
