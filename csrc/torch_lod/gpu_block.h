// each_block of launch.h on a GPU: the threads of a block, and what they share. Kernel source.
// SPDX-License-Identifier: Apache-2.0

namespace lod::LOD_LEVEL {

// All threads of a block call what has a barrier, in the same order; their number is a multiple of 32.
class Block {
 public:
  LOD_DEVICE explicit Block(unsigned char* memory) : slots_(memory), free_(memory + bytes(threads())) {}
  // Of the driver's own: a number of every warp, twice, so that a call need not wait until the last one's are read.
  LOD_FN static int64_t bytes(int64_t threads) { return threads / 32 * 2 * int64_t(sizeof(double)); }
  // Of the shared memory that the kernel asked for, what is still free.
  template <class X>
  LOD_DEVICE Shared<X> take(int64_t count) {
    X* const here = reinterpret_cast<X*>(free_);
    free_ += count * int64_t(sizeof(X));
    return here;
  }
  LOD_DEVICE static int thread() { return int(threadIdx.x); }
  LOD_DEVICE static int threads() { return int(blockDim.x); }
  LOD_DEVICE static int warps() { return threads() / 32; }
  LOD_DEVICE static void sync() { __syncthreads(); }
  LOD_DEVICE static bool any(bool here) { return __syncthreads_count(here) != 0; }

  // The largest number of a warp; NaN is not.
  template <class A>
  LOD_DEVICE static A warp_max(A x, A least) {
    x = x == x ? x : least;
    for (int by = 16; by > 0; by /= 2) {
      const A other = __shfl_xor_sync(~0u, x, by);
      x = other > x ? other : x;
    }
    return x;
  }
  // A number of every warp, that of its lane 0: a barrier. They are there until the call after the next.
  template <class A>
  LOD_DEVICE Shared<A> of_warps(A x) {
    turn_ ^= 1;
    const Shared<A> all = reinterpret_cast<A*>(slots_ + turn_ * bytes(threads()) / 2);
    if (thread() % 32 == 0) all[thread() / 32] = x;
    sync();
    return all;
  }
  // Over all threads, in a fixed order: a barrier.
  template <class A>
  LOD_DEVICE A sum(A x) {
    for (int by = 16; by > 0; by /= 2) x += __shfl_xor_sync(~0u, x, by);
    const Shared<A> all = of_warps(x);
    x = all[0];
    for (int w = 1; w < warps(); ++w) x += all[w];
    return x;
  }
  template <class A>
  LOD_DEVICE A max(A x, A least) {
    return largest(of_warps(warp_max(x, least)));
  }
  template <class A>
  LOD_DEVICE static A largest(const Shared<A>& all) {
    A x = all[0];
    for (int w = 1; w < warps(); ++w) {
      const A other = all[w];
      x = other > x ? other : x;
    }
    return x;
  }

 private:
  unsigned char *slots_, *free_;
  int turn_ = 0;
};

template <class F>
__global__ void __launch_bounds__(kRowThreads) run_block(F f) {
  LOD_DYNAMIC_SHARED(memory);
  Block block(memory);
  f(int64_t(blockIdx.x), block);
}

// With fewer threads or less memory than a problem needs, a thread does it alone.
template <class F>
void each_block(const Exec& exec, int64_t n, int64_t cost, const BlockShape& shape, const F& f) {
  if (n <= 0) return;
  const int64_t threads = (shape.threads + 31) / 32 * 32, bytes = Block::bytes(threads) + shape.bytes;
  if (threads > kRowThreads || n > 0x7FFFFFFF || bytes > LOD_MOST_SHARED()) {
    each(exec, n, cost, InOneThread<F>{f});
  } else {
    constexpr int64_t unasked = 48 << 10;
    if (bytes > unasked) LOD_ALLOW_SHARED(run_block<F>);  // always as much: other threads may launch the same kernel
    LOD_LAUNCH_SHARED(run_block<F>, unsigned(n), unsigned(threads), bytes, exec.stream, f);
  }
}

}  // namespace lod::LOD_LEVEL
