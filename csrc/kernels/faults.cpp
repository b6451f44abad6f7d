// The kernels of faults.h for the CPU. SPDX-License-Identifier: Apache-2.0
#define LOD_KERNELS "kernels/faults.h"
#include "torch_lod/each_level.h"

namespace lod::kernels {

void find_faults(const CpuExec& exec, const FindFaults& a) {
  LOD_PICK(find_faults)(exec, a);
}

}  // namespace lod::kernels
