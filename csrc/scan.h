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
struct CumulativeBackwardArguments : BlockView {
  const void* grad;
  const int64_t* index;
  void* out;
};
struct CumprodArguments : BlockView {
  const void* values;
  void* out;
  bool reverse, exclusive;
};
struct CumprodBackwardArguments : BlockView {
  const void* values;
  const void* grad;  // a row of them a row, or a segment where it is of the last product
  void* before;  // room for a carried_t of every number
  void* out;
  bool reverse, exclusive;
};
struct LogcumsumexpArguments : BlockView {
  const void* values;
  void* out;
};

}  // namespace lod
#endif

#include "core/in_turn.h"

namespace lod::LOD_LEVEL {

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
  using A = carried_t<T>;
  using Carried = affine_t<T>;
  ScanArguments g;
  const T* values;
  const T* factors;
  T* out;
  LOD_FN bool backwards() const { return g.adjoint; }
  static LOD_FN A next(A value, A factor, bool first, A carried) {
    const bool cut = first || (factor == A(0) && carried - carried != A(0));  // that is, infinite or NaN
    return value + (cut ? -A(0) : carried * factor);
  }
  static LOD_FN Carried nothing() { return Carried::nothing(); }
  static LOD_FN Carried join(const Carried& a, const Carried& b) { return Carried::join(a, b); }
  struct Row {
    A value, factor;
  };
  LOD_FN Row read(const Sequence&, int64_t i, int64_t, bool first) const {
    return {A(values[i]), first ? A(0) : A(factors[i + (g.adjoint ? g.width : 0)])};
  }
  template <bool kOut>
  LOD_FN void take(int64_t i, const Row& row, bool first, Carried& carried) const {
    carried.value = next(row.value, row.factor, first, A(carried.value));
    if constexpr (kOut) out[i] = T(acc_t<T>(carried.value));
    else carried.through *= row.factor, carried.cut |= row.factor == A(0);
  }
  template <int W>
  LOD_FN void strip(int64_t s, int64_t c) const {
    const Range range = rows_of(g.offsets, s, g.rows);
    const int64_t step = g.adjoint ? -g.width : g.width, shift = g.adjoint ? g.width : 0;
    int64_t at = (g.adjoint ? range.end - 1 : range.begin) * g.width + c;
    A carried[W];
    for (int k = 0; k < W; ++k) carried[k] = A(0);
    for (int64_t n = range.length(), i = 0; i < n; ++i, at += step) {
      for (int k = 0; k < W; ++k) {
        const A factor = i ? A(factors[at + shift + k]) : A(0);
        carried[k] = next(A(values[at + k]), factor, i == 0, carried[k]);
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
  using A = carried_t<T>;
  struct Carried {
    A sum;
    bool taken;  // by a row
  };
  CumulativeBackwardArguments g;
  const T* grad;
  T* out;
  LOD_FN bool backwards() const { return true; }
  static LOD_FN Carried nothing() { return {A(0), false}; }
  static LOD_FN Carried join(const Carried& a, const Carried& b) {
    return {b.taken ? b.sum : a.sum + b.sum, a.taken || b.taken};
  }
  struct Row {
    A grad;
    bool own;
  };
  LOD_FN Row read(const Sequence&, int64_t i, int64_t c, bool) const {
    return {A(grad[i]), uint64_t(g.index[i]) * uint64_t(g.width) + uint64_t(c) == uint64_t(i)};
  }
  template <bool kOut>
  LOD_FN void take(int64_t i, const Row& row, bool, Carried& carried) const {
    const A all = carried.sum + row.grad;
    if constexpr (kOut) out[i] = row.own ? T(acc_t<T>(all)) : T(0);
    carried = {row.own ? A(0) : all, carried.taken || row.own};
  }
  template <int W>
  LOD_FN void strip(int64_t s, int64_t c) const {
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
  using A = carried_t<T>;
  using Carried = Product<A>;
  CumprodArguments g;
  const T* values;
  Out* out;
  LOD_FN bool backwards() const { return g.reverse; }
  static LOD_FN Carried nothing() { return Carried::nothing(); }
  static LOD_FN Carried join(const Carried& a, const Carried& b) { return Carried::join(a, b); }
  LOD_FN void multiply(A& product, int64_t at, A x) const {
    const A next = product * x;
    out[at] = Out(acc_t<Out>(g.exclusive ? product : next));
    product = next;
  }
  LOD_FN A read(const Sequence&, int64_t i, int64_t, bool) const { return A(values[i]); }
  template <bool kOut>
  LOD_FN void take(int64_t i, A x, bool, Carried& carried) const {
    if constexpr (kOut) multiply(carried.product, i, x);
    else carried.times(x);
  }
  bool run(int64_t first, int64_t last) const {
    if (g.width != 1) return false;
    return g.exclusive ? multiply_all<true>(first, last) : multiply_all<false>(first, last);
  }
  template <bool kExclusive>
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
    const Range range = rows_of(g.offsets, s, g.rows);
    const int64_t step = g.reverse ? -g.width : g.width;
    int64_t at = (g.reverse ? range.end - 1 : range.begin) * g.width + c;
    A product[W];
    for (int k = 0; k < W; ++k) product[k] = A(1);
    for (int64_t n = range.length(); n > 0; --n, at += step)
      for (int k = 0; k < W; ++k) multiply(product[k], at + k, A(values[at + k]));
  }
};

// Gradients of products, dx[r] = x[0] ... x[r - 1] h[r]. Of the products so far h[r] = dy[r] + x[r + 1] h[r + 1], or,
// exclusive, dy[r + 1] + x[r + 1] h[r + 1]; a row of 0 cuts, as in ScanKernel. kLast: of the last product, of which
// there is one a segment, h[r] = x[r + 1] ... x[n - 1] dy. No division: they are exact where rows are 0. A product that
// fits may have a factor that float32 has no room for, so both are carried in more.
template <class T, bool kLast>
struct CumprodBackwardKernel {
  using A = carried_t<T>;
  using Carried = std::conditional_t<kLast, Product<A>, affine_t<T>>;
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
  // In blocks, where `before` holds the products so far.
  LOD_FN bool backwards() const { return !g.reverse; }
  static LOD_FN Carried nothing() {
    if constexpr (kLast) return Carried::nothing();
    else return {1, 0, false};
  }
  static LOD_FN Carried join(const Carried& a, const Carried& b) { return Carried::join(a, b); }
  struct Row {
    A x, dy, left;
  };
  LOD_FN Row read(const Sequence& s, int64_t i, int64_t c, bool) const {
    return {A(values[i]), A(grad[kLast ? s.index * g.width + c : i]), before[i]};
  }
  template <bool kOut>
  LOD_FN void take(int64_t i, const Row& row, bool, Carried& carried) const {
    A h;
    if constexpr (kLast) {
      h = carried.product * row.dy;
      carried.times(row.x);
    } else {
      A passed = A(carried.value);
      h = step(row.x, row.dy, g.exclusive, passed);
      carried.value = passed, carried.through *= row.x, carried.cut |= row.x == A(0);
    }
    if constexpr (kOut) out[i] = T(acc_t<T>(row.left * h));
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
  using A = acc_t<T>;
  struct Carried {
    A top;
    carried_t<T> others;
    bool any;  // row
  };
  LogcumsumexpArguments g;
  const T* values;
  T* out;
  LOD_FN bool backwards() const { return false; }
  static LOD_FN Carried nothing() { return {A(0), 0, false}; }
  // Rows whose largest is v, and `own` the sum of the others.
  static LOD_FN void add(A& top, carried_t<T>& others, A v, carried_t<T> own) {
    const A rise = v == top ? A(0) : v - top, e = exp_below(rise > A(0) ? -rise : rise);
    others = rise > A(0) ? (others + 1) * e + own : others + (own + 1) * e;
    top = rise > A(0) ? v : top;
  }
  static LOD_FN Carried join(Carried a, const Carried& b) {
    if (!a.any || !b.any) return a.any ? a : b;
    add(a.top, a.others, b.top, b.others);
    return a;
  }
  LOD_FN A read(const Sequence&, int64_t i, int64_t, bool) const { return A(values[i]); }
  template <bool kOut>
  LOD_FN void take(int64_t i, A v, bool, Carried& carried) const {
    carried = join(carried, {v, 0, true});
    if constexpr (kOut) out[i] = T(carried.top + log_beyond(A(carried.others)));
  }
  template <int W>
  LOD_FN void strip(int64_t s, int64_t c) const {
    const Range range = rows_of(g.offsets, s, g.rows);
    A top[W];
    carried_t<T> others[W];
    for (int64_t r = range.begin; r < range.end; ++r) {
      const int64_t at = r * g.width + c;
      for (int k = 0; k < W; ++k) {
        const A v = A(values[at + k]);
        if (r == range.begin) top[k] = v, others[k] = 0;
        else add(top[k], others[k], v, 0);
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
    if (factors) each_in_turn(exec, a, ScanKernel<T>{a, values, factors, out});
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
    each_in_turn(exec, a, CumulativeBackwardKernel<T>{a, static_cast<const T*>(a.grad), static_cast<T*>(a.out)});
  });
}

LOD_ENTRY void segment_cumprod(const Exec& exec, DType dtype, const CumprodArguments& a) {
  LOD_WHOLE(segment_cumprod(exec, dtype, a));
  visit_here(dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    each_in_turn(exec, a, CumprodKernel<T>{a, static_cast<const T*>(a.values), static_cast<T*>(a.out)});
  });
}

LOD_ENTRY void segment_cumprod_backward(const Exec& exec, DType dtype, bool last, const CumprodBackwardArguments& a) {
  visit_floating(dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    const auto *values = static_cast<const T*>(a.values), *grad = static_cast<const T*>(a.grad);
    auto* before = static_cast<carried_t<T>*>(a.before);
    auto* out = static_cast<T*>(a.out);
    const auto go = [&](const auto& kernel) {
      if (!a.reach) return each_segment(exec, a, kernel);
      each_in_turn(exec, a, kernel.products());
      each_in_turn(exec, a, kernel);
    };
    if (last) go(CumprodBackwardKernel<T, true>{a, values, grad, before, out});
    else go(CumprodBackwardKernel<T, false>{a, values, grad, before, out});
  });
}

LOD_ENTRY void segment_logcumsumexp(const Exec& exec, DType dtype, const LogcumsumexpArguments& a) {
  visit_floating(dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    each_in_turn(exec, a, LogcumsumexpKernel<T>{a, static_cast<const T*>(a.values), static_cast<T*>(a.out)});
  });
}

}  // namespace lod::LOD_LEVEL
