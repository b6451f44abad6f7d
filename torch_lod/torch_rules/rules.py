# SPDX-License-Identifier: Apache-2.0
"""The rules. Each is called before its function runs, and tells whether the rows of the operands are the rows of the
result (`signature`), or raises."""

import torch
from torch import Tensor

from ..dynamo import holds
from ..errors import LoDValueError, named
from ..lod import LoD
from .arguments import NO_SEQUENCES, OUT, carries, lod_of, refusal, same_lod, touches_rows
from .operands import agree, join
from .signature import signature

ALONG = "along dim 0 mixes the rows of different sequences"
DIAGONAL = "its diagonal would run through the rows of all sequences"
NO_FEATURES = "rows of no features would be taken for the features of one row; see x.unsqueeze(1)"


def row_by_row(text: str):
    """Row i of the result is made of row i of every operand."""
    return signature(text)(lambda func: True)


def elsewhere(text: str):
    """The result keeps the rows unless dim 0 is among the dims."""

    @signature(text)
    def rule(func, rank, dim):
        return not touches_rows(dim, rank)

    return rule


def refuse_on_rows(text: str, advice: str):
    """As `elsewhere`, but if dim 0 is among the dims and the input has a LoD, it raises."""

    @signature(text)
    def rule(func, input, dim):
        touched = touches_rows(dim, input.dim())
        if touched and lod_of(input) is not None:
            raise refusal(func, f"{ALONG}; {advice}")
        return not touched

    return rule


def refuse(advice: str):
    def rule(func, args, kwargs):
        raise refusal(func, advice)

    return rule


moves_in_place = refuse(
    "the rows would move and leave the LoD behind; use the form that returns a new tensor, or x.values()"
)


def moves(func, args, kwargs):
    """Rows are read or written at indices: the result is plain."""


def refuse_out(func, out) -> None:
    """`out=` would write other rows, while the LoD would stay."""
    if carries(out):
        raise refusal(func, "out= would leave its LoD behind; write into x.values()")


# -- row by row


def where(func, args, kwargs):
    return join(func, args, kwargs) if len(args) + len(kwargs) >= 3 else None


@signature("anchor: broadcast, positive: broadcast, negative: broadcast, *, distance_function")
def triplet(func, distance_function):
    """The user's own distance function may do anything with the rows."""
    return distance_function is None


@signature("sorted_sequence: broadcast, input: broadcast, *, sorter: broadcast")
def searchsorted(func, sorted_sequence):
    return lod_of(sorted_sequence) is None or sorted_sequence.dim() >= 2


@signature("input, hx: rows")
def cell(func, input):
    """A step of a recurrence treats rows as a batch. Torch does not check the dims and crashes with more than 2."""
    if lod_of(input) is not None and input.dim() < 2:
        raise refusal(func, NO_FEATURES)
    if lod_of(input) is not None and input.dim() > 2:
        raise refusal(func, f"a step takes rows of features, not {tuple(input.shape)}; see x.flatten(1)")
    return True


@signature("input, weight: plain, bias: plain")
def linear(func, rank):
    if rank < 2:
        raise refusal(func, NO_FEATURES)
    return True


@signature("input1, input2: rows, weight: plain, bias: plain")
def bilinear(func, input):
    return input.dim() >= 2


@signature("input, normalized_shape, weight: plain, bias: plain")
def layer_norm(func, rank, normalized_shape):
    if len(normalized_shape) >= rank:
        raise refusal(func, f"a normalized_shape of {len(normalized_shape)} dims takes its statistics over rows")
    return True


@signature("input, weight: plain, bias: plain, N")
def group_norm(func, input, N):
    """The number of samples is an argument."""
    if N != input.shape[0]:
        raise refusal(func, f"{N} samples of {input.shape[0]} rows take their statistics over several rows; {OUT}")
    return True


@signature(
    "input, weight: plain, offsets, max_norm, norm_type, scale_grad_by_freq, mode, sparse, per_sample_weights: rows"
)
def bag(func, input):
    """A bag per row of ids. A floating input is the weight: torch also takes the arguments in that order."""
    if input.dim() < 2:
        raise refusal(func, "its bags are cut by offsets of their own; pool nn.Embedding's rows with tl.sequence_pool")
    return not input.is_floating_point()


@signature("log_probs, targets")
def ctc(func):
    raise refusal(func, f"its dim 0 is the time of all sequences at once; {NO_SEQUENCES}")


def windows(spatial: int, text: str = "input"):
    """Convolution and pooling: with all dims, rows are the batch; with one dim less, the windows run over the rows."""

    @signature(text)
    def rule(func, input):
        if lod_of(input) is not None and input.dim() < spatial + 2:
            raise refusal(
                func,
                f"an input of {input.dim()} dims is one sample whose rows it would run together; see x.to_padded()",
            )
        return True

    return rule


# -- reductions over dims, or moves along dims


@signature("input, other: rows, *, dim")
def extreme(func, input, rank, other, dim):
    """max and min compare two tensors, or reduce over a dim, which may be given as the second argument."""
    if isinstance(other, Tensor):
        return join(func, (input, other), {})
    return not touches_rows(dim if other is None else other, rank)


@signature("input, q, dim")
def quantile(func, rank, q, dim):
    """Several quantiles become dim 0 of the result."""
    return not (isinstance(q, Tensor) and q.dim()) and not touches_rows(dim, rank)


@signature("v, pow, dim=0")
def norm_except_dim(func, dim):
    """One norm for each index of a dim; dim -1: one norm of everything."""
    return dim == 0


@signature("input, p, dim")
def renorm(func, rank, dim):
    if not touches_rows(dim, rank):
        raise refusal(func, f"along another dim than 0 its norms run over rows; {OUT}")
    return True


@signature("input, *dims")
def flip(func, rank, dims):
    if touches_rows(dims, rank):
        raise refusal(func, f"{ALONG}; tl.sequence_reverse turns them, and {OUT}")
    return True


@signature("input, s, dim")
def fft(func, rank, s, dim):
    """Over several dims; without dims the last len(s) dims."""
    if touches_rows(tuple(range(-len(s), 0)) if dim is None and s else dim, rank):
        raise refusal(func, f"{ALONG}; {NO_SEQUENCES}")
    return True


@signature("input, diagonal")
def triangle(func, rank):
    if rank < 3:
        raise refusal(func, f"{DIAGONAL}; {OUT}")
    return True


# -- views


@signature("input, *shape, dtype")
def reshape(func, input, shape, dtype):
    """The LoD stays if dim 0 keeps its size: then the rows are the same rows."""
    if isinstance(shape[0] if shape else dtype, torch.dtype):
        return True
    return len(shape) > 0 and (shape[0] == input.shape[0] or (shape[0] == -1 and input.numel() > 0))


@signature("input, *shape")
def expand(func, input, rank, shape):
    return len(shape) == rank and shape[0] in (-1, input.shape[0])


@signature("input, *repeats")
def repeat(func, rank, repeats):
    return len(repeats) == rank and repeats[0] == 1


@signature("input, start_dim=0")
def flatten(func, rank, start_dim):
    return rank == 1 or not touches_rows(start_dim, rank)


@signature("input, dim")
def squeeze(func, input, rank, dim):
    return input.shape[0] != 1 or not (dim is None or touches_rows(dim, rank))


@signature("input, dim")
def unsqueeze(func, rank, dim):
    if touches_rows(dim, rank + 1):
        raise refusal(
            func, "behind a new dim 0 all rows would be one sample; for a recurrence use tl.nn.LSTM or tl.nn.GRU"
        )
    return True


@signature("input, dim0, dim1")
def transpose(func, rank, dim0, dim1):
    return not touches_rows((dim0, dim1), rank)


@signature("input, *dims")
def permute(func, rank, dims):
    return len(dims) > 0 and dims[0] in (0, -rank)


@signature("input, source, destination")
def movedim(func, rank, source, destination):
    return not touches_rows(source, rank) and not touches_rows(destination, rank)


@signature("input")
def adjoint(func, rank):
    """Transposes the last two dims."""
    return rank >= 3


def diagonal(text: str, more: int = 0):
    """Over two dims of the input, or of a result that has `more` dims more."""

    @signature(text)
    def rule(func, input, dim1, dim2):
        return not touches_rows((dim1, dim2), input.dim() + more)

    return rule


def ranked(least: int):
    """Keeps the LoD of a single tensor with at least `least` dims; with fewer dims, rows would move or not be rows."""

    @signature("input, *more")
    def rule(func, rank, more):
        return rank >= least and not any(isinstance(value, Tensor) for value in more)

    return rule


@signature("input, pad")
def pad(func, rank, pad):
    if len(pad) // 2 >= rank:
        raise refusal(func, "padding dim 0 adds rows that belong to no sequence; use x.to_padded()")
    return True


# -- rows by index


def getitem(func, args, kwargs):
    x, key = args
    lod = lod_of(x)
    if lod is None:
        return None
    if lod_of(key) is not None and key.dtype == torch.bool:
        same_lod("x[mask]", lod, lod_of(key))
    key = key if isinstance(key, tuple) else (key,)
    first, rest = key[0] if key else slice(None), key[1:]
    if any(lod_of(k) is not None for k in rest):
        return None
    lists = [i for i, k in enumerate(rest) if isinstance(k, bool) or not isinstance(k, _NO_LIST)]
    if lists and lists[-1] - lists[0] + 1 != len(lists):
        return None  # index tensors that are not adjacent move their dims to the front
    if isinstance(first, slice) and first == slice(None):
        return lod
    taken = sum(k.dim() if isinstance(k, Tensor) and k.dtype == torch.bool else k is not None for k in rest)
    return lod if first is Ellipsis and taken < x.dim() else None


_NO_LIST = (slice, int, type(None), type(Ellipsis))


def set_item(func, args, kwargs):
    """A LoDTensor as value must have the same rows as what it overwrites; with a LoDTensor as mask, the value is one
    number or one row for all."""
    x, key, value = args
    if lod_of(x) is None:
        return
    keys = key if isinstance(key, tuple) else (key,)
    for k in keys:
        if lod_of(k) is None:
            continue
        if k.dtype != torch.bool or len(keys) > 1:
            raise refusal(func, "its rows would say which rows are written; pass .values() of the index")
        same_lod("x[mask] =", lod_of(x), lod_of(k))
        if isinstance(value, Tensor) and value.dim() > x.dim() - k.dim() and value.shape[0] != 1:
            raise refusal(func, f"what is written where is counted over all rows; see torch.where, and {OUT}")
    if lod_of(value) is not None:
        lod = getitem(func, (x, key), {})
        if lod is None or x[key].dim() != value.dim():
            raise refusal(func, "rows of the value would be written over other rows; assign its .values()")
        same_lod("x[...] =", lod, lod_of(value))


@signature("input, indices, values")
def put_in_place(func, input, indices, values):
    set_item(func, (input, tuple(indices), values), {})


def data(func, args, kwargs):
    x, new = args
    if lod_of(new) is not None:
        same_lod("data", lod_of(x), lod_of(new))
    if isinstance(new, Tensor) and (new.dim() == 0 or new.shape[0] != lod_of(x).rows):
        raise refusal(func, f"its LoD covers {lod_of(x).rows} rows; use x.with_lod(...) for other rows")


# -- joining tensors


@signature("tensors: tensors, dim=0")
def join_tensors(func, tensors, dim):
    rank = max([0, *[t.dim() for t in tensors]])
    if not touches_rows(dim, rank + (func is torch.stack)):
        return join(func, tuple(tensors), {})
    if func is not torch.stack:
        return _chained([lod_of(t) for t in tensors])
    agree(func, tensors)  # plain; but rows that are stacked must have the same structure
    return None


def stack_at(least: int, below=None):
    """hstack and similar functions join tensors of at least `least` dims along another dim than 0; others by rule
    `below`."""

    @signature("tensors: tensors")
    def rule(func, tensors):
        if any(t.dim() < least for t in tensors if lod_of(t) is not None):
            return None if below is None else below([lod_of(t) for t in tensors])
        return agree(func, tensors)

    return rule


@signature("tensors: tensors")
def vstack(func, tensors):
    return _chained([lod_of(t) if t.dim() > 1 else None for t in tensors])


def _chained(lods) -> LoD | None:
    return None if any(lod is None for lod in lods) or len({lod.depth for lod in lods}) > 1 else chain(lods)


def chain(lods) -> LoD:
    """The sequences of several LoDs one after another."""
    rows, levels = sum(lod.rows for lod in lods), []
    if not holds(rows < 2**63):
        raise named(LoDValueError(f"expected fewer than 2**63 rows in all, got {rows}"), "cat")
    for k in range(lods[0].depth):
        parts, end = [torch.zeros(1, dtype=torch.int64, device="cpu")], 0
        for lod in lods:
            offsets = lod.levels[k]
            parts.append(offsets[1:] + end)
            end += lod.elements_at(k)
        levels.append(torch.cat(parts))
    return LoD.checked("offsets", levels, lods[0].level_names, rows)
