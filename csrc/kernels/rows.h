// Shape "rows": for every output row, the input row that it copies (-1: none). Kernel source, see torch_lod/device.h.
// SPDX-License-Identifier: Apache-2.0

#include "kernels/rows_api.h"

#include "core/copy_runs.h"

namespace lod::LOD_LEVEL {

struct RunMapKernel : RunMap {
  using Element = int64_t;
  LOD_FN int64_t elsewhere(int64_t s, int64_t n) const {  // sums of what is far out of range wrap
    return int64_t(uint64_t(starts[s]) + uint64_t(step) * uint64_t(n));
  }
  LOD_FN int64_t value(int64_t s, int64_t r, int64_t) const {
    return elsewhere(s, r - rows_of(offsets, s, rows).begin);
  }
  template <int>
  LOD_FN void strip(int64_t s, int64_t) const {
    const Range range = rows_of(offsets, s, rows);
    for (int64_t r = range.begin; r < range.end; ++r) out[r] = elsewhere(s, r - range.begin);
  }
};

template <class T>
struct GatherKernel {
  using Element = T;
  static constexpr int kPrefetch = 4;  // an entry of the map and an element each
  const T* values;
  const int64_t* map;
  T* out;
  int64_t rows, width;
  T fill;
  LOD_FN T value(int64_t i, int64_t c) const {
    const int64_t row = map[i];
    return row >= 0 && row < rows ? values[row * width + c] : fill;
  }
#ifdef LOD_LANES
  // Rows of one element: no branch.
  static void column(const GatherKernel g, int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      const auto row = uint64_t(g.map[i]);
      const bool there = row < uint64_t(g.rows);
      const T value = g.values[there ? row : 0];
      g.out[i] = there ? value : g.fill;
    }
  }
  template <int W>
  void strip(int64_t i, int64_t c) const {
    const int64_t row = map[i];
    T* to = out + i * width + c;
    if (row >= 0 && row < rows) {
      const T* from = values + row * width + c;
      for (int k = 0; k < W; ++k) to[k] = from[k];
    } else {
      for (int k = 0; k < W; ++k) to[k] = fill;
    }
  }
#endif
};

template <class T>
struct SumListsKernel {
  const T* values;
  const int64_t* lists;
  const int64_t* order;
  T* out;
  int64_t width;
  T fill;
  template <int W>
  LOD_FN void strip(int64_t i, int64_t c) const {
    T* to = out + i * width + c;
    if (lists[i] >= lists[i + 1]) {
      for (int k = 0; k < W; ++k) to[k] = fill;
      return;
    }
    acc_t<T> sum[W];
    for (int k = 0; k < W; ++k) sum[k] = 0;
    for (int64_t j = lists[i]; j < lists[i + 1]; ++j) {
      const int64_t row = order[j];
      const T* from = values + row * width + c;
      for (int k = 0; k < W; ++k) sum[k] += acc_t<T>(from[k]);
    }
    for (int k = 0; k < W; ++k) to[k] = T(sum[k]);
  }
};

// CopyRuns on a GPU, in each of its directions.
template <class T>
struct GatherRunsKernel : CopyRuns {
  using Element = T;
  LOD_FN T value(int64_t s, int64_t r, int64_t c) const {
    const int64_t row = elsewhere(s, r);
    return row < 0 || row >= there ? T{} : static_cast<const T*>(values)[row * width + c];
  }
};
template <class T>
struct ScatterRunsKernel : CopyRuns {
  using Element = T;
  const T* values;
  LOD_FN void put(int64_t s, int64_t r, int64_t c, const T& value) const {
    const int64_t row = elsewhere(s, r);
    if (row >= 0 && row < there) static_cast<T*>(out)[row * width + c] = value;
  }
};

// CopyRuns on the CPU.
template <class T>
struct CopyRunsKernel : CopyRuns {
  T filler;
#ifdef LOD_LANES
  void some_rows(int64_t s, int64_t row, int64_t last) const {
    if (!gather) scatter(s, row, last);
    else if (step == 1) gather_forwards(*this, s, row, last);
    else gather_in_reverse(s, row, last);
  }

 private:
  static void gather_forwards(const CopyRuns a, int64_t s, int64_t row, int64_t last) {
    const int64_t bytes = a.width * int64_t(sizeof(T));
    const auto *from = static_cast<const unsigned char*>(a.values), *from_end = from + a.there * bytes;
    auto *to = static_cast<unsigned char*>(a.out), *to_end = to + last * bytes;
    for (; row < last; ++s) {
      const int64_t end = std::min(a.offsets[s + 1], last);
      if (row >= end) continue;
      const auto* run = from + (a.starts[s] + row - a.offsets[s]) * bytes;
      copy_run(to + row * bytes, run, (end - row) * bytes, to_end, from_end);
      row = end;
    }
  }
  void gather_in_reverse(int64_t s, int64_t row, int64_t last) const {
    const auto* from = static_cast<const T*>(values);
    for (auto* to = static_cast<T*>(out); row < last; ++s) {
      const int64_t end = std::min(offsets[s + 1], last);
      if (row >= end) continue;
      reverse_run(to + row * width, from + (starts[s] - (row - offsets[s])) * width, end - row, width);
      row = end;
    }
  }
  // Elsewhere, the lowest row of a run, and the one behind the highest.
  int64_t low(int64_t s) const { return step == 1 ? starts[s] : starts[s] - (offsets[s + 1] - offsets[s] - 1); }
  int64_t high(int64_t s) const { return low(s) + (offsets[s + 1] - offsets[s]); }
  // Where the run before that of s has ended, if runs are in the order of their segments.
  int64_t end_before(int64_t s) const {
    while (--s >= 0)
      if (offsets[s] < offsets[s + 1]) return high(s);
    return 0;
  }
  void scatter(int64_t s, int64_t row, int64_t last) const {
    const CopyRunsKernel a = *this;
    const int64_t unit = a.width * int64_t(sizeof(T));
    const auto* from = static_cast<const T*>(a.values);
    auto* to = static_cast<T*>(a.out);
    const auto* from_end = reinterpret_cast<const unsigned char*>(from + a.rows * a.width);
    // what is written in order may be written over, up to the last row that is ours
    const bool in_order = a.step == 1 && a.fills && !a.taken;
    const int64_t last_run = segment_of(a.offsets, a.segments, last - 1);
    const int64_t ours = in_order ? a.starts[last_run] + last - a.offsets[last_run] : 0;
    const auto* to_end = reinterpret_cast<unsigned char*>(to + ours * a.width);
    int64_t before = a.fills && !a.taken ? a.end_before(s) : 0;
    for (; row < last; ++s) {
      const int64_t begin = a.offsets[s], end = std::min(a.offsets[s + 1], last);
      if (row >= end) continue;
      const int64_t done = row - begin, n = end - row;
      if (a.fills && done == 0) {
        const int64_t gap = a.taken ? a.taken[s] : before;
        fill_run(to + gap * a.width, (a.low(s) - gap) * a.width, a.filler, to_end);
      }
      before = a.high(s);
      if (a.step == 1) copy_run(to + (a.starts[s] + done) * a.width, from + row * a.width, n * unit, to_end, from_end);
      else reverse_run(to + (a.starts[s] - done - n + 1) * a.width, from + (end - 1) * a.width, n, a.width);
      row = end;
    }
  }
#endif
};

// out[r] is row p of its segment: of values where there is one, then of others.
template <class T>
struct JoinRunsKernel : JoinRuns {
  using Element = T;
  LOD_FN T value(int64_t s, int64_t r, int64_t c) const {
    const Range mine = rows_of(own, s, rows_in), theirs = rows_of(other, s, others_in);
    const int64_t p = wrapping_sub(r, offsets[s]), beyond = wrapping_sub(p, mine.length());
    if (p < 0 || beyond >= theirs.length()) return T{};
    const T* from = beyond < 0 ? static_cast<const T*>(values) + (mine.begin + p) * width
                               : static_cast<const T*>(others) + (theirs.begin + beyond) * width;
    return from[c];
  }
#ifdef LOD_LANES
  void some_rows(int64_t s, int64_t row, int64_t last) const {
    const JoinRuns a = *this;
    const int64_t bytes = a.width * int64_t(sizeof(T));
    const auto *x = static_cast<const unsigned char*>(a.values), *x_end = x + a.rows_in * bytes;
    const auto *y = static_cast<const unsigned char*>(a.others), *y_end = y + a.others_in * bytes;
    auto *to = static_cast<unsigned char*>(a.out), *to_end = to + last * bytes;
    for (; row < last; ++s) {
      const int64_t shift = a.own[s] - a.offsets[s], middle = a.own[s + 1] - shift;
      const int64_t end = std::min(a.offsets[s + 1], last), half = std::min(middle, end);
      if (row < half) copy_run(to + row * bytes, x + (row + shift) * bytes, (half - row) * bytes, to_end, x_end);
      row = std::max(row, half);
      const int64_t theirs = a.other[s] + row - middle;
      if (row < end) copy_run(to + row * bytes, y + theirs * bytes, (end - row) * bytes, to_end, y_end);
      row = std::max(row, end);
    }
  }
#endif
};

template <class T>
struct UnfoldKernel : Windows {
  using Element = T;
  static constexpr int kPrefetch = 4;  // the rows of a window are read for others too
  const T* values;
  T* out;
  T fill;
  Divisor by_width{width};
  LOD_FN T value(int64_t s, int64_t r, int64_t c) const {  // c: of all rows of the window
    const Range range = rows_of(offsets, s, rows);
    const int64_t j = by_width.quotient(c), row = r + start + j * dilation;
    const bool inside = row >= range.begin && row < range.end;
    return inside ? values[row * width + c - j * width] : fill;
  }
#ifdef LOD_LANES
  template <int W>
  void strip(int64_t s, int64_t r, int64_t c) const {
    const Range range = rows_of(offsets, s, rows);
    T* to = out + (r * size) * width + c;
    for (int64_t j = 0; j < size; ++j, to += width) {
      const int64_t row = r + start + j * dilation;
      if (row >= range.begin && row < range.end) {
        const T* from = values + row * width + c;
        for (int k = 0; k < W; ++k) to[k] = from[k];
      } else {
        for (int k = 0; k < W; ++k) to[k] = fill;
      }
    }
  }
  void some_rows(int64_t s, int64_t row, int64_t last) const {
    if (size == 1) return shift(*this, s, row, last);
    const UnfoldKernel a = *this;
    for (; row < last; ++s) {
      const Range range{a.offsets[s], a.offsets[s + 1]};
      const int64_t end = std::min(range.end, last);
      if (row < end) a.part(range, s, row, end, last);
      row = std::max(row, end);
    }
  }
  // Windows of one row: all rows are one run, and then those that came from a neighbour are filled.
  static void shift(const UnfoldKernel a, int64_t s, int64_t row, int64_t last) {
    const int64_t low = std::max(row, -a.start), high = std::min(last, a.rows - a.start);
    if (low < high)
      copy_bytes(a.out + low * a.width, a.values + (low + a.start) * a.width,
                 (high - low) * a.width * int64_t(sizeof(T)));
    for (; row < last; ++s) {
      const int64_t end = std::min(a.offsets[s + 1], last);
      const int64_t first = a.start < 0 ? row : std::max(row, a.offsets[s + 1] - a.start);
      const int64_t stop = a.start < 0 ? std::min(end, a.offsets[s] - a.start) : end;
      for (int64_t i = first * a.width; i < stop * a.width; ++i) a.out[i] = a.fill;
      row = std::max(row, end);
    }
  }
  // Windows within the segment are runs of rows.
  void part(const Range& range, int64_t s, int64_t begin, int64_t end, int64_t last) const {
    const int64_t first = dilation == 1 ? std::clamp(range.begin - start, begin, end) : end;
    const int64_t stop = std::clamp(range.end - start - (size - 1), first, end);
    const int64_t words = size * width;
    const auto* from_end = reinterpret_cast<const unsigned char*>(values + rows * width);
    const auto* to_end = reinterpret_cast<const unsigned char*>(out + last * words);
    for (int64_t r = begin; r < first; ++r) row_strips(*this, s, r, width);
    for (int64_t r = first; r < stop; ++r)
      copy_run(out + r * words, values + (r + start) * width, words * int64_t(sizeof(T)), to_end, from_end);
    for (int64_t r = stop; r < end; ++r) row_strips(*this, s, r, width);
  }
#endif
};

template <class T>
struct FoldKernel : Windows {
  const T* values;
  T* out;
  template <int W>
  LOD_FN void strip(int64_t s, int64_t r, int64_t c) const {
    const Range range = rows_of(offsets, s, rows);
    acc_t<T> sum[W];
    for (int k = 0; k < W; ++k) sum[k] = 0;
    for (int64_t j = 0; j < size; ++j) {
      const int64_t row = r - start - j * dilation;
      if (row < range.begin || row >= range.end) continue;
      const T* from = values + (row * size + j) * width + c;
      for (int k = 0; k < W; ++k) sum[k] += acc_t<T>(from[k]);
    }
    T* to = out + r * width + c;
    for (int k = 0; k < W; ++k) to[k] = T(sum[k]);
  }
#ifdef LOD_LANES
  void some_rows(int64_t s, int64_t row, int64_t last) const {
    const FoldKernel a = *this;
    for (; row < last; ++s) {
      const int64_t end = std::min(a.offsets[s + 1], last);
      if (row < end) a.part(s, row, end);
      row = std::max(row, end);
    }
  }
  // Narrow rows that all windows reach: without looking where they end.
  void part(int64_t s, int64_t begin, int64_t end) const {
    const Range range = rows_of(offsets, s, rows);
    const int64_t low = range.begin + start + (size - 1) * dilation, high = range.end + start;
    const int64_t first = width >= 4 ? end : std::clamp(low, begin, end), last = std::clamp(high, first, end);
    const int64_t back = (dilation * size - 1) * width;
    for (int64_t r = begin; r < first; ++r) row_strips(*this, s, r, width);
    for (int64_t r = first; r < last; ++r) {
      const T* from = values + (r - start) * size * width;
      for (int64_t c = 0; c < width; ++c) {
        acc_t<T> sum = 0;
        for (int64_t j = 0; j < size; ++j) sum += acc_t<T>(from[c - j * back]);
        out[r * width + c] = T(sum);
      }
    }
    for (int64_t r = last; r < end; ++r) row_strips(*this, s, r, width);
  }
#endif
};

// A kernel that a GPU runs by row, and the CPU by runs of rows.
template <class F>
void each_run(const Exec& exec, const LoDView& g, const F& f) {
  if constexpr (kOnGpu) each_row(exec, g, f);
  else each_row_range(exec, g, [&](int64_t s, int64_t row, int64_t last) { f.some_rows(s, row, last); });
}

LOD_ENTRY void run_map(const Exec& exec, const RunMap& a) {
  const LoDView rows{a.offsets, a.segments, a.rows, 1};
  if constexpr (kOnGpu) each_row(exec, rows, RunMapKernel{a});
  else each_segment(exec, rows, RunMapKernel{a});
}

LOD_ENTRY void gather_rows(const Exec& exec, const GatherRows& a) {
  visit_words(a.item, [&](auto type) {
    using T = typename decltype(type)::type;
    const GatherKernel<T> f{static_cast<const T*>(a.values), a.map, static_cast<T*>(a.out), a.rows_in, a.width,
                            word<T>(a.fill)};
    if constexpr (kOnGpu) each_element(exec, a.rows_out, a.width, f);
    else if (a.width == 1 && a.rows_in)
      each_part(exec, a.rows_out, 1, [&](int64_t i, int64_t end) { f.column(f, i, end); });
    else each_strip(exec, a.rows_out, a.width, f);
  });
}

LOD_ENTRY void copy_runs(const Exec& exec, const CopyRuns& a) {
  visit_words(a.item, [&](auto type) {
    using T = typename decltype(type)::type;
    const LoDView rows{a.offsets, a.segments, a.rows, a.width};
    if constexpr (!kOnGpu) each_run(exec, rows, CopyRunsKernel<T>{a, word<T>(a.fill)});
    else if (a.gather) each_row(exec, rows, GatherRunsKernel<T>{a});
    else each_row(exec, rows, ScatterRunsKernel<T>{a, static_cast<const T*>(a.values)});
  });
}

LOD_ENTRY void join_runs(const Exec& exec, const JoinRuns& a) {
  visit_words(a.item, [&](auto type) {
    each_run(exec, {a.offsets, a.segments, a.rows, a.width}, JoinRunsKernel<typename decltype(type)::type>{a});
  });
}

LOD_ENTRY void unfold_rows(const Exec& exec, const UnfoldRows& a) {
  visit_words(a.item, [&](auto type) {
    using T = typename decltype(type)::type;
    const UnfoldKernel<T> f{a, static_cast<const T*>(a.values), static_cast<T*>(a.out), word<T>(a.fill)};
    each_run(exec, {a.offsets, a.segments, a.rows, kOnGpu ? a.size * a.width : a.width}, f);
  });
}

LOD_ENTRY void fold_rows(const Exec& exec, DType dtype, const FoldRows& a) {
  LOD_LOWER_LEVEL(fold_rows(exec, dtype, a));
  visit_here(dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    each_run(exec, a, FoldKernel<T>{a, static_cast<const T*>(a.values), static_cast<T*>(a.out)});
  });
}

#ifdef LOD_LANES  // a GPU has segment_reduce for these
LOD_ENTRY void sum_lists(const Exec& exec, DType dtype, const SumLists& a) {
  LOD_LOWER_LEVEL(sum_lists(exec, dtype, a));
  visit_here(dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    each_strip(exec, a.rows_out, a.width,
               SumListsKernel<T>{static_cast<const T*>(a.values), a.lists, a.order, static_cast<T*>(a.out), a.width,
                                 word<T>(a.fill)});
  });
}
#endif

}  // namespace lod::LOD_LEVEL
