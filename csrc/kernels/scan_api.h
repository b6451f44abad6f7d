// Cumulative kernels: arguments and entries of scan.h.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/entry.h"
#include "torch_lod/tile_view.h"

namespace lod {

struct ScanArguments : TileView {
  const void* values;
  const void* factors;  // null: ones
  void* out;
  bool adjoint;
};
struct CumulativeArguments : TileView {
  const void* values;
  void* out;
  int64_t* index;
};
struct CumulativeBackwardArguments : TileView {
  const void* grad;
  const int64_t* index;
  void* out;
};
struct CumprodArguments : TileView {
  const void* values;
  void* out;
  bool reverse, exclusive;
};
struct CumprodBackwardArguments : TileView {
  const void* values;
  const void* grad;  // a row of them a row; of the last product a row a segment, on the CPU of a computed_t
  void* before;  // room for a float64 of every element
  void* out;
  bool reverse, exclusive;
};
struct LogcumsumexpArguments : TileView {
  const void* values;
  void* out;
};

LOD_KERNEL(segment_scan, DType dtype, const ScanArguments& a)
LOD_KERNEL(segment_cumulative, DType dtype, bool max, const CumulativeArguments& a)
LOD_KERNEL(segment_cumulative_backward, DType dtype, const CumulativeBackwardArguments& a)
LOD_KERNEL(segment_cumprod, DType dtype, const CumprodArguments& a)
LOD_KERNEL(segment_cumprod_backward, DType dtype, bool last, const CumprodBackwardArguments& a)
LOD_KERNEL(segment_logcumsumexp, DType dtype, const LogcumsumexpArguments& a)

}  // namespace lod
