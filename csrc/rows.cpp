// Binding of the shape "rows": gather_rows and scatter_rows are each other's gradient.
// SPDX-License-Identifier: Apache-2.0
#define LOD_KERNELS "rows.h"
#include "core/binding.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/view_as_complex.h>
#include <ATen/ops/view_as_real.h>
#include <ATen/ops/zeros.h>

namespace lod {
#ifdef LOD_CUDA
namespace cuda {
void run_map(const CudaExec&, const RunMap&);
void gather_rows(const CudaExec&, const GatherRows&);
void sum_lists(const CudaExec&, DType, const SumLists&);
}  // namespace cuda
#endif
namespace {

// -- run_map

void check_run_map(const Tensor& starts, const Tensor& offsets, const c10::SymInt& rows) {
  check_row_count("run_map", rows);
  check_index("run_map", "starts", starts, starts.defined() ? starts.device() : c10::Device(c10::kCPU));
  check_index("run_map", "row_offsets", offsets, starts.device());
  check_offsets_kind("run_map", offsets, offsets.device());
  TORCH_CHECK_VALUE(starts.sym_size(0) == offsets.sym_size(0) - 1, "run_map: expected one of starts per segment, ",
                    offsets.sym_size(0) - 1, ", got ", starts.sym_size(0));
}

Tensor run_map_meta(const Tensor& starts, const Tensor& offsets, c10::SymInt rows, int64_t) {
  check_run_map(starts, offsets, rows);
  return at::empty_symint({std::move(rows)}, starts.options());
}

Tensor run_map(const Tensor& starts, const Tensor& given, int64_t rows, int64_t step) {
  check_run_map(starts, given, rows);
  const Tensor offsets = checked_offsets("run_map", given, rows), first = readable("run_map", starts);
  Tensor map = new_rows(first, rows);
  LOD_RUN(map, run_map, RunMap{first.const_data_ptr<int64_t>(), offsets.const_data_ptr<int64_t>(),
                               map.mutable_data_ptr<int64_t>(), first.size(0), rows, step});
  return map;
}

// -- gather_rows

void check_gather(const Tensor& values, const Tensor& map) {
  check_has_rows("gather_rows", "values", values);
  check_index("gather_rows", "map", map, values.device());
  TORCH_CHECK_TYPE(!at::isQIntType(values.scalar_type()), "gather_rows: expected values that are not quantized, got ",
                   values.scalar_type());
}

Tensor gather_rows_meta(const Tensor& values, const Tensor& map, const at::Scalar&) {
  check_gather(values, map);
  return at::empty_symint(sym_shape(values, map.sym_size(0)), values.options());
}

Tensor gather_rows(const Tensor& values, const Tensor& given, const at::Scalar& fill) {
  check_gather(values, given);
  const Tensor x = readable("gather_rows", values), map = checked_map("gather_rows", "map", given, x.size(0));
  Tensor out = new_rows(x, map.size(0));
  GatherRows a{x.const_data_ptr(), map.const_data_ptr<int64_t>(), out.mutable_data_ptr(), x.size(0), map.size(0),
               width_of(x), int64_t(x.element_size()), {}};
  const Tensor bits = at::scalar_tensor(fill, at::TensorOptions(x.scalar_type()));
  std::memcpy(a.fill, bits.const_data_ptr(), x.element_size());
  LOD_RUN(out, gather_rows, a);
  return out;
}

// -- scatter_rows: the inverse of a map is, for every row, the list of places that it goes to

void check_scatter(const Tensor& values, const Tensor& map, const c10::SymInt& rows) {
  check_row_count("scatter_rows", rows);
  check_has_rows("scatter_rows", "values", values);
  number_type("scatter_rows", values);
  check_index("scatter_rows", "map", map, values.device());
  TORCH_CHECK_VALUE(map.sym_size(0) == values.sym_size(0), "scatter_rows: expected a map entry per row of values, ",
                    values.sym_size(0), ", got ", map.sym_size(0));
}

Tensor scatter_rows_meta(const Tensor& values, const Tensor& map, c10::SymInt rows) {
  check_scatter(values, map, rows);
  return at::empty_symint(sym_shape(values, std::move(rows)), values.options());
}

std::tuple<Tensor, Tensor> invert(const Tensor& map, int64_t rows) {
  if (!map.is_cpu()) {
    const auto [sorted, order] = at::sort(map, /*stable=*/true, /*dim=*/0, /*descending=*/false);
    return {at::searchsorted(sorted, at::arange(rows + 1, map.options())), order};
  }
  Tensor lists = at::zeros({rows + 1}, map.options()), order = at::empty_like(map);
  const auto* m = map.const_data_ptr<int64_t>();
  auto *begin = lists.mutable_data_ptr<int64_t>(), *o = order.mutable_data_ptr<int64_t>();
  const int64_t n = map.numel();
  for (int64_t i = 0; i < n; ++i)
    if (m[i] >= 0) ++begin[m[i] + 1];
  for (int64_t r = 0; r < rows; ++r) begin[r + 1] += begin[r];
  std::vector<int64_t> next(begin, begin + rows);
  for (int64_t i = 0; i < n; ++i)
    if (m[i] >= 0) o[next[m[i]]++] = i;
  return {lists, order};
}

Tensor scatter_rows(const Tensor& values, const Tensor& given, int64_t rows) {
  check_scatter(values, given, rows);
  const Tensor x = readable("scatter_rows", values), map = checked_map("scatter_rows", "map", given, rows);
  Tensor out = new_rows(x, rows);
  if (out.numel() == 0) return out;
  const auto [lists, order] = invert(map, rows);
  LOD_RUN(out, sum_lists, number_type("scatter_rows", x),
          SumLists{x.const_data_ptr(), lists.const_data_ptr<int64_t>(), order.const_data_ptr<int64_t>(), out.mutable_data_ptr(),
                   x.size(0), rows, width_of(x)});
  return out;
}

// -- gradients

Tensor call_gather(const Tensor& values, const Tensor& map, const at::Scalar& fill) {
  return LOD_CALL("gather_rows", gather_rows_meta).call(values, map, fill);
}
Tensor call_scatter(const Tensor& values, const Tensor& map, c10::SymInt rows) {
  return LOD_CALL("scatter_rows", scatter_rows_meta).call(values, map, std::move(rows));
}

struct GatherRowsGrad : torch::autograd::Function<GatherRowsGrad> {
  static Tensor forward(AutogradContext* ctx, const Tensor& values, const Tensor& map, const at::Scalar& fill) {
    const at::AutoDispatchBelowADInplaceOrView guard;
    ctx->save_for_backward({map});
    ctx->saved_data["rows"] = values.sym_size(0);
    return call_gather(values, map, fill);
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grad) {
    const Tensor map = ctx->get_saved_variables()[0];
    const auto rows = ctx->saved_data["rows"].toSymInt();
    if (!grad[0].is_complex()) return {call_scatter(grad[0], map, rows), Tensor(), Tensor()};
    const Tensor parts = at::view_as_real(grad[0].resolve_conj());
    return {at::view_as_complex(call_scatter(parts, map, rows)), Tensor(), Tensor()};
  }
};
struct ScatterRowsGrad : torch::autograd::Function<ScatterRowsGrad> {
  static Tensor forward(AutogradContext* ctx, const Tensor& values, const Tensor& map, c10::SymInt rows) {
    const at::AutoDispatchBelowADInplaceOrView guard;
    ctx->save_for_backward({map});
    return call_scatter(values, map, std::move(rows));
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grad) {
    return {call_gather(grad[0], ctx->get_saved_variables()[0], 0), Tensor(), Tensor()};
  }
};

Tensor gather_rows_autograd(const Tensor& values, const Tensor& map, const at::Scalar& fill) {
  if (tracked(values)) return GatherRowsGrad::apply(values, map, fill);
  const at::AutoDispatchBelowADInplaceOrView guard;
  return call_gather(values, map, fill);
}
Tensor scatter_rows_autograd(const Tensor& values, const Tensor& map, c10::SymInt rows) {
  if (tracked(values)) return ScatterRowsGrad::apply(values, map, std::move(rows));
  const at::AutoDispatchBelowADInplaceOrView guard;
  return call_scatter(values, map, std::move(rows));
}

}  // namespace

LOD_IMPLEMENTATIONS(m) {
  m.impl("run_map", &run_map);
  m.impl("gather_rows", &gather_rows);
  m.impl("scatter_rows", &scatter_rows);
}
TORCH_LIBRARY_IMPL(torch_lod, Meta, m) {
  m.impl("run_map", &run_map_meta);
  m.impl("gather_rows", &gather_rows_meta);
  m.impl("scatter_rows", &scatter_rows_meta);
}
TORCH_LIBRARY_IMPL(torch_lod, Autograd, m) {
  m.impl("run_map", torch::CppFunction::makeFallthrough());
  m.impl("gather_rows", &gather_rows_autograd);
  m.impl("scatter_rows", &scatter_rows_autograd);
}

}  // namespace lod
