// What scatter_rows makes of a map. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "bindings/upload.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/zeros.h>

namespace lod {

// The positions that every row goes to, as lists behind one another.
inline std::tuple<Tensor, Tensor> invert(const Tensor& map, int64_t rows) {
  TORCH_CHECK_VALUE(rows < std::numeric_limits<int64_t>::max(), "scatter_rows: expected rows < 2^63 - 1, got ", rows);
  if (!map.is_cpu()) {
    const Tensor both = kept(map, map.device(), ~rows, [&] {
      const auto [sorted, order] = at::sort(map, /*stable=*/true, /*dim=*/0, /*descending=*/false);
      return at::cat(std::vector<Tensor>{at::searchsorted(sorted, at::arange(rows + 1, map.options())), order});
    });
    return {both.narrow(0, 0, rows + 1), both.narrow(0, rows + 1, map.numel())};
  }
  Tensor lists = at::zeros({rows + 1}, map.options()), order = at::empty_like(map);
  const auto* m = map.const_data_ptr<int64_t>();
  auto *begin = lists.mutable_data_ptr<int64_t>(), *o = order.mutable_data_ptr<int64_t>();
  const int64_t n = map.numel();
  for (int64_t i = 0; i < n; ++i)
    if (m[i] >= 0) ++begin[m[i] + 1];
  for (int64_t r = 0; r < rows; ++r) begin[r + 1] += begin[r];
  std::vector<int64_t> next(begin, begin + rows);
  for (int64_t i = 0; i < n; ++i)
    if (m[i] >= 0) o[next[m[i]]++] = i;
  return {lists, order};
}

// How many entries of a map in host memory are rows if these only rise, so that no row is named twice; otherwise -1.
inline int64_t rising(const Tensor& map) {
  const auto* m = map.const_data_ptr<int64_t>();
  int64_t before = -1, named = 0;
  bool all = true;
  for (int64_t i = 0, n = map.numel(); i < n; ++i) {
    all &= (m[i] < 0) | (m[i] > before);
    before = m[i] < 0 ? before : m[i];
    named += m[i] >= 0;
  }
  return all ? named : -1;
}
// Narrow rows in host memory, of a type that sums as itself, each added where it goes, in the order of sum_lists.
template <class T>
Tensor added(const Tensor& x, const Tensor& map, int64_t rows) {
  const Tensor out = new_rows(x, rows).zero_();
  const auto* m = map.const_data_ptr<int64_t>();
  const T* from = x.const_data_ptr<T>();
  T* to = out.mutable_data_ptr<T>();
  const int64_t width = width_of(x);
  for (int64_t i = 0, n = map.numel(); i < n; ++i, from += width)
    for (int64_t c = 0; c < (m[i] < 0 ? 0 : width); ++c) to[m[i] * width + c] += from[c];
  return out;
}

}  // namespace lod
