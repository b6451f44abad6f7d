# SPDX-License-Identifier: Apache-2.0
"""Errors that modules of torch.nn raise before they call any function of torch, which LoDTensor would see: `__call__` of
these classes explains them where a LoDTensor is among the arguments. Everything else passes as it is."""

from torch import nn

from ..explained import TORCHS, explain


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
