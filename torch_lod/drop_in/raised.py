# SPDX-License-Identifier: Apache-2.0
"""Modules of torch.nn whose functions cannot tell what went wrong. Some raise before they call any function of torch, which
LoDTensor would see: `__call__` of these classes explains the error where a LoDTensor is among the arguments. Others call a
function that is right by itself and not what the module is for. Everything else passes as it is."""

import torch
import torch.ao.nn.quantized.dynamic
from torch import nn

from ..errors import LoDTypeError, named
from ..explained import TORCHS, explain
from ..tensor import LoDTensor
from .routes import structured

PADDED = (
    "expected rows of several dims or rows at the last dim, got a LoDTensor of rows (rows, features), whose last dim holds the "
    "features; pad the positions of every sequence: F.pad(x.t(), (before, after)).t(); the features: F.pad(x, (before, after))"
)
PACKED = (
    "expected a padded batch or a PackedSequence, which quantized layers take, got a {}; pass x.to_packed_sequence(), and make the "
    "output a LoDTensor with tl.from_packed_sequence(output)"
)


def _explained(cls: type) -> None:
    def __call__(self, *args, **kwargs):
        try:
            return nn.Module.__call__(self, *args, **kwargs)
        except TORCHS as error:
            explain(error, cls, args, kwargs)
            raise

    cls.__call__ = __call__  # type: ignore[method-assign, assignment]


for _cls in (nn.RNN, nn.LSTM, nn.GRU, nn.RNNCell, nn.LSTMCell, nn.GRUCell, nn.Transformer):
    _explained(_cls)


def _padded(cls: type) -> None:
    """The module is for positions, which torch has at the last dim; of rows (rows, channels) that is the channels."""

    def __call__(self, *args, **kwargs):
        x = args[0] if args else kwargs.get("input")
        if isinstance(x, LoDTensor) and x.dim() == 2 and any(self.padding):
            raise named(LoDTypeError(PADDED), cls.__name__)
        return nn.Module.__call__(self, *args, **kwargs)

    cls.__call__ = __call__  # type: ignore[method-assign, assignment]


def _packed(cls: type) -> None:
    """Quantized recurrent layers take a batch with a dim for its positions, or a PackedSequence."""

    def __call__(self, *args, **kwargs):
        x = args[0] if args else kwargs.get("input")
        if structured(x):
            raise named(LoDTypeError(PACKED.format(type(x).__name__)), cls.__name__)
        return nn.Module.__call__(self, *args, **kwargs)

    cls.__call__ = __call__  # type: ignore[method-assign, assignment]


_packed(torch.ao.nn.quantized.dynamic.LSTM)
_packed(torch.ao.nn.quantized.dynamic.GRU)
_padded(nn.ConstantPad1d)
_padded(nn.ZeroPad1d)
