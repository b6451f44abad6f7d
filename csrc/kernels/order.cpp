// The kernels of order.h for the CPU. SPDX-License-Identifier: Apache-2.0
#define LOD_KERNELS "kernels/order.h"
#include "torch_lod/each_level.h"

namespace lod::kernels {

void segment_order(const CpuExec& exec, DType dtype, const OrderArguments& a) {
  LOD_PICK(segment_order)(exec, dtype, a);
}

}  // namespace lod::kernels
