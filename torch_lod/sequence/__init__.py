# SPDX-License-Identifier: Apache-2.0
"""Operators on LoDTensors, one file per family: its `__all__` is the list of them that everything else is made of."""

from . import attention, loop, pool, rearrange, windows, within
from .attention import *
from .loop import *
from .pool import *
from .rearrange import *
from .windows import *
from .within import *

__all__ = []
__all__ += attention.__all__
__all__ += loop.__all__
__all__ += pool.__all__
__all__ += rearrange.__all__
__all__ += windows.__all__
__all__ += within.__all__
