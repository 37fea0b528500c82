#include "evenkeel/budget.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include <charconv>
#include <cstdlib>
#include <cstring>
#include <new>

#include "evenkeel/error.h"
#include "src/bind.h"
#include "src/interruptible.h"

namespace evenkeel::python {
namespace {

namespace nb = nanobind;
using nb::literals::operator""_a;

constexpr char kDoc[] =
    R"(A number of bytes that arrays may occupy in memory, together if they share it.

It covers buffers, resident pages of mappings and page-cache pages that reads bring in. Memory is
reserved before it is used. `size` is a number of bytes, "64MiB", "auto", or "1GiB/node", which the
processes of one node share (by LOCAL_WORLD_SIZE, SLURM_NTASKS_PER_NODE or OMPI_COMM_WORLD_LOCAL_SIZE).
The default is one eighth of the memory available. "auto" starts with that and follows memory
pressure: it grows while memory is free and shrinks when others need it. A budget that is pickled
for another process becomes a separate budget there.

>>> import evenkeel
>>> budget = evenkeel.Budget("64MiB")
>>> budget.limit, budget.in_use
(67108864, 0)
)";

// The processes per node, from the environment of torchrun, Slurm or Open MPI; 1 if none is set.
std::uint64_t processes_on_node() {
  for (const char* name :
       {"LOCAL_WORLD_SIZE", "SLURM_NTASKS_PER_NODE", "OMPI_COMM_WORLD_LOCAL_SIZE"}) {
    const char* text = std::getenv(name);
    if (!text || *text == '\0') continue;
    std::uint64_t count = 0;
    const char* const end = text + std::strlen(text);
    const auto [stop, failure] = std::from_chars(text, end, count);
    const bool number = failure == std::errc() && (stop == end || *stop == '(');  // Slurm: "4(x2)"
    if (number && count > 0) return count;
    throw Error(ErrorKind::kInvalid, "budget",
                std::string(name) + " in the environment must be a number of processes; got \"" +
                    text + "\"")
        .hint("unset it, or pass the budget of one process instead of \".../node\"");
  }
  return 1;
}

// What the user passed instead of something valid.
std::string passed(nb::handle value) {
  const std::string text = nb::repr(value).c_str();
  return text.size() < 60 ? text : nb::type_name(value.type()).c_str();
}

Budget of_number(nb::handle size) {
  const nb::object number = nb::steal(PyNumber_Index(size.ptr()));
  if (!number.is_valid()) throw nb::python_error();
  int overflow = 0;
  const long long bytes = PyLong_AsLongLongAndOverflow(number.ptr(), &overflow);
  if (bytes == -1 && PyErr_Occurred()) throw nb::python_error();
  if (overflow != 0) {
    throw Error(ErrorKind::kInvalid, "budget",
                std::string(nb::str(number).c_str()) + " bytes: must be from 0 to 2^63 - 1");
  }
  if (bytes < 0) {
    throw Error(ErrorKind::kInvalid, "budget",
                std::to_string(bytes) + " bytes: must not be negative");
  }
  return Budget(static_cast<std::uint64_t>(bytes));
}

Budget budget_of(nb::handle size) {
  if (size.is_none()) return Budget();
  if (nb::isinstance<Budget>(size)) return nb::cast<Budget&>(size);
  if (nb::isinstance<nb::str>(size)) {
    const auto text = nb::cast<std::string>(size);
    const bool of_node = text.find('/') != std::string::npos;
    return Budget::parse(text, of_node ? processes_on_node() : 1);
  }
  if (PyIndex_Check(size.ptr()) && !PyBool_Check(size.ptr())) return of_number(size);
  const std::string problem =
      "a budget is a number of bytes, a text such as \"64MiB\", or a Budget; got " + passed(size);
  throw nb::type_error(problem.c_str());
}

void resize(const Budget& budget, nb::handle size) {
  if (size.is_none() || nb::isinstance<Budget>(size)) {
    const std::string problem =
        "resize takes a number of bytes, or a text such as \"64MiB\"; got " + passed(size);
    throw nb::type_error(problem.c_str());
  }
  const std::uint64_t bytes = nb::isinstance<nb::str>(size)
                                  ? parse_size(nb::cast<std::string>(size))
                                  : budget_of(size).limit();
  interruptible([budget, bytes] { budget.resize(bytes); });
}

std::string shown(const Budget& budget) {
  return "<evenkeel.Budget " + budget.describe() + "; " + format_size(budget.in_use()) + " in use>";
}

}  // namespace

void bind_budget(nb::module_& module) {
  nb::class_<Reservation>(module, "Reservation",
                          "A share of a budget, released when this object is destroyed.")
      .def_prop_ro("bytes", &Reservation::bytes)
      .def("release", &Reservation::release);
  nb::class_<Budget>(module, "Budget", kDoc)
      .def(
          "__init__", [](Budget* self, nb::handle size) { new (self) Budget(budget_of(size)); },
          "size"_a = nb::none(),
          nb::sig("def __init__(self, size: int | str | Budget | None = None) -> None"))
      .def_prop_ro("limit", &Budget::limit, "The limit in bytes.")
      .def_prop_ro("in_use", &Budget::in_use, "Bytes reserved now.")
      .def_prop_ro("cached", &Budget::cached,
                   "Bytes that caches hold. They are freed when a reservation needs them.")
      .def_prop_ro("peak", &Budget::peak, "The most bytes that were ever reserved.")
      .def_prop_ro("left", &Budget::left,
                   "Bytes that can still be reserved, including those of caches.")
      .def_prop_ro("automatic", &Budget::is_automatic, "Whether it follows memory pressure.")
      .def("resize", &resize, "size"_a.none(), nb::sig("def resize(self, size: int | str) -> None"),
           "Changes the limit for all users of the budget. If it is smaller, caches shrink, then "
           "loaders read less ahead, and reads in progress are waited for; MemoryError, with the "
           "arithmetic, if the rest does not fit. If it is larger, caches may grow.")
      .def("describe", &Budget::describe, "The limit and where it comes from, in words.")
      .def(
          "uses",
          [](const Budget& budget) {
            nb::dict bytes;
            for (const BudgetUse& use : budget.uses()) {
              bytes[nb::str(use.what.data(), use.what.size())] = use.bytes;
            }
            return bytes;
          },
          nb::sig("def uses(self) -> dict[str, int]"),
          "What holds the budget now, with the bytes of each.")
      .def("reserve", &Budget::reserve, "bytes"_a, "what"_a,
           "Reserves a share; MemoryError, with the arithmetic, if it does not fit.")
      .def("__repr__", &shown)
      .def(
          "_repr_html_",
          [](nb::handle self) {
            return nb::cast<nb::str>(nb::module_::import_("evenkeel._html").attr("budget")(self));
          },
          nb::sig("def _repr_html_(self) -> str"))
      .def(
          "__reduce__",
          [](nb::handle self) {
            const Budget& budget = nb::cast<Budget&>(self);
            if (budget.is_automatic()) return nb::make_tuple(self.type(), nb::make_tuple("auto"));
            return nb::make_tuple(self.type(), nb::make_tuple(budget.limit()));
          },
          nb::sig("def __reduce__(self) -> tuple[type[Budget], tuple[int | str]]"));
  module.def("format_size", &format_size, "bytes"_a, "\"64 MiB\", \"1.5 GiB\".");
  module.def("parse_size", &parse_size, "text"_a, "Bytes of \"64MiB\", \"1.5 GB\".");
}

}  // namespace evenkeel::python
