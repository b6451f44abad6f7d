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

#include "core/chain_tags.h"
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
  if constexpr (kOnGpu)
    if (g.pieces == g.segments) return f(piece, rows_of(g.offsets, piece, g.rows));
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

template <class T>
struct ChainForwardKernel {
  using A = acc_t<T>;
  ChainForward g;

  template <class Block>
  LOD_FN void operator()(int64_t piece, Block& block) const {
    ChainTags<T, Block> tags(block, g, g.weights, static_cast<A*>(g.scratch) + piece * kChainRows * g.padded);
    ChainPause pause{g.pause};
    chain_sequences(g, piece, [&](int64_t s, const Range& range) { sequence(s, range, tags, pause); });
  }
  template <class Tags>
  LOD_FN void sequence(int64_t s, const Range& range, Tags& tags, ChainPause& pause) const {
    const int64_t n = g.width;
    const auto* transition = static_cast<const A*>(g.transition);
    const T* e = static_cast<const T*>(g.values) + range.begin * n;
    double total = 0;
    if (range.length()) tags.read(e);
    for (int64_t r = range.begin; r < range.end; ++r) {
      if (r == range.begin) tags.each_tag([&](int64_t j) { tags.now(j) = transition[j] + tags.emission(j); });
      else step(tags);
      tags.fill(kNever<A>);
      if (r + 1 < range.end) tags.read(e += n);
      const A top = tags.relative();
      if (top != kNever<A>) total += double(top);
      A* const kept = static_cast<A*>(g.state) + r * n;
      tags.each_tag([&](int64_t j) { kept[j] = tags.now(j); });
      pause(n * g.padded);
    }
    if (!tags.leads) return;
    if (range.length())
      total += double(chain_logsumexp_of<A>(n, [&](int64_t j) { return tags.last(j) + transition[n + j]; }));
    static_cast<T*>(g.logsum)[s] = T(A(total));
  }
  template <class Tags>
  LOD_FN void step(Tags& tags) const {
    const int64_t n = g.width;
    const auto* top = static_cast<const A*>(g.top);
    const auto* transition = static_cast<const A*>(g.transition) + 2 * n;
    const bool faint = tags.forwards();
    tags.each([&](int64_t j) {
      const A x = tags.sum(j);
      tags.now(j) = top[j] + log_above(chain_clear(x) ? x : A(1));
    });
    if (faint)
      tags.each_tag([&](int64_t j) {
        if (!chain_clear(tags.sum(j)))
          tags.now(j) = chain_logsumexp_of<A>(n, [&](int64_t i) { return tags.before(i) + transition[i * n + j]; });
      });
    tags.each_tag([&](int64_t j) { tags.now(j) += tags.emission(j); });
  }
};

template <class T>
struct ChainBackwardKernel {
  using A = acc_t<T>;
  static constexpr int64_t kBlock = 256;  // rows that are summed before they are added to the others
  ChainBackward g;

  template <class Block>
  LOD_FN void operator()(int64_t piece, Block& block) const {
    const int64_t n = g.width, padded = g.padded;
    A* const own = static_cast<A*>(g.scratch) + piece * (kChainRows + n) * padded;
    A* const part = own + kChainRows * padded;
    A* const counts = static_cast<A*>(g.counts) + piece * (n + 2) * padded;
    ChainTags<T, Block> tags(block, g, g.weights, own);
    int64_t waiting = 0;
    ChainPause pause{g.pause};
    chain_sequences(g, piece, [&](int64_t s, const Range& range) {
      if (range.length()) sequence(s, range, tags, part, counts, waiting, pause);
    });
    flush(tags, part, counts + 2 * padded);
  }
  // Adds the counts that wait, which lack their weights.
  template <class Tags>
  LOD_FN void flush(const Tags& tags, A* part, A* counts) const {
    const auto* w = static_cast<const A*>(g.weights);
    tags.each_entry([&](int64_t k) {
      counts[k] += part[k] * w[k];
      part[k] = A(0);
    });
  }
  template <class Tags>
  LOD_FN void sequence(int64_t s, const Range& range, Tags& of_piece, A* part, A* counts, int64_t& waiting,
                       ChainPause& pause) const {
    ChainOwn<Tags> tags = of_piece;
    const int64_t n = g.width, padded = g.padded;
    const auto* transition = static_cast<const A*>(g.transition);
    const auto* state = static_cast<const A*>(g.state);
    const A grad = A(static_cast<const T*>(g.grad)[s]);
    const A* last = state + (range.end - 1) * n;
    const A all = chain_logsumexp_of<A>(n, [&](int64_t j) { return last[j] + transition[n + j]; });
    tags.each_tag([&](int64_t j) {
      tags.now(j) = all == kNever<A> ? A(0) : grad * exp_of(last[j] + transition[n + j] - all);
    });
    tags.fill(A(0));
    tags.each_tag([&](int64_t j) { counts[padded + j] += tags.now(j); });
    write(range.end - 1, tags);
    if (range.length() > 1) {
      tags.exponentials(last - n);
      tags.sync();
    }
    for (int64_t r = range.end - 2; r >= range.begin; --r) {
      const A* a = state + r * n;
      if (tags.backwards(static_cast<const A*>(g.turned), part)) in_logarithms(a, tags, counts + 2 * padded);
      if (r > range.begin) tags.exponentials(a - n);
      const A found = tags.sum_of_next(), scale = found != A(0) ? grad / found : A(1);
      tags.each([&](int64_t i) { tags.now(i) = tags.next(i) * scale; });
      write(r, tags);
      if (++waiting == kBlock) {
        flush(tags, part, counts + 2 * padded);
        waiting = 0;
      }
      pause(3 * n * padded);
    }
    tags.each_tag([&](int64_t j) { counts[j] += tags.now(j); });
  }
  // What the tags before contributed to the tags whose sums are not clear.
  template <class Tags>
  LOD_FN void in_logarithms(const A* a, Tags& tags, A* counts) const {
    const int64_t n = g.width;
    const auto* to = static_cast<const A*>(g.transition) + 2 * n;
    tags.each_faint(
        [&](int64_t j) { return chain_logsumexp_of<A>(n, [&](int64_t i) { return a[i] + to[i * n + j]; }); },
        [&](int64_t i, int64_t j, A all, A posterior) {
          const A share = posterior * exp_of(a[i] + to[i * n + j] - all);
          tags.next(i) += share;
          counts[i * g.padded + j] += share;
        });
  }
  template <class Tags>
  LOD_FN void write(int64_t r, Tags& tags) const {
    T* const to = static_cast<T*>(g.grad_values) + r * g.width;
    tags.each_tag([&](int64_t j) { to[j] = T(tags.now(j)); });
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

// The best path alone, by a block of threads.
template <class T>
struct ChainBestKernel {
  using A = acc_t<T>;
  static constexpr int kWalked = 8;  // rows of `back` that are shared, so that one thread need not wait for every one
  ChainArgmax g;

  LOD_FN void operator()(int64_t piece, OneThread&) const { ChainArgmaxKernel<T>{g}(piece); }
  template <class Block>
  LOD_FN void operator()(int64_t piece, Block& block) const {
    ChainTags<T, Block> tags(block, g, g.steps, nullptr);
    const Shared<int32_t> walked = block.template take<int32_t>(kWalked * g.width);
    chain_sequences(g, piece, [&](int64_t s, const Range& range) { sequence(s, range, tags, walked); });
  }
  template <class Tags>
  LOD_FN void sequence(int64_t s, const Range& range, Tags& tags, const Shared<int32_t>& walked) const {
    const int64_t n = g.width;
    const auto* transition = static_cast<const A*>(g.transition);
    const T* e = static_cast<const T*>(g.values) + range.begin * n;
    double total = 0;
    if (range.length()) tags.read(e);
    for (int64_t r = range.begin; r < range.end; ++r) {
      int32_t from = 0;
      if (r == range.begin) tags.each_tag([&](int64_t j) { tags.now(j) = transition[j]; });
      else from = tags.best();
      tags.each_tag([&](int64_t j) {
        g.back[r * n + j] = from;
        tags.now(j) += tags.emission(j);
      });
      if (r + 1 < range.end) tags.read(e += n);
      const A top = tags.template relative<false>();
      if (top != kNever<A>) total += double(top);
    }
    A most = kNever<A>;
    int64_t at = 0;
    for (int64_t j = 0; tags.leads && range.length() && j < n; ++j)
      if (const A v = tags.last(j) + transition[n + j]; v > most) most = v, at = j;
    const bool some = most > kNever<A>;
    if (tags.leads)
      static_cast<T*>(g.scores)[s] = !range.length() ? T(A(0)) : T(some ? A(total + double(most)) : kNever<A>);
    for (int64_t end = range.end; end > range.begin; end -= kWalked) {
      const int64_t first = end - range.begin > kWalked ? end - kWalked : range.begin;
      if (end < range.end) tags.sync();
      for (int64_t k = tags.block.thread(); k < (end - first) * n; k += tags.block.threads())
        walked[k] = g.back[first * n + k];
      tags.sync();
      for (int64_t r = end - 1; tags.leads && r >= first; --r) {
        static_cast<int64_t*>(g.path)[r] = some ? at : -1;
        at = walked[(r - first) * n + at];
      }
    }
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
    using T = typename decltype(type)::type;
    each_block(exec, a.pieces, kChainCost, chain_shape<T>(a), ChainForwardKernel<T>{a});
  });
}
LOD_ENTRY void chain_backward(const Exec& exec, DType dtype, const ChainBackward& a) {
  visit_floating(dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    each_block(exec, a.pieces, kChainCost, chain_shape<T>(a), ChainBackwardKernel<T>{a});
  });
}
LOD_ENTRY void chain_argmax(const Exec& exec, DType dtype, const ChainArgmax& a) {
  visit_floating(dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    if constexpr (kOnGpu)
      if (a.n == 1)
        return each_block(exec, a.pieces, kChainCost, chain_shape<T>(a, 4 * ChainBestKernel<T>::kWalked * a.width),
                          ChainBestKernel<T>{a});
    each(exec, a.pieces, kChainCost, ChainArgmaxKernel<T>{a});
  });
}
LOD_ENTRY void chain_sample(const Exec& exec, DType dtype, const ChainSample& a) {
  const int64_t cost = a.rows / (a.segments + 1) * a.width * a.n;
  visit_floating(dtype, [&](auto type) {
    each(exec, a.segments, cost, ChainSampleKernel<typename decltype(type)::type>{a});
  });
}

}  // namespace lod::LOD_LEVEL
