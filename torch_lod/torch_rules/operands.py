# SPDX-License-Identifier: Apache-2.0
"""The LoD that operands share. These rules run for every `x + y`, so they do not bind arguments to names."""

import torch
from torch import Tensor
from torch._ops import HigherOrderOperator, OpOverload, OpOverloadPacket

from ..dynamo import compiling
from ..errors import LoDRuntimeError, named
from ..lod import LoD
from .arguments import Rule, carries, lod_of, misaligned, name_of, refusal, same_lod

#: Torch's names for the first operand.
FIRST = ("input", "self", "query", "y", "x", "a", "x1", "A", "indices", "count", "tensor", "v", "logits")


def first(args, kwargs):
    """The first operand, by position or by name."""
    if args:
        return args[0]
    for name in FIRST:
        if name in kwargs:
            return kwargs[name]
    return None


def keep(func, args, kwargs):
    """The LoD of the first operand."""
    return getattr(args[0] if args else first(args, kwargs), "_lod", None)


def join(func, args, kwargs):
    """The LoD of operands that are broadcast: None if broadcasting aligns rows with another dim."""
    if not kwargs and len(args) <= 2:  # the common calls, without the loop
        a, b = args[0], args[-1]
        lod, other = getattr(a, "_lod", None), getattr(b, "_lod", None)
        if lod is other or (other is None and not isinstance(b, Tensor)):
            return lod if a is b or other is None or a.dim() == b.dim() else None
    lod, plain, rank, most = None, None, 0, 0
    for value in (*args, *kwargs.values()):
        if not isinstance(value, Tensor):
            continue
        dims = value.dim()
        most = max(most, dims)
        other = getattr(value, "_lod", None)
        if other is None:
            if value.layout != torch.strided:
                return None  # the result may be sparse as well
            plain = value
        else:
            if lod is not None:
                if lod is not other:
                    other = same_lod(func, lod, other)
                if dims != rank:
                    return None  # broadcasting aligns rows of one with another dim of the other
            lod, rank = other, dims
    if plain is not None and plain.dim() == rank and lod is not None and not compiling():
        count = plain.shape[0]
        if count != lod.rows and count != 1:
            refuse_per_sequence(func, lod, count)
    return lod if most <= rank else None


def refuse_per_sequence(func, lod: LoD, count: int) -> None:
    """One row per sequence cannot be broadcast to the rows; torch's error would not name the remedy."""
    for k in range(lod.depth):
        if count == lod.num_sequences(k):
            operand = f"tl.LoDTensor(operand, x.lod.outer({k}))" if k else "operand"
            error = LoDRuntimeError(
                f"expected operands whose rows correspond, got {count} rows beside {lod.rows}; if they are a row for each "
                f"sequence of level {k}, lay them over the rows: tl.sequence_expand_as({operand}, x)"
            )
            raise named(error, name_of(func))


def agree(func, operands) -> LoD | None:
    """The LoD of operands, or lists of them, whose rows correspond whatever their dims: for example logits and class
    indices."""
    lod = None
    for value in operands:
        for part in value if isinstance(value, (tuple, list)) else (value,):
            other = lod_of(part)
            if other is not None:
                lod = other if lod is None else same_lod(func, lod, other)
    return lod


def in_place(rule: Rule, always: bool = False) -> Rule:
    """The rule of an in-place function: the first operand keeps its LoD. Raises if `rule` gives None and another
    operand is a LoDTensor; with `always`, whenever `rule` gives None."""

    def rule_in_place(func, args, kwargs):
        lod = getattr(args[0] if args else first(args, kwargs), "_lod", None)
        if rule(func, args, kwargs) is None and lod is not None:
            if always or sum(carries(value) for value in (*args, *kwargs.values())) > 1:
                raise misaligned(func)
        return lod

    return rule_in_place


join_in_place = in_place(join)


@torch.compiler.assume_constant_result  # Dynamo knows neither names nor schemas
def _written(func) -> list[tuple[int, str]]:
    """Position and name of every argument that a function changes, as its schema or its name says."""
    if isinstance(func, OpOverload):
        schemas = [func._schema]
    elif isinstance(func, OpOverloadPacket):
        schemas = [getattr(func, overload)._schema for overload in func.overloads()]
    else:
        name = getattr(func, "__name__", "")
        return [(0, FIRST[0])] if name.endswith("_") and not name.endswith("__") else []
    arguments = [pair for schema in schemas for pair in enumerate(schema.arguments)]
    return sorted({(i, a.name) for i, a in arguments if a.alias_info is not None and a.alias_info.is_write})


def refuse_unknown(func, args, kwargs) -> None:
    """A function that the table does not know, and that changes a LoDTensor, might move its rows, while the LoD would
    stay. One that calls other functions does so where no rule is looked up."""
    if not compiling() and isinstance(func, HigherOrderOperator):
        advice = "it calls functions of yours without the rules; give it x.values(), and make x.with_values(...) inside"
        raise refusal(func, advice)
    for i, name in _written(func):
        if lod_of(kwargs.get(name)) is not None or (i < len(args) and lod_of(args[i]) is not None):
            raise refusal(func, "it may move rows and leave the LoD behind; call it on x.values()")
