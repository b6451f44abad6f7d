// Gradients that are products, for bindings whose kernel text has core/normal.h.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/where.h>

#include <atomic>
#include <limits>

#include "core/carried.h"
#include "core/operators.h"

namespace lod {

// finish(a b, g) of the pair (a, b) = factors(x, g). A product that fits may have a factor that overflows, vanishes or
// loses digits in float32: where one does, its whole segment is carried in float64, and no other, so that a segment's
// gradient does not depend on the others. Where numbers cannot be looked at, all of them are carried so.
template <class Factors, class Finish>
Tensor of_products(const Tensor& values, const Tensor& grad, const Tensor& offsets, const Factors& factors,
                   const Finish& finish) {
  const auto in_doubles = [&] {
    const Tensor x = carried(values), g = carried(grad);
    const auto [a, b] = factors(x, g);
    return finish(multiplied(a, b), g).to(values.scalar_type());
  };
  if (values.scalar_type() != at::kFloat || !values.is_cpu() || !is_in_memory(values) || !is_in_memory(grad) ||
      at::GradMode::is_enabled() || c10::impl::TorchDispatchModeTLS::any_modes_set())
    return in_doubles();
  auto [a, b] = factors(values, grad);
  auto* to = a.template mutable_data_ptr<float>();
  const auto* by = b.template const_data_ptr<float>();
  std::atomic<bool> normal = true;
  at::parallel_for(0, a.numel(), 1 << 15, [&](int64_t begin, int64_t end) {
    if (!LOD_PICK(multiply_normal)(to + begin, by + begin, end - begin)) normal = false;
  });
  const Tensor found = finish(a, grad);
  if (normal) return found;
  std::tie(a, b) = factors(values, grad);
  const auto odd = [](const Tensor& t) {
    const Tensor size = t.abs(), large = size.ge(std::numeric_limits<float>::min());
    return large.logical_and(size.le(std::numeric_limits<float>::max())).logical_not();
  };
  const Tensor any = odd(a).logical_or(odd(b)).logical_or(odd(a * b)).to(at::kByte);
  const Tensor segments = SegmentReduceOp::call(any, offsets, "max", 0.0);
  const Tensor rows = SegmentBroadcastOp::call(segments, offsets, values.sym_size(0), "sum");
  return at::where(rows.to(at::kBool), in_doubles(), found);
}

}  // namespace lod
