# SPDX-License-Identifier: Apache-2.0
"""The rules. Each is asked before its function runs, and returns the LoD that the result carries, None for a plain tensor,
or raises."""

import torch
from torch import Tensor

from ..lod import LoD
from .words import _OUT, _first, _lod_of, _name, _numbers, _option, _others, _refusal, _touches_rows, same_lod


def keep(func, args, kwargs):
    return getattr(args[0] if args else _first(args, kwargs), "_lod", None)


def join(func, args, kwargs):
    if not kwargs and len(args) <= 2:  # the common calls, without the loop
        a, b = args[0], args[-1]
        lod, other = getattr(a, "_lod", None), getattr(b, "_lod", None)
        if lod is other or (other is None and not isinstance(b, Tensor)):
            return lod if a is b or other is None or a.dim() == b.dim() else None
    lod, rank, most = None, 0, 0
    for value in (*args, *kwargs.values()):
        if not isinstance(value, Tensor):
            continue
        dims = value.dim()
        most = max(most, dims)
        other = getattr(value, "_lod", None)
        if other is not None:
            if lod is not None:
                if lod is not other:
                    other = same_lod(_name(func), lod, other)
                if dims != rank:
                    return None  # broadcasting lines rows of one up with elements of the other
            lod, rank = other, dims
    return lod if most <= rank else None


def join_in_place(func, args, kwargs):
    """The result is the first operand itself, with the LoD that it has."""
    if join(func, args, kwargs) is None and _lod_of(_first(args, kwargs)) is not None and _others(args, kwargs):
        raise _refusal(func, "its rows would be lined up with elements of the other's rows")


def keep_alone(func, args, kwargs):
    """As keep; plain where weights are made of rows."""
    return None if _others(args, kwargs) else keep(func, args, kwargs)


def join_inputs(func, args, kwargs):
    """Operands whose rows correspond whatever their ranks: logits and class numbers, two inputs."""
    lod = None
    for value in (*args[:2], *(kwargs.get(k) for k in ("input", "target", "input1", "input2"))):
        other = _lod_of(value)
        if other is not None:
            lod = other if lod is None else same_lod(_name(func), lod, other)
    return lod


def similarity(func, args, kwargs):
    rank = max(_option(args, kwargs, i, name).dim() for i, name in enumerate(("x1", "x2")))
    return None if _touches_rows(_option(args, kwargs, 2, "dim", default=1), rank) else join(func, args, kwargs)


def layer_norm(func, args, kwargs):
    x, shape = _first(args, kwargs), _option(args, kwargs, 1, "normalized_shape")
    if _lod_of(x) is not None and len(shape) >= x.dim():
        raise _refusal(func, f"a normalized_shape of {len(shape)} dims takes its statistics over rows")
    return keep_alone(func, args, kwargs)


def join_tensors(func, args, kwargs):
    tensors = _option(args, kwargs, 0, "tensors")
    dim = _option(args, kwargs, 1, "dim", default=0)
    rank = max((t.dim() for t in tensors), default=0)
    if not _touches_rows(dim, rank + (func is torch.stack)):
        return join(func, tuple(tensors), {})
    lods = [_lod_of(t) for t in tensors]
    if func is torch.stack:  # plain; but what is stacked row by row should have the same structure
        for lod in lods[1:]:
            if lods[0] is not None and lod is not None:
                same_lod(_name(func), lods[0], lod)
        return None
    if any(lod is None for lod in lods) or len({lod.depth for lod in lods}) > 1:
        return None
    return chain(lods)


def chain(lods) -> LoD:
    """The sequences of several LoDs one after another."""
    levels = []
    for k in range(lods[0].depth):
        parts, end = [torch.zeros(1, dtype=torch.int64, device="cpu")], 0
        for lod in lods:
            offsets = lod._offsets[k]
            parts.append(offsets[1:] + end)
            end += int(offsets[-1])
        levels.append(torch.cat(parts))
    return LoD._of("cat", "offsets", levels, lods[0].level_names)


def reduce(place: int, default=None):
    def rule(func, args, kwargs):
        x = _first(args, kwargs)
        lod = _lod_of(x)
        return (
            None if lod is None or _touches_rows(_option(args, kwargs, place, "dim", default=default), x.dim()) else lod
        )

    return rule


def extreme(func, args, kwargs):
    """max and min reduce, or compare two tensors."""
    other = _option(args, kwargs, 1, "other")
    return (join if isinstance(other, Tensor) else reduce(1))(func, args, kwargs)


def where(func, args, kwargs):
    return join(func, args, kwargs) if len(args) + len(kwargs) >= 3 else None


def linear(func, args, kwargs):
    x = _first(args, kwargs)
    if _lod_of(x) is not None and x.dim() < 2:
        raise _refusal(func, "rows of no features would be taken for the features of one row; see x.unsqueeze(1)")
    return keep_alone(func, args, kwargs)


def bilinear(func, args, kwargs):
    x, weight = _first(args, kwargs), _option(args, kwargs, 2, "weight")
    return join_inputs(func, args, kwargs) if x.dim() >= 2 and _lod_of(weight) is None else None


def torch_embedding(func, args, kwargs):
    """torch.embedding(weight, indices): the order of torch.nn.functional's arguments turned round."""
    weight, indices = _option(args, kwargs, 0, "weight"), _option(args, kwargs, 1, "indices")
    return _lod_of(indices) if _lod_of(weight) is None else None


def quantile(func, args, kwargs):
    q = _option(args, kwargs, 1, "q")
    return None if isinstance(q, Tensor) and q.dim() else reduce(2)(func, args, kwargs)


def renorm(func, args, kwargs):
    x = _first(args, kwargs)
    if _lod_of(x) is not None and not _touches_rows(_option(args, kwargs, 2, "dim"), x.dim()):
        raise _refusal(func, f"along another dim than 0 its norms run over rows; {_OUT}")
    return _lod_of(x)


def flip(func, args, kwargs):
    x, dims = _first(args, kwargs), _numbers(args, kwargs, "dims")
    if _lod_of(x) is not None and _touches_rows(dims, x.dim()):
        raise _refusal(
            func, f"along dim 0 mixes the rows of different sequences; tl.sequence_reverse turns them, and {_OUT}"
        )
    return _lod_of(x)


def refuse_on_rows(place: int, name: str, default, advice: str):
    def rule(func, args, kwargs):
        x = _first(args, kwargs)
        lod = _lod_of(x)
        dims = _option(args, kwargs, place, name, default=default)
        if lod is not None and _touches_rows(dims, x.dim()):
            raise _refusal(func, f"along dim 0 mixes the rows of different sequences; {advice}")
        return lod

    return rule


def refuse(advice: str):
    def rule(func, args, kwargs):
        raise _refusal(func, advice)

    return rule


def matmul(func, args, kwargs):
    x, other = _first(args, kwargs), _option(args, kwargs, 1, "other", "mat2", "vec")
    return _lod_of(x) if x.dim() >= 2 and other.dim() <= 2 and _lod_of(other) is None else None


def add_matmul(func, args, kwargs):
    """A product of the second and third operand, added to the first."""
    base, other = _first(args, kwargs), _option(args, kwargs, 2, "mat2", "vec")
    lod = _lod_of(_option(args, kwargs, 1, "mat1", "mat"))
    if lod is None or _lod_of(other) is not None:
        return None
    if _lod_of(base) is not None:
        same_lod(_name(func), _lod_of(base), lod)
        return lod if base.dim() == other.dim() else None
    return lod


def add_matmul_in_place(func, args, kwargs):
    if _lod_of(_first(args, kwargs)) is not None and add_matmul(func, args, kwargs) is None:
        raise _refusal(func, f"the product mixes rows; {_OUT}")


def getitem(func, args, kwargs):
    x, key = args
    lod = _lod_of(x)
    if lod is None:
        return None
    if _lod_of(key) is not None and key.dtype == torch.bool:
        same_lod("x[mask]", lod, _lod_of(key))
    key = key if isinstance(key, tuple) else (key,)
    first, rest = key[0] if key else slice(None), key[1:]
    lists = [i for i, k in enumerate(rest) if not isinstance(k, (slice, int, type(None), type(Ellipsis)))]
    if lists and lists[-1] - lists[0] + 1 != len(lists):
        return None  # index tensors apart from one another move their dims to the front
    if isinstance(first, slice) and first == slice(None):
        return lod
    taken = sum(k.dim() if isinstance(k, Tensor) and k.dtype == torch.bool else k is not None for k in rest)
    return lod if first is Ellipsis and taken < x.dim() else None


def set_item(func, args, kwargs):
    x, key, value = args
    whole = key is Ellipsis or (isinstance(key, slice) and key == slice(None))
    if whole and _lod_of(x) is not None and _lod_of(value) is not None:
        same_lod("x[...] =", _lod_of(x), _lod_of(value))


def transpose(func, args, kwargs):
    x = _first(args, kwargs)
    dims = [_option(args, kwargs, 1, "dim0", "axis0"), _option(args, kwargs, 2, "dim1", "axis1")]
    return None if _touches_rows(dims, x.dim()) else _lod_of(x)


def permute(func, args, kwargs):
    x, dims = _first(args, kwargs), _numbers(args, kwargs, "dims")
    return _lod_of(x) if dims and dims[0] in (0, -x.dim()) else None


def movedim(func, args, kwargs):
    x = _first(args, kwargs)
    ends = [_option(args, kwargs, 1, "source"), _option(args, kwargs, 2, "destination")]
    return None if any(_touches_rows(e, x.dim()) for e in ends) else _lod_of(x)


def squeeze(func, args, kwargs):
    x, dim = _first(args, kwargs), _option(args, kwargs, 1, "dim")
    return None if x.shape[0] == 1 and (dim is None or _touches_rows(dim, x.dim())) else _lod_of(x)


def unsqueeze(func, args, kwargs):
    x = _first(args, kwargs)
    if _lod_of(x) is not None and _touches_rows(_option(args, kwargs, 1, "dim"), x.dim() + 1):
        raise _refusal(
            func, "behind a new dim 0 all rows would be one sample; for a recurrence use tl.nn.LSTM or tl.nn.GRU"
        )
    return _lod_of(x)


def flatten(func, args, kwargs):
    x = _first(args, kwargs)
    start = _option(args, kwargs, 1, "start_dim", default=0)
    return None if x.dim() > 1 and _touches_rows(start, x.dim()) else _lod_of(x)


def reshape(func, args, kwargs):
    """The first dim stays: as many elements in as many rows are the same rows."""
    x = _first(args, kwargs)
    if isinstance(_option(args, kwargs, 1, "dtype"), torch.dtype):
        return _lod_of(x)
    shape = _numbers(args, kwargs, "shape", "size")
    if not shape or shape[0] not in (x.shape[0], -1) or (x.numel() == 0 and shape[0] == -1):
        return None
    return _lod_of(x)


def expand(func, args, kwargs):
    x, shape = _first(args, kwargs), _numbers(args, kwargs, "size")
    return _lod_of(x) if len(shape) == x.dim() and shape[0] in (-1, x.shape[0]) else None


def repeat(func, args, kwargs):
    x, times = _first(args, kwargs), _numbers(args, kwargs, "repeats", "dims")
    return _lod_of(x) if len(times) == x.dim() and times[0] == 1 else None


def windows(spatial: int):
    """Convolution and pooling: rows are the batch of an input of full rank, and are slid over in one of less."""

    def rule(func, args, kwargs):
        x = _first(args, kwargs)
        if _lod_of(x) is not None and x.dim() < spatial + 2:
            raise _refusal(
                func, f"an input of {x.dim()} dims is one sample whose rows it would run together; see x.to_padded()"
            )
        return keep_alone(func, args, kwargs)

    return rule


def pad(func, args, kwargs):
    x, amounts = _first(args, kwargs), _option(args, kwargs, 1, "pad")
    if _lod_of(x) is not None and len(amounts) // 2 >= x.dim():
        raise _refusal(func, "padding dim 0 adds rows that belong to no sequence; use x.to_padded()")
    return _lod_of(x)


def bag(func, args, kwargs):
    x = _first(args, kwargs)
    if _lod_of(x) is not None and x.dim() < 2:
        raise _refusal(func, "its bags are cut by offsets of their own; pool nn.Embedding's rows with tl.sequence_pool")
    return _lod_of(x)


def data(func, args, kwargs):
    x, new = args
    if _lod_of(new) is not None:
        same_lod("data", _lod_of(x), _lod_of(new))
    if new.dim() == 0 or new.shape[0] != _lod_of(x).rows:
        raise _refusal(func, f"its LoD covers {_lod_of(x).rows} rows; use x.with_lod(...) for other rows")
    return None


def refuse_out(func, out) -> None:
    """`out=` would write other rows under a LoD that stays."""
    if _lod_of(out) is not None or (isinstance(out, (tuple, list)) and any(_lod_of(t) is not None for t in out)):
        raise _refusal(func, "out= would leave its LoD behind; write into x.values()")
