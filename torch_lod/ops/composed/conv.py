# SPDX-License-Identifier: Apache-2.0
"""Convolution along segments."""

from .. import check
from .rows import check_windows, segment_unfold
from .table import composition


def _check(op, values, row_offsets, start, dilation, **others) -> None:
    if values.dim() != 2:
        raise ValueError(f"{op}: expected values of shape (rows, features), got {values.dim()} dimensions")
    check.is_floating(op, "values", values)
    check_windows(op, values, row_offsets, start, dilation)
    for name, t in others.items():
        if t is not None:
            check.kind(op, name, t, values.dtype, values.device, ", as values")


@composition
def segment_conv(values, weight, bias, row_offsets, start, dilation=1):
    op = "segment_conv"
    _check(op, values, row_offsets, start, dilation, weight=weight, bias=bias)
    width = values.shape[1]
    flat = weight.dim() == 2 and width and weight.shape[0] % width == 0
    fits = flat or (weight.dim() == 3 and weight.shape[1] == width)
    if not fits or weight.shape[0] < 1:
        shapes = f"[size, {width}, out] or [size * {width}, out]"
        raise ValueError(f"{op}: expected weight of shape {shapes}, got {list(weight.shape)}")
    size, out = weight.shape[0] if weight.dim() == 3 else weight.shape[0] // width, weight.shape[-1]
    if size > 2**20:
        raise ValueError(f"{op}: expected a size of at most 2**20, got {size}")
    check.far_end(op, start, size, dilation)
    if bias is not None and bias.shape != (out,):
        raise ValueError(f"{op}: expected bias of shape [{out}], got {list(bias.shape)}")
    check.offsets(op, row_offsets, values.shape[0])
    out = segment_unfold(values, row_offsets, size, start, dilation).flatten(1) @ weight.reshape(size * width, out)
    return out if bias is None else out + bias


@composition
def segment_conv_weight(values, grad, row_offsets, size, start, dilation=1):
    op = "segment_conv_weight"
    _check(op, values, row_offsets, start, dilation, grad=grad)
    check.window_size(op, size)
    check.far_end(op, start, size, dilation)
    if grad.dim() != 2 or grad.shape[0] != values.shape[0]:
        raise ValueError(f"{op}: expected grad of shape [{values.shape[0]}, out], got {list(grad.shape)}")
    check.offsets(op, row_offsets, values.shape[0])
    seen = segment_unfold(values, row_offsets, size, start, dilation)
    return (seen.flatten(1).t() @ grad).view(size, values.shape[1], grad.shape[1])
