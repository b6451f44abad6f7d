// The loop that bindings lend to kernels: pieces of the work are shared out among torch's threads, and between pieces
// the calling thread asks whether a signal, such as Ctrl-C, has arrived.
//
// Python handles signals in its main thread, and only when it is asked there. torch_lod/ops/signals.py implements the
// asking as an operator, so that C++ needs to know nothing of Python: an exception of the handler, KeyboardInterrupt
// for one, comes out of the call like that of any operator written in Python. Without Python there are no such checks.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/Parallel.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <ctime>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#if defined(__linux__) || defined(__APPLE__)
#include <pthread.h>
#include <unistd.h>
#endif
#ifdef __linux__
#include <sys/syscall.h>
#endif

#include "torch_lod/device.h"

namespace lod {

// Whether this is the thread in which Python handles signals: the first of the process.
inline bool handles_signals() {
#if defined(__linux__)
  static thread_local const bool first = syscall(SYS_gettid) == getpid();
  return first;
#elif defined(__APPLE__)
  return pthread_main_np();
#else
  return false;
#endif
}

// Threads do not survive a fork, and OpenMP in the child waits for those of the parent for ever.
inline bool forked = false;
#if defined(__linux__) || defined(__APPLE__)
inline const int forks_are_noticed = pthread_atfork(nullptr, nullptr, [] { forked = true; });
#endif

// Of a call that may take long: look() asks for signals, every tenth of a second and not before the first has passed.
class Watch {
 public:
  void look() {
    if (!handles_) return;
    const int64_t time = now();
    if (next_ == 0) next_ = time + kPatience;
    if (time < next_) return;
    if (const auto ask = c10::Dispatcher::singleton().findSchema({"torch_lod_signals::ask", ""}))
      ask->typed<void()>().call();
    next_ = now() + kPatience;
  }

 private:
  static constexpr int64_t kPatience = 100'000'000;
  static int64_t now() {  // nanoseconds; the clock that costs least
#ifdef CLOCK_MONOTONIC_COARSE
    timespec time;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &time);
    return time.tv_sec * 1'000'000'000 + time.tv_nsec;
#else
    return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
#endif
  }
  bool handles_ = handles_signals();
  int64_t next_ = 0;
};

// One parallel loop. Every thread has a share of the items, takes piece after piece of it, and then of the others'.
class Loop {
 public:
  Loop(int64_t n, int64_t grain, const void* kernel, CpuExec::Body body)
      : grain_(std::max<int64_t>(1, grain)), kernel_(kernel), body_(body) {
    const int64_t pieces = n / grain_ + (n % grain_ != 0);
    const int64_t workers = pieces > 1 ? std::min(threads(), pieces) : 1;
    if (workers > 1) share_out(n, workers);
    else alone(n);
  }
  // How many threads may work.
  static int64_t threads() {
    if (forked || at::in_parallel_region()) return 1;
    at::internal::lazy_init_num_threads();
    return at::get_num_threads();
  }
  // Asked by a kernel in the middle of a long item; what is thrown ends the loop.
  static void pause() {
    if (Loop* loop = here()) loop->look();
  }

 private:
  struct Stopped {};
  struct alignas(64) Share {
    std::atomic<int64_t> next;
    int64_t end;
  };
  static Loop*& here() {
    static thread_local Loop* loop = nullptr;
    return loop;
  }
  class Inside {  // a thread works for a loop; a handler of signals may begin another one in the same thread
   public:
    explicit Inside(Loop* loop) : before_(std::exchange(here(), loop)) {}
    ~Inside() { here() = before_; }

   private:
    Loop* before_;
  };

  void look() {
    if (stopped_.load(std::memory_order_relaxed)) throw Stopped();
    if (std::this_thread::get_id() == caller_) watch_.look();
  }

  void alone(int64_t n) {
    const Inside inside(this);
    for (int64_t i = 0; i < n; i += grain_) {
      if (i) look();
      body_(kernel_, i, std::min(i + grain_, n));
    }
  }

  void share_out(int64_t n, int64_t threads) {
    std::vector<Share> shares(threads);
    const auto begin = [&](int64_t t) { return n / threads * t + n % threads * t / threads; };
    for (int64_t t = 0; t < threads; ++t) shares[t].next = begin(t), shares[t].end = begin(t + 1);
    at::parallel_for(0, threads, 1, [&](int64_t first, int64_t) { work(shares, first); });
  }
  void work(std::vector<Share>& shares, int64_t first) {
    const Inside inside(this);
    ++working_;
    try {
      for (size_t k = 0; k < shares.size(); ++k) {
        Share& share = shares[(first + k) % shares.size()];
        for (int64_t i; (i = share.next.fetch_add(grain_, std::memory_order_relaxed)) < share.end;) {
          body_(kernel_, i, std::min(i + grain_, share.end));
          look();
        }
      }
    } catch (const Stopped&) {
    } catch (...) {
      stopped_ = true;
      leave();
      throw;
    }
    leave();
    if (std::this_thread::get_id() != caller_) return;
    for (int i = 0; i < 4096 && working_; ++i) std::this_thread::yield();  // mostly a piece is left: quicker than sleep
    std::unique_lock lock(mutex_);
    while (!all_left_.wait_for(lock, std::chrono::milliseconds(50), [&] { return working_ == 0; })) {
      lock.unlock();
      try {
        watch_.look();
      } catch (...) {
        stopped_ = true;
        throw;
      }
      lock.lock();
    }
  }
  void leave() {
    if (--working_) return;
    const std::lock_guard lock(mutex_);
    all_left_.notify_all();
  }

  const int64_t grain_;
  const void* const kernel_;
  const CpuExec::Body body_;
  const std::thread::id caller_ = std::this_thread::get_id();
  Watch watch_;
  std::atomic<bool> stopped_ = false;
  std::atomic<int> working_ = 0;
  std::mutex mutex_;
  std::condition_variable all_left_;
};

inline void parallel(int64_t n, int64_t grain, const void* kernel, CpuExec::Body body) { Loop(n, grain, kernel, body); }
constexpr CpuExec kCpu{parallel, Loop::pause, Loop::threads};

}  // namespace lod
