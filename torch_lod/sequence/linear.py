# SPDX-License-Identifier: Apache-2.0
"""Linear recurrences: each row and a part of what came before it."""

import torch
from torch import Tensor

from .. import ops
from ..errors import LoDTypeError, LoDValueError
from ..sequence_operator import a_bool, a_float, along, as_autocast, number, sequence_operator
from ..structure.validate import with_memory
from ..tensor.lod_tensor import LoDTensor

__all__ = ["sequence_scan"]


@sequence_operator
def sequence_scan(x: LoDTensor, a: float | Tensor, *, reverse: bool = False, level: int | str = -1) -> LoDTensor:
    """h[t] = a[t] h[t - 1] + x[t] along every sequence of a level, from h = 0 before its first row.

    Discounted returns, exponential moving averages and generalized advantage estimates are
    [a line each](../recurrence.md#a-linear-recurrence-tlsequence_scan); for a cell that is not linear see `scan`.

    Args:
        x: (rows, *element), a floating dtype (TypeError otherwise).
        a: a number, or a tensor of the dtype of x, or of float32 beside half types: one for each element of a row, of a
            shape that broadcasts to *element; or for each row, a LoDTensor with the LoD of x, (rows,) or with an element that
            broadcasts to that of x. Where it is 0, h[t] is x[t], whatever came before, also infinite or NaN. At the first row
            of a sequence it is not used.
        reverse: from the last row to the first: h[t] = a[t] h[t + 1] + x[t].
        level: sequences of an outer level run through all rows under them.

    Returns:
        the shape, dtype and LoD of x. Half types have a float32 accumulator, float32 a float64 one. Differentiable by x and a.

    Raises:
        ValueError: for a of a shape or LoD that does not fit x.

    Source: the linear recurrence of Blelloch, Prefix sums and their applications (1990).
    """
    s = along(x, level)
    a_float(s.rows)
    a_bool("reverse", reverse)
    halves = s.rows.dtype in (torch.float16, torch.bfloat16) and getattr(a, "dtype", None) == torch.float32
    rows = s.rows.float() if halves else s.rows
    factors = _factors(a, x, rows)
    if reverse and isinstance(a, LoDTensor):
        # the adjoint takes its factor from the row that it came from
        factors = ops.segment_unfold(factors, s.offsets, 1, -1).squeeze(1)
    return s.keep(ops.segment_scan(rows, factors, s.offsets, reverse).to(s.rows.dtype))


def _factors(a, x: LoDTensor, rows: Tensor) -> Tensor:
    """A factor for every element of every row."""
    if not isinstance(a, Tensor):
        number("a", a)
        return torch.full((), a, dtype=rows.dtype, device=rows.device).expand(rows.shape)
    with_memory(a)
    if isinstance(a, LoDTensor):
        x._lod.agreed(a._lod)
        a = a.values()
        if a.dim() == 1:
            a = a.view(-1, *[1] * (rows.dim() - 1))
        element = a.shape[1:]
        a = a.view(a.shape[0], *[1] * (rows.dim() - a.dim()), *element) if a.dim() < rows.dim() else a
    else:
        element = a.shape
    if a.dtype != rows.dtype:
        a = as_autocast(a, rows)
    if a.dtype != rows.dtype or a.device != rows.device:
        raise LoDTypeError(f"expected a of {rows.dtype} on {rows.device}, as x, got {a.dtype} on {a.device}")
    wanted = rows.shape[1:]
    if len(element) > len(wanted) or any(m not in (1, n) for m, n in zip(element[::-1], wanted[::-1])):
        raise LoDValueError(
            f"expected a as a number, of a shape that broadcasts to {tuple(wanted)}, an element of x, or as a LoDTensor with the "
            f"LoD of x, got {tuple(a.shape)}; if a has a value for each row, pass x.with_values(a)"
        )
    return a.expand(rows.shape)
