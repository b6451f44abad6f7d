# SPDX-License-Identifier: Apache-2.0
"""Gives the results of torch's functions what is known about their rows.

Every result of a torch function that rows of a LoDTensor went into is a LoDTensor or a DerivedTensor, except scalars made by
reductions, what has another layout, and the results of functions of the kind "plain".
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..dynamo import compiling
from ..ops.composed import COMPOSITIONS
from . import rules
from .provenance import EACH, At, Provenance, is_whole, provenance_of, provenances_of, tracked
from .rules import known, name_of

_NONE: dict = {}
#: LoDTensor and DerivedTensor, which enter themselves.
CLASSES: list[Any] = [None, None]


def _named(names: str) -> dict[Callable, bool]:
    spaces = (torch, Tensor, torch.nn.functional)
    return {f: True for n in names.split() for s in spaces if callable(f := getattr(s, n, None))}


def _of_kinds(*kinds: str) -> dict[Callable, bool]:
    return {f: True for f, k in rules.KINDS.items() if k in kinds and known(f)}


#: The results of these know nothing of rows.
PLAIN = _of_kinds("plain")
PLAIN.pop(torch.sparse_coo_tensor, None)
# Compiled graphs call these on what they are given, which may be a LoDTensor where it was traced as a plain tensor.
PLAIN |= dict.fromkeys(
    (torch.ops.aten.alias.default, *(getattr(torch.ops.torch_lod, name).default for name in COMPOSITIONS)), True
)
#: Neither do these where the rows were lost: they take a shape.
_FRESH = _named("zeros_like ones_like empty_like full_like rand_like randn_like randint_like equal allclose")
#: Here the second operand only has a shape or a type.
_SHAPE_ONLY = _named("expand_as view_as reshape_as type_as to")
#: The names of all others, in which rows are lost unless a rule knows better.
_LOST_IN = {f: name_of(f) for f in rules.KINDS if known(f) and not (f in PLAIN or f in _FRESH or f in _SHAPE_ONLY)}
#: A single element that these give is a selection; that of another function is a reduction, which ends the provenance.
_SELECTS = _of_kinds("move", "shape")
_REDUCES = _of_kinds("reduce")


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


def attach(result, p: Provenance | None, func, args):
    """The result of a function with a provenance, or None if no rule gave one; `args` with the values of keywords."""
    if type(result) is not Tensor:
        return _attached_to_each(result, p, func, args) if isinstance(result, (tuple, list)) else result
    if compiling() or torch.compiler._is_compiling_flag:  # compiled code wraps the result instead
        return _attached(result, p, func, args)
    for a in args:
        if a is result:
            return a  # unchanged: it belongs to the caller
    if p is None or p.dim != 0 or p.part is not None or not (shape := result.shape) or shape[0] != p.lod._rows:
        return _attached(result, p, func, args)
    result.__class__ = CLASSES[0]
    result._provenance = Provenance(p.lod, 0) if p.call else p  # type: ignore[attr-defined]
    return result


def _attached_to_each(results, p: Provenance | None, func, args):
    """Of several results; those that are the caller's stay as they are."""
    if p is not None and p.part is EACH:
        return _pieces(results, p, args)
    own = {id(t) for a in args if isinstance(a, (tuple, list)) for t in a}
    made = [t if id(t) in own else attach(t, p, func, args) for t in results]
    return tuple(made) if type(results) is tuple else type(results)(made)


def _attached(result: Tensor, p: Provenance | None, func, args) -> Tensor:
    if p is not None and p.dim is not None:
        dim = p.dim
        if type(dim) is At:
            dim = dim.dim if result.dim() == dim.rank else dim.dim - dim.gone
        count = p.lod.rows if p.part is None else p.part[1] - p.part[0]
        if dim < result.dim() and result.shape[dim] == count:
            named = dim is p.dim and (p.call or is_whole(p))
            return become(result, p if named else Provenance(p.lod, dim, p.call or name_of(func), p.part))
        p = None
    if p is None:
        if result.dim() == 0 and not _SELECTS.get(func) and _is_reduction(result, func, args):
            return result
        if result.layout == torch.strided and not result.is_nested:
            p = _lost(func, args)
    return result if p is None else become(result, p)


def _is_reduction(scalar: Tensor, func, args) -> bool:
    """Whether it was made of tensors with dims, and is a number like any other: not in vmap, where it is one for each sample,
    and not where a dim of what lost its rows is reduced (`x.mean(0).mean(0)`)."""
    operands = tracked(args, _NONE)
    if not any(t.dim() for t in operands):
        return False
    if _REDUCES.get(func) and any(isinstance(a, (int, tuple, list)) and not isinstance(a, bool) for a in args):
        if any(t._provenance.dim is None for t in operands):  # type: ignore[attr-defined]
            return False
    return compiling() or not torch._C._functorch.is_batchedtensor(scalar)


def _lost(func, args) -> Provenance | None:
    """The provenance of a result whose rows are lost: that of the operand that lost them, if one did."""
    if PLAIN.get(func) or _FRESH.get(func) or (_SHAPE_ONLY.get(func) and provenance_of(args[0]) is None):
        return None
    operands = provenances_of(args, _NONE)
    if not operands:
        return None
    lost = [p for p in operands if p.dim is None]
    part = _made_of(operands)
    if lost:
        return lost[0]._replace(part=part)
    return Provenance(operands[0].lod, None, _LOST_IN.get(func) or name_of(func), part)


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
