// Reductions of a segment, a struct each: the empty value, and how a row joins. What a sum is divided by.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "torch_lod/device.h"

namespace lod {

// Rows that are joined before they join the rest of their segment; on a GPU, whose threads each wait for memory, fewer.
constexpr int64_t kBlock = 1024, kGpuBlock = 129;

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

struct Sum {
  static constexpr bool kOrders = false;
  template <class A> static LOD_FN A none() { return A(0); }
  template <class A> static LOD_FN A join(A a, A b) { return a + b; }
  template <class A> static LOD_FN A fast(A a, A b) { return a + b; }
};

struct Prod {
  static constexpr bool kOrders = false;
  template <class A> static LOD_FN A none() { return A(1); }
  template <class A> static LOD_FN A join(A a, A b) { return a * b; }
  template <class A> static LOD_FN A fast(A a, A b) { return a * b; }
};

// The lowest (highest) value that A has stands for nothing; nobody gets to see it, since empty segments take pad_value.
template <class A>
LOD_FN A lowest() {
  if constexpr (std::is_integral_v<A>) return A(INT64_MIN);
  else return -A(__builtin_huge_val());
}
// better(b, a): b replaces a. The first of equals stays; NaN beats everything and the first NaN stays.
// join(a, b): NaN stays NaN, whichever of several. fast(a, b): join in one instruction, but a NaN b may get lost.
// nan_of(a, b): b if it is NaN, else a.
template <class A>
LOD_FN A nan_of(A a, A b) {
  return b != b ? b : a;
}
struct Max {
  static constexpr bool kOrders = true;
  template <class A> static LOD_FN A none() { return lowest<A>(); }
  template <class A> static LOD_FN bool better(A b, A a) { return b > a || (b != b && a == a); }
  template <class A> static LOD_FN A fast(A a, A b) { return b > a ? b : a; }
  template <class A> static LOD_FN A join(A a, A b) { return nan_of(fast(a, b), b); }
};
struct Min {
  static constexpr bool kOrders = true;
  template <class A> static LOD_FN A none() { return std::is_integral_v<A> ? A(INT64_MAX) : -lowest<A>(); }
  template <class A> static LOD_FN bool better(A b, A a) { return b < a || (b != b && a == a); }
  template <class A> static LOD_FN A fast(A a, A b) { return b < a ? b : a; }
  template <class A> static LOD_FN A join(A a, A b) { return nan_of(fast(a, b), b); }
};

}  // namespace lod
