// What kernels with a problem per segment share: the order in which the CPU takes them, and memory for a GPU's.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "torch_lod/tile_view.h"
#include "torch_lod/operator.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cstdio>
#include <numeric>
#include <string>
#include <vector>

namespace lod {

// The numbers below n, the most expensive first: what takes longest begins first.
template <class Cost>
std::vector<int64_t> most_costly_first(int64_t n, const Cost& cost) {
  std::vector<int64_t> order(n);
  std::iota(order.begin(), order.end(), int64_t(0));
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return cost(a) > cost(b); });
  return order;
}

// A size in a message.
inline std::string gibibytes(double bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f GiB", bytes / double(int64_t(1) << 30));
  return text;
}

// Offsets on a GPU that memory is sized by: as kernels clamp them, in a copy that no other thread writes to.
inline Tensor clamped_offsets(const Tensor& offsets, int64_t rows) { return offsets.clamp(0, rows); }
// Of every segment; the same as the length of rows_of (device.h).
inline Tensor clamped_lengths(const Tensor& clamped) {
  const int64_t n = clamped.size(0) - 1;
  return clamped.narrow(0, 1, n).sub(clamped.narrow(0, 0, n)).clamp_min(0);
}

// Kernels on a GPU have no memory of their own: what every segment needs at most, one after another. One sync.
struct Scratch {
  Tensor memory, at;

  Scratch() = default;
  explicit Scratch(const Tensor& bytes) {
    const int64_t n = bytes.size(0);
    const Tensor ends = at::cat(std::vector<Tensor>{at::zeros({1}, bytes.options()), bytes.cumsum(0)});
    at = ends.narrow(0, 0, n).contiguous();
    const auto needed = ends[n].item<int64_t>();
    raise_faults();  // what was found is known now, and may be why so much is needed
    memory = at::empty({needed}, bytes.options().dtype(at::kByte));
  }
  // Null on the CPU.
  char* data() const { return memory.defined() ? static_cast<char*>(memory.mutable_data_ptr()) : nullptr; }
  const int64_t* begins() const { return at.defined() ? at.const_data_ptr<int64_t>() : nullptr; }
};

// The first segment of every tile; in segment.cpp.
Tensor first_segments(const TileView& view, const Tensor& offsets);
// A view for the drivers of segments. On a GPU with where tiles begin, if there are several, and memory for parts of
// long segments, unless there are known to be none; `bytes` of a channel of a row in all inputs.
struct TiledView : TileView {
  Tensor begins, memory;

  TiledView(const LoDView& view, const Tensor& offsets, int64_t bytes) : TileView(view) {
    if (offsets.is_cpu() || !segments || !width) return;
    tile_rows = tile_rows_of(width, bytes);
    const int64_t tiles = tiles_of(*this, tile_rows), blocks = tiles * ((width + kStrip - 1) / kStrip);
    TORCH_CHECK_VALUE(blocks < int64_t(1) << 31, "expected fewer than 2^31 tiles of rows on a GPU, got ", blocks);
    if (tiles == 1) return;
    begins = first_segments(*this, offsets);
    firsts = begins.const_data_ptr<int64_t>();
    const Known* mark = known(offsets);
    const int64_t longest = mark && mark->cuts && mark->longest >= 0 ? std::min(mark->longest, rows) : rows;
    if (longest <= tile_rows) return;
    memory = at::empty({parts_bytes(*this, tile_rows)}, offsets.options().dtype(at::kByte));
    parts = memory.mutable_data_ptr();
  }
};
// The same of values and their offsets, with as many inputs of their kind.
template <class Values>
TiledView tiled(const Values& x, int64_t inputs = 1) {
  return TiledView(x, x.row_offsets, inputs * x.values.element_size());
}

}  // namespace lod
