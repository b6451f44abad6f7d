// SPDX-License-Identifier: Apache-2.0
#define LOD_KERNELS "core/product_text.h"
#include "threads.h"

using namespace lod;

int main() {
  Checks check;
  for (const int64_t m : {1, 5, 300})
    for (const int64_t n : {1, 48, 100}) {
      const int64_t k = 70;
      const auto a = numbers(m * k), b = numbers(k * n), c = numbers(m * n);
      std::vector<float> packed(base::packed_size(n, k));
      base::pack({n, k, b.data(), n, 1, packed.data()});
      check.operator()<float>("multiply", m * n, [&](const CpuExec& exec, float* out) {
        base::multiply(exec, {m, n, k, a.data(), k, packed.data(), out, n, nullptr, 0});
      });
      check.operator()<float>("multiply with a bias", m * n, [&](const CpuExec& exec, float* out) {
        base::multiply(exec, {m, n, k, a.data(), k, packed.data(), out, n, b.data(), 0});
      });
      check.operator()<float>("multiply_transposed", k * n, [&](const CpuExec& exec, float* out) {
        base::multiply_transposed(exec, {k, n, m, a.data(), k, c.data(), n, nullptr, nullptr, out, n});
      });
    }
  return check.said();
}
