# SPDX-License-Identifier: Apache-2.0
"""Operators on LoDTensors, one file per family: its `__all__` is the list of them that everything else is made of."""

from typing import TYPE_CHECKING

from . import attention, loop, pool, rearrange, windows, within
from .attention import *
from .loop import *
from .pool import *
from .rearrange import *
from .windows import *
from .within import *

if not TYPE_CHECKING:  # type checkers follow the imports; they cannot read this, and would take the names for private
    __all__ = [name for family in (attention, loop, pool, rearrange, windows, within) for name in family.__all__]
