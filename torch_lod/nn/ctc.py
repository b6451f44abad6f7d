# SPDX-License-Identifier: Apache-2.0
"""The loss of connectionist temporal classification as a module."""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..errors import LoDValueError, public, shown
from ..sequence.ctc import ctc_losses, with_classes
from ..sequence.operator import along, sequence_operator
from ..structure.validate import a_bool, an_int
from ..tensor.lod_tensor import LoDTensor

__all__ = ["CTCLoss"]


@sequence_operator
def ctc_loss(x, labels, blank, reduction, zero_infinity, norm_by_times, level) -> Any:
    s = along(x, level)
    losses = ctc_losses(s, labels, with_classes(s, blank), zero_infinity, norm_by_times)
    if reduction == "none":
        return s.pool(losses)
    if reduction == "sum":
        return losses.sum()
    counts = labels._lod.row_lengths_at(s.k, losses.device).clamp(min=1)
    return (losses / counts.to(losses.dtype)).mean()


class CTCLoss(torch.nn.Module):
    """-log p(labels | rows) of every sequence by connectionist temporal classification, with the softmax inside.

    `loss(x, labels)`: x (rows, classes) are unnormalised scores of a floating dtype, or the log-probabilities that
    torch.nn.CTCLoss takes: their softmax is themselves. labels are integers (labels,) with as many sequences at the
    level, in [0, classes) and not the blank; IndexError otherwise.

    Args:
        blank: the class that is no label.
        reduction: "none": (sequences,), with the levels above; "sum"; "mean", as torch.nn.CTCLoss has it: over the
            sequences, of losses that are divided by the number of labels (or 1).
        zero_infinity: a sequence that cannot emit its labels has the loss 0 instead of inf. Its gradient is 0 either way.
        norm_by_times: divides the gradient of every sequence, and not its loss, by its number of rows.

    Source: Graves et al., "Connectionist Temporal Classification", ICML 2006.
    """

    @public
    def __init__(
        self,
        blank: int = 0,
        reduction: str = "mean",
        zero_infinity: bool = False,
        *,
        norm_by_times: bool = False,
        level: int | str = -1,
    ):
        super().__init__()
        an_int("blank as a class", blank, 0)
        if reduction not in ("none", "mean", "sum"):
            raise LoDValueError(f"expected reduction in ['mean', 'none', 'sum'], got {shown(reduction)}")
        for name, flag in (("zero_infinity", zero_infinity), ("norm_by_times", norm_by_times)):
            a_bool(name, flag)
        self.blank, self.reduction, self.zero_infinity = blank, reduction, zero_infinity
        self.norm_by_times, self.level = norm_by_times, level

    @public
    def forward(self, x: LoDTensor, labels: LoDTensor) -> Tensor:
        """
        Args:
            x: (rows, classes), a floating dtype: a score for each class at each row; softmax is applied here.
            labels: integers (labels,) without blanks, with a sequence for each sequence of x.

        Returns:
            the loss: a tensor without dims, or with reduction="none" one of each sequence.
        """
        options = self.blank, self.reduction, self.zero_infinity, self.norm_by_times, self.level
        return ctc_loss(x, labels, *options)

    if TYPE_CHECKING:

        def __call__(self, x: LoDTensor, labels: LoDTensor) -> Tensor: ...

    def extra_repr(self) -> str:
        more = f", norm_by_times={self.norm_by_times}, level={self.level!r}"
        return f"blank={self.blank}, reduction={self.reduction!r}, zero_infinity={self.zero_infinity}{more}"
