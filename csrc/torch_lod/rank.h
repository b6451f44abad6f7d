// Sequences by length, longest first and in their own order where equal: the plan of everything that goes step by step.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

namespace lod {

inline void rank_by_length(const int64_t* offsets, int64_t sequences, int64_t* order) {
  const auto length = [&](int64_t s) { return offsets[s + 1] - offsets[s]; };
  int64_t longest = 0;
  for (int64_t s = 0; s < sequences; ++s) longest = std::max(longest, length(s));
  if (longest > 4 * sequences + 1024) {
    std::iota(order, order + sequences, int64_t(0));
    std::stable_sort(order, order + sequences, [&](int64_t a, int64_t b) { return length(a) > length(b); });
    return;
  }
  // position[t]: how many sequences are longer than t - 1, which is where those of length t - 1 begin.
  std::vector<int64_t> position(longest + 2);
  for (int64_t s = 0; s < sequences; ++s) ++position[length(s)];
  for (int64_t t = longest; t >= 0; --t) position[t] += position[t + 1];
  for (int64_t s = 0; s < sequences; ++s) order[position[length(s) + 1]++] = s;
}

}  // namespace lod
