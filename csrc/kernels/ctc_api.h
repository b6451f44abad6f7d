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

LOD_KERNEL(ctc_loss, DType dtype, const CtcArguments& a)
LOD_KERNEL(ctc_loss_backward, DType dtype, const CtcArguments& a)
LOD_KERNEL(ctc_best_path, DType dtype, const CtcArguments& a)

}  // namespace lod
