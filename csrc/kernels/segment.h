// Shape "segment": a segment of rows becomes one row. Kernel source, see torch_lod/device.h.
//
// Kernels read the rows of a segment in blocks (torch_lod/segment_drivers.h): a result depends neither on the
// segment's neighbours nor on the number of threads. SPDX-License-Identifier: Apache-2.0

#include "kernels/segment_api.h"

#include "core/copy_runs.h"
#include "torch_lod/segment_drivers.h"

namespace lod::LOD_LEVEL {

// What most reductions have in common: one pass, one accumulator, `pad` for an empty segment.
template <class T>
struct Reduction : Rows<T> {
  using A = acc_t<T>;
  static constexpr int kPasses = 1;
  static constexpr bool kByRow = false;
  template <int W>
  struct State {
    A acc[W];
  };
  static LOD_FN void copy(auto& s, int64_t k, const auto& t, int64_t j, bool on = true) {
    s.acc[k] = on ? t.acc[j] : s.acc[k];
  }
  T pad;
  LOD_FN A load(int64_t i) const { return A(this->in[0][i]); }
  template <int>
  LOD_FN void finalize(auto&, int, int64_t) const {}
  LOD_FN void finish(const auto& s, int64_t k, const Range& rows, int64_t to) const {
    this->out[to] = rows.length() ? T(s.acc[k]) : pad;
  }
};

template <class T>
struct Sum : Reduction<T> {
  using A = acc_t<T>;
  template <int>
  LOD_FN void identity(auto& s, int64_t k) const { s.acc[k] = A(0); }
  template <int>
  LOD_FN void accumulate(auto& s, int64_t k, A x, int64_t) const { s.acc[k] += x; }
  template <int>
  LOD_FN void combine(auto& s, int64_t k, const auto& t, int64_t j) const { s.acc[k] += t.acc[j]; }
};
template <class T>
struct Mean : Sum<T> {  // or the sum divided by the root of the length
  Share share;
  template <int>
  LOD_FN void finalize(auto& s, int64_t k, int64_t n) const { s.acc[k] /= divisor<acc_t<T>>(share, n); }
};
template <class T>
struct Prod : Reduction<T> {
  using A = acc_t<T>;
  static constexpr bool kSerial = true;
  template <int>
  LOD_FN void identity(auto& s, int64_t k) const { s.acc[k] = A(1); }
  template <int>
  LOD_FN void accumulate(auto& s, int64_t k, A x, int64_t) const { s.acc[k] *= x; }
  template <int>
  LOD_FN void combine(auto& s, int64_t k, const auto& t, int64_t j) const { s.acc[k] *= t.acc[j]; }
};

// The largest (smallest), and beside it the last NaN, which beats everything: two short chains instead of a long one.
template <class R, class T>
struct Extreme : Reduction<T> {
  using A = acc_t<T>;
  template <int W>
  struct State {
    A best[W], nan[W];
  };
  static LOD_FN void copy(auto& s, int64_t k, const auto& t, int64_t j, bool on = true) {
    s.best[k] = on ? t.best[j] : s.best[k], s.nan[k] = on ? t.nan[j] : s.nan[k];
  }
  template <int>
  LOD_FN void identity(auto& s, int64_t k) const { s.best[k] = R::template none<A>(), s.nan[k] = A(0); }
  template <int>
  LOD_FN void accumulate(auto& s, int64_t k, A x, int64_t) const {
    s.best[k] = R::fast(s.best[k], x);
    s.nan[k] = nan_of(s.nan[k], x);
  }
  template <int>
  LOD_FN void combine(auto& s, int64_t k, const auto& t, int64_t j) const {
    s.best[k] = R::fast(s.best[k], t.best[j]);
    s.nan[k] = nan_of(s.nan[k], t.nan[j]);
  }
  LOD_FN void finish(const auto& s, int64_t k, const Range& rows, int64_t to) const {
    this->out[to] = rows.length() ? T(nan_of(s.best[k], s.nan[k])) : this->pad;
  }
};
// The first of the largest (smallest), or the first NaN, and its row: -1 where none is better than what stands for
// none, so that it is the first row of the segment.
template <class R, class T>
struct ArgExtreme : Reduction<T> {
  using A = acc_t<T>;
  int64_t* index;
  template <int W>
  struct State {
    A best[W];
    int64_t row[W];
  };
  static LOD_FN void copy(auto& s, int64_t k, const auto& t, int64_t j, bool on = true) {
    s.best[k] = on ? t.best[j] : s.best[k], s.row[k] = on ? t.row[j] : s.row[k];
  }
  template <int>
  LOD_FN void identity(auto& s, int64_t k) const { s.best[k] = R::template none<A>(), s.row[k] = -1; }
  template <int>
  LOD_FN void accumulate(auto& s, int64_t k, A x, int64_t row) const {
    const bool take = R::better(x, s.best[k]);
    s.best[k] = take ? x : s.best[k];
    s.row[k] = take ? row : s.row[k];
  }
  template <int>
  LOD_FN void combine(auto& s, int64_t k, const auto& t, int64_t j) const {
    const A a = s.best[k], b = t.best[j];
    const bool same = (a == b) | ((a != a) & (b != b)), take = R::better(b, a) | (same & (t.row[j] < s.row[k]));
    s.best[k] = take ? b : a;
    s.row[k] = take ? t.row[j] : s.row[k];
  }
  LOD_FN void finish(const auto& s, int64_t k, const Range& rows, int64_t to) const {
    this->out[to] = rows.length() ? T(s.best[k]) : this->pad;
    index[to] = rows.length() == 0 ? -1 : s.row[k] < 0 ? rows.begin : s.row[k];
  }
};

struct FirstSegments {
  TileView g;
  int64_t* firsts;
  LOD_FN void operator()(int64_t tile) const {
    int64_t lo = 0, hi = g.segments;
    while (lo < hi) {
      const int64_t mid = (lo + hi) / 2;
      if (g[mid].begin + mid < tile * g.tile_rows) lo = mid + 1;
      else hi = mid;
    }
    firsts[tile] = lo;
  }
};

// -- rows that go with a segment

template <class T>
struct EndKernel {
  EndArguments g;
  T fill;
  LOD_FN int64_t row_of(const Range& rows) const { return g.last ? rows.end - 1 : rows.begin; }
  template <int W>
  LOD_FN void strip(int64_t s, int64_t c) const {
    const Range rows = rows_of(g.offsets, s, g.rows);
    const T* from = static_cast<const T*>(g.values);
    const int64_t at = row_of(rows) * g.width + c;
    T* to = static_cast<T*>(g.out) + s * g.width + c;
    for (int k = 0; k < W; ++k) to[k] = rows.length() ? from[at + k] : fill;
  }
#ifdef LOD_LANES
  void run(int64_t first, int64_t last) const {
    const EndKernel me = *this;
    const T* from = static_cast<const T*>(me.g.values);
    T* to = static_cast<T*>(me.g.out);
    const int64_t width = me.g.width;
    if (me.g.rows == 0) return std::fill(to + first * width, to + last * width, me.fill);
    for (int64_t s = first; s < last; ++s) {
      const Range rows{me.g.offsets[s], me.g.offsets[s + 1]};
      const bool any = rows.length() > 0;
      const T* row = from + (any ? me.row_of(rows) : 0) * width;
      if (width == 1) {  // no branch
        const T value = *row;
        to[s] = any ? value : me.fill;
      } else if (any) copy_bytes(to + s * width, row, width * int64_t(sizeof(T)));
      else std::fill_n(to + s * width, width, me.fill);
    }
  }
#endif
};

// Neighbouring elements as one word of up to 16 bytes.
template <class T, int W>
struct alignas(W * sizeof(T)) Vector {
  T of[W];
};
template <int W, class T>
LOD_FN Vector<T, W> vector_at(const T* values, int64_t i) {
  return *reinterpret_cast<const Vector<T, W>*>(values + i);
}
// On a GPU f.at<W>(s, r, c) for every row r of every segment s, as vectors where rows are made of them.
template <class F, class T, int W>
struct VectorsOfRows {
  using Element = Vector<T, W>;
  static constexpr int kPrefetch = W > 1 ? 2 : 4;  // a segment's are read once from memory
  F f;
  T* out;
  LOD_FN Element value(int64_t s, int64_t r, int64_t c) const { return f.template at<W>(s, r, c * W); }
};
template <int W, class T, template <class> class F>
void each_row_vector(const Exec& exec, const LoDView& g, const F<T>& f) {
  const auto aligned = [](const void* at) { return reinterpret_cast<uintptr_t>(at) % (W * sizeof(T)) == 0; };
  if (g.width % W == 0 && aligned(f.values) && aligned(f.out))
    each_row(exec, {g.offsets, g.segments, g.rows, g.width / W}, VectorsOfRows<F<T>, T, W>{f, f.out});
  else each_row(exec, g, VectorsOfRows<F<T>, T, 1>{f, f.out});
}

// out[r] = values[s], divided as the reduction divides, for the rows r of segment s.
template <class T>
struct BroadcastKernel {
  using A = acc_t<T>;
  LoDView g;
  const T* values;
  T* out;
  Share share;
  LOD_FN T scaled(int64_t i, int64_t length) const { return T(share_of(share, A(values[i]), length)); }
  template <int W>
  LOD_FN Vector<T, W> at(int64_t s, int64_t r, int64_t c) const {
    Vector<T, W> value = vector_at<W>(values, s * g.width + c);
    if constexpr (!std::is_integral_v<T>)  // which have no mean
      if (share != Share::all) {
        const A by = divisor<A>(share, g[s].length());
        for (int k = 0; k < W; ++k) value.of[k] = T(A(value.of[k]) / by);
      }
    return value;
  }
#ifdef LOD_LANES
  // Rows [row, last), the first of them of segment s.
  void rows(int64_t s, int64_t row, int64_t last) const {
    switch (g.width) {
      case 1: return narrow_rows<1>(*this, s, row, last);
      case 2: return narrow_rows<2>(*this, s, row, last);
      case 4: return narrow_rows<4>(*this, s, row, last);
      case 8: return narrow_rows<8>(*this, s, row, last);
      default: return wide_rows(s, row, last);
    }
  }
  void wide_rows(int64_t s, int64_t row, int64_t last) const {
    const int64_t width = g.width;
    for (; row < last; ++s) {
      const int64_t begin = g.offsets[s], length = g.offsets[s + 1] - begin, end = std::min(begin + length, last);
      if (row >= end) continue;
      T* const to = out + row * width;
      for (int64_t c = 0; c < width; ++c) to[c] = scaled(s * width + c, length);
      for (int64_t r = 1; r < end - row; ++r) copy_bytes(to + r * width, to, width * int64_t(sizeof(T)));
      row = end;
    }
  }
  // In whole blocks: the next segment is written over what is behind one.
  template <int W>
  LOD_NOINLINE static void narrow_rows(const BroadcastKernel f, int64_t s, int64_t row, int64_t last) {
    constexpr int64_t block = 64 / sizeof(T);
    const int64_t end = last * W;
    for (int64_t i = row * W; i < end; ++s) {
      const int64_t begin = f.g.offsets[s], length = f.g.offsets[s + 1] - begin;
      const int64_t stop = std::min((begin + length) * W, end);
      if (i >= stop) continue;
      T rows[block];
      for (int64_t k = 0; k < block; ++k) rows[k] = f.scaled(s * W + k % W, length);
      for (; i < stop && i + block <= end; i += block) std::memcpy(f.out + i, rows, sizeof rows);
      for (int64_t k = 0; i < stop; ++i, ++k) f.out[i] = rows[k];
      i = stop;
    }
  }
#endif
};

// out[s, c] = values[index[s, c], c], 0 where index is no row of segment s
template <class T>
struct PickKernel {
  Segments g;
  const T* values;
  const int64_t* index;
  T* out;
  template <int W>
  LOD_FN void strip(int64_t s, int64_t c) const {
    const Range range = rows_of(g.offsets, s, g.rows);
    for (int k = 0; k < W; ++k) {
      const int64_t row = index[s * g.width + c + k];
      out[s * g.width + c + k] = row >= range.begin && row < range.end ? values[row * g.width + c + k] : T(0);
    }
  }
};

// The adjoint: out[r, c] = values[s, c] where index[s, c] = r, else 0.
template <class T>
struct PlaceKernel {
  PickArguments g;
  const T* values;
  T* out;
  LOD_FN int64_t row_at(const Range& rows, int64_t i) const {
    return g.index ? g.index[i] : g.last ? rows.end - 1 : rows.begin;
  }
  template <int W>
  LOD_FN Vector<T, W> at(int64_t s, int64_t r, int64_t c) const {
    const int64_t i = s * g.width + c;
    const Range rows = g[s];
    Vector<T, W> value = vector_at<W>(values, i);
    for (int k = 0; k < W; ++k) value.of[k] = row_at(rows, i + k) == r ? value.of[k] : T(0);
    return value;
  }
#ifdef LOD_LANES
  // Rows [row, last), the first of them of segment s: zeros, then what is among them.
  void rows(int64_t s, int64_t row, int64_t last) const {
    const PlaceKernel me = *this;
    const int64_t width = me.g.width, first = row;
    const int64_t few = 1 + 16384 / (width * int64_t(sizeof(T)) * (me.g.rows / me.g.segments + 1));
    while (row < last) {  // a few segments: then the zeros are still in a cache
      const int64_t next = std::min(s + few, me.g.segments), stop = std::min(me.g.offsets[next], last);
      std::memset(me.out + row * width, 0, size_t((stop - row) * width) * sizeof(T));
      for (row = stop; s < next && me.g.offsets[s] < last; ++s) {
        const Range rows{me.g.offsets[s], me.g.offsets[s + 1]};
        if (rows.length() == 0) continue;
        for (int64_t c = 0, i = s * width; c < width; ++c, ++i) {
          const int64_t at = me.row_at(rows, i);
          if (at >= std::max(first, rows.begin) && at < std::min(last, rows.end)) me.out[at * width + c] = me.values[i];
        }
      }
    }
  }
#endif
};

LOD_ENTRY void segment_reduce(const Exec& exec, DType dtype, Reduce reduce, const ReduceArguments& a) {
  LOD_LOWER_LEVEL(segment_reduce(exec, dtype, reduce, a));
  visit_here(dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    using C = computed_t<T>;
    const Reduction<C> to{{}, C(acc_t<T>(a.pad))};
    const auto by = [&](const auto& k) { reduce_segments<T>(exec, a, {a.values}, a.out, k); };
    if (reduce == Reduce::max) return a.index ? by(ArgExtreme<Max, C>{to, a.index}) : by(Extreme<Max, C>{to});
    if (reduce == Reduce::min) return a.index ? by(ArgExtreme<Min, C>{to, a.index}) : by(Extreme<Min, C>{to});
    if (reduce == Reduce::prod) return by(Prod<C>{to});
    if constexpr (!std::is_integral_v<T>)
      if (share_by(reduce) != Share::all) return by(Mean<C>{{to}, share_by(reduce)});
    by(Sum<C>{to});
  });
}

LOD_ENTRY void first_segments(const Exec& exec, const TileView& g, int64_t* firsts) {
  each(exec, tiles_of(g, g.tile_rows) + 1, 1, FirstSegments{g, firsts});
}

LOD_ENTRY void segment_end(const Exec& exec, const EndArguments& a) {
  visit_words(a.item, [&](auto type) {
    using T = typename decltype(type)::type;
    const EndKernel<T> kernel{a, word<T>(a.fill)};
    if constexpr (kOnGpu) each_strip(exec, a.segments, a.width, kernel);
    else each_part(exec, a.width ? a.segments : 0, a.width, [&](int64_t s, int64_t end) { kernel.run(s, end); });
  });
}

LOD_ENTRY void segment_broadcast(const Exec& exec, DType dtype, Reduce reduce, const BroadcastArguments& a) {
  LOD_LOWER_LEVEL(segment_broadcast(exec, dtype, reduce, a));
  visit_here(dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    const BroadcastKernel<T> kernel{a, static_cast<const T*>(a.values), static_cast<T*>(a.out), share_by(reduce)};
    if constexpr (kOnGpu) each_row_vector<sizeof(T) < 2 ? 8 : 16 / sizeof(T)>(exec, a, kernel);
    else each_row_range(exec, a, [&](int64_t s, int64_t row, int64_t last) { kernel.rows(s, row, last); });
  });
}

LOD_ENTRY void segment_pick(const Exec& exec, DType dtype, const PickArguments& a) {
  LOD_LOWER_LEVEL(segment_pick(exec, dtype, a));
  visit_here(dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    each_strip(exec, a.segments, a.width,
               PickKernel<T>{a, static_cast<const T*>(a.values), a.index, static_cast<T*>(a.out)});
  });
}

LOD_ENTRY void segment_place(const Exec& exec, DType dtype, const PickArguments& a) {
  LOD_LOWER_LEVEL(segment_place(exec, dtype, a));
  visit_here(dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    const PlaceKernel<T> kernel{a, static_cast<const T*>(a.values), static_cast<T*>(a.out)};
    if constexpr (kOnGpu) each_row_vector<sizeof(T) < 4 ? 4 : 16 / sizeof(T)>(exec, a, kernel);
    else each_row_range(exec, a, [&](int64_t s, int64_t row, int64_t last) { kernel.rows(s, row, last); });
  });
}

}  // namespace lod::LOD_LEVEL
