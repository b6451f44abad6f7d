# SPDX-License-Identifier: Apache-2.0
"""How many floating point operations a call takes, for torch.utils.flop_counter.FlopCounterMode.

As torch counts its own operators: products alone, a multiplication and an addition each, and also the pairs of query and
key that a causal mask hides. What is composed of torch's operators is counted there.
"""

from math import prod

import torch
from torch.utils.flop_counter import register_flop_formula

from . import check
from . import library as library

_ops = torch.ops.torch_lod


def _of_layer(times, values, *weights) -> int:
    """Every row meets every weight `times` times: once forwards; backwards for the gradients of rows and of weights."""
    return times * 2 * values[0] * sum(prod(weight) for weight in weights if weight is not None)


@register_flop_formula([_ops.rnn, _ops.gru])
def _recurrence(values, weight_ih, weight_hh, *rest, **named) -> int:
    return _of_layer(1, values, weight_ih, weight_hh)


@register_flop_formula([_ops.rnn_backward, _ops.gru_backward])
def _recurrence_backward(grad_output, values, weight_ih, weight_hh, *rest, **named) -> int:
    return _of_layer(2, values, weight_ih, weight_hh)


@register_flop_formula(_ops.lstm)
def _lstm(
    values, weight_ih, weight_hh, bias_ih, bias_hh, h_0, c_0, row_offsets, reverse=False, weight_hr=None, **named
) -> int:
    return _of_layer(1, values, weight_ih, weight_hh, weight_hr)


@register_flop_formula(_ops.lstm_backward)
def _lstm_backward(
    grad_output,
    grad_cells,
    values,
    weight_ih,
    weight_hh,
    h_0,
    c_0,
    row_offsets,
    reverse,
    output,
    cells,
    gates,
    weight_hr=None,
    **named,
) -> int:
    return _of_layer(2, values, weight_ih, weight_hh, weight_hr)


@register_flop_formula(_ops.segment_conv)
def _conv(values, weight, *rest, **named) -> int:
    return _of_layer(1, values, weight)


@register_flop_formula(_ops.segment_conv_weight)
def _conv_weight(values, *rest, out_shape, **named) -> int:
    return _of_layer(1, values, out_shape)


def _pairs(query, key, query_offsets, key_offsets, left, right) -> int:
    """Queries and keys that meet; of offsets that cannot be read, as if all sequences were of one length."""
    window = left + 1 + right if left >= 0 and right >= 0 else key.shape[0]
    if not (check.readable(query_offsets) and check.readable(key_offsets)):
        sequences = max(query_offsets.shape[0] - 1, 1)
        return query.shape[0] * min(window, key.shape[0] // sequences)
    return int((query_offsets.diff() * key_offsets.diff().clamp(max=window)).sum())


@register_flop_formula(_ops.attention, get_raw=True)
def _attention(
    query,
    key,
    value,
    query_offsets,
    key_offsets,
    bias=None,
    slopes=None,
    seed=None,
    scale=None,
    left=-1,
    right=-1,
    *rest,
    **named,
) -> int:
    pairs = _pairs(query, key, query_offsets, key_offsets, left, right)
    return 2 * pairs * query.shape[1] * (query.shape[2] + value.shape[2])


@register_flop_formula(_ops.attention_backward, get_raw=True)
def _attention_backward(
    grad,
    query,
    key,
    value,
    query_offsets,
    key_offsets,
    bias,
    slopes,
    seed,
    scale,
    left,
    right,
    *rest,
    **named,
) -> int:
    """The scores once more, and a product each for the gradients of weights, values, queries and keys."""
    pairs = _pairs(query, key, query_offsets, key_offsets, left, right)
    return 2 * pairs * query.shape[1] * (3 * query.shape[2] + 2 * value.shape[2])
