// Compiles the kernel source LOD_KERNELS for two levels of x86-64, AVX2 and AVX-512, each in a namespace of its own;
// LOD_PICK(f) is f of the best level that this processor has. TORCH_LOD_CPU_CAPABILITY=avx2 in the environment forces
// the lower one. LOD_LANES, the floats of a register, is there for kernels that use vector types. The lower level,
// `base`, has all dtypes, the other one no integers. Elsewhere (on other processors, with other compilers than GCC, and
// with LOD_BASE_ONLY) `base` is the only level, compiled for the compiler's own target. With nvcc: for the GPU.
//
// A binding whose kernels are compiled elsewhere defines LOD_ENTRIES instead, as the name of the header that declares
// them in lod::kernels, copy_offsets and copy_map (launch.h) among them.
// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>

#include "torch_lod/lod_view.h"

#if !defined(LOD_KERNELS) && !defined(LOD_ENTRIES)
#error "define LOD_KERNELS as the name of the kernel source, in quotes, before this header is included"
#endif

#ifdef LOD_ENTRIES

#include LOD_ENTRIES
#define LOD_PICK(f) lod::kernels::f

#elif defined(__CUDACC__)

#define LOD_LEVEL cuda
#include "torch_lod/launch.h"
#include LOD_KERNELS

#else

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(LOD_BASE_ONLY)
#define LOD_LEVELS 2
#include <immintrin.h>
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c,bmi,bmi2")
#define LOD_LANES 8  // floats in a vector
#else
#define LOD_LEVELS 1
#define LOD_LANES 4
#endif
#define LOD_LEVEL base
#include "torch_lod/launch.h"
#include LOD_KERNELS
#undef LOD_LEVEL
#undef LOD_LANES

#if LOD_LEVELS == 2
#pragma GCC pop_options
#pragma GCC push_options
#pragma GCC target("avx512f,avx512vl,avx512bw,avx512dq,avx2,fma,f16c,bmi,bmi2,prefer-vector-width=512")
#define LOD_FLOATS_ONLY
#define LOD_LEVEL avx512
#define LOD_LANES 16
#include "torch_lod/launch.h"
#include LOD_KERNELS
#undef LOD_LEVEL
#undef LOD_LANES
#undef LOD_FLOATS_ONLY
#pragma GCC pop_options
#endif

namespace lod {
// The best level that the processor has and the environment allows: 0 is `base`, 1 AVX-512.
inline int best_cpu_level() {
  static const int level = [] {
    int best = 0;
#if LOD_LEVELS == 2
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma"))
      throw std::runtime_error("torch_lod: expected a processor with AVX2 and FMA");
    best = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq");
#endif
    const char* forced = std::getenv("TORCH_LOD_CPU_CAPABILITY");
    if (!forced || !*forced || std::strcmp(forced, "avx512") == 0) return best;
    if (std::strcmp(forced, "avx2") == 0) return 0;
    std::fprintf(stderr, "torch_lod: expected TORCH_LOD_CPU_CAPABILITY as avx2 or avx512, got %s\n", forced);
    return best;
  }();
  return level;
}
// The level that runs. Tests lower it to run every level in one process.
inline std::atomic<int>& cpu_level_in_use() {
  static std::atomic<int> level{best_cpu_level()};
  return level;
}
inline int cpu_level() { return cpu_level_in_use().load(std::memory_order_relaxed); }
}  // namespace lod

#if LOD_LEVELS == 2
#define LOD_PICK(f) (lod::cpu_level() == 1 ? lod::avx512::f : lod::base::f)
#else
#define LOD_PICK(f) lod::base::f
#endif

#endif
