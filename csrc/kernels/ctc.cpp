// The kernels of ctc.h for the CPU. SPDX-License-Identifier: Apache-2.0
#define LOD_KERNELS "kernels/ctc.h"
#include "torch_lod/each_level.h"

namespace lod::kernels {

void ctc_loss(const CpuExec& exec, DType dtype, const CtcArguments& a) {
  LOD_PICK(ctc_loss)(exec, dtype, a);
}
void ctc_loss_backward(const CpuExec& exec, DType dtype, const CtcArguments& a) {
  LOD_PICK(ctc_loss_backward)(exec, dtype, a);
}
void ctc_best_path(const CpuExec& exec, DType dtype, const CtcArguments& a) {
  LOD_PICK(ctc_best_path)(exec, dtype, a);
}

}  // namespace lod::kernels
