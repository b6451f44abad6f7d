// What tells a CPU from a GPU, as half.h, launch.h and each_level.h do: element types, dispatch over them, and the
// functions that kernels share.
//
// Kernel source (kernels/rows.h, for one) is free of torch and written once. each_level.h includes it for two
// instruction levels of the CPU and, from cuda/*.cu, for the GPU. A kernel is a struct that does one item.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#ifdef __CUDACC__
#define LOD_FN __host__ __device__ __forceinline__
#define LOD_DEVICE __device__ __forceinline__
#define LOD_INLINE
#define LOD_WIDE alignas(16)
#define LOD_UNFORESEEN(condition) (condition)
#else
#define LOD_FN inline __attribute__((always_inline))
#define LOD_INLINE __attribute__((always_inline))  // for lambdas
#define LOD_WIDE
// A choice that no processor predicts: an instruction that selects is better than a branch.
#define LOD_UNFORESEEN(condition) __builtin_expect_with_probability(condition, 1, 0.5)
#endif
// Of the rows that a block of a GPU's threads takes. Tests make it small, so that few rows are for many blocks.
#ifndef LOD_TILE_BYTES
#define LOD_TILE_BYTES 16384
#endif
// For loops that need the registers for themselves. Where a loop of few instructions lies decides how fast it is.
#define LOD_NOINLINE __attribute__((noinline, aligned(64)))

#include "torch_lod/half.h"

namespace lod {

enum class DType { f64, f32, f16, bf16, i64, i32, i16, i8, u8 };

inline bool is_whole(DType dtype) { return dtype >= DType::i64; }

// What an element type is summed in.
template <class T>
using acc_t =
    std::conditional_t<std::is_same_v<T, double>, double, std::conditional_t<std::is_integral_v<T>, int64_t, float>>;

template <class T>
struct Type {
  using type = T;
};

template <class F>
void visit_floating(DType dtype, const F& f) {
  switch (dtype) {
    case DType::f64: return f(Type<double>{});
    case DType::f32: return f(Type<float>{});
    case DType::f16: return f(Type<Half>{});
    default: return f(Type<BFloat16>{});
  }
}

template <class F>
void visit_numbers(DType dtype, const F& f) {
  switch (dtype) {
    case DType::i64: return f(Type<int64_t>{});
    case DType::i32: return f(Type<int32_t>{});
    case DType::i16: return f(Type<int16_t>{});
    case DType::i8: return f(Type<int8_t>{});
    case DType::u8: return f(Type<uint8_t>{});
    default: return visit_floating(dtype, f);
  }
}

// What is only copied is taken as words (row_words in binding.h). A GPU moves 16 bytes per instruction where they are
// aligned.
struct LOD_WIDE Wide {
  uint64_t half[2];
};
template <class F>
void visit_words(int64_t item, const F& f) {
  switch (item) {
    case 1: return f(Type<uint8_t>{});
    case 2: return f(Type<uint16_t>{});
    case 4: return f(Type<uint32_t>{});
    case 8: return f(Type<uint64_t>{});
    default: return f(Type<Wide>{});
  }
}
template <class T>
T word(const unsigned char* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof(T));
  return value;
}

// Asks a processor for bytes that will be used, at an address where nothing need be.
template <int64_t kBytes>
LOD_FN void fetch(uintptr_t at) {
#ifndef __CUDACC__
  for (int64_t byte = 0; byte < kBytes; byte += 64)
    __builtin_prefetch(reinterpret_cast<const void*>(at + uintptr_t(byte)), 0, 2);
#endif
}

// Quotients of numbers from 0 on. Those below 2**32 by a product instead of the division, some twenty instructions on a
// GPU: exact, Lemire, Kaser and Kurz 2019, "Faster remainder by direct computation".
class Divisor {
 public:
  explicit Divisor(int64_t by) : by_(by), inverse_(by > 1 ? ~uint64_t(0) / uint64_t(by) + 1 : 0) {}
  LOD_FN int64_t quotient(int64_t n) const {
    if (by_ == 1) return n;
    return n >> 32 == 0 ? int64_t(high(inverse_, uint32_t(n))) : n / by_;
  }

 private:
  LOD_FN static uint64_t high(uint64_t a, uint64_t b) {
#ifdef __CUDA_ARCH__
    return __umul64hi(a, b);
#else
    return uint64_t((unsigned __int128)(a) * b >> 64);
#endif
  }
  int64_t by_;
  uint64_t inverse_;
};

// How kernels run: on the CPU through a parallel loop that the caller lends, on the GPU in a stream.
struct CpuExec {
  using Body = void (*)(const void* kernel, int64_t begin, int64_t end);
  // body(kernel, begin, end) for pieces of [0, n) of `grain` items, what is worth waking another thread for
  void (*parallel)(int64_t n, int64_t grain, const void* kernel, Body body);
  void (*pause)() = [] {};  // called in the middle of items that take long; it may throw
  int64_t (*threads)() = [] { return int64_t(1); };  // of a parallel loop that begins now
};
struct CudaExec {
  void* stream;
};

struct OffsetOrder {
  bool falls;
  int64_t longest;
};
struct RunLayout {
  bool fits;  // all runs are in range
  bool same;  // every run has the rows of its own segment
  bool rise;  // none begins before the one before it has ended; an empty one may spoil that
};
struct IndexBounds {
  bool fits;
  int64_t longest;
};

// Of numbers that were not validated: a result out of range wraps.
LOD_FN int64_t wrapping_add(int64_t a, int64_t b) { return int64_t(uint64_t(a) + uint64_t(b)); }
LOD_FN int64_t wrapping_sub(int64_t a, int64_t b) { return int64_t(uint64_t(a) - uint64_t(b)); }

// Rows [begin, end) of one segment. Offsets on a GPU cannot be checked before the launch: they are clamped.
struct Range {
  int64_t begin, end;
  LOD_FN int64_t length() const { return end - begin; }
};
LOD_FN Range rows_of(const int64_t* offsets, int64_t s, int64_t rows) {
  int64_t begin = offsets[s], end = offsets[s + 1];
  begin = begin < 0 ? 0 : begin > rows ? rows : begin;
  end = end < begin ? begin : end > rows ? rows : end;
  return {begin, end};
}

// The segment that holds a row: the last that begins at or before it.
LOD_FN int64_t segment_of(const int64_t* offsets, int64_t segments, int64_t row) {
  int64_t lo = 0, hi = segments;
  while (lo < hi) {
    const int64_t mid = (lo + hi) / 2;
    if (offsets[mid + 1] <= row) lo = mid + 1;
    else hi = mid;
  }
  return lo;
}

LOD_FN double exp_of(double x) { return ::exp(x); }
// 2^n e^r with n = round(x / ln 2), |r| <= ln(2)/2 and a minimax polynomial of degree 6 for e^r: relative error 9e-8.
// Free of branches, so that loops over it become vector code. Below -87.33 (and for -inf) it is 0, NaN stays NaN.
constexpr float kExp[] = {0.0013836794532835484f,
                          0.008374856784939766f,
                          0.041668228805065155f,
                          0.16666419804096222f,
                          0.49999991059303284f,
                          1.f,
                          1.f};
constexpr float kLog2High = 0.693359375f, kLog2Low = -2.12194440e-4f, kPerLog2 = 1.44269504f;
constexpr float kToInteger = 12582912.f;   // 1.5 * 2^23: added, it leaves the rounded integer in the low bits
LOD_FN float exp_part(float x, float n) {  // e^r
  const float r = (x - n * kLog2High) - n * kLog2Low;
  float p = kExp[0];
  for (int i = 1; i < 7; ++i) p = p * r + kExp[i];
  return p;
}
LOD_FN float exp_within(float x) {  // for x from -87.33 to 88.7, or NaN
#ifdef __CUDA_ARCH__
  return ::expf(x);
#else
  const float shifted = x * kPerLog2 + kToInteger;
  const float p = exp_part(x, shifted - kToInteger);
  return __builtin_bit_cast(float, __builtin_bit_cast(uint32_t, p) + (__builtin_bit_cast(uint32_t, shifted) << 23));
#endif
}
LOD_FN float exp_of(float x) {
#ifdef __CUDA_ARCH__
  return ::expf(x);
#else
  const float y = exp_within(x > 88.7f ? 88.7f : x < -87.33f ? -87.33f : x);
  return x < -87.33f ? 0.f : x > 88.7f ? __builtin_inff() : y;
#endif
}
// The same for x <= 0, or NaN: half the instructions.
LOD_FN double exp_below(double x) { return ::exp(x); }
LOD_FN float exp_below(float x) {
#ifdef __CUDA_ARCH__
  return ::expf(x);
#else
  const float shifted = x * kPerLog2 + (kToInteger + 127.f);  // the bits of 2^n, once they are moved to the exponent
  const float scale = __builtin_bit_cast(float, __builtin_bit_cast(uint32_t, shifted) << 23);
  const float y = exp_part(x, shifted - (kToInteger + 127.f)) * scale;
  return x < -87.33f ? 0.f : y;
#endif
}
// n ln 2 + log m with x = 2^n m and sqrt(1/2) <= m < sqrt(2), where log m = 2 artanh s, s = (m - 1) / (m + 1), by its
// series; for x >= 1 and finite, or NaN: relative error 2e-7.
constexpr int32_t kRootHalf = 0x3f3504f3;  // the bits of sqrt(1/2)
constexpr float kLog[] = {1.f / 9, 1.f / 7, 1.f / 5, 1.f / 3};
LOD_FN double log_above(double x) { return ::log(x); }
LOD_FN float log_above(float x) {
#ifdef __CUDA_ARCH__
  return ::logf(x);
#else
  const auto bits = __builtin_bit_cast(int32_t, x), n = (bits - kRootHalf) >> 23;
  const float m = __builtin_bit_cast(float, bits - (n << 23)), e = float(n);
  const float s = (m - 1.f) / (m + 1.f), z = s * s;
  float p = kLog[0];
  for (int i = 1; i < 4; ++i) p = p * z + kLog[i];
  const float y = e * kLog2High + (e * kLog2Low + (2.f * s + 2.f * s * (z * p)));
  return x != x ? x : y;
#endif
}
// log(1 + x) for x >= 0, or NaN, where 1 + x may round to 1.
template <class A>
LOD_FN A log_beyond(A x) {
  const A u = A(1) + x;
  return log_above(u) + (x - (u - A(1))) / u;
}
// What is beyond `limit` on either side, as `limit`; NaN stays NaN. One choice after another: of nested ones compilers
// make a calculation with masks.
LOD_FN float within(float x, float limit) {
  x = x > limit ? limit : x;
  return x < -limit ? -limit : x;
}
LOD_FN double sigmoid_of(double x) { return 1. / (1. + ::exp(-x)); }
LOD_FN float sigmoid_of(float x) {
  const float y = 1.f / (1.f + exp_within(within(-x, 87.f)));
  return x < -87.f ? 0.f : y;
}
LOD_FN double tanh_of(double x) { return ::tanh(x); }
LOD_FN float tanh_of(float x) {  // absolute error 2e-7: what gates need
  return 1.f - 2.f / (exp_within(within(x + x, 30.f)) + 1.f);
}

}  // namespace lod
