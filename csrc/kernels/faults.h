// What is wrong with structure on a GPU, found there. Kernel source, see torch_lod/device.h.
// SPDX-License-Identifier: Apache-2.0

#include "kernels/faults_api.h"

namespace lod::LOD_LEVEL {

#if defined(__CUDA_ARCH__) && !defined(LOD_TELL)  // tests/emulated_gpu tells it later
#define LOD_TELL(written) *const_cast<volatile uint64_t*>(written) = 1
#endif

struct FindFaultsKernel : FindFaults {
  LOD_FN void operator()(int64_t i) const {
    const Finding f = look(i);
    if (f.what == Finding::nothing) return;
#ifdef __CUDA_ARCH__
    if (atomicCAS_system(reinterpret_cast<unsigned long long*>(&record->claimed), 0ull, 1ull) != 0) return;
    record->what = f.what, record->who = who, record->index = f.index, record->before = f.before;
    record->here = f.here, record->rows = rows, record->option = option;
    __threadfence_system();
    LOD_TELL(&record->written);
#endif
  }
};
LOD_ENTRY void find_faults(const Exec& exec, const FindFaults& a) {
  each(exec, a.entries, 1, FindFaultsKernel{a});
}

}  // namespace lod::LOD_LEVEL
