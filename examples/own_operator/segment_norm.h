// The L2 norm of the rows of every sequence, each channel for itself, and its gradient: one source for CPU and GPU.
// SPDX-License-Identifier: Apache-2.0
#include <torch_lod/segment_drivers.h>

namespace lod::LOD_LEVEL {

// norm[s, c] = sqrt(sum of values[r, c]^2 over the rows r of sequence s)
template <class T>
struct Norm : Rows<T> {
  using A = acc_t<T>;
  static constexpr int kPasses = 1;
  static constexpr bool kByRow = false;
  template <int W>
  struct State {
    A sum[W];
  };
  LOD_FN A load(int64_t i) const { return A(this->in[0][i]); }
  template <int pass>
  LOD_FN void identity(auto& s, int k) const { s.sum[k] = A(0); }
  template <int pass>
  LOD_FN void accumulate(auto& s, int k, A x, int64_t row) const { s.sum[k] += x * x; }
  template <int pass>
  LOD_FN void combine(auto& s, int k, const auto& t, int j) const { s.sum[k] += t.sum[j]; }
  template <int pass>
  LOD_FN void finalize(auto& s, int k, int64_t length) const {}
  LOD_FN void finish(const auto& s, int k, const Range& rows, int64_t to) const {
    this->out[to] = T(rows.length() ? std::sqrt(s.sum[k]) : A(0));
  }
};

// out[r, c] = values[r, c] * grad[s, c] / norm[s, c], 0 where the norm is 0
template <class T>
struct NormBackwardKernel {
  LoDView view;
  const T *grad, *norm, *values;
  T* out;
  template <int W>
  LOD_FN void strip(int64_t s, int64_t c) const {
    const Sequence rows = view[s];
    acc_t<T> factor[W];
    for (int k = 0; k < W; ++k) {
      const int64_t i = s * view.width + c + k;
      const auto length = acc_t<T>(norm[i]);
      factor[k] = length == 0 ? 0 : acc_t<T>(grad[i]) / length;
    }
    for (int64_t r = rows.begin; r < rows.end; ++r)
      for (int k = 0; k < W; ++k) {
        const int64_t i = r * view.width + c + k;
        out[i] = T(acc_t<T>(values[i]) * factor[k]);
      }
  }
};

LOD_ENTRY void segment_norm(const Exec& exec, DType dtype, const LoDView& view, const void* values, void* norm) {
  visit_floating(dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    reduce_segments<T>(exec, view, {values}, norm, Norm<computed_t<T>>{});
  });
}

LOD_ENTRY void segment_norm_backward(const Exec& exec, DType dtype, const LoDView& view, const void* grad,
                                     const void* norm, const void* values, void* out) {
  visit_floating(dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    each_segment(exec, view,
                 NormBackwardKernel<T>{view, static_cast<const T*>(grad), static_cast<const T*>(norm),
                                       static_cast<const T*>(values), static_cast<T*>(out)});
  });
}

}  // namespace lod::LOD_LEVEL
