// SPDX-License-Identifier: Apache-2.0
#define LOD_KERNELS "kernels/product.h"
#include "threads.h"

using namespace lod;

template <class T>
void products(Checks& check, int64_t m, int64_t n) {
  const int64_t k = 70;
  const auto some = [](int64_t count) {
    const auto x = numbers(count);
    return std::vector<T>(x.begin(), x.end());
  };
  const auto a = some(m * k), b = some(k * n), c = some(m * n);
  std::vector<T> packed(base::packed_size<T>(n, k));
  check.operator()<T>("pack", int64_t(packed.size()), [&](const CpuExec& exec, T* out) {
    base::pack(exec, PackArguments<T>{n, k, b.data(), n, 1, out});
    std::copy_n(out, packed.size(), packed.data());
  });
  check.operator()<T>("multiply", m * n, [&](const CpuExec& exec, T* out) {
    base::multiply(exec, Product<T>{m, n, k, a.data(), k, packed.data(), out, n, nullptr, 0});
  });
  check.operator()<T>("multiply with a bias", m * n, [&](const CpuExec& exec, T* out) {
    base::multiply(exec, Product<T>{m, n, k, a.data(), k, packed.data(), out, n, b.data(), 0});
  });
  check.operator()<T>("multiply_transposed", k * n, [&](const CpuExec& exec, T* out) {
    base::multiply_transposed(exec,
                              TransposedProduct<T>{k, n, m, a.data(), k, c.data(), n, nullptr, nullptr, out, n});
  });
}

int main() {
  Checks check;
  for (const int64_t m : {1, 5, 300})
    for (const int64_t n : {1, 48, 100}) {
      products<float>(check, m, n);
      products<double>(check, m, n);
    }
  return check.said();
}
