// SPDX-License-Identifier: Apache-2.0
#define LOD_KERNELS "kernels/segment.h"
#include "threads.h"

using namespace lod;

int main() {
  Checks check;
  for (const int64_t width : {1, 3, 70}) {
    const int64_t rows = 70000 / width;
    const auto offsets = offsets_of(rows);
    const auto segments = int64_t(offsets.size()) - 1;
    const auto x = numbers(rows * width), y = numbers(segments * width);
    const LoDView view{offsets.data(), segments, rows, width};
    for (const Reduce reduce : {Reduce::sum, Reduce::mean, Reduce::sqrt, Reduce::max, Reduce::min, Reduce::first}) {
      check.operator()<float>("segment_reduce", segments * width, [&](const CpuExec& exec, float* out) {
        base::segment_reduce(exec, DType::f32, reduce, {view, x.data(), out, nullptr, 0});
      });
      if (reduce == Reduce::max || reduce == Reduce::min)
        check.operator()<int64_t>("segment_extreme", segments * width, [&](const CpuExec& exec, int64_t* index) {
          std::vector<float> out(segments * width);
          base::segment_reduce(exec, DType::f32, reduce, {view, x.data(), out.data(), index, 0});
        });
      if (reduce == Reduce::sum || reduce == Reduce::mean || reduce == Reduce::sqrt)
        check.operator()<float>("segment_broadcast", rows * width, [&](const CpuExec& exec, float* out) {
          base::segment_broadcast(exec, DType::f32, reduce, {view, y.data(), out});
        });
    }
    std::vector<int64_t> index(segments * width);
    for (int64_t s = 0; s < segments; ++s)
      for (int64_t c = 0; c < width; ++c)
        index[s * width + c] = offsets[s + 1] > offsets[s] ? offsets[s] + c % (offsets[s + 1] - offsets[s]) : -1;
    check.operator()<float>("segment_pick", segments * width, [&](const CpuExec& exec, float* out) {
      base::segment_pick(exec, DType::f32, {view, x.data(), index.data(), out});
    });
    for (const int64_t* at : {(const int64_t*)nullptr, (const int64_t*)index.data()})
      check.operator()<float>("segment_place", rows * width, [&](const CpuExec& exec, float* out) {
        base::segment_place(exec, DType::f32, {view, y.data(), at, out});
      });
  }
  return check.said();
}
