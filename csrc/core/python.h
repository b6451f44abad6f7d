// SPDX-License-Identifier: Apache-2.0
// What Python hands to functions in C++.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/forward_grad.h>
#include <torch/csrc/autograd/python_variable.h>

#include <optional>

#include "torch_lod/memory.h"

namespace lod {

// Older torch has names of dimensions, which it refuses here.
template <class T>
bool has_names(const T& t) {
  if constexpr (requires { t.has_names(); }) return t.has_names();
  return false;
}

inline bool may_be_read(const Tensor& t) { return t.layout() == at::kStrided && !t.is_nested() && has_memory(t); }

// Whether tensors may be other ones than they seem.
inline bool is_transformed() {
  return torch::autograd::ForwardADLevel::try_get_by_idx(0) ||
         c10::impl::tls_is_dispatch_key_included(c10::DispatchKey::FuncTorchDynamicLayerFrontMode);
}

// A float, or a whole number within int64; nothing for another object.
inline std::optional<at::Scalar> number_of(PyObject* given) {
  if (PyFloat_CheckExact(given)) return at::Scalar(PyFloat_AS_DOUBLE(given));
  int beyond = 0;
  const int64_t value = PyLong_CheckExact(given) ? PyLong_AsLongLongAndOverflow(given, &beyond) : 0;
  if (!PyLong_CheckExact(given) || beyond) return std::nullopt;
  return at::Scalar(value);
}

// Functions of the module beside the operators (at_once.cpp).
extern PyMethodDef at_once[];

}  // namespace lod
