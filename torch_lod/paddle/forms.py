# SPDX-License-Identifier: Apache-2.0
"""Fluid's pooling, joining, windows: operators that `tl` has in torch's form, and layers for images and text pairs."""

import math

import torch
from torch import Tensor

from .. import ops
from ..construct.joined import all_lod, joined_within
from ..dynamo import failing
from ..errors import LoDIndexError, LoDTypeError, LoDValueError, shown
from ..sequence.operator import along, sequence_operator
from ..sequence.pool import a_float_for, reduction, sequence_pool, sequence_topk
from ..sequence.windows import ahead_conv, context_conv
from ..structure.devices import upload
from ..structure.lod import LoD
from ..structure.validate import a_float, an_int, sums, whole, whole_dtype, with_data, with_memory
from ..tensor.lod_tensor import LoDTensor, MaybeLoD, made, rows_of, unmoved

__all__ = [
    "fused_embedding_seq_pool",
    "im2sequence",
    "row_conv",
    "sequence_concat",
    "sequence_conv",
    "sequence_first_step",
    "sequence_last_step",
    "sequence_topk_avg_pooling",
]


@sequence_operator
def sequence_first_step(x: LoDTensor, *, padding_value: float = 0.0, level: int | str = -1) -> MaybeLoD:
    """The first row of every sequence of a level: `sequence_pool(x, "first")`.

    Equivalent to (no sequence empty):
        torch.stack([rows[0] for rows in x.sequences(level)])

    Args:
        x: (rows, *element), of any dtype.
        padding_value: the row of empty sequences; it has no gradient.

    Returns:
        (sequences, *element) with the levels above. The gradient goes to the rows taken.

    Source: Paddle Fluid's sequence_first_step.
    """
    return sequence_pool(x, "first", padding_value=padding_value, level=level)


@sequence_operator
def sequence_last_step(x: LoDTensor, *, padding_value: float = 0.0, level: int | str = -1) -> MaybeLoD:
    """The last row of every sequence of a level: `sequence_pool(x, "last")`.

    Equivalent to (no sequence empty):
        torch.stack([rows[-1] for rows in x.sequences(level)])

    Args:
        x: (rows, *element), of any dtype.
        padding_value: the row of empty sequences; it has no gradient.

    Returns:
        (sequences, *element) with the levels above. The gradient goes to the rows taken.

    Source: Paddle Fluid's sequence_last_step.
    """
    return sequence_pool(x, "last", padding_value=padding_value, level=level)


@sequence_operator
def fused_embedding_seq_pool(
    ids: LoDTensor, weight: Tensor, combiner: str = "sum", *, padding_idx: int | None = None, level: int | str = -1
) -> MaybeLoD:
    """The embeddings of the ids under every sequence of a level, pooled.

    Equivalent to:
        sequence_pool(F.embedding(ids, weight), combiner, level=level)

    Args:
        ids: integers in [0, len(weight)), (rows,), (rows, 1) or (rows, n); IndexError otherwise.
        weight: (words, width).
        combiner: as sequence_pool's pool_type.
        padding_idx: rows of this id, in [-words, words), count as zeros and pass no gradient; -1 is the last one.

    Returns:
        (sequences, width), or (sequences, n, width), with the levels above; zeros for empty sequences. The gradient reaches
        weight, as a dense tensor.

    Source: Paddle Fluid's fused_embedding_seq_pool, of combiner "sum".
    """
    s = along(ids, level, "ids")
    numbers = s.rows
    whole_dtype("ids", numbers)
    if numbers.dim() == 2 and numbers.shape[1] == 1:
        numbers = numbers.squeeze(1)
    if not isinstance(weight, Tensor):
        raise LoDTypeError(f"expected weight as a tensor, got {type(weight).__name__}")
    if weight.dim() != 2:
        raise LoDValueError(f"expected weight of shape (words, width), got {tuple(weight.shape)}")
    if weight.device != numbers.device:
        raise LoDTypeError(f"expected weight on {numbers.device}, as ids, got one on {weight.device}")
    if padding_idx is not None:
        padding_idx = whole("padding_idx", padding_idx)
    words = weight.shape[0]
    if padding_idx is not None and not -words <= padding_idx < words:
        raise LoDIndexError(f"expected padding_idx in [{-words}, {words - 1}], got {padding_idx}")
    with_memory(numbers)
    numbers = words_of(numbers, words, "fused_embedding_seq_pool")
    reduce = reduction("combiner", combiner)
    a_float_for(reduce, weight, "weight")
    if padding_idx is not None:
        numbers = torch.where(numbers == padding_idx % words, -1, numbers)
    rows = ops.gather_rows(weight, numbers.flatten()).view(*numbers.shape, weight.shape[1])
    return sequence_pool(s.keep(rows), reduce, level=s.k)


def words_of(ids: Tensor, words: int, call: str) -> Tensor:
    """Ids as int64; IndexError for one that is no row of a table."""
    numbers = ids.to(torch.int64)
    outside = (numbers < 0) | (numbers >= words)
    wrong = outside.flatten(1).any(1) if outside.dim() > 1 else outside
    for i in failing(wrong, f"{call}: ids hold one out of range"):
        worst = int(numbers[i][outside[i]][0])
        raise LoDIndexError(f"expected ids in [0, {words - 1}], got {worst} at index {i}")
    return numbers


@sequence_operator
def sequence_topk_avg_pooling(x: LoDTensor, row: LoDTensor, col: LoDTensor, topks, channel_num: int) -> LoDTensor:
    """Means of the k largest scores of every row of score matrices, for several k.

    Sequence i of x holds `channel_num` matrices, one after another. Each has as many rows as sequence i of `row` is
    long and as many columns as sequence i of `col`. If a matrix has fewer than k columns, their sum is still divided by
    k.

    Args:
        x: scores, (n,) or (n, 1), one level.
        row, col: their lengths are the sizes of the matrices.
        topks: the values of k, each at least 1.

    Returns:
        (rows of `row`, channel_num * len(topks)), channels outermost, with the LoD of `row`. The gradient goes to the
        scores that were chosen.

    Raises:
        ValueError: where the lengths of x are not channel_num * rows * columns.

    Source: Paddle Fluid's sequence_topk_avg_pooling.
    """
    given = {"x": x, "row": row, "col": col}
    scores, rows, columns = (along(t, -1, what) for what, t in given.items())
    for what, t in given.items():
        if t.lod_level != 1:
            raise LoDValueError(f"expected {what} with 1 level, got {t.lod_level}")
    if not isinstance(topks, (list, tuple)) or not topks or any(type(k) is not int or k < 1 for k in topks):
        raise LoDValueError(f"expected topks as a list of numbers >= 1, got {shown(topks)}")
    an_int("channel_num >= 1", channel_num, 1)
    lengths, high, broad = (s.lod.levels[0].diff() for s in (scores, rows, columns))
    if high.shape != lengths.shape or broad.shape != lengths.shape:
        counts = [len(t) for t in (lengths, high, broad)]
        raise LoDValueError(f"expected equally many sequences in x, row and col, got {counts}")
    said = "sequence_topk_avg_pooling: expected x of channel_num x rows x columns scores"
    for i in failing(lengths != channel_num * high * broad, said):
        raise LoDValueError(
            f"expected x of {channel_num} x {int(high[i])} x {int(broad[i])} scores in sequence {i}, got {int(lengths[i])}"
        )
    a_float(scores.rows)
    count = rows.lod.rows
    if scores.rows.numel() != scores.lod.rows:
        raise LoDValueError(f"expected x of shape (n,) or (n, 1), got {tuple(x.shape)}")
    # a matrix row is a segment: input order (sequence, channel, row), output order (sequence, row, channel)
    by_channel = LoD.checked("lengths", [sums(channel_num * high)], rows=channel_num * count)
    matrices = LoD.checked("lengths", [sums(broad[by_channel.parents_at(0)])], rows=scores.lod.rows)
    best, _ = sequence_topk(LoDTensor(scores.rows.reshape(-1), matrices), max(topks))
    exact = best.to(torch.promote_types(best.dtype, torch.float32))  # a sum of half types may be beyond their range
    sums_of = exact.cumsum(1)[:, [k - 1 for k in topks]]
    means = (sums_of / torch.tensor(topks, dtype=exact.dtype, device=x.device)).to(best.dtype)
    sequence = rows.lod.parents_at(0)
    index = torch.arange(count, device="cpu") + (channel_num - 1) * rows.lod.levels[0][sequence]
    index = index[:, None] + torch.arange(channel_num, device="cpu") * high[sequence][:, None]
    out = ops.gather_rows(means, upload(index.flatten(), x.device))
    return rows.keep(out.view(count, channel_num * len(topks)))


@sequence_operator
def sequence_concat(xs, *, level: int | str = -1) -> LoDTensor:
    """Sequence i of the result is sequence i of every x, one after another.

    Equivalent to (one level):
        torch.cat([torch.cat(parts) for parts in zip(*(x.sequences() for x in xs))])

    Args:
        xs: LoDTensors (rows, *element) of one depth, with equally many sequences at `level` and equal levels above it.

    Returns:
        all rows; the length of a sequence is the sum of the lengths joined. The gradient is split into those of xs.

    Raises:
        ValueError: where the depths, the numbers of sequences or the levels above differ.

    Source: Paddle Fluid's sequence_concat, of one level; `tl.cat(xs, along="within", level=level)` is the same.
    """
    xs = all_lod(xs)
    return joined_within(xs, xs[0].lod.level(level))


@sequence_operator
def sequence_conv(
    x: LoDTensor,
    weight: Tensor,
    context_length: int,
    context_start: int | None = None,
    bias: Tensor | None = None,
    *,
    padding_data: Tensor | None = None,
    level: int | str = -1,
) -> LoDTensor:
    """Every row with its neighbours, side by side, times `weight`: out[t] = [x[t + start], ..., x[t + start + n - 1]] weight.

        context_length 3, context_start -1, a sequence a b c:   [0 a b] W   [a b c] W   [b c 0] W

    Args:
        x: (rows, features), a floating dtype.
        weight: (context_length * features, out).
        context_start: the first row of the context, relative to the row; -(context_length // 2) if None.
        bias: (out,).
        padding_data: (before + after, features), what a context sees outside its sequence instead of zeros: first the
            before = max(0, -context_start) rows that precede the sequence, then the after = max(0, context_start +
            context_length - 1) rows that follow it.

    Returns:
        (rows, out), with the LoD of x. Gradients reach x, weight, bias and padding_data; empty sequences have no windows.

    Raises:
        ValueError, TypeError: where the shape, dtype or device of an argument does not fit.

    Source: Paddle Fluid's sequence_conv, of one level.
    """
    return context_conv(x, weight, context_length, context_start, bias, padding_data, level)


@sequence_operator
def row_conv(x: LoDTensor, weight: Tensor, *, level: int | str = -1) -> LoDTensor:
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
    return ahead_conv(x, weight, level)


def _pair(what: str, value, least: int) -> tuple[int, int]:
    pair = (value, value) if type(value) is int else value
    if not isinstance(pair, (list, tuple)) or len(pair) != 2 or any(type(v) is not int or v < least for v in pair):
        raise LoDValueError(f"expected {what} as a number >= {least} or a pair of them, got {shown(value)}")
    return pair[0], pair[1]


def _real_sizes(input_image_size, images: int, by: tuple[int, int]) -> list[list[int]]:
    """The heights and widths that images have in x."""
    if not isinstance(input_image_size, Tensor):
        raise LoDTypeError(f"expected input_image_size as a tensor, got {type(input_image_size).__name__}")
    with_data("input_image_size", input_image_size)
    if input_image_size.shape != (images, 2) or not bool(input_image_size.isfinite().all()):
        raise LoDValueError(
            f"expected input_image_size of shape ({images}, 2), finite, got {tuple(input_image_size.shape)}"
        )
    return [[math.ceil(v / by[i]) for i, v in enumerate(size)] for size in input_image_size.tolist()]


@sequence_operator
def im2sequence(
    x: Tensor, filter_size, stride=1, padding=0, input_image_size: Tensor | None = None, out_stride=1
) -> LoDTensor:
    """Images as sequences of the windows that a filter sees, row by row.

    Equivalent to (images of one size):
        F.unfold(x, filter_size, 1, padding, stride).transpose(1, 2).flatten(0, 1)

    Args:
        x: (images, channels, height, width), of any dtype; plain, or a LoDTensor whose rows are images.
        filter_size, stride: a number or (height, width).
        padding: a number, (height, width) or (up, left, down, right): zeros around the image.
        input_image_size: (images, 2), the height and width of the images before they were resized to the size of x. The
            windows of an image of height h then cover only a height of ceil(h / out_stride); likewise its width. One
            sync if on a GPU.
        out_stride: a number or (height, width): how many times smaller x is than the images.

    Returns:
        (windows, channels * filter height * filter width), a sequence per image, below the levels of x if it has some.
        The gradient sums over the windows that hold a pixel.

    Raises:
        ValueError: where a filter does not fit into the padded image.

    Source: Paddle Fluid's im2sequence.
    """
    if not isinstance(x, Tensor):
        raise LoDTypeError(f"expected x as a tensor, got {type(x).__name__}")
    if x.dim() != 4:
        raise LoDValueError(f"expected x of shape (images, channels, height, width), got {tuple(x.shape)}")
    unmoved("x", x)
    with_memory(x)
    given, x = x, rows_of(x)
    high, wide = _pair("filter_size", filter_size, 1)
    down_by, right_by = _pair("stride", stride, 1)
    if isinstance(padding, (list, tuple)) and len(padding) == 4:
        (up, left), (down, right) = _pair("padding", padding[:2], 0), _pair("padding", padding[2:], 0)
    else:
        up, left = down, right = _pair("padding", padding, 0)

    def grid(height: int, width: int) -> tuple[int, int]:
        return (height + up + down - high) // down_by + 1, (width + left + right - wide) // right_by + 1

    by = _pair("out_stride", out_stride, 1)
    if input_image_size is None and by != (1, 1):
        raise LoDValueError(f"expected out_stride with input_image_size only, got {shown(out_stride)}")
    images, channels, height, width = x.shape
    if min(grid(height, width)) < 1:
        raise LoDValueError(
            f"expected a filter_size within the padded image, {(height + up + down, width + left + right)}, got "
            f"{(high, wide)}"
        )
    sizes = [grid(height, width)] * images
    if input_image_size is not None:
        real = _real_sizes(input_image_size, images, by)
        sizes = [grid(h, w) for h, w in real]
        if any(min(size) < 1 for size in sizes):
            raise LoDValueError(f"expected images of at least one window, got sizes {real[:4]}")
    rows, columns = (max([0, *(size[i] for size in sizes)]) for i in (0, 1))
    # more zeros beyond the image if a grid of windows is larger than x
    down = max(down, (rows - 1) * down_by + high - up - height)
    right = max(right, (columns - 1) * right_by + wide - left - width)
    size = height + up + down, width + left + right
    if images * channels * size[0] * size[1] >= 2**48:
        raise LoDValueError(f"expected a padded image of fewer than 2**48 elements, got {(channels, *size)}")
    padded = torch.nn.functional.pad(x, (left, right, up, down))
    seen = padded.unfold(2, high, down_by).unfold(3, wide, right_by).permute(0, 2, 3, 1, 4, 5)
    if len(set(sizes)) <= 1:
        values = seen[:, :rows, :columns].flatten(0, 2)
    else:
        values = torch.cat([seen[i, :h, :w].flatten(0, 1) for i, (h, w) in enumerate(sizes)])
    counts = [h * w for h, w in sizes]
    return made(
        values.flatten(1), given.lod.append(counts) if isinstance(given, LoDTensor) else LoD.from_lengths([counts])
    )
