// Segments of rows of floats in registers: the CPU's forms of the reductions and of softmax, here for rows narrower
// than a register, of which one takes several segments; core/wide_rows.h has the others. In the namespace of the level
// being compiled, where each_level.h defines LOD_LANES; kernel text includes it after core/blocks.h.
//
// The floats of a segment lie side by side, so a register takes kRows rows of it at once, and what is left of them is
// loaded and stored under a mask: nothing outside a segment is read, and there is hardly a branch that depends on
// lengths. Lane l sums its own rows; then the lanes of a segment are joined as a tree, together with those of its
// neighbours in the register. Which numbers meet in which order depends on the segment's own length alone. With an exec
// its threads share the blocks of a long segment.
// SPDX-License-Identifier: Apache-2.0

#include "core/registers.h"

namespace lod::LOD_LEVEL {

// Rows of `width` floats, each padded to P lanes where rows are joined.
template <int P>
struct Narrow {
  static constexpr int kRows = LOD_LANES / P;
  // Registers that are taken whether or not there are rows for them: a branch that fails costs more.
  static constexpr int kStraight = kRows >= 8 ? 1 : LOD_LANES == 16 && kRows == 1 ? 4 : 8 / kRows;
  Ints spread = {}, pack = {}, channel = {}, row = {};
  const Exec* exec;
  int64_t given;
  LOD_FN int64_t width() const { return P <= 2 ? P : given; }
  LOD_FN int64_t step() const { return kRows * width(); }  // floats that a register takes
  Narrow(const Exec* exec_, int64_t width_) : exec(exec_), given(width_) {
    for (int32_t r = 0, l = 0; r < kRows; ++r)
      for (int32_t c = 0; c < int32_t(width_); ++c, ++l)
        spread[r * P + c] = l, pack[l] = r * P + c, channel[l] = c, row[l] = r;
  }

  // Lane by lane, the rows of one segment joined: n floats at p.
  template <class R>
  LOD_FN Floats lanes(const float* p, int64_t n) const {
    if (__builtin_expect(n > kStraight * step(), 0))
      return n <= kBlock * width() ? block_lanes<R>(p, n, step())
                                   : long_lanes<R>(exec, p, n, kBlock * width(), step());
    const Floats none = all_lanes(R::template none<float>());
    Floats a = load(p, lanes_of(n), none);
    for (int i = 1; i < kStraight; ++i) a = join<R>(a, load(p + i * step(), lanes_of(n, i * step()), none));
    return a;
  }
  template <class R>
  __attribute__((noinline)) static Floats block_lanes(const float* p, int64_t n, int64_t step) {
    const Floats none = all_lanes(R::template none<float>());
    Floats part[4] = {none, none, none, none};
    int64_t i = 0;
    for (; i + 3 * step + LOD_LANES <= n; i += 4 * step)
      for (int u = 0; u < 4; ++u) part[u] = join<R>(part[u], load_first(p + i + u * step));
    for (; i < n; i += step) part[0] = join<R>(part[0], load(p + i, lanes_of(n - i < step ? n - i : step), none));
    return join<R>(join<R>(part[0], part[1]), join<R>(part[2], part[3]));
  }
  template <class R>
  __attribute__((noinline)) static Floats long_lanes(const Exec* exec, const float* p, int64_t n, int64_t size,
                                                     int64_t step) {
    return joined<join<R>>(exec, (n + size - 1) / size, size, [&](int64_t b) LOD_INLINE {
      return block_lanes<R>(p + b * size, n - b * size < size ? n - b * size : size, step);
    });
  }

  // The same as Slots with a register for each of the kRows segments of a group.
  struct Apart {
    static constexpr int kCount = kRows;
    const Narrow& of;
    const int64_t* cuts;
    LOD_FN int64_t floats(int j) const { return (cuts[j + 1] - cuts[j]) * of.width(); }
    LOD_FN Floats spread(Floats v, int j) const { return __builtin_shuffle(v, of.channel + j * P); }
    template <auto op, class F>
    LOD_FN auto over(const F& leaf) const {
      return trees<op, P, kRows>([&](int j) LOD_INLINE { return P == 1 ? leaf(j) : shuffled(leaf(j), of.spread); });
    }
    LOD_FN Floats load(const float* p, int j, Floats rest) const {
      return LOD_LEVEL::load(p + cuts[j] * of.width(), lanes_of(floats(j)), rest);
    }
    LOD_FN void store(float* p, int j, Floats v) const {
      LOD_LEVEL::store(p + cuts[j] * of.width(), lanes_of(floats(j)), v);
    }
  };
  // f of the group, where its segments are so short that registers take several, or (in_registers) one each.
  template <class F>
  LOD_FN bool in_slots(const int64_t* cuts, Ints lengths, const F& f) const {
#if LOD_LANES == 16
    if constexpr (P <= 2) {
      if (P == 1 && none_above(lengths, 4)) return f(Slots<P, 4>(cuts, lengths)), true;
      if (none_above(lengths, 8 / P)) return f(Slots<P, 8>(cuts, lengths)), true;
    }
#endif
    return false;
  }
  template <class F>
  LOD_FN bool in_registers(const int64_t* cuts, Ints lengths, const F& f) const {
    if (in_slots(cuts, lengths, f)) return true;
    if (kRows < 4 || !none_above(lengths, kRows)) return false;
    return f(Apart{*this, cuts}), true;
  }
  template <class R>
  LOD_FN void reduce(const float* values, const int64_t* cuts, int64_t count, Share share, float pad,
                     float* out) const {
    const Ints length = lengths_at<P>(cuts, LaneIndices{});
    const Floats none = all_lanes(R::template none<float>());
    Floats v;
    const auto few = [&](const auto& slots) LOD_INLINE {
      v = slots.template over<join<R>>([&](int j) LOD_INLINE { return slots.load(values, j, none); });
      v = join<R>(v, none);  // as where there are lanes without a row
    };
    if (!in_slots(cuts, length, few))
      v = Apart{*this, cuts}.template over<join<R>>([&](int k) LOD_INLINE {
        return lanes<R>(values + cuts[k] * width(), cuts[k + 1] * width() - cuts[k] * width());
      });
    Floats size = __builtin_convertvector(length, Floats);
    if (share == Share::root)
      for (int l = 0; l < LOD_LANES; ++l) size[l] = __builtin_sqrtf(size[l]);
    if (share != Share::all) v /= size;
    v = length == 0 ? all_lanes(pad) : v;
    store(out, lanes_of(count * width()), P == 1 ? v : __builtin_shuffle(v, pack));
  }
  // Calls f(cuts, s, count) for groups of kRows segments from s; the last may have fewer, `count`.
  template <class F>
  LOD_FN void each_group(const int64_t* offsets, int64_t first, int64_t last, const F& f) const {
    for (; first + LOD_LANES <= last; first += kRows) f(offsets + first, first, kRows);
    int64_t cuts[2 * LOD_LANES + 1];
    const int64_t left = last - first;
    for (int64_t i = 0; i <= 2 * LOD_LANES; ++i) cuts[i] = offsets[i < left ? first + i : last];
    for (int64_t i = 0; i < left; i += kRows) f(cuts + i, first + i, left - i < kRows ? left - i : kRows);
  }
  template <class R>
  void reduce_all(const float* values, const int64_t* offsets, int64_t first, int64_t last, Share share, float pad,
                  float* out) const {
    each_group(offsets, first, last, [&](const int64_t* cuts, int64_t s, int64_t count) LOD_INLINE {
      reduce<R>(values, cuts, count, share, pad, out + s * width());
    });
  }

  LOD_FN Found found(const float* p, int64_t n, Ints flip) const {
    const auto rows_from = [&](int64_t i) LOD_INLINE {
      const int64_t left = n - i * step(), some = left < 0 ? 0 : left < step() ? left : step();
      const Ints at = row + int32_t(i * kRows);
      const Floats v = load(p + i * step(), lanes_of(some), Floats(Ints(all_lanes(lowest<float>())) ^ flip));
      return Found{Floats(Ints(v) ^ flip), at < int32_t(n / width()) ? at : at | INT32_MAX};
    };
    const auto steps = [&](int64_t i, int64_t end) LOD_INLINE {
      Found best = rows_from(i);
      for (++i; i < end; ++i) best = better(best, rows_from(i));
      return best;
    };
    const int64_t all = (n + step() - 1) / step();
    if (__builtin_expect(!exec || all <= kBlock, 1)) return steps(0, all < kStraight ? kStraight : all);
    return joined<better>(exec, (all + kBlock - 1) / kBlock, kBlock * step(), [&](int64_t b) LOD_INLINE {
      return steps(b * kBlock, (b + 1) * kBlock < all ? (b + 1) * kBlock : all);
    });
  }
  // The first row that attains the maximum, and its number; with the sign bit as `flip` the minimum.
  void extreme_all(const float* values, const int64_t* offsets, int64_t first, int64_t last, int32_t flip, float pad,
                   float* out, int64_t* index) const {
    each_group(offsets, first, last, [&](const int64_t* cuts, int64_t s, int64_t count) LOD_INLINE {
      const Ints lengths = lengths_at<P>(cuts, LaneIndices{});
      const Floats none = Floats(Ints(all_lanes(lowest<float>())) ^ flip);
      Found best;
      const auto few = [&](const auto& slots) LOD_INLINE {
        best = slots.template over<better>([&](int j) LOD_INLINE {
          return Found{Floats(Ints(slots.load(values, j, none)) ^ flip), slots.rows(j)};
        });
      };
      if (!in_slots(cuts, lengths, few))
        best = Apart{*this, cuts}.template over<better>([&](int k) LOD_INLINE {
          return found(values + cuts[k] * width(), cuts[k + 1] * width() - cuts[k] * width(), Ints{} + flip);
        });
      const Floats v = lengths == 0 ? all_lanes(pad) : Floats(Ints(best.v) ^ flip);
      store(out + s * width(), lanes_of(count * width()), shuffled(v, pack));
      int32_t rows[LOD_LANES];
      std::memcpy(rows, &best.row, sizeof rows);
      for (int64_t k = 0, i = s * width(); k < count; ++k)
        for (int64_t c = 0; c < width(); ++c, ++i) index[i] = cuts[k] < cuts[k + 1] ? cuts[k] + rows[k * P + c] : -1;
    });
  }

  // For softmax lanes stay as they are in memory. Every lane: v of the lanes of its channel, joined.
  template <Floats (*op)(Floats, Floats)>
  LOD_FN Floats over_rows(Floats v) const {
    if constexpr (P == 1) return across<op, P>(v);
    else return __builtin_shuffle(across<op, P>(__builtin_shuffle(v, spread)), channel);
  }
  // f(begin, end) of blocks of kBlock steps of [0, end), joined; end > 0.
  template <auto op, class F>
  LOD_FN auto join_blocks(int64_t end, const F& f) const {
    const int64_t size = kBlock * step();
    if (end <= size) return f(0, end);
    return joined<op>(exec, (end + size - 1) / size, size, [&](int64_t b) LOD_INLINE {
      return f(b * size, (b + 1) * size < end ? (b + 1) * size : end);
    });
  }
  // The sum of f(i) over the steps i of [0, end).
  template <class F>
  LOD_FN Floats sum_steps(int64_t end, const F& f) const {
    if (end == 0) return Floats{};
    return join_blocks<join<Sum>>(end, [&](int64_t i, int64_t stop) LOD_INLINE {
      Floats part{};
      for (; i < stop; i += step()) part += f(i);
      return part;
    });
  }
  // The same without a sum.
  template <class F>
  LOD_FN void each_step(int64_t end, const F& f) const {
    if (__builtin_expect(!exec, 1)) {
      for (int64_t i = 0; i < end; i += step()) f(i);
    } else {
      each(*exec, end / step(), step(), [&](int64_t i) { f(i * step()); });
    }
  }
  // The largest of the n floats of one segment, channel by channel: all steps but the last, then the last.
  LOD_FN Floats top_of(const float* x, int64_t last, Floats tail) const {
    if (last == 0) return over_rows<larger>(tail);
    const Floats none = all_lanes(lowest<float>());
    const Floats top = join_blocks<larger>(last, [&](int64_t i, int64_t end) LOD_INLINE {
      Floats most = none;
      for (; i < end; i += step()) most = larger(most, load(x + i, lanes_of(step()), none));
      return most;
    });
    return over_rows<larger>(larger(tail, top));
  }
  LOD_FN int64_t last_step(int64_t n) const { return n > step() ? (n - 1) / step() * step() : 0; }

  // The n floats of one segment; the last step, often the only one, stays in registers throughout. kLog: the logarithm.
  template <bool kLog>
  LOD_FN void softmax(const float* x, int64_t n, float* y) const {
    const Floats none = all_lanes(lowest<float>());
    const int64_t last = last_step(n);
    const Mask full = lanes_of(step()), mask = lanes_of(n - last);
    const Floats tail = load(x + last, mask, none), top = top_of(x, last, tail);
    const Floats total = sum_steps(last, [&](int64_t i) {
      const Floats e = exp_lanes(load(x + i, full, none) - top);
      if constexpr (!kLog) store(y + i, full, e);
      return e;
    });
    const Floats e = exp_lanes(tail - top), sum = over_rows<join<Sum>>(total + e);
    if constexpr (kLog) {
      const Floats shift = log_lanes(sum);
      each_step(last, [&](int64_t i) LOD_INLINE { store(y + i, full, (load(x + i, full, none) - top) - shift); });
      store(y + last, mask, (tail - top) - shift);
    } else {
      const Floats scale = 1.f / sum;
      each_step(last, [&](int64_t i) LOD_INLINE { store(y + i, full, load(y + i, full, none) * scale); });
      store(y + last, mask, e * scale);
    }
  }
  // Of a group that registers take whole the largest, what the others are below it, and the sum of e^below. kMeet:
  // infinities meet as equals, so that their difference is not NaN.
  template <class G, bool kMeet>
  struct Terms {
    Floats below[G::kCount], e[G::kCount], top, sum;
    LOD_FN Terms(const G& group, const float* x) {
      const auto leaf = [&](int j) LOD_INLINE { return e[j]; };
      LOD_UNROLLED for (int j = 0; j < G::kCount; ++j) e[j] = group.load(x, j, all_lanes(lowest<float>()));
      top = group.template over<larger>(leaf);
      LOD_UNROLLED for (int j = 0; j < G::kCount; ++j) {
        const Floats own = group.spread(top, j);
        below[j] = kMeet && e[j] == own ? Floats{} : e[j] - own;
        e[j] = exp_lanes(below[j]);
      }
      sum = group.template over<join<Sum>>(leaf);
    }
  };
  template <bool kLog, class G>
  LOD_FN static void short_softmax(const G& group, const float* x, float* y) {
    const Terms<G, false> of(group, x);
    const Floats by = kLog ? log_lanes(of.sum) : 1.f / of.sum;
    LOD_UNROLLED for (int j = 0; j < G::kCount; ++j) {
      const Floats own = group.spread(by, j);
      group.store(y, j, kLog ? of.below[j] - own : of.e[j] * own);
    }
  }
  // Of kRows segments, none longer than a block, the largest and the sum of e^(x - largest), in lanes as trees leave
  // them; keep(i, mask, e) takes what is added. False if one is longer. kMeet as above.
  template <bool kMeet, class F>
  LOD_FN bool group_sums(const float* x, const int64_t* cuts, Floats& top, Floats& sum, const F& keep) const {
    const Floats none = all_lanes(lowest<float>());
    const Mask full = lanes_of(step());
    Floats lanes[kRows];
    const auto leaf = [&](int k) LOD_INLINE { return lanes[k]; };
    for (int k = 0; k < kRows; ++k) {
      const int64_t at = cuts[k] * width(), n = cuts[k + 1] * width() - at, last = last_step(n);
      if (n > kBlock * step()) return false;
      Floats most = load(x + at + last, lanes_of(n - last), none);
      for (int64_t i = at; i < at + last; i += step()) most = larger(most, load(x + i, full, none));
      lanes[k] = most;
    }
    top = Apart{*this, cuts}.template over<larger>(leaf);
    for (int k = 0; k < kRows; ++k) {
      const int64_t at = cuts[k] * width(), n = cuts[k + 1] * width() - at, last = last_step(n);
      const Floats own = __builtin_shuffle(top, channel + k * P);
      const auto e = [&](int64_t i, Mask mask) LOD_INLINE {
        const Floats v = load(x + i, mask, none);
        return keep(i, mask, exp_lanes(kMeet && v == own ? Floats{} : v - own));
      };
      Floats total{};
      for (int64_t i = at; i < at + last; i += step()) total += e(i, full);
      lanes[k] = total + e(at + last, lanes_of(n - last));
    }
    sum = Apart{*this, cuts}.template over<join<Sum>>(leaf);
    return true;
  }
  // kHeld: what is added is held in memory of the thread, where no register lies across two lines; otherwise, and where
  // there is no room for it, at the results' places.
  static constexpr int kRoom = 18 * kRows;  // registers
  template <bool kLog, bool kHeld>
  LOD_FN bool group_softmax(const float* x, const int64_t* cuts, float* y) const {
    Floats top, sum, held[kHeld ? kRoom : 1], *to = held;
    const auto keep = [&](int64_t i, Mask mask, Floats e) LOD_INLINE {
      if constexpr (kHeld) *to++ = e;
      else if constexpr (!kLog) store(y + i, mask, e);
      return e;
    };
    if (!group_sums<false>(x, cuts, top, sum, keep)) return false;
    const Floats by = kLog ? log_lanes(sum) : 1.f / sum, *kept = held;
    for (int k = 0; k < kRows; ++k) {
      const int64_t at = cuts[k] * width(), n = cuts[k + 1] * width() - at, last = last_step(n);
      const Floats own = __builtin_shuffle(by, channel + k * P), most = __builtin_shuffle(top, channel + k * P);
      const auto put = [&](int64_t i, Mask mask) LOD_INLINE {
        const Floats v = kHeld ? *kept++ : load((kLog ? x : y) + i, mask, Floats{});
        store(y + i, mask, kLog ? (v - most) - own : v * own);
      };
      for (int64_t i = at; i < at + last; i += step()) put(i, lanes_of(step()));
      put(at + last, lanes_of(n - last));
    }
    return true;
  }
  template <bool kLog>
  void softmax_all(const float* x, const int64_t* offsets, int64_t first, int64_t last, float* y) const {
    each_group(offsets, first, last, [&](const int64_t* cuts, int64_t, int64_t count) LOD_INLINE {
      const auto few = [&](const auto& group) LOD_INLINE { short_softmax<kLog>(group, x, y); };
      if (in_registers(cuts, lengths_at<P>(cuts, LaneIndices{}), few)) return;
      const bool room = !kLog && (cuts[kRows] - cuts[0]) * width() <= (kRoom - kRows) * step();
      if (room ? group_softmax<kLog, !kLog>(x, cuts, y) : group_softmax<kLog, false>(x, cuts, y)) return;
      for (int64_t k = 0; k < count; ++k)
        softmax<kLog>(x + cuts[k] * width(), (cuts[k + 1] - cuts[k]) * width(), y + cuts[k] * width());
    });
  }
  LOD_FN Floats logsumexp(const float* x, int64_t n) const {
    const Floats none = all_lanes(lowest<float>());
    const int64_t last = last_step(n);
    const Floats tail = load(x + last, lanes_of(n - last), none), top = top_of(x, last, tail);
    const auto e = [&](Floats v) LOD_INLINE { return exp_lanes(v == top ? Floats{} : v - top); };
    const Floats total = sum_steps(last, [&](int64_t i) { return e(load(x + i, lanes_of(step()), none)); });
    return top + log_lanes(over_rows<join<Sum>>(total + e(tail)));
  }
  void logsumexp_all(const float* x, const int64_t* offsets, int64_t first, int64_t last, float pad, float* out) const {
    each_group(offsets, first, last, [&](const int64_t* cuts, int64_t s, int64_t count) LOD_INLINE {
      const Ints lengths = lengths_at<P>(cuts, LaneIndices{});
      Floats top, sum;
      const auto few = [&]<class G>(const G& group) LOD_INLINE {
        const Terms<G, true> of(group, x);
        top = of.top, sum = of.sum;
      };
      if (in_registers(cuts, lengths, few) ||
          group_sums<true>(x, cuts, top, sum, [](int64_t, Mask, Floats e) LOD_INLINE { return e; })) {
        const Floats v = lengths == 0 ? all_lanes(pad) : top + log_lanes(sum);
        return store(out + s * width(), lanes_of(count * width()), P == 1 ? v : __builtin_shuffle(v, pack));
      }
      for (int64_t k = 0; k < count; ++k) {
        const int64_t n = (cuts[k + 1] - cuts[k]) * width();
        store(out + (s + k) * width(), lanes_of(width()), n ? logsumexp(x + cuts[k] * width(), n) : all_lanes(pad));
      }
    });
  }
  template <bool kLog>
  void softmax_backward_all(const float* y, const float* dy, const int64_t* offsets, int64_t first, int64_t last,
                            float* dx) const {
    each_group(offsets, first, last, [&](const int64_t* cuts, int64_t, int64_t count) LOD_INLINE {
      const auto few = [&]<class G>(const G& group) LOD_INLINE {
        Floats v[G::kCount], d[G::kCount];
        LOD_UNROLLED for (int j = 0; j < G::kCount; ++j) {
          v[j] = group.load(y, j, Floats{});
          d[j] = group.load(dy, j, Floats{});
        }
        const auto product = [&](int j) LOD_INLINE { return kLog ? d[j] : v[j] * d[j]; };
        const Floats total = group.template over<join<Sum>>(product) + Floats{};
        LOD_UNROLLED for (int j = 0; j < G::kCount; ++j) {
          const Floats own = group.spread(total, j);
          group.store(dx, j, kLog ? d[j] - exp_lanes(v[j]) * own : v[j] * (d[j] - own));
        }
      };
      if (in_registers(cuts, lengths_at<P>(cuts, LaneIndices{}), few)) return;
      for (int64_t k = 0; k < count; ++k) {
        const int64_t at = cuts[k] * width();
        softmax_backward<kLog>(y + at, dy + at, cuts[k + 1] * width() - at, dx + at);
      }
    });
  }
  template <bool kLog>
  LOD_FN void softmax_backward(const float* y, const float* dy, int64_t n, float* dx) const {
    const int64_t last = last_step(n);
    const Mask full = lanes_of(step()), mask = lanes_of(n - last);
    const auto product = [&](int64_t i, Mask some) LOD_INLINE {
      const Floats d = load(dy + i, some, Floats{});
      return kLog ? d : load(y + i, some, Floats{}) * d;
    };
    const Floats total =
        over_rows<join<Sum>>(sum_steps(last, [&](int64_t i) { return product(i, full); }) + product(last, mask));
    const auto put = [&](int64_t i, Mask some) LOD_INLINE {
      const Floats v = load(y + i, some, Floats{}), d = load(dy + i, some, Floats{});
      store(dx + i, some, kLog ? d - exp_lanes(v) * total : v * (d - total));
    };
    each_step(last, [&](int64_t i) LOD_INLINE { put(i, full); });
    put(last, mask);
  }
};

// Calls f with the Narrow for rows of this width, if there is one.
template <class F>
bool narrow(const Exec* exec, int64_t width, int64_t rows, const F& f) {
  if (width > (LOD_LANES == 16 ? 15 : 8) || rows > INT32_MAX) return false;
  if (width == 1) f(Narrow<1>(exec, width));
  else if (width == 2) f(Narrow<2>(exec, width));
  else if (width <= 4) f(Narrow<4>(exec, width));
  else if (width <= 8) f(Narrow<8>(exec, width));
  else f(Narrow<LOD_LANES>(exec, width));
  return true;
}

}  // namespace lod::LOD_LEVEL

#include "core/wide_rows.h"
