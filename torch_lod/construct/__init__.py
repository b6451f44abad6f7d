# SPDX-License-Identifier: Apache-2.0
"""Ways to make a LoDTensor, and to join some: a file for each form that rows come in. A file's `__all__` lists its functions."""

from typing import TYPE_CHECKING

from . import declared, filled, ids, joined, lists, offsets, padded
from .declared import *
from .filled import *
from .ids import *
from .joined import *
from .lists import *
from .offsets import *
from .padded import *

if not TYPE_CHECKING:  # as in torch_lod.sequence
    _families = (lists, offsets, padded, ids, declared, joined, filled)
    __all__ = [name for family in _families for name in family.__all__]
