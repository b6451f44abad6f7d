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
  // On the CPU, for runs that do not meet: what lies between the run before and that of s is filled. The run before
  // ends at taken[s]; if null, runs are in the order of their segments.
  bool fills = false;
  const int64_t* taken = nullptr;
  unsigned char fill[16] = {};
};
struct JoinRuns {  // segment s of out: the rows of segment s of values, then those of segment s of others
  const int64_t *offsets, *own, *other;
  int64_t segments, rows;
  const void *values, *others;
  void* out;
  int64_t rows_in, others_in, width, item;
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

#include "core/copies.h"

namespace lod::LOD_LEVEL {

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
  // Rows of one number: no branch, and no strips to count.
  bool run(int64_t first, int64_t last) const {
    if (width != 1 || rows == 0) return false;
    const GatherKernel g = *this;
    for (int64_t i = first; i < last; ++i) {
      const auto row = uint64_t(g.map[i]);
      const bool there = row < uint64_t(g.rows);
      const T value = g.values[there ? row : 0];
      g.out[i] = there ? value : g.fill;
    }
    return true;
  }
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
struct CopyRunsKernel : CopyRuns {
  T filler;
  template <int W>
  LOD_FN void strip(int64_t s, int64_t r, int64_t c) const {
    const int64_t row = starts[s] + step * (r - offsets[s]);
    if (row < 0 || row >= there) return;
    const T* from = static_cast<const T*>(values) + (gather ? row : r) * width + c;
    T* to = static_cast<T*>(out) + (gather ? r : row) * width + c;
    for (int k = 0; k < W; ++k) to[k] = from[k];
  }
  bool piece(int64_t s, int64_t row, int64_t last) const {
    if (step == 1) gather ? each_run<1, true>(s, row, last) : each_run<1, false>(s, row, last);
    else gather ? each_run<-1, true>(s, row, last) : each_run<-1, false>(s, row, last);
    return true;
  }

 private:
  static constexpr int64_t kAhead = 4096;     // bytes
  static constexpr int64_t kLarge = 1 << 23;  // bytes: with as many read, more than a core's share of most caches

  // Elsewhere, the lowest row of a run, and the one behind the highest.
  int64_t low(int64_t s) const { return step == 1 ? starts[s] : starts[s] - (offsets[s + 1] - offsets[s] - 1); }
  int64_t high(int64_t s) const { return low(s) + (offsets[s + 1] - offsets[s]); }

  template <int kStep, bool kGather>
  void each_run(int64_t s, int64_t row, int64_t last) const {
    const CopyRuns a = *this;  // the compiler does not know that no store changes it
    const auto* from = static_cast<const T*>(a.values);
    auto* to = static_cast<T*>(a.out);
    const T* from_end = from + (kGather ? a.there : a.rows) * a.width;
    const bool large = a.rows * a.width * int64_t(sizeof(T)) > kLarge;
    T* to_end = to;  // of what is written in order
    if (kGather) to_end += last * a.width;
    else if (kStep == 1 && a.fills && !a.taken) to_end += elsewhere(segment_of(a.offsets, a.segments, last - 1), last);
    // All of one length, to judge by the first: runs of another are copied as well.
    const bool even = a.rows % a.segments == 0 && a.offsets[1] == a.rows / a.segments;
    int64_t before = 0;
    if (a.fills && !a.taken && row == a.offsets[s])
      for (int64_t i = s - 1; i >= 0 && !before; --i)
        if (a.offsets[i] < a.offsets[i + 1]) before = high(i);
    for (; row < last; ++s) {
      if constexpr (kStep == 1)
        if (row == a.offsets[s]) {
          if (kGather) s = even ? short_runs<32>(a, s, row, last) : short_runs<64>(a, s, row, last);
          else if (a.fills && !a.taken) s = short_runs_filled(a, s, row, last, before, (to_end - to) / a.width);
          if (row >= last) break;
        }
      if constexpr (kStep == -1 && kGather)
        if (row == a.offsets[s]) {
          const int64_t unit = a.width * int64_t(sizeof(T));
          if (a.width == 1) s = short_turns<sizeof(T)>(a, s, row, last);
          else if (unit == 32) s = short_turns<32>(a, s, row, last);
          else if (unit == 64) s = short_turns<64>(a, s, row, last);
        }
      const int64_t begin = a.offsets[s], end = a.offsets[s + 1] < last ? a.offsets[s + 1] : last;
      if (row >= end) continue;
      const int64_t rows = end - row, first = a.starts[s] + kStep * (row - begin);
      if (!kGather && a.fills) {
        const int64_t lowest = kStep == 1 ? a.starts[s] : low(s);
        if (row == begin)
          for (int64_t i = (a.taken ? a.taken[s] : before) * a.width; i < lowest * a.width; ++i) to[i] = filler;
        before = lowest + (a.offsets[s + 1] - begin);
      }
      if constexpr (kStep == 1)
        copy_in_order(bytes(to + (kGather ? row : first) * a.width), bytes(from + (kGather ? first : row) * a.width),
                      rows * a.width * int64_t(sizeof(T)), bytes(to_end), bytes(from_end));
      else if (kGather) turn(to + row * a.width, from + first * a.width, rows, a.width, to_end, from, large);
      else turn(to + (first - rows + 1) * a.width, from + (end - 1) * a.width, rows, a.width, to_end, from, large);
      row = end;
    }
  }
  // Copies runs of up to kShort bytes, and sets `row` to where the first other one begins, in the segment that it
  // returns.
  template <int kBlock>
  static int64_t short_runs(const CopyRuns& a, int64_t s, int64_t& row, int64_t last) {
    const int64_t unit = a.width * int64_t(sizeof(T)), most = kShort / unit, room = (kShort + unit - 1) / unit;
    const auto* from = static_cast<const unsigned char*>(a.values);
    auto* to = static_cast<unsigned char*>(a.out);
    const int64_t *starts = a.starts, *offsets = a.offsets;
    int64_t r = row;
    for (; r <= last - room; ++s) {
      const int64_t end = offsets[s + 1], start = starts[s];
      if (end - r > most || start > a.there - room) break;
      copy_short<kBlock>(to + r * unit, from + start * unit, (end - r) * unit);
      r = end;
    }
    row = r;
    return s;
  }
  // The same to rows elsewhere, of which those up to `limit` are ours, with what lies before each run from `before` on.
  int64_t short_runs_filled(const CopyRuns& a, int64_t s, int64_t& row, int64_t last, int64_t& before,
                            int64_t limit) const {
    const int64_t unit = a.width * int64_t(sizeof(T)), most = kShort / unit, room = (kShort + unit - 1) / unit;
    const auto* from = static_cast<const unsigned char*>(a.values);
    auto* to = static_cast<unsigned char*>(a.out);
    const int64_t *starts = a.starts, *offsets = a.offsets;
    T block[64 / sizeof(T)];
    for (T& word : block) word = filler;
    const int64_t high = last < a.rows - room ? last : a.rows - room;
    int64_t r = row, filled = before;
    for (; r < high; ++s) {
      const int64_t end = offsets[s + 1], start = starts[s];
      if (end == r) continue;
      if (end - r > most || end > last || start - filled > most || start > limit - room) break;
      for (int64_t i = filled * unit; i < start * unit; i += sizeof(block)) copy_block<64>(to + i, block);
      copy_short(to + start * unit, from + r * unit, (end - r) * unit);
      filled = start + end - r;
      r = end;
    }
    row = r, before = filled;
    return s;
  }
  // The same of runs in reverse order, in blocks of rows of kUnit bytes: what is read before a run is written over.
  template <int kUnit>
  static int64_t short_turns(const CopyRuns& a, int64_t s, int64_t& row, int64_t last) {
    constexpr int64_t most = kShort / kUnit, block = kUnit < 16 ? 32 / kUnit : 64 / kUnit, room = most + block;
    const auto* from = static_cast<const unsigned char*>(a.values);
    auto* to = static_cast<unsigned char*>(a.out);
    const int64_t *starts = a.starts, *offsets = a.offsets;
    int64_t r = row;
    for (; r <= last - room; ++s) {
      const int64_t end = offsets[s + 1], start = starts[s];
      if (end - r > most || start < room) break;
      for (int64_t i = 0; i < end - r; i += block) {
        unsigned char* put = to + (r + i) * kUnit;
        const unsigned char* take = from + (start - i) * kUnit;
#if LOD_LANES >= 8
        if constexpr (kUnit < 16) {
          turn_block(reinterpret_cast<T*>(put), reinterpret_cast<const T*>(take));
          continue;
        }
#endif
        for (int64_t k = 0; k < block; ++k) copy_block<kUnit>(put + k * kUnit, take - k * kUnit);
      }
      r = end;
    }
    row = r;
    return s;
  }
  int64_t elsewhere(int64_t s, int64_t r) const { return (starts[s] + step * (r - offsets[s])) * width; }
  static unsigned char* bytes(T* p) { return reinterpret_cast<unsigned char*>(p); }
  static const unsigned char* bytes(const T* p) { return reinterpret_cast<const unsigned char*>(p); }

  // Rows, the last of them at `from`, in reverse order to `to` and on, within `begin` and `end` as above. Memory is
  // read upwards, as processors foresee it.
  static void turn(T* to, const T* from, int64_t rows, int64_t width, const T* end, const T* begin, bool large) {
    if (width == 1) {
#if LOD_LANES >= 8
      if constexpr (constexpr int64_t block = 32 / sizeof(T); block > 2) {
        for (int64_t i = rows - block; i > 0; i -= block) turn_block(to + i, from - i);
        if (rows >= block || (end - to >= block && from - begin >= block - 1)) return turn_block(to, from);
      }
#endif
      for (int64_t i = 0; i < rows; ++i) to[i] = from[-i];
    } else if (width * sizeof(T) == 32) {
      for (int64_t r = rows - 1; r >= 0; --r) copy_block<32>(to + r * width, from - r * width);
    } else if (width * sizeof(T) == 64) {
      for (int64_t r = rows - 1; r >= 0; --r) copy_block<64>(to + r * width, from - r * width);
    } else {
      const int64_t bytes = width * int64_t(sizeof(T));
      for (int64_t r = rows - 1; r >= 0; --r) {
        T* const put = to + r * width;
        // what is written downwards no processor foresees; where a cache holds it all, asking only costs
        for (int64_t i = 0; large && i < bytes; i += 64) fetch<1>(reinterpret_cast<uintptr_t>(put) - kAhead + i);
        copy_bytes(put, from - r * width, bytes);
      }
    }
  }
};

// out[r] is row p of its segment: of values where there is one, then of others.
template <class T>
struct JoinRunsKernel : JoinRuns {
  template <int W>
  LOD_FN void strip(int64_t s, int64_t r, int64_t c) const {
    const Range mine = rows_of(own, s, rows_in), theirs = rows_of(other, s, others_in);
    const int64_t p = r - offsets[s], beyond = p - mine.length();
    if (p < 0 || beyond >= theirs.length()) return;
    const T* from = beyond < 0 ? static_cast<const T*>(values) + (mine.begin + p) * width
                               : static_cast<const T*>(others) + (theirs.begin + beyond) * width;
    T* to = static_cast<T*>(out) + r * width;
    for (int k = 0; k < W; ++k) to[c + k] = from[c + k];
  }
  bool piece(int64_t s, int64_t row, int64_t last) const {
    const JoinRuns a = *this;
    const int64_t bytes = a.width * int64_t(sizeof(T));
    const auto *x = static_cast<const unsigned char*>(a.values), *y = static_cast<const unsigned char*>(a.others);
    auto *to = static_cast<unsigned char*>(a.out), *to_end = to + last * bytes;
    const auto *x_end = x + a.rows_in * bytes, *y_end = y + a.others_in * bytes;
    const int64_t most = kShort / bytes, room = (kShort + bytes - 1) / bytes;
    for (; row < last; ++s) {
      if (row == a.offsets[s]) {  // as long as segments are short on both sides
        int64_t mine = a.own[s], theirs = a.other[s];
        for (; row + most <= last - room && mine <= a.rows_in - room && theirs <= a.others_in - room; ++s) {
          const int64_t end = a.own[s + 1], end_of_theirs = a.other[s + 1];
          if (end - mine > most || end_of_theirs - theirs > most) break;
          copy_short(to + row * bytes, x + mine * bytes, (end - mine) * bytes);
          row += end - mine;
          copy_short(to + row * bytes, y + theirs * bytes, (end_of_theirs - theirs) * bytes);
          row += end_of_theirs - theirs;
          mine = end, theirs = end_of_theirs;
        }
        if (row >= last) break;
      }
      const int64_t shift = a.own[s] - a.offsets[s], middle = a.own[s + 1] - shift;
      const int64_t end = a.offsets[s + 1] < last ? a.offsets[s + 1] : last, half = middle < end ? middle : end;
      if (row < half) {
        copy_in_order(to + row * bytes, x + (row + shift) * bytes, (half - row) * bytes, to_end, x_end);
        row = half;
      }
      if (row < end) {
        copy_in_order(to + row * bytes, y + (a.other[s] + row - middle) * bytes, (end - row) * bytes, to_end, y_end);
        row = end;
      }
    }
    return true;
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
  // Windows of one row: a shift of all rows, a part that the cache holds at a time, and then what no row came to.
  bool piece(int64_t s, int64_t row, int64_t last) const {
    if (const int64_t bytes = size * width * int64_t(sizeof(T)); size != 1) {
      if (dilation != 1 || bytes > 32) return false;
      if (bytes <= 16) blocks<16>(s, row, last);
      else blocks<32>(s, row, last);
      return true;
    }
    const Windows a = *this;
    T* const to = out;
    const T filler = fill;
    const int64_t part = 16384 / (a.width * int64_t(sizeof(T))) + 1;
    const int64_t shift = a.start < 0 ? -a.start : a.start, words = shift <= a.rows ? shift * a.width : 0;
    for (; row < last; row += part) {
      const int64_t stop = last - row < part ? last : row + part;
      const int64_t first = row < -a.start ? -a.start : row, high = a.rows - a.start, end = stop < high ? stop : high;
      if (first < end) copy_bytes(to + first * a.width, values + (first + a.start) * a.width,
                                  (end - first) * a.width * int64_t(sizeof(T)));
      for (; s < a.segments && a.offsets[s] < stop; ++s) {
        int64_t low = a.offsets[s], top = a.offsets[s + 1];
        if (low >= row && top <= stop && top - low >= shift) {  // nearly every segment: no end to look for
          T* const at = to + (a.start < 0 ? low : top - shift) * a.width;
          if (words == 1) *at = filler;
          else
            for (int64_t i = 0; i < words; ++i) at[i] = filler;
          continue;
        }
        if (a.start < 0) top = top < low - a.start ? top : low - a.start;
        else low = low > top - a.start ? low : top - a.start;
        low = low < row ? row : low, top = top < stop ? top : stop;
        for (int64_t i = low * a.width; i < top * a.width; ++i) to[i] = filler;
        if (a.offsets[s + 1] > stop) break;
      }
    }
    return true;
  }
  // Windows within the segment are runs of rows; those of one row are neighbours.
  LOD_FN void part(int64_t s, int64_t begin, int64_t end) const {
    const Range range = rows_of(offsets, s, rows);
    const int64_t low = range.begin - start, high = range.end - start - (size - 1);
    const int64_t first = dilation != 1 || low > end ? end : low < begin ? begin : low;
    const int64_t last = high < first ? first : high > end ? end : high, words = size * width;
    for (int64_t r = begin; r < first; ++r) row_strips(*this, s, r, width);
    const T* from = values + (first + start) * width;
    T* to = out + first * words;
    const int64_t bytes = words * int64_t(sizeof(T)), windows = last - first;
    for (int64_t i = 0; i < windows; ++i) copy_bytes(to + i * words, from + i * width, bytes);
    for (int64_t r = last; r < end; ++r) row_strips(*this, s, r, width);
  }
  // Windows of up to kBytes as whole blocks, as if all rows were of one segment: what is written behind one is written
  // again by the next. Then what lies outside of the segments.
  template <int kBytes>
  void blocks(int64_t s, int64_t row, int64_t last) const {
    const UnfoldKernel a = *this;
    T* const to = out;
    const T *const from = values, filler = fill;
    const int64_t words = a.size * a.width, bytes = words * int64_t(sizeof(T)), step = a.width * int64_t(sizeof(T));
    // the first rows that a block is too long for
    const int64_t there = a.rows - a.start - (kBytes + step - 1) / step + 1;
    const int64_t mine = last - (kBytes + bytes - 1) / bytes + 1, high = there < mine ? there : mine;
    const int64_t part = 8192 / bytes;
    for (; row < last; row += part) {
      const int64_t stop = last - row < part ? last : row + part;
      int64_t low = row < -a.start ? -a.start : row, end = stop < high ? stop : high;
      if (low > stop) low = stop;
      if (end < low) end = low;
      for (int64_t r = row, of = s; r < low; ++r) {
        while (of + 1 < a.segments && a.offsets[of + 1] <= r) ++of;
        row_strips(*this, of, r, a.width);
      }
      for (int64_t r = low; r < end; ++r) copy_block<kBytes>(to + r * words, from + (r + a.start) * a.width);
      for (int64_t r = end, of = s; r < stop; ++r) {
        while (of + 1 < a.segments && a.offsets[of + 1] <= r) ++of;
        row_strips(*this, of, r, a.width);
      }
      for (; s < a.segments && a.offsets[s] < stop; ++s) {
        const int64_t begin = a.offsets[s], behind = a.offsets[s + 1];
        const int64_t first = begin < row ? row : begin, limit = behind < stop ? behind : stop;
        for (int64_t r = first; r < limit && r + a.start < begin; ++r) {
          const int64_t before = begin - a.start - r;
          for (int64_t i = 0, n = (before < a.size ? before : a.size) * a.width; i < n; ++i) to[r * words + i] = filler;
        }
        const int64_t reached = behind - a.start - a.size + 1;  // the first row whose window reaches behind the segment
        for (int64_t r = first < reached ? reached : first; r < limit; ++r) {
          const int64_t inside = behind - a.start - r;
          for (int64_t i = inside > 0 ? inside * a.width : 0; i < words; ++i) to[r * words + i] = filler;
        }
        if (behind > stop) break;
      }
    }
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
    each_row(exec, a.offsets, a.segments, a.rows, a.width, CopyRunsKernel<T>{a, word<T>(a.fill)});
  });
}

LOD_ENTRY void join_runs(const Exec& exec, const JoinRuns& a) {
  visit_words(a.item, [&](auto type) {
    each_row(exec, a.offsets, a.segments, a.rows, a.width, JoinRunsKernel<typename decltype(type)::type>{a});
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
