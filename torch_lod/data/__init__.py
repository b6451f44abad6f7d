# SPDX-License-Identifier: Apache-2.0
"""From files to batches: files, other layouts, datasets, samplers, collate."""

from .arrow import from_arrow, from_awkward, to_arrow, to_awkward
from .batch import batch as collate
from .convert import from_keys, from_mask, from_sparse, to_numpy, to_sparse
from .dataset import LoDDataset
from .file import load, save
from .frames import from_frame, lookup
from .items import Piece
from .position_ids import from_position_ids
from .record import Record
from .samplers import BucketSampler, PackingSampler, TokenBudgetSampler
from .stream import TokenBudgetStream

__all__ = [
    "BucketSampler",
    "LoDDataset",
    "PackingSampler",
    "Piece",
    "Record",
    "TokenBudgetSampler",
    "TokenBudgetStream",
    "collate",
    "from_arrow",
    "from_awkward",
    "from_frame",
    "from_keys",
    "from_mask",
    "from_position_ids",
    "from_sparse",
    "load",
    "lookup",
    "save",
    "to_arrow",
    "to_awkward",
    "to_numpy",
    "to_sparse",
]


def __dir__() -> list[str]:
    return sorted([*__all__, *(name for name in globals() if name[:2] == "__")])
