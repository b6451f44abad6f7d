// Faults of structure on a GPU: arguments and entries of faults.h.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/entry.h"
#include "torch_lod/device.h"

namespace lod {

struct Finding {
  enum What : int64_t { nothing, start, order, end, row, run, label, count, told } what;
  int64_t index, before, here;
};

// Structure, and the rule that it has to keep.
struct Watched {
  // cuts: offsets of `rows` rows. maps: -1 to rows - 1. runs: along `offsets`, which cut `own` rows (-1: known to),
  // with the step `option`, within `rows` rows. labels: below `rows`, other than `option`. counts: the last is `rows`.
  // truths: every entry is 0.
  enum Rule : int64_t { cuts, maps, runs, labels, counts, truths } rule;
  const int64_t *structure, *offsets;
  int64_t entries, rows, own, option;

  LOD_FN static Finding cut(const int64_t* offsets, int64_t i, int64_t entries, int64_t rows) {
    const int64_t here = offsets[i];
    if (i == 0 && here != 0) return {Finding::start, i, 0, here};
    if (i > 0 && here < offsets[i - 1]) return {Finding::order, i, offsets[i - 1], here};
    if (i + 1 == entries && rows >= 0 && here != rows) return {Finding::end, i, rows, here};
    return {Finding::nothing, 0, 0, 0};
  }
  LOD_FN Finding look(int64_t i) const {
    if (rule == runs) return run(i);  // which have one entry less than there are offsets
    const int64_t here = structure[i];
    switch (rule) {
      case cuts: return cut(structure, i, entries, rows);
      case maps: return unless(here >= -1 && here < rows, {Finding::row, i, 0, here});
      case labels: return unless(here >= 0 && here < rows && here != option, {Finding::label, i, 0, here});
      case counts: return unless(i + 1 < entries || here == rows, {Finding::count, i, rows, here});
      default: return unless(here == 0, {Finding::told, i, 0, here});
    }
  }

 private:
  LOD_FN static Finding unless(bool fine, const Finding& fault) {
    return fine ? Finding{Finding::nothing, 0, 0, 0} : fault;
  }
  LOD_FN Finding run(int64_t i) const {
    const Finding of_offsets = own < 0 ? unless(true, {}) : cut(offsets, i, entries, own);
    if (of_offsets.what != Finding::nothing || i + 1 >= entries) return of_offsets;
    const int64_t length = wrapping_sub(offsets[i + 1], offsets[i]), from = structure[i];
    if (length <= 0) return of_offsets;
    const bool up = from >= 0 && from <= rows && length <= rows - from, down = from >= length - 1 && from < rows;
    return unless(option > 0 ? up : down, {Finding::run, i, length, from});
  }
};

// In memory of the host that the GPU writes to: the first fault since the host last took one.
struct FaultRecord {
  uint64_t claimed, written;
  int64_t what, who, index, before, here, rows, option;
};
struct FindFaults : Watched {
  FaultRecord* record;
  int64_t who;  // a number that the host gave the operator and the names of its arguments
};

LOD_KERNEL(find_faults, const FindFaults& a)

}  // namespace lod
