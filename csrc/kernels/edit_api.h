// Edit distance: arguments and entries of edit.h.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/entry.h"
#include "torch_lod/lod_view.h"

namespace lod {

struct EditArguments {
  const int64_t *a, *a_offsets, *b, *b_offsets, *order;
  int64_t a_rows, b_rows, segments;
  int64_t *out, *of_a, *of_b;  // the distances; for the alignment the positions in the other sequence, or -1
  char* scratch;               // on a GPU, where kernels cannot allocate
  const int64_t* scratch_at;
};

LOD_KERNEL(edit_distance, const EditArguments& a)
LOD_KERNEL(edit_alignment, const EditArguments& a)

}  // namespace lod
