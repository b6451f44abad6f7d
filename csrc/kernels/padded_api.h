// Rows that are copied to places of their own, as in padded layouts: arguments and entries of padded.h.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/entry.h"

namespace lod {

// Cell s of out are the rows [s * cell, (s + 1) * cell): from starts[s] on those of segment s, the others are fill.
struct PadRows {
  const void* values;
  const int64_t *starts, *offsets;
  void* out;
  int64_t segments, rows_in, cell, width, item;  // item: bytes of a word (device.h)
  unsigned char fill[16];
};
struct PutRows {  // out[map[i]] = values[i], where map[i] is a row of out; no two are the same row
  const void* values;
  const int64_t* map;
  void* out;
  int64_t rows_in, rows_out, width, item;
};

LOD_KERNEL(pad_rows, const PadRows& a)
LOD_KERNEL(put_rows, const PutRows& a)

}  // namespace lod
