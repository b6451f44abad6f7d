# SPDX-License-Identifier: Apache-2.0
"""Modules for LoDTensors."""

from .attention import MultiheadAttention, RelativePositionBias, TransformerEncoderLayer
from .chain import LinearChainCRF
from .ctc import CTCLoss
from .map import MapSequences
from .mixers import GatedDeltaNet, Mamba2
from .plain import Plain
from .rnn import GRU, LSTM, RNN, DynamicRNN, last_state
from .sequence import AttentionPool, RowConv, SequenceConv, SequenceConv1d, SequencePool, SequenceSoftmax

__all__ = [
    "GRU",
    "LSTM",
    "RNN",
    "AttentionPool",
    "CTCLoss",
    "DynamicRNN",
    "GatedDeltaNet",
    "LinearChainCRF",
    "Mamba2",
    "MapSequences",
    "MultiheadAttention",
    "Plain",
    "RelativePositionBias",
    "RowConv",
    "SequenceConv",
    "SequenceConv1d",
    "SequencePool",
    "SequenceSoftmax",
    "TransformerEncoderLayer",
    "last_state",
]
