# SPDX-License-Identifier: Apache-2.0
"""Rules of products, matrices and transforms: which operand's rows are the rows of the result."""

from torch import Tensor

from ..lod import LoD
from .arguments import _OUT, _first, _lod_of, _option, _others, _refusal, _touches_rows, same_lod
from .rules import join


def batched(**cores: int | None):
    """Matrices (2) and vectors (1) of so many dims, one of each per row; None: either. Operands in their order, by name."""

    def rule(func, args, kwargs):
        lod, before, found = None, 0, []
        for place, (name, core) in enumerate(cores.items()):
            t = _option(args, kwargs, place, name, "input" if place == 0 else f"input{place + 1}")
            if t is None:
                continue
            if core is None:
                core = 1 if _is_vector(found[0][0], t) else 2
            found.append((t, t.dim() - core))
        if sum(_lod_of(t) is not None for t in (*args, *kwargs.values())) > sum(
            _lod_of(t) is not None for t, _ in found
        ):
            return None  # a tolerance or the like is made of rows
        for t, batch in found:
            if _lod_of(t) is None:
                continue
            if batch < 1:
                raise _refusal(
                    func,
                    f"{t.dim()} dims hold one matrix, made of the rows of all sequences; see x.unsqueeze(1), and {_OUT}",
                )
            if lod is not None and batch != before:
                return None
            lod, before = _lod_of(t) if lod is None else same_lod(func, lod, _lod_of(t)), batch
        return lod if all(batch <= before for _, batch in found) else None

    return rule


def _is_vector(matrix, right) -> bool:
    """How torch.linalg.solve tells a batch of vectors from a matrix."""
    return right.dim() == 1 or (right.dim() == matrix.dim() - 1 and right.shape == matrix.shape[:-1])


def matmul(func, args, kwargs):
    return _product(func, _first(args, kwargs), _option(args, kwargs, 1, "other", "mat2", "vec", "tensor2"))


def reflected_matmul(func, args, kwargs):
    right, left = args
    return _product(func, left, right)


def _product(func, left, right) -> LoD | None:
    """A matrix of rows times a plain matrix or vector, or a matrix per row."""
    rows, other = _lod_of(left), _lod_of(right)
    if other is None:
        return rows if left.dim() >= 2 and right.dim() <= max(2, left.dim()) else None
    if right.dim() < 3 or (rows is not None and left.dim() != right.dim()):
        return None
    return join(func, (left, right), {}) if left.dim() <= right.dim() else None


def inner(func, args, kwargs):
    """Every row of the first with every row of the second."""
    x, other = _first(args, kwargs), _option(args, kwargs, 1, "other")
    return _lod_of(x) if x.dim() >= 2 and _lod_of(other) is None else None


def outer(func, args, kwargs):
    """Row i is the i-th number of the first times the second."""
    return None if _others(args, kwargs) else _lod_of(_first(args, kwargs))


def several(func, args, kwargs):
    """A chain of matrix products keeps the rows of its first matrix."""
    matrices = args if len(args) > 1 else _option(args, kwargs, 0, "tensors", "matrices")
    alone = all(_lod_of(t) is None for t in matrices[1:])
    return _lod_of(matrices[0]) if alone and matrices[0].dim() == 2 else None


def add_product(rank: int | None = None):
    """A product of the second and third operand, of so many dims or as many as the third has, added to the first: rows of
    the first two are rows of the result."""

    def rule(func, args, kwargs):
        base, left, right = _added(args, kwargs)
        if _lod_of(right) is not None or (_lod_of(base) is not None and base.dim() != (rank or right.dim())):
            return None
        lods = [lod for lod in (_lod_of(base), _lod_of(left)) if lod is not None]
        return same_lod(func, lods[0], lods[-1]) if lods else None

    return rule


def add_batches(func, args, kwargs):
    """The products are summed over their batch; only the base has rows left."""
    base, left, right = _added(args, kwargs)
    return _lod_of(base) if not _any_lod(left, right) and base.dim() == 2 else None


def _added(args, kwargs) -> list:
    """The three operands; torch still takes its older order, with numbers between them."""
    named = ("input", "self"), ("mat1", "mat", "vec1", "batch1"), ("mat2", "vec", "vec2", "batch2")
    found = [value for value in args if isinstance(value, Tensor)]
    return found + [next(kwargs[name] for name in names if name in kwargs) for names in named[len(found) :]]


def tensordot(func, args, kwargs):
    """What is left of the first operand's dims comes first."""
    x, dims = _option(args, kwargs, 0, "a"), _option(args, kwargs, 2, "dims", default=2)
    if (
        _lod_of(_option(args, kwargs, 1, "b")) is not None
        or not isinstance(dims, (int, tuple, list))
        or dims in ((), [])
    ):
        return None
    contracted = range(x.dim() - dims, x.dim()) if isinstance(dims, int) else dims[0]
    contracted = (contracted,) if isinstance(contracted, int) else tuple(contracted)
    return None if contracted and _touches_rows(contracted, x.dim()) else _lod_of(x)


def einsum(func, args, kwargs):
    """Keeps where dim 0 of every LoDTensor is the first letter of the result, and no other dim of one is."""
    equation, *operands = args
    left, arrow, result = equation.replace(" ", "").replace("...", ".").partition("->")
    terms = left.split(",")
    if len(terms) != len(operands):
        return None  # torch says what is wrong
    widest = max(t.dim() - len(term) + 1 if "." in term else 0 for term, t in zip(terms, operands))
    if not arrow:
        result = "." + "".join(sorted(c for c in {*left} - {",", "."} if left.count(c) == 1))
    if "." in result and not widest:
        result = result.replace(".", "")
    if not result:
        return None
    first = _expanded(result[0], widest, widest)[0]
    lod = None
    for term, t in zip(terms, operands):
        other = _lod_of(t)
        if other is None:
            continue
        letters = [c for part in term for c in _expanded(part, t.dim() - len(term) + 1, widest)]
        if not letters or letters[0] != first or letters.count(first) > 1:
            return None
        lod = other if lod is None else same_lod(func, lod, other)
    return lod


def _expanded(part: str, dims: int, widest: int) -> list:
    """The dims that a letter or an ellipsis stands for; those of an ellipsis are counted from the right."""
    return [part] if part != "." else list(range(widest - dims, widest))


def cross(func, args, kwargs):
    x, other = _first(args, kwargs), _option(args, kwargs, 1, "other")
    rank = max(x.dim(), other.dim())
    dim = _option(args, kwargs, 2, "dim", default=None if func.__name__ == "cross" else -1)
    if dim is None:  # torch takes the first dim of 3 elements
        if x.dim() == other.dim() and x.shape[0] == 3 and _any_lod(x, other):
            raise _refusal(func, "without dim, torch takes 3 rows for one vector; pass dim=-1")
    elif _touches_rows(dim, rank):
        if _any_lod(x, other):
            raise _refusal(func, f"along dim 0 mixes the rows of different sequences; {_OUT}")
        return None
    return join(func, (x, other), {})


def _any_lod(*operands) -> bool:
    return any(_lod_of(t) is not None for t in operands)


def pairs(func, args, kwargs):
    """Distances between all rows of two matrices, a pair of matrices per row."""
    x, y = (_option(args, kwargs, i, name) for i, name in enumerate(("x1", "x2")))
    return join(func, (x, y), {}) if any(isinstance(t, Tensor) and t.dim() >= 3 for t in (x, y)) else None


def group_norm(func, args, kwargs):
    """Takes how many samples there are as a number."""
    x, samples = _first(args, kwargs), _option(args, kwargs, 3, "N")
    if _lod_of(x) is not None and samples != x.shape[0]:
        raise _refusal(func, f"{samples} samples of {x.shape[0]} rows take their statistics over several rows; {_OUT}")
    return None if _others(args, kwargs) else _lod_of(x)
