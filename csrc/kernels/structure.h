// Structure in host memory: offsets, and the first rows and lengths of runs. Kernel source, see torch_lod/device.h. The
// functions that every gate needs are in torch_lod/launch.h. SPDX-License-Identifier: Apache-2.0

#include "kernels/structure_api.h"

namespace lod::LOD_LEVEL {

// The ends of n segments behind `before` rows, to to[1] and on; the longest.
inline int64_t append_offsets(const int64_t* from, int64_t* to, int64_t n, int64_t before) {
  int64_t longest = 0;
  for (int64_t i = 1; i <= n; ++i) {
    const int64_t end = from[i], step = end - from[i - 1];
    to[i] = before + end;
    longest = step > longest ? step : longest;
  }
  return longest;
}
// How runs lie among `there` rows elsewhere.
template <int kStep>
RunLayout layout_of(const int64_t* starts, const int64_t* cuts, int64_t n, int64_t there) {
  int64_t outside = 0, others = 0, falls = 0;
  const auto low = [=](int64_t s) LOD_INLINE {  // sums of what is far out of range wrap
    return kStep > 0 ? starts[s] : int64_t(uint64_t(starts[s]) - uint64_t(cuts[s + 1] - cuts[s] - 1));
  };
  for (int64_t s = 0; s < n; ++s) {
    const int64_t count = cuts[s + 1] - cuts[s], begin = low(s);
    outside |= int64_t(count != 0) & (int64_t(begin < 0) | int64_t(begin > there - count));
    others |= int64_t(count != 0) & int64_t(begin != cuts[s]);
  }
  for (int64_t s = 1; s < n; ++s)
    falls |= int64_t(low(s) < int64_t(uint64_t(low(s - 1)) + uint64_t(cuts[s] - cuts[s - 1])));
  return {!outside, !others, !falls};
}
inline RunLayout layout_of_runs(const int64_t* starts, const int64_t* cuts, int64_t n, int64_t step, int64_t there) {
  return step > 0 ? layout_of<1>(starts, cuts, n, there) : layout_of<-1>(starts, cuts, n, there);
}

// Whether runs of lengths[s] from starts[s] on lie within `elements` or, if there are offsets `within`, each within its
// own segment; and the longest.
inline IndexBounds bounds_of_runs(const int64_t* starts, const int64_t* lengths, const int64_t* within, int64_t n,
                                  int64_t elements) {
  int64_t outside = 0, longest = 0;
  const auto look = [&](int64_t s, int64_t room) LOD_INLINE {
    const int64_t count = lengths[s], begin = starts[s];
    outside |= int64_t(count < 0) | int64_t(count > room) | int64_t(begin < 0) |
               int64_t(begin > int64_t(uint64_t(room) - uint64_t(count)));
    longest = count > longest ? count : longest;
  };
  if (within)
    for (int64_t s = 0; s < n; ++s) look(s, within[s + 1] - within[s]);
  else
    for (int64_t s = 0; s < n; ++s) look(s, elements);
  return {!outside, longest};
}

// Runs of the first (or the last) `most` elements of segments, and all of shorter ones; the longest.
inline int64_t parts_of(const int64_t* within, int64_t* starts, int64_t* lengths, int64_t n, int64_t most, bool last) {
  int64_t longest = 0;
  for (int64_t s = 0; s < n; ++s) {
    const int64_t room = within[s + 1] - within[s], count = room < most ? room : most;
    lengths[s] = count;
    starts[s] = last ? room - count : 0;
    longest = count > longest ? count : longest;
  }
  return longest;
}

// Behind one another: run s of lengths[s] begins at firsts[s], which is starts[s], or as much into segment s of
// `within`; cuts[s] is where it ends if the first one begins at `sum`.
inline void lay_runs(const int64_t* starts, const int64_t* lengths, const int64_t* within, int64_t n, int64_t sum,
                     int64_t* firsts, int64_t* cuts) {
  if (within)
    for (int64_t s = 0; s < n; ++s) firsts[s] = starts[s] + within[s];
  else
    for (int64_t s = 0; s < n; ++s) firsts[s] = starts[s];
  for (int64_t s = 0; s < n; ++s) cuts[s] = sum += lengths[s];
}

// Positions in segments, `each` in every row of an index, as positions in all rows; -1 stays. Segment s has the rows of
// the index from cuts[s] on and those from within[s] on; `absolute` positions count all rows, but are in the segment as
// well. Whether all are.
inline bool locate(const int64_t* from, const int64_t* cuts, const int64_t* within, int64_t n, int64_t each,
                   bool absolute, int64_t* to) {
  int64_t outside = 0;
  for (int64_t s = 0; s < n; ++s) {
    const int64_t begin = within[s], room = within[s + 1] - begin, low = absolute ? begin : 0, step = begin - low;
    for (int64_t at = cuts[s] * each, last = cuts[s + 1] * each; at < last; at += kCopied) {
      const int64_t end = last - at < kCopied ? last : at + kCopied;
      std::memcpy(to + at, from + at, (end - at) * sizeof(int64_t));  // read once: the caller may write there
      for (int64_t i = at; i < end; ++i) {
        const int64_t p = to[i];
        outside |= int64_t(p != -1) & int64_t(uint64_t(p) - uint64_t(low) >= uint64_t(room));
        to[i] = p < 0 ? -1 : wrapping_add(p, step);
      }
    }
  }
  return !outside;
}

}  // namespace lod::LOD_LEVEL
