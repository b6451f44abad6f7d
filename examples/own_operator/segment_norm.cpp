// Binding: checks, allocates, and sends to the processor where the values are.
// SPDX-License-Identifier: Apache-2.0
#define LOD_KERNELS "segment_norm.h"
#define LOD_LIBRARY own_operator
#include <torch_lod/binding.h>

namespace lod {
#ifdef LOD_CUDA
namespace cuda {
void segment_norm(const CudaExec&, DType, const LoDView&, const void*, void*);
void segment_norm_backward(const CudaExec&, DType, const LoDView&, const void*, const void*, const void*, void*);
}  // namespace cuda
#endif
namespace {

Tensor segment_norm(const Tensor& values, const Tensor& row_offsets) {
  const DType dtype = floating_type("segment_norm", values);
  const HeldView x = make_view("segment_norm", values, row_offsets);
  Tensor norm = new_rows(x.values, x.segments);
  LOD_RUN(norm, segment_norm, dtype, x, x.values.const_data_ptr(), norm.mutable_data_ptr());
  return norm;
}

Tensor segment_norm_backward(const Tensor& grad, const Tensor& norm, const Tensor& values, const Tensor& row_offsets) {
  const char* op = "segment_norm_backward";
  const DType dtype = floating_type(op, values);
  const HeldView x = make_view(op, values, row_offsets);
  check_rows_like(op, "grad", grad, values, x.segments);
  check_rows_like(op, "norm", norm, values, x.segments);
  const Tensor g = readable(op, grad), n = readable(op, norm);
  Tensor out = new_rows(x.values, x.rows);
  LOD_RUN(out, segment_norm_backward, dtype, x, g.const_data_ptr(), n.const_data_ptr(), x.values.const_data_ptr(),
          out.mutable_data_ptr());
  return out;
}

}  // namespace

TORCH_LIBRARY(own_operator, m) {
  m.def("segment_norm(Tensor values, Tensor row_offsets) -> Tensor");
  m.def("segment_norm_backward(Tensor grad, Tensor norm, Tensor values, Tensor row_offsets) -> Tensor");
}

LOD_IMPLEMENTATIONS(m) {
  m.impl("segment_norm", &segment_norm);
  m.impl("segment_norm_backward", &segment_norm_backward);
}

}  // namespace lod
