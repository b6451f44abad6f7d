# SPDX-License-Identifier: Apache-2.0
"""LoDTensors between the processes of torch.distributed, and losses averaged over all of them."""

from .collectives import all_gather, all_to_all, broadcast, gather, scatter
from .loss import global_token_count, global_token_mean
from .processes import watch

__all__ = [
    "all_gather",
    "all_to_all",
    "broadcast",
    "gather",
    "global_token_count",
    "global_token_mean",
    "scatter",
    "watch",
]
