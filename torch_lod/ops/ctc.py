# SPDX-License-Identifier: Apache-2.0
"""Shape "chain", over labels: all alignments of the labels of a segment with its rows, or the best one."""

from torch import Tensor

from .library import operator

__all__ = [
    "ctc_beam",
    "ctc_best_path",
    "ctc_loss",
]


@operator
def ctc_loss(
    values: Tensor,
    row_offsets: Tensor,
    labels: Tensor,
    label_offsets: Tensor,
    blank: int = 0,
    zero_infinity: bool = False,
) -> Tensor:
    """-log p(labels | rows) of every segment by connectionist temporal classification, with the softmax inside.

    Every row emits a class or the blank; a run of the same class is one label, and blanks divide equal labels. The sum is
    over all ways in which the rows emit the labels, by the forward recursion over 2 labels + 1 states; the gradient is
    the softmax less the posterior of the classes (forward-backward). Probabilities are kept with exponents of their
    own, so that neither tens of thousands of rows nor scores of 1e4 under- or overflow.

    Args:
        values: (rows, classes), unnormalised scores of a floating dtype (log-probabilities are such scores as well); half
            types are worked out in float32.
        row_offsets: int64, (segments + 1,).
        labels: int64, (labels,), in [0, classes) and not the blank; IndexError otherwise.
        label_offsets: int64, (segments + 1,): the labels of every segment.
        blank: the class that is no label.
        zero_infinity: the loss of a segment that cannot emit its labels (too few rows for them and for the blanks between
            equal ones, or scores of -inf in their way) is 0 instead of inf.

    Returns:
        (segments,), the dtype of values. The gradient of an infinite loss is 0; a NaN or a row whose softmax is none makes
        loss and gradient of its segment NaN. A segment without rows and labels has the loss 0. The backward takes memory
        linear in the cells of the lattice of one segment per thread; double backward goes through a composition that
        stores all of them.

    Source: Graves et al., "Connectionist Temporal Classification", ICML 2006, equations 6 to 16.
    """


@operator
def ctc_best_path(
    values: Tensor, row_offsets: Tensor, labels: Tensor, label_offsets: Tensor, blank: int = 0
) -> tuple[Tensor, Tensor]:
    """The most probable way in which the rows of every segment emit its labels (forced alignment), and its score.

    Args:
        as for `ctc_loss`.

    Returns:
        int64 (rows,): the position of the row's label among the labels of its segment, -1 for the blank; and (segments,),
        the log-probability of the path, in the dtype of values. Neither has a gradient. A segment that cannot emit its
        labels has blanks and the score -inf, one with a NaN blanks and NaN. Of equally probable paths it is the one whose
        labels come first.

    Source: as for `ctc_loss`, with the maximum in place of the sum (Viterbi).
    """


@operator
def ctc_beam(
    values: Tensor, row_offsets: Tensor, blank: int = 0, beam: int = 10, n: int = 1, threshold: float = 0.0
) -> tuple[Tensor, Tensor, Tensor]:
    """The n most probable labelings of every segment, by prefix beam search over all alignments, with the softmax inside.

    Args:
        values, row_offsets, blank: as for `ctc_loss`; fewer than 2**31 classes.
        beam: how many prefixes go on after a row, at most 2**20.
        n: how many labelings there are, at most `beam`.
        threshold: a class less probable than this in a row extends no prefix there, unless it is the most probable one.

    Returns:
        int64 (rows, n), in column j of the first rows of a segment the labels of its labeling j, then -1; int64 (segments,
        n), how many labels, -1 where there are fewer labelings; and (segments, n), their log-probabilities, best first, -inf
        where there are fewer, in the dtype of values. None has a gradient. Probabilities are in double precision with
        exponents of their own, whatever that dtype. A segment without rows has the empty labeling with the score 0, one with a row
        whose softmax is NaN has it with NaN. Takes memory linear in rows times beam of one segment per thread.

    Source: Graves, "Sequence Transduction with Recurrent Neural Networks", 2012; Hannun et al., "First-Pass Large
    Vocabulary Continuous Speech Recognition using Bi-Directional Recurrent DNNs", 2014, algorithm 1.
    """
