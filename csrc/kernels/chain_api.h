// Dynamic programs along sequences: arguments and entries of chain.h.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/entry.h"
#include "torch_lod/lod_view.h"

namespace lod {

// width: tags. All but values and the gradient of values are in what values are summed in. Rows of `padded` entries, a
// multiple of 16, are filled up with what changes nothing.
struct Chain : LoDView {
  int64_t padded, pieces;
  const void* values;
  const void* transition;  // (tags + 2, tags): start, end, then from one tag to another
  void* scratch;           // for every piece, as much as the kernel says
  void (*pause)();
};
struct ChainForward : Chain {
  const void *weights, *top;  // (tags, padded), (padded); columns beyond the tags are ones
  void *logsum, *state;       // (segments) as values, (rows, tags)
};
struct ChainBackward : Chain {
  const void *weights, *turned;  // (tags, padded) both, the latter filled up with zeros
  const void *grad, *state;      // (segments) as values, (rows, tags)
  void *grad_values, *counts;    // (rows, tags) as values, (pieces, tags + 2, padded) of zeros
};
struct ChainArgmax : Chain {
  const void* steps;  // (tags, padded): transition, filled up with -inf
  int64_t n;
  void *scores, *path;  // (segments, n) as values, (rows, n) of int64, -1 where there is no path
  int32_t* back;        // (rows, tags, n)
};
struct ChainSample : Chain {
  const void *state, *uniform;  // (rows, tags), (rows, n) in [0, 1)
  int64_t n;
  int64_t* path;  // (rows, n)
};
constexpr int64_t kChainRows = 6;         // of `padded` entries, that a pass needs
constexpr int64_t kChainHeap = 3;        // of `padded` entries, that the n best paths need besides
constexpr int64_t kChainPatience = 1 << 20;  // terms after which a kernel looks for signals
constexpr int64_t kChainCost = 1 << 20;  // elements that a piece touches: each is worth a thread

LOD_KERNEL(chain_forward, DType dtype, const ChainForward& a)
LOD_KERNEL(chain_backward, DType dtype, const ChainBackward& a)
LOD_KERNEL(chain_argmax, DType dtype, const ChainArgmax& a)
LOD_KERNEL(chain_sample, DType dtype, const ChainSample& a)

}  // namespace lod
