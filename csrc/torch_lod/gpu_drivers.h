// SegmentReduce<K> and SegmentScan<K> on a GPU, see segment_drivers.h: kernels in blocks (gpu_blocks.h). Kernel source.
// SPDX-License-Identifier: Apache-2.0

namespace lod::LOD_LEVEL {

template <class K>
struct ReduceInBlocks : K {
  using Part = typename K::template State<1>;
  BlockView g;
  template <int pass>
  LOD_FN Part join(Part a, const Part& b) const {
    K::template combine<pass>(a, 0, b, 0);
    return a;
  }
  template <int pass>
  LOD_FN Part finalized(const Sequence& s, Part part) const {
    K::template finalize<pass>(part, 0, s.length());
    return part;
  }
  template <int pass, int W>
  LOD_FN void block(const Sequence&, const Range& rows, int64_t c, const Part (*found)[W], Part* part) const {
    const K& k = *this;
    Part own;
    if constexpr (pass > 0) own = found[pass - 1][0];
    k.template identity<pass>(own, 0);
    int64_t row = rows.begin;
    in_order(g, rows, c, [&](int64_t i) { return k.load(i); },
             [&](int64_t, const auto& x) { k.template accumulate<pass>(own, 0, x, row++); });
    *part = own;
  }
  template <int W>
  LOD_FN void finish(const Sequence& s, const Range& rows, int64_t c, const Part (*found)[W]) const {
    const K& k = *this;
    const Part own = found[K::kPasses - 1][0];
    if constexpr (K::kByRow)
      in_order(g, rows, c, [&](int64_t i) { return k.load(i); },
               [&](int64_t i, const auto& x) { k.map(own, 0, x, i); });
    else k.finish(own, 0, s, s.index * g.width + c);
  }
};
template <class T, class K>
void reduce_segments(const Exec& exec, const BlockView& g, Pointers<K::kRowsIn> in, void* out, K k) {
  for (int a = 0; a < K::kRowsIn; ++a) k.in[a] = static_cast<const T*>(in.at[a]);
  k.out = static_cast<T*>(out);
  each_in_blocks(exec, ReduceInBlocks<K>{k, g});
}

template <class K>
struct ScanInBlocks : K {
  using Part = typename K::template State<1>;
  static constexpr int kPasses = 1;
  BlockView g;
  LOD_FN bool backwards() const { return K::reverse(); }
  static LOD_FN Part nothing() {
    Part part;
    K::identity(part, 0);
    return part;
  }
  template <int>
  static LOD_FN Part join(Part a, const Part& b) {
    K::combine(a, 0, b, 0);
    return a;
  }
  template <bool kEmit>
  LOD_FN void scan(const Sequence& s, const Range& rows, int64_t c, Part& part) const {
    const K& k = *this;
    const bool back = backwards();
    const int64_t first = (back ? s.end - 1 : s.begin) * g.width + c, begin = back ? rows.end - 1 : rows.begin;
    int64_t next = begin, row = begin;
    const auto read = [&](int64_t i) {
      const int64_t own = next;
      next += back ? -1 : 1;
      return k.load(i, ScanRow{own, s.index, i == first});
    };
    in_order(begin * g.width + c, back ? -g.width : g.width, rows.length(), read, [&](int64_t i, const auto& x) {
      k.template step<kEmit>(part, 0, x, i, ScanRow{row, s.index, i == first});
      row += back ? -1 : 1;
    });
  }
  template <int, int W>
  LOD_FN void block(const Sequence& s, const Range& rows, int64_t c, const Part (*)[W], Part* part) const {
    *part = nothing();
    scan<false>(s, rows, c, *part);
  }
  template <int W>
  LOD_FN void start(const Sequence& s, const Range& rows, int64_t c, Part (*found)[W]) const {
    **found = nothing();
    scan<true>(s, rows, c, **found);
  }
  template <int W>
  LOD_FN void finish(const Sequence& s, const Range& rows, int64_t c, Part (*found)[W]) const {
    scan<true>(s, rows, c, **found);
  }
};
template <class T, class K>
void scan_segments(const Exec& exec, const BlockView& g, Pointers<K::kRowsIn> in, void* out, K k) {
  for (int a = 0; a < K::kRowsIn; ++a) k.in[a] = static_cast<const T*>(in.at[a]);
  k.out = static_cast<T*>(out);
  each_in_blocks(exec, ScanInBlocks<K>{k, g});
}
template <class T, class K1, class K2>
void scan_segments(const Exec& exec, const BlockView& g, Pointers<K2::kRowsIn> in, void* out, K1 k1, const K2& k2) {
  k1.in[0] = static_cast<const T*>(in.at[0]);
  each_in_blocks(exec, ScanInBlocks<K1>{k1, g});
  scan_segments<T>(exec, g, in, out, k2);
}

}  // namespace lod::LOD_LEVEL
