# SPDX-License-Identifier: Apache-2.0
"""Every operator as a composition of torch operators: simple rather than fast.

They stand in when the compiled operators are missing and on devices without kernels, carry torch.func transforms and
gradients of gradients of the recurrences, and are a second opinion in the tests.
"""

from . import attention, conv, recurrence, rows, scan, segment
from .register import register
from .table import COMPOSITIONS, OPAQUE

__all__ = ["COMPOSITIONS", "OPAQUE", "attention", "conv", "recurrence", "register", "rows", "scan", "segment"]
