# SPDX-License-Identifier: Apache-2.0
"""Fluid's CTC: its forms of connectionist temporal classification."""

from ..sequence.ctc import ctc_decode, ctc_losses, emitted, with_classes
from ..sequence.operator import along, one_column, sequence_operator
from ..structure.validate import a_bool, filler, whole
from ..tensor.lod_tensor import LoDTensor, MaybeLoD

__all__ = [
    "ctc_align",
    "ctc_greedy_decoder",
    "warpctc",
]


@sequence_operator
def ctc_align(x: LoDTensor, *, blank: int = 0, merge_repeated: bool = True, level: int | str = -1) -> LoDTensor:
    """The ids of the rows of every sequence, runs of one id merged, without blanks.

    Args:
        x: integers (rows,) or (rows, 1).
        blank: the id that is left out, one that the dtype of x can hold.
        merge_repeated: whether of a run of one id only the first is kept.

    Returns:
        (ids,), the dtype of x, with the levels of x and the lengths that are left. No gradient; one sync if on a GPU.

    Source: Paddle Fluid's ctc_align, of one level.
    """
    s = along(x, level)
    ids = one_column("x", x)
    blank = whole("blank", blank)
    filler("blank", blank, ids.dtype)
    a_bool("merge_repeated", merge_repeated)
    return emitted(s, ids, blank, merge_repeated)


@sequence_operator
def ctc_greedy_decoder(x: LoDTensor, blank: int, *, level: int | str = -1) -> LoDTensor:
    """The labels of the most probable class of every row: `tl.ctc_decode`.

    Args:
        x: scores (rows, classes), a floating dtype.
        blank: the class that is no label.

    Returns:
        int64 (labels,), with the levels of x and the lengths that are left. No gradient.

    Source: Paddle Fluid's ctc_greedy_decoder, of one level.
    """
    return ctc_decode(x, blank=blank, level=level)


@sequence_operator
def warpctc(
    logits: LoDTensor, label: LoDTensor, blank: int = 0, norm_by_times: bool = False, *, level: int | str = -1
) -> MaybeLoD:
    """-log p(label | logits) of every sequence by connectionist temporal classification, with the softmax inside.

    Args:
        logits: (rows, classes), a floating dtype; half types are worked out in float32.
        label: integers (labels,) or (labels, 1) in [0, classes) and not the blank (IndexError otherwise), with as many
            sequences at the level of logits and equal levels above it.
        blank: the class that is no label.
        norm_by_times: divides the gradient of every sequence, and not its loss, by its number of rows.

    Returns:
        (sequences,), with the levels above. 0 and without gradient for a sequence that cannot emit its labels, as one
        without rows: `tl.nn.CTCLoss` gives inf there.

    Raises:
        ValueError, IndexError: where label does not fit logits.

    Source: Paddle Fluid's warpctc, of one level; Graves et al., "Connectionist Temporal Classification", ICML 2006.
    """
    s = along(logits, level, "logits")
    blank = with_classes(s, blank)
    a_bool("norm_by_times", norm_by_times)
    return s.pool(ctc_losses(s, label, blank, True, norm_by_times))
