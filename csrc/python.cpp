// SPDX-License-Identifier: Apache-2.0
// Operators as Python functions. torch's own way from Python to an operator of a library takes longer than a small
// kernel: it runs Python code, looks for the operator, and compares every argument with the schema. Here the operator
// is known, and arguments are read by their kind.
//
// Where an argument is not of the plain kind (a subclass, a symbol, a keyword), or a mode looks on, the call goes
// torch's way, which also knows what to say of wrong arguments. So it does in a transform of torch.func and with
// forward-mode tangents, if the operator has no other way there.
#include <ATen/PythonTorchFunctionTLS.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <torch/csrc/Exceptions.h>

#include <string>
#include <vector>

#include "core/python.h"

namespace lod {
namespace {

using torch::jit::Stack;

enum class Kind { tensor, tensors, integer, real, number, truth, text };

struct Parameter {
  Kind kind;
  bool optional;
  std::optional<c10::IValue> standard;
};

struct Function {
  c10::OperatorHandle op;
  PyObject* otherwise;  // torch's own function of the operator, or one that finds a way
  std::string name;
  std::vector<Parameter> parameters;
  PyMethodDef method;
};

Kind kind_of(const c10::Type& type) {
  switch (type.kind()) {
    case c10::TypeKind::TensorType: return Kind::tensor;
    case c10::TypeKind::ListType: return Kind::tensors;
    case c10::TypeKind::IntType: return Kind::integer;
    case c10::TypeKind::FloatType: return Kind::real;
    case c10::TypeKind::NumberType: return Kind::number;
    case c10::TypeKind::BoolType: return Kind::truth;
    case c10::TypeKind::StringType: return Kind::text;
    default: TORCH_CHECK(false, "expected an operator of tensors, numbers and strings, got ", type.str());
  }
}

Parameter parameter_of(const c10::Argument& argument) {
  const c10::Type& type = *argument.type();
  const bool optional = type.kind() == c10::TypeKind::OptionalType;
  return {kind_of(optional ? *type.castRaw<c10::OptionalType>()->getElementType() : type), optional,
          argument.default_value()};
}

// Whether it is a tensor, and one that torch takes without asking its class.
bool is_plain(PyObject* given) {
  using at::impl::PythonTorchFunctionTLS, at::impl::TorchFunctionDisabledState;
  const bool exact = Py_TYPE(given) == reinterpret_cast<PyTypeObject*>(THPVariableClass);
  if (!exact && (PythonTorchFunctionTLS::get_disabled_state() == TorchFunctionDisabledState::ENABLED ||
                 !THPVariable_Check(given)))
    return false;
  return !has_names(THPVariable_Unpack(given));
}

// Puts an argument on the stack; false where torch has to look at it.
bool put(Stack& stack, const Parameter& to, PyObject* given) {
  if (given == Py_None) {
    if (to.optional) stack.emplace_back();
    return to.optional;
  }
  switch (to.kind) {
    case Kind::tensor: {
      if (!is_plain(given)) return false;
      stack.emplace_back(THPVariable_Unpack(given));
      return true;
    }
    case Kind::tensors: {
      if (!PyList_CheckExact(given) && !PyTuple_CheckExact(given)) return false;
      c10::List<at::Tensor> list;
      for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(given); ++i) {
        PyObject* item = PySequence_Fast_GET_ITEM(given, i);
        if (!is_plain(item)) return false;
        list.push_back(THPVariable_Unpack(item));
      }
      stack.emplace_back(std::move(list));
      return true;
    }
    case Kind::truth: {
      if (!PyBool_Check(given)) return false;
      stack.emplace_back(given == Py_True);
      return true;
    }
    case Kind::text: {
      Py_ssize_t size = 0;
      const char* text = PyUnicode_CheckExact(given) ? PyUnicode_AsUTF8AndSize(given, &size) : nullptr;
      PyErr_Clear();
      if (text) stack.emplace_back(std::string(text, size_t(size)));
      return text;
    }
    case Kind::integer:
    case Kind::real:
    case Kind::number: {
      const auto value = number_of(given);
      if (!value || (to.kind == Kind::integer && value->isFloatingPoint())) return false;
      if (to.kind == Kind::real) stack.emplace_back(value->toDouble());
      else stack.emplace_back(*value);
      return true;
    }
  }
  return false;
}

bool put_all(Stack& stack, const std::vector<Parameter>& parameters, PyObject* const* given, size_t count) {
  if (count > parameters.size() || at::impl::torch_function_mode_enabled()) return false;
  stack.reserve(parameters.size());
  for (size_t i = 0; i < count; ++i)
    if (!put(stack, parameters[i], given[i])) return false;
  for (size_t i = count; i < parameters.size(); ++i) {
    if (!parameters[i].standard) return false;
    stack.push_back(*parameters[i].standard);
  }
  return true;
}

// As Python has it: a new reference, or null and an error that is set.
PyObject* returned(const c10::IValue& value) {
  if (value.isTensor()) return THPVariable_Wrap(value.toTensor());
  if (value.isInt()) return PyLong_FromLongLong(value.toInt());
  TORCH_CHECK(value.isList(), "expected an operator whose results are tensors, whole numbers and lists of them");
  const auto list = value.toListRef();
  PyObject* out = PyList_New(Py_ssize_t(list.size()));
  for (size_t i = 0; out && i < list.size(); ++i) {
    PyObject* item = returned(list[i]);
    if (!item) Py_CLEAR(out);
    else PyList_SET_ITEM(out, Py_ssize_t(i), item);
  }
  return out;
}

PyObject* returned(const Stack& stack) {
  if (stack.empty()) Py_RETURN_NONE;
  if (stack.size() == 1) return returned(stack[0]);
  PyObject* out = PyTuple_New(Py_ssize_t(stack.size()));
  for (size_t i = 0; out && i < stack.size(); ++i) {
    PyObject* item = returned(stack[i]);
    if (!item) Py_CLEAR(out);
    else PyTuple_SET_ITEM(out, Py_ssize_t(i), item);
  }
  return out;
}

PyObject* call(PyObject* self, PyObject* const* given, Py_ssize_t count, PyObject* keywords) {
  HANDLE_TH_ERRORS
  const auto& f = *static_cast<const Function*>(PyCapsule_GetPointer(self, nullptr));
  Stack stack;
  if (keywords || is_transformed() || !put_all(stack, f.parameters, given, size_t(count)))
    return PyObject_Vectorcall(f.otherwise, given, size_t(count), keywords);
  {
    const pybind11::gil_scoped_release others_may_run;
    f.op.callBoxed(stack);
  }
  return returned(stack);
  END_HANDLE_TH_ERRORS
}

// function("segment_reduce", torch.ops.torch_lod.segment_reduce.default): the same function, faster.
PyObject* function(PyObject*, PyObject* const* given, Py_ssize_t count) {
  HANDLE_TH_ERRORS
  const char* name = count == 2 ? PyUnicode_AsUTF8(given[0]) : nullptr;
  TORCH_CHECK(name, "expected a name and a function");
  const auto op = c10::Dispatcher::singleton().findSchemaOrThrow((std::string("torch_lod::") + name).c_str(), "");
  auto* made = new Function{op, Py_NewRef(given[1]), name, {}, {}};  // as long as the process, like the operator
  for (const c10::Argument& argument : op.schema().arguments()) made->parameters.push_back(parameter_of(argument));
  made->method = {made->name.c_str(), reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(&call)),
                  METH_FASTCALL | METH_KEYWORDS, nullptr};
  PyObject* self = PyCapsule_New(made, nullptr, nullptr);
  PyObject* out = self ? PyCFunction_New(&made->method, self) : nullptr;
  Py_XDECREF(self);
  return out;
  END_HANDLE_TH_ERRORS
}

// Whether all tensors among the arguments are dense and have memory behind them.
PyObject* have_memory(PyObject*, PyObject* const* given, Py_ssize_t count) {
  HANDLE_TH_ERRORS
  for (Py_ssize_t i = 0; i < count; ++i)
    if (THPVariable_Check(given[i]) && !may_be_read(THPVariable_Unpack(given[i]))) Py_RETURN_FALSE;
  Py_RETURN_TRUE;
  END_HANDLE_TH_ERRORS
}

PyMethodDef methods[] = {
    {"function", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(&function)), METH_FASTCALL, nullptr},
    {"have_memory", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(&have_memory)), METH_FASTCALL, nullptr},
    {nullptr, nullptr, 0, nullptr},
};
PyModuleDef module{PyModuleDef_HEAD_INIT, "torch_lod._C", nullptr, -1, methods, nullptr, nullptr, nullptr, nullptr};

}  // namespace
}  // namespace lod

PyMODINIT_FUNC PyInit__C() {
  PyObject* module = PyModule_Create(&lod::module);
  if (module && PyModule_AddFunctions(module, lod::at_once) < 0) Py_CLEAR(module);
  return module;
}
