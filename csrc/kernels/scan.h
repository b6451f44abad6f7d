// Shape "segment", row by row: a state is passed along every segment. Kernel source, see torch_lod/device.h.
// SPDX-License-Identifier: Apache-2.0

#include "kernels/scan_api.h"

#include "torch_lod/segment_drivers.h"

namespace lod::LOD_LEVEL {

// What most scans have in common: they read elements of T and write an Out for each.
template <class T, int kArrays = 1, class Out = T, class Carried = accumulator_t<T>>
struct Scan : Rows<T, kArrays, Out> {
  using A = Carried;
  static constexpr bool kByRow = true, kShares = false, kTiles = std::is_same_v<T, Out>, kSideBySide = false;
  bool backwards = false;
  LOD_FN bool reverse() const { return backwards; }
  LOD_FN A load(int64_t i, const ScanRow&) const { return A(this->in[0][i]); }
  static LOD_FN bool is_finite(A x) { return x - x == A(0); }
};

// y[r] = values[r] + y[r - 1], or in reverse values[r] + y[r + 1]: sums within a block, added to those before it.
template <class T>
struct CumSum : Scan<T> {
  using A = accumulator_t<T>;
  static constexpr bool kShares = true, kSideBySide = std::is_floating_point_v<T>;
  template <int W>
  struct State {
    A before[W], sum[W];
  };
  static LOD_FN void copy(auto& s, int64_t k, const auto& t, int64_t j, bool on) {
    s.before[k] = on ? t.before[j] : s.before[k], s.sum[k] = on ? t.sum[j] : s.sum[k];
  }
  static LOD_FN void identity(auto& s, int64_t k) { s.before[k] = s.sum[k] = A(0); }
  template <bool kEmit>
  LOD_FN void step(auto& s, int64_t k, A x, int64_t i, const ScanRow&) const {
    s.sum[k] += x;
    if constexpr (kEmit) this->out[i] = T(acc_t<T>(s.before[k] + s.sum[k]));
  }
  static LOD_FN void finalize(auto& s, int64_t k) { s.before[k] += s.sum[k], s.sum[k] = A(0); }
  static LOD_FN void combine(auto& s, int64_t k, const auto& t, int64_t j) { s.before[k] += t.before[j] + t.sum[j]; }
};

// What rows make of what comes before them: value + through * before, or, of a row that cuts, value. Only blocks need
// more than the value.
template <class T, int kArrays>
struct AffineScan : Scan<T, kArrays> {
  using A = accumulator_t<T>;
  using Through = std::conditional_t<std::is_integral_v<T>, A, double>;
  template <int W>
  struct State {
    A value[W];
    Through through[W];
    unsigned char cut[W];  // no bool: of wrong offsets on a GPU, parts hold anything
  };
  static LOD_FN void identity(auto& s, int k) { s.value[k] = -A(0), s.through[k] = Through(1), s.cut[k] = false; }
  static LOD_FN void pass(auto& s, int k, A factor) { s.through[k] *= Through(factor), s.cut[k] |= factor == A(0); }
  // A product of factors that is too small for a number leaves what is infinite or NaN as it is, and one that is too
  // large leaves 0.
  static LOD_FN void combine(auto& s, int k, const auto& t, int j) {
    const auto before = Through(s.value[k]);
    Through on = -Through(0);
    if (!t.cut[j] && before != Through(0))
      on = t.through[j] == Through(0) && before - before != Through(0) ? before / t.through[j] : before * t.through[j];
    s.value[k] = A(Through(t.value[j]) + on);
    s.through[k] *= t.through[j];
    s.cut[k] |= t.cut[j];
  }
};

// y[r] = values[r] + factors[r] y[r - 1], or its adjoint y[r] = values[r] + factors[r + 1] y[r + 1]. A factor of 0
// cuts: the state is dropped even where it is infinite or NaN.
template <class T>
struct Recurrence : AffineScan<T, 2> {
  using A = accumulator_t<T>;
  static constexpr bool kTiles = false;  // a piece reads a factor of the next one
  int64_t shift;  // of the factor, in elements: 0, or in reverse the width
  struct Pair {
    A value, factor;
  };
  LOD_FN Pair load(int64_t i, const ScanRow& at) const {
    return {A(this->in[0][i]), A(this->in[1][at.first ? i : i + shift])};
  }
  template <bool kEmit>
  LOD_FN void step(auto& s, int k, const Pair& x, int64_t i, const ScanRow& at) const {
    const A factor = at.first ? A(0) : x.factor, state = s.value[k];
    const bool cut = at.first | ((factor == A(0)) & !this->is_finite(state));
    s.value[k] = x.value + (cut ? -A(0) : state * factor);
    if constexpr (kEmit) this->out[i] = T(acc_t<T>(s.value[k]));
    else this->pass(s, k, factor);
  }
};

// The first of the largest (smallest) so far, or the first NaN, and its row.
template <class R, class T>
struct CumExtreme : Scan<T> {
  using A = acc_t<T>;
  static constexpr bool kShares = true;
  int64_t* index;
  template <int W>
  struct State {
    A best[W];
    int64_t row[W];  // below 0: none
  };
  static LOD_FN void identity(auto& s, int k) { s.best[k] = R::template none<A>(), s.row[k] = -1; }
  LOD_FN A load(int64_t i, const ScanRow&) const { return A(this->in[0][i]); }
  template <bool kEmit>
  LOD_FN void step(auto& s, int k, A x, int64_t i, const ScanRow& at) const {
    const bool take = at.first | R::better(x, s.best[k]);
    s.best[k] = take ? x : s.best[k];
    s.row[k] = take ? at.row : s.row[k];
    if constexpr (kEmit) this->out[i] = T(s.best[k]), index[i] = s.row[k];
  }
  static LOD_FN void finalize(auto&, int) {}
  static LOD_FN void combine(auto& s, int k, const auto& t, int j) {
    if (s.row[k] < 0 || (t.row[j] >= 0 && R::better(t.best[j], s.best[k]))) s.best[k] = t.best[j], s.row[k] = t.row[j];
  }
};

// Its gradient: a row that is its own extreme so far takes the gradients up to the next such row of its segment; others
// take none.
template <class T>
struct CumExtremeBackward : Scan<T> {
  using A = accumulator_t<T>;
  const int64_t* index;
  template <int W>
  struct State {
    A sum[W];
    unsigned char taken[W];  // by a row
  };
  static LOD_FN void identity(auto& s, int k) { s.sum[k] = A(0), s.taken[k] = false; }
  struct Pair {
    A grad;
    int64_t row;
  };
  LOD_FN Pair load(int64_t i, const ScanRow&) const { return {A(this->in[0][i]), index[i]}; }
  template <bool kEmit>
  LOD_FN void step(auto& s, int k, const Pair& x, int64_t i, const ScanRow& at) const {
    const A all = s.sum[k] + x.grad;
    const bool own = x.row == at.row;
    if constexpr (kEmit) this->out[i] = own ? T(acc_t<T>(all)) : T(0);
    else s.taken[k] |= own;
    s.sum[k] = own ? A(0) : all;
  }
  static LOD_FN void combine(auto& s, int k, const auto& t, int j) {
    s.sum[k] = t.taken[j] ? t.sum[j] : s.sum[k] + t.sum[j];
    s.taken[k] |= t.taken[j];
  }
};

// y[r] = the product of the rows so far, or, exclusive, of those before r. The product of a block may have overflowed,
// or have become 0, without a row that is infinite or 0: then it leaves a 0, or what is infinite, as it is, as one row
// after the other would.
template <class T, int kArrays = 1, class Out = T, class Carried = accumulator_t<T>>
struct CumProd : Scan<T, kArrays, Out, Carried> {
  using A = Carried;
  static constexpr bool kSerial = true;
  bool exclusive;
  template <int W>
  struct State {
    A product[W];
    unsigned char infinite[W], zero[W];  // some row; infinite: or NaN
  };
  static LOD_FN void identity(auto& s, int k) { s.product[k] = A(1), s.infinite[k] = s.zero[k] = false; }
  static LOD_FN void watch(auto& s, int k, A x) {
    s.infinite[k] |= !Scan<T, kArrays, Out, A>::is_finite(x), s.zero[k] |= x == A(0);
  }
  template <bool kEmit>
  LOD_FN void step(auto& s, int k, A x, int64_t i, const ScanRow&) const {
    const A before = s.product[k];
    s.product[k] = before * x;
    if constexpr (kEmit) this->out[i] = Out(acc_t<Out>(exclusive ? before : s.product[k]));
    else watch(s, k, x);
  }
  static LOD_FN void combine(auto& s, int k, const auto& t, int j) {
    const A a = s.product[k], b = t.product[j];
    const auto finite = [](A x) { return Scan<T, kArrays, Out, A>::is_finite(x); };
    A both = a * b;
    if (a == A(0) && !finite(b) && !t.infinite[j]) both = b != b ? a : a / b;
    else if (!finite(a) && b == A(0) && !t.zero[j]) both = a / b;
    s.product[k] = both;
    s.infinite[k] |= t.infinite[j], s.zero[k] |= t.zero[j];
  }
};

// Gradients of products, dx[r] = x[0] ... x[r - 1] h[r], from a scan whose direction is opposite to that of the
// products. No division: they are exact where rows are 0. A product that fits may have a factor that float32 has no
// room for, so both have wider accumulators. `before` holds x[0] ... x[r - 1].
template <class A>
struct ProductRow {
  A x, dy, before;
};
// Of the product of a segment, whose dy is one row: h[r] = x[r + 1] ... x[n - 1] dy.
template <class T>
struct ProdBackward : CumProd<T> {
  using A = accumulator_t<T>;
  const T* grad;
  const A* before;
  int64_t width;
  LOD_FN ProductRow<A> load(int64_t i, const ScanRow& at) const {
    return {A(this->in[0][i]), A(grad[i + (at.segment - at.row) * width]), before[i]};
  }
  template <bool kEmit>
  LOD_FN void step(auto& s, int k, const ProductRow<A>& row, int64_t i, const ScanRow&) const {
    if constexpr (kEmit) this->out[i] = T(acc_t<T>(row.before * (s.product[k] * row.dy)));
    else this->watch(s, k, row.x);
    s.product[k] *= row.x;
  }
};
// Of products so far: h[r] = dy[r] + x[r + 1] h[r + 1], or, exclusive, dy[r + 1] + x[r + 1] h[r + 1]. A row of 0 cuts.
template <class T>
struct CumProdBackward : AffineScan<T, 2> {
  using A = accumulator_t<T>;
  const A* before;
  bool exclusive;
  static LOD_FN void identity(auto& s, int k) {
    AffineScan<T, 2>::identity(s, k);
    s.value[k] = A(0);
  }
  LOD_FN ProductRow<A> load(int64_t i, const ScanRow&) const {
    return {A(this->in[0][i]), A(this->in[1][i]), before[i]};
  }
  template <bool kEmit>
  LOD_FN void step(auto& s, int k, const ProductRow<A>& row, int64_t i, const ScanRow&) const {
    const A h = exclusive ? s.value[k] : row.dy + s.value[k];
    const bool cut = (row.x == A(0)) & !this->is_finite(h);
    const A on = cut ? A(0) : row.x * h;
    s.value[k] = exclusive ? row.dy + on : on;
    if constexpr (kEmit) this->out[i] = T(acc_t<T>(row.before * h));
    else this->pass(s, k, row.x);
  }
};

// y[r] = log(sum of exp over the rows so far), as the largest so far and the sum of the exponentials below it of the
// other rows, -1 where there is no row. Infinities meet as equals, so that their difference is not NaN.
template <class T>
struct LogCumSumExp : Scan<T> {
  using A = acc_t<T>;
  template <int W>
  struct State {
    A top[W];
    accumulator_t<T> others[W];
  };
  static LOD_FN void identity(auto& s, int k) { s.top[k] = lowest<A>(), s.others[k] = -1; }
  // Adds rows whose largest is `top`, and `own` the sum of the others.
  static LOD_FN void add(auto& s, int k, A top, accumulator_t<T> own) {
    const A rise = top == s.top[k] ? A(0) : top - s.top[k], e = exp_below(rise > A(0) ? -rise : rise);
    const auto up = (s.others[k] + 1) * e + own, on = s.others[k] + (own + 1) * e;
    s.others[k] = rise > A(0) ? up : on;
    s.top[k] = rise > A(0) ? top : s.top[k];
  }
  static LOD_FN void combine(auto& s, int k, const auto& t, int j) { add(s, k, t.top[j], t.others[j]); }
  LOD_FN A load(int64_t i, const ScanRow&) const { return A(this->in[0][i]); }
  template <bool kEmit>
  LOD_FN void step(auto& s, int k, A x, int64_t i, const ScanRow&) const {
    add(s, k, x, 0);
    if constexpr (kEmit) this->out[i] = T(s.top[k] + log_beyond(A(s.others[k])));
  }
};

LOD_ENTRY void segment_scan(const Exec& exec, DType dtype, const ScanArguments& a) {
  LOD_LOWER_LEVEL(segment_scan(exec, dtype, a));
  visit_here(dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    using C = computed_t<T>;
    const int64_t shift = a.adjoint ? a.width : 0;
    if (a.factors) scan_segments<T>(exec, a, {a.values, a.factors}, a.out, Recurrence<C>{{{{}, a.adjoint}}, shift});
    else scan_segments<T>(exec, a, {a.values}, a.out, CumSum<C>{{{}, a.adjoint}});
  });
}

LOD_ENTRY void segment_cumulative(const Exec& exec, DType dtype, bool max, const CumulativeArguments& a) {
  LOD_LOWER_LEVEL(segment_cumulative(exec, dtype, max, a));
  visit_here(dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    using C = computed_t<T>;
    if (max) scan_segments<T>(exec, a, {a.values}, a.out, CumExtreme<Max, C>{{}, a.index});
    else scan_segments<T>(exec, a, {a.values}, a.out, CumExtreme<Min, C>{{}, a.index});
  });
}

LOD_ENTRY void segment_cumulative_backward(const Exec& exec, DType dtype, const CumulativeBackwardArguments& a) {
  LOD_LOWER_LEVEL(segment_cumulative_backward(exec, dtype, a));
  visit_here(dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    scan_segments<T>(exec, a, {a.grad}, a.out, CumExtremeBackward<computed_t<T>>{{{}, true}, a.index});
  });
}

LOD_ENTRY void segment_cumprod(const Exec& exec, DType dtype, const CumprodArguments& a) {
  LOD_LOWER_LEVEL(segment_cumprod(exec, dtype, a));
  visit_here(dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    using C = computed_t<T>;
    // what overflows in the accumulator of products of T must do so wherever they are computed
    scan_segments<T>(exec, a, {a.values}, a.out, CumProd<C, 1, C, accumulator_t<T>>{{{}, a.reverse}, a.exclusive});
  });
}

LOD_ENTRY void segment_cumprod_backward(const Exec& exec, DType dtype, bool last, const CumprodBackwardArguments& a) {
  visit_floating(dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    using C = computed_t<T>;
    using A = accumulator_t<C>;
    auto* before = static_cast<A*>(a.before);
    const CumProd<C, 1, A> products{{{{}, before}, a.reverse}, true};
    const auto* grad = static_cast<const C*>(a.grad);
    const Scan<C> back{{}, !a.reverse};
    const ProdBackward<C> of_last{{back, false}, grad, before, a.width};
    const CumProdBackward<C> of_all{{{{}, !a.reverse}}, before, a.exclusive};
    if (last) scan_segments<T>(exec, a, {a.values}, a.out, products, of_last);
    else scan_segments<T>(exec, a, {a.values, a.grad}, a.out, products, of_all);
  });
}

LOD_ENTRY void segment_logcumsumexp(const Exec& exec, DType dtype, const LogcumsumexpArguments& a) {
  visit_floating(dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    scan_segments<T>(exec, a, {a.values}, a.out, LogCumSumExp<computed_t<T>>{});
  });
}

}  // namespace lod::LOD_LEVEL
