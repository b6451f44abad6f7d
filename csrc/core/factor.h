// Matrix products of tensors: our own where they serve (float32 in host memory), torch's otherwise.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/operators.h"
#include "core/product.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>

namespace lod {

inline bool has_products_for(const Tensor& t) { return t.is_cpu() && t.scalar_type() == at::kFloat && has_products(); }

// The right side of products, prepared once: (k, n), of any strides.
class Factor {
 public:
  explicit Factor(const Tensor& right) : right_(right) {
    if (!has_products_for(right)) return;
    const int64_t k = right.size(0), n = right.size(1);
    packed_ = at::empty({packed_size(n, k)}, right.options());
    pack({n, k, right.const_data_ptr<float>(), right.stride(0), right.stride(1), packed_.mutable_data_ptr<float>()});
  }

  // out = left right (+ bias), of contiguous rows.
  void multiply(const Tensor& left, const Tensor& out, const Tensor& bias = Tensor()) const {
    if (!packed_.defined()) {
      Tensor to = out;
      if (bias.defined()) at::addmm_out(to, bias, left, right_);
      else at::mm_out(to, left, right_);
      return;
    }
    run(left, out, bias.defined() ? bias.const_data_ptr<float>() : nullptr, 0);
  }
  // out = windows of left, side by side, right (+ bias); only where has_products_for(left).
  void multiply(const Tensor& left, const WindowsOfRows& windows, const Tensor& out, const Tensor& bias) const {
    lod::multiply(kCpu, {left.size(0), right_.size(1), right_.size(0), left.const_data_ptr<float>(), left.size(1),
                         packed_.const_data_ptr<float>(), out.mutable_data_ptr<float>(), out.size(1),
                         bias.defined() ? bias.const_data_ptr<float>() : nullptr, 0, &windows});
  }
  // out += left right
  void add(const Tensor& left, const Tensor& out) const {
    if (packed_.defined()) run(left, out, out.const_data_ptr<float>(), out.size(1));
    else out.addmm_(left, right_);
  }

 private:
  void run(const Tensor& left, const Tensor& out, const float* init, int64_t init_stride) const {
    lod::multiply(kCpu,
                  {left.size(0), right_.size(1), right_.size(0), left.const_data_ptr<float>(), left.size(1),
                   packed_.const_data_ptr<float>(), out.mutable_data_ptr<float>(), out.size(1), init, init_stride});
  }
  Tensor right_, packed_;
};

// left^T right[map], of contiguous rows; a map entry of -1 is a row of zeros, no map every row in turn.
inline Tensor transposed_product(const Tensor& left, const Tensor& right, const Tensor& map = Tensor()) {
  if (!has_products_for(left)) return at::mm(left.t(), map.defined() ? GatherRowsOp::call(right, map, 0) : right);
  const int64_t m = left.size(1), n = right.size(1), k = left.size(0);
  Tensor out = at::zeros({m, n}, left.options());
  if (k == 0) return out;
  multiply_transposed(kCpu,
                      {m, n, k, left.const_data_ptr<float>(), m, right.const_data_ptr<float>(), n, nullptr,
                       map.defined() ? map.const_data_ptr<int64_t>() : nullptr, out.mutable_data_ptr<float>(), n});
  return out;
}
// left[left_rows]^T right[right_rows], of contiguous rows; only where has_products_for(left).
inline Tensor transposed_product(const Tensor& left, const std::vector<int64_t>& left_rows, const Tensor& right,
                                 const std::vector<int64_t>& right_rows) {
  const int64_t m = left.size(1), n = right.size(1), k = int64_t(left_rows.size());
  Tensor out = at::zeros({m, n}, left.options());
  if (k == 0) return out;
  multiply_transposed(kCpu, {m, n, k, left.const_data_ptr<float>(), m, right.const_data_ptr<float>(), n,
                             left_rows.data(), right_rows.data(), out.mutable_data_ptr<float>(), n});
  return out;
}

}  // namespace lod
