# SPDX-License-Identifier: Apache-2.0
"""The composition of attention; those of the other operators are their bodies."""

from ..compositions import COMPOSITIONS as COMPOSITIONS
from . import attention as attention
