// Ways to run a kernel, in the namespace of the level being compiled: included by each_level.h, never alone.
// SPDX-License-Identifier: Apache-2.0
//
//   each(exec, n, cost, f)             f(i) for 0 <= i < n; cost: elements that one call touches
//   each_strip(exec, n, width, f[, cost of a number])    f.strip<W>(i, c) for every item i and all W channels from c
//   each_segment(exec, view, f)        the same over the sequences of a LoDView, cut into pieces of equally many rows
//   each_row(exec, view, f)            f.strip<W>(s, r, c) for every row r of every segment s
//   each_block(exec, n, cost, {threads, bytes}, f)       f(i, block) for 0 <= i < n: on a GPU by a block of threads
//                                      that share memory, where there is as much (gpu_block.h), else by one thread
//
// Only on a GPU there are, for kernels with a type F::Element, of which a thread reads several before it writes,
//
//   each_element(exec, n, width, f)    f.out[i, c] = f.value(i, c) for every element c of every item i
//                                      or, with a function put, f.put(i, c, f.values[i, c])
//   each_row(exec, view, f)            f.out[r, c] = f.value(s, r, c) for every element c of every row r of segment s
//                                      or, with a function put, f.put(s, r, c, f.values[r, c])
//
// Only on the CPU there are
//
//   each_part(exec, n, cost, f)        f(begin, end) for parts of 0 to n - 1
//   each_range(exec, view, f)          f(first, last) for segments first to last - 1
//   each_row_range(exec, view, f)      f(s, row, last) for rows row to last - 1, the first of them of segment s
//
// On the CPU an item's channels are taken 16, 4 and 1 at a time, loops of constant length that the compiler turns into
// registers; on the GPU one thread owns one channel: its neighbours read the neighbouring ones.
// LOD_ENTRY marks what bindings call: local to a level on the CPU, a symbol of its own on the GPU.

namespace lod::LOD_LEVEL {

// The threads of a block of a GPU, and the bytes that they share.
struct BlockShape {
  int64_t threads, bytes;
};
// What a kernel is given for a block where one thread does a problem.
struct OneThread {};
// Memory that a block shares. tests/emulated_gpu has one that notes who reads and writes between two barriers.
#ifdef LOD_WATCHED
template <class T>
using Shared = LOD_WATCHED<T>;
#else
template <class T>
using Shared = T*;
#endif
template <class F>
struct InOneThread {
  F f;
  LOD_FN void operator()(int64_t i) const {
    OneThread block;
    f(i, block);
  }
};

#ifdef __CUDACC__

using Exec = CudaExec;
constexpr bool kOnGpu = true;
#define LOD_ENTRY
#define LOD_LOWER_LEVEL(call)

template <class F>
void visit_here(DType dtype, const F& f) {
  visit_numbers(dtype, f);
}
template <class T>
using computed_t = T;

#ifndef LOD_LAUNCH  // tests/emulated_gpu runs the threads one after another
// Here and not in bindings: a library that has the CUDA runtime in itself has errors of its own.
inline void check_launch() {
  const cudaError_t error = cudaGetLastError();
  if (error != cudaSuccess)
    throw std::runtime_error(std::string("torch_lod: a kernel could not be launched, or an earlier one failed: ") +
                             cudaGetErrorString(error));
}
// The most that a block of this GPU may share, if it asks for it; 0 where that is not known.
inline int64_t most_shared() {
  int device = 0, bytes = 0;
  if (cudaGetDevice(&device) != cudaSuccess) return 0;
  return cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device) == cudaSuccess ? bytes : 0;
}
#define LOD_LAUNCH_SHARED(kernel, blocks, threads, bytes, stream, ...)                                   \
  do {                                                                                                   \
    kernel<<<dim3(blocks), dim3(threads), bytes, static_cast<cudaStream_t>(stream)>>>(__VA_ARGS__);      \
    check_launch();                                                                                      \
  } while (false)
#define LOD_LAUNCH(kernel, blocks, threads, stream, ...) \
  LOD_LAUNCH_SHARED(kernel, blocks, threads, 0, stream, __VA_ARGS__)
#define LOD_SHARED(name, ...) __shared__ std::type_identity_t<__VA_ARGS__> name
#define LOD_DYNAMIC_SHARED(name) extern __shared__ __align__(16) unsigned char name[]
#define LOD_MOST_SHARED() most_shared()
#define LOD_ALLOW_SHARED(kernel) \
  (void)cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(most_shared()))
#endif

template <class F>
__global__ void run(F f, int64_t n) {
  const int64_t step = int64_t(gridDim.x) * blockDim.x;
#pragma unroll 1  // most threads have one turn, and unrolled the loop begins with a division
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += step) f(i);
}

template <class F>
void each(const Exec& exec, int64_t n, int64_t, const F& f) {
  if (n <= 0) return;
  constexpr int64_t threads = 256, most = 1 << 20;
  const int64_t blocks = (n + threads - 1) / threads;
  LOD_LAUNCH(run, unsigned(blocks < most ? blocks : most), threads, exec.stream, f, n);
}

template <class F>
struct OneChannel {
  F f;
  int64_t width;
  Divisor by_width{width};
  LOD_FN void operator()(int64_t i) const {
    const int64_t item = by_width.quotient(i);
    f.template strip<1>(item, i - item * width);
  }
};

template <class F>
void each_strip(const Exec& exec, int64_t n, int64_t width, const F& f, int64_t = 1) {
  each(exec, n * width, 1, OneChannel<F>{f, width});
}

template <class F>
void each_segment(const Exec& exec, const int64_t*, int64_t segments, int64_t, int64_t width, const F& f) {
  each_strip(exec, segments, width, f);
}

// How many of the numbers 0 to n - 1 have before(i), which all have that are less than one that has. All threads of a
// block of kRowThreads call it, and take part: three rounds for 2^24.
constexpr int kRowThreads = 256;
template <class Before>
LOD_DEVICE int64_t count_before(int64_t n, const Before& before) {
  int64_t first = 0;
  while (n > 0) {  // it is from `first` to first + n
    const int64_t each = (n + kRowThreads - 1) / kRowThreads, i = (int64_t(threadIdx.x) + 1) * each - 1;
    const int64_t passed = __syncthreads_count(i < n && before(first + i)) * each, left = n - passed;
    first += passed;
    n = left < each ? left : each - 1;
  }
  return first;
}

template <class F>
constexpr bool kByElement = requires { typename F::Element; };
// How many of its elements a thread reads before it writes the first.
template <class F>
constexpr int kPrefetch = sizeof(typename F::Element) > 4 ? 4 : 8;
template <class F>
  requires requires { F::kPrefetch; }
constexpr int kPrefetch<F> = F::kPrefetch;

// Equal shares of rows that lie side by side, one for a block of threads: some rows, or a part of a wide one.
constexpr int kMostRows = LOD_TILE_BYTES / 2;
struct RowShare {
  int64_t row, last, column;
  int width;
};
struct RowShares {
  int64_t rows, width, parts, columns, each;  // columns, each: those and the rows of a block
  Divisor by_parts, by_columns;

  RowShares(int64_t rows, int64_t width, int64_t fit)
      : rows(rows),
        width(width),
        parts((width + fit - 1) / fit),
        columns((width + parts - 1) / parts),
        each(fit / columns < kMostRows ? fit / columns : kMostRows),
        by_parts(parts),
        by_columns(columns) {}
  unsigned blocks() const { return unsigned((rows + each - 1) / each * parts); }
  LOD_DEVICE RowShare mine() const {
    const int64_t share = by_parts.quotient(blockIdx.x), row = share * each, last = row + each;
    const int64_t column = (blockIdx.x - share * parts) * columns, left = width - column;
    return {row, last < rows ? last : rows, column, int(left < columns ? left : columns)};
  }
  // f(r, c) for element i of a share, counted from its first row and column.
  template <class F>
  LOD_DEVICE auto at(int i, const F& f) const {
    const int r = int(by_columns.quotient(unsigned(i)));
    return f(r, i - r * int(columns));
  }
};

// write(i, read(i)) for all i below n. Several are read before the first is written: nothing else tells a compiler that
// they may be.
template <int ahead, class Read, class Write>
LOD_DEVICE void copy_elements(int n, const Read& read, const Write& write) {
#pragma unroll 1
  for (int first = int(threadIdx.x); first < n; first += ahead * kRowThreads) {
    decltype(read(0)) held[ahead];
#pragma unroll
    for (int k = 0; k < ahead; ++k)
      if (first + k * kRowThreads < n) held[k] = read(first + k * kRowThreads);
#pragma unroll
    for (int k = 0; k < ahead; ++k)
      if (first + k * kRowThreads < n) write(first + k * kRowThreads, held[k]);
  }
}
// The same for out[i], of a kernel's results.
template <class F, class Read>
LOD_DEVICE void write_elements(const F& f, int64_t from, int n, const Read& read) {
  auto* const out = static_cast<typename F::Element*>(static_cast<void*>(f.out)) + from;
  copy_elements<kPrefetch<F>>(n, read, [&](int i, const typename F::Element& value) { out[i] = value; });
}

template <class F>
__global__ void run_elements(F f, RowShares shares) {
  const RowShare own = shares.mine();
  const int64_t from = own.row * shares.width + own.column;
  const int n = int(own.last - own.row) * own.width;
  const auto at = [&](int i, const auto& call) {
    return shares.at(i, [&](int r, int c) { return call(own.row + r, own.column + c); });
  };
  if constexpr (requires { &F::put; })
    copy_elements<kPrefetch<F>>(n, [&](int i) { return f.values[from + i]; }, [&](int i, const auto& value) {
      at(i, [&](int64_t r, int64_t c) { f.put(r, c, value); });
    });
  else write_elements(f, from, n, [&](int i) { return at(i, [&](int64_t r, int64_t c) { return f.value(r, c); }); });
}
template <class F>
void each_element(const Exec& exec, int64_t n, int64_t width, const F& f) {
  if (n <= 0 || width <= 0) return;
  const RowShares shares(n, width, LOD_TILE_BYTES / sizeof(typename F::Element));
  LOD_LAUNCH(run_elements, shares.blocks(), kRowThreads, exec.stream, f, shares);
}

// The segment of each of a block's rows, by the first row of every segment and of every 32 rows.
struct MarkedRows {
  unsigned* begins;   // a bit for each row: whether a segment, or 32 rows, begin there
  uint16_t* segment;  // of a row where one does

  LOD_DEVICE void clear(int rows) const {  // all are of segment 0
    for (int i = int(threadIdx.x); i < (rows + 31) / 32; i += kRowThreads) begins[i] = 1, segment[32 * i] = 0;
  }
  LOD_DEVICE void mark(int s, unsigned begin, unsigned end) const {
    atomicOr(&begins[begin / 32], 1u << begin % 32);
    segment[begin] = uint16_t(s);
    for (unsigned row = (begin | 31) + 1; row < end; row += 32) segment[row] = uint16_t(s);
  }
  LOD_DEVICE int operator[](unsigned row) const {  // of the last beginning up to the row
    return segment[(row | 31) - __clz(int(begins[row / 32] & ((2u << row % 32) - 1)))];
  }
};

// A block looks for the segment of its first row, and marks where those behind it begin: in one turn, unless there are
// more than kMostSegments. The next turn begins behind the empty ones that follow: of those at one place, however many,
// a block reads at most kMostSegments.
constexpr int kMostSegments = 4 * kMostRows;
static_assert(kMostSegments <= 1 << 16 && kMostRows % 32 == 0);
template <class F>
__global__ void run_rows(F f, const int64_t* offsets, int64_t segments, RowShares shares) {
  LOD_SHARED(begins, unsigned[kMostRows / 32]);
  LOD_SHARED(segment, uint16_t[kMostRows]);
  const MarkedRows marked{begins, segment};
  RowShare own = shares.mine();
  while (own.row < own.last) {
    const int64_t s = count_before(segments, [&](int64_t i) { return offsets[i + 1] <= own.row; });
    const int some = int(segments - s < kMostSegments ? segments - s : kMostSegments);
    const int64_t stop = offsets[s + some];
    if (some == 0 || stop <= own.row) return;  // rows of no segment, or wrong offsets
    const int rows = int((stop < own.last ? stop : own.last) - own.row);
    marked.clear(rows);
    __syncthreads();
    const auto here = [&](int64_t offset) {  // of the rows of this turn
      return offset <= own.row ? 0 : offset >= own.row + rows ? rows : int(offset - own.row);
    };
    for (int i = int(threadIdx.x) + 1; i < some; i += kRowThreads) {
      const int begin = here(offsets[s + i]), end = here(offsets[s + i + 1]);
      if (begin < end) marked.mark(i, begin, end);
      if (end == rows) break;
    }
    __syncthreads();
    const auto at = [&](int i, const auto& call) {
      return shares.at(i, [&](int r, int c) { return call(s + marked[r], own.row + r, own.column + c); });
    };
    const int n = rows * own.width;
    const int64_t from = own.row * shares.width + own.column;
    if constexpr (requires { &F::put; }) {
      const auto* const values = f.values + from;
      copy_elements<kPrefetch<F>>(n, [&](int i) { return values[i]; }, [&](int i, const auto& value) {
        at(i, [&](int64_t s, int64_t r, int64_t c) { f.put(s, r, c, value); });
      });
    } else if constexpr (kByElement<F>) {
      write_elements(f, from, n, [&](int i) {
        return at(i, [&](int64_t s, int64_t r, int64_t c) { return f.value(s, r, c); });
      });
    } else {
      for (int i = int(threadIdx.x); i < n; i += kRowThreads)
        at(i, [&](int64_t s, int64_t r, int64_t c) { f.template strip<1>(s, r, c); });
    }
    own.row += rows;  // marks are written again behind the barriers of the next search
  }
}

template <class F>
void each_row(const Exec& exec, const int64_t* offsets, int64_t segments, int64_t rows, int64_t width, const F& f) {
  if (rows <= 0 || width <= 0 || segments <= 0) return;
  int64_t bytes = 4;  // of an element
  if constexpr (kByElement<F>) bytes = sizeof(typename F::Element);
  const RowShares shares(rows, width, LOD_TILE_BYTES / bytes);
  LOD_LAUNCH(run_rows, shares.blocks(), kRowThreads, exec.stream, f, offsets, segments, shares);
}

#else

using Exec = CpuExec;
constexpr bool kOnGpu = false;
#undef LOD_ENTRY
#undef LOD_LOWER_LEVEL
#define LOD_ENTRY inline

// Integers are compiled at the lower level alone: LOD_LOWER_LEVEL sends calls there, visit_here visits what this level
// has.
#ifdef LOD_FLOATS_ONLY
#define LOD_LOWER_LEVEL(call)                 \
  if (is_whole(dtype)) return lod::base::call
#else
#define LOD_LOWER_LEVEL(call)
#endif
template <class F>
void visit_here(DType dtype, const F& f) {
#ifdef LOD_FLOATS_ONLY
  visit_floating(dtype, f);
#else
  visit_numbers(dtype, f);
#endif
}
// What an element type is computed as: the CPU has no kernels of their own for half types and small integers.
template <class T>
using computed_t = acc_t<T>;

// Whether offsets ever fall, and the longest step if they do not: one pass, free of exits, so that it is vector code.
inline OffsetOrder order_of_offsets(const int64_t* offsets, int64_t count) {
  int64_t falls = 0, longest = 0;
  for (int64_t i = 1; i < count; ++i) {
    falls |= int64_t(offsets[i] < offsets[i - 1]);
    const auto step = int64_t(uint64_t(offsets[i]) - uint64_t(offsets[i - 1]));
    longest = step > longest ? step : longest;
  }
  return {falls != 0, longest};
}

// Copies offsets and looks at what it has copied, which is read once: the caller may write to that memory.
constexpr int64_t kCopied = 2048;
inline OffsetOrder copy_offsets(const int64_t* from, int64_t* to, int64_t count) {
  OffsetOrder all{false, 0};
  for (int64_t begin = 0; begin < count; begin += kCopied) {  // blocks that the cache holds
    const int64_t n = count - begin < kCopied ? count - begin : kCopied, first = begin ? begin - 1 : 0;
    if (from != to) std::memcpy(to + begin, from + begin, n * sizeof(int64_t));
    const OffsetOrder rise = order_of_offsets(to + first, begin + n - first);
    all = {all.falls || rise.falls, rise.longest > all.longest ? rise.longest : all.longest};
  }
  return all;
}
// The same of a map: whether all entries are from -1 to rows - 1.
inline bool copy_map(const int64_t* from, int64_t* to, int64_t count, int64_t rows) {
  int64_t outside = 0;
  for (int64_t begin = 0; begin < count; begin += kCopied) {
    const int64_t n = count - begin < kCopied ? count - begin : kCopied;
    if (from != to) std::memcpy(to + begin, from + begin, n * sizeof(int64_t));
    for (int64_t i = begin; i < begin + n; ++i) outside |= int64_t(to[i] < -1) | int64_t(to[i] >= rows);
  }
  return !outside;
}

constexpr int64_t kGrain = 32768;  // elements worth waking another thread for

// f(begin, end) for parts of [0, n).
template <class F>
void each_part(const Exec& exec, int64_t n, int64_t cost, const F& f) {
  if (n <= 0) return;
  const int64_t grain = cost >= kGrain ? 1 : kGrain / (cost < 1 ? 1 : cost);
  exec.parallel(n, grain, &f, [](const void* kernel, int64_t begin, int64_t end) {
    (*static_cast<const F*>(kernel))(begin, end);
  });
}
template <class F>
void each(const Exec& exec, int64_t n, int64_t cost, const F& f) {
  each_part(exec, n, cost, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) f(i);
  });
}

template <class F>
void each_block(const Exec& exec, int64_t n, int64_t cost, const BlockShape&, const F& f) {
  each(exec, n, cost, InOneThread<F>{f});
}

template <class F>
LOD_FN void strips(const F& f, int64_t i, int64_t width) {
  int64_t c = 0;
  if (width >= 4) {
    for (; c + 16 <= width; c += 16) f.template strip<16>(i, c);
    for (; c + 4 <= width; c += 4) f.template strip<4>(i, c);
  }
  for (; c < width; ++c) f.template strip<1>(i, c);
}

template <class F>
void each_strip(const Exec& exec, int64_t n, int64_t width, const F& f, int64_t cost = 1) {
  each(exec, width ? n : 0, width * cost, [&](int64_t i) LOD_INLINE { strips(f, i, width); });
}

// A piece has to look for its segments: no more of them than threads share well or, of one thread, than leave it long
// without a look at signals.
inline int64_t pieces_of(const Exec& exec, int64_t elements) {
  const int64_t pieces = elements / (exec.threads() > 1 ? kGrain : 16 * kGrain);
  return pieces < 1 ? 1 : pieces > 256 ? 256 : pieces;
}

template <class F>
struct Pieces {
  const F& f;
  const int64_t* offsets;
  int64_t segments, rows, pieces;
  // The first segment that begins at or after the p-th equal share of the rows.
  int64_t cut(int64_t p) const {
    if (p == 0 || p == pieces) return p == 0 ? 0 : segments;
    const int64_t row = rows / pieces * p;
    int64_t lo = 0, hi = segments;
    while (lo < hi) {
      const int64_t mid = (lo + hi) / 2;
      if (offsets[mid] < row) lo = mid + 1;
      else hi = mid;
    }
    return lo;
  }
  void operator()(int64_t p) const { f(cut(p), cut(p + 1)); }
};
template <class F>
void each_range(const Exec& exec, const int64_t* offsets, int64_t segments, int64_t rows, int64_t width, const F& f) {
  if (!width) return;
  const int64_t pieces = pieces_of(exec, (rows + segments) * width);
  each(exec, pieces, kGrain, Pieces<F>{f, offsets, segments, rows, pieces});
}
template <class F>
void each_range(const Exec& exec, const LoDView& g, const F& f) {
  each_range(exec, g.offsets, g.segments, g.rows, g.width, f);
}

template <class F>
void each_segment(const Exec& exec, const int64_t* offsets, int64_t segments, int64_t rows, int64_t width, const F& f) {
  each_range(exec, offsets, segments, rows, width, [&](int64_t s, int64_t end) {
    if (width == 1)  // for whose few registers strips are too much code
      for (; s < end; ++s) f.template strip<1>(s, 0);
    for (; s < end; ++s) strips(f, s, width);
  });
}

template <class F>
LOD_FN void row_strips(const F& f, int64_t s, int64_t row, int64_t width) {
  int64_t c = 0;
  for (; c + 16 <= width; c += 16) f.template strip<16>(s, row, c);
  for (; c + 4 <= width; c += 4) f.template strip<4>(s, row, c);
  for (; c < width; ++c) f.template strip<1>(s, row, c);
}

// f(s, row, last) for parts of the rows: rows row to last - 1, the first of them of segment s.
template <class F>
void each_row_range(const Exec& exec, const LoDView& g, const F& f) {
  if (!g.width || !g.rows) return;
  const int64_t pieces = pieces_of(exec, g.rows * g.width), share = g.rows / pieces;
  each(exec, pieces, kGrain, [&](int64_t p) {
    const int64_t row = share * p, last = p + 1 == pieces ? g.rows : share * (p + 1);
    f(segment_of(g.offsets, g.segments, row), row, last);
  });
}

template <class F>
void each_row(const Exec& exec, const int64_t* offsets, int64_t segments, int64_t rows, int64_t width, const F& f) {
  each_row_range(exec, {offsets, segments, rows, width}, [&](int64_t s, int64_t row, int64_t last) {
    for (; row < last && s < segments; ++s)
      for (const int64_t end = std::min(offsets[s + 1], last); row < end; ++row) row_strips(f, s, row, width);
  });
}

#endif

template <class F>
void each_segment(const Exec& exec, const LoDView& view, const F& f) {
  each_segment(exec, view.offsets, view.segments, view.rows, view.width, f);
}
template <class F>
void each_row(const Exec& exec, const LoDView& view, const F& f) {
  each_row(exec, view.offsets, view.segments, view.rows, view.width, f);
}

}  // namespace lod::LOD_LEVEL

#ifdef __CUDACC__
#include "torch_lod/gpu_block.h"
#endif
