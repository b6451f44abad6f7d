// The gate: what every tensor that is given to an operator passes once, before a kernel sees it (operator.h leads all
// of them through it), and the checks of structure. What an operator allocates itself does not pass again. Structure
// (offsets, maps, the first rows of runs) is checked on a copy that no other thread can write to: another thread may
// write to the tensor that was given at any time. What a LoD has made, and no other code writes to, carries a mark that
// says what is known of it, and is used as it is.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <memory>
#include <mutex>
#include <string>
#include <typeinfo>
#include <vector>

#include "torch_lod/each_level.h"
#include "torch_lod/memory.h"

namespace lod {

using OptionalTensor = std::optional<Tensor>;

// -- every tensor

inline bool passes(const Tensor& t) { return t.defined() && t.layout() == at::kStrided && has_memory(t); }

// The error of a tensor that does not pass.
[[noreturn]] inline void refuse(const char* op, const std::string& name, const Tensor& t) {
  TORCH_CHECK_TYPE(t.defined() && t.layout() == at::kStrided, op, ": expected ", name, " as a dense tensor, got ",
                   t.defined() ? c10::str(t.layout()) : "none");
  TORCH_CHECK_VALUE(false, op, ": expected ", name, " with memory behind it, got ", t.numel(),
                    " elements over a storage of ", t.has_storage() ? t.storage().nbytes() : 0, " bytes");
}

// Contiguous, as kernels read; none where none is given.
inline Tensor readable(const Tensor& t) { return t.contiguous(); }
inline Tensor readable(const OptionalTensor& t) { return t ? t->contiguous() : Tensor(); }

// -- marks

// What is attached to a mark, for as long as it lives.
struct Attached {
  virtual ~Attached() = default;
};

// What is known of a tensor of int64, for as long as it has the same memory and its version says that it was not
// written to.
struct Known final : c10::BackendMeta {
  Known(const Tensor& t, int64_t rows, bool cuts, bool apart, int64_t longest, Tensor host)
      : data(t.const_data_ptr()), count(t.numel()), version(now(t)), rows(rows), longest(longest), cuts(cuts),
        apart(apart), host(std::move(host)) {}
  static uint32_t now(const Tensor& t) { return t.unsafeGetTensorImpl()->version_counter().current_version(); }
  bool holds_for(const Tensor& t) const {
    return t.const_data_ptr() == data && t.numel() == count && t.is_contiguous() && now(t) == version;
  }
  const void* data;
  int64_t count;
  uint32_t version;
  int64_t rows;
  int64_t longest;  // of what offsets cut; of runs apart the rows of a cell of each, 0 of single rows; or -1: not known
  bool cuts;        // offsets that cut so many rows into segments; otherwise entries from -1 to rows - 1
  bool apart;       // the first rows of runs that do not meet
  Tensor host;      // of offsets on a GPU: the offsets in host memory that they are a copy of, or undefined
  // How the runs lie whose first rows these are, by `look` when it is asked for the first time of these offsets.
  template <class F>
  RunLayout lie(const Known& offsets, int64_t there, int64_t step, const F& look) const {
    const std::lock_guard guard(lock);
    if (runs_.offsets.get() != &offsets || runs_.there != there || runs_.step != step)
      runs_ = {c10::intrusive_ptr<c10::BackendMeta>::reclaim_copy(const_cast<Known*>(&offsets)), there, step, look()};
    return runs_.lie;
  }
  mutable std::mutex lock;
  mutable std::vector<std::unique_ptr<Attached>> kept;  // on GPUs (csrc/bindings/upload.h), under the lock

 private:
  struct RunsOf {
    c10::intrusive_ptr<c10::BackendMeta> offsets;  // kept alive, so that no others get its address
    int64_t there, step;
    RunLayout lie;
  };
  mutable RunsOf runs_{};  // under the lock
};

// What is known of a tensor, null if nothing. A mark that another library made is none here: its layout may be another.
inline const Known* known(const Tensor& t) {
  c10::TensorImpl* impl = t.unsafeGetTensorImpl();
  const c10::BackendMeta* meta = impl->get_backend_meta();
  if (!meta || &typeid(*meta) != &typeid(Known) || impl->is_inference()) return nullptr;
  const auto* found = static_cast<const Known*>(meta);
  return found->holds_for(t) ? found : nullptr;
}
inline bool known_to_cut(const Tensor& t, int64_t rows) {
  const Known* found = known(t);
  return found && found->cuts && (rows < 0 || found->rows == rows);
}
inline bool known_to_map(const Tensor& t, int64_t rows) {
  const Known* found = known(t);
  return found && !found->cuts && found->rows <= rows;
}
// Marks what is true of t, unless it has a mark: a tensor is marked once, since others may be reading the mark.
inline const Tensor& mark(const Tensor& t, int64_t rows, bool cuts, bool apart = false, int64_t longest = -1,
                          const Tensor& host = {}) {
  static std::mutex one_at_a_time;
  const std::lock_guard guard(one_at_a_time);
  c10::TensorImpl* impl = t.unsafeGetTensorImpl();
  if (!impl->is_inference() && !impl->get_backend_meta()) {
    impl->set_backend_meta(c10::make_intrusive<Known>(t, rows, cuts, apart, longest, host));
  }
  return t;
}

// -- structure

inline Tensor new_longs(int64_t count) { return Tensor(at::detail::empty_cpu({count}, at::kLong)); }

// A contiguous vector in host memory that no other thread writes to, by copy(from, to, count): `given` itself never.
template <class F>
Tensor copied(const Tensor& given, const F& copy) {
  const bool close = given.is_contiguous();
  const Tensor own = close ? new_longs(given.numel()) : given.contiguous();
  auto* to = own.mutable_data_ptr<int64_t>();
  copy(close ? given.const_data_ptr<int64_t>() : to, to, own.numel());
  return own;
}

// The first rows of runs, as the kernels want them.
inline Tensor owned(const Tensor& given) {
  if (!given.is_cpu() || known(given)) return given.contiguous();
  return copied(given, [](const int64_t* from, int64_t* to, int64_t count) {
    if (from != to && count) std::memcpy(to, from, count * sizeof(int64_t));
  });
}

// Looks at structure on a GPU without waiting for the answer: what is wrong is raised by a later call. The rules and
// the numbers that belong to them are in csrc/kernels/faults.h.
inline void watch(const char* rule, const Tensor& structure, const OptionalTensor& offsets, int64_t rows, int64_t own,
                  int64_t option, const char* op, const char* name, const char* of = "values") {
  using Type = void(const Tensor&, const OptionalTensor&, std::string_view, int64_t, int64_t, int64_t, std::string_view,
                    std::string_view, std::string_view);
  static const auto call =
      c10::Dispatcher::singleton().findSchemaOrThrow("torch_lod::watch_structure", "").typed<Type>();
  call.call(structure, offsets, rule, rows, own, option, op, name, of);
}

// Where offsets break the rules: they start at 0, never decrease, and end at `end` (-1: anywhere).
struct Fault {
  enum Rule { none, start, order, end } rule = none;
  int64_t index = 0, before = 0, here = 0, longest = 0;
};
inline Fault find_fault(const int64_t* offsets, int64_t count, int64_t end, const OffsetOrder& rise) {
  if (offsets[0] != 0) return {Fault::start, 0, 0, offsets[0]};
  if (rise.falls)
    for (int64_t i = 1; i < count; ++i)
      if (offsets[i] < offsets[i - 1]) return {Fault::order, i, offsets[i - 1], offsets[i]};
  if (end >= 0 && offsets[count - 1] != end) return {Fault::end, count - 1, end, offsets[count - 1]};
  return {Fault::none, 0, 0, 0, rise.longest};
}

// The offsets as the kernels want them: contiguous, and known to cut [0, rows) into segments (-1: any number of rows).
// Offsets on a GPU are watched, and the kernels clamp them. They are called `name`, and the tensor whose rows they cut
// `of`.
inline Tensor checked_offsets(const char* op, const Tensor& given, int64_t rows, const char* name = "row_offsets",
                              const char* of = "values") {
  if (known_to_cut(given, rows)) return given;
  const int64_t count = given.size(0);
  if (!given.is_cpu()) {
    const Tensor offsets = given.contiguous();
    watch("cuts", offsets, std::nullopt, rows, -1, 0, op, name, of);
    return offsets;
  }
  OffsetOrder rise{};
  const Tensor own = copied(given, [&](const int64_t* from, int64_t* to, int64_t n) {
    rise = LOD_PICK(copy_offsets)(from, to, n);
  });
  const Fault fault = find_fault(own.const_data_ptr<int64_t>(), count, rows, rise);
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
  return own;
}

// A map as the kernels want it: contiguous, with entries from -1 to rows - 1.
inline Tensor checked_map(const char* op, const char* name, const Tensor& given, int64_t rows) {
  if (known_to_map(given, rows)) return given;
  if (!given.is_cpu()) {
    const Tensor map = given.contiguous();
    watch("maps", map, std::nullopt, rows, -1, 0, op, name);
    return map;
  }
  bool fits = true;
  const Tensor own = copied(given, [&](const int64_t* from, int64_t* to, int64_t n) {
    fits = LOD_PICK(copy_map)(from, to, n, rows);
  });
  const auto* m = own.const_data_ptr<int64_t>();
  for (int64_t i = 0, n = fits ? 0 : own.numel(); i < n; ++i)
    TORCH_CHECK_INDEX(m[i] >= -1 && m[i] < rows, op, ": expected ", name, " in [-1, ", rows - 1, "], got ", m[i],
                      " at index ", i);
  return own;
}

}  // namespace lod
