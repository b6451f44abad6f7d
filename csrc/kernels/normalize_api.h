// Softmax, variance and normalising: arguments and entries of normalize.h.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/entry.h"
#include "torch_lod/tile_view.h"

namespace lod {

struct SoftmaxArguments : TileView {
  const void* values;  // backward: the output
  const void* grad;    // null forward
  void* out;
};
struct LogsumexpArguments : TileView {
  const void* values;
  void* out;
  double pad;
};
struct VarArguments : TileView {
  const void* values;
  void* out;
  double correction, pad;
  bool root;
};
struct NormalizeArguments : TileView {
  const void* values;
  const void* grad;  // null forward
  void* out;
  double eps;
};

LOD_KERNEL(segment_softmax, DType dtype, bool log, const SoftmaxArguments& a)
LOD_KERNEL(segment_logsumexp, DType dtype, const LogsumexpArguments& a)
LOD_KERNEL(segment_var, DType dtype, const VarArguments& a)
LOD_KERNEL(segment_normalize, DType dtype, const NormalizeArguments& a)

}  // namespace lod
