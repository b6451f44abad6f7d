# SPDX-License-Identifier: Apache-2.0
"""Operators on LoDTensors, one file per family."""

from .pool import sequence_first_step, sequence_last_step, sequence_pool
from .rearrange import sequence_expand, sequence_expand_as, sequence_reverse
from .softmax import sequence_softmax

__all__ = [
    "sequence_expand",
    "sequence_expand_as",
    "sequence_first_step",
    "sequence_last_step",
    "sequence_pool",
    "sequence_reverse",
    "sequence_softmax",
]
