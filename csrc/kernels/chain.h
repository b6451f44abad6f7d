// Shape "chain": a dynamic program along every sequence, over tags that follow one another. Kernel source, see
// torch_lod/device.h.
//
//   score of a path y = start[y0] + sum over t of values[t, y] + sum of transition[y, next y] + end[last y]
//   a[t, j] = values[t, j] + (+) over i of (a[t - 1, i] + transition[i, j]), with (+) as logsumexp or max
//
// (Lafferty, McCallum, Pereira, "Conditional random fields", 2001; Rabiner, "A tutorial on hidden Markov models",
// 1989.) Every row of a is kept relative to its largest entry, whose sum is kept in float64, so that no number of
// rows makes it lose digits. The logarithm of a sum is that of a product of probabilities: p = exp(a[t - 1]) by w =
// exp(transition - its column's largest entry). Where such a sum is so small that parts of it may have been lost, it is
// worked out again in logarithms. The gradient is the posterior: going back, row t hands to row t - 1 what that
// contributed, and is brought back to the sum that it must have.
//
// A piece is some sequences, by the number of rows and tags alone: it has memory of its own, and sums in a fixed order.
// SPDX-License-Identifier: Apache-2.0

#include <limits>

#include "kernels/chain_api.h"

#include "core/heap.h"

namespace lod::LOD_LEVEL {

// Looks for signals, such as Ctrl-C, whenever enough terms were added up.
struct ChainPause {
  void (*pause)();
  int64_t terms = 0;
  LOD_FN void operator()(int64_t more) {
    if ((terms += more) < kChainPatience) return;
    terms = 0;
    if constexpr (!kOnGpu)
      if (pause) pause();
  }
};

// Sums below this may have lost what counts.
template <class A>
constexpr A kFaint = std::is_same_v<A, double> ? A(1e-200) : A(1e-20);
template <class A>
constexpr A kNever = -std::numeric_limits<A>::infinity();

// y[j] = sum over i < n of x[i] w[i, j]
template <int W, class A>
LOD_FN void chain_columns(const A* x, const A* w, int64_t n, int64_t padded, A* y) {
  A even[W], odd[W];
  for (int k = 0; k < W; ++k) even[k] = odd[k] = A(0);
  int64_t i = 0;
  for (; i + 1 < n; i += 2)
    for (int k = 0; k < W; ++k) {
      even[k] += x[i] * w[i * padded + k];
      odd[k] += x[i + 1] * w[(i + 1) * padded + k];
    }
  for (; i < n; ++i)
    for (int k = 0; k < W; ++k) even[k] += x[i] * w[i * padded + k];
  for (int k = 0; k < W; ++k) y[k] = even[k] + odd[k];
}
template <class A>
LOD_FN void chain_times(const A* x, const A* w, int64_t n, int64_t padded, A* y) {
  int64_t c = 0;
  for (; c + 64 <= padded; c += 64) chain_columns<64>(x, w + c, n, padded, y + c);
  for (; c + 32 <= padded; c += 32) chain_columns<32>(x, w + c, n, padded, y + c);
  for (; c < padded; c += 16) chain_columns<16>(x, w + c, n, padded, y + c);
}
template <class F>
LOD_FN void chain_each(int64_t padded, const F& f) {
  for (int64_t c = 0; c < padded; c += 16)
    for (int k = 0; k < 16; ++k) f(c + k);
}

// The largest of `padded` numbers; NaN is not.
template <class A>
LOD_FN A chain_top(const A* a, int64_t padded) {
  A lane[16];
  for (int k = 0; k < 16; ++k) lane[k] = kNever<A>;
  for (int64_t c = 0; c < padded; c += 16)
    for (int k = 0; k < 16; ++k) lane[k] = a[c + k] > lane[k] ? a[c + k] : lane[k];
  for (int half = 8; half; half /= 2)
    for (int k = 0; k < half; ++k) lane[k] = lane[k + half] > lane[k] ? lane[k + half] : lane[k];
  return lane[0];
}

template <class A>
LOD_FN A chain_sum(const A* a, int64_t padded) {
  A lane[16];
  for (int k = 0; k < 16; ++k) lane[k] = A(0);
  for (int64_t c = 0; c < padded; c += 16)
    for (int k = 0; k < 16; ++k) lane[k] += a[c + k];
  for (int half = 8; half; half /= 2)
    for (int k = 0; k < half; ++k) lane[k] += lane[k + half];
  return lane[0];
}
// Whether logarithms may be taken of a sum, which is of a few numbers of at most 1 unless some entry is not finite.
template <class A>
LOD_FN bool chain_clear(A sum) {
  return (sum > kFaint<A>) & (sum < -kNever<A>);
}
// Whether any of `padded` sums is not clear.
template <class A>
LOD_FN bool chain_faint(const A* sum, int64_t padded) {
  int32_t lane[16], any = 0;
  for (int k = 0; k < 16; ++k) lane[k] = 0;
  for (int64_t c = 0; c < padded; c += 16)
    for (int k = 0; k < 16; ++k) lane[k] |= int32_t(!chain_clear(sum[c + k]));
  for (int k = 0; k < 16; ++k) any |= lane[k];
  return any;
}

// next[j] = max over i of a[i] + steps[i, j], and the first i that attains it, for 16 N columns.
#ifdef LOD_LANES
template <int N, class A>
LOD_FN void chain_best(const A* a, const A* steps, int64_t n, int64_t padded, A* next, int32_t* from) {
  typedef A Lanes __attribute__((vector_size(16 * sizeof(A))));
  using Index = decltype(Lanes{} > Lanes{});
  Lanes most[N];
  Index who[N];
  for (int k = 0; k < N; ++k) most[k] = Lanes{} + kNever<A>, who[k] = Index{};
  for (int64_t i = 0; i < n; ++i)
    for (int k = 0; k < N; ++k) {
      Lanes v;
      std::memcpy(&v, steps + i * padded + 16 * k, sizeof(v));
      v += a[i];
      const Index better = v > most[k];
      most[k] = better ? v : most[k];
      who[k] = better ? Index{} + std::conditional_t<sizeof(A) == 8, int64_t, int32_t>(i) : who[k];
    }
  for (int k = 0; k < 16 * N; ++k) next[k] = most[k / 16][k % 16], from[k] = int32_t(who[k / 16][k % 16]);
}
#else
template <int N, class A>
LOD_FN void chain_best(const A* a, const A* steps, int64_t n, int64_t padded, A* next, int32_t* from) {
  for (int k = 0; k < 16 * N; ++k) {
    A most = kNever<A>;
    int32_t who = 0;
    for (int64_t i = 0; i < n; ++i)
      if (const A v = a[i] + steps[i * padded + k]; v > most) most = v, who = int32_t(i);
    next[k] = most, from[k] = who;
  }
}
#endif

// The sequences of a piece: those that begin in its share of the rows.
template <class F>
LOD_FN void chain_sequences(const Chain& g, int64_t piece, const F& f) {
  const auto cut = [&](int64_t p) {
    if (p == 0 || p == g.pieces) return p == 0 ? int64_t(0) : g.segments;
    const int64_t row = g.rows / g.pieces * p;
    int64_t lo = 0, hi = g.segments;
    while (lo < hi) {
      const int64_t mid = (lo + hi) / 2;
      if (g.offsets[mid] < row) lo = mid + 1;
      else hi = mid;
    }
    return lo;
  };
  for (int64_t s = cut(piece), end = cut(piece + 1); s < end; ++s) f(s, rows_of(g.offsets, s, g.rows));
}

// The largest of n numbers, the logarithm of the sum of their exponentials above it, by which it is -inf where all are.
template <class A, class F>
LOD_FN A chain_logsumexp_of(int64_t n, const F& f) {
  A top = kNever<A>, sum = A(0);
  for (int64_t i = 0; i < n; ++i) {
    const A v = f(i);
    top = v > top || v != v ? v : top;
  }
  if (top == kNever<A> || top == -kNever<A>) return top;
  for (int64_t i = 0; i < n; ++i) sum += exp_below(f(i) - top);
  return top + log_above(sum);
}

template <class T>
struct ChainForwardKernel {
  using A = acc_t<T>;
  ChainForward g;

  LOD_FN void operator()(int64_t piece) const {
    A* const a = static_cast<A*>(g.scratch) + piece * kChainRows * g.padded;
    ChainPause pause{g.pause};
    chain_sequences(g, piece, [&](int64_t s, const Range& range) { sequence(s, range, a, a + g.padded, pause); });
  }
  LOD_FN void sequence(int64_t s, const Range& range, A* a, A* p, ChainPause& pause) const {
    const int64_t n = g.width;
    const auto* transition = static_cast<const A*>(g.transition);
    double total = 0;
    for (int64_t r = range.begin; r < range.end; ++r) {
      const T* e = static_cast<const T*>(g.values) + r * n;
      if (r == range.begin) {
        for (int64_t j = 0; j < n; ++j) a[j] = transition[j] + A(e[j]);
        for (int64_t j = n; j < g.padded; ++j) a[j] = kNever<A>;
      } else {
        step(a, p, e);
      }
      const A top = chain_top(a, g.padded);
      if (top != kNever<A>) {
        total += double(top);
        chain_each(g.padded, [&](int64_t j) { a[j] -= top; });
      }
      A* const kept = static_cast<A*>(g.state) + r * n;
      for (int64_t j = 0; j < n; ++j) kept[j] = a[j];
      pause(n * g.padded);
    }
    if (range.length())
      total += double(chain_logsumexp_of<A>(n, [&](int64_t j) { return a[j] + transition[n + j]; }));
    static_cast<T*>(g.logsum)[s] = T(A(total));
  }
  LOD_FN void step(A* a, A* p, const T* e) const {
    const int64_t n = g.width, padded = g.padded;
    const auto* top = static_cast<const A*>(g.top);
    const auto* transition = static_cast<const A*>(g.transition) + 2 * n;
    A* const sum = p + padded;
    A* const before = sum + padded;
    chain_each(padded, [&](int64_t j) { p[j] = exp_below(a[j]); });
    chain_times(p, static_cast<const A*>(g.weights), n, padded, sum);
    const bool faint = chain_faint(sum, padded);
    if (faint)
      for (int64_t j = 0; j < n; ++j) before[j] = a[j];
    chain_each(padded, [&](int64_t j) {
      const A x = sum[j];
      a[j] = top[j] + log_above(chain_clear(x) ? x : A(1));
    });
    if (faint)
      for (int64_t j = 0; j < n; ++j)
        if (!chain_clear(sum[j]))
          a[j] = chain_logsumexp_of<A>(n, [&](int64_t i) { return before[i] + transition[i * n + j]; });
    for (int64_t j = 0; j < n; ++j) a[j] += A(e[j]);
    for (int64_t j = n; j < padded; ++j) a[j] = kNever<A>;
  }
};

template <class T>
struct ChainBackwardKernel {
  using A = acc_t<T>;
  static constexpr int64_t kBlock = 256;  // rows that are summed before they are added to the others
  ChainBackward g;

  LOD_FN void operator()(int64_t piece) const {
    const int64_t n = g.width, padded = g.padded;
    A* const own = static_cast<A*>(g.scratch) + piece * (kChainRows + n) * padded;
    A* const counts = static_cast<A*>(g.counts) + piece * (n + 2) * padded;
    int64_t waiting = 0;
    ChainPause pause{g.pause};
    chain_sequences(g, piece, [&](int64_t s, const Range& range) { sequence(s, range, own, counts, waiting, pause); });
    flush(own + kChainRows * padded, counts + 2 * padded);
  }
  // Adds the counts that wait, which lack their weights.
  LOD_FN void flush(A* part, A* counts) const {
    const auto* w = static_cast<const A*>(g.weights);
    for (int64_t i = 0; i < g.width * g.padded; ++i) {
      counts[i] += part[i] * w[i];
      part[i] = A(0);
    }
  }
  LOD_FN void sequence(int64_t s, const Range& range, A* own, A* counts, int64_t& waiting,
                       ChainPause& pause) const {
    const int64_t n = g.width, padded = g.padded;
    const auto* transition = static_cast<const A*>(g.transition);
    const auto* state = static_cast<const A*>(g.state);
    A *gamma = own, *p = gamma + padded, *sum = p + padded, *ratio = sum + padded, *next = ratio + padded;
    A* const part = own + kChainRows * padded;
    if (!range.length()) return;
    const A grad = A(static_cast<const T*>(g.grad)[s]);
    const A* last = state + (range.end - 1) * n;
    const A all = chain_logsumexp_of<A>(n, [&](int64_t j) { return last[j] + transition[n + j]; });
    for (int64_t j = 0; j < n; ++j)
      gamma[j] = all == kNever<A> ? A(0) : grad * exp_of(last[j] + transition[n + j] - all);
    for (int64_t j = n; j < padded; ++j) gamma[j] = A(0);
    for (int64_t j = 0; j < n; ++j) counts[padded + j] += gamma[j];
    write(range.end - 1, gamma);
    for (int64_t r = range.end - 2; r >= range.begin; --r) {
      const A* a = state + r * n;
      for (int64_t i = 0; i < n; ++i) p[i] = a[i];
      for (int64_t i = n; i < padded; ++i) p[i] = kNever<A>;
      chain_each(padded, [&](int64_t i) { p[i] = exp_below(p[i]); });
      chain_times(p, static_cast<const A*>(g.weights), n, padded, sum);
      const bool faint = chain_faint(sum, padded);
      chain_each(padded, [&](int64_t j) {
        const bool clear = chain_clear(sum[j]);
        ratio[j] = clear ? gamma[j] / (clear ? sum[j] : A(1)) : A(0);
      });
      chain_times(ratio, static_cast<const A*>(g.turned), n, padded, next);
      for (int64_t i = 0; i < n; ++i) add_row(part + i * padded, p[i], ratio);
      chain_each(padded, [&](int64_t i) { next[i] *= p[i]; });
      if (faint)
        for (int64_t j = 0; j < n; ++j)
          if (!chain_clear(sum[j]) && gamma[j] != A(0)) in_logarithms(a, j, gamma[j], next, counts + 2 * padded);
      const A found = chain_sum(next, padded), scale = found != A(0) ? grad / found : A(1);
      chain_each(padded, [&](int64_t i) { gamma[i] = next[i] * scale; });
      write(r, gamma);
      if (++waiting == kBlock) {
        flush(part, counts + 2 * padded);
        waiting = 0;
      }
      pause(3 * n * padded);
    }
    for (int64_t j = 0; j < n; ++j) counts[j] += gamma[j];
  }
  LOD_FN void add_row(A* to, A factor, const A* row) const {
    for (int64_t c = 0; c < g.padded; c += 16)
      for (int k = 0; k < 16; ++k) to[c + k] += factor * row[c + k];
  }
  // What the tags before contributed to tag j, whose sum is not clear.
  LOD_FN void in_logarithms(const A* a, int64_t j, A gamma, A* next, A* counts) const {
    const int64_t n = g.width;
    const auto* to = static_cast<const A*>(g.transition) + 2 * n + j;
    const A all = chain_logsumexp_of<A>(n, [&](int64_t i) { return a[i] + to[i * n]; });
    if (all == kNever<A>) return;
    for (int64_t i = 0; i < n; ++i) {
      const A share = gamma * exp_of(a[i] + to[i * n] - all);
      next[i] += share;
      counts[i * g.padded + j] += share;
    }
  }
  LOD_FN void write(int64_t r, const A* gamma) const {
    T* const to = static_cast<T*>(g.grad_values) + r * g.width;
    for (int64_t j = 0; j < g.width; ++j) to[j] = T(gamma[j]);
  }
};

// The n best paths; equals keep the order of tags. NaN is never best.
template <class T>
struct ChainArgmaxKernel {
  using A = acc_t<T>;
  struct Head {  // the best path of a tag that is not taken yet, and how many of its paths are
    A score;
    int32_t tag, rank;
  };
  static_assert(sizeof(Head) <= kChainHeap * sizeof(A));
  ChainArgmax g;

  LOD_FN void operator()(int64_t piece) const {
    A* const own = static_cast<A*>(g.scratch) + piece * (2 * g.n + kChainHeap) * g.padded;
    A *const next = own + g.padded * g.n, *const heap = next + g.padded * g.n;
    ChainPause pause{g.pause};
    chain_sequences(g, piece, [&](int64_t s, const Range& range) {
      sequence(s, range, own, next, reinterpret_cast<Head*>(heap), pause);
    });
  }
  LOD_FN void sequence(int64_t s, const Range& range, A* a, A* next, Head* heads, ChainPause& pause) const {
    const int64_t n = g.n;
    auto* const scores = static_cast<T*>(g.scores) + s * n;
    for (int64_t k = 0; k < n; ++k) scores[k] = T(k || range.length() ? kNever<A> : A(0));
    if (!range.length()) return;
    double total = 0;
    for (int64_t r = range.begin; r < range.end; ++r) {
      step(r, r == range.begin, a, next, heads, pause);
      const A top = chain_top(next, g.padded * n), shift = top == kNever<A> ? A(0) : top;
      total += double(shift);
      chain_each(g.padded * n, [&](int64_t j) { a[j] = next[j] - shift; });
    }
    trace(range, total, a, next, heads, scores, pause);
  }
  // The best paths to every tag of row r, from those to the tags of the row before.
  LOD_FN void step(int64_t r, bool first, const A* a, A* next, Head* heads, ChainPause& pause) const {
    const int64_t n = g.n, tags = g.width;
    const auto* transition = static_cast<const A*>(g.transition);
    const T* e = static_cast<const T*>(g.values) + r * tags;
    int32_t* const back = g.back + r * tags * n;
    if (first) {
      for (int64_t j = 0; j < tags; ++j)
        for (int64_t k = 0; k < n; ++k) next[j * n + k] = k ? kNever<A> : transition[j], back[j * n + k] = 0;
    } else if (n == 1) {
      best(a, next, back);
      pause(tags * g.padded);
    } else {
      for (int64_t j = 0; j < tags; ++j) {
        several(a, heads, [&](int64_t i) { return transition[(i + 2) * tags + j]; }, next + j * n, back + j * n);
        pause(8 * (tags + n));
      }
    }
    if (n == 1)
      for (int64_t j = 0; j < tags; ++j) next[j] += A(e[j]);
    else
      for (int64_t j = 0; j < tags * n; ++j) next[j] += A(e[j / n]);
    for (int64_t j = tags * n; j < g.padded * n; ++j) next[j] = kNever<A>;
  }
  // The scores of the n best paths, and their tags from the last row to the first.
  LOD_FN void trace(const Range& range, double total, const A* a, A* next, Head* heads, T* scores,
                    ChainPause& pause) const {
    const int64_t n = g.n, tags = g.width;
    const auto* transition = static_cast<const A*>(g.transition);
    auto* const path = static_cast<int64_t*>(g.path);
    // the ends of the best paths, into what is free
    int32_t* const from = g.back + range.begin * tags * n;  // of the first row, which has none before it
    several(a, heads, [&](int64_t i) { return transition[tags + i]; }, next, from);
    for (int64_t k = 0; k < n; ++k) {
      const bool some = next[k] > kNever<A>;
      scores[k] = T(A(total + double(next[k])));
      if (!some) scores[k] = T(kNever<A>);
      int64_t at = from[k];
      for (int64_t r = range.end - 1; r >= range.begin; --r) {
        path[r * n + k] = some ? at / n : -1;
        if (r > range.begin) at = g.back[r * tags * n + at];
        pause(8);
      }
    }
  }
  LOD_FN void best(const A* a, A* next, int32_t* back) const {
    const auto* steps = static_cast<const A*>(g.steps);
    int32_t from[64];
    for (int64_t c = 0; c < g.padded;) {
      const int64_t left = g.padded - c;
      if (left >= 64) chain_best<4>(a, steps + c, g.width, g.padded, next + c, from);
      else if (left >= 32) chain_best<2>(a, steps + c, g.width, g.padded, next + c, from);
      else chain_best<1>(a, steps + c, g.width, g.padded, next + c, from);
      const int64_t wide = left >= 64 ? 64 : left >= 32 ? 32 : 16, end = c + wide < g.width ? wide : g.width - c;
      for (int64_t k = 0; k < end; ++k) back[c + k] = from[k];
      c += wide;
    }
  }
  // The n largest of a[i, k] + step(i), in falling order: each tag's falls already, so n times the first of a heap.
  template <class F>
  LOD_FN void several(const A* a, Head* heads, const F& step, A* most, int32_t* from) const {
    const int64_t n = g.n;
    const bool few = n <= 16;  // then only the n best tags are kept, sorted, which is a heap as well
    int64_t count = 0;
    for (int64_t i = 0; i < g.width; ++i) {
      const A v = a[i * n] + step(i);
      if (!(v > kNever<A>) || (few && count == n && !(v > heads[n - 1].score))) continue;
      int64_t at = few && count == n ? n - 1 : count++;
      for (; few && at > 0 && v > heads[at - 1].score; --at) heads[at] = heads[at - 1];
      heads[at] = {v, int32_t(i), 0};
    }
    const auto behind = [](const Head& x, const Head& y) {
      return x.score < y.score || (x.score == y.score && x.tag > y.tag);
    };
    if (!few) heap_make(heads, count, behind);
    int64_t found = 0;
    for (; found < n && count; ++found) {
      Head& top = heads[0];
      most[found] = top.score, from[found] = int32_t(top.tag * n + top.rank);
      A v = kNever<A>;
      if (++top.rank < n) v = a[top.tag * n + top.rank] + step(top.tag);
      if (v > kNever<A>) top.score = v;
      else top = heads[--count];
      heap_sink(heads, count, 0, behind);
    }
    for (; found < n; ++found) most[found] = kNever<A>, from[found] = 0;
  }
};

// Paths drawn from the distribution, from the last row back to the first; -1 where no path is possible.
template <class T>
struct ChainSampleKernel {
  using A = acc_t<T>;
  ChainSample g;

  LOD_FN void operator()(int64_t s) const {
    const int64_t tags = g.width;
    const auto* transition = static_cast<const A*>(g.transition);
    const Range range = rows_of(g.offsets, s, g.rows);
    ChainPause pause{g.pause};
    for (int64_t k = 0; k < g.n; ++k) {
      int64_t y = -1;
      for (int64_t r = range.end - 1; r >= range.begin; --r) {
        const A* a = static_cast<const A*>(g.state) + r * tags;
        const A* step = r + 1 == range.end ? transition + tags : transition + 2 * tags + y;
        const int64_t stride = r + 1 == range.end ? 1 : tags;
        y = drawn([&](int64_t i) { return a[i] + step[i * stride]; },
                  static_cast<const A*>(g.uniform)[r * g.n + k]);
        g.path[r * g.n + k] = y;
        pause(8 * tags);
        if (y >= 0) continue;
        for (int64_t q = range.begin; q < range.end; ++q) g.path[q * g.n + k] = -1;
        break;
      }
    }
  }
  template <class F>
  LOD_FN int64_t drawn(const F& f, A uniform) const {
    A top = kNever<A>, sum = A(0);
    for (int64_t i = 0; i < g.width; ++i) top = f(i) > top ? f(i) : top;
    if (!(top > kNever<A>)) return -1;
    for (int64_t i = 0; i < g.width; ++i) sum += exp_below(f(i) - top);
    int64_t last = -1;
    A so_far = A(0);
    for (int64_t i = 0; i < g.width; ++i) {
      const A p = exp_below(f(i) - top);
      if (!(p > A(0))) continue;
      last = i, so_far += p;
      if (so_far > uniform * sum) break;
    }
    return last;
  }
};

LOD_ENTRY void chain_forward(const Exec& exec, DType dtype, const ChainForward& a) {
  visit_floating(dtype, [&](auto type) {
    each(exec, a.pieces, kChainCost, ChainForwardKernel<typename decltype(type)::type>{a});
  });
}
LOD_ENTRY void chain_backward(const Exec& exec, DType dtype, const ChainBackward& a) {
  visit_floating(dtype, [&](auto type) {
    each(exec, a.pieces, kChainCost, ChainBackwardKernel<typename decltype(type)::type>{a});
  });
}
LOD_ENTRY void chain_argmax(const Exec& exec, DType dtype, const ChainArgmax& a) {
  visit_floating(dtype, [&](auto type) {
    each(exec, a.pieces, kChainCost, ChainArgmaxKernel<typename decltype(type)::type>{a});
  });
}
LOD_ENTRY void chain_sample(const Exec& exec, DType dtype, const ChainSample& a) {
  const int64_t cost = a.rows / (a.segments + 1) * a.width * a.n;
  visit_floating(dtype, [&](auto type) {
    each(exec, a.segments, cost, ChainSampleKernel<typename decltype(type)::type>{a});
  });
}

}  // namespace lod::LOD_LEVEL
