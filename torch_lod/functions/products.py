# SPDX-License-Identifier: Apache-2.0
"""Products, matrices and transforms: whose rows are the rows of the result."""

import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from ..dynamo import compiling
from ..errors import LoDValueError, named
from ..tensor.provenance import Provenance, carries, is_whole, lod_of, placed, provenance_of, provenances_of
from ..tensor.table import Rule, name_of
from .operands import added, biased, operands, summed
from .placement import agree, first, join_batches, place, refuse_pairs
from .recurrences import NO_FEATURES
from .refusals import ALONG, ATTEND, OUT, all_pairs, along_rows, refusal, same_lod, sequences_meet
from .row import enter
from .signature import SCALED, Signature, along_dim, refuse, row_by_row, signature, touches_rows

#: The number of dims of one operand of `batched`. A solution is a vector or a matrix.
_DIMS = {"matrix": 2, "vector": 1, "solution": None}


def batched(text: str) -> Rule:
    """One product or decomposition per row; `text` is a `Signature` whose operands are each a matrix, vector or solution."""
    of = Signature(text)
    operands = [(i, _DIMS[kind]) for i, kind in enumerate(of.kinds.values()) if kind in _DIMS]

    def rule(func, args, kwargs):
        values = of.bind(args, kwargs)
        batches, whole = {}, True
        for i, dims in operands:
            t = values[i]
            if t is None:
                continue
            batches[i] = t.dim() - ((1 if _is_vector(values[0], t) else 2) if dims is None else dims)
            p = placed(t)
            if p is not None and not is_whole(p):
                whole = False
                if p.dim >= t.dim() - 2:
                    raise along_rows(func, p, "one matrix would be made of the rows of all sequences")
        rows = [i for i in batches if lod_of(values[i]) is not None]
        for i in rows:
            if batches[i] < 1:
                raise refusal(
                    func,
                    f"{values[i].dim()} dims hold one matrix, made of the rows of all sequences; see x.unsqueeze(1), and "
                    f"{OUT}",
                )
        most = max([0, *batches.values()])
        if not whole or any(batches[i] != most for i in rows) or of.mixed(values, most, args, kwargs):
            return None
        return agree(func, [values[i] for i in rows])

    return rule


def _is_vector(matrix, right) -> bool:
    """How torch.linalg.solve tells a batch of vectors from a matrix."""
    return right.dim() == 1 or (right.dim() == matrix.dim() - 1 and right.shape == matrix.shape[:-1])


def matmul(func, args, kwargs):
    """A matrix of rows times a plain matrix or vector, or a matrix per row."""
    if not kwargs and len(args) == 2 and getattr(args[1], "_provenance", None) is None:  # common
        x, weight = args
        p = x._provenance
        if p.dim == 0 and p.part is None and x.dim() >= 2 and weight.dim() <= max(2, x.dim()):
            return p
    return product(func, *_FACTORS.bind(args, kwargs))


_FACTORS = Signature("input, other")


def product(func, left, right, turned: bool = False) -> Provenance | None:
    """Where the rows are in a product of matrices. With `turned` the last two dims of the right one are exchanged."""
    if not isinstance(left, Tensor) or not isinstance(right, Tensor):
        return None  # torch raises the error
    a, b, dims, others = placed(left), placed(right), left.dim(), right.dim()
    rank = max(dims, others) - (min(dims, others) == 1)
    at = None if a is None else _of_left(a.dim - dims, rank, others)
    on = None if b is None or others == 1 else _of_right(b.dim - others, rank, dims, turned)
    if a is not None and b is not None:
        sequences_meet(func, a.lod, b.lod)
        if at is None or on is None:
            return None  # summed over
        if at != on:
            raise all_pairs(func)
        if a.part != b.part:
            return None
        same_lod(func, a.lod, b.lod)
    origin, at, plain = (a, at, right) if a is not None else (b, on, left)
    if origin is None or at is None:
        return None
    place = at - rank
    if 0 < at < rank - 2 and _has_entry_for_each(plain, place):
        raise along_rows(func, origin, "a plain tensor has a matrix for each row of all sequences")
    return origin._replace(dim=at)


def _has_entry_for_each(t: Tensor, dim: int) -> bool:
    return provenance_of(t) is None and t.dim() >= -dim and t.shape[dim] != 1


def _of_left(place: int, rank: int, others: int) -> int | None:
    """Where rows of the left operand, at a dim counted from the right, are; None if the product sums over them."""
    if place == -1:
        return None
    return rank + place + (others == 1)


def _of_right(place: int, rank: int, dims: int, turned: bool) -> int | None:
    """As `_of_left`, for the right operand: it is summed over its last dim but one, or its only one."""
    if place == (-1 if turned else -2):
        return None
    if place in (-1, -2):
        return rank - 1
    return rank + place + (dims == 1)


def pairs(func, args, kwargs):
    """Distances between the rows of two matrices, or a pair of matrices per row."""
    left, right = _PAIRS.bind(args, kwargs)
    return product(func, left, right, turned=True)


_PAIRS = Signature("x1, x2")


def reflected_matmul(func, args, kwargs):
    right, left = _FACTORS.bind(args, kwargs)
    return matmul(func, (left, right), {})


def _refuse_pairs(func, *operands: tuple[Any, Sequence[int]]) -> None:
    """Raises if the rows of two operands are in the product; each with its dims that are summed over."""
    kept = []
    for t, dims in operands:
        p = placed(t)
        if p is not None and not any(d in (p.dim, p.dim - t.dim()) for d in dims):
            kept.append(t)
    refuse_pairs(func, kept)


def _refuse_beside(func, base, p: Provenance | None, rank: int) -> None:
    """Raises if rows of what is added to a product of `rank` dims are at another dim than those of the product."""
    q = placed(base)
    if p is not None and q is not None and p.dim - rank != q.dim - base.dim():
        raise all_pairs(func)


@signature("input, other: plain")
def _rows_of_inner(func, rank):
    return rank >= 2


def inner(func, args, kwargs):
    """Combines every row of the first with every row of the second; summed over the last dims."""
    left, right = _FACTORS.bind(args, kwargs)
    _refuse_pairs(func, (left, (-1,)), (right, (-1,)))
    return _rows_of_inner(func, args, kwargs)


def several(func, args, kwargs):
    """A chain of matrix products keeps the rows of its first matrix."""
    tensors = args[0] if len(args) == 1 and isinstance(args[0], (tuple, list)) else args or kwargs["tensors"]
    p = provenance_of(tensors[0])
    _refuse_pairs(func, (tensors[0], (-1,)), (tensors[-1], (0,)))
    return p if is_whole(p) and not carries(tuple(tensors[1:])) and tensors[0].dim() == 2 else None


def add_product(rank: int | None = None) -> Rule:
    """The first operand plus a product, of `rank` dims, or as many as the third operand has. Rows of the first two
    operands are rows of the result."""

    def rule(func, args, kwargs):
        base, left, right = added(args, kwargs)
        if rank:
            refuse_pairs(func, (left, right))
            p = placed(right)
            of_product = placed(left) if p is None else p._replace(dim=1)
        else:
            of_product = product(func, left, right)
        if of_product is not None:
            _refuse_beside(func, base, of_product, rank or right.dim())
        if all(is_whole(p) for p in provenances_of((base, left, right), {})):
            if lod_of(right) is not None or (lod_of(base) is not None and base.dim() != (rank or right.dim())):
                return None
            return agree(func, (base, left))
        if rank is not None or provenance_of(left) is None or provenance_of(base) is not None:
            return None
        p = of_product
        if p is not None and p.dim and base.dim() and base.shape[-1] != 1 and p.dim == left.dim() - 1:
            raise along_rows(func, p, "a plain tensor lies along the rows of all sequences")
        return p

    return rule


def add_batches(func, args, kwargs):
    """The products are summed over their batch: only the first operand's rows are rows of the result."""
    base, left, right = added(args, kwargs)
    of_product, p = product(func, left, right), provenance_of(base)
    if of_product is not None and of_product.dim:
        _refuse_beside(func, base, of_product, 3)
    return p if is_whole(p) and not carries((left, right)) and base.dim() == 2 else None


def add_each(func, args, kwargs):
    """A product for each matrix of the batch."""
    _, left, right = added(args, kwargs)
    product(func, left, right)
    return join_batches(func, args, kwargs)


def in_place_product(rule: Rule) -> Rule:
    """`rule` of a product that is added in place, whose result torch leaves undefined where an operand shares its memory."""

    def rule_of_product(func, args, kwargs):
        target, *operands = added(args, kwargs)
        if not compiling() and any(torch._C._is_alias_of(target, t) for t in operands):
            what = "expected operands that do not share memory with the tensor that is changed, got one that does: torch's result"
            raise named(LoDValueError(f"{what} is undefined; see x.{name_of(func).strip('_')}(...)"), name_of(func))
        return rule(func, args, kwargs)

    return rule_of_product


_CONTRACTED = Signature("a, b, dims=2")


@signature("a, b: plain, dims=2")
def _rows_of_tensordot(func, rank, dims):
    if not isinstance(dims, (int, tuple, list)) or dims in ((), []):
        return False
    contracted = range(rank - dims, rank) if isinstance(dims, int) else dims[0]
    contracted = (contracted,) if isinstance(contracted, int) else tuple(contracted)
    return not contracted or not touches_rows(contracted, rank)


def tensordot(func, args, kwargs):
    """The remaining dims of the first operand come first in the result, then those of the second."""
    a, b, dims = _CONTRACTED.bind(args, kwargs)
    if isinstance(dims, int):
        _refuse_pairs(func, (a, range(-dims, 0)), (b, range(dims)))
    elif isinstance(dims, (tuple, list)) and len(dims) == 2:
        _refuse_pairs(func, *[(t, d if isinstance(d, (tuple, list)) else (d,)) for t, d in zip((a, b), dims)])
    return _rows_of_tensordot(func, args, kwargs)


def each_with_each(func, args, kwargs):
    """Every entry of an operand with every entry of the others: what rows of one are left is lost."""
    refuse_pairs(func, (*args, *kwargs.values()))


def among_themselves(func, args, kwargs):
    """Every row of a matrix, or number of a vector, with every other: rows at dim 1 are summed over."""
    p = placed(args[0] if args else first(args, kwargs))
    if p is not None and p.dim == 0:
        raise all_pairs(func)


def covariance(func, args, kwargs):
    """Of the rows of a matrix; the numbers of a vector are observations of one variable."""
    x = args[0] if args else first(args, kwargs)
    return among_themselves(func, (x,), {}) if isinstance(x, Tensor) and x.dim() > 1 else None


def over_all(func, args, kwargs):
    """A number that is made of both operands, whose rows correspond."""
    place(func, (*args, *kwargs.values()), True, True)


def _letters(equation: str, dims: tuple[int, ...]) -> tuple[list[list], list] | None:
    """The letters of operands that have so many dims, and of the result; the dims of an ellipsis have numbers. None where the
    equation does not fit."""
    left, arrow, result = equation.replace(" ", "").replace("...", ".").partition("->")
    terms = left.split(",")
    if len(terms) != len(dims):
        return None
    widest = max(n - len(term) + 1 if "." in term else 0 for term, n in zip(terms, dims))
    if not arrow:
        result = "." + "".join(sorted(c for c in {*left} - {",", "."} if left.count(c) == 1))
    if "." in result and not widest:
        result = result.replace(".", "")
    named = [[c for part in term for c in _expanded(part, n - len(term) + 1, widest)] for term, n in zip(terms, dims)]
    if any(len(letters) != n for letters, n in zip(named, dims)):
        return None
    return named, [c for part in result for c in _expanded(part, widest, widest)]


#: Reading the letters takes longer than most products.
_known_letters = functools.lru_cache(maxsize=1024)(_letters)


def einsum_letters(args) -> tuple[list[Tensor], list[list], list] | None:
    """The operands of einsum, the letters of their dims, and those of the result. None where torch raises an error."""
    equation, *operands = args
    if len(operands) == 1 and isinstance(operands[0], (tuple, list)):
        operands = list(operands[0])
    if not isinstance(equation, str) or not all(isinstance(t, Tensor) for t in operands):
        return None
    found = (_letters if compiling() else _known_letters)(equation, tuple([t.dim() for t in operands]))
    return None if found is None else (operands, *found)


def einsum(func, args, kwargs):
    """Rows stay at the dim of their letter in the result. Refused if the rows of two operands are at two."""
    parsed = einsum_letters(args)
    if parsed is None:
        return None  # torch raises the error
    operands, named, after = parsed
    with_rows = []  # the letters of operands that have rows
    for t, letters in zip(operands, named):
        p = placed(t)
        if p is not None:
            with_rows.append((letters, p))
    for _, p in with_rows[1:]:
        sequences_meet(func, with_rows[0][1].lod, p.lod)
    if not with_rows or any(letters.count(letters[p.dim]) != 1 for letters, p in with_rows):
        return None
    rows, first = {letters[p.dim] for letters, p in with_rows}, with_rows[0][1]
    if len(rows) > 1 and (rows <= {*after} or _is_outer(with_rows)):
        raise all_pairs(func)
    (letter, *others) = rows
    if others or after.count(letter) != 1 or any(letters.count(letter) > 1 for letters in named):
        return None
    if any(p.part != first.part for _, p in with_rows):
        return None
    for _, p in with_rows[1:]:
        same_lod(func, first.lod, p.lod)
    return first._replace(dim=after.index(letter))


def _is_outer(with_rows: list[tuple[list, Provenance]]) -> bool:
    """Whether every row of one operand meets every row of another, also where the products are summed."""
    for i, (left, p) in enumerate(with_rows):
        for right, q in with_rows[:i]:
            if left[p.dim] not in right and right[q.dim] not in left:
                return True
    return False


def _expanded(part: str, dims: int, widest: int) -> list:
    """The dims that a letter or an ellipsis stands for; those of an ellipsis are counted from the right."""
    return [part] if part != "." else list(range(widest - dims, widest))


def cross(text: str) -> Rule:
    @signature(text)
    def rule(func, input, other, rank, dim, rows):
        if dim is None:  # then torch uses the first dim of size 3
            if input.dim() == other.dim() and input.shape[rows] == 3:
                raise refusal(func, "without dim, torch takes 3 rows for one vector; pass dim=-1")
        elif touches_rows(dim, rank, rows):
            raise refusal(func, f"{ALONG}; {OUT}")
        return True

    return rule


@signature("input, weight: beside, bias: beside")
def _linear(func, input, rank, rows):
    if rank < 2:
        raise refusal(func, NO_FEATURES)
    if rows and rows == rank - 1:
        raise refusal(func, f"{along_dim(input)}; transpose them back; {OUT}")
    return True


_BIAS = (Parameter, type(None))


def linear(func, args, kwargs):
    if not kwargs and len(args) == 3 and type(args[1]) is Parameter and type(args[2]) in _BIAS:  # what modules call
        p = getattr(args[0], "_provenance", None)
        if p is not None and p.dim == 0 and p.part is None and args[0].dim() >= 2:
            return p
    return _linear(func, args, kwargs)


@signature("input1, input2: rows, weight: beside, bias: beside")
def bilinear(func, input):
    return input.dim() >= 2


# -- the rows

#: Where rows at a dim of an operand are in the result, as `Row.product`.
MATMUL = Signature("input, other"), [{-2: -2}, {-1: -1}]
_BADDBMM = Signature("input, mat1, mat2"), [{-2: -2, -1: -1}, {-2: -2}, {-1: -1}]
_REFLECTED = Signature("input, other"), [{-1: -1}, {-2: -2}]
_PAIR = operands("input, other")
_BATCHES = operands("input, other", 2)
_MATRICES = summed(lambda left, right: (*left[:-1], right[-1]))
_VECTORS = summed(lambda left, right: left[:-1])
_SUMMED = summed(lambda left, right: (*left[1:-1], right[-1]))
_OUTER = summed(lambda left, right: (*left, *right))
enter("join", matmul, "bmm", instead=ATTEND, broadcasts=_BATCHES, product=MATMUL)
enter("join", add_each, "baddbmm", sums=_MATRICES, product=_BADDBMM)
enter("join", in_place_product(add_each), "baddbmm_", sums=_MATRICES)
enter("join", bilinear, "bilinear")
enter(
    "join",
    pairs,
    "cdist",
    broadcasts=operands("x1, x2", 2),
    instead=ATTEND,
    product=(Signature("x1, x2"), [{-2: -2}, {-2: -1}]),
)
enter("join", cross("input: broadcast, other: broadcast, dim"), "cross", broadcasts=_PAIR)
enter("join", cross("input: broadcast, other: broadcast, dim=-1"), "cross", (torch.linalg,), broadcasts=_PAIR)
enter("refuse", linear, "linear", sums=biased)
enter("matmul", matmul, "mm", instead=ATTEND)
enter("matmul", matmul, "mv")
enter("matmul", matmul, "matmul __matmul__", instead=ATTEND, broadcasts=_BATCHES, product=MATMUL)
enter("matmul", matmul, "matmul", (torch.linalg,), broadcasts=_BATCHES, product=MATMUL)
enter(
    "matmul",
    reflected_matmul,
    "__rmatmul__",
    calls=lambda call, x, y: call(torch.matmul, y, x),
    broadcasts=_BATCHES,
    product=_REFLECTED,
)
enter("matmul", add_product(), "addmm", sums=_MATRICES)
enter("matmul", add_product(), "addmv", sums=_VECTORS)
enter("matmul", in_place_product(add_product()), "addmm_", sums=_MATRICES)
enter("matmul", in_place_product(add_product()), "addmv_", sums=_VECTORS)
enter("matmul", add_batches, "addbmm", sums=_SUMMED)
enter("matmul", in_place_product(add_batches), "addbmm_", sums=_SUMMED)
enter("matmul", add_product(2), "addr", sums=_OUTER)
enter("matmul", in_place_product(add_product(2)), "addr_", sums=_OUTER)
enter("matmul", inner, "inner")
enter("matmul", row_by_row("input, vec2: beside"), "outer ger")
enter("matmul", several, "chain_matmul", (torch,))
enter("matmul", several, "multi_dot", (torch.linalg,))
enter("matmul", tensordot, "tensordot", (torch,))
enter("matmul", einsum, "einsum", (torch,), instead=ATTEND)
enter(
    "matmul", each_with_each, "cartesian_prod kron meshgrid", (torch, Tensor, torch._C._VariableFunctions)
)  # for lists
enter("matmul", among_themselves, "combinations pdist")
enter("matmul", covariance, "corrcoef cov")
enter("matmul", over_all, "dist dot vdot")
enter("matmul", None, "block_diag trace hspmm saddmm smm sspaddmm")

_QUANTIZED = (torch.ops.quantized,)
enter("refuse", linear, "linear_dynamic_fp16 linear_relu_dynamic_fp16", _QUANTIZED)
enter("refuse", linear, "linear_dynamic_fp16_unpacked_weight", _QUANTIZED)
enter("keep", row_by_row("input"), "fbgemm_linear_fp16_weight fbgemm_linear_fp16_weight_fp32_activation", (torch,))
enter(
    "refuse",
    refuse(f"its scale is taken from the rows of all sequences; {OUT}"),
    "fused_moving_avg_obs_fake_quant fbgemm_linear_int8_weight fbgemm_linear_int8_weight_fp32_activation",
    (torch,),
)
enter("refuse", SCALED, "linear_dynamic linear_relu_dynamic", _QUANTIZED)

_ONE = "cholesky cholesky_ex cond det eig eigh eigvals eigvalsh inv inv_ex ldl_factor ldl_factor_ex lu lu_factor lu_factor_ex"
enter(
    "refuse",
    batched("A: matrix"),
    f"{_ONE} matrix_exp matrix_power matrix_rank pinv qr slogdet svd svdvals",
    (torch.linalg,),
)
_ONE = (
    "cholesky cholesky_inverse det geqrf inverse logdet lu matrix_exp matrix_power pca_lowrank pinverse qr slogdet svd"
)
enter("refuse", batched("A: matrix"), _ONE, (torch, Tensor))
enter("refuse", batched("A: matrix, k, B: matrix, X: matrix, n, iK: matrix"), "lobpcg", (torch,))
enter("refuse", batched("A: matrix, q, niter, M: matrix"), "svd_lowrank", (torch,))
enter("refuse", batched("A: matrix, B: solution"), "lstsq solve solve_ex", (torch.linalg,))
enter("refuse", batched("A: matrix, B: matrix"), "solve_triangular", (torch.linalg,))
enter("refuse", batched("LU: matrix, pivots: vector, B: matrix"), "lu_solve", (torch.linalg,))
enter("refuse", batched("LD: matrix, pivots: vector, B: matrix"), "ldl_solve", (torch.linalg,))
enter("refuse", batched("A: matrix, tau: vector"), "householder_product", (torch.linalg,))
enter("refuse", batched("A: matrix, tau: vector"), "orgqr", (torch, Tensor))
enter("refuse", batched("A: matrix, tau: vector, other: matrix"), "ormqr", (torch, Tensor))
enter("refuse", batched("b: matrix, LU_data: matrix, LU_pivots: vector"), "lu_solve", (torch, Tensor))
enter("refuse", batched("LU_data: matrix, LU_pivots: vector"), "lu_unpack", (torch,))
enter("refuse", batched("b: matrix, L: matrix"), "cholesky_solve", (torch, Tensor))
enter("refuse", batched("b: matrix, A: matrix"), "triangular_solve", (torch, Tensor))
enter(
    "refuse",
    refuse(f"rows would be interpreted as the rows of one matrix; {OUT}"),
    "tensorinv tensorsolve",
    (torch.linalg,),
)
