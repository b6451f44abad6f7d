// What the library of kernels exports: every NAME_api.h declares its arguments and, by LOD_KERNEL, its functions, which
// bindings call. lod::kernels::f runs f of the level that is in use (NAME.cpp), lod::cuda::f is f on a GPU (NAME.cu).
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "torch_lod/device.h"

#define LOD_EXPORT __attribute__((visibility("default")))

#define LOD_CPU_KERNEL(kernel, ...)                                  \
  namespace kernels {                                                \
  LOD_EXPORT void kernel(const CpuExec& exec, __VA_ARGS__);          \
  }
#ifdef LOD_CUDA
#define LOD_KERNEL(kernel, ...)                                      \
  LOD_CPU_KERNEL(kernel, __VA_ARGS__)                                \
  namespace cuda {                                                   \
  LOD_EXPORT void kernel(const CudaExec& exec, __VA_ARGS__);         \
  }
#else
#define LOD_KERNEL(kernel, ...) LOD_CPU_KERNEL(kernel, __VA_ARGS__)
#endif

namespace lod::kernels {

// What the gate of every binding calls (torch_lod/gate.h); the rest is in structure_api.h.
LOD_EXPORT OffsetOrder copy_offsets(const int64_t* from, int64_t* to, int64_t count);
LOD_EXPORT bool copy_map(const int64_t* from, int64_t* to, int64_t count, int64_t rows);

}  // namespace lod::kernels
