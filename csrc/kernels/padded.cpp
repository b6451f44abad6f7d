// The kernels of padded.h for the CPU. SPDX-License-Identifier: Apache-2.0
#define LOD_KERNELS "kernels/padded.h"
#include "torch_lod/each_level.h"

namespace lod::kernels {

void pad_rows(const CpuExec& exec, const PadRows& a) {
  LOD_PICK(pad_rows)(exec, a);
}
void put_rows(const CpuExec& exec, const PutRows& a) {
  LOD_PICK(put_rows)(exec, a);
}

}  // namespace lod::kernels
