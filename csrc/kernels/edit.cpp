// The kernels of edit.h for the CPU. SPDX-License-Identifier: Apache-2.0
#define LOD_KERNELS "kernels/edit.h"
#include "torch_lod/each_level.h"

namespace lod::kernels {

void edit_distance(const CpuExec& exec, const EditArguments& a) {
  LOD_PICK(edit_distance)(exec, a);
}
void edit_alignment(const CpuExec& exec, const EditArguments& a) {
  LOD_PICK(edit_alignment)(exec, a);
}

}  // namespace lod::kernels
