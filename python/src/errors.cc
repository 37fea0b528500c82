// Error becomes the exception that a Python user would catch.
#include <exception>

#include "evenkeel/error.h"
#include "src/bind.h"

namespace evenkeel::python {
namespace {

namespace nb = nanobind;

// Paths are bytes, and messages contain paths, so neither need be UTF-8.
nb::object text_of(const std::string& bytes) {
  return nb::steal(PyUnicode_DecodeUTF8(bytes.data(), static_cast<Py_ssize_t>(bytes.size()),
                                        "backslashreplace"));
}

nb::object path_of(const std::string& bytes) {
  return nb::steal(
      PyUnicode_DecodeFSDefaultAndSize(bytes.data(), static_cast<Py_ssize_t>(bytes.size())));
}

// OSError selects a subclass by the errno: FileNotFoundError, PermissionError, ...
void raise_os_error(const Error& error) {
  const nb::object message = text_of(error.what());
  nb::object made =
      error.path().empty()
          ? nb::steal(PyObject_CallFunction(PyExc_OSError, "iO", error.code(), message.ptr()))
          : nb::steal(PyObject_CallFunction(PyExc_OSError, "iOO", error.code(), message.ptr(),
                                            path_of(error.path()).ptr()));
  if (made.is_valid())
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(made.ptr())), made.ptr());
}

PyObject* type_of(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kIndex:
      return PyExc_IndexError;
    case ErrorKind::kBudget:
      return PyExc_MemoryError;
    case ErrorKind::kInvalid:
    case ErrorKind::kFormat:
    case ErrorKind::kClosed:
    case ErrorKind::kSystem:
      break;
  }
  return PyExc_ValueError;
}

void translate(const std::exception_ptr& thrown, void*) {
  try {
    std::rethrow_exception(thrown);
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::kSystem) return raise_os_error(error);
    PyErr_SetObject(type_of(error.kind()), text_of(error.what()).ptr());
  }
}

}  // namespace

void bind_errors() { nb::register_exception_translator(translate); }

}  // namespace evenkeel::python
