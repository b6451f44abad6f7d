// What a kernel in blocks (core/blocks.h) is given: a view, and on a GPU memory for what blocks come to.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "torch_lod/lod_view.h"
#include "torch_lod/reducer.h"

namespace lod {

struct BlockView : LoDView {
  int64_t blocks = 0;      // numbers for blocks (core/blocks.h); 0: a thread does all of a segment
  int64_t room = 0;        // bytes for all that passes leave in a channel of a block
  void* memory = nullptr;  // blocks * width * room

  BlockView(const LoDView& view) : LoDView(view) {}
};

}  // namespace lod
