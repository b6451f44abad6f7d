// float16 and bfloat16 for kernels: 16 bits that convert to and from float, rounded to the nearest, ties to even,
// with the bits that torch's conversions have, those of NaN included. Included by device.h, never alone.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#if defined(__CUDACC__) && !defined(LOD_LAUNCH)  // tests/emulated_gpu has no instructions for them
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#ifdef __CUDA_ARCH__
#define LOD_HALF_INSTRUCTIONS
#endif
#endif

namespace lod {

struct Half {
  uint16_t bits;

  Half() = default;
#ifdef LOD_HALF_INSTRUCTIONS
  LOD_FN Half(float x) : bits(__half_as_ushort(__float2half_rn(x))) {}
  LOD_FN operator float() const { return __half2float(__ushort_as_half(bits)); }
#else
  LOD_FN Half(float x) : bits(rounded(__builtin_bit_cast(int32_t, x))) {}
  LOD_FN operator float() const {
    const int32_t positive = bits & 0x7fff, infinity = 0x7c00;
    const int32_t quiet = positive > infinity ? 0x400000 : 0;
    const int32_t usual = ((positive << 13) + (positive < infinity ? kRebias : 2 * kRebias)) | quiet;
    const float small = __builtin_bit_cast(float, kOneHalf + positive) - 0.5f;
    const int32_t value = positive < 0x400 ? __builtin_bit_cast(int32_t, small) : usual;
    return __builtin_bit_cast(float, value | (bits & 0x8000) << 16);
  }

 private:
  // From an exponent of 5 bits to one of 8. The last bit of numbers from 0.5 on is the smallest float16, so that adding
  // 0.5 rounds what has fewer digits, and never meets numbers that processors may flush to zero.
  static constexpr int32_t kRebias = 112 << 23, kOneHalf = 126 << 23;
  LOD_FN static uint16_t rounded(int32_t x) {
    const int32_t positive = x & 0x7fffffff, even = positive >> 13 & 1;
    const int32_t shifted = positive < 0x47800000 ? (positive + 0xfff + even - kRebias) >> 13 : 0x7c00;
    const float small = __builtin_bit_cast(float, positive) + 0.5f;
    const int32_t value = positive < 0x38800000   ? __builtin_bit_cast(int32_t, small) - kOneHalf
                          : positive > 0x7f800000 ? 0x7e00
                                                  : shifted;
    return uint16_t(value | (x >> 16 & 0x8000));
  }
#endif
};

struct BFloat16 {
  uint16_t bits;

  BFloat16() = default;
#ifdef LOD_HALF_INSTRUCTIONS
  LOD_FN BFloat16(float x) : bits(__bfloat16_as_ushort(__float2bfloat16_rn(x))) {}
#else
  LOD_FN BFloat16(float x) : bits(rounded(x, __builtin_bit_cast(uint32_t, x))) {}
#endif
  LOD_FN operator float() const { return __builtin_bit_cast(float, uint32_t(bits) << 16); }

 private:
  LOD_FN static uint16_t rounded(float x, uint32_t of_x) {
    return uint16_t(x != x ? 0x7fc0 : (of_x + 0x7fff + (of_x >> 16 & 1)) >> 16);
  }
};

}  // namespace lod
