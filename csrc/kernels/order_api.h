// Orders within segments: arguments and entries of order.h.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/entry.h"
#include "torch_lod/lod_view.h"

namespace lod {

struct OrderArguments : LoDView {
  const void* values;
  int64_t* index;  // (rows, width); with k (segments, k, width)
  int64_t k;       // how many rows of every segment, -1 for all
  bool descending;
};

LOD_CPU_KERNEL(segment_order, DType dtype, const OrderArguments& a)

}  // namespace lod
