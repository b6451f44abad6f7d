// Shape "segment": a segment of rows becomes one row. Kernel text, see torch_lod/device.h.
//
// What goes over the rows of a segment does so in blocks (core/blocks.h): a result depends neither on the segment's
// neighbours nor on the number of threads.
// SPDX-License-Identifier: Apache-2.0

#ifndef LOD_SEGMENT_ARGUMENTS
#define LOD_SEGMENT_ARGUMENTS
#include "core/block_view.h"
namespace lod {

using Segments = LoDView;
struct ReduceArguments : BlockView {
  const void* values;
  void* out;
  int64_t* index;  // null, or for max and min the row that each result came from
  double pad;
};
struct BroadcastArguments : BlockView {  // out[r] = values[s], divided as the reduction divides
  const void* values;
  void* out;
};
struct EndArguments : Segments {  // out[s] = the first row of the segment, or the last one; fill where it is empty
  const void* values;
  void* out;
  int64_t item;  // bytes of a word (device.h)
  bool last;
  unsigned char fill[16];
};
struct PickArguments : BlockView {  // between out[s, c] and values[index[s, c], c]
  const void* values;
  const int64_t* index;  // segment_place: null for the first or the last row
  void* out;
  bool last = false;
};

}  // namespace lod
#endif

#include "core/blocks.h"
#include "core/copies.h"
#if LOD_LANES >= 8
#include "core/lanes.h"
#endif

namespace lod::LOD_LEVEL {

template <class R, class T>
struct ReduceKernel {
  using Part = acc_t<T>;
  using Element = T;
  static constexpr int kPasses = 1, kRowsIn = 1;
  static constexpr bool kByRow = false;
  BlockView g;
  const T* values;
  T* out;
  T pad;
  Share share;  // of a sum
  LOD_FN const T* rows_in(int) const { return values; }
  LOD_FN void move(T* const* to) { values = to[0]; }
#if LOD_LANES >= 8
  bool run(int64_t first, int64_t last, const Exec* exec = nullptr) const {
    if constexpr (std::is_same_v<T, float>) {
      const auto few = [&](const auto& rows) {
        rows.template reduce_all<R>(values, g.offsets, first, last, share, pad, out);
      };
      if (narrow(exec, g.width, g.rows, few)) return true;
      if (g.width < LOD_LANES) return false;
      Wide<R>{g, values, out, share, pad}.reduce_all(exec, first, last);
      return true;
    }
    return false;
  }
#endif
  template <int>
  static LOD_FN Part join(Part a, Part b) {
    return R::join(a, b);
  }
  template <int, int W>
  LOD_FN void block(const Sequence&, const Range& rows, int64_t c, const Part (*)[W], Part* part) const {
    if constexpr (W >= 4 && R::kOrders && std::is_floating_point_v<Part>) {  // for NaN, beside the fast comparison
      const T* from = values + rows.begin * g.width + c;
      Part best[W], nan[W];
      for (int k = 0; k < W; ++k) nan[k] = best[k] = Part(from[k]);
      for (int64_t r = rows.begin + 1; r < rows.end; ++r) {
        from += g.width;
        for (int k = 0; k < W; ++k) best[k] = R::fast(best[k], Part(from[k]));
        for (int k = 0; k < W; ++k) nan[k] = nan_of(nan[k], Part(from[k]));
      }
      for (int k = 0; k < W; ++k) part[k] = nan_of(best[k], nan[k]);
    } else {
      join_rows<W, R>(g, rows, c, [&](int64_t i, int) LOD_INLINE { return Part(values[i]); }, part);
    }
  }
  template <int W>
  LOD_FN void finish(const Sequence& s, const Range&, int64_t c, const Part (*found)[W]) const {
    T* to = out + s.index * g.width + c;
    if (s.length() == 0)
      for (int k = 0; k < W; ++k) to[k] = pad;
    else if (share == Share::all)
      for (int k = 0; k < W; ++k) to[k] = T(found[0][k]);
    else
      for (int k = 0; k < W; ++k) to[k] = T(share_of(share, found[0][k], s.length()));
  }
};

template <class R, class T>
struct ExtremeKernel {
  struct Part {
    acc_t<T> value;
    int64_t row;
  };
  using Element = T;
  static constexpr int kPasses = 1, kRowsIn = 1;
  static constexpr bool kByRow = false;
  BlockView g;
  const T* values;
  T* out;
  int64_t* index;
  T pad;
  LOD_FN const T* rows_in(int) const { return values; }
  LOD_FN void move(T* const* to) { values = to[0]; }
#if LOD_LANES >= 8
  bool run(int64_t first, int64_t last, const Exec* exec = nullptr) const {
    if constexpr (std::is_same_v<T, float>) {
      const auto few = [&](const auto& rows) {
        rows.extreme_all(values, g.offsets, first, last, std::is_same_v<R, Max> ? 0 : INT32_MIN, pad, out, index);
      };
      if (narrow(exec, g.width, g.rows, few)) return true;
      if (exec || g.width < LOD_LANES || g.rows > INT32_MAX) return false;
      WideExtreme<R>{g, values, out, index, pad}.extreme_all(first, last);
      return true;
    }
    return false;
  }
#endif
  template <int>
  static LOD_FN Part join(const Part& a, const Part& b) {
    return R::better(b.value, a.value) ? b : a;
  }
  template <int, int W>
  LOD_FN void block(const Sequence&, const Range& range, int64_t c, const Part (*)[W], Part* part) const {
    using A = acc_t<T>;
    using I = std::conditional_t<sizeof(A) == 8, int64_t, int32_t>;
    const I rows = I(range.length());
    const T* from = values + range.begin * g.width + c;
    A best[W];
    I where[W];
    constexpr bool watch = W >= 16 && std::is_floating_point_v<A>;
    bool exact = !watch;
    if constexpr (watch) {
      A nan[W];
      for (int k = 0; k < W; ++k) nan[k] = best[k] = A(from[k]), where[k] = 0;
      for (I r = 1; r < rows; ++r)
        for (int k = 0; k < W; ++k) {
          const A v = A(from[r * g.width + k]), best_yet = R::fast(best[k], v);
          where[k] = best_yet != best[k] ? r : where[k];
          best[k] = best_yet;
          nan[k] = nan_of(nan[k], v);
        }
      for (int k = 0; k < W; ++k) exact |= nan[k] != nan[k];
    }
    if (exact) {  // with an eye on which NaN is the first
      for (int k = 0; k < W; ++k) best[k] = A(from[k]), where[k] = 0;
      for (I r = 1; r < rows; ++r)
        for (int k = 0; k < W; ++k) {
          const A v = A(from[r * g.width + k]);
          const bool take = R::better(v, best[k]);
          best[k] = take ? v : best[k];
          where[k] = take ? r : where[k];
        }
    }
    for (int k = 0; k < W; ++k) part[k] = {best[k], range.begin + where[k]};
  }
  template <int W>
  LOD_FN void finish(const Sequence& s, const Range&, int64_t c, const Part (*found)[W]) const {
    const int64_t to = s.index * g.width + c;
    for (int k = 0; k < W; ++k) {
      out[to + k] = s.length() ? T(found[0][k].value) : pad;
      index[to + k] = s.length() ? found[0][k].row : -1;
    }
  }
};

template <class T>
struct EndKernel {
  static constexpr int64_t kAhead = 16;  // segments
  static constexpr int64_t kPage = 4096;
  EndArguments g;
  T fill;
  T* to() const { return static_cast<T*>(g.out); }
  bool run(int64_t first, int64_t stop) const {
    const int64_t bytes = g.width * int64_t(sizeof(T));
    if (g.rows == 0) std::fill(to() + first * g.width, to() + stop * g.width, fill);
    else if (g.width == 1) each<sizeof(T)>(*this, first, stop);
    else if (bytes == 32) each<32>(*this, first, stop);
    else if (bytes == 64) each<64>(*this, first, stop);
    else each<0>(*this, first, stop);
    return true;
  }
  // Rows of kBytes, if that is not 0. On its own: among the code for others the loop has too few registers.
  template <int kBytes>
  LOD_APART static void each(const EndKernel& k, int64_t first, int64_t stop) {
    const EndArguments a = k.g;
    const T fill = k.fill, *from = static_cast<const T*>(a.values);
    const int64_t width = kBytes ? kBytes / int64_t(sizeof(T)) : a.width, bytes = width * int64_t(sizeof(T));
    const bool apart = a.rows * bytes >= kPage / 2 * a.segments;  // rows farther apart than processors foresee
    T* to = k.to();
    int64_t begin = a.offsets[first];
    for (int64_t s = first; s < stop; ++s) {
      const int64_t end = a.offsets[s + 1], row = a.last ? end - 1 : begin;
      const bool there = begin < end;
      if (apart && s + kAhead < stop)
        fetch<1>(reinterpret_cast<uintptr_t>(from + (a.offsets[s + kAhead + a.last] - a.last) * width));
      if constexpr (kBytes == sizeof(T)) {  // no branch
        const T value = from[there ? row : 0];
        to[s] = there ? value : fill;
      } else if (!there) {
        for (int64_t i = s * width; i < (s + 1) * width; ++i) to[i] = fill;
      } else if constexpr (kBytes) {
        copy_block<kBytes>(to + s * width, from + row * width);
      } else {
        copy_bytes(to + s * width, from + row * width, bytes);
      }
      begin = end;
    }
  }
  template <int W>
  LOD_FN void strip(int64_t s, int64_t c) const {
    const Range range = rows_of(g.offsets, s, g.rows);
    const T* from = static_cast<const T*>(g.values) + (g.last ? range.end - 1 : range.begin) * g.width + c;
    T* to = static_cast<T*>(g.out) + s * g.width + c;
    for (int k = 0; k < W; ++k) to[k] = range.length() ? from[k] : fill;
  }
};

template <class T>
struct BroadcastKernel {
  using Part = acc_t<T>;
  static constexpr int kPasses = 0;
  static constexpr bool kByRow = true;
  BlockView g;
  const T* values;
  T* out;
  Share share;
  // Rows that a block has room for several of, as whole blocks: the next segment is written over what is behind one.
  bool run(int64_t first, int64_t last) const {
    switch (g.width) {
      case 1: return in_whole_blocks<1>(*this, first, last), true;
      case 2: return in_whole_blocks<2>(*this, first, last), true;
      case 4: return in_whole_blocks<4>(*this, first, last), true;
      case 8: return in_whole_blocks<8>(*this, first, last), true;
      default: return false;
    }
  }
  template <int W>
  LOD_APART static void in_whole_blocks(const BroadcastKernel& f, int64_t first, int64_t last) {
    constexpr int64_t block = 64 / sizeof(T);
    const int64_t *offsets = f.g.offsets, end = offsets[last] * W;
    const T* from = f.values;
    T* to = f.out;
    const Share share = f.share;
    for (int64_t s = first; s < last; ++s) {
      int64_t i = offsets[s] * W;
      const int64_t stop = offsets[s + 1] * W, length = stop > i ? (stop - i) / W : 1;
      constexpr int unit = W == 1 ? int(block) : W;  // what one store takes: a vector of one number, or a row
      T row[unit];
      for (int k = 0; k < unit; ++k) row[k] = T(share_of(share, Part(from[s * W + k % W]), length));
      const Held<sizeof row> held(row);
      for (; i < stop && i + block <= end; i += block)
        for (int64_t k = 0; k < block; k += unit) held.store(to + i + k);
      for (int k = 0; i < stop; ++i, ++k) to[i] = row[k % unit];
    }
  }
  template <int W>
  LOD_FN void strip(int64_t s, int64_t r, int64_t c) const {  // of one row
    const Part value = Part(values[s * g.width + c]);
    out[r * g.width + c] = T(share_of(share, value, rows_of(g.offsets, s, g.rows).length()));
  }
  template <int W>
  LOD_FN void finish(const Sequence& s, const Range& rows, int64_t c, const Part (*)[W]) const {
    T row[W];
    for (int k = 0; k < W; ++k) row[k] = T(share_of(share, Part(values[s.index * g.width + c + k]), s.length()));
    if (W == 1 && g.width == 1) {
      for (int64_t r = rows.begin; r < rows.end; ++r) out[r] = row[0];
      return;
    }
    for (int64_t r = rows.begin; r < rows.end; ++r)
      for (int k = 0; k < W; ++k) out[r * g.width + c + k] = row[k];
  }
};

// out[r] = values[s], of rows that are worth a call of memcpy
template <class T>
struct RepeatKernel {
  const T* values;
  T* out;
  int64_t width;
  template <int W>
  LOD_FN void strip(int64_t s, int64_t r, int64_t c) const {
    for (int k = 0; k < W; ++k) out[r * width + c + k] = values[s * width + c + k];
  }
  LOD_FN void part(int64_t s, int64_t begin, int64_t end) const {
    for (int64_t r = begin; r < end; ++r) copy_bytes(out + r * width, values + s * width, width * sizeof(T));
  }
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
  using Part = T;
  static constexpr int kPasses = 0;
  static constexpr bool kByRow = true;
  static constexpr int64_t kFew = 256;  // numbers
  PickArguments g;
  const T* values;
  T* out;
  LOD_FN int64_t row_at(const Range& range, int64_t i) const {
    return g.index ? g.index[i] : g.last ? range.end - 1 : range.begin;
  }
  // Whole rows, and numbers of narrow ones: the zeros of a few segments, then what is among them. So few that a memset
  // writes them by its own loop: what it leaves to the processor is slow to be written again.
  bool run(int64_t first, int64_t last) const {
    const PickArguments a = g;
    if (a.index && a.width >= 16) return false;
    if (a.rows == 0) return true;  // there may be no memory to write to
    T* const to = out;
    const T* const from = values;
    const int64_t *offsets = a.offsets, *at = offsets + int64_t(a.last);
    if (!a.index && a.width == 1) return single(offsets, a.last, from, to, first, last), true;
    while (first < last) {
      int64_t end = first + 1;
      while (end < last && (offsets[end + 1] - offsets[first]) * a.width <= kFew) ++end;
      std::memset(to + offsets[first] * a.width, 0, size_t((offsets[end] - offsets[first]) * a.width) * sizeof(T));
      for (; first < end; ++first) {
        const Range range{offsets[first], offsets[first + 1]};
        if (!a.index) {
          T* const row = to + (at[first] - int64_t(a.last)) * a.width;
          if (range.length()) copy_bytes(row, from + first * a.width, a.width * int64_t(sizeof(T)));
          continue;
        }
        for (int64_t c = 0, i = first * a.width; c < a.width; ++c, ++i) {
          const int64_t row = a.index[i];
          if (row >= range.begin && row < range.end) to[row * a.width + c] = from[i];
        }
      }
    }
    return true;
  }
  // The same of rows of one number, on its own as in EndKernel.
  LOD_APART static void single(const int64_t* offsets, bool at_end, const T* from, T* to, int64_t first, int64_t last) {
    for (int64_t begin = offsets[first]; first < last;) {
      int64_t end = first + 1, stop = offsets[end];
      for (; end < last && offsets[end + 1] - begin <= kFew; ++end) stop = offsets[end + 1];
      std::memset(to + begin, 0, size_t(stop - begin) * sizeof(T));
      for (; first < end; ++first) {
        const int64_t next = offsets[first + 1];
        if (begin < next) to[at_end ? next - 1 : begin] = from[first];
        begin = next;
      }
    }
  }
  template <int W>
  LOD_FN void finish(const Sequence& s, const Range& rows, int64_t c, const Part (*)[W]) const {
    const T* from = values + s.index * g.width + c;
    for (int64_t block = rows.begin; block < rows.end; block += kBlock) {
      const int32_t length = int32_t(block + kBlock < rows.end ? kBlock : rows.end - block);
      T* to = out + block * g.width + c;
      T value[W];
      int32_t where[W];
      for (int k = 0; k < W; ++k) {
        const int64_t row = row_at(s, s.index * g.width + c + k);
        value[k] = from[k];
        where[k] = row >= block && row < block + length ? int32_t(row - block) : -1;
      }
      for (int32_t r = 0; r < length; ++r, to += g.width)
        for (int k = 0; k < W; ++k) to[k] = where[k] == r ? value[k] : T(0);
    }
  }
};

template <class F>
void visit_reducer(Reduce reduce, const F& f) {
  switch (reduce) {
    case Reduce::prod: return f(Type<Prod>{});
    case Reduce::max: return f(Type<Max>{});
    case Reduce::min: return f(Type<Min>{});
    default: return f(Type<Sum>{});
  }
}

template <class R, class T>
void reduce_as(const Exec& exec, Share share, const ReduceArguments& a) {
  const auto* values = static_cast<const T*>(a.values);
  auto* out = static_cast<T*>(a.out);
  if constexpr (std::is_same_v<R, Max> || std::is_same_v<R, Min>) {
    if (a.index) return each_in_blocks(exec, ExtremeKernel<R, T>{a, values, out, a.index, T(a.pad)});
  }
  each_in_blocks(exec, ReduceKernel<R, T>{a, values, out, T(a.pad), share});
}

LOD_ENTRY void segment_reduce(const Exec& exec, DType dtype, Reduce reduce, const ReduceArguments& a) {
  LOD_WHOLE(segment_reduce(exec, dtype, reduce, a));
  visit_reducer(reduce, [&](auto reducer) {
    visit_here(dtype, [&](auto type) {
      reduce_as<typename decltype(reducer)::type, typename decltype(type)::type>(exec, share_by(reduce), a);
    });
  });
}

LOD_ENTRY void segment_end(const Exec& exec, const EndArguments& a) {
  visit_words(a.item, [&](auto type) {
    using T = typename decltype(type)::type;
    each_strip(exec, a.segments, a.width, EndKernel<T>{a, word<T>(a.fill)});
  });
}

LOD_ENTRY void segment_broadcast(const Exec& exec, DType dtype, Reduce reduce, const BroadcastArguments& a) {
  LOD_WHOLE(segment_broadcast(exec, dtype, reduce, a));
  visit_here(dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    const auto* values = static_cast<const T*>(a.values);
    auto* out = static_cast<T*>(a.out);
    const BroadcastKernel<T> kernel{a, values, out, share_by(reduce)};
    if constexpr (kOnGpu) {
      if (a.width < 4) return each_row(exec, a, kernel);  // threads that go along a segment would write far apart
    } else if (kernel.share == Share::all && a.width >= 128) {
      return each_row(exec, a, RepeatKernel<T>{values, out, a.width});
    }
    each_in_blocks(exec, kernel);
  });
}

LOD_ENTRY void segment_pick(const Exec& exec, DType dtype, const PickArguments& a) {
  LOD_WHOLE(segment_pick(exec, dtype, a));
  visit_here(dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    each_strip(exec, a.segments, a.width,
               PickKernel<T>{a, static_cast<const T*>(a.values), a.index, static_cast<T*>(a.out)});
  });
}

LOD_ENTRY void segment_place(const Exec& exec, DType dtype, const PickArguments& a) {
  LOD_WHOLE(segment_place(exec, dtype, a));
  visit_here(dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    each_in_blocks(exec, PlaceKernel<T>{a, static_cast<const T*>(a.values), static_cast<T*>(a.out)});
  });
}

}  // namespace lod::LOD_LEVEL
