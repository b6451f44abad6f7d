// Copies of few bytes. Kernel text, see torch_lod/device.h.
// SPDX-License-Identifier: Apache-2.0

namespace lod::LOD_LEVEL {

// The first and the last kBytes, which may overlap: blocks of constant size are registers.
template <int kBytes>
LOD_FN void copy_ends(unsigned char* to, const unsigned char* from, int64_t bytes) {
  unsigned char last[kBytes];
  std::memcpy(last, from + bytes - kBytes, kBytes);
  std::memcpy(to, from, kBytes);
  std::memcpy(to + bytes - kBytes, last, kBytes);
}
// memcpy, without a call where it is short. What a call takes for a few kB depends on where both sides lie in a page.
constexpr int64_t kLong = 4096;
LOD_FN void copy_bytes(void* out, const void* in, int64_t bytes) {
  auto* to = static_cast<unsigned char*>(out);
  const auto* from = static_cast<const unsigned char*>(in);
  if (bytes > kLong) std::memcpy(to, from, bytes);
  else if (bytes > 128) {
    for (int64_t i = 0; i < bytes - 64; i += 64) std::memcpy(to + i, from + i, 64);
    std::memcpy(to + bytes - 64, from + bytes - 64, 64);
  } else if (bytes >= 64) copy_ends<64>(to, from, bytes);
  else if (bytes >= 32) copy_ends<32>(to, from, bytes);
  else if (bytes >= 16) copy_ends<16>(to, from, bytes);
  else if (bytes >= 8) copy_ends<8>(to, from, bytes);
  else if (bytes >= 4) copy_ends<4>(to, from, bytes);
  else
    for (int64_t i = 0; i < bytes; ++i) to[i] = from[i];
}

// memcpy to memory that is written in order: what lies behind, up to to_end, is written later. Short runs are whole
// blocks, with no branch that depends on how short.
LOD_FN void copy_in_order(unsigned char* to, const unsigned char* from, int64_t bytes, const unsigned char* to_end,
                          const unsigned char* from_end) {
  constexpr int64_t block = 64;
  const int64_t room = to_end - to < from_end - from ? to_end - to : from_end - from;
  if (bytes > 4 * block || bytes + block > room) return copy_bytes(to, from, bytes);
  int64_t i = 0;
  do std::memcpy(to + i, from + i, block);
  while ((i += block) < bytes);
}

// Up to kShort bytes as whole blocks: what is written behind them is written later, and what is read there is not out
// of bounds. kShort bytes of room on both sides are enough for that. Blocks of 64 bytes for runs of any length, since a
// branch that is not foreseen costs more; of 32 for runs of one length.
constexpr int64_t kShort = 2048;
template <int kBlock = 64>
LOD_FN void copy_short(unsigned char* to, const unsigned char* from, int64_t bytes) {
  constexpr int64_t half = 32;  // registers of 64 bytes would lie across two lines more often
  for (int64_t i = 0; i < bytes; i += kBlock)
    for (int64_t k = i; k < i + kBlock; k += half) std::memcpy(to + k, from + k, half);
}

#if LOD_LANES >= 8
// A register of words, the last of them at `from`, in reverse order.
template <class T>
LOD_FN void turn_block(T* to, const T* from) {
  constexpr int count = 32 / sizeof(T);
  typedef T Words __attribute__((vector_size(32)));
  Words words, order;
  for (int k = 0; k < count; ++k) order[k] = T(count - 1 - k);
  std::memcpy(&words, from - (count - 1), sizeof(words));
  words = __builtin_shuffle(words, order);
  std::memcpy(to, &words, sizeof(words));
}
#endif

}  // namespace lod::LOD_LEVEL
