// How a kernel sees a LoDTensor at one level: rows of `width` elements, cut into sequences by offsets that count rows.
//
//   const Sequence s = view[i];                  one sequence, in a kernel or on the host
//   for (const Sequence s : view) ...            all of them, on the host, where the offsets are in host memory
//   values[r * view.width + c]                   element c of row r, for s.begin <= r < s.end
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <iterator>

#include "torch_lod/device.h"

namespace lod {

struct Sequence : Range {
  int64_t index;
};

struct LoDView {
  const int64_t* offsets;  // one more than there are sequences
  int64_t segments, rows, width;

  LOD_FN Sequence operator[](int64_t s) const { return {rows_of(offsets, s, rows), s}; }

  struct Iterator {  // of random access, as <ranges> has it; what it gives is a value, not a reference
    using iterator_concept = std::random_access_iterator_tag;
    using iterator_category = std::input_iterator_tag;
    using value_type = Sequence;
    using reference = Sequence;
    using pointer = void;
    using difference_type = int64_t;

    const LoDView* view = nullptr;
    int64_t index = 0;
    Sequence operator*() const { return (*view)[index]; }
    Sequence operator[](int64_t n) const { return (*view)[index + n]; }
    Iterator& operator+=(int64_t n) { return index += n, *this; }
    Iterator& operator-=(int64_t n) { return *this += -n; }
    Iterator& operator++() { return *this += 1; }
    Iterator& operator--() { return *this -= 1; }
    Iterator operator++(int) { return {view, index++}; }
    Iterator operator--(int) { return {view, index--}; }
    friend Iterator operator+(Iterator i, int64_t n) { return i += n; }
    friend Iterator operator+(int64_t n, Iterator i) { return i += n; }
    friend Iterator operator-(Iterator i, int64_t n) { return i -= n; }
    friend int64_t operator-(const Iterator& a, const Iterator& b) { return a.index - b.index; }
    friend bool operator==(const Iterator& a, const Iterator& b) { return a.index == b.index; }
    friend auto operator<=>(const Iterator& a, const Iterator& b) { return a.index <=> b.index; }
  };
  Iterator begin() const { return {this, 0}; }
  Iterator end() const { return {this, segments}; }
};

}  // namespace lod
