# SPDX-License-Identifier: Apache-2.0
"""Modules and functions of torch that compare numbers of dims before they call any function along rows, or whose function is right
by itself and not what the module is for: what they say of rows."""

import sys
from typing import Any

import torch
import torch.nn.attention._utils
from torch import nn

from ..errors import LoDTypeError, LoDValueError
from ..patches import instead
from ..tensor.lod_tensor import LoDTensor
from .layouts import structured


@instead(nn.RNNCell.forward, nn.LSTMCell.forward, nn.GRUCell.forward)
def cell(input, **others):
    if len(input.shape) > 2:
        raise LoDValueError(
            f"expected rows (rows, features), got {tuple(input.shape)}; a cell takes all rows in one step, without time: "
            "tl.scan(cell, x, state) runs along the sequences, and so does tl.nn.LSTM"
        )
    return NotImplemented


@instead(nn.Transformer.forward)
def transformer(self, src, tgt, **others):
    at = 0 if self.batch_first else 1
    if len(src.shape) == 3 == len(tgt.shape) and src.shape[at] != tgt.shape[at]:
        raise LoDValueError(
            f"expected src and tgt of one batch, got {tuple(src.shape)} and {tuple(tgt.shape)}; give src and tgt as they are, "
            "(rows, features), without a dim for the batch"
        )
    return NotImplemented


@instead(nn.ConstantPad1d.forward, call="ConstantPad1d")
def pad(self, input, **others):
    """What nn.ConstantPad1d and nn.ZeroPad1d pad is positions, which torch has at the last dim, and not features."""
    if isinstance(input, LoDTensor) and len(input.shape) == len(self.padding) == 2 and any(self.padding):
        raise LoDTypeError(
            "expected rows of several dims or rows at the last dim, got a LoDTensor of rows (rows, features), whose last dim "
            "holds the features; pad the positions of every sequence: F.pad(x.t(), (before, after)).t(); the features: "
            "F.pad(x, (before, after))"
        )
    return NotImplemented


@instead(torch.nn.attention._utils._validate_sdpa_input, call="flex_attention")
def flex_attention(query, key, value, **others):
    rows = next((t for t in (query, key, value) if structured(t)), None)
    if rows is None:  # a bias
        return NotImplemented
    raise LoDTypeError(
        f"expected plain tensors (batch, heads, length, width), got a {type(rows).__name__}: queries would attend to the keys of "
        "all sequences; tl.sequence_attention(q, k, v) takes rows (rows, heads, width), with causal=, window=, bias= and alibi=; "
        "plain tensors (1, heads, rows, width) take block_mask=x.lod.block_mask()"
    )


#: torch.ao, which is to leave torch.
_quantized: Any = sys.modules.get("torch.ao.nn.quantized.dynamic.modules.rnn")

if _quantized is not None:

    @instead(_quantized.RNNBase.check_input)
    def quantized(input, **others):
        raise LoDTypeError(
            f"expected a padded batch or a PackedSequence, which quantized layers take, got a {type(input).__name__}; pass "
            "x.to_packed_sequence(), and make the output a LoDTensor with tl.from_packed_sequence(output)"
        )
