// What attention on the CPU makes of blocks: sums of products in tiles of registers, rows laid out and transposed.
// Kernel source for core/attention_blocks.h, which includes it. SPDX-License-Identifier: Apache-2.0

namespace lod::LOD_LEVEL {

constexpr int kFloats = LOD_LANES;
constexpr int kAtOnce = kFloats == 16 ? 8 : 4;      // rows of sums
constexpr int kMostVectors = kFloats == 4 ? 2 : 3;  // registers of a row of sums
constexpr int64_t kKeysPerStep = 128, kQueriesAtOnce = 32, kBlockOfQueries = 256, kFewQueries = LOD_LANES >= 8 ? 4 : 0;
static_assert(kFewQueries <= kAtOnce);  // values of few queries are read where they lie
// Whether query i of n is in a block of few. Backwards its scores are summed in the same order as forwards: by what the
// two differ, e^(x - log sum) is wrong.
static_assert(kBlockOfQueries % kQueriesAtOnce == 0);
LOD_FN bool few_queries(int64_t n, int64_t i) { return n - i / kBlockOfQueries * kBlockOfQueries <= kFewQueries; }
// From one row of transposed keys, or of scores, to the next: no power of two.
constexpr int64_t kKeyStride = kKeysPerStep + 16;
using Floats_ = float __attribute__((vector_size(kFloats * 4)));
using LooseFloats_ = float __attribute__((vector_size(kFloats * 4), aligned(4)));
LOD_FN Floats_ loose(const float* p) { return *reinterpret_cast<const LooseFloats_*>(p); }
LOD_FN void put_loose(float* p, Floats_ v) { *reinterpret_cast<LooseFloats_*>(p) = v; }
using Ints_ = int32_t __attribute__((vector_size(kFloats * 4)));
// exp_below for vectors. With 16 lanes n counts sixteenths of ln 2: a register holds the 16 powers of 2 in between, and
// three terms are left of e^r - 1, |r| <= ln(2)/32 (minimax: 2e-9).
#if LOD_LANES == 16
// The bits of 2^(j / 16), less those of 1 and what `shifted` has of j where it is moved to the exponent.
constexpr Ints_ kRoots = {0,       -152893, -289342, -408621, -509968, -592590, -655657, -698305,
                          -719629, -718684, -694486, -646004, -572163, -471841, -343865, -187011};
LOD_FN Floats_ exp_lanes(Floats_ x) {
  constexpr float magic = kToInteger + 16 * 127.f;
  const Floats_ shifted = x * (16 * kPerLog2) + magic, n = shifted - magic;
  const Floats_ r = (x - n * (kLog2High / 16)) - n * (kLog2Low / 16);
  const Floats_ power = Floats_((Ints_(shifted) << 19) + __builtin_shuffle(kRoots, Ints_(shifted)));
  const Floats_ less = ((0.16667031f * r + 0.50001619f) * r + 1.f) * r;
  return x < -87.33f ? Floats_{} : power * less + power;
}
#else
LOD_FN Floats_ exp_lanes(Floats_ x) {
  const Floats_ shifted = x * kPerLog2 + (kToInteger + 127.f), n = shifted - (kToInteger + 127.f);
  const Floats_ r = (x - n * kLog2High) - n * kLog2Low;
  Floats_ p = Floats_{} + kExp[0];
  for (int i = 1; i < 7; ++i) p = p * r + kExp[i];
  return x < -87.33f ? Floats_{} : p * Floats_(Ints_(shifted) << 23);
}
#endif
// y + y z P(z), z = y^2, near 0 (minimax: relative error 3e-9), otherwise 1 - 2 e / (1 + e), e = e^(-2 |y|).
constexpr float kTanh[] = {-0.0059058676f, 0.020805383f, -0.053786684f, 0.13331959f, -0.33333299f};
LOD_FN Floats_ tanh_lanes(Floats_ y) {
  const Floats_ z = y * y, size = y < 0.f ? -y : y, e = exp_lanes(-2.f * size), far = 1.f - 2.f * e / (1.f + e);
  Floats_ p = Floats_{} + kTanh[0];
  for (int i = 1; i < 5; ++i) p = p * z + kTanh[i];
  return size < 0.55f ? y + y * (z * p) : y < 0.f ? -far : far;
}
LOD_FN int64_t whole(int64_t n) { return (n + kFloats - 1) / kFloats * kFloats; }
template <class T>
constexpr bool in_whole_registers(int64_t width) {
  return std::is_same_v<T, float> && width % kFloats == 0;
}

// What will be read or written next: parts of rows far apart, which a processor does not prefetch; of many requests
// together it drops some. So lines are requested one by one while sums are formed.
class Prefetch {
 public:
  // `rows` rows of `bytes`, `stride` bytes apart.
  void add(const void* from, int64_t rows, int64_t stride, int64_t bytes, bool write) {
    const auto at = reinterpret_cast<uintptr_t>(from);
    parts_[count_++] = {at, at + uintptr_t(rows * stride), uintptr_t(stride), uintptr_t(bytes), write};
  }
  LOD_FN void ask() {
    if (next_ == count_) return;
    Part& part = parts_[next_];
    const auto* line = reinterpret_cast<const void*>(part.row + byte_);
    if (part.write) __builtin_prefetch(line, 1, 3);
    else __builtin_prefetch(line, 0, 2);
    if ((byte_ += 64) < part.bytes) return;
    byte_ = 0, part.row += part.stride;
    next_ += part.row == part.end;
  }

 private:
  struct Part {
    uintptr_t row, end, stride, bytes;
    bool write;
  };
  Part parts_[7];  // of the backward's last keys: three results, and four that the next head reads
  uintptr_t byte_ = 0;
  int next_ = 0, count_ = 0;
};

// c[r] (+)= sum over i < k of left(r, i) b[i], kRows rows of kVectors registers; left(r, i) is a[r step + i], or
// transposed a[i step + r].
template <int kRows, int kVectors, bool kTransposedLeft>
void tile_of_sums(int64_t k, const float* a, int64_t step, const float* b, int64_t b_step, float* c, int64_t c_step,
                  bool add, Prefetch* ahead) {
  Floats_ sum[kRows][kVectors];
  const float* rows[kRows];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    rows[r] = a + r * step;
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) sum[r][v] = add ? loose(c + r * c_step + v * kFloats) : Floats_{};
  }
  for (int64_t i = 0; i < k; ++i, b += b_step) {
    Floats_ right[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) right[v] = loose(b + v * kFloats);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const float left = kTransposedLeft ? a[r] : rows[r][i];
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) sum[r][v] += left * right[v];
    }
    if (kTransposedLeft) a += step;
    if (ahead) ahead->ask();
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) put_loose(c + r * c_step + v * kFloats, sum[r][v]);
}

struct Sides {  // of a product of (m, k) and (k, n), n whole registers
  int64_t m, n, k;
  const float* a;
  int64_t step;
  const float* b;
  int64_t b_step;
  float* c;
  int64_t c_step;
  bool add;
  Prefetch* ahead = nullptr;
};
template <int kRows, int kVectors, bool kTransposedLeft>
int64_t rows_of_sums(const Sides& p, int64_t column, int64_t r) {
  for (; r + kRows <= p.m; r += kRows)
    tile_of_sums<kRows, kVectors, kTransposedLeft>(p.k, p.a + (kTransposedLeft ? r : r * p.step), p.step, p.b + column,
                                                   p.b_step, p.c + r * p.c_step + column, p.c_step, p.add,
                                                   p.ahead);
  return r;
}
template <int kVectors, bool kTransposedLeft>
void columns_of_sums(const Sides& p, int64_t column) {
  int64_t r = rows_of_sums<kAtOnce, kVectors, kTransposedLeft>(p, column, 0);
  r = rows_of_sums<4, kVectors, kTransposedLeft>(p, column, r);
  r = rows_of_sums<2, kVectors, kTransposedLeft>(p, column, r);
  rows_of_sums<1, kVectors, kTransposedLeft>(p, column, r);
}
template <bool kTransposedLeft>
void product_of_sides(const Sides& p) {
  for (int64_t column = 0; column < p.n;) {
    const int64_t left = (p.n - column) / kFloats;
    if (kMostVectors == 3 && (left == 3 || left > 4)) {
      columns_of_sums<kMostVectors, kTransposedLeft>(p, column);
      column += kMostVectors * kFloats;
    } else if (left >= 2) {
      columns_of_sums<2, kTransposedLeft>(p, column);
      column += 2 * kFloats;
    } else {
      columns_of_sums<1, kTransposedLeft>(p, column);
      column += kFloats;
    }
  }
}

// Rows of T as rows of whole registers, times `factor`.
template <class T>
void lay_out(const T* from, int64_t stride, int64_t rows, int64_t width, float factor, float* to) {
  const int64_t padded = whole(width);
  for (int64_t r = 0; r < rows; ++r, from += stride, to += padded) {
    for (int64_t c = 0; c < width; ++c) to[c] = float(from[c]) * factor;
    for (int64_t c = width; c < padded; ++c) to[c] = 0.f;
  }
}
template <class T>
void put_back(const float* from, int64_t rows, int64_t width, float factor, T* to, int64_t stride) {
  const int64_t padded = whole(width);
  for (int64_t r = 0; r < rows; ++r, from += padded, to += stride)
    for (int64_t c = 0; c < width; ++c) to[c] = T(from[c] * factor);
}

// Transposed rows of whole registers: to[c, r] = from[r, c], and zeros for what is missing of the last register.
#if LOD_LANES >= 8
template <int distance, bool second, int... l>
LOD_FN Floats_ woven(Floats_ a, Floats_ b, std::integer_sequence<int, l...>) {  // swaps a's odd runs with b's even ones
  return __builtin_shuffle(
      a, b,
      Ints_{(second ? (l & distance ? kFloats + l : l + distance) : (l & distance ? kFloats + l - distance : l))...});
}
template <int distance>
LOD_FN void weave(Floats_* rows) {
  if constexpr (distance > 0) {
#pragma GCC unroll 16
    for (int i = 0; i < kFloats; ++i)
      if (!(i & distance)) {
        const Floats_ a = rows[i], b = rows[i + distance];
        rows[i] = woven<distance, false>(a, b, std::make_integer_sequence<int, kFloats>{});
        rows[i + distance] = woven<distance, true>(a, b, std::make_integer_sequence<int, kFloats>{});
      }
    weave<distance / 2>(rows);
  }
}
// sums[0] lane i: all lanes of sums[i], added by halves.
template <int distance>
LOD_FN void add_lanes(Floats_* sums) {
  if constexpr (distance > 0) {
#pragma GCC unroll 16
    for (int i = 0; i < distance; ++i)
      sums[i] = woven<distance, false>(sums[i], sums[i + distance], std::make_integer_sequence<int, kFloats>{}) +
                woven<distance, true>(sums[i], sums[i + distance], std::make_integer_sequence<int, kFloats>{});
    add_lanes<distance / 2>(sums);
  }
}
// x[r, j + i] = q[r] . keys[j + i] for as many keys as a register has lanes, of n in all: for queries too few to
// transpose keys for.
inline void dots(const float* q, int64_t rows, int64_t width, const float* keys, int64_t step, int64_t n, int64_t j,
                 float* x) {
  for (int64_t r = 0; r < rows; ++r) {
    Floats_ sums[kFloats];
#pragma GCC unroll 16
    for (int i = 0; i < kFloats; ++i) {
      const float* key = keys + (j + i < n ? j + i : n - 1) * step;
      sums[i] = Floats_{};
      for (int64_t c = 0; c < width; c += kFloats) sums[i] += loose(q + r * width + c) * loose(key + c);
    }
    add_lanes<kFloats / 2>(sums);
    put_loose(x + r * kKeyStride + j, sums[0]);
  }
}
#endif
// Asks for as many rows as a register has lanes, from row `at` on; they may be none of ours. Parts of rows far apart
// are what a processor does not prefetch.
inline void prefetch(const float* rows, int64_t at, int64_t step, int64_t width) {
  const auto from = reinterpret_cast<uintptr_t>(rows);
  for (int64_t i = 0; i < kFloats; ++i)
    for (int64_t c = 0; c < width; c += 16)
      __builtin_prefetch(reinterpret_cast<const void*>(from + (uintptr_t(at + i) * uintptr_t(step) + c) * 4), 0, 2);
}
inline void transpose(const float* from, int64_t step, int64_t rows, int64_t width, float* to) {
  for (int64_t r = 0; r < rows; r += kFloats)
    for (int64_t c = 0; c < width; c += kFloats) {
      Floats_ square[kFloats];
#if LOD_LANES >= 8
#pragma GCC unroll 16
      for (int i = 0; i < kFloats; ++i) square[i] = r + i < rows ? loose(from + (r + i) * step + c) : Floats_{};
      weave<kFloats / 2>(square);
#else
      for (int i = 0; i < kFloats; ++i)
        for (int k = 0; k < kFloats; ++k) square[k][i] = r + i < rows ? from[(r + i) * step + c + k] : 0.f;
#endif
#pragma GCC unroll 16
      for (int i = 0; i < kFloats; ++i) put_loose(to + (c + i) * kKeyStride + r, square[i]);
    }
}

}  // namespace lod::LOD_LEVEL
