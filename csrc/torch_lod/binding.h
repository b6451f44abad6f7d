// What every binding needs: argument checks with one message form, and dispatch to a device.
// Message form: "<op>: expected <what>, got <value>".
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/ops/empty.h>
#include <ATen/ops/scalar_tensor.h>

#ifdef LOD_CUDA
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#endif

#include "torch_lod/gate.h"
#include "torch_lod/lod_view.h"
#include "torch_lod/parallel.h"

namespace lod {

// -- devices

// What kernels on a GPU found wrong with structure (csrc/bindings/faults.cpp): null as long as none was asked.
inline const volatile uint64_t* written_faults = nullptr;
inline void (*raise_written_faults)() = nullptr;
inline void raise_faults() {
  if (written_faults && *written_faults) [[unlikely]] raise_written_faults();
}

#ifdef LOD_CUDA
#ifndef LOD_GPU_KEY  // tests/emulated_gpu has a device of its own
#define LOD_GPU_KEY CUDA
#define LOD_IS_GPU(tensor) (tensor).is_cuda()
#endif
#define LOD_RUN(tensor, kernel, ...)                                                             \
  do {                                                                                           \
    if (LOD_IS_GPU(tensor)) {                                                                    \
      lod::raise_faults();                                                                       \
      const c10::cuda::CUDAGuard guard((tensor).device());                                       \
      lod::cuda::kernel(lod::CudaExec{c10::cuda::getCurrentCUDAStream().stream()}, __VA_ARGS__); \
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
#define LOD_IS_GPU(tensor) false
#define LOD_RUN(tensor, kernel, ...) LOD_PICK(kernel)(lod::kCpu, __VA_ARGS__)
#define LOD_ON_CUDA(kernel)
#endif

// -- element types

inline std::optional<DType> number_of(at::ScalarType type) {
  switch (type) {
    case at::kDouble: return DType::f64;
    case at::kFloat: return DType::f32;
    case at::kHalf: return DType::f16;
    case at::kBFloat16: return DType::bf16;
    case at::kLong: return DType::i64;
    case at::kInt: return DType::i32;
    case at::kShort: return DType::i16;
    case at::kChar: return DType::i8;
    case at::kByte: return DType::u8;
    default: return std::nullopt;
  }
}
inline DType number_type(const char* op, const Tensor& t) {
  const auto type = number_of(t.scalar_type());
  TORCH_CHECK_TYPE(type, op, ": expected values of a floating or integer dtype, got ", t.scalar_type());
  return *type;
}

// The dtype in which kernels add up.
inline at::ScalarType summed_in(const Tensor& t) { return t.scalar_type() == at::kDouble ? at::kDouble : at::kFloat; }
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

// -- shapes of results

inline c10::SymInt sym_width(const Tensor& t) {
  c10::SymInt width = 1;
  for (int64_t d = 1; d < t.dim(); ++d) width = width * t.sym_size(d);
  return width;
}
inline int64_t width_of(const Tensor& t) { return sym_width(t).expect_int(); }

// The words that rows are copied as (device.h): so many in a row, of so many bytes. On the CPU a row of up to 16 bytes
// is one, and others are words of their elements, for vector code; on a GPU, where a thread takes one, as large as
// fits.
struct RowWords {
  int64_t width, item;
};
inline RowWords row_words(Tensor& t) {
  const int64_t width = width_of(t), item = t.element_size(), row = width * item;
  const auto aligned = [&t](int64_t to) {
    return reinterpret_cast<uintptr_t>(t.const_data_ptr()) % uintptr_t(to) == 0;
  };
  if (t.is_cpu()) {
    const bool one = row > 0 && row <= 16 && (row & (row - 1)) == 0 && aligned(row < 8 ? row : 8);
    return one ? RowWords{1, row} : RowWords{width, item};
  }
  if (!aligned(item)) t = t.clone();  // memory of another library, numbers of 16 bytes
  int64_t word = 16;
  while (row % word || !aligned(word)) word /= 2;
  return {row / word, word};
}
// The bytes of a number, as one word or several.
inline void put_fill(unsigned char* fill, const at::Scalar& value, const Tensor& like) {
  if (value.isIntegral(false) && value.equal(0)) return void(std::memset(fill, 0, 16));
  const Tensor number = at::scalar_tensor(value, at::TensorOptions(like.scalar_type()));
  for (int64_t i = 0, item = like.element_size(); i < 16; i += item)
    std::memcpy(fill + i, number.const_data_ptr(), item);
}

// A LoDView that holds what it looks at: contiguous values, and offsets known to cut their rows (on a GPU: clamped).
struct HeldView : LoDView {
  Tensor values, row_offsets;
};
inline HeldView make_view(const char* op, const Tensor& values, const Tensor& row_offsets) {
  check_segments(op, values, row_offsets);
  const Tensor x = readable(values), offsets = checked_offsets(op, row_offsets, x.size(0));
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
// Uninitialised: for kernels that write every row.
inline Tensor new_rows(const Tensor& t, int64_t rows) { return at::empty_symint(sym_shape(t, rows), t.options()); }
// The same for kernels that write the rows of every segment; zeros where bad offsets on a GPU could leave rows out.
inline bool may_leave_rows(const Tensor& offsets, int64_t rows) {
  return !offsets.is_cpu() && !known_to_cut(offsets, rows);
}
inline Tensor new_rows(const Tensor& t, int64_t rows, const Tensor& offsets) {
  auto out = new_rows(t, rows);
  return may_leave_rows(offsets, rows) ? out.zero_() : out;
}
// The same of a row for each segment of the rows of t.
inline Tensor new_segments(const Tensor& t, const Tensor& offsets) {
  auto out = new_rows(t, offsets.size(0) - 1);
  return may_leave_rows(offsets, t.size(0)) ? out.zero_() : out;
}

}  // namespace lod
