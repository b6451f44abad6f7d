// SPDX-License-Identifier: Apache-2.0
#define LOD_KERNELS "attention.h"
#include "threads.h"

using namespace lod;

int main() {
  Checks check;
  const int64_t rows = 150, heads = 4, width = 8;
  const auto offsets = offsets_of(rows);
  const auto segments = int64_t(offsets.size()) - 1;
  const auto q = numbers(rows * heads * width), k = numbers(rows * heads * width + 1), slopes = numbers(heads);
  std::vector<int64_t> pair_offsets{0};
  for (int64_t s = 0; s < segments; ++s)
    pair_offsets.push_back(pair_offsets.back() + (offsets[s + 1] - offsets[s]) * (offsets[s + 1] - offsets[s]));
  const int64_t pairs = pair_offsets.back(), seed = 5, most = 3, table = segments * heads * (2 * most + 1);
  const auto sink = numbers(heads), distances = numbers(heads * (2 * most + 1));
  std::vector<int64_t> ends;  // blocks of 4 rows
  for (int64_t s = 0; s < segments; ++s)
    for (int64_t i = offsets[s]; i < offsets[s + 1]; ++i) ends.push_back((i - offsets[s]) / 4 * 4 + 4);
  for (const int64_t key_heads : {heads, heads / 2})
    for (const int64_t bias_heads : {0, 1, int(heads)}) {
      const auto bias = numbers(pairs * (bias_heads + 1));
      Attention a{q.data(), k.data(), k.data() + 1, heads * width, key_heads * width, key_heads * width, offsets.data(),
                  offsets.data(), segments, rows, rows, heads, key_heads, width, width, 0.3, 20, 0,
                  bias_heads ? bias.data() : nullptr, pair_offsets.data(), pairs, bias_heads, slopes.data(), &seed, 0.1,
                  2.0, sink.data(), distances.data(), most, ends.data()};
      std::vector<float> logsumexp(rows * heads);
      check.operator()<float>("attention", rows * heads * width, [&](const CpuExec& exec, float* out) {
        base::attention_forward(exec, DType::f32, {a, out, logsumexp.data()});
      });
      const int64_t n = rows * heads * width;
      check.operator()<float>("attention_backward", 3 * n + pairs * bias_heads + rows * heads + table,
                              [&](const CpuExec& exec, float* out) {
                                float* slopes_out = out + 3 * n + pairs * bias_heads;
                                base::attention_backward(exec, DType::f32,
                                                         {a, q.data(), logsumexp.data(), logsumexp.data(), out, out + n,
                                                          out + 2 * n, bias_heads ? out + 3 * n : nullptr, slopes_out,
                                                          slopes_out + rows * heads, most});
                              });
    }
  return check.said();
}
