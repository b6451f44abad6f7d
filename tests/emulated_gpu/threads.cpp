// The threads of the emulated device. A thread that never waits is an ordinary call; the first wait of one leaves its
// stack to it, and the threads after it go on upon another.
// SPDX-License-Identifier: Apache-2.0
#include "cuda_words.h"
#undef __CUDACC__
#undef __CUDA_ARCH__

#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>

#include <csetjmp>
#include <ucontext.h>

// Goes on with `to`, until something goes on with `from`. swapcontext asks the system for the mask of signals each time.
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#define EMULATED_SWITCH(...) __sanitizer_start_switch_fiber(__VA_ARGS__)
#define EMULATED_SWITCHED(...) __sanitizer_finish_switch_fiber(__VA_ARGS__)
#define EMULATED_GO(from, to) swapcontext(&(from).context, &(to).context)
#else
#define EMULATED_SWITCH(...)
#define EMULATED_SWITCHED(...)
#define EMULATED_GO(from, to)                                            \
  do {                                                                   \
    if (_setjmp((from).here)) break;                                     \
    if (std::exchange((to).entered, true)) _longjmp((to).here, 1);       \
    setcontext(&(to).context);                                           \
  } while (false)
#endif

namespace emulated {
namespace {

constexpr size_t kStack = 256 << 10;
constexpr size_t kMostShared = 48 << 10;  // of a block, on any GPU, unless a launch asks for more

// Barriers of this number in their block are no barriers: tests leave out each of them.
int64_t left_out = -1, most_barriers = 0;

[[noreturn]] void broken(const char* where, const std::string& what) {
  throw std::runtime_error("emulated GPU: " + what + " at " + where);
}

struct Exchange {
  unsigned mask = 0;
  const char* where = nullptr;
  size_t size = 0;
  bool waits = false;
  unsigned char own[kExchanged], all[32 * kExchanged];
};

// Each entry into a part of a kernel without branches is a step: compilers call it there (-fsanitize-coverage).
int64_t outside = 0, *steps = &outside;

struct Thread {
  int64_t steps = 0;
  bool finished = false;
  int64_t barriers = 0, skipped = 0;  // passed or waited at, and left out
  const char* where = nullptr;
  std::function<bool()> ready;  // set while the thread waits
  struct Fiber* on = nullptr;
};

struct Stack {
  ucontext_t context;
  std::jmp_buf here;
  bool entered = false;
};
struct Fiber : Stack {
  std::unique_ptr<char[]> stack{new char[kStack]};  // touched only as far as it is used
  int64_t thread = -1;
  bool waited = false, ended = true;
};

// Who wrote a byte of shared memory last, and who has read it since: a thread and the barriers that it had passed.
struct Access {
  static constexpr int kNone = -1, kSeveral = -2;
  int64_t written = -1, read = -1;
  int writer = kNone, reader = kNone;
};

struct Block {
  const int64_t dynamic_bytes;
  dim3* const (&indices)[4];
  const std::function<void()>& body;
  const int64_t* order;
  std::vector<Thread> threads;
  std::vector<Exchange> exchanges;  // none until a warp exchanges something
  std::vector<std::unique_ptr<Fiber>> fibers;
  Stack scheduler;
  int64_t finished = 0;
  std::vector<int> came, came_with_true;  // to each barrier
  std::vector<const char*> places;
  int64_t next = 0;
  Fiber* now = nullptr;
  std::exception_ptr error;

  static Block*& current() {
    static thread_local Block* block = nullptr;
    return block;
  }

  void enter(int64_t thread) {
    *indices[3] = dim3(unsigned(thread));
    steps = &threads[thread].steps;
  }

  std::vector<std::pair<const char*, std::unique_ptr<char[]>>> shared;
  size_t shared_bytes = 0;
  void* shared_at(const char* where, size_t bytes) {
    for (const auto& [place, memory] : shared)
      if (std::strcmp(place, where) == 0) return memory.get();
    if ((shared_bytes += bytes) > kMostShared) broken(where, std::to_string(shared_bytes) + " bytes of shared memory");
    std::memset(shared.emplace_back(where, new char[bytes]).second.get(), 0xFF, bytes);
    return shared.back().second.get();
  }

  std::unique_ptr<unsigned char[]> dynamic;
  std::vector<Access> accesses;
  unsigned char* dynamic_at() {
    if (!dynamic) {
      dynamic.reset(new unsigned char[dynamic_bytes]);
      std::memset(dynamic.get(), 0xFF, dynamic_bytes);
      accesses.assign(dynamic_bytes, Access());
    }
    return dynamic.get();
  }
  void note(const unsigned char* at, size_t bytes, bool write) {
    const int64_t from = at - dynamic.get(), passed = me().barriers;
    if (from < 0 || from + int64_t(bytes) > dynamic_bytes)
      broken("shared memory", "byte " + std::to_string(from) + " of " + std::to_string(dynamic_bytes));
    const int thread = int(now->thread);
    for (int64_t i = from; i < from + int64_t(bytes); ++i) {
      Access& a = accesses[i];
      const bool after_write = a.written == passed && a.writer != thread;
      const bool after_read = write && a.read == passed && a.reader != thread;
      if (after_write || after_read) {
        const int other = after_write ? a.writer : a.reader;
        broken(me().where ? me().where : "the first barrier",
               "thread " + std::to_string(thread) + (write ? " writes" : " reads") + " byte " + std::to_string(i) +
                   ", which " + (other == Access::kSeveral ? "several threads" : "thread " + std::to_string(other)) +
                   (after_write ? " wrote" : " read") + " since the last barrier,");
      }
      if (write) a.written = passed, a.writer = thread;
      else a.reader = a.read == passed && a.reader != thread ? Access::kSeveral : thread, a.read = passed;
    }
  }

  // What a stack does: threads one after another, up to one that has had to wait.
  static void loop() {
    EMULATED_SWITCHED(nullptr, nullptr, nullptr);
    Block& block = *current();
    Fiber& fiber = *block.now;
    try {
      while (!fiber.waited && block.next < int64_t(block.threads.size())) {
        fiber.thread = block.order[block.next++];
        block.enter(fiber.thread);
        block.body();
        block.threads[fiber.thread].finished = true;
        ++block.finished;
      }
    } catch (...) {
      block.error = std::current_exception();
    }
    fiber.ended = true;
    EMULATED_SWITCH(nullptr, block.host_stack, block.host_size);
    EMULATED_GO(fiber, block.scheduler);
  }

  void resume(Fiber& fiber) {
    now = &fiber;
    if (fiber.thread >= 0) enter(fiber.thread);
    void* fake = nullptr;
    (void)fake;
    EMULATED_SWITCH(&fake, fiber.stack.get(), kStack);
    scheduler.entered = true;
    EMULATED_GO(scheduler, fiber);
    EMULATED_SWITCHED(fake, nullptr, nullptr);
    if (error) std::rethrow_exception(error);
  }

  Fiber& fresh() {
    for (auto& f : fibers)
      if (f->ended) return start(*f);
    fibers.push_back(std::make_unique<Fiber>());
    return start(*fibers.back());
  }
  Fiber& start(Fiber& f) {
    f.thread = -1;
    f.waited = f.ended = f.entered = false;
    getcontext(&f.context);
    f.context.uc_stack.ss_sp = f.stack.get();
    f.context.uc_stack.ss_size = kStack;
    f.context.uc_link = nullptr;
    makecontext(&f.context, &Block::loop, 0);
    return f;
  }

  void run() {
    for (auto& t : threads) t = Thread();
    for (auto& e : exchanges) e.waits = false;
    came.clear(), places.clear(), shared.clear();
    dynamic.reset();
    shared_bytes = 0;
    came_with_true.clear();
    finished = next = 0;
    while (next < int64_t(threads.size())) resume(fresh());
    for (bool moved = true; moved;) {
      moved = false;
      bool left = false;
      for (int64_t k = 0; k < int64_t(threads.size()); ++k) {
        Thread& t = threads[order[k]];
        if (t.finished) continue;
        left = true;
        if (!t.ready()) continue;
        moved = true;
        resume(*t.on);
      }
      if (left && !moved) {
        for (auto& t : threads)
          if (!t.finished) throw std::runtime_error(std::string("emulated GPU: threads wait for ever at ") + t.where);
      }
    }
  }

  // Threads that have ended without being at barrier k.
  int64_t gone_before(int64_t k) const {
    if (!finished) return 0;
    return std::count_if(threads.begin(), threads.end(), [k](const Thread& t) { return t.finished && t.barriers <= k; });
  }
  Thread& me() { return threads[now->thread]; }
  void wait(const char* where, std::function<bool()> ready) {
    Thread& t = me();
    t.where = where;
    if (ready()) return;
    t.ready = std::move(ready);
    t.on = now;
    now->waited = true;
    Fiber& fiber = *now;
    void* fake = nullptr;
    (void)fake;
    EMULATED_SWITCH(&fake, host_stack, host_size);
    EMULATED_GO(fiber, scheduler);
    EMULATED_SWITCHED(fake, nullptr, nullptr);
  }

  const void* host_stack = nullptr;
  size_t host_size = 0;
};

// Of kernels: steps of the longest thread, and of an average one.
std::map<std::string, std::pair<int64_t, double>> work;
bool records = false;

// Threads that have nothing to do, such as those behind the last item, are not averaged.
void record(const std::string& kernel, const std::vector<int64_t>& of_threads) {
  const int64_t least = *std::min_element(of_threads.begin(), of_threads.end());
  int64_t longest = least, sum = 0, busy = 0;
  for (const int64_t n : of_threads)
    if (n > least) longest = std::max(longest, n), sum += n, ++busy;
  auto& [most, mean] = work[kernel];
  const double here = busy ? double(sum) / double(busy) : double(least);
  if (double(longest) * mean >= double(most) * here) most = longest, mean = here;
}

}  // namespace

void record_work(bool on) { records = on, work.clear(); }
std::vector<std::string> take_work() {
  std::vector<std::string> all;
  for (const auto& [kernel, of] : std::exchange(work, {}))
    all.push_back(kernel + "=" + std::to_string(of.first) + "," + std::to_string(int64_t(of.second)));
  return all;
}

void* shared(const char* where, size_t bytes) { return Block::current()->shared_at(where, bytes); }

unsigned char* dynamic_shared() { return Block::current()->dynamic_at(); }

int64_t most_shared() {  // as CUDA's documentation has it for a compute capability
  const char* asked = std::getenv("EMULATED_CAPABILITY");
  const std::string capability = asked ? asked : "7.5";
  const int kilobytes = capability == "7.5"                           ? 64
                        : capability == "8.0" || capability == "8.7"  ? 163
                        : capability == "9.0" || capability == "10.0" ? 227
                                                                      : 99;
  return int64_t(kilobytes) << 10;
}

void note(const void* at, size_t bytes, bool write) {
  Block::current()->note(static_cast<const unsigned char*>(at), bytes, write);
}

int64_t leave_out(int64_t barrier) {
  left_out = barrier;
  return std::exchange(most_barriers, 0);
}

int lane() { return int(Block::current()->now->thread % 32); }

void barrier(const char* where) {
  Block& block = *Block::current();
  Thread& me = block.me();
  const int64_t k = me.barriers + me.skipped;
  most_barriers = std::max(most_barriers, k + 1);
  if (k == left_out) return void(++me.skipped);
  ++me.barriers;
  me.where = where;
  if (int64_t(block.came.size()) <= k) block.came.resize(k + 1), block.places.resize(k + 1, where);
  if (std::strcmp(block.places[k], where) != 0)
    broken(where, std::string("threads of a block are at another barrier, ") + block.places[k] + ",");
  ++block.came[k];
  block.wait(where, [&block, k] {
    const auto all = int64_t(block.threads.size());
    return block.next == all && (block.came[k] == all || block.came[k] + block.gone_before(k) == all);
  });
}

int count_at_barrier(const char* where, bool value) {
  Block& block = *Block::current();
  const auto k = size_t(block.me().barriers);
  if (block.came_with_true.size() <= k) block.came_with_true.resize(k + 1);
  block.came_with_true[k] += value;
  barrier(where);
  return block.came_with_true[k];
}

const unsigned char* exchange(const char* where, unsigned mask, const void* value, size_t size) {
  Block& block = *Block::current();
  const int64_t first = block.now->thread / 32 * 32, own = block.now->thread - first;
  if (!(mask >> own & 1)) broken(where, "a lane is not in its own mask");
  if (block.exchanges.empty()) block.exchanges.resize(block.threads.size());
  Exchange& mine = block.exchanges[block.now->thread];
  mine.mask = mask;
  mine.where = where;
  mine.size = size;
  mine.waits = true;
  std::memcpy(mine.own, value, size);
  // The last lane that arrives hands everything to everybody.
  const auto complete = [&block, first, mask, where] {
    const auto lane = [&](int i) -> Exchange* {
      return mask >> i & 1 && first + i < int64_t(block.threads.size()) ? &block.exchanges[first + i] : nullptr;
    };
    for (int i = 0; i < 32; ++i) {
      if (!(mask >> i & 1)) continue;
      const Exchange* e = lane(i);
      if (!e || !e->waits || e->mask != mask || std::strcmp(e->where, where) != 0) return false;
    }
    unsigned char all[32 * kExchanged];
    std::memset(all, 0xFF, sizeof all);
    for (int i = 0; i < 32; ++i)
      if (lane(i)) std::memcpy(all + kExchanged * i, lane(i)->own, lane(i)->size);
    for (int i = 0; i < 32; ++i)
      if (lane(i)) std::memcpy(lane(i)->all, all, sizeof all), lane(i)->waits = false;
    return true;
  };
  block.wait(where, [&mine, complete] { return !mine.waits || complete(); });
  return mine.all;
}

void counted(const std::string& what);  // device.cpp
void before_launch();

void launch(const char* kernel, int64_t blocks, int64_t threads, int64_t bytes, dim3* const (&indices)[4],
            const std::function<void()>& thread) {
  static std::recursive_mutex one_at_a_time;
  const std::lock_guard guard(one_at_a_time);
  counted("launch");
  before_launch();
  if (blocks < 1 || blocks > 0x7FFFFFFF || threads < 1 || threads > 1024 || bytes < 0 || bytes > most_shared())
    throw std::runtime_error("emulated GPU: a launch of " + std::to_string(blocks) + " blocks of " +
                             std::to_string(threads) + " threads and " + std::to_string(bytes) + " bytes");
  *indices[0] = dim3(unsigned(blocks));
  *indices[1] = dim3(unsigned(threads));
  std::vector<int64_t> order(threads), of_blocks(blocks);
  std::iota(order.begin(), order.end(), 0);
  std::iota(of_blocks.begin(), of_blocks.end(), 0);
  const char* asked = std::getenv("EMULATED_ORDER");
  const std::string how = asked ? asked : "forward";
  if (how == "backward") {
    std::reverse(order.begin(), order.end());
    std::reverse(of_blocks.begin(), of_blocks.end());
  } else if (how != "forward") {
    std::mt19937_64 g(std::stoull(how));
    std::shuffle(order.begin(), order.end(), g);
    std::shuffle(of_blocks.begin(), of_blocks.end(), g);
  }
  Block block{bytes, indices, thread, order.data(), std::vector<Thread>(threads)};
#if defined(__SANITIZE_ADDRESS__)
  pthread_attr_t attributes;
  void* bottom = nullptr;
  pthread_getattr_np(pthread_self(), &attributes);
  pthread_attr_getstack(&attributes, &bottom, &block.host_size);
  pthread_attr_destroy(&attributes);
  block.host_stack = bottom;
#endif
  Block* outer = std::exchange(Block::current(), &block);
  struct Back {
    Block* outer;
    ~Back() { Block::current() = outer, steps = &outside; }
  } back{outer};
  std::vector<int64_t> of_threads;
  for (const int64_t b : of_blocks) {
    *indices[2] = dim3(unsigned(b));
    block.run();
    if (records)
      for (const Thread& t : block.threads) of_threads.push_back(t.steps);
  }
  if (!of_threads.empty()) record(kernel, of_threads);
}

}  // namespace emulated

extern "C" __attribute__((visibility("default"))) void __sanitizer_cov_trace_pc() { ++*emulated::steps; }
