// Matrix products of tensors: our own where they serve (float32 and float64 in host memory), those of cuBLAS on a GPU,
// torch's otherwise.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "bindings/cublas.h"
#include "bindings/operators.h"
#include "kernels/product_api.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>

namespace lod {

inline bool has_products_for(const Tensor& t) {
  return t.is_cpu() && (t.scalar_type() == at::kFloat || t.scalar_type() == at::kDouble) && kernels::has_products();
}
template <class F>
void visit_products(const Tensor& t, const F& f) {
  if (t.scalar_type() == at::kFloat) f(Type<float>{});
  else f(Type<double>{});
}

// Torch's product of half-width numbers in host memory (oneDNN) takes columns in blocks. Where the last block is not
// full it takes in numbers of the next row, times zero; but zero times NaN is NaN. Columns of zeros fill it.
inline int64_t missing_columns(const Tensor& t, int64_t columns) {
  constexpr int64_t block = 32;
  return t.is_cpu() && at::isReducedFloatingType(t.scalar_type()) ? (block - columns % block) % block : 0;
}
inline Tensor whole_columns(const Tensor& left) {
  const int64_t missing = missing_columns(left, left.size(1));
  return missing ? at::constant_pad_nd(left, {0, missing}) : left;
}
inline Tensor whole_rows(const Tensor& right) {
  const int64_t missing = missing_columns(right, right.size(0));
  return missing ? at::constant_pad_nd(right, {0, 0, 0, missing}) : right;
}

inline Tensor first(const Tensor& t, int64_t rows) { return t.size(0) == rows ? t : t.narrow(0, 0, rows); }

// The right side of products, prepared once: (k, n), of any strides. What few rows use once is prepared part by part.
class Factor {
 public:
  explicit Factor(const Tensor& right, int64_t rows = kMany, int64_t uses = kMany)
      : right_(right), ours_(has_products_for(right)) {
#ifdef LOD_CUDA
    if (BlasFactor::serves(right)) blas_.emplace(right);
#endif
    if (!ours_) {
      right_ = whole_rows(right);
      return;
    }
    if (uses <= 1 && rows <= kFew) return;
    visit_products(right, [&]<class T>(Type<T>) {
      packed_ = at::empty({kernels::packed_size<T>(right.size(1), right.size(0))}, right.options());
      kernels::pack<T>(kCpu, packing<T>(packed_.mutable_data_ptr<T>()));
    });
  }

  // out = left right (+ bias), of so many contiguous rows, the first ones of both.
  void multiply(const Tensor& left, const Tensor& out, int64_t rows, const Tensor& bias = Tensor()) const {
    if (ours_) return run(left, out, rows, bias, 0);
#ifdef LOD_CUDA
    if (blas_ && !bias.defined()) return blas_->multiply(left, out, rows, false);
#endif
    Tensor to = first(out, rows);
    if (bias.defined()) at::addmm_out(to, bias, whole_columns(first(left, rows)), right_);
    else at::mm_out(to, whole_columns(first(left, rows)), right_);
  }
  // out = windows of left, side by side, right (+ bias); only where has_products_for(left).
  void multiply(const Tensor& left, const WindowsOfRows& windows, const Tensor& out, const Tensor& bias) const {
    run(left, out, left.size(0), bias, 0, &windows);
  }
  // out += left right
  void add(const Tensor& left, const Tensor& out, int64_t rows) const {
    if (ours_) return run(left, out, rows, out, out.size(1));
#ifdef LOD_CUDA
    if (blas_) return blas_->multiply(left, out, rows, true);
#endif
    first(out, rows).addmm_(whole_columns(first(left, rows)), right_);
  }

 private:
  void run(const Tensor& left, const Tensor& out, int64_t rows, const Tensor& init, int64_t init_stride,
           const WindowsOfRows* windows = nullptr) const {
    visit_products(right_, [&]<class T>(Type<T>) {
      const PackArguments<T> unpacked = packing<T>(nullptr);
      const bool packed = packed_.defined();
      kernels::multiply<T>(kCpu, {rows, right_.size(1), right_.size(0), left.const_data_ptr<T>(), left.size(1),
                                  packed ? packed_.const_data_ptr<T>() : nullptr, out.mutable_data_ptr<T>(),
                                  out.size(1), init.defined() ? init.const_data_ptr<T>() : nullptr, init_stride,
                                  windows, packed ? nullptr : &unpacked});
    });
  }
  template <class T>
  PackArguments<T> packing(T* to) const {
    return {right_.size(1), right_.size(0), right_.const_data_ptr<T>(), right_.stride(0), right_.stride(1), to};
  }
  static constexpr int64_t kMany = int64_t(1) << 40, kFew = 48;
  Tensor right_, packed_;
  bool ours_;
#ifdef LOD_CUDA
  std::optional<BlasFactor> blas_;
#endif
};

// left[left_rows]^T right[right_rows], of k contiguous rows; rows null are all rows in order. Only where
// has_products_for(left).
inline Tensor product_of_rows(const Tensor& left, const int64_t* left_rows, const Tensor& right,
                              const int64_t* right_rows, int64_t k) {
  const int64_t m = left.size(1), n = right.size(1);
  Tensor out = at::zeros({m, n}, left.options());
  if (k > 0)
    visit_products(left, [&]<class T>(Type<T>) {
      kernels::multiply_transposed<T>(kCpu, {m, n, k, left.const_data_ptr<T>(), m, right.const_data_ptr<T>(), n,
                                             left_rows, right_rows, out.mutable_data_ptr<T>(), n});
    });
  return out;
}
// left^T right[map], of contiguous rows; a map entry of -1 is a row of zeros, no map all rows in order.
inline Tensor transposed_product(const Tensor& left, const Tensor& right, const Tensor& map = Tensor()) {
  if (!has_products_for(left))
    return at::mm(left.t(), map.defined() ? GatherRowsOp::call(right, mark(map, right.size(0), false), 0) : right);
  return product_of_rows(left, nullptr, right, map.defined() ? map.const_data_ptr<int64_t>() : nullptr, left.size(0));
}
inline Tensor transposed_product(const Tensor& left, const std::vector<int64_t>& left_rows, const Tensor& right,
                                 const std::vector<int64_t>& right_rows) {
  return product_of_rows(left, left_rows.data(), right, right_rows.data(), int64_t(left_rows.size()));
}

}  // namespace lod
