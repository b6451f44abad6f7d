// Segments of rows of few floats, several segments to a register: the CPU's forms of the reductions and of softmax for rows
// narrower than a register. In the namespace of the level being compiled, where each_level.h defines LOD_LANES.
//
// The floats of a segment lie side by side, so a register takes kRows rows of it at once, and what is left of them is loaded
// and stored under a mask: nothing outside a segment is read, and there is hardly a branch that depends on lengths. Lane l
// sums its own rows; then the lanes of a segment are joined as a tree, together with those of its neighbours in the register.
// Which numbers meet in which order depends on the segment's own length alone.
// SPDX-License-Identifier: Apache-2.0

namespace lod::LOD_LEVEL {

typedef float Floats __attribute__((vector_size(4 * LOD_LANES)));
typedef int32_t Ints __attribute__((vector_size(4 * LOD_LANES)));
using Lanes = std::make_integer_sequence<int, LOD_LANES>;

LOD_FN Floats all_lanes(float x) { return Floats{} + x; }
template <class V>
LOD_FN V unaligned(const void* p) {
  V v;
  std::memcpy(&v, p, sizeof(V));
  return v;
}

// The first n lanes behind the first `skip` ones, for n <= 64.
#if LOD_LANES == 16
using Mask = __mmask16;
LOD_FN Mask lanes_of(int64_t n, int64_t skip = 0) { return Mask(_bzhi_u64(~uint64_t(0), uint64_t(n)) >> skip); }
LOD_FN Floats load(const float* p, Mask mask, Floats rest) { return Floats(_mm512_mask_loadu_ps(__m512(rest), mask, p)); }
LOD_FN void store(float* p, Mask mask, Floats v) { _mm512_mask_storeu_ps(p, mask, __m512(v)); }
LOD_FN Floats keep_nan(Floats v, Floats b) {  // b where it is NaN, else v
  return Floats(_mm512_fixupimm_ps(__m512(v), __m512(b), _mm512_set1_epi32(0x11), 0));
}
LOD_FN Floats larger(Floats a, Floats b) { return Floats(_mm512_maskz_max_ps(0xffff, __m512(b), __m512(a))); }
LOD_FN Floats smaller(Floats a, Floats b) { return Floats(_mm512_maskz_min_ps(0xffff, __m512(b), __m512(a))); }
#else
using Mask = Ints;
LOD_FN Mask lanes_of(int64_t n, int64_t skip = 0) { return Ints{0, 1, 2, 3, 4, 5, 6, 7} < int32_t(n - skip); }
LOD_FN Floats load(const float* p, Mask mask, Floats rest) { return mask ? Floats(_mm256_maskload_ps(p, __m256i(mask))) : rest; }
LOD_FN void store(float* p, Mask mask, Floats v) { _mm256_maskstore_ps(p, __m256i(mask), __m256(v)); }
LOD_FN Floats keep_nan(Floats v, Floats b) { return b != b ? b : v; }
LOD_FN Floats larger(Floats a, Floats b) { return Floats(_mm256_max_ps(__m256(b), __m256(a))); }
LOD_FN Floats smaller(Floats a, Floats b) { return Floats(_mm256_min_ps(__m256(b), __m256(a))); }
#endif

// R::join for vectors. Here, since vector code outside of a level's namespace is compiled for the baseline.
template <class R>
LOD_FN Floats join(Floats a, Floats b) {
  if constexpr (std::is_base_of_v<Sum, R>) return a + b;
  else return keep_nan(std::is_same_v<R, Max> ? larger(a, b) : smaller(a, b), b);
}

// Of runs of `unit` lanes the even (odd) ones, first those of a, then those of b: within 4 lanes, which is where processors
// move single lanes cheaply, or for larger units within the register.
constexpr int pair_lane(int unit, int odd, int l) {
  const int region = unit < 4 ? 4 : LOD_LANES, half = region / 2, at = l % region;
  return l / region * region + at % half / unit * 2 * unit + odd * unit + at % unit + (at < half ? 0 : LOD_LANES);
}
template <int unit, int odd, int... l>
LOD_FN Floats pairs(Floats a, Floats b, std::integer_sequence<int, l...>) {
  return __builtin_shuffle(a, b, Ints{pair_lane(unit, odd, l)...});
}
template <int distance, int... l>
LOD_FN Floats partners(Floats v, std::integer_sequence<int, l...>) {
  return __builtin_shuffle(v, Ints{(l ^ distance)...});
}
// Lane l: the length of segment l / P.
template <int P, int... l>
LOD_FN Ints lengths_at(const int64_t* cuts, std::integer_sequence<int, l...>) {
  const Ints low{(l / P * 2)...};
  const auto words = [&](const int64_t* c) {
    return __builtin_shuffle(unaligned<Ints>(c), P == 1 ? unaligned<Ints>(c + LOD_LANES / 2) : Ints{}, low);
  };
  return words(cuts + 1) - words(cuts);
}

// Rows of `width` floats, each padded to P lanes where rows are joined.
template <int P>
struct Narrow {
  static constexpr int kRows = LOD_LANES / P;
  // Registers that are taken whether or not there are rows for them: a branch that fails costs more.
  static constexpr int kStraight = kRows >= 8 ? 1 : LOD_LANES == 16 && kRows == 1 ? 4 : 8 / kRows;
  int64_t width, step;  // step: floats of kRows rows
  Ints spread, pack, channel;
  explicit Narrow(int64_t width_) : width(P <= 2 ? P : width_), step(kRows * width) {
    spread = pack = channel = Ints{};
    for (int32_t row = 0, l = 0; row < kRows; ++row)
      for (int32_t c = 0; c < int32_t(width); ++c, ++l) spread[row * P + c] = l, pack[l] = row * P + c, channel[l] = c;
  }

  // Lane by lane, the rows of one segment joined: n floats at p.
  template <class R>
  LOD_FN Floats lanes(const float* p, int64_t n) const {
    if (__builtin_expect(n > kStraight * step, 0)) return long_lanes<R>(p, n, width, step);
    const Floats none = all_lanes(R::template none<float>());
    Floats a = load(p, lanes_of(n), none);
    for (int i = 1; i < kStraight; ++i) a = join<R>(a, load(p + i * step, lanes_of(n, i * step), none));
    return a;
  }
  template <class R>
  static __attribute__((noinline)) Floats long_lanes(const float* p, int64_t n, int64_t width, int64_t step) {
    const Floats none = all_lanes(R::template none<float>());
    Floats total = none;
    for (int64_t left = n; left > 0;) {
      const int64_t block = left < kBlock * width ? left : kBlock * width;
      Floats part[4] = {none, none, none, none};
      int64_t i = 0;
      for (; i + 3 * step + LOD_LANES <= block; i += 4 * step)
        for (int u = 0; u < 4; ++u) part[u] = join<R>(part[u], unaligned<Floats>(p + i + u * step));
      for (; i < block; i += step) part[0] = join<R>(part[0], load(p + i, lanes_of(block - i < step ? block - i : step), none));
      total = join<R>(total, join<R>(join<R>(part[0], part[1]), join<R>(part[2], part[3])));
      p += block, left -= block;
    }
    return total;
  }

  // kRows segments, P lanes each.
  template <class R, int N>
  LOD_FN Floats fold(const float* values, const int64_t* cuts) const {
    if constexpr (N == 1) {
      const Floats v = lanes<R>(values + cuts[0] * width, cuts[1] * width - cuts[0] * width);
      return P == 1 ? v : __builtin_shuffle(v, spread);
    } else {
      const Floats a = fold<R, N / 2>(values, cuts), b = fold<R, N / 2>(values, cuts + N / 2);
      constexpr int unit = N * P <= 4 ? P : P < 4 ? 4 : P;
      return join<R>(pairs<unit, 0>(a, b, Lanes{}), pairs<unit, 1>(a, b, Lanes{}));
    }
  }
  template <class R>
  LOD_FN void reduce(const float* values, const int64_t* cuts, int64_t count, float pad, float* out) const {
    Floats v = fold<R, kRows>(values, cuts);
    const Ints length = lengths_at<P>(cuts, Lanes{});
    Floats size = __builtin_convertvector(length, Floats);
    if constexpr (std::is_same_v<R, Sqrt>)
      for (int l = 0; l < LOD_LANES; ++l) size[l] = __builtin_sqrtf(size[l]);
    if constexpr (std::is_same_v<R, Mean> || std::is_same_v<R, Sqrt>) v /= size;
    v = length == 0 ? all_lanes(pad) : v;
    store(out, lanes_of(count * width), P == 1 ? v : __builtin_shuffle(v, pack));
  }
  template <class R>
  void reduce_all(const float* values, const int64_t* offsets, int64_t first, int64_t last, float pad, float* out) const {
    for (; first + LOD_LANES <= last; first += kRows) reduce<R>(values, offsets + first, kRows, pad, out + first * width);
    int64_t cuts[2 * LOD_LANES + 1];
    const int64_t left = last - first;
    for (int64_t i = 0; i <= 2 * LOD_LANES; ++i) cuts[i] = offsets[i < left ? first + i : last];
    for (int64_t i = 0; i < left; i += kRows)
      reduce<R>(values, cuts + i, left - i < kRows ? left - i : kRows, pad, out + (first + i) * width);
  }
};

// Calls f with the Narrow for rows of this width, if there is one.
template <class F>
bool narrow(int64_t width, int64_t rows, const F& f) {
  if (width > (LOD_LANES == 16 ? 15 : 8) || rows > INT32_MAX) return false;
  if (width == 1) f(Narrow<1>(width));
  else if (width == 2) f(Narrow<2>(width));
  else if (width <= 4) f(Narrow<4>(width));
  else if (width <= 8) f(Narrow<8>(width));
  else f(Narrow<LOD_LANES>(width));
  return true;
}

}  // namespace lod::LOD_LEVEL
