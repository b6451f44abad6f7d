// Shape "segment", by order: which rows of a segment come first, separately for each element. Kernel source for the
// CPU, see torch_lod/device.h; on a GPU the binding sorts with torch.
// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <memory>
#include <utility>

#include "kernels/order_api.h"

namespace lod::LOD_LEVEL {

// Numbers as integers of the same order: -0.0 is 0.0, and all NaN are one above everything.
LOD_FN int32_t key_of(float x) {
  const auto bits = __builtin_bit_cast(int32_t, x + 0.f);
  return x != x ? INT32_MAX : bits ^ (bits >> 31 & INT32_MAX);
}
LOD_FN int64_t key_of(double x) {
  const auto bits = __builtin_bit_cast(int64_t, x + 0.);
  return x != x ? INT64_MAX : bits ^ (bits >> 63 & INT64_MAX);
}
LOD_FN int64_t key_of(int64_t x) { return x; }
template <class T>
LOD_FN int32_t key_of(T x) {
  if constexpr (std::is_integral_v<T>) return x;
  else return key_of(float(x));
}
template <class T>
using key_t = decltype(key_of(T()));

// A number and its place in the segment.
struct ShortEntry {
  uint64_t bits;
  LOD_FN ShortEntry() {}
  LOD_FN ShortEntry(int32_t key, int64_t place) : bits(uint64_t(uint32_t(key) ^ 0x80000000u) << 32 | uint64_t(place)) {}
  LOD_FN int64_t place() const { return int64_t(bits & 0xffffffffu); }
  LOD_FN int32_t key() const { return int32_t(uint32_t(bits >> 32) ^ 0x80000000u); }
  LOD_FN int digit(int byte) const { return int(bits >> (32 + 8 * byte) & 255); }
};
struct LongEntry {
  int64_t number, at;
  LOD_FN LongEntry() {}
  LOD_FN LongEntry(int64_t key, int64_t place) : number(key), at(place) {}
  LOD_FN int64_t place() const { return at; }
  LOD_FN int64_t key() const { return number; }
  LOD_FN int digit(int byte) const { return int((uint64_t(number) ^ uint64_t(1) << 63) >> (8 * byte) & 255); }
};

constexpr int kShort = 8;           // of a segment whose columns are ordered beside others
constexpr int kFewRows = 32;        // of one whose places are counted column by column
constexpr int64_t kMostTaken = 32;  // more of the first are taken from all in order
constexpr int64_t kColumns = 16;    // that a piece of work has

// Before how many of the numbers each one comes, equal ones in order: as many loops as numbers, each of vectors.
template <int kMost, class K>
LOD_FN void count_places(const K* keys, int n, K* place) {
  for (int i = 0; i < kMost; ++i) place[i] = 0;
  for (int j = 0; j < n; ++j) {
    const K key = keys[j];
    for (int i = 0; i < kMost; ++i) place[i] += K(key < keys[i]) | (K(key == keys[i]) & K(j < i));
  }
}

// Columns of short segments side by side, a lane each.
template <class K>
struct ShortColumns {
  static constexpr int kPart = LOD_LANES * 4 / int(sizeof(K)) < int(kColumns) ? LOD_LANES * 4 / sizeof(K) : kColumns;
  typedef K Keys __attribute__((vector_size(kPart * sizeof(K))));
  int64_t first[kColumns], at[kColumns];  // the first row, and where its number is
  K rows[kColumns];                       // how many there are, not 0
  int lanes = 0;

  // place[i][l]: behind how many rows of lane l its row i comes, equal ones in order; row[p][l], unless null: which row
  // has place p. number(i, l): that of row i, or of another where there is none.
  template <int kMost, class F>
  LOD_FN void order(const F& number, K flip, K (*place)[kColumns], K (*row)[kColumns]) const {
    K numbers[kMost][kColumns];
    for (int i = 0; i < kMost; ++i) {
      decltype(number(i, 0)) own[kColumns];
      for (int l = 0; l < kColumns; ++l) own[l] = number(i, l);
      for (int l = 0; l < kColumns; ++l) numbers[i][l] = K(key_of(own[l])) ^ flip;
    }
    for (int from = 0; from < kColumns; from += kPart) {
      Keys keys[kMost], places[kMost], n;
      std::memcpy(&n, rows + from, sizeof n);
      for (int i = 0; i < kMost; ++i) {
        std::memcpy(&keys[i], numbers[i] + from, sizeof n);
        keys[i] = n > K(i) ? keys[i] : Keys{} + std::numeric_limits<K>::max();
        places[i] = Keys{} + K(i);
      }
      for (int j = 1; j < kMost; ++j)
        for (int i = 0; i < j; ++i) {
          const auto before = keys[j] < keys[i];  // -1 where it is
          places[i] -= before;
          places[j] += before;
        }
      for (int i = 0; i < kMost; ++i) std::memcpy(place[i] + from, &places[i], sizeof n);
      for (int p = 0; row && p < kMost; ++p) {
        Keys which{};
        for (int i = 1; i < kMost; ++i) which = places[i] == K(p) ? Keys{} + K(i) : which;
        std::memcpy(row[p] + from, &which, sizeof n);
      }
    }
  }
};

// In order, in `entries` or `spare`, of n each: byte by byte, from the lowest one, each time with equal ones in order.
template <class E>
E* sorted(const Exec& exec, E* entries, E* spare, int64_t n) {
  constexpr int bytes = sizeof(E().key());
  int64_t counts[bytes][256] = {};
  for (int64_t i = 0; i < n; ++i)
    for (int byte = 0; byte < bytes; ++byte) ++counts[byte][entries[i].digit(byte)];
  for (int byte = 0; byte < bytes; ++byte) {
    int64_t* at = counts[byte];
    if (at[entries[0].digit(byte)] == n) continue;  // all the same
    for (int64_t digit = 0, begin = 0; digit < 256; ++digit) begin += std::exchange(at[digit], begin);
    for (int64_t i = 0; i < n; ++i) spare[at[entries[i].digit(byte)]++] = entries[i];
    std::swap(entries, spare);
    if (n >= kGrain) exec.pause();
  }
  return entries;
}

// Into a list of `count` entries with the new one in its place, behind equal ones; the last one before falls off.
template <class E>
LOD_FN void insert(E* entries, int64_t count, E e) {
  int64_t at = count - 1;
  for (; at > 0 && e.key() < entries[at - 1].key(); --at) entries[at] = entries[at - 1];
  entries[at] = e;
}

// Some columns of a share of the segments.
template <class T, class E>
class OrderWork {
 public:
  using K = decltype(E().key());

  OrderWork(const Exec& exec, const OrderArguments& a, int64_t first, int64_t last)
      : exec_(exec), a_(a), values_(static_cast<const T*>(a.values)), flip_(a.descending ? K(-1) : K(0)) {
    for (int64_t s = first; s < last; ++s) longest_ = std::max(longest_, a.offsets[s + 1] - a.offsets[s]);
    memory_.reset(new E[size_t(takes_few() ? kColumns * kMostTaken : 2 * longest_)]);
  }

  void segments(int64_t first, int64_t last, int64_t begin, int64_t end) const {  // columns
    ShortColumns<K> group;
    int64_t* out[kColumns];
    for (int64_t s = first; s < last; ++s) {
      const int64_t at = a_.offsets[s], n = a_.offsets[s + 1] - at;
      if (n == 0 || n > kShort) {
        segment(s, begin, end);
      } else if (end - begin == kColumns) {
        n <= 4 ? side_by_side<4>(s, begin) : side_by_side<8>(s, begin);
      } else {
        for (int64_t c = begin; c < end; ++c) {
          group.first[group.lanes] = at, group.at[group.lanes] = at * a_.width + c;
          group.rows[group.lanes] = K(n);
          out[group.lanes] = to(s, c);
          if (++group.lanes == kColumns) flush(group, out);
        }
      }
    }
    flush(group, out);
  }

 private:
  void segment(int64_t s, int64_t begin, int64_t end) const {
    const int64_t n = a_.offsets[s + 1] - a_.offsets[s];
    int64_t c = begin;
    if (n <= kFewRows) {
      for (; c < end; ++c) n <= 16 ? short_column<16>(s, c) : short_column<kFewRows>(s, c);
    } else if (!takes_few()) {
      for (; c < end; ++c) whole_column(s, c);
    } else {
      for (; c + kColumns <= end; c += kColumns) columns<kColumns>(s, c);
      for (; c + 4 <= end; c += 4) columns<4>(s, c);
      for (; c < end; ++c) column(s, c);
    }
  }
  bool takes_few() const { return a_.k >= 0 && a_.k <= kMostTaken; }
  LOD_FN K key(int64_t at) const { return K(key_of(values_[at])) ^ flip_; }
  int64_t* to(int64_t s, int64_t c) const { return a_.index + (a_.k < 0 ? a_.offsets[s] : s * a_.k) * a_.width + c; }

  // kColumns columns of one short segment.
  template <int kMost>
  void side_by_side(int64_t s, int64_t c) const {
    const int64_t first = a_.offsets[s], n = a_.offsets[s + 1] - first, count = a_.k < 0 ? n : a_.k;
    ShortColumns<K> columns;
    for (K& rows : columns.rows) rows = K(n);
    K place[kMost][kColumns], row[kMost][kColumns];
    const auto number = [&](int i, int l) LOD_INLINE { return values_[(first + (i < n ? i : 0)) * a_.width + c + l]; };
    columns.template order<kMost>(number, flip_, place, row);
    int64_t* out = to(s, c);
    for (int64_t p = 0; p < count; ++p, out += a_.width)
      for (int l = 0; l < kColumns; ++l) out[l] = p < n ? first + int64_t(row[p][l]) : -1;
  }
  // Those of several.
  void flush(ShortColumns<K>& group, int64_t* const* out) const {
    K longest = 0;
    for (int l = 0; l < group.lanes; ++l) longest = std::max(longest, group.rows[l]);
    for (int l = group.lanes; l < kColumns; ++l) group.at[l] = group.at[0], group.rows[l] = 1;
    if (longest > 4) flush_as<8>(group, out);
    else if (longest) flush_as<4>(group, out);
    group.lanes = 0;
  }
  template <int kMost>
  void flush_as(const ShortColumns<K>& group, int64_t* const* out) const {
    K place[kMost][kColumns];
    const auto number = [&](int i, int l) LOD_INLINE {
      return values_[group.at[l] + std::min<int64_t>(i, group.rows[l] - 1) * a_.width];
    };
    group.template order<kMost>(number, flip_, place, nullptr);
    int64_t behind;
    for (int l = 0; l < group.lanes; ++l) {
      const int64_t n = group.rows[l], count = a_.k < 0 ? n : a_.k;
      for (int64_t i = 0; i < n; ++i)
        *(place[i][l] < count ? out[l] + place[i][l] * a_.width : &behind) = group.first[l] + i;
      for (int64_t p = n; p < count; ++p) out[l][p * a_.width] = -1;
    }
  }
  template <int kMost>
  void short_column(int64_t s, int64_t c) const {
    const int64_t first = a_.offsets[s], n = a_.offsets[s + 1] - first, count = a_.k < 0 ? n : a_.k;
    K keys[kMost], place[kMost];
    for (int64_t i = 0; i < kMost; ++i) keys[i] = i < n ? key((first + i) * a_.width + c) : K(0);
    count_places<kMost>(keys, int(n), place);
    int64_t* out = to(s, c);
    int64_t behind;
    for (int64_t i = 0; i < n; ++i) *(place[i] < count ? out + place[i] * a_.width : &behind) = first + i;
    for (int64_t i = n; i < count; ++i) out[i * a_.width] = -1;
  }
  void whole_column(int64_t s, int64_t c) const {
    const int64_t first = a_.offsets[s], n = a_.offsets[s + 1] - first;
    E* entries = memory_.get();
    for (int64_t i = 0; i < n; ++i) entries[i] = E(key((first + i) * a_.width + c), i);
    write(s, c, sorted(exec_, entries, entries + longest_, n), n);
  }
  void write(int64_t s, int64_t c, const E* entries, int64_t n) const {
    const int64_t first = a_.offsets[s], count = a_.k < 0 ? n : a_.k;
    int64_t* out = to(s, c);
    for (int64_t i = 0; i < count; ++i) out[i * a_.width] = i < n ? first + entries[i].place() : -1;
  }
  // The first k of W columns: rows that are not before the last of those so far are passed over, W numbers at a time.
  template <int W>
  void columns(int64_t s, int64_t c) const {
    const int64_t first = a_.offsets[s], n = a_.offsets[s + 1] - first, k = a_.k;  // k <= n here
    E* entries = memory_.get();
    for (int64_t i = 0; i < k; ++i)
      for (int w = 0; w < W; ++w) insert(entries + w * kMostTaken, i + 1, E(key((first + i) * a_.width + c + w), i));
    K least[W];
    for (int w = 0; w < W; ++w) least[w] = entries[w * kMostTaken + k - 1].key();
    for (int64_t i = k; i < n; ++i) {
      const int64_t at = (first + i) * a_.width + c;
      K keys[W];
      int taken = 0;
      for (int w = 0; w < W; ++w) keys[w] = key(at + w), taken |= int(keys[w] < least[w]);
      if (!taken) continue;
      for (int w = 0; w < W; ++w)
        if (keys[w] < least[w]) {
          insert(entries + w * kMostTaken, k, E(keys[w], i));
          least[w] = entries[w * kMostTaken + k - 1].key();
        }
    }
    for (int w = 0; w < W; ++w) write(s, c + w, entries + w * kMostTaken, k);
  }
  // The same of one column, several rows at a time.
  void column(int64_t s, int64_t c) const {
    const int64_t first = a_.offsets[s], n = a_.offsets[s + 1] - first, k = a_.k, width = a_.width;
    E* entries = memory_.get();
    int64_t i = 0;
    for (; i < k; ++i) insert(entries, i + 1, E(key((first + i) * width + c), i));
    const auto offer = [&](K number) LOD_INLINE {
      if (number < entries[k - 1].key()) insert(entries, k, E(number, i));
    };
    constexpr int64_t rows = 16;
    while (width == 1 && i + rows <= n) {
      const K least = entries[k - 1].key();
      K keys[rows];
      int taken = 0;
      for (int64_t r = 0; r < rows; ++r) keys[r] = key(first + i + r), taken |= int(keys[r] < least);
      if (!taken) i += rows;
      else
        for (int64_t r = 0; r < rows; ++r, ++i) offer(keys[r]);
    }
    for (; i < n; ++i) offer(key((first + i) * width + c));
    write(s, c, entries, k);
  }

  const Exec& exec_;
  const OrderArguments& a_;
  const T* values_;
  K flip_;
  std::unique_ptr<E[]> memory_;
  int64_t longest_ = 0;
};

template <class T, class E>
struct OrderPiece {
  const Exec& exec;
  const OrderArguments& a;
  int64_t pieces, blocks;
  void operator()(int64_t i) const {
    const Pieces<OrderPiece> shares{*this, a.offsets, a.segments, a.rows, pieces};
    const int64_t first = shares.cut(i / blocks), last = shares.cut(i / blocks + 1), c = i % blocks * kColumns;
    if (first == last) return;
    const OrderWork<T, E> work(exec, a, first, last);
    work.segments(first, last, c, std::min(c + kColumns, a.width));
  }
};

template <class T, class E>
void order_as(const Exec& exec, const OrderArguments& a) {
  const int64_t blocks = (a.width + kColumns - 1) / kColumns, work = (a.rows + a.segments) * a.width / kGrain;
  const int64_t pieces = std::clamp<int64_t>(work, 1, 256);
  each(exec, pieces * blocks, kGrain, OrderPiece<T, E>{exec, a, pieces, blocks});
}

LOD_ENTRY void segment_order(const Exec& exec, DType dtype, const OrderArguments& a) {
  if (dtype == DType::i64) return order_as<int64_t, LongEntry>(exec, a);  // x86-64 without AVX compares no such vectors
  LOD_LOWER_LEVEL(segment_order(exec, dtype, a));
  visit_here(dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    if constexpr (sizeof(key_t<T>) == 8) {
      order_as<T, LongEntry>(exec, a);
    } else {
      if (a.rows >> 32) order_as<T, LongEntry>(exec, a);
      else order_as<T, ShortEntry>(exec, a);
    }
  });
}

}  // namespace lod::LOD_LEVEL
