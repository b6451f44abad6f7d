// Copies of rows: arguments and entries of rows.h.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/entry.h"
#include "torch_lod/lod_view.h"

namespace lod {

struct RunMap {  // out[r] = starts[s] + step * (r - offsets[s]) for the rows r of segment s
  const int64_t* starts;
  const int64_t* offsets;
  int64_t* out;
  int64_t segments, rows, step;
};

struct GatherRows {  // out[i, c] = values[map[i], c], or fill where map[i] is not a row of values
  const void* values;
  const int64_t* map;
  void* out;
  int64_t rows_in, rows_out, width, item;  // item: bytes of a word (device.h)
  unsigned char fill[16];
};

struct SumLists {  // out[i, c] = sum of values[order[j], c] over lists[i] <= j < lists[i + 1]
  const void* values;
  const int64_t* lists;
  const int64_t* order;
  void* out;
  int64_t rows_out, width;
  unsigned char fill[16];  // where a list is empty
};

struct Runs {  // row r of segment s goes with row starts[s] + step * (r - offsets[s]) elsewhere, step 1 or -1
  const int64_t* starts;
  const int64_t* offsets;
  int64_t segments, rows, step;
  LOD_FN int64_t elsewhere(int64_t s, int64_t r) const {
    const int64_t behind = wrapping_sub(r, offsets[s]);
    return step < 0 ? wrapping_sub(starts[s], behind) : wrapping_add(starts[s], behind);
  }
};
struct CopyRuns : Runs {  // gather: out[r] = values[there]; otherwise out[there] = values[r]
  const void* values;
  void* out;
  int64_t there, width, item;  // there: rows elsewhere
  bool gather;
  // On the CPU, for runs that do not meet: what lies between the run before and that of s is filled. The run before
  // ends at taken[s]; if null, runs are in the order of their segments.
  bool fills = false;
  const int64_t* taken = nullptr;
  unsigned char fill[16] = {};
};
struct JoinRuns {  // segment s of out: the rows of segment s of values, then those of segment s of others
  const int64_t *offsets, *own, *other;
  int64_t segments, rows;
  const void *values, *others;
  void* out;
  int64_t rows_in, others_in, width, item;
};

struct Windows : LoDView {  // row r sees the rows r + start + j * dilation of its segment, 0 <= j < size
  int64_t size, start, dilation;
};
struct UnfoldRows : Windows {  // out[r, j] = values[there], or fill outside the segment
  const void* values;
  void* out;
  int64_t item;
  unsigned char fill[16];
};
struct FoldRows : Windows {  // out[there] = sum of values[r, j]
  const void* values;
  void* out;
};

LOD_KERNEL(run_map, const RunMap& a)
LOD_KERNEL(gather_rows, const GatherRows& a)
LOD_KERNEL(copy_runs, const CopyRuns& a)
LOD_KERNEL(join_runs, const JoinRuns& a)
LOD_KERNEL(unfold_rows, const UnfoldRows& a)
LOD_KERNEL(fold_rows, DType dtype, const FoldRows& a)
LOD_CPU_KERNEL(sum_lists, DType dtype, const SumLists& a)

}  // namespace lod
