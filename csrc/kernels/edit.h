// Shape "chain", over two sequences: the edit distance of Levenshtein, and an alignment that has it. Kernel source, see
// torch_lod/device.h.
//
// The distance goes through the matrix of the shorter sequence by the longer one 64 rows at a time, as bits of the
// differences of neighbouring cells: Myers, "A fast bit-vector algorithm for approximate string matching based on
// dynamic programming", JACM 46(3), 1999, in the form of Hyyro, "Explaining and extending the bit-parallel approximate
// string matching algorithm of Myers", 2001, with blocks for long sequences. On the CPU the symbols of the shorter
// sequence are numbered, and the bits at which each stands are looked up.
// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <memory>
#include <new>
#include <vector>

#include "kernels/edit_api.h"

namespace lod::LOD_LEVEL {

// A column of one block of 64 rows: bits of vertical differences +1 and -1. `in` and the result are the horizontal
// difference that enters at the top and the one that leaves at bit `last`.
struct EditBlock {
  uint64_t up, down;
  LOD_FN int advance(uint64_t equal, int in, uint64_t last) {
    const uint64_t x = equal | down;
    equal |= uint64_t(in < 0);
    const uint64_t same = (((equal & up) + up) ^ up) | equal;
    uint64_t rises = down | ~(same | up), falls = up & same;
    const int out = int((rises & last) != 0) - int((falls & last) != 0);
    rises = rises << 1 | uint64_t(in > 0);
    falls = falls << 1 | uint64_t(in < 0);
    up = falls | ~(x | rises);
    down = rises & x;
    return out;
  }
};

#ifdef LOD_LANES
// Of every symbol of a pattern the bits at which it stands, 64 rows to a word; zeros for other symbols.
class EditBits {
 public:
  void fill(const int64_t* pattern, int64_t m, const int64_t* text, int64_t n, int64_t words) {
    words_ = words > 1 ? (words + 7) / 8 * 8 : 1, seen_ = 0;
    at_.assign(n + 16, 0);
    bits_.assign(words_, 0);
    int64_t low = pattern[0], high = low;
    for (int64_t i = 0; i < m; ++i) {
      low = pattern[i] < low ? pattern[i] : low;
      high = pattern[i] > high ? pattern[i] : high;
    }
    if (uint64_t(high) - uint64_t(low) < kNumbered) number(pattern, m, text, n, low);
    else look_up(pattern, m, text, n);
  }
  // A pattern of one word: what the columns add to its length.
  int64_t one_word(const int64_t* pattern, int64_t m, const int64_t* text, int64_t n, const Exec& exec) {
    int64_t low = pattern[0], high = low;
    for (int64_t i = 0; i < m; ++i) {
      low = pattern[i] < low ? pattern[i] : low;
      high = pattern[i] > high ? pattern[i] : high;
    }
    const uint64_t last = uint64_t(1) << (m - 1);
    EditBlock block{~uint64_t(0), 0};
    int64_t added = 0;
    if (uint64_t(high) - uint64_t(low) >= kNumbered) {
      fill(pattern, m, text, n, 1);
      const Look found = look();
      for (int64_t j = 0; j < n; ++j) {
        added += block.advance(*found.of(j), 1, last);
        if (j % (1 << 20) == 1 << 19) exec.pause();
      }
      return added;
    }
    if (masks_.empty()) masks_.resize(kNumbered);
    uint64_t* masks = masks_.data();
    for (int64_t begin = 0; begin < n; begin += 1 << 20) {
      if (begin) exec.pause();  // which may throw: while it is asked the table is all zeros
      const int64_t end = n - begin < 1 << 20 ? n : begin + (1 << 20);
      for (int64_t i = 0; i < m; ++i) masks[pattern[i] - low] |= uint64_t(1) << i;
      for (int64_t j = begin; j < end; ++j) {
        const uint64_t from = uint64_t(text[j]) - uint64_t(low);
        added += block.advance(from < kNumbered ? masks[from] : 0, 1, last);
      }
      for (int64_t i = 0; i < m; ++i) masks[pattern[i] - low] = 0;
    }
    return added;
  }
  // Of symbol j of the text; zeros for the 8 before and the 8 behind it.
  struct Look {
    const uint64_t* bits;
    const int64_t* at;
    const uint64_t* of(int64_t j) const { return bits + at[j]; }
  };
  Look look() const { return {bits_.data(), at_.data() + 8}; }
  size_t bytes() const { return 8 * (bits_.capacity() + at_.capacity()) + sizeof(Slot) * slots_.capacity(); }

 private:
  static constexpr uint64_t kNumbered = 1 << 15;
  struct Slot {
    int64_t symbol, number;
  };
  int64_t next() {
    bits_.resize((++seen_ + 1) * words_);
    return seen_;
  }
  void add(int64_t number, int64_t i) { bits_[number * words_ + i / 64] |= uint64_t(1) << (i % 64); }
  // Symbols within a small range: a table, which is all zeros again in the end.
  void number(const int64_t* pattern, int64_t m, const int64_t* text, int64_t n, int64_t low) {
    if (numbers_.empty()) numbers_.resize(kNumbered);
    int64_t i = 0;
    const auto forget = [&] {
      for (int64_t k = 0; k < i; ++k) numbers_[pattern[k] - low] = 0;
    };
    try {
      for (; i < m; ++i) {
        int32_t& number = numbers_[pattern[i] - low];
        if (!number) number = int32_t(next());
        add(number, i);
      }
    } catch (...) {
      forget();
      throw;
    }
    for (int64_t j = 0; j < n; ++j) {
      const uint64_t from = uint64_t(text[j]) - uint64_t(low);
      at_[j + 8] = from < kNumbered ? numbers_[from] * words_ : 0;
    }
    forget();
  }
  // Any symbols: a hash table.
  void look_up(const int64_t* pattern, int64_t m, const int64_t* text, int64_t n) {
    int64_t size = 16;
    while (size < 2 * m) size *= 2;
    slots_.assign(size, {0, 0});
    for (int64_t i = 0; i < m; ++i) {
      Slot& slot = find(pattern[i]);
      if (!slot.number) slot = {pattern[i], next()};
      add(slot.number, i);
    }
    for (int64_t j = 0; j < n; ++j) at_[j + 8] = find(text[j]).number * words_;
  }
  Slot& find(int64_t symbol) {
    const uint64_t mask = slots_.size() - 1;
    for (uint64_t at = (uint64_t(symbol) * 0x9E3779B97F4A7C15u) >> 32;; ++at) {
      Slot& slot = slots_[at & mask];
      if (!slot.number || slot.symbol == symbol) return slot;
    }
  }
  std::vector<uint64_t> masks_;
  std::vector<int32_t> numbers_;
  std::vector<Slot> slots_;
  std::vector<uint64_t> bits_;  // of symbol number k from word k * words; number 0: of no symbol of the pattern
  std::vector<int64_t> at_;     // of every symbol of the text, from the 8th entry, where its bits are
  int64_t words_ = 0, seen_ = 0;
};

// The tables of a thread, kept for the next pair unless they are large. A handler of signals that asks for a distance
// while a pair pauses finds none, and gets tables of its own.
struct KeptBits {
  EditBits bits = std::move(of_thread());
  ~KeptBits() {
    if (bits.bytes() < 1 << 20) of_thread() = std::move(bits);
  }

 private:
  static EditBits& of_thread() {
    static thread_local EditBits bits;
    return bits;
  }
};

// Eight blocks in one step, each a column behind the one above it, which hands its difference down.
struct EditBlocks {
  typedef uint64_t U __attribute__((vector_size(64)));
  typedef int64_t I __attribute__((vector_size(64)));

  // Of blocks [first, first + 8) of all columns; `sides` are the differences that enter above, and then those that
  // leave below. Returns the sum of those that leave at bit `last` of block `first + lane`.
  static int64_t run(EditBits::Look bits, int64_t first, int lane, int64_t n, uint64_t last, int8_t* sides,
                     const Exec& exec) {
    const I lanes = {0, 1, 2, 3, 4, 5, 6, 7};
    U up = ~U{}, down = U{}, mark = U{} + (uint64_t(1) << 63);
    mark = lanes == I{} + lane ? U{} + last : mark;
    I out = I{}, total = I{};
    for (int64_t t = 0; t < n + 7; ++t) {
      I in = __builtin_shufflevector(out, out, 0, 0, 1, 2, 3, 4, 5, 6);
      in[0] = t < n ? sides[t] : 0;
      const auto word = [&](int64_t k) LOD_INLINE { return bits.of(t - k)[first + k]; };
      U equal = {word(0), word(1), word(2), word(3), word(4), word(5), word(6), word(7)};
      const U x = equal | down, above = (U)in >> 63, below = (U)(in > I{}) & 1;
      equal |= above;
      const U same = (((equal & up) + up) ^ up) | equal;
      U rises = down | ~(same | up), falls = up & same;
      out = ((falls & mark) != U{}) - ((rises & mark) != U{});
      rises = rises << 1 | below;
      falls = falls << 1 | above;
      const I here = (lanes <= t) & (t - lanes < n);
      up = here ? falls | ~(x | rises) : up;
      down = here ? rises & x : down;
      total += out & here;
      if (t >= 7) sides[t - 7] = int8_t(out[7]);
      if (t % (1 << 16) == 0) exec.pause();
    }
    return total[lane];
  }
};
#endif

struct EditDistanceKernel {
  EditArguments a;
  const Exec* exec;

#ifdef LOD_LANES
  // What the columns add to the length of the pattern. Apart, so that what is of a thread is found once.
  __attribute__((noinline)) static int64_t walk(const int64_t* pattern, int64_t m, const int64_t* text, int64_t n,
                                                int64_t words, uint64_t last, const Exec& exec) {
    KeptBits kept;
    EditBits& bits = kept.bits;
    if (words == 1) return bits.one_word(pattern, m, text, n, exec);
    bits.fill(pattern, m, text, n, words);
    const EditBits::Look look = bits.look();
    int64_t added = 0;
    std::vector<int8_t> sides(n, 1);
    for (int64_t first = 0; first < words; first += 8) {
      const bool ends = words - first <= 8;
      const int lane = ends ? int(words - first - 1) : 7;
      added = EditBlocks::run(look, first, lane, n, ends ? last : uint64_t(1) << 63, sides.data(), exec);
    }
    return added;
  }
#endif

  LOD_FN void operator()(int64_t item) const {
    const int64_t s = a.order ? a.order[item] : item;
    Range p = rows_of(a.a_offsets, s, a.a_rows), t = rows_of(a.b_offsets, s, a.b_rows);
    const int64_t *pattern = a.a + p.begin, *text = a.b + t.begin;
    int64_t m = p.length(), n = t.length();
    if (m > n) {  // the distance is symmetric
      const int64_t* other = pattern;
      pattern = text, text = other;
      const int64_t length = m;
      m = n, n = length;
    }
    for (; m > 0 && pattern[m - 1] == text[n - 1]; --m, --n) {}
    for (; m > 0 && *pattern == *text; --m, --n) ++pattern, ++text;
    if (m == 0) {
      a.out[s] = n;
      return;
    }
    const int64_t words = (m + 63) / 64;
    const uint64_t last = uint64_t(1) << ((m - 1) % 64);
    int64_t distance = m;
#ifdef LOD_LANES
    distance += walk(pattern, m, text, n, words, last, *exec);
#else
    auto* blocks = reinterpret_cast<EditBlock*>(a.scratch + a.scratch_at[s]);
    for (int64_t i = 0; i < words; ++i) blocks[i] = {~uint64_t(0), 0};
    for (int64_t j = 0; j < n; ++j) {
      int in = 1;
      for (int64_t i = 0; i < words; ++i) {
        const int64_t rows = m - 64 * i < 64 ? m - 64 * i : 64;
        uint64_t equal = 0;
        for (int64_t k = 0; k < rows; ++k) equal |= uint64_t(pattern[64 * i + k] == text[j]) << k;
        in = blocks[i].advance(equal, in, uint64_t(1) << (rows - 1));
      }
      distance += in;
    }
#endif
    a.out[s] = distance;
  }
};

// The plain recursion, with which of its three terms every cell took: 0 both advance, 1 the first alone, 2 the second.
struct EditAlignmentKernel {
  EditArguments a;
  const Exec* exec;

  LOD_FN void operator()(int64_t item) const {
    const int64_t s = a.order ? a.order[item] : item;
    const Range p = rows_of(a.a_offsets, s, a.a_rows), t = rows_of(a.b_offsets, s, a.b_rows);
    const int64_t m = p.length(), n = t.length();
#ifdef LOD_LANES
    if (n + 1 > (int64_t(1) << 60) / (m + 1)) throw std::bad_alloc();
    const std::unique_ptr<int64_t[]> held(new int64_t[n + 1]);
    const std::unique_ptr<char[]> chosen(new char[(m + 1) * (n + 1)]);
    int64_t* row = held.get();
    char* taken = chosen.get();
#else
    auto* row = reinterpret_cast<int64_t*>(a.scratch + a.scratch_at[s]);
    char* taken = a.scratch + a.scratch_at[s] + (n + 1) * 8;
#endif
    const int64_t *x = a.a + p.begin, *y = a.b + t.begin;
    for (int64_t j = 0; j <= n; ++j) row[j] = j, taken[j] = 2;
    for (int64_t i = 1; i <= m; ++i) {
      int64_t corner = row[0];
      row[0] = i;
      char* here = taken + i * (n + 1);
      here[0] = 1;
      for (int64_t j = 1; j <= n; ++j) {
        const int64_t both = corner + (x[i - 1] != y[j - 1]), first = row[j] + 1, second = row[j - 1] + 1;
        const int64_t one = first < second ? first : second;
        here[j] = both <= one ? 0 : first <= second ? 1 : 2;
        corner = row[j];
        row[j] = both <= one ? both : one;
#ifdef LOD_LANES
        if (j % (1 << 20) == 0) exec->pause();
#endif
      }
#ifdef LOD_LANES
      if (i % ((1 << 16) / (n + 1) + 1) == 0) exec->pause();
#endif
    }
    a.out[s] = row[n];
    for (int64_t i = m, j = n; i > 0 || j > 0;) {
      const char step = taken[i * (n + 1) + j];
      if (step == 0) {
        --i, --j;
        a.of_a[p.begin + i] = j, a.of_b[t.begin + j] = i;
      } else if (step == 1) {
        a.of_a[p.begin + --i] = -1;
      } else {
        a.of_b[t.begin + --j] = -1;
      }
    }
  }
};

LOD_ENTRY void edit_distance(const Exec& exec, const EditArguments& a) {
  const int64_t mean = a.segments ? (a.a_rows + a.b_rows) / a.segments : 0;
  each(exec, a.segments, 8 * (mean + 1) * (mean / 128 + 1), EditDistanceKernel{a, &exec});
}
LOD_ENTRY void edit_alignment(const Exec& exec, const EditArguments& a) {
  const int64_t mean = a.segments ? (a.a_rows + a.b_rows) / a.segments / 2 : 0;
  each(exec, a.segments, mean > 1000 ? 1000000 : mean * mean + 1, EditAlignmentKernel{a, &exec});
}

}  // namespace lod::LOD_LEVEL
