// Products on a GPU by cuBLAS itself, without the dispatcher: its views and checks cost the host more than a step of a
// recurrence costs the GPU. Torch prepares a handle per thread: its stream, and whether TF32 is allowed.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#ifdef LOD_CUDA
#include "torch_lod/binding.h"

#include <ATen/Context.h>
#include <torch/version.h>

// Declared here: a toolkit that compiles kernels may lack the headers of cuBLAS, and at::cuda::blas is not exported.
// Nothing is linked: libtorch_cuda has loaded the library. Where a function is missing, its address is null.
struct cublasContext;
extern "C" {
__attribute__((weak)) int cublasSgemm_v2(cublasContext*, int transpose_a, int transpose_b, int m, int n, int k,
                                         const float* alpha, const float* a, int lda, const float* b, int ldb,
                                         const float* beta, float* c, int ldc);
__attribute__((weak)) int cublasDgemm_v2(cublasContext*, int transpose_a, int transpose_b, int m, int n, int k,
                                         const double* alpha, const double* a, int lda, const double* b, int ldb,
                                         const double* beta, double* c, int ldc);
__attribute__((weak)) int cublasGemmEx(cublasContext*, int transpose_a, int transpose_b, int m, int n, int k,
                                       const void* alpha, const void* a, int type_a, int lda, const void* b, int type_b,
                                       int ldb, const void* beta, void* c, int type_c, int ldc, int computed,
                                       int algorithm);
__attribute__((weak)) int cublasGetMathMode(cublasContext*, int* mode);
__attribute__((weak)) int cublasSetMathMode(cublasContext*, int mode);
}
namespace at::cuda {
#if TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR < 12
cublasContext* getCurrentCUDABlasHandle();
#else
cublasContext* getCurrentCUDABlasHandle(bool setup);
#endif
}  // namespace at::cuda

namespace lod {

// The right side of products, (k, n), rows or columns side by side, and the handle of the thread and the stream that it
// is made in.
class BlasFactor {
 public:
  static bool serves(const Tensor& right) {
    const auto type = right.scalar_type();
    const bool close = right.is_contiguous() || right.t().is_contiguous();
    return LOD_IS_GPU(right) && cublasSgemm_v2 && cublasDgemm_v2 && cublasGemmEx && cublasGetMathMode &&
           cublasSetMathMode && number_of(type) && at::isFloatingType(type) && close && right.numel() > 0 &&
           right.size(0) <= kMost && right.size(1) <= kMost &&
           !at::globalContext().deterministicAlgorithms();  // at::mm knows what cuBLAS must be told then
  }
  explicit BlasFactor(const Tensor& right)
      : right_(right),
        by_rows_(right.is_contiguous()),
        k_(int(right.size(0))),
        n_(int(right.size(1))),
        apart_(by_rows_ ? n_ : k_) {
    const c10::cuda::CUDAGuard guard(right.device());
#if TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR < 12
    handle_ = at::cuda::getCurrentCUDABlasHandle();
#else
    handle_ = at::cuda::getCurrentCUDABlasHandle(true);
#endif
  }
  // out = left right, or out += left right, of so many contiguous rows, the first ones of both. cuBLAS sees columns
  // where these are rows: to it, the product is right^T left^T.
  void multiply(const Tensor& left, const Tensor& out, int64_t rows, bool adds) const {
    TORCH_CHECK_VALUE(rows <= kMost, "expected at most ", kMost, " rows in a product, got ", rows);
    if (rows == 0) return;
    const c10::cuda::CUDAGuard guard(out.device());
    const int status = product(left, out, int(rows), adds);
    TORCH_CHECK(status == 0, "cuBLAS: a product of ", rows, " x ", k_, " x ", n_, " failed with status ", status);
  }

 private:
  int product(const Tensor& left, const Tensor& out, int rows, bool adds) const {
    if (right_.scalar_type() == at::kFloat) return product_of<float>(cublasSgemm_v2, left, out, rows, adds);
    if (right_.scalar_type() == at::kDouble) return product_of<double>(cublasDgemm_v2, left, out, rows, adds);
    // Sums are float32, also those of parts, whatever torch's options let at::mm do.
    constexpr int kHalf = 2, kBfloat16 = 14, kComputeFloat = 68, kSumsAsComputed = 16, kDefault = -1;
    const int type = right_.scalar_type() == at::kHalf ? kHalf : kBfloat16;
    const float one = 1, beta = adds;
    int before = 0;
    if (const int status = cublasGetMathMode(handle_, &before)) return status;
    if (const int status = cublasSetMathMode(handle_, kSumsAsComputed)) return status;
    const int status = cublasGemmEx(handle_, !by_rows_, 0, n_, rows, k_, &one, right_.const_data_ptr(), type, apart_,
                                    left.const_data_ptr(), type, k_, &beta, out.mutable_data_ptr(), type, n_,
                                    kComputeFloat, kDefault);
    const int reset = cublasSetMathMode(handle_, before);
    return status ? status : reset;
  }
  template <class T, class F>
  int product_of(F* gemm, const Tensor& left, const Tensor& out, int rows, bool adds) const {
    const T one = 1, beta = adds;
    return gemm(handle_, !by_rows_, 0, n_, rows, k_, &one, right_.const_data_ptr<T>(), apart_, left.const_data_ptr<T>(),
                k_, &beta, out.mutable_data_ptr<T>(), n_);
  }

  static constexpr int64_t kMost = 0x7fffffff;
  Tensor right_;
  bool by_rows_;
  int k_, n_, apart_;
  cublasContext* handle_;
};

}  // namespace lod
#endif
