// The words of CUDA for a C++ compiler: the threads of a block run one after another, and those that wait for others at
// a barrier or in an exchange of a warp are set aside, each on a stack of its own. Included in front of a .cu text.
//
// EMULATED_ORDER in the environment: forward (the default), backward, or a number that shuffles the threads of a launch.
// SPDX-License-Identifier: Apache-2.0
#pragma once

// headers that ask for the compiler come first, so that they see the one that there is
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

#define __CUDACC__ 13
#define __CUDA_ARCH__ 900
#define __host__
#define __device__
#define __global__ static  // AddressSanitizer leaves out variables that several objects may define
#define __forceinline__ inline __attribute__((always_inline))
#define __restrict__
#define __launch_bounds__(...)

struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  explicit dim3(unsigned x_ = 1) : x(x_) {}
};
using cudaStream_t = void*;
inline thread_local dim3 blockIdx, threadIdx, gridDim, blockDim;
constexpr int warpSize = 32;
inline uint64_t __umul64hi(uint64_t a, uint64_t b) { return uint64_t((unsigned __int128)(a) * b >> 64); }

namespace emulated {

// In threads.cpp. launch calls thread() for every thread of every block, and raises where a kernel breaks the rules.
void launch(const char* kernel, int64_t blocks, int64_t threads, int64_t bytes, dim3* const (&indices)[4],
            const std::function<void()>& thread);
template <class Thread>
void launch(int64_t blocks, int64_t threads, int64_t bytes, dim3* const (&indices)[4], const Thread& thread) {
  launch(typeid(Thread).name(), blocks, threads, bytes, indices, thread);
}
// Memory that the threads of a block share, told apart by where it is declared: on the heap, in its exact size, and
// filled with 0xFF for every block.
void* shared(const char* where, size_t bytes);
template <class T>
T& shared(const char* where) {
  return *static_cast<T*>(shared(where, sizeof(T)));
}
// What a launch asked for of it, and the most that one may ask for.
unsigned char* dynamic_shared();
int64_t most_shared();
// A thread reads or writes bytes of that: raises where they are not of it, or another thread writes them, or reads what
// is written, without a barrier between the two.
void note(const void* at, size_t bytes, bool write);
template <class T>
class Watched {
 public:
  struct Entry {
    T* at;
    operator T() const { return note(at, sizeof(T), false), *at; }
    const Entry& operator=(const T& value) const { return note(at, sizeof(T), true), *at = value, *this; }
    const Entry& operator=(const Entry& other) const { return *this = T(other); }
    const Entry& operator+=(const T& value) const { return *this = T(*this) + value; }
    const Entry& operator-=(const T& value) const { return *this = T(*this) - value; }
  };
  Watched(T* at) : at_(at) {}
  Entry operator[](int64_t i) const { return {at_ + i}; }
  Watched operator+(int64_t i) const { return at_ + i; }

 private:
  T* at_;
};
void barrier(const char* where);
// A barrier that tells every thread how many came with true.
int count_at_barrier(const char* where, bool value);
// Writes 1, immediately or when the host next waits: the host may go on for long before it sees what a GPU wrote.
void tell(uint64_t* written);
// Waits for the lanes of the mask; their `size` bytes each, 0xFF for the others.
const unsigned char* exchange(const char* where, unsigned mask, const void* value, size_t size);
int lane();
constexpr int kExchanged = 32;  // bytes of a lane

template <class T>
T shuffled(const char* where, unsigned mask, T value, int from, bool inside) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= kExchanged);
  const unsigned char* all = exchange(where, mask, &value, sizeof(T));
  if (inside) std::memcpy(&value, all + kExchanged * from, sizeof(T));
  return value;
}
inline unsigned ballot(const char* where, unsigned mask, bool value) {
  const unsigned char* all = exchange(where, mask, &value, sizeof value);
  unsigned bits = 0;
  for (int i = 0; i < 32; ++i) bits |= unsigned((mask >> i & 1) && all[kExchanged * i] == 1) << i;
  return bits;
}

}  // namespace emulated

#define EMULATED_TEXT_(x) #x
#define EMULATED_TEXT(x) EMULATED_TEXT_(x)
#define EMULATED_HERE __FILE__ ":" EMULATED_TEXT(__LINE__)

#define __syncthreads() emulated::barrier(EMULATED_HERE)
#define __syncthreads_count(value) emulated::count_at_barrier(EMULATED_HERE, (value) != 0)
#define __syncwarp(...) emulated::ballot(EMULATED_HERE, 0xFFFFFFFFu __VA_OPT__(&(__VA_ARGS__)), true)
#define __ballot_sync(mask, value) emulated::ballot(EMULATED_HERE, mask, (value) != 0)
#define __any_sync(mask, value) (__ballot_sync(mask, value) != 0)
#define __all_sync(mask, value) (__ballot_sync(mask, value) == (mask))
#define __shfl_sync(mask, value, from)                                                       \
  emulated::shuffled(EMULATED_HERE, mask, value, (from) & 31, true)
#define __shfl_xor_sync(mask, value, bits)                                                   \
  emulated::shuffled(EMULATED_HERE, mask, value, emulated::lane() ^ (bits), true)
#define __shfl_down_sync(mask, value, by)                                                    \
  emulated::shuffled(EMULATED_HERE, mask, value, emulated::lane() + int(by), emulated::lane() + int(by) < 32)
#define __shfl_up_sync(mask, value, by)                                                      \
  emulated::shuffled(EMULATED_HERE, mask, value, emulated::lane() - int(by), emulated::lane() - int(by) >= 0)
template <class T>
T atomicCAS_system(T* at, T expected, T wanted) {
  const T before = *at;
  if (before == expected) *at = wanted;
  return before;
}
inline int atomicAdd(int* at, int value) {
  const int before = *at;
  *at += value;
  return before;
}
inline unsigned atomicOr(unsigned* at, unsigned bits) {
  const unsigned before = *at;
  *at |= bits;
  return before;
}
inline int __clz(int bits) { return bits ? __builtin_clz(unsigned(bits)) : 32; }
inline void __threadfence_system() {}

#define LOD_SHUFFLE(value, lane) __shfl_sync(~0u, value, lane)
#define LOD_SHARED(name, ...) auto& name = emulated::shared<__VA_ARGS__>(EMULATED_HERE)
#define LOD_WATCHED emulated::Watched
#define LOD_DYNAMIC_SHARED(name) unsigned char* const name = emulated::dynamic_shared()
#define LOD_MOST_SHARED() emulated::most_shared()
#define LOD_ALLOW_SHARED(kernel) static_cast<void>(0)
#define LOD_TELL(written) emulated::tell(written)
#define LOD_LAUNCH_SHARED(kernel, blocks, threads, bytes, stream, ...)                       \
  emulated::launch(blocks, threads, bytes, {&gridDim, &blockDim, &blockIdx, &threadIdx}, [&] { kernel(__VA_ARGS__); })
#define LOD_LAUNCH(kernel, blocks, threads, stream, ...) \
  LOD_LAUNCH_SHARED(kernel, blocks, threads, 0, stream, __VA_ARGS__)
