// Shape "attention": every query of a sequence with the keys of the same sequence. Kernel source, see
// torch_lod/device.h.
//   x[i, j] = cap(scale q[i] . k[j]) + bias[i, j] - slope |position(i) - j| + distances[j - position(i)]
//   cap(x) = softcap tanh(x / softcap), or x without one
//   position(i) = i + keys - queries: aligned to the bottom right corner of the matrix of queries and keys
//   p[i, j] = exp(x[i, j] - logsumexp of x[i] and the sink) over the keys j that i sees, out[i] = sum_j p[i, j] v[j]
//   dp[i, j] = dout[i] . v[j], dx[i, j] = p[i, j] (dp[i, j] - dout[i] . out[i])
// With dropout out and dp have m[i, j] p[i, j] and m[i, j] dp[i, j], m one of 0 and 1 / (1 - dropout) by a hash of
// seed, row, head and key, so that it is worked out again and never kept. A query sees the keys from `left` before its
// position to `right` after it, and before its end; without one its result is zeros. Scores are never laid out:
// forwards the sum is kept relative to the largest score so far (Milakov and Gimelshein, "Online normalizer
// calculation for softmax", 2018), backwards they are worked out again from the logsumexp (Dao et al.,
// "FlashAttention", 2022). Each result is computed alone, in an order that its own sequence decides.
// Here: one result at a time, for the GPU and, in float64, for the CPU; core/attention_blocks.h has the CPU's tiles.
//
// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <vector>

#include "kernels/attention_api.h"

#ifdef LOD_LANES
#include "core/attention_blocks.h"
#endif

namespace lod::LOD_LEVEL {

// A query and a key of one head, as numbers.
template <class T>
struct Scores {
  using A = acc_t<T>;
  const Attention& a;
  int64_t s;
  Pairs pairs;

  LOD_FN const T* query(int64_t i, int64_t h) const {
    return static_cast<const T*>(a.query) + (pairs.queries.begin + i) * a.query_stride + h * a.width;
  }
  LOD_FN const T* key(int64_t j, int64_t h) const {
    return static_cast<const T*>(a.key) + (pairs.keys.begin + j) * a.key_stride + a.key_head(h) * a.width;
  }
  LOD_FN const T* value(int64_t j, int64_t h) const {
    return static_cast<const T*>(a.value) + (pairs.keys.begin + j) * a.value_stride + a.key_head(h) * a.value_width;
  }
  LOD_FN static A dot(const T* x, const T* y, int64_t n) {
    A sum = 0;
    for (int64_t c = 0; c < n; ++c) sum += A(x[c]) * A(y[c]);
    return sum;
  }
  LOD_FN A distance(int64_t i, int64_t j) const {
    const int64_t d = pairs.position(i) - j;
    return A(d < 0 ? -d : d);
  }
  struct Score {
    A x, slope;  // and what it changes by if scale q . k changes by 1
  };
  LOD_FN Score score(int64_t i, int64_t j, int64_t h) const {
    A x = A(a.scale) * dot(query(i, h), key(j, h), a.width), slope = 1;
    if (a.softcap > 0) {
      const A t = A(::tanh(x / A(a.softcap)));
      x = A(a.softcap) * t, slope = 1 - t * t;
    }
    if (a.bias) {
      const int64_t at = a.pair_at(pairs, s, i, j, h);
      if (at >= 0) x += A(static_cast<const T*>(a.bias)[at]);
    }
    if (a.slopes) x -= static_cast<const A*>(a.slopes)[h] * distance(i, j);
    if (a.distances) x += static_cast<const A*>(a.distances)[a.entry(h, j - pairs.position(i), a.most)];
    return {x, slope};
  }
};

// p and dx of a pair, from what the forward kept.
template <class T>
struct Gradients : Scores<T> {
  using A = acc_t<T>;
  const AttentionBackward& b;
  LOD_FN int64_t row(int64_t i, int64_t h) const { return (this->pairs.queries.begin + i) * b.heads + h; }
  LOD_FN const T* grad_out(int64_t i, int64_t h) const {
    return static_cast<const T*>(b.grad_out) + row(i, h) * b.value_width;
  }
  LOD_FN A weight(A x, int64_t i, int64_t h) const {
    return x == -A(INFINITY) ? A(0) : exp_of(x - static_cast<const A*>(b.logsumexp)[row(i, h)]);
  }
  LOD_FN A weight(int64_t i, int64_t j, int64_t h) const { return weight(this->score(i, j, h).x, i, h); }
  LOD_FN A mask(int64_t i, int64_t j, int64_t h) const {
    if (!b.seed) return A(1);
    const Kept kept = b.kept(this->pairs.queries.begin + i, h);
    return kept(j) ? A(kept.factor) : A(0);
  }
  struct Grad {
    A score, product;  // of what is added to the score, and of scale q . k
  };
  LOD_FN Grad grad_score(int64_t i, int64_t j, int64_t h) const {
    const A through = mask(i, j, h) * this->dot(grad_out(i, h), this->value(j, h), b.value_width);
    const auto [x, slope] = this->score(i, j, h);
    const A dx = weight(x, i, h) * (through - static_cast<const A*>(b.delta)[row(i, h)]);
    return {dx, dx * slope};
  }
};

// Channels are taken 64, 8 and 1 at a time, so that sums stay in registers.
LOD_FN int64_t strips_of(int64_t width) { return width / 64 + width % 64 / 8 + width % 8; }
template <class F>
LOD_FN void at_strip(const F& f, int64_t strip, int64_t width) {
  int64_t c = width / 64;
  if (strip < c) return f.template channels<64>(strip * 64);
  strip -= c, c = c * 64;
  if (strip < (width - c) / 8) return f.template channels<8>(c + strip * 8);
  f.template channels<1>(width - width % 8 + strip - (width - c) / 8);
}

template <class T>
struct AttendKernel : AttentionForward {  // one query, one head, a strip of the result
  struct One {
    const AttentionForward& a;
    Scores<T> scores;
    int64_t i, h;
    template <int W>
    LOD_FN void channels(int64_t c) const {
      using A = acc_t<T>;
      A top = a.sink ? static_cast<const A*>(a.sink)[h] : -A(INFINITY), total = top == -A(INFINITY) ? 0 : 1;
      A sum[W] = {};
      const Range seen = scores.pairs.keys_of(i);
      const Kept kept = a.seed ? a.kept(scores.pairs.queries.begin + i, h) : Kept{};
      for (int64_t j = seen.begin; j < seen.end; ++j) {
        const A x = scores.score(i, j, h).x;
        if (x == -A(INFINITY)) continue;
        if (x > top) {
          const A less = exp_of(top - x);
          for (int k = 0; k < W; ++k) sum[k] *= less;
          total *= less, top = x;
        }
        A p = exp_of(x - top);
        total += p;
        if (a.seed) p = kept(j) ? p * A(kept.factor) : A(0);
        const T* v = scores.value(j, h) + c;
        for (int k = 0; k < W; ++k) sum[k] += p * A(v[k]);
      }
      const int64_t at = (scores.pairs.queries.begin + i) * a.heads + h;
      T* out = static_cast<T*>(a.out) + at * a.value_width + c;
      for (int k = 0; k < W; ++k) out[k] = T(total == A(0) ? A(0) : sum[k] / total);
      if (c == 0) static_cast<A*>(a.logsumexp)[at] = total == A(0) ? -A(INFINITY) : top + A(::log(total));
    }
  };
  LOD_FN void operator()(int64_t item) const {
    const int64_t row = item % queries, h = item / queries % heads, s = segment_of(query_offsets, segments, row);
    if (s >= segments) return;
    const Scores<T> scores{*this, s, of(s)};
    if (row < scores.pairs.queries.begin || row >= scores.pairs.queries.end) return;
    at_strip(One{*this, scores, row - scores.pairs.queries.begin, h}, item / queries / heads, value_width);
  }
};

template <class T>
struct AttendQueryGrad : AttentionBackward {  // one query, one head, a strip; and the gradients of its scores
  struct One {
    const AttentionBackward& a;
    Gradients<T> g;
    int64_t i, h;
    template <int W>
    LOD_FN void channels(int64_t c) const {
      using A = acc_t<T>;
      A sum[W] = {}, slope = 0, ends[2] = {};
      const Range seen = g.pairs.keys_of(i);
      for (int64_t j = seen.begin; j < seen.end; ++j) {
        const auto [dx, dproduct] = g.grad_score(i, j, h);
        const T* k_ = g.key(j, h) + c;
        for (int k = 0; k < W; ++k) sum[k] += dproduct * A(k_[k]);
        slope -= dx * g.distance(i, j);
        if (kOnGpu && a.grad_ends) {
          const int64_t ahead = j - g.pairs.position(i);
          if (ahead <= -a.reach) ends[0] += dx;
          else if (ahead >= a.reach) ends[1] += dx;
        }
        if (c == 0 && a.grad_bias) {
          const int64_t at = a.pair_at(g.pairs, g.s, i, j, h);
          A* to = static_cast<A*>(a.grad_bias);
          if (at >= 0) to[at] += dx;
        }
      }
      T* to = static_cast<T*>(a.grad_query) + g.row(i, h) * a.width + c;
      for (int k = 0; k < W; ++k) to[k] = T(A(a.scale) * sum[k]);
      if (c == 0 && a.grad_slopes) static_cast<A*>(a.grad_slopes)[g.row(i, h)] = slope;
      for (int k = 0; k < 2; ++k)
        if (kOnGpu && c == 0 && a.grad_ends) static_cast<A*>(a.grad_ends)[2 * g.row(i, h) + k] = ends[k];
    }
  };
  LOD_FN void operator()(int64_t item) const {
    const int64_t row = item % queries, some = heads_per_step(), h = item / queries * some % heads;
    const int64_t s = segment_of(query_offsets, segments, row);
    if (s >= segments) return;
    const Pairs pairs_ = of(s);
    if (row < pairs_.queries.begin || row >= pairs_.queries.end) return;
    const Gradients<T> g{{*this, s, pairs_}, *this};
    for (int64_t k = 0; k < some; ++k)
      at_strip(One{*this, g, row - pairs_.queries.begin, h + k}, item / queries * some / heads, width);
  }
};

// One key of one head of the keys, a strip of its or of its value's gradient.
template <class T>
struct AttendKeyGrad : AttentionBackward {
  template <bool kValue>
  struct One {
    const AttentionBackward& a;
    Gradients<T> g;
    int64_t j, key_head;
    template <int W>
    LOD_FN void channels(int64_t c) const {
      using A = acc_t<T>;
      A sum[W] = {};
      const Range seen = g.pairs.queries_of(j);
      const int64_t group = a.heads / a.key_heads;
      for (int64_t h = key_head * group; h < (key_head + 1) * group; ++h)
        for (int64_t i = seen.begin; i < seen.end; ++i) {
          const A by = kValue ? g.mask(i, j, h) * g.weight(i, j, h) : g.grad_score(i, j, h).product;
          const T* from = (kValue ? g.grad_out(i, h) : g.query(i, h)) + c;
          for (int k = 0; k < W; ++k) sum[k] += by * A(from[k]);
        }
      const int64_t row = (g.pairs.keys.begin + j) * a.key_heads + key_head;
      T* to = static_cast<T*>(kValue ? a.grad_value : a.grad_key) + row * (kValue ? a.value_width : a.width) + c;
      for (int k = 0; k < W; ++k) to[k] = T(kValue ? sum[k] : A(a.scale) * sum[k]);
    }
  };
  LOD_FN void operator()(int64_t item) const {
    const int64_t row = item % keys, h = item / keys % key_heads, strip = item / keys / key_heads;
    const int64_t s = segment_of(key_offsets, segments, row);
    if (s >= segments) return;
    const Pairs pairs_ = of(s);
    if (row < pairs_.keys.begin || row >= pairs_.keys.end) return;
    const Gradients<T> g{{*this, s, pairs_}, *this};
    const int64_t j = row - pairs_.keys.begin, ours = strips_of(width);
    if (strip < ours) at_strip(One<false>{*this, g, j, h}, strip, width);
    else at_strip(One<true>{*this, g, j, h}, strip - ours, value_width);
  }
};

// One distance of one head and sequence. Those at the ends of the table stand for all that are further away: on a GPU,
// where they would be the work of one thread, what visits every pair adds them up.
template <class T>
struct AttendDistanceGrad : AttentionBackward {
  LOD_FN void operator()(int64_t item) const {
    using A = acc_t<T>;
    const int64_t size = 2 * reach + 1, ahead = item % size - reach, h = item / size % heads, s = item / size / heads;
    const Gradients<T> g{{*this, s, of(s)}, *this};
    const bool elsewhere = kOnGpu && grad_ends && (ahead == -reach || ahead == reach);
    A sum = 0;
    for (int64_t i = 0; i < (elsewhere ? 0 : g.pairs.queries.length()); ++i) {
      const Range seen = g.pairs.keys_of(i);
      const int64_t at = g.pairs.position(i) + ahead, begin = ahead == -reach || at < seen.begin ? seen.begin : at;
      const int64_t end = ahead == reach || at + 1 > seen.end ? seen.end : at + 1;
      for (int64_t j = begin; j < end; ++j) sum += g.grad_score(i, j, h).score;
    }
    static_cast<A*>(grad_distances)[item] = sum;
  }
};

LOD_ENTRY void attention_forward(const Exec& exec, DType dtype, const AttentionForward& a) {
  visit_floating(dtype, [&](auto type) {
    using T = typename decltype(type)::type;
#ifdef LOD_LANES
    if constexpr (!std::is_same_v<T, double>) return attend_in_blocks<T>(exec, a);
    else
#endif
    {
      const int64_t items = a.queries * a.heads * (a.value_width ? strips_of(a.value_width) : 0);
      each(exec, items, a.cost(items), AttendKernel<T>{a});
    }
  });
}
LOD_ENTRY void attention_backward(const Exec& exec, DType dtype, const AttentionBackward& a) {
  visit_floating(dtype, [&](auto type) {
    using T = typename decltype(type)::type;
#ifdef LOD_LANES
    if constexpr (!std::is_same_v<T, double>) return attend_in_blocks<T>(exec, a);
    else
#endif
    {
      const int64_t items = a.queries * (a.heads / a.heads_per_step()) * strips_of(a.width);
      each(exec, items, a.cost(items), AttendQueryGrad<T>{a});
      const int64_t others = a.keys * a.key_heads * (strips_of(a.width) + strips_of(a.value_width));
      each(exec, others, a.cost(others), AttendKeyGrad<T>{a});
      const int64_t apart = a.grad_distances ? a.segments * a.heads * (2 * a.reach + 1) : 0;
      each(exec, apart, a.cost(apart), AttendDistanceGrad<T>{a});
    }
  });
}

}  // namespace lod::LOD_LEVEL
