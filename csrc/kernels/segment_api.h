// Reductions and what spreads a row: arguments and entries of segment.h.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/entry.h"
#include "torch_lod/tile_view.h"

namespace lod {

using Segments = LoDView;
struct ReduceArguments : TileView {
  const void* values;
  void* out;
  int64_t* index;  // null, or for max and min the row that each result came from
  double pad;
};
struct BroadcastArguments : Segments {  // out[r] = values[s], divided as the reduction divides
  const void* values;
  void* out;
};
struct EndArguments : Segments {  // out[s] = the first row of the segment, or the last one; fill where it is empty
  const void* values;
  void* out;
  int64_t item;  // bytes of a word (device.h)
  bool last;
  unsigned char fill[16];
};
struct PickArguments : Segments {  // between out[s, c] and values[index[s, c], c]
  const void* values;
  const int64_t* index;  // segment_place: null for the first or the last row
  void* out;
  bool last = false;
};

LOD_KERNEL(segment_reduce, DType dtype, Reduce reduce, const ReduceArguments& a)
// firsts[t] = the first segment of tile t (gpu_tiles.h); one more than there are tiles
LOD_KERNEL(first_segments, const TileView& g, int64_t* firsts)
LOD_KERNEL(segment_end, const EndArguments& a)
LOD_KERNEL(segment_broadcast, DType dtype, Reduce reduce, const BroadcastArguments& a)
LOD_KERNEL(segment_pick, DType dtype, const PickArguments& a)
LOD_KERNEL(segment_place, DType dtype, const PickArguments& a)

}  // namespace lod
