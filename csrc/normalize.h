// Shape "segment", normalised: softmax and its logarithm, the logarithm of its sum, mean and variance. Kernel text, see
// torch_lod/device.h.
//
// Rows are gone over in blocks, see core/blocks.h. Softmax is worked out in float32, of float64 in float64; mean and
// variance always in float64, where no square of a float32 overflows.
// SPDX-License-Identifier: Apache-2.0

#ifndef LOD_NORMALIZE_ARGUMENTS
#define LOD_NORMALIZE_ARGUMENTS
#include "core/block_view.h"
namespace lod {

struct SoftmaxArguments : BlockView {
  const void* values;  // backward: the output
  const void* grad;    // null forward
  void* out;
};
struct LogsumexpArguments : BlockView {
  const void* values;
  void* out;
  double pad;
};
struct VarArguments : BlockView {
  const void* values;
  void* out;
  double correction, pad;
  bool root;
};
struct NormalizeArguments : BlockView {
  const void* values;
  const void* grad;  // null forward
  void* out;
  double eps;
};

}  // namespace lod
#endif

#include "core/blocks.h"
#if LOD_LANES >= 8
#include "core/lanes.h"
#endif

namespace lod::LOD_LEVEL {

template <class A>
struct Two {
  A a, b;
};

// y = exp(x - max x) / sum exp(x - max x) over the rows of a segment, or kLog its logarithm. The maximum may lose a
// NaN, the sum does not.
template <class T, bool kLog>
struct SoftmaxKernel {
  using Part = acc_t<T>;
  static constexpr int kPasses = 2;
  static constexpr bool kByRow = true;
  // A half type would round what is kept, and to a GPU exponentials cost less than memory.
  static constexpr bool kKeeps = !kLog && !kOnGpu && std::is_same_v<T, acc_t<T>>;
  using Element = T;
  static constexpr int kRowsIn = 1;
  BlockView g;
  const T* values;
  T* out;
  LOD_FN const T* rows_in(int) const { return values; }
  LOD_FN void move(T* const* to) { values = out = to[0]; }
#if LOD_LANES >= 8
  bool run(int64_t first, int64_t last, const Exec* exec = nullptr) const {
    if constexpr (std::is_same_v<T, float>) {
      const auto few = [&](const auto& rows) {
        rows.template softmax_all<kLog>(values, g.offsets, first, last, out);
      };
      if (narrow(exec, g.width, g.rows, few)) return true;
      if (g.width < LOD_LANES) return false;
      WideSoftmax<kLog ? Soft::log_max : Soft::max>{g, values, out, 0}.all(exec, first, last);
      return true;
    }
    return false;
  }
#endif
  template <int pass>
  static LOD_FN Part join(Part a, Part b) {
    return pass == 0 ? Max::fast(a, b) : a + b;
  }
  template <int pass, int W>
  LOD_FN void block(const Sequence&, const Range& rows, int64_t c, const Part (*found)[W], Part* to) const {
    Part part[W];
    for (int k = 0; k < W; ++k) part[k] = pass == 0 ? lowest<Part>() : 0;
    if constexpr (kOnGpu) {
      const auto read = [&](int64_t i) { return Part(values[i]); };
      in_order(g, rows, c, read, [&](int64_t, Part v) {
        if constexpr (pass == 0) part[0] = Max::fast(part[0], v);
        else part[0] += exp_below(v - found[0][0]);
      });
      to[0] = part[0];
      return;
    }
    for (int64_t r = rows.begin; r < rows.end; ++r) {
      if constexpr (pass == 0) {
        for (int k = 0; k < W; ++k) part[k] = Max::fast(part[k], Part(values[r * g.width + c + k]));
      } else {
        Part e[W];  // apart from the stores, which might be to the same memory for all that a compiler knows
        for (int k = 0; k < W; ++k) e[k] = exp_below(Part(values[r * g.width + c + k]) - found[0][k]);
        for (int k = 0; k < W; ++k) part[k] += e[k];
        if constexpr (kKeeps)
          for (int k = 0; k < W; ++k) out[r * g.width + c + k] = e[k];
      }
    }
    for (int k = 0; k < W; ++k) to[k] = part[k];
  }
  template <int W>
  LOD_FN void finish(const Sequence&, const Range& rows, int64_t c, const Part (*found)[W]) const {
    Part top[W], shift[W];
    for (int k = 0; k < W; ++k) top[k] = found[0][k], shift[k] = kLog ? log_above(found[1][k]) : Part(1) / found[1][k];
    if constexpr (kOnGpu) {
      const auto read = [&](int64_t i) { return Part(values[i]) - top[0]; };
      return in_order(g, rows, c, read, [&](int64_t i, Part below) {
        out[i] = T(kLog ? below - shift[0] : exp_below(below) * shift[0]);
      });
    }
    for (int64_t r = rows.begin; r < rows.end; ++r)
      for (int k = 0; k < W; ++k) {
        const int64_t i = r * g.width + c + k;
        if constexpr (kLog) out[i] = T((Part(values[i]) - top[k]) - shift[k]);
        else out[i] = T((kKeeps ? Part(out[i]) : exp_below(Part(values[i]) - top[k])) * shift[k]);
      }
  }
};

// dx = y (dy - sum dy y) over the rows of a segment, or kLog, with y the logarithm: dx = dy - e^y sum dy
template <class T, bool kLog>
struct SoftmaxBackwardKernel {
  using Part = acc_t<T>;
  static constexpr int kPasses = 1;
  static constexpr bool kByRow = true;
  using Element = T;
  static constexpr int kRowsIn = 2;
  BlockView g;
  const T* output;
  const T* grad;
  T* out;
  LOD_FN const T* rows_in(int a) const { return a ? grad : output; }
  LOD_FN void move(T* const* to) { output = to[0], grad = out = to[1]; }
#if LOD_LANES >= 8
  bool run(int64_t first, int64_t last, const Exec* exec = nullptr) const {
    if constexpr (std::is_same_v<T, float>)
      return narrow(exec, g.width, g.rows, [&](const auto& rows) {
        rows.template softmax_backward_all<kLog>(output, grad, g.offsets, first, last, out);
      });
    return false;
  }
#endif
  template <int>
  static LOD_FN Part join(Part a, Part b) {
    return a + b;
  }
  template <int, int W>
  LOD_FN void block(const Sequence&, const Range& rows, int64_t c, const Part (*)[W], Part* part) const {
    const auto term = [&](int64_t i, int) LOD_INLINE { return kLog ? Part(grad[i]) : Part(output[i]) * Part(grad[i]); };
    join_rows<W, Sum>(g, rows, c, term, part);
  }
  template <int W>
  LOD_FN void finish(const Sequence&, const Range& rows, int64_t c, const Part (*found)[W]) const {
    Part total[W];
    for (int k = 0; k < W; ++k) total[k] = found[0][k];
    if constexpr (kOnGpu) {
      const auto read = [&](int64_t i) { return Two<Part>{Part(output[i]), Part(grad[i])}; };
      return in_order(g, rows, c, read, [&](int64_t i, const Two<Part>& t) {
        out[i] = T(kLog ? t.b - exp_below(t.a) * total[0] : t.a * (t.b - total[0]));
      });
    }
    for (int64_t i = rows.begin * g.width + c; i < rows.end * g.width + c; i += g.width)
      for (int k = 0; k < W; ++k) {
        const Part y = Part(output[i + k]), dy = Part(grad[i + k]);
        out[i + k] = T(kLog ? dy - exp_below(y) * total[k] : y * (dy - total[k]));
      }
  }
};

// out[s] = log sum exp(x) over the rows of a segment. Infinities meet as equals, so that their difference is not NaN.
template <class T>
struct LogsumexpKernel {
  using Part = acc_t<T>;
  using Element = T;
  static constexpr int kPasses = 2, kRowsIn = 1;
  static constexpr bool kByRow = false;
  BlockView g;
  const T* values;
  T* out;
  T pad;
  LOD_FN const T* rows_in(int) const { return values; }
  LOD_FN void move(T* const* to) { values = to[0]; }
#if LOD_LANES >= 8
  bool run(int64_t first, int64_t last, const Exec* exec = nullptr) const {
    if constexpr (std::is_same_v<T, float>) {
      const auto few = [&](const auto& rows) { rows.logsumexp_all(values, g.offsets, first, last, pad, out); };
      if (narrow(exec, g.width, g.rows, few)) return true;
      if (g.width < LOD_LANES) return false;
      WideSoftmax<Soft::log_sum>{g, values, out, pad}.all(exec, first, last);
      return true;
    }
    return false;
  }
#endif
  template <int pass>
  static LOD_FN Part join(Part a, Part b) {
    return pass == 0 ? Max::fast(a, b) : a + b;
  }
  template <int pass, int W>
  LOD_FN void block(const Sequence&, const Range& rows, int64_t c, const Part (*found)[W], Part* to) const {
    Part part[W];
    for (int k = 0; k < W; ++k) part[k] = pass == 0 ? lowest<Part>() : 0;
    if constexpr (kOnGpu) {
      const auto read = [&](int64_t i) { return Part(values[i]); };
      in_order(g, rows, c, read, [&](int64_t, Part v) {
        if constexpr (pass == 0) part[0] = Max::fast(part[0], v);
        else part[0] += exp_below(v == found[0][0] ? Part(0) : v - found[0][0]);
      });
      to[0] = part[0];
      return;
    }
    for (int64_t r = rows.begin; r < rows.end; ++r)
      for (int k = 0; k < W; ++k) {
        const Part v = Part(values[r * g.width + c + k]);
        if constexpr (pass == 0) part[k] = Max::fast(part[k], v);
        else part[k] += exp_below(v == found[0][k] ? Part(0) : v - found[0][k]);
      }
    for (int k = 0; k < W; ++k) to[k] = part[k];
  }
  template <int W>
  LOD_FN void finish(const Sequence& s, const Range&, int64_t c, const Part (*found)[W]) const {
    for (int k = 0; k < W; ++k)
      out[s.index * g.width + c + k] = s.length() ? T(found[0][k] + log_above(found[1][k])) : pad;
  }
};

// -- mean and variance

// In the first pass the mean of the rows, in the second the sum of the squares of their distances from it.
template <class T>
struct MomentsKernel {
  using Part = double;
  const T* values;

  template <int>
  static LOD_FN double join(double a, double b) {
    return a + b;
  }
  template <int pass>
  static LOD_FN double settled(const Sequence& s, double sum) {
    return pass == 0 ? sum / double(s.length()) : sum;
  }
  template <int pass, int W>
  LOD_FN void moment(const LoDView& g, const Range& rows, int64_t c, const double (*found)[W], double* part) const {
    if constexpr (pass == 0) {
      join_rows<W, Sum>(g, rows, c, [&](int64_t i, int) LOD_INLINE { return double(values[i]); }, part);
    } else {
      const auto square = [&](int64_t i, int k) LOD_INLINE {
        const double z = double(values[i]) - found[0][k];
        return z * z;
      };
      join_rows<W, Sum>(g, rows, c, square, part);
    }
  }
};

template <class T>
struct VarKernel : MomentsKernel<T> {
  using Element = T;
  static constexpr int kPasses = 2, kRowsIn = 1;
  static constexpr bool kByRow = false;
  VarArguments g;
  T* out;
  LOD_FN const T* rows_in(int) const { return this->values; }
  LOD_FN void move(T* const* to) { this->values = to[0]; }
  template <int pass, int W>
  LOD_FN void block(const Sequence&, const Range& rows, int64_t c, const double (*found)[W], double* part) const {
    this->template moment<pass>(g, rows, c, found, part);
  }
  template <int W>
  LOD_FN void finish(const Sequence& s, const Range&, int64_t c, const double (*found)[W]) const {
    const double left = double(s.length()) - g.correction, over = left > 0 ? left : 0;
    for (int k = 0; k < W; ++k) {
      double result = g.pad;
      if (s.length()) result = g.root ? ::sqrt(found[1][k] / over) : found[1][k] / over;
      out[s.index * g.width + c + k] = T(acc_t<T>(result));
    }
  }
};

// y = (x - mean) / sqrt(variance + eps)
template <class T>
struct NormalizeKernel : MomentsKernel<T> {
  static constexpr int kPasses = 2;
  static constexpr bool kByRow = true;
  using Element = T;
  static constexpr int kRowsIn = 1;
  NormalizeArguments g;
  T* out;
  LOD_FN const T* rows_in(int) const { return this->values; }
  LOD_FN void move(T* const* to) { this->values = out = to[0]; }
  template <int pass, int W>
  LOD_FN void block(const Sequence&, const Range& rows, int64_t c, const double (*found)[W], double* part) const {
    this->template moment<pass>(g, rows, c, found, part);
  }
  template <int W>
  LOD_FN void finish(const Sequence& s, const Range& rows, int64_t c, const double (*found)[W]) const {
    const double each = 1 / double(s.length());
    double mean[W], scale[W];
    for (int k = 0; k < W; ++k) {
      mean[k] = found[0][k];
      scale[k] = 1 / ::sqrt(found[1][k] * each + g.eps);
    }
    if constexpr (kOnGpu) {
      const auto read = [&](int64_t i) { return double(this->values[i]); };
      return in_order(g, rows, c, read, [&](int64_t i, double x) { out[i] = T(acc_t<T>((x - mean[0]) * scale[0])); });
    }
    for (int64_t i = rows.begin * g.width + c; i < rows.end * g.width + c; i += g.width)
      for (int k = 0; k < W; ++k) out[i + k] = T(acc_t<T>((double(this->values[i + k]) - mean[k]) * scale[k]));
  }
};
// dx = r (dy - mean dy - y mean(dy y)), with r = 1 / sqrt(variance + eps) and y = (x - mean x) r
template <class T>
struct NormalizeBackwardKernel : MomentsKernel<T> {
  static constexpr int kPasses = 4;
  static constexpr bool kByRow = true;
  using Element = T;
  static constexpr int kRowsIn = 2;
  NormalizeArguments g;
  const T* grad;
  T* out;
  LOD_FN const T* rows_in(int a) const { return a ? grad : this->values; }
  LOD_FN void move(T* const* to) { this->values = to[0], grad = out = to[1]; }
  // dx of channel k is dy scale - shift - (x - mean) slope.
  template <int W>
  struct Lines {
    double mean[W], scale[W], shift[W], slope[W];
  };
  template <int W, class E>
  LOD_FN void draw(const E& each, const double (*found)[W], Lines<W>& to) const {
    for (int k = 0; k < W; ++k) {
      to.mean[k] = found[0][k];
      to.scale[k] = 1 / ::sqrt(found[1][k] * each(k) + g.eps);
      to.shift[k] = found[2][k] * each(k) * to.scale[k];
      to.slope[k] = found[3][k] * each(k) * to.scale[k] * (to.scale[k] * to.scale[k]);
    }
  }
  template <int W>
  LOD_FN T along(const Lines<W>& line, int k, double x, double dy) const {
    return T(acc_t<T>(dy * line.scale[k] - line.shift[k] - (x - line.mean[k]) * line.slope[k]));
  }
  // Segments of single numbers that join_rows would add up one by one, several at once: no sum waits for a root or a
  // quotient, which are vectors.
  template <class Alone>
  bool run_narrow(int64_t first, int64_t last, const Alone& alone) const {
    constexpr int kTogether = 8, kShort = 32;
    for (; first < last; first += kTogether) {
      double found[4][kTogether] = {}, each[kTogether] = {};
      Range rows[kTogether];
      for (int k = 0; k < kTogether && first + k < last; ++k) {
        const Sequence s = g[first + k];
        rows[k] = {s.begin, s.length() < kShort ? s.end : s.begin};
        if (s.length() >= kShort) alone(first + k);
        if (rows[k].begin == rows[k].end) continue;
        for (int64_t r = s.begin; r < s.end; ++r)
          found[0][k] += double(this->values[r]), found[2][k] += double(grad[r]);
        each[k] = 1 / double(s.length());
        found[0][k] /= double(s.length());
        for (int64_t r = s.begin; r < s.end; ++r) {
          const double z = double(this->values[r]) - found[0][k];
          found[1][k] += z * z, found[3][k] += double(grad[r]) * z;
        }
      }
      Lines<kTogether> lines;
      draw<kTogether>([&](int k) LOD_INLINE { return each[k]; }, found, lines);
      for (int k = 0; k < kTogether && first + k < last; ++k)
        for (int64_t r = rows[k].begin; r < rows[k].end; ++r)
          out[r] = along<kTogether>(lines, k, double(this->values[r]), double(grad[r]));
    }
    return true;
  }
  template <int pass, int W>
  LOD_FN void block(const Sequence&, const Range& rows, int64_t c, const double (*found)[W], double* part) const {
    if constexpr (pass < 2) {
      this->template moment<pass>(g, rows, c, found, part);
    } else if constexpr (pass == 2) {
      join_rows<W, Sum>(g, rows, c, [&](int64_t i, int) LOD_INLINE { return double(grad[i]); }, part);
    } else {
      const auto covariant = [&](int64_t i, int k) LOD_INLINE {
        return double(grad[i]) * (double(this->values[i]) - found[0][k]);
      };
      join_rows<W, Sum>(g, rows, c, covariant, part);
    }
  }
  template <int W>
  LOD_FN void finish(const Sequence& s, const Range& rows, int64_t c, const double (*found)[W]) const {
    const double each = 1 / double(s.length());
    Lines<W> lines;
    draw<W>([&](int) LOD_INLINE { return each; }, found, lines);
    if constexpr (kOnGpu) {
      const auto read = [&](int64_t i) { return Two<double>{double(this->values[i]), double(grad[i])}; };
      const auto write = [&](int64_t i, const Two<double>& t) { out[i] = along<W>(lines, 0, t.a, t.b); };
      return in_order(g, rows, c, read, write);
    }
    for (int64_t i = rows.begin * g.width + c; i < rows.end * g.width + c; i += g.width)
      for (int k = 0; k < W; ++k) out[i + k] = along<W>(lines, k, double(this->values[i + k]), double(grad[i + k]));
  }
};

template <bool kLog>
void softmax_as(const Exec& exec, DType dtype, const SoftmaxArguments& a) {
  visit_floating(dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    const auto *values = static_cast<const T*>(a.values), *grad = static_cast<const T*>(a.grad);
    auto* out = static_cast<T*>(a.out);
    if (grad) each_in_blocks(exec, SoftmaxBackwardKernel<T, kLog>{a, values, grad, out});
    else each_in_blocks(exec, SoftmaxKernel<T, kLog>{a, values, out});
  });
}

LOD_ENTRY void segment_softmax(const Exec& exec, DType dtype, bool log, const SoftmaxArguments& a) {
  if (log) softmax_as<true>(exec, dtype, a);
  else softmax_as<false>(exec, dtype, a);
}

LOD_ENTRY void segment_logsumexp(const Exec& exec, DType dtype, const LogsumexpArguments& a) {
  visit_floating(dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    each_in_blocks(
        exec, LogsumexpKernel<T>{a, static_cast<const T*>(a.values), static_cast<T*>(a.out), T(acc_t<T>(a.pad))});
  });
}

LOD_ENTRY void segment_var(const Exec& exec, DType dtype, const VarArguments& a) {
  visit_floating(dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    each_in_blocks(exec, VarKernel<T>{{static_cast<const T*>(a.values)}, a, static_cast<T*>(a.out)});
  });
}

LOD_ENTRY void segment_normalize(const Exec& exec, DType dtype, const NormalizeArguments& a) {
  visit_floating(dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    const auto *values = static_cast<const T*>(a.values), *grad = static_cast<const T*>(a.grad);
    auto* out = static_cast<T*>(a.out);
    if (grad) each_in_blocks(exec, NormalizeBackwardKernel<T>{{values}, a, grad, out});
    else each_in_blocks(exec, NormalizeKernel<T>{{values}, a, out});
  });
}

}  // namespace lod::LOD_LEVEL
