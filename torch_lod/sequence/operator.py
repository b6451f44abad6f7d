# SPDX-License-Identifier: Apache-2.0
"""The one way to write a sequence operator.

    @sequence_operator
    def sequence_softmax(x: LoDTensor, *, level: int | str = -1) -> LoDTensor:
        s = along(x, level)
        return s.keep(ops.segment_softmax(s.rows, s.offsets))

`sequence_operator` makes errors name the call and turns the table of torch's functions off: inside, a LoDTensor behaves like a plain
tensor of its rows and costs no more. `along` finds the level. `s.rows` and `s.offsets` are what the operators of
torch_lod.ops take; `s.spread` broadcasts a row per sequence to the rows. `s.keep`, `s.pool` and `s.pick` wrap the
result; if rows move in another way, `tensor.moved` does it.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .. import ops
from ..dynamo import compiling
from ..errors import LoDValueError, P, R, boundary
from ..structure.lod import LoD
from ..structure.validate import sums, whole_dtype, with_memory
from ..tensor.lod_tensor import LoDTensor, a_lod_tensor, made
from ..tensor.picking import elements
from ..tensor.provenance import Provenance


def sequence_operator(function: Callable[P, R]) -> Callable[P, R]:
    """`errors.public` for a function that runs without the table of torch's functions; not for one that calls the user's
    functions."""
    return boundary(dispatch=False)(function)


class Along:
    """The sequences of one level of a LoDTensor."""

    __slots__ = ("k", "lod", "origin", "rows")

    def __init__(self, x: Any, level: int | str = -1, what: str = "x"):
        if type(x) is not LoDTensor:
            a_lod_tensor(what, x)
        #: The provenance of x; None where some of its rows do not count.
        self.origin: Provenance | None = x._provenance
        lod = x._provenance.lod
        depth = len(lod.levels)
        self.lod: LoD = lod
        if lod.counted:
            self.lod, self.origin = lod.mingled(), None
        #: The level's number, from 0.
        self.k: int = level % depth if type(level) is int and -depth <= level < depth else lod.level(level)
        #: The values, for the operators of torch_lod.ops. In eager code x itself, which saves a node of the graph.
        self.rows: Tensor = x.values() if compiling() else x

    @property
    def offsets(self) -> Tensor:
        """Row offsets of the sequences, on the device of the rows."""
        return self.lod.row_offsets_at(self.k, None if self.rows.is_cpu else self.rows.device)

    @property
    def innermost(self) -> bool:
        return self.k + 1 == len(self.lod.levels)

    def spread(self, pooled: Tensor) -> Tensor:
        """Broadcasts a row per sequence to all rows of the sequence."""
        return ops.segment_broadcast(pooled, self.offsets, self.rows.shape[0])

    def keep(self, rows: Tensor) -> LoDTensor:
        """Wraps a result with a row per row of x. No other object may hold `rows`."""
        return made(rows, self.lod, self.origin)

    def pool(self, rows: Tensor) -> Any:
        """Wraps a result with a row per sequence: with the levels above, plain if there are none."""
        return made(rows, self.lod.outer_at(self.k)) if self.k else rows

    def pick(self, index: Tensor, lengths: Tensor) -> LoDTensor:
        """New sequences of this level, of the given lengths, that consist of the elements at `index`."""
        return made(*elements(self.rows, self.lod, self.k, index, sums(lengths)))


along = Along


def level_of(x, level: int | str, what: str = "x") -> int:
    """The level's number; TypeError for a plain tensor, which has none."""
    return a_lod_tensor(what, x).lod.level(level)


def autocast_dtype(device: torch.device) -> torch.dtype | None:
    """The dtype of products under autocast; None where it is off, and on devices that have none, such as meta."""
    kind = device.type
    if not torch.amp.is_autocast_available(kind) or not torch.is_autocast_enabled(kind):
        return None
    return torch.get_autocast_dtype(kind)


def in_autocast(t: Tensor) -> Tensor:
    """A factor of a product, in the dtype that autocast uses for products."""
    if not compiling() and not torch._C._is_any_autocast_enabled():
        return t
    dtype = autocast_dtype(t.device) if t.is_floating_point() and t.dtype != torch.float64 else None
    return t if dtype is None else t.to(dtype)


def as_autocast(t: Tensor, x: Tensor) -> Tensor:
    """A tensor that is combined with x, in the dtype of x if autocast is on: then the dtypes may differ."""
    if t.dtype != x.dtype and t.is_floating_point() and autocast_dtype(x.device) is not None:
        return t.to(x.dtype)
    return t


def on_rows(t: Tensor, like: Tensor) -> Tensor:
    """A vector over rows, shaped to be combined with the rows of `like`."""
    return t.view(-1, *[1] * (like.dim() - 1))


def one_column(what: str, x: LoDTensor) -> Tensor:
    """Whole numbers, one per row: (rows,) or (rows, 1)."""
    values = a_lod_tensor(what, x).values()
    with_memory(values)
    whole_dtype(what, values)
    if values.dim() > 2 or (values.dim() == 2 and values.shape[1] != 1):
        raise LoDValueError(f"expected {what} of shape (rows,) or (rows, 1), got {tuple(values.shape)}")
    return values.reshape(-1)
