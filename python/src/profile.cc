#include "evenkeel/profile.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include "evenkeel/error.h"
#include "evenkeel/mark.h"
#include "src/bind.h"
#include "src/recording.h"
#include "src/without_gil.h"

namespace evenkeel::python {
namespace {

namespace nb = nanobind;
using nb::literals::operator""_a;

constexpr double kShortest = 0.001, kLongest = 3600;  // seconds

std::unique_ptr<Recording> begin(double interval, std::vector<std::string> files) {
  if (!(interval >= kShortest && interval <= kLongest)) {
    throw Error(ErrorKind::kInvalid, "profile",
                "an interval of " + std::to_string(interval) + " s is not within 0.001 to 3600 s");
  }
  const WithoutGil without;
  return std::make_unique<Recording>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(interval)),
      std::move(files));
}

ProfileReport end(Recording& recording, std::string name, std::string ended,
                  std::optional<std::uint64_t> budget) {
  const WithoutGil without;
  ProfileRun run = recording.stop();
  run.name = std::move(name);
  run.ended = std::move(ended);
  return report_of(std::move(run), budget);
}

template <class Value>
void put(nb::dict& into, const char* name, const Value& value) {
  into[name] = nb::cast(value);
}

nb::dict peaks(const ProfileSummary& summary) {
  nb::dict out;
  put(out, "memory", summary.peak_memory);
  put(out, "rss", summary.peak_rss);
  put(out, "anon", summary.peak_anon);
  put(out, "file", summary.peak_file);
  put(out, "shmem", summary.peak_shmem);
  put(out, "cache", summary.peak_cache);
  put(out, "pss", summary.peak_pss);
  put(out, "page_tables", summary.peak_page_tables);
  put(out, "swap", summary.peak_swap);
  return out;
}

nb::dict slopes(const ProfileSummary& summary) {
  nb::dict out;
  put(out, "memory", summary.slope_memory);
  put(out, "rss", summary.slope_rss);
  put(out, "anon", summary.slope_anon);
  return out;
}

nb::dict counters(const ProfileSummary& summary) {
  nb::dict out;
  put(out, "disk_read", summary.disk_read);
  put(out, "major_faults", summary.major_faults);
  put(out, "minor_faults", summary.minor_faults);
  put(out, "cpu_seconds", summary.cpu_seconds);
  put(out, "seconds_over_budget", summary.seconds_over_budget);
  put(out, "most_processes", summary.most_processes);
  return out;
}

ProfileSummary summary_of(const ProfileReport& report) {
  return summarize(report.runs.front(), report.budget);
}

std::vector<std::pair<double, std::string>> marks_of(const ProfileReport& report) {
  std::vector<std::pair<double, std::string>> marks;
  for (const ProfileMark& mark : report.runs.front().marks) {
    marks.emplace_back(mark.seconds, mark.text);
  }
  return marks;
}

}  // namespace

void bind_profile(nb::module_& module) {
  nb::class_<Recording>(module, "Recording", "A recording of this process, until `end`.")
      .def("mark", &Recording::mark, "text"_a);
  nb::class_<ProfileReport>(module, "Report", "The result of a recording.")
      .def_ro("title", &ProfileReport::title)
      .def_ro("subtitle", &ProfileReport::subtitle)
      .def_ro("budget", &ProfileReport::budget)
      .def_prop_ro("seconds", [](const ProfileReport& report) { return report.runs[0].seconds; })
      .def_prop_ro("notes", [](const ProfileReport& report) { return report.runs[0].notes; })
      .def_prop_ro("marks", &marks_of)
      .def_prop_ro(
          "peaks", [](const ProfileReport& report) { return peaks(summary_of(report)); },
          nb::sig("def peaks(self) -> dict[str, int | None]"))
      .def_prop_ro(
          "slopes", [](const ProfileReport& report) { return slopes(summary_of(report)); },
          nb::sig("def slopes(self) -> dict[str, float | None]"))
      .def_prop_ro(
          "counters", [](const ProfileReport& report) { return counters(summary_of(report)); },
          nb::sig("def counters(self) -> dict[str, float]"))
      .def("json", &to_json)
      .def("html", &to_html)
      .def("svg", &to_svg)
      .def("csv", [](const ProfileReport& report) { return to_csv(report.runs[0]); });
  module.def("begin_recording", &begin, "interval"_a, "files"_a);
  module.def("end_recording", &end, "recording"_a, "name"_a, "ended"_a, "budget"_a.none());
  module.def("write_report", &write_report, "path"_a, "text"_a);
  module.def("mark", &mark, "text"_a);
}

}  // namespace evenkeel::python
