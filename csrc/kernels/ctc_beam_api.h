// Beam search over labelings: arguments and entries of ctc_beam.h.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/entry.h"
#include "torch_lod/lod_view.h"
#include "torch_lod/reducer.h"

namespace lod {

struct CtcBeamArguments : LoDView {  // width: classes
  const void* values;
  const int64_t* order;       // of the sequences, null as they come
  int64_t blank, beam, n;
  double least;               // of the logarithm of the probability of a class that extends a prefix
  int64_t *labels, *lengths;  // (rows, n): those of labeling j in column j of its sequence; (segments, n), -1 for none
  void* scores;               // (segments, n)
  char* scratch;              // on a GPU, where kernels cannot allocate
  const int64_t* scratch_at;
};

LOD_KERNEL(ctc_beam, DType dtype, const CtcBeamArguments& a)

namespace kernels {

// How many prefixes there are of so many rows, if fewer than the beam holds; and the bytes that so many take.
LOD_EXPORT int64_t ctc_beam_width(int64_t beam, int64_t rows, int64_t classes);
LOD_EXPORT int64_t ctc_beam_bytes(int64_t rows, int64_t beam, int64_t classes);

}  // namespace kernels

}  // namespace lod
