# SPDX-License-Identifier: Apache-2.0
"""The LoD that operands share. These rules run for every `x + y`, so they do not bind arguments to names."""

import torch
from torch import Tensor
from torch._ops import HigherOrderOperator, OpOverload, OpOverloadPacket

from ..dynamo import compiling
from ..errors import LoDRuntimeError, LoDValueError, named
from ..lod import LoD
from .arguments import (
    CUT,
    OUT,
    Mark,
    Rule,
    along_rows,
    carries,
    lod_of,
    mark_of,
    marks_of,
    misaligned,
    name_of,
    placed,
    refusal,
    same_lod,
    sequences_meet,
)

#: Torch's names for the first operand.
FIRST = ("input", "self", "query", "y", "x", "a", "x1", "A", "indices", "count", "tensor", "v", "logits")


_POSITIONS = ": for positions x.with_values(table[x.lod.position_ids()]), with x the LoDTensor"


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


def _keep_moved(func, args, kwargs):
    return placed(args[0] if args else first(args, kwargs))


keep.moved = _keep_moved  # type: ignore[attr-defined]


def place(func, operands, broadcast: bool, given: bool = False) -> tuple[Mark | None, int]:
    """Where the operands, tensors or lists of them, have their rows, None where they differ; and the largest number of
    dims. If they are broadcast the dim is counted in that number. Raises where a plain tensor lies along rows at
    another dim than 0, unless it is `given` for each row, as targets are."""
    found, rank, tensors = None, 0, []
    for value in operands:
        for t in value if isinstance(value, (tuple, list)) else (value,):
            if isinstance(t, Tensor):
                tensors.append(t)
                rank = max(rank, t.dim())
    apart = False
    for t in tensors:
        mark = placed(t)
        if mark is None:
            continue
        mark = mark._replace(dim=mark.dim - t.dim() if broadcast else mark.dim)
        if found is None:
            found = mark
            continue
        sequences_meet(func, found.lod, mark.lod)
        if mark.part != found.part and (mark.part is None or found.part is None):
            cut, whole = (mark, found) if mark.part else (found, mark)
            assert cut.part is not None
            got = f"got rows {cut.part[0]} to {cut.part[1]} of {cut.lod.rows} beside all of {whole.lod.rows}"
            raise named(LoDValueError(f"expected operands whose rows correspond, {got}: {CUT}; {OUT}"), name_of(func))
        elif mark.dim != found.dim or mark.part != found.part:
            apart = True
        elif mark.lod is not found.lod:
            same_lod(func, found.lod, mark.lod)
    if found is None or apart:
        return None, rank
    if not broadcast:
        return found, rank
    dim = rank + found.dim
    if dim and not given:
        for t in tensors:
            if mark_of(t) is None and t.dim() >= -found.dim and t.shape[found.dim] != 1:
                advice = None if compiling() or found.part else counterpart(found.lod, -found.dim, t)
                raise along_rows(
                    func,
                    found._replace(dim=dim),
                    f"a plain tensor of shape {tuple(t.shape)} lies along the rows of all sequences, so that what it holds "
                    "for a position would not start anew with every sequence; make it a LoDTensor, one row for each row"
                    + (f"; with x the rows and t that tensor: {advice}" if advice else _POSITIONS),
                )
    return found._replace(dim=dim), rank


def join(func, args, kwargs):
    """The LoD of operands that are broadcast: None if broadcasting aligns rows with another dim."""
    if not kwargs and len(args) <= 2 and not compiling():  # the common calls, without the loop
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
            refuse_per_sequence(func, lod, plain)
    if most <= rank or lod is None:
        return lod
    mark, _ = place(func, (*args, *kwargs.values()), True)
    return mark and mark._replace(call=name_of(func))


def _join_moved(func, args, kwargs):
    return place(func, (*args, *kwargs.values()), True)[0]


join.moved = _join_moved  # type: ignore[attr-defined]


def join_given(func, args, kwargs):
    """As `join`; plain tensors, such as targets, may lie along rows at any dim."""
    return join(func, args, kwargs)


join_given.moved = lambda func, args, kwargs: place(func, (*args, *kwargs.values()), True, True)[0]  # type: ignore[attr-defined]


def join_batches(func, args, kwargs):
    """As `join`, for functions that combine the other dims than dim 0: rows at those are lost."""
    return join(func, args, kwargs)


def _join_batches_moved(func, args, kwargs):
    marks = marks_of(args, kwargs)
    for mark in marks[1:]:
        sequences_meet(func, marks[0].lod, mark.lod)


join_batches.moved = _join_batches_moved  # type: ignore[attr-defined]


def refuse_per_sequence(func, lod: LoD, t: Tensor) -> None:
    """One row per sequence cannot be broadcast to the rows; torch's error would not name the remedy."""
    count = t.shape[0]
    found, padded = over_rows(lod, count, "operand"), _padded(lod, t.dim(), t)
    if found is not None:
        advice = f"if they are a row for each sequence of level {found[0]}, lay them over the rows: {found[1]}"
        error = LoDRuntimeError(
            f"expected operands whose rows correspond, got {count} rows beside {lod.rows}; "
            + (
                f"t, of shape {tuple(t.shape)}: {padded}"
                if padded
                else f"{advice}, or declare them: tl.per_sequence(operand)"
            )
        )
        raise named(error, name_of(func))


def over_rows(lod: LoD, count: int, what: str) -> tuple[int, str] | None:
    """The level that has `count` sequences, and what lays `what`, a row for each of them, over the rows of x."""
    for k in range(lod.depth):
        if count == lod.num_sequences(k):
            operand = f"tl.LoDTensor({what}, x.lod.outer({k}))" if k else what
            return k, f"tl.sequence_expand_as({operand}, x)"
    return None


def counterpart(lod: LoD, rank: int, t: Tensor) -> str | None:
    """What makes of a plain tensor t, which is laid out for sequences, a row for each row of x, a LoDTensor of `rank` dims;
    None if it has another layout."""
    shape, longest = tuple(t.shape), lod.max_length()
    padded = _padded(lod, rank, t)
    if padded is not None:
        return padded
    one = len(shape) == rank + 1 and shape[1] == 1
    over = over_rows(lod, shape[0], "t.squeeze(1)" if one else "t") if shape else None
    if over is not None:
        short = ", None" * (rank - len(shape))
        rows = f"{over[1]}{f'[:{short}]' if short else ''} has one for each row"
        return f"it has a row for each sequence: {rows}, and tl.per_sequence(t) is broadcast to them"
    if longest in shape[:2] and shape[0] in (1, longest):
        at = "t" if shape[0] == longest else "t[0]"
        return f"it has a row for each position: {at}[x.lod.position_ids()] has one for each row"
    return None


def _padded(lod: LoD, rank: int, t: Tensor) -> str | None:
    shape, longest = tuple(t.shape), lod.max_length()
    if len(shape) < 2 or shape[0] != lod.num_sequences(-1) or longest not in shape[1:]:
        return None
    if t.dtype == torch.bool:
        return "it is a mask of padding, which no row of x is: leave it out"
    if shape[1] == longest and (len(shape) > rank or not t.is_floating_point()):
        return f"its sequences are padded: {of_padded(lod, 't')} has their rows"
    return None


def of_padded(lod: LoD, what: str) -> str:
    """What makes a LoDTensor beside x of a padded tensor."""
    made = f"tl.from_padded({what}, x.lengths())"
    return made if lod.depth == 1 else f"{made}.with_lod(x.lod)"


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


def is_element(target) -> bool:
    """Whether it is a single element of rows. It stays one when it gets another value: gradcheck moves an input so."""
    return mark_of(target) is not None and target.dim() == 0


def in_place(rule: Rule, always: bool = False) -> Rule:
    """The rule of an in-place function: the first operand keeps its LoD. Raises if `rule` gives None and another
    operand is a LoDTensor or marked; with `always`, whenever `rule` gives None."""

    def rule_in_place(func, args, kwargs):
        lod = getattr(args[0] if args else first(args, kwargs), "_lod", None)
        answer = rule(func, args, kwargs)
        if not isinstance(answer, LoD) and lod is not None:
            if always or sum(carries(value) for value in (*args, *kwargs.values())) > 1:
                raise misaligned(func)
        return lod

    def moved(func, args, kwargs):
        target = args[0] if args else first(args, kwargs)
        own, of = mark_of(target), getattr(rule, "moved", None)
        if is_element(target):
            return own
        answer = of(func, args, kwargs) if of is not None else None
        others = sum(carries(value) for value in (*args, *kwargs.values())) > 1
        if (always or others) and (own is None or own.dim is None or answer is None or answer.dim != own.dim):
            raise misaligned(func)
        return own

    rule_in_place.moved = moved  # type: ignore[attr-defined]
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
    own = isinstance(func, HigherOrderOperator) and func.name() != "with_effects"  # compiled code calls operators by it
    if own and not compiling():
        advice = "it calls functions of yours without the rules; give it x.values(), and make x.with_values(...) inside"
        raise refusal(func, advice)
    for i, name in _written(func):
        if lod_of(kwargs.get(name)) is not None or (i < len(args) and lod_of(args[i]) is not None):
            raise refusal(func, "it may move rows and leave the LoD behind; call it on x.values()")
