// What every binding needs: argument checks with one message form, and dispatch to a device.
// Message form: "<op>: expected <what>, got <value>".
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/_assert_async.h>
#include <ATen/ops/empty.h>

#ifdef LOD_CUDA
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#endif

#include "torch_lod/each_level.h"
#include "torch_lod/lod_view.h"
#include "torch_lod/parallel.h"

namespace lod {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

// -- devices

#ifdef LOD_CUDA
#define LOD_RUN(tensor, kernel, ...)                                                             \
  do {                                                                                           \
    if ((tensor).is_cuda()) {                                                                    \
      const c10::cuda::CUDAGuard guard((tensor).device());                                       \
      lod::cuda::kernel(lod::CudaExec{c10::cuda::getCurrentCUDAStream().stream()}, __VA_ARGS__); \
      C10_CUDA_KERNEL_LAUNCH_CHECK();                                                            \
    } else {                                                                                     \
      LOD_PICK(kernel)(lod::kCpu, __VA_ARGS__);                                                  \
    }                                                                                            \
  } while (false)
// Declares kernels of the text for the GPU; their arguments are those of the CPU.
template <class F>
struct CudaForm;
template <class... A>
struct CudaForm<void(const CpuExec&, A...)> {
  using type = void(const CudaExec&, A...);
};
#define LOD_ON_CUDA(kernel)                      \
  namespace cuda {                               \
  CudaForm<decltype(base::kernel)>::type kernel; \
  }
#else
#define LOD_RUN(tensor, kernel, ...) LOD_PICK(kernel)(lod::kCpu, __VA_ARGS__)
#define LOD_ON_CUDA(kernel)
#endif

// -- element types

inline DType number_type(const char* op, const Tensor& t) {
  switch (t.scalar_type()) {
    case at::kDouble: return DType::f64;
    case at::kFloat: return DType::f32;
    case at::kHalf: return DType::f16;
    case at::kBFloat16: return DType::bf16;
    case at::kLong: return DType::i64;
    case at::kInt: return DType::i32;
    case at::kShort: return DType::i16;
    case at::kChar: return DType::i8;
    case at::kByte: return DType::u8;
    default: TORCH_CHECK_TYPE(false, op, ": expected values of a floating or integer dtype, got ", t.scalar_type());
  }
}

inline void check_floating(const char* op, const char* name, const Tensor& t) {
  TORCH_CHECK_TYPE(t.scalar_type() == at::kDouble || t.scalar_type() == at::kFloat || t.scalar_type() == at::kHalf ||
                       t.scalar_type() == at::kBFloat16,
                   op, ": expected ", name, " of dtype float16, bfloat16, float32 or float64, got ", t.scalar_type());
}
inline DType floating_type(const char* op, const Tensor& t) {
  check_floating(op, "values", t);
  return number_type(op, t);
}

// -- checks on shapes and kinds: read no data, so fake tensors pass through them as well

inline void check_has_rows(const char* op, const char* name, const Tensor& t) {
  TORCH_CHECK_VALUE(t.dim() >= 1, op, ": expected ", name, " with at least 1 dimension, got a scalar");
}

inline void check_index(const char* op, const char* name, const Tensor& t, c10::Device device) {
  TORCH_CHECK_TYPE(t.defined() && t.layout() == at::kStrided, op, ": expected ", name, " as a dense tensor, got ",
                   t.defined() ? c10::str(t.layout()) : "none");
  TORCH_CHECK_VALUE(t.dim() == 1, op, ": expected a 1-D ", name, ", got ", t.dim(), " dimensions");
  TORCH_CHECK_TYPE(t.scalar_type() == at::kLong, op, ": expected ", name, " of dtype int64, got ", t.scalar_type());
  TORCH_CHECK_TYPE(t.device() == device, op, ": expected ", name, " on ", device, ", got ", t.device());
}

inline void check_row_count(const char* op, const c10::SymInt& rows) {
  TORCH_CHECK_VALUE(TORCH_GUARD_OR_TRUE(rows.sym_ge(0)), op, ": expected rows >= 0, got ", rows);
}

inline void check_offsets_kind(const char* op, const Tensor& offsets, c10::Device device,
                               const char* name = "row_offsets") {
  check_index(op, name, offsets, device);
  TORCH_CHECK_VALUE(offsets.sym_size(0) >= 1, op, ": expected ", name, " with at least 1 entry, got none");
}

inline void check_segments(const char* op, const Tensor& values, const Tensor& offsets) {
  check_has_rows(op, "values", values);
  check_offsets_kind(op, offsets, values.device());
}

// -- checks on data

// With memory behind it: a storage that was resized under a tensor must not be read, nor copied from.
inline const Tensor& check_memory(const char* op, const Tensor& t) {
  int64_t end = t.storage_offset() + 1;
  for (int64_t d = 0; d < t.dim(); ++d) end += (t.size(d) - 1) * t.stride(d);
  TORCH_CHECK_VALUE(t.numel() == 0 || t.storage().nbytes() / t.element_size() >= size_t(end), op,
                    ": expected tensors with memory behind them, got one of ", t.numel(),
                    " elements over a storage of ", t.storage().nbytes(), " bytes");
  return t;
}
inline Tensor readable(const char* op, const Tensor& given) { return check_memory(op, given).contiguous(); }
inline Tensor readable(const char* op, const OptionalTensor& given) { return given ? readable(op, *given) : Tensor(); }

// Where offsets break the rules: they start at 0, never decrease, and end at `end` (-1: anywhere).
struct Fault {
  enum Rule { none, start, order, end } rule = none;
  int64_t index = 0, before = 0, here = 0, longest = 0;
};
inline Fault find_fault(const int64_t* offsets, int64_t count, int64_t end) {
  if (offsets[0] != 0) return {Fault::start, 0, 0, offsets[0]};
  const Rise rise = LOD_PICK(rise_of)(offsets, count);
  if (rise.falls)
    for (int64_t i = 1; i < count; ++i)
      if (offsets[i] < offsets[i - 1]) return {Fault::order, i, offsets[i - 1], offsets[i]};
  if (end >= 0 && offsets[count - 1] != end) return {Fault::end, count - 1, end, offsets[count - 1]};
  return {Fault::none, 0, 0, 0, rise.longest};
}

// The offsets as the kernels want them: contiguous, and known to cut [0, rows) into segments. Offsets on a GPU are
// reported asynchronously; until then the kernels clamp them. They are called `name`, and
// the tensor whose rows they cut `of`.
inline Tensor checked_offsets(const char* op, const Tensor& given, int64_t rows, const char* name = "row_offsets",
                              const char* of = "values") {
  const Tensor offsets = readable(op, given);
  const int64_t count = offsets.size(0);
  if (!offsets.is_cpu()) {
    const auto ok = offsets[0]
                        .eq(0)
                        .logical_and(offsets[count - 1].eq(rows))
                        .logical_and(offsets.narrow(0, 1, count - 1).ge(offsets.narrow(0, 0, count - 1)).all());
    at::_assert_async(ok, std::string(op) + ": " + name + " do not cut the rows of " + of + " into segments");
    return offsets;
  }
  const Fault fault = find_fault(offsets.const_data_ptr<int64_t>(), count, rows);
  switch (fault.rule) {
    case Fault::none: break;
    case Fault::start: TORCH_CHECK_VALUE(false, op, ": expected ", name, " to start at 0, got ", fault.here);
    case Fault::order:
      TORCH_CHECK_VALUE(false, op, ": expected ", name, " not to decrease, got ", fault.before, " then ", fault.here,
                        " at index ", fault.index);
    case Fault::end:
      TORCH_CHECK_VALUE(false, op, ": expected the last of ", name, " to equal the ", rows, " rows of ", of, ", got ",
                        fault.here, " at index ", fault.index);
  }
  return offsets;
}

inline Tensor checked_map(const char* op, const char* name, const Tensor& given, int64_t rows) {
  const Tensor map = readable(op, given);
  if (!map.is_cpu()) {
    at::_assert_async(map.ge(-1).logical_and(map.lt(rows)).all(),
                      std::string(op) + ": " + name + " holds a row out of range");
    return map;
  }
  const auto* m = map.const_data_ptr<int64_t>();
  for (int64_t i = 0, n = map.numel(); i < n; ++i)
    TORCH_CHECK_INDEX(m[i] >= -1 && m[i] < rows, op, ": expected ", name, " in [-1, ", rows - 1, "], got ", m[i],
                      " at index ", i);
  return map;
}

// -- shapes of results

inline c10::SymInt sym_width(const Tensor& t) {
  c10::SymInt width = 1;
  for (int64_t d = 1; d < t.dim(); ++d) width = width * t.sym_size(d);
  return width;
}
inline int64_t width_of(const Tensor& t) { return sym_width(t).expect_int(); }

// A LoDView that holds what it looks at: contiguous values, and offsets known to cut their rows (on a GPU: clamped).
struct HeldView : LoDView {
  Tensor values, row_offsets;
};
inline HeldView make_view(const char* op, const Tensor& values, const Tensor& row_offsets) {
  check_segments(op, values, row_offsets);
  const Tensor x = readable(op, values), offsets = checked_offsets(op, row_offsets, x.size(0));
  return {{offsets.const_data_ptr<int64_t>(), offsets.size(0) - 1, x.size(0), width_of(x)}, x, offsets};
}

inline std::vector<c10::SymInt> sym_shape(const Tensor& t, c10::SymInt rows) {
  auto shape = t.sym_sizes().vec();
  shape[0] = std::move(rows);
  return shape;
}
inline void check_rows_like(const char* op, const char* name, const Tensor& t, const Tensor& like,
                            const c10::SymInt& rows) {
  TORCH_CHECK_TYPE(t.scalar_type() == like.scalar_type() && t.device() == like.device(), op, ": expected ", name,
                   " of dtype ", like.scalar_type(), " on ", like.device(), ", got ", t.scalar_type(), " on ",
                   t.device());
  const auto shape = sym_shape(like, rows);
  TORCH_CHECK_VALUE(t.sym_sizes() == c10::SymIntArrayRef(shape), op, ": expected ", name, " of shape ",
                    c10::SymIntArrayRef(shape), ", got ", t.sym_sizes());
}
// Uninitialised, except where bad offsets on a GPU could leave rows that no segment covers.
inline Tensor new_rows(const Tensor& t, int64_t rows) {
  auto out = at::empty_symint(sym_shape(t, rows), t.options());
  if (!out.is_cpu()) out.zero_();
  return out;
}

}  // namespace lod
