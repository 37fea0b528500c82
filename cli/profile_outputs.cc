#include "cli/profile_outputs.h"

#include <fmt/core.h>

#include <cerrno>
#include <cstdio>

#include "base/visible.h"
#include "evenkeel/error.h"
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

void ProfileOutputs::require_writable() const {
  for (const std::string& path : paths()) require_writable_output(path);
}

void write_output(const std::string& path, const std::string& text) {
  if (path != "-") return write_report(path, text);
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  if (!written || std::fflush(stdout) != 0) throw Error::system("write", errno).in("stdout");
}

void require_writable_output(const std::string& path) {
  if (path != "-") evenkeel::require_writable(path);
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

}  // namespace evenkeel::cli
