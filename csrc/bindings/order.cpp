// Binding of the orders within segments: all rows, or the first k. On a GPU they are sorted with torch.
// SPDX-License-Identifier: Apache-2.0
#define LOD_ENTRIES "kernels/order_api.h"
#include "bindings/operators.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/where.h>

namespace lod {
namespace {

void check_order(const char* op, const Tensor& values, const Tensor& offsets) {
  check_has_rows(op, "values", values);
  number_type(op, values);
  check_offsets_kind(op, offsets, values.device());
}
void check_count(const c10::SymInt& k) {
  TORCH_CHECK_VALUE(TORCH_GUARD_OR_TRUE(k.sym_ge(1)), "segment_topk: expected k >= 1, got ", k);
}
c10::SymDimVector topk_shape(const Tensor& values, const c10::SymInt& segments, const c10::SymInt& k) {
  c10::SymDimVector shape{segments, k};
  for (int64_t d = 1; d < values.dim(); ++d) shape.push_back(values.sym_size(d));
  return shape;
}

// Sorted by number, then, with equal ones in order, by segment. Torch's CUDA sort puts a NaN whose sign is set in front
// of all numbers.
Tensor sorted_by_torch(const Tensor& given, const Tensor& offsets, bool descending) {
  Tensor values = given;
  if (values.is_floating_point()) values = values.masked_fill(values.isnan(), std::numeric_limits<double>::quiet_NaN());
  const Tensor first = std::get<1>(at::sort(values, /*stable=*/true, 0, descending));
  const Tensor ids = SegmentBroadcastOp::call(at::arange(offsets.size(0) - 1, offsets.options()), offsets,
                                              values.size(0), "sum");
  return first.gather(0, std::get<1>(at::sort(ids.index({first}), /*stable=*/true, 0, /*descending=*/false)));
}
void order_into(const char* op, const Tensor& given, const Tensor& offsets, int64_t k, bool descending, Tensor& index) {
  const Tensor x = readable(given);
  const OrderArguments a{{offsets.const_data_ptr<int64_t>(), offsets.size(0) - 1, x.size(0), width_of(x)},
                         x.const_data_ptr(), index.mutable_data_ptr<int64_t>(), k, descending};
  kernels::segment_order(kCpu, number_type(op, x), a);
}

Tensor segment_order_meta(const Tensor& values, const Tensor& offsets, bool) {
  check_order("segment_order", values, offsets);
  return at::empty_symint(values.sym_sizes(), values.options().dtype(at::kLong));
}
Tensor segment_order(const Tensor& values, const Tensor& given, bool descending) {
  check_order("segment_order", values, given);
  const Tensor offsets = checked_offsets("segment_order", given, values.size(0));
  if (!values.is_cpu()) return sorted_by_torch(values, offsets, descending);
  Tensor index = at::empty(values.sizes(), offsets.options());
  if (index.numel()) order_into("segment_order", values, offsets, -1, descending, index);
  return index;
}

Tensor segment_topk_meta(const Tensor& values, const Tensor& offsets, c10::SymInt k, bool) {
  check_order("segment_topk", values, offsets);
  check_count(k);
  return at::empty_symint(topk_shape(values, offsets.sym_size(0) - 1, k), values.options().dtype(at::kLong));
}
Tensor segment_topk(const Tensor& values, const Tensor& given, int64_t k, bool largest) {
  check_order("segment_topk", values, given);
  check_count(k);
  const Tensor offsets = checked_offsets("segment_topk", given, values.size(0));
  auto shape = values.sizes().vec();
  shape[0] = k;
  shape.insert(shape.begin(), offsets.size(0) - 1);
  if (!values.is_cpu()) {
    const int64_t segments = offsets.size(0) - 1;
    const Tensor row = offsets.narrow(0, 0, segments).unsqueeze(1) + at::arange(k, offsets.options());
    const Tensor kept = at::where(row < offsets.narrow(0, 1, segments).unsqueeze(1), row, -1).flatten();
    if (known_to_cut(offsets, values.size(0))) mark(kept, values.size(0), /*cuts=*/false);
    return GatherRowsOp::call(sorted_by_torch(values, offsets, largest), kept, -1).view(shape);
  }
  Tensor index = at::empty(shape, offsets.options());
  if (index.numel()) order_into("segment_topk", values, offsets, k, largest, index);
  return index;
}

using OrderOp = Operator<"segment_order", segment_order_meta, segment_order>;
using TopkOp = Operator<"segment_topk", segment_topk_meta, segment_topk>;

}  // namespace

LOD_OPERATORS(NoGradient<OrderOp>, NoGradient<TopkOp>)

}  // namespace lod
