// The products of product.h for the CPU. SPDX-License-Identifier: Apache-2.0
#define LOD_KERNELS "kernels/product.h"
#include "torch_lod/each_level.h"

namespace lod::kernels {

bool has_products() { return LOD_LEVELS > 1; }
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

}  // namespace lod::kernels
