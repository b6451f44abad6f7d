// Kernel source of the products that product_api.h declares, for the CPU.
//
// The right side is packed in panels of kPanel columns, row after row; the left side in blocks of at most kTile rows,
// column after column, so that one step of the inner loop is a broadcast of each row's element against two vectors of
// the panel. Few rows take several panels at a time instead, to have enough sums under way.
// SPDX-License-Identifier: Apache-2.0

#ifndef LOD_PRODUCT_TEXT
#define LOD_PRODUCT_TEXT
#include <algorithm>
#include <utility>
#include <cstring>
#include <vector>

#include "kernels/product_api.h"

namespace lod {

// Room for numbers from the start of a cache line on: vectors across two lines are slow.
template <class T>
class Buffer {
 public:
  void grow(int64_t count) {
    if (int64_t(lines_.size()) * kLine < count) lines_.resize((count + kLine - 1) / kLine);
  }
  T* data() { return lines_.data()->at; }

 private:
  static constexpr int64_t kLine = 64 / sizeof(T);
  struct alignas(64) Line {
    T at[kLine];
  };
  std::vector<Line> lines_;
};

}  // namespace lod
#endif

namespace lod::LOD_LEVEL {

constexpr int kTile = LOD_LANES == 16 ? 13 : 6;  // sums in 26 of 32 registers (of 28, GCC 12 spills one), or 12 of 16
constexpr int kTurned = LOD_LANES == 16 ? 14 : 8;  // rows that a right side is turned for as it is read
template <class T>
constexpr int kLanes = LOD_LANES * 4 / int(sizeof(T));
template <class T>
constexpr int kPanel = 2 * kLanes<T>;
template <class T>
struct Vectors {
  typedef T Vector __attribute__((vector_size(LOD_LANES * 4)));
  typedef T LooseVector __attribute__((vector_size(LOD_LANES * 4), aligned(sizeof(T))));
};
template <class T>
using Vector = typename Vectors<T>::Vector;

template <class T>
LOD_FN Vector<T> load(const T* p) {
  return *reinterpret_cast<const typename Vectors<T>::LooseVector*>(p);
}
template <class T>
LOD_FN void store(T* p, Vector<T> v) {
  *reinterpret_cast<typename Vectors<T>::LooseVector*>(p) = v;
}

// Rows as columns, by exchanging what lies 1, 2, 4 ... away from the diagonal.
template <int distance, class V, int... lane>
LOD_FN void exchange(V& a, V& b, std::integer_sequence<int, lane...>) {
  constexpr int n = sizeof...(lane);
#ifdef __clang__
  const V low = __builtin_shufflevector(a, b, (lane & distance ? n + (lane ^ distance) : lane)...);
  b = __builtin_shufflevector(a, b, (lane & distance ? n + lane : lane ^ distance)...);
#else
  typedef std::conditional_t<sizeof(a[0]) == 4, int32_t, int64_t> Lanes __attribute__((vector_size(sizeof(V))));
  const V low = __builtin_shuffle(a, b, Lanes{(lane & distance ? n + (lane ^ distance) : lane)...});
  b = __builtin_shuffle(a, b, Lanes{(lane & distance ? n + lane : lane ^ distance)...});
#endif
  a = low;
}
template <int distance = 1, class V, int n>
LOD_FN void turn(V (&square)[n]) {
#pragma GCC unroll 16
  for (int i = 0; i < n; ++i)
    if (!(i & distance)) exchange<distance>(square[i], square[i + distance], std::make_integer_sequence<int, n>{});
  if constexpr (2 * distance < n) turn<2 * distance>(square);
}

template <class T>
int64_t packed_size(int64_t n, int64_t k) {
  return (n + kPanel<T> - 1) / kPanel<T> * kPanel<T> * k;
}

// Columns `first` and on as one panel.
template <class T>
void pack_panel(const PackArguments<T>& p, int64_t first, T* to) {
  constexpr int kPanel = lod::LOD_LEVEL::kPanel<T>, kLanes = lod::LOD_LEVEL::kLanes<T>;
  const int64_t width = std::min<int64_t>(kPanel, p.n - first);
  const T* from = p.from + first * p.column_stride;
  if (p.column_stride == 1) {
    for (int64_t k = 0; k < p.k; ++k)
      for (int64_t j = 0; j < kPanel; ++j) to[k * kPanel + j] = j < width ? from[k * p.row_stride + j] : T(0);
    return;
  }
  for (int64_t low = 0; low < p.k; low += kLanes) {  // a square at a time, so that neither side leaves the cache
    const int64_t high = std::min<int64_t>(p.k, low + kLanes);
    for (int64_t side = 0; side < kPanel; side += kLanes) {
      if (p.row_stride == 1 && high - low == kLanes && side + kLanes <= width) {
        Vector<T> square[kLanes];
#pragma GCC unroll 16
        for (int j = 0; j < kLanes; ++j) square[j] = load(from + (side + j) * p.column_stride + low);
        turn(square);
#pragma GCC unroll 16
        for (int k = 0; k < kLanes; ++k) store(to + (low + k) * kPanel + side, square[k]);
        continue;
      }
      for (int64_t j = side; j < side + kLanes; ++j)
        for (int64_t k = low; k < high; ++k)
          to[k * kPanel + j] = j < width ? from[k * p.row_stride + j * p.column_stride] : T(0);
    }
  }
}
// Panels [first, last). Rows that lie far apart are read once for all of them, and asked for in time.
template <class T>
void pack_panels(const PackArguments<T>& p, int64_t first, int64_t last) {
  constexpr int64_t kPanel = lod::LOD_LEVEL::kPanel<T>, kPrefetch = 16, line = 64;
  const int64_t whole = std::min(last, p.n / kPanel), panel = kPanel * p.k;
  for (int64_t k = 0; p.column_stride == 1 && first < whole && k < p.k; ++k) {
    const T* from = p.from + k * p.row_stride + first * kPanel;
    T* to = p.to + first * panel + k * kPanel;
    const auto ahead = reinterpret_cast<uintptr_t>(from) + uintptr_t(kPrefetch * p.row_stride) * sizeof(T);
    for (uintptr_t byte = 0; byte < uintptr_t(whole - first) * kPanel * sizeof(T); byte += line)
      __builtin_prefetch(reinterpret_cast<const void*>(ahead + byte));
    for (int64_t i = 0; i < whole - first; ++i) std::memcpy(to + i * panel, from + i * kPanel, kPanel * sizeof(T));
  }
  if (p.column_stride == 1) first = std::max(first, whole);
  for (; first < last; ++first) pack_panel(p, first * kPanel, p.to + first * panel);
}
template <class T>
void pack(const CpuExec& exec, const PackArguments<T>& p) {
  constexpr int64_t kPanel = lod::LOD_LEVEL::kPanel<T>, kGroup = 4;
  struct Work {
    const PackArguments<T>& p;
    int64_t panels;
    void operator()(int64_t i) const { pack_panels(p, i * kGroup, std::min(panels, (i + 1) * kGroup)); }
  };
  const int64_t count = (p.n + kPanel - 1) / kPanel;
  each(exec, (count + kGroup - 1) / kGroup, kGroup * kPanel * p.k, Work{p, count});
}

template <class T>
struct Tile {  // where a block of sums begins and goes; `width` columns of the last panel are real
  int64_t k;
  const T *a, *b;
  int64_t b_panel;  // numbers from one panel to the next
  T* c;
  int64_t c_stride;
  const T* init;
  int64_t init_stride, width;
};

// The first `width` of the numbers at `edge`, plus those at `from` if there are any, four at a time.
template <class T>
LOD_FN void store_edge(T* to, const T* edge, const T* from, int64_t width) {
  typedef T Four __attribute__((vector_size(4 * sizeof(T))));
  int64_t j = 0;
  for (; j + 4 <= width; j += 4) {
    Four sum, more = {};
    std::memcpy(&sum, edge + j, sizeof(sum));
    if (from) std::memcpy(&more, from + j, sizeof(more));
    sum = from ? sum + more : sum;
    std::memcpy(to + j, &sum, sizeof(sum));
  }
  for (; j < width; ++j) to[j] = from ? edge[j] + from[j] : edge[j];
}

// kRows rows against kPanels panels; kNarrow: against the first half of one.
template <class T, int kRows, int kPanels, bool kNarrow = false>
void tile(const Tile<T>& t) {
  constexpr int kVectors = kNarrow ? 1 : 2 * kPanels, kLanes = lod::LOD_LEVEL::kLanes<T>, kPanel = 2 * kLanes;
  Vector<T> sum[kRows][kVectors];
  T edge[kPanel];
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) sum[i][v] = Vector<T>{};
  const T *a = t.a, *b = t.b;
  for (int64_t k = 0; k < t.k; ++k, a += kRows, b += kPanel) {
    Vector<T> right[kVectors];
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) right[v] = load(b + (v / 2) * t.b_panel + (v % 2) * kLanes);
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) sum[i][v] += a[i] * right[v];
  }
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 16
    for (int p = 0; p < kPanels; ++p) {
      T* to = t.c + i * t.c_stride + p * kPanel;
      const T* from = t.init ? t.init + i * t.init_stride + p * kPanel : nullptr;
      if (!kNarrow && (p + 1 < kPanels || t.width == kPanel)) {
        for (int v = 0; v < 2; ++v)
          store(to + v * kLanes, from ? sum[i][2 * p + v] + load(from + v * kLanes) : sum[i][2 * p + v]);
      } else {
        for (int v = 0; v < (kNarrow ? 1 : 2); ++v) store(edge + v * kLanes, sum[i][2 * p + v]);
        store_edge(to, edge, from, t.width);
      }
    }
}

// kRows rows against columns [first, first + kLanes) of a right side whose columns are rows in memory: squares of it
// are turned, and used in the registers where they are. Few rows of memory at a time are what processors read ahead.
template <class T, int kRows>
void turned_tile(const PackArguments<T>& right, int64_t first, const Tile<T>& t) {
  constexpr int kLanes = lod::LOD_LEVEL::kLanes<T>;
  const T* from = right.from + first * right.column_stride;
  Vector<T> sum[kRows];
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) sum[i] = Vector<T>{};
  int64_t low = 0;
  for (const T* a = t.a; low + kLanes <= t.k; low += kLanes, a += kLanes * kRows) {
    Vector<T> square[kLanes];
#pragma GCC unroll 16
    for (int j = 0; j < kLanes; ++j) square[j] = load(from + j * right.column_stride + low);
    turn(square);
#pragma GCC unroll 16
    for (int k = 0; k < kLanes; ++k)
#pragma GCC unroll 16
      for (int i = 0; i < kRows; ++i) sum[i] += a[k * kRows + i] * square[k];
  }
  for (; low < t.k; ++low) {
    Vector<T> column;
    for (int j = 0; j < kLanes; ++j) column[j] = from[j * right.column_stride + low];
    for (int i = 0; i < kRows; ++i) sum[i] += t.a[low * kRows + i] * column;
  }
  for (int i = 0; i < kRows; ++i)
    store(t.c + i * t.c_stride + first, t.init ? sum[i] + load(t.init + i * t.init_stride + first) : sum[i]);
}

// Columns of the rows a[i] side by side, to[r * kRows + i] = a[i][r]: as many as a vector V holds, as squares turned in
// registers. What is stored behind a column is stored again with the next; behind the last one there is room for a V.
template <class V, int kRows, class T>
LOD_FN void columns_across(const T* const* a, int64_t first, T* to) {
  constexpr int kLanes = sizeof(V) / sizeof(T), kSquares = (kRows + kLanes - 1) / kLanes;
  V squares[kSquares][kLanes];
#pragma GCC unroll 16
  for (int g = 0; g < kSquares; ++g) {
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i)
      if (g * kLanes + i < kRows) std::memcpy(&squares[g][i], a[g * kLanes + i] + first, sizeof(V));
      else squares[g][i] = V{};
    turn(squares[g]);
  }
#pragma GCC unroll 16
  for (int k = 0; k < kLanes; ++k)
#pragma GCC unroll 16
    for (int g = 0; g < kSquares; ++g) std::memcpy(to + k * kRows + g * kLanes, &squares[g][k], sizeof(V));
}
template <class T, int kRows>
void rows_across(int64_t k, const T* const* a, T* to) {
  typedef T Half __attribute__((vector_size(LOD_LANES * 2)));
  constexpr int kLanes = lod::LOD_LEVEL::kLanes<T>;
  int64_t r = 0;
  for (; r + kLanes <= k; r += kLanes) columns_across<Vector<T>, kRows>(a, r, to + r * kRows);
  if (r + kLanes / 2 <= k) {
    columns_across<Half, kRows>(a, r, to + r * kRows);
    r += kLanes / 2;
  }
  for (; r < k; ++r)
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) to[r * kRows + i] = a[i][r];
}

template <class T>
struct ForRows {  // what a number of rows takes
  void (*half_panel)(const Tile<T>&);
  void (*one_panel)(const Tile<T>&);
  void (*panels)(const Tile<T>&);
  int64_t per_step;  // panels that it takes at a time
  void (*turned)(const PackArguments<T>&, int64_t, const Tile<T>&);
  void (*across)(int64_t, const T* const*, T*);
  auto panel(int64_t width) const { return width <= kPanel<T> / 2 ? half_panel : one_panel; }
};
template <class T, int kRows>
constexpr ForRows<T> for_rows() {
  constexpr int kPanels = kRows * 8 <= kTile * 2 ? 4 : kRows * 4 <= kTile * 2 ? 2 : 1;
  return {tile<T, kRows, 1, true>, tile<T, kRows, 1>,     tile<T, kRows, kPanels>, kPanels,
          turned_tile<T, kRows>,   rows_across<T, kRows>};
}
template <class T, int... kIndex>
const ForRows<T>* table_of(std::integer_sequence<int, kIndex...>) {
  static const ForRows<T> table[] = {for_rows<T, kIndex + 1>()...};
  return table - 1;
}
template <class T>
const ForRows<T>& by_rows(int64_t rows) {
  return table_of<T>(std::make_integer_sequence<int, std::max(kTile, kTurned)>{})[rows];
}

// Whether so few rows meet a right side whose columns are rows in memory that it is turned as it is read.
template <class T>
bool turns(const Product<T>& p, int64_t rows) {
  return rows <= kTurned && p.unpacked && p.unpacked->row_stride == 1;
}

// Rows [0, m) cut into equal blocks of at most kTile; one block, if the right side is turned for it.
struct Blocks {
  int64_t m, count;
  template <class T>
  Blocks(const Product<T>& p, int64_t m) : m(m), count(turns(p, m) ? 1 : (m + kTile - 1) / kTile) {}
  int64_t begin(int64_t i) const { return m * i / count; }
  int64_t rows(int64_t i) const { return begin(i + 1) - begin(i); }
};

// Rows [begin, begin + rows) of the left side, packed.
template <class T>
void pack_left(const Product<T>& p, int64_t begin, int64_t rows, T* to) {
  const Blocks blocks(p, rows);
  const T* from[std::max(kTile, kTurned)];
  if (!p.windows) {
    for (int64_t b = 0; b < blocks.count; ++b) {
      for (int64_t i = 0; i < blocks.rows(b); ++i) from[i] = p.a + (begin + blocks.begin(b) + i) * p.a_stride;
      by_rows<T>(blocks.rows(b)).across(p.k, from, to + blocks.begin(b) * p.k);
    }
    return;
  }
  const WindowsOfRows& w = *p.windows;
  const std::vector<T> zeros(p.a_stride);
  int64_t s = segment_of(w.offsets, w.segments, begin);
  for (int64_t b = 0; b < blocks.count; ++b) {
    const int64_t first = begin + blocks.begin(b), count = blocks.rows(b);
    Range range[std::max(kTile, kTurned)];
    for (int64_t i = 0; i < count; ++i) {
      while (w.offsets[s + 1] <= first + i) ++s;
      range[i] = {w.offsets[s], w.offsets[s + 1]};
    }
    for (int64_t j = 0; j < w.size; ++j) {
      for (int64_t i = 0; i < count; ++i) {
        const int64_t row = first + i + w.start + j * w.dilation;
        from[i] = row >= range[i].begin && row < range[i].end ? p.a + row * p.a_stride : zeros.data();
      }
      by_rows<T>(count).across(p.a_stride, from, to + blocks.begin(b) * p.k + j * p.a_stride * count);
    }
  }
}

// Panels [first, last) of a product of few enough rows that their packed form stays in the cache.
template <class T>
void some_panels(const Product<T>& p, const T* packed, int64_t first, int64_t last) {
  constexpr int kPanel = lod::LOD_LEVEL::kPanel<T>;
  const Blocks blocks(p, p.m);
  const int64_t per_step = blocks.count == 1 ? by_rows<T>(p.m).per_step : 1;
  if (turns(p, p.m)) {
    const Tile<T> t{p.k, packed, nullptr, 0, p.c, p.c_stride, p.init, p.init_stride, kPanel};
    for (; first < last && (first + 1) * kPanel <= p.n; ++first)
      for (const int64_t half : {0, kPanel / 2}) by_rows<T>(p.m).turned(*p.unpacked, first * kPanel + half, t);
  }
  static thread_local Buffer<T> turned;
  if (p.unpacked) turned.grow(per_step * kPanel * p.k);
  for (int64_t panel = first; panel < last;) {
    const int64_t step = per_step <= last - panel ? per_step : 1;
    const T* b = p.unpacked ? turned.data() : p.b + panel * kPanel * p.k;
    if (p.unpacked)
      for (int64_t i = 0; i < step; ++i)
        pack_panel(*p.unpacked, (panel + i) * kPanel, turned.data() + i * kPanel * p.k);
    for (int64_t i = 0; i < blocks.count; ++i) {
      const ForRows<T>& f = by_rows<T>(blocks.rows(i));
      const int64_t row = blocks.begin(i), column = panel * kPanel;
      const int64_t end = std::min(p.n, (panel + step) * kPanel);
      const int64_t width = end - (panel + step - 1) * kPanel;
      (step > 1 ? f.panels : f.panel(width))({p.k, packed + row * p.k, b, kPanel * p.k, p.c + row * p.c_stride + column,
                                              p.c_stride, p.init ? p.init + row * p.init_stride + column : nullptr,
                                              p.init_stride, width});
    }
    panel += step;
  }
}

template <class T>
void multiply(const CpuExec& exec, const Product<T>& p) {
  constexpr int kPanel = lod::LOD_LEVEL::kPanel<T>;
  if (p.m <= 0 || p.n <= 0) return;
  const int64_t panels = (p.n + kPanel - 1) / kPanel;
  // a chunk of the left side, packed, is a quarter of a megabyte: half of a small second-level cache
  const int64_t room = 262144 / int64_t(sizeof(T)) / std::max<int64_t>(1, p.k);
  const int64_t most = std::max<int64_t>(4 * kTile, room / kTile * kTile);
  const int64_t chunks = (p.m + most - 1) / most;
  struct Work {
    const Product<T>& p;
    int64_t chunks, panels, pieces;
    void operator()(int64_t i) const {
      const int64_t chunk = i / pieces, piece = i % pieces;
      const int64_t begin = p.m * chunk / chunks, rows = p.m * (chunk + 1) / chunks - begin;
      static thread_local Buffer<T> packed;
      packed.grow(rows * p.k + kLanes<T>);
      pack_left(p, begin, rows, packed.data());
      Product<T> part = p;
      part.m = rows;
      part.c += begin * p.c_stride;
      if (part.init) part.init += begin * p.init_stride;
      some_panels(part, packed.data(), panels * piece / pieces, panels * (piece + 1) / pieces);
    }
  };
  // A product of one chunk is shared out by panels where that is worth waking other threads: for what is calculated or,
  // with few rows, for what is read. Each packs the chunk for itself.
  const int64_t worth = std::max(p.m * p.n * p.k >> 20, p.n * p.k >> 18);
  const int64_t pieces = chunks > 1 ? 1 : std::max<int64_t>(1, std::min({panels, worth, exec.threads()}));
  each(exec, chunks * pieces, kGrain, Work{p, chunks, panels, pieces});
}

// Rows [low, low + deep) of the right side in panels.
template <class T>
void pack_right(const TransposedProduct<T>& p, int64_t low, int64_t deep, T* to) {
  constexpr int kPanel = lod::LOD_LEVEL::kPanel<T>;
  for (int64_t r = 0; r < deep; ++r) {
    const int64_t row = p.b_rows ? p.b_rows[low + r] : low + r;
    const T* from = p.b + row * p.b_stride;
    for (int64_t first = 0; first < p.n; first += kPanel) {
      T* at = to + first * deep + r * kPanel;
      const int64_t real = row < 0 ? 0 : std::min<int64_t>(kPanel, p.n - first);
      if (real == kPanel) std::memcpy(at, from + first, kPanel * sizeof(T));
      else
        for (int64_t j = 0; j < kPanel; ++j) at[j] = j < real ? from[first + j] : T(0);
    }
  }
}

// Blocks [begin, end) of kTile rows of the result.
template <class T>
void some_blocks(const CpuExec& exec, const TransposedProduct<T>& p, int64_t begin, int64_t end) {
  constexpr int kPanel = lod::LOD_LEVEL::kPanel<T>;
  // Rows summed before the sums go to memory, and blocks packed at a time, row after row, since rows lie far apart.
  constexpr int64_t kDeep = 256, kGroup = 8, kPrefetch = 16;
  const int64_t panels = (p.n + kPanel - 1) / kPanel, rest = p.m % kTile;
  static thread_local Buffer<T> right, left;
  right.grow(kDeep * panels * kPanel);
  left.grow(kDeep * kGroup * kTile);
  for (int64_t low = 0; low < std::max<int64_t>(p.k, 1); low += kDeep) {
    const int64_t deep = std::min(kDeep, p.k - low);
    exec.pause();
    pack_right(p, low, deep, right.data());
    for (int64_t first = begin; first < end; first += kGroup) {
      const int64_t last = std::min(end, first + kGroup), whole = std::min(last, p.m / kTile);
      for (int64_t r = 0; r < deep; ++r) {
        const T* a = p.a + (p.a_rows ? p.a_rows[low + r] : low + r) * p.a_stride;
        if (!p.a_rows && r + kPrefetch < deep)
          fetch<kGroup * kTile * sizeof(T)>(reinterpret_cast<uintptr_t>(a + kPrefetch * p.a_stride + first * kTile));
        for (int64_t i = first; i < whole; ++i)
          std::memcpy(left.data() + ((i - first) * kDeep + r) * kTile, a + i * kTile, kTile * sizeof(T));
        if (whole < last)
          for (int64_t j = 0; j < rest; ++j)
            left.data()[(whole - first) * kDeep * kTile + r * rest + j] = a[whole * kTile + j];
      }
      for (int64_t panel = 0; panel < panels; ++panel)
        for (int64_t i = first; i < last; ++i) {
          T* c = p.c + i * kTile * p.c_stride + panel * kPanel;
          const int64_t width = std::min<int64_t>(kPanel, p.n - panel * kPanel);
          by_rows<T>(i < whole ? kTile : rest)
              .panel(width)({deep, left.data() + (i - first) * kDeep * kTile, right.data() + panel * deep * kPanel, 0,
                             c, p.c_stride, low ? c : nullptr, p.c_stride, width});
        }
    }
  }
}

template <class T>
void multiply_transposed(const CpuExec& exec, const TransposedProduct<T>& p) {
  if (p.m <= 0 || p.n <= 0) return;
  // blocks worth waking another thread for
  const int64_t worth = (int64_t(1) << 22) / std::max<int64_t>(1, kTile * p.n * p.k);
  // a thread takes all its blocks in one piece, since each packs the right side for itself
  const int64_t blocks = (p.m + kTile - 1) / kTile, threads = exec.threads();
  struct Work {
    const CpuExec& exec;
    const TransposedProduct<T>& p;
  } work{exec, p};
  exec.parallel(blocks, std::max((blocks + threads - 1) / threads, worth), &work,
                [](const void* given, int64_t begin, int64_t end) {
                  const Work& w = *static_cast<const Work*>(given);
                  some_blocks(w.exec, w.p, begin, end);
                });
}

}  // namespace lod::LOD_LEVEL
