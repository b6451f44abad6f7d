// SegmentReduce<K> on the CPU, see segment_drivers.h. Kernel source. SPDX-License-Identifier: Apache-2.0

namespace lod::LOD_LEVEL {

// A pass adds element i, or what it is for the last pass, which may be kept at the place of the result.
template <int pass, class K>
LOD_FN void add_element(const K& k, auto& s, int64_t l, int64_t i, int64_t row) {
  const auto x = term_of<pass>(k, s, l, k.load(i));
  if constexpr (K::kKeepsTerms && pass + 1 == K::kPasses) k.out[i] = x;
  k.template accumulate<pass>(s, l, x, row);
}
template <class K>
LOD_FN void map_element(const K& k, const auto& s, int64_t l, int64_t i) {
  if constexpr (K::kKeepsTerms) k.map(s, l, k.out[i], i);
  else k.map(s, l, k.load(i), i);
}

}  // namespace lod::LOD_LEVEL

#include "torch_lod/segment_short.h"

namespace lod::LOD_LEVEL {

template <class K>
class SegmentReduce {
  template <int W>
  using State = typename K::template State<W>;
  static constexpr int64_t kLong = 32;  // rows that are worth more than one chain of them

 public:
  SegmentReduce(const LoDView& g, const K& k, int64_t shared) : g_(g), k_(k), shared_(shared) {}

  // Segments [first, last), but those that all threads share.
  void run(int64_t first, int64_t last) const {
    const auto plain = [&](int64_t from, int64_t to) LOD_INLINE {
      visit_strips(g_.width, [&]<int kWidest>() LOD_INLINE { all<kWidest>(from, to); });
    };
    visit_short(g_, first, last, [&]<int P>() LOD_INLINE {
      constexpr bool kPays = P < 8 || (LOD_LANES == 16 && K::kPasses == 1);
      constexpr bool kSelects = requires(const K& k, State<1>& s) { k.copy(s, 0, s, 0, true); };
      if constexpr (K::kSideBySide && kSelects && kPays) SideBySide<K, P>(g_, k_, last).run(first, last, plain);
      else plain(first, last);
    }, [&] { plain(first, last); });
  }
  // Segment s, by the threads of exec.
  void share(const Exec& exec, int64_t s) const {
    visit_strips(g_.width, [&]<int kWidest>() LOD_INLINE {
      each_strip_of<kWidest>(g_.width, [&]<int W>(int64_t c) LOD_INLINE { long_strip<W>(exec, g_[s], c); });
    });
  }

 private:
  template <int kWidest>
  LOD_NOINLINE void all(int64_t first, int64_t last) const {
    const SegmentReduce me = *this;  // no store changes it
    for (int64_t s = first; s < last; ++s) {
      const Sequence rows{{me.g_.offsets[s], me.g_.offsets[s + 1]}, s};
      if (rows.length() >= me.shared_ || (K::kByRow && rows.length() == 0)) continue;
      const bool is_long = rows.length() > kBlock || (kWidest < 4 && rows.length() >= kLong);
      each_strip_of<kWidest>(me.g_.width, [&]<int W>(int64_t c) LOD_INLINE {
        if (is_long) me.template long_strip<W>(kAlone, rows, c);
        else me.template strip<W>(rows, c);
      });
    }
  }

  // A segment of one block.
  template <int W>
  LOD_FN void strip(const Sequence& rows, int64_t c) const {
    const K k = k_;
    State<W> state;
    passes<0, W>(k, state, rows, c);
    if constexpr (K::kByRow) map_rows<W>(k, state, rows, c);
    else finish<W>(k, state, rows, c);
  }
  template <int pass, int W>
  LOD_FN void passes(const K& k, State<W>& state, const Sequence& rows, int64_t c) const {
    if constexpr (pass < K::kPasses) {
      identity<pass, W>(k, state);
      add_rows<pass, W>(k, state, rows, c);
      each_lane<W>([&](int l) LOD_INLINE { k.template finalize<pass>(state, l, rows.length()); });
      passes<pass + 1, W>(k, state, rows, c);
    }
  }
  // A segment of several blocks, or of narrow rows.
  template <int W>
  LOD_NOINLINE void long_strip(const Exec& exec, const Sequence& rows, int64_t c) const {
    const int64_t blocks = (rows.length() + kBlock - 1) / kBlock;
    const auto each_block = [&](const auto& f) LOD_INLINE {
      each(exec, blocks, kBlock * W, [&](int64_t b) LOD_INLINE {
        const int64_t begin = rows.begin + b * kBlock;
        f(b, Range{begin, std::min(begin + kBlock, rows.end)});
      });
    };
    State<W> total{}, one{};
    const Memory<State<W>> several(blocks > 1 ? blocks : 0);
    long_passes<0, W>(total, blocks > 1 ? several.data() : &one, rows, c, each_block);
    if constexpr (K::kByRow) {
      each_block([&](int64_t, const Range& block) LOD_INLINE {
        if constexpr (W < 4) map_folded<W>(k_, total, block);
        else map_rows<W>(k_, total, block, c);
      });
    } else {
      finish<W>(k_, total, rows, c);
    }
  }
  template <int pass, int W, class F>
  LOD_FN void long_passes(State<W>& total, State<W>* parts, const Sequence& rows, int64_t c,
                          const F& each_block) const {
    if constexpr (pass < K::kPasses) {
      each_block([&](int64_t b, const Range& block) LOD_INLINE {
        const K k = k_;
        State<W> own;
        if constexpr (pass > 0) each_lane<W>([&](int l) LOD_INLINE { k.copy(own, l, total, l); });
        identity<pass, W>(k, own);
        if (W < 4 && block.length() >= kLong) fold_rows<pass, W>(k, own, block);
        else add_rows<pass, W>(k, own, block, c);
        parts[b] = own;
      });
      total = parts[0];
      for (int64_t b = 1; b * kBlock < rows.length(); ++b)
        each_lane<W>([&](int l) LOD_INLINE { k_.template combine<pass>(total, l, parts[b], l); });
      each_lane<W>([&](int l) LOD_INLINE { k_.template finalize<pass>(total, l, rows.length()); });
      long_passes<pass + 1, W>(total, parts, rows, c, each_block);
    }
  }

  template <int pass, int W>
  LOD_FN static void identity(const K& k, State<W>& state) {
    each_lane<W>([&](int l) LOD_INLINE { k.template identity<pass>(state, l); });
  }
  template <int W>
  LOD_FN void finish(const K& k, const State<W>& state, const Sequence& rows, int64_t c) const {
    const int64_t to = rows.index * (W < 4 ? W : g_.width) + c;
    each_lane<W>([&](int l) LOD_INLINE { k.finish(state, l, rows, to + l); });
  }
  template <int W>
  LOD_FN void map_rows(const K& k, const State<W>& state, const Range& rows, int64_t c) const {
    const int64_t width = W < 4 ? W : g_.width, end = rows.end * width + c;
    for (int64_t i = rows.begin * width + c; i < end; i += width)
      each_lane<W>([&](int l) LOD_INLINE { map_element(k, state, l, i + l); });
  }
  template <int pass, int W>
  LOD_FN void add_rows(const K& k, State<W>& state, const Range& rows, int64_t c) const {
    const int64_t width = W < 4 ? W : g_.width;
    int64_t row = rows.begin, i = row * width + c;
    if constexpr (W >= 4 && W <= 8 && K::kPasses == 1)
      if (rows.length() >= kLong) add_in_chains<pass>(k, state, row, rows.end, i, width);
    for (; row < rows.end; ++row, i += width) {
      each_lane<W>([&](int l) LOD_INLINE { add_element<pass>(k, state, l, i + l, row); });
      // or a product and its sum are fused in some rows
      if constexpr (W < 4 && (K::kByRow || K::kPasses > 1)) asm("" : "+r"(i));
    }
  }
  // Sums of one vector wait for one another: four chains of them.
  template <int pass, int W>
  LOD_FN static void add_in_chains(const K& k, State<W>& a, int64_t& row, int64_t end, int64_t& i, int64_t width) {
    State<W> b, d, e;
    identity<pass, W>(k, b), identity<pass, W>(k, d), identity<pass, W>(k, e);
    for (; row + 4 <= end; row += 4, i += 4 * width)
      each_lane<W>([&](int l) LOD_INLINE {
        k.template accumulate<pass>(a, l, k.load(i + l), row);
        k.template accumulate<pass>(b, l, k.load(i + l + width), row + 1);
        k.template accumulate<pass>(d, l, k.load(i + l + 2 * width), row + 2);
        k.template accumulate<pass>(e, l, k.load(i + l + 3 * width), row + 3);
      });
    each_lane<W>([&](int l) LOD_INLINE {
      k.template combine<pass>(a, l, b, l);
      k.template combine<pass>(d, l, e, l);
      k.template combine<pass>(a, l, d, l);
    });
  }

  // Rows of D channels, less than a vector: kLanes / D of them are one wide row, whose parts are combined in the end.
  template <int D>
  static constexpr int kLanes = D == 3 ? 48 : 64;
  template <int pass, int D>
  LOD_FN static void fold_rows(const K& k, State<D>& state, const Range& rows) {
    constexpr int W = kLanes<D>;
    State<W> wide;
    if constexpr (pass > 0) each_lane<W>([&](int l) LOD_INLINE { k.copy(wide, l, state, l % D); });
    identity<pass, W>(k, wide);
    int64_t row = rows.begin, i = row * D, left = rows.length() * D;
    for (; left >= W; left -= W, i += W, row += W / D)
      each_lane<W>([&](int l) LOD_INLINE { add_element<pass>(k, wide, l, i + l, row + l / D); });
    add_rest<pass, D, 0>(k, wide, i, int(left), row);
    fold<pass, D, W / 2>(k, wide);
    each_lane<D>([&](int l) LOD_INLINE { k.template combine<pass>(state, l, wide, l); });
  }
  template <int pass, int D, int lane, int W>  // fewer elements than there are lanes
  LOD_FN static void add_rest(const K& k, State<W>& wide, int64_t i, int left, int64_t row) {
    if constexpr (lane < W) {
      if (left >= lane + 16) {
        each_lane<16>([&](int l) LOD_INLINE {
          add_element<pass>(k, wide, lane + l, i + lane + l, row + (lane + l) / D);
        });
        add_rest<pass, D, lane + 16>(k, wide, i, left, row);
      } else {
        for (int l = lane; l < left; ++l) add_element<pass>(k, wide, l, i + l, row + l / D);
      }
    }
  }
  template <int pass, int D, int half, int W>
  LOD_FN static void fold(const K& k, State<W>& wide) {
    if constexpr (half >= D) {
      each_lane<half>([&](int l) LOD_INLINE { k.template combine<pass>(wide, l, wide, half + l); });
      fold<pass, D, half / 2>(k, wide);
    }
  }
  template <int D>
  LOD_FN static void map_folded(const K& shared, const State<D>& state, const Range& rows) {
    constexpr int W = kLanes<D>;
    const K k = shared;
    State<W> wide;
    for (int l = 0; l < W; ++l) k.copy(wide, l, state, l % D);
    int64_t i = rows.begin * D, left = rows.length() * D;
    for (; left >= W; left -= W, i += W)
      each_lane<W>([&](int l) LOD_INLINE { map_element(k, wide, l, i + l); });
    for (int l = 0; l < int(left); ++l) map_element(k, wide, l, i + l);
  }

  LoDView g_;
  K k_;
  int64_t shared_;
};

template <class T, class K>
void reduce_segments(const Exec& exec, const LoDView& g, Pointers<K::kRowsIn> in, void* out, const K& k) {
  const int64_t shared = shared_length(exec, g, 1);
  const Converted<T, K> arrays(g, k, in.at, out, shared);
  each_range(exec, g, [&](int64_t first, int64_t last) {
    arrays.each_group(first, last, [&](const K& k, int64_t from, int64_t to) {
      SegmentReduce<K>(g, k, shared).run(from, to);
    });
  });
  each_shared_segment(g, shared, [&](int64_t s) {  // last: short segments before them may have written into them
    arrays.with_group(exec, s, s + 1, [&](const K& k) { SegmentReduce<K>(g, k, shared).share(exec, s); });
  });
}

}  // namespace lod::LOD_LEVEL
