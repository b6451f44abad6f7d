# SPDX-License-Identifier: Apache-2.0
"""From files to batches: collate, samplers, streams."""

from ..collate import batch as collate
from .items import Piece
from .samplers import BucketSampler, PackingSampler, TokenBudgetSampler
from .stream import TokenBudgetStream

__all__ = ["BucketSampler", "PackingSampler", "Piece", "TokenBudgetSampler", "TokenBudgetStream", "collate"]
