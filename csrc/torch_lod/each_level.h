// Compiles the kernel source LOD_KERNELS for three levels of x86-64, each in a namespace of its own; LOD_PICK(f) is f
// of the best level that this processor has. TORCH_LOD_CPU_CAPABILITY=default, avx2 or avx512 (or 0, 1, 2) in the
// environment forces a lower one, so that one machine tests all three. LOD_LANES, the floats of a register, is there
// for kernels that use vector types. Elsewhere (with other compilers than GCC, and with LOD_BASE_ONLY) there is the
// baseline alone. With nvcc: for the GPU.
//
// A binding whose kernels are compiled elsewhere defines LOD_ENTRIES instead, as the name of the header that declares
// them in lod::kernels, copy_offsets and copy_map (launch.h) among them.
// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>

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
#define LOD_LEVELS 3
#include <immintrin.h>
#else
#define LOD_LEVELS 1
#endif

#define LOD_LEVEL base
#define LOD_LANES 4  // floats in a vector
#include "torch_lod/launch.h"
#include LOD_KERNELS
#undef LOD_LEVEL
#undef LOD_LANES

#if LOD_LEVELS == 3
#define LOD_FLOATS_ONLY
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c,bmi,bmi2")
#define LOD_LEVEL avx2
#define LOD_LANES 8
#include "torch_lod/launch.h"
#include LOD_KERNELS
#undef LOD_LEVEL
#undef LOD_LANES
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("avx512f,avx512vl,avx512bw,avx512dq,avx2,fma,f16c,bmi,bmi2,prefer-vector-width=512")
#define LOD_LEVEL avx512
#define LOD_LANES 16
#include "torch_lod/launch.h"
#include LOD_KERNELS
#undef LOD_LEVEL
#undef LOD_LANES
#pragma GCC pop_options
#undef LOD_FLOATS_ONLY
#endif

namespace lod {
// The best level that the processor has and the environment allows.
inline int best_cpu_level() {
  static const int level = [] {
    int best = 0;
#if LOD_LEVELS == 3
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c")) best = 1;
    if (best == 1 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq"))
      best = 2;
#endif
    const char* forced = std::getenv("TORCH_LOD_CPU_CAPABILITY");
    if (!forced || !*forced) return best;
    const char* const names[][2] = {{"default", "0"}, {"avx2", "1"}, {"avx512", "2"}};
    for (int wanted = 0; wanted < 3; ++wanted)
      for (const char* name : names[wanted])
        if (std::strcmp(forced, name) == 0) return wanted < best ? wanted : best;
    std::fprintf(stderr, "torch_lod: expected TORCH_LOD_CPU_CAPABILITY as default, avx2 or avx512, got %s\n", forced);
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

#if LOD_LEVELS == 3
#define LOD_PICK(f) (lod::cpu_level() == 2 ? lod::avx512::f : lod::cpu_level() == 1 ? lod::avx2::f : lod::base::f)
#else
#define LOD_PICK(f) lod::base::f
#endif

#endif
