// The kernels of normalize.h for the CPU. SPDX-License-Identifier: Apache-2.0
#define LOD_KERNELS "kernels/normalize.h"
#include "torch_lod/each_level.h"

namespace lod::kernels {

void segment_softmax(const CpuExec& exec, DType dtype, bool log, const SoftmaxArguments& a) {
  LOD_PICK(segment_softmax)(exec, dtype, log, a);
}
void segment_logsumexp(const CpuExec& exec, DType dtype, const LogsumexpArguments& a) {
  LOD_PICK(segment_logsumexp)(exec, dtype, a);
}
void segment_var(const CpuExec& exec, DType dtype, const VarArguments& a) {
  LOD_PICK(segment_var)(exec, dtype, a);
}
void segment_normalize(const CpuExec& exec, DType dtype, const NormalizeArguments& a) {
  LOD_PICK(segment_normalize)(exec, dtype, a);
}

}  // namespace lod::kernels
