// Vectors of kCtcColumns elements, or on a GPU one, and probabilities m 2^e with an exponent of their own. Kernel
// source, included by ctc.h for each level.
// SPDX-License-Identifier: Apache-2.0

#ifndef LOD_SCALED_FLOATS
#define LOD_SCALED_FLOATS
#ifdef __GNUC__
#pragma GCC diagnostic ignored "-Wpsabi"  // vectors are passed between inlined functions only
#endif
namespace lod {

// How an exponent of its own goes with a mantissa. kNone, and everything below it, is that of zero.
template <class A>
struct CtcNumber;
template <>
struct CtcNumber<float> {
  using E = int32_t;
  using U = uint32_t;
  static constexpr int kBits = 23;
  static constexpr E kBias = 127, kNone = -(1 << 29);
  static constexpr float kLeast = -4e8f;  // of a logarithm; there a probability is 0, as its exponent is below kNone
};
template <>
struct CtcNumber<double> {
  using E = int64_t;
  using U = uint64_t;
  static constexpr int kBits = 52;
  static constexpr E kBias = 1023, kNone = -(E(1) << 59);
  static constexpr double kLeast = -4.2e17;
};

}  // namespace lod
#endif

namespace lod::LOD_LEVEL {

#ifdef LOD_LANES
constexpr int kCtcColumns = 16;
template <class X>
struct CtcVectorOf {
  typedef X type __attribute__((vector_size(kCtcColumns * sizeof(X))));
};
template <class X>
using CtcVector = typename CtcVectorOf<X>::type;
template <class To, class From>
LOD_FN To ctc_converted(const From& x) {
  if constexpr (std::is_arithmetic_v<To>) return To(x);
  else return __builtin_convertvector(x, To);
}
template <class V>
LOD_FN auto& ctc_lane(V& v, int k) {
  return v[k];
}
#else
constexpr int kCtcColumns = 1;
template <class X>
using CtcVector = X;
template <class To, class From>
LOD_FN To ctc_converted(const From& x) {
  return To(x);
}
template <class V>
LOD_FN V& ctc_lane(V& v, int) {
  return v;
}
#endif

template <class A>
using ctc_exponent = typename CtcNumber<A>::E;

template <class X>
LOD_FN CtcVector<X> ctc_load(const X* from) {
  if constexpr (kCtcColumns == 1) return *from;  // a copy of bytes may be at any address, and a GPU makes it one by one
  CtcVector<X> v;
  memcpy(&v, from, sizeof v);
  return v;
}
template <class X, class V>
LOD_FN void ctc_store(X* to, const V& v) {
  static_assert(sizeof v == kCtcColumns * sizeof(X));
  if constexpr (kCtcColumns == 1) *to = v;
  else memcpy(to, &v, sizeof v);
}
template <class A, class T>
LOD_FN CtcVector<A> ctc_load_as(const T* from) {
  if constexpr (std::is_same_v<A, T>) {
    return ctc_load(from);
  } else {
    A v[kCtcColumns];
    for (int k = 0; k < kCtcColumns; ++k) v[k] = A(from[k]);
    return ctc_load(v);
  }
}

// All lanes joined by f, halves first: the same order whatever the registers.
template <class X, class F>
LOD_FN X ctc_joined(const CtcVector<X>& v, const F& f) {
  X part[kCtcColumns];
  memcpy(part, &v, sizeof v);
  for (int half = kCtcColumns / 2; half > 0; half /= 2)
    for (int k = 0; k < half; ++k) part[k] = f(part[k], part[k + half]);
  return part[0];
}
template <class X>
LOD_FN X ctc_sum(const CtcVector<X>& v) {
  return ctc_joined<X>(v, [](X a, X b) { return a + b; });
}
template <class X>
LOD_FN X ctc_largest(const CtcVector<X>& v) {
  return ctc_joined<X>(v, [](X a, X b) { return b > a ? b : a; });
}

// A vector, or one number, of probabilities m 2^e.
template <class V, class I>
struct CtcWide {
  V m;
  I e;
};

// 2^d, and 0 for what is too small beside 1.
template <class A, class I>
LOD_FN auto ctc_power(const I& of) {
  using N = CtcNumber<A>;
  I d = of;
  const I low = I{} - N::kBias, high = I{} + N::kBias;
  d = d < low ? low : d;
  d = d > high ? high : d;
  const I bits = (d + N::kBias) << N::kBits;
  if constexpr (sizeof(I) == sizeof(A)) return __builtin_bit_cast(A, bits);
  else return __builtin_bit_cast(CtcVector<A>, bits);
}

// v 2^e with 1 <= m < 2, or zero.
template <class A, class V, class I>
LOD_FN CtcWide<V, I> ctc_normal(const V& v, const I& e) {
  using N = CtcNumber<A>;
  using E = typename N::E;
  const I bits = __builtin_bit_cast(I, v), sum = e + (bits >> N::kBits) - N::kBias;
  const V whole = __builtin_bit_cast(V, (bits & ((E(1) << N::kBits) - 1)) | (N::kBias << N::kBits));
  const I none = I{} + N::kNone;
  const V m = sum < none ? V{} : v == V{} ? V{} : whole;
  return {m, m == V{} ? none : sum};
}

// a + b, with the exponent of the larger; the sum is not normal.
template <class A, class V, class I>
LOD_FN CtcWide<V, I> ctc_add(const CtcWide<V, I>& a, const CtcWide<V, I>& b) {
  const I high = a.e > b.e ? a.e : b.e;
  return {a.m * ctc_power<A>(a.e - high) + b.m * ctc_power<A>(b.e - high), high};
}

// e^y for y <= 0 (NaN stays), with m in [0.6, 1.7].
template <class A, class I, class V>
LOD_FN CtcWide<V, I> ctc_exp(const V& y) {
  using N = CtcNumber<A>;
  constexpr A low = std::is_same_v<A, double> ? A(-2.121944400546905827679e-4) : A(kLog2Low);
  constexpr double taylor[] = {1. / 6227020800, 1. / 479001600, 1. / 39916800, 1. / 3628800, 1. / 362880, 1. / 40320,
                               1. / 5040,       1. / 720,       1. / 120,      1. / 24,      1. / 6,      1. / 2,
                               1,               1};
  constexpr float minimax[] = {kExp[0], kExp[1], kExp[2], kExp[3], kExp[4], kExp[5], kExp[6]};  // a GPU has no kExp
  const V least = V{} + N::kLeast, half = V{} + A(0.5);
  V r = y < least ? least : y;
  const I e = ctc_converted<I>(r * A(1.4426950408889634) - A(0.5));
  const V n = ctc_converted<V>(e);
  r = (r - n * A(kLog2High)) - n * low;
  r = r > half ? half : r;
  r = r < -half ? -half : r;
  V p = V{} + (std::is_same_v<A, double> ? A(taylor[0]) : A(minimax[0]));
  if constexpr (std::is_same_v<A, double>)
    for (int i = 1; i < 14; ++i) p = p * r + A(taylor[i]);
  else
    for (int i = 1; i < 7; ++i) p = p * r + A(minimax[i]);
  return {p, e};
}

// The largest of a row, and the sum of e^(x - top); false where the softmax is none. kept: the terms.
template <class T, class A>
LOD_FN bool ctc_softmax(const T* x, int64_t classes, A& top, A& sum, A* kept) {
  constexpr int W = kCtcColumns;
  using V = CtcVector<A>;
  using I = CtcVector<ctc_exponent<A>>;
  const int64_t whole = classes / W * W;
  const int left = int(classes - whole);
  // the classes that are left, in the last lanes; a row of fewer than W fills up with -inf
  V last = V{} - A(INFINITY), most = last, total = V{};
  if (classes >= W) last = ctc_load_as<A>(x + classes - W);
  else
    for (int k = W - left; k < W; ++k) ctc_lane(last, k) = A(x[k - (W - left)]);
  const auto exp = [&](const V& v) LOD_INLINE {
    const auto e = ctc_exp<A, I>(v - top);
    return e.m * ctc_power<A>(e.e);
  };
  for (int64_t c = 0; c < whole; c += W) {
    const V v = ctc_load_as<A>(x + c);
    most = v > most ? v : most;
  }
  most = last > most ? last : most;
  top = ctc_largest<A>(most);
  for (int64_t c = 0; c < whole; c += W) {
    const V e = exp(ctc_load_as<A>(x + c));
    total += e;
    if (kept) ctc_store(kept + c, e);
  }
  if (left) {
    const V e = exp(last);
    I lane;
    for (int k = 0; k < W; ++k) ctc_lane(lane, k) = k;
    total += lane < I{} + (W - left) ? V{} : e;
    if (kept && classes >= W) ctc_store(kept + classes - W, e);
    else if (kept)
      for (int k = W - left; k < W; ++k) kept[k - (W - left)] = ctc_lane(e, k);
  }
  sum = ctc_sum<A>(total);
  return sum >= A(1) && sum <= A(classes) * A(2);
}

}  // namespace lod::LOD_LEVEL
