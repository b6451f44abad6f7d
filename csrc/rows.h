// Shape "rows": for every output row, the input row that it copies (-1: none). Kernel text, see core/device.h.
// SPDX-License-Identifier: Apache-2.0

#ifndef LOD_ROWS_ARGUMENTS
#define LOD_ROWS_ARGUMENTS
namespace lod {

struct RunMap {  // map[r] = starts[s] + step * (r - offsets[s]) for the rows r of segment s
  const int64_t* starts;
  const int64_t* offsets;
  int64_t* map;
  int64_t segments, rows, step;
};

struct Wide {
  uint64_t half[2];
};
struct GatherRows {  // out[i, c] = values[map[i], c], or fill where map[i] is not a row of values
  const void* values;
  const int64_t* map;
  void* out;
  int64_t rows_in, rows_out, width, item;  // item: bytes of an element
  unsigned char fill[16];
};

struct SumLists {  // out[i, c] = sum of values[order[j], c] over lists[i] <= j < lists[i + 1]
  const void* values;
  const int64_t* lists;
  const int64_t* order;
  void* out;
  int64_t rows_in, rows_out, width;
};

}  // namespace lod
#endif

namespace lod::LOD_LEVEL {

struct RunMapKernel : RunMap {
  template <int>
  LOD_FN void strip(int64_t s, int64_t) const {
    const Range range = rows_of(offsets, s, rows);
    int64_t from = starts[s];
    for (int64_t r = range.begin; r < range.end; ++r, from += step) map[r] = from;
  }
};

template <class T>
struct GatherKernel {
  const T* values;
  const int64_t* map;
  T* out;
  int64_t rows, width;
  T fill;
  template <int W>
  LOD_FN void strip(int64_t i, int64_t c) const {
    const int64_t row = map[i];
    T* to = out + i * width + c;
    if (row >= 0 && row < rows) {
      const T* from = values + row * width + c;
      for (int k = 0; k < W; ++k) to[k] = from[k];
    } else {
      for (int k = 0; k < W; ++k) to[k] = fill;
    }
  }
};

template <class T>
struct SumListsKernel {
  const T* values;
  const int64_t* lists;
  const int64_t* order;
  T* out;
  int64_t rows, width;
  template <int W>
  LOD_FN void strip(int64_t i, int64_t c) const {
    acc_t<T> sum[W];
    for (int k = 0; k < W; ++k) sum[k] = 0;
    for (int64_t j = lists[i]; j < lists[i + 1]; ++j) {
      const int64_t row = order[j];
      const T* from = values + row * width + c;
      for (int k = 0; k < W; ++k) sum[k] += acc_t<T>(from[k]);
    }
    T* to = out + i * width + c;
    for (int k = 0; k < W; ++k) to[k] = T(sum[k]);
  }
};

LOD_ENTRY void run_map(const Exec& exec, const RunMap& a) {
  each_segment(exec, a.offsets, a.segments, a.rows, 1, RunMapKernel{a});
}

template <class T>
void gather_as(const Exec& exec, const GatherRows& a) {
  T fill;
  std::memcpy(&fill, a.fill, sizeof(T));
  each_strip(exec, a.rows_out, a.width,
             GatherKernel<T>{static_cast<const T*>(a.values), a.map, static_cast<T*>(a.out), a.rows_in, a.width, fill});
}

LOD_ENTRY void gather_rows(const Exec& exec, const GatherRows& a) {
  switch (a.item) {
    case 1: return gather_as<uint8_t>(exec, a);
    case 2: return gather_as<uint16_t>(exec, a);
    case 4: return gather_as<uint32_t>(exec, a);
    case 8: return gather_as<uint64_t>(exec, a);
    default: return gather_as<Wide>(exec, a);
  }
}

LOD_ENTRY void sum_lists(const Exec& exec, DType dtype, const SumLists& a) {
  LOD_WHOLE(sum_lists(exec, dtype, a));
  visit_here(dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    each_strip(exec, a.rows_out, a.width, SumListsKernel<T>{static_cast<const T*>(a.values), a.lists, a.order,
                                                            static_cast<T*>(a.out), a.rows_in, a.width});
  });
}

}  // namespace lod::LOD_LEVEL
