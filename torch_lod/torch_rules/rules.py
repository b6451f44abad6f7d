# SPDX-License-Identifier: Apache-2.0
"""The rules. Each is asked before its function runs, and returns the LoD that the result carries, None for a plain tensor,
or raises."""

import torch
from torch import Tensor

from ..errors import LoDValueError, named
from ..lod import LoD
from .arguments import (
    _NO_SEQUENCES,
    _OUT,
    Rule,
    _first,
    _lod_of,
    _name,
    _numbers,
    _option,
    _others,
    _refusal,
    _touches_rows,
    same_lod,
)


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
        if other is None:
            if value.layout != torch.strided:
                return None  # the result may be sparse as well
        else:
            if lod is not None:
                if lod is not other:
                    other = same_lod(func, lod, other)
                if dims != rank:
                    return None  # broadcasting lines rows of one up with elements of the other
            lod, rank = other, dims
    return lod if most <= rank else None


def in_place(rule: Rule, always: bool = False):
    """The result is the first operand itself, with the LoD that it has: refused where `rule` finds none for what is made of
    other LoDTensors, or for anything."""

    def rule_in_place(func, args, kwargs):
        lod = _lod_of(_first(args, kwargs))
        if rule(func, args, kwargs) is None and lod is not None and (always or _others(args, kwargs)):
            error = LoDValueError(  # of a TypeError, Python would make x = x + y out of x += y
                "expected operands whose rows correspond, got some that would be lined up with other rows or "
                f"with elements of rows; {_OUT}"
            )
            raise named(error, _name(func))
        return lod

    return rule_in_place


join_in_place = in_place(join)


def moves(func, args, kwargs):
    """Rows are taken, or written, where an index says: plain."""


def keep_alone(func, args, kwargs):
    """As keep; plain where weights are made of rows."""
    return None if _others(args, kwargs) else keep(func, args, kwargs)


def join_inputs(*names: str):
    """Operands whose rows correspond whatever their ranks: logits and class numbers, two inputs, a state. Plain where
    anything else, a weight, is made of rows."""

    def rule(func, args, kwargs):
        lod, left = None, sum(_lod_of(value) is not None for value in (*args, *kwargs.values()))
        for place, name in enumerate(names):
            value = _option(args, kwargs, place, name, *(("input",) if place == 0 else ())) if name else None
            left -= _lod_of(value) is not None
            for part in value if isinstance(value, (tuple, list)) else (value,):
                other = _lod_of(part)
                if other is not None:
                    lod = other if lod is None else same_lod(func, lod, other)
        return None if left else lod

    return rule


def paired(place: int, default: int, *names: str):
    """Joins two operands unless dim 0 of what they are broadcast to is summed."""

    def rule(func, args, kwargs):
        operands = [_option(args, kwargs, i, name) for i, name in enumerate(names)]
        rank = max(t.dim() for t in operands if isinstance(t, Tensor))
        dim = _option(args, kwargs, place, "dim", default=default)
        return None if _touches_rows(dim, rank) else join(func, args, kwargs)

    return rule


def triplet(func, args, kwargs):
    """A distance function of one's own may do anything with the rows."""
    return join(func, args, kwargs) if kwargs.get("distance_function") is None else None


def searchsorted(func, args, kwargs):
    boundaries = _option(args, kwargs, 0, "sorted_sequence")
    return None if _lod_of(boundaries) is not None and boundaries.dim() < 2 else join(func, args, kwargs)


def ctc(func, args, kwargs):
    if _lod_of(_option(args, kwargs, 0, "log_probs")) is not None:
        raise _refusal(func, f"its dim 0 is the time of all sequences at once; {_NO_SEQUENCES}")


def cell(func, args, kwargs):
    """A step of a recurrence takes rows for a batch. Torch looks at no dims, and crashes where there are more than 2."""
    x = _first(args, kwargs)
    if _lod_of(x) is not None and x.dim() < 2:
        raise _refusal(func, "rows of no features would be taken for the features of one row; see x.unsqueeze(1)")
    if _lod_of(x) is not None and x.dim() > 2:
        raise _refusal(func, f"a step takes rows of features, not {tuple(x.shape)}; see x.flatten(1)")
    return join_inputs("input", "hx")(func, args, kwargs)


def layer_norm(func, args, kwargs):
    x, shape = _first(args, kwargs), _option(args, kwargs, 1, "normalized_shape")
    if _lod_of(x) is not None and len(shape) >= x.dim():
        raise _refusal(func, f"a normalized_shape of {len(shape)} dims takes its statistics over rows")
    return keep_alone(func, args, kwargs)


def join_tensors(func, args, kwargs):
    tensors = _option(args, kwargs, 0, "tensors")
    dim = _option(args, kwargs, 1, "dim", default=0)
    ranks = [t.dim() for t in tensors]
    rank = max(ranks) if ranks else 0
    if not _touches_rows(dim, rank + (func is torch.stack)):
        return join(func, tuple(tensors), {})
    lods = [_lod_of(t) for t in tensors]
    if func is torch.stack:  # plain; but what is stacked row by row should have the same structure
        for lod in lods[1:]:
            if lods[0] is not None and lod is not None:
                same_lod(func, lods[0], lod)
        return None
    return _chained(lods)


def stack_at(least: int, below=None):
    """hstack and its like lay tensors of at least so many dims side by side, along another dim than 0; others as `below`."""

    def rule(func, args, kwargs):
        tensors = tuple(_option(args, kwargs, 0, "tensors"))
        lods = [_lod_of(t) for t in tensors]
        if any(t.dim() < least for t, lod in zip(tensors, lods) if lod is not None):
            return None if below is None else below(lods)
        found = None
        for lod in lods:
            if lod is not None:
                found = lod if found is None else same_lod(func, found, lod)
        return found

    return rule


def vstack(func, args, kwargs):
    tensors = _option(args, kwargs, 0, "tensors")
    return _chained([_lod_of(t) if t.dim() > 1 else None for t in tensors])


def _chained(lods) -> LoD | None:
    return None if any(lod is None for lod in lods) or len({lod.depth for lod in lods}) > 1 else chain(lods)


def chain(lods) -> LoD:
    """The sequences of several LoDs one after another."""
    levels = []
    for k in range(lods[0].depth):
        parts, end = [torch.zeros(1, dtype=torch.int64, device="cpu")], 0
        for lod in lods:
            offsets = lod.levels[k]
            parts.append(offsets[1:] + end)
            end += lod.elements_at(k)
        levels.append(torch.cat(parts))
    return LoD.checked("offsets", levels, lods[0].level_names, sum(lod.rows for lod in lods))


def elsewhere(otherwise: Rule, place: int, name: str = "dim", default=None):
    """`otherwise`, where dim 0 is not among the dims; plain where it is."""

    def rule(func, args, kwargs):
        x = _first(args, kwargs)
        touched = _touches_rows(_option(args, kwargs, place, name, default=default), x.dim())
        return None if touched else otherwise(func, args, kwargs)

    return rule


def reduce(place: int, default=None):
    return elsewhere(keep, place, default=default)


def along(place: int):
    """Rows of the index, or of the other operand, correspond to rows."""
    return elsewhere(join, place)


def taken(place: int):
    """Columns by number: the same for all rows, unless the numbers are made of rows."""
    return elsewhere(keep_alone, place)


def written(func, args, kwargs):
    """index_add and its like: (x, dim, index, source)."""
    return None if _lod_of(_option(args, kwargs, 2, "index")) is not None else along(1)(func, args, kwargs)


def part_written(place: int, default=None):
    """select_scatter and slice_scatter: (x, source, dim, ...); the source of a selection has a dim less."""

    def rule(func, args, kwargs):
        x, source = _first(args, kwargs), _option(args, kwargs, 1, "src")
        if _touches_rows(_option(args, kwargs, place, "dim", default=default), x.dim()):
            return None
        lods = [lod for lod in (_lod_of(x), _lod_of(source)) if lod is not None]
        return same_lod(func, lods[0], lods[-1]) if lods else None

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
    x = _option(args, kwargs, 0, "input1")
    return join_inputs("input1", "input2")(func, args, kwargs) if x.dim() >= 2 else None


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


def fft(func, args, kwargs):
    """Of several dims: (x, sizes, dims); without dims the last ones, as many as there are sizes."""
    x, sizes = _first(args, kwargs), _option(args, kwargs, 1, "s")
    dims = _option(args, kwargs, 2, "dim", default=tuple(range(-len(sizes), 0)) if sizes else None)
    if _lod_of(x) is not None and _touches_rows(dims, x.dim()):
        raise _refusal(func, f"along dim 0 mixes the rows of different sequences; {_NO_SEQUENCES}")
    return _lod_of(x)


def triangle(func, args, kwargs):
    x = _first(args, kwargs)
    if _lod_of(x) is not None and x.dim() < 3:
        raise _refusal(func, f"its diagonal would run through the rows of all sequences; {_OUT}")
    return _lod_of(x)


def refuse_on_rows(place: int, name: str, default, advice: str, otherwise: Rule = keep_alone):
    def rule(func, args, kwargs):
        x = _first(args, kwargs)
        if _touches_rows(_option(args, kwargs, place, name, default=default), x.dim()):
            if _lod_of(x) is not None:
                raise _refusal(func, f"along dim 0 mixes the rows of different sequences; {advice}")
            return None
        return otherwise(func, args, kwargs)

    return rule


def refuse(advice: str):
    def rule(func, args, kwargs):
        raise _refusal(func, advice)

    return rule


moves_in_place = refuse(
    "the rows would move and leave the LoD behind; use the form that returns a new tensor, or x.values()"
)


def getitem(func, args, kwargs):
    x, key = args
    lod = _lod_of(x)
    if lod is None:
        return None
    if _lod_of(key) is not None and key.dtype == torch.bool:
        same_lod("x[mask]", lod, _lod_of(key))
    key = key if isinstance(key, tuple) else (key,)
    first, rest = key[0] if key else slice(None), key[1:]
    if any(_lod_of(k) is not None for k in rest):
        return None
    lists = [i for i, k in enumerate(rest) if not isinstance(k, (slice, int, type(None), type(Ellipsis)))]
    if lists and lists[-1] - lists[0] + 1 != len(lists):
        return None  # index tensors apart from one another move their dims to the front
    if isinstance(first, slice) and first == slice(None):
        return lod
    taken = sum(k.dim() if isinstance(k, Tensor) and k.dtype == torch.bool else k is not None for k in rest)
    return lod if first is Ellipsis and taken < x.dim() else None


def set_item(func, args, kwargs):
    """Rows of another may be written over the same rows only, and rows that say where write only numbers."""
    x, key, value = args
    if _lod_of(x) is None:
        return
    keys = key if isinstance(key, tuple) else (key,)
    for k in keys:
        if _lod_of(k) is None:
            continue
        if k.dtype != torch.bool or len(keys) > 1:
            raise _refusal(func, "its rows would say which rows are written; pass .values() of the index")
        same_lod("x[mask] =", _lod_of(x), _lod_of(k))
        if isinstance(value, Tensor) and value.dim() > x.dim() - k.dim() and value.shape[0] != 1:
            raise _refusal(func, f"what is written where is counted over all rows; see torch.where, and {_OUT}")
    if _lod_of(value) is not None:
        lod = getitem(func, (x, key), {})
        if lod is None or x[key].dim() != value.dim():
            raise _refusal(func, "rows of the value would be written over other rows; assign its .values()")
        same_lod("x[...] =", lod, _lod_of(value))


def put_in_place(func, args, kwargs):
    x, indices, value = (_option(args, kwargs, i, n) for i, n in enumerate(("self", "indices", "values")))
    set_item(func, (x, tuple(indices), value), {})


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


def adjoint(func, args, kwargs):
    """Turns the last two dims."""
    x = _first(args, kwargs)
    return _lod_of(x) if x.dim() >= 3 else None


def diagonal(first: int = 0, second: int = 1, more: int = 0):
    """(x, offset, dim1, dim2); of a result of so many more dims."""

    def rule(func, args, kwargs):
        dims = [_option(args, kwargs, 2, "dim1", default=first), _option(args, kwargs, 3, "dim2", default=second)]
        x = _first(args, kwargs)
        return None if _touches_rows(dims, x.dim() + more) else _lod_of(x)

    return rule


def diagonal_scatter(func, args, kwargs):
    dims = [_option(args, kwargs, 3, "dim1", default=0), _option(args, kwargs, 4, "dim2", default=1)]
    x, source = _first(args, kwargs), _option(args, kwargs, 1, "src")
    lods = [lod for lod in (_lod_of(x), _lod_of(source)) if lod is not None]
    return None if _touches_rows(dims, x.dim()) or not lods else same_lod(func, lods[0], lods[-1])


def ranked(rank: int):
    """One tensor of at least so many dims; one of less has its rows moved, or taken for a row."""

    def rule(func, args, kwargs):
        x = _first(args, kwargs)
        alone = not any(isinstance(value, Tensor) for value in args[1:])
        return _lod_of(x) if alone and isinstance(x, Tensor) and x.dim() >= rank else None

    return rule


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


def windows(spatial: int, otherwise: Rule = keep_alone):
    """Convolution and pooling: rows are the batch of an input of full rank, and are slid over in one of less."""

    def rule(func, args, kwargs):
        x = _first(args, kwargs)
        if _lod_of(x) is not None and x.dim() < spatial + 2:
            raise _refusal(
                func, f"an input of {x.dim()} dims is one sample whose rows it would run together; see x.to_padded()"
            )
        return otherwise(func, args, kwargs)

    return rule


def pad(func, args, kwargs):
    x, amounts = _first(args, kwargs), _option(args, kwargs, 1, "pad")
    if _lod_of(x) is not None and len(amounts) // 2 >= x.dim():
        raise _refusal(func, "padding dim 0 adds rows that belong to no sequence; use x.to_padded()")
    return _lod_of(x)


def norm_except_dim(func, args, kwargs):
    """One norm for each index of a dim, -1: one of all."""
    x, dim = _option(args, kwargs, 0, "v"), _option(args, kwargs, 2, "dim", default=0)
    return _lod_of(x) if dim == 0 else None


def bag(func, args, kwargs):
    x = _first(args, kwargs)
    if _lod_of(x) is not None and x.dim() < 2:
        raise _refusal(func, "its bags are cut by offsets of their own; pool nn.Embedding's rows with tl.sequence_pool")
    return _lod_of(x)


def data(func, args, kwargs):
    x, new = args
    if _lod_of(new) is not None:
        same_lod("data", _lod_of(x), _lod_of(new))
    if isinstance(new, Tensor) and (new.dim() == 0 or new.shape[0] != _lod_of(x).rows):
        raise _refusal(func, f"its LoD covers {_lod_of(x).rows} rows; use x.with_lod(...) for other rows")
    return None


def refuse_out(func, out) -> None:
    """`out=` would write other rows under a LoD that stays."""
    if _lod_of(out) is not None or (isinstance(out, (tuple, list)) and any(_lod_of(t) is not None for t in out)):
        raise _refusal(func, "out= would leave its LoD behind; write into x.values()")
