# SPDX-License-Identifier: Apache-2.0
"""CTC: connectionist temporal classification, which row of a sequence emits which label. The loss is `tl.nn.CTCLoss`."""

from collections.abc import Callable

import torch
from torch import Tensor

from .. import ops
from ..dynamo import known
from ..errors import LoDTypeError, LoDValueError, public, shown
from ..ops.ctc_beam import Model, search
from ..structure.lod import LoD
from ..structure.partition import together
from ..structure.validate import a_float, integer, probability, sums, with_data, with_memory
from ..tensor.lod_tensor import LoDTensor, returned, values_of
from .operator import Along, along, one_column, sequence_operator

__all__ = [
    "ctc_alignment",
    "ctc_beam_decode",
    "ctc_decode",
]


def with_classes(s: Along, blank) -> int:
    """The blank, one of the classes that the rows have scores for."""
    if s.rows.dim() != 2 or s.rows.shape[1] == 0:
        raise LoDValueError(f"expected x of shape (rows, classes), at least 1 class, got {tuple(s.rows.shape)}")
    a_float(s.rows)
    return integer("blank", blank, 0, s.rows.shape[1] - 1)


def labels_of(s: Along, labels, what: str = "labels", of: str = "x") -> tuple[Tensor, Tensor]:
    """The labels of the sequences of s, and their offsets."""
    numbers = one_column(what, labels).to(torch.int64)
    lod = labels._lod
    if lod.depth <= s.k:
        hint = f"; {of}.seq[:, 0] is the first sequence of each of level 0" if lod.depth == s.k == 1 else ""
        raise LoDValueError(f"expected {what} with at least {s.k + 1} levels, as {of} has, got {lod.depth}{hint}")
    counts = s.lod.num_sequences(s.k), lod.num_sequences(s.k)
    if not known(counts[0] == counts[1]):
        raise LoDValueError(f"expected {what} for {counts[0]} sequences, as in {of}, got {counts[1]}")
    if s.k:
        above = s.lod.outer_at(s.k), lod.outer_at(s.k)
        above[0].agreed(above[1])  # type: ignore[union-attr, arg-type]
    parts = (
        (lod.row_offsets_at, s.k),
        (s.lod.row_offsets_at, s.k),
        (lod.row_lengths_at, s.k),
    )  # what losses need as well
    return numbers, together(numbers.device, *parts)[0]


def ctc_losses(s, labels, blank: int, zero_infinity: bool, norm_by_times: bool):
    """Of every sequence of s the loss; by times, its gradient is divided by the number of rows."""
    numbers, offsets = labels_of(s, labels)
    losses = ops.ctc_loss(s.rows, s.offsets, numbers, offsets, blank, zero_infinity)
    if norm_by_times:
        scaled = losses / s.offsets.diff().clamp(min=1).to(losses.dtype)
        losses = torch.where(losses.isfinite(), losses.detach() + (scaled - scaled.detach()), losses.detach())
    return losses


def emitted(s: Along, ids: Tensor, blank: int, merge: bool) -> LoDTensor:
    """The ids of the rows without blanks, runs of one id along a sequence of the level merged."""
    with_data("x", ids)
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
        int64 (labels,), with the levels of x and the lengths that are left; a sequence may become empty. With an outer
        `level`, a run may continue in the next inner sequence: it is one label, in the inner sequence where it began. No
        gradient; one sync if on a GPU.

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


@public
def ctc_beam_decode(
    x: LoDTensor,
    *,
    beam: int = 10,
    n_best: int = 1,
    blank: int = 0,
    threshold: float = 0.0,
    language_model: Callable[[LoDTensor], Tensor] | None = None,
    level: int | str = -1,
) -> tuple[LoDTensor, LoDTensor]:
    """The most probable labelings of every sequence, by prefix beam search: all alignments of a labeling count, where
    `ctc_decode` takes the best alignment alone.

    After every row the `beam` most probable prefixes go on; a prefix has the probabilities of its alignments that end in a
    blank, and in its last label, and prefixes that become equal are merged. With a beam that holds every prefix the result
    is exact.

    Args:
        x: unnormalised scores or log-probabilities (rows, classes), a floating dtype.
        beam: how many prefixes of a sequence go on.
        n_best: how many labelings of a sequence are returned, at most `beam`.
        blank: the class that is no label.
        threshold: a class less probable than this in a row extends no prefix there, unless it is the most probable one. 0
            looks at all of them; 1e-3 is usual where there are thousands.
        language_model: a module or function that is called with prefixes, a LoDTensor of labels with one level, a sequence
            per prefix, and returns a tensor (prefixes, classes): what is added to the score of a prefix where the class is
            its next label (weighted, and with a bonus per label if there is one; the column of the blank is not used; -inf
            rules a label out). It is asked before a row for all prefixes of all sequences that are new in the beams, equal
            ones once, and first for the empty prefix; without gradient.

    Returns:
        labels, int64, and scores, in the dtype of x, both without gradient. Both have the levels of x down to `level`, then
        a level of at most n_best labelings per sequence, the best first. Labels have one more level, of the labels of a
        labeling. With n_best=1 and x of one level, `labels.seq[:, 0]` has the labels of every sequence. The score is the
        log-probability of the alignments that the search saw, plus what the language model added. Of equal scores the
        prefix comes first that was first in the row before, or whose class comes first. A sequence without rows has the
        empty labeling with the score 0. One with a row whose softmax is NaN has it with the score NaN. One whose prefixes
        are all at -inf has no labeling. A sync if on a GPU.

    Raises:
        ValueError: where a language model does not return scores that are numbers below infinity, a row per prefix. What it
            raises itself passes through as it is.

    Source: Graves, "Sequence Transduction with Recurrent Neural Networks", 2012; Hannun et al., "First-Pass Large
    Vocabulary Continuous Speech Recognition using Bi-Directional Recurrent DNNs", 2014, algorithm 1.
    """
    s = along(x, level)
    blank = with_classes(s, blank)
    beam = integer("beam", beam, 1, 2**20)
    n_best = integer("n_best", n_best, 1, beam)
    probability("threshold", threshold)
    rows = x.values().detach()
    with_data("x", rows)
    with_memory(rows)
    given = rows, s.offsets, blank, beam, n_best, float(threshold)
    if language_model is None:
        labels, lengths, scores = ops.ctc_beam(*given)
    elif not callable(language_model):
        raise LoDTypeError(f"expected language_model as a module or function, got {type(language_model).__name__}")
    else:
        with torch.no_grad():
            labels, lengths, scores = search(*given, _asking(language_model, rows))
    there = lengths >= 0
    row, column = (labels >= 0).nonzero(as_tuple=True)
    of = s.lod.segment_ids_at(s.k, rows.device)[row] * n_best + column
    flat = labels[row, column][of.argsort(stable=True)]
    above = [*s.lod.levels[: s.k], sums(there.sum(1).cpu())]
    names = [*s.lod.level_names[: s.k + 1], None] if s.lod.level_names else None
    of_labels = LoD.checked("offsets", [*above, sums(lengths[there].cpu())], names)
    of_scores = LoD.checked("offsets", above, names and names[:-1])
    return LoDTensor(flat, of_labels), LoDTensor(scores[there], of_scores)


def _asking(language_model: Callable[[LoDTensor], Tensor], rows: Tensor) -> Model:
    """The language model on lists of prefixes, with checks of what it returns."""

    def model(prefixes: list[tuple[int, ...]]) -> Tensor:
        flat = torch.tensor([label for labels in prefixes for label in labels], dtype=torch.int64, device=rows.device)
        found = language_model(LoDTensor(flat, LoD.from_lengths([[len(labels) for labels in prefixes]])))
        returned("what language_model returns", found)
        if not isinstance(found, Tensor) or not found.is_floating_point():
            raise LoDTypeError(f"expected language_model to return a tensor of a floating dtype, got {shown(found)}")
        wanted = len(prefixes), rows.shape[1]
        if tuple(found.shape) != wanted or found.device != rows.device:
            raise LoDValueError(
                f"expected language_model to return scores of shape {wanted} on {rows.device}, got {tuple(found.shape)} on "
                f"{found.device}"
            )
        with_memory(found)
        scores = values_of(found).as_subclass(Tensor).double()
        for i, c in (~(scores < torch.inf)).nonzero()[:1].tolist():
            raise LoDValueError(
                f"expected scores of language_model that are numbers below infinity, got {float(scores[i, c])} for class "
                f"{c} after the prefix {list(prefixes[i])}"
            )
        return scores

    return model
