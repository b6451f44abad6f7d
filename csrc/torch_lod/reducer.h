// What a reduction orders by, a struct each, and what a sum is divided by.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "torch_lod/device.h"

namespace lod {

// On a CPU, rows that are combined before they join the rest of their segment.
constexpr int64_t kBlock = 1024;

enum class Reduce { sum, mean, sqrt, prod, max, min, first, last };

enum class Share { all, length, root };  // of a sum: itself, divided by the length, or by its root

LOD_FN Share share_by(Reduce reduce) {
  return reduce == Reduce::mean ? Share::length : reduce == Reduce::sqrt ? Share::root : Share::all;
}
template <class A>
LOD_FN A divisor(Share share, int64_t length) {
  if (share == Share::all) return 1;
  return share == Share::root ? A(::sqrt(double(length))) : A(length);
}
template <class A>
LOD_FN A share_of(Share share, A total, int64_t length) {
  if (share == Share::all) return total;
  return total / divisor<A>(share, length);
}

// The lowest (highest) value that A has is that of no rows; it is never a result, since empty segments take pad_value.
template <class A>
LOD_FN A lowest() {
  if constexpr (std::is_integral_v<A>) return A(INT64_MIN);
  else return -A(__builtin_huge_val());
}
// better(b, a): b replaces a. The first of equals stays; NaN beats everything and the first NaN stays.
// fast(a, b): the better one in one instruction, but a NaN b may get lost.
// nan_of(a, b): b if it is NaN, else a.
template <class A>
LOD_FN A nan_of(A a, A b) {
  return b != b ? b : a;
}
struct Max {
  template <class A> static LOD_FN A none() { return lowest<A>(); }
  template <class A> static LOD_FN bool better(A b, A a) { return !(b <= a) & (a == a); }
  template <class A> static LOD_FN A fast(A a, A b) { return LOD_UNFORESEEN(b > a) ? b : a; }
};
struct Min {
  template <class A> static LOD_FN A none() { return std::is_integral_v<A> ? A(INT64_MAX) : -lowest<A>(); }
  template <class A> static LOD_FN bool better(A b, A a) { return !(b >= a) & (a == a); }
  template <class A> static LOD_FN A fast(A a, A b) { return LOD_UNFORESEEN(b < a) ? b : a; }
};

}  // namespace lod
