// SPDX-License-Identifier: Apache-2.0
#define LOD_KERNELS "kernels/chain.h"
#include "threads.h"

using namespace lod;

// (rows, columns) filled up to (rows, padded).
static std::vector<float> filled(const std::vector<float>& t, int64_t rows, int64_t columns, int64_t padded, float with) {
  std::vector<float> out(rows * padded, with);
  for (int64_t i = 0; i < rows * columns; ++i) out[i / columns * padded + i % columns] = t[i];
  return out;
}

int main() {
  Checks check;
  for (const int64_t tags : {3, 20}) {
    const int64_t rows = 700, padded = (tags + 15) / 16 * 16, pieces = 8, n = 2, entries = tags * padded;
    const auto offsets = offsets_of(rows);
    const auto segments = int64_t(offsets.size()) - 1;
    const auto x = numbers(rows * tags), transition = numbers((tags + 2) * tags), grad = numbers(segments);
    const std::vector<float> steps(transition.begin() + 2 * tags, transition.end());
    std::vector<float> weights(steps), turned(tags * tags), top(padded), uniform = numbers(rows * n);
    for (float& w : weights) w = std::exp(w);
    for (int64_t i = 0; i < tags * tags; ++i) turned[i % tags * tags + i / tags] = weights[i];
    for (float& u : uniform) u = (u + 1) / 3;
    const auto wide = filled(weights, tags, tags, padded, 1), back = filled(turned, tags, tags, padded, 0);
    const auto best = filled(steps, tags, tags, padded, -INFINITY);
    std::vector<float> scratch(pieces * (kChainRows + tags + 2 * n) * padded), state(rows * tags);
    // two calls on one piece of memory, one after another: the kernels write to it
    const auto chain = [&] {
      std::fill(scratch.begin(), scratch.end(), 0.f);
      return Chain{{offsets.data(), segments, rows, tags}, padded, pieces, x.data(), transition.data(), scratch.data(),
                   [] {}};
    };
    check.operator()<float>("chain_forward", segments + rows * tags, [&](const CpuExec& exec, float* out) {
      base::chain_forward(exec, DType::f32, {chain(), wide.data(), top.data(), out, out + segments});
      std::copy(out + segments, out + segments + rows * tags, state.begin());
    });
    check.operator()<float>("chain_backward", rows * tags + pieces * (entries + 2 * padded),
                            [&](const CpuExec& exec, float* out) {
                              base::chain_backward(exec, DType::f32, {chain(), wide.data(), back.data(), grad.data(),
                                                                      state.data(), out, out + rows * tags});
                            });
    check.operator()<int64_t>("chain_argmax", rows * n, [&](const CpuExec& exec, int64_t* path) {
      std::vector<float> scores(segments * n);
      std::vector<int32_t> from(rows * tags * n);
      base::chain_argmax(exec, DType::f32, {chain(), best.data(), n, scores.data(), path, from.data()});
    });
    check.operator()<int64_t>("chain_sample", rows * n, [&](const CpuExec& exec, int64_t* path) {
      base::chain_sample(exec, DType::f32, {chain(), state.data(), uniform.data(), n, path});
    });
  }
  return check.said();
}
