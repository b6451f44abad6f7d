# SPDX-License-Identifier: Apache-2.0
"""Functions along the rows that give a row for each row, in the layouts of a batch of one: (1, rows, width), (1, channels, rows).
There the dim of the rows is the length, so they run along every innermost sequence, as convolutions and recurrences do.

Of a LoDTensor, whose rows are dim 0, which may be the batch as well, they are refused.
"""

import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .. import ops
from ..errors import LoDValueError, named
from ..sequence.operator import Along, along, on_rows
from ..sequence.pool import gathered, sortable
from ..sequence.rearrange import sequence_reverse
from ..sequence.within import (
    sequence_cumprod,
    sequence_cumsum,
    sequence_log_softmax,
    sequence_logcumsumexp,
    sequence_softmax,
)
from ..structure.validate import as_int
from ..tensor.derived import DerivedTensor, rows_at
from ..tensor.lod_tensor import LoDTensor
from ..tensor.provenance import placed, provenance_of
from ..tensor.table import name_of
from .reductions import sampled
from .refusals import ALONG, NO_SEQUENCES, OUT, refusal
from .row import enter
from .signature import Signature, along_dim, refuse, refuse_on_rows, signature, touches_rows


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


_WITHIN = "tl.sequence_{name}(x)"


def _moved(function: Callable) -> dict[str, Any]:
    """What runs for rows at another dim than 0: where they are not along the dim, the rule decides, as it does for LoDTensors."""

    def run_at_dim(*args, **kwargs):
        if "axis" in kwargs:  # as numpy calls it
            kwargs["dim"] = kwargs.pop("axis")
        return function(*args, **kwargs)

    return {"run_at_dim": functools.wraps(function)(run_at_dim), "takes_lost": True}


# -- softmax


def _normalised(function: Callable, input, dim, dtype):
    rows_dim = _rows_along(input, dim)
    if rows_dim is None or not (input.is_floating_point() if dtype is None else dtype.is_floating_point):
        return NotImplemented
    return _back(function(_turned(input, rows_dim, dtype)), input, rows_dim)


def _softmax(name: str, function: Callable) -> None:
    def softmax(input, dim=None, dtype=None):
        return _normalised(function, input, dim, dtype)

    def softmax_of_nn(input, dim=None, _stacklevel=3, dtype=None):
        return _normalised(function, input, dim, dtype)

    rule = refuse_on_rows("input, dim", _SOFTMAX)
    enter("refuse", rule, name, (torch, Tensor, torch.special), along=_WITHIN, **_moved(softmax))
    enter("refuse", rule, name, (F,), along=_WITHIN, **_moved(softmax_of_nn))


def softmin(input, dim=None, _stacklevel=3, dtype=None):
    return _normalised(lambda x: sequence_softmax(LoDTensor(-x.values(), x.lod)), input, dim, dtype)


_SOFTMAX = f"tl.sequence_softmax runs within sequences; {OUT}"
_softmax("softmax", sequence_softmax)
_softmax("log_softmax", sequence_log_softmax)
enter("refuse", refuse_on_rows("input, dim", _SOFTMAX), "softmin", **_moved(softmin))
enter("refuse", refuse_on_rows("logits, tau, hard, eps, dim=-1", _SOFTMAX), "gumbel_softmax")

# -- what is cumulative


def _cumulative(name: str, function: Callable) -> None:
    def cumulative(input, dim=None, *, dtype=None):
        rows_dim = _rows_along(input, dim)
        if rows_dim is None:
            return NotImplemented
        done = function(_turned(input, rows_dim, dtype))
        return _back(done if dtype is None else LoDTensor(done.values().to(dtype), done.lod), input, rows_dim)

    _enter_cumulative(name, cumulative)


def _enter_cumulative(name: str, run: Callable) -> None:
    rule = refuse_on_rows("input, dim", f"tl.sequence_{name} runs within sequences; {OUT}")
    enter("refuse", rule, name, along=_WITHIN, **_moved(run))
    enter("refuse", rule, f"{name}_")


def _within(s: Along, index: Tensor) -> Tensor:
    """Indices of rows as positions in their sequences."""
    return index - on_rows(s.spread(s.offsets[:-1]), index)


def _extreme_so_far(name: str) -> None:
    kind, returned = name.removeprefix("cum"), getattr(torch.return_types, name)

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

    _enter_cumulative(name, extreme_so_far)


_cumulative("cumsum", sequence_cumsum)
_cumulative("cumprod", sequence_cumprod)
_cumulative("logcumsumexp", sequence_logcumsumexp)
_extreme_so_far("cummax")
_extreme_so_far("cummin")

_DIFF = Signature("input, n, dim, prepend=None, append=None")


def difference(rule):
    """`rule` of torch.diff; rows of the batch before or after those of a LoDTensor belong to one sequence only."""

    def rule_difference(func, args, kwargs):
        input, _, _, *around = _DIFF.bind(args, kwargs)
        own = placed(input)
        for t in around:
            p = provenance_of(t)
            if own is not None and own.part is None and p is not None and p.part is not None:
                raise named(
                    LoDValueError(f"expected rows as input alone, got rows {p.part[0]} to {p.part[1]} {_AROUND}"),
                    name_of(func),
                )
        return rule(func, args, kwargs)

    return rule_difference


DIFFERENCE = "with rows x at dim 0, x - tl.sequence_shift(x, 1) is the difference within sequences"

_AROUND = (
    f"of the whole batch as prepend or append, which are those of one sequence; {DIFFERENCE}. Models of transformers look in this way for packed sequences where they get position_ids "
    "alone, and do not with attention_mask=torch.ones_like(ids)"
)

_BEFORE_AND_AFTER = "input: broadcast, n, dim=-1, prepend: broadcast=None, append: broadcast=None"
enter(
    "refuse",
    difference(refuse_on_rows(_BEFORE_AND_AFTER, f"{DIFFERENCE}; {OUT}")),
    "diff",
    along="x - tl.sequence_shift(x, 1)",
)
_POINTS = "y: broadcast, x: broadcast, *, dim=-1"
enter("refuse", sampled(refuse_on_rows(_POINTS, NO_SEQUENCES)), "cumulative_trapezoid")
enter("refuse", refuse_on_rows("input, *, dim", NO_SEQUENCES), "gradient")

# -- order


def _sorted(input, dim, descending) -> tuple[Along, Tensor, int] | None:
    rows_dim = _rows_along(input, dim)
    if rows_dim is None or input.is_complex():
        return None
    s = along(_turned(input, rows_dim))
    return s, ops.segment_order(sortable(s.rows), s.offsets, bool(descending)), rows_dim


def sort(input, dim=-1, descending=False, *, stable=False):
    """Equal rows stay in their order. The indices are positions in the sequence."""
    done = _sorted(input, dim, descending)
    if done is None:
        return NotImplemented
    s, index, rows_dim = done
    both = s.keep(gathered(s.rows, index)), s.keep(_within(s, index))
    return torch.return_types.sort(tuple([_back(x, input, rows_dim) for x in both]))


def argsort(input, dim=-1, descending=False, *, stable=False):
    done = _sorted(input, dim, descending)
    if done is None:
        return NotImplemented
    s, index, rows_dim = done
    return _back(s.keep(_within(s, index)), input, rows_dim)


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


def fliplr(input):
    return flip(input, 1)


@signature("input, *dims")
def flipped_dims(func, input, rank, dims, rows):
    if touches_rows(dims, rank, rows):
        raise refusal(
            func, f"{along_dim(input) if rows else ALONG}; tl.sequence_reverse reverses every sequence; {OUT}"
        )
    return True


@signature("input")
def flipped_features(func, rows):
    if rows == 1:
        raise refusal(
            func, f"its dim 1 has the rows of all sequences; tl.sequence_reverse reverses every sequence; {OUT}"
        )
    return True


_SORTED = refuse_on_rows("input, dim=-1", f"tl.sequence_sort sorts within sequences; {OUT}")
enter("refuse", _SORTED, "sort", along=_WITHIN, **_moved(sort))
enter("refuse", _SORTED, "argsort", **_moved(argsort))
enter("refuse", flipped_dims, "flip", along="tl.sequence_reverse(x)", **_moved(flip))
enter("keep", flipped_features, "fliplr", **_moved(fliplr))
enter(
    "refuse",
    refuse_on_rows("input, shifts, dim", f"tl.sequence_roll rolls every sequence, tl.sequence_shift fills; {OUT}"),
    "roll",
    along="tl.sequence_roll(x, n)",
)
enter("refuse", refuse_on_rows("input, k, dim=(0, 1)", NO_SEQUENCES), "rot90")
enter("refuse", refuse(f"tl.sequence_reverse reverses every sequence; {OUT}"), "flipud __reversed__")
enter("refuse", refuse(f"tl.sequence_sort sorts within sequences; {OUT}"), "msort")

# -- what only rows at another dim than the function's keep

NORM = "with rows x at dim 0, x / tl.sequence_expand_as(tl.sequence_pool(x * x, 'sum').sqrt(), x) has norm 1 in every sequence"


@signature("input, p, dim")
def renorm(func, rank, dim, rows):
    if not touches_rows(dim, rank, rows):
        raise refusal(func, f"along another dim than that of the rows its norms run over rows; {OUT}")
    return True


@signature("input, s, dim")
def fft(func, rank, s, dim, rows):
    """Over several dims; without dims the last len(s) dims."""
    if touches_rows(tuple(range(-len(s), 0)) if dim is None and s else dim, rank, rows):
        raise refusal(func, f"{ALONG}; {NO_SEQUENCES}")
    return True


DIAGONAL = "its diagonal would run through the rows of all sequences"


@signature("input, diagonal")
def triangle(func, rank, rows):
    if rank < 3 + rows:
        raise refusal(func, f"{DIAGONAL}; {OUT}")
    return True


enter("refuse", refuse_on_rows("input, dim=-1", NO_SEQUENCES), "glu")
enter("refuse", renorm, "renorm renorm_")
enter("refuse", refuse_on_rows("input, p, dim=1", f"{NORM}; {OUT}"), "normalize", along="tl.sequence_normalize(x)")
enter("refuse", triangle, "tril triu tril_ triu_")
enter("refuse", refuse(f"its diagonal would run through the rows of all sequences; {OUT}"), "fill_diagonal_")
enter("refuse", refuse_on_rows("input, n, dim=-1", NO_SEQUENCES), "fft ifft rfft irfft hfft ihfft", (torch.fft,))
enter(
    "refuse",
    refuse_on_rows("input, s, dim=(-2, -1)", NO_SEQUENCES),
    "fft2 ifft2 rfft2 irfft2 hfft2 ihfft2",
    (torch.fft,),
)
enter("refuse", fft, "fftn ifftn rfftn irfftn hfftn ihfftn", (torch.fft,))
enter("refuse", refuse_on_rows("input, dim", NO_SEQUENCES), "fftshift ifftshift", (torch.fft,))
