# SPDX-License-Identifier: Apache-2.0
"""Every operator as a composition of torch operators: simple rather than fast.

They replace them when the compiled operators are missing and on devices without kernels, carry torch.func transforms and
gradients of gradients of the recurrences, and are a second opinion in the tests.
"""

from . import (
    attention,
    chain,
    conv,
    ctc,
    ctc_beam,
    edit,
    matrix_scan,
    normalize,
    order,
    recurrence,
    rows,
    scan,
    segment,
)
from .register import beside_kernels, in_place_of_kernels
from .table import COMPOSITIONS, ONLY_COMPOSED, OPAQUE, RECORDED

__all__ = [
    "COMPOSITIONS",
    "ONLY_COMPOSED",
    "OPAQUE",
    "RECORDED",
    "attention",
    "beside_kernels",
    "chain",
    "conv",
    "ctc",
    "ctc_beam",
    "edit",
    "in_place_of_kernels",
    "matrix_scan",
    "normalize",
    "order",
    "recurrence",
    "rows",
    "scan",
    "segment",
]
