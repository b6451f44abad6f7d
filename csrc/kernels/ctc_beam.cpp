// The kernels of ctc_beam.h for the CPU. SPDX-License-Identifier: Apache-2.0
#define LOD_KERNELS "kernels/ctc_beam.h"
#include "torch_lod/each_level.h"

namespace lod::kernels {

void ctc_beam(const CpuExec& exec, DType dtype, const CtcBeamArguments& a) {
  LOD_PICK(ctc_beam)(exec, dtype, a);
}

}  // namespace lod::kernels
