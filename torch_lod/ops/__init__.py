# SPDX-License-Identifier: Apache-2.0
"""Operators on plain tensors: values first, then structure, then options. They know neither `LoD` nor `LoDTensor`.

`row_offsets` (int64, one more entry than segments, from 0 to rows) divides the rows of `values` into segments; int32 offsets
are converted at every call. Offsets in host memory are checked on every call; offsets on a GPU are clamped by the kernels, and a
later call raises what was wrong with them (`tl.check_errors`).
"""

from typing import TYPE_CHECKING

from . import attention as _attention
from . import chain, ctc, edit, normalize, order, recurrence, rows, scan, segment
from . import ctc_beam as _ctc_beam
from . import flops as flops
from . import lods as lods
from . import matrix_scan as _matrix_scan
from .attention import *
from .chain import *
from .ctc import *
from .ctc_beam import *
from .edit import *
from .library import COMPILED as COMPILED
from .matrix_scan import *
from .normalize import *
from .order import *
from .recurrence import *
from .rows import *
from .scan import *
from .segment import *

if not TYPE_CHECKING:  # as in torch_lod.sequence
    __all__ = ["COMPILED"]
    _families = (
        _attention,
        chain,
        ctc,
        _ctc_beam,
        edit,
        _matrix_scan,
        normalize,
        order,
        recurrence,
        rows,
        scan,
        segment,
    )
    __all__ += [name for family in _families for name in family.__all__]
