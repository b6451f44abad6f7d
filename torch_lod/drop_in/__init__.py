# SPDX-License-Identifier: Apache-2.0
"""Torch's own functions and modules on a LoDTensor, each innermost sequence separately: routes of the policy table."""

from . import along, attention, bags, buffers, channels, cuts, lists, losses, packed, recurrent, refused, windows

__all__ = [
    "along",
    "attention",
    "bags",
    "buffers",
    "channels",
    "cuts",
    "lists",
    "losses",
    "packed",
    "recurrent",
    "refused",
    "windows",
]
