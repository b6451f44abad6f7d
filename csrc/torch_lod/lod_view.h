// How a kernel sees a LoDTensor at one level: rows of `width` elements, cut into sequences by offsets that count rows.
//
//   const Sequence s = view[i];                  one sequence, in a kernel or on the host
//   for (const Sequence s : view) ...            all of them, on the host, where the offsets are in host memory
//   values[r * view.width + c]                   element c of row r, for s.begin <= r < s.end
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "torch_lod/device.h"

namespace lod {

struct Sequence : Range {
  int64_t index;
};

struct LoDView {
  const int64_t* offsets;  // one more than there are sequences
  int64_t segments, rows, width;

  LOD_FN Sequence operator[](int64_t s) const { return {rows_of(offsets, s, rows), s}; }

  struct Iterator {
    const LoDView* view;
    int64_t index;
    Sequence operator*() const { return (*view)[index]; }
    Iterator& operator++() { return ++index, *this; }
    bool operator!=(const Iterator& other) const { return index != other.index; }
  };
  Iterator begin() const { return {this, 0}; }
  Iterator end() const { return {this, segments}; }
};

}  // namespace lod
