// Products on a GPU by cuBLAS itself, without the dispatcher: its views and checks cost the host more than a step of a
// recurrence costs the GPU. Torch prepares a handle per thread: its stream, and whether TF32 is allowed.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#ifdef LOD_CUDA
#include "bindings/upload.h"

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/ops/mm.h>
#include <torch/version.h>

#include <dlfcn.h>

#include <cstdlib>
#include <map>

struct cublasContext;
namespace at::cuda {
#if TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR < 12
cublasContext* getCurrentCUDABlasHandle();
#else
cublasContext* getCurrentCUDABlasHandle(bool setup);
#endif
}  // namespace at::cuda

namespace lod {

// Functions of cuBLAS, declared here: a toolkit that compiles kernels may lack its headers, and at::cuda::blas is not
// exported. Nothing is linked. They are those of the library that libtorch_cuda has loaded, by its name: a process may
// have cuBLAS of another major version besides, to which torch's handle is none.
#ifndef LOD_BLAS_SYMBOL  // tests/emulated_gpu has products of its own
inline void* blas_symbol(const char* name) {
  static void* const library = [] {
    const auto major = std::to_string(at::detail::getCUDAHooks().versionCUDART() / 1000);
    return dlopen(("libcublas.so." + major).c_str(), RTLD_NOW | RTLD_NOLOAD);
  }();
  return library ? dlsym(library, name) : nullptr;
}
#define LOD_BLAS_SYMBOL blas_symbol
#endif
struct Blas {
  // Of its headers: tests/lib/cublas_numbers.cpp
  static constexpr int kHalf = 2, kBfloat16 = 14, kComputeFloat = 68, kSumsAsComputed = 16, kDefault = -1;

  int (*sgemm)(cublasContext*, int transpose_a, int transpose_b, int m, int n, int k, const float* alpha,
               const float* a, int lda, const float* b, int ldb, const float* beta, float* c, int ldc);
  int (*dgemm)(cublasContext*, int transpose_a, int transpose_b, int m, int n, int k, const double* alpha,
               const double* a, int lda, const double* b, int ldb, const double* beta, double* c, int ldc);
  int (*gemm_ex)(cublasContext*, int transpose_a, int transpose_b, int m, int n, int k, const void* alpha,
                 const void* a, int type_a, int lda, const void* b, int type_b, int ldb, const void* beta, void* c,
                 int type_c, int ldc, int computed, int algorithm);
  int (*get_math_mode)(cublasContext*, int* mode);
  int (*set_math_mode)(cublasContext*, int mode);

  // Null where a function is missing, or TORCH_LOD_CUBLAS=0 asks for torch's products.
  static const Blas* found() {
    static const Blas blas;
    static const bool serves = blas.sgemm && blas.dgemm && blas.gemm_ex && blas.get_math_mode && blas.set_math_mode;
    return serves ? &blas : nullptr;
  }

 private:
  Blas() {
    const char* asked = std::getenv("TORCH_LOD_CUBLAS");
    const bool off = asked && std::string_view(asked) == "0";
    const auto find = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(off ? nullptr : LOD_BLAS_SYMBOL(name));
    };
    find(sgemm, "cublasSgemm_v2"), find(dgemm, "cublasDgemm_v2"), find(gemm_ex, "cublasGemmEx");
    find(get_math_mode, "cublasGetMathMode"), find(set_math_mode, "cublasSetMathMode");
  }
};

// The first product of a device and dtype beside at::mm, on the device: the host looks when it next asks for a product.
class BlasTrial {
 public:
  static BlasTrial& of(const Tensor& t) {
    static std::mutex lock;
    static auto* const all = new std::map<std::pair<c10::DeviceIndex, at::ScalarType>, BlasTrial>;
    const std::lock_guard guard(lock);
    return (*all)[{t.device().index(), t.scalar_type()}];
  }
  bool begins(c10::Device device) { return !begun_ && !capturing(device) && !begun_.exchange(true); }
  // out = left right, added to `before` if there is one. Sums that half types cannot hold are not compared.
  void compare(const Tensor& before, const Tensor& left, const Tensor& right, const Tensor& out) {
    const auto wide = [](const Tensor& t) { return t.scalar_type() == at::kDouble ? t : t.to(at::kFloat); };
    const Tensor a = wide(left), b = wide(right);
    Tensor want = at::mm(a, b), most = at::mm(a.abs(), b.abs());
    if (before.defined()) want += wide(before), most += wide(before).abs();
    const Tensor near = (wide(out) - want).abs().le(most * 0.01 + 1e-6), bounded = most.lt(30000);
    told_ = new_pinned_longs(1).zero_();
    told_.copy_(near.logical_not().logical_and(bounded).any().reshape({1}).to(at::kLong), /*non_blocking=*/true);
    differs_ = told_.const_data_ptr<int64_t>();
  }
  bool passed(const Tensor& t) {
    const volatile int64_t* const differs = differs_;
    if (!differs || !*differs) return true;
    if (!said_.exchange(true))
      TORCH_WARN("torch_lod: a product of ", t.scalar_type(), " on ", t.device(), " by cuBLAS differed from torch's, ",
                 "and results since the first may be wrong: from here on products are torch's. TORCH_LOD_CUBLAS=0 in ",
                 "the environment asks for them from the start");
    return false;
  }

 private:
  std::atomic<bool> begun_ = false, said_ = false;
  Tensor told_;
  std::atomic<const int64_t*> differs_ = nullptr;
};

// The right side of products, (k, n), rows or columns side by side, and the handle of the thread and the stream that it
// is made in.
class BlasFactor {
 public:
  static bool serves(const Tensor& right) {
    const auto type = right.scalar_type();
    const bool close = right.is_contiguous() || right.t().is_contiguous();
    return LOD_IS_GPU(right) && Blas::found() && number_of(type) && at::isFloatingType(type) && close &&
           right.numel() > 0 && right.size(0) <= kMost && right.size(1) <= kMost &&
           !at::globalContext().deterministicAlgorithms() &&  // at::mm knows what cuBLAS must be told then
           BlasTrial::of(right).passed(right);
  }
  explicit BlasFactor(const Tensor& right)
      : right_(right),
        trial_(BlasTrial::of(right)),
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
    const bool begins = trial_.begins(right_.device());
    const Tensor before = begins && adds ? out.narrow(0, 0, rows).clone() : Tensor();
    const int status = product(left, out, int(rows), adds);
    TORCH_CHECK(status == 0, "cuBLAS: a product of ", rows, " x ", k_, " x ", n_, " failed with status ", status);
    if (begins) trial_.compare(before, left.narrow(0, 0, rows), right_, out.narrow(0, 0, rows));
  }

 private:
  int product(const Tensor& left, const Tensor& out, int rows, bool adds) const {
    const Blas& blas = *Blas::found();
    if (right_.scalar_type() == at::kFloat) return product_of<float>(blas.sgemm, left, out, rows, adds);
    if (right_.scalar_type() == at::kDouble) return product_of<double>(blas.dgemm, left, out, rows, adds);
    // Sums are float32, also those of parts, whatever torch's options let at::mm do.
    const int type = right_.scalar_type() == at::kHalf ? Blas::kHalf : Blas::kBfloat16;
    const float one = 1, beta = adds;
    int before = 0;
    if (const int status = blas.get_math_mode(handle_, &before)) return status;
    if (const int status = blas.set_math_mode(handle_, Blas::kSumsAsComputed)) return status;
    const int status = blas.gemm_ex(handle_, !by_rows_, 0, n_, rows, k_, &one, right_.const_data_ptr(), type, apart_,
                                    left.const_data_ptr(), type, k_, &beta, out.mutable_data_ptr(), type, n_,
                                    Blas::kComputeFloat, Blas::kDefault);
    const int reset = blas.set_math_mode(handle_, before);
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
  BlasTrial& trial_;
  bool by_rows_;
  int k_, n_, apart_;
  cublasContext* handle_;
};

}  // namespace lod
#endif
