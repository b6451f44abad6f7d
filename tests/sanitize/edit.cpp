// SPDX-License-Identifier: Apache-2.0
#define LOD_KERNELS "kernels/edit.h"
#include "threads.h"

using namespace lod;

int main() {
  Checks check;
  const int64_t rows = 2000, others = 1600;
  const auto offsets = offsets_of(rows), other_offsets = offsets_of(others);
  const auto segments = int64_t(offsets.size()) - 1;
  std::vector<int64_t> order;
  for (int64_t s = 0; s < segments; ++s) order.push_back(segments - 1 - s);
  for (const int64_t step : {1, 1 << 20}) {  // symbols that a table holds, and symbols that are hashed
    std::vector<int64_t> a(rows), b(others);
    for (int64_t i = 0; i < rows; ++i) a[i] = (i * 31) % 23 * step;
    for (int64_t i = 0; i < others; ++i) b[i] = (i * 17) % 29 * step;
    const EditArguments given{a.data(), offsets.data(), b.data(), other_offsets.data(), order.data(), rows, others, segments,
                              nullptr, nullptr, nullptr, nullptr, nullptr};
    check.operator()<int64_t>("edit_distance", segments, [&](const CpuExec& exec, int64_t* out) {
      EditArguments of = given;
      of.out = out;
      base::edit_distance(exec, of);
    });
    check.operator()<int64_t>("edit_alignment", segments + rows + others, [&](const CpuExec& exec, int64_t* out) {
      EditArguments of = given;
      of.out = out, of.of_a = out + segments, of.of_b = out + segments + rows;
      base::edit_alignment(exec, of);
    });
  }
  return check.said();
}
