// SPDX-License-Identifier: Apache-2.0
#define LOD_KERNELS "kernels/ctc_beam.h"
#include "threads.h"

using namespace lod;

int main() {
  Checks check;
  for (const int64_t width : {3, 21})
    for (const int64_t beam : {1, 4, 30}) {
      const int64_t rows = 300, n = beam < 3 ? beam : 3;
      const auto offsets = offsets_of(rows);
      const auto segments = int64_t(offsets.size()) - 1;
      const auto x = numbers(rows * width);
      // labels, then lengths, then scores
      check.operator()<int64_t>("ctc_beam", (rows + 2 * segments) * n, [&](const CpuExec& exec, int64_t* out) {
        int64_t* lengths = out + rows * n;
        base::ctc_beam(exec, DType::f32, {{offsets.data(), segments, rows, width}, x.data(), nullptr, 0, beam, n, -INFINITY,
                                          out, lengths, lengths + segments * n, nullptr, nullptr});
      });
    }
  return check.said();
}
