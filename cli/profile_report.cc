#include "cli/profile_report.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "base/visible.h"
#include "cli/describe.h"
#include "cli/table.h"
#include "cli/terminal.h"
#include "evenkeel/bytes.h"
#include "evenkeel/error.h"
#include "prepare/input_files.h"
#include "profile/machine.h"
#include "profile/verdict.h"

namespace evenkeel::cli {

std::vector<std::string> ProfileOutputs::paths() const {
  std::vector<std::string> paths;
  for (const std::string& path : {html, json, svg}) {
    if (!path.empty()) paths.push_back(path);
  }
  return paths;
}

void ProfileOutputs::require_writable() const { require_writable_outputs(paths()); }

void write_output(const std::string& path, const std::string& text) {
  if (path != "-") return write_report(path, text);
  print_out(text);
  flush_stdout();
}

void require_writable_output(const std::string& path) {
  if (path != "-") evenkeel::require_writable(path);
}

void require_report_apart(const std::vector<std::string>& inputs, const std::string& path) {
  if (!path.empty() && path != "-") require_other_files(inputs, path, "");
}

void require_writable_outputs(const std::vector<std::string>& paths) {
  for (const std::string& path : paths) {
    if (std::count(paths.begin(), paths.end(), path) > 1) {
      throw Error(ErrorKind::kInvalid, "write report", "two outputs go to the same file")
          .in(path == "-" ? "stdout" : path)
          .hint("name another file for one of them");
    }
    require_writable_output(path);
  }
}

ProfileReport report_of(ProfileRun run, const ProfileSummary& summary,
                        std::optional<std::uint64_t> budget) {
  ProfileReport report;
  report.title = run.name;
  report.subtitle = memory_verdict(summary, budget) + " " + reclaimable_words(summary);
  report.budget = budget;
  describe_machine(report, run.files.empty() ? "." : run.files.front().path);
  report.runs.push_back(std::move(run));
  return report;
}

Written write_all(const ProfileOutputs& outputs, const ProfileReport& report) {
  Written written;
  const auto write = [&](const char* what, const std::string& path, auto text) {
    if (path.empty()) return;
    try {
      write_output(path, text(report));
      if (path != "-") written.words += fmt::format("{}: {}\n", what, visible(path));
    } catch (const Error& error) {
      written.words += fmt::format("evenkeel: {}\n", error.what());
      written.all = false;
    }
  };
  write("report", outputs.html, evenkeel::to_html);
  write("JSON", outputs.json, evenkeel::to_json);
  write("SVG", outputs.svg, evenkeel::to_svg);
  return written;
}

namespace {

std::string clock(double seconds) {
  const auto whole = static_cast<std::uint64_t>(seconds);
  return whole < 3600 ? fmt::format("{}:{:02}", whole / 60, whole % 60)
                      : fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
}

std::string size_of_slope(double bytes_per_minute) {
  return format_size(static_cast<std::uint64_t>(std::abs(bytes_per_minute)));
}

}  // namespace

std::string live_line(const ProfileSample& sample, std::optional<std::uint64_t> budget) {
  std::string line = fmt::format(
      " {}  RSS {} (anon {}, file {}, shmem {})  page cache {}", clock(sample.seconds),
      format_size(sample.rss()), format_size(sample.anon), format_size(sample.file),
      format_size(sample.shmem),
      sample.cache == ProfileSample::kUnknown ? "unknown" : "+" + format_size(sample.cache));
  if (sample.processes > 1) line += fmt::format("  {} processes", sample.processes);
  if (budget) {
    const double share = static_cast<double>(sample.memory()) /
                         static_cast<double>(std::max<std::uint64_t>(*budget, 1));
    line += fmt::format("  {} {:.0f} % of {}", bar(share, 10), 100 * share, format_size(*budget));
  }
  return line + " ";
}

std::string to_words(const ProfileRun& run, const ProfileSummary& summary) {
  const auto slope = [&](std::optional<double> bytes_per_minute, std::uint64_t peak) {
    return slope_words(bytes_per_minute, run.seconds / 2, peak);
  };
  Table table({"", "peak", "slope"});
  table.add({"memory", format_size(summary.peak_memory),
             slope(summary.slope_memory, summary.peak_memory)});
  table.add({"RSS", format_size(summary.peak_rss), slope(summary.slope_rss, summary.peak_rss)});
  table.add({"  anon (heap, stacks)", format_size(summary.peak_anon),
             slope(summary.slope_anon, summary.peak_anon)});
  table.add({"  file (mapped pages)", format_size(summary.peak_file), ""});
  table.add({"  shmem (shared)", format_size(summary.peak_shmem), ""});
  table.add({"PSS", size_or_unknown(summary.peak_pss), ""});
  table.add({"page cache added", size_or_unknown(summary.peak_cache), ""});
  table.add({"page tables", format_size(summary.peak_page_tables), ""});
  std::string text = table.text();
  text += fmt::format("\n{} after {:.1f} s, {:.1f} s of CPU, {} read from disk, {}, {} at once\n",
                      run.ended, run.seconds, summary.cpu_seconds, format_size(summary.disk_read),
                      counted(summary.major_faults, "major fault"),
                      counted(summary.most_processes, "process", "es"));
  for (const std::string& said : run.notes) text += wrapped("note: " + said, 0);
  return text;
}

std::string limits_words(const ProfileSummary& summary) {
  if (summary.peak_memory == 0) return "";
  std::string text = "Who would end this job:\n";
  for (const LimitVerdict& limit : limits_of(summary)) {
    text += wrapped(fmt::format("{} ({})", limit.name, limit.examples), 2);
    text += wrapped(limit.effect, 4);
  }
  return text;
}

std::string failed_check(const ProfileOptions& options, const ProfileRun& run,
                         const ProfileSummary& summary) {
  if (options.fail_over_budget && summary.peak_memory > *options.budget) {
    return fmt::format("over budget: {} bytes of memory at the peak, {} allowed",
                       with_commas(summary.peak_memory), with_commas(*options.budget));
  }
  if (!options.fail_slope) return "";
  if (!summary.slope_memory || !summary.slope_rss) {
    return fmt::format(
        "the slope cannot be computed from {:.1f} s and {} samples\n"
        "hint: at least 1 s and 16 samples are needed; run it longer, or shorten --interval",
        run.seconds, run.samples.size());
  }
  const double steepest = std::max(*summary.slope_memory, *summary.slope_rss);
  if (steepest <= *options.fail_slope) return "";
  return fmt::format("rising: {} per minute over the second half of the run, {} allowed",
                     size_of_slope(steepest), size_of_slope(*options.fail_slope));
}

}  // namespace evenkeel::cli
