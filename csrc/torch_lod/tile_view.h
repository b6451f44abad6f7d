// What the drivers of segments (segment_drivers.h) are given: a view; for a GPU where tiles begin, memory for parts.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "torch_lod/lod_view.h"
#include "torch_lod/reducer.h"

namespace lod {

constexpr int64_t kStrip = 32;       // channels of a row that a tile has at most
constexpr int64_t kPartBytes = 32;   // of the largest State<1>

struct TileView : LoDView {
  int64_t tile_rows = 0;            // on a GPU; 0: the driver's
  const int64_t* firsts = nullptr;  // the first segment of every tile and behind the last, or null: blocks look for it
  void* parts = nullptr;            // a segment of more rows than a tile is done in parts: parts_bytes; null: none is

  TileView(const LoDView& view) : LoDView(view) {}
};

// `bytes` of a channel of a row in all inputs. Rows of a strip or more are not copied to shared memory.
inline int64_t tile_rows_of(int64_t width, int64_t bytes) {
  return width < kStrip ? LOD_TILE_BYTES / (width * bytes) : 2 * LOD_TILE_BYTES / (kStrip * bytes);
}
// Tiles count rows and segments.
inline int64_t tiles_of(const LoDView& g, int64_t tile_rows) { return (g.rows + g.segments) / tile_rows + 1; }
// Three states of all channels for each tile.
inline int64_t parts_bytes(const LoDView& g, int64_t tile_rows) {
  return tiles_of(g, tile_rows) * 3 * g.width * kPartBytes;
}

}  // namespace lod
