// SPDX-License-Identifier: Apache-2.0
#define LOD_KERNELS "kernels/recurrence.h"
#include "threads.h"

using namespace lod;

int main() {
  Checks check;
  for (const int64_t width : {1, 5, 70}) {
    // sequences of 3 rows each, at their second step
    const int64_t alive = 200, rows = 3 * alive;
    std::vector<int64_t> start(alive), offsets(alive + 1);
    for (int64_t j = 0; j < alive; ++j) start[j] = 3 * ((j * 7) % alive), offsets[j + 1] = 3 * (j + 1);
    const Step step{start.data(), alive, width, 1, 1};
    const auto x = numbers(rows * width * 4), states = numbers(alive * width);
    const int64_t n = rows * width, s = alive * width;
    check.operator()<float>("lstm_forward", 6 * n + 2 * s, [&](const CpuExec& exec, float* out) {
      std::memcpy(out, x.data(), 4 * n * sizeof(float));
      base::lstm_forward(exec, DType::f32, {step, out, x.data(), out + 4 * n, out + 5 * n, out + 6 * n, out + 6 * n + s});
    });
    check.operator()<float>("lstm_backward", 4 * n + 6 * s, [&](const CpuExec& exec, float* out) {
      base::lstm_backward(exec, DType::f32, {step, x.data(), x.data(), states.data(), x.data(), x.data(), out, out + 4 * n,
                                             out + 4 * n + 4 * s, out + 4 * n + 5 * s});
    });
    check.operator()<float>("gru_forward", 5 * n + s, [&](const CpuExec& exec, float* out) {
      base::gru_forward(exec, DType::f32,
                        {step, x.data(), x.data(), 3 * width, x.data(), out, out + 4 * n, out + 5 * n});
    });
    check.operator()<float>("gru_backward", 6 * n + 4 * s, [&](const CpuExec& exec, float* out) {
      base::gru_backward(exec, DType::f32, {step, x.data(), x.data(), states.data(), x.data(), out, out + 3 * n,
                                            out + 6 * n, out + 6 * n + 3 * s});
    });
    check.operator()<float>("rnn_forward", n + s, [&](const CpuExec& exec, float* out) {
      base::rnn_forward(exec, DType::f32, {step, x.data(), out, out + n, false});
    });
    check.operator()<float>("rnn_backward", n + 2 * s, [&](const CpuExec& exec, float* out) {
      base::rnn_backward(exec, DType::f32, {step, x.data(), x.data(), out, out + n, out + n + s, true});
    });
    check.operator()<int64_t>("previous_rows", rows, [&](const CpuExec& exec, int64_t* map) {
      base::previous_rows(exec, {offsets.data(), map, alive, rows, 1});
    });
  }
  return check.said();
}
