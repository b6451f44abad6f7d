# SPDX-License-Identifier: Apache-2.0
"""The table: every function, its rule and its kind."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from . import rules
from .words import _NO_SEQUENCES, _OUT, Rule

RULES: dict[Callable, Rule] = {}
#: The kind of every function of the table, for the documentation and the tests.
KINDS: dict[Callable, str] = {}

_SPACES = (torch, Tensor, F, torch.special)


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
_add("join", rules.join, _ELEMENTWISE)
_add("join", rules.join_in_place, " ".join(f"{name}_" for name in _ELEMENTWISE.split()))
_add(
    "join",
    rules.join_in_place,
    "__iadd__ __iand__ __idiv__ __ifloordiv__ __imod__ __imul__ __ior__ __ipow__ __isub__ __itruediv__ __ixor__",
)
_add(
    "keep",
    rules.keep,
    "bfloat16 bool byte char clone contiguous cpu cuda detach detach_ double float half int long short to type alias "
    "pin_memory requires_grad_ share_memory_ view_as_real real imag resolve_conj resolve_neg type_as bernoulli "
    "exponential_ normal_ random_ uniform_ cauchy_ geometric_ log_normal_ empty_like full_like ones_like rand_like "
    "randint_like randn_like zeros_like one_hot local_response_norm "
    "hardtanh_ relu_ rrelu_ elu_ celu_ selu_ leaky_relu_ threshold_ dropout1d dropout2d dropout3d",
)
_add(
    "reduce",
    rules.reduce(1),
    "sum nansum mean nanmean prod std var amax amin aminmax argmax argmin all any logsumexp median nanmedian "
    "count_nonzero select narrow index_select gather unbind",
)
_add(
    "reduce",
    rules.reduce(2),
    "norm take_along_dim chunk split tensor_split split_with_sizes repeat_interleave unsafe_chunk unsafe_split",
)
_add("reduce", rules.reduce(2, -1), "kthvalue topk")
_add("reduce", rules.reduce(1, -1), "mode")
_add("reduce", rules.quantile, "quantile nanquantile")
_add("keep", rules.keep_alone, "embedding batch_norm group_norm instance_norm", (F,))
_add("keep", rules.keep_alone, "batch_norm group_norm instance_norm", (torch,))
_add("keep", rules.torch_embedding, "embedding", (torch,))
_add("join", rules.join_in_place, "copy_ bernoulli_")
_add("join", rules.bilinear, "bilinear")
_add("join", rules.join_inputs, "cross_entropy nll_loss cosine_embedding_loss multi_margin_loss")
_add("join", rules.similarity, "cosine_similarity")
_add("refuse", rules.layer_norm, "layer_norm rms_norm native_layer_norm")
_add("shape", rules.getitem, "__getitem__")
_add("join", rules.set_item, "__setitem__")
_add("join", rules.join, "allclose equal")
_add("shape", rules.transpose, "transpose swapaxes swapdims")
_add("shape", rules.permute, "permute")
_add("shape", rules.movedim, "movedim moveaxis")
_add("shape", rules.squeeze, "squeeze")
_add("shape", rules.unsqueeze, "unsqueeze")
_add("shape", rules.flatten, "flatten")
_add("shape", rules.reduce(1), "unflatten")
_add("shape", rules.reshape, "view reshape")
_add("shape", rules.expand, "expand broadcast_to")
_add("shape", rules.repeat, "repeat tile")
_add("shape", rules.pad, "pad")
_add("join", rules.join_tensors, "cat concat concatenate stack")
_add("matmul", rules.matmul, "matmul mm mv __matmul__")
_add("matmul", rules.add_matmul, "addmm addmv")
_add("matmul", rules.add_matmul_in_place, "addmm_ addmv_ addbmm_ baddbmm_ addr_")
for _n in (1, 2, 3):
    _pools = f"avg_pool{_n}d max_pool{_n}d adaptive_avg_pool{_n}d adaptive_max_pool{_n}d lp_pool{_n}d"
    _add("refuse", rules.windows(_n), f"conv{_n}d conv_transpose{_n}d {_pools} max_pool{_n}d_with_indices")
    _add("refuse", rules.windows(_n), f"adaptive_max_pool{_n}d_with_indices fractional_max_pool{_n}d")
_add("refuse", rules.windows(2), "pixel_shuffle pixel_unshuffle")
_add("refuse", rules.linear, "linear")
_add("refuse", rules.bag, "embedding_bag", (F,))
_add(
    "refuse",
    rules.refuse("its bags are cut by offsets of their own; pool rows with tl.sequence_pool"),
    "embedding_bag",
    (torch,),
)
_add(
    "refuse",
    rules.refuse_on_rows(4, "dim", -1, f"tl.sequence_softmax runs within sequences, and {_OUT}"),
    "gumbel_softmax",
)
_add("reduce", rules.extreme, "max min")
_add("join", rules.where, "where")
_add(
    "refuse",
    rules.refuse_on_rows(1, "dim", None, f"tl.sequence_softmax runs within sequences, and {_OUT}"),
    "softmax log_softmax softmin",
)
_add(
    "refuse",
    rules.refuse_on_rows(1, "dim", None, _NO_SEQUENCES),
    "cumsum cumprod cummax cummin logcumsumexp cumsum_ cumprod_",
)
_add("refuse", rules.refuse_on_rows(1, "dim", -1, _NO_SEQUENCES), "sort argsort glu")
_add("refuse", rules.renorm, "renorm renorm_")
_add("refuse", rules.refuse_on_rows(2, "dim", 1, _NO_SEQUENCES), "normalize")
_add("refuse", rules.refuse_on_rows(2, "dim", -1, _NO_SEQUENCES), "diff")
_add("refuse", rules.refuse_on_rows(9, "dim", None, _NO_SEQUENCES), "gradient")
_add("refuse", rules.flip, "flip")
_add("refuse", rules.refuse_on_rows(2, "dims", None, _NO_SEQUENCES), "roll")
_add("refuse", rules.refuse(f"rows of different sequences would be turned over; {_OUT}"), "flipud msort")
_add("refuse", rules.refuse("the recurrence would run across sequences; use tl.nn.LSTM"), "lstm", (torch,))
_add("refuse", rules.refuse("the recurrence would run across sequences; use tl.nn.GRU"), "gru", (torch,))
_add(
    "refuse",
    rules.refuse(f"the recurrence would run across sequences; use tl.nn.LSTM or tl.nn.GRU, and {_OUT}"),
    "rnn_tanh rnn_relu",
    (torch,),
)
_add(
    "refuse",
    rules.refuse(f"rows of different sequences would attend to one another; {_NO_SEQUENCES}"),
    "scaled_dot_product_attention multi_head_attention_forward",
)
_add(
    "refuse",
    rules.refuse("the rows would move and leave the LoD behind; use the form that returns a new tensor, or x.values()"),
    "as_strided_ resize_ resize_as_ set_ sort_ squeeze_ swapaxes_ swapdims_ t_ transpose_ unsqueeze_",
)
_DATA: Any = Tensor.data
RULES[_DATA.__set__], KINDS[_DATA.__set__] = rules.data, "refuse"
_REAL: Any = Tensor.real
_IMAG: Any = Tensor.imag
for _property in (_DATA, _REAL, _IMAG):
    RULES[_property.__get__], KINDS[_property.__get__] = rules.keep, "keep"
