// SegmentScan<K> on the CPU, see segment_drivers.h. Kernel source. SPDX-License-Identifier: Apache-2.0

namespace lod::LOD_LEVEL {

template <class K>
class SegmentScan {
  template <int W>
  using State = typename K::template State<W>;

 public:
  SegmentScan(const LoDView& g, const K& k, int64_t shared = INT64_MAX) : g_(g), k_(k), shared_(shared) {}

  // Segments [first, last), but those that all threads share.
  void run(int64_t first, int64_t last) const {
    const auto plain = [&](int64_t from, int64_t to) LOD_INLINE {
      visit_strips(g_.width, [&]<int kWidest>() LOD_INLINE { all<kWidest>(from, to); });
    };
    visit_short(g_, first, last, [&]<int P>() LOD_INLINE {
      if constexpr (K::kSideBySide && P < 4) SideBySide<K, P>(g_, k_, last).run(first, last, plain);
      else plain(first, last);
    }, [&] { plain(first, last); });
  }
  // Segment s, by the threads of exec.
  void share(const Exec& exec, int64_t s) const {
    visit_strips(g_.width, [&]<int kWidest>() LOD_INLINE {
      each_strip_of<kWidest>(g_.width, [&]<int W>(int64_t c) LOD_INLINE { share_strip<W>(exec, s, c); });
    });
  }

 private:
  template <int kWidest>
  LOD_NOINLINE void all(int64_t first, int64_t last) const {
    const SegmentScan me = *this;  // no store changes it
    for (int64_t s = first; s < last; ++s) {
      const int64_t begin = me.g_.offsets[s], n = me.g_.offsets[s + 1] - begin;
      if (K::kShares && n >= me.shared_) continue;
      each_strip_of<kWidest>(me.g_.width, [&]<int W>(int64_t c) LOD_INLINE { me.template strip<W>(s, begin, n, c); });
    }
  }
  template <int W>
  LOD_FN static void start(State<W>& state) {
    each_lane<W>([&](int k) LOD_INLINE { K::identity(state, k); });
  }
  template <int W>
  LOD_FN void strip(int64_t s, int64_t begin, int64_t n, int64_t c) const {
    State<W> state;
    start<W>(state);
    if constexpr (K::kShares) {
      for (int64_t done = 0; done < n; done += kBlock) {
        scan<true, W>(state, {begin, begin + n, s}, done, std::min(kBlock, n - done), c);
        each_lane<W>([&](int k) LOD_INLINE { K::finalize(state, k); });
      }
    } else {
      scan<true, W>(state, {begin, begin + n, s}, 0, n, c);
    }
  }
  // n rows of a segment, behind the first `done` in the order of the scan.
  template <bool kEmit, int W>
  LOD_FN void scan(State<W>& state, const Sequence& s, int64_t done, int64_t n, int64_t c) const {
    const K k = k_;
    const int64_t width = W < 4 ? W : g_.width, by = k.reverse() ? -1 : 1, step = by * width;
    ScanRow at{k.reverse() ? s.end - 1 - done : s.begin + done, s.index, done == 0};
    for (int64_t i = at.row * width + c; n > 0; --n, i += step, at.row += by, at.first = false)
      each_lane<W>([&](int l) LOD_INLINE { k.template step<kEmit>(state, l, k.load(i + l, at), i + l, at); });
  }
  template <int W>
  void share_strip(const Exec& exec, int64_t s, int64_t c) const {
    const Sequence rows = g_[s];
    const int64_t n = rows.length(), blocks = (n + kBlock - 1) / kBlock;
    const Memory<State<W>> parts(blocks);
    const auto each_block = [&](const auto& f) LOD_INLINE {
      each(exec, blocks, kBlock * W, [&](int64_t b) LOD_INLINE {
        f(parts[b], b * kBlock, std::min(kBlock, n - b * kBlock));
      });
    };
    each_block([&](State<W>& part, int64_t done, int64_t count) LOD_INLINE {
      start<W>(part);
      scan<false, W>(part, rows, done, count, c);
    });
    State<W> before;
    start<W>(before);
    for (int64_t b = 0; b < blocks; ++b) {
      const State<W> own = parts[b];
      parts[b] = before;
      for (int k = 0; k < W; ++k) K::combine(before, k, own, k);
    }
    each_block([&](State<W>& part, int64_t done, int64_t count) LOD_INLINE {
      scan<true, W>(part, rows, done, count, c);
    });
  }

  LoDView g_;
  K k_;
  int64_t shared_;
};

template <class T, class K>
void scan_segments(const Exec& exec, const LoDView& g, Pointers<K::kRowsIn> in, void* out, const K& k) {
  const int64_t shared = K::kShares ? shared_length(exec, g, 2) : INT64_MAX;  // which scans blocks twice
  const Converted<T, K> arrays(g, k, in.at, out, shared);
  each_range(exec, g, [&](int64_t first, int64_t last) {
    arrays.each_group(first, last, [&](const K& k, int64_t from, int64_t to) {
      SegmentScan<K>(g, k, shared).run(from, to);
    });
  });
  if constexpr (K::kShares)
    each_shared_segment(g, shared, [&](int64_t s) {  // last, as in reduce_segments
      arrays.with_group(exec, s, s + 1, [&](const K& k) { SegmentScan<K>(g, k, shared).share(exec, s); });
    });
}
template <class T, class K1, class K2>
void scan_segments(const Exec& exec, const LoDView& g, Pointers<K2::kRowsIn> in, void* out, const K1& k1,
                   const K2& k2) {
  constexpr int64_t kCached = 4096;  // rows that the second scan finds in a cache
  const Converted<T, K2> arrays(g, k2, in.at, out, INT64_MAX);
  each_range(exec, g, [&](int64_t first, int64_t last) {
    arrays.each_group(first, last, [&](const K2& two, int64_t from, int64_t to) {
      K1 one = k1;
      one.in[0] = two.in[0];
      for (int64_t end; from < to; from = end) {
        for (end = from + 1; end < to && g.offsets[end + 1] - g.offsets[from] <= kCached;) ++end;
        SegmentScan<K1>(g, one).run(from, end);
        SegmentScan<K2>(g, two).run(from, end);
      }
    });
  });
}

}  // namespace lod::LOD_LEVEL
