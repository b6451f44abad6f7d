# SPDX-License-Identifier: Apache-2.0
"""The table: every function, its rule and its kind."""

import functools
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from ...dynamo import IN_PLACE
from . import indices, linalg, rules, views
from .arguments import NAMES, NO_SEQUENCES, OUT, Route, Rule
from .operands import in_place, join, join_batches, join_given, keep
from .rules import by_element, elsewhere, refuse, refuse_on_rows, row_by_row, windows
from .signature import Signature

#: Only functions whose result may have rows, or that may raise: without a rule they are lost, or of the kind "plain".
RULES: dict[Callable, Rule] = {}
#: The kind of every function of the table, for the documentation and the tests.
KINDS: dict[Callable, str] = {}

_SPACES = (torch, Tensor, F, torch.special)
#: In place by their name, they change no number.
_KEEPS_VALUES = ("requires_grad_", "detach_", "share_memory_")
_in_place = functools.cache(in_place)


def _add(kind: str, rule: Rule | None, names: str, spaces=_SPACES) -> None:
    for name in names.split():
        for space in spaces:
            func = getattr(space, name, None)
            if callable(func) and (space is Tensor or not name.startswith("__")):
                _classify(func, kind, rule, name)


def known(func: Callable) -> bool:
    """Whether Dynamo can look a function up in a dict."""
    own = getattr(func, "__self__", None)
    return type(own) is not property and not isinstance(func, type) and "dlpack" not in str(func)


def _classify(func: Callable, kind: str, rule: Rule | None, name: str) -> None:
    KINDS[func] = kind
    if known(func):
        NAMES[func] = name.strip("_")
    if rule is None:
        RULES.pop(func, None)
    elif func in IN_PLACE and name not in _KEEPS_VALUES:
        RULES[func] = _in_place(rule)
    else:
        RULES[func] = _with_argument_inplace(func, rule)


def _with_argument_inplace(func: Callable, rule: Rule) -> Rule:
    """The rule; of a function with an argument `inplace`, which it may change, that of `in_place` where it does."""
    code = getattr(func, "__code__", None)
    if code is None or "inplace" not in code.co_varnames[: code.co_argcount]:
        return rule
    at, writing = code.co_varnames.index("inplace"), _in_place(rule)

    def either(func, args, kwargs):
        changes = kwargs.get("inplace") or (len(args) > at and args[at])
        return (writing if changes else rule)(func, args, kwargs)

    either.twin = rule  # type: ignore[attr-defined]
    return either


def _attribute(kind: str, rule: Rule | None, names: str, change: bool = False) -> None:
    for name in names.split():
        func = getattr(getattr(Tensor, name, None), "__set__" if change else "__get__", None)
        if func is not None:
            _classify(func, kind, rule, name)


# -- row by row

_ELEMENTWISE = (
    "abs absolute acos acosh add addcdiv addcmul angle arccos arcsin arctan asin asinh atan atan2 atanh bitwise_and "
    "bitwise_not bitwise_or bitwise_xor ceil celu clamp clamp_max clamp_min clip conj copysign cos cosh deg2rad digamma div "
    "divide dropout elu eq erf erfc erfinv exp exp2 expm1 fill float_power floor floor_divide fmax fmin fmod frac ge gelu "
    "greater greater_equal gt hardshrink hardsigmoid hardswish hardtanh heaviside hypot isfinite isinf isnan ldexp "
    "le leaky_relu lerp less less_equal lgamma log log10 log1p log2 logaddexp logaddexp2 logical_and logical_not logical_or "
    "logical_xor logit logsigmoid lt masked_fill maximum minimum mish mul multiply mvlgamma nan_to_num ne neg negative "
    "nextafter not_equal polygamma positive pow prelu rad2deg reciprocal relu relu6 remainder round rrelu rsqrt rsub selu "
    "sgn sigmoid sign signbit silu sin sinc sinh softplus softshrink softsign sqrt square sub subtract tan tanh tanhshrink "
    "threshold true_divide trunc xlogy zero alpha_dropout feature_alpha_dropout feature_dropout "
    "__add__ __and__ __div__ __eq__ __floordiv__ __ge__ __gt__ __invert__ __le__ __lt__ __mod__ __mul__ __ne__ __neg__ "
    "__or__ __pos__ __pow__ __radd__ __rdiv__ __rfloordiv__ __rmod__ __rmul__ __rpow__ __rsub__ __rtruediv__ __sub__ "
    "__truediv__ __xor__ __abs__ __rand__ __ror__ __rxor__ arccosh arcsinh arctanh arctan2 igamma igammac "
    "fix i0 gcd lcm conj_physical bitwise_left_shift bitwise_right_shift"
)
_LOSSES = (
    "binary_cross_entropy binary_cross_entropy_with_logits hinge_embedding_loss huber_loss kl_div l1_loss margin_ranking_loss "
    "mse_loss poisson_nll_loss smooth_l1_loss soft_margin_loss"
)
_SPECIAL = (
    "airy_ai bessel_j0 bessel_j1 bessel_y0 bessel_y1 chebyshev_polynomial_t chebyshev_polynomial_u chebyshev_polynomial_v "
    "chebyshev_polynomial_w entr erfcx expit gammainc gammaincc gammaln hermite_polynomial_h hermite_polynomial_he i0e i1 "
    "i1e laguerre_polynomial_l legendre_polynomial_p log_ndtr modified_bessel_i0 modified_bessel_i1 modified_bessel_k0 "
    "modified_bessel_k1 multigammaln ndtr ndtri psi scaled_modified_bessel_k0 scaled_modified_bessel_k1 "
    "shifted_chebyshev_polynomial_t shifted_chebyshev_polynomial_u shifted_chebyshev_polynomial_v "
    "shifted_chebyshev_polynomial_w spherical_bessel_j0 xlog1py zeta"
)
_add("join", join, _ELEMENTWISE)
_add("join", join, " ".join(f"{name}_" for name in _ELEMENTWISE.split()))
_add("join", join_given, f"{_LOSSES} isclose")
_add("join", rules.gaussian, "gaussian_nll_loss")
_add("join", rules.prelu, "prelu")
_add("join", linalg.matmul, "bmm")
_add("join", rules.distances(join_batches), "pairwise_distance")
_add("join", views.expand_as, "expand_as")
_add("join", views.reshape_as, "view_as reshape_as")
_add("join", join, _SPECIAL, (torch.special,))
_add("join", join, "isneginf isposinf isreal __lshift__ __rshift__ __rlshift__ __rrshift__ allclose equal")
_add("join", join, "binomial broadcast_tensors complex normal polar", (torch,))
_add("join", join_batches, "cudnn_grid_sampler grid_sampler grid_sampler_2d grid_sampler_3d", (torch,))
_add("join", join_batches, "grid_sample")
_add("join", linalg.add_each, "baddbmm")
_add("join", rules.only_at_dim_0(join_batches), "multilabel_margin_loss")
_add("join", rules.distances(join_batches), "triplet_margin_loss")
_add("join", rules.soft_margin, "multilabel_soft_margin_loss")
_add("join", rules.distances(rules.triplet), "triplet_margin_with_distance_loss")
_add(
    "join",
    join,
    "__iadd__ __iand__ __idiv__ __ifloordiv__ __ilshift__ __imod__ __imul__ __ior__ __ipow__ __irshift__ __isub__ "
    "__itruediv__ __ixor__ bernoulli_ copy_ map_ map2_",
)
_add("join", _in_place(join), "module_load")
_add("join", linalg.in_place_product(linalg.add_each), "baddbmm_")
_add(
    "keep",
    keep,
    "bfloat16 bool byte cdouble cfloat chalf char clone contiguous cpu cuda dequantize detach detach_ double float half int "
    "ipu long mtia short to to_dense type alias xpu pin_memory requires_grad_ share_memory_ view_as_real real imag "
    "resolve_conj resolve_neg type_as bernoulli poisson "
    "exponential_ normal_ random_ uniform_ cauchy_ geometric_ log_normal_ empty_like full_like ones_like rand_like "
    "randint_like randn_like zeros_like one_hot frexp apply_ "
    "hardtanh_ relu_ rrelu_ elu_ celu_ selu_ leaky_relu_ threshold_",
)
_add("keep", rules.fliplr, "fliplr")
_add("keep", rules.channels, "dropout1d dropout2d dropout3d")
_add(
    "keep",
    keep,
    "affine_grid_generator alias_copy cudnn_affine_grid_generator detach_copy native_dropout unravel_index view_as_complex view_as_complex_copy "
    "view_as_real_copy",
    (torch,),
)
_add("keep", keep, "affine_grid")
_add("keep", rules.vander, "vander", (torch, torch.linalg))
_add("keep", _in_place(keep), "constant_ kaiming_uniform_ normal_ uniform_", (torch.nn.init,))
_add("keep", rules.scaling(by_element("input, weight: plain")), "embedding", (F,))
_add("keep", by_element("weight: plain, indices: rows"), "embedding", (torch,))
_add("keep", rules.batch_norm, "batch_norm", (F,))
_add("keep", row_by_row("input, num_groups, weight: beside, bias: beside"), "group_norm", (F,))
_add("keep", row_by_row("input, running_mean, running_var, weight: beside, bias: beside"), "instance_norm", (F,))
_add("keep", by_element("elements, test_elements: beside"), "isin", (torch,))
_add("keep", by_element("input"), "bucketize", (torch,))
_add(
    "keep",
    row_by_row("input"),
    "batch_norm batch_norm_elemt convolution cudnn_batch_norm cudnn_convolution cudnn_convolution_add_relu "
    "cudnn_convolution_relu cudnn_convolution_transpose mkldnn_convolution fake_quantize_per_channel_affine fake_quantize_per_tensor_affine "
    "group_norm instance_norm miopen_batch_norm miopen_convolution miopen_convolution_add_relu "
    "miopen_convolution_relu miopen_convolution_transpose miopen_depthwise_convolution native_batch_norm",
    (torch,),
)
_add("join", rules.searchsorted, "searchsorted")
_add("join", rules.bilinear, "bilinear")
_add("join", rules.ignoring(rules.classes), "cross_entropy nll_loss")
_add("join", rules.only_at_dim_0(row_by_row("input, target: rows")), "multi_margin_loss")
_add(
    "join",
    rules.ignoring(
        row_by_row("input, weight: beside, target: rows"),
        Signature("input, linear_weight, target, *, weight, reduction='mean', ignore_index=-100"),
    ),
    "linear_cross_entropy",
)
_add("join", rules.distances(row_by_row("input1, input2: rows, target: rows")), "cosine_embedding_loss")
_add("join", rules.cell, "gru_cell lstm_cell rnn_relu_cell rnn_tanh_cell", (torch,))
_add("join", elsewhere("x1: broadcast, x2: broadcast, dim=1"), "cosine_similarity")
_add("join", rules.where, "where")
_add("join", linalg.pairs, "cdist")
_add("join", linalg.cross("input: broadcast, other: broadcast, dim"), "cross")
_add("join", linalg.cross("input: broadcast, other: broadcast, dim=-1"), "cross", (torch.linalg,))

# -- reductions over dims, or parts of dims

_add(
    "reduce",
    elsewhere("input, dim"),
    "sum nansum mean nanmean prod std std_mean var var_mean amax amin aminmax argmax argmin all any logsumexp median "
    "nanmedian count_nonzero hash_tensor frobenius_norm nuclear_norm",
)
_add("reduce", elsewhere("input, p, dim"), "norm native_norm")
_add("reduce", elsewhere("input, ord, dim"), "norm vector_norm", (torch.linalg,))
_add("reduce", elsewhere("input, ord, dim=(-2, -1)"), "matrix_norm", (torch.linalg,))
_add("reduce", elsewhere("input, k, dim=-1"), "kthvalue topk")
_add("reduce", elsewhere("input, dim=-1"), "mode")
_add("reduce", rules.quantile, "quantile nanquantile")
_add("reduce", rules.extreme, "max min")
_add("reduce", views.expand, "sum_to_size")
_add("reduce", rules.norm_except_dim, "norm_except_dim", (torch,))
_add("reduce", rules.sampled(elsewhere("y: broadcast, x: broadcast, *, dim=-1")), "trapezoid trapz", (torch,))
_add("reduce", elsewhere("x: broadcast, y: broadcast, dim=-1"), "vecdot", (torch.linalg,))
_add("reduce", views.ranked(2), "multinomial")

_add("move", indices.select, "select select_copy")
_add("move", indices.unbind, "unbind unbind_copy")
_add("move", indices.narrow, "narrow narrow_copy")
_add(
    "move",
    indices.pieces("input, chunks, dim=0"),
    "chunk split split_copy split_with_sizes split_with_sizes_copy unsafe_chunk unsafe_split unsafe_split_with_sizes",
)
_add("move", elsewhere("input, indices, dim=0"), "tensor_split")  # its pieces may overlap
_add("move", elsewhere("input, dim"), "slice_copy", (torch,))
_add("move", views.ranked(2), "hsplit dsplit")
_add("move", elsewhere("input, dim, index"), "index_select")
_add("move", elsewhere("input, repeats, dim"), "repeat_interleave")
_SCATTER = indices.by_place("input: broadcast, dim, index: broadcast, src: broadcast")
_add("move", _SCATTER, "scatter scatter_add scatter_reduce")
_add("move", indices.by_place("input: broadcast, dim, index: broadcast, src", looks_up=True), "gather")
_add("move", indices.by_place("input: broadcast, index: broadcast, dim, src", True), "take_along_dim")
_add("move", _SCATTER, "scatter_ scatter_add_ scatter_reduce_")
_INDEX_ADD = indices.indexed("input: broadcast, dim, index, source: broadcast")
_add("move", _INDEX_ADD, "index_add index_copy index_fill index_reduce")
_add("move", _INDEX_ADD, "index_add_ index_copy_ index_fill_ index_reduce_")
_add("move", views.select_scatter, "select_scatter")
_add("move", views.slice_scatter, "slice_scatter")
_add("move", views.diagonal_scatter, "diagonal_scatter")
_add("move", indices.getitem, "__getitem__")
_add("move", _in_place(indices.put), "__setitem__")
_add("move", indices.index_put, "index_put_")
_add("move", rules.moves, "masked_scatter_ put_")
_add("move", rules.scaling(by_element("weight, indices: plain"), "weight, indices, max_norm"), "embedding_renorm_")
_add("move", indices.join_tensors, "cat concat concatenate stack")
_add("move", indices.stack_at(1), "column_stack", (torch,))
_add("move", indices.stack_at(2), "dstack", (torch,))
_add("move", indices.stack_at(2, chains=True), "hstack", (torch,))
_add("move", indices.vstack, "row_stack vstack", (torch,))
_add(
    "move",
    None,
    "argwhere as_strided as_strided_copy as_strided_scatter index index_put masked_scatter masked_select nonzero "
    "nonzero_static put slice_inverse take unique unique_consecutive vsplit",
)

# -- views

_add("shape", views.transpose, "transpose swapaxes swapdims transpose_copy")
_add("shape", views.adjoint, "adjoint")
_attribute("shape", views.adjoint, "mT mH")
_add("shape", views.permute, "permute permute_copy")
_add("shape", views.movedim, "movedim moveaxis")
_add("shape", views.squeeze, "squeeze squeeze_copy")
_add("shape", views.unsqueeze, "unsqueeze unsqueeze_copy")
_add("shape", views.flatten, "flatten ravel")
_add("shape", views.unflatten, "unflatten")
_add("shape", views.reshape, "view reshape view_copy")
_add("shape", views.expand, "expand broadcast_to expand_copy")
_add("shape", views.repeat, "repeat tile")
_add("shape", views.pad, "pad constant_pad_nd")
for _n in (1, 2, 3):
    _add("shape", views.at_least(_n), f"atleast_{_n}d", (torch,))
_add("shape", views.diagonal("input, offset, dim1=0, dim2=1"), "diagonal diagonal_copy")
_add("shape", views.diagonal("input, offset, dim1=-2, dim2=-1"), "diagonal", (torch.linalg,))
_add("shape", views.diagonal("input, offset, dim1=-2, dim2=-1", more=1), "diag_embed")
_add("shape", views.reverse, "t t_copy")
_attribute("shape", views.reverse, "T H")
_add("shape", None, "diag diagflat resize resize_as")

# -- products

_add("matmul", linalg.matmul, "matmul mm mv __matmul__")
_add("matmul", linalg.matmul, "matmul", (torch.linalg,))
_add("matmul", linalg.reflected_matmul, "__rmatmul__")
_add("matmul", linalg.add_product(), "addmm addmv")
_add("matmul", linalg.in_place_product(linalg.add_product()), "addmm_ addmv_")
_add("matmul", linalg.add_batches, "addbmm")
_add("matmul", linalg.in_place_product(linalg.add_batches), "addbmm_")
_add("matmul", linalg.add_product(2), "addr")
_add("matmul", linalg.in_place_product(linalg.add_product(2)), "addr_")
_add("matmul", linalg.inner, "inner")
_add("matmul", row_by_row("input, vec2: beside"), "outer ger")
_add("matmul", linalg.several, "chain_matmul", (torch,))
_add("matmul", linalg.several, "multi_dot", (torch.linalg,))
_add("matmul", linalg.tensordot, "tensordot", (torch,))
_add("matmul", linalg.einsum, "einsum", (torch,))
_add(
    "matmul", linalg.each_with_each, "cartesian_prod kron meshgrid", (torch, Tensor, torch._C._VariableFunctions)
)  # for lists
_add("matmul", linalg.among_themselves, "combinations pdist")
_add("matmul", linalg.covariance, "corrcoef cov")
_add("matmul", linalg.over_all, "dist dot vdot")
_add("matmul", None, "block_diag trace hspmm saddmm smm sspaddmm")

# -- functions that would run along the rows of all sequences

for _n in (1, 2, 3):
    _pools = f"avg_pool{_n}d max_pool{_n}d adaptive_avg_pool{_n}d adaptive_max_pool{_n}d lp_pool{_n}d"
    _pools += f" max_pool{_n}d_with_indices adaptive_max_pool{_n}d_with_indices"
    _pools += f" fractional_max_pool{_n}d fractional_max_pool{_n}d_with_indices"
    _add("refuse", windows(_n), f"conv{_n}d conv_transpose{_n}d {_pools}")
    _add("refuse", windows(_n, "input: broadcast, indices: broadcast"), f"max_unpool{_n}d")
_add("refuse", windows(2), "pixel_shuffle pixel_unshuffle")
_add("refuse", windows(2), "unfold", (F,))
_add("refuse", windows(1), "fold")
_add("keep", rules.channels, "local_response_norm channel_shuffle native_channel_shuffle")
_add("keep", windows(1), "interpolate")
_add("keep", row_by_row("input"), "fbgemm_linear_fp16_weight fbgemm_linear_fp16_weight_fp32_activation", (torch,))
_add("refuse", windows(0), "stft")
_add("refuse", windows(1), "istft")
_add(
    "refuse",
    refuse_on_rows("input, dim", f"tl.sequence_unfold has windows within sequences; {OUT}"),
    "unfold",
    (Tensor,),
)
_add(
    "refuse",
    refuse_on_rows("input, dim", f"tl.sequence_unfold has windows within sequences; {OUT}"),
    "unfold_copy",
    (torch,),
)
_add("refuse", rules.linear, "linear")
_add("refuse", rules.layer_norm, "layer_norm rms_norm native_layer_norm")
_add("refuse", rules.only_at_dim_0(rules.group_norm), "native_group_norm", (torch,))
_add("refuse", rules.only_at_dim_0(rules.bag), "embedding_bag", (F,))
_add(
    "refuse",
    refuse("its bags are cut by offsets of their own; pool rows with tl.sequence_pool"),
    "embedding_bag",
    (torch,),
)
_SOFTMAX = f"tl.sequence_softmax runs within sequences; {OUT}"
_add("refuse", refuse_on_rows("logits, tau, hard, eps, dim=-1", _SOFTMAX), "gumbel_softmax")
_add("refuse", refuse_on_rows("input, dim", _SOFTMAX), "softmax log_softmax softmin")
for _name in ("cumsum", "cumprod", "cummax", "cummin", "logcumsumexp"):
    _inside = f"tl.sequence_{_name} runs within sequences; {OUT}"
    _add("refuse", refuse_on_rows("input, dim", _inside), f"{_name} {_name}_")
_DIFF = "input: broadcast, n, dim=-1, prepend: broadcast=None, append: broadcast=None"
_add("refuse", rules.difference(refuse_on_rows(_DIFF, f"{rules.DIFFERENCE}; {OUT}")), "diff")
_POINTS = "y: broadcast, x: broadcast, *, dim=-1"
_add("refuse", rules.sampled(refuse_on_rows(_POINTS, NO_SEQUENCES)), "cumulative_trapezoid")
_add("refuse", refuse_on_rows("input, dim=-1", f"tl.sequence_sort sorts within sequences; {OUT}"), "sort argsort")
_add("refuse", refuse_on_rows("input, dim=-1", NO_SEQUENCES), "glu")
_add("refuse", rules.renorm, "renorm renorm_")
_add("refuse", refuse_on_rows("input, p, dim=1", f"{rules.NORM}; {OUT}"), "normalize")
_add("refuse", refuse_on_rows("input, *, dim", NO_SEQUENCES), "gradient")
_add("refuse", rules.flip, "flip")
_add(
    "refuse",
    refuse_on_rows("input, shifts, dim", f"tl.sequence_roll rolls every sequence, tl.sequence_shift fills; {OUT}"),
    "roll",
)
_add("refuse", refuse_on_rows("input, k, dim=(0, 1)", NO_SEQUENCES), "rot90")
_add("refuse", refuse(f"tl.sequence_reverse reverses every sequence; {OUT}"), "flipud __reversed__")
_add("refuse", refuse(f"tl.sequence_sort sorts within sequences; {OUT}"), "msort")
_add("refuse", rules.triangle, "tril triu tril_ triu_")
_add("refuse", refuse(f"its diagonal would run through the rows of all sequences; {OUT}"), "fill_diagonal_")
_add("refuse", refuse_on_rows("input, n, dim=-1", NO_SEQUENCES), "fft ifft rfft irfft hfft ihfft", (torch.fft,))
_add(
    "refuse",
    refuse_on_rows("input, s, dim=(-2, -1)", NO_SEQUENCES),
    "fft2 ifft2 rfft2 irfft2 hfft2 ihfft2",
    (torch.fft,),
)
_add("refuse", rules.fft, "fftn ifftn rfftn irfftn hfftn ihfftn", (torch.fft,))
_add("refuse", refuse_on_rows("input, dim", NO_SEQUENCES), "fftshift ifftshift", (torch.fft,))
_add("refuse", refuse("the recurrence would run across sequences; use tl.nn.LSTM"), "lstm", (torch,))
_add("refuse", refuse("the recurrence would run across sequences; use tl.nn.GRU"), "gru", (torch,))
_add(
    "refuse",
    refuse(f"the recurrence would run across sequences; use tl.nn.LSTM or tl.nn.GRU; {OUT}"),
    "rnn_tanh rnn_relu miopen_rnn mkldnn_rnn_layer quantized_lstm quantized_gru",
    (torch,),
)
_add(
    "refuse",
    rules.refuse_parts(refuse(f"rows of different sequences would attend to one another; {NO_SEQUENCES}")),
    "scaled_dot_product_attention multi_head_attention_forward",
)
_add(
    "refuse",
    refuse(f"dim 0 would be the time of all sequences; tl.sequence_conv1d runs within sequences; {OUT}"),
    "conv_tbc",
)
_add("refuse", rules.only_at_dim_0(rules.ctc), "ctc_loss miopen_ctc_loss")
_add(
    "refuse",
    refuse(
        "nothing in it is padded; x.to_packed_sequence() packs it, and torch.nn's recurrent modules take it as it is"
    ),
    "_pack_padded_sequence",
    (torch,),
)
_add(
    "refuse",
    refuse(
        "every row would be a sequence; x.to_padded() pads the sequences, tl.batch makes a batch of several LoDTensors"
    ),
    "pad_sequence",
    (torch._C._nn,),
)
_add(
    "refuse",
    refuse(f"its scale is taken from the rows of all sequences; {OUT}"),
    "fused_moving_avg_obs_fake_quant fbgemm_linear_int8_weight fbgemm_linear_int8_weight_fp32_activation",
    (torch,),
)
# modules that torch.ao quantised: of int8 the scale of the input is one for all of it
_QUANTIZED = (torch.ops.quantized,)
_SCALED = refuse(
    "its scale is taken from the rows of all sequences; with x.sequences() every sequence has one, with torchao's quantize_ every "
    "row; x.values() takes it from all rows on purpose"
)
_add("refuse", _SCALED, "linear_dynamic linear_relu_dynamic conv1d_dynamic", _QUANTIZED)
_add(
    "refuse",
    _SCALED,
    "quantized_lstm_cell_dynamic quantized_gru_cell_dynamic quantized_rnn_relu_cell_dynamic quantized_rnn_tanh_cell_dynamic",
    _QUANTIZED,
)
_add("refuse", rules.linear, "linear_dynamic_fp16 linear_relu_dynamic_fp16", _QUANTIZED)
_add("refuse", rules.linear, "linear_dynamic_fp16_unpacked_weight", _QUANTIZED)
_add("keep", by_element("weight, indices: rows"), "embedding_byte embedding_4bit", _QUANTIZED)
_add(
    "refuse",
    rules.moves_in_place,
    "as_strided_ resize_ resize_as_ resize_as_sparse_ set_ sort_ sparse_resize_ sparse_resize_and_clear_ squeeze_ swapaxes_ "
    "swapdims_ t_ transpose_ unsqueeze_",
)

# -- matrices: one per row, or all rows as one matrix

_ONE = "cholesky cholesky_ex cond det eig eigh eigvals eigvalsh inv inv_ex ldl_factor ldl_factor_ex lu lu_factor lu_factor_ex"
_add(
    "refuse",
    linalg.batched("A: matrix"),
    f"{_ONE} matrix_exp matrix_power matrix_rank pinv qr slogdet svd svdvals",
    (torch.linalg,),
)
_ONE = (
    "cholesky cholesky_inverse det geqrf inverse logdet lu matrix_exp matrix_power pca_lowrank pinverse qr slogdet svd"
)
_add("refuse", linalg.batched("A: matrix"), _ONE, (torch, Tensor))
_add("refuse", linalg.batched("A: matrix, k, B: matrix, X: matrix, n, iK: matrix"), "lobpcg", (torch,))
_add("refuse", linalg.batched("A: matrix, q, niter, M: matrix"), "svd_lowrank", (torch,))
_add("refuse", linalg.batched("A: matrix, B: solution"), "lstsq solve solve_ex", (torch.linalg,))
_add("refuse", linalg.batched("A: matrix, B: matrix"), "solve_triangular", (torch.linalg,))
_add("refuse", linalg.batched("LU: matrix, pivots: vector, B: matrix"), "lu_solve", (torch.linalg,))
_add("refuse", linalg.batched("LD: matrix, pivots: vector, B: matrix"), "ldl_solve", (torch.linalg,))
_add("refuse", linalg.batched("A: matrix, tau: vector"), "householder_product", (torch.linalg,))
_add("refuse", linalg.batched("A: matrix, tau: vector"), "orgqr", (torch, Tensor))
_add("refuse", linalg.batched("A: matrix, tau: vector, other: matrix"), "ormqr", (torch, Tensor))
_add("refuse", linalg.batched("b: matrix, LU_data: matrix, LU_pivots: vector"), "lu_solve", (torch, Tensor))
_add("refuse", linalg.batched("LU_data: matrix, LU_pivots: vector"), "lu_unpack", (torch,))
_add("refuse", linalg.batched("b: matrix, L: matrix"), "cholesky_solve", (torch, Tensor))
_add("refuse", linalg.batched("b: matrix, A: matrix"), "triangular_solve", (torch, Tensor))
_add(
    "refuse",
    refuse(f"rows would be interpreted as the rows of one matrix; {OUT}"),
    "tensorinv tensorsolve",
    (torch.linalg,),
)

# -- no rows in the result

_add(  # numbers, predicates, sizes, Python's protocols and their helpers
    "plain",
    None,
    "backward const_data_ptr data_ptr dense_dim dim dim_order element_size get_device has_names is_coalesced is_complex "
    "is_conj is_contiguous is_distributed is_floating_point is_inference is_neg is_nonzero is_pinned is_same_size is_set_to "
    "is_shared is_signed item ndimension nelement numel numpy record_stream register_hook result_type "
    "register_post_accumulate_grad_hook retain_grad size sparse_dim storage storage_offset storage_type stride sym_float "
    "sym_int sym_ite sym_max sym_min sym_not sym_sqrt sym_sum tolist to_dlpack untyped_storage autocast cudnn_is_acceptable _sym_int "
    "__array__ __array_wrap__ __bool__ __complex__ __contains__ __deepcopy__ __dir__ __dlpack__ __dlpack_device__ __float__ "
    "__format__ __index__ __int__ __len__ __long__ __nonzero__ __reduce_ex__ __repr__ __setstate__ _is_view "
    "_autocast_to_full_precision _autocast_to_reduced_precision _clear_non_serializable_cached_data _dimI _dimV _nnz "
    "_nested_tensor_size _nested_tensor_storage_offsets _nested_tensor_strides",
)
_add("reduce", None, "bincount histc histogram histogramdd segment_reduce")  # counts, and rows pooled by lengths
_add(  # the parts of BatchNorm: statistics and gradients of channels over all rows
    "plain",
    None,
    "batch_norm_backward_elemt batch_norm_backward_reduce batch_norm_gather_stats batch_norm_gather_stats_with_counts "
    "batch_norm_stats batch_norm_update_stats",
    (torch,),
)
_add(  # tensors whose size is given
    "plain",
    None,
    "empty linspace logspace new_empty new_empty_strided new_full new_ones new_zeros ones rand randn zeros",
)
_add("plain", rules.of_data, "new new_tensor")
_add(  # a LoDTensor is dense: these raise, or make another kind of tensor
    "plain",
    None,
    "ccol_indices ccol_indices_copy coalesce col_indices col_indices_copy crow_indices crow_indices_copy indices "
    "indices_copy row_indices row_indices_copy sparse_coo_tensor sparse_mask to_mkldnn to_padded_tensor to_sparse "
    "to_sparse_bsc to_sparse_bsr to_sparse_coo to_sparse_csc to_sparse_csr values values_copy _coalesced_ _indices _values "
    "_sparse_mask_projection _to_dense mkldnn_adaptive_avg_pool2d mkldnn_linear_backward_weights "
    "mkldnn_max_pool2d mkldnn_max_pool3d",
)
_add(  # a LoDTensor is not quantised
    "plain",
    None,
    "choose_qparams_optimized fbgemm_linear_quantize_weight fbgemm_pack_gemm_matrix_fp16 fbgemm_pack_quantized_matrix "
    "int_repr q_per_channel_axis q_per_channel_scales q_per_channel_zero_points q_scale q_zero_point qscheme "
    "quantize_per_channel quantize_per_tensor quantize_per_tensor_dynamic quantized_batch_norm "
    "quantized_gru_cell quantized_lstm_cell quantized_max_pool1d quantized_max_pool2d quantized_max_pool3d "
    "quantized_rnn_relu_cell quantized_rnn_tanh_cell",
)
_attribute(
    "plain",
    None,
    "device dtype grad grad_dtype grad_fn is_cpu is_cuda is_ipu is_leaf is_maia is_meta is_mkldnn is_mps is_mtia is_nested "
    "is_quantized is_sparse is_sparse_csr is_vulkan is_xla is_xpu itemsize layout name names nbytes ndim output_nr "
    "requires_grad retains_grad shape volatile __cuda_array_interface__ _backward_hooks _base _cdata _grad _grad_fn "
    "_post_accumulate_grad_hooks _version",
)
_add("plain", None, "grad backward", (torch.autograd,))
_attribute("keep", keep, "data real imag")
_attribute("refuse", indices.data, "data", change=True)


def _equal(x, other):
    """Tensor.__eq__ tells the class of its first operand only, torch.eq those of both."""
    return torch.eq(x, other) if isinstance(other, Tensor) else NotImplemented


RULES[Tensor.__eq__] = Route(_equal, join)
