// Structure in host memory: functions of structure.h, and of torch_lod/launch.h.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/entry.h"

namespace lod::kernels {

LOD_EXPORT OffsetOrder order_of_offsets(const int64_t* offsets, int64_t count);
LOD_EXPORT int64_t append_offsets(const int64_t* from, int64_t* to, int64_t n, int64_t before);
LOD_EXPORT RunLayout layout_of_runs(const int64_t* starts, const int64_t* cuts, int64_t n, int64_t step, int64_t there);
LOD_EXPORT IndexBounds bounds_of_runs(const int64_t* starts, const int64_t* lengths, const int64_t* within, int64_t n,
                                      int64_t elements);
LOD_EXPORT int64_t parts_of(const int64_t* within, int64_t* starts, int64_t* lengths, int64_t n, int64_t most,
                            bool last);
LOD_EXPORT void lay_runs(const int64_t* starts, const int64_t* lengths, const int64_t* within, int64_t n, int64_t sum,
                         int64_t* firsts, int64_t* cuts);
LOD_EXPORT bool locate(const int64_t* from, const int64_t* cuts, const int64_t* within, int64_t n, int64_t each,
                       bool absolute, int64_t* to);

}  // namespace lod::kernels
