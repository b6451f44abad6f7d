// Binding of what normalises a segment. Gradients are made of operators that have one.
// SPDX-License-Identifier: Apache-2.0
#define LOD_ENTRIES "kernels/normalize_api.h"
#include "bindings/accumulator.h"
#include "bindings/operators.h"
#include "bindings/scratch.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/clamp_min.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/where.h>

namespace lod {
namespace {

// -- checks, and shapes of results

void check_values(const char* op, const Tensor& values, const Tensor& offsets, const char* name = "values") {
  check_has_rows(op, name, values);
  check_segments(op, values, offsets);
  check_floating(op, name, values);
}
Tensor row_per_row(const char* op, const Tensor& values, const Tensor& offsets) {
  check_values(op, values, offsets);
  return at::empty_symint(values.sym_sizes(), values.options());
}
Tensor row_per_segment(const char* op, const Tensor& values, const Tensor& offsets) {
  check_values(op, values, offsets);
  return at::empty_symint(sym_shape(values, offsets.sym_size(0) - 1), values.options());
}
Tensor row_per_grad(const char* op, const Tensor& grad, const Tensor& like, const Tensor& offsets, const char* name) {
  check_values(op, like, offsets, name);
  check_rows_like(op, "grad", grad, like, like.sym_size(0));
  return at::empty_symint(like.sym_sizes(), like.options());
}

// -- softmax and its logarithm

Tensor softmax(const char* op, bool log, const Tensor& values, const Tensor& grad, const Tensor& given) {
  const HeldView x = make_view(op, values, given);
  const Tensor g = grad.defined() ? readable(grad) : grad;
  Tensor out = new_rows(x.values, x.rows, x.row_offsets);
  // a tensor without elements may have no storage, and a null gradient means forward
  if (out.numel() == 0) return out;
  LOD_RUN(out, segment_softmax, floating_type(op, out), log,
          SoftmaxArguments{tiled(x, g.defined() ? 2 : 1), x.values.const_data_ptr(),
                           g.defined() ? g.const_data_ptr() : nullptr, out.mutable_data_ptr()});
  return out;
}
template <Name op, bool log>
struct SoftmaxForm {
  static Tensor meta(const Tensor& values, const Tensor& offsets) { return row_per_row(op.text, values, offsets); }
  static Tensor run(const Tensor& values, const Tensor& offsets) {
    check_values(op.text, values, offsets);
    return softmax(op.text, log, values, Tensor(), offsets);
  }
  using Op = Operator<op, meta, run>;
};
template <Name op, bool log>
struct SoftmaxBackwardForm {
  static Tensor meta(const Tensor& grad, const Tensor& output, const Tensor& offsets) {
    return row_per_grad(op.text, grad, output, offsets, "output");
  }
  static Tensor run(const Tensor& grad, const Tensor& output, const Tensor& offsets) {
    meta(grad, output, offsets);
    return softmax(op.text, log, output, grad, offsets);
  }
  using Op = Operator<op, meta, run>;
};
using SoftmaxOp = SoftmaxForm<"segment_softmax", false>::Op;
using SoftmaxBackwardOp = SoftmaxBackwardForm<"segment_softmax_backward", false>::Op;
using LogSoftmaxOp = SoftmaxForm<"segment_log_softmax", true>::Op;
using LogSoftmaxBackwardOp = SoftmaxBackwardForm<"segment_log_softmax_backward", true>::Op;

// -- the logarithm of the sum

Tensor segment_logsumexp_meta(const Tensor& values, const Tensor& offsets, double) {
  return row_per_segment("segment_logsumexp", values, offsets);
}
Tensor segment_logsumexp(const Tensor& values, const Tensor& given, double pad) {
  check_values("segment_logsumexp", values, given);
  const HeldView x = make_view("segment_logsumexp", values, given);
  Tensor out = new_segments(x.values, x.row_offsets);
  LOD_RUN(out, segment_logsumexp, floating_type("segment_logsumexp", out),
          LogsumexpArguments{tiled(x), x.values.const_data_ptr(), out.mutable_data_ptr(), pad});
  return out;
}
using LogsumexpOp = Operator<"segment_logsumexp", segment_logsumexp_meta, segment_logsumexp>;

// -- variance, or its root

Tensor segment_var_meta(const Tensor& values, const Tensor& offsets, double, bool, double) {
  return row_per_segment("segment_var", values, offsets);
}
Tensor segment_var(const Tensor& values, const Tensor& given, double correction, bool root, double pad) {
  check_values("segment_var", values, given);
  const HeldView x = make_view("segment_var", values, given);
  Tensor out = new_segments(x.values, x.row_offsets);
  LOD_RUN(out, segment_var, floating_type("segment_var", out),
          VarArguments{tiled(x), x.values.const_data_ptr(), out.mutable_data_ptr(), correction,
                       pad, root});
  return out;
}
using VarOp = Operator<"segment_var", segment_var_meta, segment_var>;

// -- mean 0, variance 1

Tensor normalize(const char* op, const Tensor& values, const Tensor& grad, const Tensor& given, double eps) {
  const HeldView x = make_view(op, values, given);
  const Tensor g = grad.defined() ? readable(grad) : grad;
  Tensor out = new_rows(x.values, x.rows, x.row_offsets);
  if (out.numel() == 0) return out;
  LOD_RUN(out, segment_normalize, floating_type(op, out),
          NormalizeArguments{tiled(x, g.defined() ? 2 : 1), x.values.const_data_ptr(),
                             g.defined() ? g.const_data_ptr() : nullptr, out.mutable_data_ptr(), eps});
  return out;
}
Tensor segment_normalize_meta(const Tensor& values, const Tensor& offsets, double) {
  return row_per_row("segment_normalize", values, offsets);
}
Tensor segment_normalize(const Tensor& values, const Tensor& offsets, double eps) {
  check_values("segment_normalize", values, offsets);
  return normalize("segment_normalize", values, Tensor(), offsets, eps);
}
Tensor segment_normalize_backward_meta(const Tensor& grad, const Tensor& values, const Tensor& offsets, double) {
  return row_per_grad("segment_normalize_backward", grad, values, offsets, "values");
}
Tensor segment_normalize_backward(const Tensor& grad, const Tensor& values, const Tensor& offsets, double eps) {
  segment_normalize_backward_meta(grad, values, offsets, eps);
  return normalize("segment_normalize_backward", values, grad, offsets, eps);
}
using NormalizeOp = Operator<"segment_normalize", segment_normalize_meta, segment_normalize>;
using NormalizeBackwardOp =
    Operator<"segment_normalize_backward", segment_normalize_backward_meta, segment_normalize_backward>;

// -- gradients

// The sum, or mean, of a segment on each of its rows.
Tensor over_segment(const Tensor& t, const Tensor& offsets, const char* reduce) {
  const Tensor pooled = SegmentReduceOp::call(t, offsets, reduce, 0.0);
  return SegmentBroadcastOp::call(pooled, offsets, t.sym_size(0), "sum");
}

struct SoftmaxGradient : Gradient<SoftmaxOp> {
  static auto save(const Tensor&, const Tensor& offsets, const Tensor& output) { return std::tuple(output, offsets); }
  static variable_list gradient(const Grads& grad, const Tensor& output, const Tensor& offsets) {
    return {SoftmaxBackwardOp::call(grad[0], output, offsets)};
  }
};
// With S the sum over a segment, copied to each of its rows: b(g, y) = y (g - S(g y)), linear and self-adjoint in g;
// the derivative in y along v is v (g - S(g y)) - g S(v y).
struct SoftmaxBackwardGradient : Gradient<SoftmaxBackwardOp> {
  static auto save(const Tensor& grad, const Tensor& output, const Tensor& offsets) {
    return std::tuple(grad, output, offsets);
  }
  static variable_list gradient(const Grads& v, const Tensor& g, const Tensor& y, const Tensor& offsets) {
    const auto sum = [&](const Tensor& t) { return over_segment(t, offsets, "sum"); };
    return {SoftmaxBackwardOp::call(v[0], y, offsets), v[0] * (g - sum(g * y)) - g * sum(v[0] * y)};
  }
};
struct LogSoftmaxGradient : Gradient<LogSoftmaxOp> {
  static auto save(const Tensor&, const Tensor& offsets, const Tensor& output) { return std::tuple(output, offsets); }
  static variable_list gradient(const Grads& grad, const Tensor& output, const Tensor& offsets) {
    return {LogSoftmaxBackwardOp::call(grad[0], output, offsets)};
  }
};
// b(g, y) = g - e^y S(g): the adjoint in g is v - S(e^y v), the derivative in y along v is -v e^y S(g).
struct LogSoftmaxBackwardGradient : Gradient<LogSoftmaxBackwardOp> {
  static auto save(const Tensor& grad, const Tensor& output, const Tensor& offsets) {
    return std::tuple(grad, output, offsets);
  }
  static variable_list gradient(const Grads& v, const Tensor& g, const Tensor& y, const Tensor& offsets) {
    const Tensor weighted = v[0] * y.exp();
    return {v[0] - over_segment(weighted, offsets, "sum"), -(weighted * over_segment(g, offsets, "sum"))};
  }
};
struct LogsumexpGradient : Gradient<LogsumexpOp> {
  static auto save(const Tensor& values, const Tensor& offsets, double) { return std::tuple(values, offsets); }
  static variable_list gradient(const Grads& grad, const Tensor& values, const Tensor& offsets) {
    const Tensor spread = SegmentBroadcastOp::call(grad[0], offsets, values.sym_size(0), "sum");
    return {SoftmaxOp::call(values, offsets) * spread};
  }
};
// With n the length less the correction, the gradient of the variance is 2 (x - mean x) / n, and that of its root
// (x - mean x) / (n root), but 0 where the root is 0. Empty segments divide by 1: nothing there reaches a row, and
// anomaly mode must not find a NaN.
struct VarGradient : Gradient<VarOp> {
  static auto save(const Tensor& values, const Tensor& offsets, double correction, bool root, double,
                   const Tensor& output) {
    return std::tuple(values, offsets, root ? output : Tensor(), correction, root);
  }
  static variable_list gradient(const Grads& grad, const Tensor& values, const Tensor& offsets, const Tensor& output,
                                double correction, bool root) {
    const Tensor x = wide(values), centred = x - over_segment(x, offsets, "mean");
    const auto count = offsets.sym_size(0) - 1;
    const Tensor length = offsets.narrow_symint(0, 1, count) - offsets.narrow_symint(0, 0, count);
    std::vector<c10::SymInt> column(values.dim(), 1);
    column[0] = count;
    const Tensor left = at::clamp_min(length.to(x.scalar_type()) - correction, 0);
    const Tensor over = at::where(length.eq(0), 1, left).view_symint(column);
    Tensor slope = wide(grad[0]) / over;
    if (root) {
      const Tensor deviation = wide(output), flat = deviation.eq(0).logical_or(length.eq(0).view_symint(column));
      slope = at::where(flat, 0, slope / at::where(flat, 1, deviation));
    } else {
      slope = slope * 2;
    }
    return {(centred * SegmentBroadcastOp::call(slope, offsets, x.sym_size(0), "sum")).to(values.scalar_type())};
  }
};
struct NormalizeGradient : Gradient<NormalizeOp> {
  static auto save(const Tensor& values, const Tensor& offsets, double eps) { return std::tuple(values, offsets, eps); }
  static variable_list gradient(const Grads& grad, const Tensor& values, const Tensor& offsets, double eps) {
    return {NormalizeBackwardOp::call(grad[0], values, offsets, eps)};
  }
};
// With M the mean over a segment, copied to each of its rows, z = x - M(x), r = 1 / sqrt(M(z z) + eps) and y = z r:
// b(g, x) = r (g - M(g) - y M(g y)), linear and self-adjoint in g. In x it depends on y, and on r, whose derivative is
// -r r y / length; with v along b the adjoints of the two are -r (v M(g y) + g M(v y)) and sum v b / r.
struct NormalizeBackwardGradient : Gradient<NormalizeBackwardOp> {
  static auto save(const Tensor& grad, const Tensor& values, const Tensor& offsets, double eps) {
    return std::tuple(grad, values, offsets, eps);
  }
  static variable_list gradient(const Grads& grads, const Tensor& grad, const Tensor& values, const Tensor& offsets,
                                double eps) {
    const auto mean = [&](const Tensor& t) { return over_segment(t, offsets, "mean"); };
    const Tensor v = wide(grads[0]), g = wide(grad), x = wide(values), z = x - mean(x);
    const Tensor r = (mean(z * z) + eps).rsqrt(), y = z * r;
    const Tensor of_y = -r * (v * mean(g * y) + g * mean(v * y));
    const Tensor of_r = mean(v * NormalizeBackwardOp::call(g, x, offsets, eps));
    const Tensor of_x = NormalizeBackwardOp::call(of_y, x, offsets, eps) - r * y * of_r;
    return {NormalizeBackwardOp::call(v, x, offsets, eps).to(grad.scalar_type()), of_x.to(values.scalar_type())};
  }
};

}  // namespace

LOD_OPERATORS(SoftmaxGradient, SoftmaxBackwardGradient, LogSoftmaxGradient, LogSoftmaxBackwardGradient,
              LogsumexpGradient, VarGradient, NormalizeGradient, NormalizeBackwardGradient)

}  // namespace lod
