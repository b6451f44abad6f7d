// Kernels without torch on std::thread, for ThreadSanitizer. Every call runs on one thread and on four, which begin
// immediately with however little work, and must give the same bytes.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "torch_lod/each_level.h"

#include <cstdio>
#include <cstring>
#include <thread>
#include <vector>

namespace lod {

inline void serial(int64_t n, int64_t, const void* kernel, CpuExec::Body body) { body(kernel, 0, n); }
inline void four(int64_t n, int64_t, const void* kernel, CpuExec::Body body) {
  std::vector<std::thread> threads;
  for (int64_t t = 0; t < 4; ++t)
    threads.emplace_back([=] { body(kernel, n * t / 4, n * (t + 1) / 4); });
  for (auto& thread : threads) thread.join();
}

struct Checks {
  int run = 0, differ = 0;
  // `call(exec, out)` writes `size` elements of out.
  template <class T, class F>
  void operator()(const char* name, int64_t size, const F& call) {
    std::vector<T> one(size), many(size);
    call(CpuExec{serial}, one.data());
    call(CpuExec{four, [] {}, [] { return int64_t(4); }}, many.data());
    ++run;
    if (std::memcmp(one.data(), many.data(), size * sizeof(T))) {
      ++differ;
      std::printf("%s differs between one thread and four; ", name);
    }
  }
  int said() const {
    std::printf("%d kernels, %d differ", run, differ);
    return differ != 0;
  }
};

// Long and short, empty at both ends and in the middle.
inline std::vector<int64_t> offsets_of(int64_t rows) {
  return {0, 0, 1, 3, 3, rows / 2, rows / 2 + 7, rows - 2, rows, rows};
}
inline std::vector<float> numbers(int64_t n) {
  std::vector<float> x(n);
  for (int64_t i = 0; i < n; ++i) x[i] = float((i * 7919) % 1013) / 500.f - 1.f;
  return x;
}

}  // namespace lod
