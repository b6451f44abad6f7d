// What the drivers of the CPU share: loops over channels that become vector code, and segments that are long enough for
// several threads. Kernel source, see torch_lod/device.h. SPDX-License-Identifier: Apache-2.0

namespace lod::LOD_LEVEL {

// f(c) for the W channels of a strip. With fewer than a vector there is no loop. The pragma keeps GCC from unrolling
// the loop before it looks for vectors.
template <int W, class F>
LOD_FN void each_lane(const F& f) {
  if constexpr (W < 4) {
    f(0);
    if constexpr (W > 1) f(1);
    if constexpr (W > 2) f(2);
  } else {
#pragma omp simd
    for (int c = 0; c < W; ++c) f(c);
  }
}
// f<W>(c) for strips of W or fewer channels that cover all of 4 or more. The last strip may overlap the one before it
// and compute the same results twice: then there are neither masks nor remainders, but no result may overwrite an
// input.
template <int W, class F>
LOD_FN void cover_channels(int64_t width, int64_t c, const F& f) {
  if constexpr (W > 8) {
    for (; c + W <= width; c += W) f.template operator()<W>(c);
    if (c < width) cover_channels<8>(width, c, f);
  } else if (width >= W) {
    for (; c < width; c += W) f.template operator()<W>(c + W <= width ? c : width - W);
  } else if constexpr (W == 8) {
    cover_channels<4>(width, c, f);
  }
}
// f<W> with the strips that rows of a width are covered by: narrow ones have strips of their own.
constexpr int kStrip = LOD_LANES == 16 ? 32 : 16;
template <class F>
LOD_FN void visit_strips(int64_t width, const F& f) {
  switch (width) {
    case 1: return f.template operator()<1>();
    case 2: return f.template operator()<2>();
    case 3: return f.template operator()<3>();
    default: return f.template operator()<kStrip>();
  }
}
template <int kStrip, class F>
LOD_FN void each_strip_of(int64_t width, const F& f) {
  if constexpr (kStrip < 4) f.template operator()<kStrip>(0);
  else cover_channels<kStrip>(width, 0, f);
}

// Aligned memory for n objects, without constructors; none for 0.
template <class T>
class Memory {
 public:
  explicit Memory(int64_t n)
      : at_(n ? static_cast<T*>(::operator new(size_t(n) * sizeof(T), std::align_val_t(64))) : nullptr) {}
  ~Memory() { ::operator delete(at_, std::align_val_t(64)); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  T* data() const { return at_; }
  T& operator[](int64_t i) const { return at_[i]; }

 private:
  T* const at_;
};

// The loop of one thread.
constexpr Exec kAlone{[](int64_t n, int64_t, const void* kernel, Exec::Body body) { body(kernel, 0, n); }};

// What K::kRowsIn arrays of T are computed as (K is a reduction or a scan of computed_t<T>): in(a) is array a, out the
// result. Where that is another type, some segments at a time are converted to memory of their own, and the results
// back.
template <class T, class K>
class Converted {
  using C = typename K::Element;
  static constexpr int64_t kRoom = 8192;  // elements

 public:
  Converted(const LoDView& g, const K& k, const void* const* in, void* out, int64_t shared)
      : g_(g), k_(k), shared_(shared), out_(static_cast<T*>(out)) {
    for (int a = 0; a < K::kRowsIn; ++a) in_[a] = static_cast<const T*>(in[a]);
  }
  // run(k, first, last) for some of the segments [first, last), and so on; but those of `shared` rows or more are left
  // out where they are converted.
  template <class F>
  void each_group(int64_t first, int64_t last, const F& run) const {
    if constexpr (std::is_same_v<T, C>) return run(here(), first, last);
    for (int64_t end; first < last; first = end) {
      end = first + 1;
      if (g_[first].length() >= shared_) continue;
      while (end < last && elements(first, end + 1) <= kRoom && g_[end].length() < shared_) ++end;
      with_group(kAlone, first, end, [&](const K& k) { run(k, first, end); });
    }
  }
  // run(k) for segments [first, last) as a whole, which the threads of exec convert.
  template <class F>
  void with_group(const Exec& exec, int64_t first, int64_t last, const F& run) const {
    if constexpr (std::is_same_v<T, C>) return run(here());
    else {
      const int64_t begin = g_.offsets[first] * g_.width, n = elements(first, last);
      const int64_t out_begin = K::kByRow ? begin : first * g_.width, out_n = K::kByRow ? n : (last - first) * g_.width;
      const Memory<C> memory(K::kRowsIn * n + out_n);
      K k = k_;
      for (int a = 0; a < K::kRowsIn; ++a) {
        convert(exec, in_[a] + begin, memory.data() + a * n, n);
        k.in[a] = moved(memory.data() + a * n, begin);
      }
      C* const out = memory.data() + K::kRowsIn * n;
      k.out = moved(out, out_begin);
      run(k);
      convert(exec, out, out_ + out_begin, out_n);
    }
  }

 private:
  int64_t elements(int64_t first, int64_t last) const { return (g_.offsets[last] - g_.offsets[first]) * g_.width; }
  K here() const {
    K k = k_;
    for (int a = 0; a < K::kRowsIn; ++a) k.in[a] = reinterpret_cast<const C*>(in_[a]);
    k.out = reinterpret_cast<decltype(k.out)>(out_);
    return k;
  }
  template <class From, class To>
  static void convert(const Exec& exec, const From* from, To* to, int64_t n) {
    each_part(exec, n, 1, [&](int64_t i, int64_t end) {
      for (; i < end; ++i) to[i] = To(from[i]);
    });
  }
  // Where element 0 would be, if element `first` is here.
  static C* moved(C* here, int64_t first) {
    return reinterpret_cast<C*>(reinterpret_cast<uintptr_t>(here) - uintptr_t(first) * sizeof(C));
  }

  LoDView g_;
  K k_;
  int64_t shared_;
  const T* in_[K::kRowsIn];
  T* out_;
};

// The rows from which on all threads share a segment: one thread with all of it would be the last to finish. INT64_MAX
// where there are too few threads or rows.
inline int64_t shared_length(const Exec& exec, const LoDView& g, int64_t few_threads) {
  const int64_t threads = exec.threads();
  if (threads <= few_threads || g.rows < 2 * kBlock || g.rows * g.width < 2 * kGrain) return INT64_MAX;
  return std::max(g.rows / (2 * threads), 2 * kBlock);
}
// f(s) for the segments of `least` or more rows.
template <class F>
void each_shared_segment(const LoDView& g, int64_t least, const F& f) {
  if (least == INT64_MAX) return;
  for (int64_t row = 0, next = 0; row < g.rows; row += least) {
    const int64_t s = segment_of(g.offsets, g.segments, row);
    if (s >= next && s < g.segments && g[s].length() >= least) f(s), next = s + 1;
  }
}

}  // namespace lod::LOD_LEVEL
