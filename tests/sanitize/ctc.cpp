// SPDX-License-Identifier: Apache-2.0
#define LOD_KERNELS "kernels/ctc.h"
#include "threads.h"

using namespace lod;

int main() {
  Checks check;
  for (const int64_t width : {3, 21}) {
    const int64_t rows = 900;
    const auto offsets = offsets_of(rows);
    const auto segments = int64_t(offsets.size()) - 1;
    const auto x = numbers(rows * width), grad = numbers(segments);
    std::vector<int64_t> cuts{0}, labels, order;
    for (int64_t s = 0; s < segments; ++s) {
      for (int64_t i = 0; i < (offsets[s + 1] - offsets[s]) / 3 + s % 2; ++i) labels.push_back(1 + (i * 5) % (width - 1));
      cuts.push_back(int64_t(labels.size()));
      order.push_back(segments - 1 - s);
    }
    const CtcArguments given{{offsets.data(), segments, rows, width}, x.data(), labels.data(), cuts.data(), order.data(),
                             int64_t(labels.size()), 0, grad.data(), nullptr, nullptr, nullptr, nullptr, false};
    check.operator()<float>("ctc_loss", segments, [&](const CpuExec& exec, float* out) {
      CtcArguments a = given;
      a.out = out;
      base::ctc_loss(exec, DType::f32, a);
    });
    check.operator()<float>("ctc_loss_backward", rows * width, [&](const CpuExec& exec, float* out) {
      CtcArguments a = given;
      a.out = out;
      base::ctc_loss_backward(exec, DType::f32, a);
    });
    check.operator()<int64_t>("ctc_best_path", rows, [&](const CpuExec& exec, int64_t* path) {
      CtcArguments a = given;
      std::vector<float> out(segments);
      a.out = out.data(), a.path = path;
      base::ctc_best_path(exec, DType::f32, a);
    });
  }
  return check.said();
}
