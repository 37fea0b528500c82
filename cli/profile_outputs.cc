#include "cli/profile_outputs.h"

#include <fmt/core.h>

#include "base/visible.h"
#include "cli/profile_words.h"
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

ProfileReport report_of(ProfileRun run, const ProfileSummary& summary,
                        std::optional<std::uint64_t> budget) {
  ProfileReport report;
  report.title = run.name;
  report.subtitle = verdict(summary, budget) + " " + reclaimable_words(summary);
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
      write_report(path, text(report));
      written.words += fmt::format("{}: {}\n", what, visible(path));
    } catch (const Error& error) {
      written.words += fmt::format("evenkeel: {}\n", error.what());
      written.all = false;
    }
  };
  write("report", outputs.html, to_html);
  write("JSON", outputs.json, to_json);
  write("SVG", outputs.svg, to_svg);
  return written;
}

}  // namespace evenkeel::cli
