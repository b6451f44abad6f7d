# SPDX-License-Identifier: Apache-2.0
"""Windows: rows beside their neighbours. A window never sees a row of another sequence."""

import torch
from torch import Tensor

from .. import ops
from ..dynamo import whole_number
from ..errors import LoDTypeError, LoDValueError, public
from ..lod import LoD
from ..sequence_operator import a_float, as_autocast, in_autocast, level_of, sequence_operator
from ..tensor import LoDTensor, made, rows_of
from ..validate import sums

__all__ = ["sequence_conv1d", "sequence_unfold"]


def _rows_by_features(x: LoDTensor) -> Tensor:
    values = rows_of(x)
    if values.dim() != 2:
        raise LoDValueError(f"expected x of shape (rows, features), got {tuple(values.shape)}")
    a_float(values)
    return values


def _a_weight(t, shape: str, fits) -> None:
    if not isinstance(t, Tensor):
        raise LoDTypeError(f"expected weight as a tensor, got {type(t).__name__}")
    if not fits(t):
        raise LoDValueError(f"expected weight of shape {shape}, got {tuple(t.shape)}")


def _fits(what: str, t, shape: tuple, x: Tensor) -> Tensor:
    if not isinstance(t, Tensor):
        raise LoDTypeError(f"expected {what} as a tensor, got {type(t).__name__}")
    if tuple(t.shape) != shape:
        raise LoDValueError(f"expected {what} of shape {shape}, got {tuple(t.shape)}")
    t = as_autocast(t, x)
    if t.dtype != x.dtype or t.device != x.device:
        raise LoDTypeError(f"expected {what} of {x.dtype} on {x.device}, as x, got {t.dtype} on {t.device}")
    return t


def _positive(what: str, value, most: int = 2**20) -> int:
    if type(value) is not int or not 1 <= value <= most:
        raise LoDValueError(f"expected {what} in [1, {most}], got {value!r}")
    return value


@sequence_operator
def sequence_conv1d(
    x: LoDTensor,
    weight: Tensor,
    bias: Tensor | None = None,
    dilation: int = 1,
    padding: str = "same",
    groups: int = 1,
    level: int | str = -1,
) -> LoDTensor:
    """`torch.nn.functional.conv1d` along every sequence of a level, as if it were alone and padded with zeros.

    Equivalent to (padding "same"):
        torch.cat([F.conv1d(rows.t()[None], weight, bias, 1, "same", dilation, groups)[0].t() for rows in x.sequences(level)])

    Args:
        x: (rows, features), a floating dtype.
        weight: (out, features / groups, size), as conv1d's.
        bias: (out,).
        padding: "same", the window around the row (the longer side after it where even), or "causal", up to the row.
        groups: divides features and out.

    Returns:
        (rows, out), with the LoD of x. Gradients reach x, weight and bias; empty sequences have no windows.

    Raises:
        ValueError, TypeError: where the shape, dtype or device of an argument does not fit.

    Source: torch.nn.functional.conv1d, sequence by sequence, with stride 1.
    """
    k = level_of(x, level)
    values = in_autocast(_rows_by_features(x))
    width = values.shape[1]
    _positive("dilation", dilation)
    if type(groups) is not int or groups < 1 or width % groups:
        raise LoDValueError(f"expected groups that divide the {width} features of x, got {groups!r}")
    if padding not in ("same", "causal"):
        raise LoDValueError(f"expected padding 'same' or 'causal', got {padding!r}")
    shape = f"(out, {width // groups}, size), out a multiple of {groups}"
    _a_weight(weight, shape, lambda w: w.dim() == 3 and w.shape[0] % groups == 0 and w.shape[2] > 0)
    out, _, size = weight.shape
    weight = _fits("weight", weight, (out, width // groups, size), values)
    if bias is not None:
        bias = _fits("bias", bias, (out,), values)
    reach = (size - 1) * dilation
    start = -reach if padding == "causal" else -(reach // 2)
    offsets = x._lod.row_offsets_at(k, values.device)
    if groups == 1:
        return made(ops.segment_conv(values, weight.permute(2, 1, 0), bias, offsets, start, dilation), x._lod)
    seen = ops.segment_unfold(values, offsets, size, start, dilation)
    parts = seen.view(values.shape[0], size, groups, width // groups).permute(2, 0, 1, 3).flatten(2)
    kernels = weight.view(groups, out // groups, width // groups, size).permute(0, 3, 2, 1).flatten(1, 2)
    out_rows = torch.bmm(parts, kernels).transpose(0, 1).reshape(values.shape[0], out)
    return made(out_rows if bias is None else out_rows + bias, x._lod)


@public
def sequence_unfold(x: LoDTensor, size: int, step: int = 1, level: int | str = -1) -> LoDTensor:
    """The windows of `size` rows that lie within a sequence of a level, `step` rows apart.

    Equivalent to:
        torch.cat([rows.unfold(0, size, step).movedim(-1, 1) for rows in x.sequences(level)])

    Args:
        x: (rows, *element), of any dtype.
        size, step: at least 1 (ValueError).

    Returns:
        (windows, size, *element): the levels above and a level of windows; a sequence shorter than size has none. The
        gradient sums over the windows that hold a row.

    Source: torch.Tensor.unfold, sequence by sequence.
    """
    k = level_of(x, level)
    size, step = _positive("size", size), _positive("step", step)
    offsets = x._lod.row_offsets_at(k)
    counts = torch.where(offsets.diff() < size, 0, (offsets.diff() - size) // step + 1)
    windows = sums(counts)
    start = ops.run_map(offsets[:-1], windows, whole_number(windows[-1]), step)
    names = x.level_names[: k + 1] if x.level_names else None
    lod = LoD.checked("offsets", [*x._lod.levels[:k], windows], names)
    rows = (start[:, None] + torch.arange(size, device="cpu")).flatten()
    return LoDTensor(ops.gather_rows(x.values(), rows.to(x.device)).view(lod.rows, size, *x.shape[1:]), lod)
