// The kernels of chain.h for the CPU. SPDX-License-Identifier: Apache-2.0
#define LOD_KERNELS "kernels/chain.h"
#include "torch_lod/each_level.h"

namespace lod::kernels {

void chain_forward(const CpuExec& exec, DType dtype, const ChainForward& a) {
  LOD_PICK(chain_forward)(exec, dtype, a);
}
void chain_backward(const CpuExec& exec, DType dtype, const ChainBackward& a) {
  LOD_PICK(chain_backward)(exec, dtype, a);
}
void chain_argmax(const CpuExec& exec, DType dtype, const ChainArgmax& a) {
  LOD_PICK(chain_argmax)(exec, dtype, a);
}
void chain_sample(const CpuExec& exec, DType dtype, const ChainSample& a) {
  LOD_PICK(chain_sample)(exec, dtype, a);
}

}  // namespace lod::kernels
