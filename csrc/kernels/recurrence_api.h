// Steps of recurrences: arguments and entries of recurrence.h.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/entry.h"

namespace lod {

struct Step {
  const int64_t* start;
  int64_t alive, width, t, step;  // width: hidden units
  LOD_FN int64_t row(int64_t j) const { return start[j] + t * step; }
};
struct LstmForward : Step {
  void* gates;         // (rows, 4 width) in: the inputs' share; out: i, f, g, o after their nonlinearities
  const void* hidden;  // (alive, 4 width) the states' share, null when all states are zero
  void *out, *cells;   // (rows, width); out null: the outputs are projections of h
  void *h, *c;         // (alive, width) packed states
};
struct LstmBackward : Step {
  const void *gates, *cells, *c_0;      // c_0 packed, null for zeros
  const void *grad_out, *grad_cells;    // (rows, width), null for zeros
  void *grad_gates, *packed, *dh, *dc;  // packed: this step's rows of grad_gates side by side
};
struct GruForward : Step {
  const void* gates;   // (rows, 3 width) the inputs' share of r, z, n
  const void* hidden;  // (alive, 3 width) the states' share, null for zeros
  int64_t apart;       // from one row of it to the next; 0: one row for all
  const void* bias;    // (3 width) that of the states' share; null: none, or it is in that
  void* saved;         // (rows, 4 width) r, z, n and the states' share of n
  void *out, *h;
};
struct GruBackward : Step {
  const void *saved, *out, *h_0, *grad_out;
  void *grad_gates, *grad_hidden, *packed, *dh;
};
struct RnnForward : Step {
  const void* hidden;  // (alive, width), null when all states are zero
  void *out, *h;       // out in: the inputs' share
  bool relu;
};
struct RnnBackward : Step {
  const void *out, *grad_out;
  void *grad_gates, *packed, *dh;
  bool relu;
};
struct PreviousRows {  // map[r] = the row one step before r in its sequence, -1 at the first
  const int64_t* offsets;
  int64_t* map;
  int64_t segments, rows, step;
};

LOD_KERNEL(previous_rows, const PreviousRows& a)
LOD_KERNEL(lstm_forward, DType dtype, const LstmForward& a)
LOD_KERNEL(lstm_backward, DType dtype, const LstmBackward& a)
LOD_KERNEL(gru_forward, DType dtype, const GruForward& a)
LOD_KERNEL(gru_backward, DType dtype, const GruBackward& a)
LOD_KERNEL(rnn_forward, DType dtype, const RnnForward& a)
LOD_KERNEL(rnn_backward, DType dtype, const RnnBackward& a)

}  // namespace lod
