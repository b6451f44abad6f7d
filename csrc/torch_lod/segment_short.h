// Many short segments of narrow rows on the CPU, see segment_drivers.h. Kernel source.
// SPDX-License-Identifier: Apache-2.0
//
// Where a segment of a few rows ends is a branch that is mispredicted, which costs more than its rows. So several short
// segments are laid side by side as one segment of wide rows: row t of it has row t of each. It has as many rows as the
// longest of some groups of them, so that no branch depends on a length; what lies behind the end of a segment is
// loaded, and not taken.

namespace lod::LOD_LEVEL {

template <int n, class F>
LOD_FN void unrolled(const F& f) {
  [&]<int... i>(std::integer_sequence<int, i...>) LOD_INLINE { (f(i), ...); }(std::make_integer_sequence<int, n>());
}
// Rows r[0], r[1] ... become columns.
template <int h, class V, int... j>
LOD_FN void cross(V& a, V& b, std::integer_sequence<int, j...>) {
  constexpr int n = sizeof...(j);
  const V first = __builtin_shufflevector(a, b, (j & h ? n + j - h : j)...);
  b = __builtin_shufflevector(a, b, (j & h ? n + j : j + h)...);
  a = first;
}
template <int h, class V, int n>
LOD_FN void transpose(V (&r)[n]) {
  if constexpr (h > 0) {
    unrolled<n>([&](int i) LOD_INLINE {
      if (!(i & h)) cross<h>(r[i], r[i + h], std::make_integer_sequence<int, n>());
    });
    transpose<h / 2>(r);
  }
}

// f() for rows that are narrow enough, and whose segments are short on average: f<P>, of P channels; otherwise `plain`.
template <class F, class Plain>
LOD_FN void visit_short(const LoDView& g, int64_t first, int64_t last, const F& f, const Plain& plain) {
  if (g.offsets[last] - g.offsets[first] <= 16 * (last - first)) {
    switch (g.width) {
      case 1: return f.template operator()<1>();
      case 2: return f.template operator()<2>();
      case 3: case 4: return f.template operator()<4>();
      case 5: case 6: case 7: case 8: return f.template operator()<8>();
    }
  }
  plain();
}

template <class K, int P>  // channels of a row, filled up to a power of 2
class SideBySide {
  using T = typename K::Element;
  using Out = std::remove_pointer_t<decltype(K::out)>;
  template <int W>
  using State = typename K::template State<W>;
  static constexpr bool kScan = !requires { K::kPasses; };
  static_assert(sizeof(T) == 4 || sizeof(T) == 8);
  static constexpr int W = P < 8 ? 32 : P, kBeside = W / P;
  static constexpr int64_t kLongest = P < 4 ? 31 : 12, kTogether = 32, kGroup = (kLongest + 1) * W,
                           kRoom = kBeside > 1 ? kTogether / kBeside * kGroup : 1;

 public:
  SideBySide(const LoDView& g, const K& k, int64_t last)
      : k_(k), offsets_(g.offsets), width_(P < 4 ? P : g.width), end_(g.offsets[last] - 2 * kLongest - 2) {}

  // Segments [first, last), or plain(from, to) of those that are not short.
  template <class F>
  LOD_FN void run(int64_t first, int64_t last, const F& plain) {
    int64_t left = first;  // what is left to `plain` begins here
    for (int64_t next; first < last; first = next) {
      next = std::min(first + kTogether, last);
      int64_t least = INT64_MAX, most = 0;
      for (int64_t s = first; s < next; ++s) {
        const int64_t n = offsets_[s + 1] - offsets_[s];
        least = n < least ? n : least, most = n > most ? n : most;
      }
      const bool predicted = is_predicted() && least == most;
      if (predicted) next = std::min(first + 8 * kTogether, last);
      if (predicted || most > kLongest || (next - first) % kBeside || offsets_[next] > end_) continue;
      if (left < first) plain(left, first);
      run(first, next - first, int(most));
      left = next;
    }
    if (left < last) plain(left, last);
  }

 private:
  // Whether one segment after the other is as fast where their lengths are equal.
  static constexpr bool is_predicted() {
    if constexpr (kScan) return false;
    else return K::kPasses == 1 && (P >= 4 || !K::kByRow);
  }
  // One step after the other for all groups: what is written as narrow vectors is not yet there to be read as wide
  // ones.
  LOD_NOINLINE void run(int64_t first, int64_t n, int longest) {
    const int64_t* const offsets = offsets_ + first;
    for (int64_t s = 0; s < n; ++s) {
      const int64_t begin = offsets[s];
      const int length = int(offsets[s + 1] - begin);
      each_lane<P>([&](int c) LOD_INLINE { begin_[s * P + c] = begin; });
      each_lane<P>([&](int c) LOD_INLINE { length_[s * P + c] = length; });
    }
    K k = k_;
    if constexpr (kBeside > 1) {
      for (int a = 0; a < K::kRowsIn; ++a) {
        for (int64_t s = 0; s < n; s += kBeside)
          bring(k.in[a], in_[a] + s / kBeside * kGroup, offsets + s, width_, longest);
        k.in[a] = in_[a];
      }
      if constexpr (K::kByRow) k.out = out_;
      for (int64_t s = 0; s < n; s += kBeside) group(k, first, s, s / kBeside * kGroup, W, longest);
      if constexpr (K::kByRow)
        for (int64_t s = 0; s < n; s += kBeside)
          take(k_.out, out_ + s / kBeside * kGroup, offsets + s, width_, longest);
    } else {
      for (int64_t s = 0; s < n; ++s) group(k, first, s, offsets[s] * width_, width_, longest);
    }
  }
  // Segments s to s + kBeside of those from `first` on, whose row t begins at element at + t * step.
  LOD_FN void group(const K& k, int64_t first, int64_t s, int64_t at, int64_t step, int longest) const {
    State<W> state;
    const int64_t* const begin = begin_ + s * P;
    const int* const length = length_ + s * P;
    if constexpr (kScan) {
      if (k.reverse()) scan<true>(k, state, begin, length, first + s, at, longest);
      else scan<false>(k, state, begin, length, first + s, at, longest);
    } else {
      passes<0>(k, state, begin, length, at, step, longest);
      if constexpr (K::kByRow) {
        for (int t = 0; t < longest; ++t)
          each_lane<W>([&](int l) LOD_INLINE { map_element(k, state, l, at + t * step + l); });
      } else if constexpr (P < 4) {
        each_lane<W>([&](int l) LOD_INLINE {
          k.finish(state, l, Range{begin[l], begin[l] + length[l]}, (first + s) * P + l);
        });
      } else {  // the next segment writes over what is beyond the width
        for (int l = 0; l < W; l += P) {
          const Range rows{begin[l], begin[l] + length[l]};
          const int64_t to = (first + s + l / P) * width_;
          each_lane<P>([&](int c) LOD_INLINE { k.finish(state, l + c, rows, to + c); });
        }
      }
    }
  }
  template <int pass>
  LOD_FN static void passes(const K& k, State<W>& state, const int64_t* begin, const int* length, int64_t at,
                            int64_t step, int longest) {
    if constexpr (pass < K::kPasses) {
      each_lane<W>([&](int l) LOD_INLINE { k.template identity<pass>(state, l); });
      for (int t = 0; t < longest; ++t)
        each_lane<W>([&](int l) LOD_INLINE {
          const int64_t i = at + t * step + l;
          State<1> one;
          k.copy(one, 0, state, l);
          add_element<pass>(k, one, 0, i, begin[l] + t);
          k.copy(state, l, one, 0, t < length[l]);
        });
      each_lane<W>([&](int l) LOD_INLINE { k.template finalize<pass>(state, l, length[l]); });
      passes<pass + 1>(k, state, begin, length, at, step, longest);
    }
  }
  // What is behind the end of a segment comes after its rows or, backwards, before the last of them starts it again.
  template <bool kBackwards>
  LOD_FN static void scan(const K& k, State<W>& state, const int64_t* begin, const int* length, int64_t segment,
                          int64_t at, int longest) {
    each_lane<W>([&](int l) LOD_INLINE { K::identity(state, l); });
    for (int n = 0; n < longest; ++n) {
      const int t = kBackwards ? longest - 1 - n : n;
      each_lane<W>([&](int l) LOD_INLINE {
        const ScanRow row{begin[l] + t, segment + l / P, kBackwards ? t + 1 == length[l] : t == 0};
        const int64_t i = at + t * W + l;
        if constexpr (kBackwards) {
          State<1> none;
          K::identity(none, 0);
          K::copy(state, l, none, 0, row.first);
        }
        k.template step<true>(state, l, k.load(i, row), i, row);
      });
    }
  }

  // Vectors that have several rows of a segment.
  static constexpr int kUnit = P * int(sizeof(T)), kRows = kUnit < 16 ? 32 / kUnit : 1;
  using Word = std::conditional_t<kUnit == 4, uint32_t, uint64_t>;
  using Vector __attribute__((vector_size(32))) = Word;
  using Unaligned __attribute__((vector_size(32), aligned(4), may_alias)) = Word;
  LOD_FN static const Unaligned& at(const T* from) { return *reinterpret_cast<const Unaligned*>(from); }
  LOD_FN static Unaligned& at(T* to) { return *reinterpret_cast<Unaligned*>(to); }
  LOD_FN static void bring(const T* from, T* to, const int64_t* offsets, int64_t width, int longest) {
    if constexpr (kRows > 1) {
      for (int t = 0; t < longest; t += kRows)
        for (int s = 0; s < kBeside; s += kRows) {
          Vector r[kRows];
          unrolled<kRows>([&](int i) LOD_INLINE { r[i] = at(from + (offsets[s + i] + t) * P); });
          transpose<kRows / 2>(r);
          unrolled<kRows>([&](int i) LOD_INLINE { at(to + (t + i) * W + s * P) = r[i]; });
        }
    } else {
      const T* row[kBeside];
      for (int s = 0; s < kBeside; ++s) row[s] = from + offsets[s] * width;
      for (int t = 0; t < longest; ++t, to += W)
        unrolled<kBeside>([&](int s) LOD_INLINE { std::memcpy(to + s * P, row[s], kUnit), row[s] += width; });
    }
  }
  // What is written behind the end of a segment is written over by the next ones.
  LOD_FN static void take(Out* to, const Out* from, const int64_t* offsets, int64_t width, int longest) {
    if constexpr (kRows > 1) {
      for (int t = (longest - 1) / kRows * kRows; t >= 0; t -= kRows)
        for (int s = 0; s < kBeside; s += kRows) {
          Vector r[kRows];
          unrolled<kRows>([&](int i) LOD_INLINE { r[i] = at(from + (t + i) * W + s * P); });
          transpose<kRows / 2>(r);
          unrolled<kRows>([&](int i) LOD_INLINE { at(to + (offsets[s + i] + t) * P) = r[i]; });
        }
    } else {
      for (int s = 0; s < kBeside; ++s)
        for (int t = 0; t < longest; ++t) std::memcpy(to + (offsets[s] + t) * width, from + t * W + s * P, kUnit);
    }
  }

  const K k_;
  const int64_t* const offsets_;
  const int64_t width_, end_;  // end_: the row at which what is brought ends at the latest
  alignas(64) int64_t begin_[kTogether * P];
  alignas(64) int length_[kTogether * P];
  alignas(64) T in_[K::kRowsIn][kRoom];
  alignas(64) Out out_[K::kByRow ? kRoom : 1];
};

}  // namespace lod::LOD_LEVEL
