# SPDX-License-Identifier: Apache-2.0
"""Functions along the rows that give a row for each row, in the layouts of a batch of one: (1, rows, width), (1, channels, rows).
There the dim of the rows is the length, so they run along every innermost sequence, as convolutions and recurrences do.

Of a LoDTensor, whose rows are dim 0, which may be the batch as well, they are refused.
"""

import functools
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from .. import ops
from ..sequence.pool import gathered, sortable
from ..sequence.rearrange import sequence_reverse
from ..sequence.within import (
    sequence_cumprod,
    sequence_cumsum,
    sequence_log_softmax,
    sequence_logcumsumexp,
    sequence_softmax,
)
from ..sequence_operator import Along, along, on_rows
from ..structure.validate import as_int
from ..tensor.derived import DerivedTensor, rows_at
from ..tensor.lod_tensor import LoDTensor
from .routes import route


def _rows_along(input, dim) -> int | None:
    """The dim of the rows, if all of them are there, at another dim than 0, and `dim` is that dim."""
    p = input._provenance if isinstance(input, DerivedTensor) else None
    dim = as_int(dim)
    if p is None or not p.dim or p.part is not None or type(dim) is not int or dim % max(input.dim(), 1) != p.dim:
        return None
    return p.dim if -input.dim() <= dim < input.dim() else None


def _turned(input, rows_dim: int, dtype: torch.dtype | None = None) -> LoDTensor:
    """The rows at dim 0."""
    values = input.values().movedim(rows_dim, 0)
    return LoDTensor((values if dtype is None else values.to(dtype)).contiguous(), input.lod)


def _back(x: LoDTensor, input, rows_dim: int) -> Tensor:
    """The rows where they were."""
    return rows_at(x.values().movedim(0, rows_dim), x.lod, rows_dim, input._provenance.call)


def _elsewhere(*funcs: Callable):
    """`route` for rows at another dim than 0: where they are not along the dim, the policy table decides, as it does for
    LoDTensors."""

    def enter(function):
        def elsewhere(*args, **kwargs):
            if "axis" in kwargs:  # as numpy calls it
                kwargs["dim"] = kwargs.pop("axis")
            return function(*args, **kwargs)

        route(*funcs, kind=None, lost=True, elsewhere=functools.wraps(function)(elsewhere))(_by_the_table)
        return function

    return enter


def _by_the_table(*args, **kwargs):
    return NotImplemented


def _normalised(function: Callable, input, dim, dtype):
    rows_dim = _rows_along(input, dim)
    if rows_dim is None or not (input.is_floating_point() if dtype is None else dtype.is_floating_point):
        return NotImplemented
    return _back(function(_turned(input, rows_dim, dtype)), input, rows_dim)


def _softmax(name: str, function: Callable) -> None:
    @_elsewhere(getattr(torch, name), getattr(Tensor, name), getattr(torch.special, name))
    def softmax(input, dim=None, dtype=None):
        return _normalised(function, input, dim, dtype)

    @_elsewhere(getattr(F, name))
    def softmax_of_nn(input, dim=None, _stacklevel=3, dtype=None):
        return _normalised(function, input, dim, dtype)


_softmax("softmax", sequence_softmax)
_softmax("log_softmax", sequence_log_softmax)


@_elsewhere(F.softmin)
def softmin(input, dim=None, _stacklevel=3, dtype=None):
    return _normalised(lambda x: sequence_softmax(LoDTensor(-x.values(), x.lod)), input, dim, dtype)


def _cumulative(name: str, function: Callable) -> None:
    @_elsewhere(getattr(torch, name), getattr(Tensor, name))
    def cumulative(input, dim=None, *, dtype=None):
        rows_dim = _rows_along(input, dim)
        if rows_dim is None:
            return NotImplemented
        done = function(_turned(input, rows_dim, dtype))
        return _back(done if dtype is None else LoDTensor(done.values().to(dtype), done.lod), input, rows_dim)


_cumulative("cumsum", sequence_cumsum)
_cumulative("cumprod", sequence_cumprod)
_cumulative("logcumsumexp", sequence_logcumsumexp)


def _within(s: Along, index: Tensor) -> Tensor:
    """Indices of rows as positions in their sequences."""
    return index - on_rows(s.spread(s.offsets[:-1]), index)


def _extreme_so_far(name: str) -> None:
    kind, returned = name.removeprefix("cum"), getattr(torch.return_types, name)

    @_elsewhere(getattr(torch, name), getattr(Tensor, name))
    def extreme_so_far(input, dim=None):
        """Of equal values the last counts, as torch has it: the gradient goes there."""
        rows_dim = _rows_along(input, dim)
        if rows_dim is None:
            return NotImplemented
        s = along(_turned(input, rows_dim))
        rows = sortable(s.rows)
        here = on_rows(torch.arange(rows.shape[0], device=rows.device), rows).expand(rows.shape)
        so_far, _ = ops.segment_cumulative(rows, s.offsets, kind)
        _, index = ops.segment_cumulative(torch.where((rows == so_far) | rows.isnan(), here, -1), s.offsets, "max")
        both = s.keep(gathered(s.rows, index)), s.keep(_within(s, index))
        return returned(tuple([_back(x, input, rows_dim) for x in both]))


_extreme_so_far("cummax")
_extreme_so_far("cummin")


def _sorted(input, dim, descending) -> tuple[Along, Tensor, int] | None:
    rows_dim = _rows_along(input, dim)
    if rows_dim is None or input.is_complex():
        return None
    s = along(_turned(input, rows_dim))
    return s, ops.segment_order(sortable(s.rows), s.offsets, bool(descending)), rows_dim


@_elsewhere(torch.sort, Tensor.sort)
def sort(input, dim=-1, descending=False, *, stable=False):
    """Equal rows stay in their order. The indices are positions in the sequence."""
    done = _sorted(input, dim, descending)
    if done is None:
        return NotImplemented
    s, index, rows_dim = done
    both = s.keep(gathered(s.rows, index)), s.keep(_within(s, index))
    return torch.return_types.sort(tuple([_back(x, input, rows_dim) for x in both]))


@_elsewhere(torch.argsort, Tensor.argsort)
def argsort(input, dim=-1, descending=False, *, stable=False):
    done = _sorted(input, dim, descending)
    if done is None:
        return NotImplemented
    s, index, rows_dim = done
    return _back(s.keep(_within(s, index)), input, rows_dim)


@_elsewhere(torch.flip, Tensor.flip)
def flip(input, *more, dims=()):
    flipped = dims or (more[0] if len(more) == 1 and isinstance(more[0], (tuple, list)) else more)
    along_rows = [d for d in flipped if _rows_along(input, d) is not None]
    if len(along_rows) != 1:
        return NotImplemented
    rows_dim = along_rows[0] % input.dim()
    others = [d for d in flipped if d is not along_rows[0]]
    reversed_rows = sequence_reverse(_turned(input, rows_dim))
    return rows_at(
        reversed_rows.values().movedim(0, rows_dim).flip(others), reversed_rows.lod, rows_dim, input._provenance.call
    )


@_elsewhere(torch.fliplr, Tensor.fliplr)
def fliplr(input):
    return flip(input, 1)
