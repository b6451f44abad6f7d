// Binding of the scans: a linear recurrence along every segment, and the extreme so far. The adjoint of a scan is a scan that
// runs the other way.
// SPDX-License-Identifier: Apache-2.0
#define LOD_KERNELS "scan.h"
#include "torch_lod/binding.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/ne.h>
#include <ATen/ops/zeros_like.h>
#include <ATen/ops/where.h>

namespace lod {
#ifdef LOD_CUDA
namespace cuda {
void segment_scan(const CudaExec&, DType, const ScanArguments&);
void segment_cumulative(const CudaExec&, DType, bool, const CumulativeArguments&);
}  // namespace cuda
#endif
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
                     "segment_scan: expected factors of dtype ", values.scalar_type(), " on ", values.device(), ", as values, got ",
                     factors->scalar_type(), " on ", factors->device());
    TORCH_CHECK_VALUE(factors->sym_sizes() == values.sym_sizes(), "segment_scan: expected factors of shape ",
                      values.sym_sizes(), ", as values, got ", factors->sym_sizes());
  }
  return at::empty_symint(values.sym_sizes(), values.options());
}
Tensor segment_scan(const Tensor& values, const OptionalTensor& factors, const Tensor& given, bool adjoint) {
  segment_scan_meta(values, factors, given, adjoint);
  const HeldView x = make_view("segment_scan", values, given);
  const Tensor f = readable("segment_scan", factors);
  Tensor out = new_rows(x.values, x.rows);
  if (out.numel() == 0) return out;
  LOD_RUN(out, segment_scan, number_type("segment_scan", out),
          ScanArguments{x, x.values.const_data_ptr(), f.defined() ? f.const_data_ptr() : nullptr, out.mutable_data_ptr(), adjoint});
  return out;
}

// -- segment_cumulative

bool check_cumulative(const Tensor& values, const Tensor& offsets, std::string_view reduce) {
  check_rows("segment_cumulative", values, offsets);
  TORCH_CHECK_VALUE(reduce == "max" || reduce == "min", "segment_cumulative: expected reduce 'max' or 'min', got '", reduce, "'");
  return reduce == "max";
}
std::tuple<Tensor, Tensor> segment_cumulative_meta(const Tensor& values, const Tensor& offsets, std::string_view reduce) {
  check_cumulative(values, offsets, reduce);
  return {at::empty_symint(values.sym_sizes(), values.options()),
          at::empty_symint(values.sym_sizes(), values.options().dtype(at::kLong))};
}
std::tuple<Tensor, Tensor> segment_cumulative(const Tensor& values, const Tensor& given, std::string_view reduce) {
  const bool max = check_cumulative(values, given, reduce);
  const HeldView x = make_view("segment_cumulative", values, given);
  Tensor out = new_rows(x.values, x.rows), index = at::empty_like(out, out.options().dtype(at::kLong));
  if (!out.is_cpu()) index.zero_();
  LOD_RUN(out, segment_cumulative, number_type("segment_cumulative", out), max,
          CumulativeArguments{x, x.values.const_data_ptr(), out.mutable_data_ptr(), index.mutable_data_ptr<int64_t>()});
  return {out, index};
}

// -- gradients

Tensor call_scan(const Tensor& values, const OptionalTensor& factors, const Tensor& offsets, bool adjoint) {
  return LOD_CALL("segment_scan", segment_scan_meta).call(values, factors, offsets, adjoint);
}
std::tuple<Tensor, Tensor> call_cumulative(const Tensor& values, const Tensor& offsets, std::string_view reduce) {
  return LOD_CALL("segment_cumulative", segment_cumulative_meta).call(values, offsets, reduce);
}
// The row before each row of a segment, 0 before its first.
Tensor previous(const Tensor& values, const Tensor& offsets) {
  static const auto unfold = c10::Dispatcher::singleton().findSchemaOrThrow("torch_lod::segment_unfold", "")
                                 .typed<Tensor(const Tensor&, const Tensor&, c10::SymInt, int64_t, int64_t, const at::Scalar&)>();
  return unfold.call(values, offsets, 1, -1, 1, 0).squeeze(1);
}

// With y the scan of v by f, and g the gradient of y: that of v is G, the adjoint scan of g by f, and that of f is G times
// the y that f multiplied: the one before, or in the adjoint scan, read from the other side, y times the G before.
struct SegmentScanGrad : torch::autograd::Function<SegmentScanGrad> {
  static Tensor forward(AutogradContext* ctx, const Tensor& values, const OptionalTensor& factors, const Tensor& offsets, bool adjoint) {
    const at::AutoDispatchBelowADInplaceOrView guard;
    const Tensor out = call_scan(values, factors, offsets, adjoint);
    ctx->saved_data["adjoint"] = adjoint;
    ctx->save_for_backward({offsets, factors ? *factors : Tensor(), factors ? out : Tensor()});
    return out;
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grad) {
    const auto saved = ctx->get_saved_variables();
    const Tensor &offsets = saved[0], &factors = saved[1], &out = saved[2];
    const bool adjoint = ctx->saved_data["adjoint"].toBool();
    const Tensor g = call_scan(grad[0], factors.defined() ? OptionalTensor(factors) : std::nullopt, offsets, !adjoint);
    if (!factors.defined() || !ctx->needs_input_grad(1)) return {g, Tensor(), Tensor(), Tensor()};
    return {g, adjoint ? previous(g, offsets).mul(out) : g.mul(previous(out, offsets)), Tensor(), Tensor()};
  }
};
// A row passes its value on for as long as it stays the extreme: gradients are carried back over those rows, and end at it.
struct SegmentCumulativeGrad : torch::autograd::Function<SegmentCumulativeGrad> {
  static variable_list forward(AutogradContext* ctx, const Tensor& values, const Tensor& offsets, std::string reduce) {
    const at::AutoDispatchBelowADInplaceOrView guard;
    auto [out, index] = call_cumulative(values, offsets, reduce);
    ctx->save_for_backward({index, offsets});
    ctx->mark_non_differentiable({index});
    return {out, index};
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grad) {
    const auto saved = ctx->get_saved_variables();
    const Tensor &index = saved[0], &offsets = saved[1];
    std::vector<c10::SymInt> column(index.dim(), 1);
    column[0] = index.sym_size(0);
    const Tensor rows = at::arange(at::Scalar(index.sym_size(0)), index.options()).view_symint(column);
    const Tensor older = index.ne(rows);
    const Tensor carried = call_scan(grad[0], older.to(grad[0].scalar_type()), offsets, true);
    return {at::where(older, at::zeros_like(carried), carried), Tensor(), Tensor()};
  }
};

Tensor segment_scan_autograd(const Tensor& values, const OptionalTensor& factors, const Tensor& offsets, bool adjoint) {
  if (tracked(values) || tracked(factors)) return SegmentScanGrad::apply(values, factors, offsets, adjoint);
  const at::AutoDispatchBelowADInplaceOrView guard;
  return call_scan(values, factors, offsets, adjoint);
}
std::tuple<Tensor, Tensor> segment_cumulative_autograd(const Tensor& values, const Tensor& offsets, std::string_view reduce) {
  if (tracked(values)) {
    const auto out = SegmentCumulativeGrad::apply(values, offsets, std::string(reduce));
    return {out[0], out[1]};
  }
  const at::AutoDispatchBelowADInplaceOrView guard;
  return call_cumulative(values, offsets, reduce);
}

}  // namespace

LOD_IMPLEMENTATIONS(m) {
  m.impl("segment_scan", &segment_scan);
  m.impl("segment_cumulative", &segment_cumulative);
}
TORCH_LIBRARY_IMPL(torch_lod, Meta, m) {
  m.impl("segment_scan", &segment_scan_meta);
  m.impl("segment_cumulative", &segment_cumulative_meta);
}
TORCH_LIBRARY_IMPL(torch_lod, Autograd, m) {
  m.impl("segment_scan", &segment_scan_autograd);
  m.impl("segment_cumulative", &segment_cumulative_autograd);
}

}  // namespace lod
