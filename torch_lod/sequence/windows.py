# SPDX-License-Identifier: Apache-2.0
"""Windows: rows beside their neighbours. A window never sees a row of another sequence."""

import math

import torch
from torch import Tensor

from .. import ops
from ..dynamo import whole_number
from ..errors import LoDTypeError, LoDValueError, public
from ..lod import LoD
from ..sequence_operator import a_float, as_autocast, in_autocast, level_of, sequence_operator
from ..tensor import LoDTensor, made, rows_of
from ..validate import sums

__all__ = ["im2sequence", "row_conv", "sequence_conv", "sequence_conv1d", "sequence_unfold"]


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
def sequence_conv(
    x: LoDTensor,
    weight: Tensor,
    context_length: int,
    context_start: int | None = None,
    bias: Tensor | None = None,
    padding_data: Tensor | None = None,
    level: int | str = -1,
) -> LoDTensor:
    """Every row with its neighbours, side by side, times `weight`: out[t] = [x[t + start], ..., x[t + start + n - 1]] weight.

        context_length 3, context_start -1, a sequence a b c:   [0 a b] W   [a b c] W   [b c 0] W

    Args:
        x: (rows, features), a floating dtype.
        weight: (context_length * features, out).
        context_start: where the context begins, relative to the row; -(context_length // 2) if None.
        bias: (out,).
        padding_data: (before + after, features), what a context sees outside its sequence, in place of zeros: first the
            before = max(0, -context_start) rows that precede it, then the after = max(0, context_start + context_length - 1)
            rows that follow it.

    Returns:
        (rows, out), with the LoD of x. Gradients reach x, weight, bias and padding_data; empty sequences have no windows.

    Raises:
        ValueError, TypeError: where the shape, dtype or device of an argument does not fit.

    Source: Paddle Fluid's sequence_conv, of one level.
    """
    k = level_of(x, level)
    values = in_autocast(_rows_by_features(x))
    n = _positive("context_length", context_length)
    start = -(n // 2) if context_start is None else context_start
    if type(start) is not int or not -(2**20) <= start <= 2**20:
        raise LoDValueError(f"expected context_start within 2**20, got {context_start!r}")
    width = values.shape[1]
    _a_weight(weight, "(context_length * features, out)", lambda w: w.dim() == 2)
    weight = _fits("weight", weight, (n * width, weight.shape[1]), values)
    if bias is not None:
        bias = _fits("bias", bias, (weight.shape[1],), values)
    offsets = x._lod.row_offsets_at(k, values.device)
    out = ops.segment_conv(values, weight.reshape(n, width, weight.shape[1]), bias, offsets, start)
    if padding_data is not None:
        before, after = max(0, -start), max(0, start + n - 1)
        padding_data = _fits("padding_data", padding_data, (before + after, width), values)
        out = out + _padding_seen(values, offsets, n, start, before, padding_data).flatten(1) @ weight
    return made(out, x._lod)


def _padding_seen(values: Tensor, offsets: Tensor, n: int, start: int, before: int, padding: Tensor) -> Tensor:
    """(rows, n, features): the rows of `padding` that a context sees outside its sequence, zeros inside."""
    rows = values.shape[0]
    row = torch.arange(rows, device=values.device)[:, None] + start + torch.arange(n, device=values.device)
    first = ops.segment_broadcast(offsets[:-1], offsets, rows)[:, None]
    last = ops.segment_broadcast(offsets[1:], offsets, rows)[:, None]
    at = torch.where(row < first, before + row - first, torch.where(row >= last, before + row - last, -1))
    return ops.gather_rows(padding, at.flatten()).view(rows, n, values.shape[1])


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


@sequence_operator
def row_conv(x: LoDTensor, weight: Tensor, level: int | str = -1) -> LoDTensor:
    """Look-ahead: out[t] = sum over w of x[t + w] * weight[w], element by element, cut off at the end of the sequence.

    Args:
        x: (rows, features), a floating dtype.
        weight: (future context + 1, features).

    Returns:
        (rows, features), with the LoD of x. Gradients reach x and weight; empty sequences have no windows.

    Raises:
        ValueError, TypeError: where the shape, dtype or device of weight does not fit.

    Source: Paddle Fluid's row_conv, of one level; Wang et al., "Lookahead Convolution Layer for Unidirectional Recurrent
    Neural Networks", 2016.
    """
    k = level_of(x, level)
    values = _rows_by_features(x)
    _a_weight(weight, f"(context, {values.shape[1]})", lambda w: w.dim() == 2 and w.shape[0] > 0)
    weight = _fits("weight", weight, (weight.shape[0], values.shape[1]), values)
    seen = ops.segment_unfold(values, x._lod.row_offsets_at(k, values.device), weight.shape[0], 0)
    return made((seen * weight).sum(1), x._lod)


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


def _pair(what: str, value, least: int) -> tuple[int, int]:
    pair = (value, value) if type(value) is int else value
    if not isinstance(pair, (list, tuple)) or len(pair) != 2 or any(type(v) is not int or v < least for v in pair):
        raise LoDValueError(f"expected {what} as a number >= {least} or a pair of them, got {value!r}")
    return pair[0], pair[1]


@public
def im2sequence(
    x: Tensor, filter_size, stride=1, padding=0, input_image_size: Tensor | None = None, out_stride=1
) -> LoDTensor:
    """Images as sequences of the windows that a filter sees, row by row.

    Equivalent to (images of one size):
        F.unfold(x, filter_size, 1, padding, stride).transpose(1, 2).flatten(0, 1)

    Args:
        x: (images, channels, height, width), of any dtype.
        filter_size, stride: a number or (height, width).
        padding: a number, (height, width) or (up, left, down, right): zeros around the image.
        input_image_size: (images, 2), the height and width of the images before they were brought to the size of x: then
            the windows of an image of height h are ceil(h / out_stride) of them, divided by the stride as usual, and the
            same for its width. One sync if on a GPU.
        out_stride: a number or (height, width), how much smaller x is than the images.

    Returns:
        (windows, channels * filter height * filter width), a sequence per image. The gradient sums over the windows that
        hold a pixel.

    Raises:
        ValueError: where a filter does not fit into the padded image.

    Source: Paddle Fluid's im2sequence.
    """
    if not isinstance(x, Tensor):
        raise LoDTypeError(f"expected x as a tensor, got {type(x).__name__}")
    if x.dim() != 4:
        raise LoDValueError(f"expected x of shape (images, channels, height, width), got {tuple(x.shape)}")
    if isinstance(x, LoDTensor):
        x = x.values()
    high, wide = _pair("filter_size", filter_size, 1)
    down_by, right_by = _pair("stride", stride, 1)
    if isinstance(padding, (list, tuple)) and len(padding) == 4:
        (up, left), (down, right) = _pair("padding", padding[:2], 0), _pair("padding", padding[2:], 0)
    else:
        up, left = down, right = _pair("padding", padding, 0)

    def grid(height: int, width: int) -> tuple[int, int]:
        return (height + up + down - high) // down_by + 1, (width + left + right - wide) // right_by + 1

    images, channels, height, width = x.shape
    if min(grid(height, width)) < 1:
        raise LoDValueError(
            f"expected a filter_size within the padded image, {(height + up + down, width + left + right)}, got "
            f"{(high, wide)}"
        )
    sizes = [grid(height, width)] * images
    if input_image_size is not None:
        if not isinstance(input_image_size, Tensor):
            raise LoDTypeError(f"expected input_image_size as a tensor, got {type(input_image_size).__name__}")
        if input_image_size.shape != (images, 2) or not bool(input_image_size.isfinite().all()):
            raise LoDValueError(
                f"expected input_image_size of shape ({images}, 2), finite, got {tuple(input_image_size.shape)}"
            )
        by = _pair("out_stride", out_stride, 1)
        real = [[math.ceil(v / by[i]) for i, v in enumerate(size)] for size in input_image_size.tolist()]
        sizes = [grid(h, w) for h, w in real]
        if any(min(size) < 1 for size in sizes):
            raise LoDValueError(f"expected images of at least one window, got sizes {real[:4]}")
    rows, columns = (max([0, *(size[i] for size in sizes)]) for i in (0, 1))
    # zeros beyond the image where a grid is larger than x
    below, beside = (
        max(0, (rows - 1) * down_by + high - up - height),
        max(0, (columns - 1) * right_by + wide - left - width),
    )
    size = height + up + max(down, below), width + left + max(right, beside)
    if images * channels * size[0] * size[1] >= 2**48:
        raise LoDValueError(f"expected a padded image of fewer than 2**48 elements, got {(channels, *size)}")
    padded = torch.nn.functional.pad(x, (left, max(right, beside), up, max(down, below)))
    seen = padded.unfold(2, high, down_by).unfold(3, wide, right_by).permute(0, 2, 3, 1, 4, 5)
    if len(set(sizes)) <= 1:
        values = seen[:, :rows, :columns].flatten(0, 2)
    else:
        values = torch.cat([seen[i, :h, :w].flatten(0, 1) for i, (h, w) in enumerate(sizes)])
    return LoDTensor(values.flatten(1), LoD.from_lengths([[h * w for h, w in sizes]]))
