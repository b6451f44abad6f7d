// Reductions of a segment, a struct each: the empty value, how a row joins, and what the length does to the result.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/device.h"

namespace lod {

enum class Reduce { sum, mean, sqrt, max, min, first, last };

template <class A>
LOD_FN A root_of(int64_t length) {
  return A(::sqrt(double(length)));
}

struct Sum {
  template <class A> static LOD_FN A none() { return A(0); }
  template <class A> static LOD_FN A join(A a, A b) { return a + b; }
  template <class A> static LOD_FN A finish(A a, int64_t) { return a; }
};
struct Mean : Sum {
  template <class A> static LOD_FN A finish(A a, int64_t length) { return a / A(length); }
};
struct Sqrt : Sum {
  template <class A> static LOD_FN A finish(A a, int64_t length) { return a / root_of<A>(length); }
};

// The lowest (highest) value that A has stands for nothing; finish never sees it, since empty segments take pad_value.
template <class A>
LOD_FN A lowest() {
  if constexpr (std::is_integral_v<A>) return A(INT64_MIN);
  else return -A(__builtin_huge_val());
}
// better(b, a): b takes a's place. The first of equals stays; NaN beats everything and the first NaN stays.
// join needs no more than that a NaN stays NaN, and is two instructions and a comparison; A may be a vector.
// larger (smaller) is one instruction, and drops a NaN b.
struct Max {
  template <class A> static LOD_FN A none() { return lowest<A>(); }
  template <class A> static LOD_FN bool better(A b, A a) { return b > a || (b != b && a == a); }
  template <class A> static LOD_FN A larger(A a, A b) { return b > a ? b : a; }
  template <class A> static LOD_FN A join(A a, A b) { return b != b ? b : larger(a, b); }
  template <class A> static LOD_FN A finish(A a, int64_t) { return a; }
};
struct Min {
  template <class A> static LOD_FN A none() { return std::is_integral_v<A> ? A(INT64_MAX) : -lowest<A>(); }
  template <class A> static LOD_FN bool better(A b, A a) { return b < a || (b != b && a == a); }
  template <class A> static LOD_FN A smaller(A a, A b) { return b < a ? b : a; }
  template <class A> static LOD_FN A join(A a, A b) { return b != b ? b : smaller(a, b); }
  template <class A> static LOD_FN A finish(A a, int64_t) { return a; }
};

}  // namespace lod
