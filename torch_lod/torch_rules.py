# SPDX-License-Identifier: Apache-2.0
"""What every torch function does to the LoD: one table, looked up by `LoDTensor.__torch_function__`.

A rule is asked before the function runs. It returns the LoD that the result carries, or None for a plain tensor, or raises
where the function would mix sequences. A function without a rule gives plain tensors: that its result has as many rows
proves nothing (`x[torch.randperm(n)]` has).

    keep    row i of the result is made of row i of the first argument
    join    of several operands, whose LoDs must be equal
    reduce  keeps when dim 0 is not among the reduced dims
    shape   keeps when dim 0 stays where it is
    refuse  mixes rows along dim 0
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .errors import LoDTypeError, LoDValueError
from .lod import LoD

Rule = Callable[[Callable, tuple, dict], LoD | None]
RULES: dict[Callable, Rule] = {}
#: The kind of every function of the table, for the documentation and the tests.
KINDS: dict[Callable, str] = {}

_SPACES = (torch, Tensor, F, torch.special)


def _name(func: Callable) -> str:
    return getattr(func, "__name__", str(func)).strip("_")


def _lod_of(value) -> LoD | None:
    return getattr(value, "_lod", None)


def same_lod(call: str, a: LoD, b: LoD) -> LoD:
    """The LoD of two operands; ValueError where they differ."""
    if a is not b and a != b:
        way_out = "to combine their rows all the same, pass .values() of one"
        if a.depth != b.depth:
            way_out = "lay the rows of the one with fewer levels over the other with tl.sequence_expand_as"
        raise LoDValueError(
            f"{call}: expected operands with equal LoDs, got LoDs that differ: {a.difference(b)}; {way_out}"
        )
    return a if a.level_names else b


def _first(args: tuple, kwargs: dict):
    return args[0] if args else next((kwargs[k] for k in _FIRST_NAMES if k in kwargs), None)


_FIRST_NAMES = ("input", "self", "query", "x", "a", "x1")
#: Names of numpy's that torch accepts as well.
_ALIASES = {"dim": "axis", "dims": "axis", "other": "x2"}


def _option(args: tuple, kwargs: dict, place: int, *names: str, default=None):
    """An argument by its place or by one of its names."""
    if len(args) > place:
        return args[place]
    for name in names:
        for key in (name, _ALIASES.get(name)):
            if key in kwargs:
                return kwargs[key]
    return default


def _numbers(args: tuple, kwargs: dict, *names: str) -> tuple:
    """Numbers that are given as one tuple or spread over the arguments."""
    found = _option(args, kwargs, 1, *names, default=())
    return tuple(found) if isinstance(found, (tuple, list)) else (*args[1:],) if len(args) > 1 else (found,)


def _others(args: tuple, kwargs: dict) -> bool:
    """Whether an operand but the first has a LoD: a weight made of rows would mix them."""
    rest = (*args[1:], *(value for key, value in kwargs.items() if args or key not in _FIRST_NAMES))
    return any(_lod_of(value) is not None for value in rest)


def _touches_rows(dims, rank: int) -> bool:
    """Whether dim 0 is among `dims`; None and () stand for all of them."""
    if dims is None or dims == () or dims == []:
        return True
    return any(d in (0, -rank) for d in (dims if isinstance(dims, (tuple, list)) else (dims,)))


# -- rules

_OUT = "mixing rows on purpose is x.values()"
_NO_SEQUENCES = f"{_OUT}, sequence by sequence is x.sequences()"


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


def _refusal(func, advice: str) -> LoDTypeError:
    return LoDTypeError(f"{_name(func)}: expected a plain tensor, got a LoDTensor: {advice}")


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


# -- the table


def _add(kind: str, rule: Rule, names: str, spaces=_SPACES) -> None:
    for name in names.split():
        for space in spaces:
            func = getattr(space, name, None)
            if callable(func):
                RULES[func], KINDS[func] = rule, kind


_ELEMENTWISE = (
    "abs absolute acos acosh add addcdiv addcmul angle arccos arcsin arctan asin asinh atan atan2 atanh bitwise_and "
    "bitwise_not bitwise_or bitwise_xor ceil celu clamp clamp_max clamp_min clip conj copysign cos cosh deg2rad digamma div "
    "divide dropout elu eq erf erfc erfinv exp exp2 expm1 fill float_power floor floor_divide fmax fmin fmod frac ge gelu "
    "greater greater_equal gt hardshrink hardsigmoid hardswish hardtanh heaviside hypot isclose isfinite isinf isnan ldexp "
    "le leaky_relu lerp less less_equal lgamma log log10 log1p log2 logaddexp logaddexp2 logical_and logical_not logical_or "
    "logical_xor logit logsigmoid lt masked_fill maximum minimum mish mul multiply mvlgamma nan_to_num ne neg negative "
    "nextafter not_equal polygamma positive pow prelu rad2deg reciprocal relu relu6 remainder round rrelu rsqrt rsub selu "
    "sgn sigmoid sign signbit silu sin sinc sinh softplus softshrink softsign sqrt square sub subtract tan tanh tanhshrink "
    "threshold true_divide trunc xlogy zero alpha_dropout feature_alpha_dropout feature_dropout "
    "__add__ __and__ __div__ __eq__ __floordiv__ __ge__ __gt__ __invert__ __le__ __lt__ __mod__ __mul__ __ne__ __neg__ "
    "__or__ __pos__ __pow__ __radd__ __rdiv__ __rfloordiv__ __rmod__ __rmul__ __rpow__ __rsub__ __rtruediv__ __sub__ "
    "__truediv__ __xor__ __abs__ __rand__ __ror__ __rxor__ "
    "binary_cross_entropy binary_cross_entropy_with_logits gaussian_nll_loss "
    "hinge_embedding_loss huber_loss kl_div l1_loss mse_loss pairwise_distance poisson_nll_loss smooth_l1_loss "
    "soft_margin_loss bmm expand_as view_as reshape_as margin_ranking_loss arccosh arcsinh arctanh arctan2 igamma igammac "
    "fix i0 gcd lcm conj_physical bitwise_left_shift bitwise_right_shift"
)
_add("join", join, _ELEMENTWISE)
_add("join", join_in_place, " ".join(f"{name}_" for name in _ELEMENTWISE.split()))
_add(
    "join",
    join_in_place,
    "__iadd__ __iand__ __idiv__ __ifloordiv__ __imod__ __imul__ __ior__ __ipow__ __isub__ __itruediv__ __ixor__",
)
_add(
    "keep",
    keep,
    "bfloat16 bool byte char clone contiguous cpu cuda detach detach_ double float half int long short to type alias "
    "pin_memory requires_grad_ share_memory_ view_as_real real imag resolve_conj resolve_neg type_as bernoulli "
    "exponential_ normal_ random_ uniform_ cauchy_ geometric_ log_normal_ empty_like full_like ones_like rand_like "
    "randint_like randn_like zeros_like one_hot local_response_norm "
    "hardtanh_ relu_ rrelu_ elu_ celu_ selu_ leaky_relu_ threshold_ dropout1d dropout2d dropout3d",
)
_add(
    "reduce",
    reduce(1),
    "sum nansum mean nanmean prod std var amax amin aminmax argmax argmin all any logsumexp median nanmedian "
    "count_nonzero select narrow index_select gather unbind",
)
_add(
    "reduce",
    reduce(2),
    "norm take_along_dim chunk split tensor_split split_with_sizes repeat_interleave unsafe_chunk unsafe_split",
)
_add("reduce", reduce(2, -1), "kthvalue topk")
_add("reduce", reduce(1, -1), "mode")
_add("reduce", quantile, "quantile nanquantile")
_add("keep", keep_alone, "embedding batch_norm group_norm instance_norm", (F,))
_add("keep", keep_alone, "batch_norm group_norm instance_norm", (torch,))
_add("keep", torch_embedding, "embedding", (torch,))
_add("join", join_in_place, "copy_ bernoulli_")
_add("join", bilinear, "bilinear")
_add("join", join_inputs, "cross_entropy nll_loss cosine_embedding_loss multi_margin_loss")
_add("join", similarity, "cosine_similarity")
_add("refuse", layer_norm, "layer_norm rms_norm native_layer_norm")
_add("shape", getitem, "__getitem__")
_add("join", set_item, "__setitem__")
_add("join", join, "allclose equal")
_add("shape", transpose, "transpose swapaxes swapdims")
_add("shape", permute, "permute")
_add("shape", movedim, "movedim moveaxis")
_add("shape", squeeze, "squeeze")
_add("shape", unsqueeze, "unsqueeze")
_add("shape", flatten, "flatten")
_add("shape", reduce(1), "unflatten")
_add("shape", reshape, "view reshape")
_add("shape", expand, "expand broadcast_to")
_add("shape", repeat, "repeat tile")
_add("shape", pad, "pad")
_add("join", join_tensors, "cat concat concatenate stack")
_add("matmul", matmul, "matmul mm mv __matmul__")
_add("matmul", add_matmul, "addmm addmv")
_add("matmul", add_matmul_in_place, "addmm_ addmv_ addbmm_ baddbmm_ addr_")
for _n in (1, 2, 3):
    _pools = f"avg_pool{_n}d max_pool{_n}d adaptive_avg_pool{_n}d adaptive_max_pool{_n}d lp_pool{_n}d"
    _add("refuse", windows(_n), f"conv{_n}d conv_transpose{_n}d {_pools} max_pool{_n}d_with_indices")
    _add("refuse", windows(_n), f"adaptive_max_pool{_n}d_with_indices fractional_max_pool{_n}d")
_add("refuse", windows(2), "pixel_shuffle pixel_unshuffle")
_add("refuse", linear, "linear")
_add("refuse", bag, "embedding_bag", (F,))
_add(
    "refuse",
    refuse("its bags are cut by offsets of their own; pool rows with tl.sequence_pool"),
    "embedding_bag",
    (torch,),
)
_add("refuse", refuse_on_rows(4, "dim", -1, f"tl.sequence_softmax runs within sequences, and {_OUT}"), "gumbel_softmax")
_add("reduce", extreme, "max min")
_add("join", where, "where")
_add(
    "refuse",
    refuse_on_rows(1, "dim", None, f"tl.sequence_softmax runs within sequences, and {_OUT}"),
    "softmax log_softmax softmin",
)
_add(
    "refuse",
    refuse_on_rows(1, "dim", None, _NO_SEQUENCES),
    "cumsum cumprod cummax cummin logcumsumexp cumsum_ cumprod_",
)
_add("refuse", refuse_on_rows(1, "dim", -1, _NO_SEQUENCES), "sort argsort glu")
_add("refuse", renorm, "renorm renorm_")
_add("refuse", refuse_on_rows(2, "dim", 1, _NO_SEQUENCES), "normalize")
_add("refuse", refuse_on_rows(2, "dim", -1, _NO_SEQUENCES), "diff")
_add("refuse", refuse_on_rows(9, "dim", None, _NO_SEQUENCES), "gradient")
_add("refuse", flip, "flip")
_add("refuse", refuse_on_rows(2, "dims", None, _NO_SEQUENCES), "roll")
_add("refuse", refuse(f"rows of different sequences would be turned over; {_OUT}"), "flipud msort")
_add("refuse", refuse("the recurrence would run across sequences; use tl.nn.LSTM"), "lstm", (torch,))
_add("refuse", refuse("the recurrence would run across sequences; use tl.nn.GRU"), "gru", (torch,))
_add(
    "refuse",
    refuse(f"the recurrence would run across sequences; use tl.nn.LSTM or tl.nn.GRU, and {_OUT}"),
    "rnn_tanh rnn_relu",
    (torch,),
)
_add(
    "refuse",
    refuse(f"rows of different sequences would attend to one another; {_NO_SEQUENCES}"),
    "scaled_dot_product_attention multi_head_attention_forward",
)
_add(
    "refuse",
    refuse("the rows would move and leave the LoD behind; use the form that returns a new tensor, or x.values()"),
    "as_strided_ resize_ resize_as_ set_ sort_ squeeze_ swapaxes_ swapdims_ t_ transpose_ unsqueeze_",
)
_DATA: Any = Tensor.data
RULES[_DATA.__set__], KINDS[_DATA.__set__] = data, "refuse"
_REAL: Any = Tensor.real
_IMAG: Any = Tensor.imag
for _property in (_DATA, _REAL, _IMAG):
    RULES[_property.__get__], KINDS[_property.__get__] = keep, "keep"


def refuse_out(func, out) -> None:
    """`out=` would write other rows under a LoD that stays."""
    if _lod_of(out) is not None or (isinstance(out, (tuple, list)) and any(_lod_of(t) is not None for t in out)):
        raise _refusal(func, "out= would leave its LoD behind; write into x.values()")
