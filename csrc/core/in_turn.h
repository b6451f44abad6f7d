// What scans carry along segments: on the CPU several segments at a time, on a GPU in blocks. Kernel text.
// SPDX-License-Identifier: Apache-2.0

#include "core/blocks.h"

namespace lod::LOD_LEVEL {

// What a scan carries: a sum of thousands of float32 in float64, as torch does.
template <class T>
using carried_t = std::conditional_t<std::is_same_v<T, float>, double, acc_t<T>>;

// Rows of one number, four segments at a time: what one carries does not wait for what another does. Calls
// carry(carried, row) for every row of a segment of up to `longest` rows, in its order, and alone(s) for others. Gives
// false where segments are so short that changing them would cost more.
template <class A, class F, class G>
bool side_by_side(const int64_t* offsets, int64_t first, int64_t last, bool backwards, A none, const F& carry,
                  int64_t longest, const G& alone) {
  constexpr int lanes = 4;
  if (offsets[last] - offsets[first] < 128 * (last - first)) return false;
  struct Lane {
    A carried;
    int64_t row, left;
  };
  Lane lane[lanes];
  const int64_t step = backwards ? -1 : 1;
  const auto filled = [&](Lane& l) LOD_INLINE {  // with the next segment, unless there is none
    for (; first < last; ++first) {
      const int64_t begin = offsets[first], end = offsets[first + 1];
      if (end - begin > longest) alone(first);
      else if (begin < end) return l = {none, backwards ? end - 1 : begin, end - begin}, ++first, true;
    }
    return false;
  };
  int used = 0;
  while (used < lanes && filled(lane[used])) ++used;
  while (used == lanes) {
    A carried[lanes];
    int64_t row[lanes], n = INT64_MAX;
    for (int u = 0; u < lanes; ++u) {
      carried[u] = lane[u].carried, row[u] = lane[u].row;
      if (lane[u].left < n) n = lane[u].left;
    }
    for (int64_t i = 0; i < n; ++i)
      for (int u = 0; u < lanes; ++u) carry(carried[u], row[u]), row[u] += step;
    for (int u = 0; u < lanes; ++u) lane[u] = {carried[u], row[u], lane[u].left - n};
    for (int u = 0; u < used;)
      if (lane[u].left == 0 && !filled(lane[u])) lane[u] = lane[--used];
      else ++u;
  }
  for (int u = 0; u < used; ++u)
    for (Lane l = lane[u]; l.left > 0; --l.left, l.row += step) carry(l.carried, l.row);
  return true;
}

// The same of one segment after the other, up to the first of more than `longest` rows, which it returns.
template <class A, class F>
LOD_APART int64_t in_turn(const int64_t* offsets, int64_t first, int64_t last, bool backwards, A none, F carry,
                          int64_t longest) {
  for (; first < last; ++first) {
    const int64_t begin = offsets[first], end = offsets[first + 1];
    if (end - begin > longest) break;
    A carried = none;
    if (backwards)
      for (int64_t row = end - 1; row >= begin; --row) carry(carried, row);
    else
      for (int64_t row = begin; row < end; ++row) carry(carried, row);
  }
  return first;
}
// The same, whatever their lengths.
template <class A, class F, class G>
bool each_carried(const int64_t* offsets, int64_t first, int64_t last, bool backwards, A none, const F& carry,
                  int64_t longest, const G& alone) {
  if (side_by_side(offsets, first, last, backwards, none, carry, longest, alone)) return true;
  while ((first = in_turn(offsets, first, last, backwards, none, carry, longest)) < last) alone(first++);
  return true;
}

// A kernel that carries something along a segment, in blocks: what a GPU does, where a thread that went along all of a
// long one would be waited for. Of one channel k says
//
//   Carried, nothing(), join(a, b)               what comes of some rows, of none, and of those of a before those of b
//   backwards()
//   read(s, i, c, first), take<kOut>(...)        element i, in the order of the rows; and goes on by it, with a result
//                                                if kOut. first: of the segment
template <class K>
struct InTurn {
  using Part = typename K::Carried;
  static constexpr int kPasses = 1;
  static constexpr bool kByRow = true;
  BlockView g;
  K k;
  LOD_FN bool backwards() const { return k.backwards(); }
  static LOD_FN Part nothing() { return K::nothing(); }
  template <int>
  static LOD_FN Part join(const Part& a, const Part& b) {
    return K::join(a, b);
  }
  template <bool kOut>
  LOD_FN void go(const Sequence& s, const Range& rows, int64_t c, Part& carried) const {
    const bool back = backwards();
    const int64_t first = (back ? s.end - 1 : s.begin) * g.width + c;
    const auto read = [&](int64_t i) { return k.read(s, i, c, i == first); };
    const auto take = [&](int64_t i, const auto& row) { k.template take<kOut>(i, row, i == first, carried); };
    in_order((back ? rows.end - 1 : rows.begin) * g.width + c, back ? -g.width : g.width, rows.length(), read, take);
  }
  template <int, int W>
  LOD_FN void block(const Sequence& s, const Range& rows, int64_t c, const Part (*)[W], Part* part) const {
    *part = nothing();
    go<false>(s, rows, c, *part);
  }
  template <int W>
  LOD_FN void start(const Sequence& s, const Range& rows, int64_t c, Part (*found)[W]) const {
    **found = nothing();
    go<true>(s, rows, c, **found);
  }
  template <int W>
  LOD_FN void finish(const Sequence& s, const Range& rows, int64_t c, Part (*found)[W]) const {
    go<true>(s, rows, c, **found);
  }
};
template <class A, class K>
void each_in_turn(const Exec& exec, const A& a, const K& kernel) {
  if constexpr (kOnGpu) each_in_blocks(exec, InTurn<K>{a, kernel});
  else each_segment(exec, a, kernel);
}

// A product of rows, which may have overflowed, or have become 0, without a row that is infinite or 0: then it leaves
// a 0, or what is infinite, as it is, as one row after the other would.
template <class A>
struct Product {
  A product;
  bool infinite, zero;  // or NaN
  static LOD_FN Product nothing() { return {A(1), false, false}; }
  LOD_FN void times(A x) {
    product *= x;
    infinite |= x - x != A(0), zero |= x == A(0);
  }
  static LOD_FN Product join(const Product& a, const Product& b) {
    A both = a.product * b.product;
    if (a.product == A(0) && b.product - b.product != A(0) && !b.infinite)
      both = b.product != b.product ? a.product : a.product / b.product;
    else if (a.product - a.product != A(0) && b.product == A(0) && !b.zero) both = a.product / b.product;
    return {both, a.infinite || b.infinite, a.zero || b.zero};
  }
};

// What rows make of what comes before them: value + through * before, or, of a row that cuts, value.
template <class A>
struct Affine {
  A through, value;
  bool cut;
  static LOD_FN Affine nothing() { return {A(1), -A(0), false}; }
  // A product of factors that is too small for a number leaves what is infinite or NaN as it is, and one that is too
  // large leaves 0.
  static LOD_FN Affine join(const Affine& a, const Affine& b) {
    A on = -A(0);
    if (!b.cut && a.value != A(0))
      on = b.through == A(0) && a.value - a.value != A(0) ? a.value / b.through : a.value * b.through;
    return {a.through * b.through, b.value + on, a.cut || b.cut};
  }
};
template <class T>
using affine_t = Affine<std::conditional_t<std::is_integral_v<T>, carried_t<T>, double>>;

}  // namespace lod::LOD_LEVEL
