// What a kernel in blocks (gpu_blocks.h) is given: a view, and on a GPU memory for the partial results of blocks.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "torch_lod/lod_view.h"
#include "torch_lod/reducer.h"

namespace lod {

// On a GPU one thread joins kFan blocks, which are a block of the next level.
constexpr int64_t kFan = 64;

LOD_FN int64_t gpu_block(int level) {  // rows
  int64_t rows = kGpuBlock;
  for (; level > 0; --level) rows *= kFan;
  return rows;
}
// A segment of more rows has its blocks of a level shared among threads. Of its numbers, one every stride of rows,
// there are then at least as many as it has blocks.
LOD_FN int64_t gpu_long(int level) { return 2 * gpu_block(level); }
LOD_FN int64_t gpu_stride(int level) { return 2 * gpu_block(level) / 3; }
LOD_FN int64_t gpu_numbers(int64_t rows, int level) { return (rows + gpu_stride(level) - 1) / gpu_stride(level); }
// Above the blocks of rows, if no segment has more rows than `reach`.
inline int gpu_levels(int64_t reach) {
  int levels = 0;
  while (gpu_long(levels + 1) < reach) ++levels;
  return levels;
}

struct BlockView : LoDView {
  int64_t reach = 0;       // on a GPU the most rows of a segment; 0: a thread does all of a segment
  int64_t room = 0;        // bytes for all that passes leave in a channel of a block
  void* memory = nullptr;  // for the blocks of all levels

  BlockView(const LoDView& view) : LoDView(view) {}
};

}  // namespace lod
