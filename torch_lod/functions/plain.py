# SPDX-License-Identifier: Apache-2.0
"""Functions whose result has no rows."""

import torch

from ..ops.compositions import COMPOSITIONS
from ..tensor.provenance import provenance_of
from ..tensor.table import Row
from .row import attribute, enter, put


def of_data(func, args, kwargs):
    """A copy of the data that are given: the other operand only has a type."""
    return provenance_of(args[1] if len(args) > 1 else kwargs.get("data", kwargs.get("other")))


# -- no rows in the result

enter(  # numbers, predicates, sizes, Python's protocols and their helpers
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
enter(  # the parts of BatchNorm: statistics and gradients of channels over all rows
    "plain",
    None,
    "batch_norm_backward_elemt batch_norm_backward_reduce batch_norm_gather_stats batch_norm_gather_stats_with_counts "
    "batch_norm_stats batch_norm_update_stats",
    (torch,),
)
enter(  # tensors whose size is given
    "plain",
    None,
    "empty linspace logspace new_empty new_empty_strided new_full new_ones new_zeros ones rand randn zeros",
)
enter("plain", of_data, "new new_tensor")
enter(  # a LoDTensor is dense: these raise, or make another kind of tensor
    "plain",
    None,
    "ccol_indices ccol_indices_copy coalesce col_indices col_indices_copy crow_indices crow_indices_copy indices "
    "indices_copy row_indices row_indices_copy sparse_mask to_mkldnn to_padded_tensor to_sparse "
    "to_sparse_bsc to_sparse_bsr to_sparse_coo to_sparse_csc to_sparse_csr values values_copy _coalesced_ _indices _values "
    "_sparse_mask_projection _to_dense mkldnn_adaptive_avg_pool2d mkldnn_linear_backward_weights "
    "mkldnn_max_pool2d mkldnn_max_pool3d",
)
enter(  # a LoDTensor is not quantised
    "plain",
    None,
    "choose_qparams_optimized fbgemm_linear_quantize_weight fbgemm_pack_gemm_matrix_fp16 fbgemm_pack_quantized_matrix "
    "int_repr q_per_channel_axis q_per_channel_scales q_per_channel_zero_points q_scale q_zero_point qscheme "
    "quantize_per_channel quantize_per_tensor quantize_per_tensor_dynamic quantized_batch_norm "
    "quantized_gru_cell quantized_lstm_cell quantized_max_pool1d quantized_max_pool2d quantized_max_pool3d "
    "quantized_rnn_relu_cell quantized_rnn_tanh_cell",
)
attribute(
    "plain",
    None,
    "device dtype grad grad_dtype grad_fn is_cpu is_cuda is_ipu is_leaf is_maia is_meta is_mkldnn is_mps is_mtia is_nested "
    "is_quantized is_sparse is_sparse_csr is_vulkan is_xla is_xpu itemsize layout name names nbytes ndim output_nr "
    "requires_grad retains_grad shape volatile __cuda_array_interface__ _backward_hooks _base _cdata _grad _grad_fn "
    "_post_accumulate_grad_hooks _version",
)
enter("plain", None, "grad backward", (torch.autograd,))


# it takes rows as values, and gives them to no result
enter("plain", None, "sparse_coo_tensor", plain=False)

# Compiled graphs call these on what they are given, which may be a LoDTensor where it was traced as a plain tensor.
put({torch.ops.aten.alias.default: Row("alias", plain=True)})
put({getattr(torch.ops.torch_lod, name).default: Row(name, plain=True) for name in COMPOSITIONS})
