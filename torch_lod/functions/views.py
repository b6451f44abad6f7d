# SPDX-License-Identifier: Apache-2.0
"""Views: at which dim of the result the rows are."""

import math

import torch
from torch import Tensor

from ..dynamo import known
from ..tensor.provenance import At, placed
from .placement import first
from .refusals import PADDED
from .row import attribute, enter
from .signature import refuse, signature, touches_rows


def found(before, after, rows: int) -> At | bool:
    """Where the rows are after the sizes `before` became `after`: at a dim of their size with as many elements before
    it, the nearest where there are several, since a batch may have one row. There is none if they were merged with another
    dim or cut."""
    ahead, count = math.prod(before[:rows]) if rows else 1, before[rows]
    if rows < len(after) and known(math.prod(after[:rows]) == ahead) and known(after[rows] == count):
        return At(rows)
    seen, at = 1, None
    for i, size in enumerate(after):
        if known(seen == ahead) and known(size == count):
            at = i
            if i > rows:
                break
        seen *= size
    return False if at is None else At(at)


def _sizes(shape, count) -> list:
    """Sizes without -1."""
    if -1 not in shape:
        return shape
    others = math.prod([n for n in shape if n != -1])
    return [count // others if n == -1 and others else n for n in shape]


@signature("input, *shape, dtype")
def reshape(func, input, shape, dtype, rows):
    before, ahead = input.shape, shape[0] if shape else dtype
    if isinstance(ahead, torch.dtype):
        return rows < len(before) - 1 or len(before) == 1
    if not len(shape):
        return False
    for n in shape:
        if type(n) is not int and not isinstance(n, (int, torch.SymInt)):
            return False
    if not rows and (known(ahead == before[0]) or (ahead == -1 and len(shape) == len(before) == 1)):
        # of one row, x.view(1, -1, features) is what x[None] is
        return At(1) if _one(shape, before) else True
    return found(before, _sizes(shape, input.numel()) if -1 in shape else shape, rows)


def _one(shape, before) -> bool:
    """Whether the rows, of which there is one, are asked for at dim 1, by -1."""
    if len(shape) < 2 or shape[1] != -1 or math.prod(shape[2:]) != math.prod(before[1:]):
        return False
    return known(shape[0] == 1)


def reshape_as(func, args, kwargs):
    """The other operand only has a shape."""
    return _as(reshape, func, args, kwargs)


def _as(rule, func, args, kwargs):
    x = args[0] if args else first(args, kwargs)
    other = args[1] if len(args) > 1 else kwargs.get("other")
    return rule(func, (x, *other.shape), {}) if isinstance(other, Tensor) else None


@signature("input, *shape")
def expand(func, input, rank, shape, rows):
    more = len(shape) - rank
    if more < 0 or not (shape[rows + more] == -1 or shape[rows + more] == input.shape[rows]):
        return False
    return At(rows + more) if rows + more else True


def expand_as(func, args, kwargs):
    """The other operand only has a shape."""
    return _as(expand, func, args, kwargs)


@signature("input, *repeats")
def repeat(func, rank, repeats, rows):
    more = len(repeats) - rank
    if (more < 0 or repeats[rows + more] != 1) and not (func.__name__ == "tile" and rows + more < 0):
        return False
    return At(rows + max(more, 0)) if rows + more > 0 else True


@signature("input, start_dim=0, end_dim=-1")
def flatten(func, input, rank, start_dim, end_dim, rows):
    start, end, shape = start_dim % rank, end_dim % rank, input.shape
    if not start <= rows <= end:
        return At(rows - max(0, end - start)) if rows > end else True
    merged = math.prod(shape[start:rows]) * math.prod(shape[rows + 1 : end + 1])
    return At(start) if merged == 1 else False


@signature("input, dim, sizes")
def unflatten(func, input, rank, dim, sizes, rows):
    if not isinstance(dim, int) or not isinstance(sizes, (tuple, list)):
        return False
    dim %= rank
    if rows != dim:
        return At(rows + len(sizes) - 1) if rows > dim else True
    if -1 in sizes:  # one row may be at any of them
        inside = math.prod([n for n in sizes if n != -1]) == 1 and At(sizes.index(-1))
    else:
        inside = found((input.shape[dim],), sizes, 0)
    return inside and At(dim + inside.dim)


@signature("input, dim")
def squeeze(func, input, rank, dim, rows):
    if input.shape[rows] == 1 and (dim is None or touches_rows(dim, rank, rows)):
        return False
    if not rows:
        return True
    dims = range(rank) if dim is None else [d % rank for d in (dim if isinstance(dim, (tuple, list)) else (dim,))]
    return At(rows - sum(d < rows and input.shape[d] == 1 for d in dims))


@signature("input, dim")
def unsqueeze(func, rank, dim, rows):
    at = rows + (dim % (rank + 1) <= rows)
    return At(at) if at else True


@signature("input, dim0, dim1")
def transpose(func, rank, dim0, dim1, rows):
    a, b = dim0 % rank, dim1 % rank
    if rows not in (a, b) or a == b:
        return True
    return At(a + b - rows)


@signature("input, *dims")
def permute(func, rank, dims, rows):
    return _after([d % rank for d in dims], rows) if len(dims) == rank else False


@signature("input, source, destination")
def movedim(func, rank, source, destination, rows):
    """The dims that are not named fill what is left, in their order."""
    pairs = [(v if isinstance(v, (tuple, list)) else (v,)) for v in (source, destination)]
    sources, destinations = ([d % rank for d in pair] for pair in pairs)
    order = [d for d in range(rank) if d not in sources]
    for to, d in sorted(zip(destinations, sources)):
        order.insert(to, d)
    return _after(order, rows)


def _after(order: list, rows: int) -> At | bool:
    if rows not in order:
        return False
    at = order.index(rows)
    return At(at) if at != rows else True


@signature("input")
def adjoint(func, input, rank, rows):
    """Transposes the last two dims."""
    return At(2 * rank - 3 - rows) if rank > 1 and rows >= rank - 2 else True


@signature("input")
def reverse(func, rank, rows):
    """The dims in reverse."""
    return At(rank - 1 - rows) if rank > 1 else True


def diagonal(text: str, more: int = 0):
    """Over two dims of the input, or of a result that has `more` dims more."""

    @signature(text)
    def rule(func, input, dim1, dim2, rows):
        rank = input.dim() + more
        if rows and more:
            return False
        if touches_rows((dim1, dim2), rank, rows):
            return False
        return At(rows - sum(d % rank < rows for d in (dim1, dim2))) if rows else True

    return rule


def ranked(least: int):
    """Keeps the LoD of a single tensor with at least `least` dims; with fewer dims, rows would move or not be rows."""

    @signature("input, *more")
    def rule(func, rank, more):
        return rank >= least and not any(isinstance(value, Tensor) for value in more)

    return rule


def at_least(least: int):
    """atleast_1d, 2d and 3d of one tensor or several: each result has the rows of its own."""

    def rule(func, args, kwargs):
        x = args[0] if args else first(args, kwargs)
        p = placed(x)
        if len(args) > 1 or p is None:
            return None
        ahead = x.dim() == 1 and least > 1  # (n,) becomes (1, n) and (1, n, 1), (n, d) becomes (n, d, 1)
        return p._replace(dim=p.dim + ahead)

    return rule


moves_in_place = refuse(
    "the rows would move and leave the LoD behind; use the form that returns a new tensor, or x.values()"
)

# -- the rows

enter("shape", transpose, "transpose swapaxes swapdims transpose_copy")
enter("shape", adjoint, "adjoint")
attribute("shape", adjoint, "mT mH")
enter("shape", permute, "permute permute_copy")
enter("shape", movedim, "movedim moveaxis")
enter("shape", squeeze, "squeeze squeeze_copy")
enter("shape", unsqueeze, "unsqueeze unsqueeze_copy")
enter("shape", flatten, "flatten ravel", instead=PADDED)
enter("shape", unflatten, "unflatten", instead=PADDED)
enter("shape", reshape, "view reshape", instead=PADDED)
enter("shape", reshape, "view_copy")
enter("shape", expand, "expand broadcast_to expand_copy")
enter("shape", repeat, "repeat tile")
for _n in (1, 2, 3):
    enter("shape", at_least(_n), f"atleast_{_n}d", (torch,))
enter("shape", diagonal("input, offset, dim1=0, dim2=1"), "diagonal diagonal_copy")
enter("shape", diagonal("input, offset, dim1=-2, dim2=-1"), "diagonal", (torch.linalg,))
enter("shape", diagonal("input, offset, dim1=-2, dim2=-1", more=1), "diag_embed")
enter("shape", reverse, "t t_copy")
attribute("shape", reverse, "T H")
enter("shape", None, "diag diagflat resize resize_as")

enter("join", expand_as, "expand_as", shape_only=True)
enter("join", reshape_as, "view_as reshape_as", shape_only=True)
enter(
    "refuse",
    moves_in_place,
    "as_strided_ resize_ resize_as_ resize_as_sparse_ set_ sort_ sparse_resize_ sparse_resize_and_clear_ squeeze_ swapaxes_ "
    "swapdims_ t_ transpose_ unsqueeze_",
)
