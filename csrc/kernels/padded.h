// Rows that are copied to places of their own. In padded layouts every row of the result is written once: a GPU needs
// no launch of its own for the padding, and no search for the segment. Kernel source, see torch_lod/device.h.
// SPDX-License-Identifier: Apache-2.0

#include "kernels/padded_api.h"

namespace lod::LOD_LEVEL {

template <class T>
struct PadKernel {
  using Element = T;
  PadRows a;
  Divisor cells;
  T fill;
  void* out;
  LOD_FN T value(int64_t i, int64_t c) const {
    const int64_t s = cells.quotient(i), place = i - a.starts[s], row = a.offsets[s] + place;
    const bool there = place >= 0 && row < a.offsets[s + 1] && row >= 0 && row < a.rows_in;
    return there ? static_cast<const T*>(a.values)[row * a.width + c] : fill;
  }
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
  using Element = T;
  PutRows a;
  const T* values;
  LOD_FN void put(int64_t i, int64_t c, const T& value) const {
    const int64_t row = a.map[i];
    if (row >= 0 && row < a.rows_out) static_cast<T*>(a.out)[row * a.width + c] = value;
  }
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
    const PadKernel<T> f{a, Divisor(a.cell), word<T>(a.fill), a.out};
    if constexpr (kOnGpu) each_element(exec, a.segments * a.cell, a.width, f);
    else each_strip(exec, a.segments * a.cell, a.width, f);
  });
}

LOD_ENTRY void put_rows(const Exec& exec, const PutRows& a) {
  visit_words(a.item, [&](auto type) {
    using T = typename decltype(type)::type;
    const PutKernel<T> f{a, static_cast<const T*>(a.values)};
    if constexpr (kOnGpu) each_element(exec, a.rows_in, a.width, f);
    else each_strip(exec, a.rows_in, a.width, f);
  });
}

}  // namespace lod::LOD_LEVEL
