# SPDX-License-Identifier: Apache-2.0
"""Rules of products, matrices and transforms: they tell whose rows are the rows of the result."""

from torch import Tensor

from .arguments import OUT, Rule, carries, lod_of, refusal, touches_rows
from .operands import agree
from .signature import Signature, signature

#: The number of dims of one operand of `batched`. A solution is a vector or a matrix.
_DIMS = {"matrix": 2, "vector": 1, "solution": None}


def batched(text: str) -> Rule:
    """One product or decomposition per row; `text` is a `Signature` whose operands are each a matrix, vector or solution."""
    of = Signature(text)
    operands = [(i, _DIMS[kind]) for i, kind in enumerate(of.kinds.values()) if kind in _DIMS]

    def rule(func, args, kwargs):
        values = of.bind(args, kwargs)
        batches = {}
        for i, dims in operands:
            t = values[i]
            if t is not None:
                batches[i] = t.dim() - ((1 if _is_vector(values[0], t) else 2) if dims is None else dims)
        rows = [i for i in batches if lod_of(values[i]) is not None]
        for i in rows:
            if batches[i] < 1:
                raise refusal(
                    func,
                    f"{values[i].dim()} dims hold one matrix, made of the rows of all sequences; see x.unsqueeze(1), and "
                    f"{OUT}",
                )
        most = max([0, *batches.values()])
        if any(batches[i] != most for i in rows) or of.mixed(values, most, args, kwargs):
            return None
        return agree(func, [values[i] for i in rows])

    return rule


def _is_vector(matrix, right) -> bool:
    """How torch.linalg.solve tells a batch of vectors from a matrix."""
    return right.dim() == 1 or (right.dim() == matrix.dim() - 1 and right.shape == matrix.shape[:-1])


def matmul(func, args, kwargs):
    """A matrix of rows times a plain matrix or vector, or a matrix per row."""
    if not kwargs and len(args) == 2 and getattr(args[1], "_lod", None) is None:  # common: without binding arguments
        x, weight = args
        return lod_of(x) if x.dim() >= 2 and weight.dim() <= max(2, x.dim()) else None
    return _matmul(func, args, kwargs)


@signature("input: rows, other: rows")
def _matmul(func, input, other):
    if lod_of(other) is None:
        return input.dim() >= 2 and other.dim() <= max(2, input.dim())
    if other.dim() < 3 or (lod_of(input) is not None and input.dim() != other.dim()):
        return False
    return input.dim() <= other.dim()


def reflected_matmul(func, args, kwargs):
    right, left = args
    return matmul(func, (left, right), kwargs)


@signature("input, other: plain")
def inner(func, rank):
    """Combines every row of the first with every row of the second."""
    return rank >= 2


@signature("*tensors: tensors")
def several(func, tensors):
    """A chain of matrix products keeps the rows of its first matrix."""
    return lod_of(tensors[0]) if not carries(tensors[1:]) and tensors[0].dim() == 2 else None


_ADDED = Signature("input, mat1, mat2")


def added(args, kwargs) -> list:
    """The three operands of addmm and similar functions; torch also takes them with numbers between."""
    return _ADDED.bind(tuple(value for value in args if isinstance(value, Tensor)), kwargs)


def add_product(rank: int | None = None) -> Rule:
    """The first operand plus a product, of `rank` dims, or as many as the third operand has. Rows of the first two
    operands are rows of the result."""

    def rule(func, args, kwargs):
        base, left, right = added(args, kwargs)
        if lod_of(right) is not None or (lod_of(base) is not None and base.dim() != (rank or right.dim())):
            return None
        return agree(func, (base, left))

    return rule


def add_batches(func, args, kwargs):
    """The products are summed over their batch: only the first operand's rows are rows of the result."""
    base, *matrices = added(args, kwargs)
    return lod_of(base) if not carries(matrices) and base.dim() == 2 else None


@signature("a, b: plain, dims=2")
def tensordot(func, rank, dims):
    """The remaining dims of the first operand come first in the result."""
    if not isinstance(dims, (int, tuple, list)) or dims in ((), []):
        return False
    contracted = range(rank - dims, rank) if isinstance(dims, int) else dims[0]
    contracted = (contracted,) if isinstance(contracted, int) else tuple(contracted)
    return not contracted or not touches_rows(contracted, rank)


def einsum(func, args, kwargs):
    """Keeps the LoD if the first letter of the result is dim 0 of every LoDTensor, and no other dim of any
    LoDTensor."""
    equation, *operands = args
    left, arrow, result = equation.replace(" ", "").replace("...", ".").partition("->")
    terms = left.split(",")
    if len(terms) != len(operands):
        return None  # torch raises the error
    widest = max(t.dim() - len(term) + 1 if "." in term else 0 for term, t in zip(terms, operands))
    if not arrow:
        result = "." + "".join(sorted(c for c in {*left} - {",", "."} if left.count(c) == 1))
    if "." in result and not widest:
        result = result.replace(".", "")
    if not result:
        return None
    first = _expanded(result[0], widest, widest)[0]
    for term, t in zip(terms, operands):
        letters = [c for part in term for c in _expanded(part, t.dim() - len(term) + 1, widest)]
        if lod_of(t) is not None and (not letters or letters[0] != first or letters.count(first) > 1):
            return None
    return agree(func, operands)


def _expanded(part: str, dims: int, widest: int) -> list:
    """The dims that a letter or an ellipsis stands for; those of an ellipsis are counted from the right."""
    return [part] if part != "." else list(range(widest - dims, widest))


def cross(text: str) -> Rule:
    @signature(text)
    def rule(func, input, other, rank, dim):
        if dim is None:  # then torch uses the first dim of size 3
            if input.dim() == other.dim() and input.shape[0] == 3:
                raise refusal(func, "without dim, torch takes 3 rows for one vector; pass dim=-1")
        elif touches_rows(dim, rank):
            raise refusal(func, f"along dim 0 mixes the rows of different sequences; {OUT}")
        return True

    return rule


@signature("x1: broadcast, x2: broadcast")
def pairs(func, rank):
    """Distances between all rows of two matrices, a pair of matrices per row."""
    return rank >= 3
