# SPDX-License-Identifier: Apache-2.0
"""Reductions over dims, or parts of dims."""

import torch
from torch import Tensor

from ..tensor.provenance import provenance_of
from .operands import operands
from .placement import first, join
from .refusals import POOL
from .row import enter
from .signature import Signature, at_other_dims, reduced, signature, touches_rows, without
from .views import expand, ranked


@signature("input, dim")
def _extreme_along(func, input, rank, dim, rows):
    if touches_rows(dim, rank, rows):
        return reduced(func, input, rank, dim)
    return without(dim, rank, rows) if rows else True


def extreme(func, args, kwargs):
    """max and min compare two tensors, or reduce over a dim, which may be given as the second argument."""
    other = args[1] if len(args) > 1 else kwargs.get("other")
    if isinstance(other, Tensor):
        return join(func, (args[0] if args else first(args, kwargs), other), {})
    return _extreme_along(func, args, kwargs)


_POINTS = Signature("y, x")


def sampled(rule):
    """`rule` for numbers at the points x: a single row of them lies along the dim of the integral."""

    def rule_sampled(func, args, kwargs):
        y, x = _POINTS.bind(args, kwargs)
        if isinstance(y, Tensor) and isinstance(x, Tensor) and x.dim() == 1 != y.dim():
            if provenance_of(x) is not None:
                return None
            args, kwargs = (y,), {key: value for key, value in kwargs.items() if key == "dim"}
        return rule(func, args, kwargs)

    return rule_sampled


@signature("input, q, dim")
def quantile(func, input, rank, q, dim, rows):
    """Several quantiles become dim 0 of the result."""
    if isinstance(q, Tensor) and q.dim():
        return False
    if touches_rows(dim, rank, rows):
        return reduced(func, input, rank, dim)
    return without(dim, rank, rows) if rows else True


@signature("v, pow, dim=0")
def norm_except_dim(func, dim):
    """One norm for each index of a dim; dim -1: one norm of everything."""
    return dim == 0


_REDUCED = at_other_dims("input, dim")
_POOL = 'tl.sequence_pool(x, "{name}")'
enter("reduce", _REDUCED, "sum mean prod std var logsumexp", instead=POOL, along=_POOL)
enter("reduce", _REDUCED, "all any", along=_POOL)
enter("reduce", _REDUCED, "amax", instead=POOL, along='tl.sequence_pool(x, "max")')
enter("reduce", _REDUCED, "amin", instead=POOL, along='tl.sequence_pool(x, "min")')
enter("reduce", _REDUCED, "median", instead=POOL, along=_POOL)
enter("reduce", _REDUCED, "nanmedian", along='tl.sequence_pool(x, "median")')
enter("reduce", _REDUCED, "nansum nanmean std_mean var_mean", instead=POOL)
enter("reduce", _REDUCED, "argmax", along="tl.sequence_argmax(x)")
enter("reduce", _REDUCED, "aminmax argmin count_nonzero hash_tensor frobenius_norm nuclear_norm")
enter("reduce", at_other_dims("input, p, dim"), "norm", instead=POOL)
enter("reduce", at_other_dims("input, p, dim"), "native_norm")
enter("reduce", at_other_dims("input, ord, dim"), "norm vector_norm", (torch.linalg,), instead=POOL)
enter("reduce", at_other_dims("input, ord, dim=(-2, -1)"), "matrix_norm", (torch.linalg,))
enter("reduce", at_other_dims("input, k, dim=-1"), "kthvalue")
enter("reduce", at_other_dims("input, k, dim=-1"), "topk", along="tl.sequence_topk(x, k)")
enter("reduce", at_other_dims("input, dim=-1"), "mode")
enter("reduce", quantile, "quantile", along="tl.sequence_quantile(x, q)")
enter("reduce", quantile, "nanquantile")
enter("reduce", extreme, "max min", instead=POOL, along=_POOL)
enter("reduce", expand, "sum_to_size")
enter("reduce", norm_except_dim, "norm_except_dim", (torch,))
enter("reduce", sampled(at_other_dims("y: broadcast, x: broadcast, *, dim=-1")), "trapezoid trapz", (torch,))
enter(
    "reduce",
    at_other_dims("x: broadcast, y: broadcast, dim=-1"),
    "vecdot",
    (torch.linalg,),
    broadcasts=operands("x, y"),
)
enter("reduce", ranked(2), "multinomial")

enter("reduce", None, "bincount histc histogram histogramdd segment_reduce")  # counts, and rows pooled by lengths
enter("join", at_other_dims("x1: broadcast, x2: broadcast, dim=1"), "cosine_similarity", broadcasts=operands("x1, x2"))
