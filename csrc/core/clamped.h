// Offsets on a GPU that memory is sized by: as kernels clamp them, in a copy that nobody else writes to.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "torch_lod/operator.h"

namespace lod {

inline Tensor clamped_offsets(const Tensor& offsets, int64_t rows) { return offsets.clamp(0, rows); }
// Of every segment; the same as the length of rows_of (device.h).
inline Tensor clamped_lengths(const Tensor& clamped) {
  const int64_t n = clamped.size(0) - 1;
  return clamped.narrow(0, 1, n).sub(clamped.narrow(0, 0, n)).clamp_min(0);
}

}  // namespace lod
