// Products of float32 and float64 matrices on the CPU whose right side is packed once and used often, or has very few
// rows on its left: what a recurrence needs and general libraries are slow at. Every element is summed over k in order,
// whatever the other rows are and however many threads work: a row's result depends on nothing but that row.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/entry.h"

namespace lod {

// Row i of a left side made of windows: the rows i + start + j * dilation of its segment side by side, 0 <= j < size,
// and zeros outside of it.
struct WindowsOfRows {
  const int64_t* offsets;
  int64_t segments, size, start, dilation;
};

template <class T>
struct PackArguments {  // b[k, j] = from[k * row_stride + j * column_stride]
  int64_t n, k;
  const T* from;
  int64_t row_stride, column_stride;
  T* to;
};

// c[i, j] = init[i, j] + sum_k a[i, k] b[k, j] for i < m, j < n. `b` is packed by pack(), or null and `unpacked` given,
// for few rows that use it once; init null is zeros, with a stride of 0 one row for all (a bias). With windows k is
// size * a_stride.
template <class T>
struct Product {
  int64_t m, n, k;
  const T* a;
  int64_t a_stride;
  const T* b;
  T* c;
  int64_t c_stride;
  const T* init;
  int64_t init_stride;
  const WindowsOfRows* windows = nullptr;
  const PackArguments<T>* unpacked = nullptr;
};

// c[i, j] = sum_r a[a_rows[r], i] b[b_rows[r], j] for i < m, j < n, r < k; rows null are all rows in order, a negative
// entry of b_rows is a row of zeros.
template <class T>
struct TransposedProduct {
  int64_t m, n, k;
  const T* a;
  int64_t a_stride;
  const T* b;
  int64_t b_stride;
  const int64_t *a_rows, *b_rows;
  T* c;
  int64_t c_stride;
};

namespace kernels {

// Whether this processor has vectors for which these products beat the library's.
LOD_EXPORT bool has_products();
// Elements that packing a (k, n) matrix takes. T is float or double in all of these.
template <class T>
LOD_EXPORT int64_t packed_size(int64_t n, int64_t k);
template <class T>
LOD_EXPORT void pack(const CpuExec&, const PackArguments<T>&);
template <class T>
LOD_EXPORT void multiply(const CpuExec&, const Product<T>&);
template <class T>
LOD_EXPORT void multiply_transposed(const CpuExec&, const TransposedProduct<T>&);

}  // namespace kernels

}  // namespace lod
