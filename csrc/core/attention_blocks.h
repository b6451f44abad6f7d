// Attention on the CPU, summed in float32: blocks of queries against blocks of keys. Kernel source, included by
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
#include "core/attention_tiles.h"

namespace lod::LOD_LEVEL {

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
  // At most n of `rows` from i on: `width` channels of each, from `channel` on.
  template <class P>
  static void prefetch(P* base, const Range& rows, int64_t i, int64_t n, int64_t stride, int64_t channel, int64_t width,
                      Prefetch& ahead) {
    const int64_t left = rows.length() - i, bytes = sizeof(P);
    if (left > 0)
      ahead.add(base + (rows.begin + i) * stride + channel, n < left ? n : left, stride * bytes, width * bytes,
                !std::is_const_v<P>);
  }
  void prefetch_queries(int64_t i, int64_t n, int64_t h, int64_t heads, Prefetch& ahead) const {
    prefetch(static_cast<const T*>(a.query), pairs.queries, i, n, a.query_stride, h * a.width, heads * a.width, ahead);
  }
  void prefetch_keys(int64_t j, int64_t g, Prefetch& ahead) const {
    prefetch(static_cast<const T*>(a.key), pairs.keys, j, kKeysPerStep, a.key_stride, g * a.width, a.width, ahead);
    prefetch(static_cast<const T*>(a.value), pairs.keys, j, kKeysPerStep, a.value_stride, g * a.value_width,
            a.value_width, ahead);
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
  // x = softcap tanh(x / softcap), and what it changes by if x changes by 1.
  void cap(float* x, Range columns, float* by) const {
    const float most = float(a.softcap), less = 1.f / most;
    for (int64_t c = columns.begin; c < columns.end; c += kFloats) {
      const Floats_ t = tanh_lanes(loose(x + c) * less);
      put_loose(x + c, t * most);
      if (by) put_loose(by + c, 1.f - t * t);
    }
  }
  // Cap, bias, distance and window of query i on its scores with the keys from j on, of which columns are worked out.
  void finish(float* x, int64_t i, int64_t j, int64_t h, Range columns, float* capped_by = nullptr) const {
    if (a.softcap > 0) cap(x, columns, capped_by);
    if (a.bias) {
      const int64_t at = a.pair_at(pairs, s, i, j + columns.begin, h);
      const T* b = static_cast<const T*>(a.bias) + at;
      for (int64_t c = columns.begin; c < columns.end; ++c) x[c] += float(b[(c - columns.begin) * a.bias_heads]);
    }
    if (a.slopes) {
      const float slope = static_cast<const float*>(a.slopes)[h];
      for (int64_t c = columns.begin; c < columns.end; ++c) x[c] -= slope * distance(i, j + c);
    }
    if (a.distances) {
      const auto* table = static_cast<const float*>(a.distances);
      const int64_t ahead = j - pairs.position(i);
      for (int64_t c = columns.begin; c < columns.end; ++c) x[c] += table[a.entry(h, ahead + c, a.most)];
    }
    const Range seen = pairs.keys_of(i);
    for (int64_t c = columns.begin, end = std::min(seen.begin - j, columns.end); c < end; ++c) x[c] = -INFINITY;
    for (int64_t c = std::max(std::min(seen.end - j, columns.end), columns.begin), end = whole(columns.end); c < end;
         ++c)
      x[c] = -INFINITY;
  }
  float distance(int64_t i, int64_t j) const { return float(std::abs(pairs.position(i) - j)); }
};

// All lanes joined by f, halves first.
template <class F>
LOD_FN float across(Floats_ v, const F& f) {
  float lane[kFloats];
  std::memcpy(lane, &v, sizeof lane);
  for (int n = kFloats / 2; n > 0; n /= 2)
    for (int l = 0; l < n; ++l) lane[l] = f(lane[l], lane[l + n]);
  return lane[0];
}
LOD_FN float largest(const float* x, Range columns) {
  Floats_ top = Floats_{} - INFINITY;
  for (int64_t c = columns.begin; c < columns.end; c += kFloats) {
    const Floats_ v = loose(x + c);
    top = v > top ? v : top;
  }
  return across(top, [](float a, float b) LOD_INLINE { return b > a ? b : a; });
}
// x = e^(x - by), and the sum of it.
LOD_FN float exponentials(float* x, Range columns, float by) {
  Floats_ sum{};
  for (int64_t c = columns.begin; c < columns.end; c += kFloats) {
    const Floats_ p = exp_lanes(loose(x + c) - by);
    put_loose(x + c, p);
    sum += p;
  }
  return across(sum, [](float a, float b) LOD_INLINE { return a + b; });
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

  // What follows the keys before j: more of them or, after the last ones, where the results go and what the next head
  // or block reads.
  void prefetch_next(const Block<T>& block, const Position* at, int64_t h, int64_t j, int64_t end,
                     Prefetch& ahead) const {
    if (j < end) return block.prefetch_keys(j, key_head(h), ahead);
    block.prefetch(static_cast<T*>(out), block.pairs.queries, at->begin, kBlockOfQueries, heads * value_width,
                  h * value_width, value_width, ahead);
    if (++h == heads) h = 0, ++at;
    if (at == blocks.data() + blocks.size()) return;
    const Block<T> next(*this, at->s);
    next.prefetch_queries(at->begin, kBlockOfQueries, h, 1, ahead);
    next.prefetch_keys(next.pairs.keys_of(at->begin).begin / kKeysPerStep * kKeysPerStep, key_head(h), ahead);
  }

  // The heads of a sequence one after another: what they read lies side by side.
  void operator()(int64_t item) const {
    const int64_t groups = (heads + together - 1) / together;
    const Item work{*this, &blocks[item / groups], item % groups * together};
    work.start();
    const Range seen = work.seen();
    for (int64_t j = seen.begin / kKeysPerStep * kKeysPerStep; j < seen.end; j += kKeysPerStep) {
      exec.pause();
      work.step(j, seen.end);
    }
    work.put();
  }

  struct Item {  // `some` heads from h on, of m queries from `first` on; g: the head of the keys of h
    const AttendBlock& a;
    const Position* at;
    const int64_t h;
    const Block<T> block{a, at->s};
    const int64_t g = a.key_head(h), some = std::min(a.together, a.heads - h), first = at->begin,
                  m = std::min(kBlockOfQueries, block.pairs.queries.length() - first), broad = whole(a.width),
                  out_broad = whole(a.value_width), most = std::max(some * m, kQueriesAtOnce);
    const bool few = few_queries(block.pairs.queries.length(), first);
    const int64_t per_step = few ? kFloats : kKeysPerStep;
    Workspace memory{some * m * (broad + out_broad + 2) + kKeysPerStep * (broad + out_broad) +
                     (broad + most) * kKeyStride};
    float *q = memory.take(some * m * broad), *sums = memory.take(some * m * out_broad);
    float *k = memory.take(kKeysPerStep * broad), *v = memory.take(kKeysPerStep * out_broad);
    float *transposed = memory.take(broad * kKeyStride), *x = memory.take(most * kKeyStride);
    float *top = memory.take(some * m), *total = memory.take(some * m);

    Range seen() const { return {block.pairs.keys_of(first).begin, block.pairs.keys_of(first + m - 1).end}; }
    void start() const {
      std::fill(sums, sums + some * m * out_broad, 0.f);
      for (int64_t o = 0; o < some; ++o) {
        block.lay_out_queries(first, m, h + o, q + o * m * broad);
        const float sink = a.sink ? static_cast<const float*>(a.sink)[h + o] : -INFINITY;
        std::fill(top + o * m, top + (o + 1) * m, sink);
        std::fill(total + o * m, total + (o + 1) * m, sink == -INFINITY ? 0.f : 1.f);
      }
    }
    using Rows = typename Block<T>::Rows;
    // Keys [j, j + kKeysPerStep).
    void step(int64_t j, int64_t end) const {
      const int64_t n = std::min(kKeysPerStep, block.pairs.keys.length() - j);
      Prefetch ahead;
      if (a.together == 1) a.prefetch_next(block, at, h, j + kKeysPerStep, end, ahead);
      const Rows keys = block.keys(j, n, g, true, k);
      if (!few) transpose(keys.rows, keys.step, n, broad, transposed);
      const Rows values = block.values(j, n, g, m <= kAtOnce, v);
      for (int64_t i = 0; i < m; i += kQueriesAtOnce) {
        const int64_t rows = std::min(kQueriesAtOnce, m - i);
        const Range c = block.columns(first + i, rows, j, n);
        if (c.begin >= c.end) continue;
        if (few) scores_of_few(rows, c, keys, values, n);
        else
          product_of_sides<false>({rows, whole(c.end) - c.begin, a.width, q + i * broad, broad, transposed + c.begin,
                                   kKeyStride, x + c.begin, kKeyStride, false, &ahead});
        weigh(i, rows, j, c);
        add_values(i, rows, c, values, ahead);
      }
    }
    const float* of_head(const Rows& rows, int64_t o, int64_t width) const {
      return rows.rows + (a.key_head(h + o) - g) * width;
    }
    void scores_of_few(int64_t rows, Range c, const Rows& keys, const Rows& values, int64_t n) const {
#if LOD_LANES >= 8
      for (int64_t to = c.begin; to < c.end; to += per_step)
        for (int64_t o = 0; o < some; ++o) {
          const float* from = of_head(keys, o, a.width);
          if (a.far) lod::LOD_LEVEL::prefetch(from, to + per_step, keys.step, a.width);
          dots(q + o * m * broad, rows, broad, from, keys.step, n, to, x + o * rows * kKeyStride);
        }
      for (int64_t o = 0; a.far && o < some; ++o)
        lod::LOD_LEVEL::prefetch(of_head(values, o, a.value_width) + c.begin * values.step, 0, values.step,
                                 a.value_width);
#endif
    }
    // Scores of queries [i, i + rows) as exponentials relative to the largest so far.
    void weigh(int64_t i, int64_t rows, int64_t j, Range c) const {
      for (int64_t r = 0; r < some * rows; ++r) {
        const int64_t o = r / rows, query_ = first + i + r % rows, own = o * m + i + r % rows;
        float *scores = x + r * kKeyStride, *sum = sums + own * out_broad;
        block.finish(scores, query_, j, h + o, c);
        const float before = top[own], now = std::max(before, largest(scores, c));
        const float by = now == -INFINITY ? 0.f : now;
        const float less = exp_below(before - by);
        total[own] = total[own] * less + exponentials(scores, c, by);
        if (a.seed) drop(a.kept(block.pairs.queries.begin + query_, h + o), j, c, scores, scores);
        top[own] = now;
        if (less != 1.f)
          for (int64_t d = 0; d < out_broad; ++d) sum[d] *= less;
      }
    }
    void add_values(int64_t i, int64_t rows, Range c, const Rows& values, Prefetch& ahead) const {
      for (int64_t to = c.begin; to < c.end; to += per_step)
        for (int64_t o = 0; o < some; ++o) {
          const float* from = of_head(values, o, a.value_width) + to * values.step;
          if (a.far) lod::LOD_LEVEL::prefetch(from, per_step, values.step, a.value_width);
          product_of_sides<false>({rows, out_broad, std::min(per_step, c.end - to), x + o * rows * kKeyStride + to,
                                   kKeyStride, from, values.step, sums + (o * m + i) * out_broad, out_broad, true,
                                   &ahead});
        }
    }
    void put() const {
      for (int64_t i = 0; i < some * m; ++i) {
        const int64_t to = (block.pairs.queries.begin + first + i % m) * a.heads + h + i / m;
        const float by = total[i] == 0.f ? 0.f : 1.f / total[i];
        put_back(sums + i * out_broad, 1, a.value_width, by, static_cast<T*>(a.out) + to * a.value_width, 0);
        static_cast<float*>(a.logsumexp)[to] = total[i] == 0.f ? -INFINITY : top[i] + std::log(total[i]);
      }
    }
  };
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
    const int64_t some = heads_per_step() == 1 ? 1 : key_heads, groups = key_heads / some;
    for (int64_t g = item % groups * some, end = g + some; g < end; ++g) head(item / groups, g);
  }
  // Where the results of keys [j, j + kKeysPerStep) go, and what follows: more keys, or what the next head reads.
  void prefetch_next(const Block<T>& block, int64_t s, int64_t g, int64_t j, Prefetch& ahead) const {
    const int64_t group = heads / key_heads;
    block.prefetch(static_cast<T*>(grad_key), block.pairs.keys, j, kKeysPerStep, key_heads * width, g * width, width,
                  ahead);
    block.prefetch(static_cast<T*>(grad_value), block.pairs.keys, j, kKeysPerStep, key_heads * value_width,
                  g * value_width, value_width, ahead);
    if (j + kKeysPerStep < block.pairs.keys.length()) return block.prefetch_keys(j + kKeysPerStep, g, ahead);
    block.prefetch(static_cast<T*>(grad_query), block.pairs.queries, 0, kBlockOfQueries, heads * width,
                  g * group * width, group * width, ahead);
    if (++g == key_heads) g = 0, ++s;
    if (s == segments) return;
    const Block<T> next(*this, s);
    next.prefetch_keys(0, g, ahead);
    next.prefetch_queries(0, kKeysPerStep, g * group, group, ahead);
    next.prefetch(static_cast<const T*>(grad_out), next.pairs.queries, 0, kKeysPerStep, heads * value_width,
                 g * group * value_width, group * value_width, ahead);
  }
  void head(int64_t s, int64_t g) const {
    const Head work{*this, s, g};
    std::fill(work.dq, work.dq + work.group * work.queries * work.broad, 0.f);
    for (int64_t j = 0; j < work.keys; j += kKeysPerStep) work.step(j);
    work.put_queries();
  }

  struct Head {  // a head of the keys of a sequence, and those of the queries that share it
    const AttendBlockGrad& a;
    const int64_t s, g;
    const Block<T> block{a, s};
    const int64_t queries = block.pairs.queries.length(), keys = block.pairs.keys.length(),
                  group = a.heads / a.key_heads, broad = whole(a.width), out_broad = whole(a.value_width),
                  both = broad + out_broad;
    Workspace memory{group * queries * broad + (2 * kKeysPerStep + kQueriesAtOnce) * both +
                     (both + 2 * kQueriesAtOnce) * kKeyStride};
    float* dq = memory.take(group * queries * broad);
    float *k = memory.take(kKeysPerStep * broad), *v = memory.take(kKeysPerStep * out_broad);
    float *dk = memory.take(kKeysPerStep * broad), *dv = memory.take(kKeysPerStep * out_broad);
    float *q = memory.take(kQueriesAtOnce * broad), *d_out = memory.take(kQueriesAtOnce * out_broad);
    float *k_transposed = memory.take(broad * kKeyStride), *v_transposed = memory.take(out_broad * kKeyStride);
    float *p = memory.take(kQueriesAtOnce * kKeyStride), *dx = memory.take(kQueriesAtOnce * kKeyStride);

    // Keys [j, j + kKeysPerStep).
    void step(int64_t j) const {
      const int64_t n = std::min(kKeysPerStep, keys - j);
      block.keys(j, n, g, false, k);
      block.values(j, n, g, false, v);
      transpose(k, broad, n, broad, k_transposed);
      transpose(v, out_broad, n, out_broad, v_transposed);
      Prefetch ahead;
      a.prefetch_next(block, s, g, j, ahead);
      std::fill(dk, dk + n * broad, 0.f);
      std::fill(dv, dv + n * out_broad, 0.f);
      const int64_t begin = block.pairs.queries_of(j).begin, last = block.pairs.queries_of(j + n - 1).end;
      for (int64_t o = 0; o < group; ++o)
        for (int64_t i = begin / kQueriesAtOnce * kQueriesAtOnce; i < last; i += kQueriesAtOnce)
          some_queries(i, o, j, n, ahead);
      const int64_t at = (block.pairs.keys.begin + j) * a.key_heads + g;
      put_back(dk, n, a.width, 1.f, static_cast<T*>(a.grad_key) + at * a.width, a.key_heads * a.width);
      put_back(dv, n, a.value_width, 1.f, static_cast<T*>(a.grad_value) + at * a.value_width,
               a.key_heads * a.value_width);
    }
    // Queries [i, i + kQueriesAtOnce) of one of the heads that share these keys.
    void some_queries(int64_t i, int64_t o, int64_t j, int64_t n, Prefetch& ahead) const {
      const int64_t rows = std::min(kQueriesAtOnce, queries - i), h = g * group + o;
      const Range c = block.columns(i, rows, j, n);
      const int64_t at = block.pairs.queries.begin + i, real = c.end - c.begin, columns = whole(c.end) - c.begin;
      if (real <= 0) return;
      a.exec.pause();
      block.lay_out_queries(i, rows, h, q);
      lay_out(static_cast<const T*>(a.grad_out) + (at * a.heads + h) * a.value_width, a.heads * a.value_width, rows,
              a.value_width, 1.f, d_out);
#if LOD_LANES >= 8
      const bool few = few_queries(queries, i);
      for (int64_t to = c.begin; few && to < c.end; to += kFloats) dots(q, rows, broad, k, broad, n, to, p);
      if (!few)
#endif
        product_of_sides<false>({rows, columns, a.width, q, broad, k_transposed + c.begin, kKeyStride, p + c.begin,
                                 kKeyStride, false, &ahead});
      product_of_sides<false>({rows, columns, a.value_width, d_out, out_broad, v_transposed + c.begin, kKeyStride,
                               dx + c.begin, kKeyStride, false, &ahead});
      for (int64_t r = 0; r < rows; ++r) a.gradients(block, i + r, j, h, c, p + r * kKeyStride, dx + r * kKeyStride);
      product_of_sides<true>({real, out_broad, rows, p + c.begin, kKeyStride, d_out, out_broad,
                              dv + c.begin * out_broad, out_broad, true, &ahead});
      product_of_sides<true>(
          {real, broad, rows, dx + c.begin, kKeyStride, q, broad, dk + c.begin * broad, broad, true, &ahead});
      product_of_sides<false>({rows, broad, real, dx + c.begin, kKeyStride, k + c.begin * broad, broad,
                               dq + (o * queries + i) * broad, broad, true, &ahead});
    }
    void put_queries() const {
      for (int64_t o = 0; o < group; ++o)
        put_back(dq + o * queries * broad, queries, a.width, float(a.scale),
                 static_cast<T*>(a.grad_query) + (block.pairs.queries.begin * a.heads + g * group + o) * a.width,
                 a.heads * a.width);
    }
  };
  // From the scores of query i and dout v^T: p (after dropout) and dx, and the gradients of bias, slope and distances.
  void gradients(const Block<T>& block, int64_t i, int64_t j, int64_t h, Range columns, float* p, float* dx) const {
    const int64_t row = (block.pairs.queries.begin + i) * heads + h;
    const float all = static_cast<const float*>(logsumexp)[row], d = static_cast<const float*>(delta)[row];
    float capped_by[kKeyStride];
    block.finish(p, i, j, h, columns, capped_by);
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
    if (grad_distances) {
      float* table = static_cast<float*>(grad_distances) + block.s * heads * (2 * reach + 1);
      const int64_t ahead = j - block.pairs.position(i);
      for (int64_t c = columns.begin; c < columns.end; ++c) table[entry(h, ahead + c, reach)] += dx[c];
    }
    if (softcap > 0)
      for (int64_t c = columns.begin; c < columns.end; ++c) dx[c] *= capped_by[c];
  }
};

template <class T>
void attend_in_blocks(const Exec& exec, const AttentionBackward& a) {
  const int64_t items = a.segments * (a.heads_per_step() == 1 ? a.key_heads : 1);
  each(exec, items, 2 * a.cost(items), AttendBlockGrad<T>{{a}, exec});
}

}  // namespace lod::LOD_LEVEL
