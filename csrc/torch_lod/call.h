// SPDX-License-Identifier: Apache-2.0
// Calls of operators through the dispatcher, by name: Call<name, type>::call(...).
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/macros/Macros.h>

#include <algorithm>
#include <string>

// The library whose operators this source implements: extensions define it before this header.
#ifndef LOD_LIBRARY
#define LOD_LIBRARY torch_lod
#endif

namespace lod {

template <size_t size>
struct Name {
  char text[size];
  constexpr Name(const char (&from)[size]) { std::copy_n(from, size, text); }
};

template <Name name, class Type, Name library = C10_STRINGIZE(LOD_LIBRARY)>
struct Call;
template <Name name_, class R, class... A, Name library_>
struct Call<name_, R(A...), library_> {
  using Type = R(A...);
  static constexpr const char *name = name_.text, *library = library_.text;
  static c10::OperatorHandle find(const char* suffix = "") {
    return c10::Dispatcher::singleton().findSchemaOrThrow((std::string(library) + "::" + name + suffix).c_str(), "");
  }
  static R call(A... a) {
    static const auto handle = find().typed<R(A...)>();
    return handle.call(std::forward<A>(a)...);
  }
};

}  // namespace lod
