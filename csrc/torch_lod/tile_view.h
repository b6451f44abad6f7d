// What the drivers of segments (segment_drivers.h) are given: a view, and on a GPU memory for parts of long segments.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "torch_lod/lod_view.h"
#include "torch_lod/reducer.h"

namespace lod {

constexpr int64_t kStrip = 32;       // channels of a row that a tile has at most
constexpr int64_t kPartBytes = 32;   // of the largest State<1>

struct TileView : LoDView {
  int64_t tile_rows = 0;   // on a GPU: a segment of more rows is done in parts; 0: none is
  void* memory = nullptr;  // for the partial results of long segments: parts_bytes

  TileView(const LoDView& view) : LoDView(view) {}
};

// `bytes` of a channel of a row in all inputs. Rows of a strip or more are not copied to shared memory.
inline int64_t tile_rows_of(int64_t width, int64_t bytes) {
  return width < kStrip ? LOD_TILE_BYTES / (width * bytes) : 2 * LOD_TILE_BYTES / (kStrip * bytes);
}
// Tiles count rows and segments.
inline int64_t tiles_of(const LoDView& g, int64_t tile_rows) { return (g.rows + g.segments) / tile_rows + 1; }
// Two segments and three states of all channels for each tile.
inline int64_t parts_bytes(const LoDView& g, int64_t tile_rows) {
  return tiles_of(g, tile_rows) * (2 * int64_t(sizeof(int64_t)) + 3 * g.width * kPartBytes);
}

}  // namespace lod
