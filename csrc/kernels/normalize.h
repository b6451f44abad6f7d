// Shape "segment", normalised: softmax and its logarithm, the logarithm of its sum, mean and variance. Kernel source,
// see torch_lod/device.h. Rows are read in blocks, see torch_lod/segment_drivers.h. Softmax is worked out in
// float32, of float64 in float64; mean and variance always in float64, where no square of a float32 overflows.
//
// SPDX-License-Identifier: Apache-2.0

#include "kernels/normalize_api.h"

#include "torch_lod/segment_drivers.h"

namespace lod::LOD_LEVEL {

// Pass 0: the largest; it may lose a NaN, the sum does not. Pass 1: the sum of the exponentials below it.
template <class T>
struct Exponentials : Rows<T> {
  using A = acc_t<T>;
  static constexpr bool kSideBySide = std::is_same_v<A, float>;  // no vector code has ::exp
  static constexpr int kPasses = 2;
  template <int W>
  struct State {
    A top[W], sum[W];
  };
  static LOD_FN void copy(auto& s, int64_t k, const auto& t, int64_t j, bool on = true) {
    s.top[k] = on ? t.top[j] : s.top[k], s.sum[k] = on ? t.sum[j] : s.sum[k];
  }
  LOD_FN A load(int64_t i) const { return A(this->in[0][i]); }
  template <int pass>
  LOD_FN void identity(auto& s, int64_t k) const {
    if constexpr (pass == 0) s.top[k] = lowest<A>();
    else s.sum[k] = A(0);
  }
  template <int pass>
  LOD_FN void accumulate(auto& s, int64_t k, A x, int64_t) const {
    if constexpr (pass == 0) s.top[k] = Max::fast(s.top[k], x);
    else s.sum[k] += exp_below(x - s.top[k]);
  }
  template <int pass>
  LOD_FN void combine(auto& s, int64_t k, const auto& t, int64_t j) const {
    if constexpr (pass == 0) s.top[k] = Max::fast(s.top[k], t.top[j]);
    else s.sum[k] += t.sum[j];
  }
  template <int pass>
  LOD_FN void finalize(auto&, int, int64_t) const {}
};

// y = exp(x - max x) / sum exp(x - max x) over the rows of a segment.
template <class T>
struct Softmax : Exponentials<T> {
  using A = acc_t<T>;
  static constexpr bool kByRow = true, kKeepsTerms = true;
  static LOD_FN A term(const auto& s, int64_t k, A x) { return exp_below(x - s.top[k]); }
  template <int pass>
  LOD_FN void accumulate(auto& s, int64_t k, A x, int64_t row) const {
    if constexpr (pass == 0) Exponentials<T>::template accumulate<0>(s, k, x, row);
    else s.sum[k] += x;
  }
  template <int pass>
  LOD_FN void finalize(auto& s, int64_t k, int64_t) const {
    if constexpr (pass == 1) s.sum[k] = A(1) / s.sum[k];
  }
  LOD_FN void map(const auto& s, int64_t k, A e, int64_t i) const { this->out[i] = T(e * s.sum[k]); }
};
// Its logarithm.
template <class T>
struct LogSoftmax : Exponentials<T> {
  using A = acc_t<T>;
  static constexpr bool kByRow = true;
  template <int pass>
  LOD_FN void finalize(auto& s, int64_t k, int64_t) const {
    if constexpr (pass == 1) s.sum[k] = log_above(s.sum[k]);
  }
  LOD_FN void map(const auto& s, int64_t k, A x, int64_t i) const { this->out[i] = T((x - s.top[k]) - s.sum[k]); }
};
// out[s] = log sum exp(x). Infinities meet as equals, so that their difference is not NaN.
template <class T>
struct LogSumExp : Exponentials<T> {
  using A = acc_t<T>;
  static constexpr bool kByRow = false;
  T pad;
  template <int pass>
  LOD_FN void accumulate(auto& s, int64_t k, A x, int64_t) const {
    const A e = exp_below(x - s.top[k]);
    if constexpr (pass == 0) s.top[k] = Max::fast(s.top[k], x);
    else s.sum[k] += x == s.top[k] ? A(1) : e;
  }
  LOD_FN void finish(const auto& s, int64_t k, const Range& rows, int64_t to) const {
    this->out[to] = rows.length() ? T(s.top[k] + log_above(s.sum[k])) : pad;
  }
};

// What a gradient reads: two arrays.
template <class A>
struct Two {
  A a, b;
};
// dx = y (dy - sum dy y) over the rows of a segment, or kLog, with y the logarithm: dx = dy - e^y sum dy
template <class T, bool kLog>
struct SoftmaxBackward : Rows<T, 2> {
  using A = acc_t<T>;
  static constexpr int kPasses = 1;
  static constexpr bool kByRow = true;
  template <int W>
  struct State {
    A sum[W];
  };
  static LOD_FN void copy(auto& s, int64_t k, const auto& t, int64_t j, bool on = true) {
    s.sum[k] = on ? t.sum[j] : s.sum[k];
  }
  LOD_FN Two<A> load(int64_t i) const { return {A(this->in[0][i]), A(this->in[1][i])}; }
  template <int>
  LOD_FN void identity(auto& s, int64_t k) const { s.sum[k] = A(0); }
  template <int>
  LOD_FN void accumulate(auto& s, int64_t k, const Two<A>& x, int64_t) const { s.sum[k] += kLog ? x.b : x.a * x.b; }
  template <int>
  LOD_FN void combine(auto& s, int64_t k, const auto& t, int64_t j) const { s.sum[k] += t.sum[j]; }
  template <int>
  LOD_FN void finalize(auto&, int, int64_t) const {}
  LOD_FN void map(const auto& s, int64_t k, const Two<A>& x, int64_t i) const {
    this->out[i] = T(kLog ? x.b - exp_below(x.a) * s.sum[k] : x.a * (x.b - s.sum[k]));
  }
};

// -- mean and variance: pass 0 the mean, pass 1 the sum of the squares of the distances from it

template <class T>
struct Moments : Rows<T> {
  static constexpr int kPasses = 2;
  template <int W>
  struct State {
    double mean[W], square[W];
  };
  static LOD_FN void copy(auto& s, int64_t k, const auto& t, int64_t j, bool on = true) {
    s.mean[k] = on ? t.mean[j] : s.mean[k], s.square[k] = on ? t.square[j] : s.square[k];
  }
  LOD_FN double load(int64_t i) const { return double(this->in[0][i]); }
  template <int pass>
  LOD_FN void identity(auto& s, int64_t k) const { (pass ? s.square : s.mean)[k] = 0; }
  template <int pass>
  LOD_FN void accumulate(auto& s, int64_t k, double x, int64_t) const {
    if constexpr (pass == 0) s.mean[k] += x;
    else s.square[k] += (x - s.mean[k]) * (x - s.mean[k]);
  }
  template <int pass>
  LOD_FN void combine(auto& s, int64_t k, const auto& t, int64_t j) const {
    if constexpr (pass == 0) s.mean[k] += t.mean[j];
    else s.square[k] += t.square[j];
  }
  template <int pass>
  LOD_FN void finalize(auto& s, int64_t k, int64_t n) const {
    if constexpr (pass == 0) s.mean[k] /= double(n);
  }
};
template <class T>
struct Var : Moments<T> {
  static constexpr bool kByRow = false;
  double correction, pad;
  bool root;
  LOD_FN void finish(const auto& s, int64_t k, const Range& rows, int64_t to) const {
    const double left = double(rows.length()) - correction, var = s.square[k] / (left > 0 ? left : 0);
    this->out[to] = T(acc_t<T>(rows.length() == 0 ? pad : root ? ::sqrt(var) : var));
  }
};
// y = (x - mean) / sqrt(variance + eps)
template <class T>
struct Normalize : Moments<T> {
  static constexpr bool kByRow = true;
  double eps;
  template <int pass>
  LOD_FN void finalize(auto& s, int64_t k, int64_t n) const {
    Moments<T>::template finalize<pass>(s, k, n);
    if constexpr (pass == 1) s.square[k] = 1 / ::sqrt(s.square[k] / double(n) + eps);
  }
  LOD_FN void map(const auto& s, int64_t k, double x, int64_t i) const {
    this->out[i] = T(acc_t<T>((x - s.mean[k]) * s.square[k]));
  }
};
// dx = r (dy - mean dy - y mean(dy y)), with r = 1 / sqrt(variance + eps) and y = (x - mean x) r: after the passes
// dx = dy scale - shift - (x - mean) slope. Before, these are the sums of (x - mean)^2, dy and dy (x - mean).
template <class T>
struct NormalizeBackward : Rows<T, 2> {
  static constexpr int kPasses = 2;
  static constexpr bool kByRow = true;
  double eps;
  template <int W>
  struct State {
    double mean[W], scale[W], shift[W], slope[W];
  };
  static LOD_FN void copy(auto& s, int64_t k, const auto& t, int64_t j, bool on = true) {
    s.mean[k] = on ? t.mean[j] : s.mean[k], s.scale[k] = on ? t.scale[j] : s.scale[k];
    s.shift[k] = on ? t.shift[j] : s.shift[k], s.slope[k] = on ? t.slope[j] : s.slope[k];
  }
  LOD_FN Two<double> load(int64_t i) const { return {double(this->in[0][i]), double(this->in[1][i])}; }
  template <int pass>
  LOD_FN void identity(auto& s, int64_t k) const {
    if constexpr (pass == 0) s.mean[k] = s.shift[k] = 0;
    else s.scale[k] = s.slope[k] = 0;
  }
  template <int pass>
  LOD_FN void accumulate(auto& s, int64_t k, const Two<double>& x, int64_t) const {
    const double z = x.a - s.mean[k];
    if constexpr (pass == 0) s.mean[k] += x.a, s.shift[k] += x.b;
    else s.scale[k] += z * z, s.slope[k] += x.b * z;
  }
  template <int pass>
  LOD_FN void combine(auto& s, int64_t k, const auto& t, int64_t j) const {
    if constexpr (pass == 0) s.mean[k] += t.mean[j], s.shift[k] += t.shift[j];
    else s.scale[k] += t.scale[j], s.slope[k] += t.slope[j];
  }
  template <int pass>
  LOD_FN void finalize(auto& s, int64_t k, int64_t n) const {
    const double each = 1 / double(n);
    if constexpr (pass == 0) {
      s.mean[k] /= double(n);
    } else {
      s.scale[k] = 1 / ::sqrt(s.scale[k] * each + eps);
      s.shift[k] *= each * s.scale[k];
      s.slope[k] *= each * s.scale[k] * (s.scale[k] * s.scale[k]);
    }
  }
  LOD_FN void map(const auto& s, int64_t k, const Two<double>& x, int64_t i) const {
    this->out[i] = T(acc_t<T>(x.b * s.scale[k] - s.shift[k] - (x.a - s.mean[k]) * s.slope[k]));
  }
};

LOD_ENTRY void segment_softmax(const Exec& exec, DType dtype, bool log, const SoftmaxArguments& a) {
  visit_floating(dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    using C = computed_t<T>;
    if (a.grad && log) reduce_segments<T>(exec, a, {a.values, a.grad}, a.out, SoftmaxBackward<C, true>{});
    else if (a.grad) reduce_segments<T>(exec, a, {a.values, a.grad}, a.out, SoftmaxBackward<C, false>{});
    else if (log) reduce_segments<T>(exec, a, {a.values}, a.out, LogSoftmax<C>{});
    else reduce_segments<T>(exec, a, {a.values}, a.out, Softmax<C>{});
  });
}

LOD_ENTRY void segment_logsumexp(const Exec& exec, DType dtype, const LogsumexpArguments& a) {
  visit_floating(dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    using C = computed_t<T>;
    reduce_segments<T>(exec, a, {a.values}, a.out, LogSumExp<C>{{}, C(acc_t<T>(a.pad))});
  });
}

LOD_ENTRY void segment_var(const Exec& exec, DType dtype, const VarArguments& a) {
  visit_floating(dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    reduce_segments<T>(exec, a, {a.values}, a.out, Var<computed_t<T>>{{}, a.correction, a.pad, a.root});
  });
}

LOD_ENTRY void segment_normalize(const Exec& exec, DType dtype, const NormalizeArguments& a) {
  visit_floating(dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    using C = computed_t<T>;
    if (a.grad) reduce_segments<T>(exec, a, {a.values, a.grad}, a.out, NormalizeBackward<C>{{}, a.eps});
    else reduce_segments<T>(exec, a, {a.values}, a.out, Normalize<C>{{}, a.eps});
  });
}

}  // namespace lod::LOD_LEVEL
