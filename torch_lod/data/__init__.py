# SPDX-License-Identifier: Apache-2.0
"""From files to batches: files, datasets, samplers, collate."""

from ..collate import batch as collate
from .dataset import LoDDataset
from .file import load, save
from .items import Piece
from .samplers import BucketSampler, PackingSampler, TokenBudgetSampler
from .stream import TokenBudgetStream

__all__ = [
    "BucketSampler",
    "LoDDataset",
    "PackingSampler",
    "Piece",
    "TokenBudgetSampler",
    "TokenBudgetStream",
    "collate",
    "load",
    "save",
]
