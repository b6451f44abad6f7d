# SPDX-License-Identifier: Apache-2.0
"""Hugging Face transformers on LoDTensors: their models on packed rows, their Trainer, their tokenizers."""

from .collator import Collator
from .leaks import PackingReport as PackingReport
from .leaks import check_packing
from .model import use
from .tokens import Tokens, from_encoding, labels_of_tokens

__all__ = ["Collator", "Tokens", "check_packing", "from_encoding", "labels_of_tokens", "use"]
