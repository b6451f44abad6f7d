// What a kernel in blocks (core/blocks.h) is given: a view, and on a GPU memory for what blocks come to.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "torch_lod/lod_view.h"
#include "torch_lod/reducer.h"

namespace lod {

struct BlockView : LoDView {
  void* memory;  // null on the CPU, and where few() is false

  BlockView(const LoDView& view, void* given = nullptr) : LoDView(view), memory(given) {}

  // Whether long segments may leave most threads of a GPU without work if each has a segment's channel.
  bool few() const { return rows >= 2 * kBlock && segments * width < (int64_t(1) << 17); }
  // Numbers for the blocks of `count` segments: begins of blocks in the rows, and of segments.
  int64_t blocks(int64_t count) const { return rows / kBlock + count; }
  // Of memory, for kernels of up to 4 passes with parts of up to 16 bytes.
  int64_t bytes() const { return (blocks(segments) + 4 * segments) * width * 16; }
};

}  // namespace lod
