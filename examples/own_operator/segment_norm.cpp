// Binding: checks, allocates, sends to the processor where the values are; and the gradients.
// SPDX-License-Identifier: Apache-2.0
#define LOD_KERNELS "segment_norm.h"
#define LOD_LIBRARY own_operator
#include <torch_lod/operator.h>

#include <ATen/ops/reciprocal.h>
#include <ATen/ops/where.h>

TORCH_LIBRARY(own_operator, m) {
  m.def("segment_norm(Tensor values, Tensor row_offsets) -> Tensor", {at::Tag::pt2_compliant_tag});
  m.def("segment_norm_backward(Tensor grad, Tensor norm, Tensor values, Tensor row_offsets) -> Tensor",
        {at::Tag::pt2_compliant_tag});
}

namespace lod {
LOD_ON_CUDA(segment_norm)
LOD_ON_CUDA(segment_norm_backward)
namespace {

// -- segment_norm: what torch.compile needs to know, which reads no data, and the implementation

Tensor segment_norm_meta(const Tensor& values, const Tensor& row_offsets) {
  check_segments("segment_norm", values, row_offsets);
  check_floating("segment_norm", "values", values);
  return at::empty_symint(sym_shape(values, row_offsets.sym_size(0) - 1), values.options());
}
Tensor segment_norm(const Tensor& values, const Tensor& row_offsets) {
  const DType dtype = floating_type("segment_norm", values);
  const HeldView x = make_view("segment_norm", values, row_offsets);
  Tensor norm = new_rows(x.values, x.segments);
  LOD_RUN(norm, segment_norm, dtype, x, x.values.const_data_ptr(), norm.mutable_data_ptr());
  return norm;
}

// -- segment_norm_backward

Tensor segment_norm_backward_meta(const Tensor& grad, const Tensor& norm, const Tensor& values,
                                  const Tensor& row_offsets) {
  const char* op = "segment_norm_backward";
  check_segments(op, values, row_offsets);
  check_floating(op, "values", values);
  check_rows_like(op, "grad", grad, values, row_offsets.sym_size(0) - 1);
  check_rows_like(op, "norm", norm, values, row_offsets.sym_size(0) - 1);
  return at::empty_symint(values.sym_sizes(), values.options());
}
Tensor segment_norm_backward(const Tensor& grad, const Tensor& norm, const Tensor& values, const Tensor& row_offsets) {
  const char* op = "segment_norm_backward";
  segment_norm_backward_meta(grad, norm, values, row_offsets);
  const HeldView x = make_view(op, values, row_offsets);
  const Tensor g = readable(grad), n = readable(norm);
  Tensor out = new_rows(x.values, x.rows, row_offsets);
  LOD_RUN(out, segment_norm_backward, floating_type(op, values), x, g.const_data_ptr(), n.const_data_ptr(),
          x.values.const_data_ptr(), out.mutable_data_ptr());
  return out;
}

// -- gradients

using NormOp = Operator<"segment_norm", segment_norm_meta, segment_norm>;
using NormBackwardOp = Operator<"segment_norm_backward", segment_norm_backward_meta, segment_norm_backward>;
using SumOp = Call<"segment_reduce", Tensor(const Tensor&, const Tensor&, std::string_view, double), "torch_lod">;

struct NormGradient : Gradient<NormOp> {
  static auto save(const Tensor& values, const Tensor& row_offsets, const Tensor& norm) {
    return std::tuple(norm, values, row_offsets);
  }
  static variable_list gradient(const Grads& grad, const Tensor& norm, const Tensor& values,
                                const Tensor& row_offsets) {
    return {NormBackwardOp::call(grad[0], norm, values, row_offsets)};
  }
};
struct NormBackwardGradient : Gradient<NormBackwardOp> {
  static auto save(const Tensor& grad, const Tensor& norm, const Tensor& values, const Tensor& row_offsets) {
    return std::tuple(grad, norm, values, row_offsets);
  }
  static variable_list gradient(const Grads& direction, const Tensor& grad, const Tensor& norm, const Tensor& values,
                                const Tensor& row_offsets) {
    const Tensor inverse = at::where(norm.eq(0), 0, norm.reciprocal());
    const Tensor along = inverse.mul(SumOp::call(direction[0].mul(values), row_offsets, "sum", 0));
    return {along, along.neg().mul(grad).mul(inverse), NormBackwardOp::call(grad, norm, direction[0], row_offsets)};
  }
};

}  // namespace

LOD_OPERATORS(NormGradient, NormBackwardGradient)

}  // namespace lod
