// Kernel text of core/product.h, compiled for every level of the CPU by product.cpp.
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

#include "core/product.h"

namespace lod {

// Room for floats from the start of a cache line on: vectors across two lines are slow.
class Buffer {
 public:
  void grow(int64_t count) {
    if (int64_t(lines_.size()) * 16 < count) lines_.resize((count + 15) / 16);
  }
  float* data() { return lines_.data()->at; }

 private:
  struct alignas(64) Line {
    float at[16];
  };
  std::vector<Line> lines_;
};

}  // namespace lod
#endif

namespace lod::LOD_LEVEL {

constexpr int kLanes = LOD_LANES;
constexpr int kPanel = 2 * kLanes;
constexpr int kTile = kLanes == 16 ? 14 : 6;  // 28 of 32 registers hold sums, or 12 of 16
using Vector = float __attribute__((vector_size(kLanes * 4)));
using LooseVector = float __attribute__((vector_size(kLanes * 4), aligned(4)));

LOD_FN Vector load(const float* p) { return *reinterpret_cast<const LooseVector*>(p); }
LOD_FN void store(float* p, Vector v) { *reinterpret_cast<LooseVector*>(p) = v; }

inline int64_t packed_size(int64_t n, int64_t k) { return (n + kPanel - 1) / kPanel * kPanel * k; }

inline void pack(const PackArguments& p) {
  float* to = p.to;
  for (int64_t first = 0; first < p.n; first += kPanel, to += kPanel * p.k) {
    const int64_t width = std::min<int64_t>(kPanel, p.n - first);
    const float* from = p.from + first * p.column_stride;
    if (p.column_stride == 1) {
      for (int64_t k = 0; k < p.k; ++k)
        for (int64_t j = 0; j < kPanel; ++j) to[k * kPanel + j] = j < width ? from[k * p.row_stride + j] : 0.f;
    } else {
      for (int64_t low = 0; low < p.k; low += 16)  // a square at a time, so that neither side leaves the cache
        for (int64_t j = 0; j < kPanel; ++j)
          for (int64_t k = low, high = std::min(p.k, low + 16); k < high; ++k)
            to[k * kPanel + j] = j < width ? from[k * p.row_stride + j * p.column_stride] : 0.f;
    }
  }
}

struct Tile {  // where a block of sums begins and goes; `width` columns of the last panel are real
  int64_t k;
  const float *a, *b;
  int64_t b_panel;  // floats from one panel to the next
  float* c;
  int64_t c_stride;
  const float* init;
  int64_t init_stride, width;
};

// kRows rows against kPanels panels.
template <int kRows, int kPanels>
void tile(const Tile& t) {
  constexpr int kVectors = 2 * kPanels;
  Vector sum[kRows][kVectors];
  float edge[kPanel];
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) sum[i][v] = Vector{};
  const float *a = t.a, *b = t.b;
  for (int64_t k = 0; k < t.k; ++k, a += kRows, b += kPanel) {
    Vector right[kVectors];
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
      float* to = t.c + i * t.c_stride + p * kPanel;
      const float* from = t.init ? t.init + i * t.init_stride + p * kPanel : nullptr;
      if (p + 1 < kPanels || t.width == kPanel) {
        for (int v = 0; v < 2; ++v)
          store(to + v * kLanes, from ? sum[i][2 * p + v] + load(from + v * kLanes) : sum[i][2 * p + v]);
      } else {
        for (int v = 0; v < 2; ++v) store(edge + v * kLanes, sum[i][2 * p + v]);
        for (int64_t j = 0; j < t.width; ++j) to[j] = from ? edge[j] + from[j] : edge[j];
      }
    }
}

template <int kRows>
void rows_across(int64_t k, const float* const* a, float* to) {  // a[i][k]
  for (int64_t r = 0; r < k; ++r)
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) to[r * kRows + i] = a[i][r];
}

struct ForRows {  // what a number of rows takes
  void (*one_panel)(const Tile&);
  void (*panels)(const Tile&);
  int64_t at_once;  // panels that it takes at a time
  void (*across)(int64_t, const float* const*, float*);
};
template <int kRows>
constexpr ForRows for_rows() {
  constexpr int kPanels = kRows * 8 <= kTile * 2 ? 4 : kRows * 4 <= kTile * 2 ? 2 : 1;
  return {tile<kRows, 1>, tile<kRows, kPanels>, kPanels, rows_across<kRows>};
}
template <int... kIndex>
const ForRows* table_of(std::integer_sequence<int, kIndex...>) {
  static const ForRows table[] = {for_rows<kIndex + 1>()...};
  return table - 1;
}
inline const ForRows& by_rows(int64_t rows) { return table_of(std::make_integer_sequence<int, kTile>{})[rows]; }

// Rows [0, m) cut into equal blocks of at most kTile.
struct Blocks {
  int64_t m, count;
  explicit Blocks(int64_t m) : m(m), count((m + kTile - 1) / kTile) {}
  int64_t begin(int64_t i) const { return m * i / count; }
  int64_t rows(int64_t i) const { return begin(i + 1) - begin(i); }
};

// Rows [begin, begin + rows) of the left side, packed.
inline void pack_left(const Product& p, int64_t begin, int64_t rows, float* to) {
  const Blocks blocks(rows);
  const float* from[kTile];
  if (!p.windows) {
    for (int64_t b = 0; b < blocks.count; ++b) {
      for (int64_t i = 0; i < blocks.rows(b); ++i) from[i] = p.a + (begin + blocks.begin(b) + i) * p.a_stride;
      by_rows(blocks.rows(b)).across(p.k, from, to + blocks.begin(b) * p.k);
    }
    return;
  }
  const WindowsOfRows& w = *p.windows;
  const std::vector<float> zeros(p.a_stride);
  int64_t s = segment_of(w.offsets, w.segments, begin);
  for (int64_t b = 0; b < blocks.count; ++b) {
    const int64_t first = begin + blocks.begin(b), count = blocks.rows(b);
    Range range[kTile];
    for (int64_t i = 0; i < count; ++i) {
      while (w.offsets[s + 1] <= first + i) ++s;
      range[i] = {w.offsets[s], w.offsets[s + 1]};
    }
    for (int64_t j = 0; j < w.size; ++j) {
      for (int64_t i = 0; i < count; ++i) {
        const int64_t row = first + i + w.start + j * w.dilation;
        from[i] = row >= range[i].begin && row < range[i].end ? p.a + row * p.a_stride : zeros.data();
      }
      by_rows(count).across(p.a_stride, from, to + blocks.begin(b) * p.k + j * p.a_stride * count);
    }
  }
}

// Panels [first, last) of a product of few enough rows that their packed form stays in the cache.
inline void some_panels(const Product& p, const float* packed, int64_t first, int64_t last) {
  const Blocks blocks(p.m);
  for (int64_t panel = first; panel < last;) {
    int64_t step = 1;
    for (int64_t i = 0; i < blocks.count; ++i) {
      const ForRows& f = by_rows(blocks.rows(i));
      const int64_t row = blocks.begin(i), column = panel * kPanel;
      step = blocks.count == 1 ? std::min(f.at_once, last - panel) : 1;
      if (step < f.at_once) step = 1;
      const int64_t end = std::min(p.n, (panel + step) * kPanel);
      (step > 1 ? f.panels : f.one_panel)({p.k, packed + row * p.k, p.b + panel * kPanel * p.k, kPanel * p.k,
                                           p.c + row * p.c_stride + column, p.c_stride,
                                           p.init ? p.init + row * p.init_stride + column : nullptr, p.init_stride,
                                           end - (panel + step - 1) * kPanel});
    }
    panel += step;
  }
}

inline void multiply(const CpuExec& exec, const Product& p) {
  if (p.m <= 0 || p.n <= 0) return;
  const int64_t panels = (p.n + kPanel - 1) / kPanel;
  // a chunk of the left side, packed, is a quarter of a megabyte: half of a small second-level cache
  const int64_t most = std::max<int64_t>(4 * kTile, 65536 / std::max<int64_t>(1, p.k) / kTile * kTile);
  const int64_t chunks = (p.m + most - 1) / most;
  struct Work {
    const Product& p;
    int64_t chunks, panels, pieces;
    void operator()(int64_t i) const {
      const int64_t chunk = i / pieces, piece = i % pieces;
      const int64_t begin = p.m * chunk / chunks, rows = p.m * (chunk + 1) / chunks - begin;
      static thread_local Buffer packed;
      packed.grow(rows * p.k);
      pack_left(p, begin, rows, packed.data());
      Product part = p;
      part.m = rows;
      part.c += begin * p.c_stride;
      if (part.init) part.init += begin * p.init_stride;
      some_panels(part, packed.data(), panels * piece / pieces, panels * (piece + 1) / pieces);
    }
  };
  // a product of one chunk is shared out by panels where that is worth waking other threads
  const int64_t work = p.m * p.n * p.k;
  const int64_t pieces = chunks > 1 ? 1 : std::max<int64_t>(1, std::min<int64_t>(panels, work >> 20));
  each(exec, chunks * pieces, kGrain, Work{p, chunks, panels, pieces});
}

// Rows [low, low + deep) of the right side in panels.
inline void pack_right(const TransposedProduct& p, int64_t low, int64_t deep, float* to) {
  for (int64_t r = 0; r < deep; ++r) {
    const int64_t row = p.b_rows ? p.b_rows[low + r] : low + r;
    const float* from = p.b + row * p.b_stride;
    for (int64_t first = 0; first < p.n; first += kPanel) {
      float* at = to + first * deep + r * kPanel;
      const int64_t real = row < 0 ? 0 : std::min<int64_t>(kPanel, p.n - first);
      if (real == kPanel) std::memcpy(at, from + first, kPanel * sizeof(float));
      else
        for (int64_t j = 0; j < kPanel; ++j) at[j] = j < real ? from[first + j] : 0.f;
    }
  }
}

// Blocks [begin, end) of kTile rows of the result.
inline void some_blocks(const CpuExec& exec, const TransposedProduct& p, int64_t begin, int64_t end) {
  // Rows summed before the sums go to memory, and blocks packed at a time, row after row, since rows lie far apart.
  constexpr int64_t kDeep = 256, kGroup = 8;
  const int64_t panels = (p.n + kPanel - 1) / kPanel, rest = p.m % kTile;
  static thread_local Buffer right, left;
  right.grow(kDeep * panels * kPanel);
  left.grow(kDeep * kGroup * kTile);
  for (int64_t low = 0; low < std::max<int64_t>(p.k, 1); low += kDeep) {
    const int64_t deep = std::min(kDeep, p.k - low);
    exec.pause();
    pack_right(p, low, deep, right.data());
    for (int64_t first = begin; first < end; first += kGroup) {
      const int64_t last = std::min(end, first + kGroup), whole = std::min(last, p.m / kTile);
      for (int64_t r = 0; r < deep; ++r) {
        const float* a = p.a + (p.a_rows ? p.a_rows[low + r] : low + r) * p.a_stride;
        for (int64_t i = first; i < whole; ++i)
          std::memcpy(left.data() + ((i - first) * kDeep + r) * kTile, a + i * kTile, kTile * sizeof(float));
        if (whole < last)
          for (int64_t j = 0; j < rest; ++j)
            left.data()[(whole - first) * kDeep * kTile + r * rest + j] = a[whole * kTile + j];
      }
      for (int64_t panel = 0; panel < panels; ++panel)
        for (int64_t i = first; i < last; ++i) {
          float* c = p.c + i * kTile * p.c_stride + panel * kPanel;
          by_rows(i < whole ? kTile : rest)
              .one_panel({deep, left.data() + (i - first) * kDeep * kTile, right.data() + panel * deep * kPanel, 0, c,
                          p.c_stride, low ? c : nullptr, p.c_stride, std::min<int64_t>(kPanel, p.n - panel * kPanel)});
        }
    }
  }
}

inline void multiply_transposed(const CpuExec& exec, const TransposedProduct& p) {
  if (p.m <= 0 || p.n <= 0) return;
  // blocks worth waking another thread for
  const int64_t worth = (int64_t(1) << 22) / std::max<int64_t>(1, kTile * p.n * p.k);
  // a thread takes all its blocks at once, since each packs the right side for itself
  const int64_t blocks = (p.m + kTile - 1) / kTile, threads = exec.threads();
  struct Work {
    const CpuExec& exec;
    const TransposedProduct& p;
  } work{exec, p};
  exec.parallel(blocks, std::max((blocks + threads - 1) / threads, worth), &work,
                [](const void* given, int64_t begin, int64_t end) {
                  const Work& w = *static_cast<const Work*>(given);
                  some_blocks(w.exec, w.p, begin, end);
                });
}

}  // namespace lod::LOD_LEVEL
