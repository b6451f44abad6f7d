// A register of floats: loads and stores under a mask, joins, exponentials and logarithms, lanes joined as trees; and
// short segments that share one. Kernel text for core/lanes.h, which includes it.
// SPDX-License-Identifier: Apache-2.0

namespace lod::LOD_LEVEL {

typedef float Floats __attribute__((vector_size(4 * LOD_LANES)));
typedef int32_t Ints __attribute__((vector_size(4 * LOD_LANES)));
#define LOD_UNROLLED _Pragma("GCC unroll 16")
using LaneIndices = std::make_integer_sequence<int, LOD_LANES>;

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
LOD_FN Floats load(const float* p, Mask mask, Floats rest) {
  return Floats(_mm512_mask_loadu_ps(__m512(rest), mask, p));
}
LOD_FN void store(float* p, Mask mask, Floats v) { _mm512_mask_storeu_ps(p, mask, __m512(v)); }
LOD_FN Floats keep_nan(Floats v, Floats b) {  // b where it is NaN, else v
  return Floats(_mm512_fixupimm_ps(__m512(v), __m512(b), _mm512_set1_epi32(0x11), 0));
}
LOD_FN Floats larger(Floats a, Floats b) { return Floats(_mm512_maskz_max_ps(0xffff, __m512(b), __m512(a))); }
LOD_FN Floats smaller(Floats a, Floats b) { return Floats(_mm512_maskz_min_ps(0xffff, __m512(b), __m512(a))); }
LOD_FN bool any_nan(Floats v) { return _mm512_cmp_ps_mask(__m512(v), __m512(v), _CMP_UNORD_Q); }
LOD_FN bool none_above(Ints v, int most) { return !_mm512_cmpgt_epi32_mask(__m512i(v), __m512i(Ints{} + most)); }
// What is read for the first time: halves come faster from far levels of cache than whole registers (Zen 4: 3 to 8%).
LOD_FN Floats load_first(const float* p) {
  return Floats(_mm512_insertf32x8(_mm512_castps256_ps512(_mm256_loadu_ps(p)), _mm256_loadu_ps(p + 8), 1));
}
#else
using Mask = Ints;
LOD_FN Mask lanes_of(int64_t n, int64_t skip = 0) { return Ints{0, 1, 2, 3, 4, 5, 6, 7} < int32_t(n - skip); }
LOD_FN Floats load(const float* p, Mask mask, Floats rest) {
  return mask ? Floats(_mm256_maskload_ps(p, __m256i(mask))) : rest;
}
LOD_FN void store(float* p, Mask mask, Floats v) {  // under a mask it is microcode on AMD's processors
  if (_mm256_movemask_ps(__m256(mask)) == 255) std::memcpy(p, &v, sizeof(v));
  else _mm256_maskstore_ps(p, __m256i(mask), __m256(v));
}
LOD_FN Floats keep_nan(Floats v, Floats b) { return b != b ? b : v; }
LOD_FN Floats larger(Floats a, Floats b) { return Floats(_mm256_max_ps(__m256(b), __m256(a))); }
LOD_FN Floats smaller(Floats a, Floats b) { return Floats(_mm256_min_ps(__m256(b), __m256(a))); }
LOD_FN bool any_nan(Floats v) { return _mm256_movemask_ps(__m256(v != v)); }
LOD_FN bool none_above(Ints v, int most) { return !_mm256_movemask_ps(__m256(v > most)); }
LOD_FN Floats load_first(const float* p) { return unaligned<Floats>(p); }
#endif

// R::join for vectors. Here, since vector code outside of a level's namespace is compiled for the baseline.
template <class R>
LOD_FN Floats join(Floats a, Floats b) {
  if constexpr (std::is_base_of_v<Sum, R>) return a + b;
  else if constexpr (std::is_same_v<R, Prod>) return a * b;
  else return keep_nan(std::is_same_v<R, Max> ? larger(a, b) : smaller(a, b), b);
}

// Of runs of `unit` lanes the even (odd) ones, first those of a, then those of b: within 4 lanes, which is where
// processors move single lanes cheaply, or for larger units within the register.
constexpr int pair_lane(int unit, int odd, int l) {
  const int region = unit < 4 ? 4 : LOD_LANES, half = region / 2, at = l % region;
  return l / region * region + at % half / unit * 2 * unit + odd * unit + at % unit + (at < half ? 0 : LOD_LANES);
}
template <int unit, int odd, int... l>
LOD_FN Floats pairs(Floats a, Floats b, std::integer_sequence<int, l...>) {
  return __builtin_shuffle(a, b, Ints{pair_lane(unit, odd, l)...});
}
// A number and the row that it came from.
struct Found {
  Floats v;
  Ints row;
};
template <int unit, int odd>
LOD_FN Found pairs(const Found& a, const Found& b, LaneIndices lanes) {
  return {pairs<unit, odd>(a.v, b.v, lanes), Ints(pairs<unit, odd>(Floats(a.row), Floats(b.row), lanes))};
}
LOD_FN Floats shuffled(Floats v, Ints to) { return __builtin_shuffle(v, to); }
LOD_FN Found shuffled(const Found& f, Ints to) { return {__builtin_shuffle(f.v, to), __builtin_shuffle(f.row, to)}; }
// The better, in the order of Max::better; of equals the earlier row.
LOD_FN Found better(const Found& a, const Found& b) {
  const Ints a_nan = a.v != a.v, b_nan = b.v != b.v;
  const Ints take = (b.v > a.v) | (b_nan & ~a_nan) | (((a.v == b.v) | (a_nan & b_nan)) & (b.row < a.row));
  return {take ? b.v : a.v, take ? b.row : a.row};
}

template <int distance, int... l>
LOD_FN Floats partners(Floats v, std::integer_sequence<int, l...>) {
  return __builtin_shuffle(v, Ints{(l ^ distance)...});
}
// Every lane: v of the lanes that are a multiple of `distance` away, joined.
template <Floats (*op)(Floats, Floats), int distance>
LOD_FN Floats across(Floats v) {
  if constexpr (distance >= LOD_LANES) return v;
  else return across<op, 2 * distance>(op(v, partners<distance>(v, LaneIndices{})));
}
// exp_below for vectors. With 16 lanes n counts sixteenths of ln 2: a register holds the 16 powers of 2 in between, and
// three terms are left of e^r - 1, |r| <= ln(2)/32 (minimax: 2e-9).
#if LOD_LANES == 16
// The bits of 2^(j / 16), less those of 1 and what `shifted` has of j where it is moved to the exponent.
constexpr int32_t kRoots[] = {0,       -152893, -289342, -408621, -509968, -592590, -655657, -698305,
                              -719629, -718684, -694486, -646004, -572163, -471841, -343865, -187011};
LOD_FN Floats exp_lanes(Floats x) {
  constexpr float magic = kToInteger + 16 * 127.f;
  const Floats shifted = x * (16 * kPerLog2) + magic, n = shifted - magic;
  const Floats r = (x - n * (kLog2High / 16)) - n * (kLog2Low / 16);
  const Ints root = Ints(_mm512_permutexvar_epi32(__m512i(shifted), __m512i(unaligned<Ints>(kRoots))));
  const Floats power = Floats((Ints(shifted) << 19) + root), less = ((0.16667031f * r + 0.50001619f) * r + 1.f) * r;
  return x < -87.33f ? Floats{} : power * less + power;
}
#else
LOD_FN Floats exp_lanes(Floats x) {
  const Floats shifted = x * kPerLog2 + (kToInteger + 127.f), n = shifted - (kToInteger + 127.f);
  const Floats r = (x - n * kLog2High) - n * kLog2Low;
  Floats p = all_lanes(kExp[0]);
  for (int i = 1; i < 7; ++i) p = p * r + kExp[i];
  return x < -87.33f ? Floats{} : p * Floats(Ints(shifted) << 23);
}
#endif
LOD_FN Floats log_lanes(Floats x) {  // log_above for vectors
  const Ints n = (Ints(x) - kRootHalf) >> 23;
  const Floats m = Floats(Ints(x) - (n << 23)), e = __builtin_convertvector(n, Floats);
  const Floats s = (m - 1.f) / (m + 1.f), z = s * s;
  Floats p = all_lanes(kLog[0]);
  for (int i = 1; i < 4; ++i) p = p * z + kLog[i];
  const Floats y = e * kLog2High + (e * kLog2Low + (2.f * s + 2.f * s * (z * p)));
  return x != x ? x : y;
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

// The lanes of N registers, leaf(k) those of the k-th, joined as trees, P lanes a row. (across joins the same numbers.)
template <auto op, int P, int N, class F>
LOD_FN auto trees(const F& leaf, int k = 0) {
  if constexpr (N == 1) {
    return leaf(k);
  } else {
    const auto a = trees<op, P, N / 2>(leaf, k), b = trees<op, P, N / 2>(leaf, k + N / 2);
    constexpr int unit = N * P <= 4 ? P : P < 4 ? 4 : P;
    return op(pairs<unit, 0>(a, b, LaneIndices{}), pairs<unit, 1>(a, b, LaneIndices{}));
  }
}

#if LOD_LANES == 16
// A group of segments of at most S floats, in rows of P, that lie in memory side by side: as many of them in a register
// as it has S lanes for. `over` joins the rows of each, and spread has the result at all of them.
template <int P, int S>
struct Slots {
  static constexpr int kIn = LOD_LANES / S, kCount = S / P;
  const int64_t* cuts;
  Mask mask[kCount];

  LOD_FN Slots(const int64_t* cuts_, Ints lengths) : cuts(cuts_) {
    LOD_UNROLLED for (int j = 0; j < kCount; ++j)
      mask[j] = _mm512_cmplt_epi32_mask(__m512i(row(LaneIndices{})), __m512i(spread(lengths, j)));
  }
  template <int... l>
  static LOD_FN Ints row(std::integer_sequence<int, l...>) {
    return Ints{(l % S / P)...};
  }
  // Lane l of register j is of segment j * kIn + l / S, of which `over` has lane l % P.
  template <int... l>
  static LOD_FN Ints segment(std::integer_sequence<int, l...>) {
    return Ints{(l / S * P + l % P)...};
  }
  // Where trees leave it.
  template <int... l>
  static LOD_FN Ints place(std::integer_sequence<int, l...>) {
    constexpr int side = 4 / P;
    return Ints{((l / P / kIn / side * kIn + l / P % kIn) * 4 + l / P / kIn % side * P + l % P)...};
  }
  template <class V>
  LOD_FN V spread(V v, int j) const {
    return __builtin_shuffle(v, segment(LaneIndices{}) + j * (kIn * P));
  }
  // Of each lane the row of its segment, and the highest number where there is none.
  LOD_FN Ints rows(int j) const {
    return Ints(_mm512_mask_mov_epi32(__m512i(Ints{} + INT32_MAX), mask[j], __m512i(row(LaneIndices{}))));
  }
  template <auto op, class F>
  LOD_FN auto over(const F& leaf) const {
    return shuffled(trees<op, P, kCount>(leaf), place(LaneIndices{}));
  }
  LOD_FN Floats load(const float* p, int j, Floats rest) const {
    return Floats(_mm512_mask_expandloadu_ps(__m512(rest), mask[j], p + cuts[j * kIn] * P));
  }
  LOD_FN void store(float* p, int j, Floats v) const {
    const int64_t at = cuts[j * kIn] * P, n = cuts[(j + 1) * kIn] * P - at;
    LOD_LEVEL::store(p + at, lanes_of(n), Floats(_mm512_maskz_compress_ps(mask[j], __m512(v))));
  }
};
#endif

}  // namespace lod::LOD_LEVEL
