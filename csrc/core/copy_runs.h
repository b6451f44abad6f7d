// Copies of runs of rows. Kernel source, see torch_lod/device.h. SPDX-License-Identifier: Apache-2.0

namespace lod::LOD_LEVEL {

template <int kBytes>
LOD_FN void copy_block(void* to, const void* from) {
  std::memcpy(to, from, kBytes);
}
// memcpy, without a call where it is short: the first and the last block of a size, which may overlap.
LOD_FN void copy_bytes(void* out, const void* in, int64_t bytes) {
  auto* to = static_cast<unsigned char*>(out);
  const auto* from = static_cast<const unsigned char*>(in);
  const auto ends = [&]<int n>() LOD_INLINE {
    copy_block<n>(to, from);
    copy_block<n>(to + bytes - n, from + bytes - n);
  };
  if (bytes > 64) std::memcpy(to, from, size_t(bytes));
  else if (bytes >= 32) ends.template operator()<32>();
  else if (bytes >= 16) ends.template operator()<16>();
  else if (bytes >= 8) ends.template operator()<8>();
  else if (bytes >= 4) ends.template operator()<4>();
  else
    for (int64_t i = 0; i < bytes; ++i) to[i] = from[i];
}

// memcpy to memory that is written in order, up to to_end: up to 63 bytes behind the run are written over, and written
// again by what follows. Otherwise a branch, which is mispredicted, would have to tell how short the run is.
LOD_FN void copy_run(void* out, const void* in, int64_t bytes, const unsigned char* to_end,
                     const unsigned char* from_end) {
  auto* to = static_cast<unsigned char*>(out);
  const auto* from = static_cast<const unsigned char*>(in);
  if (bytes > 1024 || to_end - to < bytes + 64 || from_end - from < bytes + 64) return copy_bytes(to, from, bytes);
  int64_t i = 0;
  do {
    copy_block<32>(to + i, from + i);
    copy_block<32>(to + i + 32, from + i + 32);
  } while ((i += 64) < bytes);
}
// The same of n words of one value.
template <class T>
LOD_FN void fill_run(T* to, int64_t n, T value, const unsigned char* to_end) {
  constexpr int64_t words = 64 / sizeof(T);
  const bool room = to_end - reinterpret_cast<unsigned char*>(to) >= (n + words) * int64_t(sizeof(T));
  if (!room) return void(std::fill_n(to, n, value));
  for (int64_t i = 0; i < n; i += words)
    for (int64_t k = 0; k < words; ++k) to[i + k] = value;
}

// n rows, the first of them at `from`, from there backwards.
template <class T>
LOD_FN void reverse_run(T* to, const T* from, int64_t n, int64_t width) {
  if (width == 1) {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) to[i] = from[-i];
  } else {
    for (int64_t r = 0; r < n; ++r) copy_bytes(to + r * width, from - r * width, width * int64_t(sizeof(T)));
  }
}

}  // namespace lod::LOD_LEVEL
