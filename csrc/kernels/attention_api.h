// Attention: arguments and entries of attention.h.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>

#include "kernels/entry.h"
#include "torch_lod/device.h"
#include "torch_lod/reducer.h"

namespace lod {

// The queries and keys of one sequence, and which see which. Positions count from the first of the sequence.
struct Pairs {
  Range queries, keys;
  int64_t left, right;  // -1: all
  const int64_t* ends;  // of every query, not decreasing: it sees keys before this; or null
  LOD_FN int64_t position(int64_t i) const { return i + keys.length() - queries.length(); }
  LOD_FN Range keys_of(int64_t i) const {
    const int64_t begin = left < 0 ? 0 : position(i) - left, end = right < 0 ? keys.length() : position(i) + right + 1;
    return within(begin, ends && ends[i] < end ? ends[i] : end, keys.length());
  }
  LOD_FN Range queries_of(int64_t j) const {
    const int64_t i = j - position(0), begin = right < 0 ? 0 : i - right, first = ends ? first_after(j) : 0;
    return within(first > begin ? first : begin, left < 0 ? queries.length() : i + left + 1, queries.length());
  }
  LOD_FN int64_t first_after(int64_t j) const {  // the first query whose end is behind j
    int64_t low = 0, high = queries.length();
    while (low < high) {
      const int64_t mid = low + (high - low) / 2;
      if (ends[mid] > j) high = mid;
      else low = mid + 1;
    }
    return low;
  }
  LOD_FN static Range within(int64_t begin, int64_t end, int64_t length) {
    begin = begin < 0 ? 0 : begin > length ? length : begin;
    return {begin, end < begin ? begin : end > length ? length : end};
  }
};

LOD_FN uint32_t mixed(uint32_t x) {  // the finalizer of MurmurHash3 (Appleby)
  x = (x ^ (x >> 16)) * 0x85ebca6bu;
  x = (x ^ (x >> 13)) * 0xc2b2ae35u;
  return x ^ (x >> 16);
}
// The keys that a query of one head keeps, and by which factor.
struct Kept {
  uint32_t start, cut;
  double factor;
  LOD_FN bool operator()(int64_t j) const { return mixed(start + uint32_t(j) * 0x9e3779b9u) >= cut; }
};

struct Attention {
  const void *query, *key, *value;  // (queries, heads, width), (keys, key_heads, width), (keys, key_heads, value_width)
  int64_t query_stride, key_stride, value_stride;  // elements from one row to the next
  const int64_t *query_offsets, *key_offsets;
  int64_t segments, queries, keys, heads, key_heads, width, value_width;
  double scale;
  int64_t left, right;
  const void* bias;  // (pairs, bias_heads) or null: one row for every query and key of a sequence, queries outermost
  const int64_t* pair_offsets;  // the first of a sequence
  int64_t pairs, bias_heads;    // 1: the same for all heads
  const void* slopes;           // (heads) in what is summed in, or null
  const int64_t* seed;          // its lower half counts; null: no dropout
  double dropout;
  double softcap = 0;               // 0: none
  const void* sink = nullptr;       // (heads) in what is summed in, or null
  const void* distances = nullptr;  // (heads, 2 most + 1) in what is summed in: by j - position(i); or null
  int64_t most = 0;
  const int64_t* key_ends = nullptr;  // (queries), or null

  LOD_FN Pairs of(int64_t s) const {
    const Range rows = rows_of(query_offsets, s, queries);
    return {rows, rows_of(key_offsets, s, keys), left, right, key_ends ? key_ends + rows.begin : nullptr};
  }
  // The entry of a table of distances from -most to most, for a key that is `ahead` of the query.
  LOD_FN static int64_t entry(int64_t h, int64_t ahead, int64_t most) {
    return h * (2 * most + 1) + most + (ahead < -most ? -most : ahead > most ? most : ahead);
  }
  LOD_FN int64_t key_head(int64_t h) const { return h / (heads / key_heads); }
  // Where the bias of a pair lies; -1 where offsets on a GPU that do not fit would lead outside.
  LOD_FN int64_t pair_at(const Pairs& pairs_, int64_t s, int64_t i, int64_t j, int64_t h) const {
    const int64_t at = wrapping_add(pair_offsets[s], i * pairs_.keys.length() + j);
    return at >= 0 && at < pairs ? at * bias_heads + (bias_heads > 1 ? h : 0) : -1;
  }
  LOD_FN Kept kept(int64_t row, int64_t h) const {  // where there is a seed
    const uint32_t start = mixed(uint32_t(*seed) ^ mixed(uint32_t(row * heads + h)));
    return {start, uint32_t(dropout * 4294967295.), dropout < 1 ? 1 / (1 - dropout) : 0};
  }
  // Elements that one of `items` touches, for sequences of average length.
  int64_t cost(int64_t items) const {
    const int64_t seen = segments ? keys / segments + 1 : 1;
    return queries * heads / std::max<int64_t>(1, items) * seen * (width + value_width) / 16 + 1;
  }
};
struct AttentionForward : Attention {
  void *out, *logsumexp;  // (queries, heads, value_width); (queries, heads) in what is summed in
};
struct AttentionBackward : Attention {
  const void *grad_out, *logsumexp, *delta;  // delta: dout . out, (queries, heads) in what is summed in
  void *grad_query, *grad_key, *grad_value;  // contiguous
  void *grad_bias, *grad_slopes;             // in what is summed in, zeros; (queries, heads), to be summed; or null
  void* grad_distances = nullptr;            // the same, (segments, heads, 2 reach + 1)
  int64_t reach = 0;                         // most, or less where no key is as far away
  void* grad_ends = nullptr;  // the same on a GPU, (queries, heads, 2): of distances from -reach down and from reach up
  // A bias that the heads share has one gradient: what writes it loops over all heads.
  LOD_FN int64_t heads_per_step() const { return grad_bias && bias_heads == 1 ? heads : 1; }
};

LOD_KERNEL(attention_forward, DType dtype, const AttentionForward& a)
LOD_KERNEL(attention_backward, DType dtype, const AttentionBackward& a)

}  // namespace lod
