// Ways to run a kernel, in the namespace of the level being compiled: included by each_level.h, never alone.
//
//   each(exec, n, cost, f)             f(i) for 0 <= i < n; cost: elements that one call touches
//   each_strip(exec, n, width, f[, cost of a number])    f.strip<W>(i, c) for every item i and all W channels from c
//   each_segment(exec, view, f)        the same over the sequences of a LoDView, cut into pieces of equally many rows
//   each_row(exec, view, f)            f.strip<W>(s, r, c) for every row r of every segment s
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
// SPDX-License-Identifier: Apache-2.0

namespace lod::LOD_LEVEL {

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
#define LOD_LAUNCH(kernel, blocks, threads, stream, ...) \
  kernel<<<dim3(blocks), dim3(threads), 0, static_cast<cudaStream_t>(stream)>>>(__VA_ARGS__)
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

// Rows side by side, as they lie in memory. A block of threads looks for the segments of its first and its last row,
// and keeps the ends of those in between where its threads find theirs.
constexpr int kEnds = 1024;
template <class F>
struct RowsOfSegments {
  F f;
  const int64_t* offsets;
  int64_t segments, rows, width, each;  // each: rows of a block
  Divisor by_width{width};
};
template <class F>
__global__ void run_rows(RowsOfSegments<F> a) {
  __shared__ int64_t found[2];
  __shared__ int ends[kEnds];  // in rows from the block's first on
  const int thread = int(threadIdx.x);
  const int64_t first = int64_t(blockIdx.x) * a.each, last = first + a.each < a.rows ? first + a.each : a.rows;
  if (thread < 2) found[thread] = segment_of(a.offsets, a.segments, thread ? last - 1 : first);
  __syncthreads();
  const int64_t from = found[0], n = found[1] - from;
  const bool fits = n >= 0 && n <= kEnds;
  for (int64_t i = thread; fits && i < n; i += kRowThreads) {
    const int64_t end = a.offsets[from + 1 + i];
    ends[i] = int(end <= first ? 0 : end >= last ? last - first : end - first);
  }
  __syncthreads();
  for (int64_t i = thread, all = (last - first) * a.width; i < all; i += kRowThreads) {
    const int64_t row = a.by_width.quotient(i);
    int64_t s = from;
    if (fits) {
      int lo = 0, hi = int(n);
      while (lo < hi) {
        const int mid = (lo + hi) / 2;
        if (ends[mid] <= row) lo = mid + 1;
        else hi = mid;
      }
      s += lo;
    } else {
      s = segment_of(a.offsets, a.segments, first + row);
    }
    if (s < a.segments) a.f.template strip<1>(s, first + row, i - row * a.width);
  }
}

template <class F>
void each_row(const Exec& exec, const int64_t* offsets, int64_t segments, int64_t rows, int64_t width, const F& f) {
  if (rows <= 0 || width <= 0) return;
  const int64_t elements = rows * width < (1 << 23) ? 1024 : 4096, each = elements < width ? 1 : elements / width;
  LOD_LAUNCH(run_rows, unsigned((rows + each - 1) / each), kRowThreads, exec.stream,
             RowsOfSegments<F>{f, offsets, segments, rows, width, each});
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
