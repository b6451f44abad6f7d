// The kernels of scan.h for the CPU. SPDX-License-Identifier: Apache-2.0
#define LOD_KERNELS "kernels/scan.h"
#include "torch_lod/each_level.h"

namespace lod::kernels {

void segment_scan(const CpuExec& exec, DType dtype, const ScanArguments& a) {
  LOD_PICK(segment_scan)(exec, dtype, a);
}
void segment_cumulative(const CpuExec& exec, DType dtype, bool max, const CumulativeArguments& a) {
  LOD_PICK(segment_cumulative)(exec, dtype, max, a);
}
void segment_cumulative_backward(const CpuExec& exec, DType dtype, const CumulativeBackwardArguments& a) {
  LOD_PICK(segment_cumulative_backward)(exec, dtype, a);
}
void segment_cumprod(const CpuExec& exec, DType dtype, const CumprodArguments& a) {
  LOD_PICK(segment_cumprod)(exec, dtype, a);
}
void segment_cumprod_backward(const CpuExec& exec, DType dtype, bool last, const CumprodBackwardArguments& a) {
  LOD_PICK(segment_cumprod_backward)(exec, dtype, last, a);
}
void segment_logcumsumexp(const CpuExec& exec, DType dtype, const LogcumsumexpArguments& a) {
  LOD_PICK(segment_logcumsumexp)(exec, dtype, a);
}

}  // namespace lod::kernels
