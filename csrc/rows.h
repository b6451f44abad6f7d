// Shape "rows": for every output row, the input row that it copies (-1: none). Kernel text, see torch_lod/device.h.
// SPDX-License-Identifier: Apache-2.0

#ifndef LOD_ROWS_ARGUMENTS
#define LOD_ROWS_ARGUMENTS
#include "torch_lod/lod_view.h"
namespace lod {

struct RunMap {  // map[r] = starts[s] + step * (r - offsets[s]) for the rows r of segment s
  const int64_t* starts;
  const int64_t* offsets;
  int64_t* map;
  int64_t segments, rows, step;
};

struct GatherRows {  // out[i, c] = values[map[i], c], or fill where map[i] is not a row of values
  const void* values;
  const int64_t* map;
  void* out;
  int64_t rows_in, rows_out, width, item;  // item: bytes of a word (device.h)
  unsigned char fill[16];
};

struct SumLists {  // out[i, c] = sum of values[order[j], c] over lists[i] <= j < lists[i + 1]
  const void* values;
  const int64_t* lists;
  const int64_t* order;
  void* out;
  int64_t rows_in, rows_out, width;
  unsigned char fill[16];  // where a list is empty
};

struct Runs {  // row r of segment s goes with row starts[s] + step * (r - offsets[s]) elsewhere
  const int64_t* starts;
  const int64_t* offsets;
  int64_t segments, rows, step;
};
struct CopyRuns : Runs {  // gather: out[r] = values[there]; otherwise out[there] = values[r]
  const void* values;
  void* out;
  int64_t there, width, item;  // there: rows elsewhere
  bool gather;
  // If not null, out[taken[s]] and on is filled, up to the run of s: on the CPU, for runs in order.
  const int64_t* taken = nullptr;
  unsigned char fill[16] = {};
};

struct Windows : LoDView {  // row r sees the rows r + start + j * dilation of its segment, 0 <= j < size
  int64_t size, start, dilation;
};
struct UnfoldRows : Windows {  // out[r, j] = values[there], or fill outside the segment
  const void* values;
  void* out;
  int64_t item;
  unsigned char fill[16];
};
struct FoldRows : Windows {  // out[there] = sum of values[r, j]
  const void* values;
  void* out;
};

}  // namespace lod
#endif

namespace lod::LOD_LEVEL {

// The first and the last kBytes, which may overlap: blocks of constant size are registers.
template <int kBytes>
LOD_FN void copy_ends(unsigned char* to, const unsigned char* from, int64_t bytes) {
  unsigned char last[kBytes];
  std::memcpy(last, from + bytes - kBytes, kBytes);
  std::memcpy(to, from, kBytes);
  std::memcpy(to + bytes - kBytes, last, kBytes);
}
// memcpy, without a call where it is short.
LOD_FN void copy_bytes(void* out, const void* in, int64_t bytes) {
  auto* to = static_cast<unsigned char*>(out);
  const auto* from = static_cast<const unsigned char*>(in);
  if (bytes > 64) std::memcpy(to, from, bytes);
  else if (bytes >= 32) copy_ends<32>(to, from, bytes);
  else if (bytes >= 16) copy_ends<16>(to, from, bytes);
  else if (bytes >= 8) copy_ends<8>(to, from, bytes);
  else if (bytes >= 4) copy_ends<4>(to, from, bytes);
  else
    for (int64_t i = 0; i < bytes; ++i) to[i] = from[i];
}

struct RunMapKernel : RunMap {
  template <int>
  LOD_FN void strip(int64_t s, int64_t) const {
    const Range range = rows_of(offsets, s, rows);
    const auto from = uint64_t(starts[s]);  // sums of what is far out of range wrap
    for (int64_t r = range.begin; r < range.end; ++r)
      map[r] = int64_t(from + uint64_t(step) * uint64_t(r - range.begin));
  }
};

template <class T>
struct GatherKernel {
  const T* values;
  const int64_t* map;
  T* out;
  int64_t rows, width;
  T fill;
  template <int W>
  LOD_FN void strip(int64_t i, int64_t c) const {
    const int64_t row = map[i];
    T* to = out + i * width + c;
    if (row >= 0 && row < rows) {
      const T* from = values + row * width + c;
      for (int k = 0; k < W; ++k) to[k] = from[k];
    } else {
      for (int k = 0; k < W; ++k) to[k] = fill;
    }
  }
};

template <class T>
struct SumListsKernel {
  const T* values;
  const int64_t* lists;
  const int64_t* order;
  T* out;
  int64_t rows, width;
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

template <class T>
struct CopyRunsKernel : Runs {
  const T* values;
  T* out;
  int64_t there, width;
  bool gather;
  const int64_t* taken;
  T fill;
  template <int W>
  LOD_FN void strip(int64_t s, int64_t r, int64_t c) const {
    const int64_t row = starts[s] + step * (r - offsets[s]);
    if (row < 0 || row >= there) return;
    const T* from = values + (gather ? row : r) * width + c;
    T* to = out + (gather ? r : row) * width + c;
    for (int k = 0; k < W; ++k) to[k] = from[k];
  }
  // A run that keeps its direction is copied at once.
  LOD_FN void part(int64_t s, int64_t begin, int64_t end) const {
    if (taken && begin == offsets[s]) {
      const int64_t low = step == 1 ? starts[s] : starts[s] - (offsets[s + 1] - begin - 1);
      for (int64_t i = taken[s] * width; i < low * width; ++i) out[i] = fill;
    }
    const int64_t row = starts[s] + step * (begin - offsets[s]);
    if (step == 1) {
      copy_bytes(out + (gather ? begin : row) * width, values + (gather ? row : begin) * width,
                 (end - begin) * width * int64_t(sizeof(T)));
    } else if (width == 1) {
      T* to = gather ? out + begin : out + row - (end - begin - 1);
      const T* from = gather ? values + row : values + end - 1;
      for (int64_t i = 0; i < end - begin; ++i) to[i] = from[-i];
    } else {
      const int64_t bytes = width * int64_t(sizeof(T));
      for (int64_t r = end - 1; r >= begin; --r) {  // memory is read upwards, as processors foresee it
        const int64_t there_ = starts[s] + step * (r - offsets[s]);
        copy_bytes(out + (gather ? r : there_) * width, values + (gather ? there_ : r) * width, bytes);
      }
    }
  }
};

template <class T>
struct UnfoldKernel : Windows {
  const T* values;
  T* out;
  T fill;
  template <int W>
  LOD_FN void strip(int64_t s, int64_t r, int64_t c) const {
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
  // Windows within the segment are runs of rows; those of one row are neighbours.
  LOD_FN void part(int64_t s, int64_t begin, int64_t end) const {
    const Range range = rows_of(offsets, s, rows);
    const bool close = dilation == 1 || size == 1;
    const int64_t low = range.begin - start, high = range.end - start - (size - 1);
    const int64_t first = !close || low > end ? end : low < begin ? begin : low;
    const int64_t last = high < first ? first : high > end ? end : high, words = size * width;
    for (int64_t r = begin; r < first; ++r) row_strips(*this, s, r, width);
    const T* from = values + (first + start) * width;
    T* to = out + first * words;
    const int64_t bytes = words * int64_t(sizeof(T)), windows = last - first;
    if (windows <= 0) {
    } else if (size == 1) {
      copy_bytes(to, from, windows * bytes);
    } else if (bytes <= 16) {
      copy_windows<16>(to, from, windows);
    } else if (bytes <= 32) {
      copy_windows<32>(to, from, windows);
    } else {
      for (int64_t i = 0; i < windows; ++i) copy_bytes(to + i * words, from + i * width, bytes);
    }
    for (int64_t r = last; r < end; ++r) row_strips(*this, s, r, width);
  }
  // Windows of up to kBytes, as whole blocks: what is written behind one is written again by the next.
  template <int kBytes>
  LOD_FN void copy_windows(T* to, const T* from, int64_t windows) const {
    const int64_t words = size * width, bytes = words * int64_t(sizeof(T)), step = width * int64_t(sizeof(T));
    const int64_t room = (values + rows * width - from) * int64_t(sizeof(T)) - kBytes;
    int64_t whole = windows - (kBytes + bytes - 1) / bytes;
    if (room < whole * step) whole = room < 0 ? 0 : room / step;
    int64_t i = 0;
    for (; i < whole; ++i) std::memcpy(to + i * words, from + i * width, kBytes);
    for (; i < windows; ++i) copy_bytes(to + i * words, from + i * width, bytes);
  }
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
  // Rows of few numbers that all windows reach: without looking where they end.
  LOD_FN void part(int64_t s, int64_t begin, int64_t end) const {
    const Range range = rows_of(offsets, s, rows);
    const int64_t low = range.begin + start + (size - 1) * dilation, high = range.end + start;
    const int64_t first = width >= 4 || low > end ? end : low < begin ? begin : low;
    const int64_t last = high < first ? first : high > end ? end : high, back = (dilation * size - 1) * width;
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
};

LOD_ENTRY void run_map(const Exec& exec, const RunMap& a) {
  each_segment(exec, a.offsets, a.segments, a.rows, 1, RunMapKernel{a});
}

LOD_ENTRY void gather_rows(const Exec& exec, const GatherRows& a) {
  visit_words(a.item, [&](auto type) {
    using T = typename decltype(type)::type;
    each_strip(exec, a.rows_out, a.width,
               GatherKernel<T>{static_cast<const T*>(a.values), a.map, static_cast<T*>(a.out), a.rows_in, a.width,
                               word<T>(a.fill)});
  });
}

LOD_ENTRY void copy_runs(const Exec& exec, const CopyRuns& a) {
  visit_words(a.item, [&](auto type) {
    using T = typename decltype(type)::type;
    each_row(exec, a.offsets, a.segments, a.rows, a.width,
             CopyRunsKernel<T>{a, static_cast<const T*>(a.values), static_cast<T*>(a.out), a.there, a.width, a.gather,
                               a.taken, word<T>(a.fill)});
  });
}

LOD_ENTRY void unfold_rows(const Exec& exec, const UnfoldRows& a) {
  visit_words(a.item, [&](auto type) {
    using T = typename decltype(type)::type;
    each_row(exec, a, UnfoldKernel<T>{a, static_cast<const T*>(a.values), static_cast<T*>(a.out), word<T>(a.fill)});
  });
}

LOD_ENTRY void fold_rows(const Exec& exec, DType dtype, const FoldRows& a) {
  LOD_WHOLE(fold_rows(exec, dtype, a));
  visit_here(dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    each_row(exec, a, FoldKernel<T>{a, static_cast<const T*>(a.values), static_cast<T*>(a.out)});
  });
}

LOD_ENTRY void sum_lists(const Exec& exec, DType dtype, const SumLists& a) {
  LOD_WHOLE(sum_lists(exec, dtype, a));
  visit_here(dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    each_strip(exec, a.rows_out, a.width,
               SumListsKernel<T>{static_cast<const T*>(a.values), a.lists, a.order, static_cast<T*>(a.out), a.rows_in,
                                 a.width, word<T>(a.fill)});
  });
}

}  // namespace lod::LOD_LEVEL
