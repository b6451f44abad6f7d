// The functions of structure.h for the CPU, and the level that runs. SPDX-License-Identifier: Apache-2.0
#define LOD_KERNELS "kernels/structure.h"
#include "torch_lod/each_level.h"

namespace lod::kernels {

OffsetOrder copy_offsets(const int64_t* from, int64_t* to, int64_t count) {
  return LOD_PICK(copy_offsets)(from, to, count);
}
bool copy_map(const int64_t* from, int64_t* to, int64_t count, int64_t rows) {
  return LOD_PICK(copy_map)(from, to, count, rows);
}
OffsetOrder order_of_offsets(const int64_t* offsets, int64_t count) {
  return LOD_PICK(order_of_offsets)(offsets, count);
}
int64_t append_offsets(const int64_t* from, int64_t* to, int64_t n, int64_t before) {
  return LOD_PICK(append_offsets)(from, to, n, before);
}
RunLayout layout_of_runs(const int64_t* starts, const int64_t* cuts, int64_t n, int64_t step, int64_t there) {
  return LOD_PICK(layout_of_runs)(starts, cuts, n, step, there);
}
IndexBounds bounds_of_runs(const int64_t* starts, const int64_t* lengths, const int64_t* within, int64_t n,
                           int64_t elements) {
  return LOD_PICK(bounds_of_runs)(starts, lengths, within, n, elements);
}
int64_t parts_of(const int64_t* within, int64_t* starts, int64_t* lengths, int64_t n, int64_t most, bool last) {
  return LOD_PICK(parts_of)(within, starts, lengths, n, most, last);
}
void lay_runs(const int64_t* starts, const int64_t* lengths, const int64_t* within, int64_t n, int64_t sum,
              int64_t* firsts, int64_t* cuts) {
  LOD_PICK(lay_runs)(starts, lengths, within, n, sum, firsts, cuts);
}
bool locate(const int64_t* from, const int64_t* cuts, const int64_t* within, int64_t n, int64_t each, bool absolute,
            int64_t* to) {
  return LOD_PICK(locate)(from, cuts, within, n, each, absolute, to);
}

}  // namespace lod::kernels

// For tests: runs the kernels of a lower level from now on, in every thread; gives the level that ran before.
extern "C" __attribute__((visibility("default"))) int torch_lod_set_cpu_level(int level) {
  const int best = lod::best_cpu_level();
  return lod::cpu_level_in_use().exchange(level < 0 ? 0 : level > best ? best : level);
}
