// Segments of rows of floats in registers: the CPU's forms of the reductions and of softmax, here for rows narrower
// than a register, of which one takes several segments; core/wide_rows.h has the others. In the namespace of the level
// being compiled, where each_level.h defines LOD_LANES; kernel text includes it after core/blocks.h.
//
// The floats of a segment lie side by side, so a register takes kRows rows of it at once, and what is left of them is
// loaded and stored under a mask: nothing outside a segment is read, and there is hardly a branch that depends on
// lengths. Lane l sums its own rows; then the lanes of a segment are joined as a tree, together with those of its
// neighbours in the register. Which numbers meet in which order depends on the segment's own length alone. With an exec
// its threads share the blocks of a long segment.
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

// Rows of `width` floats, each padded to P lanes where rows are joined.
template <int P>
struct Narrow {
  static constexpr int kRows = LOD_LANES / P;
  // Registers that are taken whether or not there are rows for them: a branch that fails costs more.
  static constexpr int kStraight = kRows >= 8 ? 1 : LOD_LANES == 16 && kRows == 1 ? 4 : 8 / kRows;
  Ints spread = {}, pack = {}, channel = {}, row = {};
  const Exec* exec;
  int64_t given;
  LOD_FN int64_t width() const { return P <= 2 ? P : given; }
  LOD_FN int64_t step() const { return kRows * width(); }  // floats that a register takes
  Narrow(const Exec* exec_, int64_t width_) : exec(exec_), given(width_) {
    for (int32_t r = 0, l = 0; r < kRows; ++r)
      for (int32_t c = 0; c < int32_t(width_); ++c, ++l)
        spread[r * P + c] = l, pack[l] = r * P + c, channel[l] = c, row[l] = r;
  }

  // Lane by lane, the rows of one segment joined: n floats at p.
  template <class R>
  LOD_FN Floats lanes(const float* p, int64_t n) const {
    if (__builtin_expect(n > kStraight * step(), 0))
      return n <= kBlock * width() ? block_lanes<R>(p, n, step())
                                   : long_lanes<R>(exec, p, n, kBlock * width(), step());
    const Floats none = all_lanes(R::template none<float>());
    Floats a = load(p, lanes_of(n), none);
    for (int i = 1; i < kStraight; ++i) a = join<R>(a, load(p + i * step(), lanes_of(n, i * step()), none));
    return a;
  }
  template <class R>
  __attribute__((noinline)) static Floats block_lanes(const float* p, int64_t n, int64_t step) {
    const Floats none = all_lanes(R::template none<float>());
    Floats part[4] = {none, none, none, none};
    int64_t i = 0;
    for (; i + 3 * step + LOD_LANES <= n; i += 4 * step)
      for (int u = 0; u < 4; ++u) part[u] = join<R>(part[u], unaligned<Floats>(p + i + u * step));
    for (; i < n; i += step) part[0] = join<R>(part[0], load(p + i, lanes_of(n - i < step ? n - i : step), none));
    return join<R>(join<R>(part[0], part[1]), join<R>(part[2], part[3]));
  }
  template <class R>
  __attribute__((noinline)) static Floats long_lanes(const Exec* exec, const float* p, int64_t n, int64_t size,
                                                     int64_t step) {
    return joined<join<R>>(exec, (n + size - 1) / size, size, [&](int64_t b) LOD_INLINE {
      return block_lanes<R>(p + b * size, n - b * size < size ? n - b * size : size, step);
    });
  }

  // The lanes of N segments, leaf(k) those of the k-th, joined as trees: P lanes each. (across joins the same numbers.)
  template <auto op, int N, class F>
  LOD_FN auto trees(const F& leaf, int k = 0) const {
    if constexpr (N == 1) {
      return P == 1 ? leaf(k) : shuffled(leaf(k), spread);
    } else {
      const auto a = trees<op, N / 2>(leaf, k), b = trees<op, N / 2>(leaf, k + N / 2);
      constexpr int unit = N * P <= 4 ? P : P < 4 ? 4 : P;
      return op(pairs<unit, 0>(a, b, LaneIndices{}), pairs<unit, 1>(a, b, LaneIndices{}));
    }
  }
  template <class R>
  LOD_FN void reduce(const float* values, const int64_t* cuts, int64_t count, Share share, float pad,
                     float* out) const {
    Floats v = trees<join<R>, kRows>([&](int k) LOD_INLINE {
      return lanes<R>(values + cuts[k] * width(), cuts[k + 1] * width() - cuts[k] * width());
    });
    const Ints length = lengths_at<P>(cuts, LaneIndices{});
    Floats size = __builtin_convertvector(length, Floats);
    if (share == Share::root)
      for (int l = 0; l < LOD_LANES; ++l) size[l] = __builtin_sqrtf(size[l]);
    if (share != Share::all) v /= size;
    v = length == 0 ? all_lanes(pad) : v;
    store(out, lanes_of(count * width()), P == 1 ? v : __builtin_shuffle(v, pack));
  }
  // Calls f(cuts, s, count) for groups of kRows segments from s; the last may have fewer, `count`.
  template <class F>
  LOD_FN void each_group(const int64_t* offsets, int64_t first, int64_t last, const F& f) const {
    for (; first + LOD_LANES <= last; first += kRows) f(offsets + first, first, kRows);
    int64_t cuts[2 * LOD_LANES + 1];
    const int64_t left = last - first;
    for (int64_t i = 0; i <= 2 * LOD_LANES; ++i) cuts[i] = offsets[i < left ? first + i : last];
    for (int64_t i = 0; i < left; i += kRows) f(cuts + i, first + i, left - i < kRows ? left - i : kRows);
  }
  template <class R>
  void reduce_all(const float* values, const int64_t* offsets, int64_t first, int64_t last, Share share, float pad,
                  float* out) const {
    each_group(offsets, first, last, [&](const int64_t* cuts, int64_t s, int64_t count) LOD_INLINE {
      reduce<R>(values, cuts, count, share, pad, out + s * width());
    });
  }

  LOD_FN Found found(const float* p, int64_t n, Ints flip) const {
    const auto rows_from = [&](int64_t i) LOD_INLINE {
      const int64_t left = n - i * step(), some = left < 0 ? 0 : left < step() ? left : step();
      const Ints at = row + int32_t(i * kRows);
      const Floats v = load(p + i * step(), lanes_of(some), Floats(Ints(all_lanes(lowest<float>())) ^ flip));
      return Found{Floats(Ints(v) ^ flip), at < int32_t(n / width()) ? at : at | INT32_MAX};
    };
    const auto steps = [&](int64_t i, int64_t end) LOD_INLINE {
      Found best = rows_from(i);
      for (++i; i < end; ++i) best = better(best, rows_from(i));
      return best;
    };
    const int64_t all = (n + step() - 1) / step();
    if (__builtin_expect(!exec || all <= kBlock, 1)) return steps(0, all < kStraight ? kStraight : all);
    return joined<better>(exec, (all + kBlock - 1) / kBlock, kBlock * step(), [&](int64_t b) LOD_INLINE {
      return steps(b * kBlock, (b + 1) * kBlock < all ? (b + 1) * kBlock : all);
    });
  }
  // The first row that attains the maximum, and its number; with the sign bit as `flip` the minimum.
  void extreme_all(const float* values, const int64_t* offsets, int64_t first, int64_t last, int32_t flip, float pad,
                   float* out, int64_t* index) const {
    each_group(offsets, first, last, [&](const int64_t* cuts, int64_t s, int64_t count) LOD_INLINE {
      const Found best = trees<better, kRows>([&](int k) LOD_INLINE {
        return found(values + cuts[k] * width(), cuts[k + 1] * width() - cuts[k] * width(), Ints{} + flip);
      });
      const Floats v = lengths_at<P>(cuts, LaneIndices{}) == 0 ? all_lanes(pad) : Floats(Ints(best.v) ^ flip);
      store(out + s * width(), lanes_of(count * width()), shuffled(v, pack));
      int32_t rows[LOD_LANES];
      std::memcpy(rows, &best.row, sizeof rows);
      for (int64_t k = 0, i = s * width(); k < count; ++k)
        for (int64_t c = 0; c < width(); ++c, ++i) index[i] = cuts[k] < cuts[k + 1] ? cuts[k] + rows[k * P + c] : -1;
    });
  }

  // For softmax lanes stay as they are in memory. Every lane: v of the lanes of its channel, joined.
  template <Floats (*op)(Floats, Floats)>
  LOD_FN Floats over_rows(Floats v) const {
    if constexpr (P == 1) return across<op, P>(v);
    else return __builtin_shuffle(across<op, P>(__builtin_shuffle(v, spread)), channel);
  }
  // f(begin, end) of blocks of kBlock steps of [0, end), joined; end > 0.
  template <auto op, class F>
  LOD_FN auto join_blocks(int64_t end, const F& f) const {
    const int64_t size = kBlock * step();
    if (end <= size) return f(0, end);
    return joined<op>(exec, (end + size - 1) / size, size, [&](int64_t b) LOD_INLINE {
      return f(b * size, (b + 1) * size < end ? (b + 1) * size : end);
    });
  }
  // The sum of f(i) over the steps i of [0, end).
  template <class F>
  LOD_FN Floats sum_steps(int64_t end, const F& f) const {
    if (end == 0) return Floats{};
    return join_blocks<join<Sum>>(end, [&](int64_t i, int64_t stop) LOD_INLINE {
      Floats part{};
      for (; i < stop; i += step()) part += f(i);
      return part;
    });
  }
  // The same without a sum.
  template <class F>
  LOD_FN void each_step(int64_t end, const F& f) const {
    if (__builtin_expect(!exec, 1)) {
      for (int64_t i = 0; i < end; i += step()) f(i);
    } else {
      each(*exec, end / step(), step(), [&](int64_t i) { f(i * step()); });
    }
  }
  // The largest of the n floats of one segment, channel by channel: all steps but the last, then the last.
  LOD_FN Floats top_of(const float* x, int64_t last, Floats tail) const {
    if (last == 0) return over_rows<larger>(tail);
    const Floats none = all_lanes(lowest<float>());
    const Floats top = join_blocks<larger>(last, [&](int64_t i, int64_t end) LOD_INLINE {
      Floats most = none;
      for (; i < end; i += step()) most = larger(most, load(x + i, lanes_of(step()), none));
      return most;
    });
    return over_rows<larger>(larger(tail, top));
  }
  LOD_FN int64_t last_step(int64_t n) const { return n > step() ? (n - 1) / step() * step() : 0; }

  // The n floats of one segment; the last step, often the only one, stays in registers throughout. kLog: the logarithm.
  template <bool kLog>
  LOD_FN void softmax(const float* x, int64_t n, float* y) const {
    const Floats none = all_lanes(lowest<float>());
    const int64_t last = last_step(n);
    const Mask full = lanes_of(step()), mask = lanes_of(n - last);
    const Floats tail = load(x + last, mask, none), top = top_of(x, last, tail);
    const Floats total = sum_steps(last, [&](int64_t i) {
      const Floats e = exp_lanes(load(x + i, full, none) - top);
      if constexpr (!kLog) store(y + i, full, e);
      return e;
    });
    const Floats e = exp_lanes(tail - top), sum = over_rows<join<Sum>>(total + e);
    if constexpr (kLog) {
      const Floats shift = log_lanes(sum);
      each_step(last, [&](int64_t i) LOD_INLINE { store(y + i, full, (load(x + i, full, none) - top) - shift); });
      store(y + last, mask, (tail - top) - shift);
    } else {
      const Floats scale = 1.f / sum;
      each_step(last, [&](int64_t i) LOD_INLINE { store(y + i, full, load(y + i, full, none) * scale); });
      store(y + last, mask, e * scale);
    }
  }
  // kRows segments that fit into a register each; false if they do not.
  template <bool kLog>
  LOD_FN bool short_softmax(const float* x, const int64_t* cuts, float* y) const {
    Floats e[kRows], below[kRows];
    for (int k = 0; k < kRows; ++k) {
      const int64_t n = cuts[k + 1] * width() - cuts[k] * width();
      if (n > step()) return false;
      e[k] = load(x + cuts[k] * width(), lanes_of(n), all_lanes(lowest<float>()));
    }
    const auto leaf = [&](int k) LOD_INLINE { return e[k]; };
    const Floats top = trees<larger, kRows>(leaf);
    for (int k = 0; k < kRows; ++k) {
      below[k] = e[k] - __builtin_shuffle(top, channel + k * P);
      e[k] = exp_lanes(below[k]);
    }
    const Floats sum = trees<join<Sum>, kRows>(leaf), scale = kLog ? log_lanes(sum) : 1.f / sum;
    for (int k = 0; k < kRows; ++k) {
      const int64_t n = cuts[k + 1] * width() - cuts[k] * width();
      const Floats own = __builtin_shuffle(scale, channel + k * P);
      store(y + cuts[k] * width(), lanes_of(n), kLog ? below[k] - own : e[k] * own);
    }
    return true;
  }
  // Of kRows segments, none longer than a block, the largest and the sum of e^(x - largest), in lanes as trees leave
  // them; keep(i, mask, e) takes what is added. False if one is longer. kMeet: infinities meet as equals, so that their
  // difference is not NaN.
  template <bool kMeet, class F>
  LOD_FN bool group_sums(const float* x, const int64_t* cuts, Floats& top, Floats& sum, const F& keep) const {
    const Floats none = all_lanes(lowest<float>());
    const Mask full = lanes_of(step());
    Floats lanes[kRows];
    const auto leaf = [&](int k) LOD_INLINE { return lanes[k]; };
    for (int k = 0; k < kRows; ++k) {
      const int64_t at = cuts[k] * width(), n = cuts[k + 1] * width() - at, last = last_step(n);
      if (n > kBlock * step()) return false;
      Floats most = load(x + at + last, lanes_of(n - last), none);
      for (int64_t i = at; i < at + last; i += step()) most = larger(most, load(x + i, full, none));
      lanes[k] = most;
    }
    top = trees<larger, kRows>(leaf);
    for (int k = 0; k < kRows; ++k) {
      const int64_t at = cuts[k] * width(), n = cuts[k + 1] * width() - at, last = last_step(n);
      const Floats own = __builtin_shuffle(top, channel + k * P);
      const auto e = [&](int64_t i, Mask mask) LOD_INLINE {
        const Floats v = load(x + i, mask, none);
        return keep(i, mask, exp_lanes(kMeet && v == own ? Floats{} : v - own));
      };
      Floats total{};
      for (int64_t i = at; i < at + last; i += step()) total += e(i, full);
      lanes[k] = total + e(at + last, lanes_of(n - last));
    }
    sum = trees<join<Sum>, kRows>(leaf);
    return true;
  }
  template <bool kLog>
  LOD_FN bool group_softmax(const float* x, const int64_t* cuts, float* y) const {
    Floats top, sum;
    const auto keep = [&](int64_t i, Mask mask, Floats e) LOD_INLINE {
      if constexpr (!kLog) store(y + i, mask, e);
      return e;
    };
    if (!group_sums<false>(x, cuts, top, sum, keep)) return false;
    const Floats by = kLog ? log_lanes(sum) : 1.f / sum;
    for (int k = 0; k < kRows; ++k) {
      const int64_t at = cuts[k] * width(), n = cuts[k + 1] * width() - at, last = last_step(n);
      const Floats own = __builtin_shuffle(by, channel + k * P), most = __builtin_shuffle(top, channel + k * P);
      const auto put = [&](int64_t i, Mask mask) LOD_INLINE {
        const Floats v = load((kLog ? x : y) + i, mask, Floats{});
        store(y + i, mask, kLog ? (v - most) - own : v * own);
      };
      for (int64_t i = at; i < at + last; i += step()) put(i, lanes_of(step()));
      put(at + last, lanes_of(n - last));
    }
    return true;
  }
  template <bool kLog>
  void softmax_all(const float* x, const int64_t* offsets, int64_t first, int64_t last, float* y) const {
    each_group(offsets, first, last, [&](const int64_t* cuts, int64_t, int64_t count) LOD_INLINE {
      if ((kRows >= 4 && short_softmax<kLog>(x, cuts, y)) || group_softmax<kLog>(x, cuts, y)) return;
      for (int64_t k = 0; k < count; ++k)
        softmax<kLog>(x + cuts[k] * width(), (cuts[k + 1] - cuts[k]) * width(), y + cuts[k] * width());
    });
  }
  LOD_FN Floats logsumexp(const float* x, int64_t n) const {
    const Floats none = all_lanes(lowest<float>());
    const int64_t last = last_step(n);
    const Floats tail = load(x + last, lanes_of(n - last), none), top = top_of(x, last, tail);
    const auto e = [&](Floats v) LOD_INLINE { return exp_lanes(v == top ? Floats{} : v - top); };
    const Floats total = sum_steps(last, [&](int64_t i) { return e(load(x + i, lanes_of(step()), none)); });
    return top + log_lanes(over_rows<join<Sum>>(total + e(tail)));
  }
  void logsumexp_all(const float* x, const int64_t* offsets, int64_t first, int64_t last, float pad, float* out) const {
    each_group(offsets, first, last, [&](const int64_t* cuts, int64_t s, int64_t count) LOD_INLINE {
      Floats top, sum;
      if (group_sums<true>(x, cuts, top, sum, [](int64_t, Mask, Floats e) LOD_INLINE { return e; })) {
        const Floats v = lengths_at<P>(cuts, LaneIndices{}) == 0 ? all_lanes(pad) : top + log_lanes(sum);
        return store(out + s * width(), lanes_of(count * width()), P == 1 ? v : __builtin_shuffle(v, pack));
      }
      for (int64_t k = 0; k < count; ++k) {
        const int64_t n = (cuts[k + 1] - cuts[k]) * width();
        store(out + (s + k) * width(), lanes_of(width()), n ? logsumexp(x + cuts[k] * width(), n) : all_lanes(pad));
      }
    });
  }
  template <bool kLog>
  LOD_FN void softmax_backward(const float* y, const float* dy, int64_t n, float* dx) const {
    const int64_t last = last_step(n);
    const Mask full = lanes_of(step()), mask = lanes_of(n - last);
    const auto product = [&](int64_t i, Mask some) LOD_INLINE {
      const Floats d = load(dy + i, some, Floats{});
      return kLog ? d : load(y + i, some, Floats{}) * d;
    };
    const Floats total =
        over_rows<join<Sum>>(sum_steps(last, [&](int64_t i) { return product(i, full); }) + product(last, mask));
    const auto put = [&](int64_t i, Mask some) LOD_INLINE {
      const Floats v = load(y + i, some, Floats{}), d = load(dy + i, some, Floats{});
      store(dx + i, some, kLog ? d - exp_lanes(v) * total : v * (d - total));
    };
    each_step(last, [&](int64_t i) LOD_INLINE { put(i, full); });
    put(last, mask);
  }
};

// Calls f with the Narrow for rows of this width, if there is one.
template <class F>
bool narrow(const Exec* exec, int64_t width, int64_t rows, const F& f) {
  if (width > (LOD_LANES == 16 ? 15 : 8) || rows > INT32_MAX) return false;
  if (width == 1) f(Narrow<1>(exec, width));
  else if (width == 2) f(Narrow<2>(exec, width));
  else if (width <= 4) f(Narrow<4>(exec, width));
  else if (width <= 8) f(Narrow<8>(exec, width));
  else f(Narrow<LOD_LANES>(exec, width));
  return true;
}

}  // namespace lod::LOD_LEVEL

#include "core/wide_rows.h"
