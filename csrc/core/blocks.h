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
// On a GPU kFan blocks are a block of the next level, and so on, up to where a segment has at most kFan: what blocks
// come to is joined level by level.
//
// A GPU moves narrow rows to memory of their threads, and back if there is something to do by row, where a kernel says
//
//   Element, kRowsIn                            what rows are of, and how many arrays of them are read
//   rows_in(a), out                             these, and, by row, where the results go
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

// Rows of a block of a level, of which only a GPU has several; and whether threads share a segment's.
#ifdef __CUDACC__
constexpr int64_t kBlock = kGpuBlock;
LOD_FN int64_t block_of(int level) { return gpu_block(level); }
LOD_FN bool is_shared(int64_t length, int level = 0) { return length > gpu_long(level); }
#else
LOD_FN int64_t block_of(int) { return kBlock; }
LOD_FN bool is_shared(int64_t length, int = 0) { return length > kBlock; }
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
    const int64_t end = begin + kBlock;
    return {begin, end < s.end ? end : s.end};
  }
  template <int pass, int W>
  LOD_FN void passes(const Sequence& s, int64_t c, Part (*found)[W]) const {
    if constexpr (pass < F::kPasses) {
      f.template block<pass, W>(s, from(s, s.begin), c, found, found[pass]);
      for (int64_t begin = s.begin + kBlock; begin < s.end; begin += kBlock) {
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
      const int64_t n = (s.length() + kBlock - 1) / kBlock, step = f.backwards() ? -kBlock : kBlock;
      int64_t begin = s.begin + (step < 0 ? (n - 1) * kBlock : 0);
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

// The blocks of long segments among `count` from `first` on, and the blocks of blocks of every level. They are numbered
// without a table: a level has a number for every stride of rows from `origin` on, and a segment's blocks have the
// first of those in its rows, which are enough. Other numbers have no block.
struct Blocks {
  LoDView g;
  int64_t first, count, origin;
  int levels = 0;  // above the blocks of rows
  LOD_FN int64_t number(const Sequence& s, int level = 0) const {
    const int64_t stride = gpu_stride(level);
    return (s.begin - origin + stride - 1) / stride;
  }
  LOD_FN Sequence segment(int64_t p, int level = 0) const {
    const int64_t row = origin + p * gpu_stride(level);
    int64_t lo = first, hi = first + count - 1;
    while (lo < hi) {
      const int64_t mid = (lo + hi + 1) / 2;
      if (g[mid].begin <= row) lo = mid;
      else hi = mid - 1;
    }
    return g[lo];
  }
  // Of block p, which is none where they are empty.
  LOD_FN Range rows(int64_t p, const Sequence& s, int level = 0) const {
    const int64_t block = block_of(level), begin = s.begin + (p - number(s, level)) * block, end = begin + block;
    return {begin, !is_shared(s.length(), level) || begin < s.begin ? begin : end < s.end ? end : s.end};
  }
  LOD_FN static int64_t blocks(const Sequence& s, int level) {
    return (s.length() + block_of(level) - 1) / block_of(level);
  }
  // Whose blocks of a segment are few enough for one thread.
  LOD_FN int top(const Sequence& s) const {
    int level = 0;
    while (level < levels && is_shared(s.length(), level + 1)) ++level;
    return level;
  }
};

// What passes leave: parts[pass, block, channel], and behind them those of the other levels, for one pass. Of a scan
// that is then what came before the block; else a segment's first block takes what all of them came to.
template <class F>
struct Shared {
  using Part = typename F::Part;
  F f;
  Blocks at;
  int64_t n;  // numbers
  Part* parts;
  LOD_FN Part* part(int pass, int64_t p, int64_t c, int level = 0) const {
    int64_t before = (level ? kSlots<F> : pass) * n;
    for (int below = 1; below < level; ++below) before += gpu_numbers(f.g.rows, below);
    return parts + (before + p) * f.g.width + c;
  }
  template <int passes, int W>
  LOD_FN void load(const Sequence& s, int64_t c, Part (*to)[W]) const {
    for (int pass = 0; pass < passes; ++pass)
      for (int k = 0; k < W; ++k) to[pass][k] = part(pass, at.number(s), c)[k];
  }
  // `count` blocks of segment s from its `first` on, joined in order; with kLeave what came before each, of which found
  // is what came before the first, takes its place.
  template <int pass, bool kLeave, int W>
  LOD_FN void join(const Sequence& s, int level, int64_t first, int64_t count, int64_t c, Part* found) const {
    constexpr int kAhead = sizeof(Part) > 8 ? 16 : 32;  // parts that are read before they are joined
    bool backwards = false;
    if constexpr (kScans<F>) backwards = f.backwards();
    const int64_t step = backwards ? -f.g.width : f.g.width;
    Part* next = part(pass, at.number(s, level) + first + (backwards ? count - 1 : 0), c, level);
    for (int64_t b = 0; b < count; b += kAhead, next += kAhead * step) {
      const int some = count - b < kAhead ? int(count - b) : kAhead;
      Part own[kAhead][W];
      for (int i = 0; i < kAhead; ++i)
        if (i < some)
          for (int k = 0; k < W; ++k) own[i][k] = next[i * step + k];
      for (int i = 0; i < kAhead; ++i) {
        if (i >= some) break;
        for (int k = 0; k < W; ++k) {
          if constexpr (kLeave) next[i * step + k] = found[k];
          found[k] = !kLeave && b + i == 0 ? own[i][k] : F::template join<pass>(found[k], own[i][k]);
        }
      }
    }
  }
};
template <class F, int pass>
struct PartOfBlock : Shared<F> {
  static constexpr bool kWrites = false;  // rows
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
// What a block of blocks comes to; kDown: what came before those that it is made of.
template <class F, int pass, bool kDown>
struct PartOfLevel : Shared<F> {
  int level;
  template <int W>
  LOD_FN void strip(int64_t p, int64_t c) const {
    const Sequence s = this->at.segment(p, level);
    const Range rows = this->at.rows(p, s, level);
    if (rows.begin >= rows.end) return;
    const int64_t first = (p - this->at.number(s, level)) * kFan, left = Blocks::blocks(s, level - 1) - first;
    auto* own = this->part(0, p, c, level);
    typename F::Part found[W];
    for (int k = 0; kDown && k < W; ++k) found[k] = own[k];
    this->template join<pass, kDown, W>(s, level - 1, first, left < kFan ? left : kFan, c, found);
    for (int k = 0; !kDown && k < W; ++k) own[k] = found[k];
  }
};
template <class F, int pass>
struct JoinedBlocks : Shared<F> {
  template <int W>
  LOD_FN void strip(int64_t i, int64_t c) const {
    const Sequence s = this->f.g[i];
    if (!is_shared(s.length())) return;
    const int64_t p = this->at.number(s);
    const int top = this->at.top(s);
    typename F::Part found[kSlots<F>][W];
    if constexpr (kScans<F>)
      for (int k = 0; k < W; ++k) found[pass][k] = F::nothing();
    this->template join<pass, kScans<F>, W>(s, top, 0, Blocks::blocks(s, top), c, found[pass]);
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
  static constexpr bool kWrites = true;
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

template <class F>
using FirstOfBlock = std::conditional_t<F::kPasses == 0, RowsOfBlock<F>, PartOfBlock<F, 0>>;

}  // namespace lod::LOD_LEVEL

#ifdef __CUDACC__
#include "core/gpu_blocks.h"
#endif

namespace lod::LOD_LEVEL {

#ifndef __CUDACC__

template <class F, class K>
void each_block(const Exec& exec, const K& kernel) {
  const int64_t width = kernel.f.g.width;
  each(exec, kernel.n, kBlock * width, [&](int64_t p) LOD_INLINE { strips(kernel, p, width); });
}
// What is left to do of one segment after its first pass.
template <class F, int pass = 0>
void go_on(const Exec& exec, const Shared<F>& shared) {
  if constexpr (pass < F::kPasses) {
    const JoinedBlocks<F, pass> joined{shared};
    for (int64_t c = 0; c < shared.f.g.width; ++c) joined.template strip<1>(shared.at.first, c);
    if constexpr (pass + 1 < F::kPasses) each_block<F>(exec, PartOfBlock<F, pass + 1>{shared});
    else if constexpr (F::kByRow) each_block<F>(exec, RowsOfBlock<F>{shared});
    go_on<F, pass + 1>(exec, shared);
  }
}

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
    const int64_t n = (f.g[s].length() - 1) / kBlock + 1;
    const Memory<typename F::Part> memory(n * kSlots<F> * f.g.width);
    const Shared<F> shared{f, {f.g, s, 1, f.g[s].begin}, n, memory.data()};
    each_block<F>(exec, FirstOfBlock<F>{shared});
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
  if constexpr (W > 16) {
    for (int k = 0; k < W; k += 16) each_channel<16>(f, first + k);
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
