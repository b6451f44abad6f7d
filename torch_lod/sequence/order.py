# SPDX-License-Identifier: Apache-2.0
"""Order statistics: what a sequence has below a fraction of its rows."""

import torch
from torch import Tensor

from .. import ops
from ..dynamo import compiling, failing
from ..errors import LoDTypeError, LoDValueError, shown
from ..ops.check import is_batched
from ..structure.validate import a_float, filler, probability, with_memory
from ..tensor.lod_tensor import LoDTensor, MaybeLoD
from .operator import along, on_rows, sequence_operator
from .pool import rows_left, sortable, taken

__all__ = ["sequence_quantile"]

_INTERPOLATIONS = ("linear", "lower", "higher", "nearest", "midpoint")


@sequence_operator
def sequence_quantile(
    x: LoDTensor,
    q: float | Tensor,
    *,
    interpolation: str = "linear",
    padding_value: float = 0.0,
    level: int | str = -1,
) -> MaybeLoD:
    """The q-th quantiles of all rows of every sequence of a level, separately for each element of a row.

    Of n rows in order, number 0 to n - 1, it is the one at q (n - 1), and between two rows what `interpolation` says.

    Equivalent to, where no sequence is empty:
        torch.stack([rows.quantile(q, 0, interpolation=interpolation) for rows in x.sequences(level)])

    Args:
        x: (rows, *element), a floating dtype (TypeError otherwise); half types are interpolated in float32. Rows of losses
            that `F.cross_entropy` or `F.nll_loss` ignored are left out, as in `sequence_loss`.
        q: a number in [0, 1], or a plain tensor of them, (quantiles,), of a floating dtype; ValueError otherwise.
        interpolation: "linear" between the two rows, the "lower" or the "higher" of them, the "nearest" or their
            "midpoint".
        padding_value: the result for empty sequences; it has no gradient.

    Returns:
        (sequences, *element) with the levels above; with a tensor of q (sequences, quantiles, *element). A sequence with a
        NaN has NaN quantiles. The gradient goes to the rows that a quantile is made of, and to q.

    Source: torch.quantile, sequence by sequence, which has the quantiles first.
    """
    if isinstance(x, LoDTensor) and x._lod.counted:
        x, _ = rows_left(x, "sequence_quantile")
    s = along(x, level)
    rows = s.rows
    a_float(rows)
    with_memory(rows)
    if interpolation not in _INTERPOLATIONS:
        raise LoDValueError(f"expected interpolation in {list(_INTERPOLATIONS)}, got {shown(interpolation)}")
    filler("padding_value", padding_value, rows.dtype)
    wide = torch.float64 if rows.dtype == torch.float64 else torch.float32
    fractions = _fractions(q, rows).to(wide)

    order, lengths = ops.segment_order(sortable(rows), s.offsets), s.offsets.diff()[:, None]
    last, empty = lengths - 1, on_rows(lengths == 0, rows)[:, None]

    def at(place: Tensor) -> Tensor:
        """The rows at a place in the order of every sequence, (sequences, places, *element); -1 where it is empty."""
        row = torch.where(lengths > 0, s.offsets[:-1, None] + torch.minimum(place.long().clamp(min=0), last), -1)
        return ops.gather_rows(order, row.flatten(), -1.0).unflatten(0, row.shape)

    end = at(last)
    missing = taken(rows.detach(), end, 0.0).isnan()
    place = fractions * last.clamp(min=0).to(wide)  # in the dtype of x, as torch has it
    low, high = _neighbours(place.detach(), interpolation)
    out = taken(rows, torch.where(missing, end, at(low)), 0.0).to(wide)
    if interpolation in ("linear", "midpoint"):
        weight = place - low if interpolation == "linear" else torch.full_like(place, 0.5)
        # constant where nothing is between two rows: no gradient of q comes from there
        weight = torch.where(missing | empty, 0.0, weight.view(*place.shape, *[1] * (rows.dim() - 1)))
        out = torch.lerp(out, taken(rows, torch.where(missing, end, at(high)), 0.0).to(wide), weight)
    out = torch.where(empty, padding_value, out).to(rows.dtype)
    return s.pool(out if isinstance(q, Tensor) and q.dim() else out.squeeze(1))


def _neighbours(place: Tensor, interpolation: str) -> tuple[Tensor, Tensor]:
    """The places of the two rows that a quantile is between."""
    if interpolation == "nearest":
        place = place.round()
    return place.ceil() if interpolation == "higher" else place.floor(), place.ceil()


def _fractions(q, rows: Tensor) -> Tensor:
    """q as a tensor of fractions, (quantiles,)."""
    if not isinstance(q, Tensor):
        if isinstance(q, bool) or not isinstance(q, (int, float)):
            raise LoDTypeError(f"expected q as a number or a tensor, got {shown(q)}")
        probability("q", q)
        return torch.full((1,), float(q), dtype=torch.float64, device=rows.device)
    if isinstance(q, LoDTensor):
        raise LoDTypeError("expected q as a number or a plain tensor, got a LoDTensor; pass q.values()")
    a_float(q, "q")
    if q.dim() > 1:
        raise LoDValueError(f"expected q as a number or of shape (quantiles,), got {tuple(q.shape)}")
    if q.device != rows.device:
        raise LoDTypeError(f"expected q on {rows.device}, as x, got one on {q.device}")
    with_memory(q)
    q = q.reshape(-1)
    if not compiling() and is_batched(q):  # its values are not known: what is out of range is the first or the last row
        return q
    for i in failing(~((q >= 0) & (q <= 1)), "sequence_quantile: expected q in [0, 1]"):
        raise LoDValueError(f"expected q in [0, 1], got {q[i].item():g} at index {i}")
    return q
