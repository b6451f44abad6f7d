// The kernels of attention.h for the CPU. SPDX-License-Identifier: Apache-2.0
#define LOD_KERNELS "kernels/attention.h"
#include "torch_lod/each_level.h"

namespace lod::kernels {

void attention_forward(const CpuExec& exec, DType dtype, const AttentionForward& a) {
  LOD_PICK(attention_forward)(exec, dtype, a);
}
void attention_backward(const CpuExec& exec, DType dtype, const AttentionBackward& a) {
  LOD_PICK(attention_backward)(exec, dtype, a);
}

}  // namespace lod::kernels
