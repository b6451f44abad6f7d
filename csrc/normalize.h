// Shape "segment", normalised: softmax and its logarithm, the logarithm of its sum, mean and variance. Kernel text, see
// torch_lod/device.h.
//
// Sums are in blocks of kBlock rows counted from a segment's own start, as in segment.h. Softmax is worked out in
// float32, of float64 in float64; mean and variance always in float64, where no square of a float32 overflows.
// SPDX-License-Identifier: Apache-2.0

#ifndef LOD_NORMALIZE_ARGUMENTS
#define LOD_NORMALIZE_ARGUMENTS
#include "torch_lod/lod_view.h"
#include "torch_lod/reducer.h"
namespace lod {

struct SoftmaxArguments : LoDView {
  const void* values;  // backward: the output
  const void* grad;    // null forward
  void* out;
};
struct LogsumexpArguments : LoDView {
  const void* values;
  void* out;
  double pad;
};
struct VarArguments : LoDView {
  const void* values;
  void* out;
  double correction, pad;
  bool root;
};
struct NormalizeArguments : LoDView {
  const void* values;
  const void* grad;  // null forward
  void* out;
  double eps;
};

}  // namespace lod
#endif

#if LOD_LANES >= 8
#include "core/lanes.h"
#endif

namespace lod::LOD_LEVEL {

// y = exp(x - max x) / sum exp(x - max x) over the rows of a segment, or kLog its logarithm. The maximum may lose a
// NaN, the sum does not.
template <class T, bool kLog>
struct SoftmaxKernel {
  static constexpr bool kKeeps = !kLog && std::is_same_v<T, acc_t<T>>;  // a half type would round what is kept
  LoDView g;
  const T* values;
  T* out;
#if LOD_LANES >= 8
  bool run(int64_t first, int64_t last) const {
    if constexpr (std::is_same_v<T, float>)
      return narrow(g.width, g.rows, [&](const auto& rows) {
        rows.template softmax_all<kLog>(values, g.offsets, first, last, out);
      });
    return false;
  }
#endif
  template <int W>
  LOD_FN void strip(int64_t s, int64_t c) const {
    using A = acc_t<T>;
    const Range range = rows_of(g.offsets, s, g.rows);
    A top[W], total[W];
    for (int k = 0; k < W; ++k) top[k] = lowest<A>(), total[k] = 0;
    for (int64_t r = range.begin; r < range.end; ++r)
      for (int k = 0; k < W; ++k) top[k] = Max::fast(top[k], A(values[r * g.width + c + k]));
    for (int64_t block = range.begin; block < range.end; block += kBlock) {
      const int64_t end = block + kBlock < range.end ? block + kBlock : range.end;
      A part[W];
      for (int k = 0; k < W; ++k) part[k] = 0;
      for (int64_t r = block; r < end; ++r) {
        A e[W];  // apart from the stores, which might be to the same memory for all that a compiler knows
        for (int k = 0; k < W; ++k) e[k] = exp_below(A(values[r * g.width + c + k]) - top[k]);
        for (int k = 0; k < W; ++k) part[k] += e[k];
        if constexpr (kKeeps)
          for (int k = 0; k < W; ++k) out[r * g.width + c + k] = e[k];
      }
      for (int k = 0; k < W; ++k) total[k] += part[k];
    }
    for (int k = 0; k < W; ++k) total[k] = kLog ? log_above(total[k]) : A(1) / total[k];
    for (int64_t r = range.begin; r < range.end; ++r)
      for (int k = 0; k < W; ++k) {
        const int64_t i = r * g.width + c + k;
        if constexpr (kLog) out[i] = T((A(values[i]) - top[k]) - total[k]);
        else out[i] = T((kKeeps ? A(out[i]) : exp_below(A(values[i]) - top[k])) * total[k]);
      }
  }
};

// dx = y (dy - sum dy y) over the rows of a segment, or kLog, with y the logarithm: dx = dy - e^y sum dy
template <class T, bool kLog>
struct SoftmaxBackwardKernel {
  LoDView g;
  const T* output;
  const T* grad;
  T* out;
#if LOD_LANES >= 8
  bool run(int64_t first, int64_t last) const {
    if constexpr (std::is_same_v<T, float>)
      return narrow(g.width, g.rows, [&](const auto& rows) {
        for (int64_t s = first; s < last; ++s) {
          const int64_t at = g.offsets[s] * g.width;
          rows.template softmax_backward<kLog>(output + at, grad + at, g.offsets[s + 1] * g.width - at, out + at);
        }
      });
    return false;
  }
#endif
  template <int W>
  LOD_FN void strip(int64_t s, int64_t c) const {
    using A = acc_t<T>;
    const Range range = rows_of(g.offsets, s, g.rows);
    A total[W];
    for (int k = 0; k < W; ++k) total[k] = 0;
    for (int64_t block = range.begin; block < range.end; block += kBlock) {
      const int64_t end = block + kBlock < range.end ? block + kBlock : range.end;
      A part[W];
      for (int k = 0; k < W; ++k) part[k] = 0;
      for (int64_t i = block * g.width + c; i < end * g.width + c; i += g.width)
        for (int k = 0; k < W; ++k) part[k] += kLog ? A(grad[i + k]) : A(output[i + k]) * A(grad[i + k]);
      for (int k = 0; k < W; ++k) total[k] += part[k];
    }
    for (int64_t i = range.begin * g.width + c; i < range.end * g.width + c; i += g.width)
      for (int k = 0; k < W; ++k) {
        const A y = A(output[i + k]), dy = A(grad[i + k]);
        out[i + k] = T(kLog ? dy - exp_below(y) * total[k] : y * (dy - total[k]));
      }
  }
};

// out[s] = log sum exp(x) over the rows of a segment. Infinities meet as equals, so that their difference is not NaN.
template <class T>
struct LogsumexpKernel {
  LoDView g;
  const T* values;
  T* out;
  T pad;
#if LOD_LANES >= 8
  bool run(int64_t first, int64_t last) const {
    if constexpr (std::is_same_v<T, float>)
      return narrow(g.width, g.rows, [&](const auto& rows) {
        rows.logsumexp_all(values, g.offsets, first, last, pad, out);
      });
    return false;
  }
#endif
  template <int W>
  LOD_FN void strip(int64_t s, int64_t c) const {
    using A = acc_t<T>;
    const Range range = rows_of(g.offsets, s, g.rows);
    T* to = out + s * g.width + c;
    if (range.length() == 0) {
      for (int k = 0; k < W; ++k) to[k] = pad;
      return;
    }
    A top[W], total[W];
    for (int k = 0; k < W; ++k) top[k] = lowest<A>(), total[k] = 0;
    for (int64_t r = range.begin; r < range.end; ++r)
      for (int k = 0; k < W; ++k) top[k] = Max::fast(top[k], A(values[r * g.width + c + k]));
    for (int64_t block = range.begin; block < range.end; block += kBlock) {
      const int64_t end = block + kBlock < range.end ? block + kBlock : range.end;
      A part[W];
      for (int k = 0; k < W; ++k) part[k] = 0;
      for (int64_t r = block; r < end; ++r)
        for (int k = 0; k < W; ++k) {
          const A v = A(values[r * g.width + c + k]);
          part[k] += exp_below(v == top[k] ? A(0) : v - top[k]);
        }
      for (int k = 0; k < W; ++k) total[k] += part[k];
    }
    for (int k = 0; k < W; ++k) to[k] = T(top[k] + log_above(total[k]));
  }
};

// -- mean and variance

// total[k]: the sum over the rows of a segment of f(i, k), i the element in channel k of the strip. Narrow strips sum
// several rows side by side.
template <int W, class F>
LOD_FN void sum_rows(const LoDView& g, const Range& range, int64_t c, const F& f, double* total) {
  constexpr int U = W < 4 ? 4 / W : 1;
  for (int k = 0; k < W; ++k) total[k] = 0;
  for (int64_t block = range.begin; block < range.end; block += kBlock) {
    const int64_t end = block + kBlock < range.end ? block + kBlock : range.end;
    double part[U * W];
    for (int k = 0; k < U * W; ++k) part[k] = 0;
    int64_t r = block;
    for (; r + U <= end; r += U)
      for (int u = 0; u < U; ++u)
        for (int k = 0; k < W; ++k) part[u * W + k] += f((r + u) * g.width + c + k, k);
    for (; r < end; ++r)
      for (int k = 0; k < W; ++k) part[k] += f(r * g.width + c + k, k);
    for (int k = 0; k < U * W; ++k) total[k % W] += part[k];
  }
}
template <class T>
struct Itself {
  const T* x;
  LOD_FN double operator()(int64_t i, int) const { return double(x[i]); }
};
template <class T>
struct Square {  // of the distance from the mean
  const T* x;
  const double* mean;
  LOD_FN double operator()(int64_t i, int k) const {
    const double z = double(x[i]) - mean[k];
    return z * z;
  }
};
template <class T>
struct Covariant {
  const T *x, *grad;
  const double* mean;
  LOD_FN double operator()(int64_t i, int k) const { return double(grad[i]) * (double(x[i]) - mean[k]); }
};

// The means of W channels of a segment, and the sums of the squares of what is left.
template <class T, int W>
struct Moments {
  double mean[W], squares[W];
  LOD_FN Moments(const LoDView& g, const T* values, const Range& range, int64_t c) {
    sum_rows<W>(g, range, c, Itself<T>{values}, mean);
    for (int k = 0; k < W; ++k) mean[k] /= double(range.length());
    sum_rows<W>(g, range, c, Square<T>{values, mean}, squares);
  }
};

template <class T>
struct VarKernel {
  VarArguments g;
  const T* values;
  T* out;
  template <int W>
  LOD_FN void strip(int64_t s, int64_t c) const {
    const Range range = rows_of(g.offsets, s, g.rows);
    T* to = out + s * g.width + c;
    if (range.length() == 0) {
      for (int k = 0; k < W; ++k) to[k] = T(acc_t<T>(g.pad));
      return;
    }
    const Moments<T, W> found(g, values, range, c);
    const double left = double(range.length()) - g.correction, over = left > 0 ? left : 0;
    for (int k = 0; k < W; ++k) {
      const double variance = found.squares[k] / over;
      to[k] = T(acc_t<T>(g.root ? ::sqrt(variance) : variance));
    }
  }
};

// y = (x - mean) / sqrt(variance + eps)
template <class T>
struct NormalizeKernel {
  NormalizeArguments g;
  const T* values;
  T* out;
  template <int W>
  LOD_FN void strip(int64_t s, int64_t c) const {
    const Range range = rows_of(g.offsets, s, g.rows);
    const Moments<T, W> found(g, values, range, c);
    double scale[W];
    for (int k = 0; k < W; ++k) scale[k] = 1 / ::sqrt(found.squares[k] / double(range.length()) + g.eps);
    for (int64_t i = range.begin * g.width + c; i < range.end * g.width + c; i += g.width)
      for (int k = 0; k < W; ++k) out[i + k] = T(acc_t<T>((double(values[i + k]) - found.mean[k]) * scale[k]));
  }
};
// dx = r (dy - mean dy - y mean(dy y)), with r = 1 / sqrt(variance + eps) and y = (x - mean x) r
template <class T>
struct NormalizeBackwardKernel {
  NormalizeArguments g;
  const T* values;
  const T* grad;
  T* out;
  template <int W>
  LOD_FN void strip(int64_t s, int64_t c) const {
    const Range range = rows_of(g.offsets, s, g.rows);
    const double length = double(range.length());
    const Moments<T, W> found(g, values, range, c);
    double scale[W], shift[W], slope[W];
    sum_rows<W>(g, range, c, Itself<T>{grad}, shift);
    sum_rows<W>(g, range, c, Covariant<T>{values, grad, found.mean}, slope);
    for (int k = 0; k < W; ++k) {
      const double variance = found.squares[k] / length + g.eps;
      scale[k] = 1 / ::sqrt(variance);
      shift[k] *= scale[k] / length;
      slope[k] *= scale[k] / (length * variance);
    }
    for (int64_t i = range.begin * g.width + c; i < range.end * g.width + c; i += g.width)
      for (int k = 0; k < W; ++k) {
        const double z = double(values[i + k]) - found.mean[k];
        out[i + k] = T(acc_t<T>(double(grad[i + k]) * scale[k] - shift[k] - z * slope[k]));
      }
  }
};

template <bool kLog>
void softmax_as(const Exec& exec, DType dtype, const SoftmaxArguments& a) {
  visit_floating(dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    const auto *values = static_cast<const T*>(a.values), *grad = static_cast<const T*>(a.grad);
    auto* out = static_cast<T*>(a.out);
    if (grad) each_segment(exec, a, SoftmaxBackwardKernel<T, kLog>{a, values, grad, out});
    else each_segment(exec, a, SoftmaxKernel<T, kLog>{a, values, out});
  });
}

LOD_ENTRY void segment_softmax(const Exec& exec, DType dtype, bool log, const SoftmaxArguments& a) {
  if (log) softmax_as<true>(exec, dtype, a);
  else softmax_as<false>(exec, dtype, a);
}

LOD_ENTRY void segment_logsumexp(const Exec& exec, DType dtype, const LogsumexpArguments& a) {
  visit_floating(dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    each_segment(exec, a,
                 LogsumexpKernel<T>{a, static_cast<const T*>(a.values), static_cast<T*>(a.out), T(acc_t<T>(a.pad))});
  });
}

LOD_ENTRY void segment_var(const Exec& exec, DType dtype, const VarArguments& a) {
  visit_floating(dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    each_segment(exec, a, VarKernel<T>{a, static_cast<const T*>(a.values), static_cast<T*>(a.out)});
  });
}

LOD_ENTRY void segment_normalize(const Exec& exec, DType dtype, const NormalizeArguments& a) {
  visit_floating(dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    const auto *values = static_cast<const T*>(a.values), *grad = static_cast<const T*>(a.grad);
    auto* out = static_cast<T*>(a.out);
    if (grad) each_segment(exec, a, NormalizeBackwardKernel<T>{a, values, grad, out});
    else each_segment(exec, a, NormalizeKernel<T>{a, values, out});
  });
}

}  // namespace lod::LOD_LEVEL
