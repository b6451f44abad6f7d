// Rows that are copied to places of their own. In padded layouts every row of the result is written once: a GPU needs
// no launch of its own for the padding, and no search for the segment. Kernel source, see torch_lod/device.h.
// SPDX-License-Identifier: Apache-2.0

#include "kernels/padded_api.h"

namespace lod::LOD_LEVEL {

template <class T>
struct PadKernel {
  PadRows a;
  Divisor cells;
  T fill;
  template <int W>
  LOD_FN void strip(int64_t i, int64_t c) const {
    const int64_t s = cells.quotient(i), place = i - a.starts[s];
    const int64_t row = a.offsets[s] + place;
    T* to = static_cast<T*>(a.out) + i * a.width + c;
    if (place >= 0 && row < a.offsets[s + 1] && row >= 0 && row < a.rows_in) {
      const T* from = static_cast<const T*>(a.values) + row * a.width + c;
      for (int k = 0; k < W; ++k) to[k] = from[k];
    } else {
      for (int k = 0; k < W; ++k) to[k] = fill;
    }
  }
};

template <class T>
struct PutKernel {
  PutRows a;
  template <int W>
  LOD_FN void strip(int64_t i, int64_t c) const {
    const int64_t row = a.map[i];
    if (row < 0 || row >= a.rows_out) return;
    const T* from = static_cast<const T*>(a.values) + i * a.width + c;
    T* to = static_cast<T*>(a.out) + row * a.width + c;
    for (int k = 0; k < W; ++k) to[k] = from[k];
  }
};

LOD_ENTRY void pad_rows(const Exec& exec, const PadRows& a) {
  visit_words(a.item, [&](auto type) {
    using T = typename decltype(type)::type;
    each_strip(exec, a.segments * a.cell, a.width, PadKernel<T>{a, Divisor(a.cell), word<T>(a.fill)});
  });
}

LOD_ENTRY void put_rows(const Exec& exec, const PutRows& a) {
  visit_words(a.item, [&](auto type) {
    each_strip(exec, a.rows_in, a.width, PutKernel<typename decltype(type)::type>{a});
  });
}

}  // namespace lod::LOD_LEVEL
