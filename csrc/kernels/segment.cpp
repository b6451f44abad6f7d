// The kernels of segment.h for the CPU. SPDX-License-Identifier: Apache-2.0
#define LOD_KERNELS "kernels/segment.h"
#include "torch_lod/each_level.h"

namespace lod::kernels {

void segment_reduce(const CpuExec& exec, DType dtype, Reduce reduce, const ReduceArguments& a) {
  LOD_PICK(segment_reduce)(exec, dtype, reduce, a);
}
void first_segments(const CpuExec& exec, const TileView& g, int64_t* firsts) {
  LOD_PICK(first_segments)(exec, g, firsts);
}
void segment_end(const CpuExec& exec, const EndArguments& a) {
  LOD_PICK(segment_end)(exec, a);
}
void segment_broadcast(const CpuExec& exec, DType dtype, Reduce reduce, const BroadcastArguments& a) {
  LOD_PICK(segment_broadcast)(exec, dtype, reduce, a);
}
void segment_pick(const CpuExec& exec, DType dtype, const PickArguments& a) {
  LOD_PICK(segment_pick)(exec, dtype, a);
}
void segment_place(const CpuExec& exec, DType dtype, const PickArguments& a) {
  LOD_PICK(segment_place)(exec, dtype, a);
}

}  // namespace lod::kernels
