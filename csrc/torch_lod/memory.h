// Whether a tensor may be read.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

namespace lod {

using at::Tensor;

// A storage that was resized under a tensor must not be read, nor copied from.
inline bool has_memory(const Tensor& t) {
  if (t.numel() == 0 || t.is_meta()) return true;
  int64_t end = t.storage_offset() + 1;
  for (int64_t d = 0; d < t.dim(); ++d) end += (t.size(d) - 1) * t.stride(d);
  return t.has_storage() && t.storage().nbytes() / t.element_size() >= size_t(end);
}

// Whether t is a tensor of its own, and not what a tracer or a transform puts instead of one.
inline bool is_in_memory(const Tensor& t) {
  constexpr c10::DispatchKeySet stand_ins({c10::DispatchKey::Python, c10::DispatchKey::Functionalize,
                                           c10::DispatchKey::FuncTorchGradWrapper, c10::DispatchKey::FuncTorchBatched,
                                           c10::DispatchKey::Batched});
  return !t.key_set().has_any(stand_ins) && !t.is_meta();
}

}  // namespace lod
