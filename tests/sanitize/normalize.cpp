// SPDX-License-Identifier: Apache-2.0
#define LOD_KERNELS "kernels/normalize.h"
#include "threads.h"

using namespace lod;

int main() {
  Checks check;
  for (const int64_t width : {1, 3, 70}) {
    const int64_t rows = 70000 / width;
    const auto offsets = offsets_of(rows);
    const auto segments = int64_t(offsets.size()) - 1;
    const auto x = numbers(rows * width);
    const LoDView view{offsets.data(), segments, rows, width};
    for (const bool log : {false, true})
      for (const float* grad : {static_cast<const float*>(nullptr), x.data()})
        check.operator()<float>("segment_softmax", rows * width, [&](const CpuExec& exec, float* out) {
          base::segment_softmax(exec, DType::f32, log, {view, x.data(), grad, out});
        });
    for (const float* grad : {static_cast<const float*>(nullptr), x.data()})
      check.operator()<float>("segment_normalize", rows * width, [&](const CpuExec& exec, float* out) {
        base::segment_normalize(exec, DType::f32, {view, x.data(), grad, out, 1e-5});
      });
    check.operator()<float>("segment_logsumexp", segments * width, [&](const CpuExec& exec, float* out) {
      base::segment_logsumexp(exec, DType::f32, {view, x.data(), out, 0});
    });
    check.operator()<float>("segment_var", segments * width, [&](const CpuExec& exec, float* out) {
      base::segment_var(exec, DType::f32, {view, x.data(), out, 1, 0, false});
    });
  }
  return check.said();
}
