// Rows of tags, of which the chains of kernels/chain.h are recursions: by one thread, and by a block with a thread for
// each tag. Kernel source, included for each level. SPDX-License-Identifier: Apache-2.0

namespace lod::LOD_LEVEL {

// Sums below this may have lost what counts.
template <class A>
constexpr A kFaint = std::is_same_v<A, double> ? A(1e-200) : A(1e-20);
template <class A>
constexpr A kNever = -std::numeric_limits<A>::infinity();

// y[j] = sum over i < n of x[i] w[i, j]
template <int W, class A>
LOD_FN void chain_columns(const A* x, const A* w, int64_t n, int64_t padded, A* y) {
  A even[W], odd[W];
  for (int k = 0; k < W; ++k) even[k] = odd[k] = A(0);
  int64_t i = 0;
  for (; i + 1 < n; i += 2)
    for (int k = 0; k < W; ++k) {
      even[k] += x[i] * w[i * padded + k];
      odd[k] += x[i + 1] * w[(i + 1) * padded + k];
    }
  for (; i < n; ++i)
    for (int k = 0; k < W; ++k) even[k] += x[i] * w[i * padded + k];
  for (int k = 0; k < W; ++k) y[k] = even[k] + odd[k];
}
template <class A>
LOD_FN void chain_times(const A* x, const A* w, int64_t n, int64_t padded, A* y) {
  int64_t c = 0;
  for (; c + 64 <= padded; c += 64) chain_columns<64>(x, w + c, n, padded, y + c);
  for (; c + 32 <= padded; c += 32) chain_columns<32>(x, w + c, n, padded, y + c);
  for (; c < padded; c += 16) chain_columns<16>(x, w + c, n, padded, y + c);
}
template <class F>
LOD_FN void chain_each(int64_t padded, const F& f) {
  for (int64_t c = 0; c < padded; c += 16)
    for (int k = 0; k < 16; ++k) f(c + k);
}

// The largest of `padded` numbers; NaN is not.
template <class A>
LOD_FN A chain_top(const A* a, int64_t padded) {
  A lane[16];
  for (int k = 0; k < 16; ++k) lane[k] = kNever<A>;
  for (int64_t c = 0; c < padded; c += 16)
    for (int k = 0; k < 16; ++k) lane[k] = a[c + k] > lane[k] ? a[c + k] : lane[k];
  for (int half = 8; half; half /= 2)
    for (int k = 0; k < half; ++k) lane[k] = lane[k + half] > lane[k] ? lane[k + half] : lane[k];
  return lane[0];
}

template <class A>
LOD_FN A chain_sum(const A* a, int64_t padded) {
  A lane[16];
  for (int k = 0; k < 16; ++k) lane[k] = A(0);
  for (int64_t c = 0; c < padded; c += 16)
    for (int k = 0; k < 16; ++k) lane[k] += a[c + k];
  for (int half = 8; half; half /= 2)
    for (int k = 0; k < half; ++k) lane[k] += lane[k + half];
  return lane[0];
}
// Whether logarithms may be taken of a sum, which is of a few numbers of at most 1 unless some entry is not finite.
template <class A>
LOD_FN bool chain_clear(A sum) {
  return (sum > kFaint<A>) & (sum < -kNever<A>);
}
// Whether any of `padded` sums is not clear.
template <class A>
LOD_FN bool chain_faint(const A* sum, int64_t padded) {
  int32_t lane[16], any = 0;
  for (int k = 0; k < 16; ++k) lane[k] = 0;
  for (int64_t c = 0; c < padded; c += 16)
    for (int k = 0; k < 16; ++k) lane[k] |= int32_t(!chain_clear(sum[c + k]));
  for (int k = 0; k < 16; ++k) any |= lane[k];
  return any;
}

// The largest of n numbers, the logarithm of the sum of their exponentials above it, by which it is -inf where all are.
template <class A, class F>
LOD_FN A chain_logsumexp_of(int64_t n, const F& f) {
  A top = kNever<A>, sum = A(0);
  for (int64_t i = 0; i < n; ++i) {
    const A v = f(i);
    top = v > top || v != v ? v : top;
  }
  if (top == kNever<A> || top == -kNever<A>) return top;
  for (int64_t i = 0; i < n; ++i) sum += exp_below(f(i) - top);
  return top + log_above(sum);
}

// What the recursions have for every tag, column by column. One thread has all columns, filled up to `padded`, in loops
// that become vector code; of a block of threads each has one, and all share the weights and a row of their numbers.
//
//   now(j)        of the row that is worked on: a score, or a posterior
//   emission(j)   of the row that was read last
//   sum(j)        over the tags before, each times its weight; next(j) over the tags behind
//   last(i)       now(i) of the row that was last made relative; before(i) the same, while now(i) is replaced
template <class T, class Block>
struct ChainTags;

template <class T>
struct ChainTags<T, OneThread> {
  using A = acc_t<T>;
  static constexpr bool leads = true;
  const int64_t n, padded;
  const A* const weights;
  A *const a, *const p, *const sums, *const more, *const following;
  const T* e = nullptr;

  LOD_FN ChainTags(OneThread&, const Chain& g, const void* matrix, A* own)
      : n(g.width),
        padded(g.padded),
        weights(static_cast<const A*>(matrix)),
        a(own),
        p(a + padded),
        sums(p + padded),
        more(sums + padded),
        following(more + padded) {}
  LOD_FN A& now(int64_t j) { return a[j]; }
  LOD_FN A& next(int64_t j) { return following[j]; }
  LOD_FN A sum(int64_t j) const { return sums[j]; }
  LOD_FN A last(int64_t i) const { return a[i]; }
  LOD_FN A before(int64_t i) const { return more[i]; }
  LOD_FN A emission(int64_t j) const { return A(e[j]); }
  LOD_FN void read(const T* row) { e = row; }
  LOD_FN void sync() const {}

  template <class F>
  LOD_FN void each(const F& f) const {
    chain_each(padded, f);
  }
  template <class F>
  LOD_FN void each_tag(const F& f) const {
    for (int64_t j = 0; j < n; ++j) f(j);
  }
  template <class F>
  LOD_FN void each_entry(const F& f) const {  // (tags, padded)
    for (int64_t k = 0; k < n * padded; ++k) f(k);
  }
  LOD_FN void fill(A with) const {
    for (int64_t j = n; j < padded; ++j) a[j] = with;
  }
  // Brings a row to its largest entry, which is returned.
  LOD_FN A relative() const {
    const A top = chain_top(a, padded);
    if (top != kNever<A>) chain_each(padded, [&](int64_t j) { a[j] -= top; });
    return top;
  }
  // Makes the sums of a row's exponentials; whether any of them is not clear.
  LOD_FN bool forwards() const {
    chain_each(padded, [&](int64_t j) { p[j] = exp_below(a[j]); });
    chain_times(p, weights, n, padded, sums);
    const bool faint = chain_faint(sums, padded);
    if (faint)
      for (int64_t j = 0; j < n; ++j) more[j] = a[j];
    return faint;
  }
  // The exponentials of a row that is kept.
  LOD_FN void exponentials(const A* row) const {
    for (int64_t i = 0; i < n; ++i) p[i] = row[i];
    for (int64_t i = n; i < padded; ++i) p[i] = kNever<A>;
    chain_each(padded, [&](int64_t i) { p[i] = exp_below(p[i]); });
  }
  // What the posteriors hand to the tags before, as next, and to the pairs of tags, as part. `turned`: the weights.
  LOD_FN bool backwards(const A* turned, A* part) const {
    chain_times(p, weights, n, padded, sums);
    const bool faint = chain_faint(sums, padded);
    chain_each(padded, [&](int64_t j) {
      const bool clear = chain_clear(sums[j]);
      more[j] = clear ? a[j] / (clear ? sums[j] : A(1)) : A(0);
    });
    chain_times(more, turned, n, padded, following);
    for (int64_t i = 0; i < n; ++i) add_row(part + i * padded, p[i], more);
    chain_each(padded, [&](int64_t i) { following[i] *= p[i]; });
    return faint;
  }
  // share(i, j, all, posterior of j) for all tags i before each tag j whose sum is not clear; its logarithm is
  // all = all_of(j).
  template <class All, class Share>
  LOD_FN void each_faint(const All& all_of, const Share& share) const {
    for (int64_t j = 0; j < n; ++j) {
      if (chain_clear(sums[j]) || a[j] == A(0)) continue;
      const A all = all_of(j);
      if (all == kNever<A>) continue;
      for (int64_t i = 0; i < n; ++i) share(i, j, all, a[j]);
    }
  }
  LOD_FN void add_row(A* to, A factor, const A* row) const {
    for (int64_t c = 0; c < padded; c += 16)
      for (int k = 0; k < 16; ++k) to[c + k] += factor * row[c + k];
  }
  LOD_FN A sum_of_next() const { return chain_sum(following, padded); }
};

// Rows of shared memory have an odd length, so that neither a row nor a column of them is in one bank.
template <class T, class Block>
struct ChainTags {
  using A = acc_t<T>;
  Block& block;
  const int n, stride, j;
  const bool in, leads;
  const Shared<A> weights, raw, p, ratio, lost;  // raw and p: of two rows
  Shared<A> tops;                                // of the warps
  int turn = 0;
  A own = A(0), emitted = A(0), total = A(0), behind = A(0), exponential = A(0), shift = A(0);

  LOD_FN ChainTags(Block& b, const Chain& g, const void* matrix, A*)
      : block(b),
        n(int(g.width)),
        stride(n | 1),
        j(b.thread()),
        in(j < n),
        leads(j == 0),
        weights(b.template take<A>(int64_t(n) * stride)),
        raw(b.template take<A>(2 * n)),
        p(b.template take<A>(2 * n)),
        ratio(b.template take<A>(n)),
        lost(b.template take<A>(2 * n)),
        tops(weights) {
    const auto* from = static_cast<const A*>(matrix);
    if (in)
      for (int i = 0; i < n; ++i) weights[i * stride + j] = from[i * g.padded + j];
  }
  LOD_FN A& now(int64_t) { return own; }
  LOD_FN A& next(int64_t) { return behind; }
  LOD_FN A sum(int64_t) const { return total; }
  LOD_FN A last(int64_t i) const { return raw[turn * n + int(i)] - shift; }
  LOD_FN A before(int64_t i) const { return last(i); }
  LOD_FN A emission(int64_t) const { return emitted; }
  LOD_FN void read(const T* row) {
    if (in) emitted = A(row[j]);
  }
  LOD_FN void sync() const { block.sync(); }

  template <class F>
  LOD_FN void each(const F& f) const {
    if (in) f(j);
  }
  template <class F>
  LOD_FN void each_tag(const F& f) const {
    if (in) f(j);
  }
  template <class F>
  LOD_FN void each_entry(const F& f) const {
    const int64_t padded = (n + 15) / 16 * 16;
    if (in)
      for (int i = 0; i < n; ++i) f(i * padded + j);
  }
  LOD_FN void fill(A) const {}
  // One barrier: the exponentials are of what is above the largest entry of the own warp.
  template <bool kExponentials = true>
  LOD_FN A relative() {
    turn ^= 1;
    const A of_warp = Block::warp_max(in ? own : kNever<A>, kNever<A>);
    if (in) {
      raw[turn * n + j] = own;
      if constexpr (kExponentials) p[turn * n + j] = exp_below(of_warp == kNever<A> ? own : own - of_warp);
    }
    tops = block.of_warps(of_warp);
    const A top = Block::largest(tops);
    shift = top == kNever<A> ? A(0) : top;
    own -= shift;
    return top;
  }
  LOD_FN bool forwards() {
    total = A(0);
    for (int begin = 0, warp = 0; begin < n; begin += 32, ++warp) {
      const A of_warp = tops[warp], some = product(p + turn * n, weights + j, stride, begin, begin + 32);
      total += some * (of_warp == kNever<A> ? A(0) : exp_below(of_warp - shift));
    }
    return in && !chain_clear(total);
  }
  // The best way to the own tag: now(j), and the first tag that it comes from.
  LOD_FN int best() {
    int from = 0;
    own = kNever<A>;
    for (int i = 0; in && i < n; ++i)
      if (const A v = last(i) + weights[i * stride + j]; v > own) own = v, from = i;
    return from;
  }
  LOD_FN void exponentials(const A* row) {
    turn ^= 1;
    if (in) p[turn * n + j] = exponential = exp_below(row[j]);
  }
  LOD_FN bool backwards(const A*, A* part) {
    total = product(p + turn * n, weights + j, stride, 0, n);
    const bool clear = !in || chain_clear(total);
    const A mine = clear ? own / total : A(0);
    if (in) ratio[j] = mine;
    const bool faint = block.any(!clear);
    behind = product(ratio, weights + j * stride, 1, 0, n) * exponential;
    const int64_t padded = (n + 15) / 16 * 16;
    if (in)
      for (int i = 0; i < n; ++i) part[i * padded + j] += p[turn * n + i] * mine;
    return faint;
  }
  template <class All, class Share>
  LOD_FN void each_faint(const All& all_of, const Share& share) {
    if (in) {
      lost[j] = chain_clear(total) || own == A(0) ? kNever<A> : all_of(j);
      lost[n + j] = own;
    }
    block.sync();
    for (int k = 0; in && k < n; ++k)
      if (const A all = lost[k]; all != kNever<A>) share(j, k, all, lost[n + k]);
  }
  LOD_FN A sum_of_next() { return block.sum(in ? behind : A(0)); }

  // The sum over i from `begin` on, of x[i] w[step i].
  LOD_FN A product(const Shared<A>& x, const Shared<A>& w, int step, int begin, int end) const {
    A even = A(0), odd = A(0);
    end = !in ? begin : end < n ? end : n;
    int i = begin;
    for (; i + 1 < end; i += 2) {
      even += x[i] * w[i * step];
      odd += x[i + 1] * w[(i + 1) * step];
    }
    if (i < end) even += x[i] * w[i * step];
    return even + odd;
  }
};
// On a CPU a copy for each sequence, which a compiler keeps in registers.
template <class Tags>
using ChainOwn = std::conditional_t<kOnGpu, Tags&, Tags>;

template <class T>
BlockShape chain_shape(const Chain& g, int64_t more = 0) {
  const int64_t n = g.width;
  return {n, (n * (n | 1) + 7 * n) * int64_t(sizeof(acc_t<T>)) + more};
}

}  // namespace lod::LOD_LEVEL
