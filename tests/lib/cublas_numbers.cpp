// Whether the numbers of csrc/bindings/cublas.h are those of the headers that there are: compiled by compile_cuda.py.
// SPDX-License-Identifier: Apache-2.0
#define LOD_ENTRIES "kernels/structure_api.h"
#include "bindings/cublas.h"

#if __has_include(<library_types.h>)
#include <library_types.h>
static_assert(lod::Blas::kHalf == CUDA_R_16F && lod::Blas::kBfloat16 == CUDA_R_16BF);
#endif
#if __has_include(<cublas_api.h>)
#include <cublas_api.h>
static_assert(lod::Blas::kComputeFloat == CUBLAS_COMPUTE_32F && lod::Blas::kDefault == CUBLAS_GEMM_DEFAULT);
static_assert(lod::Blas::kSumsAsComputed == CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION);
#endif
