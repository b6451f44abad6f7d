// Operators of one binding that others call.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "torch_lod/operator.h"

namespace lod {

using GatherRowsOp = Call<"gather_rows", Tensor(const Tensor& values, const Tensor& map, const at::Scalar& fill)>;
using ScatterRowsOp = Call<"scatter_rows", Tensor(const Tensor& values, const Tensor& map, c10::SymInt rows)>;
using SegmentUnfoldOp = Call<"segment_unfold", Tensor(const Tensor& values, const Tensor& row_offsets, c10::SymInt size,
                                                      int64_t start, int64_t dilation, const at::Scalar& fill)>;
using SegmentReduceOp = Call<"segment_reduce", Tensor(const Tensor& values, const Tensor& row_offsets,
                                                      std::string_view reduce, double pad_value)>;
using SegmentBroadcastOp = Call<"segment_broadcast", Tensor(const Tensor& values, const Tensor& row_offsets,
                                                            c10::SymInt rows, std::string_view reduce)>;

// Gradients of segment_cumprod, and of segment_reduce by "prod"; in scan.cpp.
Tensor cumprod_gradient(const Tensor& grad, const Tensor& values, const Tensor& offsets, bool reverse, bool exclusive);
Tensor prod_gradient(const Tensor& grad, const Tensor& values, const Tensor& offsets);
// The sums of segments that rise and end within the rows, but may begin anywhere; in segment.cpp.
Tensor sum_of_segments(const Tensor& x, const Tensor& offsets);

}  // namespace lod
