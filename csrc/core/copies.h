// Copies of few bytes. Kernel text, see torch_lod/device.h.
// SPDX-License-Identifier: Apache-2.0

namespace lod::LOD_LEVEL {

// kBytes, in registers of 32 bytes where there are such. A compiler takes smaller ones, or larger ones: those lie
// across two lines more often, and wait where what was just written lies one line further on in another page, as
// results do that lie behind what they are made of.
template <int kBytes>
LOD_FN void copy_block(void* to, const void* from) {
#if LOD_LANES >= 8
  if constexpr (kBytes % 32 == 0) {
    auto* put = static_cast<__m256i*>(to);
    const auto* take = static_cast<const __m256i*>(from);
    for (int k = 0; k < kBytes / 32; ++k) _mm256_storeu_si256(put + k, _mm256_loadu_si256(take + k));
    return;
  }
#endif
  std::memcpy(to, from, kBytes);
}
// kBytes that are stored many times: in registers.
template <int kBytes>
struct Held {
#if LOD_LANES >= 8
  typedef unsigned char Bytes __attribute__((vector_size(kBytes)));
  Bytes bytes;
#else
  unsigned char bytes[kBytes];
#endif
  LOD_FN explicit Held(const void* from) { std::memcpy(&bytes, from, kBytes); }
  LOD_FN void store(void* to) const { std::memcpy(to, &bytes, kBytes); }
};
template <>
struct Held<64> {
  Held<32> low, high;
  LOD_FN explicit Held(const void* from) : low(from), high(static_cast<const unsigned char*>(from) + 32) {}
  LOD_FN void store(void* to) const {
    low.store(to);
    high.store(static_cast<unsigned char*>(to) + 32);
  }
};
// The first and the last kBytes, which may overlap.
template <int kBytes>
LOD_FN void copy_ends(unsigned char* to, const unsigned char* from, int64_t bytes) {
  copy_block<kBytes>(to, from);
  copy_block<kBytes>(to + bytes - kBytes, from + bytes - kBytes);
}
// memcpy, without a call where it is short. What a call takes for a few kB depends on where both sides lie in a page.
constexpr int64_t kLong = 4096;
LOD_FN void copy_bytes(void* out, const void* in, int64_t bytes) {
  auto* to = static_cast<unsigned char*>(out);
  const auto* from = static_cast<const unsigned char*>(in);
  if (bytes > kLong) std::memcpy(to, from, bytes);
  else if (bytes > 128) {
    for (int64_t i = 0; i < bytes - 64; i += 64) copy_block<64>(to + i, from + i);
    copy_block<64>(to + bytes - 64, from + bytes - 64);
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
  do copy_block<block>(to + i, from + i);
  while ((i += block) < bytes);
}

// Up to kShort bytes as whole blocks: what is written behind them is written later, and what is read there is not out
// of bounds. kShort bytes of room on both sides are enough for that. Blocks of 64 bytes for runs of any length, since a
// branch that is not foreseen costs more; of 32 for runs of one length.
constexpr int64_t kShort = 2048;
template <int kBlock = 64>
LOD_FN void copy_short(unsigned char* to, const unsigned char* from, int64_t bytes) {
  for (int64_t i = 0; i < bytes; i += kBlock) copy_block<kBlock>(to + i, from + i);
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
