// Binding of the scans: a linear recurrence along every segment, and the extreme so far. The adjoint of a scan is a
// scan that runs the other way.
// SPDX-License-Identifier: Apache-2.0
#define LOD_ENTRIES "kernels/scan_api.h"
#include "bindings/accumulator.h"
#include "bindings/operators.h"
#include "bindings/scratch.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/clamp_max.h>
#include <ATen/ops/clamp_min.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/ne.h>

namespace lod {
namespace {

void check_rows(const char* op, const Tensor& values, const Tensor& offsets) {
  check_has_rows(op, "values", values);
  number_type(op, values);
  check_offsets_kind(op, offsets, values.device());
}

// -- segment_scan

Tensor segment_scan_meta(const Tensor& values, const OptionalTensor& factors, const Tensor& offsets, bool) {
  check_rows("segment_scan", values, offsets);
  if (factors) {
    TORCH_CHECK_TYPE(factors->scalar_type() == values.scalar_type() && factors->device() == values.device(),
                     "segment_scan: expected factors of dtype ", values.scalar_type(), " on ", values.device(),
                     ", as values, got ", factors->scalar_type(), " on ", factors->device());
    TORCH_CHECK_VALUE(factors->sym_sizes() == values.sym_sizes(), "segment_scan: expected factors of shape ",
                      values.sym_sizes(), ", as values, got ", factors->sym_sizes());
  }
  return at::empty_symint(values.sym_sizes(), values.options());
}
Tensor segment_scan(const Tensor& values, const OptionalTensor& factors, const Tensor& given, bool adjoint) {
  segment_scan_meta(values, factors, given, adjoint);
  const HeldView x = make_view("segment_scan", values, given);
  const Tensor f = readable(factors);
  Tensor out = new_rows(x.values, x.rows, x.row_offsets);
  if (out.numel() == 0) return out;
  LOD_RUN(out, segment_scan, number_type("segment_scan", out),
          ScanArguments{tiled(x, f.defined() ? 2 : 1), x.values.const_data_ptr(),
                        f.defined() ? f.const_data_ptr() : nullptr, out.mutable_data_ptr(), adjoint});
  return out;
}

// -- segment_cumulative

bool check_cumulative(const Tensor& values, const Tensor& offsets, std::string_view reduce) {
  check_rows("segment_cumulative", values, offsets);
  TORCH_CHECK_VALUE(reduce == "max" || reduce == "min", "segment_cumulative: expected reduce 'max' or 'min', got '",
                    reduce, "'");
  return reduce == "max";
}
std::tuple<Tensor, Tensor> segment_cumulative_meta(const Tensor& values, const Tensor& offsets,
                                                   std::string_view reduce) {
  check_cumulative(values, offsets, reduce);
  return {at::empty_symint(values.sym_sizes(), values.options()),
          at::empty_symint(values.sym_sizes(), values.options().dtype(at::kLong))};
}
std::tuple<Tensor, Tensor> segment_cumulative(const Tensor& values, const Tensor& given, std::string_view reduce) {
  const bool max = check_cumulative(values, given, reduce);
  const HeldView x = make_view("segment_cumulative", values, given);
  Tensor out = new_rows(x.values, x.rows, x.row_offsets), index = at::empty_like(out, out.options().dtype(at::kLong));
  if (may_leave_rows(x.row_offsets, x.rows)) index.zero_();
  LOD_RUN(out, segment_cumulative, number_type("segment_cumulative", out), max,
          CumulativeArguments{tiled(x), x.values.const_data_ptr(), out.mutable_data_ptr(),
                              index.mutable_data_ptr<int64_t>()});
  return {out, index};
}

// -- segment_cumulative_backward

Tensor segment_cumulative_backward_meta(const Tensor& grad, const Tensor& index, const Tensor& offsets) {
  const char* op = "segment_cumulative_backward";
  check_has_rows(op, "grad", grad);
  number_type(op, grad);
  check_offsets_kind(op, offsets, grad.device());
  TORCH_CHECK_TYPE(index.scalar_type() == at::kLong && index.device() == grad.device(), op,
                   ": expected index of dtype Long on ", grad.device(), ", got ", index.scalar_type(), " on ",
                   index.device());
  TORCH_CHECK_VALUE(index.sym_sizes() == grad.sym_sizes(), op, ": expected index of shape ", grad.sym_sizes(),
                    ", as grad, got ", index.sym_sizes());
  return at::empty_symint(grad.sym_sizes(), grad.options());
}
Tensor segment_cumulative_backward(const Tensor& grad, const Tensor& index, const Tensor& given) {
  segment_cumulative_backward_meta(grad, index, given);
  const HeldView g = make_view("segment_cumulative_backward", grad, given);
  const Tensor at = readable(index);
  Tensor out = new_rows(g.values, g.rows, g.row_offsets);
  LOD_RUN(out, segment_cumulative_backward, number_type("segment_cumulative_backward", out),
          CumulativeBackwardArguments{tiled(g), g.values.const_data_ptr(),
                                      at.const_data_ptr<int64_t>(), out.mutable_data_ptr()});
  return out;
}

// -- segment_logcumsumexp

Tensor segment_logcumsumexp_meta(const Tensor& values, const Tensor& offsets) {
  check_segments("segment_logcumsumexp", values, offsets);
  check_floating("segment_logcumsumexp", "values", values);
  return at::empty_symint(values.sym_sizes(), values.options());
}
Tensor segment_logcumsumexp(const Tensor& values, const Tensor& given) {
  segment_logcumsumexp_meta(values, given);
  const HeldView x = make_view("segment_logcumsumexp", values, given);
  Tensor out = new_rows(x.values, x.rows, x.row_offsets);
  LOD_RUN(out, segment_logcumsumexp, floating_type("segment_logcumsumexp", out),
          LogcumsumexpArguments{tiled(x), x.values.const_data_ptr(), out.mutable_data_ptr()});
  return out;
}

// -- segment_cumprod

Tensor segment_cumprod_meta(const Tensor& values, const Tensor& offsets, bool, bool) {
  check_rows("segment_cumprod", values, offsets);
  return at::empty_symint(values.sym_sizes(), values.options());
}
Tensor segment_cumprod(const Tensor& values, const Tensor& given, bool reverse, bool exclusive) {
  segment_cumprod_meta(values, given, reverse, exclusive);
  const HeldView x = make_view("segment_cumprod", values, given);
  Tensor out = new_rows(x.values, x.rows, x.row_offsets);
  if (out.numel() == 0) return out;
  LOD_RUN(out, segment_cumprod, number_type("segment_cumprod", out),
          CumprodArguments{tiled(x), x.values.const_data_ptr(), out.mutable_data_ptr(), reverse,
                           exclusive});
  return out;
}

// -- gradients

using LogcumsumexpOp = Operator<"segment_logcumsumexp", segment_logcumsumexp_meta, segment_logcumsumexp>;
using ScanOp = Operator<"segment_scan", segment_scan_meta, segment_scan>;
using CumprodOp = Operator<"segment_cumprod", segment_cumprod_meta, segment_cumprod>;
using CumulativeOp = Operator<"segment_cumulative", segment_cumulative_meta, segment_cumulative>;
using CumulativeBackwardOp =
    Operator<"segment_cumulative_backward", segment_cumulative_backward_meta, segment_cumulative_backward>;

// The row at a distance from each row of a segment, 0 beyond its ends.
Tensor shifted(const Tensor& values, const Tensor& offsets, int64_t distance) {
  return SegmentUnfoldOp::call(values, offsets, 1, distance, 1, 0).squeeze(1);
}
Tensor previous(const Tensor& values, const Tensor& offsets) { return shifted(values, offsets, -1); }

// With dy the gradient of the result y, that of the values is dv, the adjoint scan of dy by f. That of the factors is
//   df[t] = dv[t] y[t - 1]          since y[t] = v[t] + f[t] y[t - 1]
//   df[t] = dv[t - 1] y[t]          of an adjoint scan, since y[t - 1] = v[t - 1] + f[t] y[t]
struct ScanGradient : Gradient<ScanOp> {
  static auto save(const Tensor&, const OptionalTensor& factors, const Tensor& offsets, bool adjoint,
                   const Tensor& output) {
    return std::tuple(offsets, factors, factors ? output : Tensor(), adjoint);
  }
  static variable_list gradient(const Grads& grad, const Tensor& offsets, const OptionalTensor& factors,
                                const Tensor& output, bool adjoint) {
    const Tensor g = ScanOp::call(grad[0], factors, offsets, !adjoint);
    if (!grad.needs(1)) return {g};
    return {g, adjoint ? previous(g, offsets).mul(output) : g.mul(previous(output, offsets))};
  }
};
struct CumulativeGradient : Gradient<CumulativeOp> {
  static auto save(const Tensor&, const Tensor& offsets, std::string_view, const Tensor&, const Tensor& index) {
    return std::tuple(index, offsets);
  }
  static variable_list gradient(const Grads& grad, const Tensor& index, const Tensor& offsets) {
    return {CumulativeBackwardOp::call(grad[0], index, offsets)};
  }
};
// The gradient of a row is added to the rows that its result was taken from.
struct CumulativeBackwardGradient : Gradient<CumulativeBackwardOp> {
  static auto save(const Tensor&, const Tensor& index, const Tensor& offsets) { return std::tuple(index, offsets); }
  static variable_list gradient(const Grads& grad, const Tensor& index, const Tensor& offsets) {
    std::vector<c10::SymInt> column(index.dim(), 1);
    column[0] = index.sym_size(0);
    const Tensor rows = at::arange(at::Scalar(index.sym_size(0)), index.options()).view_symint(column);
    const Tensor older = index.ne(rows);
    return {ScanOp::call(grad[0].masked_fill(older, 0), older.to(grad[0].scalar_type()), offsets, false)};
  }
};
struct CumprodGradient : Gradient<CumprodOp> {
  static auto save(const Tensor& values, const Tensor& offsets, bool reverse, bool exclusive) {
    return std::tuple(values, offsets, reverse, exclusive);
  }
  static variable_list gradient(const Grads& grad, const Tensor& values, const Tensor& offsets, bool reverse,
                                bool exclusive) {
    return {cumprod_gradient(grad[0], values, offsets, reverse, exclusive)};
  }
};
// dx[t] = e^(x[t] - y[t]) h[t] with h[t] = dy[t] + e^(y[t] - y[t + 1]) h[t + 1]: exponents are at most 0. The results
// are worked out again, since they were rounded, and what is lost in a factor would be lost at every row. Within h a
// result of -inf stands for the lowest number, from which differences can be taken.
struct LogcumsumexpGradient : Gradient<LogcumsumexpOp> {
  static auto save(const Tensor& values, const Tensor& offsets, const Tensor& output) {
    return std::tuple(values, offsets, values.element_size() == 8 ? output : Tensor());
  }
  static variable_list gradient(const Grads& grad, const Tensor& values, const Tensor& offsets, const Tensor& output) {
    const Tensor x = in_accumulator(values), dy = in_accumulator(grad[0]);
    const Tensor y = output.defined() ? output : LogcumsumexpOp::call(x, offsets);
    const double lowest = x.scalar_type() == at::kDouble ? std::numeric_limits<double>::lowest()
                                                         : double(std::numeric_limits<float>::lowest());
    const Tensor finite = at::clamp_min(y, lowest);
    const Tensor factors = at::clamp_max(previous(finite, offsets) - finite, 0).exp();
    return {((x - y).exp() * ScanOp::call(dy, factors, offsets, true)).to(values.scalar_type())};
  }
};

// Whether a kernel may read its memory, which holds what the tensor says.
bool is_plain(const Tensor& t) {
  return is_in_memory(t) && passes(t) && !t._is_zerotensor() && !t.is_neg() && !t.is_conj();
}
// Where no second gradient is needed, a kernel computes these; else operators that have one.
bool asks_for_operators(const Tensor& grad, const Tensor& values, const Tensor& offsets) {
  return at::GradMode::is_enabled() || !is_plain(grad) || !is_plain(values) || !is_plain(offsets) ||
         c10::impl::TorchDispatchModeTLS::any_modes_set();
}
Tensor products_backward(const char* op, const Tensor& grad, const Tensor& values, const Tensor& offsets, bool last,
                         bool reverse, bool exclusive) {
  const HeldView x = make_view(op, values, offsets);
  const Tensor dy = readable(last && grad.is_cpu() ? wide(grad) : grad);
  Tensor out = new_rows(x.values, x.rows, x.row_offsets);
  if (out.numel() == 0) return out;
  Tensor before = at::empty(out.sizes(), out.options().dtype(at::kDouble));
  LOD_RUN(out, segment_cumprod_backward, floating_type(op, out), last,
          CumprodBackwardArguments{tiled(x, last ? 1 : 2), x.values.const_data_ptr(), dy.const_data_ptr(),
                                   before.mutable_data_ptr(), out.mutable_data_ptr(), reverse, exclusive});
  return out;
}
void check_products(const char* op, const Tensor& grad, const Tensor& values, const Tensor& offsets, bool last) {
  check_segments(op, values, offsets);
  check_floating(op, "values", values);
  check_rows_like(op, "grad", grad, values, last ? offsets.sym_size(0) - 1 : values.sym_size(0));
  if (is_in_memory(grad) && !grad._is_zerotensor() && !passes(grad)) refuse(op, "grad", grad);
}

}  // namespace

Tensor cumprod_gradient(const Tensor& grad, const Tensor& values, const Tensor& offsets, bool reverse, bool exclusive) {
  const char* op = "segment_cumprod_backward";
  check_products(op, grad, values, offsets, false);
  if (!asks_for_operators(grad, values, offsets))
    return products_backward(op, grad, values, offsets, false, reverse, exclusive);
  const Tensor x = in_accumulator(values), g = in_accumulator(grad);
  const Tensor dy = exclusive ? shifted(g, offsets, reverse ? -1 : 1) : g;
  const Tensor h = reverse ? ScanOp::call(dy, previous(x, offsets), offsets, false)
                           : ScanOp::call(dy, x, offsets, true);
  return multiplied(h, CumprodOp::call(x, offsets, reverse, true)).to(values.scalar_type());
}
Tensor prod_gradient(const Tensor& grad, const Tensor& values, const Tensor& offsets) {
  const char* op = "segment_prod_backward";
  check_products(op, grad, values, offsets, true);
  if (!asks_for_operators(grad, values, offsets))
    return products_backward(op, grad, values, offsets, true, false, false);
  const Tensor x = in_accumulator(values);
  const Tensor g = SegmentBroadcastOp::call(in_accumulator(grad), offsets, values.sym_size(0), "sum");
  const auto products = [&](bool reverse) { return CumprodOp::call(x, offsets, reverse, true); };
  return multiplied(multiplied(products(false), products(true)), g).to(values.scalar_type());
}

LOD_OPERATORS(ScanGradient, CumulativeGradient, CumulativeBackwardGradient, CumprodGradient, LogcumsumexpGradient)

}  // namespace lod
