// SPDX-License-Identifier: Apache-2.0
// What LoDTensors do most often, in one call. Each does what Python code of the same name does from operators; it
// answers None where that has to run: for what a transform or a tracer looks at, and for arguments of another kind.
// Tensors are held before other threads may run, which could give another tensor to the object in Python.
#include <ATen/EmptyTensor.h>
#include <ATen/PythonTorchFunctionTLS.h>
#include <ATen/ops/_unsafe_view.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones_like.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <torch/csrc/Exceptions.h>

#include <vector>

#include "core/python.h"
#include "torch_lod/call.h"

namespace lod {
namespace {

using OptionalTensor = std::optional<at::Tensor>;
using TakeRuns =
    Call<"take_runs", std::tuple<std::vector<at::Tensor>, at::Tensor, std::vector<int64_t>>(
                          at::TensorList levels, const OptionalTensor& starts, const OptionalTensor& lengths,
                          int64_t elements, bool kept, const OptionalTensor& within, int64_t most, bool last)>;
using GatherRuns = Call<"gather_runs", at::Tensor(const at::Tensor& values, const at::Tensor& starts,
                                                  const at::Tensor& row_offsets, c10::SymInt rows, int64_t step)>;
using CheckLod = Call<"check_lod", std::vector<int64_t>(at::TensorList offsets, int64_t rows, bool kept)>;
using JoinLods = Call<"join_lods", std::tuple<std::vector<at::Tensor>, std::vector<int64_t>>(at::TensorList levels,
                                                                                            int64_t depth, bool kept)>;
using SegmentConcat = Call<"segment_concat", at::Tensor(const at::Tensor& values, const at::Tensor& row_offsets,
                                                        const at::Tensor& others, const at::Tensor& other_offsets)>;
using ScatterRuns = Call<"scatter_runs", at::Tensor(const at::Tensor& values, const at::Tensor& starts,
                                                    const at::Tensor& row_offsets, c10::SymInt rows, int64_t step,
                                                    const at::Scalar& fill)>;

using Owned = pybind11::object;
Owned owned(PyObject* given) { return pybind11::reinterpret_steal<Owned>(given); }

PyObject* named(const char* name) { return PyUnicode_InternFromString(name); }

// Whether nothing but autograd looks on.
bool is_unwatched() {
  return !at::impl::torch_function_mode_enabled() && !c10::impl::TorchDispatchModeTLS::any_modes_set() &&
         !is_transformed();
}

// Whether it is a tensor of numbers in host memory.
bool is_ordinary(PyObject* given) {
  if (!THPVariable_Check(given)) return false;
  const at::Tensor& t = THPVariable_Unpack(given);
  return t.is_cpu() && is_in_memory(t) && may_be_read(t) && !has_names(t);
}

bool is_whole(PyObject* given) { return PyLong_Check(given); }

// What sizes are made dynamic with for torch.compile: the last of the arguments.
struct Dynamic {
  PyObject *DynamicInt, *mark, *dims;
  explicit Dynamic(PyObject* const* given) : DynamicInt(given[0]), mark(given[1]), dims(given[2]) {
    TORCH_CHECK_TYPE(PyType_Check(DynamicInt) &&
                         PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(DynamicInt), &PyLong_Type),
                     "expected a class of whole numbers, got another object");
  }
  PyObject* number(PyObject* whole) const {
    const auto argument = owned(PyTuple_Pack(1, whole));
    if (!argument) return nullptr;
    return PyLong_Type.tp_new(reinterpret_cast<PyTypeObject*>(DynamicInt), argument.ptr(), nullptr);
  }
};

// Sets what a LoD that has nothing yet knows, and makes its sizes dynamic for torch.compile; false and an error that is
// set where that fails.
bool describe(PyObject* lod, PyObject* level_names, PyObject* levels, PyObject* rows, PyObject* longest,
              const Dynamic& dynamic) {
  TORCH_CHECK_TYPE(!PyType_Check(lod), "expected a LoD, got a class");  // its attributes are not set like this
  for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(levels); ++k)
    if (PyObject_SetAttr(PyTuple_GET_ITEM(levels, k), dynamic.mark, dynamic.dims) < 0) return false;
  const auto symbols = owned(PyTuple_New(1 + PyTuple_GET_SIZE(longest)));
  for (Py_ssize_t k = 0; symbols && k < PyTuple_GET_SIZE(symbols.ptr()); ++k) {
    PyObject* symbol = dynamic.number(k ? PyTuple_GET_ITEM(longest, k - 1) : rows);
    if (!symbol) return false;
    PyTuple_SET_ITEM(symbols.ptr(), k, symbol);
  }
  static PyObject* const names[] = {named("level_names"), named("counted"),  named("levels"), named("_rows"),
                                    named("_longest"),    named("_symbols"), named("_cache")};
  const auto none = owned(PyTuple_New(0)), cache = owned(PyDict_New());
  PyObject* const values[] = {level_names, none.ptr(), levels, rows, longest, symbols.ptr(), cache.ptr()};
  for (size_t i = 0; i < std::size(names); ++i)  // as object.__setattr__ does it: Python finds a LoD immutable
    if (!values[i] || !names[i] || PyObject_GenericSetAttr(lod, names[i], values[i]) < 0) return false;
  return true;
}

// described(lod, level_names, levels, rows, longest, *dynamic): the LoD.
PyObject* described(PyObject*, PyObject* const* given, Py_ssize_t count) {
  HANDLE_TH_ERRORS
  TORCH_CHECK_TYPE(count == 8 && PyTuple_CheckExact(given[2]) && PyTuple_CheckExact(given[4]),
                   "expected a LoD, names, levels, a number, a tuple of numbers, and what makes sizes dynamic");
  return describe(given[0], given[1], given[2], given[3], given[4], Dynamic(given + 5)) ? Py_NewRef(given[0]) : nullptr;
  END_HANDLE_TH_ERRORS
}

// The structure of a LoDTensor, as far as C++ needs it. `found` unless a mask says which rows count, or the object has
// something else than a LoD.
struct Structure {
  explicit Structure(PyObject* x) {
    found = read(x);
    PyErr_Clear();
  }
  explicit Structure(Owned names) : level_names(std::move(names)) {}
  int64_t elements(size_t k) const { return k + 1 < offsets.size() ? offsets[k + 1].size(0) - 1 : rows; }

  Owned levels, level_names, longest;
  std::vector<at::Tensor> offsets;
  int64_t rows = 0;
  bool found = false;

 private:
  bool read(PyObject* x) {
    static PyObject* const names[] = {named("_lod"),        named("counted"), named("levels"),
                                      named("level_names"), named("_rows"),   named("_longest")};
    const auto lod = owned(PyObject_GetAttr(x, names[0]));
    if (!lod) return false;
    const auto of = [&](int i) {
      PyObject* found = PyObject_GetAttr(lod.ptr(), names[i]);
      if (!found) PyErr_Clear();
      return owned(found);
    };
    const auto is_tuple = [](const Owned& o) { return o && PyTuple_CheckExact(o.ptr()); };
    const Owned counted = of(1), count = of(4);
    levels = of(2), level_names = of(3), longest = of(5);
    if (!is_tuple(counted) || PyTuple_GET_SIZE(counted.ptr()) || !is_tuple(levels) || !level_names || !count ||
        !is_whole(count.ptr()) || !is_tuple(longest))
      return false;
    const Py_ssize_t depth = PyTuple_GET_SIZE(levels.ptr());
    for (Py_ssize_t k = 0; k < depth; ++k) {
      PyObject* level = PyTuple_GET_ITEM(levels.ptr(), k);
      if (!is_ordinary(level)) return false;
      offsets.push_back(THPVariable_Unpack(level));
      if (offsets.back().dim() != 1 || offsets.back().size(0) == 0) return false;
    }
    rows = PyLong_AsLongLong(count.ptr());
    return !PyErr_Occurred() && PyTuple_GET_SIZE(longest.ptr()) == depth;
  }
};

// Makes a tensor that no other object holds one with rows of a LoD, by its class; false and an error that is set where
// that fails.
bool become(PyObject* rows, PyObject* cls, PyObject* lod) {
  static PyObject *const class_name = named("__class__"), *const lod_name = named("_lod");
  return PyObject_SetAttr(rows, class_name, cls) == 0 && PyObject_SetAttr(rows, lod_name, lod) == 0;
}

// A LoDTensor of rows that no other object holds: k levels of a structure, and below them `levels`.
PyObject* made(const at::Tensor& rows, PyTypeObject* cls, PyObject* LoD, const Structure& of, size_t k,
               const std::vector<at::Tensor>& levels, const std::vector<int64_t>& lengths, const Dynamic& dynamic) {
  const auto depth = Py_ssize_t(of.offsets.size());
  TORCH_CHECK_VALUE(levels.size() + k == size_t(depth) && lengths.size() == levels.size(), "expected one LoD's levels");
  const auto own = owned(PyTuple_New(depth)), longest = owned(PyTuple_New(depth));
  if (!own || !longest) return nullptr;
  for (Py_ssize_t i = 0; i < depth; ++i) {
    const bool above = size_t(i) < k;
    PyObject* level = above ? Py_NewRef(PyTuple_GET_ITEM(of.levels.ptr(), i)) : THPVariable_Wrap(levels[i - k]);
    PyObject* length = above ? Py_NewRef(PyTuple_GET_ITEM(of.longest.ptr(), i)) : PyLong_FromLongLong(lengths[i - k]);
    PyTuple_SET_ITEM(own.ptr(), i, level);
    PyTuple_SET_ITEM(longest.ptr(), i, length);
    if (!level || !length) return nullptr;
  }
  static PyObject* const new_name = named("__new__");
  const auto count = owned(PyLong_FromLongLong(rows.size(0)));
  const auto lod = owned(PyObject_CallMethodOneArg(LoD, new_name, LoD));
  const auto out = owned(THPVariable_Wrap(rows));
  const bool done = count && lod && out &&
                    describe(lod.ptr(), of.level_names.ptr(), own.ptr(), count.ptr(), longest.ptr(), dynamic) &&
                    become(out.ptr(), reinterpret_cast<PyObject*>(cls), lod.ptr());
  return done ? Py_NewRef(out.ptr()) : nullptr;
}

// rearranged(x, k, index, starts, lengths, most, last, LoD, *dynamic): x with other sequences of level k, under the
// same levels. With an index, which is of level 0, the sequences at it; otherwise of every sequence the part that
// take_runs takes `within` it.
PyObject* rearranged(PyObject*, PyObject* const* given, Py_ssize_t count) {
  HANDLE_TH_ERRORS
  TORCH_CHECK_TYPE(count == 11 && is_whole(given[1]) && is_whole(given[5]) && PyType_Check(given[7]),
                   "expected rows, a level, what to take of it, a class, and what makes sizes dynamic");
  if (!is_unwatched() || !is_ordinary(given[0])) Py_RETURN_NONE;
  OptionalTensor taken[3];
  for (int i = 0; i < 3; ++i)
    if (PyObject* t = given[2 + i]; t != Py_None) {
      if (!is_ordinary(t)) Py_RETURN_NONE;
      taken[i] = THPVariable_Unpack(t);
    }
  const Structure of(given[0]);
  const Dynamic dynamic(given + 8);
  const auto k = size_t(PyLong_AsLongLong(given[1]));
  const int64_t most = PyLong_AsLongLong(given[5]);
  if (PyErr_Occurred()) return nullptr;
  const auto& [index, starts, lengths] = taken;
  const at::Tensor x = THPVariable_Unpack(given[0]);
  if (!of.found || k >= of.offsets.size() || (index && k)) Py_RETURN_NONE;
  std::vector<at::Tensor> levels;
  std::vector<int64_t> longest;
  at::Tensor rows;
  {
    const pybind11::gil_scoped_release others_may_run;
    const at::TensorList all(of.offsets);
    auto [below, begin, report] =
        index ? TakeRuns::call(all, index, at::ones_like(*index), all[0].size(0) - 1, true, {}, -1, false)
              : TakeRuns::call(all.slice(k + 1), starts, lengths, of.elements(k), true, all[k], most,
                               given[6] == Py_True);
    rows = GatherRuns::call(x, begin, below.back(), report[0], 1);
    const int own = index ? 1 : 0;  // an index takes runs of one sequence each, a level that is none of the result's
    levels.assign(below.begin() + own, below.begin() + own + Py_ssize_t(of.offsets.size() - k));
    longest.assign(report.begin() + 1 + own, report.end());
  }
  return made(rows, Py_TYPE(given[0]), given[7], of, k, levels, longest, dynamic);
  END_HANDLE_TH_ERRORS
}

// joined(list, within, LoD, *dynamic): the sequences of LoDTensors one batch after another; `within`: those of two, of
// one level, two by two.
PyObject* joined(PyObject*, PyObject* const* given, Py_ssize_t count) {
  HANDLE_TH_ERRORS
  TORCH_CHECK_TYPE(count == 6 && PyList_CheckExact(given[0]) && PyType_Check(given[2]),
                   "expected a list, how to join, a class, and what makes sizes dynamic");
  const bool within = given[1] == Py_True;
  const Dynamic dynamic(given + 3);
  const auto xs = owned(PyList_AsTuple(given[0]));  // the list may change meanwhile
  if (!xs) return nullptr;
  const Py_ssize_t n = PyTuple_GET_SIZE(xs.ptr());
  if (!is_unwatched() || n < 2 || (within && n > 2)) Py_RETURN_NONE;
  std::vector<at::Tensor> parts, all;
  int64_t total = 0;
  PyObject* const first = PyTuple_GET_ITEM(xs.ptr(), 0);
  if (!is_ordinary(first)) Py_RETURN_NONE;
  const Structure of(first);
  for (Py_ssize_t i = 0; of.found && i < n; ++i) {
    PyObject* x = PyTuple_GET_ITEM(xs.ptr(), i);
    if (Py_TYPE(x) != Py_TYPE(first) || !is_ordinary(x)) Py_RETURN_NONE;
    parts.push_back(THPVariable_Unpack(x));
    const Structure own(x);
    if (!own.found || own.offsets.size() != of.offsets.size() || parts[i].dim() != parts[0].dim() ||
        parts[i].dim() == 0 || parts[i].sizes().slice(1) != parts[0].sizes().slice(1))
      Py_RETURN_NONE;
    if (within && (own.offsets.size() > 1 || own.offsets[0].size(0) != of.offsets[0].size(0) ||
                   parts[i].scalar_type() != parts[0].scalar_type()))
      Py_RETURN_NONE;
    if (__builtin_add_overflow(total, own.rows, &total)) Py_RETURN_NONE;
    all.insert(all.end(), own.offsets.begin(), own.offsets.end());
  }
  if (!of.found) Py_RETURN_NONE;
  std::vector<at::Tensor> levels;
  std::vector<int64_t> report;
  at::Tensor rows;
  {
    const pybind11::gil_scoped_release others_may_run;
    if (within) {
      rows = SegmentConcat::call(parts[0], all[0], parts[1], all[1]);
      const c10::InferenceMode no(false);  // a LoD outlives the mode that it was made in
      levels = {all[0].add(all[1])};
      report = CheckLod::call(levels, rows.size(0), true);
      TORCH_CHECK_VALUE(report[0] == 0, "expected offsets of one LoD each, got others");
      report.erase(report.begin());
    } else {
      std::tie(levels, report) = JoinLods::call(all, int64_t(of.offsets.size()), true);
      rows = at::cat(parts);
    }
    report.erase(report.begin());
  }
  return made(rows, Py_TYPE(first), given[2], of, 0, levels, report, dynamic);
  END_HANDLE_TH_ERRORS
}

// kept(result, arguments, lod, LoDTensor): what a function of the arguments gave, as a LoDTensor where it is a tensor
// of as many rows as the LoD has; an argument as it is.
PyObject* kept(PyObject*, PyObject* const* given, Py_ssize_t count) {
  HANDLE_TH_ERRORS
  TORCH_CHECK_TYPE(count == 4, "expected a result, arguments, a LoD and a class");
  PyObject *result = given[0], *arguments = given[1], *lod = given[2];
  if (Py_TYPE(result) != reinterpret_cast<PyTypeObject*>(THPVariableClass) || !PyTuple_CheckExact(arguments))
    Py_RETURN_NONE;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(arguments); ++i)
    if (PyTuple_GET_ITEM(arguments, i) == result) return Py_NewRef(result);
  static PyObject* const rows_name = named("_rows");
  const auto rows = owned(PyObject_GetAttr(lod, rows_name));
  if (!rows) return nullptr;
  const at::Tensor& t = THPVariable_Unpack(result);
  if (t.dim() == 0 || !PyLong_CheckExact(rows.ptr()) || t.size(0) != PyLong_AsLongLong(rows.ptr())) Py_RETURN_NONE;
  return become(result, given[3], lod) ? Py_NewRef(result) : nullptr;
  END_HANDLE_TH_ERRORS
}

// clone() of what a LoD keeps, which is a few numbers.
at::Tensor copied(const at::Tensor& t) {
  if (t.scalar_type() != at::kLong || !t.is_contiguous()) return t.clone();
  at::Tensor copy = at::detail::empty_cpu(t.sizes(), t.options());
  std::memcpy(copy.mutable_data_ptr(), t.const_data_ptr(), t.nbytes());
  return copy;
}

// padded(rows, starts, row_offsets, lengths, sequences, length, fill): the padded rows and a copy of the lengths.
// Without starts all sequences are of one length, and the rows are copied as they are.
PyObject* padded(PyObject*, PyObject* const* given, Py_ssize_t count) {
  HANDLE_TH_ERRORS
  TORCH_CHECK_TYPE(count == 7 && is_whole(given[4]) && is_whole(given[5]), "expected rows, structure and two sizes");
  const bool equal = given[1] == Py_None;
  const auto fill = number_of(given[6]);
  if (!is_unwatched() || !is_ordinary(given[0]) || !fill) Py_RETURN_NONE;
  for (int i = 1; i < 4 && !equal; ++i)
    if (!is_ordinary(given[i])) Py_RETURN_NONE;
  const int64_t sequences = PyLong_AsLongLong(given[4]), length = PyLong_AsLongLong(given[5]);
  if (PyErr_Occurred()) return nullptr;
  int64_t places = 0;
  TORCH_CHECK_VALUE(sequences >= 0 && length >= 0 && !__builtin_mul_overflow(sequences, length, &places),
                    "expected two sizes, got ", sequences, " and ", length);
  const at::Tensor rows = THPVariable_Unpack(given[0]);
  if (rows.dim() == 0) Py_RETURN_NONE;
  int64_t all = places;  // numbers
  for (const int64_t size : rows.sizes().slice(1))
    if (__builtin_mul_overflow(all, size, &all)) Py_RETURN_NONE;
  at::Tensor structure[3], dense, lengths;
  for (int i = 0; i < 3 && !equal; ++i) structure[i] = THPVariable_Unpack(given[1 + i]);
  {
    const pybind11::gil_scoped_release others_may_run;
    std::vector<int64_t> shape{sequences, length};
    shape.insert(shape.end(), rows.sizes().begin() + 1, rows.sizes().end());
    if (equal) {
      dense = rows.clone(at::MemoryFormat::Contiguous);
      lengths = at::full({sequences}, length, at::kLong);
    } else {
      dense = ScatterRuns::call(rows, structure[0], structure[1], places, 1, *fill);
      lengths = copied(structure[2]);
    }
    dense = at::_unsafe_view(dense, shape);  // no other tensor is of this memory
  }
  const auto first = owned(THPVariable_Wrap(dense)), second = owned(THPVariable_Wrap(lengths));
  return first && second ? PyTuple_Pack(2, first.ptr(), second.ptr()) : nullptr;
  END_HANDLE_TH_ERRORS
}

// unpadded(dense, starts, lengths, level_names, LoDTensor, LoD, *dynamic): of every sequence of `dense`, (sequences,
// length, *element), `lengths` rows from `starts` on, or from its beginning without them.
PyObject* unpadded(PyObject*, PyObject* const* given, Py_ssize_t count) {
  HANDLE_TH_ERRORS
  TORCH_CHECK_TYPE(count == 9 && PyType_Check(given[4]) && PyType_Check(given[5]),
                   "expected a padded tensor, structure, two classes, and what makes sizes dynamic");
  const Dynamic dynamic(given + 6);
  const bool from_first = given[1] == Py_None;
  if (!is_unwatched() || !THPVariable_CheckExact(given[0]) || !is_ordinary(given[0]) || !is_ordinary(given[2]) ||
      !(from_first || is_ordinary(given[1])))
    Py_RETURN_NONE;
  const at::Tensor dense = THPVariable_Unpack(given[0]);
  if (dense.dim() < 2) Py_RETURN_NONE;
  const int64_t sequences = dense.size(0), length = dense.size(1);
  int64_t places = 0;
  if (sequences == INT64_MAX || __builtin_mul_overflow(sequences, length, &places)) Py_RETURN_NONE;
  const OptionalTensor starts = from_first ? OptionalTensor() : THPVariable_Unpack(given[1]);
  const at::Tensor lengths = THPVariable_Unpack(given[2]);
  Structure of(owned(Py_NewRef(given[3])));
  std::vector<int64_t> longest;
  at::Tensor rows;
  {
    const pybind11::gil_scoped_release others_may_run;
    const at::Tensor within = at::detail::empty_cpu({sequences + 1}, at::kLong);
    auto* first = within.mutable_data_ptr<int64_t>();
    for (int64_t s = 0; s <= sequences; ++s) first[s] = s * length;
    auto [below, begin, report] = TakeRuns::call({}, starts, lengths, places, true, within, -1, false);
    rows = GatherRuns::call(dense.flatten(0, 1), begin, below[0], report[0], 1);
    of.offsets = below;
    longest.assign(report.begin() + 1, report.end());
  }
  return made(rows, reinterpret_cast<PyTypeObject*>(given[4]), given[5], of, 0, of.offsets, longest, dynamic);
  END_HANDLE_TH_ERRORS
}

}  // namespace

PyMethodDef at_once[] = {
    {"described", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(&described)), METH_FASTCALL, nullptr},
    {"rearranged", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(&rearranged)), METH_FASTCALL, nullptr},
    {"kept", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(&kept)), METH_FASTCALL, nullptr},
    {"joined", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(&joined)), METH_FASTCALL, nullptr},
    {"padded", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(&padded)), METH_FASTCALL, nullptr},
    {"unpadded", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(&unpadded)), METH_FASTCALL, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace lod
