// SPDX-License-Identifier: Apache-2.0
#define LOD_KERNELS "kernels/order.h"
#include "threads.h"

using namespace lod;

int main() {
  Checks check;
  for (const int64_t width : {1, 3, 20}) {
    const int64_t rows = 70000 / width;
    const auto offsets = offsets_of(rows);
    const auto segments = int64_t(offsets.size()) - 1;
    const auto x = numbers(rows * width);
    for (const int64_t k : {-1, 1, 5, 40})
      check.operator()<int64_t>(
          k < 0 ? "all" : "the first", (k < 0 ? rows : segments * k) * width, [&](const CpuExec& exec, int64_t* index) {
            base::segment_order(exec, DType::f32, {{offsets.data(), segments, rows, width}, x.data(), index, k, k > 1});
          });
  }
  return check.said();
}
