// The products of core/product.h for the level of this processor. SPDX-License-Identifier: Apache-2.0
#define LOD_KERNELS "core/product_text.h"
#include "torch_lod/each_level.h"

namespace lod {

bool has_products() { return cpu_level() > 0; }
int64_t packed_size(int64_t n, int64_t k) { return LOD_PICK(packed_size)(n, k); }
void pack(const PackArguments& a) { LOD_PICK(pack)(a); }
void multiply(const CpuExec& exec, const Product& p) { LOD_PICK(multiply)(exec, p); }
void multiply_transposed(const CpuExec& exec, const TransposedProduct& p) { LOD_PICK(multiply_transposed)(exec, p); }

}  // namespace lod
