// Kernels that go over the rows of a segment in blocks of kBlock rows, counted from the segment's own start. Kernel
// text. SPDX-License-Identifier: Apache-2.0
//
// A kernel has a member `g`, a BlockView, and says
//
//   Part, kPasses                               how often the rows are gone over, and what a channel comes to each time
//   join<pass>(a, b)                            of two blocks, the earlier one first
//   block<pass, W>(s, rows, c, found, part)     part[k]: what channel c + k of these rows of sequence s comes to
//   kByRow                                      whether there is something to do for every row in the end
//   finish<W>(s, rows, c, found)                that, for some rows of s; else for s as a whole, empty or not
//   kWide, run(first, last)                     as in launch.h
//
// where found[pass][k] is what all blocks of s came to, joined in order, in the passes before. So a result depends on
// the rows of its own segment alone, whoever takes which block. A kernel may make something else of what is found, once
// for all who read it:
//
//   settled<pass>(s, part)
//
// A scan is a kernel of one pass with three members more, and finish by row, where found[0][k] is what the blocks
// before these rows came to, and has to become what they come to with these rows.
//
//   nothing()                                   what no block comes to
//   start<W>(s, rows, c, found)                 finish for the first block: found has yet to be set
//   backwards()                                 whether the last block is the first
//
//   each_in_blocks(exec, f)     does all segments: one after another; but the CPU's threads share the blocks of long
//                               ones, and a GPU's those of all that have several
//
// A GPU moves the rows of short segments to memory of their threads and back where a kernel that finishes by row says
//
//   Element, kRowsIn                            what rows are of, and how many arrays of them are read
//   rows_in(a), out                             these, and where the results go
//   move(to)                                    to read array a from to[a], and to write to the last of them
//
// Only the CPU asks for
//
//   bool run(s, s + 1, &exec)                   does one long segment with the threads of exec, or gives false
//   bool run_narrow(first, last, alone)         does segments of rows of one number, has alone(s) do some of them, or
//                                               gives false

#ifndef LOD_BLOCKS_ONCE
#define LOD_BLOCKS_ONCE
#include <new>
#include "core/block_view.h"
#endif

namespace lod::LOD_LEVEL {

// Rows of a block in a segment of so many. On a GPU, where one thread joins a segment's blocks, more in very long ones:
// it is to wait for memory about as long as those of the blocks. An estimate, from the times of an H200 at 256 rows.
#ifdef __CUDACC__
constexpr int64_t kBlock = kGpuBlock;
LOD_FN int64_t block_of(int64_t length) {
  int64_t block = kBlock;
  while (5 * block * block < 2 * length) block *= 2;
  return block;
}
#else
LOD_FN int64_t block_of(int64_t) { return kBlock; }
#endif

template <class F>
constexpr int kSlots = F::kPasses > 0 ? F::kPasses : 1;
template <class F>
constexpr bool kScans = requires { F::nothing(); };
template <class F, int pass, int W, class Part>
LOD_FN void settle(const Sequence& s, Part (*found)[W]) {
  if constexpr (requires { F::template settled<pass>(s, found[pass][0]); })
    for (int k = 0; k < W; ++k) found[pass][k] = F::template settled<pass>(s, found[pass][k]);
}

// One segment by one thread.
template <class F>
struct InBlocks {
  static constexpr int kWide = wide_strips<F>();
  using Part = typename F::Part;
  F f;

  LOD_FN Range from(const Sequence& s, int64_t begin) const {
    const int64_t end = begin + block_of(s.length());
    return {begin, end < s.end ? end : s.end};
  }
  template <int pass, int W>
  LOD_FN void passes(const Sequence& s, int64_t c, Part (*found)[W]) const {
    if constexpr (pass < F::kPasses) {
      f.template block<pass, W>(s, from(s, s.begin), c, found, found[pass]);
      const int64_t step = block_of(s.length());
      for (int64_t begin = s.begin + step; begin < s.end; begin += step) {
        Part part[W];
        f.template block<pass, W>(s, from(s, begin), c, found, part);
        for (int k = 0; k < W; ++k) found[pass][k] = F::template join<pass>(found[pass][k], part[k]);
      }
      settle<F, pass>(s, found);
      passes<pass + 1, W>(s, c, found);
    }
  }
  template <int W>
  LOD_FN void strip(int64_t i, int64_t c) const {
    const Sequence s = f.g[i];
    Part found[kSlots<F>][W];
    if constexpr (kScans<F>) {
      const int64_t block = block_of(s.length()), n = (s.length() + block - 1) / block;
      const int64_t step = f.backwards() ? -block : block;
      int64_t begin = s.begin + (step < 0 ? (n - 1) * block : 0);
      if (n) f.template start<W>(s, from(s, begin), c, found);
      for (int64_t b = 1; b < n; ++b) f.template finish<W>(s, from(s, begin += step), c, found);
    } else {
      if (s.length()) passes<0, W>(s, c, found);
      if (s.length() || !F::kByRow) f.template finish<W>(s, s, c, found);
    }
  }
#ifndef __CUDACC__
  // Rows of one number, for whose few registers the code above is too long.
  bool run(int64_t first, int64_t last) const {
    if constexpr (HasRun<F>)
      if (f.run(first, last)) return true;
    if (f.g.width != 1) return false;
    const auto alone = [&](int64_t s) { strip<1>(s, 0); };
    if constexpr (requires { f.run_narrow(first, last, alone); })
      if (f.run_narrow(first, last, alone)) return true;
    for (; first < last; ++first) alone(first);
    return true;
  }
#endif
};

// The blocks of long segments, those of more than one, among `count` from `first` on. They are numbered without a
// table: there is a number for every kStride rows from `origin` on, and a segment's blocks have the first of those in
// its rows, which are enough. Other numbers have no block.
struct Blocks {
  static constexpr int64_t kStride = kBlock / 2;
  LoDView g;
  int64_t first, count, origin;
  LOD_FN int64_t number(const Sequence& s) const { return (s.begin - origin + kStride - 1) / kStride; }
  LOD_FN Sequence segment(int64_t p) const {
    const int64_t row = origin + p * kStride;
    int64_t lo = first, hi = first + count - 1;
    while (lo < hi) {
      const int64_t mid = (lo + hi + 1) / 2;
      if (g[mid].begin <= row) lo = mid;
      else hi = mid - 1;
    }
    return g[lo];
  }
  // Of block p, which is none where they are empty.
  LOD_FN Range rows(int64_t p, const Sequence& s) const {
    const int64_t block = block_of(s.length()), begin = s.begin + (p - number(s)) * block, end = begin + block;
    return {begin, s.length() <= kBlock || begin < s.begin ? begin : end < s.end ? end : s.end};
  }
};

// What passes leave: parts[pass, block, channel]. Of a scan that is then what came before the block; else a segment's
// first block takes what all of them came to.
template <class F>
struct Shared {
  using Part = typename F::Part;
  F f;
  Blocks at;
  int64_t n;  // numbers
  Part* parts;
  LOD_FN Part* part(int pass, int64_t p, int64_t c) const { return parts + (pass * n + p) * f.g.width + c; }
  template <int passes, int W>
  LOD_FN void load(const Sequence& s, int64_t c, Part (*to)[W]) const {
    for (int pass = 0; pass < passes; ++pass)
      for (int k = 0; k < W; ++k) to[pass][k] = part(pass, at.number(s), c)[k];
  }
};
template <class F, int pass>
struct PartOfBlock : Shared<F> {
  template <int W>
  LOD_FN void strip(int64_t p, int64_t c) const {
    const Sequence s = this->at.segment(p);
    const Range rows = this->at.rows(p, s);
    if (rows.begin >= rows.end) return;
    typename F::Part found[kSlots<F>][W], part[W];
    this->template load<pass, W>(s, c, found);
    this->f.template block<pass, W>(s, rows, c, found, part);
    for (int k = 0; k < W; ++k) this->part(pass, p, c)[k] = part[k];
  }
};
// Does the work of a segment's first block for all of them.
template <class F, int pass>
struct JoinedBlocks : Shared<F> {
  static constexpr int kAhead = sizeof(typename F::Part) > 8 ? 16 : 32;  // parts that are read before they are joined
  template <int W>
  LOD_FN void strip(int64_t p, int64_t c) const {
    using Part = typename F::Part;
    const int64_t width = this->f.g.width;
    const Sequence s = this->at.segment(p);
    const Range rows = this->at.rows(p, s);
    if (rows.begin >= rows.end || rows.begin > s.begin) return;
    const int64_t block = block_of(s.length()), n = (s.length() + block - 1) / block;
    bool backwards = false;
    if constexpr (kScans<F>) backwards = this->f.backwards();
    const int64_t step = backwards ? -width : width;
    auto* at = this->part(pass, backwards ? p + n - 1 : p, c);
    Part found[kSlots<F>][W];
    if constexpr (kScans<F>)
      for (int k = 0; k < W; ++k) found[pass][k] = F::nothing();
    for (int64_t b = 0; b < n; b += kAhead, at += kAhead * step) {
      const int some = n - b < kAhead ? int(n - b) : kAhead;
      Part own[kAhead][W];
      for (int i = 0; i < kAhead; ++i)
        if (i < some)
          for (int k = 0; k < W; ++k) own[i][k] = at[i * step + k];
      for (int i = 0; i < kAhead; ++i) {
        if (i >= some) break;
        for (int k = 0; k < W; ++k) {
          if constexpr (kScans<F>) at[i * step + k] = found[pass][k];
          found[pass][k] = !kScans<F> && b + i == 0 ? own[i][k] : F::template join<pass>(found[pass][k], own[i][k]);
        }
      }
    }
    if constexpr (!kScans<F>) {
      settle<F, pass>(s, found);
      for (int k = 0; k < W; ++k) this->part(pass, p, c)[k] = found[pass][k];
    }
    if constexpr (!F::kByRow && pass + 1 == F::kPasses) {
      this->template load<pass, W>(s, c, found);
      this->f.template finish<W>(s, s, c, found);
    }
  }
};
template <class F>
struct RowsOfBlock : Shared<F> {
  template <int W>
  LOD_FN void strip(int64_t p, int64_t c) const {
    const Sequence s = this->at.segment(p);
    const Range rows = this->at.rows(p, s);
    if (rows.begin >= rows.end) return;
    typename F::Part found[kSlots<F>][W];
    if constexpr (kScans<F>)
      for (int k = 0; k < W; ++k) found[0][k] = this->part(0, p, c)[k];
    else this->template load<F::kPasses, W>(s, c, found);
    this->f.template finish<W>(s, rows, c, found);
  }
};

#ifdef __CUDACC__
template <class K>
void each_block(const Exec& exec, const K& kernel) {
  each_strip(exec, kernel.n, kernel.f.g.width, kernel);
}
template <class K>
void each_join(const Exec& exec, const K& kernel) {
  each_block(exec, kernel);
}
#else
template <class K>
void each_block(const Exec& exec, const K& kernel) {
  const int64_t width = kernel.f.g.width;
  each(exec, kernel.n, kBlock * width, [&](int64_t p) LOD_INLINE { strips(kernel, p, width); });
}
template <class K>
void each_join(const Exec&, const K& kernel) {  // of one segment
  for (int64_t c = 0; c < kernel.f.g.width; ++c) kernel.template strip<1>(0, c);
}
#endif
// What is left to do after the first launch: the parts of pass 0, or all where there is no pass.
template <class F, int pass = 0>
void go_on(const Exec& exec, const Shared<F>& shared) {
  if constexpr (pass < F::kPasses) {
    each_join(exec, JoinedBlocks<F, pass>{shared});
    if constexpr (pass + 1 < F::kPasses) each_block(exec, PartOfBlock<F, pass + 1>{shared});
    else if constexpr (F::kByRow) each_block(exec, RowsOfBlock<F>{shared});
    go_on<F, pass + 1>(exec, shared);
  }
}
template <class F>
using FirstOfBlock = std::conditional_t<F::kPasses == 0, RowsOfBlock<F>, PartOfBlock<F, 0>>;

#ifdef __CUDACC__

// The blocks of long segments, which take longest, and then the others.
template <class F>
struct BlocksAndSegments {
  FirstOfBlock<F> blocks;
  InBlocks<F> alone;
  template <int W>
  LOD_FN void strip(int64_t i, int64_t c) const {
    if (i < blocks.n) return blocks.template strip<W>(i, c);
    if (alone.f.g[i - blocks.n].length() <= kBlock) alone.template strip<W>(i - blocks.n, c);
  }
};

// Threads that each go along a segment would read and write numbers far apart, and more than once: in narrow rows they
// do so in memory of their block, to and from which they copy side by side.
constexpr int kTileThreads = 128, kTileBytes = 32768;
template <class F>
struct Tiles {
  using T = typename F::Element;
  static constexpr int kArrays = F::kRowsIn, kRoom = kTileBytes / kArrays / int(sizeof(T)), kAhead = 8;
  InBlocks<F> alone;
  int64_t together;  // segments of a block
  bool shares;       // others do those of several blocks

  // As many as threads have work for and memory most likely has room for; 0: none.
  static int64_t segments_of(const LoDView& g) {
    if (!g.width || g.width > kTileThreads || !g.segments) return 0;
    const int64_t usual = (g.rows / g.segments + 1) * g.width, room = kRoom * 3 / 4 / usual;
    const int64_t most = kTileThreads / g.width;
    return room < most ? room : most;
  }
  template <class C>
  LOD_FN static void copy(int64_t n, int thread, const C& element) {
    for (int64_t i = thread; i < n; i += kAhead * kTileThreads) {
      T held[kAhead];
      for (int k = 0; k < kAhead; ++k)
        if (i + k * kTileThreads < n) held[k] = element.read(i + k * kTileThreads);
      for (int k = 0; k < kAhead; ++k)
        if (i + k * kTileThreads < n) element.write(i + k * kTileThreads, held[k]);
    }
  }
  struct Between {
    const T* from;
    T* to;
    LOD_FN T read(int64_t i) const { return from[i]; }
    LOD_FN void write(int64_t i, T value) const { to[i] = value; }
  };
};
template <class F>
__global__ void run_in_tiles(Tiles<F> tiles) {
  using T = typename F::Element;
  using Of = Tiles<F>;
  __shared__ T tile[Of::kArrays][Of::kRoom];
  const auto g = tiles.alone.f.g;
  const int thread = int(threadIdx.x);
  const int64_t first = int64_t(blockIdx.x) * tiles.together;
  const int64_t last = first + tiles.together < g.segments ? first + tiles.together : g.segments;
  const Range all{g[first].begin, g[last - 1].end};
  const int64_t from = all.begin * g.width, n = all.length() * g.width;
  const bool fits = n >= 0 && n <= Of::kRoom;
  T* const out = tiles.alone.f.out;
  if (fits) {
    T* to[Of::kArrays];
    for (int a = 0; a < Of::kArrays; ++a) {
      Of::copy(n, thread, typename Of::Between{tiles.alone.f.rows_in(a) + from, tile[a]});
      to[a] = reinterpret_cast<T*>(reinterpret_cast<uintptr_t>(&tile[a][0]) - uintptr_t(from) * sizeof(T));
    }
    tiles.alone.f.move(to);
  }
  __syncthreads();
  for (int64_t i = thread, work = (last - first) * g.width; i < work; i += kTileThreads) {
    const Sequence s = g[first + i / g.width];
    const bool inside = !fits || (s.begin >= all.begin && s.end <= all.end);  // of offsets that nobody has checked
    if (inside && !(tiles.shares && s.length() > kBlock)) tiles.alone.template strip<1>(s.index, i % g.width);
  }
  __syncthreads();
  if (fits) Of::copy(n, thread, typename Of::Between{tile[Of::kArrays - 1], out + from});
}

template <class F>
void each_in_blocks(const Exec& exec, const F& f) {
  const InBlocks<F> alone{f};
  const int64_t n = f.g.room >= F::kPasses * int64_t(sizeof(typename F::Part)) ? f.g.blocks : 0;
  const Shared<F> shared{f, {f.g, 0, f.g.segments, 0}, n, static_cast<typename F::Part*>(f.g.memory)};
  if constexpr (requires { F::kRowsIn; }) {
    if (const int64_t together = Tiles<F>::segments_of(f.g)) {
      const int64_t blocks = (f.g.segments + together - 1) / together;
      const Tiles<F> tiles{alone, together, n > 0};
      LOD_LAUNCH(run_in_tiles, unsigned(blocks), kTileThreads, exec.stream, tiles);
      if (n) each_block(exec, FirstOfBlock<F>{shared}), go_on(exec, shared);
      return;
    }
  }
  if (!n) return each_segment(exec, f.g, alone);
  each_strip(exec, n + f.g.segments, f.g.width, BlocksAndSegments<F>{{shared}, alone});
  go_on(exec, shared);
}

#else

// Memory for `n` objects without constructors, vectors among them.
template <class T>
class Memory {
 public:
  explicit Memory(int64_t n) : at_(static_cast<T*>(::operator new(size_t(n) * sizeof(T), std::align_val_t(64)))) {}
  ~Memory() { ::operator delete(at_, std::align_val_t(64)); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  T* data() const { return at_; }

 private:
  T* const at_;
};

constexpr Exec kAlone{[](int64_t n, int64_t, const void* kernel, Exec::Body body) { body(kernel, 0, n); }};

// part(b) of blocks 0 to n - 1, n > 0, joined in order by op; by several threads where there is an exec.
template <auto op, class F>
auto joined(const Exec* exec, int64_t n, int64_t cost, const F& part) {
  const Memory<decltype(part(0))> parts(n);
  each(exec ? *exec : kAlone, n, cost, [&](int64_t b) LOD_INLINE { parts.data()[b] = part(b); });
  auto total = parts.data()[0];
  for (int64_t b = 1; b < n; ++b) total = op(total, parts.data()[b]);
  return total;
}

// The segments that hold so many rows that a thread with one of them would be the last to be done.
struct LongSegments {
  const LoDView& g;
  int64_t least;
  LongSegments(const Exec& exec, const LoDView& view, int64_t few) : g(view), least(0) {
    const int64_t threads = exec.threads();
    if (threads <= few || g.rows < 2 * kBlock || g.rows * g.width < 2 * kGrain) return;
    least = g.rows / (2 * threads) < 2 * kBlock ? 2 * kBlock : g.rows / (2 * threads);
  }
  template <class F>
  void each(const F& f) const {
    for (int64_t row = 0, next = 0; least && row < g.rows; row += least) {
      const int64_t s = segment_of(g.offsets, g.segments, row);
      if (s >= next && s < g.segments && g[s].length() >= least) f(s), next = s + 1;
    }
  }
};
template <class F>
struct OtherSegments {
  const InBlocks<F>& f;
  const LongSegments& apart;
  void some(int64_t first, int64_t last) const {
    if (first < last && f.run(first, last)) return;
    for (; first < last; ++first) strips(f, first, f.f.g.width);
  }
  bool run(int64_t first, int64_t last) const {
    apart.each([&](int64_t s) {
      if (s < first || s >= last) return;
      some(first, s);
      first = s + 1;
    });
    some(first, last);
    return true;
  }
  template <int W>
  LOD_FN void strip(int64_t s, int64_t c) const {
    f.template strip<W>(s, c);
  }
};

template <class F>
void each_in_blocks(const Exec& exec, const F& f) {
  const InBlocks<F> alone{f};
  const LongSegments apart(exec, f.g, kScans<F> ? 2 : 1);  // a scan's blocks are gone over twice
  bool any = false;
  apart.each([&](int64_t s) {
    any = true;
    if constexpr (requires { f.run(s, s, &exec); })
      if (f.run(s, s + 1, &exec)) return;
    const int64_t block = block_of(f.g[s].length()), n = (f.g[s].length() - 1) / block + 1;
    const Memory<typename F::Part> memory(n * kSlots<F> * f.g.width);
    const Shared<F> shared{f, {f.g, s, 1, f.g[s].begin}, n, memory.data()};
    each_block(exec, FirstOfBlock<F>{shared});
    go_on(exec, shared);
  });
  if (any) each_segment(exec, f.g, OtherSegments<F>{alone, apart});
  else each_segment(exec, f.g, alone);
}

#endif

// GCC unrolls up to 16 turns before it looks for vectors, and then finds none where there are selects.
#if defined(__GNUC__) && !defined(__clang__) && !defined(__CUDACC__)
#define LOD_ROLLED _Pragma("GCC unroll 1")
#else
#define LOD_ROLLED
#endif

// write(i, read(i)) for the n elements from i on, `step` apart. Several are read before the first is written: for all
// that a compiler knows it may be to the same memory, and a GPU would wait for every one.
template <class Read, class Write>
LOD_FN void in_order(int64_t i, int64_t step, int64_t n, const Read& read, const Write& write) {
  constexpr int kAtOnce = 8;
  for (; n >= kAtOnce; n -= kAtOnce, i += kAtOnce * step) {
    decltype(read(i)) held[kAtOnce];
    for (int u = 0; u < kAtOnce; ++u) held[u] = read(i + u * step);
    for (int u = 0; u < kAtOnce; ++u) write(i + u * step, held[u]);
  }
  for (; n > 0; --n, i += step) write(i, read(i));
}
template <class Read, class Write>
LOD_FN void in_order(const LoDView& g, const Range& rows, int64_t c, const Read& read, const Write& write) {
  in_order(rows.begin * g.width + c, g.width, rows.length(), read, write);
}

// f(k) for the W channels of a strip, 16 at a time: then a compiler that peels no more than 8 turns of a loop keeps
// what they add up to in registers, however wide the strip.
template <int W, class F>
LOD_FN void each_channel(const F& f, int first = 0) {
  constexpr int part = W > 64 ? 64 : 16;
  if constexpr (W > part) {
    for (int k = 0; k < W; k += part) each_channel<part>(f, first + k);
  } else {
    for (int k = 0; k < W; ++k) f(first + k);
  }
}

// part[k]: f(i, k) joined by J, i the element of channel c + k in each of some rows. Strips of one channel take U rows
// side by side, so that one need not wait for another; in a single column they are a vector.
template <int U, int W, class J, class F, class Part>
LOD_FN void join_side_by_side(const Range& rows, int64_t width, int64_t c, const F& f, Part* part) {
  Part total[W];
  for (int k = 0; k < W; ++k) total[k] = J::template none<Part>();
  int64_t r = rows.begin;
  if (W == 1 && rows.length() >= 2 * U) {
    Part side[U];
    for (int u = 0; u < U; ++u) side[u] = J::template none<Part>();
    for (; r + U <= rows.end; r += U)
      LOD_ROLLED for (int u = 0; u < U; ++u) side[u] = J::join(side[u], Part(f((r + u) * width + c, 0)));
    for (int u = 0; u < U; ++u) total[0] = J::join(total[0], side[u]);
  }
  for (; r < rows.end; ++r)
    each_channel<W>([&](int k) LOD_INLINE { total[k] = J::join(total[k], Part(f(r * width + c + k, k))); });
  for (int k = 0; k < W; ++k) part[k] = total[k];
}
template <int W, class J, class F, class Part>
LOD_FN void join_rows(const LoDView& g, const Range& rows, int64_t c, const F& f, Part* part) {
  if constexpr (W == 1)
    if (g.width == 1) return join_side_by_side<16, 1, J>(rows, 1, 0, f, part);
  join_side_by_side<4, W, J>(rows, g.width, c, f, part);
}

}  // namespace lod::LOD_LEVEL
