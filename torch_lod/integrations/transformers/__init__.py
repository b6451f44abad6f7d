# SPDX-License-Identifier: Apache-2.0
"""Hugging Face transformers on LoDTensors: their models on packed rows, their Trainer, their tokenizers."""

from .model import use

__all__ = ["use"]
