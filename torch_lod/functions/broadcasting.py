# SPDX-License-Identifier: Apache-2.0
"""What broadcasting does beside rows, for every function: `entries` knows which operands of a function are broadcast
against each other. Three things follow from it.

- What lost its rows is not broadcast to more: `refuse_lost`.
- A plain tensor does not put all rows behind a dim with as many entries as there are sequences: `refuse_undeclared`.
- A row for each sequence, of which something says that it is one (`level_in`), is broadcast over the rows of its
  sequence: `over_sequences`.
"""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..dynamo import compiling
from ..errors import LoDValueError, named
from ..sequence.rearrange import repeat_rows
from ..structure.declared import declared_level, level_in
from ..structure.lod import LoD
from ..tensor.attach import become
from ..tensor.dispatch import called
from ..tensor.products import each_by_its_matrix
from ..tensor.provenance import Provenance, placed, provenance_of, tracked
from ..tensor.table import ROWS, Row, name_of
from .operands import Entry
from .placement import is_parameter
from .products import MATMUL, einsum_letters
from .refusals import lost_meets

_EINSUM = torch.einsum


def _entries(func, args, kwargs) -> list[Entry]:
    row = ROWS.get(func)
    entries_of = None if row is None else row.broadcasts or row.sums
    return [] if entries_of is None else entries_of(args, kwargs)


class Terms(NamedTuple):
    """The dims of operands and result of an einsum, by letter; those of an ellipsis are numbers, counted from the right."""

    operands: list[Tensor]
    letters: list[list]
    result: list


def _terms(args) -> Terms | None:
    parsed = einsum_letters(args)
    return None if parsed is None else Terms(*parsed)


def refuse_lost(func, args, kwargs) -> None:
    """Raises if operands that lost their rows would be broadcast to more than any of them has."""
    if func is _EINSUM:
        terms = _terms(args)
        grown = None if terms is None else _grown_letters(terms)
    else:
        grown = _grown(_entries(func, args, kwargs))
    if grown is not None:
        t, size = grown
        origin: Any = provenance_of(t)
        what = f"expected operands of equal sizes, since {tuple(t.shape)} would be broadcast to {size}"
        raise lost_meets(func, origin, what)


def _lost(t: Tensor | None) -> bool:
    origin = None if t is None else provenance_of(t)
    return origin is not None and origin.dim is None


def _grown(entries: list[Entry]) -> tuple[Tensor, tuple] | None:
    """A lost operand, and the size that broadcasting gives it, if that is larger in a dim than all lost operands are."""
    rank, first_lost = max([0, *[len(e.shape) for e in entries]]), None
    sizes, lost_sizes = [1] * rank, [1] * rank
    for e in entries:
        lost = _lost(e.operand)
        for d in range(-len(e.shape), 0):
            if e.shape[d] != 1:
                sizes[d] = e.shape[d]
                lost_sizes[d] = e.shape[d] if lost else lost_sizes[d]
        if lost and first_lost is None:
            first_lost = e
    if first_lost is None or first_lost.operand is None:
        return None
    for n, m in zip(sizes, lost_sizes):
        if m == 1 and n > 1:
            return first_lost.operand, (*sizes, *first_lost.operand.shape[len(first_lost.shape) :])
    return None


def _grown_letters(terms: Terms) -> tuple[Tensor, tuple] | None:
    sizes: dict = {}
    lost_letters: list = []  # the letters that a lost operand has, with a size
    for letters, t in zip(terms.letters, terms.operands):
        for c, n in zip(letters, t.shape):
            if n != 1 or c not in sizes:
                sizes[c] = n
            if n != 1 and _lost(t):
                lost_letters.append(c)
    more = [c for c in terms.result if sizes.get(c, 1) > 1 and c not in lost_letters]
    for i, t in enumerate(terms.operands):
        if _lost(t) and more and _is_broadcast(terms, i, more):
            return t, tuple([sizes[c] for c in terms.result if c in sizes])
    return None


def _is_broadcast(terms: Terms, i: int, more: list) -> bool:
    """Whether operand i gets the letters `more`; a product with a matrix does not broadcast it."""
    letters = terms.letters[i]
    if any(isinstance(c, int) or c in letters for c in more):
        return True
    beside = any(c in letters for j, other in enumerate(terms.letters) if j != i for c in other)
    return beside and all(c in terms.result for c in letters)


class Repeated(NamedTuple):
    """A plain operand with a dim that no operand with rows has."""

    operand: Tensor
    dim: int
    #: whether the dim is before that of the rows in the result
    before: bool
    #: The levels with as many sequences.
    levels: list[int]


def repeated(func, args, kwargs) -> list[Repeated]:
    """The plain operands that repeat all rows for every entry of one of their dims, where a level has as many sequences."""
    if func is _EINSUM:
        terms = _terms(args)
        candidates = [] if terms is None else _repeated_letters(terms)
    else:
        candidates = _repeated(_entries(func, args, kwargs))
    known = []
    for t, dim, before, origin in candidates:
        levels = []
        for k in range(origin.lod.depth):
            if t.shape[dim] == origin.lod.num_sequences(k):
                levels.append(k)
        if levels:
            known.append(Repeated(t, dim, before, levels))
    return known


def _repeated(entries: list[Entry]) -> list[tuple[Tensor, int, bool, Provenance]]:
    with_rows = [e for e in entries if e.operand is not None and placed(e.operand) is not None]
    origin, candidates = placed(with_rows[0].operand) if with_rows else None, []
    if origin is None:
        return []
    rows = origin.dim - len(with_rows[0].shape)  # from the right; not negative where the dim is not broadcast
    for e in entries:
        t = e.operand
        if t is None or provenance_of(t) is not None:
            continue
        for d in range(-len(e.shape), 0):
            new = e.shape[d] != 1 and d != rows
            for o in with_rows:
                new = new and (-d > len(o.shape) or o.shape[d] == 1)
            if new:
                candidates.append((t, len(e.shape) + d, d < rows, origin))
    return candidates


def _repeated_letters(terms: Terms) -> list[tuple[Tensor, int, bool, Provenance]]:
    with_rows = [(letters, t) for letters, t in zip(terms.letters, terms.operands) if placed(t) is not None]
    origin, candidates = placed(with_rows[0][1]) if with_rows else None, []
    if origin is None or with_rows[0][0][origin.dim] not in terms.result:
        return []
    rows = terms.result.index(with_rows[0][0][origin.dim])
    for letters, t in zip(terms.letters, terms.operands):
        if provenance_of(t) is None:
            for d, c in enumerate(letters):
                new = t.shape[d] != 1 and c in terms.result
                for others, o in with_rows:
                    new = new and (c not in others or o.shape[others.index(c)] == 1)
                if new:
                    candidates.append((t, d, terms.result.index(c) < rows, origin))
    return candidates


def undeclared(t: Tensor, dim: int, levels: list[int]) -> tuple[str, str]:
    """What is expected beside such a tensor, and what to write."""
    n, listed = t.shape[dim], ", ".join(map(str, levels))
    declared = f"tl.per_sequence(c, {levels[0] if len(levels) == 1 else 'level'})"
    got = f"expected operands whose rows correspond, got a plain tensor of shape {tuple(t.shape)}, whose {n} entries at dim {dim} would "
    got += f"each meet all rows, and level {listed} has {n} sequences"
    return got, (
        f"a row for each sequence is declared with {declared}, which is broadcast over the rows of its sequence; "
        "if every entry is meant for all rows, pass .values() of the rows; weights are nn.Parameters"
    )


def refuse_undeclared(func, args, kwargs, result, origin: Provenance) -> None:
    """Raises if a plain tensor puts all rows behind a dim with an entry for each sequence, in a result of that provenance."""
    if func is not _EINSUM:
        if not kwargs and isinstance(result, Tensor) and type(origin.dim) is int:  # most calls
            after, larger = result.dim() - origin.dim, False
            for t in args:
                larger = larger or (
                    isinstance(t, Tensor) and t.dim() > after and getattr(t, "_provenance", None) is None
                )
            if not larger:
                return
    for t, dim, before, levels in repeated(func, args, kwargs):
        if before and not is_parameter(t):
            raise named(LoDValueError("; ".join(undeclared(t, dim, levels))), name_of(func))


class _Sequences(NamedTuple):
    """An operand with a row for each sequence, at dim `at`."""

    operand: Tensor
    at: int
    level: int


def over_sequences(func, row: Row, args, kwargs) -> Any:
    """The call with every operand that has a row for each sequence broadcast over the rows of its sequence: the function
    is called again. NotImplemented where there is none, or where this function does not broadcast it."""
    if row.broadcasts is None and row.product is None and func is not _EINSUM:
        return NotImplemented
    fine, coarse, lod = _sequences_among(tracked(args, kwargs))
    if not coarse or lod is None or (row.writes and args[0] is coarse[0].operand):
        return NotImplemented
    if func is _EINSUM:
        return _over_letters(args, coarse, lod)
    rows_dim = _rows_at(fine)
    if rows_dim is None:
        return NotImplemented
    core = row.product
    if core is not None and rows_dim >= -2:
        return _product_over(func, args, kwargs, core, fine, coarse, lod, rows_dim)
    if core is MATMUL and rows_dim == -3 and _a_matrix_for_each(MATMUL[0].bind(args, kwargs), fine, coarse):
        product = each_by_its_matrix(fine[0].values(), coarse[0].operand.values(), lod, coarse[0].level)  # type: ignore[operator]
        return become(product, Provenance(lod, 0))
    new = []
    for s in coarse:
        laid = _laid(s, fine, rows_dim, lod)
        if laid is None:
            return NotImplemented
        new.append((s.operand, laid))
    return called(func, *_with(args, kwargs, new))


def _sequences_among(tensors: list[Tensor]) -> tuple[list[Tensor], list[_Sequences], LoD | None]:
    """Of operands, those that have rows, those that have a row for each sequence, and the LoD of the rows. No LoD where that
    is not known of all."""
    lod = None
    for t in tensors:
        origin = placed(t)
        if origin is None:
            return [], [], None
        if lod is None or _finer(origin.lod, lod):
            lod = origin.lod
    fine, coarse = [], []
    for t in tensors:
        origin = placed(t)
        k = None if origin is None or lod is None or origin.lod is lod else level_in(origin.lod, lod)
        if origin is None or k is None:
            fine.append(t)
        elif origin.part is not None:
            return [], [], None
        else:
            coarse.append(_Sequences(t, origin.dim, k))
    return fine, coarse, lod


def _finer(a: LoD, b: LoD) -> bool:
    apart = (declared_level(a) is None) - (declared_level(b) is None)
    return apart > 0 or (apart == 0 and a.depth > b.depth)


def _rows_at(tensors: list[Tensor]) -> int | None:
    """The dim of the rows, counted from the right; None where tensors differ in it."""
    rows_dim = None
    for t in tensors:
        origin = placed(t)
        dim = None if origin is None else origin.dim - t.dim()
        if dim is None or rows_dim not in (None, dim):
            return None
        rows_dim = dim
    return rows_dim


def _with(args, kwargs, new: list[tuple[Tensor, Tensor]]) -> tuple[tuple, dict]:
    """The arguments with other operands instead."""
    return tuple([_one(v, new) for v in args]), {name: _one(v, new) for name, v in kwargs.items()}


def _one(value, new: list[tuple[Tensor, Tensor]]) -> Any:
    for old, other in new:
        if value is old:
            return other
    return value


def _rows_first(s: _Sequences, lod: LoD) -> Tensor:
    """A row for each row, at dim 0."""
    values = s.operand.values().movedim(s.at, 0)  # type: ignore[operator]
    return repeat_rows(values, lod.row_offsets_at(s.level, values.device), lod.rows)


def _laid(s: _Sequences, fine: list[Tensor], rows_dim: int, lod: LoD) -> Tensor | None:
    """An operand with a row for each row, which are at dim `rows_dim`, counted from the right, as those of `fine`. As beside one
    sequence alone, the dim of the sequences has size 1, and the operand the same element for all rows: None if it has not."""
    dims, sequences_dim = s.operand.dim(), s.at - s.operand.dim()
    rows, rank = _rows_first(s, lod), max(t.dim() for t in fine)
    if sequences_dim == rows_dim:  # rows where the rows are
        return become(rows.movedim(0, s.at), Provenance(lod, s.at, "per_sequence"))
    if rows_dim >= -dims and s.operand.shape[rows_dim] != 1 and not _expanded_to(s.operand, rows_dim, lod):
        return None
    rows = rows.movedim(0, s.at)
    if rows_dim >= -dims:
        rows = rows.narrow(rows_dim, 0, 1) if rows.shape[rows_dim] else rows.sum(rows_dim, keepdim=True)
    for _ in range(-rows_dim - dims):
        rows = rows.unsqueeze(0)
    rows = rows.transpose(sequences_dim, rows_dim)
    if _one_batch_more(rows, rank, rows_dim):
        rows = rows.squeeze(0)
    return become(rows, Provenance(lod, rows.dim() + rows_dim, "per_sequence"))


def _one_batch_more(t: Tensor, rank: int, rows_dim: int) -> bool:
    """Whether t has a dim of the batch where rows, (rows, ...), have none: code for padded batches has it in both."""
    return rank == -rows_dim and t.dim() == rank + 1 and t.shape[0] == 1


def _expanded_to(t: Tensor, dim: int, lod: LoD) -> bool:
    """Whether t is the same at every row, as expand makes it."""
    return t.shape[dim] == lod.rows and t.stride(dim) == 0


def _a_matrix_for_each(values: list, fine: list[Tensor], coarse: list[_Sequences]) -> bool:
    """Whether rows, on the left, meet a matrix for each of their sequences, whose dims are (sequences, features, out)."""
    if len(fine) != 1 or len(coarse) != 1 or values[0] is not fine[0] or values[1] is not coarse[0].operand:
        return False
    left, right, p = values[0], values[1], placed(values[0])
    fits = left.dim() == right.dim() == 3 and left.shape[2] == right.shape[1] and left.dtype == right.dtype
    return (
        fits and coarse[0].at == 0 and p is not None and p.dim == 0 and p.part is None and left.device == right.device
    )


def _product_over(func, args, kwargs, core, fine, coarse, lod: LoD, rows_dim: int) -> Any:
    """A product of matrices of which one dim has the rows, with a matrix for each sequence: every row becomes a matrix of
    its own, beside that of its sequence."""
    signature, dims = core
    values = signature.bind(args, kwargs)[: len(signature.names)]
    sequences_dim = coarse[0].at - coarse[0].operand.dim()
    after = _rows_after(values, dims, fine, rows_dim)
    if after is None or sequences_dim > -3 or any(s.at - s.operand.dim() != sequences_dim for s in coarse):
        return NotImplemented
    for t in values:
        if (
            isinstance(t, Tensor)
            and provenance_of(t) is None
            and t.dim() >= -sequences_dim
            and t.shape[sequences_dim] != 1
        ):
            return NotImplemented
    new, rank = [], 0
    for t in fine:
        if -sequences_dim <= t.dim() and t.shape[sequences_dim] != 1:
            return NotImplemented
        alone, rank = t, max(rank, t.dim())
        while alone.dim() < -sequences_dim:
            alone = called(torch.unsqueeze, (alone, 0), {})
        new.append((t, called(torch.transpose, (alone, sequences_dim, rows_dim), {})))
    alone = [new[0][1], coarse[0].operand]
    if not compiling() and core is MATMUL and fine[0] is values[0] and _a_matrix_for_each(alone, alone[:1], coarse):
        product = called(func, (alone[0], coarse[0].operand), {})
    else:
        for s in coarse:
            new.append((s.operand, become(_rows_first(s, lod).movedim(0, s.at), Provenance(lod, s.at, "per_sequence"))))
        product = called(func, *_with(args, kwargs, new))
    result = called(torch.transpose, (product, sequences_dim, after), {})
    return called(torch.squeeze, (result, 0), {}) if _one_batch_more(result, rank, rows_dim) else result


def _rows_after(values: list, dims: list[dict], fine: list[Tensor], rows_dim: int) -> int | None:
    """Where a product has the rows that operands have at dim `rows_dim`; None if they differ or are summed over."""
    result_dims = [dims[i].get(rows_dim) for i, t in enumerate(values) if any(t is f for f in fine)]
    return result_dims[0] if result_dims and all(to == result_dims[0] for to in result_dims) else None


def _row_letters(terms: Terms, coarse) -> tuple | None:
    """The letter of the rows, and that of the sequences; None where operands differ in one."""
    rows: set = set()
    sequences: set = set()
    for letters, t in zip(terms.letters, terms.operands):
        p = placed(t)
        if p is not None:
            (sequences if any(s.operand is t for s in coarse) else rows).add(letters[p.dim])
    return (*rows, *sequences) if len(rows) == len(sequences) == 1 else None


def _letters_by_matrices(terms: Terms, row, coarse: list[_Sequences], lod: LoD) -> Tensor | None:
    """A sum over products of rows with what their sequences have, as a product with a matrix for each sequence; None where it
    is another sum."""
    if len(terms.operands) != 2 or len(coarse) != 1 or not all(len(set(c)) == len(c) for c in terms.letters):
        return None
    at = 0 if terms.operands[0] is coarse[0].operand else 1
    of_each, of_rows = terms.letters[at], terms.letters[1 - at]
    each, rows = terms.operands[at], terms.operands[1 - at]
    sizes = dict(zip(of_each, each.shape)) | {row: lod.rows}
    summed = [c for c in of_rows if c in of_each and c != row]
    left, right = ([c for c in letters if c not in (*summed, row)] for letters in (of_rows, of_each))
    made = [row, *left, *right]
    if {*made} != {*terms.result} or any(sizes[c] != n for c, n in zip(of_rows, rows.shape) if c in summed):
        return None
    p = placed(rows)
    if p is None or p.part is not None or rows.dtype != each.dtype or rows.device != each.device:
        return None
    if not rows.is_floating_point():
        return None
    sizes |= dict(zip(of_rows, rows.shape))
    count = each.shape[of_each.index(row)]
    a, s, b = (math.prod([sizes[c] for c in letters]) for letters in (left, summed, right))
    first = rows.values().permute([of_rows.index(c) for c in (row, *left, *summed)])  # type: ignore[operator]
    second = each.values().permute([of_each.index(c) for c in (row, *summed, *right)])  # type: ignore[operator]
    product = each_by_its_matrix(first.reshape(lod.rows, a, s), second.reshape(count, s, b), lod, coarse[0].level)
    product = product.view([sizes[c] for c in made]).permute([made.index(c) for c in terms.result])
    return become(product, Provenance(lod, terms.result.index(row), "einsum"))


def _ascii_names(terms: Terms) -> dict:
    """A letter for every letter and number."""
    names: dict = {}
    for letters in terms.letters:
        for c in letters:
            names.setdefault(c, chr(ord("A") + len(names)))
    return names


def _over_letters(args, coarse, lod: LoD) -> Any:
    terms = _terms(args)
    if terms is None:
        return NotImplemented
    found = _row_letters(terms, coarse)
    if found is None or not all(c in terms.result for c in found):
        return NotImplemented
    row, sequence = found
    if row == sequence and (product := _letters_by_matrices(terms, row, coarse, lod)) is not None:
        return product
    names = _ascii_names(terms)
    operands, written = [], []
    for letters, t in zip(terms.letters, terms.operands):
        per_sequence = [s for s in coarse if s.operand is t]
        if per_sequence:
            t = become(
                _rows_first(per_sequence[0], lod).movedim(0, per_sequence[0].at),
                Provenance(lod, per_sequence[0].at, "per_sequence"),
            )
        drop = row if per_sequence else sequence
        if sequence != row and drop in letters:
            if t.shape[letters.index(drop)] != 1:
                return NotImplemented
            t, letters = called(torch.squeeze, (t, letters.index(drop)), {}), [c for c in letters if c != drop]
        operands.append(t)
        written.append("".join([names[row if c == sequence else c] for c in letters]))
    result = "".join([names[c] for c in terms.result if c != sequence or sequence == row])
    found = called(torch.einsum, (f"{','.join(written)}->{result}", *operands), {})
    return found if sequence == row else called(torch.unsqueeze, (found, terms.result.index(sequence)), {})
