# SPDX-License-Identifier: Apache-2.0
"""Gives the results of torch's functions what is known about their rows.

Every result of a torch function that rows of a LoDTensor went into is a LoDTensor or a DerivedTensor, except scalars made by
reductions, what has another layout, and the results of functions of the kind "plain".
"""

from typing import Any

import torch
from torch import Tensor

from ..dynamo import compiling
from .provenance import EACH, At, Provenance, is_whole, provenance_of, provenances_of, tracked
from .table import Row

_NONE: dict = {}
#: LoDTensor and DerivedTensor, which enter themselves.
CLASSES: list[Any] = [None, None]
#: A single element that functions of these kinds give is a selection; that of another one is a reduction, which ends the provenance.
_SELECTS = ("move", "shape")


def become(fresh: Tensor, p: Provenance) -> Any:
    """Gives a tensor that no other object holds its provenance: the same object, no view and no node of the graph."""
    if p.dim == 0 and p.part is None:
        cls, p = CLASSES[0], (Provenance(p.lod, 0) if p.call else p)
    else:
        cls = CLASSES[1]
    if compiling() or torch.compiler._is_compiling_flag:
        fresh = fresh.as_subclass(cls)
    else:
        fresh.__class__ = cls
    fresh._provenance = p  # type: ignore[attr-defined]
    return fresh


def with_provenance(fresh: Tensor, p: Provenance | None) -> Tensor:
    """`become`; without a provenance the tensor as it is."""
    return fresh if p is None else become(fresh, p)


def attach(result, p: Provenance | None, row: Row, args):
    """The result of the function of a row, with a provenance, or None if no rule gave one; `args` with the values of keywords."""
    if type(result) is not Tensor:
        return _attached_to_each(result, p, row, args) if isinstance(result, (tuple, list)) else result
    if compiling() or torch.compiler._is_compiling_flag:  # compiled code wraps the result instead
        return _attached(result, p, row, args)
    for a in args:
        if a is result:
            return a  # unchanged: it belongs to the caller
    if p is None or p.dim != 0 or p.part is not None or not (shape := result.shape) or shape[0] != p.lod._rows:
        return _attached(result, p, row, args)
    result.__class__ = CLASSES[0]
    result._provenance = Provenance(p.lod, 0) if p.call else p  # type: ignore[attr-defined]
    return result


def _attached_to_each(results, p: Provenance | None, row: Row, args):
    """Of several results; those that are the caller's stay as they are."""
    if p is not None and p.part is EACH:
        return _pieces(results, p, args)
    own = {id(t) for a in args if isinstance(a, (tuple, list)) for t in a}
    made = [t if id(t) in own else attach(t, p, row, args) for t in results]
    return tuple(made) if type(results) is tuple else type(results)(made)


def _attached(result: Tensor, p: Provenance | None, row: Row, args) -> Tensor:
    if p is not None and p.dim is not None:
        dim = p.dim
        if type(dim) is At:
            dim = dim.dim if result.dim() == dim.rank else dim.dim - dim.gone
        count = p.lod.rows if p.part is None else p.part[1] - p.part[0]
        if dim < result.dim() and result.shape[dim] == count:
            named = dim is p.dim and (p.call or is_whole(p))
            return become(result, p if named else Provenance(p.lod, dim, p.call or row.name, p.part))
        p = None
    if p is None:
        if result.dim() == 0 and row.kind not in _SELECTS and _is_reduction(result, row, args):
            return result
        if result.layout == torch.strided and not result.is_nested:
            p = _lost(row, args)
    return result if p is None else become(result, p)


def _is_reduction(scalar: Tensor, row: Row, args) -> bool:
    """Whether it was made of tensors with dims, and is a number like any other: not in vmap, where it is one for each sample,
    and not where a dim of what lost its rows is reduced (`x.mean(0).mean(0)`)."""
    operands = tracked(args, _NONE)
    if not any(t.dim() for t in operands):
        return False
    if row.kind == "reduce" and any(isinstance(a, (int, tuple, list)) and not isinstance(a, bool) for a in args):
        if any(t._provenance.dim is None for t in operands):  # type: ignore[attr-defined]
            return False
    return compiling() or not torch._C._functorch.is_batchedtensor(scalar)


def _lost(row: Row, args) -> Provenance | None:
    """The provenance of a result whose rows are lost: that of the operand that lost them, if one did."""
    if row.plain or (row.shape_only and provenance_of(args[0]) is None):
        return None
    operands = provenances_of(args, _NONE)
    if not operands:
        return None
    lost = [p for p in operands if p.dim is None]
    part = _made_of(operands)
    if lost:
        return lost[0]._replace(part=part)
    return Provenance(operands[0].lod, None, row.name, part)


def _made_of(operands: list[Provenance]) -> tuple[int, int] | None:
    """The first and the end of the rows that went into a result, None if any may have."""
    begins, ends = [], []
    for p in operands:
        if p.part is None or p.lod is not operands[0].lod or (compiling() and p.part != operands[0].part):
            return None
        begins.append(p.part[0])
        ends.append(p.part[1])
    return min(begins), max(ends)


def _pieces(results, p: Provenance, args):
    """Each result has the rows after those of the one before."""
    own = provenances_of(args, _NONE)[0]
    begin, found = own.part[0] if own.part else 0, []
    for t in results:
        end = begin + (1 if p.dim is None else t.shape[p.dim])
        part = None if p.dim is not None and (begin, end) == (0, p.lod.rows) else (begin, end)
        found.append(become(t, Provenance(p.lod, p.dim, own.call or p.call, part)))
        begin = end
    return type(results)(found)
