# SPDX-License-Identifier: Apache-2.0
"""The rows that constructors are given, as plain tensors."""

import numpy as np
import torch
from torch import Tensor

from ..dynamo import compiling
from ..errors import LoDTypeError, LoDValueError
from ..structure.validate import a_plain_tensor, unmasked
from ..tensor.derived import DerivedTensor
from ..tensor.lod_tensor import values_of


def tensor_of(what: str, given, hint: str = "") -> Tensor:
    """A plain tensor that shares the memory of a tensor or, where torch can do so, of an array."""
    if isinstance(given, np.ndarray):
        if compiling():  # compiled code sees an array as a tensor
            return torch.as_tensor(given)
        shared = unmasked(what, given).flags.writeable and min(given.strides, default=0) >= 0
        try:
            return torch.from_numpy(given if shared else given.copy())
        except (TypeError, ValueError):
            raise LoDTypeError(f"expected {what} of a dtype that torch has, got an array of {given.dtype}") from None
    if not isinstance(given, Tensor):
        if isinstance(given, (int, float)):
            hint = hint or "; see tl.lod_tensor for lists of numbers"
        hint = of_a_table(given) or hint
        raise LoDTypeError(f"expected {what} as a tensor or an array, got {type(given).__name__}{hint}")
    return values_of(a_plain_tensor(what, given))


def of_a_table(given) -> str:
    """What to do with a table or a column of pandas and its relatives, for the end of a message; "" for anything else."""
    if hasattr(given, "to_numpy") and hasattr(given, "columns"):
        return "; see tl.data.from_frame(df, keys=[...]), and tl.data.from_arrow(df) for columns of lists"
    if hasattr(given, "to_numpy") or hasattr(given, "__arrow_c_stream__") or hasattr(given, "__arrow_c_array__"):
        return "; see .to_numpy(), and tl.data.from_arrow for lists"
    return ""


def rows_to_share(values) -> Tensor:
    """The rows that a constructor shares."""
    rows = tensor_of("values", values, "; see tl.lod_tensor")
    if rows.dim() == 0:
        raise LoDValueError("expected values with rows, at least 1 dimension, got a scalar")
    return rows.values() if isinstance(rows, DerivedTensor) else rows
