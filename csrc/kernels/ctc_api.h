// Connectionist temporal classification: arguments and entries of ctc.h.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/entry.h"
#include "torch_lod/lod_view.h"
#include "torch_lod/reducer.h"

namespace lod {

struct CtcArguments : LoDView {  // width: classes
  const void* values;
  const int64_t *labels, *label_offsets, *order;  // order: of the sequences, null as they come
  int64_t label_count, blank;
  const void* grad;          // of the losses; null forward
  void* out;                 // losses, the gradient of values, or the scores of the best paths
  int64_t* path;             // for the best path: of every row the label's position, or -1
  char* scratch;             // on a GPU, where kernels cannot allocate
  const int64_t* scratch_at;
  bool zero_infinity;
};

// What is kept of the states of all rows.
enum class CtcKeeps { nothing, forward, choices };
// Bytes of a lattice of numbers of so many bytes, each with an exponent as wide: rows, and columns in whole blocks, are
// numbers or tensors of them.
template <class N>
LOD_FN N ctc_bytes(const N& rows, const N& columns, int64_t classes, int64_t number, CtcKeeps keeps,
                   int64_t block = 1) {
  const int64_t rest = (classes * number + 7) / 8 * 8 + 72 + 40 * number * block;
  const N few = rows * (8 + 2 * number) + columns * (20 * number) + rest;
  return keeps == CtcKeeps::nothing ? few : few + rows * columns * (keeps == CtcKeeps::choices ? 2 : 4 * number);
}

LOD_KERNEL(ctc_loss, DType dtype, const CtcArguments& a)
LOD_KERNEL(ctc_loss_backward, DType dtype, const CtcArguments& a)
LOD_KERNEL(ctc_best_path, DType dtype, const CtcArguments& a)

}  // namespace lod
