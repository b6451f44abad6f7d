// How a GPU's threads share segments and the blocks of long ones (gpu_blocks.h). Kernel source.
// SPDX-License-Identifier: Apache-2.0

namespace lod::LOD_LEVEL {

// Threads with rows of their own would read and write elements far apart, and more than once: narrow rows
// they read and write in memory of their block, to and from which they copy side by side.
constexpr int kTileThreads = 128, kTileBytes = 32768;
template <class F>
constexpr bool kTiled = requires { F::kTiles; };
template <class F>
  requires requires { F::kTiles; }
constexpr bool kTiled<F> = F::kTiles;
template <class F>
struct Tile {
  using T = typename F::Element;
  static constexpr int kArrays = F::kRowsIn, kRoom = kTileBytes / kArrays / int(sizeof(T)), kPrefetch = 8;
  // Calls write(i, read(i)) for the numbers below n, several of which are read at a time.
  template <class Read, class Write>
  LOD_FN static void copy(int64_t n, const Read& read, const Write& write) {
    for (int64_t i = int(threadIdx.x); i < n; i += kPrefetch * kTileThreads) {
      T held[kPrefetch];
      for (int k = 0; k < kPrefetch; ++k)
        if (i + k * kTileThreads < n) held[k] = read(i + k * kTileThreads);
      for (int k = 0; k < kPrefetch; ++k)
        if (i + k * kTileThreads < n) write(i + k * kTileThreads, held[k]);
    }
  }
  // f reads from here, and, by row, writes over what it reads last.
  LOD_FN static void read_from(F& f, T* const* to) {
    for (int k = 0; k < kArrays; ++k) f.in[k] = to[k];
    if constexpr (F::kByRow) f.out = to[kArrays - 1];
  }
  // What makes element `from` of an array the first one here.
  LOD_FN static T* moved(T* here, int64_t from) {
    return reinterpret_cast<T*>(reinterpret_cast<uintptr_t>(here) - uintptr_t(from) * sizeof(T));
  }
};
// Of how wide rows a tile takes segments, or blocks of long ones: a warp that reads wider ones is seldom far apart.
constexpr int64_t kTiledWidth = 32, kPlacedWidth = 2;
// The blocks of a tile, if most tiles are of one segment; 0: they are not for tiles.
template <class F>
int64_t placed_blocks(const F& f) {
  if constexpr (kTiled<F>) {
    if (f.g.width > kPlacedWidth) return 0;
    const int64_t room = Tile<F>::kRoom / (kBlock * f.g.width), blocks = room < kTileThreads ? room : kTileThreads;
    return f.g.rows / blocks / kBlock >= f.g.segments ? blocks : 0;
  }
  return 0;
}

// Some blocks, or channels of them, and where their segments are to be looked for.
template <class K>
struct SomeBlocks {
  K kernel;
  int64_t each;  // what a block of threads does
  Divisor by_width{kernel.f.g.width};
  LOD_FN K within(int64_t first, int64_t last) const {
    K k = kernel;
    k.at.first = first, k.at.count = last - first + 1;
    return k;
  }
};
template <class K>
__global__ void run_blocks(SomeBlocks<K> a) {
  __shared__ int64_t found[2];
  const int thread = int(threadIdx.x);
  const int64_t width = a.kernel.f.g.width, all = a.kernel.n * width, first = int64_t(blockIdx.x) * a.each;
  const int64_t last = first + a.each < all ? first + a.each : all;
  if (thread < 2) found[thread] = a.kernel.at.segment(a.by_width.quotient(thread ? last - 1 : first)).index;
  __syncthreads();
  const K kernel = a.within(found[0], found[1]);
  for (int64_t i = first + thread; i < last; i += kRowThreads) {
    const int64_t p = a.by_width.quotient(i);
    kernel.template strip<1>(p, i - p * width);
  }
}
// The same in a tile where all are of one segment: blocks of an odd number of rows, so that threads are at different
// banks.
static_assert(kBlock % 2);
template <class F, class K>
__global__ void run_placed(SomeBlocks<K> a) {
  using T = typename F::Element;
  using Of = Tile<F>;
  __shared__ T tile[Of::kArrays][Of::kRoom];
  __shared__ int64_t found[2];
  const int thread = int(threadIdx.x);
  const int64_t width = a.kernel.f.g.width, first = int64_t(blockIdx.x) * a.each, left = a.kernel.n - first;
  const int64_t some = left < a.each ? left : a.each;
  if (thread < 2) found[thread] = a.kernel.at.segment(thread ? first + some - 1 : first).index;
  __syncthreads();
  K kernel = a.within(found[0], found[1]);
  const bool placed = found[0] == found[1];
  int64_t from = 0, n = 0;  // numbers that are here
  if (placed) {
    const Sequence s = kernel.f.g[found[0]];
    const Range rows = kernel.at.rows(first, s);
    if (rows.begin >= rows.end) return;
    const int64_t end = rows.begin + some * kBlock;
    from = rows.begin * width, n = (end < s.end ? end : s.end) * width - from;
    T* to[Of::kArrays];
    for (int k = 0; k < Of::kArrays; ++k) {
      const T* array = kernel.f.in[k] + from;
      Of::copy(n, [&](int64_t i) { return array[i]; }, [&](int64_t i, T value) { tile[k][i] = value; });
      to[k] = Of::moved(&tile[k][0], from);
    }
    Of::read_from(kernel.f, to);
  }
  __syncthreads();
  for (int64_t i = thread; i < some * width; i += kTileThreads) {
    const int64_t block = a.by_width.quotient(i);
    kernel.template strip<1>(first + block, i - block * width);
  }
  if constexpr (K::kWrites) {
    __syncthreads();
    T* const out = a.kernel.f.out + from;
    Of::copy(n, [&](int64_t i) { return tile[Of::kArrays - 1][i]; }, [&](int64_t i, T value) { out[i] = value; });
  }
}

template <class F, class K>
void each_block(const Exec& exec, const K& kernel) {
  if constexpr (kTiled<F>) {
    if (const int64_t each = placed_blocks(kernel.f)) {
      LOD_LAUNCH((run_placed<F, K>), unsigned((kernel.n + each - 1) / each), kTileThreads, exec.stream,
                 SomeBlocks<K>{kernel, each});
      return;
    }
  }
  // what looks for the segments does so for as many as leave work for all of a GPU
  const int64_t all = kernel.n * kernel.f.g.width, each = kRowThreads * (all < (1 << 20) ? 1 : 4);
  LOD_LAUNCH(run_blocks<K>, unsigned((all + each - 1) / each), kRowThreads, exec.stream, SomeBlocks<K>{kernel, each});
}
// What is left to do after the first launch: the parts of pass 0, or all where there is no pass.
template <class F, int pass = 0>
void go_on(const Exec& exec, const Shared<F>& shared) {
  if constexpr (pass < F::kPasses) {
    const int64_t rows = shared.f.g.rows, width = shared.f.g.width;
    const int top = shared.at.levels;
    for (int level = 1; level <= top; ++level)
      each_strip(exec, gpu_numbers(rows, level), width, PartOfLevel<F, pass, false>{shared, level});
    each_strip(exec, shared.f.g.segments, width, JoinedBlocks<F, pass>{shared});
    if constexpr (kScans<F>)
      for (int level = top; level > 0; --level)
        each_strip(exec, gpu_numbers(rows, level), width, PartOfLevel<F, pass, true>{shared, level});
    if constexpr (pass + 1 < F::kPasses) each_block<F>(exec, PartOfBlock<F, pass + 1>{shared});
    else if constexpr (F::kByRow) each_block<F>(exec, RowsOfBlock<F>{shared});
    go_on<F, pass + 1>(exec, shared);
  }
}
template <class F>
struct ShortSegments {
  InBlocks<F> alone;
  template <int W>
  LOD_FN void strip(int64_t i, int64_t c) const {
    if (!is_shared(alone.f.g[i].length())) alone.template strip<W>(i, c);
  }
};

// Segments side by side, whose rows lie in the tile as in memory, for results by row.
template <class F>
struct TiledSegments {
  InBlocks<F> alone;
  int64_t together;  // segments of a block
  bool shares;       // others do those of several blocks

  // As many as threads have work for and memory most likely has room for; 0: none.
  static int64_t segments_of(const F& f) {
    const LoDView& g = f.g;
    if (!g.width || g.width > kTiledWidth || !g.segments) return 0;
    const int64_t usual = (g.rows / g.segments + 1) * g.width, room = Tile<F>::kRoom * 3 / 4 / usual;
    const int64_t most = kTileThreads / g.width;
    return room < most ? room : most;
  }
};
template <class F>
__global__ void run_in_tiles(TiledSegments<F> tiles) {
  using T = typename F::Element;
  using Of = Tile<F>;
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
    for (int k = 0; k < Of::kArrays; ++k) {
      const T* rows = tiles.alone.f.in[k] + from;
      Of::copy(n, [&](int64_t i) { return rows[i]; }, [&](int64_t i, T value) { tile[k][i] = value; });
      to[k] = Of::moved(&tile[k][0], from);
    }
    Of::read_from(tiles.alone.f, to);
  }
  __syncthreads();
  for (int64_t i = thread, work = (last - first) * g.width; i < work; i += kTileThreads) {
    const Sequence s = g[first + i / g.width];
    const bool inside = !fits || (s.begin >= all.begin && s.end <= all.end);  // of offsets that were not checked
    if (inside && !(tiles.shares && is_shared(s.length()))) tiles.alone.template strip<1>(s.index, i % g.width);
  }
  __syncthreads();
  const auto read = [&](int64_t i) { return tile[Of::kArrays - 1][i]; };
  if (fits) Of::copy(n, read, [&](int64_t i, T value) { out[from + i] = value; });
}

template <class F>
void each_in_blocks(const Exec& exec, const F& f) {
  if (!f.g.width || !f.g.segments) return;
  const InBlocks<F> alone{f};
  const bool shares = f.g.reach && f.g.room >= F::kPasses * int64_t(sizeof(typename F::Part));
  bool tiled = false;
  if constexpr (F::kByRow && kTiled<F>) {
    if (const int64_t together = TiledSegments<F>::segments_of(f)) {
      const int64_t tiles = (f.g.segments + together - 1) / together;
      LOD_LAUNCH(run_in_tiles<F>, unsigned(tiles), kTileThreads, exec.stream,
                 TiledSegments<F>{alone, together, shares});
      tiled = true;
    }
  }
  if (!shares) {
    if (!tiled) each_segment(exec, f.g, alone);
    return;
  }
  if (!tiled) each_segment(exec, f.g, ShortSegments<F>{alone});
  const Blocks blocks{f.g, 0, f.g.segments, 0, gpu_levels(f.g.reach)};
  const Shared<F> shared{f, blocks, gpu_numbers(f.g.rows, 0), static_cast<typename F::Part*>(f.g.memory)};
  each_block<F>(exec, FirstOfBlock<F>{shared});
  go_on(exec, shared);
}

}  // namespace lod::LOD_LEVEL
