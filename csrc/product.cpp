// The products of core/product.h for the level of this processor. SPDX-License-Identifier: Apache-2.0
#define LOD_KERNELS "core/product_text.h"
#include "torch_lod/each_level.h"

namespace lod {

bool has_products() { return cpu_level() > 0; }
template <class T>
int64_t packed_size(int64_t n, int64_t k) {
  return LOD_PICK(packed_size<T>)(n, k);
}
template <class T>
void pack(const CpuExec& exec, const PackArguments<T>& a) {
  LOD_PICK(pack<T>)(exec, a);
}
template <class T>
void multiply(const CpuExec& exec, const Product<T>& p) {
  LOD_PICK(multiply<T>)(exec, p);
}
template <class T>
void multiply_transposed(const CpuExec& exec, const TransposedProduct<T>& p) {
  LOD_PICK(multiply_transposed<T>)(exec, p);
}

#define LOD_PRODUCTS_OF(T)                                                                                             \
  template int64_t packed_size<T>(int64_t, int64_t);                                                                   \
  template void pack<T>(const CpuExec&, const PackArguments<T>&);                                                      \
  template void multiply<T>(const CpuExec&, const Product<T>&);                                                        \
  template void multiply_transposed<T>(const CpuExec&, const TransposedProduct<T>&);
LOD_PRODUCTS_OF(float)
LOD_PRODUCTS_OF(double)

}  // namespace lod

// For tests: runs the kernels of a lower level from now on, in every thread; gives the level that ran before.
extern "C" __attribute__((visibility("default"))) int torch_lod_set_cpu_level(int level) {
  const int best = lod::best_cpu_level();
  return lod::cpu_level_in_use().exchange(level < 0 ? 0 : level > best ? best : level);
}
