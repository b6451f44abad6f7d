# SPDX-License-Identifier: Apache-2.0
"""Where the operands of a function have their rows. These rules run for every `x + y`, so they do not bind arguments to names."""

import threading

import torch
from torch import Tensor
from torch._ops import HigherOrderOperator, OpOverload, OpOverloadPacket

from ..dynamo import compiling, constant
from ..errors import LoDError, LoDRuntimeError, LoDValueError, named
from ..structure.lod import LoD
from ..structure.validate import as_int
from ..tensor.provenance import At, Provenance, carries, is_whole, placed, provenance_of, provenances_of
from ..tensor.table import Rule, name_of
from .refusals import (
    CUT,
    OUT,
    STACKED,
    STACKS,
    WRITE,
    all_pairs,
    along_rows,
    misaligned,
    mixture,
    refusal,
    same_lod,
    sequences_meet,
)

#: Torch's names for the first operand.
FIRST = ("input", "self", "query", "y", "x", "a", "x1", "A", "indices", "count", "tensor", "v", "logits")

_POSITIONS = (
    ": for positions x.with_values(table[x.position_ids()]), with x the LoDTensor; what a function of torch.jit made of rows is "
    "plain: call it unscripted"
)

_PAIRS = (
    "; as a mask of all pairs of rows it is left out: F.scaled_dot_product_attention and tl.sequence_attention attend within "
    "sequences, with is_causal=True to what is before"
)


def first(args, kwargs):
    """The first operand, by position or by name."""
    if args:
        return args[0]
    for name in FIRST:
        if name in kwargs:
            return kwargs[name]
    return None


def keep(func, args, kwargs):
    """The rows of the first operand."""
    return provenance_of(args[0] if args else first(args, kwargs))


def tensors_among(operands) -> list[Tensor]:
    """The operands that are tensors, and those in lists among them."""
    tensors = []
    for value in operands:
        for t in value if isinstance(value, (tuple, list)) else (value,):
            if isinstance(t, Tensor):
                tensors.append(t)
    return tensors


def place(func, operands, broadcast: bool, given: bool = False) -> tuple[Provenance | None, int]:
    """Where the operands, tensors or lists of them, have their rows, None where they differ; and the largest number of
    dims. If they are broadcast the dim is counted in that number. Raises where rows would be broadcast against rows, or a
    plain tensor lies along rows at another dim than 0, unless it is `given` for each row, as targets are."""
    tensors = tensors_among(operands)
    rank = max([0, *[t.dim() for t in tensors]])
    common, apart = None, False
    one = other = None  # operands whose rows are at two dims
    for t in tensors:
        p = placed(t)
        if p is None:
            continue
        p = p._replace(dim=p.dim - t.dim() if broadcast else p.dim)
        if broadcast and common is not None and p.dim != common.dim:
            sequences_meet(func, common.lod, p.lod)
            other = t
            continue
        one = t if one is None else one
        both = p if common is None else corresponding(func, common, p)
        apart, common = apart or both is None, both or common
    if one is not None and other is not None:
        raise all_pairs(func, _same_rows(one, other))
    if common is None or apart:
        return None, rank
    if not broadcast:
        return common, rank
    dim = rank + common.dim
    for t in tensors:
        if provenance_of(t) is not None:
            continue
        if t.layout != torch.strided:
            return None, rank  # the result may be sparse as well
        if dim and not given:
            refuse_positions(func, common._replace(dim=dim), common.dim, t)
    return common._replace(dim=dim), rank


def corresponding(func, a: Provenance, b: Provenance) -> Provenance | None:
    """The provenance of both, if two operands have the same rows at the same dim. Raises for rows of other sequences."""
    sequences_meet(func, a.lod, b.lod)
    if b.part != a.part and (b.part is None or a.part is None):
        cut, whole = (b, a) if b.part else (a, b)
        assert cut.part is not None
        got = f"got rows {cut.part[0]} to {cut.part[1]} of {cut.lod.rows} beside all of {whole.lod.rows}"
        raise named(LoDValueError(f"expected operands whose rows correspond, {got}: {CUT}; {OUT}"), name_of(func))
    if b.dim != a.dim or b.part != a.part:
        return None
    return a if b.lod is a.lod else a._replace(lod=same_lod(func, a.lod, b.lod))


def _same_rows(a: Tensor, b: Tensor) -> str:
    """What lines up the rows of two operands of which one, y, has fewer dims behind them, as targets beside predictions of
    one feature."""
    p, y = (a, b) if _behind_rows(a) > _behind_rows(b) else (b, a)
    at, on, more = p._provenance.dim, y._provenance.dim, _behind_rows(p) - _behind_rows(y)  # type: ignore[attr-defined]
    if on not in (0, at):
        return ""
    lined = f"y.unsqueeze({on + 1})" if more == 1 else f"y[{', '.join([':'] * (on + 1) + ['None'] * more)}]"
    lined += f", or p.squeeze({at + 1})" if more == 1 and p.shape[at + 1] == 1 else ""
    who = f"with p the operand of {p.dim()} dims and y that of {y.dim()}"
    return f"where row i belongs to row i, {lined}, or keepdim=True where y was made, {who}; "


def _behind_rows(t: Tensor) -> int:
    return t.dim() - t._provenance.dim  # type: ignore[attr-defined]


def refuse_pairs(func, operands) -> None:
    """Raises if two of the operands, each of which has a dim of its own in the result, have rows."""
    if len([t for t in tensors_among(operands) if placed(t) is not None]) > 1:
        raise all_pairs(func)


def refuse_positions(func, p: Provenance, dim: int, t: Tensor) -> None:
    """Raises where a plain tensor has an entry for each position of rows at another dim than 0; `dim` counts it from the
    right. One that is the same at every position is right for all sequences."""
    if t.dim() < -dim or t.shape[dim] == 1 or is_even(t, dim):
        return
    advice = None if compiling() or p.part else counterpart(p.lod, -dim, t)
    square = not compiling() and not p.part and t.dim() > 1 and t.shape[-1] == t.shape[-2] == p.lod.rows
    stacked = f"; {STACKED}" if dim == -1 and not p.call and not p.part else ""
    more = f"; with x the rows and t that tensor: {advice}" if advice else _PAIRS if square else _POSITIONS
    raise along_rows(
        func,
        p,
        f"a plain tensor of shape {tuple(t.shape)} lies along the rows of all sequences, so that what it holds for a position "
        f"would not start again with every sequence; make it a LoDTensor, one row for each row{more}{stacked}",
    )


class _Passed(threading.local):
    """The shape of the plain tensor that passed last since its elements are the same at all rows; `tl.strict` asks."""

    shape: tuple[int, ...] | None = None


passed = _Passed()


def is_parameter(t: Tensor) -> bool:
    """Whether a tensor is a parameter or a view of one: weights, which are the same for all sequences."""
    return isinstance(t, torch.nn.Parameter) or isinstance(t._base, torch.nn.Parameter)


def is_even(t: Tensor, dim: int) -> bool:
    """Whether a plain tensor is the same at every index of a dim, as expand, zeros and ones make it; so is its gradient. The
    elements of one that is a weight, or was made of one, are not looked at: another step would change them."""
    if t.layout != torch.strided:
        return False
    if t.stride(dim) == 0:
        return True
    if compiling() or not t.is_cpu or torch._C._functorch.is_functorch_wrapped_tensor(t):
        return False
    if is_parameter(t):
        return False
    even = _of_even_ids(t, dim) if t.requires_grad else _has_equal_elements(t, dim)
    if even:
        passed.shape = tuple(t.shape)
    return even


def _has_equal_elements(t: Tensor, dim: int) -> bool:
    try:
        same = (t == t.narrow(dim, 0, 1)).all()
        return type(same) is Tensor and bool(same)  # not of fake tensors, which have no elements
    except (RuntimeError, NotImplementedError):
        return False


def _of_even_ids(t: Tensor, dim: int) -> bool:
    """Whether t is the lookup of the same id at every index, as of token types: an embedding of zeros."""
    looked_up = t.grad_fn if t._base is None else None
    ids = getattr(looked_up, "_saved_indices", None) if "EmbeddingBackward" in type(looked_up).__name__ else None
    ids_dim = t.dim() + dim
    return (
        type(ids) is Tensor and ids.dim() == t.dim() - 1 and ids_dim < ids.dim() and is_even(ids, ids_dim - ids.dim())
    )


def join(func, args, kwargs):
    """Where operands that are broadcast have their rows: None if broadcasting aligns rows with another dim."""
    if not kwargs and len(args) <= 2:  # the common calls, without the loop
        a, b = args[0], args[-1]
        p = getattr(a, "_provenance", None) if isinstance(a, Tensor) else None
        if p is not None:
            if a is b or not isinstance(b, Tensor):
                return p
            q = getattr(b, "_provenance", None)
            whole = p.dim == 0 and p.part is None
            if q is None and whole and b.dim() < a.dim() and b.layout == torch.strided:
                return p
            if whole and p is q and a.dim() == b.dim():
                return p
    operands = (*args, *kwargs.values())
    p, rank = place(func, operands, True)
    return _beside(func, operands, p, rank)


def _beside(func, operands, p: Provenance | None, rank: int) -> Provenance | None:
    """The provenance; raises where a plain tensor has as many rows as there are sequences."""
    for t in operands:
        if isinstance(t, Tensor) and t.dim() == rank and provenance_of(t) is None and is_whole(p) and not compiling():
            if t.shape[0] not in (1, p.lod.rows):
                refuse_per_sequence(func, p.lod, t)
    return p


def join_given(func, args, kwargs):
    """As `join`; plain tensors, such as targets, may lie along rows at any dim."""
    operands = (*args, *kwargs.values())
    p, rank = place(func, operands, True, True)
    return _beside(func, operands, p, rank)


def join_batches(func, args, kwargs):
    """As `join`, for functions that combine the other dims than dim 0: rows at those are lost."""
    operands = provenances_of(args, kwargs)
    if all(is_whole(p) for p in operands):
        return join(func, args, kwargs)
    for p in operands[1:]:
        sequences_meet(func, operands[0].lod, p.lod)
    return None


def refuse_per_sequence(func, lod: LoD, t: Tensor) -> None:
    """One row per sequence cannot be broadcast to the rows; torch's error would not name the remedy."""
    count = t.shape[0]
    match, padded = over_rows(lod, count, "operand"), _padded(lod, t.dim(), t)
    if match is not None:
        advice = f"if they are a row for each sequence of level {match[0]}, broadcast them over the rows: {match[1]}"
        declared = f"tl.per_sequence(operand{'' if match[0] == lod.depth - 1 else f', {match[0]}'})"
        way_out = f"t, of shape {tuple(t.shape)}: {padded}" if padded else f"{advice}, or declare them: {declared}"
        error = LoDRuntimeError(
            f"expected operands whose rows correspond, got {count} rows beside {lod.rows}; {way_out}"
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
        tensor = "t" if shape[0] == longest else "t[0]"
        return f"it has a row for each position: {tensor}[x.position_ids()] has one for each row"
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
    code = f"tl.from_padded({what}, x.lod.lengths())"
    return code if lod.depth == 1 else f"{code}.with_lod(x.lod)"


def agree(func, operands) -> Provenance | None:
    """That of LoDTensors, or lists of them, whose rows correspond whatever their dims: for example logits and class
    indices."""
    common = None
    for t in tensors_among(operands):
        p = provenance_of(t)
        if is_whole(p):
            common = p if common is None else Provenance(same_lod(func, common.lod, p.lod), 0)
    return common


def is_element(target) -> bool:
    """Whether it is a single element of rows. It stays one when it gets another value: gradcheck moves an input so."""
    return provenance_of(target) is not None and target.dim() == 0


def in_place(rule: Rule) -> Rule:
    """The rule of a function that writes into its first operand, from `rule`, that of the function that returns a new
    tensor instead. Raises where the rows of the new tensor would not be those of the operand: the function in place would
    change rows of some sequences, or combine rows that do not correspond, and the operand could not tell."""
    even = rule is join or rule is keep

    def decided(func, args, kwargs, answer):
        target = args[0] if args else first(args, kwargs)
        provenance = provenance_of(target)
        if provenance is None:
            return None
        others = [value for value in (*args, *kwargs.values()) if value is not target and carries(value)]
        if is_element(target) and (not _seen_in_rows(target) or _moves_element(func, provenance, others)):
            return provenance
        if provenance.dim is None:
            if (compiling() and not even) or (_seen_in_rows(target) and not (even and _has_all(target))):
                raise partial(func, provenance)
            same_rows = not others
        else:
            same_rows = (
                (even and not others) if answer is None else _same_place(provenance, answer)
            )  # None beside a sparse tensor
        if not same_rows:
            raise misaligned(func) if others else partial(func, provenance)
        return provenance

    def rule_in_place(func, args, kwargs):
        target = args[0] if args else first(args, kwargs)
        provenance = provenance_of(target)
        refuse_partial(func, target)
        answer = None if provenance is not None and provenance.dim is None else rule(func, args, kwargs)
        return (
            provenance
            if provenance is None or (is_whole(provenance) and is_whole(answer))
            else decided(func, args, kwargs, answer)
        )

    return rule_in_place


def _same_place(provenance: Provenance, answer) -> bool:
    """Whether a result has the rows that an operand of the same shape has."""
    dim = answer.dim.dim if isinstance(answer.dim, At) else answer.dim
    return dim == provenance.dim and answer.part == provenance.part


def _seen_in_rows(t: Tensor) -> bool:
    """Whether the memory is that of rows, of which t is a part or what lost their structure, and not that of a copy."""
    if compiling():  # Dynamo does not tell the base of a subclass; that of a view of it tells a part
        return torch.ops.aten.alias.default(t)._base.numel() > t.numel()  # type: ignore[union-attr]
    base = t._base
    if base is not None:
        p = provenance_of(base)
        return p is None or (p.dim is not None and p.part is None)
    try:  # detach() and inference mode make views that have no base
        return t.untyped_storage().nbytes() > t.numel() * t.element_size()
    except (RuntimeError, NotImplementedError):
        return True


def _has_all(t: Tensor) -> bool:
    """Whether a view has every element of what it is a view of."""
    return not compiling() and t._base is not None and t._base.numel() == t.numel()


def _moves_element(func, provenance: Provenance, others: list) -> bool:
    """Whether an element of rows gets a value that was made of itself."""
    return func is Tensor.copy_ and all(provenance_of(t) == provenance for t in others) and len(others) == 1


def refuse_partial(func, target) -> None:
    """Raises where a function in place would write into the memory of some rows of a batch."""
    provenance = provenance_of(target)
    if provenance is not None and provenance.part is not None and target.dim() and _seen_in_rows(target):
        raise partial(func, provenance)


def partial(func, provenance: Provenance) -> LoDError:
    """The error where a function in place would write some rows of the batch, not some of every sequence."""
    count = "some rows"
    if provenance.part is not None:
        begin, end = provenance.part
        count = f"row {begin}" if not compiling() and end - begin == 1 else f"rows {begin} to {end}"
    return named(
        LoDValueError(f"expected a write to all rows, got one to {count} of the whole batch: {WRITE}"), name_of(func)
    )


@constant  # Dynamo knows neither names nor schemas
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
    higher_order = (
        isinstance(func, HigherOrderOperator) and func.name() != "with_effects"
    )  # compiled code calls operators by it
    if higher_order and not compiling():
        advice = "it calls functions of yours without the rules; give it x.values(), and make x.with_values(...) inside"
        raise refusal(func, advice)
    for i, name in _written(func):
        if provenance_of(kwargs.get(name)) is not None or (i < len(args) and provenance_of(args[i]) is not None):
            raise refusal(func, "it may move rows and leave the LoD behind; call it on x.values()")


LOOP = (
    "integers and slices index the rows of the whole batch; along each sequence: tl.scan(cell, x) or tl.nn.LSTM, for neighbours "
    f"tl.sequence_shift, for one sequence after the other x.sequences(); {OUT}"
)


def refuse_other_sequence(func, kind: str | None, args, kwargs, one: Provenance, other: Provenance) -> None:
    """Raises if some rows of one sequence and some of another are combined, by a function of that kind: a loop along the rows
    would go on from the last row of a sequence to the first of the next one."""
    if one.part is None or other.part is None or one.part == other.part:
        return
    if kind not in ("join", "matmul") and not (
        func in (torch.cat, torch.concat, torch.concatenate) and _side_by_side(args, kwargs)
    ):
        return
    offsets = one.lod.levels[-1]
    begin, end = min(one.part[0], other.part[0]), max(one.part[1], other.part[1])
    after = int(torch.searchsorted(offsets, begin, right=True))
    if after < offsets.shape[0] and end <= int(offsets[after]):
        return
    rows = [f"row {a}" if b - a == 1 else f"rows {a} to {b}" for a, b in (one.part, other.part)]
    raise named(LoDValueError(f"expected rows of one sequence, got {rows[0]} and {rows[1]}: {LOOP}"), name_of(func))


def _side_by_side(args, kwargs) -> bool:
    """Whether cat puts features of rows side by side, and not rows below one another."""
    tensors, dim = joined(args, kwargs)
    if not all(isinstance(t, Tensor) and t.dim() for t in tensors) or not isinstance(dim, int):
        return False
    origins = [provenance_of(t) for t in tensors]
    if any(m is not None and m.dim is not None and m.dim in (dim, dim + t.dim()) for m, t in zip(origins, tensors)):
        return False
    return any(-t.dim() <= dim < t.dim() and t.shape[dim] != 1 for t in tensors)


def joined(args, kwargs) -> tuple[list, int | None]:
    """The tensors that cat, stack and the like join, and the dim."""
    tensors = args[0] if args else kwargs.get("tensors")
    dim = as_int(args[1] if len(args) > 1 else kwargs.get("dim", kwargs.get("axis", 0)))
    return [tensors] if isinstance(tensors, Tensor) else list(tensors), dim


def refuse_out(func, out, others) -> None:
    """`out=` would write other rows, while the LoD would stay; and a plain tensor would not know of its rows."""
    if carries(out):
        raise refusal(func, "out= would leave its LoD behind; write into x.values()")
    for value in others:
        if carries(value):
            raise written(func)


def written(func):
    """The error where rows would be written into a plain tensor, or into one that lost the structure of its rows."""
    return mixture(
        func,
        f"the tensor that is written into would not know which rows it holds; collect rows in a list for torch.stack; {STACKS}; if all "
        "rows together are meant, write their .values() into it",
    )


def refuse_write(func, args, kwargs) -> None:
    """Raises if what comes from rows is written into a tensor that does not know its rows."""
    target = args[0] if args else first(args, kwargs)
    refuse_partial(func, target)
    if is_element(target):
        own, others = provenance_of(target), [value for value in (*args[1:], *kwargs.values()) if value is not target]
        of = None if own is None or own.part is None else own.lod
        if of is not None and any(m.part is None or of.differs(m.lod) for m in provenances_of(tuple(others), {})):
            raise written(func)  # it still says which row it is of
        return
    if placed(target) is None and any(carries(value) for value in (*args[1:], *kwargs.values()) if value is not target):
        raise written(func)
