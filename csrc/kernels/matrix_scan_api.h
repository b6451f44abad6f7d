// Recurrences with a matrix as state: arguments and entries of matrix_scan.h.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/entry.h"
#include "torch_lod/device.h"

namespace lod {

// All tensors are contiguous, of one dtype, float32 or float64. A state is (keys, values), multiples of kMatrixLanes.
struct MatrixScan {
  const int64_t* offsets;
  int64_t segments, rows, heads, key_heads, keys, values;
  const void *query, *key, *value;  // (rows, key_heads, keys) both, (rows, heads, values)
  const void* decay;                // (rows, heads), or by_key (rows, heads, keys)
  const void* beta;                 // (rows, heads), or null: 1
  const void *a, *b;                // (rows, key_heads, keys) both, or null
  const void* initial;              // (segments, heads, keys, values), or null: 0
  bool by_key, delta;
  double scale;
};
struct MatrixScanForward : MatrixScan {
  void *out, *last;      // (rows, heads, values), (segments, heads, keys, values)
  void *reads, *states;  // for the backward, or null: b^T S of every row, and the saved states of every head
};
struct MatrixScanBackward : MatrixScan {
  const void *reads, *states;
  const void *grad_out, *grad_last;  // or null: 0
  // As what they are gradients of; those of query, key, decay, beta, a and b are zeros, to which is added.
  void *grad_query, *grad_key, *grad_value, *grad_decay, *grad_beta, *grad_a, *grad_b, *grad_initial;
};
constexpr int64_t kMatrixLanes = 16;
// From one saved state of a sequence to the next: together they are no larger than the values, and keys / 256 times as
// large where there are more than 256 keys. The state before its first row is not saved, so that the numbers of those
// in front of row r, r / matrix_block - 1, are distinct.
constexpr int64_t matrix_block(int64_t keys) { return keys < 64 ? 64 : keys > 256 ? 256 : keys; }

LOD_KERNEL(matrix_scan_forward, DType dtype, const MatrixScanForward& a)
LOD_KERNEL(matrix_scan_backward, DType dtype, const MatrixScanBackward& a)

}  // namespace lod
