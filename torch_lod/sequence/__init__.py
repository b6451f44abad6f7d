# SPDX-License-Identifier: Apache-2.0
"""Operators on LoDTensors, one file per family. A file's `__all__` lists its operators; all other lists use it."""

from typing import TYPE_CHECKING

from . import (
    attention,
    beam,
    cache,
    ctc,
    edit,
    gather,
    levels,
    linear,
    loop,
    map,
    order,
    pairs,
    points,
    pool,
    products,
    rearrange,
    tags,
    windows,
    within,
)
from .attention import *
from .beam import *
from .cache import *
from .ctc import *
from .edit import *
from .gather import *
from .levels import *
from .linear import *
from .loop import *
from .map import *
from .order import *
from .pairs import *
from .points import *
from .pool import *
from .products import *
from .rearrange import *
from .tags import *
from .windows import *
from .within import *

if not TYPE_CHECKING:  # type checkers cannot read this and would treat the names as private
    _families = (
        attention,
        beam,
        cache,
        ctc,
        edit,
        gather,
        levels,
        linear,
        loop,
        map,
        order,
        pairs,
        points,
        pool,
        products,
        rearrange,
        tags,
        windows,
        within,
    )
    __all__ = [name for family in _families for name in family.__all__]
