# SPDX-License-Identifier: Apache-2.0
"""Means over the tokens of all ranks and of all steps whose gradients are accumulated."""

import math
from typing import Any

import torch
from torch import Tensor

from .. import ops
from ..dynamo import outside_of_graphs
from ..errors import LoDTypeError, LoDValueError, boundary, shown
from ..sequence.pool import mask_or_weight, rows_that_count
from ..structure.validate import a_float, with_memory
from ..tensor.derived import DerivedTensor
from ..tensor.lod_tensor import LoDTensor, a_lod_tensor
from .processes import Processes

__all__ = ["global_token_count", "global_token_mean"]


@outside_of_graphs
@boundary(rejects=False)
def global_token_mean(
    loss_rows: Tensor,
    *,
    mask: Tensor | None = None,
    weight: Tensor | None = None,
    total: float | None = None,
    group: Any = None,
) -> Tensor:
    """The mean of a loss over the tokens of all ranks, with the gradient that DistributedDataParallel and FSDP need.

    They average gradients over ranks, and a mean of the means of ranks weighs a token by how many others its rank has. With R
    ranks, S_r the sum of the losses of rank r (of w * loss, with weights) and N_r the number of its tokens (or the sum of
    their weights), the result is

        (S_1 + ... + S_R) / N,    N = N_1 + ... + N_R,

    the same on every rank, and its gradient on rank r is that of R * S_r / N: averaged over ranks, the gradient of the mean.

    With gradients accumulated over several batches, N has to count the tokens of all of them, before the first: pass
    `total=global_token_count(batches)`. The sum of the results is then the mean over the whole step.

    Args:
        loss_rows: (rows,), a floating dtype, a LoDTensor or plain; any rank may have none. Rows that `F.cross_entropy` or
            `F.nll_loss` ignored do not count, as in `sequence_loss`.
        mask, weight: as for `sequence_loss`, for a LoDTensor; with plain losses for each row. Weights have no gradient here.
        total: N, above 0 and the same on every rank; None: counted here.
        group: of the ranks whose gradients are averaged; None: all processes.

    Returns:
        a number, a tensor without dims of the dtype of loss_rows; 0 if there are no tokens at all.

    Raises:
        ValueError, TypeError: the same on every rank: for what `sequence_loss` refuses, for totals that differ.
        RuntimeError: as `all_gather`.
    """
    p = Processes(group)
    try:
        if total is not None and not (_is_number(total) and 0 < total < math.inf):
            raise LoDValueError(f"expected total as a number above 0, got {shown(total)}")
        own, count = _sums(loss_rows, mask, weight)
        about = {"sum": float(own.detach()), "count": float(count), "total": None if total is None else float(total)}
    except Exception as error:
        p.failed("global_token_mean", error)
    found, _ = p.agree("global_token_mean", about)
    p.same("the same total, or none,", [str(other["total"]) for other in found])
    tokens = math.fsum(other["count"] for other in found) if total is None else float(total)
    value = sum(other["sum"] for other in found) / tokens if tokens else 0.0
    return _Mean.apply(own, value, p.size / tokens if tokens else 0.0).to(loss_rows.dtype)


@outside_of_graphs
@boundary(rejects=False)
def global_token_count(tokens: Any, *, group: Any = None) -> float:
    """The number of tokens of all ranks, the `total` of `global_token_mean`.

    Args:
        tokens: what this rank has: a number, a LoDTensor (its rows), or a list of them, of the batches whose gradients are
            accumulated. Where rows do not count, give the number of those that do: `int((targets != -100).sum())`.

    Returns:
        an int, or a float if any rank gives floats (sums of weights).

    Raises:
        ValueError, TypeError: the same on every rank, for anything else, negative numbers, and NaN.
        RuntimeError: as `all_gather`.
    """
    p = Processes(group)
    try:
        own = sum(_tokens(item) for item in (tokens if isinstance(tokens, (list, tuple)) else [tokens]))
    except Exception as error:
        p.failed("global_token_count", error)
    counts = [other["count"] for other in p.agree("global_token_count", {"count": own})[0]]
    return sum(counts) if all(type(count) is int for count in counts) else math.fsum(counts)


def _tokens(item: Any):
    if isinstance(item, LoDTensor):
        return item.lod.rows
    if not _is_number(item):
        raise LoDTypeError(f"expected tokens as a number, a LoDTensor, or a list of them, got {shown(item)}")
    if not 0 <= item < 2**63:
        raise LoDValueError(f"expected tokens in [0, 2**63), got {shown(item)}")
    return item


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _sums(loss: Any, mask, weight) -> tuple[Tensor, float]:
    """The sum of the losses that count, with gradient, and of their weights."""
    if isinstance(loss, DerivedTensor):
        a_lod_tensor("loss_rows", loss)
    if not isinstance(loss, Tensor):
        raise LoDTypeError(f"expected loss_rows as a LoDTensor or a plain tensor, got {type(loss).__name__}")
    if loss.dim() != 1:
        raise LoDValueError(f"expected loss_rows with one element per row, (rows,), got {tuple(loss.shape)}")
    a_float(loss, "loss_rows")
    with_memory(loss)
    if isinstance(weight, Tensor) and weight.requires_grad:
        raise LoDValueError("expected weight without gradient, got one that requires it; see weight.detach()")
    of_rows = loss if isinstance(loss, LoDTensor) else None
    rows = loss if of_rows is None else of_rows.values()
    kept = None if of_rows is None else rows_that_count(of_rows.lod)
    if mask is not None:
        given = _of_rows("mask", mask, of_rows, rows)
        kept = given if kept is None else kept & given
    exact = torch.promote_types(rows.dtype, torch.float32)  # half types are summed in float32
    rows = rows.to(exact) if kept is None else torch.where(kept, rows, 0).to(exact)
    if weight is None:
        return rows.sum(), rows.numel() if kept is None else int(kept.sum())
    weights = _of_rows("weight", weight, of_rows, rows).to(exact)
    weights = weights if kept is None else torch.where(kept, weights, 0)
    return (rows * weights).sum(), float(weights.sum())


def _of_rows(what: str, given, of_rows: LoDTensor | None, rows: Tensor) -> Tensor:
    """A mask or weight as one number per row."""
    if of_rows is not None:
        found, k = mask_or_weight(what, given, of_rows.lod, "token")
        if k < of_rows.lod.depth:
            found = ops.segment_broadcast(found, of_rows.lod.row_offsets_at(k, found.device), rows.shape[0])
        return found
    floating = what == "weight"
    if not isinstance(given, Tensor) or not (given.is_floating_point() if floating else given.dtype == torch.bool):
        raise LoDTypeError(
            f"expected {what} as a tensor of {'a floating dtype' if floating else 'bool'}, got {shown(given)}"
        )
    with_memory(given)
    if isinstance(given, (LoDTensor, DerivedTensor)) or given.shape != rows.shape:
        raise LoDValueError(f"expected {what} as a plain tensor of shape {tuple(rows.shape)}, got {shown(given)}")
    return given


class _Mean(torch.autograd.Function):
    """A value that is known, with the gradient of `own * factor`."""

    @staticmethod
    def forward(ctx, own, value, factor):
        ctx.factor = factor
        return torch.full_like(own, value)

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.factor, None, None
