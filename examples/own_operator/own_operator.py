# SPDX-License-Identifier: Apache-2.0
"""sequence_norm: the L2 norm of every sequence of a LoDTensor, an operator made outside torch_lod with its headers."""

from pathlib import Path

import torch
from torch import Tensor
from torch.library import register_autograd, register_fake

import torch_lod as tl

torch.ops.load_library(Path(__file__).with_name("_own_operator.so"))
segment_norm = torch.ops.own_operator.segment_norm.default
segment_norm_backward = torch.ops.own_operator.segment_norm_backward.default


# ---- shapes, for torch.compile


@register_fake("own_operator::segment_norm")
def _(values, row_offsets):
    return values.new_empty(row_offsets.shape[0] - 1, *values.shape[1:])


@register_fake("own_operator::segment_norm_backward")
def _(grad, norm, values, row_offsets):
    return torch.empty_like(values, memory_format=torch.contiguous_format)


# ---- gradients


def _keep(ctx, inputs, output):
    ctx.save_for_backward(output, *inputs)


def _norm_gradient(ctx, grad):
    norm, values, row_offsets = ctx.saved_tensors
    return segment_norm_backward(grad, norm, values, row_offsets), None


def _keep_all(ctx, inputs, output):
    ctx.save_for_backward(*inputs)


def _gradient_of_the_gradient(ctx, direction):
    grad, norm, values, row_offsets = ctx.saved_tensors
    inverse = torch.where(norm == 0, 0, 1 / norm)
    along = inverse * tl.ops.segment_reduce(direction * values, row_offsets, "sum")
    return along, -along * grad * inverse, segment_norm_backward(grad, norm, direction, row_offsets), None


register_autograd("own_operator::segment_norm", _norm_gradient, setup_context=_keep)
register_autograd("own_operator::segment_norm_backward", _gradient_of_the_gradient, setup_context=_keep_all)


# ---- what users call


def sequence_norm(x: tl.LoDTensor, level: int | str = -1) -> Tensor:
    """The L2 norm of all rows under every sequence of a level; 0 for empty sequences.

    Equivalent to:
        torch.stack([rows.norm(dim=0) for rows in x.sequences(level)])

    Args:
        x: (rows, *element), a floating dtype.
        level: whose sequences.

    Returns:
        (sequences, *element) with the levels above; a plain tensor above the outermost.
    """
    if not isinstance(x, tl.LoDTensor):
        raise TypeError(f"sequence_norm: expected x as a LoDTensor, got {type(x).__name__}")
    norm = segment_norm(x.values(), x.row_offsets(level))
    outer = x.lod.outer(level)
    return norm if outer is None else tl.LoDTensor(norm, outer)
