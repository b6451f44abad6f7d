// The kernels of rows.h for the CPU. SPDX-License-Identifier: Apache-2.0
#define LOD_KERNELS "kernels/rows.h"
#include "torch_lod/each_level.h"

namespace lod::kernels {

void run_map(const CpuExec& exec, const RunMap& a) {
  LOD_PICK(run_map)(exec, a);
}
void gather_rows(const CpuExec& exec, const GatherRows& a) {
  LOD_PICK(gather_rows)(exec, a);
}
void copy_runs(const CpuExec& exec, const CopyRuns& a) {
  LOD_PICK(copy_runs)(exec, a);
}
void join_runs(const CpuExec& exec, const JoinRuns& a) {
  LOD_PICK(join_runs)(exec, a);
}
void unfold_rows(const CpuExec& exec, const UnfoldRows& a) {
  LOD_PICK(unfold_rows)(exec, a);
}
void fold_rows(const CpuExec& exec, DType dtype, const FoldRows& a) {
  LOD_PICK(fold_rows)(exec, dtype, a);
}
void sum_lists(const CpuExec& exec, DType dtype, const SumLists& a) {
  LOD_PICK(sum_lists)(exec, dtype, a);
}

}  // namespace lod::kernels
