// Shape "segment", row by row: a value is carried along every segment. Kernel text, see torch_lod/device.h.
// SPDX-License-Identifier: Apache-2.0

#ifndef LOD_SCAN_ARGUMENTS
#define LOD_SCAN_ARGUMENTS
#include "core/block_view.h"
namespace lod {

struct ScanArguments : BlockView {
  const void* values;
  const void* factors;  // null: ones
  void* out;
  bool adjoint;
};
struct CumulativeArguments : BlockView {
  const void* values;
  void* out;
  int64_t* index;
};
struct CumulativeBackwardArguments : LoDView {
  const void* grad;
  const int64_t* index;
  void* out;
};
struct CumprodArguments : LoDView {
  const void* values;
  void* out;
  bool reverse, exclusive;
};
struct CumprodBackwardArguments : LoDView {
  const void* values;
  const void* grad;  // a row of them a row, or a segment where it is of the last product
  void* before;  // room for a carried_t of every number
  void* out;
  bool reverse, exclusive;
};
struct LogcumsumexpArguments : LoDView {
  const void* values;
  void* out;
};

}  // namespace lod
#endif

#include "core/blocks.h"

namespace lod::LOD_LEVEL {

// What a scan carries: a sum of thousands of float32 in float64, as torch does.
template <class T>
using carried_t = std::conditional_t<std::is_same_v<T, float>, double, acc_t<T>>;

// Rows of one number, four segments at a time: what one carries does not wait for what another does. Calls
// carry(carried, row) for every row of a segment of up to `longest` rows, in its order, and alone(s) for others. Gives
// false where segments are so short that changing them would cost more.
template <class A, class F, class G>
bool side_by_side(const int64_t* offsets, int64_t first, int64_t last, bool backwards, A none, const F& carry,
                  int64_t longest, const G& alone) {
  constexpr int lanes = 4;
  if (offsets[last] - offsets[first] < 128 * (last - first)) return false;
  struct Lane {
    A carried;
    int64_t row, left;
  };
  Lane lane[lanes];
  const int64_t step = backwards ? -1 : 1;
  const auto filled = [&](Lane& l) LOD_INLINE {  // with the next segment, unless there is none
    for (; first < last; ++first) {
      const int64_t begin = offsets[first], end = offsets[first + 1];
      if (end - begin > longest) alone(first);
      else if (begin < end) return l = {none, backwards ? end - 1 : begin, end - begin}, ++first, true;
    }
    return false;
  };
  int used = 0;
  while (used < lanes && filled(lane[used])) ++used;
  while (used == lanes) {
    A carried[lanes];
    int64_t row[lanes], n = INT64_MAX;
    for (int u = 0; u < lanes; ++u) {
      carried[u] = lane[u].carried, row[u] = lane[u].row;
      if (lane[u].left < n) n = lane[u].left;
    }
    for (int64_t i = 0; i < n; ++i)
      for (int u = 0; u < lanes; ++u) carry(carried[u], row[u]), row[u] += step;
    for (int u = 0; u < lanes; ++u) lane[u] = {carried[u], row[u], lane[u].left - n};
    for (int u = 0; u < used;)
      if (lane[u].left == 0 && !filled(lane[u])) lane[u] = lane[--used];
      else ++u;
  }
  for (int u = 0; u < used; ++u)
    for (Lane l = lane[u]; l.left > 0; --l.left, l.row += step) carry(l.carried, l.row);
  return true;
}

// The same of one segment after the other, up to the first of more than `longest` rows, which it returns.
template <class A, class F>
LOD_APART int64_t in_turn(const int64_t* offsets, int64_t first, int64_t last, bool backwards, A none, F carry,
                          int64_t longest) {
  for (; first < last; ++first) {
    const int64_t begin = offsets[first], end = offsets[first + 1];
    if (end - begin > longest) break;
    A carried = none;
    if (backwards)
      for (int64_t row = end - 1; row >= begin; --row) carry(carried, row);
    else
      for (int64_t row = begin; row < end; ++row) carry(carried, row);
  }
  return first;
}
// The same, whatever their lengths.
template <class A, class F, class G>
bool each_carried(const int64_t* offsets, int64_t first, int64_t last, bool backwards, A none, const F& carry,
                  int64_t longest, const G& alone) {
  if (side_by_side(offsets, first, last, backwards, none, carry, longest, alone)) return true;
  while ((first = in_turn(offsets, first, last, backwards, none, carry, longest)) < last) alone(first++);
  return true;
}

// y[r] = values[r] + y[r - 1], or backwards values[r] + y[r + 1]: sums within a block, added to what came before it.
template <class T>
struct CumsumKernel {
  using Part = carried_t<T>;
  static constexpr int kPasses = 1;
  static constexpr bool kByRow = true;
  using Element = T;
  static constexpr int kRowsIn = 1;
  ScanArguments g;
  const T* values;
  T* out;
  LOD_FN const T* rows_in(int) const { return values; }
  LOD_FN void move(T* const* to) { values = out = to[0]; }
  LOD_FN bool backwards() const { return g.adjoint; }
  static LOD_FN Part nothing() { return 0; }
  template <int>
  static LOD_FN Part join(Part a, Part b) {
    return a + b;
  }
  template <class F>
  bool run_narrow(int64_t first, int64_t last, const F& alone) const {
    const auto* from = values;
    auto* to = out;
    const auto add = [=](Part& own, int64_t at) LOD_INLINE { to[at] = T(acc_t<T>(own += Part(from[at]))); };
    return each_carried(g.offsets, first, last, backwards(), nothing(), add, kBlock, alone);
  }
  // Calls f with the element in channel c of every row, in the order of the sums.
  template <class F>
  LOD_FN void each_element(const Range& rows, int64_t c, const F& f) const {
    const int64_t step = g.adjoint ? -g.width : g.width;
    int64_t at = (g.adjoint ? rows.end - 1 : rows.begin) * g.width + c;
    for (int64_t n = rows.length(); n > 0; --n, at += step) f(at);
  }
  template <int, int W>
  LOD_FN void block(const Sequence&, const Range& rows, int64_t c, const Part (*)[W], Part* part) const {
    Part own[W];
    for (int k = 0; k < W; ++k) own[k] = nothing();
    each_element(rows, c, [&](int64_t at) LOD_INLINE {
      for (int k = 0; k < W; ++k) own[k] += Part(values[at + k]);
    });
    for (int k = 0; k < W; ++k) part[k] = own[k];
  }
  // The first block's sums need no 0 added to them, and those of a segment's only block are asked for by nobody.
  template <bool kFirst, int W>
  LOD_FN void go(const Sequence& s, const Range& rows, int64_t c, Part* found) const {
    Part own[W], before[W];
    for (int k = 0; k < W; ++k) own[k] = nothing(), before[k] = kFirst ? nothing() : found[k];
    if constexpr (kOnGpu) {
      const int64_t first = (g.adjoint ? rows.end - 1 : rows.begin) * g.width + c;
      const auto read = [&](int64_t i) { return Part(values[i]); };
      in_order(first, g.adjoint ? -g.width : g.width, rows.length(), read, [&](int64_t i, Part v) {
        own[0] += v;
        out[i] = T(acc_t<T>(kFirst ? own[0] : before[0] + own[0]));
      });
    } else each_element(rows, c, [&](int64_t at) LOD_INLINE {
      for (int k = 0; k < W; ++k) {
        own[k] += Part(values[at + k]);
        out[at + k] = T(acc_t<T>(kFirst ? own[k] : before[k] + own[k]));
      }
    });
    if (rows.length() < s.length())
      for (int k = 0; k < W; ++k) found[k] = kFirst ? own[k] : before[k] + own[k];
  }
  template <int W>
  LOD_FN void start(const Sequence& s, const Range& rows, int64_t c, Part (*found)[W]) const {
    go<true, W>(s, rows, c, found[0]);
  }
  template <int W>
  LOD_FN void finish(const Sequence& s, const Range& rows, int64_t c, Part (*found)[W]) const {
    go<false, W>(s, rows, c, found[0]);
  }
};

// y[r] = values[r] + factors[r] y[r - 1], or its adjoint y[r] = values[r] + factors[r + 1] y[r + 1]. A factor of 0
// cuts: what was carried is forgotten even where it is infinite or NaN.
template <class T>
struct ScanKernel {
  ScanArguments g;
  const T* values;
  const T* factors;
  T* out;
  template <int W>
  LOD_FN void strip(int64_t s, int64_t c) const {
    using A = carried_t<T>;
    const Range range = rows_of(g.offsets, s, g.rows);
    const int64_t step = g.adjoint ? -g.width : g.width, shift = g.adjoint ? g.width : 0;
    int64_t at = (g.adjoint ? range.end - 1 : range.begin) * g.width + c;
    A carried[W];
    for (int k = 0; k < W; ++k) carried[k] = A(0);
    for (int64_t n = range.length(), i = 0; i < n; ++i, at += step) {
      for (int k = 0; k < W; ++k) {
        const A factor = i ? A(factors[at + shift + k]) : A(0);
        const bool cut = i == 0 || (factor == A(0) && carried[k] - carried[k] != A(0));  // that is, infinite or NaN
        carried[k] = A(values[at + k]) + (cut ? -A(0) : carried[k] * factor);
        out[at + k] = T(acc_t<T>(carried[k]));
      }
    }
  }
};

template <class R, class T>
struct CumulativeKernel {
  struct Part {
    acc_t<T> value;
    int64_t row;  // below 0: none
  };
  static constexpr int kPasses = 1;
  static constexpr bool kByRow = true;
  CumulativeArguments g;
  const T* values;
  T* out;
  LOD_FN bool backwards() const { return false; }
  static LOD_FN Part nothing() { return {R::template none<acc_t<T>>(), -1}; }
  template <int>
  static LOD_FN Part join(const Part& a, const Part& b) {
    return a.row < 0 || (b.row >= 0 && R::better(b.value, a.value)) ? b : a;
  }
  // Rows of one number, without NaN: several at a time where none of them is the best so far. A long segment, too, is
  // done sooner than by two threads that go over it twice.
  bool run(int64_t first, int64_t last, const Exec* = nullptr) const {
    using A = acc_t<T>;
    if (g.width != 1) return false;
    constexpr int64_t lanes = 16;
    const T* from = values;
    T* to = out;
    int64_t* index = g.index;
    for (int64_t s = first; s < last; ++s) {
      int64_t r = g.offsets[s];
      const int64_t end = g.offsets[s + 1];
      int nan = 0;
      for (int64_t i = r; i < end; ++i) nan |= int(from[i] != from[i]);
      if (nan) {
        Part best[1][1];
        const Sequence rows = g[s];
        start<1>(rows, rows, 0, best);
        continue;
      }
      A best = R::template none<A>();
      int64_t where = r;
      while (r < end) {
        for (int any = 0; r + lanes <= end; r += lanes) {
          for (int64_t k = 0; k < lanes; ++k) any |= int(R::fast(best, A(from[r + k])) != best);
          if (any) break;
          for (int64_t k = 0; k < lanes; ++k) to[r + k] = T(best), index[r + k] = where;
        }
        for (const int64_t stop = r + lanes < end ? r + lanes : end; r < stop; ++r) {
          const A now = R::fast(best, A(from[r]));
          where = now != best ? r : where;
          best = now;
          to[r] = T(best), index[r] = where;
        }
      }
    }
    return true;
  }
  template <bool kOut, int W>
  LOD_FN void go(const Range& rows, int64_t c, Part* part) const {
    using A = acc_t<T>;
    A best[W];
    int64_t where[W];
    const bool none = part[0].row < 0;  // in every channel, or in none of them
    for (int k = 0; k < W; ++k) {
      best[k] = none ? A(values[rows.begin * g.width + c + k]) : part[k].value;
      where[k] = none ? rows.begin : part[k].row;
    }
    if constexpr (kOnGpu) {
      int64_t r = rows.begin;
      const auto read = [&](int64_t i) { return A(values[i]); };
      in_order(g, rows, c, read, [&](int64_t i, A v) {
        const bool take = R::better(v, best[0]);
        best[0] = take ? v : best[0];
        where[0] = take ? r : where[0];
        if constexpr (kOut) out[i] = T(best[0]), g.index[i] = where[0];
        ++r;
      });
      part[0] = {best[0], where[0]};
      return;
    }
    for (int64_t r = rows.begin; r < rows.end; ++r) {
      const int64_t at = r * g.width + c;
      for (int k = 0; k < W; ++k) {
        const A v = A(values[at + k]);
        const bool take = R::better(v, best[k]);
        best[k] = take ? v : best[k];
        where[k] = take ? r : where[k];
        if constexpr (kOut) out[at + k] = T(best[k]), g.index[at + k] = where[k];
      }
    }
    for (int k = 0; k < W; ++k) part[k] = {best[k], where[k]};
  }
  template <int, int W>
  LOD_FN void block(const Sequence&, const Range& rows, int64_t c, const Part (*)[W], Part* part) const {
    for (int k = 0; k < W; ++k) part[k] = nothing();
    go<false, W>(rows, c, part);
  }
  template <int W>
  LOD_FN void start(const Sequence& s, const Range& rows, int64_t c, Part (*found)[W]) const {
    for (int k = 0; k < W; ++k) found[0][k] = nothing();
    finish<W>(s, rows, c, found);
  }
  template <int W>
  LOD_FN void finish(const Sequence&, const Range& rows, int64_t c, Part (*found)[W]) const {
    go<true, W>(rows, c, found[0]);
  }
};

// A row that is its own extreme so far takes the gradients up to the next such row of its segment; others take none.
template <class T>
struct CumulativeBackwardKernel {
  CumulativeBackwardArguments g;
  const T* grad;
  T* out;
  template <int W>
  LOD_FN void strip(int64_t s, int64_t c) const {
    using A = carried_t<T>;
    const Range range = rows_of(g.offsets, s, g.rows);
    A sum[W];
    for (int k = 0; k < W; ++k) sum[k] = A(0);
    for (int64_t r = range.end - 1; r >= range.begin; --r) {
      const int64_t at = r * g.width + c;
      for (int k = 0; k < W; ++k) {
        const bool own = g.index[at + k] == r;
        const A all = sum[k] + A(grad[at + k]);
        out[at + k] = own ? T(acc_t<T>(all)) : T(0);
        sum[k] = own ? A(0) : all;
      }
    }
  }
};

// y[r] = the product of the rows so far, or, exclusive, of those before r.
template <class T, class Out = T>
struct CumprodKernel {
  CumprodArguments g;
  const T* values;
  Out* out;
  bool run(int64_t first, int64_t last) const {
    using A = carried_t<T>;
    if (g.width != 1) return false;
    return g.exclusive ? multiply_all<A, true>(first, last) : multiply_all<A, false>(first, last);
  }
  template <class A, bool kExclusive>
  bool multiply_all(int64_t first, int64_t last) const {
    const auto* from = values;
    auto* to = out;
    const auto multiply = [=](A& product, int64_t at) LOD_INLINE {
      const A next = product * A(from[at]);
      to[at] = Out(acc_t<Out>(kExclusive ? product : next));
      product = next;
    };
    return each_carried(g.offsets, first, last, g.reverse, A(1), multiply, INT64_MAX, [](int64_t) {});
  }
  template <int W>
  LOD_FN void strip(int64_t s, int64_t c) const {
    using A = carried_t<T>;
    const Range range = rows_of(g.offsets, s, g.rows);
    const int64_t step = g.reverse ? -g.width : g.width;
    int64_t at = (g.reverse ? range.end - 1 : range.begin) * g.width + c;
    A product[W];
    for (int k = 0; k < W; ++k) product[k] = A(1);
    for (int64_t n = range.length(); n > 0; --n, at += step) {
      for (int k = 0; k < W; ++k) {
        const A next = product[k] * A(values[at + k]);
        out[at + k] = Out(acc_t<Out>(g.exclusive ? product[k] : next));
        product[k] = next;
      }
    }
  }
};

// Gradients of products, dx[r] = x[0] ... x[r - 1] h[r]. Of the products so far h[r] = dy[r] + x[r + 1] h[r + 1], or,
// exclusive, dy[r + 1] + x[r + 1] h[r + 1]; a row of 0 cuts, as in ScanKernel. kLast: of the last product, of which
// there is one a segment, h[r] = x[r + 1] ... x[n - 1] dy. No division: they are exact where rows are 0. A product that
// fits may have a factor that float32 has no room for, so both are carried in more.
template <class T, bool kLast>
struct CumprodBackwardKernel {
  using A = carried_t<T>;
  static constexpr int64_t kAtOnce = 4096;  // rows: what is in front of them is still in a cache
  CumprodBackwardArguments g;
  const T* values;
  const T* grad;
  A* before;
  T* out;
  LOD_FN CumprodKernel<T, A> products() const { return {{g, values, before, g.reverse, true}, values, before}; }
  // h of a row from what its neighbour passed on, and what it passes on itself.
  static LOD_FN A step(A x, A dy, bool exclusive, A& passed) {
    const A h = exclusive ? passed : dy + passed;
    const bool cut = x == A(0) && h - h != A(0);  // that is, infinite or NaN
    const A on = cut ? A(0) : x * h;
    passed = exclusive ? dy + on : on;
    return h;
  }
  bool run(int64_t first, int64_t last) const {
    if (g.width != 1) return false;
    for (int64_t end = first; first < last; first = end) {
      while (end < last && g.offsets[end + 1] - g.offsets[first] <= kAtOnce) ++end;
      if (end == first) ++end;
      products().run(first, end);
      back(first, end);
    }
    return true;
  }
  void back(int64_t first, int64_t last) const {
    const auto *x = values, *dy = grad;
    A* left = before;
    T* to = out;
    const bool exclusive = g.exclusive;
    const auto alone = [](int64_t) {};
    if constexpr (kLast) {
      const auto both = [=](A& right, int64_t at) LOD_INLINE { left[at] *= right, right *= A(x[at]); };
      each_carried(g.offsets, first, last, true, A(1), both, INT64_MAX, alone);
      for (int64_t s = first; s < last; ++s)
        for (int64_t r = g.offsets[s]; r < g.offsets[s + 1]; ++r) to[r] = T(acc_t<T>(left[r] * A(dy[s])));
    } else {
      const auto go = [=](A& passed, int64_t at) LOD_INLINE {
        to[at] = T(acc_t<T>(left[at] * step(A(x[at]), A(dy[at]), exclusive, passed)));
      };
      each_carried(g.offsets, first, last, !g.reverse, A(0), go, INT64_MAX, alone);
    }
  }
  template <int W>
  LOD_FN void strip(int64_t s, int64_t c) const {
    products().template strip<W>(s, c);
    const Range range = rows_of(g.offsets, s, g.rows);
    const int64_t stride = g.reverse ? g.width : -g.width;
    int64_t at = (g.reverse ? range.begin : range.end - 1) * g.width + c;
    A passed[W];
    for (int k = 0; k < W; ++k) passed[k] = kLast ? A(grad[s * g.width + c + k]) : A(0);
    for (int64_t n = range.length(); n > 0; --n, at += stride)
      for (int k = 0; k < W; ++k) {
        A h = passed[k];
        if constexpr (kLast) passed[k] *= A(values[at + k]);
        else h = step(A(values[at + k]), A(grad[at + k]), g.exclusive, passed[k]);
        out[at + k] = T(acc_t<T>(before[at + k] * h));
      }
  }
};

// y[r] = log(sum of exp over the rows so far), as the largest so far and the sum of the others relative to it.
// Infinities meet as equals, so that their difference is not NaN.
template <class T>
struct LogcumsumexpKernel {
  LoDView g;
  const T* values;
  T* out;
  template <int W>
  LOD_FN void strip(int64_t s, int64_t c) const {
    using A = acc_t<T>;
    const Range range = rows_of(g.offsets, s, g.rows);
    A top[W];
    carried_t<T> others[W];
    for (int64_t r = range.begin; r < range.end; ++r) {
      const int64_t at = r * g.width + c;
      for (int k = 0; k < W; ++k) {
        const A v = A(values[at + k]);
        if (r == range.begin) {
          top[k] = v, others[k] = A(0);
        } else {
          const A rise = v == top[k] ? A(0) : v - top[k], e = exp_below(rise > A(0) ? -rise : rise);
          others[k] = rise > A(0) ? (others[k] + 1) * e : others[k] + e;
          top[k] = rise > A(0) ? v : top[k];
        }
        out[at + k] = T(top[k] + log_beyond(A(others[k])));
      }
    }
  }
};

LOD_ENTRY void segment_scan(const Exec& exec, DType dtype, const ScanArguments& a) {
  LOD_WHOLE(segment_scan(exec, dtype, a));
  visit_here(dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    const auto* values = static_cast<const T*>(a.values);
    const auto* factors = static_cast<const T*>(a.factors);
    auto* out = static_cast<T*>(a.out);
    if (factors) each_segment(exec, a, ScanKernel<T>{a, values, factors, out});
    else each_in_blocks(exec, CumsumKernel<T>{a, values, out});
  });
}

LOD_ENTRY void segment_cumulative(const Exec& exec, DType dtype, bool max, const CumulativeArguments& a) {
  LOD_WHOLE(segment_cumulative(exec, dtype, max, a));
  visit_here(dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    const auto* values = static_cast<const T*>(a.values);
    auto* out = static_cast<T*>(a.out);
    if (max) each_in_blocks(exec, CumulativeKernel<Max, T>{a, values, out});
    else each_in_blocks(exec, CumulativeKernel<Min, T>{a, values, out});
  });
}

LOD_ENTRY void segment_cumulative_backward(const Exec& exec, DType dtype, const CumulativeBackwardArguments& a) {
  LOD_WHOLE(segment_cumulative_backward(exec, dtype, a));
  visit_here(dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    each_segment(exec, a, CumulativeBackwardKernel<T>{a, static_cast<const T*>(a.grad), static_cast<T*>(a.out)});
  });
}

LOD_ENTRY void segment_cumprod(const Exec& exec, DType dtype, const CumprodArguments& a) {
  LOD_WHOLE(segment_cumprod(exec, dtype, a));
  visit_here(dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    each_segment(exec, a, CumprodKernel<T>{a, static_cast<const T*>(a.values), static_cast<T*>(a.out)});
  });
}

LOD_ENTRY void segment_cumprod_backward(const Exec& exec, DType dtype, bool last, const CumprodBackwardArguments& a) {
  visit_floating(dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    const auto *values = static_cast<const T*>(a.values), *grad = static_cast<const T*>(a.grad);
    auto* before = static_cast<carried_t<T>*>(a.before);
    auto* out = static_cast<T*>(a.out);
    if (last) each_segment(exec, a, CumprodBackwardKernel<T, true>{a, values, grad, before, out});
    else each_segment(exec, a, CumprodBackwardKernel<T, false>{a, values, grad, before, out});
  });
}

LOD_ENTRY void segment_logcumsumexp(const Exec& exec, DType dtype, const LogcumsumexpArguments& a) {
  visit_floating(dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    each_segment(exec, a, LogcumsumexpKernel<T>{a, static_cast<const T*>(a.values), static_cast<T*>(a.out)});
  });
}

}  // namespace lod::LOD_LEVEL
