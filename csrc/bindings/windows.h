// Checks of windows over rows, for the operators that look through them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "torch_lod/binding.h"

namespace lod {

constexpr int64_t kReach = int64_t(1) << 40;      // of a window: products of it stay within int64
constexpr int64_t kMaxWindow = int64_t(1) << 20;  // of a window

inline void check_reach(const char* op, const c10::SymInt& start, int64_t dilation) {
  TORCH_CHECK_VALUE(dilation >= 1 && dilation <= kReach, op, ": expected dilation in [1, 2**40], got ", dilation);
  TORCH_CHECK_VALUE(TORCH_GUARD_OR_TRUE(start.sym_ge(-kReach)) && TORCH_GUARD_OR_TRUE(start.sym_le(kReach)), op,
                    ": expected start in [-2**40, 2**40], got ", start);
}
// Where a window ends: there, looked at from the other side, the gradient's windows begin.
inline void check_far_end(const char* op, const c10::SymInt& start, const c10::SymInt& size, int64_t dilation) {
  const c10::SymInt far = start + (size - 1) * dilation;
  TORCH_CHECK_VALUE(TORCH_GUARD_OR_TRUE(far.sym_ge(-kReach)) && TORCH_GUARD_OR_TRUE(far.sym_le(kReach)), op,
                    ": expected start + (size - 1) * dilation in [-2**40, 2**40], got ", far);
}
inline void check_window(const char* op, const c10::SymInt& size) {
  TORCH_CHECK_VALUE(TORCH_GUARD_OR_TRUE(size.sym_ge(1)) && TORCH_GUARD_OR_TRUE(size.sym_le(kMaxWindow)), op,
                    ": expected size in [1, 2**20], got ", size);
}

}  // namespace lod
