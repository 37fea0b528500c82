#include "cli/guard_words.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/visible.h"
#include "cli/describe.h"
#include "cli/table.h"
#include "cli/terminal.h"
#include "evenkeel/bytes.h"

namespace evenkeel::cli {
namespace {

std::string times(std::uint64_t count) {
  return count == 1 ? "once" : count == 2 ? "twice" : with_commas(count) + " times";
}

std::string switches(const GuardReport& report) {
  if (report.switches_to_random + report.switches_to_readahead == 0) return "left as it was";
  std::string words = "readahead off " + times(report.switches_to_random);
  if (report.switches_to_readahead != 0) {
    words += ", on again " + times(report.switches_to_readahead);
  }
  return words;
}

// Suggests a larger budget for files that were read many times; empty if they were not.
std::string reread(const GuardReport& report, std::size_t files) {
  constexpr double kManyTimes = 2;
  if (report.file_bytes == 0) return "";
  const double times =
      static_cast<double>(report.bytes_fetched) / static_cast<double>(report.file_bytes);
  if (times < kManyTimes) return "";
  const bool one = files == 1;
  return fmt::format("read {:.1f} × the file{}; a budget of {} would hold {}", times,
                     one ? "" : "s", format_size(report.file_bytes), one ? "it" : "them");
}

// With --keep-cache, files that fit may be mapped and unmapped between two samples.
std::string in_memory(const GuardReport& report) {
  if (report.peak_cached == 0 && report.file_bytes <= report.budget) return "all fit the budget";
  return format_size(report.guarded_peak) + " of them in memory at the peak";
}

// Empty if nothing was cached before. Such pages do not count against the budget: the guard
// releases them.
std::string cached_before(const GuardReport& report) {
  if (report.peak_cached <= report.guarded_peak) return "";
  return fmt::format("{} with what was cached before they were guarded",
                     format_size(report.peak_cached));
}

std::string line(const char* what, const std::string& value) {
  return fmt::format("  {:<24}{}\n", what, value);
}

}  // namespace

std::string why_unguarded(const Program& program) {
  switch (program.kind) {
    case ProgramKind::kStatic:
      return visible(program.path) +
             " is statically linked: no library can be loaded into it, so it runs unguarded. Guard "
             "it from outside instead: evenkeel guard --pid N (needs CAP_SYS_NICE)";
    case ProgramKind::kForeign:
      return visible(program.path) +
             " is built for another processor architecture: it runs unguarded";
    case ProgramKind::kPrivileged:
      return visible(program.path) +
             " runs with the rights of another user (setuid, setgid or capabilities): it is left "
             "alone, unguarded";
    case ProgramKind::kDynamic:
    case ProgramKind::kUnknown:
      return "";
  }
  return "";
}

std::string guard_words(const GuardReport& report, std::size_t files, const ProfileRun& run,
                        const ProfileSummary& summary) {
  std::string text = fmt::format("guard: {} after {:.1f} s, budget {}\n", run.ended, run.seconds,
                                 format_size(report.budget));
  if (files == 0) {
    text += line("mapped files", "none that are guarded (see --min, --files)");
  } else {
    text += line("mapped files", fmt::format("{} guarded, {}", files, in_memory(report)));
    if (const std::string words = cached_before(report); !words.empty()) text += line("", words);
    text += line("released", format_size(report.bytes_released));
    if (const std::string words = reread(report, files); !words.empty()) text += line("", words);
  }
  text += line("read from disk", format_size(summary.disk_read));
  text +=
      line("peak RSS", fmt::format("{} (anon {}, file {})", format_size(summary.peak_rss),
                                   format_size(summary.peak_anon), format_size(summary.peak_file)));
  if (files != 0) {
    text += line("access", switches(report));
    text += line("cost", fmt::format("{:.1f} % of a core",
                                     100 * report.cpu_seconds / std::max(run.seconds, 0.001)));
  }
  for (const std::string& failure : report.failures)
    text += wrapped("note: " + visible(failure), 0);
  return text;
}

std::string guard_verdict(const GuardReport& report, const ProfileSummary& summary) {
  const std::string budget = format_size(report.budget), peak = format_size(report.guarded_peak);
  const std::string covered =
      report.guarded_peak <= report.budget
          ? fmt::format("The guarded files stayed within the budget of {}. They reached {}.",
                        budget, peak)
          : fmt::format("The guarded files reached {}, with a budget of {}.", peak, budget);
  return fmt::format("{} The whole program reached {}, which the budget does not cover.", covered,
                     format_size(summary.peak_memory));
}

void add_guard_facts(ProfileRun& run, const GuardReport& report, std::size_t files) {
  run.guarded_peak = report.guarded_peak;
  run.facts.emplace_back("guard: most of mapped files in memory", format_size(report.guarded_peak));
  if (const std::string words = cached_before(report); !words.empty()) {
    run.facts.emplace_back("guard: at the start", words);
  }
  run.facts.emplace_back("guard: released", format_size(report.bytes_released));
  if (const std::string words = reread(report, files); !words.empty()) {
    run.facts.emplace_back("guard: read again", words);
  }
  run.facts.emplace_back("guard: access", switches(report));
  for (const std::string& failure : report.failures) run.notes.push_back("guard: " + failure);
}

}  // namespace evenkeel::cli
