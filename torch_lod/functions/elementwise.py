# SPDX-License-Identifier: Apache-2.0
"""Functions of each row by itself, and those whose operands are broadcast against each other."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..tensor.provenance import lod_of
from .buffers import becoming
from .operands import all_operands
from .placement import in_place, join, join_batches, join_given, keep, place
from .refusals import OUT, refusal
from .row import attribute, enter
from .signature import along_dim, by_element, row_by_row, signature


def where(func, args, kwargs):
    return place(func, (*args, *kwargs.values()), True)[0] if len(args) + len(kwargs) >= 3 else None


@signature("input, weight: beside")
def prelu(func, input, weight, rows):
    """A weight for each channel, which is dim 1."""
    if rows == 1 and isinstance(weight, Tensor) and weight.numel() != 1:
        raise refusal(func, f"{along_dim(input)}: they would be the channels; transpose them to the last dim; {OUT}")
    return True


@signature("sorted_sequence: broadcast, input: broadcast, *, sorter: broadcast")
def searchsorted(func, sorted_sequence, sorter):
    """A single row of numbers is searched for all rows of the input."""
    return (lod_of(sorted_sequence) is None and lod_of(sorter) is None) or sorted_sequence.dim() >= 2


@signature("x, N")
def vander(func, N):
    if N is None:
        raise refusal(func, "without N it has a column for each row of the batch; pass N, or x.sequences() one by one")
    return True


def _equal(x, other):
    """Tensor.__eq__ tells the class of its first operand only, torch.eq those of both."""
    return torch.eq(x, other) if isinstance(other, Tensor) else NotImplemented


# -- the rows

_ELEMENTWISE = (
    "abs absolute acos acosh add addcdiv addcmul angle arccos arcsin arctan asin asinh atan atan2 atanh "
    "bitwise_not bitwise_xor ceil celu clamp clamp_max clamp_min clip conj copysign cos cosh deg2rad digamma div "
    "divide dropout elu eq erf erfc erfinv exp exp2 expm1 fill float_power floor floor_divide fmax fmin fmod frac ge gelu "
    "greater greater_equal gt hardshrink hardsigmoid hardswish hardtanh heaviside hypot isfinite isinf isnan ldexp "
    "le leaky_relu lerp less less_equal lgamma log log10 log1p log2 logaddexp logaddexp2 logical_not "
    "logical_xor logit logsigmoid lt masked_fill maximum minimum mish mul multiply mvlgamma nan_to_num ne neg negative "
    "nextafter not_equal polygamma positive pow rad2deg reciprocal relu relu6 remainder round rrelu rsqrt rsub selu "
    "sgn sigmoid sign signbit silu sin sinc sinh softplus softshrink softsign sqrt square sub subtract tan tanh tanhshrink "
    "threshold true_divide trunc xlogy zero alpha_dropout feature_alpha_dropout feature_dropout "
    "__add__ __div__ __ge__ __gt__ __invert__ __le__ __lt__ __mod__ __mul__ __ne__ __neg__ "
    "__pos__ __radd__ __rmul__ __sub__ "
    "__truediv__ __xor__ __abs__ __rand__ __ror__ __rxor__ arccosh arcsinh arctanh arctan2 igamma igammac "
    "fix i0 gcd lcm conj_physical bitwise_left_shift bitwise_right_shift"
)
_SPECIAL = (
    "airy_ai bessel_j0 bessel_j1 bessel_y0 bessel_y1 chebyshev_polynomial_t chebyshev_polynomial_u chebyshev_polynomial_v "
    "chebyshev_polynomial_w entr erfcx expit gammainc gammaincc gammaln hermite_polynomial_h hermite_polynomial_he i0e i1 "
    "i1e laguerre_polynomial_l legendre_polynomial_p log_ndtr modified_bessel_i0 modified_bessel_i1 modified_bessel_k0 "
    "modified_bessel_k1 multigammaln ndtr ndtri psi scaled_modified_bessel_k0 scaled_modified_bessel_k1 "
    "shifted_chebyshev_polynomial_t shifted_chebyshev_polynomial_u shifted_chebyshev_polynomial_v "
    "shifted_chebyshev_polynomial_w spherical_bessel_j0 xlog1py zeta"
)
#: Those whose function in place has a row of its own.
_OWN = "fill zero celu elu hardtanh leaky_relu relu rrelu selu threshold mul masked_fill".split()
_KEPT = [name for name in _ELEMENTWISE.split() if not name.startswith("_")]
enter("join", join, _ELEMENTWISE, broadcasts=all_operands)
enter("join", join, " ".join(f"{name}_" for name in _KEPT if name not in _OWN), broadcasts=all_operands)
enter(
    "join",
    join,
    "__eq__",
    (Tensor,),
    calls=lambda call, x, y: call(torch.eq, x, y) if isinstance(y, Tensor) else None,
    run=_equal,
    quick=True,
    broadcasts=all_operands,
)
_CALLS: dict[str, Callable] = {
    "__rsub__": lambda call, x, y: call(torch.rsub, x, y),
    "__rtruediv__": lambda call, x, y: call(torch.mul, call(torch.reciprocal, x), y),
    "__pow__": lambda call, x, y: call(torch.pow, x, y),
    "__rpow__": lambda call, x, y: call(torch.pow, y, x),
    "__ipow__": lambda call, x, y: call(Tensor.pow_, x, y),
    "__floordiv__": lambda call, x, y: call(torch.floor_divide, x, y),
    "__rfloordiv__": lambda call, x, y: call(torch.floor_divide, y, x),
    "__rmod__": lambda call, x, y: call(torch.remainder, y, x),
    "__rlshift__": lambda call, x, y: call(torch.bitwise_left_shift, y, x),
    "__rrshift__": lambda call, x, y: call(torch.bitwise_right_shift, y, x),
}
for _name, _calls in _CALLS.items():
    enter("join", join, _name, calls=_calls, broadcasts=all_operands)
for _name, _twin in (("mul_", "mul"), ("masked_fill_", "masked_fill"), ("__imul__", "__mul__")):
    # masks; sums of rows into a tensor may be meant for one that outlives the batch
    enter("join", join, _name, (Tensor,), broadcasts=all_operands, **becoming(_twin, True))
_MASKS: dict[str, Any] = {"broadcasts": all_operands, "of_masks": True}
_NAMES = "bitwise_and bitwise_or logical_and logical_or"
enter("join", join, f"{_NAMES} {_NAMES.replace(' ', '_ ')}_ __and__ __or__ __ior__", **_MASKS)
enter("join", join, "__iand__", (Tensor,), **_MASKS, **becoming("__and__", True))
enter("join", join, "copy_ fill_ zero_", broadcasts=all_operands, overwrites=True)
enter("join", join_given, "isclose", broadcasts=all_operands)
enter("join", prelu, "prelu")
enter("join", join, _SPECIAL, (torch.special,), broadcasts=all_operands)
enter("join", join, "isneginf isposinf isreal __lshift__ __rshift__ ", broadcasts=all_operands)
enter("join", join, "allclose equal")
enter("join", join, "binomial broadcast_tensors complex normal polar", (torch,), broadcasts=all_operands)
enter("join", join_batches, "cudnn_grid_sampler grid_sampler grid_sampler_2d grid_sampler_3d", (torch,))
enter("join", join_batches, "grid_sample")
enter("join", searchsorted, "searchsorted")
enter("join", where, "where", beside=True, broadcasts=all_operands)
_IN_PLACE = (
    "__iadd__ __idiv__ __ifloordiv__ __ilshift__ __imod__ __irshift__ __isub__ __itruediv__ __ixor__ bernoulli_ "
    "map_ map2_"
)
enter("join", join, _IN_PLACE, broadcasts=all_operands)
enter("join", in_place(join), "module_load", broadcasts=all_operands)
enter(
    "keep",
    keep,
    "bfloat16 bool byte cdouble cfloat chalf char clone contiguous cpu cuda dequantize detach double float half int ipu long mtia "
    "short to_dense type alias xpu pin_memory view_as_real real imag resolve_conj resolve_neg bernoulli poisson "
    "exponential_ normal_ random_ uniform_ cauchy_ geometric_ log_normal_ one_hot frexp apply_ "
    "hardtanh_ relu_ rrelu_ elu_ celu_ selu_ leaky_relu_ threshold_",
)
enter("keep", keep, "detach_ requires_grad_ share_memory_", writes=False)
enter("keep", keep, "to type_as", shape_only=True)
enter("keep", keep, "empty_like full_like ones_like rand_like randint_like randn_like zeros_like")
enter(
    "keep",
    keep,
    "affine_grid_generator alias_copy cudnn_affine_grid_generator detach_copy native_dropout unravel_index view_as_complex "
    "view_as_complex_copy view_as_real_copy",
    (torch,),
)
enter("keep", keep, "affine_grid")
enter("keep", vander, "vander", (torch, torch.linalg))
enter("keep", in_place(keep), "constant_ kaiming_uniform_ normal_ uniform_", (torch.nn.init,), writes=False)
enter("keep", by_element("elements, test_elements: beside"), "isin", (torch,))
enter("keep", by_element("input"), "bucketize", (torch,))
enter("keep", row_by_row("input"), "fake_quantize_per_channel_affine fake_quantize_per_tensor_affine", (torch,))
attribute("keep", keep, "data real imag")
