// The type that gradients of several steps are computed in, so that nothing between the steps overflows or is rounded
// twice.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "torch_lod/binding.h"

namespace lod {

// Of half types float32.
inline Tensor wide(const Tensor& t) { return t.element_size() < 4 ? t.to(at::kFloat) : t; }
// And of float32 float64: the accumulator of products and sums along rows.
inline Tensor in_accumulator(const Tensor& t) { return t.scalar_type() == at::kFloat ? t.to(at::kDouble) : wide(t); }

}  // namespace lod
