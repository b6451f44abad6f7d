// What the sanitizers must report: a sum that overflows, and a read behind an array. SPDX-License-Identifier: Apache-2.0
static int array[4];
extern "C" long overflow(long by) { return 0x7fffffffffffffff + by; }
extern "C" int outside(long by) {
  const int* last = &array[3];
  return last[by];
}
