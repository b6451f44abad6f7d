// Products of floats that say whether they can be trusted. Kernel text.
// SPDX-License-Identifier: Apache-2.0

namespace lod::LOD_LEVEL {

// Neither zero, subnormal, infinite nor NaN: an exponent from 1 to 254.
LOD_FN uint32_t not_normal(float x) {
  return uint32_t((__builtin_bit_cast(uint32_t, x) & 0x7fffffffu) - 0x00800000u >= 0x7f000000u);
}
// a *= b; `odd` where a factor or the product is not normal, so that more was lost than by rounding. Whether it is any.
LOD_FN bool multiply_marking(float* a, const float* b, int64_t n, uint8_t* odd) {
  uint32_t any = 0;
  for (int64_t i = 0; i < n; ++i) {
    const float x = a[i], y = b[i], product = x * y;
    const uint32_t here = not_normal(x) | not_normal(y) | not_normal(product);
    a[i] = product;
    odd[i] = uint8_t(here);
    any |= here;
  }
  return any != 0;
}

}  // namespace lod::LOD_LEVEL
