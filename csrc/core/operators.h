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
using SegmentCumprodOp = Call<"segment_cumprod", Tensor(const Tensor& values, const Tensor& row_offsets, bool reverse,
                                                        bool exclusive)>;

}  // namespace lod
