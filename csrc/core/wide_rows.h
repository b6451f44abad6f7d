// Rows of a register of floats and more: the CPU's reductions, softmax and logsumexp of them. A strip of several
// registers goes from the first row of a segment to the last; the last strip of a row is under a mask. Kernel text for
// core/lanes.h, which includes it.
//
// A long segment is done in blocks of kBlock rows, what they come to is joined in order: the threads of an exec share
// them. So a result depends on the rows of its own segment alone. SPDX-License-Identifier: Apache-2.0

namespace lod::LOD_LEVEL {

// f<N>(c, mask) for strips of N registers of a row, from channel c on, N as large as there are channels for; where N is
// 1 some lanes may not be channels.
template <int N, class F>
LOD_FN void each_wide_strip(int64_t width, const F& f, int64_t c = 0) {
  for (; c + N * LOD_LANES <= width; c += N * LOD_LANES) f.template operator()<N>(c, lanes_of(LOD_LANES));
  if constexpr (N > 1) each_wide_strip<N / 2>(width, f, c);
  else if (c < width) f.template operator()<1>(c, lanes_of(width - c));
}
template <int N, bool kFirst = false>
LOD_FN Floats load_of(const float* p, int i, Mask mask, Floats rest) {
  if constexpr (N == 1) return load(p, mask, rest);
  else return kFirst ? load_first(p + i * LOD_LANES) : unaligned<Floats>(p + i * LOD_LANES);
}
template <int N>
LOD_FN void store_of(float* p, int i, Mask mask, Floats v) {
  if constexpr (N == 1) store(p, mask, v);
  else std::memcpy(p + i * LOD_LANES, &v, sizeof v);
}

template <int N>
LOD_FN void load_all(const float* p, Mask mask, Floats* to) {
  LOD_UNROLLED for (int i = 0; i < N; ++i) to[i] = load_of<N>(p, i, mask, Floats{});
}
template <int N>
LOD_FN void store_all(float* p, Mask mask, const Floats* v) {
  LOD_UNROLLED for (int i = 0; i < N; ++i) store_of<N>(p, i, mask, v[i]);
}

// As many registers of each row as there is room for.
template <class R>
struct Wide {
  static constexpr int kMost = LOD_LANES == 16 ? 16 : 8;
  LoDView g;
  const float* values;
  float* out;
  Share share;
  float pad;

  // N registers of each of n rows, joined and divided; where it is one, the lanes under the mask.
  template <int N>
  LOD_FN void strip(const float* from, int64_t n, Mask mask, float over, float* to) const {
    Floats total[N];
    LOD_UNROLLED for (int i = 0; i < N; ++i) total[i] = all_lanes(R::template none<float>());
    const Floats none = total[0];
    for (; n > 0; --n, from += g.width)
      LOD_UNROLLED for (int i = 0; i < N; ++i) total[i] = join<R>(total[i], load_of<N, true>(from, i, mask, none));
    if (over != 1)
      LOD_UNROLLED for (int i = 0; i < N; ++i) total[i] /= over;
    store_all<N>(to, mask, total);
  }
  LOD_FN void strips(const float* from, int64_t n, float over, float* to) const {
    each_wide_strip<kMost>(g.width, [&]<int N>(int64_t c, Mask mask) LOD_INLINE {
      strip<N>(from + c, n, mask, over, to + c);
    });
  }
  __attribute__((noinline)) void long_segment(const Exec* exec, const float* from, int64_t n, float over,
                                              float* to) const {
    const int64_t blocks = (n + kBlock - 1) / kBlock;
    const Memory<float> parts(blocks * g.width);
    each(exec ? *exec : kAlone, blocks, kBlock * g.width, [&](int64_t b) LOD_INLINE {
      const int64_t left = n - b * kBlock;
      strips(from + b * kBlock * g.width, left < kBlock ? left : kBlock, 1, parts.data() + b * g.width);
    });
    strips(parts.data(), blocks, over, to);
  }
  LOD_APART void reduce_all(const Exec* exec, int64_t first, int64_t last) const {
    for (; first < last; ++first) {
      const Sequence s = g[first];
      const int64_t n = s.length();
      const float* from = values + s.begin * g.width;
      float* to = out + first * g.width;
      const float over = divisor<float>(share, n);
      if (n == 0) std::fill(to, to + g.width, pad);
      else if (n <= kBlock) strips(from, n, over, to);
      else long_segment(exec, from, n, over, to);
    }
  }
};

// The same for the first row that attains the maximum (minimum), and its number.
template <class R>
struct WideExtreme {
  static constexpr int kMost = LOD_LANES == 16 ? 8 : 4;
  LoDView g;
  const float* values;
  float* out;
  int64_t* index;
  float pad;

  template <int N, bool kExact = false>
  LOD_FN void strip(const Sequence& s, int64_t c, Mask mask) const {
    const float* from = values + s.begin * g.width + c;
    const auto row = [&](int i) LOD_INLINE { return load_of<N, true>(from, i, mask, Floats{}); };
    Floats best[N], sum[N];  // a sum is NaN where a number is
    Ints where[N];
    LOD_UNROLLED for (int i = 0; i < N; ++i) sum[i] = best[i] = row(i), where[i] = Ints{};
    for (int32_t r = 1, n = int32_t(s.length()); r < n; ++r) {
      from += g.width;
      LOD_UNROLLED for (int i = 0; i < N; ++i) {
        const Floats v = row(i);
        Ints take = std::is_same_v<R, Max> ? v > best[i] : v < best[i];
        if constexpr (kExact) take |= (v != v) & (best[i] == best[i]);
        else sum[i] += v;
        best[i] = take ? v : best[i];
        where[i] = take ? Ints{} + r : where[i];
      }
    }
    if constexpr (!kExact) {
      LOD_UNROLLED for (int i = 1; i < N; ++i) sum[0] += sum[i];
      if (__builtin_expect(any_nan(sum[0]), 0)) return strip<N, true>(s, c, mask);
    }
    const int64_t to = s.index * g.width + c, left = g.width - c, lanes = N > 1 || left > LOD_LANES ? LOD_LANES : left;
    LOD_UNROLLED for (int i = 0; i < N; ++i) {
      store(out + to + i * LOD_LANES, mask, best[i]);
      int32_t rows[LOD_LANES];
      std::memcpy(rows, &where[i], sizeof rows);
      for (int64_t l = 0; l < lanes; ++l) index[to + i * LOD_LANES + l] = s.begin + rows[l];
    }
  }
  LOD_APART void extreme_all(int64_t first, int64_t last) const {
    for (; first < last; ++first) {
      const Sequence s = g[first];
      if (s.length())
        each_wide_strip<kMost>(g.width, [&]<int N>(int64_t c, Mask mask) LOD_INLINE { strip<N>(s, c, mask); });
      else std::fill_n(out + first * g.width, g.width, pad), std::fill_n(index + first * g.width, g.width, -1);
    }
  }
};

// Softmax, its logarithm, and the logarithm of its sum: first the largest of each channel, then the sum of e^(x - top).
enum class Soft { max, log_max, log_sum };
template <Soft kWhat>
struct WideSoftmax {
  static constexpr int kMost = LOD_LANES == 16 ? 8 : 4;
  static constexpr bool kKeeps = kWhat == Soft::max;  // e^(x - top), where the results go
  LoDView g;
  const float* values;
  float* out;
  float pad;

  template <int N>
  LOD_FN void top_of(const float* x, int64_t n, Mask mask, Floats* top) const {
    const Floats none = all_lanes(lowest<float>());
    LOD_UNROLLED for (int i = 0; i < N; ++i) top[i] = none;
    for (; n > 0; --n, x += g.width)
      LOD_UNROLLED for (int i = 0; i < N; ++i) top[i] = larger(top[i], load_of<N>(x, i, mask, none));
  }
  template <int N>
  LOD_FN void sum_of(const float* x, int64_t n, Mask mask, const Floats* top, Floats* sum, float* y) const {
    LOD_UNROLLED for (int i = 0; i < N; ++i) sum[i] = Floats{};
    const uintptr_t ahead = uintptr_t(n * g.width) * sizeof(float);  // where the next segment is
    for (; n > 0; --n, x += g.width, y += g.width) {
      LOD_UNROLLED for (int i = 0; i < N; ++i) {
        fetch<64>(reinterpret_cast<uintptr_t>(x + i * LOD_LANES) + ahead);
        const Floats v = load_of<N>(x, i, mask, top[i]);
        // Infinities meet as equals, so that their difference is not NaN.
        const Floats e = exp_lanes(kWhat == Soft::log_sum && v == top[i] ? Floats{} : v - top[i]);
        sum[i] += e;
        if constexpr (kKeeps) store_of<N>(y, i, mask, e);
      }
    }
  }
  template <int N>
  LOD_FN void put(const float* x, int64_t n, Mask mask, const Floats* top, const Floats* sum, float* y) const {
    Floats by[N];
    LOD_UNROLLED for (int i = 0; i < N; ++i) by[i] = kKeeps ? 1.f / sum[i] : log_lanes(sum[i]);
    if constexpr (kWhat == Soft::log_sum) {
      LOD_UNROLLED for (int i = 0; i < N; ++i) store_of<N>(y, i, mask, top[i] + by[i]);
    } else {
      for (; n > 0; --n, x += g.width, y += g.width)
        LOD_UNROLLED for (int i = 0; i < N; ++i) {
          const Floats v = load_of<N>(kKeeps ? y : x, i, mask, Floats{});
          store_of<N>(y, i, mask, kKeeps ? v * by[i] : (v - top[i]) - by[i]);
        }
    }
  }
  template <class F>
  LOD_FN void strips(const F& f) const {
    each_wide_strip<kMost>(g.width, f);
  }
  LOD_FN void short_segment(const float* x, int64_t n, float* y) const {
    strips([&]<int N>(int64_t c, Mask mask) LOD_INLINE {
      Floats top[N], sum[N];
      top_of<N>(x + c, n, mask, top);
      sum_of<N>(x + c, n, mask, top, sum, y + c);
      put<N>(x + c, n, mask, top, sum, y + c);
    });
  }
  __attribute__((noinline)) void long_segment(const Exec* exec, const float* x, int64_t n, float* y) const {
    const int64_t blocks = (n + kBlock - 1) / kBlock, step = kBlock * g.width;
    const Memory<float> tops((blocks + 1) * g.width), sums((blocks + 1) * g.width);  // of all, then of each block
    // f<N>(b, rows of it, c, mask) for all strips of all blocks.
    const auto each_block = [&](const auto& f) LOD_INLINE {
      each(exec ? *exec : kAlone, blocks, step, [&](int64_t b) LOD_INLINE {
        const int64_t left = n - b * kBlock;
        strips([&]<int N>(int64_t c, Mask mask) LOD_INLINE {
          f.template operator()<N>(b, left < kBlock ? left : kBlock, c, mask);
        });
      });
    };
    each_block([&]<int N>(int64_t b, int64_t rows, int64_t c, Mask mask) LOD_INLINE {
      Floats top[N];
      top_of<N>(x + b * step + c, rows, mask, top);
      store_all<N>(tops.data() + (b + 1) * g.width + c, mask, top);
    });
    strips([&]<int N>(int64_t c, Mask mask) LOD_INLINE {
      Floats top[N];
      top_of<N>(tops.data() + g.width + c, blocks, mask, top);
      store_all<N>(tops.data() + c, mask, top);
    });
    each_block([&]<int N>(int64_t b, int64_t rows, int64_t c, Mask mask) LOD_INLINE {
      Floats top[N], sum[N];
      load_all<N>(tops.data() + c, mask, top);
      sum_of<N>(x + b * step + c, rows, mask, top, sum, y + b * step + c);
      store_all<N>(sums.data() + (b + 1) * g.width + c, mask, sum);
    });
    Wide<Sum>{g, nullptr, nullptr, Share::all, 0}.strips(sums.data() + g.width, blocks, 1, sums.data());
    const auto finish = [&]<int N>(int64_t b, int64_t rows, int64_t c, Mask mask) LOD_INLINE {
      Floats top[N], sum[N];
      load_all<N>(tops.data() + c, mask, top);
      load_all<N>(sums.data() + c, mask, sum);
      put<N>(x + b * step + c, rows, mask, top, sum, y + b * step + c);
    };
    if constexpr (kWhat != Soft::log_sum) each_block(finish);
    else strips([&]<int N>(int64_t c, Mask mask) LOD_INLINE { finish.template operator()<N>(0, 0, c, mask); });
  }
  LOD_APART void all(const Exec* exec, int64_t first, int64_t last) const {
    for (; first < last; ++first) {
      const Sequence s = g[first];
      const float* x = values + s.begin * g.width;
      float* y = out + (kWhat == Soft::log_sum ? first : s.begin) * g.width;
      if (s.length() > kBlock) long_segment(exec, x, s.length(), y);
      else if (s.length()) short_segment(x, s.length(), y);
      else if (kWhat == Soft::log_sum) std::fill(y, y + g.width, pad);
    }
  }
};

}  // namespace lod::LOD_LEVEL
