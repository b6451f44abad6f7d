# SPDX-License-Identifier: Apache-2.0
"""Torch's own functions and modules on a LoDTensor, every innermost sequence by itself: routes of the policy table."""

from . import bags, recurrent, windows

__all__ = ["bags", "recurrent", "windows"]
