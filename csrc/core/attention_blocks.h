// Attention on the CPU, summed in float32: blocks of queries against blocks of keys. Kernel text, included by
// attention.h in the namespace of the level being compiled, where each_level.h defines LOD_LANES.
//
// Of a block, rows are laid out side by side and padded to whole registers with zeros, keys (and for the backward
// values) are also transposed, so that the lanes of a register are keys where scores are formed and channels everywhere
// else:
//   x = q k^T and dout v^T against the transposed keys and values; p v, dx k, p^T dout and dx^T q against rows.
// The left side is read where it lies, one number at a time, and kept against kAtOnce rows of sums in registers. Keys
// outside a query's window, and the padding, count as -inf before the exponential. Which block a row falls into depends
// on its position in its own sequence alone.
// SPDX-License-Identifier: Apache-2.0

namespace lod::LOD_LEVEL {

constexpr int kFloats = LOD_LANES;
constexpr int kAtOnce = kFloats == 16 ? 8 : 4;      // rows of sums
constexpr int kMostVectors = kFloats == 4 ? 2 : 3;  // registers of a row of sums
constexpr int64_t kKeysAtOnce = 128, kQueriesAtOnce = 32, kBlockOfQueries = 256, kFewQueries = LOD_LANES >= 8 ? 4 : 0;
static_assert(kFewQueries <= kAtOnce);  // values of few queries are read where they lie
// Whether query i of n is in a block of few. Backwards its scores are summed in the same order as forwards: by what the
// two differ, e^(x - log sum) is wrong.
static_assert(kBlockOfQueries % kQueriesAtOnce == 0);
LOD_FN bool few_queries(int64_t n, int64_t i) { return n - i / kBlockOfQueries * kBlockOfQueries <= kFewQueries; }
// From one row of transposed keys, or of scores, to the next: no power of two.
constexpr int64_t kKeyStride = kKeysAtOnce + 16;
using Floats_ = float __attribute__((vector_size(kFloats * 4)));
using LooseFloats_ = float __attribute__((vector_size(kFloats * 4), aligned(4)));
LOD_FN Floats_ loose(const float* p) { return *reinterpret_cast<const LooseFloats_*>(p); }
LOD_FN void put_loose(float* p, Floats_ v) { *reinterpret_cast<LooseFloats_*>(p) = v; }
LOD_FN int64_t whole(int64_t n) { return (n + kFloats - 1) / kFloats * kFloats; }
template <class T>
constexpr bool in_whole_registers(int64_t width) {
  return std::is_same_v<T, float> && width % kFloats == 0;
}

// c[r] (+)= sum over i < k of left(r, i) b[i], kRows rows of kVectors registers; left(r, i) is a[r step + i], or
// transposed a[i step + r].
template <int kRows, int kVectors, bool kTransposedLeft>
void tile_of_sums(int64_t k, const float* a, int64_t step, const float* b, int64_t b_step, float* c, int64_t c_step,
                  bool add) {
  Floats_ sum[kRows][kVectors];
  const float* rows[kRows];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    rows[r] = a + r * step;
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) sum[r][v] = add ? loose(c + r * c_step + v * kFloats) : Floats_{};
  }
  for (int64_t i = 0; i < k; ++i, b += b_step) {
    Floats_ right[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) right[v] = loose(b + v * kFloats);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const float left = kTransposedLeft ? a[r] : rows[r][i];
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) sum[r][v] += left * right[v];
    }
    if (kTransposedLeft) a += step;
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) put_loose(c + r * c_step + v * kFloats, sum[r][v]);
}

struct Sides {  // of a product of (m, k) and (k, n), n whole registers
  int64_t m, n, k;
  const float* a;
  int64_t step;
  const float* b;
  int64_t b_step;
  float* c;
  int64_t c_step;
  bool add;
};
template <int kRows, int kVectors, bool kTransposedLeft>
int64_t rows_of_sums(const Sides& p, int64_t column, int64_t r) {
  for (; r + kRows <= p.m; r += kRows)
    tile_of_sums<kRows, kVectors, kTransposedLeft>(p.k, p.a + (kTransposedLeft ? r : r * p.step), p.step, p.b + column,
                                                   p.b_step, p.c + r * p.c_step + column, p.c_step, p.add);
  return r;
}
template <int kVectors, bool kTransposedLeft>
void columns_of_sums(const Sides& p, int64_t column) {
  int64_t r = rows_of_sums<kAtOnce, kVectors, kTransposedLeft>(p, column, 0);
  r = rows_of_sums<4, kVectors, kTransposedLeft>(p, column, r);
  r = rows_of_sums<2, kVectors, kTransposedLeft>(p, column, r);
  rows_of_sums<1, kVectors, kTransposedLeft>(p, column, r);
}
template <bool kTransposedLeft>
void product_of_sides(const Sides& p) {
  for (int64_t column = 0; column < p.n;) {
    const int64_t left = (p.n - column) / kFloats;
    if (kMostVectors == 3 && (left == 3 || left > 4)) {
      columns_of_sums<kMostVectors, kTransposedLeft>(p, column);
      column += kMostVectors * kFloats;
    } else if (left >= 2) {
      columns_of_sums<2, kTransposedLeft>(p, column);
      column += 2 * kFloats;
    } else {
      columns_of_sums<1, kTransposedLeft>(p, column);
      column += kFloats;
    }
  }
}

// Rows of T as rows of whole registers, times `factor`.
template <class T>
void lay_out(const T* from, int64_t stride, int64_t rows, int64_t width, float factor, float* to) {
  const int64_t padded = whole(width);
  for (int64_t r = 0; r < rows; ++r, from += stride, to += padded) {
    for (int64_t c = 0; c < width; ++c) to[c] = float(from[c]) * factor;
    for (int64_t c = width; c < padded; ++c) to[c] = 0.f;
  }
}
template <class T>
void put_back(const float* from, int64_t rows, int64_t width, float factor, T* to, int64_t stride) {
  const int64_t padded = whole(width);
  for (int64_t r = 0; r < rows; ++r, from += padded, to += stride)
    for (int64_t c = 0; c < width; ++c) to[c] = T(from[c] * factor);
}

// Transposed rows of whole registers: to[c, r] = from[r, c], and zeros for what is missing of the last register.
#if LOD_LANES >= 8
typedef int32_t Ints_ __attribute__((vector_size(4 * LOD_LANES)));
template <int distance, bool second, int... l>
LOD_FN Floats_ woven(Floats_ a, Floats_ b, std::integer_sequence<int, l...>) {  // swaps a's odd runs with b's even ones
  return __builtin_shuffle(
      a, b,
      Ints_{(second ? (l & distance ? kFloats + l : l + distance) : (l & distance ? kFloats + l - distance : l))...});
}
template <int distance>
LOD_FN void weave(Floats_* rows) {
  if constexpr (distance > 0) {
#pragma GCC unroll 16
    for (int i = 0; i < kFloats; ++i)
      if (!(i & distance)) {
        const Floats_ a = rows[i], b = rows[i + distance];
        rows[i] = woven<distance, false>(a, b, std::make_integer_sequence<int, kFloats>{});
        rows[i + distance] = woven<distance, true>(a, b, std::make_integer_sequence<int, kFloats>{});
      }
    weave<distance / 2>(rows);
  }
}
// sums[0] lane i: all lanes of sums[i], added by halves.
template <int distance>
LOD_FN void add_lanes(Floats_* sums) {
  if constexpr (distance > 0) {
#pragma GCC unroll 16
    for (int i = 0; i < distance; ++i)
      sums[i] = woven<distance, false>(sums[i], sums[i + distance], std::make_integer_sequence<int, kFloats>{}) +
                woven<distance, true>(sums[i], sums[i + distance], std::make_integer_sequence<int, kFloats>{});
    add_lanes<distance / 2>(sums);
  }
}
// x[r, j + i] = q[r] . keys[j + i] for as many keys as a register has lanes, of n in all: for queries too few to
// transpose keys for.
inline void dots(const float* q, int64_t rows, int64_t width, const float* keys, int64_t step, int64_t n, int64_t j,
                 float* x) {
  for (int64_t r = 0; r < rows; ++r) {
    Floats_ sums[kFloats];
#pragma GCC unroll 16
    for (int i = 0; i < kFloats; ++i) {
      const float* key = keys + (j + i < n ? j + i : n - 1) * step;
      sums[i] = Floats_{};
      for (int64_t c = 0; c < width; c += kFloats) sums[i] += loose(q + r * width + c) * loose(key + c);
    }
    add_lanes<kFloats / 2>(sums);
    put_loose(x + r * kKeyStride + j, sums[0]);
  }
}
#endif
// Asks for as many rows as a register has lanes, from row `at` on; they may be none of ours. Parts of rows far apart
// are what a processor does not foresee.
inline void ask_for(const float* rows, int64_t at, int64_t step, int64_t width) {
  const auto from = reinterpret_cast<uintptr_t>(rows);
  for (int64_t i = 0; i < kFloats; ++i)
    for (int64_t c = 0; c < width; c += 16)
      __builtin_prefetch(reinterpret_cast<const void*>(from + (uintptr_t(at + i) * uintptr_t(step) + c) * 4), 0, 2);
}
inline void transpose(const float* from, int64_t step, int64_t rows, int64_t width, float* to) {
  for (int64_t r = 0; r < rows; r += kFloats)
    for (int64_t c = 0; c < width; c += kFloats) {
      Floats_ square[kFloats];
#if LOD_LANES >= 8
#pragma GCC unroll 16
      for (int i = 0; i < kFloats; ++i) square[i] = r + i < rows ? loose(from + (r + i) * step + c) : Floats_{};
      weave<kFloats / 2>(square);
#else
      for (int i = 0; i < kFloats; ++i)
        for (int k = 0; k < kFloats; ++k) square[k][i] = r + i < rows ? from[(r + i) * step + c + k] : 0.f;
#endif
#pragma GCC unroll 16
      for (int i = 0; i < kFloats; ++i) put_loose(to + (c + i) * kKeyStride + r, square[i]);
    }
}

// Memory of a thread, handed out in pieces, and kept for the next item. A handler of signals that calls attention while
// an item pauses finds none, and gets memory of its own.
class Workspace {
 public:
  explicit Workspace(int64_t floats) : memory_(std::move(kept())) {
    if (int64_t(memory_.size()) < floats + 16) memory_.resize(floats + 16);
    next_ = memory_.data() + (64 - reinterpret_cast<uintptr_t>(memory_.data()) % 64) % 64 / sizeof(float);
  }
  ~Workspace() { kept() = std::move(memory_); }
  float* take(int64_t floats) { return next_ += floats, next_ - floats; }

 private:
  static std::vector<float>& kept() {
    static thread_local std::vector<float> memory;
    return memory;
  }
  std::vector<float> memory_;
  float* next_;
};

template <class T>
struct Block {  // some queries against some keys of a sequence, one head
  const Attention& a;
  int64_t s;
  Pairs pairs;

  Block(const Attention& a, int64_t s) : a(a), s(s), pairs(a.of(s)) {}
  template <class P>
  static P* row(P* base, int64_t at, int64_t stride, int64_t h, int64_t width) {
    return base + at * stride + h * width;
  }
  void lay_out_queries(int64_t i, int64_t n, int64_t h, float* to) const {
    const T* from = row(static_cast<const T*>(a.query), pairs.queries.begin + i, a.query_stride, h, a.width);
    lay_out(from, a.query_stride, n, a.width, float(a.scale), to);
  }
  struct Rows {
    const float* rows;
    int64_t step;
  };
  // Rows of whole registers: laid out, or `where_they_are` if they are such.
  static Rows laid_out(const T* from, int64_t stride, int64_t n, int64_t width, bool where_they_are, float* to) {
    if constexpr (std::is_same_v<T, float>)
      if (where_they_are && in_whole_registers<T>(width)) return {from, stride};
    lay_out(from, stride, n, width, 1.f, to);
    return {to, whole(width)};
  }
  Rows keys(int64_t j, int64_t n, int64_t g, bool where_they_are, float* to) const {
    const T* from = row(static_cast<const T*>(a.key), pairs.keys.begin + j, a.key_stride, g, a.width);
    return laid_out(from, a.key_stride, n, a.width, where_they_are, to);
  }
  // For few queries those far apart are read as quickly.
  Rows values(int64_t j, int64_t n, int64_t g, bool where_they_are, float* to) const {
    const T* from = row(static_cast<const T*>(a.value), pairs.keys.begin + j, a.value_stride, g, a.value_width);
    return laid_out(from, a.value_stride, n, a.value_width, where_they_are, to);
  }
  // Of keys [j, j + n) those that any of queries [i, i + m) sees, counted from j; the first at a register's beginning.
  Range columns(int64_t i, int64_t m, int64_t j, int64_t n) const {
    const Range seen = Pairs::within(pairs.keys_of(i).begin - j, pairs.keys_of(i + m - 1).end - j, n);
    return {seen.begin / kFloats * kFloats, seen.end};
  }
  // Bias, distance and window of query i on its scores with the keys from j on, of which columns are worked out.
  void finish(float* x, int64_t i, int64_t j, int64_t h, Range columns) const {
    if (a.bias) {
      const int64_t at = a.pair_at(pairs, s, i, j + columns.begin, h);
      const T* b = static_cast<const T*>(a.bias) + at;
      for (int64_t c = columns.begin; c < columns.end; ++c) x[c] += float(b[(c - columns.begin) * a.bias_heads]);
    }
    if (a.slopes) {
      const float slope = static_cast<const float*>(a.slopes)[h];
      for (int64_t c = columns.begin; c < columns.end; ++c) x[c] -= slope * distance(i, j + c);
    }
    const Range seen = pairs.keys_of(i);
    for (int64_t c = columns.begin, end = std::min(seen.begin - j, columns.end); c < end; ++c) x[c] = -INFINITY;
    for (int64_t c = std::max(std::min(seen.end - j, columns.end), columns.begin), end = whole(columns.end); c < end;
         ++c)
      x[c] = -INFINITY;
  }
  float distance(int64_t i, int64_t j) const { return float(std::abs(pairs.position(i) - j)); }
};

LOD_FN float largest(const float* x, Range columns) {
  Floats_ top = Floats_{} - INFINITY;
  for (int64_t c = columns.begin; c < columns.end; c += kFloats) {
    const Floats_ v = loose(x + c);
    top = v > top ? v : top;
  }
  float best = top[0];
  for (int l = 1; l < kFloats; ++l) best = top[l] > best ? top[l] : best;
  return best;
}
// x = e^(x - by), and the sum of it.
LOD_FN float exponentials(float* x, Range columns, float by) {
  float sum[kFloats] = {};
  for (int64_t c = columns.begin; c < columns.end; c += kFloats)
    for (int l = 0; l < kFloats; ++l) {
      const float p = exp_below(x[c + l] - by);
      x[c + l] = p, sum[l] += p;
    }
  float total = 0;
  for (int l = 0; l < kFloats; ++l) total += sum[l];
  return total;
}

// to = m x, of the keys from j on.
LOD_FN void drop(const Kept& kept, int64_t j, Range columns, const float* x, float* to) {
  const float factor = float(kept.factor);
  for (int64_t c = columns.begin; c < columns.end; ++c) to[c] = kept(j + c) ? x[c] * factor : 0.f;
}

template <class T>
struct AttendBlock : AttentionForward {
  struct Position {
    int64_t s, begin;
  };
  const std::vector<Position>& blocks;
  const Exec& exec;
  // Heads that an item takes. Of few queries many: then keys and values are read from end to end, as they lie.
  int64_t together;
  bool far;  // keys and values of few queries are more than caches hold

  void operator()(int64_t item) const {
    const auto [s, first] = blocks[item % blocks.size()];
    const int64_t h = item / int64_t(blocks.size()) * together, g = key_head(h), some = std::min(together, heads - h);
    const Block<T> block(*this, s);
    const int64_t m = std::min(kBlockOfQueries, block.pairs.queries.length() - first), broad = whole(width),
                  out_broad = whole(value_width), most = std::max(some * m, kQueriesAtOnce);
    Workspace memory(some * m * (broad + out_broad + 2) + kKeysAtOnce * (broad + out_broad) +
                     (broad + most) * kKeyStride);
    float *q = memory.take(some * m * broad), *sums = memory.take(some * m * out_broad);
    float *k = memory.take(kKeysAtOnce * broad), *v = memory.take(kKeysAtOnce * out_broad);
    float *transposed = memory.take(broad * kKeyStride), *x = memory.take(most * kKeyStride);
    float *top = memory.take(some * m), *total = memory.take(some * m);
    const bool few = few_queries(block.pairs.queries.length(), first);
    const int64_t at_once = few ? kFloats : kKeysAtOnce;
    for (int64_t o = 0; o < some; ++o) block.lay_out_queries(first, m, h + o, q + o * m * broad);
    std::fill(sums, sums + some * m * out_broad, 0.f);
    std::fill(top, top + some * m, -INFINITY);
    std::fill(total, total + some * m, 0.f);
    const Range seen{block.pairs.keys_of(first).begin, block.pairs.keys_of(first + m - 1).end};
    for (int64_t j = seen.begin / kKeysAtOnce * kKeysAtOnce; j < seen.end; j += kKeysAtOnce) {
      const int64_t n = std::min(kKeysAtOnce, block.pairs.keys.length() - j);
      exec.pause();
      const auto keys_ = block.keys(j, n, g, true, k);
      if (!few) transpose(keys_.rows, keys_.step, n, broad, transposed);
      const auto values = block.values(j, n, g, m <= kAtOnce, v);
      for (int64_t i = 0; i < m; i += kQueriesAtOnce) {
        const int64_t rows = std::min(kQueriesAtOnce, m - i);
        const Range c = block.columns(first + i, rows, j, n);
        if (c.begin >= c.end) continue;
        const auto values_from = [&](int64_t at, int64_t o) {
          return values.rows + (key_head(h + o) - g) * value_width + at * values.step;
        };
#if LOD_LANES >= 8
        for (int64_t at = c.begin; few && at < c.end; at += at_once)
          for (int64_t o = 0; o < some; ++o) {
            const float* keys = keys_.rows + (key_head(h + o) - g) * width;
            if (far) ask_for(keys, at + at_once, keys_.step, width);
            dots(q + o * m * broad, rows, broad, keys, keys_.step, n, at, x + o * rows * kKeyStride);
          }
        for (int64_t o = 0; far && o < some; ++o) ask_for(values_from(c.begin, o), 0, values.step, value_width);
#endif
        if (!few)
          product_of_sides<false>({rows, whole(c.end) - c.begin, width, q + i * broad, broad, transposed + c.begin,
                                   kKeyStride, x + c.begin, kKeyStride, false});
        for (int64_t r = 0; r < some * rows; ++r) {
          const int64_t o = r / rows, query_ = first + i + r % rows, own = o * m + i + r % rows;
          float *scores = x + r * kKeyStride, *sum = sums + own * out_broad;
          block.finish(scores, query_, j, h + o, c);
          const float before = top[own], now = std::max(before, largest(scores, c)), by = now == -INFINITY ? 0.f : now;
          const float less = exp_below(before - by);
          total[own] = total[own] * less + exponentials(scores, c, by);
          if (seed) drop(kept(block.pairs.queries.begin + query_, h + o), j, c, scores, scores);
          top[own] = now;
          if (less != 1.f)
            for (int64_t d = 0; d < out_broad; ++d) sum[d] *= less;
        }
        for (int64_t at = c.begin; at < c.end; at += at_once)
          for (int64_t o = 0; o < some; ++o) {
            const float* from = values_from(at, o);
            if (far) ask_for(from, at_once, values.step, value_width);
            product_of_sides<false>({rows, out_broad, std::min(at_once, c.end - at), x + o * rows * kKeyStride + at,
                                     kKeyStride, from, values.step, sums + (o * m + i) * out_broad, out_broad, true});
          }
      }
    }
    for (int64_t i = 0; i < some * m; ++i) {
      const int64_t at = (block.pairs.queries.begin + first + i % m) * heads + h + i / m;
      const float by = total[i] == 0.f ? 0.f : 1.f / total[i];
      put_back(sums + i * out_broad, 1, value_width, by, static_cast<T*>(out) + at * value_width, 0);
      static_cast<float*>(logsumexp)[at] = total[i] == 0.f ? -INFINITY : top[i] + std::log(total[i]);
    }
  }
};

template <class T>
void attend_in_blocks(const Exec& exec, const AttentionForward& a) {
  std::vector<typename AttendBlock<T>::Position> blocks;
  int64_t longest = 0, together = 1;
  bool far = false;
  for (int64_t s = 0; s < a.segments; ++s) {
    const int64_t n = rows_of(a.query_offsets, s, a.queries).length();
    longest = std::max(longest, n);
    for (int64_t i = 0; i < n; i += kBlockOfQueries) blocks.push_back({s, i});
  }
  const int64_t count = int64_t(blocks.size());
  const bool where_they_are = in_whole_registers<T>(a.width) && in_whole_registers<T>(a.value_width);
  if (where_they_are && longest <= kFewQueries && count) {  // as many items as threads
    const int64_t groups = std::min(a.heads, (exec.threads() + count - 1) / count);
    together = (a.heads + groups - 1) / groups;
    far = double(a.keys) * (double(a.key_stride) + double(a.value_stride)) * sizeof(T) > 1 << 24;
  }
  const int64_t items = (a.heads + together - 1) / together * count;
  each(exec, items, a.cost(items), AttendBlock<T>{{a}, blocks, exec, together, far});
}

// A sequence and a head of its keys, with all heads of the queries that share it; all heads, if they share a bias.
template <class T>
struct AttendBlockGrad : AttentionBackward {
  const Exec& exec;
  void operator()(int64_t item) const {
    const int64_t s = item % segments, some = heads_at_once() == 1 ? 1 : key_heads;
    for (int64_t g = item / segments * some, end = g + some; g < end; ++g) head(s, g);
  }
  void head(int64_t s, int64_t g) const {
    const Block<T> block(*this, s);
    const int64_t queries_ = block.pairs.queries.length(), keys_ = block.pairs.keys.length(), group = heads / key_heads;
    const int64_t broad = whole(width), out_broad = whole(value_width), both = broad + out_broad;
    Workspace memory(group * queries_ * broad + (2 * kKeysAtOnce + kQueriesAtOnce) * both +
                     (both + 2 * kQueriesAtOnce) * kKeyStride);
    float* dq = memory.take(group * queries_ * broad);
    float *k = memory.take(kKeysAtOnce * broad), *v = memory.take(kKeysAtOnce * out_broad);
    float *dk = memory.take(kKeysAtOnce * broad), *dv = memory.take(kKeysAtOnce * out_broad);
    float *q = memory.take(kQueriesAtOnce * broad), *d_out = memory.take(kQueriesAtOnce * out_broad);
    float *k_transposed = memory.take(broad * kKeyStride), *v_transposed = memory.take(out_broad * kKeyStride);
    float *p = memory.take(kQueriesAtOnce * kKeyStride), *dx = memory.take(kQueriesAtOnce * kKeyStride);
    std::fill(dq, dq + group * queries_ * broad, 0.f);
    for (int64_t j = 0; j < keys_; j += kKeysAtOnce) {
      const int64_t n = std::min(kKeysAtOnce, keys_ - j);
      block.keys(j, n, g, false, k);
      block.values(j, n, g, false, v);
      transpose(k, broad, n, broad, k_transposed);
      transpose(v, out_broad, n, out_broad, v_transposed);
      std::fill(dk, dk + n * broad, 0.f);
      std::fill(dv, dv + n * out_broad, 0.f);
      const int64_t begin = block.pairs.queries_of(j).begin, last = block.pairs.queries_of(j + n - 1).end;
      for (int64_t o = 0; o < group; ++o)
        for (int64_t i = begin / kQueriesAtOnce * kQueriesAtOnce, h = g * group + o; i < last; i += kQueriesAtOnce) {
          const int64_t rows = std::min(kQueriesAtOnce, queries_ - i);
          const Range c = block.columns(i, rows, j, n);
          const int64_t at = block.pairs.queries.begin + i, real = c.end - c.begin, columns = whole(c.end) - c.begin;
          if (real <= 0) continue;
          exec.pause();
          block.lay_out_queries(i, rows, h, q);
          lay_out(static_cast<const T*>(grad_out) + (at * heads + h) * value_width, heads * value_width, rows,
                  value_width, 1.f, d_out);
#if LOD_LANES >= 8
          const bool few = few_queries(queries_, i);
          for (int64_t to = c.begin; few && to < c.end; to += kFloats) dots(q, rows, broad, k, broad, n, to, p);
          if (!few)
#endif
            product_of_sides<false>(
                {rows, columns, width, q, broad, k_transposed + c.begin, kKeyStride, p + c.begin, kKeyStride, false});
          product_of_sides<false>({rows, columns, value_width, d_out, out_broad, v_transposed + c.begin, kKeyStride,
                                   dx + c.begin, kKeyStride, false});
          for (int64_t r = 0; r < rows; ++r) gradients(block, i + r, j, h, c, p + r * kKeyStride, dx + r * kKeyStride);
          product_of_sides<true>({real, out_broad, rows, p + c.begin, kKeyStride, d_out, out_broad,
                                  dv + c.begin * out_broad, out_broad, true});
          product_of_sides<true>(
              {real, broad, rows, dx + c.begin, kKeyStride, q, broad, dk + c.begin * broad, broad, true});
          product_of_sides<false>({rows, broad, real, dx + c.begin, kKeyStride, k + c.begin * broad, broad,
                                   dq + (o * queries_ + i) * broad, broad, true});
        }
      const int64_t at = (block.pairs.keys.begin + j) * key_heads + g;
      put_back(dk, n, width, 1.f, static_cast<T*>(grad_key) + at * width, key_heads * width);
      put_back(dv, n, value_width, 1.f, static_cast<T*>(grad_value) + at * value_width, key_heads * value_width);
    }
    for (int64_t o = 0; o < group; ++o)
      put_back(dq + o * queries_ * broad, queries_, width, float(scale),
               static_cast<T*>(grad_query) + (block.pairs.queries.begin * heads + g * group + o) * width,
               heads * width);
  }
  // From the scores of query i and dout v^T: p (after dropout) and dx, and the gradients of bias and slope.
  void gradients(const Block<T>& block, int64_t i, int64_t j, int64_t h, Range columns, float* p, float* dx) const {
    const int64_t row = (block.pairs.queries.begin + i) * heads + h;
    const float all = static_cast<const float*>(logsumexp)[row], d = static_cast<const float*>(delta)[row];
    block.finish(p, i, j, h, columns);
    exponentials(p, columns, all == -INFINITY ? INFINITY : all);
    if (seed) drop(kept(block.pairs.queries.begin + i, h), j, columns, dx, dx);
    for (int64_t c = columns.begin; c < columns.end; ++c) dx[c] = p[c] * (dx[c] - d);
    if (seed) drop(kept(block.pairs.queries.begin + i, h), j, columns, p, p);
    if (grad_bias) {
      float* to = static_cast<float*>(grad_bias) + pair_at(block.pairs, block.s, i, j + columns.begin, h);
      for (int64_t c = columns.begin; c < columns.end; ++c, to += bias_heads) *to += dx[c];
    }
    if (grad_slopes) {
      float sum = 0;
      for (int64_t c = columns.begin; c < columns.end; ++c) sum -= dx[c] * block.distance(i, j + c);
      static_cast<float*>(grad_slopes)[row] += sum;
    }
  }
};

template <class T>
void attend_in_blocks(const Exec& exec, const AttentionBackward& a) {
  const int64_t items = a.segments * (a.heads_at_once() == 1 ? a.key_heads : 1);
  each(exec, items, 2 * a.cost(items), AttendBlockGrad<T>{{a}, exec});
}

}  // namespace lod::LOD_LEVEL
