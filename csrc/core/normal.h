// Products of floats that say whether they can be trusted. Kernel text.
// SPDX-License-Identifier: Apache-2.0

namespace lod::LOD_LEVEL {

// Neither zero, subnormal, infinite nor NaN: an exponent from 1 to 254.
LOD_FN uint32_t not_normal(float x) {
  return uint32_t((__builtin_bit_cast(uint32_t, x) & 0x7fffffffu) - 0x00800000u >= 0x7f000000u);
}
// a *= b; whether all factors and products are normal, so that none lost more than by rounding.
LOD_FN bool multiply_normal(float* a, const float* b, int64_t n) {
  uint32_t odd = 0;
  for (int64_t i = 0; i < n; ++i) {
    const float x = a[i], y = b[i], product = x * y;
    a[i] = product;
    odd |= not_normal(x) | not_normal(y) | not_normal(product);
  }
  return odd == 0;
}

}  // namespace lod::LOD_LEVEL
