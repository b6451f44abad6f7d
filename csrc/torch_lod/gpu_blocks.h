// Kernels that read the rows of a segment in blocks of kBlock rows, counted from the segment's own start, on a GPU.
// Kernel source. SPDX-License-Identifier: Apache-2.0
//
// A kernel has a member `g`, a BlockView, and says
//
//   Part, kPasses                               the partial result of a channel in a pass; the number of passes
//   join<pass>(a, b)                            of two blocks, the earlier one first
//   block<pass, W>(s, rows, c, found, part)     part[k]: what channel c + k of these rows of sequence s gives
//   finalized<pass>(s, part)                      what is made of that of all rows, once for all who read it
//   kByRow                                      whether there is something to do for every row in the end
//   finish<W>(s, rows, c, found)                that, for some rows of s; else for s as a whole, empty or not
//
// where found[pass][k] is the result of all blocks of s, joined in order, in the passes before. A scan is a kernel of
// one pass with three members more instead of finalized, and finish by row, where found[0][k] is what the blocks before
// these rows have given, and has to become the result with these rows.
//
//   nothing()                                   the result of no block
//   start<W>(s, rows, c, found)                 finish for the first block: found has yet to be set
//   backwards()                                 whether the last block is the first
//
//   each_in_blocks(exec, f)     does all segments: one after another, but blocks of the same segment in parallel
//
// kFan blocks are a block of the next level, and so on, up to where a segment has at most kFan: partial results are
// joined level by level. Narrow rows are moved to memory of their threads, and back if there is something to do by row,
// where a kernel says
//
//   kTiles                                      true, and
//   Element, kRowsIn                            what rows are of, and how many arrays of them are read
//   in[kRowsIn], out                            these, and, by row, where the results go

namespace lod::LOD_LEVEL {

// Rows of a block of a level, and whether threads share a segment's.
constexpr int64_t kBlock = kGpuBlock;
LOD_FN int64_t block_of(int level) { return gpu_block(level); }
LOD_FN bool is_shared(int64_t length, int level = 0) { return length > gpu_long(level); }

template <class F>
constexpr int kSlots = F::kPasses > 0 ? F::kPasses : 1;
template <class F>
constexpr bool kScans = requires { F::nothing(); };
template <int pass, int W, class F, class Part>
LOD_FN void finalize(const F& f, const Sequence& s, Part (*found)[W]) {
  if constexpr (!kScans<F>)
    for (int k = 0; k < W; ++k) found[pass][k] = f.template finalized<pass>(s, found[pass][k]);
}

// One segment by one thread.
template <class F>
struct InBlocks {
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
        for (int k = 0; k < W; ++k) found[pass][k] = f.template join<pass>(found[pass][k], part[k]);
      }
      finalize<pass>(f, s, found);
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
// that is then what came before the block; else a segment's first block takes the result of all.
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
    constexpr int kPrefetch = sizeof(Part) > 8 ? 16 : 32;  // parts that are read before they are joined
    bool backwards = false;
    if constexpr (kScans<F>) backwards = f.backwards();
    const int64_t step = backwards ? -f.g.width : f.g.width;
    Part* next = part(pass, at.number(s, level) + first + (backwards ? count - 1 : 0), c, level);
    for (int64_t b = 0; b < count; b += kPrefetch, next += kPrefetch * step) {
      const int some = count - b < kPrefetch ? int(count - b) : kPrefetch;
      Part own[kPrefetch][W];
      for (int i = 0; i < kPrefetch; ++i)
        if (i < some)
          for (int k = 0; k < W; ++k) own[i][k] = next[i * step + k];
      for (int i = 0; i < kPrefetch; ++i) {
        if (i >= some) break;
        for (int k = 0; k < W; ++k) {
          if constexpr (kLeave) next[i * step + k] = found[k];
          found[k] = !kLeave && b + i == 0 ? own[i][k] : f.template join<pass>(found[k], own[i][k]);
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
// The result of a block of blocks; kDown: what came before those that it is made of.
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
      finalize<pass>(this->f, s, found);
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

namespace lod::LOD_LEVEL {

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

}  // namespace lod::LOD_LEVEL
