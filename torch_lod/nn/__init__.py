# SPDX-License-Identifier: Apache-2.0
"""Modules for LoDTensors."""

from .rnn import GRU, LSTM, last_state

__all__ = ["GRU", "LSTM", "last_state"]
