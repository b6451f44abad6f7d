// SPDX-License-Identifier: Apache-2.0
#define LOD_KERNELS "kernels/scan.h"
#include "threads.h"

using namespace lod;

int main() {
  Checks check;
  for (const int64_t width : {1, 3, 70}) {
    const int64_t rows = 70000 / width;
    const auto offsets = offsets_of(rows);
    const auto x = numbers(rows * width);
    const LoDView view{offsets.data(), int64_t(offsets.size()) - 1, rows, width};
    for (const bool adjoint : {false, true}) {
      for (const void* factors : {static_cast<const void*>(nullptr), static_cast<const void*>(x.data())})
        check.operator()<float>("segment_scan", rows * width, [&](const CpuExec& exec, float* out) {
          base::segment_scan(exec, DType::f32, {view, x.data(), factors, out, adjoint});
        });
      check.operator()<float>("segment_cumulative", rows * width, [&](const CpuExec& exec, float* out) {
        std::vector<int64_t> index(rows * width);
        base::segment_cumulative(exec, DType::f32, adjoint, {view, x.data(), out, index.data()});
        base::segment_cumulative_backward(exec, DType::f32, {view, x.data(), index.data(), out});
      });
      check.operator()<float>("segment_prod_backward", rows * width, [&](const CpuExec& exec, float* out) {
        std::vector<double> before(rows * width);
        base::segment_cumprod_backward(exec, DType::f32, true,
                                       {view, x.data(), x.data(), before.data(), out, false, false});
      });
      for (const bool exclusive : {false, true})
        check.operator()<float>("segment_cumprod_backward", rows * width, [&](const CpuExec& exec, float* out) {
          std::vector<double> before(rows * width);
          base::segment_cumprod_backward(exec, DType::f32, false,
                                         {view, x.data(), x.data(), before.data(), out, adjoint, exclusive});
        });
    }
  }
  return check.said();
}
