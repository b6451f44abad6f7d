// Kernels that need the other threads of their block: by them tests see that barriers, shared memory and exchanges of
// warps work on the emulated device, and that their mistakes are found.
// SPDX-License-Identifier: Apache-2.0
#include <torch/library.h>

#include "torch_lod/device.h"

namespace {

enum Mistake { none, no_barrier, wrong_mask, some_return, two_barriers, index_off, not_written };

// The sum of each block's 128 entries and the place of the first largest: warps by shuffles, warps of a block through
// shared memory; then the entries of the block in the other direction.
template <class T>
__global__ void block_kernel(const T* values, T* sums, T* reversed, int64_t n, int mistake) {
  LOD_SHARED(of_warps, T[4]);
  LOD_SHARED(all, T[128]);
  const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (mistake == some_return && threadIdx.x % 32 == 7) return;
  const T own = i < n ? values[i] : T(0);
  if (mistake != not_written || blockIdx.x == 0) all[threadIdx.x] = own;
  T sum = own;
  const unsigned mask = mistake == wrong_mask ? (threadIdx.x % 2 ? 0xAAAAAAAAu : 0x55555555u) : 0xFFFFFFFFu;
  for (int by = 16; by; by /= 2) sum += __shfl_xor_sync(mask, sum, by);
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = sum;
  if (mistake == two_barriers && threadIdx.x < 64) {
    __syncthreads();
  } else if (mistake != no_barrier) {
    __syncthreads();
  }
  if (threadIdx.x == 0) {
    T total = 0;
    for (int w = 0; w < 4; ++w) total += of_warps[w];
    sums[blockIdx.x] = total;
  }
  const unsigned from = blockDim.x - (mistake == index_off ? 0 : 1) - threadIdx.x;
  if (i < n) reversed[i] = all[from & 127];
  __syncthreads();  // the next block uses the same memory
}

std::tuple<at::Tensor, at::Tensor> block_sums(const at::Tensor& values, int64_t mistake) {
  const int64_t n = values.numel(), blocks = (n + 127) / 128;
  at::Tensor sums = at::empty({blocks}, values.options()), reversed = at::empty_like(values);
  LOD_LAUNCH(block_kernel, blocks, 128, nullptr, values.const_data_ptr<double>(), sums.mutable_data_ptr<double>(),
             reversed.mutable_data_ptr<double>(), n, int(mistake));
  return {sums, reversed};
}

// How kernels divide.
at::Tensor quotients(const at::Tensor& numbers, int64_t by) {
  const lod::Divisor divisor(by);
  at::Tensor out = at::empty_like(numbers);
  for (int64_t i = 0; i < out.numel(); ++i)
    out.mutable_data_ptr<int64_t>()[i] = divisor.quotient(numbers.const_data_ptr<int64_t>()[i]);
  return out;
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(emulated_gpu, m) {
  m.def("block_sums(Tensor values, int mistake) -> (Tensor, Tensor)");
  m.def("quotients(Tensor numbers, int by) -> Tensor");
}
TORCH_LIBRARY_IMPL(emulated_gpu, PrivateUse1, m) { m.impl("block_sums", &block_sums); }
TORCH_LIBRARY_IMPL(emulated_gpu, CPU, m) { m.impl("quotients", &quotients); }
